//! Several texts as one trace: those that belong together are added up, others of one kind are slices of a series.

use std::path::{Path, PathBuf};

use super::Text;
use super::series::{Slice, of_slices};
use crate::open::listing::no_trace;
use crate::open::options::OpenOptions;
use crate::trace::{OpenError, Trace};

/// Text of a file.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    /// Time of the file's last change, in seconds since 1970.
    pub(crate) modified: Option<i64>,
    pub(crate) text: Text,
}

impl Part {
    fn input(&self) -> &'static str {
        self.text.name.input
    }

    fn form(&self) -> &'static str {
        self.text.name.form
    }
}

/// The trace of all texts of files that are named together. `is_live`: the text is of the kernel that runs.
///
/// # Errors
/// Texts of several kinds that the view could read, and those of which none holds anything.
pub(crate) fn of_parts(parts: Vec<Part>, options: &OpenOptions, is_live: bool) -> Result<Trace, OpenError> {
    let path = parts.first().map(|part| part.path.clone()).unwrap_or_default();
    let (explaining, others): (Vec<Part>, Vec<Part>) =
        parts.into_iter().partition(|part| part.text.collector.explains_handles());
    let counts = |part: &Part| part.text.collector.is_refused() || !part.text.collector.is_empty();
    let (mut parts, empty): (Vec<Part>, Vec<Part>) = others.into_iter().partition(counts);
    if parts.is_empty() {
        return Err(without_entries(&path, &explaining, &empty));
    }
    for explaining in &explaining {
        let of_pages = parts.iter_mut().filter(|part| part.input() == explaining.input());
        of_pages.for_each(|part| part.text.collector.add(&explaining.text.collector));
    }
    let parts = added_up(one_kind(parts, &path, options)?);
    let mut slices = Vec::new();
    for Part { path, modified, text } in parts {
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
            let reason = "has stacks of handles and no number of pages; name show_handles of the same boot, too".to_owned();
            OpenError::Choose { path: part.path.clone(), reason }
        }
        (None, Some(part)) => no_trace(&part.path, "has no block that counts"),
        (None, None) => no_trace(path, "has no text"),
    }
}

/// Parts of the kind that the view reads.
fn one_kind(parts: Vec<Part>, path: &Path, options: &OpenOptions) -> Result<Vec<Part>, OpenError> {
    let mut kinds: Vec<&'static str> = Vec::new();
    for part in &parts {
        if !kinds.contains(&part.input()) {
            kinds.push(part.input());
        }
    }
    let read: Vec<&'static str> =
        kinds.iter().copied().filter(|kind| options.kinds.is_empty() || options.kinds.contains(kind)).collect();
    let kind = match (&read[..], &kinds[..]) {
        ([only], _) | ([], [only]) => only,
        // A summary is of the first one, and lists the others.
        ([first, ..], _) if options.kinds.is_empty() => first,
        ([_, ..], _) => {
            let names = read.join(", ");
            let reason = format!("has several kinds of texts that this view reads ({names}); choose one with --member NAME");
            return Err(OpenError::Choose { path: path.to_owned(), reason });
        }
        ([], [first, ..]) => first,
        ([], []) => return Ok(parts),
    };
    let (mut chosen, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.input() == *kind);
    let titles: Vec<&'static str> = others.iter().map(|part| part.text.name.title).collect();
    chosen.iter_mut().for_each(|part| part.text.collector.note_others(&titles));
    Ok(chosen)
}

/// Parts, those added up that belong together: lists of different caches, and meminfo with its zoneinfo.
fn added_up(mut parts: Vec<Part>) -> Vec<Part> {
    if parts.iter().any(|part| part.form() == "meminfo") && parts.iter().any(|part| part.form() == "zoneinfo") {
        let (zones, mut others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.form() == "zoneinfo");
        let texts = others.iter_mut().filter(|part| part.form() == "meminfo");
        texts.zip(&zones).for_each(|(part, zones)| part.text.collector.add(&zones.text.collector));
        return others;
    }
    let is_of_caches = |part: &Part| ["alloc_traces", "alloc_calls"].contains(&part.form());
    if parts.len() < 2 || !parts.iter().all(is_of_caches) || !have_different_caches(&parts) {
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
    let mut seen = std::collections::BTreeSet::new();
    parts.iter().all(|part| {
        let mut caches = part.text.collector.caches().into_iter();
        caches.all(|cache| cache.is_some_and(|cache| seen.insert(cache.to_vec())))
    })
}
