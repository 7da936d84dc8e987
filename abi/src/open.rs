//! Finding out what a path holds, and opening it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block::{MAGIC, NO_CPU, kind};
use crate::blocks::{Block, BlockReader};
use crate::event::Names;
use crate::fault::{Code, Fault};
use crate::header::{FileHeader, SideItems};
use crate::kmem::Decoder;
use crate::relay::{self, Layout};
use crate::stream::{Coding, CpuStream, RelayCoding, RelayNames};
use crate::target::Endian;
use crate::trace::{FileFacts, InputKind, OpenError, OrderKey, Side, Source, Trace, TraceInfo};

/// Bytes of a file's start that tell what it is.
const SAMPLE: usize = 64 << 10;

/// A per-CPU file that was found.
#[derive(Debug)]
struct Found {
    path: PathBuf,
    /// From its name.
    cpu: Option<u32>,
    /// Named `….out`, as recorders name their files.
    out: bool,
    file: File,
    /// Its first bytes.
    sample: Vec<u8>,
}

pub(crate) fn open(paths: &[PathBuf]) -> Result<Trace, OpenError> {
    let listing = match paths {
        [dir] if is_dir(dir)? => Listing::of_dir(dir)?,
        files => Listing::of_files(files)?,
    };
    if listing.is_ours() { open_ours(listing) } else { open_relay(listing) }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    |error| OpenError::Io { path: path.to_owned(), error }
}

fn is_dir(path: &Path) -> Result<bool, OpenError> {
    fs::metadata(path).map(|m| m.is_dir()).map_err(io_error(path))
}

/// Opens a regular file; a FIFO would block, and a device has no end.
fn open_regular(path: &Path) -> Result<File, OpenError> {
    let kind = fs::metadata(path).map_err(io_error(path))?;
    if !kind.is_file() {
        let what = if kind.is_dir() { "is a directory" } else { "is not a regular file" };
        return Err(io_error(path)(io::Error::new(io::ErrorKind::InvalidInput, what)));
    }
    File::open(path).map_err(io_error(path))
}

/// The CPU in `cpu7`, `cpu7.out`; whether it ends in `.out`.
fn cpu_of_name(name: &str) -> Option<(u32, bool)> {
    let number = name.strip_prefix("cpu")?;
    let (number, out) = number.strip_suffix(".out").map_or((number, false), |n| (n, true));
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| number.parse().ok()).flatten().map(|cpu| (cpu, out))
}

/// What there is to open.
#[derive(Debug)]
struct Listing {
    root: PathBuf,
    files: Vec<Found>,
    meta: Option<PathBuf>,
    total_overruns: Option<u64>,
}

impl Listing {
    fn of_dir(dir: &Path) -> Result<Listing, OpenError> {
        let mut listing = Listing { root: dir.to_owned(), files: Vec::new(), meta: None, total_overruns: None };
        for entry in fs::read_dir(dir).map_err(io_error(dir))? {
            let path = entry.map_err(io_error(dir))?.path();
            match path.file_name().and_then(|n| n.to_str()) {
                Some("meta.out") => listing.meta = Some(path),
                Some("total_overruns") => listing.total_overruns = read_number(&path),
                Some(name) if cpu_of_name(name).is_some() => listing.add(path)?,
                _ => {}
            }
        }
        // Of `cpu3` and `cpu3.out`, the latter.
        listing.files.sort_by_key(|f| (f.cpu, !f.out));
        listing.files.dedup_by_key(|f| f.cpu);
        if listing.files.is_empty() && listing.meta.is_none() {
            return Err(no_trace(dir, "has no cpuN.out, no meta.out and no cpuN: it is not a trace directory"));
        }
        Ok(listing)
    }

    fn of_files(paths: &[PathBuf]) -> Result<Listing, OpenError> {
        let root = paths.first().and_then(|p| p.parent()).unwrap_or(Path::new("")).to_owned();
        let mut listing = Listing { root, files: Vec::new(), meta: None, total_overruns: None };
        for path in paths {
            if path.file_name().is_some_and(|n| n == "meta.out") {
                listing.meta = Some(path.clone());
            } else {
                listing.add(path.clone())?;
            }
        }
        listing.files.sort_by_key(|f| f.cpu);
        Ok(listing)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), OpenError> {
        let file = open_regular(&path)?;
        let mut sample = Vec::new();
        (&file).take(SAMPLE as u64).read_to_end(&mut sample).map_err(io_error(&path))?;
        let named = path.file_name().and_then(|n| n.to_str()).and_then(cpu_of_name);
        // Reading starts again at the first byte.
        let file = File::open(&path).map_err(io_error(&path))?;
        let (cpu, out) = named.map_or((None, false), |(cpu, out)| (Some(cpu), out));
        self.files.push(Found { path, cpu, out, file, sample });
        Ok(())
    }

