//! Lines of a page_owner text: one block a page, with a head, the frame's number, its stack, notes, and a blank line.
//!
//! Written by `print_page_owner` in the kernel's `mm/page_owner.c`, here as of Linux 4.2 to 6.18. Older kernels write no process,
//! no thread group and no times.

use crate::open::symbols::{Frame, find, frame, number, rfind};
use crate::owner::Allocators;

/// A page's owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Binary logarithm of the number of pages.
    pub(super) order: u8,
    /// Flags of the allocation.
    pub(super) gfp: u64,
    pub(super) pid: Option<i32>,
    pub(super) tgid: Option<i32>,
    pub(super) comm: Option<Vec<u8>>,
    /// Time of the allocation, in ns since boot.
    pub(super) allocated_at: Option<u64>,
    /// Time of the last free, in ns since boot; 0 if the page was never freed.
    pub(super) freed_at: Option<u64>,
}

impl Head {
    /// True for a page that was given back after this allocation. Equal times stand for a page that was migrated: it is held.
    pub(super) fn is_released(&self) -> bool {
        self.freed_at.zip(self.allocated_at).is_some_and(|(freed, allocated)| freed > allocated)
    }
}

/// Meaning of a line behind a block's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockLine<'l> {
    /// Page frame number of the block's first page, and the allocators that types and flags of the page name.
    Pfn(u64, Allocators),
    Frame(Frame<'l>),
    /// Text that is not needed: memory cgroup, migration.
    Note,
    /// End of the block.
    End,
}

/// Begin of every block.
pub(super) const BEGIN: &[u8] = b"Page allocated via order ";
/// Greatest order of a block. The kernel's largest pages have less (`MAX_PAGE_ORDER` of `include/linux/mmzone.h`).
pub(super) const MAX_ORDER: u8 = 16;

/// Reads a block's first line; an error is the reason for which it is none.
pub(super) fn head(line: &[u8]) -> Result<Head, &'static str> {
    let rest = line.strip_prefix(BEGIN).ok_or("has no `Page allocated via order`")?;
    let (order, rest) = number(rest).ok_or("has no order")?;
    let order =
        u8::try_from(order).ok().filter(|order| *order <= MAX_ORDER).ok_or("has an order that no kernel has")?;
    let rest = rest.strip_prefix(b", mask ").ok_or("has no mask")?;
    let (gfp, rest) = number(rest).ok_or("has no mask")?;
    let mut head = Head { order, gfp, ..Head::default() };
    // A comm may hold any of these words. It stands between the first `tgid N (` and the last `), ts `.
    let begin = find(rest, b", pid ").unwrap_or(rest.len());
    let threads = &rest[begin..];
    let (threads, times) = match rfind(threads, b"), ts ").map(|end| end + 1).or_else(|| find(threads, b", ts ")) {
        Some(end) => threads.split_at(end),
        None if begin == rest.len() => (&rest[..0], rest),
        None => (threads, &rest[..0]),
    };
    if let Some((pid, rest)) = after(threads, b", pid ").and_then(number) {
        head.pid = i32::try_from(pid).ok();
        if let Some((tgid, comm)) = rest.strip_prefix(b", tgid ").and_then(number) {
            head.tgid = i32::try_from(tgid).ok();
            head.comm = comm.strip_prefix(b" (").and_then(|comm| comm.strip_suffix(b")")).map(<[u8]>::to_vec);
        }
    }
    let time = |word: &[u8]| after(times, word).and_then(number).map(|(time, _)| time);
    (head.allocated_at, head.freed_at) = (time(b", ts "), time(b", free_ts "));
    Ok(head)
}

/// Reads a line behind a block's first one; `None` for a line that no kernel writes there.
pub(super) fn line(line: &[u8]) -> Option<BlockLine<'_>> {
    if line.is_empty() {
        return Some(BlockLine::End);
    }
    if let Some(rest) = line.strip_prefix(b"PFN") {
        let (pfn, rest) = rest.strip_prefix(b" ").and_then(number)?;
        let named = [(Allocators::CMA, &b"CMA"[..]), (Allocators::SLAB, b"slab")];
        let named = named.into_iter().filter(|(_, word)| find(rest, word).is_some());
        return Some(BlockLine::Pfn(pfn, named.fold(Allocators::default(), |all, (one, _)| all.with(one))));
    }
    if let Some(frame) = frame(line.trim_ascii()) {
        return Some(BlockLine::Frame(frame));
    }
    let is_note = line.first().is_some_and(u8::is_ascii_uppercase) && !line.starts_with(BEGIN);
    is_note.then_some(BlockLine::Note)
}

