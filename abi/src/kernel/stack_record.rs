//! Records that hold a call stack, `ftrace:kernel_stack`, by the trace's own format.

use byteorder::ByteOrder;

use crate::kernel::format::{EventFormat, FieldAddressing};
use crate::kernel::profile;
use crate::kernel::slot::{NEAR, Slot};
use crate::kernel::subbuffer::Record;
use crate::target::{TargetOrder, u16_at, uint_at};

/// System and name of the records.
const NAME: (&str, &str) = ("ftrace", "kernel_stack");
/// Interrupts in `common_flags`: hard interrupt, softirq, NMI. The other bits may change between an event and its stack.
const INTERRUPTS: u64 = 0x58;

/// Thread and interrupts that a record was written in.
///
/// On a CPU, a stack belongs to the last event of the same origin: the kernel writes it right after its event, and only interrupts
/// come between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u64);

impl Origin {
    /// True for an interrupt of any sort.
    #[inline(always)]
    pub(crate) fn is_interrupt(self) -> bool {
        self.0 & INTERRUPTS != 0
    }
}

/// Layout of the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackFormat {
    id: u16,
    pid: Slot,
    flags: Slot,
    /// End of the two.
    common: usize,
    /// Number of frames; `None` in kernels before 3.0, whose records all have as many as the format says.
    size: Option<Slot>,
    /// Offset of the first frame.
    frames: usize,
    /// Bytes of frames by the format; records with a `size` have more or less.
    claimed: usize,
}

impl StackFormat {
    /// The layout, if this is the format of a stack.
    pub(crate) fn new(system: &str, format: &EventFormat) -> Option<StackFormat> {
        if (system, format.name.as_str()) != NAME {
            return None;
        }
        let slot = |name: &str| format.field(name).and_then(Slot::of);
        let caller = format.field("caller").filter(|field| field.place == FieldAddressing::Fixed)?;
        let (pid, flags) = (slot(profile::PID)?, slot(profile::FLAGS)?);
        let common = pid.end().max(flags.end());
        Some(StackFormat {
            id: format.id,
            pid,
            flags,
            common,
            size: slot("size"),
            frames: caller.offset,
            claimed: caller.size,
        })
    }

    /// True for a record of a stack.
    #[inline(always)]
    pub(crate) fn is_stack<O: TargetOrder>(&self, record: &[u8]) -> bool {
        u16_at::<O>(record, 0) == Some(self.id)
    }

    /// The origin of a record of any event: the common fields are those of a stack. `None` where it ends before them.
    #[inline(always)]
    pub(crate) fn origin<O: TargetOrder>(&self, record: &Record<'_>) -> Option<Origin> {
        if record.payload.len() < self.common {
            return None;
        }
        let (pid, flags) = match record.rest.first_chunk() {
            Some(head) if self.common <= NEAR => (self.pid.read_near::<O>(head), self.flags.read_near::<O>(head)),
            _ => (self.pid.read::<O>(record.payload), self.flags.read::<O>(record.payload)),
        };
        Some(Origin(pid << 8 | flags & INTERRUPTS))
    }

    /// Replaces `frames` by those of a stack's record; false where it has none, or is shorter than it says.
    pub(crate) fn read<O: TargetOrder>(&self, record: &[u8], word_bytes: u8, frames: &mut Vec<u64>) -> bool {
        frames.clear();
        let word = usize::from(word_bytes);
        let Some(room) = record.get(self.frames..).filter(|_| word > 0) else { return false };
        let bytes = match self.size {
            Some(size) if record.len() >= size.end() => {
                // A negative number is too large, too.
                usize::try_from(size.read::<O>(record)).ok().and_then(|count| count.checked_mul(word))
            }
            Some(_) => None,
            None => Some(self.claimed.min(room.len())),
        };
        let Some(room) = bytes.and_then(|bytes| room.get(..bytes)) else { return false };
        let end = if word == 4 { u64::from(u32::MAX) } else { u64::MAX };
        match word {
            8 => frames.extend(room.chunks_exact(8).map(O::Stream::read_u64)),
            _ => frames.extend(room.chunks_exact(word).filter_map(|frame| uint_at::<O>(frame, 0, word))),
        }
        // The kernel's own printing stops at all ones; kernels without `size` leave zeros behind the last frame.
        let is_end = |frame: &u64| *frame == end || (*frame == 0 && self.size.is_none());
        if let Some(end) = frames.iter().position(is_end) {
            frames.truncate(end);
        }
        !frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Big, Little};

