//! `/proc/vmallocinfo` (mm/vmalloc.c, `vmalloc_info_show`): areas of kernel address space, a line each.
//!
//! ```text
//! 0x0000000012345678-0x0000000023456789   20480 example_open+0x1c/0x40 [exampledrv] pages=4 vmalloc N0=4
//! ```

use super::entry::{Entry, EntryKind, Out, Reader, Site, Took, Trouble};
use super::numbers::{Reason, first_word, number, trimmed, words};
use super::places;
use crate::event::Kind;
use crate::open::symbols::{Frame, find};

/// What stands in place of the caller.
const NO_CALLER: [&[u8]; 2] = [b"vm_map_ram", b"unpurged vm_area"];

/// True for a line of an area.
pub(super) fn begins(line: &[u8]) -> bool {
    matches!(parsed(line), Some(Ok(_)))
}

struct Area<'l> {
    /// Bytes, with the guard page.
    size: u64,
    caller: Option<Frame<'l>>,
    word: Option<&'l [u8]>,
    pages: Option<u64>,
}

/// `None` for a line of another form.
fn parsed(line: &[u8]) -> Option<Result<Area<'_>, Reason>> {
    let (range, rest) = first_word(line);
    let is_range = range.starts_with(b"0x") && find(range, b"-0x").is_some();
    is_range.then(|| area(rest))
}

fn area(rest: &[u8]) -> Result<Area<'_>, Reason> {
    let (size, rest) = first_word(rest);
    let word = NO_CALLER.into_iter().find(|word| rest.starts_with(word));
    let mut area = Area { size: number(size)?, caller: None, word, pages: None };
    for word in words(rest) {
        if let Some(pages) = word.strip_prefix(b"pages=") {
            area.pages = Some(number(pages)?);
        }
    }
    if word.is_none() {
        area.caller = caller(rest);
    }
    Ok(area)
}

/// The caller, perhaps with its module behind it.
fn caller(rest: &[u8]) -> Option<Frame<'_>> {
    let (name, behind) = first_word(rest);
    let module_end = behind.starts_with(b"[").then(|| find(behind, b"]")).flatten();
    let with_module = module_end.and_then(|end| {
        let begin = rest.len().saturating_sub(behind.len());
        places::frame(rest.get(..begin.saturating_add(end).saturating_add(1))?)
    });
    with_module.or_else(|| places::frame(name))
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Vmallocinfo;

impl Reader for Vmallocinfo {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        match parsed(line) {
            Some(Ok(area)) => {
                let site = match (area.caller, area.word) {
                    (Some(frame), _) => Site::Frame(out.address(frame)),
                    (None, Some(word)) => Site::Word(word),
                    (None, None) => Site::Unknown,
                };
                let (objects, allocated, pages) = (Some(1), Some(area.size), area.pages);
                let kind = EntryKind::Told(Kind::Vmalloc);
                out.entry(&Entry { kind, site, objects, allocated, pages, ..Entry::default() });
            }
            Some(Err(reason)) => out.trouble(Trouble::SkippedBlock(reason)),
            None if trimmed(line).is_empty() => {}
            None => return Took::NoLine,
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        if is_cut {
            out.trouble(Trouble::Cut("ends inside a line"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, behind, damage, largest, read};
    use super::*;

    const TEXT: &str = "\
0x0000000012345678-0x0000000023456789   20480 example_open+0x1c/0x40 [exampledrv] pages=4 vmalloc N0=4
0x0000000078af29fe-0x000000006e1d468e    8192 acpi_os_map_iomem+0x1bc/0x1e0 phys=0x00000000000a0000 ioremap
0x0000000078af29fe-0x000000006e1d468e    4096 unpurged vm_area
0x0000000078af29fe-0x000000006e1d468e   65536 vm_map_ram
0xffffc90000000000-0xffffc90000005000   20480 0xffffffffc0a01234 pages=4 vmalloc vpages N0=4
0xffffc90000000000-0xffffc90000005000   16384
";

    #[test]
    fn areas_have_callers_or_words() {
        let told = read(|| Vmallocinfo, TEXT.as_bytes());
        let rows: Vec<_> =
            told.entries.iter().map(|entry| (entry.site.as_str(), entry.allocated, entry.pages)).collect();
        assert_eq!(
            rows,
            [
                ("example_open+0x1c [exampledrv]", Some(20480), Some(4)),
                ("acpi_os_map_iomem+0x1bc", Some(8192), None),
                ("unpurged vm_area", Some(4096), None),
                ("vm_map_ram", Some(65536), None),
                ("0xffffffffc0a01234", Some(20480), Some(4)),
                ("-", Some(16384), None),
            ]
        );
        assert!(told.entries.iter().all(|entry| entry.kind == EntryKind::Told(Kind::Vmalloc)));
    }

    #[test]
    fn this_machines_own_is_read() {
        let text = std::fs::read("/proc/vmallocinfo").unwrap_or_default();
        let told = read(|| Vmallocinfo, &text);
        assert_eq!((told.others, &told.troubles[..]), (0, &[][..]));
        assert_eq!(told.entries.len(), text.split(|byte| *byte == b'\n').count() - 1);
    }

    /// The most that the lines of a text may tell.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| {
            let (allocated, pages) = (largest(line).0, behind(line, "pages=").unwrap_or(0));
            Sums { objects: 1, allocated, pages, ..Sums::default() }
        })
    }

    #[test]
    fn damage_does_no_harm() {
        damage(|| Vmallocinfo, TEXT.as_bytes(), most);
        let told = read(|| Vmallocinfo, b"0x1-0x2 99999999999999999999 vm_map_ram\n0x1-0x2 x vm_map_ram\n");
        assert_eq!((told.entries.len(), told.troubles.len()), (0, 2));
    }
}
