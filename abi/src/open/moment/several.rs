//! Several texts of one moment, of one file or of several: which of them belong together, and which one a view reads.
//!
//! - Stacks of handles, and free pages on the lists of CPUs, explain other texts and are none of their own.
//! - Lists of different caches add up.
//! - Texts of one kind are a series: the last one by time is read.
//! - Of several kinds the view reads the one that it can, and the caller chooses where it can read several.

use std::collections::HashSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::collect::Collector;
use super::door::Text;
use super::entry::FormName;
use super::series::{self, Slice};
use crate::open::listing::no_trace;
use crate::open::options::OpenOptions;
use crate::trace::{OpenError, OtherText, Trace};

/// Names of texts that a message lists.
const MAX_LISTED: usize = 10;

/// A file with texts.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    /// Time of its last change, in seconds since 1970; `None` where that says nothing about the text.
    pub(crate) modified: Option<i64>,
    /// The file is a copy of one that the kernel makes up.
    pub(crate) is_live: bool,
}

/// Text that was read.
struct Found<'f> {
    file: &'f TextFile,
    /// The file, and the line where it has several texts.
    name: String,
    form: FormName,
    collector: Collector,
}

impl Found<'_> {
    /// Kinds of texts: those of one kind are a series.
    fn kind(&self) -> (&'static str, &'static str) {
        match self.form.input {
            // Lists of caches, of areas and of stacks are named alike.
            "alloc_traces" => ("alloc_traces", self.form.form),
            input => (input, ""),
        }
    }

    fn other(&self) -> OtherText {
        let FormName { input, title, unit, .. } = self.form;
        OtherText { name: self.name.clone(), input, title, unit, entries: self.collector.entries() }
    }
}

/// The text of these files that is read; `None` if none of them has a text.
///
/// # Errors
/// Those of reading, and [`OpenError::Choose`] where the caller has to say which text is read.
pub(crate) fn open(files: &[TextFile], options: &OpenOptions) -> Result<Option<Trace>, OpenError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(found(file, super::read(&file.path, &file.file, options)?));
    }
    let Some(first) = all.first() else { return Ok(None) };
    let path = first.file.path.clone();
    let choose = |reason: String| OpenError::Choose { path: path.clone(), reason };
    let (explaining, mut all) = explained(all);
    if let Some(member) = &options.member {
        let names = listed(&all);
        all.retain(|text| is_member(&text.name, member) || is_member(&text.file.path.to_string_lossy(), member));
        if all.is_empty() {
            return Err(choose(format!("--member {member}: no text has this name; there are {names}")));
        }
    }
    // Lists that are refused stand beside others in archives.
    if all.iter().any(|text| !text.collector.is_refused()) {
        all.retain(|text| !text.collector.is_refused());
    }
    let Some((all, others)) = of_one_kind(all, options).map_err(choose)? else {
        return Err(no_trace(&path, "has no block that counts"));
    };
    let all = numbered(added(all), options).map_err(choose)?;
    trace(all, explaining, others, options)
}

fn found(file: &TextFile, texts: Vec<Text>) -> Vec<Found<'_>> {
    let is_one = texts.len() == 1;
    let path = file.path.display();
    let of = |Text { name: form, collector, line }| {
        let name = if is_one { path.to_string() } else { format!("{path}:{line}") };
        Found { file, name, form, collector }
    };
    texts.into_iter().map(of).collect()
}

/// Texts that only explain others, and the others.
fn explained(all: Vec<Found<'_>>) -> (Vec<Found<'_>>, Vec<Found<'_>>) {
    let has_meminfo = all.iter().any(|text| text.form.form == "meminfo");
    let explains = |text: &Found<'_>| match text.form.form {
        "zoneinfo" => has_meminfo,
        _ => text.collector.is_empty() && text.collector.explains_handles(),
    };
    let (explaining, mut all): (Vec<_>, Vec<_>) = all.into_iter().partition(explains);
    if explaining.is_empty() || !all.is_empty() {
        all.retain(|text| !text.collector.is_empty() || text.collector.is_refused());
    }
    (explaining, all)
}

/// True for the whole name, and for its last parts.
fn is_member(name: &str, member: &str) -> bool {
    name.strip_suffix(member)
        .is_some_and(|before| before.is_empty() || before.ends_with('/') || member.starts_with('/'))
}

