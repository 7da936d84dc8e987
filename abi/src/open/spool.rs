//! Input that cannot be read twice as it lies there, copied into a temporary file: standard input, files packed with gzip, xz or zstd,
//! and texts of two bytes a character.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use flate2::bufread::MultiGzDecoder;
use memchr::memchr_iter;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::utf16::{self, Decoder};
use super::xz;
use crate::random;

/// Bytes that are written at once; a run of zeros of this length becomes a hole.
const BLOCK: usize = 64 << 10;
/// Largest ratio of unpacked to packed bytes that is believed. It is zlib's largest; texts have some 20.
const MAX_RATIO: u64 = 1032;
/// Bytes that any file may unpack to.
const LEAST_UNPACKED: u64 = 16 << 20;
/// Ends of lines that a packed byte may unpack to. A page_owner dump has two to four, and a line takes longer than its bytes.
const MAX_LINES: u64 = 16;
/// Ends of lines that any file may unpack to.
const LEAST_LINES: u64 = 2 << 20;
/// First bytes of packed files.
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// Copy of standard input, which can be read once in the life of the process.
pub(super) fn of_stdin() -> io::Result<File> {
    static COPY: OnceLock<File> = OnceLock::new();
    if let Some(copy) = COPY.get() {
        return copy.try_clone();
    }
    let copy = Spool::fill(&mut io::stdin().lock())?;
    COPY.get_or_init(|| copy).try_clone()
}

/// True for the first bytes of a packed file.
pub(super) fn is_packed(sample: &[u8]) -> bool {
    [GZIP, ZSTD, xz::MAGIC].iter().any(|mark| sample.starts_with(mark)) || utf16::order(sample).is_some()
}

/// A copy of what `from` reads.
pub(super) fn copy(from: &mut impl Read) -> io::Result<File> {
    Spool::fill(from)
}

/// The file that was packed into `file`; `None` for a file that is not packed. `sample` is its first bytes.
pub(super) fn unpacked(file: &File, sample: &[u8]) -> io::Result<Option<File>> {
    let mut packed = BufReader::with_capacity(BLOCK, ReadAt::new(file));
    let spool = || -> io::Result<Spool> { Ok(Spool { most: Some(Most::of(file.metadata()?.len())), ..Spool::new()? }) };
    let unpacked = if sample.starts_with(GZIP) {
        spool()?.filled(&mut MultiGzDecoder::new(packed))
    } else if sample.starts_with(ZSTD) {
        let mut decoder = zstd::Decoder::with_buffer(packed)?;
        // The window of `zstd --long`, and no more: it decides how much memory is taken.
        decoder.window_log_max(27)?;
        spool()?.filled(&mut decoder)
    } else if sample.starts_with(xz::MAGIC) {
        let mut spool = spool()?;
        xz::unpack(&mut packed, &mut spool)?;
        spool.finish()
    } else if let Some(order) = utf16::order(sample) {
        Spool::fill(&mut Decoder::new(packed, order))
    } else {
        return Ok(None);
    };
    unpacked.map(Some)
}

/// What a packed file may still unpack to.
#[derive(Clone, Copy, Debug)]
struct Most {
    bytes: u64,
    lines: u64,
}

impl Most {
    /// The limit for a packed file of so many bytes.
    fn of(packed: u64) -> Most {
        Most { bytes: most_unpacked(packed), lines: packed.saturating_mul(MAX_LINES).saturating_add(LEAST_LINES) }
    }

    /// Takes bytes that were unpacked.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let lines = memchr_iter(b'\n', bytes).count() as u64;
        let left = self.bytes.checked_sub(bytes.len() as u64).zip(self.lines.checked_sub(lines));
        (self.bytes, self.lines) = left.ok_or_else(too_large)?;
        Ok(())
    }
}

/// Bytes that so many packed bytes may unpack to.
pub(super) fn most_unpacked(packed: u64) -> u64 {
    packed.saturating_mul(MAX_RATIO).saturating_add(LEAST_UNPACKED)
}

pub(super) fn too_large() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "it unpacks to far more than any trace does")
}

/// A temporary file of what `write` writes.
pub(super) fn filled(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<File> {
    let mut spool = Spool::new()?;
    write(&mut spool)?;
    spool.finish()
}

/// Reader of a file from its begin, whatever else reads it.
pub(super) struct ReadAt<'f> {
    file: &'f File,
    offset: u64,
}

impl ReadAt<'_> {
    pub(super) fn new(file: &File) -> ReadAt<'_> {
        ReadAt::from(file, 0)
    }

    /// Reader from this byte on.
    pub(super) fn from(file: &File, offset: u64) -> ReadAt<'_> {
        ReadAt { file, offset }
    }
}

impl Read for ReadAt<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset = self.offset.saturating_add(read as u64);
        Ok(read)
    }
}

/// Zeros in a row that a stream may have, in bytes: they take no room, and `/dev/zero` has no end.
const MAX_ZEROS: u64 = 4 << 30;

/// Temporary file without a name, which takes at most half of the free space.
struct Spool {
    file: File,
    dir: PathBuf,
    /// Bytes that are not written yet, less than a block.
    block: Vec<u8>,
    /// Bytes before them.
    len: u64,
    /// Bytes that may still be stored.
    room: u64,
    /// Zeros before the block.
    zeros: u64,
    /// Limit of what was packed.
    most: Option<Most>,
}

