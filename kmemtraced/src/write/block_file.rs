//! A trace file that grows block by block.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use kmemtrace_abi::disk::block::{self, BlockInfo, FLAG_OPTIONAL, FLAG_RECORDS, FLAG_ZSTD, Major, RecordingId, kind};

use crate::output::destination::TraceFile;
use crate::write::block_buffer::{BlockBuffer, HEADER_ROOM};
use crate::write::compress::BlockCompressor;
use crate::write::tally::EventSpan;

/// Storage of a trace file: its destination, or a test's stand-in with scripted failures.
pub(crate) trait Store: Write + Send {
    /// Truncates to `len` bytes and goes on behind them.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Returns once all that was written survives a power cut.
    fn sync(&mut self) -> io::Result<()>;
    /// The error of a disk that took what was written and failed later, as far as the kernel knows it by now.
    fn check(&mut self) -> io::Result<()>;
    /// As [`Store::check`], with the errors that some file systems tell when a file is closed.
    fn close(&mut self) -> io::Result<()>;
}

impl Store for TraceFile {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        TraceFile::cut(self, len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().map_or(Ok(()), File::sync_data)
    }

    fn check(&mut self) -> io::Result<()> {
        self.file().map_or(Ok(()), |file| kmemtrace_sandbox::written_back(file.as_fd()))
    }

    fn close(&mut self) -> io::Result<()> {
        // Closing syncs there, and its error has nobody to go to.
        if self.syncs_at_close() { self.sync() } else { self.check() }
    }
}

/// A block as it is stored.
pub(crate) struct Stored<'a> {
    /// Header room, then the payload.
    pub(crate) block: &'a mut [u8],
    /// Bytes of the payload before it was stored in less room.
    pub(crate) raw_len: usize,
    /// Bytes of the encoded records, where they are.
    pub(crate) coded_len: Option<usize>,
    /// The payload is one zstd frame.
    pub(crate) is_compressed: bool,
}

impl<'a> Stored<'a> {
    /// A block whose payload is stored as it is.
    pub(crate) fn plain(block: &'a mut [u8]) -> Stored<'a> {
        let raw_len = block.len() - HEADER_ROOM;
        Stored { block, raw_len, coded_len: None, is_compressed: false }
    }

    /// A block whose payload of `raw_len` bytes is one zstd frame.
    pub(crate) fn compressed(block: &'a mut [u8], raw_len: usize) -> Stored<'a> {
        Stored { block, raw_len, coded_len: None, is_compressed: true }
    }

    fn flags(&self) -> u8 {
        (if self.is_compressed { FLAG_ZSTD } else { 0 }) | if self.coded_len.is_some() { FLAG_RECORDS } else { 0 }
    }
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
    major: Major,
    sequence: u64,
    bytes: u64,
}

impl BlockFile {
    pub(crate) fn new(file: impl Store + 'static, cpu: u32, recording: RecordingId) -> BlockFile {
        BlockFile { file: Box::new(file), cpu, recording, major: Major::default(), sequence: 0, bytes: 0 }
    }

    /// The same in another major version of the format; to be called before the first block.
    pub(crate) fn in_major(self, major: Major) -> BlockFile {
        BlockFile { major, ..self }
    }

    /// Writes a block without events.
    pub(crate) fn put(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut buffer = BlockBuffer::holding(payload);
        self.put_block(kind, Stored::plain(buffer.block()), BlockPlace::default())
    }

    /// Writes a block without events, compressed where that makes it smaller.
    pub(crate) fn put_compressed(
        &mut self,
        kind: u8,
        payload: &[u8],
        compressor: &mut BlockCompressor,
    ) -> io::Result<()> {
        let mut buffer = BlockBuffer::holding(payload);
        let stored = match compressor.compress(buffer.block(), HEADER_ROOM) {
            Some(block) => Stored::compressed(block, payload.len()),
            None => Stored::plain(buffer.block()),
        };
        self.put_block(kind, stored, BlockPlace::default())
    }

    /// Fills in the block header and writes the block. After an error the file ends with its last whole block.
    pub(crate) fn put_block(&mut self, kind: u8, stored: Stored<'_>, place: BlockPlace) -> io::Result<()> {
        let flags = stored.flags() | if kind == kind::WATERMARK { FLAG_OPTIONAL } else { 0 };
        let Stored { block, raw_len, coded_len, .. } = stored;
        let bytes = &mut block[HEADER_ROOM - self.major.header_bytes()..];
        let info = BlockInfo {
            major: self.major,
            kind,
            flags,
            cpu: self.cpu,
            recording: self.recording,
            sequence: self.sequence,
            events_before: place.events_before,
            lost_before: place.lost_before,
            first: place.span.first,
            last: place.span.last,
            events: u32::try_from(place.span.events).unwrap_or(u32::MAX),
        };
        block::seal_records(bytes, &info, Some(raw_len), coded_len.unwrap_or(0));
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.file.cut(self.bytes);
            return Err(error);
        }
        self.sequence += 1;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns once all blocks survive a power cut.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    /// See [`Store::check`].
    pub(crate) fn check(&mut self) -> io::Result<()> {
        self.file.check()
    }

    /// See [`Store::close`]; to be called behind the last block.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.file.close()
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