fn after<'t>(text: &'t [u8], word: &[u8]) -> Option<&'t [u8]> {
    find(text, word).map(|at| &text[at + word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_all_kernels_are_read() {
        let owner = |order, gfp| Head { order, gfp, ..Head::default() };
        let task = |head: Head, comm: &str| Head { pid: Some(12), tgid: Some(10), comm: Some(comm.into()), ..head };
        let times = |head: Head| Head { allocated_at: Some(5_000), freed_at: Some(4_000), ..head };
        for (text, read) in [
            ("order 0, mask 0x0", owner(0, 0)),
            ("order 2, mask 0xdc0(GFP_KERNEL|__GFP_ZERO)", owner(2, 0xdc0)),
            ("order 0, mask 0x0(), ts 5000 ns", Head { allocated_at: Some(5_000), ..owner(0, 0) }),
            (
                "order 0, mask 0xcc0(GFP_KERNEL), pid 12, ts 5000 ns, free_ts 4000 ns",
                times(Head { pid: Some(12), ..owner(0, 0xcc0) }),
            ),
            (
                "order 0, mask 0xcc0(GFP_KERNEL), pid 12, tgid 10 (sh), ts 5000 ns, free_ts 4000 ns",
                times(task(owner(0, 0xcc0), "sh")),
            ),
            ("order 9, mask 0xcc0(GFP_KERNEL), pid 12, tgid 10 (sh)", task(owner(9, 0xcc0), "sh")),
            (
                "order 0, mask 0x1(X), pid 12, tgid 10 (a), ts 7 ns (, pid 1), ts 5000 ns, free_ts 4000 ns",
                times(task(owner(0, 1), "a), ts 7 ns (, pid 1")),
            ),
        ] {
            assert_eq!(head(format!("Page allocated via {text}").as_bytes()), Ok(read), "{text}");
        }
        for text in [
            "",
            "Page allocated via order",
            "Page allocated via order x, mask 0x0",
            "PFN 1",
            "Page allocated via order 17, mask 0x0",
        ] {
            assert!(head(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_page_that_was_freed_later_is_released() {
        let head = |allocated_at, freed_at| Head { allocated_at, freed_at, ..Head::default() };
        for (allocated, freed, is_released) in
            [(Some(5), Some(6), true), (Some(5), Some(5), false), (Some(5), Some(0), false), (None, None, false)]
        {
            assert_eq!(head(allocated, freed).is_released(), is_released, "{allocated:?} {freed:?}");
        }
    }

    #[test]
    fn lines_behind_the_head_are_told_apart() {
        let function = |name: &'static str, offset, size, module: Option<&'static str>| {
            let (name, module) = (name.as_bytes(), module.map(str::as_bytes));
            Some(BlockLine::Frame(Frame::Function { name, offset, size, module }))
        };
        for (text, read) in [
            (
                "PFN 4096 type Unmovable Block 8 type Unmovable Flags 0x200(slab)",
                Some(BlockLine::Pfn(4096, Allocators::SLAB)),
            ),
            (
                "PFN 0x1000 type Movable Block 8 type Movable Flags 0x0()",
                Some(BlockLine::Pfn(4096, Allocators::default())),
            ),
            ("PFN 1 type CMA Block 8 type CMA Flags 0x0()", Some(BlockLine::Pfn(1, Allocators::CMA))),
            (" get_page_from_freelist+0x1d9/0x1130", function("get_page_from_freelist", 0x1d9, 0x1130, None)),
            (" foo.isra.0+0x0/0x20 [foo]", function("foo.isra.0", 0, 0x20, Some("foo"))),
            (" foo+0x1/0x20 [foo 0123456789abcdef]", function("foo", 1, 0x20, Some("foo"))),
            (" [<ffffffff8112c3d1>] foo+0x1/0x20", function("foo", 1, 0x20, None)),
            (" 0xffffffffc0100040", Some(BlockLine::Frame(Frame::Address(0xffff_ffff_c010_0040)))),
            ("Charged to memcg /", Some(BlockLine::Note)),
            ("Page has been migrated, last migrate reason: compaction", Some(BlockLine::Note)),
            ("", Some(BlockLine::End)),
            ("Page allocated via order 0, mask 0x0", None),
            ("rubbish", None),
            (" +0x1/0x2", None),
            (" a b+0x1/0x2", None),
            ("PFN", None),
        ] {
            assert_eq!(line(text.as_bytes()), read, "{text}");
        }
    }
}
