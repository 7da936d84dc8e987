//! Texts of page_owner in blocks: the kernel's dump, what crash, gdb and drgn print of it, page_owner_sort's lists, and
//! `page_owner_stacks`.
//!
//! ```text
//! Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid 77, tgid 70 (example), ts 1200 ns      dump
//! PFN 0x1000 type Unmovable Block 8 type Unmovable Flags 0x40(slab)
//!  example_open+0x1c/0x40 [exampledrv]
//!
//! 3 times, 12 pages, allocated by SLAB :            sorted: then a header and frames
//! 3 times, 12 pages, PID 77, TGID 70:               culled: then frames, where the list is by stack
//!
//!  example_open+0x1c/0x40 [exampledrv]              show_stacks
//! nr_base_pages: 16
//!
//! handle: 42                                        show_handles
//! nr_base_pages: 16
//!
//!  example_open+0x1c/0x40 [exampledrv]              show_stacks_handles
//! handle: 42
//! ```
//!
//! One reader takes them all: what a block is, its lines tell.

use super::entry::{Entry, EntryKind, Fact, FormName, Out, Reader, Site, Took, Trouble};
use super::numbers::Reason;
use super::owner_lines::{
    self, Group, Head, Pfn, begins_free, behind_head, behind_pfn, counted, is_group, is_note, tells_free,
};
use super::page_size::PageSize;
use super::stack_lines::StackLines;
use crate::event::Kind;
use crate::trace::PAGE_OWNER;

/// Frames of a stack that count; the kernel keeps 16 (`PAGE_OWNER_STACK_DEPTH`).
const MAX_FRAMES: usize = 256;

/// Name of a form of page_owner.
const fn name(form: &'static str, title: &'static str, unit: &'static str) -> FormName {
    FormName { input: PAGE_OWNER, form, title, unit, has_objects: false }
}

pub(super) const DUMP: FormName = FormName { has_objects: true, ..name("dump", "page_owner dump", "blocks") };
const SORTED: FormName = name("sorted", "list of page_owner_sort", "groups of blocks");
const CULLED: FormName = name("culled", "culled list of page_owner_sort", "groups of blocks");
const STACKS: FormName = name("stacks", "list of page_owner_stacks", "stacks");
const HANDLES: FormName = name("handles", "list of page_owner's handles", "handles");

/// True for a line that a block begins with, in some form.
pub(super) fn begins(line: &[u8]) -> bool {
    is_group(line)
        || line.starts_with(b"Page ") && behind_head(line).is_some()
        || behind_pfn(line).is_some_and(|text| owner_lines::pfn(text).is_ok_and(|pfn| pfn.is_of_crash))
        || matches!(kind(line), LineKind::Pages(Ok(_)) | LineKind::Allocations(Ok(_)) | LineKind::Handle(Ok(_)))
}

/// True for a line with which a text may begin where its begin is cut, and for a frame, which a block of stacks begins with.
pub(super) fn may_begin(line: &[u8]) -> bool {
    behind_pfn(line).is_some() || super::frames::frame(line).is_some()
}

/// Meaning of a line that is no frame.
enum LineKind<'l> {
    Head(&'l [u8]),
    Pfn(&'l [u8]),
    Group,
    /// `nr_base_pages`
    Pages(Result<u64, Reason>),
    /// `stack_count`
    Allocations(Result<u64, Reason>),
    Handle(Result<u64, Reason>),
    /// crash: `[alloc]`, `alloc`, `[free]`, `free`; the brackets tell the page's state.
    Section {
        is_free: bool,
        is_state: bool,
    },
    Note,
    End,
    Other,
}

#[inline]
fn kind(line: &[u8]) -> LineKind<'_> {
    let Some(first) = line.first() else { return LineKind::End };
    match first {
        b'P' | b'p' => match behind_head(line) {
            Some(text) => LineKind::Head(text),
            None if begins_free(line) => LineKind::Section { is_free: true, is_state: false },
            None if tells_free(line) => LineKind::Section { is_free: false, is_state: true },
            None => match behind_pfn(line) {
                Some(text) => LineKind::Pfn(text),
                None if is_note(line) => LineKind::Note,
                None => LineKind::Other,
            },
        },
        b'0'..=b'9' if is_group(line) => LineKind::Group,
        b'C' | b'S' if is_note(line) => LineKind::Note,
        b'n' => counted(line, b"nr_base_pages").map_or(LineKind::Other, LineKind::Pages),
        b's' => counted(line, b"stack_count").map_or(LineKind::Other, LineKind::Allocations),
        b'h' => counted(line, b"handle").map_or(LineKind::Other, LineKind::Handle),
        b'[' | b'a' | b'f' => match line.trim_ascii_end() {
            b"alloc" => LineKind::Section { is_free: false, is_state: false },
            b"[alloc]" => LineKind::Section { is_free: false, is_state: false },
            b"free" => LineKind::Section { is_free: true, is_state: false },
            b"[free]" => LineKind::Section { is_free: true, is_state: true },
            _ => LineKind::Other,
        },
        _ if line.trim_ascii().is_empty() => LineKind::End,
        _ => LineKind::Other,
    }
}

