//! Reading a trace file block by block: finds damage and goes on behind it, knows a cut from a corruption.
//!
//! One pass over a file or pipe, in a buffer no larger than its largest block. No number in the file makes
//! it reserve memory: the buffer grows only as bytes are really there.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::disk::block::{self, FLAG_OPTIONAL, FLAG_ZSTD, HEADER_BYTES, Header, MAGIC, Parsed, RecordingId, kind};
use crate::disk::expand::expand;
use crate::disk::walk::Known;
use crate::fault::{Code, Fault};

/// Bytes asked of the system at once, at least and at most.
const CHUNK: std::ops::RangeInclusive<usize> = 128 << 10..=1 << 20;
/// At a file's beginning fewer will do: all of a small file, or the header with its formats (13 KB of a kernel's kmem events),
/// which is all that opening it takes.
const FIRST: usize = 16 << 10;
/// Bytes to have beyond those that are wanted: the next block's header, so that a block comes with one call and nothing
/// that was read is moved.
const AHEAD: usize = 256;
/// Zeros at the end of a file that a power cut leaves: at least a disk sector.
const SECTOR: usize = 512;

/// The unread part of a file.
#[derive(Debug)]
pub(crate) struct Window {
    file: File,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `start` in the file.
    offset: u64,
    eof: bool,
    /// Error that stopped reading, where it was not the end.
    error: Option<io::Error>,
}

impl Window {
    pub(crate) fn new(file: File) -> Window {
        Window { file, buffer: Vec::new(), start: 0, end: 0, offset: 0, eof: false, error: None }
    }

    /// The bytes at hand, at least `want` of them unless the file ends before.
    pub(crate) fn fill(&mut self, want: usize) -> &[u8] {
        while self.end - self.start < want && !self.eof {
            let least = if self.offset == 0 && self.end == 0 { FIRST } else { *CHUNK.start() };
            let ask = (want - (self.end - self.start)).saturating_add(AHEAD).clamp(least, *CHUNK.end());
            if self.buffer.len() - self.end < ask {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
                self.buffer.resize(self.buffer.len().max(self.end + ask), 0);
            }
            match self.file.read(&mut self.buffer[self.end..self.end + ask]) {
                Ok(0) => self.eof = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.error = Some(e);
                    self.eof = true;
                }
            }
        }
        &self.buffer[self.start..self.end]
    }

    /// The bytes at hand.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn advance(&mut self, by: usize) {
        let by = by.min(self.end - self.start);
        self.start += by;
        self.offset += by as u64;
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The reason why reading stopped, where that was not the end of the file; given out once.
    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Goes on at `offset`.
    fn enter(&mut self, offset: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        (self.start, self.end, self.offset, self.eof) = (0, 0, offset, false);
        Ok(())
    }

    /// True if every byte from here to the end is 0 and there is one. Moves to the first byte that is not.
    fn only_zeros_left(&mut self) -> bool {
        let mut any = false;
        loop {
            let bytes = self.fill(1);
            if bytes.is_empty() {
                return any;
            }
            let zeros = bytes.iter().take_while(|&&b| b == 0).count();
            let all = zeros == bytes.len();
            any |= zeros > 0;
            self.advance(zeros);
            if !all {
                return false;
            }
        }
    }
}

/// A block that was read; its payload is [`BlockReader::payload`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) header: Header,
    /// Offset of its header in the file, in bytes.
    pub(crate) offset: u64,
    /// Bytes or blocks before it are damaged or missing.
    pub(crate) damage_before: bool,
}

/// Ending of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With an end block.
    Whole,
    /// Early.
    Cut,
    /// The last bytes are damaged.
    Damaged,
}

/// A header whose checksum is right, at the start of the window.
#[derive(Clone, Copy, Debug)]
struct FoundHeader {
    header: Header,
    /// Offset of the header in the file, in bytes.
    offset: u64,
    /// Bytes of the header.
    len: usize,
    /// Bytes of the block: header and stored payload.
    whole: usize,
}

/// Reads the blocks of one file.
#[derive(Debug)]
pub(crate) struct BlockReader {
    window: Window,
    /// Header length, recording and CPU of the file, once a whole header was seen.
    known: Option<Known>,
    /// Major version of the first block, where it is not ours.
    newer: Option<u16>,
    next_sequence: u64,
    blocks: u64,
    version: (u16, u16),
    /// Bytes of the current block, dropped when the next one is asked for.
    current: usize,
    /// Start and end of its payload in the window.
    payload: (usize, usize),
    expanded: Vec<u8>,
    is_expanded: bool,
    ended: bool,
    /// Ending of the file, once it was met: its findings are told only then.
    over: Option<Ending>,
    /// Bytes that were passed over.
    passed: u64,
}

impl BlockReader {
    pub(crate) fn new(file: File) -> BlockReader {
        BlockReader {
            window: Window::new(file),
            known: None,
            newer: None,
            next_sequence: 0,
            blocks: 0,
            version: (0, 0),
            current: 0,
            payload: (0, 0),
            expanded: Vec::new(),
            is_expanded: false,
            ended: false,
            over: None,
            passed: 0,
        }
    }

    /// Length of the headers, recording and CPU, once a whole header was seen.
    pub(crate) fn known(&self) -> Option<Known> {
        self.known
    }

    /// The recording that the blocks belong to.
    pub(crate) fn recording(&self) -> Option<RecordingId> {
        self.known.map(|(_, recording, _)| recording)
    }

    /// CPU that the blocks belong to.
    pub(crate) fn cpu(&self) -> Option<u32> {
        self.known.map(|(_, _, cpu)| cpu)
    }

    /// Format version of the last block.
    pub(crate) fn version(&self) -> (u16, u16) {
        self.version
    }

    /// The newer major version that the file is in.
    pub(crate) fn newer(&self) -> Option<u16> {
        self.newer
    }

