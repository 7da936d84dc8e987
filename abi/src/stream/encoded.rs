//! Blocks of encoded records: each record is decoded straight from the block.

use super::payload::SubBufferFormat;
use super::state::StreamState;
use super::sub_buffers::SubBufferPlace;
use crate::codec::{CodecError, Decoder, Found};
use crate::disk::blocks::Block;
use crate::event::{EventSink, Names};
use crate::fault::Code;
use crate::kernel::subbuffer::Missed;
use crate::target::{Big, Endian, Little, TargetOrder};

impl StreamState {
    /// Decodes some of a block whose records `coded` has; true where it goes on.
    pub(super) fn encoded<I: EventSink>(
        &mut self,
        (coded, decoder): (&[u8], &mut Decoder),
        block: &Block,
        format: &SubBufferFormat,
        names: &mut Names,
        items: &mut I,
    ) -> bool {
        let decoded = match format.shape.target.endian {
            Endian::Little => self.encoded_in::<Little, I>((coded, decoder), block, format, names, items),
            Endian::Big => self.encoded_in::<Big, I>((coded, decoder), block, format, names, items),
        };
        decoded.unwrap_or_else(|error| {
            self.bad_codes(error, block);
            false
        })
    }

    fn encoded_in<O: TargetOrder, I: EventSink>(
        &mut self,
        (coded, decoder): (&[u8], &mut Decoder),
        block: &Block,
        format: &SubBufferFormat,
        names: &mut Names,
        items: &mut I,
    ) -> Result<bool, CodecError> {
        while !self.is_full() {
            let place = SubBufferPlace::of(block).at(decoder.raw_offset());
            match decoder.next_sub_buffer::<O>(coded, &format.shape, self.counts_sub_buffers())? {
                None => return Ok(false),
                Some(Found::Encoded(head, mut records)) => {
                    if head.is_marked {
                        self.waiting.flush(names, items);
                        self.mark(Missed::Uncounted, head.timestamp, items);
                    }
                    self.records::<O, I, _>(&mut records, place, format, names, items);
                }
                Some(Found::Plain(bytes)) => {
                    let mut from = 0;
                    while from < bytes.len() {
                        match self.plain_sub_buffer::<O, I>(bytes, from, place, format, names, items) {
                            Some(next) => from = next,
                            None => return Ok(false),
                        }
                    }
                }
            }
        }
        Ok(!decoder.is_at_end(coded.len()))
    }

    /// Damage in encoded records: the rest of the block is missing.
    #[cold]
    pub(super) fn bad_codes(&mut self, error: CodecError, block: &Block) {
        self.fault(Code::BadCompression, block, format!("{error}; every earlier record is good"));
        self.damage();
    }
}
