//! Texts of proc on the machine's memory, at the begin and at the end of a recording.

use std::fs::File;
use std::os::unix::fs::FileExt;

use kmemtrace_abi::disk::block::item;
use rustix::fs::OFlags;

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::write::host_texts::unnamed;

/// Control file: a write adds the counters that CPUs hold back to those that the texts have (Linux 4.8 on).
const STAT_REFRESH: &str = "sys/vm/stat_refresh";
/// Most bytes that are kept of a text. A machine with a thousand CPUs has about 1 MiB of zoneinfo.
const MAX_TEXT: usize = 4 << 20;

/// Text of proc, and its item tags at the begin and at the end.
struct Text {
    file: &'static str,
    tags: [u16; 2],
}

/// Texts of totals, in the order in which they are read: free pages on the lists of CPUs, which zoneinfo has, move fast.
const TOTALS: [Text; 4] = [
    Text { file: "meminfo", tags: [item::MEMINFO_START, item::MEMINFO_END] },
    Text { file: "zoneinfo", tags: [item::ZONEINFO_START, item::ZONEINFO_END] },
    Text { file: "vmstat", tags: [item::VMSTAT_START, item::VMSTAT_END] },
    Text { file: "buddyinfo", tags: [item::BUDDYINFO_START, item::BUDDYINFO_END] },
];

/// Texts with a line for each caller: up to megabytes.
const CALLERS: [Text; 2] = [
    Text { file: "vmallocinfo", tags: [item::VMALLOCINFO_START, item::VMALLOCINFO_END] },
    Text { file: "allocinfo", tags: [item::ALLOCINFO_START, item::ALLOCINFO_END] },
];

/// End of a recording at which the texts are read.
#[derive(Clone, Copy)]
enum Side {
    Begin,
    End,
}

/// Reader of the texts, while the kernel records: their change is that of the recording.
pub(crate) struct MemoryTexts {
    proc: Option<KernelFs>,
    with_callers: bool,
    /// [`STAT_REFRESH`], open from the start: in the sandbox nothing in proc is opened for writing. Older kernels, and mounts that are
    /// read-only, do without.
    refresh: Option<File>,
}

impl MemoryTexts {
    /// Opens proc; `with_callers`: texts with a line for each caller are read, too. The reader of the other names has told it where
    /// there is no proc.
    pub(crate) fn open(with_callers: bool) -> MemoryTexts {
        MemoryTexts::of(KernelFs::find(&PROC).ok(), with_callers)
    }

    fn of(proc: Option<KernelFs>, with_callers: bool) -> MemoryTexts {
        let refresh = proc.as_ref().and_then(|proc| proc.open(STAT_REFRESH, OFlags::WRONLY).ok());
        MemoryTexts { proc, with_callers, refresh }
    }

    /// Texts of totals once the kernel records, by item tag.
    pub(crate) fn begun(&self) -> Vec<(u16, Vec<u8>)> {
        self.refresh();
        self.read(&TOTALS, Side::Begin)
    }

    /// Texts of callers once the kernel records, by item tag.
    pub(crate) fn callers_begun(&self) -> Vec<(u16, Vec<u8>)> {
        if self.with_callers { self.read(&CALLERS, Side::Begin) } else { Vec::new() }
    }

    /// All texts before the kernel stops to record, by item tag.
    pub(crate) fn stopping(&self) -> Vec<(u16, Vec<u8>)> {
        self.refresh();
        let mut texts = self.read(&TOTALS, Side::End);
        if self.with_callers {
            texts.extend(self.read(&CALLERS, Side::End));
        }
        texts
    }

    /// Has the kernel add up its counters.
    fn refresh(&self) {
        let _ = self.refresh.as_ref().map(|file| file.write_all_at(b"1\n", 0));
    }

    fn read(&self, texts: &[Text], side: Side) -> Vec<(u16, Vec<u8>)> {
        let Some(proc) = &self.proc else { return Vec::new() };
        let mut read = Vec::new();
        for Text { file, tags } in texts {
            match proc.read_if_there(file) {
                Ok(mut text) => {
                    cut(&mut text);
                    read.push((tags[side as usize], text));
                }
                Err(error) => unnamed("figures of the machine's memory", &error),
            }
        }
        read
    }
}

/// Cuts a text that is too long behind a line.
fn cut(text: &mut Vec<u8>) {
    if text.len() > MAX_TEXT {
        let end = text[..MAX_TEXT].iter().rposition(|&byte| byte == b'\n').map_or(MAX_TEXT, |end| end + 1);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_at_both_ends_and_absent_ones_are_empty() {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [("meminfo", "MemFree: 1 kB\n"), ("zoneinfo", "Node 0\n"), ("allocinfo", "a\n")] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let texts = |with_callers| MemoryTexts::of(KernelFs::at(dir.path()).ok(), with_callers);
        let of = |texts: &[(u16, Vec<u8>)], tag| texts.iter().find(|(of, _)| *of == tag).map(|(_, text)| text.len());
        let begun = texts(true).begun();
        assert_eq!(
            [item::MEMINFO_START, item::ZONEINFO_START, item::BUDDYINFO_START].map(|tag| of(&begun, tag)),
            [Some(14), Some(7), Some(0)]
        );
        assert_eq!(of(&begun, item::ALLOCINFO_START), None, "not while the readers wait");
        assert_eq!(of(&texts(true).callers_begun(), item::ALLOCINFO_START), Some(2));
        assert!(texts(false).callers_begun().is_empty());
        let ended = texts(true).stopping();
        assert_eq!([item::MEMINFO_END, item::ALLOCINFO_END].map(|tag| of(&ended, tag)), [Some(14), Some(2)]);
        assert_eq!(of(&texts(false).stopping(), item::ALLOCINFO_END), None);
    }

    #[test]
    fn a_long_text_ends_with_a_line() {
        let mut text = b"0123456789 line\n".repeat(MAX_TEXT / 16 + 9);
        text.insert(0, b'x');
        cut(&mut text);
        assert_eq!((text.len(), text.last()), (MAX_TEXT - 15, Some(&b'\n')));
    }
}
