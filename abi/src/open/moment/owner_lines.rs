//! Lines of page_owner's texts (mm/page_owner.c), of page_owner_sort (tools/mm/page_owner_sort.c), and of debuggers' copies of them.

use memchr::{memchr, memchr_iter, memrchr, memrchr_iter};

use super::numbers::{MAX, OUT_OF_RANGE, Reason, around, is_digits, split_before};
use crate::open::symbols::{find, rfind};
use crate::owner::Allocators;
use crate::text::split::split_once;

/// Why a header's block is left out.
pub(super) const NO_ORDER: Reason = "has no order";

/// First line of a block: the allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head<'l> {
    /// Binary logarithm of the number of pages.
    pub(super) order: u8,
    /// Flags of the allocation.
    pub(super) gfp: Option<u64>,
    pub(super) pid: Option<i32>,
    pub(super) tgid: Option<i32>,
    pub(super) comm: Option<&'l [u8]>,
    /// Time of the allocation, in ns since boot.
    pub(super) at: Option<u64>,
    /// Time at which the page was freed the last time, in ns since boot; 0 if it never was.
    pub(super) free_at: Option<u64>,
}

impl Head<'_> {
    /// True for a page that was given back after this allocation. Equal times stand for a page that was migrated: it is held.
    pub(super) fn is_released(&self) -> bool {
        self.free_at.zip(self.at).is_some_and(|(freed, allocated)| freed > allocated)
    }
}

/// Text behind the words that a header begins with: of a dump, of a single page in a log, and of the same in a debugger.
pub(super) fn behind_head(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"Page ").or_else(|| line.strip_prefix(b"page "))?;
    rest.strip_prefix(b"last ").unwrap_or(rest).strip_prefix(b"allocated via order")
}

/// Reads what follows [`behind_head`]; an error is the reason for which the block does not count.
pub(super) fn head(text: &[u8]) -> Result<Head<'_>, Reason> {
    let text = text.strip_prefix(b":").unwrap_or(text).trim_ascii_start();
    let (order, mut rest) = unsigned(text)?.ok_or(NO_ORDER)?;
    // Pages of a greater order have no number in range.
    let order = u8::try_from(order).ok().filter(|order| *order < 63).ok_or(OUT_OF_RANGE)?;
    let mut head = Head { order, ..Head::default() };
    let mut is_of_gdb = false;
    while let Some(field) = rest.strip_prefix(b",") {
        let field = field.strip_prefix(b" ").unwrap_or(field);
        rest = if let Some(mask) = value(field, b"mask").or_else(|| value(field, b"gfp_mask")) {
            is_of_gdb = field.starts_with(b"gfp_mask:");
            let (gfp, rest) = number(mask)?;
            head.gfp = gfp;
            behind_names(rest)
        } else if let Some(pid) = value(field, b"pid") {
            let (pid, rest) = thread(pid)?;
            head.pid = pid;
            rest
        } else if let Some(tgid) = value(field, b"tgid") {
            let (tgid, rest) = thread(tgid)?;
            head.tgid = tgid;
            let (comm, rest) = comm(rest, is_of_gdb);
            head.comm = comm;
            rest
        } else if let Some(time) = value(field, b"ts") {
            let (time, rest) = number(time)?;
            head.at = time;
            rest.trim_ascii_start().strip_prefix(b"ns").unwrap_or(rest)
        } else if let Some(time) = value(field, b"free_ts") {
            let (time, rest) = number(time)?;
            head.free_at = time;
            rest.trim_ascii_start().strip_prefix(b"ns").unwrap_or(rest)
        } else {
            from_comma(field)
        };
        // What is not known of a field is passed over.
        rest = from_comma(rest);
    }
    Ok(head)
}

/// Text from the first comma on.
fn from_comma(text: &[u8]) -> &[u8] {
    memchr(b',', text).and_then(|comma| text.get(comma..)).unwrap_or_default()
}

/// Text behind a field's name, and the colon that debuggers have there.
fn value<'l>(field: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let rest = field.strip_prefix(name)?;
    rest.strip_prefix(b": ").or_else(|| rest.strip_prefix(b" "))
}

/// Text behind the flags' names in brackets.
fn behind_names(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"(").and_then(|names| split_once(names, b')')).map_or(text, |(_, rest)| rest)
}

