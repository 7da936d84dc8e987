//! A part of a file that holds raw bytes: a range of it, or chunks that are stored compressed one by one.
//!
//! Positioned reads alone: several parts of one file are read at the same time, and one part may be read twice.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use crate::disk::walk::read_at;
use crate::target::Endian;

/// Largest chunk that is read, stored or expanded. trace-cmd writes ten pages into one; a file may name any number.
const MAX_CHUNK: u32 = 16 << 20;

/// Largest chunk that is expanded in one call.
const AT_ONCE: u32 = 1 << 20;

/// Compression of chunks, by the name that `trace.dat` has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// `"zstd"`: a frame for each chunk.
    Zstd,
    /// `"zlib"`: a zlib stream for each chunk.
    Zlib,
}

impl Compression {
    /// Expands `stored` to exactly `expanded_len` bytes.
    pub(crate) fn expand(self, stored: &[u8], expanded_len: u32) -> io::Result<Vec<u8>> {
        let len = expanded_len as usize;
        let limit = u64::from(expanded_len) + 1;
        let mut expanded = Vec::new();
        match self {
            Compression::Zstd if expanded_len <= AT_ONCE => expanded = zstd::bulk::decompress(stored, len)?,
            // Memory is taken as bytes come, whatever the length says.
            Compression::Zstd => {
                zstd::stream::read::Decoder::new(stored)?.take(limit).read_to_end(&mut expanded)?;
            }
            Compression::Zlib => {
                flate2::read::ZlibDecoder::new(stored).take(limit).read_to_end(&mut expanded)?;
            }
        }
        if expanded.len() == len {
            return Ok(expanded);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk does not expand to the size it claims"))
    }
}

/// Context of zstd that is used again for each chunk: a new one costs about as much as a chunk.
#[derive(Default)]
struct Context(Option<zstd::bulk::Decompressor<'static>>);

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

impl Context {
    /// Expands a frame of zstd to exactly `len` bytes of `expanded`, which is of the chunk before.
    fn expand(&mut self, stored: &[u8], len: usize, expanded: &mut Vec<u8>) -> io::Result<()> {
        let context = match &mut self.0 {
            Some(context) => context,
            none => none.insert(zstd::bulk::Decompressor::new()?),
        };
        expanded.resize(len, 0);
        let written = context.decompress_to_buffer(stored, expanded.as_mut_slice())?;
        if written == len { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

/// Chunks that were not expanded yet, and what is left of the last one.
#[derive(Debug)]
struct Chunks {
    compression: Compression,
    endian: Endian,
    /// Chunks that were not read yet; `None` before the count in front of them was read.
    left: Option<u32>,
    context: Context,
    /// Bytes of the last chunk as they are stored; kept for their memory.
    stored: Vec<u8>,
    expanded: Vec<u8>,
    taken: usize,
}

impl Chunks {
    /// Expands the bytes in `stored`.
    fn expand(&mut self, expanded_len: u32) -> io::Result<()> {
        self.taken = 0;
        if self.compression == Compression::Zstd && expanded_len <= AT_ONCE {
            return self.context.expand(&self.stored, expanded_len as usize, &mut self.expanded);
        }
        self.expanded = self.compression.expand(&self.stored, expanded_len)?;
        Ok(())
    }
}

/// A part of a file.
#[derive(Debug)]
pub(crate) struct Part {
    file: Arc<File>,
    start: u64,
    /// Bytes in the file, about where they are chunks.
    len: u64,
    /// Offset of the next byte to read, from `start`.
    at: u64,
    chunks: Option<Chunks>,
}

impl Part {
    /// The bytes of `file` from `start` to `start + len`.
    pub(crate) fn range(file: Arc<File>, start: u64, len: u64) -> Part {
        Part { file, start, len, at: 0, chunks: None }
    }

    /// The chunks of `file` from `start` on: `u32` number of them, then for each `u32` stored and `u32` expanded bytes before the stored
    /// ones. `len` bytes in all, about: trace-cmd 3.1 counts four too few.
    pub(crate) fn chunks(file: Arc<File>, start: u64, len: u64, compression: Compression, endian: Endian) -> Part {
        let (context, stored, expanded) = (Context::default(), Vec::new(), Vec::new());
        let chunks = Chunks { compression, endian, left: None, context, stored, expanded, taken: 0 };
        Part { file, start, len, at: 0, chunks: Some(chunks) }
    }

    /// The same part, from its first byte.
    pub(crate) fn again(&self) -> Part {
        let file = Arc::clone(&self.file);
        match &self.chunks {
            None => Part::range(file, self.start, self.len),
            Some(chunks) => Part::chunks(file, self.start, self.len, chunks.compression, chunks.endian),
        }
    }

    /// Bytes of the file that it takes, about.
    pub(crate) fn stored_len(&self) -> u64 {
        self.len
    }

    /// Bytes of the file that were read.
    pub(crate) fn stored_read(&self) -> u64 {
        self.at
    }

    /// Fills `bytes` unless the part ends before.
    ///
    /// # Errors
    /// As for its [`Read::read`].
    pub(crate) fn fill_from(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut len = 0;
        while let Some(room) = bytes.get_mut(len..).filter(|room| !room.is_empty()) {
            match self.read(room)? {
                0 => break,
                more => len = len.saturating_add(more),
            }
        }
        Ok(len)
    }

    fn read_chunk(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.chunks.as_ref().is_some_and(|chunks| chunks.taken == chunks.expanded.len()) {
            if !self.expand_next()? {
                return Ok(0);
            }
        }
        let Some(chunks) = &mut self.chunks else { return Ok(0) };
        let len = chunks.expanded.get(chunks.taken..).unwrap_or_default().read(bytes)?;
        chunks.taken = chunks.taken.saturating_add(len);
        Ok(len)
    }

    /// Expands the next chunk; false where there is none. A chunk that makes no sense is the last one: what follows cannot be found.
    fn expand_next(&mut self) -> io::Result<bool> {
        let Some(endian) = self.chunks.as_ref().map(|chunks| chunks.endian) else { return Ok(false) };
        let left = match self.chunks.as_ref().and_then(|chunks| chunks.left) {
            Some(left) => left,
            None if self.len == 0 => 0,
            None => u32_of(endian, self.take()?),
        };
        if let Some(chunks) = &mut self.chunks {
            chunks.left = Some(left.saturating_sub(1));
        }
        if left == 0 {
            return Ok(false);
        }
        let [a, b, c, d, e, f, g, h] = self.take()?;
        let (stored_len, expanded_len) = (u32_of(endian, [a, b, c, d]), u32_of(endian, [e, f, g, h]));
        if stored_len > MAX_CHUNK || expanded_len > MAX_CHUNK {
            return self.give_up("the length of a chunk is out of range");
        }
        let mut stored = self.chunks.as_mut().map(|chunks| std::mem::take(&mut chunks.stored)).unwrap_or_default();
        stored.resize(stored_len as usize, 0);
        self.fill(&mut stored)?;
        let Some(chunks) = &mut self.chunks else { return Ok(false) };
        chunks.stored = stored;
        if chunks.expand(expanded_len).is_err() {
            // Nothing of a chunk that does not expand is handed out.
            chunks.taken = chunks.expanded.len();
            return self.give_up("a chunk does not expand");
        }
        Ok(true)
    }

    fn give_up(&mut self, reason: &str) -> io::Result<bool> {
        if let Some(chunks) = &mut self.chunks {
            chunks.left = Some(0);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let len = read_at(&self.file, bytes, self.start.saturating_add(self.at))?;
        self.at = self.at.saturating_add(len as u64);
        if len < bytes.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl Read for Part {
    /// # Errors
    /// Errors of the system; `UnexpectedEof` where the file ends inside the part; `InvalidData` for a chunk that makes no sense.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.chunks.is_some() {
            return self.read_chunk(bytes);
        }
        let left = usize::try_from(self.len.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let room = bytes.split_at_mut(left.min(bytes.len())).0;
        if room.is_empty() {
            return Ok(0);
        }
        let len = read_at(&self.file, room, self.start.saturating_add(self.at))?;
        self.at = self.at.saturating_add(len as u64);
        if len == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(len) }
    }
}

fn u32_of(endian: Endian, bytes: [u8; 4]) -> u32 {
    match endian {
        Endian::Little => u32::from_le_bytes(bytes),
        Endian::Big => u32::from_be_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file)
    }

    fn all(mut part: Part) -> (Vec<u8>, Option<io::ErrorKind>) {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match part.read(&mut buffer) {
                Ok(0) => return (bytes, None),
                Ok(len) => bytes.extend(&buffer[..len]),
                Err(error) => return (bytes, Some(error.kind())),
            }
        }
    }

    /// Chunks as trace-cmd writes them, of `pieces`.
    fn chunks(pieces: &[&[u8]], pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut bytes = (pieces.len() as u32).to_be_bytes().to_vec();
        for piece in pieces {
            let stored = pack(piece);
            bytes.extend((stored.len() as u32).to_be_bytes());
            bytes.extend((piece.len() as u32).to_be_bytes());
            bytes.extend(stored);
        }
        bytes
    }

    #[test]
    fn a_range_is_read_twice_and_an_early_end_is_told() {
        let held = file(b"0123456789");
        let part = Part::range(Arc::clone(&held), 2, 5);
        assert_eq!(all(part.again()), (b"23456".to_vec(), None));
        assert_eq!(all(part), (b"23456".to_vec(), None));
        assert_eq!(all(Part::range(held, 8, 5)), (b"89".to_vec(), Some(io::ErrorKind::UnexpectedEof)));
    }

    #[test]
    fn chunks_are_taken_by_their_number_and_not_by_the_length() {
        let zlib = |piece: &[u8]| {
            let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(piece).unwrap();
            packed.finish().unwrap()
        };
        let zstd = |piece: &[u8]| zstd::bulk::compress(piece, 1).unwrap();
        let pieces: [&[u8]; 3] = [b"one page ", &[7; 5000], b" the end"];
        for (compression, bytes) in
            [(Compression::Zstd, chunks(&pieces, zstd)), (Compression::Zlib, chunks(&pieces, zlib))]
        {
            let held = file(&[b"head", &bytes[..], b"more"].concat());
            let len = bytes.len() as u64 - 4;
            let part = Part::chunks(Arc::clone(&held), 4, len, compression, Endian::Big);
            assert_eq!(all(part.again()), (pieces.concat(), None));
            assert_eq!(all(part), (pieces.concat(), None));
            // Any byte that is changed ends the part or changes bytes; it is no panic, and no memory is taken by a length.
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x80;
                all(Part::chunks(file(&damaged), 0, len, compression, Endian::Big));
                all(Part::chunks(file(&bytes[..at]), 0, len, compression, Endian::Big));
            }
        }
    }
}
