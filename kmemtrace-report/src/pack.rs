//! `kmemtrace-report pack`: replaces each file of a recording by a smaller one with the same events, or with `--raw` by one whose
//! blocks are as the kernel wrote them. Bytes outside of whole blocks are copied, so that a damaged file stays as damaged as it was.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, bail};
use kmemtrace::Progress;
use kmemtrace::whole_file::{Directory, FileState};
use kmemtrace_abi::codec::{Decoder, Encoder};
use kmemtrace_abi::disk::block::{self, BlockInfo, FLAG_RECORDS, FLAG_ZSTD, Major, RecordingId, kind};
use kmemtrace_abi::disk::end_block;
use kmemtrace_abi::disk::expand::Expander;
use kmemtrace_abi::disk::salvage::{Piece, PieceReader};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::open;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units::grouped;
use kmemtrace_abi::trace::{InputKind, Trace};
use zstd::bulk::{Compressor, Decompressor};

use crate::terminal::progress::ProgressLine;

/// Default zstd level. Higher levels take many times as long for a few percent.
pub(crate) const LEVEL: i32 = 9;

/// Options of packing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Zstd level; `None` for blocks as the kernel wrote them, in the format's major version 1.
    pub(crate) level: Option<i32>,
    /// True if files without an end block are packed, too.
    pub(crate) takes_unfinished: bool,
    /// Number of files packed at the same time.
    pub(crate) threads: usize,
    pub(crate) is_quiet: bool,
}

/// Progress over all threads.
struct Meter {
    bytes: AtomicU64,
    total: u64,
    progress: Mutex<ProgressLine>,
}

impl Meter {
    fn add(&self, bytes: usize) {
        let bytes = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        // A thread that does not get the lock goes on packing: another thread shows the progress.
        if let Ok(mut progress) = self.progress.try_lock()
            && progress.is_due()
        {
            progress.show(bytes, self.total, None);
        }
    }

    /// Prints a file's size before and after.
    fn print_sizes(&self, path: &Path, before: u64, after: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.clear();
        let shown = escape(path.as_os_str().as_encoded_bytes());
        // An error on standard output is ignored: the other files are packed all the same.
        let _ = writeln!(io::stdout(), "{shown}   {} -> {} bytes", grouped(before), grouped(after));
    }
}

/// Packs each file of the recordings.
pub(crate) fn pack(inputs: &[PathBuf], how: How) -> anyhow::Result<()> {
    if let Some(level) = how.level.filter(|level| !zstd::compression_level_range().contains(level)) {
        bail!("--level {level}: use a level of zstd, one of {:?}", zstd::compression_level_range());
    }
    for input in inputs {
        // Every view refuses a directory without a recording, and a newer format; pack refuses them alike.
        // The trace is closed at once: a file that is held open would give back no room when a packed one replaces it.
        let kind = Trace::open(std::slice::from_ref(input))?.info.input;
        if matches!(kind, InputKind::TraceDat | InputKind::Other(_)) {
            bail!(
                "{}: is not a recording of kmemtraced, which alone is packed: compress it with zstd",
                input.display()
            );
        }
        let (dir, names) = files(input, how)?;
        let packed = pack_files(&dir, &names, how);
        if packed.iter().any(Result::is_ok) {
            // The index belongs to the files before packing.
            kmemtrace::cache::remove(&dir);
        }
        packed.into_iter().collect::<anyhow::Result<()>>()?;
    }
    Ok(())
}

