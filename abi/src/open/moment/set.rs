//! Texts that belong together: those that explain others, those of one input as a series, and those of other inputs.

use std::path::PathBuf;

use super::door::Text;
use super::series::{self, Slice};
use crate::open::listing::no_trace;
use crate::open::options::OpenOptions;
use crate::trace::{OpenError, Trace};

/// A text, and where it is from.
#[derive(Debug)]
pub(super) struct FileText {
    pub(super) path: PathBuf,
    /// Time of the file's last change, in seconds since 1970.
    pub(super) modified: Option<i64>,
    /// Caches that it is of, where the names of files tell.
    pub(super) caches: Vec<Vec<u8>>,
    pub(super) text: Text,
}

impl FileText {
    /// True for a text that only tells the stacks of others' handles.
    fn explains(&self) -> bool {
        self.text.collector.is_empty() && self.text.collector.has_handles()
    }
}

/// The trace of texts: that of the last one of the first input, with the earlier ones as its series and those of other inputs beside it.
/// `is_live`: the text is of the kernel that runs.
pub(super) fn trace(texts: Vec<FileText>, options: &OpenOptions, is_live: bool) -> Result<Trace, OpenError> {
    let first = texts.first().map(|text| text.path.clone()).unwrap_or_default();
    let (explaining, mut texts): (Vec<FileText>, Vec<FileText>) = texts.into_iter().partition(FileText::explains);
    for text in &mut texts {
        explaining.iter().for_each(|other| text.text.collector.explain(&other.text.collector));
    }
    texts.retain(|text| text.text.collector.is_refused() || !text.text.collector.is_empty());
    if texts.is_empty() {
        let reason = match explaining.is_empty() {
            true => "has no block that counts",
            false => "lists stacks by their handles, and no memory; name the text with these handles, too",
        };
        return Err(no_trace(&first, reason));
    }
    let mut inputs: Vec<(&str, Vec<FileText>)> = Vec::new();
    for text in texts {
        let input = text.text.name.input;
        match inputs.iter_mut().find(|(known, _)| *known == input) {
            Some((_, texts)) => texts.push(text),
            None => inputs.push((input, vec![text])),
        }
    }
    let mut traces = Vec::new();
    for (_, texts) in inputs {
        traces.extend(of_input(texts, options, is_live)?);
    }
    let mut traces = traces.into_iter();
    let Some(mut trace) = traces.next() else { return Err(no_trace(&first, "has no block that counts")) };
    trace.others = traces.collect();
    Ok(trace)
}

/// The trace of texts of one input.
fn of_input(texts: Vec<FileText>, options: &OpenOptions, is_live: bool) -> Result<Option<Trace>, OpenError> {
    let mut slices = Vec::new();
    for FileText { path, modified, text: Text { name, collector, .. }, .. } in texts {
        let trace = collector.into_trace(&path, name, is_live)?;
        slices.push(Slice { trace, path, modified });
    }
    if let [_] = &slices[..]
        && options.times.is_empty()
    {
        return Ok(slices.pop().map(|slice| slice.trace));
    }
    series::of_slices(slices, &options.times)
}
