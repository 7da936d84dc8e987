//! Several texts as one trace: those that belong together are added up, others of one kind are slices of a series.
//!
//! - Stacks of handles, and the zoneinfo beside a meminfo, explain other texts and are none of their own.
//! - Lists of different caches add up.
//! - Of several kinds the view reads the one that it can; the caller chooses a text by its name where it can read several.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Text;
use super::series::{Slice, of_slices};
use crate::open::listing::no_trace;
use crate::open::options::OpenOptions;
use crate::trace::{OpenError, Trace};

/// Names of texts that a message lists.
const MAX_LISTED: usize = 10;

/// A file with texts.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    /// Time of its last change, in seconds since 1970; `None` where that says nothing about the text.
    pub(crate) modified: Option<i64>,
    /// The text is of the kernel that runs.
    pub(crate) is_live: bool,
}

/// Text of a file.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    modified: Option<i64>,
    is_live: bool,
    /// The file, and the line where it has several texts.
    name: String,
    text: Text,
}

impl Part {
    /// The texts of a file.
    pub(crate) fn of_file(path: &Path, modified: Option<i64>, is_live: bool, texts: Vec<Text>) -> Vec<Part> {
        let is_one = texts.len() == 1;
        let part = |text: Text| {
            let file = path.display();
            let name = if is_one { file.to_string() } else { format!("{file}:{}", text.line) };
            Part { path: path.to_owned(), modified, is_live, name, text }
        };
        texts.into_iter().map(part).collect()
    }

    fn input(&self) -> &'static str {
        self.text.name.input
    }

    fn form(&self) -> &'static str {
        self.text.name.form
    }

    /// Kind of the text: those of one kind are a series.
    fn kind(&self) -> (&'static str, &'static str) {
        match self.input() {
            // Lists of caches, of areas and of stacks have one input.
            "alloc_traces" if !self.is_of_cache() => ("alloc_traces", self.form()),
            input => (input, ""),
        }
    }

    /// A list of the call sites of one cache.
    fn is_of_cache(&self) -> bool {
        ["alloc_traces", "alloc_calls"].contains(&self.form())
    }

    fn is_refused(&self) -> bool {
        self.text.collector.is_refused()
    }
}

/// True for parts one of which holds something.
pub(crate) fn hold_something(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.is_refused() || !part.text.collector.is_empty())
}

