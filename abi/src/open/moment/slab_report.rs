//! What SLUB prints of a cache that is destroyed with objects left (mm/slub.c, `list_slab_objects`): one report a slab.
//!
//! ```text
//! BUG example_cache (Tainted: G  OE): Objects remaining in example_cache on __kmem_cache_shutdown()
//! Slab 0x000000001234abcd objects=21 used=1 fp=0x0000000056789abc flags=0x4000000000000200(slab|node=0|zone=2)
//! Object 0x00000000abcdef01 @offset=96
//! Allocated in example_open+0x1c/0x40 [exampledrv] age=100 cpu=1 pid=77
//!  kmem_cache_alloc+0x1c/0x40
//!  example_open+0x1c/0x40 [exampledrv]
//! Freed in …
//! ```

use super::entry::{Entry, EntryKind, Out, Reader, Site, Took, Trouble};
use super::numbers::{self, first_word, hexadecimal, is_begin_of, trimmed, words};
use super::slabinfo::root_cache;
use super::{machine, places};
use crate::event::Kind;
use crate::kernel::kmalloc::{class_bytes, is_kmalloc};
use crate::open::symbols::find;

/// Frames of a stack; the kernel keeps 16 (`TRACK_ADDRS_COUNT`).
const MAX_FRAMES: usize = 256;

/// True for the first line of a report on objects that are left.
pub(super) fn begins(line: &[u8]) -> bool {
    cache(line).is_some()
}

/// Cache of a report's first line: `BUG NAME (Not tainted): Objects remaining …`.
fn cache(line: &[u8]) -> Option<&[u8]> {
    let line = trimmed(line).strip_prefix(b"BUG ")?;
    let before = line.get(..find(line, b": Objects remaining")?)?;
    let state = [&b" (Tainted"[..], b" (Not tainted", b" (GE"].iter().find_map(|word| find(before, word));
    Some(root_cache(trimmed(state.and_then(|state| before.get(..state)).unwrap_or(before))))
}

/// The line without the word that Linux before 5.12 has before it.
fn bare(line: &[u8]) -> &[u8] {
    let line = trimmed(line);
    line.strip_prefix(b"INFO: ").unwrap_or(line)
}

/// Object that is read.
#[derive(Debug)]
struct Object {
    address: u64,
    /// Function that allocated it, and the thread.
    site: Option<u64>,
    pid: Option<i32>,
    stack: Vec<u64>,
    /// The kernel has no stack of the object.
    lacks_stack: bool,
    /// The frames that follow are of the free before, or of a call trace that the log has next.
    has_all: bool,
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct SlabReport {
    cache: Option<Vec<u8>>,
    /// A report on something else: its objects are not left.
    is_other: bool,
    open: Option<Object>,
    has_sites: bool,
    has_stacks: bool,
}

impl SlabReport {
    fn close(&mut self, out: &mut dyn Out) {
        let Some(object) = self.open.take() else { return };
        self.has_sites |= object.site.is_some();
        self.has_stacks |= !object.stack.is_empty();
        let cache = self.cache.as_deref().unwrap_or_default();
        let kind = match (&object.stack[..], is_kmalloc(cache)) {
            ([], true) => EntryKind::Told(Kind::Kmalloc),
            ([], false) => EntryKind::Told(Kind::Cache),
            _ => EntryKind::OfStack,
        };
        let site = match (&object.stack[..], object.site) {
            ([], Some(site)) => Site::Frame(site),
            ([], None) => Site::Unknown,
            _ => Site::OfStack,
        };
        out.entry(&Entry {
            kind,
            site,
            stack: &object.stack,
            objects: Some(1),
            allocated: class_bytes(cache),
            address: object.address,
            pid: object.pid,
            cache: Some(cache),
            ..Entry::default()
        });
    }

    /// Takes a line below the first one of a report; false for one of another form.
    fn take_below(&mut self, line: &[u8], out: &mut dyn Out) -> bool {
        let text = bare(line);
        let (word, rest) = first_word(text);
        if places::begins_trace(text) {
            self.note(|object| object.has_all = true);
        }
        match word {
            b"Object" if find(rest, b"@offset=").is_some() => {
                self.close(out);
                let address = first_word(rest).0;
                // Early in the boot Linux 4.15 and later have no key to hash addresses with.
                let address = hexadecimal(address).or_else(|| (address == b"0x(____ptrval____)").then_some(0));
                if let Some(address) = address {
                    let (site, pid, stack) = (None, None, Vec::new());
                    self.open = Some(Object { address, site, pid, stack, lacks_stack: false, has_all: false });
                } else {
                    out.trouble(Trouble::SkippedBlock("lacks its address"));
                }
            }
            b"Allocated" if rest.starts_with(b"in ") => self.take_site(rest.strip_prefix(b"in ").unwrap_or(rest), out),
            b"Freed" if rest.starts_with(b"in ") => self.note(|object| object.has_all = true),
            b"Slab" if rest.starts_with(b"0x") => {}
            b"object" if text.ends_with(b"stack trace missing") => self.note(|object| object.lacks_stack = true),
            b"CPU:" => machine::told(text).put(out),
            _ if is_rule(text) => {}
            _ => {
                machine::told(text).put(out);
                return self.take_frame(text, out);
            }
        }
        true
    }

