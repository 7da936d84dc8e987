//! Byte-exact kernel bytes from a seed, for any word size, byte order, sub-buffer size and loss pattern,
//! and the items that a reader must find in them: for tests and benchmarks, on any machine, without root.
//!
//! A [`workload()`] is what happened on each CPU, gaps included: the truth. [`trace_dir`] turns it into the
//! files of a recording, [`tree()`] into a captured tree, [`relay()`] into a relay channel's bytes. The record layouts
//! ([`layout`]) come from one list of fields that both the `format` text and the bytes are made from, so the two agree.
//!
//! A [`Load`] is for size: as many events as are asked for, one after the other, which [`write_trace`] writes as they come.

pub mod counters;
pub mod directory;
pub mod layout;
pub mod leaks;
pub mod load;
pub mod pages;
pub mod probes;
pub mod random;
pub mod relay;
mod stacks;
pub mod symbols;
pub mod tree;
pub mod workload;

pub use directory::{relay_dir, trace_dir, write_trace};
pub use load::{Load, LoadOptions};
pub use random::Random;
pub use relay::{RelayOptions, RelayStreams, relay};
pub use tree::tree;
pub use workload::{Hand, Options, PerCpu, Sample, Workload, workload};

use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::target::{Endian, Target};

/// Kernels whose event formats differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Era {
    /// 12-byte common header, no `signed:`, page pointers, `mm_page_free_direct`.
    V2_6_32,
    /// `_node` events, 4-byte gfp flags, cache names in `kmem_cache_free`.
    V5_15,
    /// Node in every allocation, no `_node` events.
    V6_1,
    /// As 6.1; here `kfree` of a cache object is legal.
    V6_12,
    /// Cache names in `kmem_cache_alloc`.
    V6_18,
}

impl Era {
    /// All, oldest first.
    pub const ALL: [Era; 5] = [Era::V2_6_32, Era::V5_15, Era::V6_1, Era::V6_12, Era::V6_18];

    /// A kernel release of that time.
    pub fn kernel(self) -> &'static str {
        match self {
            Era::V2_6_32 => "2.6.32.71",
            Era::V5_15 => "5.15.12-generic",
            Era::V6_1 => "6.1.90",
            Era::V6_12 => "6.12.10",
            Era::V6_18 => "6.18.1",
        }
    }
}

/// Machine and kernel of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Byte order and word size.
    pub target: Target,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a sub-buffer, header included.
    pub sub_buffer_bytes: usize,
    /// Era of the event formats.
    pub era: Era,
    /// The architecture forces 8-byte alignment: every record has the long form.
    pub aligned: bool,
    /// Possible CPUs of a machine with events of per-CPU memory and of address space; 0 for one without.
    pub possible_cpus: u64,
}

impl Shape {
    /// A current little-endian 64-bit machine with 4 KiB pages.
    pub fn plain() -> Shape {
        Shape {
            target: Target { endian: Endian::Little, word_bytes: 8 },
            page_bytes: 4096,
            sub_buffer_bytes: 4096,
            era: Era::V6_18,
            aligned: false,
            possible_cpus: 0,
        }
    }

    /// Any.
    pub fn random(random: &mut Random) -> Shape {
        let endian = if random.chance(50) { Endian::Little } else { Endian::Big };
        let word_bytes = if random.chance(60) { 8 } else { 4 };
        let page_bytes = *random.pick(&[4096u32, 4096, 4096, 16384, 65536]);
        let pages = *random.pick(&[1usize, 1, 1, 2, 4]);
        Shape {
            target: Target { endian, word_bytes },
            page_bytes,
            sub_buffer_bytes: page_bytes as usize * pages,
            era: *random.pick(&Era::ALL),
            aligned: random.chance(25),
            possible_cpus: 0,
        }
    }

    /// The sub-buffer's shape, as `events/header_page` has it.
    pub fn page(&self) -> PageShape {
        let word = usize::from(self.target.word_bytes);
        let data_offset = if self.aligned { 16 } else { 8 + word };
        PageShape { target: self.target, commit_offset: 8, commit_size: word, data_offset, size: self.sub_buffer_bytes }
    }

    /// Machine name, as uname has it.
    pub fn arch(&self) -> &'static str {
        match (self.target.endian, self.target.word_bytes) {
            (Endian::Little, 8) => "x86_64",
            (Endian::Little, _) => "armv7l",
            (Endian::Big, 8) => "s390x",
            (Endian::Big, _) => "ppc",
        }
    }

    /// The value that an `unsigned long` of all ones has.
    pub fn word_max(&self) -> u64 {
        if self.target.word_bytes == 8 { u64::MAX } else { u64::from(u32::MAX) }
    }
}

/// Appends the low `size` bytes of `value` in the target's order.
pub(crate) fn put(out: &mut Vec<u8>, endian: Endian, value: u64, size: usize) {
    let at = out.len();
    out.resize(at + size, 0);
    set(out, endian, at, value, size);
}

/// Overwrites `size` (at most 8) bytes at `at` with the low bytes of `value` in the target's order.
pub(crate) fn set(out: &mut [u8], endian: Endian, at: usize, value: u64, size: usize) {
    let Some(room) = out.get_mut(at..at + size) else { return };
    match endian {
        Endian::Little => room.copy_from_slice(&value.to_le_bytes()[..size]),
        Endian::Big => room.copy_from_slice(&value.to_be_bytes()[8 - size..]),
    }
}