/// Packs files of a directory; a result for each. After the first failure no thread begins another file.
fn pack_files(dir: &Arc<Directory>, files: &[OsString], how: How) -> Vec<anyhow::Result<()>> {
    let total = files.iter().filter_map(|name| Some(dir.state(name).ok()?.size)).sum();
    let meter = Meter { bytes: AtomicU64::new(0), total, progress: Mutex::new(ProgressLine::new(how.is_quiet)) };
    let mut packed: Vec<Option<_>> = files.iter().map(|_| None).collect();
    let next = Mutex::new(files.iter().zip(&mut packed));
    let failed = AtomicBool::new(false);
    let work = || {
        let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        while !failed.load(Ordering::Relaxed)
            && let Some((name, packed)) = take()
        {
            let result = pack_file(dir, name, how, &meter);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            *packed = Some(result);
        }
    };
    let threads = how.threads.min(files.len());
    thread::scope(|scope| {
        // A thread that the system refuses is no error: the others pack its files.
        (1..threads).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
    // A packed file frees room when it replaces the original. A disk too full for several files at a time may have
    // room for one.
    let was_full = |error: &anyhow::Error| error.root_cause().downcast_ref().is_some_and(is_full);
    let mut retries = threads > 1 && packed.iter().flatten().all(|packed| packed.as_ref().err().is_none_or(was_full));
    for (name, packed) in files.iter().zip(&mut packed) {
        if retries && !matches!(packed, Some(Ok(()))) {
            let result = pack_file(dir, name, how, &meter);
            retries = result.is_ok();
            *packed = Some(result);
        }
    }
    packed.into_iter().flatten().collect()
}

/// Files of a recording (the one given, or those in the directory given) and their directory, locked as its recorder
/// locks it: a recorder would go on writing to a file that was replaced, and no name would lead to its events.
fn files(input: &Path, how: How) -> anyhow::Result<(Arc<Directory>, Vec<OsString>)> {
    let shown = || format!("{}: cannot be read", input.display());
    let single = if input.is_dir() { None } else { input.file_name() };
    let dir = if single.is_some() { input.parent().unwrap_or(Path::new("")) } else { input };
    let dir = Directory::open(dir).with_context(shown)?;
    if !dir.lock() {
        bail!("{}: a recorder or another pack is at work on it: pack it when that has ended", dir.path().display());
    }
    let mut names = dir.names().with_context(shown)?;
    names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "out"));
    names.sort();
    if let Some(name) = single {
        refuse_two_majors(&dir, name, &names, how)?;
        return Ok((dir, vec![name.to_owned()]));
    }
    if names.is_empty() {
        bail!("{}: not a recording: it has no cpuN.out", input.display());
    }
    Ok((dir, names))
}

/// Refuses to pack a file alone where the recording's other files have another major version of the format than it would have: it is
/// the same in all files of a recording.
fn refuse_two_majors(dir: &Directory, name: &OsStr, all: &[OsString], how: How) -> anyhow::Result<()> {
    let Some(packed) = versions(dir, name, how) else { return Ok(()) };
    for other in all.iter().filter(|other| *other != name) {
        let is_other = |other: &Versions| other.recording == packed.recording && other.before != packed.after;
        if let Some(found) = versions(dir, other, how).filter(is_other) {
            bail!(
                "{}: would be in version {} of the format, and {} is in version {}: pack the directory, not one file",
                dir.path().join(name).display(),
                packed.after.number(),
                escape(other.as_encoded_bytes()),
                found.before.number()
            );
        }
    }
    Ok(())
}

/// Recording of a file, and its major version now and when it is packed.
struct Versions {
    recording: RecordingId,
    before: Major,
    after: Major,
}

/// Versions by the first block of a file; `None` where it has none.
fn versions(dir: &Directory, name: &OsStr, how: How) -> Option<Versions> {
    let mut pieces = PieceReader::new(dir.open_file(name).ok()?);
    let Ok(Some(Piece::Block { info, payload, .. })) = pieces.next_piece() else { return None };
    let after = major(encoder(&info, payload).is_some(), how.level.is_some());
    Some(Versions { recording: info.recording, before: info.major, after })
}

/// Encoder of the records of a file, by its first block; `None` where it has no sub-buffers.
fn encoder(info: &BlockInfo, payload: &[u8]) -> Option<(Encoder, PageShape)> {
    open::encoder::of_file_header(payload).filter(|_| info.kind == kind::FILE_HEADER)
}

/// Major version of a file's blocks.
fn major(has_sub_buffers: bool, is_packed: bool) -> Major {
    if has_sub_buffers && is_packed { Major::Two } else { Major::One }
}