    /// Whole blocks so far.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.window.offset().saturating_sub(self.passed)
    }

    /// Bytes read so far, the current block included.
    pub(crate) fn bytes_met(&self) -> u64 {
        self.bytes_read() + self.current as u64
    }

    pub(crate) fn file(&self) -> &File {
        self.window.file()
    }

    /// Goes on at block `sequence`, whose header is at `offset`.
    pub(crate) fn enter(&mut self, offset: u64, sequence: u64) -> io::Result<()> {
        self.passed = offset.saturating_sub(self.window.offset());
        self.window.enter(offset)?;
        (self.next_sequence, self.blocks) = (sequence, sequence);
        (self.current, self.is_expanded, self.ended, self.over) = (0, false, false, None);
        Ok(())
    }

    /// Payload of the current block, expanded.
    pub(crate) fn payload(&self) -> &[u8] {
        if self.is_expanded {
            &self.expanded
        } else {
            self.window.bytes().get(self.payload.0..self.payload.1).unwrap_or_default()
        }
    }

    /// Reads on to the next whole block of this file, telling `faults` of what is wrong on the way.
    pub(crate) fn next(&mut self, faults: &mut dyn FnMut(Fault)) -> Result<Block, Ending> {
        if let Some(ending) = self.over {
            return Err(ending);
        }
        let next = self.read_next(faults);
        self.over = next.as_ref().err().copied();
        next
    }

    fn read_next(&mut self, faults: &mut dyn FnMut(Fault)) -> Result<Block, Ending> {
        self.window.advance(std::mem::take(&mut self.current));
        self.is_expanded = false;
        let mut damage_before = false;
        loop {
            let Some(found) = self.find_header(damage_before, faults)? else {
                damage_before = true;
                continue;
            };
            if self.pass_over_foreign(&found, faults) || !self.take_in(&found, faults)? {
                damage_before = true;
                continue;
            }
            let FoundHeader { header, offset, len, whole } = found;
            let sequence = header.sequence.get();
            if sequence != self.next_sequence {
                self.tell_out_of_sequence(&found, damage_before, faults);
                damage_before = true;
                if sequence < self.next_sequence {
                    self.window.advance(whole);
                    continue;
                }
            }
            self.next_sequence = sequence.wrapping_add(1);
            if !(kind::FILE_HEADER..=kind::END).contains(&header.kind) {
                self.pass_over_unknown(&found, faults);
                damage_before |= header.flags & FLAG_OPTIONAL == 0;
                continue;
            }
            self.payload = (len, whole);
            if header.flags & FLAG_ZSTD != 0 && !self.expand_payload(&found, faults) {
                damage_before = true;
                continue;
            }
            self.current = whole;
            self.blocks += 1;
            self.ended = header.kind == kind::END;
            return Ok(Block { header, offset, damage_before });
        }
    }

    /// The header at the start of the window; `None` where damage was passed over.
    fn find_header(
        &mut self,
        damage_before: bool,
        faults: &mut dyn FnMut(Fault),
    ) -> Result<Option<FoundHeader>, Ending> {
        let offset = self.window.offset();
        let header_len = self.known.map(|(len, ..)| len);
        let bytes = self.window.fill(header_len.unwrap_or(block::MAX_HEADER_BYTES));
        if bytes.is_empty() {
            return Err(self.end_of_file(damage_before, faults));
        }
        if self.ended {
            faults(fault(Code::AfterEnd, offset, None, "the end block is followed by more bytes".into()));
            return Err(Ending::Damaged);
        }
        match block::parse(bytes, header_len) {
            Parsed::Header(header, len) => {
                let whole = len + header.payload_len.get() as usize;
                Ok(Some(FoundHeader { header, offset, len, whole }))
            }
            Parsed::Newer(major) if self.known.is_none() => {
                self.newer = Some(major);
                Err(Ending::Damaged)
            }
            Parsed::Short(_) => {
                let there = bytes_there(bytes.len() as u64, header_len);
                faults(self.cut(offset, self.next_sequence, there));
                Err(Ending::Cut)
            }
            Parsed::Newer(_) | Parsed::Bad => self.skip_damage(offset, faults).map_or(Ok(None), Err),
        }
    }

    /// Passes over a block of another CPU or recording; true where it was one.
    fn pass_over_foreign(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) -> bool {
        let FoundHeader { header, offset, whole, .. } = found;
        let Some((_, recording, cpu)) = self.known else { return false };
        if header.recording == recording && header.cpu.get() == cpu {
            return false;
        }
        let sequence = header.sequence.get();
        let whose = if header.recording == recording {
            format!("block {sequence} belongs to CPU {}", header.cpu.get())
        } else {
            format!("block {sequence} belongs to another recording")
        };
        faults(fault(Code::Foreign, *offset, Some(sequence), whose));
        self.window.fill(*whole);
        self.window.advance(*whole);
        true
    }

    /// Reads all of a block; false where its checksum differs: it was passed over then.
    fn take_in(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) -> Result<bool, Ending> {
        let FoundHeader { header, offset, len, whole } = *found;
        let sequence = header.sequence.get();
        let there = self.window.fill(whole).len();
        if there < whole {
            faults(self.cut(offset, sequence, bytes_there(there as u64, Some(whole))));
            return Err(Ending::Cut);
        }
        self.known.get_or_insert((len, header.recording, header.cpu.get()));
        self.version = (header.major.get(), header.minor.get());
        let stored = &self.window.bytes()[len..whole];
        if block::crc32c(stored) == header.payload_crc.get() {
            return Ok(true);
        }
        let zeros = stored.iter().rev().take_while(|&&b| b == 0).count();
        self.window.advance(whole);
        if zeros >= SECTOR && (self.window.fill(1).is_empty() || self.window.only_zeros_left()) {
            let message = format!("block {sequence} at byte {offset} ends in zeros; every earlier block is whole");
            faults(fault(Code::ZeroTail, offset, Some(sequence), message));
            return Err(Ending::Cut);
        }
        let resumes = self.window.offset();
        let message = format!("block {sequence} at byte {offset}: checksum differs; good data resumes at {resumes}");
        faults(fault(Code::BadPayload, offset, Some(sequence), message));
        self.next_sequence = sequence.wrapping_add(1);
        Ok(false)
    }

    fn tell_out_of_sequence(&self, found: &FoundHeader, damage_before: bool, faults: &mut dyn FnMut(Fault)) {
        let (sequence, offset) = (found.header.sequence.get(), found.offset);
        // The number of a damaged first block is not known to be missing twice.
        if !damage_before || sequence < self.next_sequence {
            let message = format!("block {sequence} at byte {offset} stands where block {} should", self.next_sequence);
            faults(fault(Code::OutOfSequence, offset, Some(sequence), message));
        }
    }

    /// Passes over a block of a kind that only newer writers know.
    fn pass_over_unknown(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) {
        let FoundHeader { header, offset, whole, .. } = found;
        let sequence = header.sequence.get();
        let code = if header.flags & FLAG_OPTIONAL == 0 { Code::BadHeader } else { Code::UnknownBlock };
        let message = format!("block {sequence} at byte {offset} is of kind {}, which is not known here", header.kind);
        faults(fault(code, *offset, Some(sequence), message));
        self.blocks += 1;
        self.window.advance(*whole);
    }

    /// Expands the payload of a block; false where it cannot be: the block was passed over then.
    fn expand_payload(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) -> bool {
        let FoundHeader { header, offset, len, whole } = *found;
        let expanded = expand(&self.window.bytes()[len..whole], header.raw_len.get() as usize, &mut self.expanded);
        self.is_expanded = expanded.is_ok();
        if let Err(code) = expanded {
            let message = not_expanded(code, offset, &header);
            faults(fault(code, offset, Some(header.sequence.get()), message));
            self.window.advance(whole);
        }
        self.is_expanded
    }

    fn end_of_file(&mut self, damage_before: bool, faults: &mut dyn FnMut(Fault)) -> Ending {
        let offset = self.window.offset();
        if let Some(error) = self.window.take_error() {
            let message = format!("cannot be read beyond byte {offset}: {error}");
            faults(fault(Code::CutInBlock, offset, None, message));
            return Ending::Cut;
        }
        if self.ended {
            return Ending::Whole;
        }
        if damage_before {
            return Ending::Damaged;
        }
        if offset == 0 {
            faults(fault(Code::Empty, 0, None, "the file has no bytes".into()));
        } else {
            let blocks = self.blocks;
            let message =
                format!("ends after block {} without an end block; all {blocks} are whole", blocks.saturating_sub(1));
            faults(fault(Code::NoEnd, offset, None, message));
        }
        Ending::Cut
    }

    fn cut(&self, offset: u64, sequence: u64, there: String) -> Fault {
        let read_error = self.window.error.as_ref().map(|e| format!(" ({e})")).unwrap_or_default();
        let message =
            format!("ends inside block {sequence} at byte {offset}: {there}{read_error}; every earlier block is whole");
        fault(Code::CutInBlock, offset, Some(sequence), message)
    }

    /// No header stands here. Moves to the next one, or says how the file ends.
    fn skip_damage(&mut self, offset: u64, faults: &mut dyn FnMut(Fault)) -> Option<Ending> {
        // A power cut leaves nothing but zeros, or the first bytes of a header and then zeros.
        let bytes = self.window.fill(MAGIC.len());
        let prefix = if bytes.starts_with(&MAGIC) {
            let header = &bytes[..bytes.len().min(HEADER_BYTES)];
            header.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1)
        } else {
            0
        };
        self.window.advance(prefix);
        let zeros_from = self.window.offset();
        if self.window.only_zeros_left() && (prefix == 0 || self.window.offset() - zeros_from >= SECTOR as u64) {
            let message = format!("nothing but zeros from byte {zeros_from} on; every earlier block is whole");
            faults(fault(Code::ZeroTail, offset, None, message));
            return Some(Ending::Cut);
        }
        if self.window.offset() == offset {
            self.window.advance(1);
        }
        let found = self.resume();
        let code = if self.known.is_none() && self.next_sequence == 0 { Code::BadFileHeader } else { Code::BadHeader };
        let message = match found {
            true => format!("no whole block header at byte {offset}; good data resumes at {}", self.window.offset()),
            false => format!("no whole block header at byte {offset}, and none after it"),
        };
        faults(fault(code, offset, None, message));
        (!found).then_some(Ending::Damaged)
    }

    /// Moves to the next whole header.
    fn resume(&mut self) -> bool {
        loop {
            let bytes = self.window.fill(block::MAX_HEADER_BYTES);
            let there = bytes.len();
            if there < HEADER_BYTES {
                self.window.advance(there);
                return false;
            }
            let Some(at) = bytes.iter().position(|&b| b == MAGIC[0]) else {
                self.window.advance(there);
                continue;
            };
            let found = bytes[at..].starts_with(&MAGIC);
            self.window.advance(at);
            if found {
                let header_len = self.known.map(|(len, ..)| len);
                let parsed = block::parse(self.window.fill(block::MAX_HEADER_BYTES), header_len);
                if let Parsed::Header(header, _) = parsed
                    && self.known.is_none_or(|(_, recording, _)| recording == header.recording)
                {
                    return true;
                }
            }
            self.window.advance(1);
        }
    }
}

