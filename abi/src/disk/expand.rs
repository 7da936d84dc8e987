//! Payloads that are stored in less room (zstd, the codec of records), back to what the kernel handed out.

#[cfg(feature = "zstd")]
use std::cell::RefCell;

use crate::codec::{CodecError, Decoder};
use crate::disk::block::{self, FLAG_RECORDS, FLAG_ZSTD, Header, kind};
use crate::fault::Code;

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
        let stored = block.get(len..)?;
        if !is_stored_otherwise(&header) {
            return Some(stored);
        }
        let expanded = self.expand_all(&header, block::coded_len(block), stored);
        matches!(expanded, Ok(None)).then_some(&self.payload)
    }

    /// Expands a stored payload to exactly the header's `raw_len` bytes. An error where nothing comes back; of damaged records, what
    /// comes before the damage.
    pub(crate) fn expand_all(
        &mut self,
        header: &Header,
        coded_len: usize,
        stored: &[u8],
    ) -> Result<Option<CodecError>, Code> {
        if header.flags & FLAG_RECORDS == 0 {
            return self.expand(header, stored).map(|()| None);
        }
        self.begin_records(header, coded_len, stored)?;
        Ok(self.rebuild(stored, header).err())
    }

    /// Expands a stored payload that is a zstd frame to exactly the header's `raw_len` bytes.
    pub(crate) fn expand(&mut self, header: &Header, stored: &[u8]) -> Result<(), Code> {
        expand(stored, header.raw_len.get() as usize, &mut self.payload)
    }

    /// Begins a stored payload of encoded records; [`Expander::records`] has them then.
    pub(crate) fn begin_records(&mut self, header: &Header, coded_len: usize, stored: &[u8]) -> Result<(), Code> {
        let raw_len = header.raw_len.get() as usize;
        let is_frame = header.flags & FLAG_ZSTD != 0;
        if header.kind != kind::DATA || coded_len > raw_len || !(is_frame || stored.len() == coded_len) {
            return Err(Code::BadCompression);
        }
        if is_frame {
            expand(stored, coded_len, &mut self.coded)?;
        }
        self.decoder.get_or_insert_default().begin(raw_len);
        Ok(())
    }

    /// The encoded records that were begun, and their decoder.
    pub(crate) fn records<'a>(&'a mut self, stored: &'a [u8], header: &Header) -> (&'a [u8], &'a mut Decoder) {
        let coded = if header.flags & FLAG_ZSTD != 0 { &self.coded } else { stored };
        (coded, self.decoder.get_or_insert_default())
    }

    /// Puts the sub-buffers of the records together that were begun.
    pub(crate) fn rebuild(&mut self, stored: &[u8], header: &Header) -> Result<(), CodecError> {
        let mut payload = std::mem::take(&mut self.payload);
        let (coded, decoder) = self.records(stored, header);
        let rebuilt = decoder.decode(coded, header.raw_len.get() as usize, &mut payload);
        self.payload = payload;
        rebuilt
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

#[cfg(feature = "zstd")]
thread_local! {
    /// Context of zstd, about 100 KB: making one costs as much as expanding a block of encoded records. One a thread serves the files of
    /// all its CPUs.
    static FRAMES: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Expands a zstd frame to exactly `raw_len` bytes; the code of the fault if it is no such frame.
#[cfg(feature = "zstd")]
fn expand(stored: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<(), Code> {
    out.resize(raw_len, 0);
    let expanded = FRAMES.with_borrow_mut(|frames| {
        let frames = match frames {
            Some(frames) => frames,
            None => frames.insert(zstd::bulk::Decompressor::new()?),
        };
        frames.decompress_to_buffer(stored, out.as_mut_slice())
    });
    if expanded.is_ok_and(|n| n == raw_len) { Ok(()) } else { Err(Code::BadCompression) }
}

/// A build without zstd reads no compressed block.
#[cfg(not(feature = "zstd"))]
fn expand(_stored: &[u8], _raw_len: usize, _out: &mut Vec<u8>) -> Result<(), Code> {
    Err(Code::NeedsZstd)
}
