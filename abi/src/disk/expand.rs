//! Payloads that are stored in less room (zstd, the codec of records), back to what the kernel handed out.

use crate::codec::{CodecError, Decoder};
use crate::disk::block::{self, FLAG_RECORDS, FLAG_ZSTD, Header, kind};
use crate::fault::Code;

/// A payload that does not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexpanded {
    /// Nothing of it.
    Whole(Code),
    /// Its end: what was decoded before stands.
    End(CodecError),
}

/// Expands payloads; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Expander {
    decoder: Option<Box<Decoder>>,
    /// Output of the codec, where it is compressed.
    coded: Vec<u8>,
    payload: Vec<u8>,
}

impl Expander {
    /// The payload of a whole block, header included; `None` where it does not come back.
    pub fn payload_of<'a>(&'a mut self, block: &'a [u8]) -> Option<&'a [u8]> {
        let (header, len) = block::own_header(block)?;
        let stored = &block[len..];
        if !is_stored_otherwise(&header) {
            return Some(stored);
        }
        self.expand(&header, block::coded_len(block), stored).ok()?;
        Some(&self.payload)
    }

    /// Expands a stored payload to exactly the header's `raw_len` bytes.
    pub(crate) fn expand(&mut self, header: &Header, coded_len: usize, stored: &[u8]) -> Result<(), Unexpanded> {
        let raw_len = header.raw_len.get() as usize;
        if header.flags & FLAG_RECORDS == 0 {
            return expand(stored, raw_len, &mut self.payload).map_err(Unexpanded::Whole);
        }
        if header.kind != kind::DATA || coded_len > raw_len {
            return Err(Unexpanded::Whole(Code::BadCompression));
        }
        let coded = if header.flags & FLAG_ZSTD != 0 {
            expand(stored, coded_len, &mut self.coded).map_err(Unexpanded::Whole)?;
            &self.coded
        } else {
            Some(stored).filter(|stored| stored.len() == coded_len).ok_or(Unexpanded::Whole(Code::BadCompression))?
        };
        let decoder = self.decoder.get_or_insert_default();
        decoder.decode(coded, raw_len, &mut self.payload).map_err(Unexpanded::End)
    }

    /// What came back last.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// True for a payload that has to be expanded.
pub(crate) fn is_stored_otherwise(header: &Header) -> bool {
    header.flags & (FLAG_ZSTD | FLAG_RECORDS) != 0
}

/// Expands a zstd frame to exactly `raw_len` bytes; the code of the fault if it is no such frame.
#[cfg(feature = "zstd")]
fn expand(stored: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<(), Code> {
    out.resize(raw_len, 0);
    let expanded = zstd::bulk::decompress_to_buffer(stored, out.as_mut_slice());
    if expanded.is_ok_and(|n| n == raw_len) { Ok(()) } else { Err(Code::BadCompression) }
}

/// A build without zstd reads no compressed block.
#[cfg(not(feature = "zstd"))]
fn expand(_stored: &[u8], _raw_len: usize, _out: &mut Vec<u8>) -> Result<(), Code> {
    Err(Code::NeedsZstd)
}
