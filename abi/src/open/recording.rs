//! A trace directory of ours, or files out of one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;

use super::listing::{FoundFile, Listing, MAX_CPUS, add_missing, no_trace, open_regular, origin};
use crate::clock::OrderKey;
use crate::disk::block::{MAGIC, NO_CPU, RecordingId, item, kind};
use crate::disk::blocks::{Block, BlockReader};
use crate::disk::feed::Feed;
use crate::event::Names;
use crate::fault::{Code, Fault};
use crate::kernel::decoder::{Decoder, TraceFacts};
use crate::kernel::gfp::GfpNames;
use crate::kernel::relay::Layout;
use crate::kernel::release::Release;
use crate::kernel_texts::KernelTexts;
use crate::open::header::{FileHeader, MetadataBuilder, host_of_uname};
use crate::open::regular;
use crate::stream::CpuStream;
use crate::stream::payload::{PayloadFormat, RelayFormat, RelayNames, SubBufferFormat};
use crate::stream::report::{FileReport, Source};
use crate::trace::{Addresses, Deferred, InputKind, Metadata, OpenError, PageBytesFrom, Trace, TraceInfo};

/// True while a recorder holds the lock (`flock`) on this trace directory, or on the directory of this file.
#[must_use]
pub fn is_being_recorded(path: &Path) -> bool {
    let dir = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let Ok(dir) = regular::open_listed(dir) else { return false };
    // The lock ends when the directory is closed, at the end of this function.
    rustix::fs::flock(&dir, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// A file of ours whose first block was read.
pub(super) struct Opened {
    path: PathBuf,
    /// From its name.
    cpu: Option<u32>,
    reader: BlockReader,
    first: Option<Block>,
    faults: Vec<Fault>,
    header: Option<FileHeader>,
    /// The file can be opened again.
    is_stored: bool,
}

impl Opened {
    fn new(found: FoundFile) -> Result<Opened, OpenError> {
        let FoundFile { path, cpu, file, .. } = found;
        Opened::of_reader(path, cpu, BlockReader::new(file), true)
    }

    /// File of a stream, of which the first block is there, or none yet.
    pub(super) fn of_feed(cpu: u32, feed: Feed) -> Result<Opened, OpenError> {
        Opened::of_reader(PathBuf::from(format!("cpu{cpu}.out")), Some(cpu), BlockReader::of_feed(feed), false)
    }

    /// True where the first block describes the recording.
    pub(super) fn has_header(&self) -> bool {
        self.header.is_some()
    }

    fn of_reader(
        path: PathBuf,
        cpu: Option<u32>,
        mut reader: BlockReader,
        is_stored: bool,
    ) -> Result<Opened, OpenError> {
        let mut faults = Vec::new();
        let has_first = is_stored || reader.has_next();
        let first = has_first.then(|| reader.next(&mut |fault| faults.push(fault)).ok()).flatten();
        if let Some(major) = reader.newer() {
            return Err(OpenError::Newer { path, found: major });
        }
        let mut header = None;
        if let Some(block) = first.filter(|b| b.header.kind == kind::FILE_HEADER) {
            match FileHeader::parse(reader.payload()) {
                Ok(parsed) => header = Some(parsed),
                Err(error) => {
                    let number = Some(block.header.sequence.get());
                    faults.push(Fault {
                        code: Code::BadFileHeader,
                        offset: 0,
                        block: number,
                        message: error.to_string(),
                    });
                }
            }
            reader.forget_payload();
        }
        if let (Some(named), Some(is)) = (cpu, reader.cpu().filter(|&cpu| cpu != NO_CPU))
            && named != is
        {
            let message = format!("the file is named for CPU {named}, and its blocks are of CPU {is}");
            faults.push(Fault { code: Code::Foreign, offset: 0, block: Some(0), message });
        }
        Ok(Opened { path, cpu, reader, first, faults, header, is_stored })
    }

    fn cpu(&self) -> u32 {
        self.cpu.or(self.reader.cpu()).unwrap_or(0)
    }
}

/// Opens a recording; `keeps_texts`: as [`OpenOptions::texts`](super::OpenOptions::texts).
pub(super) fn open(listing: Listing, keeps_texts: bool) -> Result<Trace, OpenError> {
    let Listing { root, files, meta, .. } = listing;
    let paths: Vec<PathBuf> = files.iter().map(|found| found.path.clone()).collect();
    let (mut opened, mut has_header) = (Vec::new(), false);
    for found in files {
        let nothing_of_ours = !found.sample.starts_with(&MAGIC) && found.cpu.is_none();
        let mut file = Opened::new(found)?;
        // One header speaks for the recording. Another file's may be as large, for as many files as there are CPUs.
        if has_header && let Some(header) = &mut file.header {
            let FileHeader { target, source, relay_layout, .. } = *header;
            *header = FileHeader { target, source, relay_layout, ..FileHeader::default() };
        }
        has_header |= file.has_header();
        if nothing_of_ours && file.first.is_none() {
            return Err(no_trace(&file.path, "is not a trace: it has no block of one"));
        }
        opened.push(file);
    }
    let of_meta = match &meta {
        Some(path) => read_meta(path)?,
        None => (Metadata::default(), None, None),
    };
    refuse_mixed(&opened, meta.as_deref().zip(of_meta.2))?;
    let mut trace = assemble(opened, of_meta, &root);
    if keeps_texts && trace.info.source == Some(Source::Tracefs) {
        trace.metadata.texts = kernel_texts(&paths, meta.as_deref(), &trace)?.map(Box::new);
    }
    Ok(trace)
}

/// Payloads of a file's blocks of these kinds, one after the other.
fn payloads(path: &Path, kinds: &[u8], limit: usize) -> Result<Vec<u8>, OpenError> {
    let mut reader = BlockReader::new(open_regular(path)?);
    let (mut items, mut left) = (Vec::new(), limit);
    while left > 0
        && let Ok(block) = reader.next(&mut |_| {})
    {
        if kinds.contains(&block.header.kind) {
            items.extend_from_slice(reader.payload());
        }
        left = left.saturating_sub(1);
    }
    Ok(items)
}

/// The texts of a recording, for a writer of another container; `None` where no file describes its sub-buffers.
fn kernel_texts(paths: &[PathBuf], meta: Option<&Path>, trace: &Trace) -> Result<Option<KernelTexts>, OpenError> {
    let mut of_cpu = None;
    for path in paths {
        let items = payloads(path, &[kind::FILE_HEADER], 1)?;
        if let Ok(header) = FileHeader::parse(&items) {
            of_cpu = Some((items, header));
            break;
        }
    }
    let of_meta = match meta {
        Some(path) => payloads(path, &[kind::FILE_HEADER, kind::META], usize::MAX)?,
        None => Vec::new(),
    };
    let meta_header = FileHeader::parse(&of_meta).ok();
    let Some(header) = of_cpu.as_ref().map(|(_, header)| header.clone()).or_else(|| meta_header.clone()) else {
        return Ok(None);
    };
    let mut items = Vec::new();
    item::put(&mut items, item::INPUT, 0, InputKind::Kmemtrace.name().as_bytes());
    items.extend(&of_meta);
    // The header of a CPU's file is the one that speaks for the recording: of two items the later one holds.
    let of_cpu = of_cpu.map(|(items, _)| items).unwrap_or_default();
    for (tag, flags, bytes) in item::walk(&of_cpu).filter_map(Result::ok) {
        if tag != item::EVENT_FORMAT {
            item::put(&mut items, tag, flags, bytes);
        }
    }
    let header_event = item::walk(&items).filter_map(Result::ok).find(|(tag, ..)| *tag == item::HEADER_EVENT);
    Ok(Some(KernelTexts {
        header_page: header.header_page.into_bytes(),
        header_event: header_event.map_or(Vec::new(), |(_, _, text)| text.to_vec()),
        formats: whole_formats(header.formats, meta_header.map(|header| header.formats).unwrap_or_default()),
        clock: header.clock,
        uname: trace.metadata.uname.clone(),
        stats: Vec::new(),
        cpus: trace.info.cpus.len(),
        items,
    }))
}

/// The formats of a CPU's file, which lack the `print fmt`, as `meta.out` has them.
fn whole_formats(formats: Vec<(String, String)>, whole: Vec<(String, String)>) -> Vec<(String, String)> {
    let find = |system: &str, text: &str| {
        let name = text.lines().next();
        whole.iter().find(|(of, whole)| of == system && whole.lines().next() == name).cloned()
    };
    formats.into_iter().map(|(system, text)| find(&system, &text).unwrap_or((system, text))).collect()
}

/// The trace of files of one recording and its names; `root` is the folder of files that are missing.
pub(super) fn assemble(mut opened: Vec<Opened>, of_meta: Meta, root: &Path) -> Trace {
    let (metadata, meta_header, meta_recording) = of_meta;
    // One header speaks for the recording, so a damaged one costs no events.
    let header = opened.iter_mut().find_map(|o| o.header.as_mut()).map(std::mem::take).or(meta_header);
    let recording = opened.iter().find_map(|o| o.reader.recording()).or(meta_recording);
    let mut names = Names::new();
    let (format, complaint) = payload_format(header.as_ref(), &opened, &mut names);
    let header = header.unwrap_or_default();
    let order = match &format {
        PayloadFormat::Relay(RelayFormat { layout: Layout::R4, .. }) => OrderKey::Sequence,
        _ => OrderKey::Time,
    };
    let word_bytes = match &format {
        PayloadFormat::SubBuffers(format) => Some(format.shape.target.word_bytes),
        _ => header.target.map(|t| t.word_bytes),
    };
    let deferred = match &format {
        PayloadFormat::SubBuffers(format) => {
            let is_described = format.decoder.describes_deferred_frees();
            Deferred::of_recording(header.kernel.as_deref(), metadata.probes.as_deref(), is_described)
        }
        PayloadFormat::Relay(_) | PayloadFormat::Unknown => None,
    };
    let format = Arc::new(format);
    let missing = missing_cpus(&header, &opened);
    let mut streams = streams(opened, header.source, &format, complaint.as_deref());
    add_missing(&mut streams, &missing, root, ".out");
    let run = header.run(&metadata);
    let info = TraceInfo {
        input: InputKind::Kmemtrace,
        capabilities: format.capabilities(),
        source: header.source,
        kernel: header.kernel,
        arch: header.arch,
        endian: header.target.map(|t| t.endian),
        word_bytes,
        page_bytes: header.page_bytes,
        page_bytes_from: PageBytesFrom::Trace,
        addresses: Addresses::Raw,
        clock: header.clock,
        since_boot: header.since_boot,
        cpus: streams.iter().map(CpuStream::cpu).collect(),
        missing,
        order,
        scope: header.scope,
        deferred,
        filter: header.filter,
        host: header.host.or_else(|| host_of_uname(&metadata.uname)),
        boot: header.boot,
        recording: recording.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
        run,
        symbols: None,
        text: None,
    };
    let metadata = Metadata { started: header.started, ..metadata };
    if metadata.stacks.as_deref() == Some("") {
        streams.iter_mut().for_each(CpuStream::expect_no_stacks);
    }
    Trace {
        has_begun: false,
        inputs: Vec::new(),
        origin: None,
        series: Vec::new(),
        info,
        streams,
        names,
        metadata,
        total_overruns: None,
    }
}

/// CPUs of the recording that have no file.
fn missing_cpus(header: &FileHeader, opened: &[Opened]) -> Vec<u32> {
    let there: Vec<u32> = opened.iter().map(Opened::cpu).collect();
    header.cpus.iter().copied().take(MAX_CPUS as usize).filter(|cpu| !there.contains(cpu)).collect()
}

/// A stream for each file, with the findings so far; `complaint` is a finding about the description of events.
fn streams(
    opened: Vec<Opened>,
    source: Option<Source>,
    format: &Arc<PayloadFormat>,
    complaint: Option<&str>,
) -> Vec<CpuStream> {
    let mut streams = Vec::new();
    for file in opened {
        let cpu = file.cpu();
        let damaged = file.header.is_none() && file.first.is_some();
        let mut stream = CpuStream::blocks(file.path, cpu, file.reader, Arc::clone(format));
        stream.report_mut().source = source;
        file.faults.into_iter().for_each(|fault| stream.report_mut().add(fault));
        if let Some(message) = complaint {
            let message = message.to_owned();
            stream.report_mut().add(Fault { code: Code::BadFormats, offset: 0, block: Some(0), message });
        }
        if damaged {
            stream.mark_damaged();
        }
        if let Some(block) = file.first {
            stream.start_with(block);
        }
        streams.push(stream);
    }
    streams
}

fn refuse_mixed(opened: &[Opened], meta: Option<(&Path, RecordingId)>) -> Result<(), OpenError> {
    let files = opened.iter().filter_map(|o| Some((o.path.as_path(), o.reader.recording()?)));
    let mut all = files.chain(meta);
    let Some((a, recording)) = all.next() else { return Ok(()) };
    match all.find(|(_, other)| *other != recording) {
        Some((b, _)) => Err(OpenError::Mixed { a: a.to_owned(), b: b.to_owned() }),
        None => Ok(()),
    }
}

/// Payload format, and a finding about the description of events where there is one.
fn payload_format(
    header: Option<&FileHeader>,
    opened: &[Opened],
    names: &mut Names,
) -> (PayloadFormat, Option<String>) {
    let Some(header) = header else { return (PayloadFormat::Unknown, None) };
    let Some(target) = header.target else { return (PayloadFormat::Unknown, Some("no byte order".into())) };
    if header.source == Some(Source::Relay) {
        // Only files written after the first record know the layout; without any record there is nothing to decode.
        let others = opened.iter().filter_map(|o| o.header.as_ref()?.relay_layout).next();
        let layout = header.relay_layout.or(others).unwrap_or(Layout::R4);
        let origin = origin(opened.iter().filter(|o| o.is_stored).filter_map(|o| first_sequence(&o.path)));
        return (
            PayloadFormat::Relay(RelayFormat { layout, endian: target.endian, origin, names: RelayNames::new(names) }),
            None,
        );
    }
    let (formats, errors) = header.event_formats();
    match header.page_shape() {
        Ok(shape) => {
            let release = header.kernel.as_deref().and_then(Release::parse);
            let facts = TraceFacts {
                probe_group: header.probe_group.as_deref(),
                page_bytes: header.page_bytes.unwrap_or(0),
                cpus: opened.len().saturating_add(missing_cpus(header, opened).len()),
                release,
            };
            let decoder = Decoder::new(&formats, &facts, names);
            (PayloadFormat::SubBuffers(SubBufferFormat { shape, decoder }), errors.first().map(ToString::to_string))
        }
        Err(error) => (PayloadFormat::Unknown, Some(error.to_string())),
    }
}

/// The sequence number that starts a relay recording of ours: that of its first record.
fn first_sequence(path: &Path) -> Option<u32> {
    let mut reader = BlockReader::new(open_regular(path).ok()?);
    loop {
        let block = reader.next(&mut |_| {}).ok()?;
        if block.header.kind == kind::DATA && block.header.events.get() > 0 {
            return Some(block.header.first.get() as u32);
        }
    }
}

/// Names, header and recording of `meta.out`.
pub(super) type Meta = (Metadata, Option<FileHeader>, Option<RecordingId>);

fn read_meta(path: &Path) -> Result<Meta, OpenError> {
    let mut meta = MetaFile::new(path.to_owned(), BlockReader::new(open_regular(path)?));
    while meta.next() {
        if let Some(over) = meta.items.over() {
            return Err(OpenError::Memory { path: path.to_owned(), over });
        }
    }
    if let Some(major) = meta.reader.newer() {
        return Err(OpenError::Newer { path: path.to_owned(), found: major });
    }
    let recording = meta.reader.recording();
    let header = meta.header.clone();
    let (metadata, report) = meta.finish();
    Ok((Metadata { report: Some(report), ..metadata }, header, recording))
}

/// `meta.out` while it is read.
#[derive(Debug)]
pub(super) struct MetaFile {
    pub(super) reader: BlockReader,
    pub(super) header: Option<FileHeader>,
    pub(super) report: FileReport,
    items: MetadataBuilder,
}

impl MetaFile {
    pub(super) fn new(path: PathBuf, reader: BlockReader) -> MetaFile {
        let report = FileReport::new(path, None);
        MetaFile { reader, header: None, report, items: MetadataBuilder::default() }
    }

    /// Reads the next block; false at the end.
    pub(super) fn next(&mut self) -> bool {
        let report = &mut self.report;
        let Ok(block) = self.reader.next(&mut |fault| report.add(fault)) else { return false };
        match block.header.kind {
            kind::FILE_HEADER => match FileHeader::parse(self.reader.payload()) {
                Ok(parsed) => self.header = Some(parsed),
                Err(error) => self.report.add(meta_fault(Code::BadFileHeader, &block, error.to_string())),
            },
            kind::META if !self.items.take(self.reader.payload()) => {
                self.report.add(meta_fault(Code::BadFileHeader, &block, "its items do not fit in it".into()));
            }
            _ => {}
        }
        true
    }

    /// Names so far, and the report.
    pub(super) fn finish(mut self) -> (Metadata, FileReport) {
        let metadata = self.take_names();
        self.sum_up();
        (metadata, self.report)
    }

    /// Takes the names that were read since the last call.
    pub(super) fn take_names(&mut self) -> Metadata {
        let (metadata, is_good) = std::mem::take(&mut self.items).finish();
        if !is_good {
            let message = "OWN_THREADS is no list of thread ids: what the recorder itself allocates is not left out";
            self.report.add(Fault { code: Code::BadFileHeader, offset: 0, block: None, message: message.to_owned() });
        }
        // Only `meta.out` has the whole texts of formats.
        let gfp_names = self.header.as_ref().and_then(|header| GfpNames::of_formats(&header.formats)).map(Arc::new);
        Metadata { gfp_names, ..metadata }
    }

    /// Completes the report.
    pub(super) fn sum_up(&mut self) {
        let MetaFile { reader, header, report, .. } = self;
        report.version = Some(reader.version()).filter(|_| reader.blocks() > 0);
        report.source = header.as_ref().and_then(|h| h.source);
        report.blocks = reader.blocks();
        report.bytes = reader.bytes_read();
    }
}

fn meta_fault(code: Code, block: &Block, message: String) -> Fault {
    Fault { code, offset: block.offset, block: Some(block.header.sequence.get()), message }
}