/// True for an error of a full disk.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn pack_file(dir: &Arc<Directory>, name: &OsStr, how: How, meter: &Meter) -> anyhow::Result<()> {
    let path = dir.path().join(name);
    let shown = path.display();
    let unreadable = || format!("{shown}: cannot be read");
    let file = dir.open_file(name).with_context(unreadable)?;
    let before = FileState::of(&file).with_context(unreadable)?;
    if !begins_with_block(&file).with_context(unreadable)? {
        bail!("{shown}: is not a file of kmemtraced");
    }
    if !how.takes_unfinished && end_block::of(&file).with_context(unreadable)?.is_none() {
        bail!("{shown}: has no end block at its end: its recorder was killed, or it was cut: pack it with -f");
    }
    let unwritable = |path: &Path, error: io::Error| {
        let remedy = if is_full(&error) { " (it needs room beside the file that it is to replace)" } else { "" };
        anyhow::Error::new(error).context(format!("{}: cannot be written{remedy}", path.display()))
    };
    let new = dir.create(name, ".packing", 0o600).map_err(|error| unwritable(&path, error))?;
    let mut source = PieceReader::new(file.try_clone().with_context(unreadable)?);
    let after = match write(&mut source, new.file(), how.level, meter) {
        Ok(after) => after,
        Err(Failure::Reading(error)) => return Err(error).with_context(unreadable),
        Err(Failure::Writing(error)) => return Err(unwritable(&new.path(), error)),
    };
    if !dir.state(name).is_ok_and(|state| state.is_same_file(&before)) || !dir.is_at_its_path() {
        bail!("{shown}: another file has this name by now, and is left as it is: pack it again");
    }
    if source.offset() != before.size || !FileState::of(&file).is_ok_and(|state| state == before) {
        bail!(
            "{shown}: was changed while it was read, and is left as it is: pack it when no other program writes to it"
        );
    }
    new.put().with_context(|| format!("{shown}: cannot be replaced"))?;
    meter.print_sizes(&path, before.size, after);
    Ok(())
}

/// True for a file that begins with a whole block. The file stands at its first byte, before and after.
fn begins_with_block(mut file: &File) -> io::Result<bool> {
    let is_block = matches!(PieceReader::new(file.try_clone()?).next_piece()?, Some(Piece::Block { .. }));
    file.rewind()?;
    Ok(is_block)
}

/// Side of the copy that failed.
enum Failure {
    Reading(io::Error),
    Writing(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Writing(error)
    }
}

/// Writes the packed pieces of `source`; returns the number of bytes written.
fn write(source: &mut PieceReader, file: &File, level: Option<i32>, meter: &Meter) -> Result<u64, Failure> {
    let mut out = BufWriter::new(file);
    let mut packer = Packer::new(level)?;
    let mut written = 0;
    while let Some(piece) = source.next_piece().map_err(Failure::Reading)? {
        let part = packer.pack(&piece)?;
        out.write_all(part)?;
        meter.add(piece.bytes().len());
        written += part.len() as u64;
    }
    out.flush()?;
    Ok(written)
}

/// Records of a file whose sub-buffers are known.
struct Records {
    encoder: Encoder,
    shape: PageShape,
    /// What comes back from an encoded block, for a comparison.
    decoder: Decoder,
}

/// Packs the pieces of a file.
struct Packer {
    compressor: Option<Compressor<'static>>,
    frames: Decompressor<'static>,
    expander: Expander,
    /// Of a file of sub-buffers, once its first block was seen.
    records: Option<Records>,
    /// Version of the headers: known with the first block.
    major: Option<Major>,
    coded: Vec<u8>,
    /// The piece as it is written.
    out: Vec<u8>,
}

impl Packer {
    fn new(level: Option<i32>) -> io::Result<Packer> {
        Ok(Packer {
            compressor: level.map(Compressor::new).transpose()?,
            frames: Decompressor::new()?,
            expander: Expander::default(),
            records: None,
            major: None,
            coded: Vec::new(),
            out: Vec::new(),
        })
    }

