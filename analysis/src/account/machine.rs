//! Texts of the machine's memory at both ends of a recording.

use kmemtrace_abi::trace::{MemoryTexts, Metadata};
use memchr::memmem;

use crate::names::reclaim::ReclaimRules;

/// Function that kernels have whose stacks are allocated by vmalloc (`kernel/fork.c`, `CONFIG_VMAP_STACK`, Linux 4.14 on).
const STACKS_OF_VMALLOC: &[u8] = b" free_vm_stack_cache";

/// Texts of the begin and of the end.
#[derive(Clone, Debug)]
pub(crate) struct MachineTexts {
    pub(crate) sides: [MachineSide; 2],
    /// Kernel stacks are allocated by vmalloc; true also where the trace has no symbols.
    pub(crate) maps_stacks: bool,
    /// Caches whose slabs count as reclaimable.
    pub(crate) reclaim: ReclaimRules,
}

/// Texts of one moment; empty where the recording has none.
#[derive(Clone, Debug)]
pub(crate) struct MachineSide {
    /// `/proc/meminfo`.
    pub(crate) meminfo: Vec<u8>,
    /// `/proc/zoneinfo`.
    pub(crate) zoneinfo: Vec<u8>,
    /// `/proc/buddyinfo`.
    pub(crate) buddyinfo: Vec<u8>,
}

impl MachineTexts {
    /// The texts that a trace keeps; its symbols must be there still.
    pub(crate) fn of(metadata: &Metadata) -> MachineTexts {
        let side = |meminfo: &[u8], texts: &MemoryTexts| MachineSide {
            meminfo: meminfo.to_vec(),
            zoneinfo: texts.zoneinfo.clone(),
            buddyinfo: texts.buddyinfo.clone(),
        };
        let symbols = &metadata.kallsyms;
        MachineTexts {
            sides: [
                side(&metadata.meminfo_start, &metadata.memory_start),
                side(&metadata.meminfo_end, &metadata.memory_end),
            ],
            reclaim: ReclaimRules::of(metadata),
            maps_stacks: symbols.is_empty() || memmem::find(symbols, STACKS_OF_VMALLOC).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_tell_how_stacks_are_allocated() {
        let maps = |kallsyms: &[u8]| {
            MachineTexts::of(&Metadata { kallsyms: kallsyms.to_vec(), ..Metadata::default() }).maps_stacks
        };
        assert!(maps(b""), "not known");
        assert!(maps(b"ffffffff81000000 t free_vm_stack_cache\n"));
        assert!(!maps(b"ffffffff81000000 T _text\n"));
    }
}
