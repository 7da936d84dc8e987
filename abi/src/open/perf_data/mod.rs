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
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use self::facts::{Facts, feature};
use self::layout::Attr;
use self::records::{Records, compressed, kind};
use self::scan::{LEAST_RECORD, Scan, is_cut};
use self::source::{CpuRecords, Shared};
use super::listing::{io_error, no_trace, open_regular};
use crate::disk::part::Part;
use crate::disk::walk::read_at;
use crate::event::Names;
use crate::fault::{Code, Fault};
use crate::kernel::decoder::Decoder;
use crate::kernel::format::EventFormat;
use crate::kernel::gfp::GfpNames;
use crate::kernel::release::Release;
use crate::stream::report::FileReport;
use crate::stream::source::EventSource;
use crate::target::{Endian, u64_of};
use crate::trace::{Deferred, Metadata, OpenError, Trace};

/// Name of the input in documents.
pub(super) const PERF_DATA: &str = "perf.data";
/// Bytes of a pipe's header; a file's is longer.
const PIPE_HEADER: u64 = 16;
/// Bytes of a file's header, but for features of later versions.
const FILE_HEADER: usize = 104;
/// Attributes, and ids of one, at most.
const MAX_ATTRS: u64 = 1 << 16;

/// Opens a `perf.data`; `None` for a file that does not begin as one.
pub(super) fn open(path: &Path) -> Option<Result<Trace, OpenError>> {
    let mut file = open_regular(path).ok()?;
    let mut magic = [0; 8];
    file.read_exact(&mut magic).ok()?;
    let endian = match &magic {
        b"PERFILE2" => Endian::Little,
        b"2ELIFREP" => Endian::Big,
        b"PERFFILE" => {
            let reason = "a perf.data of the first version (Linux 2.6.31 to 2.6.35), which is not read: print it with perf script";
            return Some(Err(no_trace(path, reason)));
        }
        _ => return None,
    };
    Some(read(path, Arc::new(file), endian))
}

/// A part of the file.
#[derive(Clone, Copy, Debug, Default)]
struct Section {
    offset: u64,
    len: u64,
}

fn section(header: &[u8], at: usize, endian: Endian) -> Section {
    let number = |at| u64_of(endian, header, at).unwrap_or(0);
    Section { offset: number(at), len: number(at + 8) }
}

fn read(path: &Path, file: Arc<File>, endian: Endian) -> Result<Trace, OpenError> {
    let mut header = [0; FILE_HEADER];
    let have = read_at(&file, &mut header, 0).map_err(io_error(path))?;
    let len = file.metadata().map_err(io_error(path))?.len();
    let mut scan = Scan::default();
    let size = u64_of(endian, &header, 8).filter(|_| have >= 16).unwrap_or(0);
    let (mut start, mut end, mut is_unfinished) = (PIPE_HEADER, len, false);
    if size != PIPE_HEADER {
        if have < FILE_HEADER {
            return Err(no_trace(path, "a perf.data that ends inside its header"));
        }
        let data = section(&header, 40, endian);
        // perf writes the length when it ends.
        is_unfinished = data.len == 0;
        start = data.offset;
        end = if is_unfinished { len } else { data.offset.saturating_add(data.len) };
        attributes(&mut scan, &file, &header, endian);
        features(&mut scan, &file, &header, end, endian);
    }
    scan.read(&file, endian, start, end);
    let (file, scan) = if scan.is_compressed {
        expanded(path, &file, endian, (start, end), scan)?
    } else {
        (file, scan)
    };
    trace(path, file, endian, scan, is_unfinished)
}

/// The attributes in a file's header.
fn attributes(scan: &mut Scan, file: &Arc<File>, header: &[u8], endian: Endian) {
    let attr_size = u64_of(endian, header, 16).unwrap_or(0).clamp(64 + 16, 4096);
    let attrs = section(header, 24, endian);
    for n in 0..(attrs.len / attr_size).min(MAX_ATTRS) {
        let mut bytes = vec![0; attr_size as usize];
        let at = attrs.offset.saturating_add(n * attr_size);
        if !read_at(file, &mut bytes, at).is_ok_and(|have| have == bytes.len()) {
            return;
        }
        let place = section(&bytes, bytes.len() - 16, endian);
        let mut ids = Vec::new();
        let part = Part::range(Arc::clone(file), place.offset, place.len.min(MAX_ATTRS * 8));
        // Ids that are not there belong to no sample.
        part.take(MAX_ATTRS * 8).read_to_end(&mut ids).ok();
        if let Some(attr) = Attr::parse(&bytes[..bytes.len() - 16], endian) {
            scan.attrs.add(attr, ids.chunks_exact(8).filter_map(|id| u64_of(endian, id, 0)));
        }
    }
}

/// The features behind the data of a file: a table of sections, one for each bit that is set.
fn features(scan: &mut Scan, file: &Arc<File>, header: &[u8], mut at: u64, endian: Endian) {
    for bit in 0..256u32 {
        let word = u64_of(endian, header, 72 + bit as usize / 64 * 8).unwrap_or(0);
        if word & (1 << (bit % 64)) == 0 {
            continue;
        }
        let mut bytes = [0; 16];
        if !read_at(file, &mut bytes, at).is_ok_and(|have| have == bytes.len()) {
            return;
        }
        at = at.saturating_add(16);
        let place = section(&bytes, 0, endian);
        if bit == feature::TRACING_DATA {
            scan.take_tracing_data(file, place.offset, place.len);
        } else {
            scan.facts.take(bit, io::BufReader::new(Part::range(Arc::clone(file), place.offset, place.len)), endian);
        }
    }
}