/// Names of texts, for messages.
fn listed(all: &[Found<'_>]) -> String {
    let mut names: Vec<String> =
        all.iter().take(MAX_LISTED).map(|text| format!("{} ({})", text.name, text.form.title)).collect();
    if all.len() > MAX_LISTED {
        names.push(format!("{} more", all.len() - MAX_LISTED));
    }
    names.join(", ")
}

type OfOneKind<'f> = (Vec<Found<'f>>, Vec<OtherText>);

/// The texts of the kind that is read, and those of others; `None` without any.
fn of_one_kind<'f>(all: Vec<Found<'f>>, options: &OpenOptions) -> Result<Option<OfOneKind<'f>>, String> {
    let takes = |text: &Found<'_>| options.takes.is_some_and(|takes| takes(text.form.input, text.form.form));
    let taken: HashSet<_> = all.iter().filter(|text| takes(text)).map(Found::kind).collect();
    if taken.len() > 1 {
        return Err(format!("has texts of several kinds; name one with --member NAME: {}", listed(&all)));
    }
    // A view that reads none of them is refused later, by what the first one has.
    let Some(kind) = taken.into_iter().next().or_else(|| all.first().map(Found::kind)) else { return Ok(None) };
    let (of_kind, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|text| text.kind() == kind);
    Ok(Some((of_kind, others.iter().map(Found::other).collect())))
}

/// Lists of different caches as one; other texts as they are.
fn added(all: Vec<Found<'_>>) -> Vec<Found<'_>> {
    let mut caches = HashSet::new();
    let is_of_new_cache = |text: &Found<'_>| {
        let named = text.collector.caches();
        text.form.form == "alloc_traces" && !named.is_empty() && named.into_iter().all(|cache| caches.insert(cache))
    };
    if all.len() < 2 || !all.iter().all(is_of_new_cache) {
        return all;
    }
    let mut all = all.into_iter();
    let mut sum: Vec<Found<'_>> = all.next().into_iter().collect();
    for text in all {
        if let Some(sum) = sum.first_mut() {
            sum.collector.absorb(text.collector);
        }
    }
    sum
}

/// The report that the caller names by its number, where it does.
fn numbered<'f>(mut all: Vec<Found<'f>>, options: &OpenOptions) -> Result<Vec<Found<'f>>, String> {
    let Some(number) = options.report_number else { return Ok(all) };
    all.retain(|text| text.form.form == "oom");
    let count = all.len();
    match number.checked_sub(1).filter(|at| *at < count) {
        Some(at) => Ok(vec![all.swap_remove(at)]),
        None => Err(format!("--report-number {number}: there are {count} reports of memory that ran out")),
    }
}

/// The trace of the last text by time, with those before it.
fn trace(
    all: Vec<Found<'_>>,
    mut explaining: Vec<Found<'_>>,
    others: Vec<OtherText>,
    options: &OpenOptions,
) -> Result<Option<Trace>, OpenError> {
    let count = all.len();
    let mut slices = Vec::new();
    for (index, mut text) in all.into_iter().enumerate() {
        let explains = |other: &Found<'_>| other.form.input == text.form.input;
        if text.form.form == "meminfo" {
            // The texts of two moments have a zoneinfo each, in one order.
            let at = explaining.iter().position(|other| other.form.form == "zoneinfo");
            let of_last = explaining.len() >= count - index;
            if let Some(zones) = at.filter(|_| of_last).map(|at| explaining.remove(at)) {
                text.collector.absorb(zones.collector);
            }
        } else {
            for other in explaining.iter().filter(|other| explains(other)) {
                text.collector.absorb_stacks(&other.collector);
            }
        }
        let Found { file, form, collector, .. } = text;
        let trace = collector.into_trace(&file.path, form, file.is_live)?;
        slices.push(Slice { trace, path: file.path.clone(), modified: file.modified });
    }
    let trace = match slices.len() {
        1 => slices.pop().map(|slice| slice.trace),
        _ => series::of_slices(slices, &options.times)?,
    };
    Ok(trace.map(|mut trace| {
        if let Some(text) = &mut trace.info.text {
            text.others = others;
        }
        trace
    }))
}
