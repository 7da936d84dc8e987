//! The option of `kmemtrace-report export --to trace-dat`: facts of the recording or the tree that the file was made from, of which
//! `trace.dat` has no place of its own. trace-cmd passes over options that it does not know.

use std::io::{self, Read};

use super::container::Container;
use crate::disk::block::item;
use crate::open::header::{FileHeader, MetadataBuilder, host_of_uname};
use crate::stream::file_loss::FileLoss;
use crate::stream::report::FileReport;
use crate::trace::{Deferred, InputKind, Metadata, PageBytesFrom, TraceInfo};

/// Largest number of bytes of the items; `/proc/kallsyms` has about 20 MB.
const MAX_ITEMS: u64 = 1 << 28;
/// Names of inputs that a file may be made from.
const INPUTS: [InputKind; 3] = [InputKind::Kmemtrace, InputKind::Tree, InputKind::TraceDat];

/// Contents of the option.
#[derive(Debug)]
pub(super) struct Kept {
    /// Input that the file was made from.
    pub(super) input: InputKind,
    pub(super) header: FileHeader,
    pub(super) metadata: Metadata,
    page_bytes_from: PageBytesFrom,
    /// Loss of each file; one without a CPU is that of the names.
    files: Vec<FileLoss>,
    /// The items but for those of loss, where the caller wants them.
    pub(super) items: Option<Vec<u8>>,
}

impl Kept {
    /// Reads the option's bytes, one zstd frame of items; `None` where they make no sense.
    pub(super) fn parse(stored: &[u8], keeps_items: bool) -> Option<Kept> {
        let items = expand(stored).ok()?;
        let header = FileHeader::parse(&items).ok()?;
        let files = FileLoss::all(&items)?;
        let mut names = MetadataBuilder::default();
        if !names.take(&items) {
            return None;
        }
        let text = |wanted: u16| {
            let mut found = item::walk(&items).filter_map(Result::ok).filter(|(tag, ..)| *tag == wanted);
            found.next().map(|(_, _, bytes)| bytes)
        };
        let name = text(item::INPUT)?;
        let input = INPUTS.into_iter().find(|input| input.name().as_bytes() == name)?;
        let from = text(item::PAGE_BYTES_FROM);
        let from = [PageBytesFrom::Option, PageBytesFrom::Guess, PageBytesFrom::Machine]
            .into_iter()
            .find(|known| from == Some(known.name().as_bytes()));
        let page_bytes_from = from.unwrap_or(PageBytesFrom::Trace);
        let facts = keeps_items.then(|| without_loss(&items));
        Some(Kept { input, header, metadata: names.finish().0, page_bytes_from, files, items: facts })
    }

    /// Bytes of a page, and who says so.
    pub(super) fn page_bytes(&self) -> (Option<u64>, PageBytesFrom) {
        (self.header.page_bytes, self.page_bytes_from)
    }

    /// Loss of the files of CPUs.
    pub(super) fn of_cpus(&self) -> impl Iterator<Item = (u32, &FileLoss)> {
        self.files.iter().filter_map(|file| Some((file.cpu?, file)))
    }

    /// Number of CPUs, where the input told that by its files.
    pub(super) fn cpus(&self) -> Option<usize> {
        (self.input != InputKind::TraceDat).then(|| self.of_cpus().count())
    }

    /// Release of the kernel, where the input told that apart.
    pub(super) fn kernel(&self) -> Option<&str> {
        self.header.kernel.as_deref().filter(|_| self.input != InputKind::TraceDat)
    }

    /// Puts the facts of the recording or the tree in place of those of the `trace.dat`. `is_described`: the trace has the format of
    /// deferred frees.
    pub(super) fn put_facts(&self, info: &mut TraceInfo, is_described: bool) {
        if self.input == InputKind::TraceDat {
            return;
        }
        let header = &self.header;
        info.kernel.clone_from(&header.kernel);
        info.arch.clone_from(&header.arch);
        info.clock.clone_from(&header.clock);
        info.boot.clone_from(&header.boot);
        info.filter.clone_from(&header.filter);
        info.host = header.host.clone().or_else(|| host_of_uname(&self.metadata.uname));
        info.since_boot = header.since_boot;
        info.scope = header.scope;
        info.run = header.run(&self.metadata);
        let kernel = header.kernel.as_deref();
        info.deferred = match self.input {
            InputKind::Tree if is_described => Some(Deferred::From(0)),
            InputKind::Tree => Deferred::without_probes(kernel),
            _ => Deferred::of_recording(kernel, self.metadata.probes.as_deref(), is_described),
        };
    }

    /// The names of the trace, in place of `plain`, those that any `trace.dat` has.
    pub(super) fn into_metadata(self, plain: Metadata) -> Metadata {
        let Kept { input, header, metadata, files, .. } = self;
        let mut report = plain.report;
        match files.iter().find(|file| file.cpu.is_none()) {
            Some(loss) => {
                let empty = || FileReport::new("meta.out".into(), None);
                loss.add_to(report.get_or_insert_with(empty));
            }
            None => report = None,
        }
        if input == InputKind::TraceDat {
            return Metadata { comms: metadata.comms, report, ..plain };
        }
        let started = header.started;
        let (gfp_names, texts) = (plain.gfp_names, plain.texts);
        Metadata { started, gfp_names, report, texts, made_from: Some(input), ..metadata }
    }
}

/// Contents of the option; true if the file has one that makes no sense. `keeps_items`: as [`Kept::items`].
pub(super) fn of(container: &mut Container, keeps_items: bool) -> (Option<Kept>, bool) {
    let Some(stored) = container.kept.take() else { return (None, false) };
    let kept = Kept::parse(&stored, keeps_items);
    let is_bad = kept.is_none();
    (kept, is_bad)
}

fn without_loss(items: &[u8]) -> Vec<u8> {
    let of_loss = [item::FILE, item::GAPS, item::MARKS, item::FINDING];
    let mut kept = Vec::new();
    for (tag, flags, bytes) in item::walk(items).filter_map(Result::ok).filter(|(tag, ..)| !of_loss.contains(tag)) {
        item::put(&mut kept, tag, flags, bytes);
    }
    kept
}

fn expand(stored: &[u8]) -> io::Result<Vec<u8>> {
    let mut items = Vec::new();
    // Memory is taken as bytes come.
    zstd::stream::read::Decoder::new(stored)?.take(MAX_ITEMS + 1).read_to_end(&mut items)?;
    if items.len() as u64 > MAX_ITEMS { Err(io::ErrorKind::InvalidData.into()) } else { Ok(items) }
}
