//! Live frames of a region that are single pages. Pages come and go too fast for a sorted list, which has to move.
//!
//! A region has few different words: its live pages are of some call-sites and CPUs. So frames share words, which have numbers
//! from 1 to 15. Few live pages are in a list without order, 2 bytes each, and a search goes through all of it. Many are on a map,
//! which needs no search: it has 1, 2 or 4 bits for each frame of the region, live or not, with the number of the frame's word, or 0.

use smallvec::SmallVec;

use super::chunk::{Bits, CHUNK, REGION, WORDS};
use crate::memory::heap::heap_bytes;
use crate::memory::prefetch::prefetch;
use crate::pairing::slot::SlotState;

/// Most words of a region.
const MAX_WORDS: usize = 15;
/// Places of a word in the store: its four parts, and the number of frames that have it.
const WORD: usize = 5;
/// Bits of a frame in an item of the list. Above them stands the number of the frame's word.
const FRAME: u16 = REGION as u16 - 1;
/// Bits of a place in the store.
const PLACE: usize = u16::BITS as usize;
/// Items that are compared at once.
const LANES: usize = 8;
/// A map takes the place of the list where it takes at most so many bytes a live frame. It stays until it would take more than 16.
const MAP_BYTES: usize = 12;

/// Frames, numbered from the first of their region, and their words.
#[derive(Debug, Default)]
pub(super) struct Singles {
    /// The list or the map, in `room` places; after it `words` words.
    store: SmallVec<[u16; LANES]>,
    room: u16,
    words: u8,
    /// Bits of a frame in the map: 1, 2 or 4; 0 for a list.
    bits: u8,
    len: u16,
    /// Memory beside its own in units of 16 bytes. A frame may take as much, so it is also the least number of frames that may
    /// have this memory.
    sixteens: u16,
}

impl Singles {
    /// Memory for `len` frames and a few more, with room for `words` words.
    fn with_room(len: usize, words: usize) -> Singles {
        let bits = map_bits(len, words);
        // Beside one word, the places that the store has in itself are for frames.
        let list = list_room(len, words).max(LANES.saturating_sub(words * WORD));
        let room = if bits > 0 { REGION * bits / PLACE } else { list };
        // A search reads whole groups of lanes.
        let store = SmallVec::from_elem(0, (room + words * WORD).max(room.next_multiple_of(LANES)));
        let bytes = if store.spilled() { heap_bytes(store.capacity() * size_of::<u16>()) } else { 0 };
        let sixteens = (bytes / 16) as u16;
        Singles { store, room: room as u16, words: words as u8, bits: bits as u8, len: 0, sixteens }
    }

    /// Number of frames.
    #[inline(always)]
    fn len(&self) -> usize {
        self.len.into()
    }

