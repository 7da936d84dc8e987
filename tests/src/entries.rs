//! Entries of a sub-buffer, as a first reading of `include/linux/ring_buffer.h` has them.

use std::ops::Range;

use kmemtrace_abi::target::{Endian, Target as Machine};

/// Times, and places of the payloads.
pub fn entries(machine: Machine, data: &[u8], begin: u64) -> Vec<(u64, Range<usize>)> {
    let word = |at: usize| -> Option<u32> {
        let bytes = data.get(at..at + 4)?.try_into().ok()?;
        Some(if machine.endian == Endian::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let (mut out, mut at, mut time) = (Vec::new(), 0, begin);
    while let Some(head) = word(at) {
        let is_little = machine.endian == Endian::Little;
        let (type_len, delta) = if is_little { (head % 32, head / 32) } else { (head >> 27, head & 0x7ff_ffff) };
        let array = word(at + 4).map(|array| array as usize);
        let record = match (type_len, array) {
            (1..=28, _) => Some((at + 4, at + 4 + 4 * type_len as usize)),
            (0, Some(array)) if array >= 4 && array % 4 == 0 => Some((at + 8, at + 4 + array)),
            _ => None,
        };
        if let Some((from, to)) = record {
            if to > data.len() {
                break;
            }
            time = time.wrapping_add(delta.into());
            out.push((time, from..to));
            at = to;
            continue;
        }
        let extended = |array: usize| ((array as u64) << 27) + u64::from(delta);
        match (type_len, array) {
            (29, Some(array)) if delta > 0 && at + 4 + array <= data.len() => {
                time = time.wrapping_add(if delta > 1 { delta.into() } else { 0 });
                at += 4 + array;
            }
            (30, Some(array)) => (time, at) = (time.wrapping_add(extended(array)), at + 8),
            (31, Some(array)) => {
                let (top, stamp) = (time >> 59, extended(array));
                let with_top = (stamp % (1 << 59)) | (top << 59);
                let fixed = if with_top < time { with_top.wrapping_add(1 << 59) } else { with_top };
                (time, at) = (if top == 0 { stamp } else { fixed }, at + 8);
            }
            _ => break,
        }
    }
    out
}
