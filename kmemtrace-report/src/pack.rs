//! `kmemtrace-report pack`: the files of a recording, each replaced by one that says the same in less room. Every byte that is no
//! whole block is copied as it is, so that a damaged file stays what it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use kmemtrace_abi::block::{self, BlockInfo, FLAG_ZSTD, HEADER_BYTES, kind};
use kmemtrace_abi::escape::escape;
use kmemtrace_abi::pieces::{Piece, pieces};
use kmemtrace_abi::trace::Trace;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use zstd::bulk::{Compressor, Decompressor};

use crate::mapping::with_mapped;
use crate::render::units::grouped;

/// The level where none is asked for: higher ones take many times as long for a few percent.
pub(crate) const LEVEL: i32 = 9;

/// Packs each file of the recordings; `unfinished` ones, too, if that is asked for.
pub(crate) fn pack(inputs: &[PathBuf], level: i32, unfinished: bool) -> anyhow::Result<()> {
    if !zstd::compression_level_range().contains(&level) {
        bail!("--level {level}: zstd has {:?}", zstd::compression_level_range());
    }
    for input in inputs {
        // Says what is no recording, or one of a newer version, as every view does.
        Trace::open(std::slice::from_ref(input))?;
        let files = files(input)?;
        let _lock = lock(if input.is_dir() { input } else { input.parent().unwrap_or(Path::new("")) })?;
        for path in files {
            let (before, after) = pack_file(&path, level, unfinished)?;
            let shown = escape(path.as_os_str().as_encoded_bytes()).into_owned();
            // Nobody may be reading; the other files are to be packed all the same.
            let _ = writeln!(io::stdout(), "{shown}   {} -> {} bytes", grouped(before), grouped(after));
        }
        // It is of the files that were there before.
        crate::index::remove(input);
    }
    Ok(())
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

fn pack_file(path: &Path, level: i32, unfinished: bool) -> anyhow::Result<(u64, u64)> {
    let shown = path.display();
    let mut name = path.as_os_str().to_owned();
    name.push(".packing");
    let temporary = PathBuf::from(name);
    let packed = with_mapped(path, |bytes| -> anyhow::Result<(u64, u64)> {
        let Some(Piece::Block { .. }) = pieces(bytes).next() else { bail!("{shown}: is no file of kmemtraced") };
        let ended = pieces(bytes).any(|piece| matches!(piece, Piece::Block { info, .. } if info.kind == kind::END));
        if !ended && !unfinished {
            bail!("{shown}: has no end: its recorder was killed, or it was cut: pack it with -f");
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let file = file.with_context(|| format!("{}: cannot be written", temporary.display()))?;
        let after =
            write(bytes, &file, level).with_context(|| format!("{}: cannot be written", temporary.display()))?;
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
fn write(bytes: &[u8], file: &File, level: i32) -> io::Result<u64> {
    let mut out = BufWriter::new(file);
    let (mut compressor, mut expander) = (Compressor::new(level)?, Decompressor::new()?);
    let mut written = 0;
    let mut frame = Vec::new();
    for piece in pieces(bytes) {
        let part = match piece {
            Piece::Block { info, payload, whole } if is_packable(&info) => {
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
            Piece::Block { whole, .. } => whole,
            Piece::Other(bytes) => bytes,
        };
        out.write_all(part)?;
        written += part.len() as u64;
    }
    out.flush()?;
    file.sync_all()?;
    Ok(written)
}

fn is_packable(info: &BlockInfo) -> bool {
    info.flags & FLAG_ZSTD == 0 && matches!(info.kind, kind::DATA | kind::META)
}
