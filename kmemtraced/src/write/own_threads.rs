//! Events caused by the recorder's own threads, which the kernel records like any others: counted for --verbose.

use std::sync::{Arc, OnceLock};

use kmemtrace_abi::kernel::format::{EventFormat, PageShape};
use kmemtrace_abi::kernel::subbuffer::SubBuffer;
use kmemtrace_abi::target::{Big, Endian, Little, TargetOrder};
use kmemtrace_abi::trace::FIRST_PID_NAMESPACE;

use crate::fs::kernelfs::{KernelFs, PROC};

/// True if this process is in the first pid namespace, whose thread ids the events have. Assumed without proc, as in an initramfs.
pub(crate) fn has_ids_of_events() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let inode = KernelFs::find(&PROC).and_then(|proc| proc.inode_of("self/ns/pid"));
        inode.map_or(true, |inode| inode.is_none_or(|inode| inode == FIRST_PID_NAMESPACE))
    })
}

/// Thread ids of the recorder, and the place of the thread id in an event record.
#[derive(Clone, Debug)]
pub(crate) struct OwnThreads {
    /// Set once all threads have started.
    threads: Arc<OnceLock<Vec<i32>>>,
    /// Offset of `common_pid` in a record.
    offset: usize,
}

impl OwnThreads {
    /// Takes the `format` file of any event; `None` where it has no `common_pid` of four bytes.
    pub(crate) fn new(format: &str) -> Option<OwnThreads> {
        let format = EventFormat::parse(format).ok()?;
        let field = format.field("common_pid").filter(|field| field.size == 4)?;
        Some(OwnThreads { threads: Arc::default(), offset: field.offset })
    }

    /// Sets the thread ids, once all threads have started.
    pub(crate) fn set(&self, threads: &[i32]) {
        let _ = self.threads.set(threads.to_vec());
    }

    /// Events in a run of sub-buffers caused by these threads, or by interrupts while they ran.
    pub(crate) fn count(&self, shape: &PageShape, payload: &[u8]) -> u64 {
        match Endian::NATIVE {
            Endian::Little => self.count_in::<Little>(shape, payload),
            Endian::Big => self.count_in::<Big>(shape, payload),
        }
    }

    fn count_in<O: TargetOrder>(&self, shape: &PageShape, mut payload: &[u8]) -> u64 {
        let Some(threads) = self.threads.get() else { return 0 };
        let mut count = 0;
        while let Ok(sub_buffer) = SubBuffer::parse::<O>(shape, payload) {
            let records = sub_buffer.records::<O>().map_while(Result::ok);
            let thread = |bytes: &[u8]| Some(i32::from_ne_bytes(*bytes.get(self.offset..)?.first_chunk()?));
            count +=
                records.filter(|record| thread(record.payload).is_some_and(|id| threads.contains(&id))).count() as u64;
            payload = &payload[sub_buffer.stored..];
        }
        count
    }
}
