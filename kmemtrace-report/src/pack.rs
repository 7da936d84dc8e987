//! `kmemtrace-report pack`: the files of a recording, each replaced by one that says the same in less room. Every byte that is no
//! whole block is copied as it is, so that a damaged file stays what it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
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

/// How small, what, and with how many threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// zstd's.
    pub(crate) level: i32,
    /// What has no end, too.
    pub(crate) unfinished: bool,
    /// Each packs a file.
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
        // If another thread is about to show it, it does.
        if let Ok(mut progress) = self.progress.try_lock()
            && progress.is_due()
        {
            progress.show(bytes, None);
        }
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
        // It is of the files that were there before.
        crate::index::remove(input);
        let mut failed = Ok(());
        for (path, packed) in files.iter().zip(packed) {
            match packed {
                Ok((before, after)) => {
                    let shown = escape(path.as_os_str().as_encoded_bytes());
                    // Nobody may be reading; other recordings are to be packed all the same.
                    let _ = writeln!(io::stdout(), "{shown}   {} -> {} bytes", grouped(before), grouped(after));
                }
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed?;
    }
    Ok(())
}

/// Packs files; how long each was and is now. After one that cannot be packed no other is begun.
fn pack_files(files: &[PathBuf], how: How) -> Vec<anyhow::Result<(u64, u64)>> {
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
    thread::scope(|scope| {
        // Where the system has no thread to give, the others pack its files.
        (1..how.threads.min(files.len())).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
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

fn pack_file(path: &Path, how: How, meter: &Meter) -> anyhow::Result<(u64, u64)> {
    let shown = path.display();
    let mut name = path.as_os_str().to_owned();
    name.push(".packing");
    let temporary = PathBuf::from(name);
    let packed = with_mapped(path, |bytes| -> anyhow::Result<(u64, u64)> {
        let Some(Piece::Block { .. }) = pieces(bytes).next() else { bail!("{shown}: is no file of kmemtraced") };
        let ended = pieces(bytes).any(|piece| matches!(piece, Piece::Block { info, .. } if info.kind == kind::END));
        if !ended && !how.unfinished {
            bail!("{shown}: has no end: its recorder was killed, or it was cut: pack it with -f");
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let file = file.with_context(|| format!("{}: cannot be written", temporary.display()))?;
        let after = write(bytes, &file, how.level, meter).map_err(|error| {
            // What is packed makes room for the next file, but only then.
            let is_crowded = error.kind() == io::ErrorKind::StorageFull && how.threads > 1;
            let remedy = if is_crowded { " (-j 1 needs room for one packed file at a time)" } else { "" };
            anyhow::Error::new(error).context(format!("{}: cannot be written{remedy}", temporary.display()))
        })?;
        Ok((bytes.len() as u64, after))
    });
    let done = (|| {
        let sizes = packed.with_context(|| format!("{shown}: cannot be read"))??;
        fs::rename(&temporary, path).with_context(|| format!("{shown}: cannot be replaced"))?;
        Ok(sizes)
    })();
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
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
