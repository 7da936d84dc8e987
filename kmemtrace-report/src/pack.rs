//! `kmemtrace-report pack`: the files of a recording, each replaced by one that says the same in less room. Every byte that is no
//! whole block is copied as it is, so that a damaged file stays what it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, bail};
use kmemtrace_abi::block::{self, BlockInfo, FLAG_ZSTD, HEADER_BYTES, kind};
use kmemtrace_abi::escape::escape;
use kmemtrace_abi::pieces::{Piece, pieces};
use kmemtrace_abi::trace::Trace;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use zstd::bulk::{Compressor, Decompressor};

use crate::mapping::with_mapped;
use crate::progress::Progress;
use crate::render::units::grouped;

/// The level where none is asked for: higher ones take many times as long for a few percent.
pub(crate) const LEVEL: i32 = 9;

/// How to pack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// The level of zstd.
    pub(crate) level: i32,
    /// Files that have no end are packed, too.
    pub(crate) takes_unfinished: bool,
    /// So many files at once.
    pub(crate) threads: usize,
    pub(crate) is_quiet: bool,
}

/// How far all threads are together.
struct Meter {
    bytes: AtomicU64,
    progress: Mutex<Progress>,
}

impl Meter {
    fn add(&self, bytes: usize) {
        let bytes = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        // Whoever has it shows it; the others go on.
        if let Ok(mut progress) = self.progress.try_lock()
            && progress.is_due()
        {
            progress.show(bytes, None);
        }
    }

    /// Says what became of a file.
    fn tell(&self, path: &Path, before: u64, after: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.clear();
        let shown = escape(path.as_os_str().as_encoded_bytes());
        // Nobody may be reading; the other files are to be packed all the same.
        let _ = writeln!(io::stdout(), "{shown}   {} -> {} bytes", grouped(before), grouped(after));
    }
}

/// Packs each file of the recordings.
pub(crate) fn pack(inputs: &[PathBuf], how: How) -> anyhow::Result<()> {
    if !zstd::compression_level_range().contains(&how.level) {
        bail!("--level {}: zstd has {:?}", how.level, zstd::compression_level_range());
    }
    for input in inputs {
        // Says what is no recording, or one of a newer version, as every view does.
        Trace::open(std::slice::from_ref(input))?;
        let files = files(input)?;
        let _lock = lock(if input.is_dir() { input } else { input.parent().unwrap_or(Path::new("")) })?;
        let packed = pack_files(&files, how);
        if packed.iter().any(Result::is_ok) {
            // It is of the files that were there before.
            crate::index::remove(input);
        }
        packed.into_iter().collect::<anyhow::Result<()>>()?;
    }
    Ok(())
}

/// Packs files: what became of each. After one that cannot be packed no other is begun.
fn pack_files(files: &[PathBuf], how: How) -> Vec<anyhow::Result<()>> {
    let total = files.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum();
    let meter = Meter { bytes: AtomicU64::new(0), progress: Mutex::new(Progress::new(total, how.is_quiet)) };
    let mut packed: Vec<Option<_>> = files.iter().map(|_| None).collect();
    let next = Mutex::new(files.iter().zip(&mut packed));
    let failed = AtomicBool::new(false);
    let work = || {
        let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        while !failed.load(Ordering::Relaxed)
            && let Some((path, packed)) = take()
        {
            let result = pack_file(path, how, &meter);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            *packed = Some(result);
        }
    };
    let threads = how.threads.min(files.len());
    thread::scope(|scope| {
        // Where the system has no thread to give, the others pack its files.
        (1..threads).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
    // A packed file makes room once it has replaced what it was made of: where there was none for several at once, there may be
    // for one after the other.
    let was_full = |error: &anyhow::Error| error.root_cause().downcast_ref().is_some_and(is_full);
    let mut goes_on = threads > 1 && packed.iter().flatten().all(|packed| packed.as_ref().err().is_none_or(was_full));
    for (path, packed) in files.iter().zip(&mut packed) {
        if goes_on && !matches!(packed, Some(Ok(()))) {
            let result = pack_file(path, how, &meter);
            goes_on = result.is_ok();
            *packed = Some(result);
        }
    }
    packed.into_iter().flatten().collect()
}

/// Locks a directory as its recorder does: what was replaced under one would go on growing where nobody finds it.
fn lock(dir: &Path) -> anyhow::Result<File> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let lock = File::open(dir).with_context(|| format!("{}: cannot be read", dir.display()))?;
    // A file system without locks has none of a recorder, either.
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        bail!("{}: a recorder or another pack is at work on it: pack it when that has ended", dir.display());
    }
    Ok(lock)
}

