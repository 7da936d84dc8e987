//! Numbers, strings and texts of a `trace.dat`, one after the other: in the file, or in a section that was expanded.

use std::io::{self, ErrorKind, Read};

use crate::target::Endian;

/// Longest name; trace-cmd's own have some tens of bytes.
const MAX_NAME: u64 = 4096;
/// Longest text. `/proc/kallsyms` has about 20 MB.
const MAX_TEXT: u64 = 1 << 30;

/// Why the items of a file cannot be read.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The file ends inside the named item.
    Cut(&'static str),
    /// The named item makes no sense.
    Odd(&'static str),
    /// The system refuses to read on.
    Io(io::Error),
}

/// Reader of items.
pub(crate) struct Items<R> {
    from: R,
    at: u64,
    endian: Endian,
}

impl<R: Read> Items<R> {
    /// Items from the byte `at` of the file on.
    pub(crate) fn new(from: R, at: u64, endian: Endian) -> Items<R> {
        Items { from, at, endian }
    }

    /// Offset of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The same items, whose numbers are in this byte order.
    pub(crate) fn in_order(self, endian: Endian) -> Items<R> {
        Items { endian, ..self }
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Stop::Cut(what),
            _ => Stop::Io(error),
        })?;
        self.at = self.at.saturating_add(N as u64);
        Ok(bytes)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Stop> {
        let bytes = self.array(what)?;
        Ok(if self.endian == Endian::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Stop> {
        let bytes = self.array(what)?;
        Ok(if self.endian == Endian::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Stop> {
        let bytes = self.array(what)?;
        Ok(if self.endian == Endian::Little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }

    /// `len` bytes. Memory is taken as bytes are there, whatever the length says.
    pub(crate) fn bytes(&mut self, len: u64, what: &'static str) -> Result<Vec<u8>, Stop> {
        if len > MAX_TEXT {
            return Err(Stop::Odd(what));
        }
        let mut bytes = Vec::new();
        (&mut self.from).take(len).read_to_end(&mut bytes).map_err(Stop::Io)?;
        self.at = self.at.saturating_add(bytes.len() as u64);
        if (bytes.len() as u64) < len { Err(Stop::Cut(what)) } else { Ok(bytes) }
    }

    /// A text behind its length in 8 bytes.
    pub(crate) fn text(&mut self, what: &'static str) -> Result<Vec<u8>, Stop> {
        let len = self.u64(what)?;
        self.bytes(len, what)
    }

    /// A text behind its length in 4 bytes.
    pub(crate) fn short_text(&mut self, what: &'static str) -> Result<Vec<u8>, Stop> {
        let len = self.u32(what)?;
        self.bytes(len.into(), what)
    }

    /// A string up to its NUL.
    pub(crate) fn string(&mut self, what: &'static str) -> Result<String, Stop> {
        let mut bytes = Vec::new();
        loop {
            match self.array::<1>(what)? {
                [0] => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                _ if bytes.len() as u64 >= MAX_NAME => return Err(Stop::Odd(what)),
                [byte] => bytes.push(byte),
            }
        }
    }
}
