//! Pages that the kernel dumped into its log (mm/debug.c, `__dump_page_owner` of mm/page_owner.c), and gdb's and drgn's `--pfn`.
//!
//! ```text
//! page:000000001234abcd refcount:1 mapcount:0 mapping:0000000000000000 index:0x1 pfn:0x7bc40
//! page_owner tracks the page as allocated
//! page last allocated via order 0, migratetype Unmovable, gfp_mask 0xcc0(GFP_KERNEL), pid 77, tgid 70 (example), ts 1200, free_ts 800
//!  example_open+0x1c/0x40 [exampledrv]
//! page last free pid 77 tgid 70 stack trace:
//!  example_release+0x1c/0x40 [exampledrv]
//! ```

use super::entry::{Entry, EntryKind, FormName, Out, Reader, Site, Took, Trouble};
use super::numbers::Reason;
use super::owner_lines::{self, Head, begins_free, behind_head, behind_pfn};
use super::stack_lines::StackLines;
use crate::event::Kind;
use crate::open::symbols::{find, number};
use crate::trace::PAGE_OWNER;

pub(super) const NAME: FormName = FormName {
    input: PAGE_OWNER,
    form: "dump_page",
    title: "log with pages that the kernel dumped",
    unit: "pages",
    has_objects: true,
};

/// Frames of a stack that count.
const MAX_FRAMES: usize = 256;

/// Lines that stand between a page's first line and its owner, or behind it.
const OTHERS: [&[u8]; 16] = [
    b"head:",
    b"memcg:",
    b"anon flags: ",
    b"ksm flags: ",
    b"flags: ",
    b"page_type: ",
    b"raw: ",
    b"page dumped because: ",
    b"page_owner info is not ",
    b"page_owner free stack trace missing",
    b"page_owner allocation stack trace missing",
    b"page has been migrated",
    b"page allocated by module",
    b"aops:",
    b"anon ",
    b"page->mem_cgroup:",
];

/// True for the first line of a page, and for its owner's.
pub(super) fn begins(line: &[u8]) -> bool {
    is_page(line) || line.starts_with(b"page_owner tracks the page as ") || is_head(line)
}

fn is_page(line: &[u8]) -> bool {
    let counts = [&b" refcount:"[..], b" count:"];
    let begin = line.get(..80).unwrap_or(line);
    line.starts_with(b"page:") && counts.iter().any(|count| find(begin, count).is_some())
}

/// A header that is not a dump's: `page allocated`, `page last allocated`, `Page last allocated`.
fn is_head(line: &[u8]) -> bool {
    !line.starts_with(b"Page allocated") && behind_head(line).is_some()
}

/// What is known of the page.
#[derive(Debug, Default)]
struct Page {
    pfn: u64,
    is_free: bool,
    head: Option<Result<Allocation, Reason>>,
    comm: Vec<u8>,
    /// Frames that follow are those of the allocation.
    is_in_stack: bool,
    is_in_free: bool,
}

