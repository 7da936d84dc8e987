//! Figures at one moment, as screens show them.

use std::fmt::Debug;
use std::sync::Arc;

use kmemtrace_abi::event::{BySpace, Kind};

use crate::names::kallsyms::with_offset;

/// Groupings of live rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LiveGroup {
    /// Call-sites.
    #[default]
    Sites,
    /// Call stacks.
    Stacks,
    /// Modules of stacks, or of call-sites; while a module loads, that one.
    Modules,
    /// Threads that allocated.
    Tasks,
    /// Cgroups of these, where the trace gives them.
    Cgroups,
    /// Caches, and size classes of `kmalloc`.
    Caches,
    /// Uses of pages.
    Uses,
}

impl LiveGroup {
    /// All groupings, in the order of screens.
    pub const ALL: [LiveGroup; 7] = [
        LiveGroup::Sites,
        LiveGroup::Stacks,
        LiveGroup::Modules,
        LiveGroup::Tasks,
        LiveGroup::Cgroups,
        LiveGroup::Caches,
        LiveGroup::Uses,
    ];

    /// Word for people.
    pub fn name(self) -> &'static str {
        match self {
            LiveGroup::Sites => "sites",
            LiveGroup::Stacks => "stacks",
            LiveGroup::Uses => "uses",
            LiveGroup::Modules => "modules",
            LiveGroup::Tasks => "tasks",
            LiveGroup::Cgroups => "cgroups",
            LiveGroup::Caches => "caches",
        }
    }
}

/// Key of a row, besides its kind: it stays the same from snapshot to snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LiveKey {
    /// Address of a call-site.
    Site(u64),
    /// Number of a stack, 0 for none, and of the module that its allocations belong to.
    Stack(u32, u32),
    /// Number of a module; 0 is the kernel.
    Module(u32),
    /// Thread id.
    Task(u32),
    /// Number of a cgroup; 0 where it is not known.
    Cgroup(u32),
    /// Number of a cache; 0 where it is not known.
    Cache(u32),
    /// Number of a use; 0 for slab objects.
    Use(u32),
    /// Number of a node of the tree of stacks: for screens, which add its rows up.
    Node(u32),
}

/// Function of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSymbol {
    /// Name, any bytes.
    pub name: Box<[u8]>,
    /// Distance from the function's start, in bytes; `None` where it is not known.
    pub offset: Option<u64>,
    /// Module, any bytes; `None` for the kernel.
    pub module: Option<Box<[u8]>>,
}

impl LiveSymbol {
    /// `name+0x1f`: any bytes, which an output escapes.
    pub fn text(&self) -> Vec<u8> {
        with_offset(&self.name, self.offset)
    }
}

/// Name of a row: bytes of a stranger, to be escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveName {
    /// Call-site, and its function where that is known.
    Site(u64, Option<LiveSymbol>),
    /// Frames of a stack, the call-site first; none where the allocation has no stack.
    Stack(Vec<(u64, Option<LiveSymbol>)>),
    /// Module; `None` for the kernel.
    Module(Option<Box<[u8]>>),
    /// Thread, where it is known, and its command name.
    Task(Option<i32>, Option<Box<[u8]>>),
    /// Path of a cgroup; `None` where it is not known.
    Cgroup(Option<Box<[u8]>>),
    /// Cache; `None` where it is not known.
    Cache(Option<Box<[u8]>>),
    /// Use of pages; `None` for slab objects.
    Use(Option<Box<[u8]>>),
}

/// Row of a snapshot.
#[derive(Clone, Debug)]
pub struct LiveRow {
    /// Key, for the next snapshots.
    pub key: LiveKey,
    /// Kind of the objects.
    pub kind: Kind,
    /// Name.
    pub name: Arc<LiveName>,
    /// Cache of the objects of a call-site, where it is known.
    pub cache: Option<Arc<LiveName>>,
    /// Live bytes.
    pub live: u64,
    /// Largest number of live bytes so far.
    pub peak: u64,
    /// Change of the live bytes over the window.
    pub growth: i64,
    /// Change of the live bytes since the mark, where one is set.
    pub since_mark: Option<i64>,
    /// Change of the live bytes in a second, over the last two, or over all of a shorter time.
    pub growth_now: i64,
    /// Live objects.
    pub objects: u64,
    /// Live pages, of a row of pages.
    pub pages: Option<u64>,
    /// Bytes that live objects have and did not ask for.
    pub wasted: u64,
    /// Allocations so far.
    pub allocs: u64,
    /// Allocations in a second, over the same time.
    pub allocs_now: u64,
    /// Frees in a second, over the same time.
    pub frees_now: u64,
    /// Objects freed so far.
    pub frees: u64,
    /// Objects freed on another CPU.
    pub cross_cpu: u64,
    /// Median age of live objects, in nanoseconds.
    pub median_age: Option<u64>,
    /// Nodes of the tree that the row belongs to, the outermost frame first; none for rows that are no stacks.
    pub path: Arc<[u32]>,
}

/// Sums over all rows of a space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Live bytes.
    pub live: u64,
    /// Largest number of live bytes so far.
    pub peak: u64,
    /// Time from the start of the trace to the peak, in nanoseconds.
    pub peak_after: u64,
    /// Change of the live bytes over the window.
    pub growth: i64,
    /// Allocations so far.
    pub allocs: u64,
}

