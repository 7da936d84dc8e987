//! Lines of a text that were there before, to tell which ones are new.

use std::hash::{DefaultHasher, Hasher};

/// Hashes of the lines of a text, which take a fifth of the text's memory.
#[derive(Debug, Default)]
pub(crate) struct LineHashes {
    hashes: Vec<u64>,
    /// Beginning of a line whose end is in the next piece.
    partial: Vec<u8>,
}

fn line_hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(line);
    hasher.finish()
}

impl LineHashes {
    /// Adds a piece of the text, which may end within a line.
    pub(crate) fn add(&mut self, piece: &[u8]) {
        let mut lines = piece.split(|&b| b == b'\n').peekable();
        while let Some(line) = lines.next() {
            self.partial.extend_from_slice(line);
            if lines.peek().is_some() {
                self.hashes.push(line_hash(&self.partial));
                self.partial.clear();
            }
        }
    }

    /// Ends the text.
    pub(crate) fn finish(&mut self) {
        self.hashes.push(line_hash(&std::mem::take(&mut self.partial)));
        self.hashes.sort_unstable();
        self.hashes.shrink_to_fit();
    }

    /// Adds lines after the end of the text.
    pub(crate) fn add_later(&mut self, lines: &[u8]) {
        self.hashes.extend(lines.split(|&b| b == b'\n').map(line_hash));
        self.hashes.sort_unstable();
    }

    /// Lines of `now` that were not in the text.
    pub(crate) fn later(&self, now: &[u8]) -> Vec<u8> {
        let is_new = |line: &&[u8]| !line.is_empty() && self.hashes.binary_search(&line_hash(line)).is_err();
        let new = now.split(|&b| b == b'\n').filter(is_new);
        new.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_lines_are_kept_at_the_end() {
        for pieces in [&["a\nbb\n"][..], &["a\nb", "b\n"], &["a", "", "\nbb"]] {
            let mut lines = LineHashes::default();
            pieces.iter().for_each(|piece| lines.add(piece.as_bytes()));
            lines.finish();
            assert_eq!(lines.later(b"a\nc\nbb\nb\n"), b"c\nb\n", "{pieces:?}");
            assert!(lines.later(b"a\n").is_empty());
        }
    }
}
