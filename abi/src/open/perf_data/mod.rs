//! `perf.data` of perf, as a file or as it comes through a pipe: samples of trace events, whose raw part is the kernel's own record.
//!
//! A first pass finds where the records of each CPU stand and what is lost; then each CPU is a stream. The file is hostile input: no
//! length in it decides how much memory is taken. `tools/perf/Documentation/perf.data-file-format.txt` describes the format.

mod facts;
mod layout;
mod records;
mod scan;
mod source;

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::facts::{Facts, feature};
use self::layout::{Attr, Attrs};
use self::records::{HEADER, Records, compressed, kind, record_len};
use self::scan::{Scan, is_cut};
use self::source::{CpuRecords, Shared};
use super::listing::{io_error, no_trace};
use super::spool;
use super::trace_dat::container::Container;
use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

use crate::disk::part::Part;
use crate::disk::walk::read_at;
use crate::event::{ByKind, GapCause, Names};
use crate::fault::{Code, Fault};
use crate::kernel::decoder::{Decoder, TraceFacts};
use crate::kernel::format::{EventFormat, PageShape};
use crate::kernel::gfp::GfpNames;
use crate::kernel::release::Release;
use crate::stream::report::FileReport;
use crate::stream::source::EventSource;
use crate::target::{Endian, u32_of, u64_of};
use crate::text::units::counted;
use crate::trace::{
    Deferred, InputCapabilities, Metadata, OpenError, PERF_DATA, PageBytesFrom, Scope, Trace, TraceInfo,
};

/// First bytes of a file of the first version.
const FIRST_VERSION: &[u8] = b"PERFFILE";
/// Bytes of a pipe's header; a file's is longer.
const PIPE_HEADER: u64 = 16;
/// Bytes of a file's header, but for features of later versions.
const FILE_HEADER: usize = 104;
/// Bytes that are expanded at once.
const EXPANDED: usize = 128 << 10;
/// Bytes of a page where nothing tells.
const USUAL_PAGE_BYTES: u64 = 4096;
/// Attributes, and ids of one, at most.
const MAX_ATTRS: u64 = 1 << 16;
/// Bytes of an entry in the table of attributes: `perf_event_attr` of the first version or a later one, and the place of its ids.
const ATTR_BYTES: RangeInclusive<u64> = 64 + 16..=4096;

/// True for the first bytes of a `perf.data`.
pub(super) fn begins(sample: &[u8]) -> bool {
    endian(sample).is_some() || sample.starts_with(FIRST_VERSION)
}

fn endian(sample: &[u8]) -> Option<Endian> {
    match sample.get(..8)? {
        b"PERFILE2" => Some(Endian::Little),
        b"2ELIFREP" => Some(Endian::Big),
        _ => None,
    }
}

/// What the first pass over a file has found, and the file: its compressed records are expanded.
#[derive(Debug)]
pub(super) struct Scanned {
    path: PathBuf,
    file: Arc<File>,
    endian: Endian,
    found: Scan,
    /// perf has not finished the file.
    is_unfinished: bool,
    /// The file ends before its data do.
    is_cut: bool,
}

/// Facts of the boot that a file which perf has not finished lacks, from another trace of that boot.
#[derive(Debug, Default)]
pub(super) struct SameBoot {
    /// Layout of sub-buffers, and formats of events.
    pub(super) described: Container,
    pub(super) page_bytes: Option<u64>,
    pub(super) kernel: Option<String>,
    pub(super) arch: Option<String>,
}

impl Scanned {
    /// True for a file that describes its events.
    pub(super) fn is_described(&self) -> bool {
        self.found.facts.described.is_some()
    }

    /// Facts for another file of the same boot.
    pub(super) fn into_same_boot(self) -> SameBoot {
        let Facts { described, page_bytes, kernel, arch, .. } = self.found.facts;
        SameBoot { described: described.unwrap_or_default(), page_bytes, kernel, arch }
    }
}

/// A part of the file.
#[derive(Clone, Copy, Debug, Default)]
struct Section {
    offset: u64,
    len: u64,
}