/// Command in brackets, which may hold any bytes: it ends at the last bracket before the times.
fn comm(text: &[u8], is_of_gdb: bool) -> (Option<&[u8]>, &[u8]) {
    let Some(inside) = text.strip_prefix(b" (") else { return (None, text) };
    let end = before_times(inside).or_else(|| memrchr(b')', inside));
    let Some((comm, rest)) = end.and_then(|end| around(inside, end, 1)) else { return (None, text) };
    let comm = match comm.strip_prefix(b"\"").filter(|_| is_of_gdb) {
        // gdb prints the whole array of 16 bytes.
        Some(array) => {
            let end = find(array, b"\\000").or_else(|| memrchr(b'"', array));
            end.and_then(|end| array.get(..end)).unwrap_or(array)
        }
        None => comm,
    };
    (Some(comm), rest)
}

/// Place of the last `), ts`.
fn before_times(text: &[u8]) -> Option<usize> {
    memrchr_iter(b')', text).find(|&end| text.get(end..).is_some_and(|rest| rest.starts_with(b"), ts")))
}

/// The decimal number at the begin, and what follows it; `None` without digits.
pub(super) fn unsigned(text: &[u8]) -> Result<Option<(u64, &[u8])>, Reason> {
    let mut value = 0u64;
    let mut rest = text;
    while let [byte @ b'0'..=b'9', behind @ ..] = rest {
        let digit = byte.wrapping_sub(b'0');
        value = value.checked_mul(10).and_then(|value| value.checked_add(digit.into())).ok_or(OUT_OF_RANGE)?;
        rest = behind;
    }
    if value > MAX {
        return Err(OUT_OF_RANGE);
    }
    Ok((rest.len() < text.len()).then_some((value, rest)))
}

/// The decimal number at the begin, or the hexadecimal one behind `0x`, and what follows it.
fn number(text: &[u8]) -> Result<(Option<u64>, &[u8]), Reason> {
    let Some(digits) = text.strip_prefix(b"0x") else {
        return Ok(unsigned(text)?.map_or((None, text), |(value, rest)| (Some(value), rest)));
    };
    let (digits, rest) = split_before(digits, |byte| !byte.is_ascii_hexdigit());
    if digits.is_empty() {
        return Ok((None, text));
    }
    let (_, significant) = split_before(digits, |byte| byte != b'0');
    let value = if significant.is_empty() { Some(0) } else { super::frames::hexadecimal(significant) };
    match value.filter(|value| *value <= MAX) {
        Some(value) => Ok((Some(value), rest)),
        None => Err(OUT_OF_RANGE),
    }
}

/// Id of a thread; `None` for a negative one.
fn thread(text: &[u8]) -> Result<(Option<i32>, &[u8]), Reason> {
    if let Some(rest) = text.strip_prefix(b"-") {
        return Ok((None, unsigned(rest)?.map_or(rest, |(_, rest)| rest)));
    }
    match unsigned(text)? {
        Some((pid, rest)) => Ok((Some(i32::try_from(pid).map_err(|_| OUT_OF_RANGE)?), rest)),
        None => Ok((None, text)),
    }
}

/// A line about the page frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pfn {
    pub(super) pfn: Option<u64>,
    /// Number of the block of pages that the frame is in.
    pub(super) block: Option<u64>,
    /// Allocators that types and flags of the page name.
    pub(super) allocators: Allocators,
    /// The line is crash's, which has it before the header.
    pub(super) is_of_crash: bool,
}

/// Text behind the word that a line about the page frame begins with.
pub(super) fn behind_pfn(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"PFN: ").or_else(|| line.strip_prefix(b"PFN "))
}

/// Reads what follows [`behind_pfn`].
pub(super) fn pfn(text: &[u8]) -> Result<Pfn, Reason> {
    let (pfn, rest) = number(text)?;
    let block = match behind_word(rest, b"Block ") {
        Some(block) => number(block)?.0,
        None => None,
    };
    let named = [(Allocators::CMA, &b"CMA"[..]), (Allocators::SLAB, b"slab")];
    let named = named.into_iter().filter(|(_, word)| behind_word(rest, word).is_some());
    let mut allocators = named.fold(Allocators::default(), |all, (one, _)| all.with(one));
    // Linux 3.19 to 4.5: a letter or a blank for each flag.
    if let Some(letters) = behind_word(rest, b"Flags ")
        && letters.contains(&b'S')
        && letters.iter().all(|letter| b"KERUDLASWCBM ".contains(letter))
    {
        allocators = allocators.with(Allocators::SLAB);
    }
    Ok(Pfn { pfn, block, allocators, is_of_crash: rest.starts_with(b"(0x") || behind_word(rest, b"paddr ").is_some() })
}

