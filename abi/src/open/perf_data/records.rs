//! The records of a `perf.data`, one after the other, by positioned reads.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::disk::walk::read_at;
use crate::target::{Endian, u32_of, u64_of};

/// Types of records: `enum perf_event_type`, and perf's own from 64 on (`tools/lib/perf/include/perf/event.h` of Linux 6.18).
pub(super) mod kind {
    pub(crate) const MMAP: u32 = 1;
    pub(crate) const LOST: u32 = 2;
    pub(crate) const COMM: u32 = 3;
    pub(crate) const SAMPLE: u32 = 9;
    pub(crate) const LOST_SAMPLES: u32 = 13;
    pub(crate) const HEADER_ATTR: u32 = 64;
    pub(crate) const HEADER_TRACING_DATA: u32 = 66;
    pub(crate) const FINISHED_ROUND: u32 = 68;
    pub(crate) const ID_INDEX: u32 = 69;
    pub(crate) const AUXTRACE: u32 = 71;
    pub(crate) const HEADER_FEATURE: u32 = 80;
    pub(crate) const COMPRESSED: u32 = 81;
    pub(crate) const COMPRESSED2: u32 = 83;
    /// Records of perf's own that have data behind them, or other records inside.
    pub(crate) const HAVE_MORE: [u32; 4] = [HEADER_TRACING_DATA, AUXTRACE, COMPRESSED, COMPRESSED2];
}

/// Bytes of a record's header: type (u32), misc (u16), bytes in all (u16).
pub(super) const HEADER: usize = 8;
/// Bytes asked of the system at once: they are still in the processor's cache when they are taken apart.
const CHUNK: usize = 1 << 17;
/// Bytes of a line of the processor's cache, or a multiple of that.
const LINE: usize = 64;
/// A record that is longer than its header's 16 bits tell, in bytes: none that makes sense.
const MAX_RECORD: usize = 64 << 20;

/// A record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// Offset in the file.
    pub(super) offset: u64,
    /// The whole record, header included, but without data behind it.
    pub(super) bytes: &'b [u8],
    /// The record and what was read of the file behind it.
    pub(super) rest: &'b [u8],
}

impl<'b> Record<'b> {
    /// Bytes behind the header.
    pub(super) fn body(&self) -> &'b [u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }

    /// Offset of its end in the file.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }
}

/// Reader of records.
#[derive(Debug)]
pub(super) struct Records {
    file: Arc<File>,
    endian: Endian,
    buffer: Vec<u8>,
    /// Part of the buffer that was not taken.
    taken: usize,
    filled: usize,
    /// Offset of `buffer[taken]` in the file.
    at: u64,
    end: u64,
}

impl Records {
    /// Records from byte `at` of the file to `end`.
    pub(super) fn new(file: Arc<File>, endian: Endian, at: u64, end: u64) -> Records {
        Records { file, endian, buffer: Vec::new(), taken: 0, filled: 0, at, end }
    }

