//! Texts of two bytes a character, as programs of Windows save them, turned into UTF-8.

use std::io::{self, Read};

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;
/// Characters that are looked at before a text without a mark counts as one.
const LOOKED_AT: usize = 32;

/// Order of the bytes of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// Order of a text's bytes; `None` for a file that is no such text: its first characters are those of ASCII.
pub(super) fn order(sample: &[u8]) -> Option<Order> {
    let (order, rest) = match sample {
        [0xff, 0xfe, rest @ ..] => (Order::Little, rest),
        [0xfe, 0xff, rest @ ..] => (Order::Big, rest),
        [b'\t' | b'\n' | b'\r' | b' '..=b'~', 0, ..] => (Order::Little, sample),
        [0, b'\t' | b'\n' | b'\r' | b' '..=b'~', ..] => (Order::Big, sample),
        _ => return None,
    };
    let is_ascii = |unit: &[u8; 2]| matches!(unit_of(order, *unit), 0x09 | 0x0a | 0x0d | 0x1b | 0x20..=0x7e);
    let (units, _) = rest.as_chunks();
    let units = units.get(..LOOKED_AT).unwrap_or(units);
    (units.len() > 3 && units.iter().all(is_ascii)).then_some(order)
}

fn unit_of(order: Order, bytes: [u8; 2]) -> u16 {
    match order {
        Order::Little => u16::from_le_bytes(bytes),
        Order::Big => u16::from_be_bytes(bytes),
    }
}

/// Reader of a text as UTF-8. A character that makes no sense is U+FFFD, as is half of one at the end.
pub(super) struct Decoder<R> {
    from: R,
    order: Order,
    /// UTF-8 that was not handed out.
    ready: Vec<u8>,
    taken: usize,
    /// Bytes that are no whole character yet.
    left: Vec<u8>,
    has_begun: bool,
}

impl<R: Read> Decoder<R> {
    pub(super) fn new(from: R, order: Order) -> Decoder<R> {
        Decoder { from, order, ready: Vec::new(), taken: 0, left: Vec::new(), has_begun: false }
    }

    /// Decodes the next bytes; nothing is ready at the end.
    fn fill(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.taken = 0;
        while self.ready.is_empty() {
            let begin = self.left.len();
            self.left.resize(begin.saturating_add(BUFFER), 0);
            #[expect(clippy::indexing_slicing, reason = "there are more than `begin` bytes now")]
            let read = match self.from.read(&mut self.left[begin..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Ok(0) => {
                    self.left.truncate(begin);
                    if !self.left.is_empty() {
                        self.left.clear();
                        self.ready.extend_from_slice("\u{fffd}".as_bytes());
                    }
                    return Ok(());
                }
                read => read?,
            };
            self.left.truncate(begin.saturating_add(read));
            self.decode();
        }
        Ok(())
    }

    fn decode(&mut self) {
        let mut units: Vec<u16> = self.left.as_chunks().0.iter().map(|unit| unit_of(self.order, *unit)).collect();
        // The first half of a pair waits for the second one.
        units.pop_if(|unit| (0xd800..0xdc00).contains(unit));
        let mut character = [0; 4];
        for decoded in char::decode_utf16(units.iter().copied()) {
            let decoded = decoded.unwrap_or(char::REPLACEMENT_CHARACTER);
            // The mark at the begin.
            if self.has_begun || decoded != '\u{feff}' {
                self.ready.extend_from_slice(decoded.encode_utf8(&mut character).as_bytes());
            }
            self.has_begun = true;
        }
        self.left.drain(..units.len().saturating_mul(2));
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.ready.len() {
            self.fill()?;
        }
        #[expect(clippy::indexing_slicing, reason = "no more bytes are taken than are ready")]
        let len = (&self.ready[self.taken..]).read(buffer)?;
        self.taken = self.taken.saturating_add(len);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, order: Order) -> Vec<u8> {
        let bytes = |unit: u16| match order {
            Order::Little => unit.to_le_bytes(),
            Order::Big => unit.to_be_bytes(),
        };
        text.encode_utf16().flat_map(bytes).collect()
    }

    fn decoded(bytes: &[u8], order: Order) -> String {
        let mut text = String::new();
        Decoder::new(bytes, order).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn texts_are_known_and_decoded() {
        let text = format!("{}größe 🦀\n", "Page allocated via order 0\n".repeat(10_000));
        for order in [Order::Little, Order::Big] {
            for mark in ["", "\u{feff}"] {
                let bytes = encoded(&format!("{mark}{text}"), order);
                assert_eq!(super::order(&bytes), Some(order));
                assert_eq!(decoded(&bytes, order), text);
            }
        }
        assert_eq!(decoded(&encoded("ab", Order::Little)[..3], Order::Little), "a\u{fffd}");
        assert_eq!(decoded(&[0, 0xd8], Order::Little), "\u{fffd}");
        assert_eq!(decoded(&[0, 0xd8, b'a', 0], Order::Little), "\u{fffd}a");
    }

    #[test]
    fn other_files_are_none() {
        for bytes in
            [&b""[..], b"\xff\xfe", b"\xff\xfe\x00\x01", b"Page allocated", b"\xff\xfea\0b\0c\0\x01\x02", b"a\0b\0"]
        {
            assert_eq!(order(bytes), None, "{bytes:?}");
        }
    }
}