    /// Bytes of memory beside its own.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        16 * usize::from(self.sixteens)
    }

    #[inline(always)]
    fn is_map(&self) -> bool {
        self.bits > 0
    }

    /// Place of a frame in the map, and its lowest bit there.
    #[inline(always)]
    fn on_map(&self, frame: usize) -> (usize, usize) {
        let bit = frame * usize::from(self.bits);
        (bit / PLACE, bit % PLACE)
    }

    /// Starts loading the frame's place on the map or the begin of the list, and the first words.
    #[inline]
    pub(super) fn prefetch(&self, frame: usize) {
        prefetch(&self.store, self.on_map(frame).0);
        prefetch(&self.store, self.room.into());
    }

    /// Place of the word of a number.
    #[inline(always)]
    fn place(&self, number: u16) -> usize {
        usize::from(self.room) + WORD * (usize::from(number) - 1)
    }

    /// Word of a number.
    #[inline(always)]
    fn word(&self, number: u16) -> SlotState {
        let parts = self.store.get(self.place(number)..).and_then(<[u16]>::first_chunk);
        parts.map_or_else(SlotState::default, |parts| SlotState::from_parts(*parts))
    }

    /// Number of frames that have the word of a number.
    #[inline(always)]
    fn users(&mut self, number: u16) -> &mut u16 {
        let place = self.place(number);
        &mut self.store[place + WORD - 1]
    }

    /// Numbers of the words.
    #[inline(always)]
    fn numbers(&self) -> std::ops::RangeInclusive<u16> {
        1..=self.words.into()
    }

    fn set_word(&mut self, number: u16, word: SlotState) {
        let place = self.place(number);
        self.store[place..place + WORD - 1].copy_from_slice(&word.parts());
    }

    /// Hands over each frame and the number of its word.
    fn each(&self, mut take: impl FnMut(usize, u16)) {
        if !self.is_map() {
            let list = self.store.iter().take(self.len());
            return list.for_each(|item| take((item & FRAME).into(), item >> FRAME.count_ones()));
        }
        let per_place = PLACE / usize::from(self.bits);
        for (place, _) in self.store.iter().take(self.room.into()).enumerate().filter(|(_, bits)| **bits > 0) {
            for frame in place * per_place..(place + 1) * per_place {
                if let Some(number) = self.mapped(frame) {
                    take(frame, number);
                }
            }
        }
    }

    /// Hands over each frame and its word.
    pub(super) fn each_frame(&self, mut take: impl FnMut(usize, SlotState)) {
        self.each(|frame, number| take(frame, self.word(number)));
    }

    /// Changes all words. Two that become equal stay apart: frames of each have their own number.
    pub(super) fn each_word(&mut self, change: impl Fn(&mut SlotState)) {
        for number in self.numbers() {
            let mut word = self.word(number);
            change(&mut word);
            self.set_word(number, word);
        }
    }

    /// Number of a frame's word on the map.
    #[inline(always)]
    fn mapped(&self, frame: usize) -> Option<u16> {
        let (place, bit) = self.on_map(frame);
        let number = self.store[place] >> bit & ((1 << self.bits) - 1);
        (number > 0).then_some(number)
    }

    /// A bit for each of `pages` frames from `from` on, of one chunk, that is one of these.
    pub(super) fn among(&self, from: usize, pages: usize) -> Bits {
        let mut bits = [0; WORDS];
        let mut note = |frame: usize| {
            let index = frame.wrapping_sub(from);
            if index < pages.min(CHUNK) {
                bits[index / 64] |= 1 << (index % 64);
            }
        };
        if self.is_map() {
            (from..from + pages).filter(|frame| self.mapped(*frame).is_some()).for_each(note);
        } else {
            self.store.iter().take(self.len()).for_each(|item| note((item & FRAME).into()));
        }
        bits
    }

    /// Index of a frame in the list.
    #[inline]
    fn find(&self, frame: usize) -> Option<usize> {
        let (groups, _) = self.store.as_chunks();
        let index = least_index(groups.get(..self.len().div_ceil(LANES))?, frame as u16);
        (index < self.len()).then_some(index)
    }

    /// Takes a frame out; returns its word.
    #[inline]
    pub(super) fn take(&mut self, frame: usize) -> Option<SlotState> {
        let last = self.len().checked_sub(1)?;
        let number = if self.is_map() {
            let number = self.mapped(frame)?;
            let (place, bit) = self.on_map(frame);
            self.store[place] ^= number << bit;
            number
        } else {
            // The last one gets its place.
            let index = self.find(frame)?;
            let last = self.store[last];
            std::mem::replace(&mut self.store[index], last) >> FRAME.count_ones()
        };
        let word = self.word(number);
        *self.users(number) -= 1;
        self.len -= 1;
        if self.len < self.sixteens {
            self.rebuild(last, false);
        }
        Some(word)
    }

    /// Adds a frame, which is none of these; false, and nothing is done, where there are too many words.
    #[inline]
    pub(super) fn add(&mut self, frame: usize, word: SlotState) -> bool {
        let number = self.numbers().find(|number| self.word(*number).is_same_word(word));
        let Some(number) = number.or_else(|| self.add_word(word)) else { return false };
        if !self.is_map() && self.len == self.room {
            self.rebuild(self.len() + 1, false);
            return self.add(frame, word);
        }
        self.add_item(frame, number);
        true
    }

    #[inline]
    fn add_item(&mut self, frame: usize, number: u16) {
        if self.is_map() {
            let (place, bit) = self.on_map(frame);
            self.store[place] |= number << bit;
        } else {
            self.store[usize::from(self.len)] = number << FRAME.count_ones() | frame as u16;
        }
        *self.users(number) += 1;
        self.len += 1;
    }

    /// Adds a word, in place of one that no frame has.
    #[inline(never)]
    fn add_word(&mut self, word: SlotState) -> Option<u16> {
        let unused = self.numbers().find(|number| *self.users(*number) == 0);
        if unused.is_none() {
            if usize::from(self.words) == MAX_WORDS {
                return None;
            }
            self.rebuild(self.len() + 1, true);
        }
        let number = unused.unwrap_or(self.words.into());
        self.set_word(number, word);
        Some(number)
    }

    /// Moves all to memory for `len` frames, and for one more word where the caller adds it.
    #[inline(never)]
    fn rebuild(&mut self, len: usize, adds_word: bool) {
        let used: u32 = self.numbers().map(|number| u32::from(*self.users(number) > 0) << number).sum();
        let mut new = Singles::with_room(len, used.count_ones() as usize + usize::from(adds_word));
        // A word that is in use gets the next number.
        let now = |old: u16| (used & ((2 << old) - 1)).count_ones() as u16;
        for number in self.numbers().filter(|number| used >> number & 1 != 0) {
            new.set_word(now(number), self.word(number));
        }
        self.each(|frame, old| new.add_item(frame, now(old)));
        *self = new;
    }
}

/// Bits of a frame in a map for `len` frames with so many words; 0 where it would take more than [`MAP_BYTES`] a frame.
fn map_bits(len: usize, words: usize) -> usize {
    let bits = match words {
        0..=1 => 1,
        2..=3 => 2,
        _ => 4,
    };
    if len * MAP_BYTES >= REGION * bits / 8 + words * WORD * size_of::<u16>() + 24 { bits } else { 0 }
}

/// Places of a list for `len` frames with so many words, and for more of them in a part of what 16 bytes a frame leave.
fn list_room(len: usize, words: usize) -> usize {
    let needed = size_of::<u16>() * (len + words * WORD) + 8 + 15;
    len + ((16 * len).saturating_sub(needed) / 4).min(len / 2 + 2)
}

/// Least index of a frame in groups of items, in order; greater than all indexes where it is in none.
#[inline]
fn least_index(groups: &[[u16; LANES]], frame: u16) -> usize {
    let mut least = [i16::MAX; LANES];
    let mut index = [0, 1, 2, 3, 4, 5, 6, 7];
    // Without a branch for each item: the compiler makes one operation of all lanes.
    for group in groups {
        for lane in 0..LANES {
            least[lane] = least[lane].min(if group[lane] & FRAME == frame { index[lane] } else { i16::MAX });
            index[lane] = index[lane].wrapping_add(LANES as i16);
        }
    }
    least.into_iter().fold(i16::MAX, i16::min) as usize
}