fn section(header: &[u8], at: usize, endian: Endian) -> Section {
    let number = |at| u64_of(endian, header, at).unwrap_or(0);
    Section { offset: number(at), len: number(at.saturating_add(8)) }
}

/// Reads a file once.
pub(super) fn scan(path: &Path, file: Arc<File>) -> Result<Scanned, OpenError> {
    let mut header = [0; FILE_HEADER];
    let have = read_at(&file, &mut header, 0).map_err(io_error(path))?;
    let Some(endian) = endian(&header) else {
        let reason =
            "a perf.data of the first version (Linux 2.6.31 to 2.6.35), which is not read: print it with perf script";
        return Err(no_trace(path, reason));
    };
    let len = file.metadata().map_err(io_error(path))?.len();
    let mut found = Scan::default();
    let (mut start, mut end, mut is_unfinished, mut is_cut) = (PIPE_HEADER, len, false, false);
    if u64_of(endian, &header, 8).filter(|_| have >= 16).unwrap_or(0) != PIPE_HEADER {
        if have < FILE_HEADER {
            return Err(no_trace(path, "a perf.data that ends inside its header"));
        }
        let data = section(&header, 40, endian);
        // perf writes the length when it ends.
        is_unfinished = data.len == 0;
        start = data.offset;
        end = if is_unfinished { len } else { data.offset.saturating_add(data.len) };
        attributes(&mut found, &file, &header, endian, len).map_err(|what| no_trace(path, what))?;
        is_cut = end <= len && !features(&mut found, &file, &header, end, endian);
    }
    found.read(&file, endian, start, end);
    let (file, found) =
        if found.is_compressed { expanded(path, &file, endian, (start, end), found)? } else { (file, found) };
    if let Some(over) = found.over {
        return Err(OpenError::Memory { path: path.to_owned(), over });
    }
    Ok(Scanned { path: path.to_owned(), file, endian, found, is_unfinished, is_cut: is_cut || end > len })
}

/// Reads the attributes that the header of a file of `len` bytes points to. A table of a wrong size is an error: without its attribute no
/// sample can be read.
fn attributes(scan: &mut Scan, file: &Arc<File>, header: &[u8], endian: Endian, len: u64) -> Result<(), &'static str> {
    let attr_size = u64_of(endian, header, 16).unwrap_or(0);
    let attrs = section(header, 24, endian);
    let is_whole = ATTR_BYTES.contains(&attr_size) && attrs.len.checked_rem(attr_size) == Some(0);
    let count = attrs.len.checked_div(attr_size).unwrap_or(0);
    if !is_whole || count > MAX_ATTRS {
        return Err("a damaged perf.data: the table of its events makes no sense");
    }
    if attrs.offset.saturating_add(attrs.len) > len {
        return Err("a perf.data that ends inside the table of its events: copy it again");
    }
    for n in 0..count {
        let mut bytes = vec![0; attr_size as usize];
        let at = attrs.offset.saturating_add(n.saturating_mul(attr_size));
        if !read_at(file, &mut bytes, at).is_ok_and(|have| have == bytes.len()) {
            return Ok(());
        }
        let Some((attr, place)) = bytes.split_last_chunk::<16>() else { return Ok(()) };
        let place = section(place, 0, endian);
        let mut ids = Vec::new();
        let part = Part::range(Arc::clone(file), place.offset, place.len.min(MAX_ATTRS * 8));
        // Ids that are not there belong to no sample.
        part.take(MAX_ATTRS * 8).read_to_end(&mut ids).ok();
        if let Some(attr) = Attr::parse(attr, endian) {
            scan.attrs.add(attr, ids.chunks_exact(8).filter_map(|id| u64_of(endian, id, 0)));
        }
    }
    Ok(())
}

