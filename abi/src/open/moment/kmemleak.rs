//! `/sys/kernel/debug/kmemleak` (mm/kmemleak.c, `print_unreferenced`), also from the log: objects that nothing seems to point to.
//!
//! ```text
//! unreferenced object 0xffff888112345678 (size 192):
//!   comm "example", pid 77, jiffies 4294901234 (age 12.345s)
//!   hex dump (first 32 bytes):
//!     6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b  kkkkkkkkkkkkkkkk
//!   backtrace (crc 1a2b3c4d):
//!     [<00000000abcdef01>] example_open+0x1c/0x40 [exampledrv]
//! ```

use super::entry::{Entry, Out, Reader, Took, Trouble};
use super::numbers::{self, Reason, first_word, hexadecimal, is_begin_of, number, trimmed};
use super::places;
use crate::open::symbols::{find, rfind};

/// Frames of a stack; the kernel keeps 16 (`MAX_TRACE`).
const MAX_FRAMES: usize = 256;
const FIRST: &[u8] = b"unreferenced object ";

/// True for the first line of an object.
pub(super) fn begins(line: &[u8]) -> bool {
    first(line).is_some()
}

/// The line without the blanks and the word that the log has before it.
fn bare(line: &[u8]) -> &[u8] {
    let line = trimmed(line);
    line.strip_prefix(b"kmemleak:").map_or(line, trimmed)
}

/// Address and size of an object.
fn first(line: &[u8]) -> Option<Result<[u64; 2], Reason>> {
    let text = bare(line).strip_prefix(FIRST)?;
    let text = [&b"(percpu) "[..], b"(phys) "].iter().find_map(|word| text.strip_prefix(*word)).unwrap_or(text);
    let (address, text) = first_word(text);
    let numbers = || {
        let size = text.strip_prefix(b"(size ").and_then(|size| size.strip_suffix(b"):")).ok_or("lacks its size")?;
        Ok([hexadecimal(address).ok_or("lacks its address")?, number(size)?])
    };
    Some(numbers())
}

/// Object that is read.
#[derive(Debug)]
struct Object {
    address: u64,
    size: u64,
    pid: Option<i32>,
    comm: Option<Vec<u8>>,
    has_backtrace: bool,
    stack: Vec<u64>,
    /// Frames that follow are of a call trace that the log has next.
    has_all: bool,
}

impl Object {
    /// Why the text ends inside the object, if it does.
    fn is_whole(&self, others_have_stacks: bool) -> bool {
        self.comm.is_some() && self.has_backtrace && !(self.stack.is_empty() && others_have_stacks)
    }
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Kmemleak {
    open: Option<Object>,
    has_objects: bool,
    has_stacks: bool,
}

impl Kmemleak {
    fn close(&mut self, out: &mut dyn Out) {
        let Some(object) = self.open.take() else { return };
        self.has_stacks |= !object.stack.is_empty();
        out.entry(&Entry {
            stack: &object.stack,
            objects: Some(1),
            allocated: Some(object.size),
            address: object.address,
            pid: object.pid,
            comm: object.comm.as_deref(),
            ..Entry::default()
        });
    }

    /// Takes a line below the first one; false for one of another form.
    fn take_below(&mut self, line: &[u8], out: &mut dyn Out) -> bool {
        let line = bare(line);
        if let Some(named) = line.strip_prefix(b"comm \"") {
            return self.take_comm(named);
        }
        if line.starts_with(b"backtrace") && line.ends_with(b":") {
            if let Some(object) = &mut self.open {
                object.has_backtrace = true;
            }
            return true;
        }
        if line.starts_with(b"hex dump (") || is_hex_dump(line) {
            return true;
        }
        if places::begins_trace(line)
            && let Some(object) = &mut self.open
        {
            object.has_all = true;
        }
        let Some(frame) = places::frame(line) else { return false };
        match &mut self.open {
            Some(object) if object.stack.len() < MAX_FRAMES && !object.has_all => object.stack.push(out.address(frame)),
            None if !self.has_objects => {
                self.has_objects = true;
                out.trouble(Trouble::Cut("begins inside an object"));
            }
            _ => {}
        }
        true
    }

