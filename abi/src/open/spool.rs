//! Input that cannot be read twice as it lies there, copied into a temporary file: standard input, files packed with gzip, xz or zstd,
//! and texts of two bytes a character.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crc::{CRC_32_ISO_HDLC, CRC_64_XZ, Crc, Digest};
use flate2::bufread::MultiGzDecoder;
use memchr::memchr_iter;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::utf16::{self, Decoder};
use crate::random;

/// Bytes that are written at once; a run of zeros of this length becomes a hole.
const BLOCK: usize = 64 << 10;
/// Limit of what an xz file expands to between two points at which its dictionary begins anew, in bytes: all of it is in memory at once.
const MAX_XZ: u64 = 64 << 20;
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
const XZ: &[u8] = b"\xfd7zXZ\0";

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
    [GZIP, ZSTD, XZ].iter().any(|mark| sample.starts_with(mark)) || utf16::order(sample).is_some()
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
    } else if sample.starts_with(XZ) {
        let mut spool = spool()?;
        unpack_xz(&mut packed, &mut spool)?;
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

/// Checksums of xz: of headers, index and footer, and of a block's content; another one, SHA-256, is not compared.
static CRC_32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static CRC_64: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);

/// Expands an xz file (tukaani.org/xz/xz-file-format.txt): streams of blocks with the filter LZMA2 alone.
fn unpack_xz(packed: &mut impl BufRead, out: &mut Spool) -> io::Result<()> {
    loop {
        // Streams follow one another, with padding of zeros between.
        while packed.fill_buf()?.first() == Some(&0) {
            packed.consume(1);
        }
        if packed.fill_buf()?.is_empty() {
            return Ok(());
        }
        let header: [u8; 12] = take(packed)?;
        let flags = CRC_32.checksum(&[header[6], header[7]]).to_le_bytes();
        if !header.starts_with(XZ) || [header[8], header[9], header[10], header[11]] != flags {
            return Err(bad_xz("is damaged"));
        }
        while unpack_block(packed, out, header[7] & 0xf)? {}
        // The index repeats sizes; its records are variable-length numbers, a multiple of four bytes in all, then a checksum.
        let mut index = Counted { from: packed, digest: CRC_32.digest(), len: 0 };
        index.add(&[0]);
        let records = number(&mut index)?;
        for _ in 0..records.saturating_mul(2) {
            number(&mut index)?;
        }
        for _ in 0..padding(index.len) {
            take::<1>(&mut index)?;
        }
        let sum = index.digest.finalize();
        let stored: [u8; 4] = take(packed)?;
        // The footer: checksum, size of the index and flags, and a mark.
        let footer: [u8; 12] = take(packed)?;
        let (of_footer, rest) = footer.split_at(4);
        let (fields, mark) = rest.split_at(6);
        if stored != sum.to_le_bytes() || of_footer != CRC_32.checksum(fields).to_le_bytes() || mark != b"YZ" {
            return Err(bad_xz("is damaged"));
        }
    }
}

/// Reader that counts what is read, and adds it to a checksum.
struct Counted<'f, R> {
    from: &'f mut R,
    digest: Digest<'static, u32>,
    len: u64,
}

impl<R> Counted<'_, R> {
    fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.len = self.len.saturating_add(bytes.len() as u64);
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(buffer)?;
        self.add(buffer.get(..len).unwrap_or_default());
        Ok(len)
    }
}

