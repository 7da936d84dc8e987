//! Figures of the machine's memory at the begin and at the end of a recording.

use kmemtrace_abi::disk::block::item;

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::write::host_texts::unnamed;

/// Texts of memory by item tag, read while the kernel records: their change is that of the recording.
pub(crate) struct MemoryTexts {
    proc: Option<KernelFs>,
    texts: Vec<(u16, Vec<u8>)>,
}

impl MemoryTexts {
    /// No texts. The reader of the other names has told it where there is no proc.
    pub(crate) fn open() -> MemoryTexts {
        MemoryTexts { proc: KernelFs::find(&PROC).ok(), texts: Vec::new() }
    }

    /// Reads the texts once the kernel records.
    pub(crate) fn begun(&mut self) {
        self.read(item::MEMINFO_START, "meminfo");
        self.read(item::VMSTAT_START, "vmstat");
    }

    /// Reads the texts before the kernel stops to record.
    pub(crate) fn stopping(&mut self) {
        self.read(item::MEMINFO_END, "meminfo");
        self.read(item::VMSTAT_END, "vmstat");
    }

    /// The texts by item tag.
    pub(crate) fn take(self) -> Vec<(u16, Vec<u8>)> {
        self.texts
    }

    fn read(&mut self, tag: u16, file: &str) {
        let Some(proc) = &self.proc else { return };
        match proc.read_if_there(file) {
            Ok(text) => self.texts.push((tag, text)),
            Err(error) => unnamed("figures of the machine's memory", &error),
        }
    }
}
