//! Texts that list memory at one moment: page_owner in all its forms, slab's own witnesses, allocinfo, kmemleak, meminfo, OOM reports.
//!
//! Data flows one way: a file's lines, without the noise around them (`noise`), go to the [`entry::Reader`] of the form that claims
//! them (`form`, one table). A reader makes [`entry::Entry`]s and hands them to an [`entry::Out`], which keeps stacks, owners and names
//! once and adds up entries that are alike (`collect`, `store`). The collected entries are the trace's only source of events.
#![cfg_attr(not(feature = "inputs"), allow(dead_code, reason = "only page_owner is read without the feature"))]

#[cfg(feature = "inputs")]
mod alloc_traces;
#[cfg(feature = "inputs")]
mod allocinfo;
mod blocks;
pub(crate) mod collect;
mod combine;
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
mod line_table;
mod machine;
#[cfg(feature = "inputs")]
mod meminfo;
#[cfg(feature = "inputs")]
mod memleak;
pub(super) mod noise;
mod numbers;
#[cfg(feature = "inputs")]
mod oom;
mod owner_lines;
mod page_size;
mod places;
mod series;
#[cfg(feature = "inputs")]
mod slab_report;
#[cfg(feature = "inputs")]
mod slabinfo;
#[cfg(feature = "inputs")]
mod slabtop;
mod stack_lines;
mod store;
#[cfg(test)]
mod trial;
#[cfg(feature = "inputs")]
mod vmallocinfo;
#[cfg(feature = "inputs")]
mod zoneinfo;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use self::combine::Part;
pub(super) use self::combine::TextFile;
pub(super) use self::door::Text;
use self::form::About;
use super::lines::{Lines, MAX_LINE};
use super::listing::{io_error, no_trace};
use super::options::OpenOptions;
use super::regular;
use crate::disk::block::MAGIC;
use crate::trace::{OpenError, PAGE_OWNER, Trace};

/// First bytes of a file that it is known by.
const SAMPLE: u64 = 64 << 10;

/// True for the first bytes of a file where a line of a text is among them.
pub(super) fn begins(sample: &[u8]) -> bool {
    let mut scratch = Vec::new();
    let mut lines = sample.split(|byte| *byte == b'\n');
    lines.any(|line| form::of_line(noise::clean(line, &mut scratch)).is_some())
}

/// Reads the texts of a file: those that hold something, or the one without anything where there is no other.
pub(super) fn read(path: &Path, file: &Arc<File>, options: &OpenOptions) -> Result<Vec<Text>, OpenError> {
    read_lines(path, Lines::new(Arc::clone(file)), options)
}

fn read_lines(path: &Path, mut lines: Lines, options: &OpenOptions) -> Result<Vec<Text>, OpenError> {
    door::read(&mut lines, About { path, options }).map_err(io_error(path))
}

/// Opens texts that are named together.
pub(super) fn open(files: &[TextFile], options: &OpenOptions) -> Result<Trace, OpenError> {
    if let Some(form) = options.form.as_deref().filter(|form| !form::words().any(|word| word == *form)) {
        let words: Vec<&str> = form::words().collect();
        let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
        return Err(OpenError::Choose { path, reason: format!("--form {form}: not a form; use {}", words.join(", ")) });
    }
    let parts = parts(files, options)?;
    match files.first() {
        Some(file) if parts.is_empty() => Err(no_text(&file.path, options)),
        _ => combine::of_parts(parts, options),
    }
}

/// The error of a file without any text.
fn no_text(path: &Path, options: &OpenOptions) -> OpenError {
    let reason = match &options.form {
        Some(form) => format!("has no text of the form {form}"),
        None => format!("has no text; lines of more than {} KiB are not read", MAX_LINE >> 10),
    };
    no_trace(path, &reason)
}

/// True for files one of which has a text somewhere, as a log may.
pub(super) fn is_in(files: &[TextFile], options: &OpenOptions) -> Result<bool, OpenError> {
    let options = OpenOptions { alike: true, ..options.clone() };
    Ok(combine::hold_something(&parts(files, &options)?))
}

fn parts(files: &[TextFile], options: &OpenOptions) -> Result<Vec<Part>, OpenError> {
    let mut parts = Vec::new();
    for TextFile { path, file, modified, is_live } in files {
        parts.extend(Part::of_file(path, *modified, *is_live, read(path, file, options)?));
    }
    Ok(parts)
}

/// Time of a file's last change, in seconds since 1970.
pub(super) fn modified(file: &File) -> Option<i64> {
    let since_1970 = file.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_1970.as_secs()).ok()
}

/// Texts that kernels make up as they are read, and that end: their names, and the file systems they are in.
const MADE_UP: [(&str, &str); 12] = [
    (PAGE_OWNER, "debugfs"),
    ("show_stacks", "debugfs"),
    ("show_handles", "debugfs"),
    ("show_stacks_handles", "debugfs"),
    ("alloc_traces", "debugfs"),
    ("kmemleak", "debugfs"),
    ("alloc_calls", "sysfs"),
    ("slabinfo", "proc"),
    ("allocinfo", "proc"),
    ("vmallocinfo", "proc"),
    ("meminfo", "proc"),
    ("zoneinfo", "proc"),
];

/// Opens a text of the kernel that runs; `None` for any other file.
pub(super) fn open_made_up(path: &Path) -> Option<File> {
    let name = path.file_name()?;
    let (_, file_system) = MADE_UP.iter().find(|(made_up, _)| name == *made_up)?;
    regular::open_made_up(path, file_system).ok()
}

/// Opens a stored file that begins as a text does, or a text of the kernel that runs; `None` for any other.
pub(super) fn open_path(path: &Path, options: &OpenOptions) -> Option<Result<Trace, OpenError>> {
    match regular::open(path) {
        Ok(file) => {
            let mut sample = Vec::new();
            (&file).take(SAMPLE).read_to_end(&mut sample).ok()?;
            // Names in a recording may be any lines.
            let is_text = !sample.starts_with(&MAGIC) && begins(&sample);
            let modified = modified(&file);
            let text = TextFile { path: path.to_owned(), file: Arc::new(file), modified, is_live: false };
            (is_text || options.form.is_some()).then(|| open(&[text], options))
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let texts = read_lines(path, Lines::of_made_up(open_made_up(path)?), options);
            Some(texts.and_then(|texts| {
                let parts = Part::of_file(path, None, true, texts);
                if parts.is_empty() { Err(no_text(path, options)) } else { combine::of_parts(parts, options) }
            }))
        }
        Err(_) => None,
    }
}
