//! `/sys/kernel/debug/slab/CACHE/alloc_traces`, before Linux 5.14 `/sys/kernel/slab/CACHE/alloc_calls`: live objects of a cache by call
//! site (mm/slub.c, `slab_debugfs_show`, `list_locations`).
//!
//! ```text
//!    5412 example_open+0x1c/0x40 [exampledrv] waste=692736/128 age=12/450021/904120 pid=6 cpus=0-1 nodes=0
//!         __kmalloc+0xa8/0x198
//!         example_open+0x1c/0x40 [exampledrv]
//! ```

use std::collections::BTreeMap;
use std::path::{Component, Path};

use super::entry::{Beside, Entry, EntryKind, Fact, FormName, Out, Reader, Site, Took, Traces, Trouble};
use super::numbers::{Reason, around, first_word, number, product, signed, trimmed, words};
use super::places;
use crate::event::Kind;
use crate::kernel::kmalloc::{class_bytes, is_kmalloc};
use crate::open::symbols::{Frame, find};
use crate::text::split::split_once;

/// Why a list of frees is refused.
const FREES: &str = "lists objects by their previous free, which does not tell who holds them; read alloc_traces of the same cache, or \
                     add --form alloc_traces if it is one";
const NO_SITE: &[u8] = b"<not-available>";
/// Frames of a stack; the kernel keeps 16 (`TRACK_ADDRS_COUNT`).
const MAX_FRAMES: usize = 256;

pub(super) const NAME: FormName = FormName {
    input: "alloc_traces",
    form: "alloc_traces",
    title: "list of a cache's call sites",
    unit: "lines",
    has_objects: false,
};
const CALLS: FormName = FormName { form: "alloc_calls", ..NAME };

/// What is known of the cache before the text is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    name: Option<Vec<u8>>,
    object_bytes: Option<u64>,
    lists: Lists,
    /// The text is one of `alloc_calls`, which has no stacks, by the names of form and file; `None` where these do not tell.
    is_of_calls: Option<bool>,
}

/// What the text lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lists {
    Allocations,
    Frees,
    /// The file's name does not tell.
    #[default]
    Unknown,
}

impl Cache {
    /// The cache of the file at `path`; names, sizes and the form that the caller gives win.
    pub(super) fn of(path: &Path, name: Option<&str>, object_bytes: Option<u64>, form: Option<&str>) -> Cache {
        let name = name.map(|name| name.as_bytes().to_vec()).or_else(|| folder(path));
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let is_form = |form: &str| form.starts_with("free_");
        let lists = match form {
            Some(form) if is_form(form) => Lists::Frees,
            Some(_) => Lists::Allocations,
            None if file.contains("free_traces") || file.contains("free_calls") => Lists::Frees,
            None if file.contains("alloc_") => Lists::Allocations,
            None => Lists::Unknown,
        };
        let object_bytes = object_bytes.or_else(|| class_bytes(name.as_deref()?));
        let is_of_calls = |name: &str| match name {
            name if name.contains("_calls") => Some(true),
            name if name.contains("_traces") => Some(false),
            _ => None,
        };
        let is_of_calls = form.map_or_else(|| is_of_calls(&file), is_of_calls);
        Cache { name, object_bytes, lists, is_of_calls }
    }
}

/// NAME of `…/slab/NAME/alloc_traces`.
fn folder(path: &Path) -> Option<Vec<u8>> {
    let path = std::path::absolute(path).ok()?;
    let mut names = path.components().rev().map(Component::as_os_str);
    let file = names.next()?.to_string_lossy();
    let is_list = ["alloc_", "free_"].iter().any(|begin| file.starts_with(begin));
    let name = names.next()?;
    let is_cache = is_list && names.next()?.to_string_lossy() == "slab";
    is_cache.then(|| name.as_encoded_bytes().to_vec())
}

/// True for a line with a count, a site and an age.
pub(super) fn begins(line: &[u8]) -> bool {
    matches!(parsed(line), Some(Ok(_)))
}