/// The files of a recording: itself, or those in it.
fn files(input: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = || format!("{}: cannot be read", input.display());
    if !fs::metadata(input).with_context(shown)?.is_dir() {
        return Ok(vec![input.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(input).with_context(shown)? {
        let path = entry.with_context(shown)?.path();
        if path.extension().is_some_and(|extension| extension == "out") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("{}: no recording: there is no cpuN.out", input.display());
    }
    Ok(files)
}

/// Whether there was no room on the disk.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn pack_file(path: &Path, how: How, meter: &Meter) -> anyhow::Result<()> {
    let shown = path.display();
    let mut name = path.as_os_str().to_owned();
    name.push(".packing");
    let temporary = PathBuf::from(name);
    let packed = with_mapped(path, |bytes| -> anyhow::Result<(u64, u64)> {
        let Some(Piece::Block { .. }) = pieces(bytes).next() else { bail!("{shown}: is no file of kmemtraced") };
        let ended = pieces(bytes).any(|piece| matches!(piece, Piece::Block { info, .. } if info.kind == kind::END));
        if !ended && !how.takes_unfinished {
            bail!("{shown}: has no end: its recorder was killed, or it was cut: pack it with -f");
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let after = file.and_then(|file| write(bytes, &file, how.level, meter)).map_err(|error| {
            let remedy = if is_full(&error) { " (it needs room beside the file that it is to replace)" } else { "" };
            anyhow::Error::new(error).context(format!("{}: cannot be written{remedy}", temporary.display()))
        })?;
        Ok((bytes.len() as u64, after))
    });
    let done = (|| {
        let sizes = packed.with_context(|| format!("{shown}: cannot be read"))??;
        fs::rename(&temporary, path).with_context(|| format!("{shown}: cannot be replaced"))?;
        Ok(sizes)
    })();
    match done {
        Ok((before, after)) => {
            meter.tell(path, before, after);
            Ok(())
        }
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(error)
        }
    }
}

/// Writes `bytes` anew, and has it on the disk; its length.
fn write(bytes: &[u8], file: &File, level: i32, meter: &Meter) -> io::Result<u64> {
    let mut out = BufWriter::new(file);
    let (mut compressor, mut expander) = (Compressor::new(level)?, Decompressor::new()?);
    let mut written = 0;
    let mut frame = Vec::new();
    for piece in pieces(bytes) {
        let (Piece::Block { whole, .. } | Piece::Other(whole)) = piece;
        let part = match piece {
            Piece::Block { info, payload, .. } if is_packable(&info) => {
                frame.resize(HEADER_BYTES + zstd::zstd_safe::compress_bound(payload.len()), 0);
                let len = compressor.compress_to_buffer(payload, &mut frame[HEADER_BYTES..])?;
                let sealed = &mut frame[..HEADER_BYTES + len];
                if len < payload.len() {
                    // The original is about to go.
                    if expander.decompress(&sealed[HEADER_BYTES..], payload.len())? != payload {
                        return Err(io::Error::other("a block does not come back from zstd as it was"));
                    }
                    block::seal(sealed, &BlockInfo { flags: info.flags | FLAG_ZSTD, ..info }, Some(payload.len()));
                    sealed
                } else {
                    whole
                }
            }
            _ => whole,
        };
        out.write_all(part)?;
        meter.add(whole.len());
        written += part.len() as u64;
    }
    out.flush()?;
    file.sync_all()?;
    Ok(written)
}

fn is_packable(info: &BlockInfo) -> bool {
    info.flags & FLAG_ZSTD == 0 && matches!(info.kind, kind::DATA | kind::META)
}
