//! `/proc/allocinfo` (lib/alloc_tag.c, Linux 6.10 and later) in versions 1.x and 2.x, also sorted, cut or rounded, and the block
//! "Memory allocations:" of an OOM report (mm/show_mem.c).
//!
//! ```text
//! allocinfo - version: 1.0
//! #     <size>  <calls> <tag info>
//!        16384        4 drivers/x.c:12 [exampledrv] func:example_open
//! ```

use super::entry::{Beside, Entry, EntryKind, Fact, Out, Reader, Site, Took, Trouble};
use super::numbers::{NO_NUMBER, OUT_OF_RANGE, Reason, Size, around, first_word, number, signed, size, trimmed, words};
use crate::event::Kind;
use crate::open::symbols::{find, rfind};

const HEAD: &[u8] = b"allocinfo - version:";
/// First line of the block of an OOM report; Linux 6.19 has a remark before the colon.
const OF_OOM: &[u8] = b"Memory allocations";

/// True for the head, the first line of a block of an OOM report, and for a line of a call site.
pub(super) fn begins(line: &[u8]) -> bool {
    is_head(line) || is_of_oom(line) || is_columns(line) || matches!(parsed(line), Some(Ok(_)))
}

fn is_head(line: &[u8]) -> bool {
    trimmed(line).starts_with(HEAD)
}

/// `#     <size>  <calls> <tag info>`, which stands before the head in a text that was sorted.
fn is_columns(line: &[u8]) -> bool {
    let line = trimmed(line);
    line.starts_with(b"#") && find(line, b"<size>").is_some() && line.ends_with(b"<tag info>")
}

fn is_of_oom(line: &[u8]) -> bool {
    let line = trimmed(line);
    line.starts_with(OF_OOM) && line.ends_with(b":")
}

struct Line<'l> {
    size: Size,
    calls: u64,
    file: &'l [u8],
    line: u32,
    module: Option<&'l [u8]>,
    function: &'l [u8],
    is_accurate: bool,
}

/// `None` for a line of another form.
fn parsed(line: &[u8]) -> Option<Result<Line<'_>, Reason>> {
    let (left, right) = around(line, find(line, b" func:")?, b" func:".len())?;
    let left = trimmed(left);
    let (left, module) = match left.strip_suffix(b"]").and_then(|left| around(left, rfind(left, b" [")?, 2)) {
        Some((left, module)) => (trimmed(left), Some(module)),
        None => (left, None),
    };
    let place = left.rsplit(|byte| *byte == b' ' || *byte == b'\t').next()?;
    let left = left.strip_suffix(place)?;
    let (file, number_of_line) = around(place, rfind(place, b":")?, 1)?;
    let (function, flags) = first_word(right);
    if file.is_empty() || function.is_empty() {
        return None;
    }
    let source_line = number(number_of_line).ok()?;
    let numbers = || {
        let (size, calls, is_marked) = figures(left)?;
        let line = source_line.try_into().map_err(|_| OUT_OF_RANGE)?;
        let is_accurate = !is_marked && !words(flags).any(|flag| flag == b"accurate:no");
        Ok(Line { size, calls, file, line, module, function, is_accurate })
    };
    Some(numbers())
}