    /// `example_open+0x1c/0x40 [exampledrv] age=100 cpu=1 pid=77`.
    fn take_site(&mut self, text: &[u8], out: &mut dyn Out) {
        let Some(object) = &mut self.open else { return };
        let end = find(text, b" age=").unwrap_or(text.len());
        let (site, rest) = text.split_at_checked(end).unwrap_or((text, b""));
        object.site = places::site(site).map(|frame| out.address(frame));
        let pid = words(rest).find_map(|word| word.strip_prefix(b"pid="));
        object.pid = pid.and_then(|pid| numbers::pid(pid).ok());
        object.has_all = false;
    }

    fn take_frame(&mut self, text: &[u8], out: &mut dyn Out) -> bool {
        let frame = places::frame(text);
        match (&mut self.open, frame) {
            (Some(object), Some(frame)) => {
                if !object.has_all && object.site.is_some() && object.stack.len() < MAX_FRAMES {
                    object.stack.push(out.address(frame));
                }
                true
            }
            (None, _) => places::is_of_trace(text),
            (Some(_), None) => false,
        }
    }

    fn note(&mut self, change: impl FnOnce(&mut Object)) {
        if let Some(object) = &mut self.open {
            change(object);
        }
    }
}

/// A line of `=` or `-`.
fn is_rule(text: &[u8]) -> bool {
    text.len() > 8 && (text.iter().all(|byte| *byte == b'=') || text.iter().all(|byte| *byte == b'-'))
}

impl Reader for SlabReport {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if let Some(cache) = cache(line) {
            let cache = cache.to_vec();
            self.close(out);
            self.cache = Some(cache);
            self.is_other = false;
            return Took::Line;
        }
        if trimmed(line).is_empty() {
            return Took::Line;
        }
        if trimmed(line).starts_with(b"BUG ") || trimmed(line).starts_with(b"BUG: ") {
            self.close(out);
            self.is_other = true;
        }
        if self.cache.is_some() && !self.is_other && self.take_below(line, out) { Took::Line } else { Took::NoLine }
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        let ends_inside = self.open.as_ref().is_some_and(|object| {
            let lacks_site = object.site.is_none() && self.has_sites;
            lacks_site || object.stack.is_empty() && self.has_stacks && !object.lacks_stack
        });
        if is_cut || ends_inside {
            // A slab of which no object was tracked has a line for each: the object before the cut is whole.
            let is_line = self.cache.is_none()
                || !self.has_sites && self.open.as_ref().is_some_and(|object| object.site.is_none());
            if ends_inside || !is_line {
                self.open = None;
            }
            out.trouble(Trouble::Cut("ends inside a report"));
        }
        self.close(out);
    }

    fn is_inside(&self) -> bool {
        self.open.is_some()
    }

    /// Frames are indented.
    fn begins_block(&self, line: &[u8]) -> bool {
        const BEGINS: [&[u8]; 6] =
            [b"Object 0x", b"INFO: Object 0x", b"Slab 0x", b"INFO: Slab 0x", b"========", b"BUG "];
        BEGINS.iter().any(|begin| is_begin_of(line, begin))
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, Told, behind, damage, read};
    use super::*;

    const OLD: &str = "=============================================================================
BUG example_cache (Tainted: G    B      OE): Objects remaining in example_cache on __kmem_cache_shutdown()
-----------------------------------------------------------------------------

INFO: Slab 0x000000001234abcd objects=21 used=2 fp=0x0000000056789abc flags=0x4000000000000200
CPU: 0 PID: 123 Comm: rmmod Tainted: G    B      OE     5.10.0-18-amd64 #1
Call Trace:
 dump_stack+0x6b/0x83
INFO: Object 0x00000000abcdef01 @offset=96
INFO: Allocated in example_open+0x1c/0x40 [exampledrv] age=100 cpu=1 pid=77
\tkmem_cache_alloc+0x1c/0x40
\texample_open+0x1c/0x40 [exampledrv]
INFO: Freed in example_release+0x1c/0x40 [exampledrv] age=200 cpu=1 pid=76
\tkmem_cache_free+0x1c/0x40
INFO: Object 0x00000000abcdef02 @offset=192
INFO: Allocated in example_read+0x1c/0x40 [exampledrv] age=100 cpu=1 pid=78
\tkmem_cache_alloc+0x1c/0x40
\texample_read+0x1c/0x40 [exampledrv]
=============================================================================
BUG kmalloc-64 (Tainted: G    B      OE): Poison overwritten
INFO: Object 0x00000000abcdef09 @offset=192 fp=0x00
INFO: Allocated in example_read+0x1c/0x40 [exampledrv] age=100 cpu=1 pid=78
";
    const NEW: &str = "BUG kmalloc-64 (Not tainted): Objects remaining on __kmem_cache_shutdown()
Object 0x00000000abcdef01 @offset=96
Allocated in example_open+0x1c/0x40 [exampledrv] age=100 cpu=1 pid=77
Object 0x00000000abcdef02 @offset=192
Allocated in example_open+0x2c/0x40 [exampledrv] age=100 cpu=1 pid=78
Slab 0x000000001234abcd objects=21 used=2 fp=0x0000000056789abc flags=0x4000000000000200
";

