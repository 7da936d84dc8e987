//! A trace file that is being written, block by block.

use std::fs::File;
use std::io::{self, Seek, Write};

use kmemtrace_abi::block::{self, BlockInfo, FLAG_ZSTD, HEADER_BYTES, RecordingId};

use crate::write::compress::Blocks;

/// Where the bytes of a trace file go.
pub(crate) trait Store: Write + Send {
    /// Leaves the first `len` bytes, and goes on behind them.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Returns when all that was written survives a power cut.
    fn sync(&mut self) -> io::Result<()>;
}

impl Store for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(io::SeekFrom::Start(len)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A trace file that is being written: only whole blocks, numbered.
pub(crate) struct BlockFile {
    file: Box<dyn Store>,
    cpu: u32,
    recording: RecordingId,
    sequence: u64,
    bytes: u64,
}

/// What a block has of events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    pub(crate) events: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Content {
    /// Adds what comes after it.
    pub(crate) fn append(&mut self, next: Content) {
        if self.events == 0 {
            self.first = next.first;
        }
        if next.events > 0 {
            self.last = next.last;
        }
        self.events += next.events;
    }
}

/// A payload behind room for its header.
pub(crate) fn with_room(payload: &[u8]) -> Vec<u8> {
    [&[0; HEADER_BYTES], payload].concat()
}

impl BlockFile {
    pub(crate) fn new(file: impl Store + 'static, cpu: u32, recording: RecordingId) -> BlockFile {
        BlockFile { file: Box::new(file), cpu, recording, sequence: 0, bytes: 0 }
    }

    /// Writes a block around a payload.
    pub(crate) fn put(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        self.put_sealed(kind, &mut with_room(payload), None, Content::default(), 0, 0)
    }

    /// The same, smaller.
    pub(crate) fn put_frame(&mut self, kind: u8, payload: &[u8], blocks: &mut Blocks) -> io::Result<()> {
        let mut bytes = with_room(payload);
        match blocks.frame(&bytes, HEADER_BYTES, 0, 1) {
            Some(frame) => self.put_sealed(kind, frame, Some(payload.len()), Content::default(), 0, 0),
            None => self.put_sealed(kind, &mut bytes, None, Content::default(), 0, 0),
        }
    }

    /// Seals and writes room and payload, a frame of `raw_len` bytes where that is known. After an error the file ends with its
    /// last whole block.
    pub(crate) fn put_sealed(
        &mut self,
        kind: u8,
        bytes: &mut [u8],
        raw_len: Option<usize>,
        content: Content,
        events_before: u64,
        lost_before: u64,
    ) -> io::Result<()> {
        let info = BlockInfo {
            kind,
            flags: if raw_len.is_some() { FLAG_ZSTD } else { 0 },
            cpu: self.cpu,
            recording: self.recording,
            sequence: self.sequence,
            events_before,
            lost_before,
            first: content.first,
            last: content.last,
            events: u32::try_from(content.events).unwrap_or(u32::MAX),
        };
        block::seal(bytes, &info, raw_len);
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.file.cut(self.bytes);
            return Err(error);
        }
        self.sequence += 1;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Has what was written on the disk.
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