    /// `example", pid 77, jiffies 4294901234 (age 12.345s)`.
    fn take_comm(&mut self, named: &[u8]) -> bool {
        let mark = b"\", pid ";
        let parts = rfind(named, mark).and_then(|end| named.split_at_checked(end));
        let Some((comm, Some(pid))) = parts.map(|(comm, rest)| (comm, rest.strip_prefix(mark))) else { return false };
        let pid = pid.split(|byte| *byte == b',').next().unwrap_or(pid);
        if let Some(object) = &mut self.open {
            object.comm = Some(comm.to_vec());
            object.pid = numbers::pid(pid).ok();
        }
        true
    }
}

/// `6b 6b 6b 6b  kkkk`: bytes, and the same as characters.
fn is_hex_dump(line: &[u8]) -> bool {
    let bytes = find(line, b"  ").and_then(|end| line.get(..end)).unwrap_or(line);
    !bytes.is_empty()
        && bytes.split(|byte| *byte == b' ').all(|word| word.len() == 2 && word.iter().all(u8::is_ascii_hexdigit))
}

impl Reader for Kmemleak {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if let Some(first) = first(line) {
            self.close(out);
            self.has_objects = true;
            match first {
                Ok([address, size]) => {
                    let (pid, comm, has_backtrace, stack) = (None, None, false, Vec::new());
                    self.open = Some(Object { address, size, pid, comm, has_backtrace, stack, has_all: false });
                }
                Err(reason) => out.trouble(Trouble::SkippedBlock(reason)),
            }
            return Took::Line;
        }
        if trimmed(line).is_empty() || self.take_below(line, out) { Took::Line } else { Took::NoLine }
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        let ends_inside = self.open.as_ref().is_some_and(|object| !object.is_whole(self.has_stacks));
        if is_cut || ends_inside {
            self.open = None;
            out.trouble(Trouble::Cut("ends inside an object"));
        }
        self.close(out);
    }

    fn is_inside(&self) -> bool {
        self.open.is_some()
    }

    /// Other lines are indented.
    fn begins_block(&self, line: &[u8]) -> bool {
        is_begin_of(line, FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, Told, behind, damage, read};
    use super::*;

    const OLD: &str = "unreferenced object 0xffff888112345678 (size 192):
  comm \"exa\", mp\", pid 77, jiffies 4294901234 (age 12.345s)
  hex dump (first 32 bytes):
    6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b 6b  kkkkkkkkkkkkkkkk
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 a5  ................
  backtrace:
    [<00000000abcdef01>] kmem_cache_alloc+0x1c/0x40
    [<00000000abcdef02>] example_open+0x1c/0x40 [exampledrv]
";
    const NEW: &str = "unreferenced object (percpu) 0x607fe2a00010 (size 8):
  comm \"example\", pid 7, jiffies 4294901234
  hex dump (first 8 bytes on cpu 0):
    00 00 00 00 00 00 00 00  ........
  backtrace (crc 1a2b3c4d):
    pcpu_alloc_noprof+0x1c/0x40
    0xffffffffc0a01234
";

    fn told(text: &str) -> Told {
        read(Kmemleak::default, text.as_bytes())
    }

    #[test]
    fn objects_of_all_versions_are_read() {
        let both = told(&[OLD, NEW].concat());
        assert_eq!((both.others, both.troubles.len(), both.entries.len()), (0, 0, 2));
        let [old, new] = &both.entries[..] else { unreachable!() };
        assert_eq!((old.address, old.allocated, old.pid), (0xffff_8881_1234_5678, Some(192), Some(77)));
        assert_eq!(old.comm.as_deref(), Some("exa\", mp"));
        assert_eq!(old.stack, ["kmem_cache_alloc+0x1c", "example_open+0x1c [exampledrv]"]);
        assert_eq!((new.allocated, new.stack[1].as_str()), (Some(8), "0xffffffffc0a01234"));
        let of_log: String = OLD.lines().map(|line| format!("kmemleak: {line}\n")).collect();
        assert_eq!(told(&of_log).entries, told(OLD).entries);
        let trace = "CPU: 1 PID: 77 Comm: example\nCall Trace:\n dump_stack+0x1c/0x40\n";
        assert_eq!(told(&[OLD, trace].concat()).entries, told(OLD).entries);
    }

    #[test]
    fn an_object_without_its_lines_is_cut() {
        let cut = [Trouble::Cut("ends inside an object")];
        for end in ["  comm \"example", "  backtrace (crc", "    pcpu_alloc"] {
            let text = [OLD, &NEW[..NEW.find(end).unwrap()]].concat();
            assert_eq!((told(&text).entries.len(), &told(&text).troubles[..]), (1, &cut[..]), "{end}");
        }
        let begins = told(&OLD[OLD.find("    [<").unwrap()..]);
        assert_eq!(begins.troubles, [Trouble::Cut("begins inside an object")]);
        let inside = told(&OLD.replace("  backtrace:\n", "host:~ # \n"));
        assert_eq!((inside.entries.len(), inside.others), (0, 1));
    }

    /// The most that the lines of a text may tell.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| {
            let size = behind(line, "(size ");
            Sums { objects: size.map_or(0, |_| 1), allocated: size.unwrap_or(0), ..Sums::default() }
        })
    }

    #[test]
    fn damage_does_no_harm() {
        damage(Kmemleak::default, [OLD, NEW].concat().as_bytes(), most);
        assert_eq!(told("unreferenced object 0x1 (size 99999999999999999999):\n").troubles.len(), 1);
    }
}