/// Header of the open block, as far as it outlives its line.
#[derive(Debug, Default)]
struct KeptHead {
    order: u8,
    gfp: Option<u64>,
    pid: Option<i32>,
    tgid: Option<i32>,
    at: Option<u64>,
    free_at: Option<u64>,
    has_comm: bool,
    is_released: bool,
}

/// How far the open block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Extent {
    /// No block is open.
    #[default]
    None,
    Open,
    /// Nothing but a count may follow.
    Whole,
    /// An empty line follows it.
    Ended,
}

/// Block that is read. Its buffers are used for the next one.
#[derive(Debug, Default)]
struct Block {
    extent: Extent,
    head: Option<Result<KeptHead, Reason>>,
    comm: Vec<u8>,
    /// Line of page_owner_sort; empty without one.
    group: Vec<u8>,
    pfn: Option<Result<Pfn, Reason>>,
    /// `nr_base_pages`.
    pages: Option<Result<u64, Reason>>,
    /// `stack_count`.
    allocations: Option<Result<u64, Reason>>,
    handle: Option<Result<u64, Reason>>,
    has_section: bool,
    /// Frames that follow are of the page's last free.
    is_in_free: bool,
    is_free: bool,
    /// Lines of the group's own follow its line.
    has_lines: bool,
    /// The allocation's line is missing from a text whose blocks have one.
    first_line: FirstLine,
}

/// Line that a block began with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstLine {
    #[default]
    Head,
    /// One that follows the header in a dump.
    Later,
    /// A count.
    Count,
}

impl Block {
    fn clear(&mut self) {
        let Block { mut comm, mut group, .. } = std::mem::take(self);
        comm.clear();
        group.clear();
        (self.comm, self.group) = (comm, group);
    }
}

/// What the blocks so far have, so that a last one which lacks it is cut.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    blocks: u64,
    head: bool,
    pfn: bool,
    frames: bool,
    handle: bool,
    section: bool,
    /// An empty line behind a block.
    end: bool,
}

/// Reader of the forms.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    block: Block,
    stack: StackLines,
    seen: Seen,
    form: Option<FormName>,
    /// The text is page_owner_sort's: each block has its count.
    is_grouped: bool,
    /// The first block has neither a header nor a count.
    has_headless: bool,
    page_size: PageSize,
}

impl Reader for Blocks {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        match kind(line) {
            LineKind::Head(text) => self.take_head(text, out),
            LineKind::Pfn(text) => self.take_pfn(text, out),
            LineKind::Group => return self.take_group(line, out),
            LineKind::Pages(count) => self.take_count(out, |block| &mut block.pages, count),
            LineKind::Allocations(count) => self.take_count(out, |block| &mut block.allocations, count),
            LineKind::Handle(handle) => self.take_handle(handle, out),
            LineKind::Section { is_free, is_state } => return self.take_section(is_free, is_state),
            LineKind::Note if self.block.extent == Extent::None => return Took::NoLine,
            LineKind::Note => self.block.has_lines = true,
            LineKind::End if self.block.extent == Extent::None => {}
            LineKind::End => {
                self.block.extent = Extent::Ended;
                self.seen.end = true;
            }
            LineKind::Other => return self.take_frame(line, out),
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        let block = &self.block;
        let is_open = block.extent == Extent::Open;
        // A line of a group without lines of its own is whole by itself.
        let is_line =
            !block.group.is_empty() && !block.group.ends_with(b":") && block.head.is_none() && !block.has_lines;
        if block.extent != Extent::None {
            if is_cut && is_open && !is_line || !is_cut && self.ends_inside() {
                self.block.clear();
                out.trouble(Trouble::Cut("ends inside a block"));
            } else {
                self.flush(out);
                if is_cut {
                    out.trouble(Trouble::Cut("ends inside a line"));
                }
            }
        } else if is_cut {
            out.trouble(Trouble::Cut("ends inside a line"));
        }
        if self.has_headless && self.seen.blocks > 0 {
            self.tell_headless(out);
        }
        if let Some(bytes) = self.page_size.bytes() {
            out.fact(Fact::PageBytes(bytes));
        }
    }