/// Text behind a word in a short line, by its first letter, which is a rare one there: a searcher costs more than the search.
fn behind_word<'l>(line: &'l [u8], word: &[u8]) -> Option<&'l [u8]> {
    let first = *word.first()?;
    memchr_iter(first, line).find_map(|at| line.get(at..)?.strip_prefix(word))
}

/// Numbers of page_owner_sort for a group of blocks, and the key of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group<'l> {
    pub(super) times: u64,
    pub(super) pages: Option<u64>,
    pub(super) pid: Option<i32>,
    pub(super) tgid: Option<i32>,
    pub(super) comm: Option<&'l [u8]>,
    pub(super) module: Option<&'l [u8]>,
    pub(super) allocators: Allocators,
}

/// True for a line of page_owner_sort: `3 times:`, `3 times, 12 pages:`, `3 times, 12 pages, PID 77, …`.
pub(super) fn is_group(line: &[u8]) -> bool {
    let (digits, rest) = split_before(line, |byte| !byte.is_ascii_digit());
    !digits.is_empty() && rest.strip_prefix(b" times").is_some_and(|rest| matches!(rest.first(), Some(b',' | b':')))
}

/// Reads such a line. `has_stack`: lines follow that are its own, so that the colon at its end is none of a command's name.
///
/// ```text
/// 3 times, 12 pages, PID 77, TGID 70, task_comm_name: exa,mp:le, module: exampledrv, allocated by SLAB  (RELEASED):
/// ```
pub(super) fn group(line: &[u8], has_stack: bool) -> Result<Group<'_>, Reason> {
    let (times, rest) = unsigned(line)?.ok_or("has no count")?;
    let rest = rest.strip_prefix(b" times").unwrap_or(rest);
    let mut group = Group { times, ..Group::default() };
    let mut rest = if has_stack { rest.strip_suffix(b":").unwrap_or(rest) } else { rest };
    for state in [&b" (RELEASED)"[..], b" (UNRELEASED)"] {
        rest = rest
            .strip_suffix(state)
            .or_else(|| rest.strip_suffix(b":").and_then(|rest| rest.strip_suffix(state)))
            .unwrap_or(rest);
    }
    if let Some((before, allocators)) = allocators(rest) {
        (rest, group.allocators) = (before, allocators);
    }
    if let Some((before, module)) = last_field(rest, b", module: ").filter(|(_, module)| super::frames::is_name(module))
    {
        (rest, group.module) = (before, Some(module));
    }
    if let Some((pages, behind)) = rest.strip_prefix(b", ").map(unsigned).transpose()?.flatten()
        && let Some(behind) = behind.strip_prefix(b" pages")
    {
        (rest, group.pages) = (behind, Some(pages));
    }
    if let Some(pid) = rest.strip_prefix(b", PID ") {
        (group.pid, rest) = thread(pid)?;
    }
    if let Some(tgid) = rest.strip_prefix(b", TGID ") {
        (group.tgid, rest) = thread(tgid)?;
    }
    group.comm = rest.strip_prefix(b", task_comm_name: ");
    Ok(group)
}

/// Text before the last field of this name, and its value.
fn last_field<'l>(text: &'l [u8], name: &[u8]) -> Option<(&'l [u8], &'l [u8])> {
    around(text, rfind(text, name)?, name.len())
}

/// The allocators that a line of page_owner_sort ends with, and what is before them.
fn allocators(text: &[u8]) -> Option<(&[u8], Allocators)> {
    let (before, words) = last_field(text, b", allocated by ")?;
    let words = words.strip_suffix(b":").unwrap_or(words);
    let mut all = Allocators::default();
    for word in words.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
        all = all.with(match word {
            b"CMA" => Allocators::CMA,
            b"SLAB" => Allocators::SLAB,
            b"VMALLOC" => Allocators::VMALLOC,
            b"OTHERS" => Allocators::default(),
            _ => return None,
        });
    }
    Some((before, all))
}

/// A number behind a name and a colon that is the whole line: `handle: 4711`.
pub(super) fn counted(line: &[u8], name: &[u8]) -> Option<Result<u64, Reason>> {
    let rest = line.trim_ascii().strip_prefix(name)?.strip_prefix(b":")?.trim_ascii();
    is_digits(rest).then(|| super::numbers::number(rest))
}

