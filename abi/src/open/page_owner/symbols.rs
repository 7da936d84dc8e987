//! Addresses for functions that a text names: the text has no addresses, so each function gets a range of its own.

use std::collections::HashMap;

use super::text::Frame;
use crate::trace::{BEFORE_PAGE_OWNER, MADE_UP};

/// Limit of a function's size: a text may claim any.
const MAX_BYTES: u64 = 1 << 24;
/// Limit of functions: a kernel with all its modules has less.
const MAX_FUNCTIONS: usize = 1 << 22;

/// Function by name, module and size.
type Key = (Box<[u8]>, Option<Box<[u8]>>, u64);

/// Functions of a text, each with its range.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    ranges: HashMap<Key, u64>,
    /// The functions as lines of `/proc/kallsyms`.
    lines: Vec<u8>,
    /// End of the last range.
    end: u64,
}

impl Symbols {
    /// Address that stands for what was allocated before page_owner began.
    pub(super) fn early(&mut self) -> u64 {
        self.address(Frame::Function { name: BEFORE_PAGE_OWNER, offset: 1, size: 1, module: None })
    }

    /// Return address of a frame; 0 where there are more functions than a kernel has.
    pub(super) fn address(&mut self, frame: Frame<'_>) -> u64 {
        let (name, offset, size, module) = match frame {
            Frame::Address(address) => return address,
            Frame::Function { name, offset, size, module } => (name, offset, size, module),
        };
        let bytes = size.max(offset).min(MAX_BYTES);
        // Return addresses are looked up at the address less one: one at the function's first byte counts as at its second.
        let offset = offset.clamp(1, bytes.max(1));
        let key = (name.into(), module.map(Box::from), bytes);
        let begin = match self.ranges.get(&key) {
            Some(&begin) => begin,
            None if self.ranges.len() >= MAX_FUNCTIONS || MADE_UP.end - self.end() <= bytes + 1 => return 0,
            None => {
                let begin = self.end();
                self.end = begin + bytes + 1;
                self.add_line(begin, name, module);
                self.ranges.insert(key, begin);
                begin
            }
        };
        begin + offset
    }

    fn end(&self) -> u64 {
        self.end.max(MADE_UP.start)
    }

    fn add_line(&mut self, begin: u64, name: &[u8], module: Option<&[u8]>) {
        self.lines.extend_from_slice(format!("{begin:016x} t ").as_bytes());
        self.lines.extend_from_slice(name);
        if let Some(module) = module {
            self.lines.extend_from_slice(b"\t[");
            self.lines.extend_from_slice(module);
            self.lines.push(b']');
        }
        self.lines.push(b'\n');
    }

    /// The functions as `/proc/kallsyms` lists them.
    pub(super) fn into_kallsyms(mut self) -> Vec<u8> {
        let end = self.end();
        self.add_line(end, b"_end", None);
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_keeps_its_range() {
        let mut symbols = Symbols::default();
        let frame = |name: &'static [u8], offset, module| Frame::Function { name, offset, size: 0x20, module };
        let first = symbols.address(frame(b"foo", 8, None));
        assert_eq!(symbols.address(frame(b"foo", 9, None)), first + 1);
        assert_ne!(symbols.address(frame(b"foo", 8, Some(b"bar"))), first);
        assert_eq!(symbols.address(Frame::Address(7)), 7);
        let lines = String::from_utf8(symbols.into_kallsyms()).unwrap();
        assert_eq!(lines, "4000000000000000 t foo\n4000000000000021 t foo\t[bar]\n4000000000000042 t _end\n");
    }
}
