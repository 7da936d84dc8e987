//! Lines of a file of any length, in bounded memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use memchr::memchr;

use crate::disk::hole::{self, Zeros};

/// Largest length of a line, in bytes: longer ones are cut.
pub(crate) const MAX_LINE: usize = 64 << 10;
/// Bytes read at once.
const BUFFER: usize = MAX_LINE;

/// A line without its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'l> {
    pub(crate) bytes: &'l [u8],
    /// Number of the line, from 1.
    pub(crate) number: u64,
    /// Offset of its first byte.
    pub(crate) offset: u64,
    /// The file has the whole line, with its newline.
    pub(crate) is_whole: bool,
    /// Bytes are missing: the line is longer than any that is handed out.
    pub(crate) is_long: bool,
}

/// Where lines come from.
#[derive(Debug)]
enum Source {
    Stored(Arc<File>),
    /// A file that the kernel makes up as it is read, from its start: an offset may mean something else to it.
    MadeUp(File),
}

impl Source {
    /// Reads at an offset, which is that of the last byte read.
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Source::Stored(file) => file.read_at(buffer, offset),
            Source::MadeUp(file) => file.read(buffer),
        }
    }
}

/// Reader of lines.
#[derive(Debug)]
pub(crate) struct Lines {
    source: Source,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been handed out.
    taken: usize,
    /// Offset of the buffer's end in the file.
    read: u64,
    number: u64,
    has_ended: bool,
    /// Zeros that were passed over last.
    zeros: Zeros,
}

impl Lines {
    pub(crate) fn new(file: Arc<File>) -> Lines {
        Lines::of(Source::Stored(file))
    }

    /// Lines of a file that the kernel makes up as it is read.
    pub(crate) fn of_made_up(file: File) -> Lines {
        Lines::of(Source::MadeUp(file))
    }

    fn of(source: Source) -> Lines {
        Lines { source, buffer: Vec::new(), taken: 0, read: 0, number: 0, has_ended: false, zeros: Zeros::default() }
    }

    /// Bytes handed out.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.saturating_sub(self.left().len() as u64)
    }

    /// Bytes of the buffer that have not been handed out.
    #[expect(clippy::indexing_slicing, reason = "no more bytes are handed out than there are")]
    fn left(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// True once the end of the file was seen.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The next line; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut len = memchr(b'\n', self.left());
        if len.is_none() && !self.has_ended {
            self.fill()?;
            len = memchr(b'\n', self.left());
        }
        if self.left().is_empty() {
            return Ok(None);
        }
        let offset = self.bytes_read();
        let begin = self.taken;
        let end = len.map_or(self.buffer.len(), |len| begin.saturating_add(len));
        self.taken = end.saturating_add(usize::from(len.is_some()));
        self.number = self.number.saturating_add(1);
        let is_long = len.is_none() && end.saturating_sub(begin) >= MAX_LINE;
        if len.is_none() {
            self.skip_line()?;
        }
        #[expect(clippy::indexing_slicing, reason = "`end` is the place of a byte behind `begin`, or the buffer's end")]
        let mut bytes = &self.buffer[begin..end];
        while let [rest @ .., b'\r'] = bytes {
            bytes = rest;
        }
        Ok(Some(Line { bytes, number: self.number, offset, is_whole: len.is_some(), is_long }))
    }

    /// Reads until the buffer has a whole line, a long one, or the end of the file.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        while !self.has_ended && self.buffer.len() < MAX_LINE {
            let begin = self.buffer.len();
            self.buffer.resize(begin.saturating_add(BUFFER), 0);
            #[expect(clippy::indexing_slicing, reason = "there are more than `begin` bytes now")]
            let read = match self.source.read_at(&mut self.buffer[begin..], self.read) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Ok(0) => {
                    self.has_ended = true;
                    0
                }
                read => read?,
            };
            self.buffer.truncate(begin.saturating_add(read));
            self.read = self.read.saturating_add(read as u64);
        }
        Ok(())
    }

    /// Passes over the rest of a line that is longer than the buffer; the buffer keeps its begin, and has what was read behind the line.
    fn skip_line(&mut self) -> io::Result<()> {
        let mut rest = vec![0; if self.has_ended { 0 } else { MAX_LINE }];
        while !self.has_ended {
            let read = self.source.read_at(&mut rest, self.read)?;
            self.has_ended = read == 0;
            self.read = self.read.saturating_add(read as u64);
            let rest = rest.get(..read).unwrap_or(&rest);
            if let Some(behind) = memchr(b'\n', rest).and_then(|end| rest.get(end.saturating_add(1)..)) {
                self.buffer.extend_from_slice(behind);
                break;
            }
            if rest.iter().all(|&byte| byte == 0) {
                let zeros = self.zeros.add(self.read, rest.len() as u64);
                self.skip_hole(zeros)?;
            }
        }
        Ok(())
    }

    /// Passes over a hole behind so many zeros: it has no end of a line, and may have TiB.
    fn skip_hole(&mut self, zeros: u64) -> io::Result<()> {
        let Source::Stored(file) = &self.source else { return Ok(()) };
        match hole::behind(file, self.read, zeros)? {
            Some(data) => self.read = data,
            None => {
                self.read = file.metadata()?.len().max(self.read);
                self.has_ended = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    /// The lines of a text, which are the same where its file can be read once and in order.
    fn lines(text: &[u8]) -> Vec<(Vec<u8>, u64, bool)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file.rewind().unwrap();
        let all = all_of(Lines::of_made_up(file.try_clone().unwrap()), text);
        assert_eq!(all, all_of(Lines::new(Arc::new(file)), text));
        all
    }

    fn all_of(mut lines: Lines, text: &[u8]) -> Vec<(Vec<u8>, u64, bool)> {
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            assert_eq!(line.number, all.len() as u64 + 1);
            all.push((line.bytes.to_vec(), line.offset, line.is_whole));
        }
        assert_eq!(lines.bytes_read(), text.len() as u64);
        all
    }

    #[test]
    fn lines_end_at_newlines_and_at_the_end_of_the_file() {
        let all = lines(b"one\r\n\ntwo");
        assert_eq!(all, [(b"one".to_vec(), 0, true), (Vec::new(), 5, true), (b"two".to_vec(), 6, false)]);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn a_hole_is_passed_over() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"one\n", 0).unwrap();
        file.write_all_at(b"x\ntwo\n", 1 << 42).unwrap();
        let file = Arc::new(file);
        for len in [(1 << 42) + 6, 1 << 43] {
            file.set_len(len).unwrap();
            let mut lines = Lines::new(Arc::clone(&file));
            let mut all = Vec::new();
            while let Some(line) = lines.next().unwrap() {
                all.push((line.bytes.len(), line.offset, line.is_whole));
            }
            assert_eq!(all[0], (3, 0, true));
            assert_eq!(all[2], (3, (1 << 42) + 2, true));
            assert!(all[1].0 >= MAX_LINE && all[1].1 == 4 && all.len() == if len == 1 << 43 { 4 } else { 3 });
            assert_eq!(lines.bytes_read(), len);
        }
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole() {
        for len in [MAX_LINE - 1, BUFFER, BUFFER + MAX_LINE, 3 * BUFFER + 5] {
            let text = [&vec![b'x'; len][..], b"\nnext\n"].concat();
            let all = lines(&text);
            assert_eq!(all.len(), 2, "{len}");
            assert!(all[0].0.iter().all(|&byte| byte == b'x') && all[0].0.len() <= len);
            assert_eq!(all[1], (b"next".to_vec(), len as u64 + 1, true));
        }
    }
}
