//! `/proc/slabinfo` (mm/slab_common.c): versions 2.0 and 2.1 of Linux 2.6 and later, 1.x of Linux 2.2 and 2.4, also without head.
//!
//! ```text
//! slabinfo - version: 2.1
//! # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables … : slabdata <active_slabs> <num_slabs> …
//! example_cache         12     21    192   21    1 : tunables    0    0    0 : slabdata      1      1      0
//! ```

use super::entry::{Beside, Entry, EntryKind, Out, Reader, Site, Took, Trouble};
use super::numbers::{Reason, around, is_digits, number, product, trimmed, words};
use crate::event::Kind;
use crate::kernel::kmalloc::is_kmalloc;
use crate::listed::SlabColumns;
use crate::open::symbols::{find, rfind};
use crate::text::split::split_once;

const HEAD: &[u8] = b"slabinfo - version:";
const COLUMNS: &[u8] = b"# name ";
/// Bytes of the largest page: a slab's bytes are in range whatever the page size is.
const MAX_PAGE_BYTES: u64 = 64 << 10;

/// True for the head, and for a line of version 2 without one.
pub(super) fn begins(line: &[u8]) -> bool {
    let line = trimmed(line);
    line.starts_with(HEAD) || line.starts_with(COLUMNS) && find(line, b"<num_objs>").is_some() || is_cache(line)
}

fn is_cache(line: &[u8]) -> bool {
    matches!(version_2(line), Some(Ok(_)))
}

/// A line of a cache.
pub(super) struct Line<'l> {
    pub(super) cache: &'l [u8],
    pub(super) columns: SlabColumns,
    /// Bytes of the objects in use, where the text has them.
    pub(super) bytes: Option<u64>,
}

impl<'l> Line<'l> {
    /// Adds the bytes of the objects in use; an error if these, or those of the slabs, are out of range.
    pub(super) fn with_bytes(self) -> Result<Line<'l>, Reason> {
        let SlabColumns { active_objs, objsize, num_slabs, pagesperslab, .. } = self.columns;
        let of = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| product(a, b)).transpose();
        let slab = pagesperslab.map(|pages| product(pages, MAX_PAGE_BYTES)).transpose()?;
        of(num_slabs, slab)?;
        Ok(Line { bytes: of(active_objs, objsize)?, ..self })
    }

    /// Hands the cache over, which has no call site.
    pub(super) fn put(&self, out: &mut dyn Out) {
        let cache = root_cache(self.cache);
        out.entry(&Entry {
            kind: EntryKind::Told(if is_kmalloc(cache) { Kind::Kmalloc } else { Kind::Cache }),
            site: Site::Unknown,
            objects: self.columns.active_objs,
            allocated: self.bytes,
            cache: Some(cache),
            beside: Beside::Slab(self.columns),
            ..Entry::default()
        });
    }
}

/// The cache that `NAME(12:example)`, a copy for a memory cgroup (before Linux 5.9), belongs to.
pub(super) fn root_cache(name: &[u8]) -> &[u8] {
    let Some((root, copy)) = split_once(name, b'(') else { return name };
    let number = copy.strip_suffix(b")").and_then(|copy| split_once(copy, b':')).map(|(number, _)| number);
    if !root.is_empty() && number.is_some_and(is_digits) { root } else { name }
}

/// `None` for a line of another form.
fn version_2(line: &[u8]) -> Option<Result<Line<'_>, Reason>> {
    let line = trimmed(line);
    let left = line.get(..find(line, b": tunables ")?)?;
    Some(columns(left, line))
}

fn columns<'l>(left: &'l [u8], line: &'l [u8]) -> Result<Line<'l>, Reason> {
    // Old kernels have caches with blanks in their names, so the numbers are the last five words.
    let (cache, numbers) = name_and_last(left, 5).ok_or("lacks a column")?;
    let numbers = numbers.iter().map(|word| number(word)).collect::<Result<Vec<u64>, Reason>>()?;
    let behind = rfind(line, b": slabdata ").and_then(|at| around(line, at, b": slabdata ".len()));
    let slabs =
        words(behind.map_or(b"", |(_, behind)| behind)).take(2).map(number).collect::<Result<Vec<u64>, Reason>>()?;
    let column = |at: usize| numbers.get(at).copied();
    let columns = SlabColumns {
        active_objs: column(0),
        num_objs: column(1),
        objsize: column(2),
        objperslab: column(3),
        pagesperslab: column(4),
        active_slabs: slabs.first().copied(),
        num_slabs: slabs.get(1).copied(),
        bytes: None,
    };
    Line { cache, columns, bytes: None }.with_bytes()
}

