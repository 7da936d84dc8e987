//! A trace file as its whole blocks, and whatever stands between them: for who copies a file and must not change what it is.

use crate::block::{BlockInfo, HEADER_BYTES, Header, MAGIC, Parsed, crc32c, parse};

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// A whole block whose checksums are right.
    Block {
        /// What its header says.
        info: BlockInfo,
        /// The payload as it is stored.
        payload: &'a [u8],
        /// All of it, header included.
        whole: &'a [u8],
    },
    /// Bytes that are none, or not one that this version could write again.
    Other(&'a [u8]),
}

/// The parts of `file`, in order: put together they are all of it.
pub fn pieces(file: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = file;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, len) = match block_at(rest) {
            Some((info, whole)) => (Piece::Block { info, payload: &whole[HEADER_BYTES..], whole }, whole.len()),
            None => {
                let len = 1 + rest[1..].windows(MAGIC.len()).position(|at| at == MAGIC).unwrap_or(rest.len() - 1);
                (Piece::Other(&rest[..len]), len)
            }
        };
        rest = &rest[len..];
        Some(piece)
    })
}

fn block_at(bytes: &[u8]) -> Option<(BlockInfo, &[u8])> {
    let Parsed::Header(header, HEADER_BYTES) = parse(bytes, Some(HEADER_BYTES)) else { return None };
    let whole = bytes.get(..HEADER_BYTES + header.payload_len.get() as usize)?;
    (crc32c(&whole[HEADER_BYTES..]) == header.payload_crc.get()).then(|| (info(&header), whole))
}

fn info(header: &Header) -> BlockInfo {
    BlockInfo {
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
    use super::*;
    use crate::block::{block, kind};

    #[test]
    fn all_bytes_come_back_and_whole_blocks_are_known() {
        let info = BlockInfo { kind: kind::DATA, cpu: 3, sequence: 9, events: 2, ..BlockInfo::default() };
        let good = block(&info, b"some bytes");
        let mut damaged = good.clone();
        damaged[HEADER_BYTES + 2] ^= 1;
        let file = [&good[..], b"junk", &damaged, &good, &good[..50]].concat();
        let found: Vec<Piece<'_>> = pieces(&file).collect();
        let bytes: Vec<u8> = found
            .iter()
            .flat_map(|piece| match piece {
                Piece::Block { whole, .. } => whole.to_vec(),
                Piece::Other(bytes) => bytes.to_vec(),
            })
            .collect();
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
}
