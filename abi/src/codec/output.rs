//! Where an encoder puts a block.

/// The encoded block as it grows.
pub(super) struct Output<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) len: usize,
    /// There was no room for all of it.
    pub(super) is_full: bool,
}

/// Room for the parts of a record, which take at most 19 bytes.
pub(super) const ROOM: usize = 24;

impl Output<'_> {
    /// Room for a record; what is written there and not taken is overwritten.
    #[inline(always)]
    pub(super) fn room(&mut self) -> Option<&mut [u8; ROOM]> {
        let room = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut);
        if room.is_none() {
            self.is_full = true;
        }
        room
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.len..).and_then(|room| room.get_mut(..bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len = self.len.saturating_add(bytes.len());
            }
            None => self.is_full = true,
        }
    }

    pub(super) fn number(&mut self, mut number: usize) {
        while number >= 0x80 {
            self.put(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.put(&[number as u8]);
    }

    pub(super) fn with_length(&mut self, code: u8, bytes: &[u8]) {
        self.put(&[code]);
        self.number(bytes.len());
        self.put(bytes);
    }
}

/// Puts bytes into the room of a record.
#[inline(always)]
pub(super) fn put_bytes<const N: usize>(room: &mut [u8; ROOM], at: usize, bytes: [u8; N]) {
    if let Some(to) = room.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *to = bytes;
    }
}