/// The words at the end of a text, in order, and the text before them.
fn name_and_last(text: &[u8], count: usize) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut found = Vec::new();
    let mut rest = trimmed(text);
    for _ in 0..count {
        let blank = rest.iter().rposition(|byte| *byte == b' ' || *byte == b'\t')?;
        let (before, word) = around(rest, blank, 1)?;
        found.push(word);
        rest = trimmed(before);
    }
    found.reverse();
    (!rest.is_empty()).then_some((rest, found))
}

/// `name active num size active_slabs num_slabs pagesperslab`, of version 1.0 `name active num`; limits and statistics may follow.
fn version_1(line: &[u8]) -> Option<Result<Line<'_>, Reason>> {
    let left = find(line, b" : ").and_then(|colon| line.get(..colon)).unwrap_or(line);
    let count = words(left).rev().take_while(|word| is_digits(word)).count();
    let is_of_form = count >= 2 && words(left).count() > count;
    is_of_form.then(|| old_columns(left, count))
}

fn old_columns(left: &[u8], count: usize) -> Result<Line<'_>, Reason> {
    let (cache, numbers) = name_and_last(left, count).ok_or("lacks a column")?;
    let numbers = numbers.iter().map(|word| number(word)).collect::<Result<Vec<u64>, Reason>>()?;
    let column = |at: usize| numbers.get(at).copied();
    // Statistics of version 1.0 stand in places of their own.
    let later = |at: usize| column(at).filter(|_| count == 6);
    let columns = SlabColumns {
        active_objs: column(0),
        num_objs: column(1),
        objsize: later(2),
        active_slabs: later(3),
        num_slabs: later(4),
        pagesperslab: later(5),
        ..SlabColumns::default()
    };
    Line { cache, columns, bytes: None }.with_bytes()
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Slabinfo {
    has_head: bool,
    is_version_1: bool,
    /// The first cache of a text without head: where it comes again, the next text begins.
    first: Option<Box<[u8]>>,
    has_lines: bool,
}

impl Slabinfo {
    fn head(&mut self, line: &[u8]) -> Took {
        if self.has_lines {
            return Took::NextText;
        }
        if let Some(version) = line.strip_prefix(HEAD) {
            self.is_version_1 = trimmed(version).starts_with(b"1.");
        }
        self.has_head = true;
        Took::Line
    }
}

