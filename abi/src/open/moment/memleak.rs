//! What `memleak` of bcc prints of the kernel (tools/memleak.py, libbpf-tools/memleak.c): allocations that were not freed while it ran.
//!
//! ```text
//! [11:27:31] Top 10 stacks with outstanding allocations:
//!         1024 bytes in 4 allocations from stack
//!                 example_open+0x1c [exampledrv]
//!                 vfs_open+0x2d [kernel]
//! ```

use super::entry::{Entry, Fact, Out, Reader, Took, Trouble};
use super::numbers::{Reason, first_word, hexadecimal, is_begin_of, number, trimmed, words};
use super::places;
use crate::open::symbols::{Frame, find};

/// Frames of a stack; `memleak` prints what `perf_event_max_stack` allows.
const MAX_FRAMES: usize = 256;
const NEW_LIST: &[u8] = b"stacks with outstanding allocations";
/// Why a list of a process is refused.
const OF_PROCESS: &str = "lists memory of a process: only what memleak prints of the kernel, without -p, is read";

/// True for the line above a list or above a stack.
pub(super) fn begins(line: &[u8]) -> bool {
    find(line, NEW_LIST).is_some() || counts(line).is_some()
}

/// Bytes and allocations of `N bytes in N allocations from stack`.
fn counts(line: &[u8]) -> Option<Result<[u64; 2], Reason>> {
    let line = trimmed(line).strip_suffix(b"from stack")?;
    let words: Vec<&[u8]> = words(line).collect();
    let [bytes, b"bytes", b"in", count, b"allocations" | b"allocation"] = words[..] else { return None };
    Some(number(bytes).and_then(|bytes| Ok([bytes, number(count)?])))
}

/// `0x… function+0x1c [kernel]`, `#0 0x… …` or `0 [<address>] …`: number and address are each optional.
fn frame(line: &[u8]) -> Option<Frame<'_>> {
    let line = trimmed(line);
    let (first, rest) = first_word(line);
    let digits = first.strip_prefix(b"#").unwrap_or(first);
    let (first, text) = if number(digits).is_ok() { (first_word(rest).0, rest) } else { (first, line) };
    let address = hexadecimal(first).filter(|_| text.len() > first.len());
    let text = if address.is_some() { first_word(text).1 } else { text };
    let (address, text) = match text.strip_prefix(b"[<").and_then(|text| Some((text, find(text, b">]")?))) {
        Some((behind, end)) => {
            let (digits, rest) = behind.split_at_checked(end).unwrap_or_default();
            (hexadecimal(&[b"0x", digits].concat()), trimmed(rest.strip_prefix(b">]").unwrap_or(rest)))
        }
        None => (address, text),
    };
    let text = text.strip_suffix(b"[kernel]").unwrap_or(text);
    match (places::frame(text)?, address) {
        (Frame::Function { name, offset, module, .. }, Some(address)) if address >= offset => {
            Some(Frame::Placed { name, offset, module, address })
        }
        (frame, _) => Some(frame),
    }
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Memleak {
    /// Bytes and allocations of the block that is open, and its stack.
    open: Option<([u64; 2], Vec<u64>)>,
    has_blocks: bool,
    has_stacks: bool,
    is_refused: bool,
}

impl Memleak {
    fn close(&mut self, out: &mut dyn Out) {
        let Some(([bytes, count], stack)) = self.open.take() else { return };
        self.has_stacks |= !stack.is_empty();
        out.entry(&Entry { objects: Some(count), requested: Some(bytes), stack: &stack, ..Entry::default() });
    }

    fn add(&mut self, frame: Frame<'_>, out: &mut dyn Out) {
        if let Frame::Function { module, .. } | Frame::Placed { module, .. } = frame
            && module.is_some_and(|module| find(module, b".so").is_some())
            && !self.is_refused
        {
            self.is_refused = true;
            out.fact(Fact::Refusal(OF_PROCESS));
        }
        match &mut self.open {
            Some((_, stack)) if stack.len() < MAX_FRAMES => stack.push(out.address(frame)),
            None if !self.has_blocks => {
                self.has_blocks = true;
                out.trouble(Trouble::Cut("begins inside a block"));
            }
            _ => {}
        }
    }
}

