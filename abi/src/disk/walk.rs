//! A look at all blocks of a file before it is read: headers one after the other by positioned reads, and only those
//! payloads that the caller asks for. The stream that reads the same file does not notice.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::disk::block::{self, Header, MAGIC, MAX_HEADER_BYTES, Parsed, RecordingId};
use crate::disk::expand::{Expander, is_stored_otherwise};
use crate::disk::hole::{self, Zeros};

/// Bytes looked through at once for the next header behind damage, at most.
const CHUNK: usize = 64 << 10;

/// Length of the headers of a file, its recording and CPU: the same in all of its blocks.
pub(crate) type Known = (usize, RecordingId, u32);

/// Reads up to `buffer.len()` bytes at `offset`; fewer only where the file ends.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut len = 0;
    while let Some(room) = buffer.get_mut(len..).filter(|room| !room.is_empty()) {
        match file.read_at(room, offset.saturating_add(len as u64)) {
            Ok(0) => break,
            Ok(n) => len = len.saturating_add(n),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// A block that was met; its payload has not been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    pub(crate) header: Header,
    /// Offset of the header in the file, in bytes.
    pub(crate) offset: u64,
    header_len: usize,
    /// Length of the codec's output.
    coded_len: usize,
}

/// Goes through the blocks of a file.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    file: &'a File,
    known: Known,
    /// Offset of the next header, in bytes.
    at: u64,
    /// Bytes of the file when the walk began: one that grows is not followed.
    len: u64,
    next_sequence: u64,
    stored: Vec<u8>,
    expander: Expander,
}

