//! Numbers, strings and texts of a `trace.dat`, one after the other: in the file, or in a section that was expanded.

use std::io::{self, ErrorKind, Read};

use crate::memory::{Meter, OverLimit};
use crate::target::Endian;

/// Longest name; trace-cmd's own have some tens of bytes.
const MAX_NAME: u64 = 4096;
/// Longest text. `/proc/kallsyms` has about 20 MB.
const MAX_TEXT: u64 = 1 << 30;
/// Bytes of a text that are read at once.
const AT_ONCE: u64 = 1 << 20;

/// Why the items of a file cannot be read.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The file ends inside the named item.
    Cut(&'static str),
    /// The named item makes no sense.
    Odd(&'static str),
    /// The system refuses to read on.
    Io(io::Error),
    /// The items take more memory than the process may.
    Over(OverLimit),
}

/// Reader of items.
pub(crate) struct Items<R> {
    from: R,
    at: u64,
    endian: Endian,
    meter: Meter,
}

impl<R: Read> Items<R> {
    /// Items from the byte `at` of the file on.
    pub(crate) fn new(from: R, at: u64, endian: Endian) -> Items<R> {
        Items { from, at, endian, meter: Meter::default() }
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
        let mut left = len;
        while left > 0 {
            let piece = left.min(AT_ONCE);
            // A vector that is full takes as much again.
            let is_full = bytes.capacity().saturating_sub(bytes.len()) < piece as usize;
            let taken = if is_full { (bytes.len() as u64).max(piece) } else { 0 };
            self.meter.take(taken).map_err(Stop::Over)?;
            let read = (&mut self.from).take(piece).read_to_end(&mut bytes).map_err(Stop::Io)? as u64;
            self.at = self.at.saturating_add(read);
            if read < piece {
                return Err(Stop::Cut(what));
            }
            left = left.saturating_sub(piece);
        }
        Ok(bytes)
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
