//! Records in less room: blocks are counted and encoded in one walk.

use kmemtrace_abi::codec::{Encoder, EventLayouts, Limits};
use kmemtrace_abi::disk::block::Major;
use kmemtrace_abi::kernel::format::{EventFormat, PageShape, without_print_fmt};

use crate::source::{Framing, SourceFacts};
use crate::write::block_buffer::HEADER_ROOM;
use crate::write::compress::Compression;
use crate::write::tally::{BlockTally, load_into_cache};

/// Version of the format of a recording's files. A stream has its records as the kernel wrote them.
pub(crate) fn major(compression: Compression, facts: &SourceFacts, is_stream: bool) -> Major {
    match &*facts.framing {
        Framing::SubBuffers(_) if compression != Compression::None && !is_stream => Major::Two,
        Framing::SubBuffers(_) | Framing::Relay(_) => Major::One,
    }
}

/// Encodes the records of blocks into a buffer of its own.
pub(crate) struct RecordEncoder {
    encoder: Encoder,
    shape: PageShape,
    /// Header room, then the encoded records of the last block.
    output: Vec<u8>,
}

impl RecordEncoder {
    /// `None` for a relay channel.
    pub(crate) fn new(facts: &SourceFacts, is_lean: bool) -> Option<RecordEncoder> {
        let Framing::SubBuffers(shape) = &*facts.framing else { return None };
        let formats = facts.formats.iter().filter_map(|(name, text)| {
            let system = name.split('/').next().unwrap_or_default();
            Some((system, EventFormat::parse(without_print_fmt(text)).ok()?))
        });
        let formats: Vec<(&str, EventFormat)> = formats.collect();
        let layouts = EventLayouts::new(formats.iter().map(|(system, format)| (*system, format)));
        let limits = if is_lean { Limits::LEAN } else { Limits::USUAL };
        Some(RecordEncoder { encoder: Encoder::new(*shape, layouts, limits), shape: *shape, output: Vec::new() })
    }

    /// Counts and encodes a payload; also returns the bytes of its encoded records, `None` where they would take more room.
    pub(crate) fn encode(&mut self, payload: &[u8]) -> (BlockTally, Option<usize>) {
        load_into_cache(payload);
        let mut tally = BlockTally::default();
        self.output.resize(HEADER_ROOM + payload.len(), 0);
        let len = self.encoder.encode(payload, &mut self.output[HEADER_ROOM..], &mut |counts| tally.add(counts));
        (tally, len)
    }

    /// Header room and the first `len` bytes of the last encoded block.
    pub(crate) fn block(&mut self, len: usize) -> &mut [u8] {
        &mut self.output[..HEADER_ROOM + len]
    }

    /// Makes the bytes of records zero that no field covers.
    pub(crate) fn clear_unused(&self, payload: &mut [u8]) {
        self.encoder.layouts().clear_unused(&self.shape, payload);
    }
}