    /// The bytes to write in place of a piece.
    fn pack<'a>(&'a mut self, piece: &Piece<'a>) -> io::Result<&'a [u8]> {
        let whole = piece.bytes();
        if let Piece::Block { info, payload, .. } = piece {
            if self.major.is_none() {
                let records = encoder(info, payload);
                self.major = Some(major(records.is_some(), self.compressor.is_some()));
                self.records = records.map(|(encoder, shape)| Records { encoder, shape, decoder: Decoder::default() });
            }
            let has_form = if info.kind == kind::DATA { self.is_packed(info) } else { info.flags & FLAG_ZSTD != 0 };
            let is_wanted = matches!(info.kind, kind::DATA | kind::META) && (!has_form || self.compressor.is_none());
            if is_wanted && let Some(raw) = self.expander.payload_of(whole) {
                self.out.clear();
                self.out.resize(self.major.unwrap_or_default().header_bytes(), 0);
                self.out.extend_from_slice(raw);
                self.store(info)?;
                return Ok(&self.out);
            }
        }
        // Blocks of a file have headers of one version, those of damaged blocks, too.
        match self.major.and_then(|major| block::in_major(whole, major)) {
            Some(bytes) => {
                self.out = bytes;
                Ok(&self.out)
            }
            None => Ok(whole),
        }
    }

    /// True for a block of data that is stored as this packer stores it.
    fn is_packed(&self, info: &BlockInfo) -> bool {
        let records = if self.major == Some(Major::Two) { FLAG_RECORDS } else { 0 };
        info.flags & FLAG_ZSTD != 0 && info.flags & FLAG_RECORDS == records
    }

    /// Stores the payload in `out`, behind the header's room, in less room where that is asked for, and seals the block.
    fn store(&mut self, info: &BlockInfo) -> io::Result<()> {
        let major = self.major.unwrap_or_default();
        let info = BlockInfo { major, flags: info.flags & !(FLAG_ZSTD | FLAG_RECORDS), ..*info };
        let Some(compressor) = &mut self.compressor else {
            block::seal(&mut self.out, &info, None);
            return Ok(());
        };
        let (room, raw_len) = (major.header_bytes(), self.out.len() - major.header_bytes());
        let coded_len = match &mut self.records {
            Some(records) if info.kind == kind::DATA => records.encode(&mut self.out[room..], &mut self.coded)?,
            _ => None,
        };
        let plain = coded_len.map_or(&self.out[room..], |len| &self.coded[..len]);
        let mut frame = vec![0; room + zstd::zstd_safe::compress_bound(plain.len())];
        let len = compressor.compress_to_buffer(plain, &mut frame[room..])?;
        let is_smaller = len < plain.len();
        // The original is deleted after this, so the frame is decompressed and compared first.
        if is_smaller && self.frames.decompress(&frame[room..room + len], plain.len())? != plain {
            return Err(io::Error::other("a block does not come back from zstd as it was"));
        }
        let flags = if is_smaller { FLAG_ZSTD } else { 0 } | if coded_len.is_some() { FLAG_RECORDS } else { 0 };
        if is_smaller {
            frame.truncate(room + len);
            self.out = frame;
        } else if let Some(len) = coded_len {
            self.out.truncate(room);
            self.out.extend_from_slice(&self.coded[..len]);
        }
        block::seal_records(&mut self.out, &BlockInfo { flags, ..info }, Some(raw_len), coded_len.unwrap_or(0));
        Ok(())
    }
}

impl Records {
    /// Makes the bytes of records zero that no field covers, and encodes the sub-buffers; `None` where that takes more room.
    fn encode(&mut self, sub_buffers: &mut [u8], coded: &mut Vec<u8>) -> io::Result<Option<usize>> {
        coded.resize(sub_buffers.len(), 0);
        let len = self.encoder.encode(sub_buffers, coded, &mut |_| {});
        self.encoder.layouts().clear_unused(&self.shape, sub_buffers);
        let mut back = Vec::new();
        let comes_back = len.is_none_or(|len| {
            self.decoder.decode(&coded[..len], sub_buffers.len(), &mut back).is_ok() && back == sub_buffers
        });
        if comes_back { Ok(len) } else { Err(io::Error::other("a block does not come back from the codec as it was")) }
    }
}