impl Reader for Slabinfo {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        let line = trimmed(line);
        if line.starts_with(HEAD) || line.starts_with(COLUMNS) {
            return self.head(line);
        }
        let cache = match version_2(line) {
            None if self.is_version_1 => version_1(line),
            cache => cache,
        };
        match cache {
            Some(Ok(cache)) => {
                if !self.has_head && self.first.as_deref() == Some(cache.cache) {
                    return Took::NextText;
                }
                if !self.has_lines {
                    self.first = Some(cache.cache.into());
                }
                self.has_lines = true;
                cache.put(out);
            }
            Some(Err(reason)) => out.trouble(Trouble::SkippedBlock(reason)),
            None if line.is_empty() => {}
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
    use super::super::trial::{Sums, damage, largest, read};
    use super::*;

    const HEADS: &str = "slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>
";
    const LINES: &str = "\
kmalloc-4096        5532   5551   4352    7    8 : tunables    0    0    0 : slabdata    793    793      0
example cache        273    280    768   10    2 : tunables    0    0    0 : slabdata     28     28      0
dentry(12:example)     3      5    192   21    1 : tunables    0    0    0 : slabdata      1      2      0
";

    fn rows(text: &str) -> Vec<(String, Option<u64>, Option<u64>, String)> {
        let told = read(Slabinfo::default, text.as_bytes());
        assert_eq!((told.others, &told.troubles[..]), (0, &[][..]));
        let row = |entry: super::super::trial::Owned| {
            (entry.cache.unwrap_or_default(), entry.objects, entry.allocated, entry.beside)
        };
        told.entries.into_iter().map(row).collect()
    }

    #[test]
    fn caches_have_columns() {
        let text = [HEADS, LINES].concat();
        let columns = |numbers: [u64; 7]| {
            let [active_objs, num_objs, objsize, objperslab, pagesperslab, active_slabs, num_slabs] = numbers.map(Some);
            let bytes = None;
            let columns = SlabColumns {
                active_objs,
                num_objs,
                objsize,
                objperslab,
                pagesperslab,
                active_slabs,
                num_slabs,
                bytes,
            };
            format!("{:?}", Beside::Slab(columns))
        };
        let row = |name: &str, numbers: [u64; 7]| {
            (name.to_owned(), Some(numbers[0]), Some(numbers[0] * numbers[2]), columns(numbers))
        };
        let expected = [
            row("kmalloc-4096", [5532, 5551, 4352, 7, 8, 793, 793]),
            row("example cache", [273, 280, 768, 10, 2, 28, 28]),
            row("dentry", [3, 5, 192, 21, 1, 1, 2]),
        ];
        assert_eq!(rows(&text), expected);
        // From a grep, without head.
        assert_eq!(rows(LINES), expected);
        assert!(begins(LINES.lines().next().unwrap().as_bytes()) && begins(HEADS.as_bytes()));
    }

    #[test]
    fn statistics_and_old_versions_are_read() {
        let statistics = "slabinfo - version: 2.1 (statistics)
# name            <active_objs> <num_objs> …
size-64 12 21 64 59 1 : tunables 120 60 8 : slabdata 1 1 0 : globalstat 12 12 1 0 0 0 0 0 0 : cpustat 1 2 3 4
";
        assert_eq!(rows(statistics)[0].2, Some(12 * 64));
        let old = "slabinfo - version: 1.1 (SMP)\nkmem_cache 60 78 100 2 2 1 : 252 126\nunix_sock 7 9 384 1 1 1\n";
        let old = rows(old);
        assert_eq!((old[0].1, old[0].2, old.len()), (Some(60), Some(6000), 2));
        assert!(old[0].3.contains("pagesperslab: Some(1), active_slabs: Some(2), num_slabs: Some(2)"), "{old:?}");
        let oldest = rows("slabinfo - version: 1.0\nkmem_cache 29 42\n");
        assert_eq!((oldest[0].1, oldest[0].2), (Some(29), None));
    }

    #[test]
    fn several_texts_follow_each_other() {
        for text in [[HEADS, LINES].concat(), LINES.to_owned()] {
            let told = read(Slabinfo::default, text.repeat(3).as_bytes());
            assert_eq!((told.texts, told.entries.len()), (3, 3));
        }
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let text = "a 1 2 3 4 99999999999999999999 : tunables 0 0 0 : slabdata 1 1 0\n1 2 3 4 5 : tunables 0 0 0 : slabdata 1 1 0
b 4611686018427387904 2 4 4 4 : tunables 0 0 0 : slabdata 1 1 0\nhost:~ # uname\n";
        let told = read(Slabinfo::default, text.as_bytes());
        assert_eq!((told.entries.len(), told.troubles.len(), told.others), (0, 3, 1));
    }

    #[test]
    fn this_machines_own_is_read() {
        let text = std::fs::read("/proc/slabinfo").unwrap_or_default();
        let told = read(Slabinfo::default, &text);
        assert_eq!((told.others, &told.troubles[..]), (0, &[][..]));
        assert_eq!(told.entries.len(), text.split(|byte| *byte == b'\n').count().saturating_sub(3));
    }

    /// The most that the lines of a text may tell.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| {
            let (objects, allocated) = largest(line);
            Sums { objects, allocated, ..Sums::default() }
        })
    }

    #[test]
    fn damage_does_no_harm() {
        damage(Slabinfo::default, [HEADS, LINES].concat().as_bytes(), most);
        damage(Slabinfo::default, LINES.as_bytes(), most);
    }
}