/// Checksum of a block's content, by its kind.
enum BlockSum {
    Crc32(Digest<'static, u32>),
    Crc64(Digest<'static, u64>),
    Other,
}

impl BlockSum {
    fn of_kind(kind: u8) -> BlockSum {
        match kind {
            1 => BlockSum::Crc32(CRC_32.digest()),
            4 => BlockSum::Crc64(CRC_64.digest()),
            _ => BlockSum::Other,
        }
    }

    fn is(self, stored: &[u8]) -> bool {
        match self {
            BlockSum::Crc32(digest) => digest.finalize().to_le_bytes() == stored,
            BlockSum::Crc64(digest) => digest.finalize().to_le_bytes() == stored,
            BlockSum::Other => true,
        }
    }
}

/// Writer of a block's content.
struct Summed<'s> {
    out: &'s mut Spool,
    sum: BlockSum,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(bytes)?;
        let bytes = bytes.get(..len).unwrap_or_default();
        match &mut self.sum {
            BlockSum::Crc32(digest) => digest.update(bytes),
            BlockSum::Crc64(digest) => digest.update(bytes),
            BlockSum::Other => {}
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Expands one block, whose checksum is of this kind; false at the index, whose first byte is taken.
fn unpack_block(packed: &mut impl BufRead, out: &mut Spool, kind: u8) -> io::Result<bool> {
    let [size] = take(packed)?;
    if size == 0 {
        return Ok(false);
    }
    let [flags] = take(packed)?;
    let mut header = vec![0; usize::from(size).saturating_mul(4).saturating_add(2)];
    packed.read_exact(&mut header)?;
    let mut fields = &header[..];
    for bit in [0x40, 0x80] {
        if flags & bit != 0 {
            number(&mut fields)?;
        }
    }
    if flags & 0x3f != 0 || number(&mut fields)? != 0x21 {
        return Err(bad_xz("has a filter that is not read"));
    }
    let mut read = 0;
    let mut content = Summed { out, sum: BlockSum::of_kind(kind) };
    while let Some(chunks) = next_chunks(packed, &mut read)? {
        if let Err(error) = lzma_rs::lzma2_decompress(&mut &chunks[..], &mut content) {
            return Err(match error {
                lzma_rs::error::Error::IoError(error) if error.kind() != ErrorKind::UnexpectedEof => error,
                _ => bad_xz("is damaged"),
            });
        }
    }
    // The header is a multiple of four bytes long.
    for _ in 0..padding(read) {
        take::<1>(packed)?;
    }
    let mut stored = [0; 64];
    let bytes = if kind == 0 { 0 } else { 4usize << (kind.saturating_sub(1) / 3) };
    let stored = stored.get_mut(..bytes).unwrap_or_default();
    packed.read_exact(stored)?;
    if content.sum.is(stored) { Ok(true) } else { Err(bad_xz("is damaged")) }
}

/// The LZMA2 chunks up to the next that begins with an empty dictionary, with an end mark behind them; `None` at the end mark.
fn next_chunks(packed: &mut impl BufRead, read: &mut u64) -> io::Result<Option<Vec<u8>>> {
    let (mut chunks, mut expanded) = (Vec::new(), 0u64);
    loop {
        let control = *packed.fill_buf()?.first().ok_or(ErrorKind::UnexpectedEof)?;
        let is_anew = control == 1 || control >= 0xe0;
        if control == 0 || is_anew && !chunks.is_empty() {
            if chunks.is_empty() {
                packed.consume(1);
                *read = read.saturating_add(1);
                return Ok(None);
            }
            chunks.push(0);
            return Ok(Some(chunks));
        }
        let head = match control {
            ..0x80 => 3,
            0x80..0xc0 => 5,
            0xc0.. => 6,
        };
        let size = |high, middle, low| u32::from_be_bytes([0, high, middle, low]).saturating_add(1);
        let (len, grows) = match *append(packed, head, &mut chunks)? {
            [0x80..=0xff, a, b, c, d, ..] => (size(0, c, d), size(control & 0x1f, a, b)),
            [_, a, b, ..] => (size(0, a, b), size(0, a, b)),
            _ => return Err(bad_xz("is damaged")),
        };
        expanded = expanded.saturating_add(grows.into());
        if expanded > MAX_XZ {
            return Err(bad_xz("is one large block: unpack it with xz -d, and name what comes out"));
        }
        append(packed, len, &mut chunks)?;
        *read = read.saturating_add(head.into()).saturating_add(len.into());
    }
}

fn bad_xz(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the xz file {what}"))
}

/// Bytes up to the next multiple of four.
fn padding(len: u64) -> u64 {
    len.wrapping_neg() % 4
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Adds the next `len` bytes to a vector, and returns them.
fn append<'v>(from: &mut impl BufRead, len: u32, to: &'v mut Vec<u8>) -> io::Result<&'v [u8]> {
    let begin = to.len();
    to.resize(begin.saturating_add(len as usize), 0);
    #[expect(clippy::indexing_slicing, reason = "there are at least `begin` bytes")]
    let added = &mut to[begin..];
    from.read_exact(added)?;
    Ok(added)
}

/// A number of variable length, seven bits a byte.
fn number(from: &mut impl Read) -> io::Result<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let [byte] = take(from)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(bad_xz("is damaged"))
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

    const XZ_OF_TEXT: [u8; 72] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01, 0x16, 0x00,
        0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x0c, 0x6b, 0x6d, 0x61, 0x6c, 0x6c, 0x6f, 0x63, 0x2d, 0x36,
        0x34, 0x20, 0x35, 0x0a, 0x00, 0x00, 0x00, 0x00, 0x36, 0xbe, 0x03, 0x38, 0xa4, 0xd5, 0xa5, 0x11, 0x00, 0x01,
        0x25, 0x0d, 0x71, 0x19, 0xc4, 0xb6, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];

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

    /// By xz itself (`printf 'kmalloc-64 5\n' | xz --check=crc64`): small contents are stored as they are.
    #[test]
    fn no_damaged_byte_of_an_xz_file_comes_out_as_another_text() {
        let xz: Vec<u8> = XZ_OF_TEXT.to_vec();
        assert_eq!(unpack(&xz).unwrap().as_deref(), Some(&b"kmalloc-64 5\n"[..]));
        for at in 0..xz.len() {
            let mut bad = xz.clone();
            bad[at] ^= 1;
            let came = unpack(&bad).ok().flatten();
            assert!(came.is_none_or(|text| text == b"kmalloc-64 5\n"), "byte {at}");
            if at > 6 {
                assert!(unpack(&xz[..at]).is_err(), "cut at {at}");
            }
        }
    }
}
