//! Keys of `--by` and `--sort`.

use clap::ValueEnum;
use kmemtrace::{GroupKey, SortKey};

/// Keys of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// Call-site of the allocation
    Site,
    /// Thread: its id and its command
    Task,
    /// Thread id
    Pid,
    /// Command of the thread
    Comm,
    /// Slab cache, or size class of kmalloc
    Cache,
    /// Module of the call-site
    Module,
    /// Call stack, from the call-site on
    Stack,
    /// Use of pages
    Use,
    /// Binary logarithm of the number of pages
    Order,
    /// Requested bytes
    Size,
    /// Flags of the allocation, by the kernel's names
    Gfp,
    /// NUMA node that the caller asked for
    Node,
    /// Context: task, softirq, hardirq or nmi
    Context,
    /// Function that asked for the memory, whatever its place in the function
    Function,
    /// Line of the kernel's sources that asked for the memory
    Source,
    /// Source file of that line
    File,
    /// Folder of the source file
    Folder,
    /// Area of the source file, with --areas
    Area,
}

impl GroupBy {
    /// Key of the library.
    pub(crate) fn key(self) -> GroupKey {
        match self {
            GroupBy::Site => GroupKey::Site,
            GroupBy::Function => GroupKey::Function,
            GroupBy::Source => GroupKey::Source,
            GroupBy::File => GroupKey::File,
            GroupBy::Folder => GroupKey::Folder,
            GroupBy::Area => GroupKey::Area,
            GroupBy::Task => GroupKey::Task,
            GroupBy::Pid => GroupKey::Pid,
            GroupBy::Comm => GroupKey::Comm,
            GroupBy::Cache => GroupKey::Cache,
            GroupBy::Module => GroupKey::Module,
            GroupBy::Stack => GroupKey::Stack,
            GroupBy::Use => GroupKey::Use,
            GroupBy::Order => GroupKey::Order,
            GroupBy::Size => GroupKey::Size,
            GroupBy::Gfp => GroupKey::Gfp,
            GroupBy::Node => GroupKey::Node,
            GroupBy::Context => GroupKey::Context,
        }
    }
}

/// Sort keys, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// Bytes lost to internal fragmentation, over all allocations
    Wasted,
    /// Bytes lost to internal fragmentation by objects live at the end
    #[value(name = "live_wasted", alias = "waste")]
    LiveWasted,
    /// Bytes live at the end
    #[value(alias = "current_dynamic")]
    Live,
    /// Greatest number of live bytes
    Peak,
    /// Allocated bytes, over all allocations
    #[value(aliases = ["allocated", "total_dynamic"])]
    Total,
    /// Requested bytes, over all allocations
    Requested,
    /// Number of allocations
    #[value(alias = "alloc_count")]
    Allocs,
    /// Number of observed frees
    #[value(alias = "free_count")]
    Frees,
    /// Number of frees on another CPU than the allocation's
    Cross,
    /// Live bytes gained over the recording
    Growth,
    /// Bytes of functions and objects in the kernel's image
    Static,
    /// Static and live bytes
    Current,
    /// Time of the first allocation
    Time,
    /// Name of the row: call-site, cache or group
    #[value(alias = "cache")]
    Site,
}

impl SortBy {
    /// Key of the library; `None` for an order that rows of figures do not have.
    pub(crate) fn key(self) -> Option<SortKey> {
        Some(match self {
            SortBy::Wasted => SortKey::Wasted,
            SortBy::LiveWasted => SortKey::LiveWasted,
            SortBy::Live => SortKey::Live,
            SortBy::Peak => SortKey::Peak,
            SortBy::Total => SortKey::Allocated,
            SortBy::Requested => SortKey::Requested,
            SortBy::Allocs => SortKey::Allocs,
            SortBy::Frees => SortKey::Frees,
            SortBy::Cross => SortKey::Cross,
            SortBy::Site => SortKey::Site,
            SortBy::Growth => SortKey::Growth,
            SortBy::Static => SortKey::Static,
            SortBy::Current => SortKey::Current,
            SortBy::Time => return None,
        })
    }
}