/// The features behind the data of a file: a table of sections, one for each bit that is set. False if the file ends before they do.
fn features(scan: &mut Scan, file: &Arc<File>, header: &[u8], mut at: u64, endian: Endian) -> bool {
    let len = file.metadata().map_or(u64::MAX, |data| data.len());
    let mut is_whole = true;
    for bit in 0..256u32 {
        let word_at = (bit as usize / 64).saturating_mul(8).saturating_add(72);
        let word = u64_of(endian, header, word_at).unwrap_or(0);
        if word & (1 << (bit % 64)) == 0 {
            continue;
        }
        let mut bytes = [0; 16];
        if !read_at(file, &mut bytes, at).is_ok_and(|have| have == bytes.len()) {
            return false;
        }
        at = at.saturating_add(16);
        let place = section(&bytes, 0, endian);
        is_whole &= place.offset.saturating_add(place.len) <= len;
        if bit == feature::TRACING_DATA {
            scan.take_tracing_data(file, place.offset, place.len);
        } else {
            scan.facts.take(bit, io::BufReader::new(Part::range(Arc::clone(file), place.offset, place.len)), endian);
        }
    }
    is_whole
}

/// The file's records with all compressed ones expanded, in a temporary file, and what is found there.
fn expanded(
    path: &Path,
    file: &Arc<File>,
    endian: Endian,
    (start, end): (u64, u64),
    found: Scan,
) -> Result<(Arc<File>, Scan), OpenError> {
    let mut scan = Scan::default();
    (scan.attrs, scan.facts, scan.over) = (found.attrs, found.facts, found.over);
    let mut records = Records::new(Arc::clone(file), endian, start, end);
    let mut decoder = Expander::new(end.saturating_sub(start)).map_err(io_error(path))?;
    let mut broken = None;
    let spooled = spool::filled(|out| {
        loop {
            match records.next() {
                Ok(None) => break,
                Ok(Some(record)) if [kind::COMPRESSED, kind::COMPRESSED2].contains(&record.kind) => {
                    let pieces = compressed(&record, endian);
                    if let Err(error) = pieces.into_iter().try_for_each(|piece| decoder.expand(piece, endian, out)) {
                        if error.kind() == io::ErrorKind::StorageFull {
                            return Err(error);
                        }
                        broken = Some((record.offset, error));
                        break;
                    }
                }
                // Attributes and descriptions have been taken, with their data behind the record.
                Ok(Some(record))
                    if [kind::HEADER_ATTR, kind::HEADER_TRACING_DATA, kind::AUXTRACE].contains(&record.kind) => {}
                Ok(Some(record)) => out.write_all(record.bytes)?,
                Err(error) => {
                    broken = Some((records.at(), error));
                    break;
                }
            }
        }
        Ok(())
    });
    let spooled = Arc::new(spooled.map_err(io_error(path))?);
    let len = spooled.metadata().map_err(io_error(path))?.len();
    scan.read(&spooled, endian, 0, len);
    scan.broken = broken.or(scan.broken);
    Ok((spooled, scan))
}

/// Expands the zstd stream that the compressed records of a file are pieces of. A record may begin in one piece and end in the next.
struct Expander {
    decoder: zstd::stream::raw::Decoder<'static>,
    buffer: Vec<u8>,
    /// Start of a record that is not whole.
    rest: Vec<u8>,
    /// Bytes that the records may still expand to.
    room: u64,
}

impl Expander {
    /// Expander of records that take `stored` bytes of the file.
    fn new(stored: u64) -> io::Result<Expander> {
        let (decoder, buffer) = (zstd::stream::raw::Decoder::new()?, vec![0; EXPANDED]);
        Ok(Expander { decoder, buffer, rest: Vec::new(), room: spool::most_unpacked(stored) })
    }

    /// Expands the next piece of the stream, and writes the records that are whole by then.
    fn expand(&mut self, piece: &[u8], endian: Endian, out: &mut dyn Write) -> io::Result<()> {
        let mut input = InBuffer::around(piece);
        loop {
            let mut output = OutBuffer::around(&mut self.buffer[..]);
            self.decoder.run(&mut input, &mut output)?;
            let written = output.pos();
            self.room = self.room.checked_sub(written as u64).ok_or_else(spool::too_large)?;
            self.rest.extend_from_slice(output.as_slice());
            self.write_whole(endian, out)?;
            if input.pos() == piece.len() && written < EXPANDED {
                return Ok(());
            }
        }
    }