    /// Offset of the next record.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Goes on with the records from byte `at` to `end`.
    pub(super) fn enter(&mut self, at: u64, end: u64) {
        (self.at, self.end, self.taken, self.filled) = (at, end, 0, 0);
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Errors of the system; `UnexpectedEof` where the file ends inside a record, `InvalidData` where the length of a record makes no
    /// sense: what follows cannot be found.
    // A result that goes through memory costs as much as finding the record.
    #[inline(always)]
    pub(super) fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        let endian = self.endian;
        let Some(header) = self.fill(HEADER)? else { return Ok(None) };
        let kind = u32_of(endian, header, 0).unwrap_or(0);
        let misc = misc_and_size(header, endian).map_or(0, |(misc, _)| misc);
        let Some(len) = record_len(header, endian) else { return Err(ErrorKind::UnexpectedEof.into()) };
        let (len, behind) = match kind {
            kind::HEADER_TRACING_DATA | kind::AUXTRACE | kind::COMPRESSED2 => self.lengths(kind, len)?,
            _ => (len, 0),
        };
        // Checked here because a length that has overflowed may be 0.
        if len < HEADER {
            let what = format!("the record at byte {} has the length {len}", self.at);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        self.fill(len)?;
        let rest = self.buffer.get(self.taken..self.filled).unwrap_or_default();
        let Some((bytes, after)) = rest.split_at_checked(len) else { return Err(ErrorKind::UnexpectedEof.into()) };
        let offset = self.at;
        let skipped = behind.min(after.len() as u64) as usize;
        self.at = offset.saturating_add(len as u64).saturating_add(behind);
        self.taken = self.taken.saturating_add(len).saturating_add(skipped);
        Ok(Some(Record { kind, misc, offset, bytes, rest }))
    }

    /// Bytes of a record that its header does not tell alone, and of the data behind it, which are no part of it.
    #[cold]
    fn lengths(&mut self, kind: u32, len: usize) -> io::Result<(usize, u64)> {
        let endian = self.endian;
        let count = |bytes: Option<&[u8]>| bytes.and_then(|bytes| u64_of(endian, bytes, HEADER)).unwrap_or(0);
        match kind {
            // The data stand behind the record, padded to words.
            kind::HEADER_TRACING_DATA => {
                let behind =
                    self.fill(HEADER + 4)?.and_then(|bytes| u32_of(endian, bytes, HEADER)).map_or(0, u64::from);
                Ok((len, behind.next_multiple_of(8)))
            }
            kind::AUXTRACE => Ok((len, count(self.fill(HEADER + 8)?))),
            // Its length overflows 16 bits (perf 6.16 and later), and no padding follows then.
            kind::COMPRESSED2 => {
                let data = count(self.fill(HEADER + 8)?);
                let whole = usize::try_from(data).unwrap_or(usize::MAX).saturating_add(HEADER + 8);
                if whole > MAX_RECORD {
                    let what = format!("the compressed record at byte {} counts {data} bytes", self.at);
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                }
                Ok((if whole.next_multiple_of(8) > len { whole } else { len }, 0))
            }
            _ => Ok((len, 0)),
        }
    }

    /// At least `want` bytes from the next record on; fewer where the file ends, `None` where there are none.
    #[inline]
    fn fill(&mut self, want: usize) -> io::Result<Option<&[u8]>> {
        if self.filled.saturating_sub(self.taken) < want {
            self.read_on(want)?;
        }
        Ok(self.buffer.get(self.taken..self.filled).filter(|bytes| !bytes.is_empty()))
    }

    /// Reads from the file until `want` bytes are there, or the file ends.
    #[cold]
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`taken` is never above `filled`, nor that above the buffer's length, which is as large as is needed before it is \
                  written to; no record, so no sum here, is longer than `MAX_RECORD` and two chunks"
    )]
    fn read_on(&mut self, want: usize) -> io::Result<()> {
        while self.filled - self.taken < want {
            let have = self.filled - self.taken;
            let from = self.at.saturating_add(have as u64);
            let left = usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX);
            let ask = CHUNK.max(want - have).min(left);
            if ask == 0 {
                break;
            }
            // The kernel copies faster between addresses of whole cache lines, so what is left goes right before one.
            let begin = have.next_multiple_of(LINE);
            // Memory grows as bytes are there: a length in the file asks for no more than it has.
            let room = ask.min(CHUNK);
            if self.buffer.len() < LINE + begin + room {
                self.buffer.resize(LINE + begin + room, 0);
            }
            let begin = begin + self.buffer.as_ptr().align_offset(LINE).min(LINE);
            self.buffer.copy_within(self.taken..self.filled, begin - have);
            (self.taken, self.filled) = (begin - have, begin);
            // The next read begins at a whole page of the file.
            let room = if room == CHUNK { CHUNK - (from % CHUNK as u64) as usize } else { room };
            let len = read_at(&self.file, &mut self.buffer[begin..begin + room], from)?;
            self.filled += len;
            if len == 0 {
                break;
            }
        }
        Ok(())
    }
}

fn misc_and_size(header: &[u8], endian: Endian) -> Option<(u16, u16)> {
    let word = u32_of(endian, header, 4)?;
    Some(match endian {
        Endian::Little => (word as u16, (word >> 16) as u16),
        Endian::Big => ((word >> 16) as u16, word as u16),
    })
}

/// Bytes of the record that `bytes` begin with, by its header; `None` where that is cut.
pub(super) fn record_len(bytes: &[u8], endian: Endian) -> Option<usize> {
    misc_and_size(bytes, endian).map(|(_, size)| size.into())
}

/// The zstd data of a compressed record, in pieces: a record of perf 6.16 and later may hold several.
pub(super) fn compressed<'b>(record: &Record<'b>, endian: Endian) -> Vec<&'b [u8]> {
    /// Data of one record at most (`PERF_SAMPLE_MAX_SIZE` less the header and one).
    const MAX_DATA: usize = 65_519;
    const LONG_HEADER: usize = HEADER + 8;
    if record.kind == kind::COMPRESSED {
        return vec![record.body()];
    }
    let data = usize::try_from(u64_of(endian, record.body(), 0).unwrap_or(0)).unwrap_or(usize::MAX);
    let body = record.body().get(8..).unwrap_or_default();
    let mut rest = body.get(..data).unwrap_or(body);
    let mut pieces = Vec::new();
    let mut len = MAX_DATA;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(len.min(rest.len()));
        pieces.push(piece);
        len = record_len(more, endian).unwrap_or(0).saturating_sub(LONG_HEADER);
        rest = more.get(LONG_HEADER..).unwrap_or_default();
        if len == 0 {
            break;
        }
    }
    pieces
}