    fn form(&self) -> Option<FormName> {
        self.form
    }

    fn is_inside(&self) -> bool {
        self.block.extent == Extent::Open
    }

    fn begins_block(&self, line: &[u8]) -> bool {
        const HEAD: &[u8] = b"Page allocated via order ";
        let is_begin = !line.is_empty() && (line.starts_with(HEAD) || HEAD.starts_with(line));
        // Blocks of debuggers follow each other without an empty line.
        is_begin && !self.seen.end && self.seen.blocks > 0 && self.is_inside() && !self.ends_inside()
    }
}

impl Blocks {
    fn is_open(&self) -> bool {
        self.block.extent == Extent::Open
    }

    /// Ends the block before, and begins one.
    fn start(&mut self, first_line: FirstLine, out: &mut dyn Out) {
        self.flush(out);
        self.block.extent = Extent::Open;
        self.block.first_line = first_line;
    }

    fn take_head(&mut self, text: &[u8], out: &mut dyn Out) {
        let is_of_crash = matches!(self.block.pfn, Some(Ok(Pfn { is_of_crash: true, .. })));
        let is_next = self.is_open()
            && self.block.head.is_none()
            && self.stack.is_empty()
            && (is_of_crash || !self.block.group.is_empty());
        if !is_next {
            self.start(FirstLine::Head, out);
        }
        let read = owner_lines::head(text);
        let block = &mut self.block;
        block.has_lines = true;
        block.first_line = FirstLine::Head;
        block.head = Some(read.map(|head| {
            block.comm.extend_from_slice(head.comm.unwrap_or_default());
            let Head { order, gfp, pid, tgid, at, free_at, comm } = head;
            KeptHead { order, gfp, pid, tgid, at, free_at, has_comm: comm.is_some(), is_released: head.is_released() }
        }));
    }

    fn take_pfn(&mut self, text: &[u8], out: &mut dyn Out) {
        let is_next = self.is_open()
            && self.block.head.is_some()
            && self.block.pfn.is_none()
            && self.stack.is_empty()
            && !self.block.has_section;
        if !is_next {
            self.start(FirstLine::Later, out);
        }
        self.block.pfn = Some(owner_lines::pfn(text));
    }

    fn take_group(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        // A list behind a dump is another text.
        if !self.is_grouped && self.seen.blocks > 0 {
            self.end(false, out);
            return Took::NextText;
        }
        if !self.is_grouped && self.block.extent != Extent::None {
            self.block.clear();
            self.stack.clear();
            out.trouble(Trouble::Cut("begins inside a block"));
        }
        self.is_grouped = true;
        self.start(FirstLine::Head, out);
        self.block.group.extend_from_slice(line);
        Took::Line
    }

    /// Takes a count of `page_owner_stacks`, which is a block's last line.
    fn take_count(
        &mut self,
        out: &mut dyn Out,
        place: fn(&mut Block) -> &mut Option<Result<u64, Reason>>,
        count: Result<u64, Reason>,
    ) {
        let block = &self.block;
        let has_count = block.pages.is_some() || block.allocations.is_some();
        if !matches!(block.extent, Extent::Open | Extent::Whole) || has_count {
            self.start(FirstLine::Count, out);
        }
        *place(&mut self.block) = Some(count);
        self.block.extent = Extent::Whole;
    }

    fn take_handle(&mut self, handle: Result<u64, Reason>, out: &mut dyn Out) {
        if !self.is_open() || self.block.handle.is_some() {
            self.start(FirstLine::Count, out);
        }
        self.block.handle = Some(handle);
        self.block.has_lines = true;
        // Behind a dump's frames there may be notes; behind a stack's only a count.
        if self.block.head.is_none() && self.block.group.is_empty() && !self.stack.is_empty() {
            self.block.extent = Extent::Whole;
        }
    }