impl<'a> Walk<'a> {
    /// From the file's first block on.
    pub(crate) fn new(file: &'a File, known: Known) -> io::Result<Walk<'a>> {
        let len = file.metadata()?.len();
        Ok(Walk { file, known, at: 0, len, next_sequence: 0, stored: Vec::new(), expander: Expander::default() })
    }

    /// From the block `sequence` on, whose header is at `offset`.
    pub(crate) fn at(file: &'a File, known: Known, offset: u64, sequence: u64) -> io::Result<Walk<'a>> {
        Ok(Walk { at: offset, next_sequence: sequence, ..Walk::new(file, known)? })
    }

    /// The next block of this file whose header is whole; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Met>> {
        let (header_len, recording, cpu) = self.known;
        let mut bytes = [0; MAX_HEADER_BYTES];
        while self.at < self.len {
            let room = bytes.split_at_mut(header_len.min(MAX_HEADER_BYTES)).0;
            let len = read_at(self.file, room, self.at)?;
            let start = room.get(..len).unwrap_or_default();
            match block::parse(start, Some(header_len)) {
                Parsed::Header(header, header_len) => {
                    let met = Met { header, offset: self.at, header_len, coded_len: block::coded_len(start) };
                    self.at = self.at.saturating_add(header.block_bytes(header_len) as u64);
                    let sequence = header.sequence.get();
                    let is_own = header.recording == recording && header.cpu.get() == cpu;
                    if is_own && sequence >= self.next_sequence && self.at <= self.len {
                        self.next_sequence = sequence.saturating_add(1);
                        return Ok(Some(met));
                    }
                }
                Parsed::Short(_) => return Ok(None),
                Parsed::Newer(_) | Parsed::Bad => self.resume()?,
            }
        }
        Ok(None)
    }

    /// Moves to the next whole header of the same recording, or to the end.
    fn resume(&mut self) -> io::Result<()> {
        let (header_len, recording, _) = self.known;
        // Small at first: damage that a hostile file repeats after every block must not cost a whole chunk each time.
        let mut size = 2 * MAX_HEADER_BYTES;
        let (mut chunk, mut zeros) = (Vec::new(), Zeros::default());
        self.at = self.at.saturating_add(1);
        loop {
            chunk.resize(size, 0);
            let len = read_at(self.file, &mut chunk, self.at)?;
            let bytes = chunk.get(..len).unwrap_or_default();
            // A header that the end of the chunk cuts is looked at with the next one.
            let whole = if len < size { len } else { len.saturating_sub(MAX_HEADER_BYTES) };
            for (from, _) in bytes.windows(MAGIC.len()).take(whole).enumerate().filter(|(_, at)| *at == MAGIC) {
                if let Parsed::Header(header, _) = block::parse(bytes.get(from..).unwrap_or_default(), Some(header_len))
                    && header.recording == recording
                {
                    self.at = self.at.saturating_add(from as u64);
                    return Ok(());
                }
            }
            self.at = self.at.saturating_add(whole as u64);
            if bytes.iter().all(|&byte| byte == 0) {
                let run = zeros.add(self.at, whole as u64);
                self.at = hole::behind(self.file, self.at, run)?.unwrap_or(self.len);
            }
            if len < size {
                self.at = self.len;
                return Ok(());
            }
            size = size.saturating_mul(2).min(CHUNK);
        }
    }

    /// The payload of a block, expanded, or what comes before damage in its records; `None` where all of it is damaged.
    pub(crate) fn payload(&mut self, met: &Met) -> io::Result<Option<&[u8]>> {
        let Met { header, offset, header_len, coded_len } = met;
        self.stored.resize(header.payload_len.get() as usize, 0);
        let len = read_at(self.file, &mut self.stored, offset.saturating_add(*header_len as u64))?;
        if len < self.stored.len() || block::crc32c(&self.stored) != header.payload_crc.get() {
            return Ok(None);
        }
        if !is_stored_otherwise(header) {
            return Ok(Some(&self.stored));
        }
        let expanded = self.expander.expand_all(header, *coded_len, &self.stored);
        Ok(expanded.is_ok().then(|| self.expander.payload()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::disk::block::{BlockInfo, HEADER_BYTES, block, kind};

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn numbered(sequence: u64, payload: &[u8]) -> Vec<u8> {
        block(&BlockInfo { kind: kind::COUNTERS, cpu: 2, sequence, ..BlockInfo::default() }, payload)
    }

    fn sequences(bytes: &[u8]) -> Vec<(u64, bool)> {
        let file = file(bytes);
        let mut walk = Walk::new(&file, (HEADER_BYTES, [0; 16], 2)).unwrap();
        let mut found = Vec::new();
        while let Some(met) = walk.next().unwrap() {
            found.push((met.header.sequence.get(), walk.payload(&met).unwrap() == Some(b"payload")));
        }
        found
    }

    #[test]
    fn whole_blocks_are_met_whatever_stands_between_them() {
        let other_cpu = block(&BlockInfo { cpu: 3, sequence: 1, ..BlockInfo::default() }, b"payload");
        let mut damaged = numbered(3, b"payload");
        damaged[HEADER_BYTES] ^= 1;
        // Longer than what is looked through at once, with beginnings of headers in it.
        let junk = [&MAGIC[..], &vec![7; CHUNK - 3], &MAGIC[..5]].concat();
        let file = [
            numbered(0, b"payload"),
            other_cpu,
            numbered(1, b"payload"),
            junk,
            numbered(2, b"payload"),
            damaged,
            numbered(2, b"payload"),
            numbered(4, b"payload")[..100].to_vec(),
        ]
        .concat();
        assert_eq!(sequences(&file), [(0, true), (1, true), (2, true), (3, false)]);
        assert_eq!(sequences(&[]), []);
        assert_eq!(sequences(&file[..50]), []);
    }

    fn met(bytes: &[u8], known: Known) -> Vec<(u64, u64)> {
        let file = file(bytes);
        let mut walk = Walk::new(&file, known).unwrap();
        let mut found = Vec::new();
        while let Some(met) = walk.next().unwrap() {
            found.push((met.header.sequence.get(), met.offset));
        }
        found
    }

    #[test]
    fn blocks_are_met_in_order_and_once() {
        let known = (HEADER_BYTES, [0; 16], 2);
        let of = |sequence| numbered(sequence, b"payload");
        let len = of(0).len() as u64;
        // Blocks of another CPU or recording do not count, whatever their numbers.
        let foreign = [
            BlockInfo { cpu: 2, recording: [1; 16], sequence: 6, ..BlockInfo::default() },
            BlockInfo { cpu: 3, sequence: 7, ..BlockInfo::default() },
        ];
        let foreign = foreign.map(|info| block(&info, b"")).concat();
        let parts = [of(0), of(0), of(5), of(3), foreign.clone(), of(6)];
        let offset = 4 * len + foreign.len() as u64;
        assert_eq!(met(&parts.concat(), known), [(0, 0), (5, 2 * len), (6, offset)]);
        // A block whose payload is cut is not met; one whose header ends with the file is.
        let parts = [of(0), of(1)].concat();
        assert_eq!(met(&parts[..parts.len() - 1], known), [(0, 0)]);
        let empty = [of(0), numbered(1, b"")].concat();
        assert_eq!(met(&empty, known), [(0, 0), (1, len)]);
        assert_eq!(met(&empty[..empty.len() - 1], known), [(0, 0)]);
    }

    #[test]
    fn the_next_header_is_found_wherever_it_stands_behind_damage() {
        let known = (HEADER_BYTES, [0; 16], 2);
        let other = block(&BlockInfo { cpu: 2, recording: [1; 16], ..BlockInfo::default() }, b"");
        let mut bad = numbered(1, b"");
        bad[20] ^= 1;
        // Around the sizes that are looked through at once, each of them twice the one before.
        let sizes = [1, 2, 511, 512, 513, 927, 928, 929, 1023, 1024, 1025, 2900, 4097, 70_000, 200_000];
        let junk = sizes.into_iter().map(|len| vec![b'x'; len]).chain([bad.clone(), [&bad[..], &other].concat()]);
        for junk in junk {
            let file = [numbered(0, b"payload"), junk.clone(), numbered(2, b""), numbered(3, b"")].concat();
            let at = (HEADER_BYTES + 7 + junk.len()) as u64;
            let want = [(0, 0), (2, at), (3, at + HEADER_BYTES as u64)];
            assert_eq!(met(&file, known), want, "{} bytes", junk.len());
            assert_eq!(met(&file[..file.len() - 2 * HEADER_BYTES], known), [(0, 0)], "{} bytes", junk.len());
        }
    }

    /// The payload of the only block of a file, and what it is once the file has lost its last byte.
    fn payloads(bytes: &[u8]) -> [Option<Vec<u8>>; 2] {
        let file = file(bytes);
        let mut walk = Walk::new(&file, (HEADER_BYTES, [0; 16], 2)).unwrap();
        let met = walk.next().unwrap().unwrap();
        assert!(walk.next().unwrap().is_none());
        let mut payload = || walk.payload(&met).unwrap().map(<[u8]>::to_vec);
        let before = payload();
        file.set_len(bytes.len() as u64 - 1).unwrap();
        [before, payload()]
    }

    #[test]
    fn a_payload_is_whole_or_none() {
        let info = BlockInfo { kind: kind::GAP, cpu: 2, flags: block::FLAG_OPTIONAL, ..BlockInfo::default() };
        assert_eq!(payloads(&block(&info, b"hello world")), [Some(b"hello world".to_vec()), None]);
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn a_compressed_payload_is_expanded_or_none() {
        for (text, want) in [(&b"hello world"[..], Some(b"hello world".to_vec())), (b"hello", None)] {
            let packed = zstd::bulk::compress(text, 1).unwrap();
            let mut bytes = [&[0; HEADER_BYTES][..], &packed].concat();
            let info = BlockInfo { kind: kind::GAP, cpu: 2, flags: block::FLAG_ZSTD, ..BlockInfo::default() };
            block::seal(&mut bytes, &info, Some(11));
            assert_eq!(payloads(&bytes), [want, None]);
        }
    }

    #[test]
    fn bytes_are_read_at_their_offset_up_to_the_end() {
        let file = file(b"0123456789");
        let mut buffer = [0; 4];
        assert_eq!((read_at(&file, &mut buffer, 3).unwrap(), &buffer), (4, b"3456"));
        assert_eq!((read_at(&file, &mut buffer, 8).unwrap(), &buffer), (2, b"8956"));
        assert_eq!(read_at(&file, &mut buffer, 10).unwrap(), 0);
        assert_eq!(read_at(&file, &mut [], 0).unwrap(), 0);
        let dir = tempfile::tempdir().unwrap();
        assert!(read_at(&File::open(dir.path()).unwrap(), &mut buffer, 0).is_err());
    }
}