/// Numbers of live objects by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Below 1 s, below 10 s, below 60 s, and older.
    pub counts: [u64; 4],
    /// Older than the window.
    pub beyond_window: u64,
    /// Age of the oldest, about, in nanoseconds.
    pub oldest: u64,
}

/// More about one row.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Ages of live objects.
    pub ages: Ages,
    /// Bytes that live objects ask for.
    pub requested: u64,
    /// Call-sites that free objects of a call-site, with their counts, the most frequent first.
    pub freed_by: Vec<(Arc<LiveName>, u64)>,
    /// Latest new stack of the row's allocations, where they have one.
    pub stack: Option<Arc<LiveName>>,
    /// Shares of the live objects; `None` where they are not counted yet, as counting them is put off while it would take too much
    /// of the time.
    pub shares: Option<Shares>,
    /// Times of the first and of the last allocation since the start of the trace, in nanoseconds.
    pub times: Option<(u64, u64)>,
}

/// Sizes and threads of the live objects of a row.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Sizes with most live bytes.
    pub sizes: Vec<SizeShare>,
    /// Threads whose allocations have most live bytes, and these.
    pub threads: Vec<(Arc<LiveName>, u64)>,
}

/// Live objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeShare {
    /// Bytes of an object; of pages, when they were allocated.
    pub allocated: u64,
    /// Order of a block of pages.
    pub order: Option<u32>,
    /// Live objects.
    pub objects: u64,
    /// Live bytes.
    pub live: u64,
}

/// Grouping, key and kind of a row.
pub type RowChoice = (LiveGroup, LiveKey, Kind);

/// Names that the class of an allocation gives.
#[derive(Clone, Copy, Debug)]
pub struct ObjectNames<'n> {
    /// Call-site.
    pub site: &'n LiveName,
    /// Module that the allocation belongs to.
    pub module: &'n LiveName,
    /// Cache.
    pub cache: &'n LiveName,
    /// Use of pages.
    pub usage: &'n LiveName,
}

/// Condition on allocations.
pub trait Selection: Debug + Send + Sync {
    /// Text of the condition: two with the same text are the same.
    fn text(&self) -> &str;

    /// True where allocations of this kind are taken that have these names.
    fn takes_objects(&self, kind: Kind, names: &ObjectNames<'_>) -> bool;

    /// True where allocations of a thread are taken.
    fn takes_thread(&self, task: &LiveName) -> bool;

    /// True where allocations by threads of a cgroup are taken.
    fn takes_cgroup(&self, cgroup: &LiveName) -> bool;
}

/// Contents that a snapshot should have.
#[derive(Clone, Debug)]
pub struct SnapshotRequest {
    /// Rows.
    pub group: LiveGroup,
    /// Objects that the rows count; `None` for all.
    pub selection: Option<Arc<dyn Selection>>,
    /// Window of growth, in nanoseconds.
    pub window: u64,
    /// Row to show more about.
    pub detail: Option<RowChoice>,
    /// Points of the curve of live bytes.
    pub points: usize,
}

/// Figures at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Time from the start of the trace, in nanoseconds.
    pub elapsed: u64,
    /// Events so far.
    pub events: u64,
    /// Events in a second, over the last two to three, or over all of a shorter trace.
    pub events_now: u64,
    /// Events lost so far, where their number is known.
    pub lost: Option<u64>,
    /// Gaps so far.
    pub gaps: u64,
    /// Stacks that belong to no event that was read.
    pub stacks_unmatched: u64,
    /// CPUs of the trace.
    pub cpus: Vec<u32>,
    /// CPUs that have lost events.
    pub lossy_cpus: Vec<u32>,
    /// CPUs whose recorder says how full the kernel's buffer was lately, and that part, in thousandths.
    pub filled: Vec<(u32, u32)>,
    /// Time from the last event that counts to the present, in nanoseconds, where the clock can be read.
    pub lag: Option<u64>,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Time that was passed over, in nanoseconds.
    pub skipped: u64,
    /// The memory limit is exceeded: figures stand still.
    pub is_over_memory: bool,
    /// Totals of each space.
    pub totals: BySpace<Totals>,
    /// Live bytes of each space over the window, at points of equal distance.
    pub curve: Vec<BySpace<u64>>,
    /// Time from the start of the trace to the mark, in nanoseconds.
    pub mark: Option<u64>,
    /// Grouping of the rows.
    pub group: LiveGroup,
    /// Text of the selection whose objects the rows count, and the time from the start of the trace from which on their peaks and
    /// changes are counted, in nanoseconds; `None` where all objects count.
    pub selected: Option<(Box<str>, u64)>,
    /// Groupings that have something to show.
    pub groups: Vec<LiveGroup>,
    /// Rows, in no order.
    pub rows: Vec<LiveRow>,
    /// Stacks below the rows of modules; none in other groupings, or without stacks.
    pub below: Vec<LiveRow>,
    /// Largest number of live bytes of each node of the trees.
    pub node_peaks: Vec<u64>,
    /// More about the row that was asked for.
    pub detail: Option<Detail>,
}
