//! Records and `format` texts of the recorder's probe events. The kernel packs their fields without gaps.

use super::{Era, Random, Shape, put, set};
use kmemtrace_abi::event::{Bulk, BulkAction, Event};

/// Group of the events in recordings.
pub const GROUP: &str = "kmemtrace_generator";

/// Elements of the array of addresses.
pub const ROOM: usize = 64;

/// True if kernels of the shape's era have what the recorder needs for its probe events.
pub fn has_probes(shape: &Shape) -> bool {
    shape.era >= Era::V6_12
}

/// Meaning of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Type,
    Flags,
    Pid,
    Caller,
    Pointer,
    Cache,
    Name,
    Requested,
    Allocated,
    Gfp,
    Size,
    Result,
    Array,
    Any,
}

/// Layout of a probe event.
#[derive(Clone, Debug)]
pub struct ProbeLayout {
    /// Name of the event.
    pub name: &'static str,
    id: u16,
    /// Declaration, bytes and meaning.
    fields: Vec<(&'static str, usize, Slot)>,
    shape: Shape,
}

/// Layouts of the three events.
pub fn probe_layouts(shape: &Shape) -> Vec<ProbeLayout> {
    if !has_probes(shape) {
        return Vec::new();
    }
    let word = usize::from(shape.target.word_bytes);
    // A count up to Linux 6.18, a truth value on 7.3.
    let result = if shape.aligned { ("u8 ret", 1, Slot::Result) } else { ("s32 ret", 4, Slot::Result) };
    let deferred = [("unsigned long __probe_ip", word, Slot::Any), ("u64 ptr", word, Slot::Pointer)];
    let caller = ("u64 call_site", 8, Slot::Caller);
    let name = ("__data_loc char[] name", 4, Slot::Name);
    // The kernel prints no bound.
    let array = ("u64 p[]", 8 * ROOM, Slot::Array);
    let free = [
        ("unsigned long __probe_ip", word, Slot::Any),
        ("u64 s", word, Slot::Cache),
        ("u64 size", word, Slot::Size),
        name,
        caller,
        array,
    ];
    let alloc = [
        ("unsigned long __probe_func", word, Slot::Any),
        ("unsigned long __probe_ret_ip", word, Slot::Caller),
        name,
        ("u32 bytes_req", 4, Slot::Requested),
        ("u32 bytes_alloc", 4, Slot::Allocated),
        ("u32 gfp_flags", 4, Slot::Gfp),
        ("u64 size", word, Slot::Size),
        result,
        array,
    ];
    let common = [
        ("unsigned short common_type", 2, Slot::Type),
        ("unsigned char common_flags", 1, Slot::Flags),
        ("unsigned char common_preempt_count", 1, Slot::Any),
        ("int common_pid", 4, Slot::Pid),
    ];
    let layout = |name, id, own: Vec<_>| ProbeLayout {
        name,
        id,
        fields: common.into_iter().chain(own).collect(),
        shape: *shape,
    };
    vec![
        layout("kvfree_rcu", 1701, deferred.into_iter().chain([caller]).collect()),
        layout("free_bulk", 1702, free.to_vec()),
        layout("alloc_bulk", 1703, alloc.to_vec()),
    ]
}

impl ProbeLayout {
    /// The text of its `format` file.
    pub fn text(&self) -> String {
        let mut text = format!("name: {}\nID: {}\nformat:\n", self.name, self.id);
        let mut offset = 0;
        for (number, (declaration, bytes, _)) in self.fields.iter().enumerate() {
            if number == 4 {
                text.push('\n');
            }
            text += &format!("\tfield:{declaration};\toffset:{offset};\tsize:{bytes};\tsigned:0;\n");
            offset += bytes;
        }
        text + "\nprint fmt: \"(%lx)\", REC->__probe_ip\n"
    }

    /// The record of an event with these addresses. Elements of the array behind them are memory of the caller: `leftover`.
    pub fn record(
        &self,
        event: &Event,
        (addresses, leftover): (&[u64], u64),
        cache: Option<&[u8]>,
        random: &mut Random,
    ) -> Vec<u8> {
        let endian = self.shape.target.endian;
        let fixed: usize = self.fields.iter().map(|(_, bytes, _)| bytes).sum();
        // A name that the kernel cannot read is this text, or none at all.
        let text = match cache {
            Some(name) => [name, b"\0"].concat(),
            None if random.chance(50) => b"(fault)\0".to_vec(),
            None => Vec::new(),
        };
        let size = event.objects().unwrap_or(0);
        let completes = matches!(event.bulk, Some(Bulk::Record { action: BulkAction::Complete, .. }));
        let mut record = Vec::new();
        for &(_, bytes, slot) in &self.fields {
            let value = match slot {
                Slot::Type => self.id.into(),
                Slot::Flags => event.flags.unwrap_or(0).into(),
                Slot::Pid => event.pid.unwrap_or(0) as u64,
                Slot::Caller => event.call_site,
                Slot::Pointer => event.address,
                Slot::Cache if completes => 0,
                Slot::Cache => 0x8800_0100 + random.below(1000),
                Slot::Name => (text.len() as u64) << 16 | fixed as u64,
                Slot::Requested => event.requested,
                Slot::Allocated => event.allocated,
                Slot::Gfp => event.gfp.unwrap_or(0),
                Slot::Size => size,
                Slot::Result if event.failed => 0,
                Slot::Result if bytes == 1 => 1,
                Slot::Result => size.clamp(1, 1 << 30),
                Slot::Any => random.bits() >> (64 - 8 * bytes),
                Slot::Array => {
                    let at = record.len();
                    record.resize(at + bytes, 0);
                    for number in 0..ROOM {
                        let element = addresses.get(number).copied().unwrap_or(leftover);
                        set(&mut record, endian, at + 8 * number, element, 8);
                    }
                    continue;
                }
            };
            put(&mut record, endian, value, bytes);
        }
        record.extend(text);
        record
    }
}