/// A line with a count.
struct Line<'l> {
    count: u64,
    /// `None`: the kernel does not know it.
    site: Option<Frame<'l>>,
    wasted: Option<u64>,
    traces: Traces<'l>,
}

/// `None` for a line of another form.
fn parsed(line: &[u8]) -> Option<Result<Line<'_>, Reason>> {
    let line = trimmed(line);
    let age = find(line, b" age=")?;
    let begin = find(line.get(..age)?, b" waste=").unwrap_or(age);
    let (left, right) = line.split_at_checked(begin)?;
    let (count, text) = first_word(left);
    if words(line).any(|word| word == b"in") {
        // `Allocated in FUNCTION age=…` of a report on a single object.
        return None;
    }
    let site = match text {
        NO_SITE => None,
        text => Some(places::site(text).or_else(|| places::site(left))?),
    };
    let fields = || -> Result<Line<'_>, Reason> {
        let mut fields = Line { count: number(count)?, site, wasted: None, traces: Traces::default() };
        for word in words(right) {
            let Some((name, value)) = split_once(word, b'=') else { continue };
            match name {
                b"waste" => fields.wasted = Some(number(value.split(|byte| *byte == b'/').next().unwrap_or(value))?),
                b"age" => fields.traces.age_jiffies = ages(value)?,
                b"pid" => fields.traces.pids = Some(pids(value)?),
                b"cpus" => fields.traces.cpus = Some(value),
                b"nodes" => fields.traces.nodes = Some(value),
                _ => {}
            }
        }
        Ok(fields)
    };
    Some(fields())
}

/// `least/mean/largest`, or one number for all three. Ages below 0, of clocks that were set, are not known.
fn ages(value: &[u8]) -> Result<Option<[u64; 3]>, Reason> {
    let mut ages = [0; 3];
    for (age, word) in ages.iter_mut().zip(value.split(|byte| *byte == b'/')) {
        *age = signed(word)?;
    }
    if value.iter().filter(|byte| **byte == b'/').count() < 2 {
        ages = [ages[0]; 3];
    }
    let known = ages.map(u64::try_from);
    Ok(if let [Ok(least), Ok(mean), Ok(greatest)] = known { Some([least, mean, greatest]) } else { None })
}

/// `least-largest`, or one number for both.
fn pids(value: &[u8]) -> Result<[i64; 2], Reason> {
    let dash = value.iter().skip(1).position(|byte| *byte == b'-').map(|at| at.saturating_add(1));
    match dash.and_then(|at| around(value, at, 1)) {
        Some((least, greatest)) => Ok([signed(least)?, signed(greatest)?]),
        None => signed(value).map(|pid| [pid; 2]),
    }
}

/// Objects of one call site and stack, which wait for the rest of the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    site: Option<u64>,
    stack: Vec<u64>,
    age_jiffies: Option<[u64; 3]>,
    pids: Option<[i64; 2]>,
    cpus: Option<Box<[u8]>>,
    nodes: Option<Box<[u8]>>,
}

/// Numbers of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    objects: u64,
    wasted: Option<u64>,
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct AllocTraces {
    cache: Cache,
    open: Option<(Row, Counts)>,
    /// Rows without `waste=`, until one with it or the end of the text tells whether these waste nothing or do not tell.
    held: BTreeMap<Row, u64>,
    tells_waste: bool,
    has_rows: bool,
    has_stacks: bool,
    /// A site is not known: one of a free, unless a line tells what an allocation wastes.
    lacks_site: bool,
    is_refused: bool,
}

impl AllocTraces {
    pub(super) fn new(cache: Cache) -> AllocTraces {
        AllocTraces { cache, ..AllocTraces::default() }
    }

    /// Notes that the text lists frees.
    fn refuse(&mut self, out: &mut dyn Out) {
        if !self.is_refused {
            out.fact(Fact::Refusal(FREES));
        }
        self.is_refused = true;
    }

