//! Messages of Protocol Buffers, written by hand: a message is a run of fields, each with its number, its type and its value.

/// Wire type of a varint.
const VARINT: u64 = 0;
/// Wire type of 64 bits.
const FIXED64: u64 = 1;
/// Wire type of bytes with their length before them.
const BYTES: u64 = 2;

/// Message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Bytes of the message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Removes all fields and keeps their memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an unsigned number, a truth value or a word of an enumeration.
    pub(super) fn uint(&mut self, field: u32, value: u64) -> &mut Message {
        self.key(field, VARINT);
        varint(&mut self.0, value);
        self
    }

    /// Adds a signed number of the type `int64`.
    pub(super) fn int(&mut self, field: u32, value: i64) -> &mut Message {
        self.uint(field, value.cast_unsigned())
    }

    /// Adds a floating-point number.
    pub(super) fn double(&mut self, field: u32, value: f64) -> &mut Message {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Adds a text.
    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Message {
        self.put(field, text.as_bytes())
    }

    /// Adds a message within this one.
    pub(super) fn message(&mut self, field: u32, message: &Message) -> &mut Message {
        self.put(field, message.bytes())
    }

    /// Adds numbers of a repeated field, packed.
    pub(super) fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Message {
        let mut bytes = Vec::new();
        values.into_iter().for_each(|value| varint(&mut bytes, value));
        self.put(field, &bytes)
    }

    fn put(&mut self, field: u32, bytes: &[u8]) -> &mut Message {
        self.key(field, BYTES);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn key(&mut self, field: u32, wire_type: u64) {
        varint(&mut self.0, u64::from(field) << 3 | wire_type);
    }
}

/// Appends a number, seven bits a byte, the lowest first.
pub(super) fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the encoding's own documentation, and the limits of varints.
    #[test]
    fn fields_are_encoded_as_the_format_documents() {
        let message = |add: &dyn Fn(&mut Message)| {
            let mut message = Message::default();
            add(&mut message);
            message.0
        };
        assert_eq!(message(&|m| _ = m.uint(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(message(&|m| _ = m.text(2, "testing")), b"\x12\x07testing");
        assert_eq!(message(&|m| _ = m.packed(6, [3, 270, 86_942])), [0x32, 6, 3, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        let mut inner = Message::default();
        inner.uint(1, 150);
        assert_eq!(message(&|m| _ = m.message(3, &inner)), [0x1a, 3, 0x08, 0x96, 0x01]);
        assert_eq!(message(&|m| _ = m.uint(16, 0)), [0x80, 0x01, 0]);
        let ten = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(message(&|m| _ = m.int(1, -1))[1..], ten);
        assert_eq!(message(&|m| _ = m.uint(1, u64::MAX))[1..], ten);
        assert_eq!(message(&|m| _ = m.double(44, 1.5)), [0xe1, 0x02, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]);
    }
}