    fn told(text: &str) -> Told {
        read(SlabReport::default, text.as_bytes())
    }

    #[test]
    fn objects_have_allocations() {
        let old = told(OLD);
        let [first, second] = &old.entries[..] else { panic!("{old:?}") };
        assert_eq!(first.stack, ["kmem_cache_alloc+0x1c", "example_open+0x1c [exampledrv]"]);
        assert_eq!((first.cache.as_deref(), first.pid, first.allocated), (Some("example_cache"), Some(77), None));
        assert_eq!((first.address, second.pid), (0xabcd_ef01, Some(78)));
        assert_eq!((old.facts.as_slice(), old.troubles.len()), (&["kernel 5.10.0-18-amd64".to_owned()][..], 0));
        // Lines of the other report, and the one above the first.
        assert_eq!(old.others, 4);
    }

    #[test]
    fn frames_of_a_call_trace_behind_an_object_are_not_its_own() {
        let trace = "WARNING: CPU: 1 PID: 77 at mm/slab_common.c:1 kmem_cache_destroy+0x1c/0x40\nCall Trace:\n free_partial+0x1c/0x40\n";
        let [own, behind] = ["", trace].map(|trace| told(&[NEW, trace].concat()).entries);
        assert_eq!((own.len(), own), (2, behind));
    }

    #[test]
    fn caches_and_addresses_are_told_in_all_ways() {
        let early =
            NEW.replace("kmalloc-64 (", "kmalloc-64(12:example) (").replace("0x00000000abcdef01", "0x(____ptrval____)");
        let early = told(&early);
        assert_eq!((early.entries.len(), early.troubles.len(), early.entries[0].address), (2, 0, 0));
        assert_eq!((early.entries[0].cache.as_deref(), early.entries[0].allocated), (Some("kmalloc-64"), Some(64)));
    }

    #[test]
    fn without_stacks_the_cache_tells_the_kind() {
        let new = told(NEW);
        assert_eq!(new.entries.len(), 2);
        assert_eq!((new.entries[0].kind, new.entries[0].allocated), (EntryKind::Told(Kind::Kmalloc), Some(64)));
        assert_eq!(new.entries[1].site, "example_open+0x2c [exampledrv]");
        assert!(new.entries[0].stack.is_empty() && new.others == 0);
        let untracked: String =
            NEW.lines().filter(|line| !line.starts_with("Allocated")).map(|line| format!("{line}\n")).collect();
        assert_eq!((told(&untracked).entries.len(), told(&untracked).troubles.len()), (2, 0));
    }

    #[test]
    fn a_report_that_ends_inside_an_object_is_cut() {
        let cut = [Trouble::Cut("ends inside a report")];
        let text = &NEW[..NEW.find("Allocated in example_open+0x2c").unwrap()];
        assert_eq!((told(text).entries.len(), &told(text).troubles[..]), (1, &cut[..]));
        let text = &OLD[..OLD.find("\tkmem_cache_alloc+0x1c/0x40\n\texample_read").unwrap()];
        assert_eq!((told(text).entries.len(), &told(text).troubles[..]), (1, &cut[..]));
    }

    /// The most that the lines of a text may tell: an object a line, of the largest class that the text names.
    fn most(text: &[u8]) -> Sums {
        let lines = || text.split(|byte| *byte == b'\n');
        let objects =
            lines().filter(|line| behind(line, "Object").or(behind(line, "Allocated")).is_some()).count() as u64;
        let class = |line| ["kmalloc-", "size-"].into_iter().filter_map(|word| behind(line, word)).max();
        let class = lines().filter_map(class).max().unwrap_or(0).saturating_mul(1 << 20);
        Sums { objects, allocated: class.saturating_mul(objects), ..Sums::default() }
    }

    #[test]
    fn damage_does_no_harm() {
        damage(SlabReport::default, OLD.as_bytes(), most);
        damage(SlabReport::default, NEW.as_bytes(), most);
    }
}