    fn begin(&mut self, line: &Line<'_>, out: &mut dyn Out) {
        match self.cache.lists {
            Lists::Frees => self.refuse(out),
            Lists::Unknown => self.lacks_site |= line.site.is_none(),
            Lists::Allocations => {}
        }
        let row = Row {
            site: line.site.map(|frame| out.address(frame)),
            stack: Vec::new(),
            age_jiffies: line.traces.age_jiffies,
            pids: line.traces.pids,
            cpus: line.traces.cpus.map(Box::from),
            nodes: line.traces.nodes.map(Box::from),
        };
        self.open = Some((row, Counts { objects: line.count, wasted: line.wasted }));
    }

    /// Ends the block that is open.
    fn close(&mut self, out: &mut dyn Out) {
        let Some((row, counts)) = self.open.take() else { return };
        self.has_rows = true;
        self.has_stacks |= !row.stack.is_empty();
        if counts.wasted.is_some() && !self.tells_waste {
            self.tells_waste = true;
            self.release(out);
        }
        match counts.wasted {
            None if !self.tells_waste => {
                let objects = self.held.entry(row).or_default();
                *objects = objects.saturating_add(counts.objects);
            }
            wasted => self.put(&row, Counts { wasted: wasted.or(Some(0)), ..counts }, out),
        }
    }

    /// Hands the rows over that waited.
    fn release(&mut self, out: &mut dyn Out) {
        let wasted = self.tells_waste.then_some(0);
        for (row, objects) in std::mem::take(&mut self.held) {
            self.put(&row, Counts { objects, wasted }, out);
        }
    }

    fn put(&self, row: &Row, counts: Counts, out: &mut dyn Out) {
        let is_of_kmalloc = self.cache.name.as_deref().map_or(self.tells_waste, is_kmalloc);
        let allocated = self.cache.object_bytes.map(|bytes| product(counts.objects, bytes));
        let allocated = match allocated.transpose() {
            Ok(allocated) => allocated,
            Err(reason) => return out.trouble(Trouble::SkippedBlock(reason)),
        };
        out.entry(&Entry {
            kind: EntryKind::Told(if is_of_kmalloc { Kind::Kmalloc } else { Kind::Cache }),
            site: row.site.map_or(Site::Unknown, Site::Frame),
            stack: &row.stack,
            objects: Some(counts.objects),
            requested: allocated.zip(counts.wasted).and_then(|(allocated, wasted)| allocated.checked_sub(wasted)),
            allocated,
            wasted: counts.wasted,
            cache: self.cache.name.as_deref(),
            beside: Beside::Traces(Traces {
                age_jiffies: row.age_jiffies,
                pids: row.pids,
                cpus: row.cpus.as_deref(),
                nodes: row.nodes.as_deref(),
            }),
            ..Entry::default()
        });
    }
}

impl Reader for AllocTraces {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if trimmed(line).is_empty() {
            self.close(out);
            return Took::Line;
        }
        match parsed(line) {
            Some(line) => {
                self.close(out);
                match line {
                    Ok(line) => self.begin(&line, out),
                    Err(reason) => out.trouble(Trouble::SkippedBlock(reason)),
                }
            }
            None => {
                let Some(frame) = places::frame(line) else { return Took::NoLine };
                match &mut self.open {
                    Some((row, _)) if row.stack.len() < MAX_FRAMES => row.stack.push(out.address(frame)),
                    None if !self.has_rows => {
                        self.has_rows = true;
                        out.trouble(Trouble::Cut("begins inside a block"));
                    }
                    _ => {}
                }
            }
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        let has_stack = self.open.as_ref().is_some_and(|(row, _)| !row.stack.is_empty());
        if is_cut || self.open.is_some() && !has_stack && self.has_stacks {
            // Without stacks each line is a block, and the one that is open is whole. The first block does not tell.
            let is_line = self.cache.is_of_calls == Some(true) || self.has_rows;
            if has_stack || self.has_stacks || !is_line {
                self.open = None;
            }
            out.trouble(Trouble::Cut("ends inside a block"));
        }
        self.close(out);
        self.release(out);
        if self.lacks_site && !self.tells_waste {
            self.refuse(out);
        }
    }