/// The trace of all texts of files that are named together.
///
/// # Errors
/// Texts of several kinds that the view could read, and those of which none holds anything.
pub(crate) fn of_parts(parts: Vec<Part>, options: &OpenOptions) -> Result<Trace, OpenError> {
    let path = parts.first().map(|part| part.path.clone()).unwrap_or_default();
    let choose = |reason: String| OpenError::Choose { path: path.clone(), reason };
    let has_meminfo = parts.iter().any(|part| part.form() == "meminfo");
    let explains = |part: &Part| part.text.collector.explains_handles() || has_meminfo && part.form() == "zoneinfo";
    let (explaining, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(explains);
    let counts = |part: &Part| part.is_refused() || !part.text.collector.is_empty();
    let (mut parts, empty): (Vec<Part>, Vec<Part>) = others.into_iter().partition(counts);
    if parts.is_empty() {
        return Err(without_entries(&path, &explaining, &empty));
    }
    // An archive of a debugfs has lists of frees beside those of allocations.
    if parts.iter().any(|part| !part.is_refused()) {
        parts.retain(|part| !part.is_refused());
    }
    let parts = member(parts, options).map_err(choose)?;
    let parts = numbered(parts, options).map_err(choose)?;
    let mut parts = added_up(one_kind(parts, options).map_err(choose)?);
    explain(&mut parts, explaining);
    let mut slices = Vec::new();
    for Part { path, modified, is_live, text, .. } in parts {
        let trace = text.collector.into_trace(&path, text.name, is_live)?;
        slices.push(Slice { trace, path, modified });
    }
    if slices.len() == 1 && options.times.is_empty() {
        return slices.pop().map(|slice| slice.trace).ok_or_else(|| no_trace(&path, "has no text"));
    }
    of_slices(slices, &options.times)?.ok_or_else(|| no_trace(&path, "has no text"))
}

fn without_entries(path: &Path, explaining: &[Part], empty: &[Part]) -> OpenError {
    match (explaining.first(), empty.first()) {
        (Some(part), _) => {
            let reason =
                "has stacks of handles and no number of pages; name show_handles of the same boot, too".to_owned();
            OpenError::Choose { path: part.path.clone(), reason }
        }
        (None, Some(part)) => no_trace(&part.path, "has no block that counts"),
        (None, None) => no_trace(path, "has no text"),
    }
}

/// The texts that the caller names, where it does: by the whole name of a text or its file, or by the last parts of one.
fn member(mut parts: Vec<Part>, options: &OpenOptions) -> Result<Vec<Part>, String> {
    let Some(member) = &options.member else { return Ok(parts) };
    let is_its = |name: &str| {
        let before = name.strip_suffix(member.as_str());
        before.is_some_and(|before| before.is_empty() || before.ends_with('/') || member.starts_with('/'))
    };
    let names = listed(&parts);
    parts.retain(|part| is_its(&part.name) || is_its(&part.path.to_string_lossy()));
    if parts.is_empty() {
        Err(format!("--member {member}: no text has this name; there are {names}"))
    } else {
        Ok(parts)
    }
}

/// Names of texts, for messages.
fn listed<'p>(parts: impl IntoIterator<Item = &'p Part>) -> String {
    let mut names: Vec<String> =
        parts.into_iter().map(|part| format!("{} ({})", part.name, part.text.name.title)).collect();
    let more = names.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        names.truncate(MAX_LISTED);
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// The OOM report that the caller names by its number, where it does.
fn numbered(mut parts: Vec<Part>, options: &OpenOptions) -> Result<Vec<Part>, String> {
    let Some(number) = options.report_number else { return Ok(parts) };
    parts.retain(|part| part.form() == "oom");
    let count = parts.len();
    match number.checked_sub(1).filter(|at| *at < count) {
        Some(at) => Ok(vec![parts.swap_remove(at)]),
        None => Err(format!("--report-number {number}: the number of OOM reports and Mem-Infos is {count}")),
    }
}

/// Parts of the kind that the view reads.
fn one_kind(parts: Vec<Part>, options: &OpenOptions) -> Result<Vec<Part>, String> {
    let is_taken = |part: &&Part| options.takes.is_some_and(|takes| takes(part.input(), part.form()));
    let taken: BTreeSet<_> = parts.iter().filter(is_taken).map(Part::kind).collect();
    if taken.len() > 1 {
        return Err(format!(
            "has several kinds of texts that this view reads; choose one with --member NAME: {}",
            listed(parts.iter().filter(is_taken))
        ));
    }
    // A summary is of the first one, and lists the others. A view that reads none of them is refused later.
    let Some(kind) = taken.into_iter().next().or_else(|| parts.first().map(Part::kind)) else { return Ok(parts) };
    let (mut chosen, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.kind() == kind);
    let titles: Vec<&'static str> = others.iter().map(|part| part.text.name.title).collect();
    chosen.iter_mut().for_each(|part| part.text.collector.note_others(&titles));
    Ok(chosen)
}

/// Lists of different caches as one; other texts as they are.
fn added_up(mut parts: Vec<Part>) -> Vec<Part> {
    if parts.len() < 2 || !parts.iter().all(Part::is_of_cache) || !have_different_caches(&parts) {
        return parts;
    }
    let rest = parts.split_off(1);
    for first in &mut parts {
        rest.iter().for_each(|part| first.text.collector.add(&part.text.collector));
    }
    parts
}

/// True if no two parts are of one cache, and each tells its own.
fn have_different_caches(parts: &[Part]) -> bool {
    let mut seen = BTreeSet::new();
    parts.iter().all(|part| {
        let mut caches = part.text.collector.caches().into_iter();
        caches.all(|cache| cache.is_some_and(|cache| seen.insert(cache.to_vec())))
    })
}

/// Adds what other texts explain: stacks of handles to all texts of their input, and to each meminfo the zoneinfo of the same place in
/// the order of names.
fn explain(parts: &mut [Part], explaining: Vec<Part>) {
    let (zones, stacks): (Vec<Part>, Vec<Part>) = explaining.into_iter().partition(|part| part.form() == "zoneinfo");
    for part in parts.iter_mut() {
        let of_input = stacks.iter().filter(|other| other.input() == part.text.name.input);
        of_input.for_each(|other| part.text.collector.add(&other.text.collector));
    }
    let machines: Vec<&mut Part> = parts.iter_mut().filter(|part| part.form() == "meminfo").collect();
    // Where some moments have no zoneinfo, nobody knows which.
    if machines.len() == zones.len() {
        machines.into_iter().zip(&zones).for_each(|(part, zones)| part.text.collector.add(&zones.text.collector));
    }
}

#[cfg(test)]
#[cfg(feature = "inputs")]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::open::lines::Lines;
    use crate::open::moment::{door, form::About};

    const LIST: &str = "      7 kstrdup+0x30/0x58 age=1 pid=1\n      8 kfree_skb+0x30/0x58 [net] age=1 pid=1\n";
    const SLABINFO: &str = "slabinfo - version: 2.1\na 1 2 3 4 5 : tunables 0 0 0 : slabdata 1 1 0\n";
    const MEMINFO: &str = "MemTotal: 100 kB\nMemFree: 10 kB\n";
    const ZONEINFO: &str = "Node 0, zone DMA\n  pagesets\n    cpu: 0\n      count: 3\n";
    const OOM: &str = "[    1.0] a invoked oom-killer: order=0\n[    1.0] memory: usage 8kB, limit 9kB, failcnt 3\n";
    const HANDLES: &str = "handle: 42\nnr_base_pages: 16\n\n";
    const STACKS: &str = " post_alloc_hook+0x1/0x2\n example_open+0x1c/0x40 [exampledrv]\nhandle: 42\n\n";

    fn parts(files: &[(&str, &str)], options: &OpenOptions) -> Vec<Part> {
        let part = |(name, text): &(&str, &str)| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let path = Path::new(name);
            let texts = door::read(&mut Lines::new(Arc::new(file)), About { path, options }).unwrap();
            Part::of_file(path, None, false, texts)
        };
        files.iter().flat_map(part).collect()
    }

    fn opened(files: &[(&str, &str)], options: &OpenOptions) -> Result<Trace, OpenError> {
        of_parts(parts(files, options), options)
    }

    fn counters(trace: &Trace) -> Vec<(String, u64)> {
        let text = trace.info.text.as_ref().unwrap();
        text.counters.iter().map(|(name, bytes)| (String::from_utf8_lossy(name).into_owned(), *bytes)).collect()
    }

    fn error(opened: Result<Trace, OpenError>) -> String {
        opened.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn lists_of_different_caches_add_up() {
        let options = OpenOptions::default();
        let entries = |files: &[(&str, &str)]| {
            let trace = opened(files, &options).unwrap();
            (trace.info.text.unwrap().entries, trace.series.len())
        };
        let (first, second) = (("/slab/kmalloc-64/alloc_traces", LIST), ("/slab/dentry/alloc_traces", LIST));
        assert_eq!(entries(&[first, second]), (4, 0));
        assert_eq!(entries(&[first, second, ("/slab/dentry/free_traces", LIST)]), (4, 0));
        assert_eq!(entries(&[first, first]), (2, 1), "a series of one cache");
        assert_eq!(entries(&[("a", LIST), ("b", LIST)]), (2, 1), "which caches they are of is not known");
        assert!(error(opened(&[("free_traces", LIST)], &options)).contains("previous free"));
    }

    #[test]
    fn texts_explain_others_in_any_order() {
        let options = OpenOptions::default();
        for files in [[("h", HANDLES), ("s", STACKS)], [("s", STACKS), ("h", HANDLES)]] {
            let text = opened(&files, &options).unwrap().info.text.unwrap();
            assert_eq!((text.entries, text.has_stacks, text.has_handles_alone), (1, true, false), "{files:?}");
        }
        assert!(opened(&[("h", HANDLES)], &options).unwrap().info.text.unwrap().has_handles_alone);
        assert!(error(opened(&[("s", STACKS)], &options)).contains("name show_handles"));
        let both = opened(&[("z", ZONEINFO), ("m", MEMINFO)], &options).unwrap();
        assert_eq!((counters(&both).len(), both.series.len()), (3, 0));
        let moments =
            opened(&[("m1", MEMINFO), ("z1", ZONEINFO), ("m2", MEMINFO), ("z2", ZONEINFO)], &options).unwrap();
        assert_eq!((counters(&moments).len(), moments.series.len()), (3, 1));
        assert_eq!(counters(&opened(&[("m1", MEMINFO), ("m2", MEMINFO), ("z", ZONEINFO)], &options).unwrap()).len(), 2);
    }

    #[test]
    fn of_several_kinds_the_view_reads_its_own() {
        let takes = |takes: fn(&str, &str) -> bool| OpenOptions { takes: Some(takes), ..OpenOptions::default() };
        let both = [SLABINFO, OOM].concat();
        let input = |options: &OpenOptions| opened(&[("log", &both)], options).unwrap().info.input.name().to_owned();
        assert_eq!(input(&takes(|input, _| input == "meminfo")), "meminfo");
        assert_eq!(input(&takes(|input, _| input == "slabinfo")), "slabinfo");
        let summary = opened(&[("log", &both)], &OpenOptions::default()).unwrap();
        assert_eq!(summary.info.text.unwrap().others.len(), 1);
        let any = takes(|_, _| true);
        let message = error(opened(&[("log", &both)], &any));
        assert!(message.contains("--member NAME: log:1 (slabinfo), log:3 ("), "{message}");
        let one = OpenOptions { member: Some("log:3".to_owned()), ..any };
        assert_eq!(input(&one), "meminfo");
        let other = OpenOptions { member: Some("og:3".to_owned()), ..OpenOptions::default() };
        assert!(error(opened(&[("log", &both)], &other)).contains("no text has this name"));
    }

    #[test]
    fn frames_before_the_first_block_are_of_one_that_was_cut() {
        const KMEMLEAK: &str = "unreferenced object 0xffff888112345678 (size 192):
  comm \"example\", pid 77, jiffies 4294901234
  backtrace:
    [<00000000abcdef01>] kmem_cache_alloc+0x1c/0x40
";
        let is_cut = |text: &str| {
            let parts = parts(&[("log", text)], &OpenOptions::default());
            parts.iter().any(|part| format!("{:?}", part.text.collector).contains("begins inside a block"))
        };
        let frames = KMEMLEAK.lines().last().unwrap();
        assert!(is_cut(&format!("{frames}\n{frames}\n{KMEMLEAK}")));
        assert!(is_cut(&format!("        __kmalloc+0xa8/0x198\n\n{LIST}")));
        assert!(!is_cut(&format!("{frames}\nusb 1-1: new device\n{KMEMLEAK}")), "a call trace of something else");
        assert!(!is_cut(&[LIST, KMEMLEAK].concat()) && !is_cut(&KMEMLEAK.repeat(2)));
    }

    #[test]
    fn reports_have_numbers() {
        let log = [OOM, &OOM.replace("8kB", "7kB"), SLABINFO].concat();
        let usage = |number: Option<usize>| {
            let options = OpenOptions { report_number: number, ..OpenOptions::default() };
            opened(&[("log", &log)], &options).map(|trace| (counters(&trace)[0].1, trace.series.len()))
        };
        assert_eq!(usage(None).unwrap(), (7 << 10, 1));
        assert_eq!(usage(Some(1)).unwrap(), (8 << 10, 0));
        assert!(usage(Some(0)).is_err() && usage(Some(3)).unwrap_err().to_string().contains("is 2"));
    }

    #[test]
    fn damage_does_no_harm() {
        let all = [LIST, SLABINFO, MEMINFO, ZONEINFO, OOM, HANDLES, STACKS].concat();
        let options = OpenOptions::default();
        let mut random = super::super::trial::Random(7);
        for _ in 0..600 {
            let text = random.mutated(all.as_bytes());
            let text = String::from_utf8_lossy(&text);
            let _ = opened(&[("log", &text), ("slab/a/alloc_traces", LIST)], &options);
        }
    }
}