impl Spool {
    fn new() -> io::Result<Spool> {
        let dir = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map_or("/var/tmp".into(), PathBuf::from);
        let in_dir = |error: io::Error| {
            io::Error::new(error.kind(), format!("no temporary file in {}: {error}; set TMPDIR", dir.display()))
        };
        let file = unnamed(&dir).map_err(in_dir)?;
        let free = rustix::fs::fstatvfs(&file)?;
        let room = free.f_bavail.saturating_mul(free.f_frsize) / 2;
        Ok(Spool { file, dir, block: Vec::with_capacity(BLOCK), len: 0, room, zeros: 0, most: None })
    }

    fn fill(from: &mut impl Read) -> io::Result<File> {
        Spool::new()?.filled(from)
    }

    fn filled(mut self, from: &mut impl Read) -> io::Result<File> {
        io::copy(from, &mut self)?;
        self.finish()
    }

    fn write_block(&mut self) -> io::Result<()> {
        if let Some(most) = &mut self.most {
            most.take(&self.block)?;
        }
        if self.block.iter().any(|&byte| byte != 0) {
            self.room = self.room.checked_sub(self.block.len() as u64).ok_or_else(|| self.is_full())?;
            self.file.write_all_at(&self.block, self.len)?;
            self.zeros = 0;
        } else {
            self.zeros = self.zeros.saturating_add(self.block.len() as u64);
            if self.zeros > MAX_ZEROS {
                let what = "more than 4 GiB of zeros on end: name the file, if there is one, in place of a stream";
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
        }
        self.len = self.written();
        self.block.clear();
        Ok(())
    }

    /// Bytes that were written so far.
    fn written(&self) -> u64 {
        self.len.saturating_add(self.block.len() as u64)
    }

    fn is_full(&self) -> io::Error {
        let dir = self.dir.display();
        let what = format!("its copy takes more than half of the free space in {dir}: set TMPDIR to another directory");
        io::Error::new(ErrorKind::StorageFull, what)
    }

    fn finish(mut self) -> io::Result<File> {
        self.write_block()?;
        self.file.set_len(self.len)?;
        Ok(self.file)
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.get(..BLOCK.saturating_sub(self.block.len())).unwrap_or(bytes);
        self.block.extend_from_slice(taken);
        if self.block.len() == BLOCK {
            self.write_block()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A new file in `dir` that has no name, or none any more.
fn unnamed(dir: &PathBuf) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(CWD, dir, flags | OFlags::TMPFILE, mode) {
        return Ok(File::from(file));
    }
    // Some file systems have no such files.
    let mut number = [0; 8];
    random::fill(&mut number)?;
    let path = dir.join(format!(".kmemtrace-{:016x}", u64::from_ne_bytes(number)));
    let file = rustix::fs::openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlinkat(CWD, &path, AtFlags::empty())?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(packed: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut file = tempfile::tempfile()?;
        file.write_all(packed)?;
        let Some(unpacked) = unpacked(&file, &packed[..packed.len().min(16)])? else { return Ok(None) };
        let mut bytes = Vec::new();
        ReadAt::new(&unpacked).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn plain() -> Vec<u8> {
        let mut plain: Vec<u8> = (0..40_000u32).flat_map(u32::to_le_bytes).collect();
        plain.extend(vec![0; 200_000]);
        plain.extend_from_slice(b"end");
        plain
    }

    #[test]
    fn packed_files_come_out_as_they_were() {
        let plain = plain();
        let (mut gzip, mut xz) = (Vec::new(), Vec::new());
        flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::fast()).write_all(&plain).unwrap();
        lzma_rs::xz_compress(&mut &plain[..], &mut xz).unwrap();
        let zstd = zstd::encode_all(&plain[..], 1).unwrap();
        for packed in [&gzip, &xz, &zstd] {
            assert!(unpack(packed).unwrap().as_deref() == Some(&plain[..]));
            assert!(unpack(&[&packed[..], &packed[..]].concat()).unwrap().unwrap() == plain.repeat(2));
            // A cut one is an error, and no shorter text.
            assert!(unpack(&packed[..packed.len() / 2]).is_err());
        }
        assert!(unpack(b"neither").unwrap().is_none());
    }

    #[test]
    fn what_unpacks_to_more_than_any_trace_is_refused() {
        let packed = |bytes: &[u8]| unpack(&zstd::encode_all(bytes, 1).unwrap()).map(|bytes| bytes.unwrap().len());
        let told = |error: io::Error| error.to_string().contains("unpacks to far more");
        let most = LEAST_UNPACKED as usize;
        assert_eq!(packed(&vec![b'x'; most]).unwrap(), most);
        assert!(packed(&vec![b'x'; 2 * most]).is_err_and(told));
        let most = LEAST_LINES as usize;
        assert_eq!(packed(&vec![b'\n'; most]).unwrap(), most);
        assert!(packed(&vec![b'\n'; 2 * most]).is_err_and(told));
    }

    #[test]
    fn damage_is_an_error_or_other_bytes() {
        let mut xz = Vec::new();
        lzma_rs::xz_compress(&mut &b"a text of some length, a text of some length"[..], &mut xz).unwrap();
        for bit in 0..xz.len() * 8 {
            let mut bad = xz.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let _ = unpack(&bad);
        }
    }
}