    /// Whether these are files of ours rather than raw relay bytes.
    fn is_ours(&self) -> bool {
        let starts = |f: &Found| f.sample.starts_with(&MAGIC);
        if self.meta.is_some() || self.files.iter().any(starts) {
            return true;
        }
        if self.files.iter().any(|f| relay::detect(&f.sample).is_some()) {
            return false;
        }
        // A first block may be cut or damaged, and a file of ours may be empty or all zeros.
        self.files.iter().any(|f| {
            let nothing = f.out && f.sample.iter().all(|&b| b == 0);
            let cut = !f.sample.is_empty() && MAGIC.starts_with(&f.sample);
            nothing || cut || has_block(&f.path)
        })
    }
}

fn no_trace(path: &Path, reason: &str) -> OpenError {
    OpenError::NoTrace { path: path.to_owned(), reason: reason.to_owned() }
}

fn read_number(path: &Path) -> Option<u64> {
    let mut text = String::new();
    open_regular(path).ok()?.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Whether there is a whole block of ours anywhere in the file.
fn has_block(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| BlockReader::new(file).next(&mut |_| {}).is_ok())
}

/// A file of ours whose first block was read.
struct Opened {
    found: Found,
    reader: BlockReader,
    first: Option<Block>,
    faults: Vec<Fault>,
    header: Option<FileHeader>,
}

impl Opened {
    fn new(found: Found, reader_of: File) -> Result<Opened, OpenError> {
        let mut reader = BlockReader::new(reader_of);
        let mut faults = Vec::new();
        let first = reader.next(&mut |fault| faults.push(fault)).ok();
        if let Some(major) = reader.newer() {
            return Err(OpenError::Newer { path: found.path, found: major });
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
        }
        if let (Some(named), Some(is)) = (found.cpu, reader.cpu().filter(|&cpu| cpu != NO_CPU))
            && named != is
        {
            let message = format!("the file is named for CPU {named}, and its blocks are of CPU {is}");
            faults.push(Fault { code: Code::Foreign, offset: 0, block: Some(0), message });
        }
        Ok(Opened { found, reader, first, faults, header })
    }
}

fn open_ours(listing: Listing) -> Result<Trace, OpenError> {
    let Listing { root, files, meta, .. } = listing;
    let mut opened = Vec::new();
    for mut found in files {
        let file = File::open(&found.path).map_err(io_error(&found.path))?;
        let nothing_of_ours = !found.sample.starts_with(&MAGIC) && found.cpu.is_none();
        found.sample = Vec::new();
        let file = Opened::new(found, file)?;
        if nothing_of_ours && file.first.is_none() {
            return Err(no_trace(&file.found.path, "is not a trace: it has no block of one"));
        }
        opened.push(file);
    }
    let (side, meta_header, meta_recording) = match &meta {
        Some(path) => read_meta(path)?,
        None => (Side::default(), None, None),
    };
    refuse_mixed(&opened, meta.as_deref().zip(meta_recording))?;
    // One header speaks for the recording, so a damaged one costs no events.
    let header = opened.iter().find_map(|o| o.header.clone()).or(meta_header);
    let mut names = Names::new();
    let (coding, complaint) = coding_of(header.as_ref(), &opened, &mut names);
    let header = header.unwrap_or_default();
    let order = match &coding {
        Coding::Relay(RelayCoding { layout: Layout::R4, .. }) => OrderKey::Sequence,
        _ => OrderKey::Time,
    };
    let word_bytes = match &coding {
        Coding::SubBuffers(shape, _) => Some(shape.target.word_bytes),
        _ => header.target.map(|t| t.word_bytes),
    };
    let coding = Arc::new(coding);
    let mut streams: Vec<CpuStream> = Vec::new();
    for file in opened {
        let cpu = file.found.cpu.or(file.reader.cpu()).unwrap_or(0);
        let damaged = file.header.is_none() && file.first.is_some();
        let mut stream = CpuStream::blocks(file.found.path, cpu, file.reader, Arc::clone(&coding));
        stream.facts_mut().source = header.source;
        file.faults.into_iter().for_each(|fault| stream.facts_mut().add(fault));
        if let Some(message) = &complaint {
            stream.facts_mut().add(Fault {
                code: Code::BadFormats,
                offset: 0,
                block: Some(0),
                message: message.clone(),
            });
        }
        if damaged {
            stream.mark_damaged();
        }
        if let Some(block) = file.first {
            stream.start_with(block);
        }
        streams.push(stream);
    }
    let there: Vec<u32> = streams.iter().map(CpuStream::cpu).collect();
    let missing: Vec<u32> = header.cpus.iter().copied().filter(|cpu| !there.contains(cpu)).collect();
    add_missing(&mut streams, &missing, &root, ".out");
    let info = TraceInfo {
        input: InputKind::Kmemtrace,
        source: header.source,
        kernel: header.kernel,
        arch: header.arch,
        endian: header.target.map(|t| t.endian),
        word_bytes,
        page_bytes: header.page_bytes,
        clock: header.clock,
        cpus: streams.iter().map(CpuStream::cpu).collect(),
        missing,
        order,
    };
    let side = Side { started: header.started, ..side };
    Ok(Trace { info, streams, names, side, total_overruns: None })
}