/// True for a line that tells more of a block: cgroup, migration, slab, module.
pub(super) fn is_note(line: &[u8]) -> bool {
    const NOTES: [&[u8]; 7] = [
        b"Page has been migrated",
        b"Slab cache page",
        b"Charged ",
        b"Page allocated by module",
        b"page_owner tracks the page as ",
        b"page_owner info is not ",
        b"page_owner free stack trace missing",
    ];
    NOTES.iter().any(|note| line.starts_with(note))
}

/// True for the line before the stack of the page's last free.
pub(super) fn begins_free(line: &[u8]) -> bool {
    (line.starts_with(b"page last free") || line.starts_with(b"Page last free"))
        && line.trim_ascii().ends_with(b"stack trace:")
}

/// True where a line tells that the page is free.
pub(super) fn tells_free(line: &[u8]) -> bool {
    line.starts_with(b"page_owner tracks the page as freed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Head<'_>, Reason> {
        head(behind_head(line.as_bytes()).unwrap())
    }

    #[test]
    fn heads_of_all_kernels_and_debuggers_are_read() {
        let gfp = |gfp| Head { gfp: Some(gfp), ..Head::default() };
        let task = |head: Head<'static>, comm: &'static str| Head {
            pid: Some(77),
            tgid: Some(70),
            comm: Some(comm.as_bytes()),
            ..head
        };
        let times = |head: Head<'static>| Head { at: Some(1200), free_at: Some(800), ..head };
        for (line, expected) in [
            ("Page allocated via order 2, mask 0x2d0", Head { order: 2, ..gfp(0x2d0) }),
            ("Page allocated via order 0, mask 0x0()", gfp(0)),
            ("Page allocated via order 0, mask 0xcc0(GFP_KERNEL)", gfp(0xcc0)),
            (
                "Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid 77, ts 1200 ns",
                Head { pid: Some(77), at: Some(1200), ..gfp(0xcc0) },
            ),
            (
                "Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid 77, ts 1200 ns, free_ts 800 ns",
                times(Head { pid: Some(77), ..gfp(0xcc0) }),
            ),
            (
                "Page allocated via order 0, mask 0x1(X), pid 77, tgid 70 (exa, (mp) le), ts 1200 ns, free_ts 800 ns",
                times(task(gfp(1), "exa, (mp) le")),
            ),
            (
                "Page allocated via order 0, mask 0x1(X), pid 77, tgid 70 (a), ts 7 ns (, pid 1), ts 1200 ns, free_ts 800 ns",
                times(task(gfp(1), "a), ts 7 ns (, pid 1")),
            ),
            ("Page allocated via order 0, mask 0x1(X), pid 77, tgid 70 (example), ts  ns", task(gfp(1), "example")),
            (
                "Page allocated via order 9, mask 0xcc0(GFP_KERNEL), pid 77, tgid 70 (a)",
                Head { order: 9, ..task(gfp(0xcc0), "a") },
            ),
            (
                "Page allocated via order 7, mask 0xcc1, pid 77, tgid 70 (a), ts 1200 ns, free_ts 800 ns",
                Head { order: 7, ..times(task(gfp(0xcc1), "a")) },
            ),
            (
                "Page allocated via order 0, gfp_mask: 0xcc0, pid: 77, tgid: 70 (example), ts 1200 ns, free_ts 800 ns",
                times(task(gfp(0xcc0), "example")),
            ),
            (
                "Page allocated via order 0, gfp_mask: 0xcc0, pid: 77, tgid: 70 (\"example\\000\\000\", 'x' <repeats 3 times>), ts 1200 ns, free_ts 800 ns",
                times(task(gfp(0xcc0), "example")),
            ),
            (
                "page last allocated via order 0, migratetype Unmovable, gfp_mask 0xcc0(GFP_KERNEL), pid 77, tgid 70 (a), ts 1200, free_ts 800",
                times(task(gfp(0xcc0), "a")),
            ),
            ("page allocated via order 3, migratetype Movable, gfp_mask 0x0()", Head { order: 3, ..gfp(0) }),
            ("Page allocated via order 0, mask 0x0, pid -1, tgid -1 (a)", Head { comm: Some(b"a"), ..gfp(0) }),
        ] {
            assert_eq!(read(line), Ok(expected), "{line}");
        }
        for (line, reason) in [
            ("Page allocated via order", NO_ORDER),
            ("Page allocated via order , mask 0x0", NO_ORDER),
            ("Page allocated via order 63, mask 0x0", OUT_OF_RANGE),
            ("Page allocated via order 99999999999999999999, mask 0x0", OUT_OF_RANGE),
            ("Page allocated via order 0, mask 0x8000000000000000", OUT_OF_RANGE),
            ("Page allocated via order 0, mask 0x0, pid 4294967296", OUT_OF_RANGE),
            ("Page allocated via order 0, mask 0x0, ts 9223372036854775808 ns", OUT_OF_RANGE),
        ] {
            assert_eq!(read(line), Err(reason), "{line}");
        }
        assert_eq!(behind_head(b"Page has been migrated"), None);
    }

    #[test]
    fn lines_about_frames_are_read() {
        let read = |line: &'static str| pfn(behind_pfn(line.as_bytes()).unwrap());
        let of = |pfn, block, allocators| Ok(Pfn { pfn: Some(pfn), block, allocators, is_of_crash: false });
        let (slab, none) = (Allocators::SLAB, Allocators::default());
        assert_eq!(read("PFN 4096 type Unmovable Block 8 type Movable Flags 0x40(slab)"), of(4096, Some(8), slab));
        assert_eq!(read("PFN 0x1000 type CMA Block 8 type CMA Flags 0x0()"), of(4096, Some(8), Allocators::CMA));
        assert_eq!(read("PFN 4096 Block 8 type 0 Fallback Flags   RU  S    "), of(4096, Some(8), slab));
        assert_eq!(read("PFN 4096 Block 8 type 0          Flags   RU  L     "), of(4096, Some(8), none));
        assert_eq!(read("PFN: 4096, Flags: 0x40"), of(4096, None, none));
        let crash = read("PFN 256(0x100) paddr 100000 page_owner ffff888100000000").unwrap();
        assert!(crash.is_of_crash && crash.pfn == Some(256));
        assert_eq!(read("PFN 99999999999999999999 type"), Err(OUT_OF_RANGE));
        assert_eq!(read("PFN x").unwrap().pfn, None);
    }

    #[test]
    fn lines_of_page_owner_sort_are_read() {
        let none = Group { times: 3, ..Group::default() };
        let all = Group { pages: Some(12), pid: Some(77), tgid: Some(70), ..none };
        let slab = Allocators::SLAB;
        for (line, has_stack, expected) in [
            ("3 times:", true, none),
            ("3 times, 12 pages:", true, Group { pages: Some(12), ..none }),
            (
                "3 times, 12 pages, allocated by CMA SLAB :",
                true,
                Group { pages: Some(12), allocators: slab.with(Allocators::CMA), ..none },
            ),
            ("3 times, 12 pages, PID 77, TGID 70", false, all),
            (
                "3 times, 12 pages, PID 77, TGID 70, task_comm_name: exa,mp:le",
                false,
                Group { comm: Some(b"exa,mp:le"), ..all },
            ),
            ("3 times, 12 pages, PID 77, TGID 70, task_comm_name: a::", true, Group { comm: Some(b"a:"), ..all }),
            ("3 times, 12 pages, PID 77, TGID 70, task_comm_name: a:", false, Group { comm: Some(b"a:"), ..all }),
            (
                "3 times, 12 pages, PID 77, TGID 70, task_comm_name: a, module: exampledrv, allocated by SLAB  (UNRELEASED):",
                true,
                Group { comm: Some(b"a"), module: Some(b"exampledrv"), allocators: slab, ..all },
            ),
            ("3 times, 12 pages, allocated by OTHERS  (RELEASED)", false, Group { pages: Some(12), ..none }),
            (
                "3 times, 12 pages, task_comm_name: a, allocated by b",
                false,
                Group { pages: Some(12), comm: Some(b"a, allocated by b"), ..none },
            ),
            ("3 times, 12 pages, PID -1", false, Group { pages: Some(12), ..none }),
        ] {
            assert!(is_group(line.as_bytes()), "{line}");
            assert_eq!(group(line.as_bytes(), has_stack), Ok(expected), "{line}");
        }
        assert_eq!(group(b"99999999999999999999 times:", true), Err(OUT_OF_RANGE));
        assert_eq!(group(b"3 times, 99999999999999999999 pages:", true), Err(OUT_OF_RANGE));
        for line in ["", "3", "3 times", "x times:", " times:"] {
            assert!(!is_group(line.as_bytes()), "{line}");
        }
        assert_eq!(counted(b"handle: 42", b"handle"), Some(Ok(42)));
        assert_eq!(counted(b"handle: 42x", b"handle"), None);
    }
}
