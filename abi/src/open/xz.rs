//! xz files (tukaani.org/xz/xz-file-format.txt), expanded as they are read.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use crc::{CRC_32_ISO_HDLC, CRC_64_XZ, Crc, Digest};

/// First bytes of a file.
pub(super) const MAGIC: &[u8] = b"\xfd7zXZ\0";
/// Limit of what a file expands to between two points at which its dictionary begins anew, in bytes: all of it is in memory at once.
const MAX_IN_MEMORY: u64 = 64 << 20;

/// Checksums of xz: of headers, index and footer, and of a block's content; another one, SHA-256, is not compared.
static CRC_32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static CRC_64: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);

/// Expands an xz file: streams of blocks with the filter LZMA2 alone.
///
/// # Errors
/// Those of reading and writing; `InvalidData` for a file that is damaged or ends early, or has another filter.
pub(super) fn unpack(packed: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    let is_cut = |error: &io::Error| error.kind() == ErrorKind::UnexpectedEof;
    unpack_streams(packed, out).map_err(|error| if is_cut(&error) { bad_xz("ends early") } else { error })
}

fn unpack_streams(packed: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
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
        if !header.starts_with(MAGIC) || [header[8], header[9], header[10], header[11]] != flags {
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
struct Summed<'s, W> {
    out: &'s mut W,
    sum: BlockSum,
}

impl<W: Write> Write for Summed<'_, W> {
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
fn unpack_block(packed: &mut impl BufRead, out: &mut impl Write, kind: u8) -> io::Result<bool> {
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
        if expanded > MAX_IN_MEMORY {
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

    const XZ_OF_TEXT: [u8; 72] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01, 0x16, 0x00,
        0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x0c, 0x6b, 0x6d, 0x61, 0x6c, 0x6c, 0x6f, 0x63, 0x2d, 0x36,
        0x34, 0x20, 0x35, 0x0a, 0x00, 0x00, 0x00, 0x00, 0x36, 0xbe, 0x03, 0x38, 0xa4, 0xd5, 0xa5, 0x11, 0x00, 0x01,
        0x25, 0x0d, 0x71, 0x19, 0xc4, 0xb6, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];

    fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        unpack(&mut &packed[..], &mut out).map(|()| out)
    }

    /// By xz itself (`printf 'kmalloc-64 5\n' | xz --check=crc64`): small contents are stored as they are.
    #[test]
    fn no_damaged_byte_of_an_xz_file_comes_out_as_another_text() {
        let xz: Vec<u8> = XZ_OF_TEXT.to_vec();
        assert_eq!(unpacked(&xz).unwrap(), b"kmalloc-64 5\n");
        for at in 0..xz.len() {
            let mut bad = xz.clone();
            bad[at] ^= 1;
            let came = unpacked(&bad).ok();
            assert!(came.is_none_or(|text| text == b"kmalloc-64 5\n"), "byte {at}");
            assert!(at == 0 || unpacked(&xz[..at]).is_err(), "cut at {at}");
        }
    }
}
