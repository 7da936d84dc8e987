//! Memory of this machine, beside a recording of it.

use std::fs;

use crate::render::top::Memory;

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
