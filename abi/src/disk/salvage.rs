//! A trace file as its whole blocks, and the bytes between them: for a program that copies a file and must not change what it is.

use std::fs::File;
use std::io;

use crate::disk::block::{BlockInfo, Header, MAGIC, Major, crc32c, own_header};
use crate::disk::blocks::Window;

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// A whole block whose checksums are right.
    Block {
        /// Fields of its header.
        info: BlockInfo,
        /// The payload as it is stored.
        payload: &'a [u8],
        /// The block's bytes, header included.
        whole: &'a [u8],
    },
    /// Bytes that are not a block, or a block that this version cannot write.
    Other(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// The bytes of this part.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Piece::Block { whole, .. } | Piece::Other(whole) => whole,
        }
    }
}

/// The parts of a file in memory, in order: put together they are all of it.
pub fn pieces(file: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = file;
    std::iter::from_fn(move || {
        let piece = first_piece(rest, true)?;
        rest = rest.get(piece.bytes().len()..)?;
        Some(piece)
    })
}

/// Bytes of a part that is no block, at most, where a file is read.
const MAX_OTHER_BYTES: usize = 128 << 10;

/// Reads the parts of a file in order, from its present offset: put together they are all of it. Memory is bounded by the
/// longest block.
#[derive(Debug)]
pub struct PieceReader {
    window: Window,
    /// Bytes of the part that was handed out last.
    taken: usize,
}

impl PieceReader {
    /// A reader that has the file to itself.
    pub fn new(file: File) -> PieceReader {
        PieceReader { window: Window::new(file), taken: 0 }
    }

    /// The next part; `None` at the end of the file.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub fn next_piece(&mut self) -> io::Result<Option<Piece<'_>>> {
        self.window.advance(self.taken);
        self.taken = 0;
        let wanted = match own_header(self.window.fill(Major::Two.header_bytes())) {
            Some((header, len)) => header.block_bytes(len),
            None => MAX_OTHER_BYTES.saturating_add(MAGIC.len()),
        };
        let there = self.window.fill(wanted).len();
        if let Some(error) = self.window.take_error() {
            return Err(error);
        }
        let bytes = self.window.bytes();
        let Some(piece) = first_piece(bytes, there < wanted) else { return Ok(None) };
        self.taken = piece.bytes().len();
        Ok(Some(piece))
    }

    /// Offset in the file after the last part.
    pub fn offset(&self) -> u64 {
        self.window.offset().saturating_add(self.taken as u64)
    }
}

/// The part that `bytes` begin with; `None` where there are none. A part that is no block ends before the next magic, or before
/// bytes that may become one unless the file `ends` with these bytes.
fn first_piece(bytes: &[u8], ends: bool) -> Option<Piece<'_>> {
    if let Some((info, whole)) = block_at(bytes) {
        return Some(Piece::Block { info, payload: whole.get(info.major.header_bytes()..)?, whole });
    }
    let (_, behind) = bytes.split_first()?;
    let at_most = if ends { behind.len() } else { behind.len().saturating_sub(MAGIC.len().saturating_sub(1)) };
    let len = behind.windows(MAGIC.len()).position(|at| at == MAGIC).unwrap_or(at_most);
    bytes.get(..=len).map(Piece::Other)
}

fn block_at(bytes: &[u8]) -> Option<(BlockInfo, &[u8])> {
    let (header, len) = own_header(bytes)?;
    let whole = bytes.get(..header.block_bytes(len))?;
    (crc32c(whole.get(len..)?) == header.payload_crc.get()).then(|| (info(&header), whole))
}

fn info(header: &Header) -> BlockInfo {
    BlockInfo {
        major: if header.major.get() == Major::Two.number() { Major::Two } else { Major::One },
        kind: header.kind,
        flags: header.flags,
        cpu: header.cpu.get(),
        recording: header.recording,
        sequence: header.sequence.get(),
        events_before: header.events_before.get(),
        lost_before: header.lost_before.get(),
        first: header.first.get(),
        last: header.last.get(),
        events: header.events.get(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;
    use crate::disk::block::{HEADER_BYTES, block, kind};

    #[test]
    fn all_bytes_come_back_and_whole_blocks_are_known() {
        let info = BlockInfo { kind: kind::DATA, cpu: 3, sequence: 9, events: 2, ..BlockInfo::default() };
        let good = block(&info, b"some bytes");
        let mut damaged = good.clone();
        damaged[HEADER_BYTES + 2] ^= 1;
        let file = [&good[..], b"junk", &damaged, &good, &good[..50]].concat();
        let found: Vec<Piece<'_>> = pieces(&file).collect();
        let bytes: Vec<u8> = found.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        assert_eq!(bytes, file);
        let blocks: Vec<u64> = found
            .iter()
            .filter_map(|piece| match piece {
                Piece::Block { info, payload: b"some bytes", .. } => Some(info.sequence),
                _ => None,
            })
            .collect();
        assert_eq!(blocks, [9, 9]);
        assert_eq!(pieces(&[]).count(), 0);
    }

    /// The blocks among the parts, by their offsets, and all bytes.
    fn read(bytes: &[u8]) -> (Vec<(u64, BlockInfo)>, Vec<u8>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let (mut reader, mut blocks, mut all) = (PieceReader::new(file), Vec::new(), Vec::new());
        while let Some(piece) = reader.next_piece().unwrap() {
            if let Piece::Block { info, .. } = piece {
                blocks.push((all.len() as u64, info));
            }
            all.extend_from_slice(piece.bytes());
            assert_eq!(reader.offset(), all.len() as u64);
        }
        (blocks, all)
    }

    #[test]
    fn a_file_is_read_in_the_parts_that_it_has_in_memory() {
        let info = BlockInfo { kind: kind::DATA, events: 2, ..BlockInfo::default() };
        let long = block(&info, &vec![MAGIC[0]; 700_000]);
        let mut damaged = long.clone();
        damaged[HEADER_BYTES + 300_000] ^= 1;
        // A magic across the place where a long part that is no block is cut.
        let junk =
            [&vec![b'x'; MAX_OTHER_BYTES - 3][..], &block(&info, b"after junk"), &vec![b'y'; 3 * MAX_OTHER_BYTES]]
                .concat();
        for parts in [
            vec![&long[..], &damaged, &long],
            vec![&junk[..], &long, &junk, &long[..1000]],
            vec![&long[..], &MAGIC[..3]],
            vec![&MAGIC[..]],
            vec![],
        ] {
            let file = parts.concat();
            let mut offset = 0;
            let in_memory = pieces(&file).filter_map(|piece| {
                offset += piece.bytes().len() as u64;
                let Piece::Block { info, whole, .. } = piece else { return None };
                Some((offset - whole.len() as u64, info))
            });
            let in_memory: Vec<_> = in_memory.collect();
            let (blocks, all) = read(&file);
            assert!(all == file);
            assert_eq!(format!("{blocks:?}"), format!("{in_memory:?}"));
        }
    }
}