/// Size and calls; true for a size that is marked as inaccurate by a `*`.
fn figures(text: &[u8]) -> Result<(Size, u64, bool), Reason> {
    let words: Vec<&[u8]> = words(text).collect();
    let (bytes, unit, calls) = match words[..] {
        [bytes, calls] => (bytes, &b""[..], calls),
        // An OOM report has a blank before the unit.
        [bytes, unit, calls] if unit.first().is_some_and(u8::is_ascii_alphabetic) => (bytes, unit, calls),
        [_, _, _] => return Err(NO_NUMBER),
        _ => return Err("lacks a column"),
    };
    let (bytes, is_marked) = bytes.strip_suffix(b"*").map_or((bytes, false), |bytes| (bytes, true));
    let size = match bytes.strip_prefix(b"-") {
        // A counter that frees of other allocations went through: it counts 0.
        Some(below) => Size { bytes: 0, ..size(&[below, unit].concat(), 0)? },
        None => size(&[bytes, unit].concat(), 0)?,
    };
    Ok((size, u64::try_from(signed(calls)?).map_err(|_| OUT_OF_RANGE)?, is_marked))
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Allocinfo {
    /// The text is whole: it has its head.
    has_head: bool,
    is_of_oom: bool,
    has_lines: bool,
    /// The sizes so far do not grow: a text sorted the other way round has its head at the end.
    is_descending: bool,
    last: u64,
}

impl Allocinfo {
    fn begins_anew(&mut self, line: &[u8], out: &mut dyn Out) -> bool {
        let is_sorted = is_head(line) && self.is_descending && !self.has_head && !self.is_of_oom;
        let is_next = self.has_lines && !is_sorted || self.is_of_oom || self.has_head;
        if is_next {
            self.end(false, out);
        }
        self.has_head |= is_head(line);
        self.is_of_oom |= is_of_oom(line);
        is_next
    }

    fn put(&mut self, line: &Line<'_>, out: &mut dyn Out) {
        self.is_descending = !self.has_lines || self.is_descending && line.size.bytes <= self.last;
        self.last = line.size.bytes;
        self.has_lines = true;
        out.entry(&Entry {
            kind: EntryKind::Told(Kind::Tag),
            site: Site::Source { file: line.file, line: line.line, function: line.function, module: line.module },
            objects: Some(line.calls),
            allocated: Some(line.size.bytes),
            beside: Beside::Tag { is_accurate: line.is_accurate, is_rounded: line.size.is_rounded },
            ..Entry::default()
        });
    }
}

impl Reader for Allocinfo {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if is_head(line) || is_of_oom(line) {
            return if self.begins_anew(line, out) { Took::NextText } else { Took::Line };
        }
        match parsed(line) {
            Some(Ok(line)) => self.put(&line, out),
            Some(Err(reason)) => {
                self.has_lines = true;
                out.trouble(Trouble::SkippedBlock(reason));
            }
            None if trimmed(line).is_empty() || is_columns(line) => {}
            None => return Took::NoLine,
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        if is_cut {
            out.trouble(Trouble::Cut("ends inside a line"));
        }
        if !self.has_head || self.is_of_oom {
            out.fact(Fact::MayLackLines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, Told, damage, largest, read};
    use super::*;

    const WHOLE: &str = "allocinfo - version: 2.0
#     <size>  <calls> <tag info>
       16384        4 drivers/x.c:12 [exampledrv] func:example_open 
      -4096        0 mm/slub.c:3021 func:alloc_slab_page accurate:no 
           0        0 ./include/linux/slab.h:7 func:example_init 
";
    const ROUNDED: &str =
        "        1.5M        4 drivers/x.c:12 [exampledrv] func:example_open\n  12K  1 mm/a.c:1 func:a\n";
    const OF_OOM_REPORT: &str = "Memory allocations (profiling is currently turned on):
    1.20 MiB        7 drivers/x.c:12 [exampledrv] func:example_open
       512 B        1 mm/a.c:1 func:a
";

    fn told(text: &str) -> Told {
        read(Allocinfo::default, text.as_bytes())
    }

    fn rows(told: &Told) -> Vec<(&str, Option<u64>, Option<u64>)> {
        told.entries.iter().map(|entry| (entry.site.as_str(), entry.objects, entry.allocated)).collect()
    }

    #[test]
    fn lines_are_call_sites() {
        let whole = told(WHOLE);
        let expected = [
            ("drivers/x.c:12 example_open [exampledrv]", Some(4), Some(16384)),
            ("mm/slub.c:3021 alloc_slab_page", Some(0), Some(0)),
            ("./include/linux/slab.h:7 example_init", Some(0), Some(0)),
        ];
        assert_eq!(rows(&whole), expected);
        assert_eq!((whole.facts.len(), whole.troubles.len(), whole.others), (0, 0, 0));
        assert!(whole.entries[1].beside.contains("is_accurate: false"));
    }

    #[test]
    fn rounded_and_cut_lists_may_lack_lines() {
        let rounded = told(ROUNDED);
        assert_eq!(rows(&rounded)[0].2, Some(1_572_864));
        assert!(rounded.entries[0].beside.contains("is_rounded: true"));
        assert_eq!(rounded.facts, ["MayLackLines"]);
        let of_oom = told(OF_OOM_REPORT);
        assert_eq!(rows(&of_oom)[0], ("drivers/x.c:12 example_open [exampledrv]", Some(7), Some(1_258_291)));
        assert!(of_oom.entries[1].beside.contains("is_rounded: false"));
        assert_eq!((of_oom.facts.as_slice(), of_oom.others), (&["MayLackLines".to_owned()][..], 0));
    }

    #[test]
    fn sorted_texts_have_their_head_anywhere() {
        let lines: Vec<&str> = WHOLE.lines().collect();
        let descending = [lines[2], lines[4], lines[0], lines[1]].join("\n") + "\n";
        assert_eq!((told(&descending).facts.len(), told(&descending).texts), (0, 1));
        let ascending = [lines[0], lines[1], lines[4], lines[2]].join("\n") + "\n";
        assert_eq!((told(&ascending).facts.len(), told(&ascending).texts), (0, 1));
    }

    /// Two numbers are no size and its unit.
    #[test]
    fn a_number_too_many_is_no_unit() {
        let told = told(&WHOLE.replace("16384  ", "16384 9"));
        assert_eq!((told.entries.len(), &told.troubles[..]), (2, &[Trouble::SkippedBlock(NO_NUMBER)][..]));
    }

    #[test]
    fn several_texts_follow_each_other() {
        assert_eq!((told(&WHOLE.repeat(2)).texts, told(&WHOLE.repeat(2)).entries.len()), (2, 3));
        assert_eq!(told(&OF_OOM_REPORT.repeat(2)).texts, 2);
        let both = told(&[OF_OOM_REPORT, WHOLE].concat());
        assert_eq!((both.texts, both.facts.len()), (2, 0));
    }

    /// The most that the lines of a text may tell. A number may have a unit behind it, or behind a blank.
    fn most(text: &[u8]) -> Sums {
        let unit = |rest: &[u8]| {
            let letter = rest.iter().find(|byte| **byte != b' ').map_or(0, u8::to_ascii_uppercase);
            b"KMGTPE".iter().position(|unit| *unit == letter).map_or(1, |power| 1 << (10 * (power + 1)))
        };
        Sums::of_lines(text, |line| {
            let ends =
                |at: &usize| line[*at].is_ascii_digit() && line.get(at + 1).is_none_or(|byte| !byte.is_ascii_digit());
            let units = (0..line.len()).filter(ends).map(|at| unit(&line[at + 1..]));
            let objects = largest(line).0;
            let allocated = objects.saturating_add(1).saturating_mul(units.max().unwrap_or(1));
            Sums { objects, allocated, ..Sums::default() }
        })
    }

    #[test]
    fn damage_does_no_harm() {
        for text in [WHOLE, ROUNDED, OF_OOM_REPORT] {
            damage(Allocinfo::default, text.as_bytes(), most);
        }
        let bad =
            told("99999999999999999999 1 a.c:1 func:a\n 1 a.c:1 func:a\n 1 -1 a.c:1 func:a\n 9E 1 a.c:1 func:a\n");
        assert_eq!((bad.entries.len(), bad.troubles.len()), (0, 4));
    }
}