    fn write_whole(&mut self, endian: Endian, out: &mut dyn Write) -> io::Result<()> {
        let mut rest = self.rest.as_slice();
        while let Some((record, after)) = record_len(rest, endian).and_then(|len| rest.split_at_checked(len)) {
            let reason = if record.len() < HEADER {
                "a record that was compressed has no length"
            } else if u32_of(endian, record, 0).is_some_and(|kind| kind::HAVE_MORE.contains(&kind)) {
                // perf compresses what the kernel wrote. These records would hide samples in what is behind or inside them.
                "a compressed record has one that only perf itself writes"
            } else {
                rest = after;
                continue;
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let whole = self.rest.len().saturating_sub(rest.len());
        out.write_all(self.rest.drain(..whole).as_slice())
    }
}

/// The trace of a file that was read once; `same_boot` has the formats that it lacks.
pub(super) fn open(
    scanned: &Scanned,
    same_boot: Option<&SameBoot>,
    page_bytes: Option<u64>,
) -> Result<Trace, OpenError> {
    let Scanned { path, endian, found, .. } = scanned;
    let Scan { attrs, facts, .. } = found;
    let described = described(scanned, same_boot)?;
    let (kernel, arch) = (
        facts.kernel.clone().or_else(|| same_boot?.kernel.clone()),
        facts.arch.clone().or_else(|| same_boot?.arch.clone()),
    );
    let (page_bytes, page_bytes_from) = match (page_bytes, facts.page_bytes.or_else(|| same_boot?.page_bytes)) {
        (Some(bytes), _) => (bytes, PageBytesFrom::Option),
        (None, Some(bytes)) => (bytes, PageBytesFrom::Trace),
        (None, None) => (USUAL_PAGE_BYTES, PageBytesFrom::Guess),
    };
    let mut names = Names::new();
    let mut report = FileReport::new(path.clone(), None);
    let mut formats = Vec::new();
    for (system, text) in &described.formats {
        match EventFormat::parse(text) {
            Ok(format) => formats.push((system.clone(), format)),
            Err(error) => report.add(fault(Code::BadFormats, 0, format!("a format of {system}: {error}"))),
        }
    }
    if same_boot.is_some() {
        check_ids(path, attrs, &formats)?;
    }
    let release = kernel.as_deref().and_then(Release::parse);
    let of_trace = TraceFacts {
        probe_group: None,
        page_bytes,
        // Without it bytes of per-CPU memory are not known.
        cpus: facts.cpus.map_or(0, |cpus| cpus as usize),
        release,
    };
    let decoder = Decoder::new(&formats, &of_trace, &mut names);
    let kinds = ByKind::from_fn(|kind| decoder.describes_allocs(kind));
    let capabilities = InputCapabilities { frames: !decoder.has_page_pointers(), ..InputCapabilities::events(kinds) };
    let shared = Arc::new(Shared {
        path: path.clone(),
        file: Arc::clone(&scanned.file),
        endian: *endian,
        attrs: attrs.clone(),
        decoder,
        rounds: found.rounds.clone(),
    });
    let leaves_out = attrs.traced().any(Attr::leaves_out_events);
    let cause = |(_, error): &_| if is_cut(error) { GapCause::Cut } else { GapCause::Damage };
    let ends_early = scanned.is_unfinished || scanned.is_cut;
    let missing = found.broken.as_ref().map(cause).or(ends_early.then_some(GapCause::Cut));
    let sources = found.cpus.iter().map(|(&cpu, of_cpu)| -> Box<dyn EventSource> {
        Box::new(CpuRecords::new(Arc::clone(&shared), (cpu, of_cpu), leaves_out, missing))
    });
    let clock = attrs.traced().next().and_then(|attr| attr.clock).map_or("perf", clock_name);
    let mut trace = Trace::of_sources(PERF_DATA, Some(clock), sources.collect())?;
    if let Some((offset, count)) = found.short {
        let message =
            format!("{} too short for a time and a CPU, the first at byte {offset}", counted(count, "sample"));
        report.add(fault(Code::BadRecord, offset, message));
    }
    if let Some((offset, error)) = &found.broken {
        report.add(broken(*offset, error));
    } else if scanned.is_unfinished {
        let message = "perf has not finished the file: it was killed, or the copy is incomplete".to_owned();
        report.add(fault(Code::NoEnd, 0, message));
    } else if scanned.is_cut {
        report.add(fault(Code::NoEnd, 0, "the file is cut: copy it again".to_owned()));
    }
    trace.names = names;
    trace.info = TraceInfo {
        capabilities,
        endian: Some(*endian),
        word_bytes: word_bytes(described, *endian),
        page_bytes: Some(page_bytes),
        page_bytes_from,
        deferred: Deferred::without_probes(kernel.as_deref()),
        filter: facts.filter(),
        kernel,
        arch,
        host: facts.host.clone(),
        scope: if found.has_threads == Some(true) { Scope::Tasks } else { Scope::Unknown },
        ..trace.info
    };
    trace.metadata = Metadata {
        comms: found.comms.clone(),
        nodes: facts.nodes.clone(),
        image_begin: found.image_begin.clone(),
        gfp_names: GfpNames::of_formats(&described.formats).map(Arc::new),
        report: Some(report),
        ..Metadata::default()
    };
    Ok(trace)
}

/// Descriptions of the events, of a file that is worth reading.
fn described<'a>(scanned: &'a Scanned, same_boot: Option<&'a SameBoot>) -> Result<&'a Container, OpenError> {
    let Scan { attrs, facts, .. } = &scanned.found;
    let refused = |reason: &str| no_trace(&scanned.path, reason);
    if facts.is_of_directory {
        return Err(refused(
            "one of several files of perf record --threads, which are not read together: record without --threads",
        ));
    }
    let without = "a perf.data without trace events: record them with perf record -a -e 'kmem:*'";
    let given = same_boot.map(|same_boot| &same_boot.described);
    let Some(described) = facts.described.as_ref().or(given) else {
        return Err(refused(match scanned {
            Scanned { is_unfinished: true, .. } => {
                "a perf.data that perf has not finished: it lacks the formats of its events, which perf writes last; name a trace of \
                 the same boot, or the directory events of its tracefs, with --event-formats"
            }
            Scanned { is_cut: true, .. } => {
                "a perf.data that is cut: it lacks the formats of its events, which stand at its end; copy it again, or name a trace \
                 of the same boot with --event-formats"
            }
            _ => without,
        }));
    };
    if attrs.traced().next().is_none() {
        return Err(refused(without));
    }
    match attrs.traced().find_map(Attr::lacks) {
        Some(field) => Err(refused(&format!("a perf.data whose samples have no {field}: record with perf record -a"))),
        None => Ok(described),
    }
}

/// Refuses formats that lack an event of the file: they are of another boot, whose events have other numbers.
fn check_ids(path: &Path, attrs: &Attrs, formats: &[(String, EventFormat)]) -> Result<(), OpenError> {
    let is_known = |id: u16| formats.iter().any(|(_, format)| format.id == id);
    match attrs.traced().filter_map(|attr| attr.event).find(|&id| !is_known(id)) {
        Some(id) => {
            let reason = format!(
                "its event {id} has no format in what --event-formats names, which is of another boot or lacks the event"
            );
            Err(OpenError::Choose { path: path.to_owned(), reason })
        }
        None => Ok(()),
    }
}

/// The name that `trace_clock` has for a clock of the system (`include/uapi/linux/time.h`).
fn clock_name(clock: i32) -> &'static str {
    match clock {
        1 => "mono",
        4 => "mono_raw",
        7 => "boot",
        11 => "tai",
        _ => "perf",
    }
}

/// Bytes of a `long` of the kernel.
fn word_bytes(described: &Container, endian: Endian) -> Option<u8> {
    let head = String::from_utf8_lossy(&described.header_page);
    PageShape::parse(&head, endian).ok().map(|shape| shape.target.word_bytes)
}

fn fault(code: Code, offset: u64, message: String) -> Fault {
    Fault { code, offset, block: None, message }
}

/// The finding of records that cannot be read from byte `offset` on.
fn broken(offset: u64, error: &io::Error) -> Fault {
    match is_cut(error) {
        true => fault(Code::CutInBlock, offset, format!("ends inside the record at byte {offset}")),
        false => fault(Code::BadRecord, offset, format!("cannot be read from byte {offset} on: {error}")),
    }
}