    fn take_section(&mut self, is_free: bool, is_state: bool) -> Took {
        if !self.is_open() {
            return Took::NoLine;
        }
        self.block.has_section = true;
        self.block.is_in_free = is_free;
        self.block.is_free |= is_state;
        Took::Line
    }

    fn take_frame(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        let Some(frame) = self.stack.read(line, out) else { return Took::NoLine };
        if !self.is_open() {
            self.start(FirstLine::Later, out);
        }
        if !self.block.is_in_free && self.stack.len() < MAX_FRAMES {
            self.stack.push(frame);
        }
        self.block.has_lines = true;
        Took::Line
    }

    /// True for an open block that lacks what the ones before have: it is the last one, and the text ends inside it.
    fn ends_inside(&self) -> bool {
        let (block, seen) = (&self.block, &self.seen);
        // A block that makes no sense is left out for that.
        if matches!((&block.head, &block.pfn), (Some(Err(_)), _) | (_, Some(Err(_)))) {
            return false;
        }
        let has_stack = !self.stack.is_empty() || block.handle.is_some();
        let is_list = !block.group.is_empty();
        if block.head.is_some() {
            let lacks_pfn = block.pfn.is_none() && !is_list && (seen.pfn || !has_stack && seen.blocks == 0);
            let lacks_stack = !has_stack && (seen.frames || seen.handle);
            return lacks_pfn || lacks_stack || !block.has_section && seen.section;
        }
        if is_list {
            let may_have_lines = block.group.ends_with(b":") && (seen.frames || seen.blocks == 0);
            return seen.head || !has_stack && (seen.frames || may_have_lines && !block.has_lines);
        }
        // The last line of a block is its count, or the handle of a stack.
        block.pages.is_none() && block.allocations.is_none() && (block.handle.is_none() || self.stack.is_empty())
    }

    /// Hands the open block over, if there is one.
    fn flush(&mut self, out: &mut dyn Out) {
        if self.block.extent == Extent::None {
            return;
        }
        if let Err(trouble) = self.put(out) {
            out.trouble(trouble);
        }
        self.block.clear();
        self.stack.clear();
    }

    fn put(&mut self, out: &mut dyn Out) -> Result<(), Trouble> {
        let block = &self.block;
        let has_count = block.pages.is_some() || block.allocations.is_some();
        match &block.head {
            Some(_) => self.put_allocation(out).map_err(Trouble::SkippedBlock),
            None if !block.group.is_empty() => self.put_group(out).map_err(Trouble::SkippedBlock),
            None if has_count => self.put_counted(out),
            None if block.handle.is_some() && !self.stack.is_empty() => {
                let handle = block.handle.unwrap_or(Ok(0)).map_err(Trouble::SkippedBlock)?;
                out.fact(Fact::HandleStack(handle, self.stack.frames()));
                Ok(())
            }
            // What is missing is known once a block is there that has it.
            None if self.seen.blocks == 0 && !self.has_headless => {
                self.has_headless = true;
                Ok(())
            }
            None => Err(Trouble::SkippedBlock(self.missing())),
        }
    }

    fn missing(&self) -> Reason {
        if self.is_of_stacks() {
            "has no count of pages"
        } else if self.is_grouped {
            "has no count"
        } else {
            owner_lines::NO_ORDER
        }
    }

    fn is_of_stacks(&self) -> bool {
        self.form.is_some_and(|form| form == STACKS || form == HANDLES)
    }

    /// Tells of a first block without header or count: a dump began inside it, a list of stacks lacks a line.
    fn tell_headless(&mut self, out: &mut dyn Out) {
        self.has_headless = false;
        out.trouble(match self.is_of_stacks() {
            true => Trouble::SkippedBlock(self.missing()),
            false => Trouble::Cut("begins inside a block"),
        });
    }

    fn note(&mut self, form: FormName, out: &mut dyn Out) {
        self.form.get_or_insert(form);
        let (block, seen) = (&self.block, &mut self.seen);
        seen.blocks = seen.blocks.saturating_add(1);
        seen.head |= block.head.is_some();
        seen.pfn |= block.pfn.is_some();
        seen.frames |= !self.stack.is_empty();
        seen.handle |= block.handle.is_some();
        seen.section |= block.has_section;
        if self.has_headless {
            self.tell_headless(out);
        }
    }

