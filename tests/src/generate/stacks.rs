//! Call stacks of made-up machines: frames, interrupts that come between an event and its stack, and records of stacks.

use super::symbols::{SITES, call_site};
use super::{Era, Random, Shape, put};

/// Interrupts of `common_flags`, the outermost first: softirq, hard interrupt, NMI.
const INTERRUPTS: [u8; 3] = [0x10, 0x08, 0x40];
/// Different stacks of a machine.
const STACKS: u64 = 60;
/// Thread of stacks without an event.
pub(crate) const ORPHAN_PID: i32 = 32001;
/// Frames of a record in kernels whose stacks have no `size`, and in the format of all.
pub(crate) const CLAIMED_FRAMES: usize = 8;

/// Frames of some stack, innermost first: few stacks come often.
pub(crate) fn frames(shape: &Shape, slide: u64, random: &mut Random) -> Vec<u64> {
    let mut number = Random::new(random.below(STACKS).min(random.below(STACKS)));
    let most = if has_size(shape) { 45 } else { CLAIMED_FRAMES as u64 };
    let depth = 1 + number.below(most);
    (0..depth).map(|_| call_site(shape, slide, number.below(SITES)) + 4 * number.below(4)).collect()
}

/// The flags of an interrupt that comes while a record with `flags` is written; `None` where none can.
pub(crate) fn interrupted(flags: u8, random: &mut Random) -> Option<u8> {
    let outermost = INTERRUPTS.iter().rposition(|bit| flags & bit != 0).map_or(0, |place| place + 1);
    let deeper = INTERRUPTS.get(outermost..).filter(|deeper| !deeper.is_empty())?;
    Some(flags | *random.pick(deeper))
}

/// The flags that a stack of an event with `flags` has: bits that are no interrupts may change.
pub(crate) fn changed(flags: u8, random: &mut Random) -> u8 {
    let interrupts = INTERRUPTS.iter().fold(0, |all, bit| all | bit);
    flags ^ if random.chance(20) { random.bits() as u8 & !interrupts } else { 0 }
}

/// True where records say how many frames they have.
pub(crate) fn has_size(shape: &Shape) -> bool {
    shape.era != Era::V2_6_32
}

/// Appends frames to a stack's record that ends before its first frame; returns the `size` that it has.
pub(crate) fn put_frames(record: &mut Vec<u8>, shape: &Shape, frames: &[u64]) -> u64 {
    let word = usize::from(shape.target.word_bytes);
    let mut put = |frame| put(record, shape.target.endian, frame, word);
    frames.iter().for_each(|&frame| put(frame));
    if !has_size(shape) {
        // All ones behind the last frame, then nothing.
        let rest = (0..CLAIMED_FRAMES.saturating_sub(frames.len())).map(|place| if place == 0 { u64::MAX } else { 0 });
        rest.for_each(put);
    }
    frames.len() as u64
}

/// Appends frames that make no stack, in one way of many; returns the `size`. Some of these records end within a frame.
pub(crate) fn put_nonsense(record: &mut Vec<u8>, shape: &Shape, random: &mut Random) -> u64 {
    if !has_size(shape) {
        let word = usize::from(shape.target.word_bytes);
        let bytes = if random.chance(50) { CLAIMED_FRAMES * word } else { 2 * word + 2 };
        record.resize(record.len() + bytes, 0);
        return 0;
    }
    let count = put_frames(record, shape, &[0x1000, 0x2000, 0x3000, 0x4000, 0x5000]);
    match random.below(4) {
        0 => 0,
        // Padding may hold another frame or two.
        1 => count + 4 + random.below(100),
        2 => *random.pick(&[0xffff_ffff, 0x8000_0000, 0x7fff_ffff, 0x2000_0000, 0x4000_0001]),
        _ => {
            let cut = 1 + random.below(record.len() as u64 - 12) as usize;
            record.truncate(record.len() - cut);
            count + 4
        }
    }
}