    fn form(&self) -> Option<FormName> {
        Some(if self.cache.is_of_calls.unwrap_or(!self.has_stacks) { CALLS } else { NAME })
    }

    fn is_inside(&self) -> bool {
        self.open.is_some()
    }

    /// Lines of call sites begin with a count, those of frames do not.
    fn begins_block(&self, line: &[u8]) -> bool {
        trimmed(line).first().is_some_and(|first| (b'1'..=b'9').contains(first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Owned, Sums, Told, behind, damage, numbers, read};
    use super::*;

    const STACKS: &str =
        "   5412 example_scan+0x64/0x1c0 [exampledrv] waste=692736/128 age=12/450021/904120 pid=6 cpus=0
        __kmalloc+0xa8/0x198
        example_scan+0x64/0x1c0 [exampledrv]
        worker_thread+0x4c/0x400

    101 kstrdup+0x30/0x58 age=900 pid=1-300 cpus=0-1,4 nodes=0
        __kmalloc_track_caller+0xb0/0x1a0
        kstrdup+0x30/0x58

";
    const LINES: &str = "     12 0xc0113f10 age=155/1002/2890 pid=1-220 cpus=0
   5412 example_scan+0x64/0x1c0 [exampledrv] age=12/450021/904120 pid=6 cpus=0
      1 kstrdup+0x30/0x58 age=-3 pid=0
";

    fn of(path: &str, text: &str) -> Told {
        read(|| AllocTraces::new(Cache::of(Path::new(path), None, None, None)), text.as_bytes())
    }

    #[test]
    fn lines_with_stacks_have_waste() {
        let told = of("alloc_traces.txt", STACKS);
        let [scan, string] = &told.entries[..] else { panic!("{told:?}") };
        assert_eq!((scan.objects, scan.wasted, scan.allocated), (Some(5412), Some(692_736), None));
        assert_eq!((string.objects, string.wasted, string.requested), (Some(101), Some(0), None));
        assert_eq!((scan.site.as_str(), scan.stack.len()), ("example_scan+0x64 [exampledrv]", 3));
        assert_eq!(scan.kind, EntryKind::Told(Kind::Kmalloc));
        assert_eq!(string.beside, "Some([900, 900, 900]) Some([1, 300]) 0-1,4 0");
        assert_eq!((told.others, &told.troubles[..]), (0, &[][..]));
    }

    #[test]
    fn lines_without_stacks_have_no_waste() {
        let told = of("alloc_calls", LINES);
        let objects: Vec<_> = told.entries.iter().map(|entry| (entry.objects, entry.wasted)).collect();
        assert_eq!(objects.len(), 3);
        assert!(objects.contains(&(Some(12), None)) && objects.contains(&(Some(5412), None)), "{objects:?}");
        assert!(told.entries.iter().all(|entry| entry.kind == EntryKind::Told(Kind::Cache)));
        assert!(told.entries.iter().any(|entry| entry.site == "0xc0113f10"));
        assert!(told.entries.iter().any(|entry| entry.beside == "None Some([0, 0])  "));
    }

    #[test]
    fn the_cache_tells_kind_and_size() {
        let told = of("/sys/kernel/debug/slab/kmalloc-rcl-1k/alloc_traces", STACKS);
        let scan: &Owned = told.entries.iter().find(|entry| entry.objects == Some(5412)).unwrap();
        assert_eq!((scan.allocated, scan.requested), (Some(5412 * 1024), Some(5412 * 1024 - 692_736)));
        assert_eq!(scan.cache.as_deref(), Some("kmalloc-rcl-1k"));
        let told = of("/sys/kernel/debug/slab/example_cache/alloc_traces", STACKS);
        assert!(
            told.entries.iter().all(|entry| entry.kind == EntryKind::Told(Kind::Cache) && entry.allocated.is_none())
        );
        let cache = || Cache::of(Path::new("x"), Some("example_cache"), Some(192), None);
        let told = read(|| AllocTraces::new(cache()), LINES.as_bytes());
        assert!(told.entries.iter().any(|entry| entry.allocated == Some(12 * 192) && entry.requested.is_none()));
    }

    #[test]
    fn lists_of_frees_are_refused() {
        let unknown = "     12 <not-available> age=4294967 pid=0\n      3 kfree_skb+0x1c/0x40 age=10 pid=7\n";
        let is_refused = |path: &str, text: &str, form: Option<&str>| {
            let cache = || Cache::of(Path::new(path), None, None, form);
            read(|| AllocTraces::new(cache()), text.as_bytes()).facts.iter().any(|fact| fact.contains("Refusal"))
        };
        assert!(is_refused("/sys/kernel/debug/slab/kmalloc-64/free_traces", STACKS, None));
        assert!(is_refused("old-free_calls.txt", LINES, None));
        assert!(is_refused("kmalloc-64.txt", unknown, None));
        // Objects of the early boot have no site, and only allocations waste memory.
        let wasteful = format!("{unknown}      1 kstrdup+0x30/0x58 waste=64/64 age=1 pid=1\n");
        assert!(!is_refused("kmalloc-64.txt", &wasteful, None));
        assert!(is_refused("alloc_traces", STACKS, Some("free_traces")));
        assert!(!is_refused("alloc_traces", unknown, None));
        assert!(!is_refused("free_traces", STACKS, Some("alloc_traces")));
        assert!(!is_refused("kmalloc-64.txt", LINES, None));
    }

    #[test]
    fn numbers_out_of_range_are_left_out() {
        let huge = "99999999999999999999 kstrdup+0x30/0x58 age=1 pid=1\n      7 kstrdup+0x30/0x58 age=1 pid=1\n kstrdup+0x30/0x58 age=1 pid=1\n";
        let told = of("a", huge);
        assert_eq!((told.entries.len(), told.troubles.len()), (1, 2));
        let times = "9223372036854775807 kstrdup+0x30/0x58 age=1 pid=1\n";
        assert!(of("slab/kmalloc-64/alloc_calls", times).entries.is_empty());
    }

    #[test]
    fn a_text_that_ends_inside_a_block_is_cut() {
        let ends = |text: &str| {
            let told = of("a", text);
            (told.entries.len(), told.troubles)
        };
        let cut = vec![Trouble::Cut("ends inside a block")];
        assert_eq!(ends(STACKS.trim_end_matches('\n')), (1, cut.clone()));
        assert_eq!(ends(&STACKS[..STACKS.len() - 1]), (2, vec![]));
        let without_frames = &STACKS[..STACKS.find("        __kmalloc_track").unwrap()];
        assert_eq!(ends(without_frames), (1, cut.clone()));
        assert_eq!(ends(LINES.trim_end()), (2, cut));
        let begins = &STACKS[STACKS.find("        example").unwrap()..];
        assert_eq!(ends(begins), (1, vec![Trouble::Cut("begins inside a block")]));
    }

    /// The most that the lines of a text may tell, of objects of 1 KiB.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| {
            let objects = numbers(line).next().unwrap_or(0);
            let bytes = objects.saturating_mul(1 << 10);
            let wasted = behind(line, "waste=").unwrap_or(0);
            Sums { objects, requested: bytes, allocated: bytes, wasted, ..Sums::default() }
        })
    }

    #[test]
    fn damage_does_no_harm() {
        for text in [STACKS, LINES] {
            damage(
                || AllocTraces::new(Cache::of(Path::new("slab/kmalloc-1k/alloc_calls"), None, None, None)),
                text.as_bytes(),
                most,
            );
        }
    }
}