fn add_missing(streams: &mut Vec<CpuStream>, missing: &[u32], root: &Path, suffix: &str) {
    streams.extend(missing.iter().map(|&cpu| CpuStream::missing(root.join(format!("cpu{cpu}{suffix}")), cpu)));
    streams.sort_by_key(CpuStream::cpu);
}

fn refuse_mixed(opened: &[Opened], meta: Option<(&Path, [u8; 16])>) -> Result<(), OpenError> {
    let files = opened.iter().filter_map(|o| Some((o.found.path.as_path(), o.reader.recording()?)));
    let mut all = files.chain(meta);
    let Some((a, recording)) = all.next() else { return Ok(()) };
    match all.find(|(_, other)| *other != recording) {
        Some((b, _)) => Err(OpenError::Mixed { a: a.to_owned(), b: b.to_owned() }),
        None => Ok(()),
    }
}

/// How to decode, and what is wrong with the description where something is.
fn coding_of(header: Option<&FileHeader>, opened: &[Opened], names: &mut Names) -> (Coding, Option<String>) {
    let Some(header) = header else { return (Coding::Unknown, None) };
    let Some(target) = header.target else { return (Coding::Unknown, Some("no byte order".into())) };
    if header.source == Some(Source::Relay) {
        // Only what was written after the first record tells; without any record there is nothing to decode.
        let others = opened.iter().filter_map(|o| o.header.as_ref()?.relay_layout).next();
        let layout = header.relay_layout.or(others).unwrap_or(Layout::R4);
        let origin = origin(opened.iter().filter_map(|o| first_sequence(&o.found.path)));
        return (
            Coding::Relay(RelayCoding { layout, endian: target.endian, origin, names: RelayNames::new(names) }),
            None,
        );
    }
    let (formats, errors) = header.event_formats();
    match header.page_shape() {
        Ok(shape) => {
            let decoder = Decoder::new(&formats, header.page_bytes.unwrap_or(0), names);
            (Coding::SubBuffers(shape, decoder), errors.first().map(ToString::to_string))
        }
        Err(error) => (Coding::Unknown, Some(error.to_string())),
    }
}

/// The sequence number that starts a relay recording of ours: that of its first record.
fn first_sequence(path: &Path) -> Option<u32> {
    let mut reader = BlockReader::new(File::open(path).ok()?);
    loop {
        let block = reader.next(&mut |_| {}).ok()?;
        if block.header.kind == kind::DATA && block.header.events.get() > 0 {
            return Some(block.header.first.get() as u32);
        }
    }
}

/// Of the CPUs' first sequence numbers, the one that all others come after, modulo 2^32.
fn origin(firsts: impl Iterator<Item = u32>) -> u32 {
    firsts.reduce(|a, b| if b.wrapping_sub(a).cast_signed() < 0 { b } else { a }).unwrap_or(0)
}

type Meta = (Side, Option<FileHeader>, Option<[u8; 16]>);

