//! Texts that list memory at one moment: page_owner in all its forms, slab's own witnesses, allocinfo, kmemleak, meminfo, OOM reports.
//!
//! Data flows one way: a file's lines, without the noise around them (`noise`), go to the [`Reader`] of the form that claims them
//! (`form`, one table). A reader makes [`Entry`]s and hands them to an [`Out`], which keeps stacks, owners and names once and adds
//! up entries that are alike (`collect`). The collected entries are the trace's only source of events.

#![allow(dead_code, reason = "readers are used once the door knows them")]

mod alloc_traces;
mod allocinfo;
pub(crate) mod collect;
mod crash_slabs;
pub(crate) mod entry;
mod kmemleak;
mod memleak;
mod numbers;
mod places;
pub(crate) mod series;
mod slab_report;
mod slabinfo;
mod slabtop;
#[cfg(test)]
mod trial;
mod vmallocinfo;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use self::collect::{Collector, FormName};
use self::entry::{Reader, Took};
use super::listing::{io_error, no_trace};
use super::options::OpenOptions;
use crate::trace::{OpenError, Trace};

/// Form of a text, and its reader; provisional.
fn reader(line: &[u8], path: &Path, options: &OpenOptions) -> Option<(FormName, Box<dyn Reader>)> {
    let form = |input, form, unit, has_objects| FormName { input, form, title: form, unit, has_objects };
    Some(if alloc_traces::begins(line) {
        let cache = alloc_traces::Cache::of(path, options.cache_name.as_deref(), options.object_size, options.form.as_deref());
        (form("alloc_traces", "alloc_traces", "lines", false), Box::new(alloc_traces::AllocTraces::new(cache)))
    } else if slabinfo::begins(line) {
        (form("slabinfo", "slabinfo", "lines", false), Box::new(slabinfo::Slabinfo::default()))
    } else if slabtop::begins(line) {
        (form("slabinfo", "slabtop", "lines", false), Box::new(slabtop::Slabtop::default()))
    } else if allocinfo::begins(line) {
        (form("allocinfo", "allocinfo", "lines", false), Box::new(allocinfo::Allocinfo::default()))
    } else if kmemleak::begins(line) {
        (form("kmemleak", "kmemleak", "objects", true), Box::new(kmemleak::Kmemleak::default()))
    } else if slab_report::begins(line) {
        (form("slab_report", "slab_report", "objects", false), Box::new(slab_report::SlabReport::default()))
    } else if vmallocinfo::begins(line) {
        (form("alloc_traces", "vmallocinfo", "lines", false), Box::new(vmallocinfo::Vmallocinfo))
    } else if memleak::begins(line) {
        (form("alloc_traces", "memleak", "stacks", false), Box::new(memleak::Memleak::default()))
    } else {
        return None;
    })
}

/// True for a text that a reader claims; provisional.
pub(super) fn begins(sample: &[u8], path: &Path, options: &OpenOptions) -> bool {
    sample.split(|byte| *byte == b'\n').take(20).any(|line| reader(line, path, options).is_some())
}

/// Opens a text; provisional.
pub(super) fn open(path: &Path, mut file: &File, options: &OpenOptions) -> Result<Trace, OpenError> {
    std::io::Seek::rewind(&mut file).map_err(io_error(path))?;
    let mut collector = Collector::new(options);
    let mut found: Option<(FormName, Box<dyn Reader>)> = None;
    let (mut text, mut offset, mut is_cut) = (BufReader::new(file), 0, false);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = text.read_until(b'\n', &mut line).map_err(io_error(path))?;
        if read == 0 {
            break;
        }
        collector.at_line(number, offset);
        offset += read as u64;
        if line.pop_if(|byte| *byte == b'\n').is_none() {
            is_cut = true;
            break;
        }
        if found.is_none() {
            found = reader(&line, path, options);
        }
        let took = found.as_mut().map_or(Took::NoLine, |(_, reader)| reader.take(&line, &mut collector));
        if took == Took::NoLine && !line.is_empty() {
            collector.skip_line();
        }
    }
    let Some((form, mut reader)) = found else { return Err(no_trace(path, "is no text that is known")) };
    reader.end(is_cut, &mut collector);
    if collector.is_empty() {
        return Err(no_trace(path, "has no entry"));
    }
    collector.into_trace(path, form, false)
}
