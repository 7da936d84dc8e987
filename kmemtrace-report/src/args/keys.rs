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
    /// Thread group of the thread, which a text of page_owner alone tells
    Tgid,
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
    /// Allocators that pages came through: cma, slab, vmalloc or others; of page_owner
    Allocator,
    /// True for memory that was given back since; of page_owner, with --released
    Released,
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
            GroupBy::Tgid => GroupKey::Tgid,
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
            GroupBy::Allocator => GroupKey::Allocator,
            GroupBy::Released => GroupKey::Released,
        }
    }
}

/// Keys of `--cull`, in the words and letters of page_owner_sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CullBy {
    /// Thread id
    #[value(alias = "p")]
    Pid,
    /// Thread group
    #[value(alias = "tg")]
    Tgid,
    /// Command of the thread
    #[value(alias = "n")]
    Name,
    /// Whole call stack
    #[value(alias = "st")]
    Stacktrace,
    /// Allocators that pages came through
    #[value(alias = "ator")]
    Allocator,
    /// Memory that is held, or was given back
    #[value(alias = "f")]
    Free,
}

impl CullBy {
    /// Key of the library.
    pub(crate) fn key(self) -> GroupKey {
        match self {
            CullBy::Pid => GroupKey::Pid,
            CullBy::Tgid => GroupKey::Tgid,
            CullBy::Name => GroupKey::Comm,
            CullBy::Stacktrace => GroupKey::Stack,
            CullBy::Allocator => GroupKey::Allocator,
            CullBy::Free => GroupKey::Released,
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
    #[value(aliases = ["cache", "txt", "T"])]
    Site,
    /// With --cull: thread id, smallest first
    #[value(aliases = ["p", "+p", "+pid"], hide = true)]
    Pid,
    /// Thread id, greatest first
    #[value(name = "-pid", alias = "-p", hide = true)]
    PidDown,
    /// With --cull: thread group, smallest first
    #[value(aliases = ["tg", "+tg", "+tgid"], hide = true)]
    Tgid,
    /// Thread group, greatest first
    #[value(name = "-tgid", alias = "-tg", hide = true)]
    TgidDown,
    /// With --cull: command of the thread
    #[value(aliases = ["n", "+n", "+name"], hide = true)]
    Name,
    /// Command of the thread, last one first
    #[value(name = "-name", alias = "-n", hide = true)]
    NameDown,
    /// With --cull: text of the call stack
    #[value(aliases = ["st", "+st", "+stacktrace"], hide = true)]
    Stacktrace,
    /// Text of the call stack, last one first
    #[value(name = "-stacktrace", alias = "-st", hide = true)]
    StacktraceDown,
    /// With --cull: allocators
    #[value(aliases = ["ator", "+ator", "+allocator"], hide = true)]
    Allocator,
    /// Allocators, last one first
    #[value(name = "-allocator", alias = "-ator", hide = true)]
    AllocatorDown,
    /// Time of the oldest block, oldest first
    #[value(name = "alloc_ts", aliases = ["at", "+at", "+alloc_ts"], hide = true)]
    AllocTs,
    /// Time of the oldest block, youngest first
    #[value(name = "-alloc_ts", alias = "-at", hide = true)]
    AllocTsDown,
    /// Earliest time at which an owner before gave a page back, earliest first
    #[value(name = "free_ts", aliases = ["ft", "+ft", "+free_ts"], hide = true)]
    FreeTs,
    /// Earliest time at which an owner before gave a page back, latest first
    #[value(name = "-free_ts", alias = "-ft", hide = true)]
    FreeTsDown,
}

impl SortBy {
    /// Key of the library; `None` for an order that rows of figures do not have.
    pub(crate) fn key(self) -> Option<SortKey> {
        let up = |key| SortKey::Key { key, is_descending: false };
        let down = |key| SortKey::Key { key, is_descending: true };
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
            SortBy::Pid => up(GroupKey::Pid),
            SortBy::PidDown => down(GroupKey::Pid),
            SortBy::Tgid => up(GroupKey::Tgid),
            SortBy::TgidDown => down(GroupKey::Tgid),
            SortBy::Name => up(GroupKey::Comm),
            SortBy::NameDown => down(GroupKey::Comm),
            SortBy::Stacktrace => up(GroupKey::Stack),
            SortBy::StacktraceDown => down(GroupKey::Stack),
            SortBy::Allocator => up(GroupKey::Allocator),
            SortBy::AllocatorDown => down(GroupKey::Allocator),
            // The events stand at the time that is asked for.
            SortBy::AllocTs | SortBy::FreeTs => SortKey::Oldest { is_descending: false },
            SortBy::AllocTsDown | SortBy::FreeTsDown => SortKey::Oldest { is_descending: true },
        })
    }
}
