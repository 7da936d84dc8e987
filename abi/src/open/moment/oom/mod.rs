//! Reports of memory that ran out, in a log: of the machine or of a memory cgroup (mm/oom_kill.c, mm/memcontrol.c), and Mem-Info alone,
//! which failed allocations and sysrq-m print, too (mm/show_mem.c, before Linux 6.3 mm/page_alloc.c).
//!
//! Numbers of the block of pages are counts of pages, so that they wait for the size of a page, which the buddy lines tell.

mod memcg;
mod pages;
mod tasks;

use self::memcg::Memcg;
use self::pages::Pages;
use self::tasks::Tasks;
use super::entry::{Fact, Out, Reader, Took, Trouble};
use super::numbers::{size, trimmed, words};
use super::{machine, places, slabinfo};
use crate::listed::SlabColumns;
use crate::open::symbols::find;

/// Bytes of a page where neither the text nor the caller tells.
const USUAL_PAGE_BYTES: u64 = 4096;

/// Line that begins a report, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// `example invoked oom-killer: …`, or `example: page allocation failure: …`: a report's first line.
    Report,
    /// `Mem-Info:`.
    MemInfo,
    /// The first line of the block of pages.
    Pages,
    /// `memory: usage …`, or `Memory cgroup stats for …`.
    Memcg,
    /// The head of the table of tasks.
    Tasks,
    /// The head of the list of slabs.
    Slabs,
}

/// What a line begins; `None` for others.
fn begin(line: &[u8]) -> Option<Begin> {
    let line = trimmed(line);
    let has = |words: &[u8]| find(line, words).is_some();
    match line {
        _ if has(b" invoked oom-killer: ") => Some(Begin::Report),
        _ if has(b": page allocation failure") && (has(b"order:") || has(b"order=")) => Some(Begin::Report),
        b"Mem-Info:" | b"Mem-info:" => Some(Begin::MemInfo),
        _ if pages::is_first(line) => Some(Begin::Pages),
        _ if line.starts_with(b"Tasks state (memory values in pages):") || tasks::is_head(line) => Some(Begin::Tasks),
        b"Unreclaimable slab info:" => Some(Begin::Slabs),
        _ if memcg::is_usage(line) || memcg::is_stats(line) || memcg::is_limit(line) => Some(Begin::Memcg),
        _ => None,
    }
}