    /// A block of a dump, or of page_owner_sort.
    fn put_allocation(&mut self, out: &mut dyn Out) -> Result<(), Reason> {
        let block = &self.block;
        let head = match &block.head {
            Some(Ok(head)) => head,
            Some(Err(reason)) => return Err(reason),
            None => return Err(owner_lines::NO_ORDER),
        };
        let handle = block.handle.transpose()?;
        let pfn = block.pfn.transpose()?.unwrap_or_default();
        let group = match block.group.is_empty() {
            true if self.is_grouped => return Err("has no count"),
            true => None,
            false => Some(owner_lines::group(&block.group, true)?),
        };
        let of_block = 1u64 << head.order;
        let times = group.map_or(1, |group| group.times);
        let pages = match group.and_then(|group| group.pages) {
            Some(pages) => pages,
            None => of_block.checked_mul(times).ok_or(super::numbers::OUT_OF_RANGE)?,
        };
        let told = group.map(|group| group.allocators).unwrap_or_default();
        let stack = self.stack.whole(out);
        let entry = Entry {
            kind: EntryKind::Told(Kind::Pages),
            site: site(stack.word, stack.frames, handle),
            stack: stack.frames,
            objects: Some(times),
            pages: Some(pages),
            order: Some(head.order),
            address: pfn.pfn.unwrap_or(0),
            gfp: head.gfp,
            pid: head.pid,
            tgid: head.tgid,
            comm: head.has_comm.then_some(&block.comm[..]),
            at: head.at,
            free_at: head.free_at,
            allocators: told.with(pfn.allocators).with(stack.allocators),
            is_released: head.is_released || block.is_free,
            ..Entry::default()
        };
        out.entry(&entry);
        if let Some(handle) = handle.filter(|_| !stack.frames.is_empty()) {
            out.fact(Fact::HandleStack(handle, stack.frames));
        }
        self.page_size.add(pfn.pfn, pfn.block);
        let form = if group.is_some() { SORTED } else { DUMP };
        self.note(form, out);
        Ok(())
    }

    /// A line of page_owner_sort with the key of its group, and the stack where that is a key.
    fn put_group(&mut self, out: &mut dyn Out) -> Result<(), Reason> {
        let block = &self.block;
        let Group { times, pages, pid, tgid, comm, module, allocators } =
            owner_lines::group(&block.group, block.has_lines || block.extent == Extent::Ended)?;
        let stack = self.stack.whole(out);
        out.entry(&Entry {
            kind: EntryKind::Told(Kind::Pages),
            site: site(stack.word, stack.frames, None),
            stack: stack.frames,
            objects: Some(times),
            pages,
            pid,
            tgid,
            comm,
            module,
            allocators: allocators.with(stack.allocators),
            ..Entry::default()
        });
        self.note(CULLED, out);
        Ok(())
    }

    /// A stack, or its handle, with a count.
    fn put_counted(&mut self, out: &mut dyn Out) -> Result<(), Trouble> {
        let block = &self.block;
        if block.first_line == FirstLine::Count && block.handle.is_none() && self.seen.blocks == 0 {
            return Err(Trouble::Cut("begins inside a block"));
        }
        let [pages, objects, handle] = [block.pages, block.allocations, block.handle]
            .map(|count| count.transpose().map_err(Trouble::SkippedBlock));
        let (pages, objects, handle) = (pages?, objects?, handle?);
        let stack = self.stack.whole(out);
        out.entry(&Entry {
            kind: EntryKind::Told(Kind::Pages),
            site: site(stack.word, stack.frames, handle),
            stack: stack.frames,
            objects,
            pages,
            allocators: stack.allocators,
            ..Entry::default()
        });
        let form = if handle.is_some() && stack.frames.is_empty() { HANDLES } else { STACKS };
        self.note(form, out);
        Ok(())
    }
}

/// Site of an entry with this stack, or with none.
fn site(word: Option<&'static [u8]>, frames: &[u64], handle: Option<u64>) -> Site<'static> {
    match (word, handle) {
        (Some(word), _) => Site::Word(word),
        (None, Some(handle)) if frames.is_empty() => Site::Handle(handle),
        (None, None) if frames.is_empty() => Site::Unknown,
        _ => Site::OfStack,
    }
}

#[cfg(test)]
mod tests;
