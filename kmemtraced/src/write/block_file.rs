//! A trace file that grows block by block.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;

use kmemtrace_abi::disk::block::{self, BlockInfo, FLAG_OPTIONAL, FLAG_ZSTD, HEADER_BYTES, RecordingId, kind};

use rustix::fs::FallocateFlags;

use crate::output::destination::TraceFile;
use crate::write::block_buffer::BlockBuffer;
use crate::write::compress::BlockCompressor;
use crate::write::freeing::Freeing;
use crate::write::tally::EventSpan;

/// Storage of a trace file: its destination, or a test's stand-in with scripted failures.
pub(crate) trait Store: Write + Send {
    /// Truncates to `len` bytes and goes on behind them.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Returns once all that was written survives a power cut.
    fn sync(&mut self) -> io::Result<()>;
    /// Gives bytes back to the file system; they read as zeros then.
    fn free(&mut self, bytes: Range<u64>) -> io::Result<()>;
}

impl Store for TraceFile {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        TraceFile::cut(self, len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().map_or(Ok(()), File::sync_data)
    }

    fn free(&mut self, bytes: Range<u64>) -> io::Result<()> {
        let Some(file) = self.file() else { return Ok(()) };
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(file, how, bytes.start, bytes.end - bytes.start)?)
    }
}

/// Header room and payload of a block, as they are stored.
pub(crate) enum Stored<'a> {
    Plain(&'a mut [u8]),
    /// The payload is one zstd frame of `raw_len` bytes.
    Zstd {
        block: &'a mut [u8],
        raw_len: usize,
    },
}

/// Place of a block among the events of its file, for the block header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockPlace {
    /// Events in the block.
    pub(crate) span: EventSpan,
    /// Events in the file before the block.
    pub(crate) events_before: u64,
    /// Lost events, by the marks before the block.
    pub(crate) lost_before: u64,
}

/// A trace file of whole blocks, numbered in sequence.
pub(crate) struct BlockFile {
    file: Box<dyn Store>,
    cpu: u32,
    recording: RecordingId,
    sequence: u64,
    bytes: u64,
    /// Blocks that are given back to the file system; none where all stay.
    freeing: Option<Freeing>,
}

impl BlockFile {
    pub(crate) fn new(file: impl Store + 'static, cpu: u32, recording: RecordingId) -> BlockFile {
        BlockFile { file: Box::new(file), cpu, recording, sequence: 0, bytes: 0, freeing: None }
    }

    /// Keeps the first block and the last `bytes` bytes, about; to be called before the first block.
    pub(crate) fn keep_last(&mut self, bytes: u64) {
        self.freeing = Some(Freeing::new(bytes));
    }

    /// Gives old blocks back to the file system, where the file keeps only the last ones. After an error it keeps all.
    pub(crate) fn free_old(&mut self) -> io::Result<()> {
        let Some(bytes) = self.freeing.as_mut().and_then(Freeing::take) else { return Ok(()) };
        let freed = self.file.free(bytes);
        if freed.is_err() {
            self.freeing = None;
        }
        freed
    }

    /// Bytes that the file has on the disk, about.
    pub(crate) fn stored(&self) -> u64 {
        self.bytes - self.freeing.as_ref().map_or(0, Freeing::bytes)
    }

    /// Writes a block without events.
    pub(crate) fn put(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut buffer = BlockBuffer::holding(payload);
        self.put_block(kind, Stored::Plain(buffer.block()), BlockPlace::default())
    }

    /// Writes a block without events, compressed where that makes it smaller.
    pub(crate) fn put_compressed(
        &mut self,
        kind: u8,
        payload: &[u8],
        compressor: &mut BlockCompressor,
    ) -> io::Result<()> {
        let mut buffer = BlockBuffer::holding(payload);
        let stored = match compressor.compress(buffer.block(), HEADER_BYTES) {
            Some(block) => Stored::Zstd { block, raw_len: payload.len() },
            None => Stored::Plain(buffer.block()),
        };
        self.put_block(kind, stored, BlockPlace::default())
    }

    /// Fills in the block header and writes the block. After an error the file ends with its last whole block.
    pub(crate) fn put_block(&mut self, kind: u8, stored: Stored<'_>, place: BlockPlace) -> io::Result<()> {
        let (bytes, raw_len) = match stored {
            Stored::Plain(block) => (block, None),
            Stored::Zstd { block, raw_len } => (block, Some(raw_len)),
        };
        let is_optional = kind == kind::WATERMARK;
        let info = BlockInfo {
            kind,
            flags: if raw_len.is_some() { FLAG_ZSTD } else { 0 } | if is_optional { FLAG_OPTIONAL } else { 0 },
            cpu: self.cpu,
            recording: self.recording,
            sequence: self.sequence,
            events_before: place.events_before,
            lost_before: place.lost_before,
            first: place.span.first,
            last: place.span.last,
            events: u32::try_from(place.span.events).unwrap_or(u32::MAX),
        };
        block::seal(bytes, &info, raw_len);
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.file.cut(self.bytes);
            return Err(error);
        }
        self.sequence += 1;
        self.bytes += bytes.len() as u64;
        if let Some(freeing) = &mut self.freeing {
            freeing.add(self.bytes);
        }
        Ok(())
    }

    /// Returns once all blocks survive a power cut.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    /// Bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Blocks written.
    pub(crate) fn blocks(&self) -> u64 {
        self.sequence
    }
}
