//! Facts of this machine, beside a recording of it: its memory, and the thread of this program.

use std::fs;

use kmemtrace_abi::trace::FIRST_PID_NAMESPACE;

use crate::render::top_screen::Memory;

/// Bytes of a line of the text of `/proc/meminfo`.
fn bytes(text: &[u8], name: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Memory at present; `start` is the text of `/proc/meminfo` at the recording's begin.
pub(super) fn memory(start: &[u8]) -> Option<Memory> {
    let now = fs::read("/proc/meminfo").ok()?;
    let fall = bytes(start, "MemFree").zip(bytes(&now, "MemFree"));
    Some(Memory {
        available: bytes(&now, "MemAvailable")?,
        taken: fall.and_then(|(start, now)| start.checked_sub(now)),
    })
}

/// Thread id of this process as events of this machine have it; `None` in a pid namespace of its own, where it is another one.
pub(super) fn own_thread() -> Option<i32> {
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let is_first = namespace.to_str()? == format!("pid:[{FIRST_PID_NAMESPACE}]");
    if is_first { i32::try_from(std::process::id()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_meminfo_are_read_and_others_are_not() {
        let text = b"MemTotal:  24684512 kB\nMemFree:    3409000 kB\nMemAvailable: nonsense\nMem: 1 kB\n";
        assert_eq!(bytes(text, "MemFree"), Some(3_409_000 * 1024));
        assert_eq!(
            [bytes(text, "MemAvailable"), bytes(text, "Mem"), bytes(b"\xff", "MemFree")],
            [None, Some(1024), None]
        );
    }
}
