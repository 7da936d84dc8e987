//! Numbers of the encoding: codes, flags and limits.

/// Bytes at the start of an encoded block: flags, offsets of event data, commit word and thread id.
pub(super) const HEAD_BYTES: usize = 4;
/// Flag in the first byte: the kernel's byte order is big endian.
pub(super) const BIG_ENDIAN: u8 = 1;
/// Flag in the first byte: the commit word has 8 bytes.
pub(super) const LONG_COMMIT: u8 = 2;
/// Offset of the thread id in a block without any.
pub(super) const NO_PID: u8 = 0xff;

/// Byte before a sub-buffer: its header follows, then entries.
pub(super) const SUB_BUFFER: u8 = 0;
/// Byte before the rest of a block that is no sub-buffer.
pub(super) const NO_SUB_BUFFER: u8 = 1;

/// Control bytes of a sub-buffer's parts that are no record of a slot; a record's control byte is below them.
pub(super) mod op {
    /// The last coded entry is over: length, then the rest of the sub-buffer.
    pub(crate) const END: u8 = 0x80;
    /// Length, then whole entries.
    pub(crate) const ENTRIES: u8 = 0x81;
    /// A new slot: length of the record in words of 4 bytes, form, place of the value where there is one, words that are not 0.
    pub(crate) const DEFINE: u8 = 0x82;
    /// A new slot: number of one that is alike, words that differ.
    pub(crate) const DERIVE: u8 = 0x83;
    /// Number of a slot, words that differ from now on.
    pub(crate) const PATCH: u8 = 0x84;
}

/// Parts of a record's control byte.
pub(super) mod control {
    /// The slot is not the predicted one: its number follows.
    pub(crate) const OTHER_SLOT: u8 = 1;
    /// Lowest bit of the way the value is stored.
    pub(crate) const VALUE_SHIFT: u8 = 1;
    /// Lowest bit of the number of bytes of the time delta, less 1.
    pub(crate) const DELTA_SHIFT: u8 = 4;
    /// The thread is not that of the record before: it follows.
    pub(crate) const OTHER_PID: u8 = 0x40;
}

/// Ways to store the value of a record.
pub(super) mod value {
    /// That of the slot's last record, or the slot has no value.
    pub(crate) const SAME: u8 = 0;
    /// One of the recent values, by its number in one byte.
    pub(crate) const RECENT: u8 = 1;
    /// Exclusive or with that of the slot's last record, shifted, in this many bytes: 2, 3, 4.
    pub(crate) const XOR_2: u8 = 2;
    pub(crate) const XOR_3: u8 = 3;
    pub(crate) const XOR_4: u8 = 4;
    /// 8 bytes.
    pub(crate) const WHOLE: u8 = 5;
    /// That of the last record with a value.
    pub(crate) const LAST: u8 = 6;
    /// As `XOR_2`, in one byte.
    pub(crate) const XOR_1: u8 = 7;
}

/// Form of a slot's records.
pub(super) mod form {
    /// The length stands in a word of its own.
    pub(crate) const LONG: u8 = 1;
    /// The records have a thread id.
    pub(crate) const PID: u8 = 2;
    /// The value has 8 bytes.
    pub(crate) const VALUE_8: u8 = 4;
    /// The value has 4 bytes.
    pub(crate) const VALUE_4: u8 = 8;
    /// Lowest bit of the bits by which differences of values are shifted.
    pub(crate) const SHIFT: u8 = 4;
}

/// A record with a longer payload is stored whole.
pub(super) const MAX_RECORD_BYTES: usize = 4096;
/// A block has no more slots.
pub(super) const MAX_SLOTS: usize = 1 << 15;