/// True for a line that a report, or what is left of one, begins with.
pub(super) fn begins(line: &[u8]) -> bool {
    begin(line).is_some()
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Oom {
    asked_page_bytes: Option<u64>,
    /// The report's first line was seen, `Mem-Info:`, the list of slabs.
    has_first: bool,
    has_mem_info: bool,
    is_in_slabs: bool,
    has_parts: bool,
    pages: Pages,
    memcg: Memcg,
    tasks: Tasks,
}

impl Oom {
    /// Counts of pages are turned into bytes by this size of a page, else by the text's, else by the usual one.
    pub(super) fn new(asked_page_bytes: Option<u64>) -> Oom {
        Oom { asked_page_bytes, ..Oom::default() }
    }

    /// Takes a line that begins a part; true if it begins the next report.
    fn take_begin(&mut self, begin: Begin, line: &[u8], out: &mut dyn Out) -> bool {
        let has_memory = self.has_mem_info || !self.pages.is_empty() || !self.memcg.is_empty();
        let is_next = match begin {
            Begin::Report => self.has_first || has_memory || self.has_parts,
            Begin::MemInfo => has_memory,
            Begin::Pages => !self.pages.is_empty(),
            Begin::Memcg => memcg::is_usage(line) && (self.memcg.has_usage() || !self.pages.is_empty()),
            Begin::Tasks | Begin::Slabs => false,
        };
        if is_next {
            return true;
        }
        if !self.has_first && !self.has_mem_info && !self.has_parts && !matches!(begin, Begin::Report | Begin::MemInfo)
        {
            out.trouble(Trouble::Cut("begins inside a report"));
        }
        self.is_in_slabs = begin == Begin::Slabs;
        match begin {
            Begin::Report => self.has_first = true,
            Begin::MemInfo => self.has_mem_info = true,
            Begin::Pages => {
                self.has_mem_info = true;
                self.pages.take(line);
            }
            Begin::Memcg => _ = self.memcg.take(line),
            Begin::Tasks => _ = self.tasks.take(line),
            Begin::Slabs => {}
        }
        self.has_parts |= begin != Begin::Report;
        false
    }

    /// Takes another line; false for one of another form.
    fn take_inside(&mut self, line: &[u8], out: &mut dyn Out) -> bool {
        let told = machine::told(line);
        told.put(out);
        if told.kernel.is_some() {
            return true;
        }
        if self.is_in_slabs && self.take_slab(line, out) {
            return true;
        }
        let is_of_pages = self.has_mem_info && self.pages.take(line);
        let is_of_part = is_of_pages || self.memcg.take(line) || self.tasks.take(line);
        if is_of_part {
            self.is_in_slabs = false;
        }
        is_of_part || is_other(line)
    }

    /// `example_cache   12KB   21KB`, and the head above such lines.
    fn take_slab(&mut self, line: &[u8], out: &mut dyn Out) -> bool {
        let columns: Vec<&[u8]> = words(line).collect();
        let &[.., used, total] = &columns[..] else { return false };
        if columns == [&b"Name"[..], b"Used", b"Total"] {
            return true;
        }
        let (Some(_), Some(_)) = (used.strip_suffix(b"KB"), total.strip_suffix(b"KB")) else { return false };
        // Names may have blanks.
        let begin = trimmed(line);
        let end = (used.as_ptr() as usize).saturating_sub(begin.as_ptr() as usize);
        let cache = trimmed(begin.get(..end).unwrap_or_default());
        match (size(used, 0), size(total, 0)) {
            _ if cache.is_empty() => out.trouble(Trouble::SkippedBlock("lacks its name")),
            (Ok(used), Ok(total)) => {
                let columns = SlabColumns { bytes: Some(total.bytes), ..SlabColumns::default() };
                slabinfo::Line { cache, columns, bytes: Some(used.bytes) }.put(out);
            }
            (Err(reason), _) | (_, Err(reason)) => out.trouble(Trouble::SkippedBlock(reason)),
        }
        true
    }

    fn put(&mut self, out: &mut dyn Out) {
        if let Some(bytes) = self.pages.page_bytes() {
            out.fact(Fact::PageBytes(bytes));
        }
        let page_bytes = self.asked_page_bytes.or(self.pages.page_bytes()).unwrap_or(USUAL_PAGE_BYTES);
        let is_skipped = [self.pages.put(page_bytes, out), self.memcg.put(out), self.tasks.put(page_bytes, out)];
        for _ in 0..is_skipped.into_iter().sum() {
            out.trouble(Trouble::SkippedBlock("has a number out of range"));
        }
    }
}

/// Lines of a report that tell no figure of a view.
fn is_other(line: &[u8]) -> bool {
    const BEGINS: [&[u8]; 19] = [
        b"oom-kill:",
        b"Out of memory: ",
        b"Memory cgroup out of memory: ",
        // Linux 7.
        b"Memory cgroup min protection ",
        b"Killed process ",
        b"oom_reaper: ",
        b"Task in ",
        b"Tasks in ",
        b"lowmem_reserve[]",
        b"Node ",
        b"Free swap ",
        b"Total swap ",
        b"Swap cache stats",
        b"DMA",
        b"HighMem",
        b"Normal",
        b"oom_kill_process",
        b"cpuset=",
        b"SLUB: Unable to allocate",
    ];
    let line = trimmed(line);
    let is_known = BEGINS.iter().any(|begin| line.starts_with(begin));
    is_known || find(line, b" cpuset=").is_some() || find(line, b"mems_allowed=").is_some() || places::is_of_trace(line)
}

impl Reader for Oom {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if trimmed(line).is_empty() {
            return Took::Line;
        }
        if let Some(begin) = begin(line) {
            if self.take_begin(begin, line, out) {
                self.end(false, out);
                return Took::NextText;
            }
            return Took::Line;
        }
        let is_open = self.has_first || self.has_mem_info || self.has_parts;
        if is_open && self.take_inside(line, out) { Took::Line } else { Took::NoLine }
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        let ends_inside = self.has_mem_info && !self.pages.is_whole();
        if is_cut || ends_inside {
            out.trouble(Trouble::Cut("ends inside a report"));
        }
        self.put(out);
    }
}

#[cfg(test)]
mod tests;