    fn format(word: usize, size: bool) -> StackFormat {
        let (at, bytes) = (if size { 8 + word } else { 8 }, 8 * word);
        let size = if size { "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;\n" } else { "" };
        let text = format!(
            "name: kernel_stack\nID: 4\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n{size}\
             \tfield:unsigned long caller[8];\toffset:{at};\tsize:{bytes};\tsigned:0;\n"
        );
        let format = EventFormat::parse(&text).unwrap();
        assert!(StackFormat::new("kmem", &format).is_none());
        StackFormat::new("ftrace", &format).unwrap()
    }

    /// A stack in little-endian order of thread 7, in a softirq.
    fn record(word: usize, size: Option<i32>, frames: &[u64]) -> Vec<u8> {
        let mut record = vec![4, 0, 0x35, 0, 7, 0, 0, 0];
        if let Some(size) = size {
            record.extend(size.to_le_bytes());
            record.resize(8 + word, 0xa5);
        }
        frames.iter().for_each(|frame| record.extend(&frame.to_le_bytes()[..word]));
        record
    }

    fn read(format: StackFormat, word: usize, record: &[u8]) -> Option<Vec<u64>> {
        let mut frames = vec![99];
        format.read::<Little>(record, word as u8, &mut frames).then_some(frames)
    }

    #[test]
    fn frames_are_as_many_as_the_record_says() {
        let many: Vec<u64> = (1..=20).collect();
        for word in [4, 8] {
            let format = format(word, true);
            let found = |size, frames: &[u64]| read(format, word, &record(word, Some(size), frames));
            assert_eq!(found(20, &many), Some(many.clone()), "{word}");
            assert_eq!(found(3, &many), Some(vec![1, 2, 3]));
            assert_eq!(found(3, &[1, u64::MAX, 3]), Some(vec![1]), "all ones end a stack");
            for size in [0, -1, 21, i32::MIN, i32::MAX, 1 << 29] {
                assert_eq!(found(size, &many), None, "{word} {size}");
            }
            let whole = record(word, Some(20), &many);
            for len in 0..whole.len() {
                assert_eq!(read(format, word, &whole[..len]), None, "{len}");
            }
        }
    }

    #[test]
    fn kernels_without_a_size_have_zeros_behind_the_last_frame() {
        for word in [4, 8] {
            let frames = [5, 6, 7, 0, 0, 0, 0, 0];
            assert_eq!(read(format(word, false), word, &record(word, None, &frames)), Some(vec![5, 6, 7]));
            assert_eq!(read(format(word, false), word, &record(word, None, &[0; 8])), None);
        }
    }

    #[test]
    fn origins_are_thread_and_interrupts() {
        let format = format(8, true);
        let of = |payload: &[u8], rest: &[u8]| {
            format.origin::<Little>(&Record { time: 0, payload, rest: &[payload, rest].concat() })
        };
        // Short of what is loaded at once, and long enough.
        let origin = |flags, pid| {
            let record = [4, 0, flags, 0, pid, 0, 0, 0];
            assert_eq!(of(&record, &[]), of(&record, &[0xff; 100]));
            of(&record, &[])
        };
        assert_eq!(origin(0x35, 7), origin(0x10, 7));
        for other in [origin(0x35, 8), origin(0x25, 7), origin(0x18, 7), origin(0x50, 7)] {
            assert_ne!(other, origin(0x35, 7));
        }
        assert_eq!(of(&[4, 0, 0, 0, 7, 0, 0], &[0; 100]), None);
        assert!(format.is_stack::<Little>(&[4, 0]) && format.is_stack::<Big>(&[0, 4]));
        assert!(!format.is_stack::<Little>(&[4]) && !format.is_stack::<Little>(&[4, 1]));
    }
}