/// Header, as far as it outlives its line.
#[derive(Debug)]
struct Allocation {
    head: Head<'static>,
    has_comm: bool,
    is_released: bool,
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct DumpPage {
    page: Option<Page>,
    stack: StackLines,
    has_frames: bool,
}

impl Reader for DumpPage {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        let trimmed = line.trim_ascii_end();
        if trimmed.is_empty() {
            return Took::Line;
        }
        if is_page(line) {
            self.close(out);
            let pfn = find(line, b" pfn:").and_then(|at| number(line.get(at..)?.get(5..)?));
            self.page = Some(Page { pfn: pfn.map_or(0, |(pfn, _)| pfn), ..Page::default() });
            return Took::Line;
        }
        if let Some(state) = line.strip_prefix(b"page_owner tracks the page as ") {
            if self.page.as_ref().is_none_or(|page| page.head.is_some()) {
                self.close(out);
            }
            self.page.get_or_insert_default().is_free = state.starts_with(b"freed");
            return Took::Line;
        }
        if is_head(line) {
            return self.take_head(line, out);
        }
        let Some(page) = &mut self.page else { return Took::NoLine };
        if let Some(text) = behind_pfn(line) {
            // The line of debuggers stands behind the header.
            page.pfn = owner_lines::pfn(text).ok().and_then(|pfn| pfn.pfn).unwrap_or(page.pfn);
            return Took::Line;
        }
        if begins_free(line) {
            (page.is_in_stack, page.is_in_free) = (false, true);
            return Took::Line;
        }
        if OTHERS.iter().any(|begin| line.starts_with(begin)) {
            if line.starts_with(b"page") {
                (page.is_in_stack, page.is_in_free) = (false, false);
            }
            return Took::Line;
        }
        self.take_frame(line, out)
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        let is_open = self.page.as_ref().is_some_and(|page| page.is_in_stack || page.head.is_none());
        let lacks_frames = self.has_frames && self.stack.is_empty();
        let is_inside = self.page.as_ref().is_some_and(|page| page.head.is_some() && page.is_in_stack && lacks_frames);
        if is_cut || is_inside {
            if is_open {
                self.page = None;
                self.stack.clear();
            }
            out.trouble(Trouble::Cut("ends inside a block"));
        }
        self.close(out);
    }
}

impl DumpPage {
    fn take_head(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if self.page.as_ref().is_some_and(|page| page.head.is_some()) {
            self.close(out);
        }
        let page = self.page.get_or_insert_default();
        let read = owner_lines::head(behind_head(line).unwrap_or_default());
        page.head = Some(read.map(|head| {
            page.comm.extend_from_slice(head.comm.unwrap_or_default());
            let (has_comm, is_released) = (head.comm.is_some(), head.is_released());
            let Head { order, gfp, pid, tgid, at, free_at, .. } = head;
            Allocation { head: Head { order, gfp, pid, tgid, at, free_at, comm: None }, has_comm, is_released }
        }));
        page.is_in_stack = true;
        Took::Line
    }

    fn take_frame(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        let Some(page) = &mut self.page else { return Took::NoLine };
        if !page.is_in_stack && !page.is_in_free {
            return Took::NoLine;
        }
        let Some(frame) = self.stack.read(line, out) else {
            // The stack of something else may follow in the log.
            if line.starts_with(b"Call Trace:") || line.starts_with(b"------------[") || line.starts_with(b"CPU: ") {
                (page.is_in_stack, page.is_in_free) = (false, false);
            }
            return Took::NoLine;
        };
        if page.is_in_stack && self.stack.len() < MAX_FRAMES {
            self.stack.push(frame);
        }
        Took::Line
    }

    /// Hands the page over, if it has an owner.
    fn close(&mut self, out: &mut dyn Out) {
        let Some(Page { pfn, is_free, head, comm, .. }) = self.page.take() else { return };
        match head {
            Some(Ok(Allocation { head, has_comm, is_released })) => {
                let stack = self.stack.whole(out);
                self.has_frames |= !stack.frames.is_empty();
                let site = match stack.word {
                    Some(word) => Site::Word(word),
                    None if stack.frames.is_empty() => Site::Unknown,
                    None => Site::OfStack,
                };
                out.entry(&Entry {
                    kind: EntryKind::Told(Kind::Pages),
                    site,
                    stack: stack.frames,
                    objects: Some(1),
                    pages: Some(1 << head.order),
                    order: Some(head.order),
                    address: pfn,
                    gfp: head.gfp,
                    pid: head.pid,
                    tgid: head.tgid,
                    comm: has_comm.then_some(&comm[..]),
                    at: head.at,
                    free_at: head.free_at,
                    allocators: stack.allocators,
                    is_released: is_released || is_free,
                    ..Entry::default()
                });
            }
            Some(Err(reason)) => out.trouble(Trouble::SkippedBlock(reason)),
            None => {}
        }
        self.stack.clear();
    }
}
