//! Recordings whose records are encoded, made of recordings as the kernel wrote them.

use kmemtrace_abi::codec::Encoder;
use kmemtrace_abi::disk::block::{self, BlockInfo, FLAG_RECORDS, FLAG_ZSTD, Major, kind};
use kmemtrace_abi::disk::expand::Expander;
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::open;

/// The files with encoded records; with `is_compressed` each block is a zstd frame, too. Files of a relay channel stay as they are.
pub fn encoded(files: &[(String, Vec<u8>)], is_compressed: bool) -> Vec<(String, Vec<u8>)> {
    files.iter().map(|(name, bytes)| (name.clone(), encoded_file(bytes, is_compressed))).collect()
}

/// One file with encoded records.
pub fn encoded_file(file: &[u8], is_compressed: bool) -> Vec<u8> {
    let mut expander = Expander::default();
    let mut records: Option<(Encoder, PageShape)> = None;
    let mut out = Vec::new();
    for piece in pieces(file) {
        let whole = piece.bytes();
        if let Piece::Block { info, payload, .. } = piece {
            if info.kind == kind::FILE_HEADER {
                records = open::encoder::of_file_header(payload);
            }
            let encoder = records.as_mut().filter(|_| info.kind == kind::DATA);
            let raw = expander.payload_of(whole).filter(|_| info.kind == kind::DATA);
            let coded = encoder.zip(raw).and_then(|((encoder, _), raw)| Some((encode(encoder, raw)?, raw.len())));
            if let Some((coded, raw_len)) = coded {
                out.extend(sealed(&info, &coded, raw_len, is_compressed));
                continue;
            }
        }
        let rewritten = if records.is_some() { block::in_major(whole, Major::Two) } else { None };
        out.extend(rewritten.unwrap_or_else(|| whole.to_vec()));
    }
    out
}

fn encode(encoder: &mut Encoder, raw: &[u8]) -> Option<Vec<u8>> {
    let mut coded = vec![0; raw.len()];
    let len = encoder.encode(raw, &mut coded, &mut |_| {})?;
    coded.truncate(len);
    Some(coded)
}

/// A block of these encoded records.
pub fn sealed(info: &BlockInfo, coded: &[u8], raw_len: usize, is_compressed: bool) -> Vec<u8> {
    let frame = is_compressed.then(|| zstd::bulk::compress(coded, 1).unwrap());
    let stored = frame.as_deref().unwrap_or(coded);
    let flags = FLAG_RECORDS | if is_compressed { FLAG_ZSTD } else { 0 };
    let info = BlockInfo { major: Major::Two, flags, ..*info };
    let mut bytes = vec![0; Major::Two.header_bytes()];
    bytes.extend_from_slice(stored);
    block::seal_records(&mut bytes, &info, Some(raw_len), coded.len());
    bytes
}

/// Files of a recording with the bytes as zeros that come back as zeros from encoded records.
pub fn cleared(files: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let clear = |file: &[u8]| {
        let mut records: Option<(Encoder, PageShape)> = None;
        let mut out = Vec::new();
        for piece in pieces(file) {
            match (piece, &records) {
                (Piece::Block { info, payload, .. }, Some((encoder, shape)))
                    if info.kind == kind::DATA && info.flags == 0 =>
                {
                    let mut payload = payload.to_vec();
                    encoder.layouts().clear_unused(shape, &mut payload);
                    out.extend(block::block(&info, &payload));
                }
                (piece, _) => {
                    if let Piece::Block { info, payload, .. } = piece
                        && info.kind == kind::FILE_HEADER
                    {
                        records = open::encoder::of_file_header(payload);
                    }
                    out.extend_from_slice(piece.bytes());
                }
            }
        }
        out
    };
    files.iter().map(|(name, bytes)| (name.clone(), clear(bytes))).collect()
}
