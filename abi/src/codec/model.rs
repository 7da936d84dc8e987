//! What encoder and decoder expect of the next record; both change it alike.

/// Entries of the table of slots that follow two others.
const FOLLOWERS: usize = 4096;
/// Entries of the table of recent values.
const RECENT: usize = 256;

/// State that both sides keep from record to record of a block.
#[derive(Debug)]
pub(super) struct Model {
    /// Slot that came after two others, by their [`Model::context`].
    followers: Box<[u16; FOLLOWERS]>,
    /// The last slot.
    last: u16,
    /// Index of the last two slots in `followers`, kept as one number: a load that spans two recent stores stalls.
    context: u16,
    /// Recent values, by [`recent_index`].
    recent: Box<[u64; RECENT]>,
    /// Value of the last record that has one.
    pub(super) value: u64,
    /// Thread of the last record, in the bytes of the record.
    pub(super) pid: [u8; 4],
}

#[expect(clippy::indexing_slicing, reason = "a context is below `FOLLOWERS`, and an index of a byte below `RECENT`")]
impl Model {
    pub(super) fn new() -> Model {
        Model {
            followers: Box::new([0; FOLLOWERS]),
            last: 0,
            context: 0,
            recent: Box::new([0; RECENT]),
            value: 0,
            pid: [0; 4],
        }
    }

    /// State at the start of a block.
    pub(super) fn reset(&mut self) {
        self.followers.fill(0);
        self.recent.fill(0);
        (self.last, self.context, self.value, self.pid) = (0, 0, 0, [0; 4]);
    }

    /// The slot that is expected.
    #[inline(always)]
    pub(super) fn expected(&self) -> u16 {
        self.followers[usize::from(self.context) % FOLLOWERS]
    }

    /// Takes on the slot of a record.
    #[inline(always)]
    pub(super) fn follow(&mut self, slot: u16) {
        self.followers[usize::from(self.context) % FOLLOWERS] = slot;
        self.context = slot.wrapping_mul(64).wrapping_add(self.last);
        self.last = slot;
    }

    /// The recent value of a number.
    #[inline(always)]
    pub(super) fn recent(&self, index: u8) -> u64 {
        self.recent[usize::from(index)]
    }

    /// Takes on the value of a record.
    #[inline(always)]
    pub(super) fn take_value(&mut self, value: u64) {
        self.value = value;
        self.recent[usize::from(recent_index(value))] = value;
    }
}

/// Number of a value among the recent ones.
#[inline(always)]
pub(super) fn recent_index(value: u64) -> u8 {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
