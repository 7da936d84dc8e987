//! Texts that list memory at one moment: page_owner in all its forms, slab's own witnesses, allocinfo, kmemleak, meminfo, OOM reports.
//!
//! Data flows one way: a file's lines, without the noise around them (`noise`), go to the [`Reader`] of the form that claims them
//! (`form`, one table). A reader makes [`Entry`]s and hands them to an [`Out`], which keeps stacks, owners and names once and adds
//! up entries that are alike (`collect`). The collected entries are the trace's only source of events.

#![cfg_attr(not(feature = "inputs"), allow(dead_code, reason = "only page_owner is read without the feature"))]

#[cfg(feature = "inputs")]
mod alloc_traces;
#[cfg(feature = "inputs")]
mod allocinfo;
mod blocks;
pub(crate) mod collect;
#[cfg(feature = "inputs")]
mod crash_slabs;
mod dates;
mod door;
mod dump_page;
pub(crate) mod entry;
mod form;
mod frames;
#[cfg(feature = "inputs")]
mod kmemleak;
#[cfg(feature = "inputs")]
mod meminfo;
#[cfg(feature = "inputs")]
mod memleak;
mod noise;
mod numbers;
#[cfg(feature = "inputs")]
mod oom;
mod owner_lines;
mod page_size;
mod places;
mod series;
mod set;
#[cfg(feature = "inputs")]
mod slab_report;
#[cfg(feature = "inputs")]
mod slabinfo;
#[cfg(feature = "inputs")]
mod slabtop;
mod stack_lines;
#[cfg(test)]
mod trial;
#[cfg(feature = "inputs")]
mod vmallocinfo;
#[cfg(feature = "inputs")]
mod zoneinfo;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::collect::Collector;
use self::door::Text;
use self::form::About;
use self::set::FileText;
use super::lines::Lines;
use super::listing::io_error;
use super::options::OpenOptions;
use super::regular;
use crate::trace::{OpenError, PAGE_OWNER, Trace};

/// First bytes of a file that it is known by.
const SAMPLE: u64 = 64 << 10;

/// True for the first bytes of a file where a line of a text is among them.
pub(super) fn begins(sample: &[u8]) -> bool {
    let mut scratch = Vec::new();
    let mut lines = sample.split(|byte| *byte == b'\n');
    lines.any(|line| form::of_line(noise::clean(line, &mut scratch)).is_some())
}

/// True for files one of which has a text somewhere, as a log may.
pub(super) fn is_in(files: &[Named], options: &OpenOptions) -> Result<bool, OpenError> {
    let options = OpenOptions { alike: true, ..options.clone() };
    for (path, file) in files {
        if read(path, Lines::new(Arc::clone(file)), &options)?.iter().any(holds_something) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds_something(text: &Text) -> bool {
    text.collector.is_refused() || !text.collector.is_empty()
}

fn read(path: &Path, mut lines: Lines, options: &OpenOptions) -> Result<Vec<Text>, OpenError> {
    door::read(&mut lines, About { path, options }, None).map_err(io_error(path))
}

/// A file, and how it is named.
pub(super) type Named = (PathBuf, Arc<File>);

/// Opens the texts of files.
pub(super) fn open(files: &[Named], options: &OpenOptions) -> Result<Trace, OpenError> {
    let mut texts = Vec::new();
    for (path, file) in files {
        add_file(path, file, options, &mut texts)?;
    }
    set::trace(texts, options, false)
}

/// Adds the texts of a file. Lists of different caches that are named together are one text.
fn add_file(path: &Path, file: &Arc<File>, options: &OpenOptions, texts: &mut Vec<FileText>) -> Result<(), OpenError> {
    let lines = || Lines::new(Arc::clone(file));
    let mut found = read(path, lines(), options)?;
    if let [text] = &found[..]
        && let Some(earlier) = texts.iter_mut().find(|earlier| is_of_other_cache(earlier, path, text, options))
    {
        let shared = std::mem::replace(&mut earlier.text.collector, Collector::new(options));
        found = door::read(&mut lines(), About { path, options }, Some(shared)).map_err(io_error(path))?;
        if let Some(text) = found.pop() {
            (earlier.text, earlier.caches) = (text, std::mem::take(&mut earlier.caches));
            earlier.caches.extend(cache_of(path, options));
        }
        return Ok(());
    }
    let modified = file.metadata().ok().map(|metadata| changed_at(&metadata));
    let caches = cache_of(path, options);
    let of_file = |text| FileText { path: path.to_owned(), modified, caches: caches.iter().cloned().collect(), text };
    texts.extend(found.into_iter().map(of_file));
    Ok(())
}

fn changed_at(metadata: &std::fs::Metadata) -> i64 {
    std::os::unix::fs::MetadataExt::mtime(metadata)
}

/// Cache that a file is of, where its name or the caller tells.
fn cache_of(path: &Path, options: &OpenOptions) -> Option<Vec<u8>> {
    #[cfg(feature = "inputs")]
    return alloc_traces::Cache::of(path, options.cache_name.as_deref(), None, None).into_name();
    #[cfg(not(feature = "inputs"))]
    return None;
}

fn is_of_other_cache(earlier: &FileText, path: &Path, text: &Text, options: &OpenOptions) -> bool {
    let is_list = |text: &Text| matches!(text.name.form, "alloc_traces" | "alloc_calls") && holds_something(text);
    let is_other =
        cache_of(path, options).is_some_and(|cache| !earlier.caches.is_empty() && !earlier.caches.contains(&cache));
    is_list(&earlier.text) && is_list(text) && is_other && !text.collector.is_refused()
}

/// Texts that kernels make up as they are read, and that end: their names, and the file systems they are in.
const MADE_UP: [(&str, &str); 8] = [
    (PAGE_OWNER, "debugfs"),
    ("show_stacks", "debugfs"),
    ("alloc_traces", "debugfs"),
    ("alloc_calls", "sysfs"),
    ("slabinfo", "proc"),
    ("allocinfo", "proc"),
    ("vmallocinfo", "proc"),
    ("meminfo", "proc"),
];

/// Opens a stored file that begins as a text does, or a text of the kernel that runs; `None` for any other.
pub(super) fn open_path(path: &Path, options: &OpenOptions) -> Option<Result<Trace, OpenError>> {
    match regular::open(path) {
        Ok(file) => {
            let mut sample = Vec::new();
            (&file).take(SAMPLE).read_to_end(&mut sample).ok()?;
            let file = [(path.to_owned(), Arc::new(file))];
            (begins(&sample) || options.form.is_some()).then(|| open(&file, options))
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let name = path.file_name()?;
            let (_, file_system) = MADE_UP.iter().find(|(made_up, _)| name == *made_up)?;
            let file = regular::open_made_up(path, file_system).ok()?;
            let of_file = |text| FileText { path: path.to_owned(), modified: None, caches: Vec::new(), text };
            let texts = read(path, Lines::of_made_up(file), options);
            Some(texts.and_then(|texts| set::trace(texts.into_iter().map(of_file).collect(), options, true)))
        }
        Err(_) => None,
    }
}