fn read_meta(path: &Path) -> Result<Meta, OpenError> {
    let mut reader = BlockReader::new(open_regular(path)?);
    let mut facts = FileFacts::new(path.to_owned(), None);
    let mut header = None;
    let mut items = SideItems::default();
    while let Ok(block) = reader.next(&mut |fault| facts.add(fault)) {
        match block.header.kind {
            kind::FILE_HEADER => match FileHeader::parse(reader.payload()) {
                Ok(parsed) => header = Some(parsed),
                Err(error) => facts.add(meta_fault(Code::BadFileHeader, &block, error.to_string())),
            },
            kind::META if !items.take(reader.payload()) => {
                facts.add(meta_fault(Code::BadFileHeader, &block, "its items do not fit in it".into()));
            }
            _ => {}
        }
    }
    if let Some(major) = reader.newer() {
        return Err(OpenError::Newer { path: path.to_owned(), found: major });
    }
    facts.version = Some(reader.version()).filter(|_| reader.blocks() > 0);
    facts.source = header.as_ref().and_then(|h| h.source);
    facts.blocks = reader.blocks();
    facts.bytes = reader.bytes_read();
    let recording = reader.recording();
    Ok((Side { facts: Some(facts), ..items.finish() }, header, recording))
}

fn meta_fault(code: Code, block: &Block, message: String) -> Fault {
    Fault { code, offset: block.offset, block: Some(block.header.sequence.get()), message }
}

fn open_relay(listing: Listing) -> Result<Trace, OpenError> {
    let Listing { root, files, total_overruns, .. } = listing;
    let detected = files.iter().find_map(|f| relay::detect(&f.sample).map(|found| (f, found)));
    let (layout, endian) = match (detected, files.first()) {
        (Some((_, found)), _) => found,
        // A channel on which nothing was recorded.
        (None, Some(_)) if files.iter().all(|f| f.sample.is_empty() && f.cpu.is_some()) => (Layout::R4, Endian::NATIVE),
        (None, first) => {
            let path = first.map_or(root.as_path(), |f| f.path.as_path());
            return Err(no_trace(path, "is neither a kmemtrace file nor a relay stream"));
        }
    };
    let mut names = Names::new();
    let first = |f: &Found| match relay::tally(layout, endian, &f.sample) {
        tally if tally.events > 0 => Some(tally.first as u32),
        _ => None,
    };
    let origin = origin(files.iter().filter_map(first));
    let coding = Arc::new(Coding::Relay(RelayCoding { layout, endian, origin, names: RelayNames::new(&mut names) }));
    let suffix = if files.iter().any(|f| f.out) { ".out" } else { "" };
    let mut streams = Vec::new();
    for (index, found) in files.into_iter().enumerate() {
        if let Some((other_layout, other_endian)) = relay::detect(&found.sample)
            && (other_layout, other_endian) != (layout, endian)
            && relay::tally(layout, endian, &found.sample).events == 0
        {
            let reason = format!(
                "holds {} records in {} byte order, and the others {} in {}: they are not of one recording",
                other_layout.name(),
                other_endian.name(),
                layout.name(),
                endian.name()
            );
            return Err(no_trace(&found.path, &reason));
        }
        let cpu = found.cpu.unwrap_or(index as u32);
        let mut stream = CpuStream::raw(found.path, cpu, found.file, Arc::clone(&coding));
        stream.facts_mut().source = Some(Source::Relay);
        streams.push(stream);
    }
    let there: Vec<u32> = streams.iter().map(CpuStream::cpu).collect();
    let last = there.iter().copied().max().unwrap_or(0);
    // No machine has more CPUs than this, and a file may have any number in its name.
    let missing: Vec<u32> = (0..last.min(1 << 16)).filter(|cpu| !there.contains(cpu)).collect();
    add_missing(&mut streams, &missing, &root, suffix);
    let info = TraceInfo {
        input: InputKind::Relay,
        source: Some(Source::Relay),
        kernel: None,
        arch: None,
        endian: Some(endian),
        word_bytes: None,
        page_bytes: None,
        clock: None,
        cpus: streams.iter().map(CpuStream::cpu).collect(),
        missing,
        order: if layout == Layout::R4 { OrderKey::Sequence } else { OrderKey::Time },
    };
    Ok(Trace { info, streams, names, side: Side::default(), total_overruns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_recording_is_found_across_the_wrap() {
        assert_eq!(origin([5, 0xffff_fff0, 0xffff_fff8].into_iter()), 0xffff_fff0);
        assert_eq!(origin([0x7fff_fff0, 0x8000_0003].into_iter()), 0x7fff_fff0);
        assert_eq!(origin([9, 7].into_iter()), 7);
    }

    #[test]
    fn cpu_files_are_known_by_their_names() {
        assert_eq!(cpu_of_name("cpu12.out"), Some((12, true)));
        assert_eq!(cpu_of_name("cpu0"), Some((0, false)));
        for name in ["cpu", "cpu.out", "cpu1.txt", "cpu-1", "cpu1x", "xcpu1", "cpu99999999999"] {
            assert_eq!(cpu_of_name(name), None, "{name}");
        }
    }
}