fn bytes_there(there: u64, of: Option<usize>) -> String {
    match of {
        Some(of) => format!("{there} of its {of} bytes are there"),
        None => format!("{there} of its bytes are there"),
    }
}

fn fault(code: Code, offset: u64, block: Option<u64>, message: String) -> Fault {
    Fault { code, offset, block, message }
}

/// Message about a compressed block that is left out.
fn not_expanded(code: Code, offset: u64, header: &Header) -> String {
    let sequence = header.sequence.get();
    match code {
        Code::NeedsZstd => format!(
            "block {sequence} at byte {offset} is compressed, and this program is built without zstd: build kmemtrace-abi with its \
             feature `zstd`"
        ),
        _ => format!("block {sequence} at byte {offset} does not expand to {} bytes", header.raw_len),
    }
}

#[cfg(all(test, not(feature = "zstd")))]
mod without_zstd {
    use std::io::Write;

    use super::*;
    use crate::disk::block::{BlockInfo, block};

    #[test]
    fn a_compressed_block_is_left_out_with_its_remedy() {
        let of = |sequence, flags| {
            block(&BlockInfo { kind: kind::COUNTERS, sequence, flags, ..BlockInfo::default() }, b"payload")
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[of(0, 0), of(1, FLAG_ZSTD), of(2, 0)].concat()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut reader = BlockReader::new(file);
        let mut found = Vec::new();
        assert!(reader.next(&mut |fault| found.push(fault)).is_ok_and(|block| !block.damage_before));
        let next = reader.next(&mut |fault| found.push(fault)).unwrap();
        assert!(next.damage_before && next.header.sequence.get() == 2);
        let [fault] = &found[..] else { panic!("{found:?}") };
        assert_eq!((fault.code, fault.block), (Code::NeedsZstd, Some(1)));
        assert!(fault.message.contains("build kmemtrace-abi with its feature `zstd`"), "{}", fault.message);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;
    use crate::disk::block::{BlockInfo, FLAG_OPTIONAL, NO_CPU, crc32c};

    const RECORDING: RecordingId = [7; 16];
    const CPU: u32 = 3;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    fn info(kind: u8, sequence: u64) -> BlockInfo {
        BlockInfo { kind, cpu: CPU, recording: RECORDING, sequence, ..BlockInfo::default() }
    }

    fn data(sequence: u64) -> Vec<u8> {
        block::block(&info(kind::DATA, sequence), format!("payload {sequence}").as_bytes())
    }

    fn end(sequence: u64) -> Vec<u8> {
        block::block(&info(kind::END, sequence), b"")
    }

    /// A block whose header is not as [`block::seal`] makes it; its checksum is right.
    fn with_header(info: &BlockInfo, payload: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = block::block(info, payload);
        change(&mut bytes);
        let len = usize::from(u16::from_le_bytes([bytes[12], bytes[13]]));
        let crc = crc32c(&bytes[12..len]).to_le_bytes();
        bytes[8..12].copy_from_slice(&crc);
        bytes
    }

    fn flipped(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
        bytes[at] ^= 1;
        bytes
    }

    /// A block that was handed out.
    #[derive(Debug, PartialEq, Eq)]
    struct Got {
        sequence: u64,
        offset: u64,
        damage_before: bool,
        payload: Vec<u8>,
    }

    /// Blocks, findings and ending of a file.
    struct Seen {
        reader: BlockReader,
        got: Vec<Got>,
        faults: Vec<Fault>,
        ending: Ending,
    }

    impl Seen {
        fn of(file: File) -> Seen {
            let mut reader = BlockReader::new(file);
            let (mut got, mut faults) = (Vec::new(), Vec::new());
            let ending = Seen::rest(&mut reader, &mut got, &mut faults);
            Seen { reader, got, faults, ending }
        }

        fn rest(reader: &mut BlockReader, got: &mut Vec<Got>, faults: &mut Vec<Fault>) -> Ending {
            let ending = loop {
                match reader.next(&mut |fault| faults.push(fault)) {
                    Ok(Block { header, offset, damage_before }) => {
                        let (sequence, payload) = (header.sequence.get(), reader.payload().to_vec());
                        got.push(Got { sequence, offset, damage_before, payload });
                    }
                    Err(ending) => break ending,
                }
            };
            let told = faults.len();
            assert_eq!(reader.next(&mut |fault| faults.push(fault)).err(), Some(ending), "the end is told once");
            assert_eq!(faults.len(), told, "{faults:?}");
            ending
        }

        fn parts(parts: &[&[u8]]) -> Seen {
            Seen::of(file(&parts.concat()))
        }

        /// Number of each block, and whether there was damage before it.
        fn numbers(&self) -> Vec<(u64, bool)> {
            self.got.iter().map(|got| (got.sequence, got.damage_before)).collect()
        }

        fn found(&self) -> Vec<(Code, u64, Option<u64>)> {
            self.faults.iter().map(|fault| (fault.code, fault.offset, fault.block)).collect()
        }

        /// The only finding's text.
        fn message(&self) -> &str {
            let [fault] = &self.faults[..] else { panic!("{:?}", self.faults) };
            &fault.message
        }
    }

    #[test]
    fn a_whole_file_comes_block_by_block_without_a_finding() {
        let (first, second, last) = (data(0), data(1), end(2));
        let seen = Seen::parts(&[&first, &second, &last]);
        let got = |sequence, offset: usize, payload: &[u8]| Got {
            sequence,
            offset: offset as u64,
            damage_before: false,
            payload: payload.to_vec(),
        };
        let two = first.len() + second.len();
        assert_eq!(seen.got, [got(0, 0, b"payload 0"), got(1, first.len(), b"payload 1"), got(2, two, b"")]);
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
        let reader = &seen.reader;
        assert_eq!(reader.known(), Some((HEADER_BYTES, RECORDING, CPU)));
        assert_eq!((reader.recording(), reader.cpu(), reader.newer()), (Some(RECORDING), Some(CPU), None));
        assert_eq!((reader.version(), reader.blocks()), ((block::MAJOR, block::MINOR), 3));
        assert_eq!(reader.bytes_read(), (two + last.len()) as u64);
        let nothing = BlockReader::new(file(b""));
        assert_eq!((nothing.known(), nothing.recording(), nothing.cpu()), (None, None, None));
    }

    #[test]
    fn a_file_without_a_cpu_and_of_another_minor_version_is_read() {
        let info = BlockInfo { kind: kind::META, cpu: NO_CPU, ..BlockInfo::default() };
        let old = with_header(&info, b"x", |bytes| bytes[16] = 0);
        let seen = Seen::parts(&[&old]);
        assert_eq!((seen.reader.version(), seen.reader.cpu()), ((1, 0), Some(NO_CPU)));
        let newer = with_header(&info, b"x", |bytes| bytes[16] = 9);
        assert_eq!(Seen::parts(&[&newer]).reader.version(), (1, 9));
    }

    #[test]
    fn a_file_cut_anywhere_keeps_its_whole_blocks() {
        let blocks = [data(0), data(1), end(2)];
        let file = blocks.concat();
        let ends = [0, blocks[0].len(), blocks[0].len() + blocks[1].len()];
        for len in 0..file.len() {
            let seen = Seen::parts(&[&file[..len]]);
            let whole = ends.iter().filter(|&&end| end <= len).count() - 1;
            let from = ends[whole];
            let (code, block) = match len {
                0 => (Code::Empty, None),
                _ if len == from => (Code::NoEnd, None),
                _ => (Code::CutInBlock, Some(whole as u64)),
            };
            assert_eq!(seen.numbers(), [(0, false), (1, false)][..whole], "{len}");
            assert_eq!((seen.ending, seen.found()), (Ending::Cut, vec![(code, from as u64, block)]), "{len}");
            assert_eq!((seen.reader.blocks(), seen.reader.newer()), (whole as u64, None));
        }
    }

    #[test]
    fn a_cut_is_told_with_the_bytes_that_are_there() {
        let (first, second) = (data(0), data(1));
        for (parts, message) in [
            (
                &[&first[..50]][..],
                "ends inside block 0 at byte 0: 50 of its bytes are there; every earlier block is whole",
            ),
            (
                &[&first, &second[..40]],
                "ends inside block 1 at byte 105: 40 of its 96 bytes are there; every earlier block is whole",
            ),
            (
                &[&first, &second[..100]],
                "ends inside block 1 at byte 105: 100 of its 105 bytes are there; every earlier block is whole",
            ),
            (&[&first, &second], "ends after block 1 without an end block; all 2 are whole"),
            (&[], "the file has no bytes"),
        ] {
            assert_eq!(Seen::parts(parts).message(), message);
        }
        // A block whose number is not the next one is cut under its own number.
        let seen = Seen::parts(&[&first, &data(5)[..100]]);
        assert_eq!(seen.found(), [(Code::CutInBlock, 105, Some(5))]);
    }

    #[test]
    fn a_payload_with_a_wrong_checksum_is_left_out_and_told_with_its_place() {
        let bad = flipped(data(1), HEADER_BYTES + 2);
        let seen = Seen::parts(&[&data(0), &bad, &data(2), &end(3)]);
        assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)]);
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::BadPayload, 105, Some(1))]));
        assert_eq!(seen.message(), "block 1 at byte 105: checksum differs; good data resumes at 210");
        // Damage that nothing follows is no cut.
        let seen = Seen::parts(&[&data(0), &bad]);
        assert_eq!((seen.ending, seen.found()), (Ending::Damaged, vec![(Code::BadPayload, 105, Some(1))]));
        assert_eq!((seen.reader.blocks(), seen.reader.bytes_read()), (1, 210));
        // The header of a damaged first block still tells of which file the others are.
        let seen = Seen::parts(&[&flipped(data(0), HEADER_BYTES), &data(1), &end(2)]);
        assert_eq!(seen.numbers(), [(1, true), (2, false)]);
        assert_eq!(seen.reader.known(), Some((HEADER_BYTES, RECORDING, CPU)));
    }

    #[test]
    fn reading_resumes_at_the_next_whole_header_behind_damage() {
        let other = BlockInfo { recording: [8; 16], ..info(kind::DATA, 2) };
        let bad = flipped(data(1), 40);
        let between = [
            bad.clone(),
            [&bad[..], b"no header"].concat(),
            [&bad[..], &MAGIC, &MAGIC[..5], &MAGIC].concat(),
            // The header of another recording is not where this one resumes.
            [&bad[..], &block::block(&other, b"other")].concat(),
            [&bad[..], &vec![MAGIC[0]; 3000]].concat(),
            [&bad[..], &vec![0; 200_000], b"\x01"].concat(),
            [&vec![b'x'; 600][..], &MAGIC[..7]].concat(),
            b"x".to_vec(),
        ];
        for junk in between {
            let seen = Seen::parts(&[&data(0), &junk, &data(2), &end(3)]);
            assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)], "{}", junk.len());
            assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::BadHeader, 105, None)]));
            let message = format!("no whole block header at byte 105; good data resumes at {}", 105 + junk.len());
            assert_eq!(seen.message(), message);
            assert_eq!(seen.got[1].payload, b"payload 2");
            assert_eq!(seen.got[1].offset, 105 + junk.len() as u64);
            // Behind the last block nothing resumes.
            let seen = Seen::parts(&[&data(0), &junk]);
            assert_eq!((seen.numbers(), seen.ending), (vec![(0, false)], Ending::Damaged));
            assert_eq!(seen.found(), [(Code::BadHeader, 105, None)]);
            assert_eq!(seen.message(), "no whole block header at byte 105, and none after it");
            assert_eq!(seen.reader.bytes_read(), 105 + junk.len() as u64);
        }
    }

    #[test]
    fn the_last_header_of_a_file_is_found_behind_damage() {
        // An end block without a payload: nothing stands behind its header.
        let seen = Seen::parts(&[&data(0), b"junk", &end(2)]);
        assert_eq!((seen.numbers(), seen.ending), (vec![(0, false), (2, true)], Ending::Whole));
        let seen = Seen::parts(&[&data(0), b"junk", &end(2)[..HEADER_BYTES - 1]]);
        assert_eq!((seen.numbers(), seen.ending), (vec![(0, false)], Ending::Damaged));
    }

    #[test]
    fn damage_at_the_start_is_that_of_the_file_header() {
        let bad = flipped(data(0), 20);
        for junk in [&bad[..], b"junk before", &bad[8..]] {
            let seen = Seen::parts(&[junk, &data(1), &end(2)]);
            // The number of the first block is missing because of the damage, which is told.
            assert_eq!(seen.numbers(), [(1, true), (2, false)]);
            assert_eq!(seen.found(), [(Code::BadFileHeader, 0, None)]);
            assert_eq!(seen.reader.recording(), Some(RECORDING));
        }
        // A first header that is whole, and a second one that is not: the file header was there.
        let seen = Seen::parts(&[&flipped(data(0), HEADER_BYTES), &flipped(data(1), 20), &data(2), &end(3)]);
        assert_eq!(seen.found(), [(Code::BadPayload, 0, Some(0)), (Code::BadHeader, 105, None)]);
    }

    #[test]
    fn a_hole_in_the_numbers_is_told_and_a_block_that_comes_twice_is_left_out() {
        let seen = Seen::parts(&[&data(0), &data(3), &end(4)]);
        assert_eq!(seen.numbers(), [(0, false), (3, true), (4, false)]);
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::OutOfSequence, 105, Some(3))]));
        assert_eq!(seen.message(), "block 3 at byte 105 stands where block 1 should");
        let seen = Seen::parts(&[&data(0), &data(1), &data(0), &data(2), &end(3)]);
        assert_eq!(seen.numbers(), [(0, false), (1, false), (2, true), (3, false)]);
        assert_eq!(seen.found(), [(Code::OutOfSequence, 210, Some(0))]);
        assert_eq!(seen.message(), "block 0 at byte 210 stands where block 2 should");
        // Damage explains a hole, but not a block that comes twice.
        let seen = Seen::parts(&[&data(0), b"junk", &data(3), &end(4)]);
        assert_eq!(seen.found(), [(Code::BadHeader, 105, None)]);
        let seen = Seen::parts(&[&data(0), &data(1), b"junk", &data(0), &data(2), &end(3)]);
        assert_eq!(seen.found(), [(Code::BadHeader, 210, None), (Code::OutOfSequence, 214, Some(0))]);
        assert_eq!(seen.numbers(), [(0, false), (1, false), (2, true), (3, false)]);
    }

    #[test]
    fn blocks_of_other_files_are_left_out() {
        let cpu = block::block(&BlockInfo { cpu: 4, ..info(kind::DATA, 1) }, b"other");
        let recording = block::block(&BlockInfo { recording: [8; 16], ..info(kind::DATA, 1) }, b"other");
        for (foreign, message) in
            [(cpu, "block 1 belongs to CPU 4"), (recording, "block 1 belongs to another recording")]
        {
            let seen = Seen::parts(&[&data(0), &foreign, &data(1), &end(2)]);
            assert_eq!(seen.numbers(), [(0, false), (1, true), (2, false)]);
            assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::Foreign, 105, Some(1))]));
            assert_eq!((seen.message(), seen.reader.blocks()), (message, 3));
            let seen = Seen::parts(&[&data(0), &foreign]);
            assert_eq!((seen.ending, seen.reader.bytes_read()), (Ending::Damaged, 105 + foreign.len() as u64));
        }
    }

    #[test]
    fn unknown_kinds_are_skipped_and_cost_something_only_where_they_are_needed() {
        let of = |kind: u8, flags: u8| block::block(&BlockInfo { flags, ..info(kind, 1) }, b"later");
        for (kind, flags, code, damage) in [
            (7, FLAG_OPTIONAL, Code::UnknownBlock, false),
            (255, FLAG_OPTIONAL | FLAG_ZSTD, Code::UnknownBlock, false),
            (7, 0, Code::BadHeader, true),
            (0, FLAG_ZSTD, Code::BadHeader, true),
        ] {
            let seen = Seen::parts(&[&data(0), &of(kind, flags), &data(2), &end(3)]);
            assert_eq!(seen.numbers(), [(0, false), (2, damage), (3, false)], "{kind} {flags}");
            assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(code, 105, Some(1))]));
            assert_eq!(seen.message(), format!("block 1 at byte 105 is of kind {kind}, which is not known here"));
            assert_eq!((seen.reader.blocks(), seen.reader.bytes_read()), (4, 105 + 101 + 105 + 96));
        }
        // Damage before a block that may be skipped is damage before the next one.
        let seen = Seen::parts(&[&data(0), &flipped(data(1), 100), &of(7, FLAG_OPTIONAL)[..], &end(3)]);
        assert_eq!(seen.numbers(), [(0, false), (3, true)]);
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn compressed_payloads_are_expanded_to_the_size_they_tell() {
        let text = b"many many many many bytes".repeat(40);
        let packed = zstd::bulk::compress(&text, 3).unwrap();
        let compressed = |sequence, flags, raw_len| {
            let mut bytes = [&[0; HEADER_BYTES][..], &packed].concat();
            block::seal(&mut bytes, &BlockInfo { flags, ..info(kind::DATA, sequence) }, Some(raw_len));
            bytes
        };
        let good = compressed(0, FLAG_ZSTD, text.len());
        let len = good.len() as u64;
        let seen = Seen::parts(&[&good, &compressed(1, FLAG_ZSTD | FLAG_OPTIONAL, text.len()), &data(2), &end(3)]);
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
        assert!(seen.got[0].payload == text && seen.got[1].payload == text);
        assert_eq!(seen.got[2].payload, b"payload 2");
        // Without the flag the bytes are the payload.
        let seen = Seen::parts(&[&compressed(0, FLAG_OPTIONAL, text.len()), &end(1)]);
        assert_eq!((&seen.got[0].payload, seen.found()), (&packed, vec![]));
        for raw_len in [text.len() - 1, text.len() + 1, 0] {
            let seen = Seen::parts(&[&good, &compressed(1, FLAG_ZSTD, raw_len), &data(2), &end(3)]);
            assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)], "{raw_len}");
            assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::BadCompression, len, Some(1))]));
            assert_eq!(seen.message(), format!("block 1 at byte {len} does not expand to {raw_len} bytes"));
            assert_eq!(seen.reader.blocks(), 3);
        }
    }

    #[test]
    fn a_newer_major_version_is_told_by_the_first_block_alone() {
        let newer = |sequence| with_header(&info(kind::DATA, sequence), b"later", |bytes| bytes[14] = 2);
        let seen = Seen::parts(&[&newer(0), &data(1)]);
        assert_eq!((seen.ending, seen.reader.newer(), seen.found()), (Ending::Damaged, Some(2), vec![]));
        let seen = Seen::parts(&[&data(0), &newer(1), &data(2), &end(3)]);
        assert_eq!((seen.reader.newer(), seen.found()), (None, vec![(Code::BadHeader, 105, None)]));
        assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)]);
    }

    #[test]
    fn a_longer_header_of_a_later_minor_version_is_passed_over() {
        let longer = |sequence: u64, kind: u8, len: usize| {
            with_header(&info(kind, sequence), b"payload", |bytes| {
                bytes.splice(HEADER_BYTES..HEADER_BYTES, vec![0xee; len - HEADER_BYTES]);
                bytes[12..14].copy_from_slice(&(len as u16).to_le_bytes());
            })
        };
        for len in [HEADER_BYTES + 1, 128, block::MAX_HEADER_BYTES] {
            let seen = Seen::parts(&[&longer(0, kind::DATA, len), &longer(1, kind::END, len)]);
            assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
            assert!(seen.got.iter().all(|got| got.payload == b"payload"));
            assert_eq!(seen.got[1].offset, len as u64 + 7);
            assert_eq!(seen.reader.known(), Some((len, RECORDING, CPU)));
            // Headers of a file have the same length.
            let seen = Seen::parts(&[&longer(0, kind::DATA, len), &data(1), &longer(2, kind::END, len)]);
            assert_eq!(seen.numbers(), [(0, false), (2, true)]);
            assert_eq!(seen.found(), [(Code::BadHeader, len as u64 + 7, None)]);
        }
        let seen = Seen::parts(&[&longer(0, kind::DATA, block::MAX_HEADER_BYTES + 1), &data(1)]);
        assert_eq!(seen.numbers(), [(1, true)]);
    }

    #[test]
    fn zeros_at_the_end_are_what_a_power_cut_leaves() {
        let big = block::block(&info(kind::DATA, 1), &[1; 2000]);
        let zeros = |len: usize| vec![0; len];
        let before = data(0);
        let whole = big.len();
        for (parts, code, block, ending) in [
            // Zeros where a header should stand: a single one will do.
            (&[&before[..], &zeros(1)][..], Code::ZeroTail, None, Ending::Cut),
            (&[&before[..], &zeros(300_000)], Code::ZeroTail, None, Ending::Cut),
            // The start of a header: only a sector of zeros tells them from damage.
            (&[&before[..], &big[..40], &zeros(1000)], Code::ZeroTail, None, Ending::Cut),
            (&[&before[..], &big[..40], &zeros(SECTOR + 40)], Code::ZeroTail, None, Ending::Cut),
            (&[&before[..], &big[..19], &zeros(SECTOR)], Code::ZeroTail, None, Ending::Cut),
            (&[&before[..], &big[..19], &zeros(SECTOR - 1)], Code::BadHeader, None, Ending::Damaged),
            (&[&before[..], &big[..19], &zeros(SECTOR), b"x"], Code::BadHeader, None, Ending::Damaged),
            (&[&before[..], &zeros(600), b"x"], Code::BadHeader, None, Ending::Damaged),
            // Zeros at the end of a payload.
            (&[&before[..], &big[..whole - SECTOR], &zeros(SECTOR)], Code::ZeroTail, Some(1), Ending::Cut),
            (&[&before[..], &big[..whole - SECTOR], &zeros(SECTOR + 9)], Code::ZeroTail, Some(1), Ending::Cut),
            (
                &[&before[..], &big[..whole - SECTOR + 1], &zeros(SECTOR - 1)],
                Code::BadPayload,
                Some(1),
                Ending::Damaged,
            ),
        ] {
            let seen = Seen::parts(parts);
            assert_eq!((seen.numbers(), seen.ending), (vec![(0, false)], ending), "{:?}", seen.faults);
            assert_eq!(seen.found(), [(code, 105, block)]);
        }
        let seen = Seen::parts(&[&before, &zeros(9)]);
        assert_eq!(seen.message(), "nothing but zeros from byte 105 on; every earlier block is whole");
        let seen = Seen::parts(&[&before, &big[..19], &zeros(600)]);
        assert_eq!(seen.message(), "nothing but zeros from byte 124 on; every earlier block is whole");
        let seen = Seen::parts(&[&before, &big[..whole - 600], &zeros(600)]);
        assert_eq!(seen.message(), "block 1 at byte 105 ends in zeros; every earlier block is whole");
        // Zeros that blocks follow are damage.
        let seen = Seen::parts(&[&before, &big[..whole - 600], &zeros(600), &data(2), &end(3)]);
        assert_eq!((seen.numbers(), seen.ending), (vec![(0, false), (2, true), (3, false)], Ending::Whole));
        assert_eq!(seen.found(), [(Code::BadPayload, 105, Some(1))]);
    }

    #[test]
    fn bytes_behind_the_end_block_are_told() {
        let seen = Seen::parts(&[&data(0), &end(1), b"x"]);
        assert_eq!((seen.numbers(), seen.ending), (vec![(0, false), (1, false)], Ending::Damaged));
        assert_eq!(seen.found(), [(Code::AfterEnd, 105 + 96, None)]);
    }

    #[test]
    fn blocks_of_any_size_come_back_from_files_and_pipes() {
        let sizes = [0, 1, 20_000, 130_000, 3, 1_500_000, 64, 700_000, 700_000, 5, 2_000_000, 0];
        let payload = |n: usize, len: usize| (0..len).map(|at| (at * 31 + n) as u8).collect::<Vec<u8>>();
        let blocks =
            sizes.iter().enumerate().map(|(n, &len)| block::block(&info(kind::DATA, n as u64), &payload(n, len)));
        let bytes = [blocks.collect::<Vec<_>>().concat(), end(sizes.len() as u64)].concat();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let to_write = bytes.clone();
        let writing = std::thread::spawn(move || writer.write_all(&to_write));
        for file in [file(&bytes), File::from(std::os::fd::OwnedFd::from(reader))] {
            let seen = Seen::of(file);
            assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
            assert_eq!(seen.got.len(), sizes.len() + 1);
            for (n, (got, &len)) in seen.got.iter().zip(&sizes).enumerate() {
                assert!(got.payload == payload(n, len), "block {n}");
            }
            // Memory is bounded by the largest block, not by the file.
            assert!(
                seen.reader.window.buffer.len() <= 2_000_000 + 2 * CHUNK.end(),
                "{}",
                seen.reader.window.buffer.len()
            );
        }
        writing.join().unwrap().unwrap();
    }

    #[test]
    fn a_reader_goes_on_at_a_block_that_it_is_told() {
        let blocks = [data(0), data(1), data(2), end(3)];
        let mut reader = BlockReader::new(file(&blocks.concat()));
        let (mut got, mut faults) = (Vec::new(), Vec::new());
        assert!(reader.next(&mut |fault| faults.push(fault)).is_ok());
        assert_eq!((reader.bytes_read(), reader.bytes_met()), (0, 105));
        reader.enter(210, 2).unwrap();
        assert_eq!((reader.bytes_read(), reader.bytes_met(), reader.blocks()), (0, 0, 2));
        assert_eq!(Seen::rest(&mut reader, &mut got, &mut faults), Ending::Whole);
        assert_eq!(got.iter().map(|got| (got.sequence, got.offset)).collect::<Vec<_>>(), [(2, 210), (3, 315)]);
        // Bytes that were passed over do not count as read.
        assert_eq!((reader.bytes_read(), reader.blocks(), faults.len()), (105 + 96, 4, 0));
        // A file that was read to its end is entered again.
        reader.enter(105, 1).unwrap();
        got.clear();
        assert_eq!(Seen::rest(&mut reader, &mut got, &mut faults), Ending::Whole);
        assert_eq!(got.iter().map(|got| got.sequence).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(faults, []);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_cut_there() {
        let dir = tempfile::tempdir().unwrap();
        let seen = Seen::of(File::open(dir.path()).unwrap());
        assert_eq!((seen.numbers(), seen.ending), (vec![], Ending::Cut));
        assert_eq!(seen.found(), [(Code::CutInBlock, 0, None)]);
        assert!(seen.message().starts_with("cannot be read beyond byte 0: "), "{}", seen.message());
        let mut window = Window::new(File::open(dir.path()).unwrap());
        assert!(window.fill(1).is_empty());
        assert!(window.take_error().is_some() && window.take_error().is_none());
    }

    #[test]
    fn a_window_hands_out_bytes_in_order_and_reads_no_more_than_it_should() {
        let bytes: Vec<u8> = (0..500_000u32).map(|n| (n / 3) as u8).collect();
        let mut window = Window::new(file(&bytes));
        let position = |window: &Window| window.file().stream_position().unwrap();
        assert_eq!((window.bytes().len(), window.offset()), (0, 0));
        assert_eq!(window.fill(0).len(), 0);
        // Little at a file's beginning, which is all that opening most files takes.
        assert!(window.fill(10) == &bytes[..16 << 10]);
        assert_eq!(position(&window), 16 << 10);
        window.fill(16 << 10);
        assert_eq!(position(&window), 16 << 10);
        window.advance(1000);
        assert_eq!(window.offset(), 1000);
        assert!(window.bytes() == &bytes[1000..16 << 10]);
        // The bytes that are wanted and the next block's header come with one call.
        assert!(window.fill(300_000) == &bytes[1000..301_000 + AHEAD]);
        window.advance(300_000);
        assert_eq!(window.fill(AHEAD).len(), AHEAD);
        assert!(window.fill(AHEAD + 1) == &bytes[301_000..301_000 + AHEAD + (128 << 10)]);
        // A file that ends before gives what it has.
        assert!(window.fill(400_000) == &bytes[301_000..]);
        window.advance(usize::MAX);
        assert_eq!((window.offset(), window.fill(1).len()), (bytes.len() as u64, 0));
        window.enter(7).unwrap();
        assert_eq!((window.offset(), window.fill(3)[..3].to_vec()), (7, bytes[7..10].to_vec()));
        // One call asks for a megabyte at most, and for the few bytes that are wanted beyond two of them no third is read.
        let mut window = Window::new(file(&vec![1; 3 << 20]));
        window.fill((2 << 20) + 5);
        assert_eq!(position(&window), (2 << 20) + (128 << 10));
    }

    #[test]
    fn only_zeros_are_left_where_at_least_one_byte_is_and_all_are_zero() {
        for (bytes, want, at) in [
            (vec![], false, 0),
            (vec![0], true, 1),
            (vec![1], false, 0),
            (vec![0; 200_000], true, 200_000),
            ([vec![0; 200_000], vec![5, 0]].concat(), false, 200_000),
        ] {
            let mut window = Window::new(file(&bytes));
            assert_eq!((window.only_zeros_left(), window.offset()), (want, at));
        }
    }
}