/// The file's records with all compressed ones expanded, in a temporary file, and what is found there.
fn expanded(
    path: &Path,
    file: &Arc<File>,
    endian: Endian,
    (start, end): (u64, u64),
    found: Scan,
) -> Result<(Arc<File>, Scan), OpenError> {
    let mut scan = Scan { attrs: found.attrs, facts: found.facts, ..Scan::default() };
    let mut records = Records::new(Arc::clone(file), endian, start, end);
    let mut decoder = Expander::new().map_err(io_error(path))?;
    let mut broken = None;
    let spooled = super::spool::filled(|out| {
        loop {
            match records.next() {
                Ok(None) => break,
                Ok(Some(record)) if [kind::COMPRESSED, kind::COMPRESSED2].contains(&record.kind) => {
                    let pieces = compressed(&record, endian);
                    if let Err(error) = pieces.into_iter().try_for_each(|piece| decoder.expand(piece, out)) {
                        if error.kind() == io::ErrorKind::StorageFull {
                            return Err(error);
                        }
                        broken = Some((record.offset, error));
                        break;
                    }
                }
                // Attributes and descriptions have been taken, with their data behind the record.
                Ok(Some(record)) if [kind::HEADER_ATTR, kind::HEADER_TRACING_DATA, kind::AUXTRACE].contains(&record.kind) => {}
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
    /// Begin of a record that is not whole.
    rest: Vec<u8>,
}

impl Expander {
    fn new() -> io::Result<Expander> {
        Ok(Expander { decoder: zstd::stream::raw::Decoder::new()?, rest: Vec::new() })
    }
}

/// The trace of what was found.
fn trace(
    path: &Path,
    file: Arc<File>,
    endian: Endian,
    scan: Scan,
    is_unfinished: bool,
) -> Result<Trace, OpenError> {
    let Scan { attrs, facts, cpus, rounds, comms, has_threads, broken, .. } = scan;
    let Some(described) = &facts.described else {
        let reason = if is_unfinished {
            "a perf.data that perf has not finished: it lacks the formats of the events; name a trace of the same boot that has them with --event-formats"
        } else {
            "a perf.data without trace events: record some with perf record -e 'kmem:*' -a"
        };
        return Err(no_trace(path, reason));
    };
    if attrs.traced().next().is_none() {
        return Err(no_trace(path, "a perf.data without trace events: record some with perf record -e 'kmem:*' -a"));
    }
    if let Some(lacks) = attrs.traced().find_map(Attr::lacks) {
        let reason = format!("a perf.data whose samples have no {lacks}: record with perf record -a, or add --sample-cpu -T -R");
        return Err(no_trace(path, &reason));
    }
    let mut names = Names::new();
    let mut report = FileReport::new(path.to_owned(), None);
    let formats: Vec<(String, EventFormat)> = described
        .formats
        .iter()
        .filter_map(|(system, text)| Some((system.clone(), EventFormat::parse(text).ok()?)))
        .collect();
    let release = facts.kernel.as_deref().and_then(Release::parse);
    let decoder = Decoder::new(&formats, None, facts.page_bytes.unwrap_or(0), release, &mut names);
    let leaves_out = attrs.traced().any(Attr::leaves_out_events);
    let clock = attrs.traced().next().and_then(|attr| attr.clock).map_or("perf", clock_name);
    if let Some((offset, error)) = &broken {
        let (code, what) = if is_cut(error) { (Code::CutInBlock, "ends inside a record") } else { (Code::BadRecord, "cannot be read") };
        report.add(Fault { code, offset: *offset, block: None, message: format!("{what} at byte {offset}: {error}") });
    }
    let shared = Arc::new(Shared { path: path.to_owned(), file, endian, attrs, decoder, rounds });
    let mut sources: Vec<Box<dyn EventSource>> = Vec::new();
    for (cpu, found) in cpus {
        let [marked, counted] = found.lost;
        let at_end = counted.saturating_sub(marked);
        sources.push(Box::new(CpuRecords::new(Arc::clone(&shared), cpu, found.runs, found.is_unordered, at_end)));
    }
    let mut trace = Trace::of_sources(PERF_DATA, Some(clock), sources)?;
    trace.names = names;
    let info = &mut trace.info;
    info.endian = Some(endian);
    info.page_bytes = facts.page_bytes;
    info.word_bytes = word_bytes(&facts, endian);
    info.deferred = Deferred::without_probes(facts.kernel.as_deref());
    info.filter = facts.filter();
    info.kernel = facts.kernel;
    info.arch = facts.arch;
    info.host = facts.host;
    let _ = (has_threads, leaves_out, is_unfinished, LEAST_RECORD);
    trace.metadata = Metadata {
        comms,
        nodes: facts.nodes,
        gfp_names: GfpNames::of_formats(&described_formats(&formats, facts.described)).map(Arc::new),
        report: Some(report),
        ..Metadata::default()
    };
    Ok(trace)
}