impl Reader for Memleak {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if find(line, NEW_LIST).is_some() {
            if !self.has_blocks {
                return Took::Line;
            }
            self.end(false, out);
            return Took::NextText;
        }
        match counts(line) {
            Some(counts) => {
                self.close(out);
                self.has_blocks = true;
                match counts {
                    Ok(counts) => self.open = Some((counts, Vec::new())),
                    Err(reason) => out.trouble(Trouble::SkippedBlock(reason)),
                }
            }
            None => match frame(line) {
                Some(frame) => self.add(frame, out),
                // `[unknown]` in place of a frame, lines of single objects (`-a`), and the line at the start.
                None if trimmed(line).is_empty() || ends_with_unknown(line) || is_around(line) => {}
                None => return Took::NoLine,
            },
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        let lacks_stack = self.open.as_ref().is_some_and(|(_, stack)| stack.is_empty()) && self.has_stacks;
        if is_cut || lacks_stack {
            self.open = None;
            out.trouble(Trouble::Cut("ends inside a block"));
        }
        self.close(out);
    }

    fn is_inside(&self) -> bool {
        self.open.is_some()
    }

    /// `1024 bytes i`: frames may have a number before them, too.
    fn begins_block(&self, line: &[u8]) -> bool {
        let line = trimmed(line);
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && line.get(digits..).is_some_and(|rest| !rest.is_empty() && is_begin_of(rest, b" bytes in "))
    }
}

fn ends_with_unknown(line: &[u8]) -> bool {
    trimmed(line).ends_with(b"[unknown]")
}

fn is_around(line: &[u8]) -> bool {
    let line = trimmed(line);
    line.starts_with(b"addr = ") || line.starts_with(b"Attaching to ")
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, before, damage, read};
    use super::*;

    const TEXT: &str = "Attaching to kernel allocators, Ctrl+C to quit.
[11:27:31] Top 10 stacks with outstanding allocations:
\taddr = 0xffff888112345678 size = 256
\t1024 bytes in 4 allocations from stack
\t\texample_open+0x1c [exampledrv]
\t\tvfs_open+0x2d [kernel]
\t\t[unknown]
\t64 bytes in 1 allocations from stack
\t\t0xffffffff81234567\tkstrdup+0x30 [kernel]
\t\t0xffffffffc0a01234
";

    #[test]
    fn stacks_have_bytes_and_allocations() {
        let told = read(Memleak::default, TEXT.as_bytes());
        let rows: Vec<_> = told.entries.iter().map(|entry| (entry.requested, entry.objects, &entry.stack)).collect();
        let of_example = ["example_open+0x1c [exampledrv]".to_owned(), "vfs_open+0x2d".to_owned()].to_vec();
        let of_string = ["kstrdup+0x30 at 0xffffffff81234567".to_owned(), "0xffffffffc0a01234".to_owned()].to_vec();
        assert_eq!(rows, [(Some(1024), Some(4), &of_example), (Some(64), Some(1), &of_string)]);
        assert_eq!((told.others, &told.troubles[..]), (0, &[][..]));
        assert!(told.entries.iter().all(|entry| entry.allocated.is_none()));
    }

    #[test]
    fn each_list_is_a_text() {
        let twice = [TEXT, &TEXT[TEXT.find('[').unwrap()..]].concat();
        let told = read(Memleak::default, twice.as_bytes());
        assert_eq!((told.texts, told.entries.len()), (2, 2));
    }

    #[test]
    fn forms_of_frames() {
        let placed = Some(Frame::Placed { name: b"foo", offset: 0x1c, module: None, address: 0xffff_ffff_8123_4567 });
        assert_eq!(frame(b"\t0 [<ffffffff81234567>] foo+0x1c"), placed);
        assert_eq!(frame(b"\t#0 0xffffffff81234567 foo+0x1c [kernel]"), placed);
        let process = "\t64 bytes in 1 allocations from stack\n\t\tmalloc+0x1c [libc.so.6]\n";
        assert!(read(Memleak::default, process.as_bytes()).facts[0].contains("Refusal"));
    }

    /// The most that the lines of a text may tell.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| Sums {
            objects: before(line, "allocation"),
            requested: before(line, "bytes"),
            ..Sums::default()
        })
    }

    #[test]
    fn damage_does_no_harm() {
        damage(Memleak::default, TEXT.as_bytes(), most);
    }
}
