//! Items that every source yields: events of one CPU in the order they were written, and the gaps between.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::fields::{FieldTable, FieldsId};
pub use crate::kind::{ByKind, BySpace, Kind, Space};
use crate::owner::{Owner, OwnerId, Owners};
use crate::stack::{StackId, Stacks};

/// Effect of an event on the objects of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An allocation; `Event::failed` where nothing was allocated.
    Alloc(Kind),
    /// A free.
    Free(Kind),
    /// A deferred free: the caller gives an object of either slab kind up, and the kernel takes it back later.
    Deferred,
    /// One address of a bulk free, of an object of either slab kind. `Kmalloc` if the caller named no cache.
    BulkFree(Kind),
    /// A record of several objects, as [`Event::bulk`] says; the events of its addresses follow. Kind as of these.
    Bulk(Kind),
    /// Any other event record of the stream: counted, not analysed.
    Other,
}

/// Effect of a record of several objects on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BulkAction {
    /// Allocations from one cache.
    Alloc,
    /// Frees to one cache.
    Free,
    /// Frees without a cache: the kernel completes a batch of deferred frees.
    Complete,
}

/// Part of an event in a record of several objects.
///
/// Such a record becomes an event of its own and one event for each address, right after it and with the same key and CPU. Only the
/// first one counts as an event of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bulk {
    /// The record itself; [`Event::objects`] is the number of objects.
    Record {
        /// Effect on the objects.
        action: BulkAction,
        /// Number of addresses, and of events that follow: less than that of objects if the record has no room for all.
        addresses: u8,
    },
    /// One of its addresses.
    Address,
}

/// Time that a task spends on getting memory, between two events or before one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Span {
    /// Reclaim for an allocation.
    Direct,
    /// Reclaim for a memory cgroup at its limit.
    Memcg,
    /// Reclaim for a memory cgroup over its soft limit.
    Softlimit,
    /// Reclaim of a NUMA node.
    Node,
    /// Compaction of a zone.
    Compaction,
    /// Call of a shrinker.
    Shrinker,
    /// Sleep in reclaim, until other tasks have made progress.
    Throttled,
    /// Work of `kswapd` between wake and sleep.
    Kswapd,
    /// Work of `kcompactd` between wake and sleep.
    Kcompactd,
    /// Pair of events that has no other name here.
    Named(NameId),
}

impl Span {
    /// Kinds of spans with a word of their own.
    pub const NAMED: [Span; 9] = [
        Span::Direct,
        Span::Memcg,
        Span::Softlimit,
        Span::Node,
        Span::Compaction,
        Span::Shrinker,
        Span::Throttled,
        Span::Kswapd,
        Span::Kcompactd,
    ];

    /// Word of documents; `None` for a pair without a name here.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Span::Direct => "direct",
            Span::Memcg => "memcg",
            Span::Softlimit => "softlimit",
            Span::Node => "node",
            Span::Compaction => "compaction",
            Span::Shrinker => "shrinker",
            Span::Throttled => "throttled",
            Span::Kswapd => "kswapd",
            Span::Kcompactd => "kcompactd",
            Span::Named(_) => return None,
        })
    }
}

/// Meaning of an event for the time that tasks wait for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// None.
    #[default]
    None,
    /// Start of a span; a wake of a daemon.
    Begin(Span),
    /// End of a span; `Event::value` is what it reclaimed or freed. A sleep of a daemon.
    End(Span),
    /// End of a sleep in reclaim; `Event::value` is its length in microseconds.
    Throttled,
    /// An allocation tries compaction.
    CompactionAttempt,
    /// Return of a timed function; `Event::value` is its duration.
    Function,
    /// Another event of the profile.
    Beside,
}

/// The kernel context that an event was recorded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// The thread's own work.
    Task,
    /// A softirq that landed on the thread.
    SoftIrq,
    /// An interrupt that landed on the thread.
    HardIrq,
    /// A non-maskable interrupt.
    Nmi,
}

impl Context {
    /// All contexts, the outermost first.
    pub const ALL: [Context; 4] = [Context::Task, Context::SoftIrq, Context::HardIrq, Context::Nmi];

    /// The context in the kernel's `common_flags`: the innermost one.
    pub fn of_flags(flags: u8) -> Context {
        const NMI: u8 = 0x40;
        const HARD_IRQ: u8 = 0x08;
        const SOFT_IRQ: u8 = 0x10;
        match flags {
            flags if flags & NMI != 0 => Context::Nmi,
            flags if flags & HARD_IRQ != 0 => Context::HardIrq,
            flags if flags & SOFT_IRQ != 0 => Context::SoftIrq,
            _ => Context::Task,
        }
    }

    /// `"task"`, `"softirq"`, `"hardirq"` or `"nmi"`.
    pub fn name(self) -> &'static str {
        match self {
            Context::Task => "task",
            Context::SoftIrq => "softirq",
            Context::HardIrq => "hardirq",
            Context::Nmi => "nmi",
        }
    }
}

impl std::str::FromStr for Context {
    type Err = String;

    fn from_str(text: &str) -> Result<Context, String> {
        let found = Context::ALL.into_iter().find(|context| context.name() == text);
        found.ok_or_else(|| "there is no such context: task, softirq, hardirq and nmi are known".to_owned())
    }
}

/// A name from the trace (a cache, an event), interned in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(NonZeroU32);

impl NameId {
    /// Position of the name in its [`Names`], from 0, without holes.
    #[expect(clippy::arithmetic_side_effects, reason = "the number is not 0")]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Decoded event record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Order key: the time in units of the trace's clock (ns but for `counter`, `uptime`, `x86-tsc`);
    /// relay R4: the sequence number, extended to 64 bits. Never decreases within a CPU.
    pub at: u64,
    /// Object key: the address (zero-extended), for pages the page frame number (page pointer in old
    /// formats, address in relay streams).
    pub address: u64,
    /// Return address of the caller; 0 where the event has none.
    pub call_site: u64,
    /// Bytes asked for; pages: `page_bytes << order`. 0 for frees.
    pub requested: u64,
    /// Bytes taken; pages: `page_bytes << order`. 0 for frees.
    pub allocated: u64,
    /// Raw gfp flags, whose bits mean what that kernel says.
    pub gfp: Option<u64>,
    /// True for an object that is charged to a memory cgroup, in kernels whose events say so.
    pub accounted: Option<bool>,
    /// CPU the event was recorded on.
    pub cpu: u32,
    /// Thread id in the initial pid namespace; 0 is the idle task.
    pub pid: Option<i32>,
    /// The kernel's `common_flags`, where the format has them and [`EventSink::FLAGS`] asks for them.
    pub flags: Option<u8>,
    /// NUMA node asked for, -1 for none.
    pub node: Option<i32>,
    /// Cache name, in kernels whose events carry it.
    pub cache: Option<NameId>,
    /// The event's own name, as the kernel has it (`kmalloc_node`, `mm_page_free`, ...).
    pub name: NameId,
    /// Effect on objects.
    pub action: Action,
    /// An allocation that returned null (pages: frame number all ones).
    pub failed: bool,
    /// Binary logarithm of the number of pages; only for events of pages that carry a frame number.
    pub order: Option<u8>,
    /// Call stack that the kernel recorded with the event; kept in [`Names::stacks`].
    pub stack: Option<StackId>,
    /// Meaning for the time that tasks wait for memory. The shrinker's address is `address` then, its function `call_site`.
    pub mark: Mark,
    /// Number of an event with a `mark`; `None` where its format has no such field. For a record of several objects their number, bit
    /// for bit.
    pub value: Option<i64>,
    /// Owner that the input gives with the event, as a text of page_owner does; kept in [`Names::owners`].
    pub owner: Option<OwnerId>,
    /// All fields of the event's record, where [`Names::fields`] keeps them.
    pub fields: Option<FieldsId>,
    /// Part in a record of several objects.
    pub bulk: Option<Bulk>,
}

impl Event {
    /// Kind of the object that is allocated or freed; of a deferred free, which does not give it, `Kmalloc`. `None` for any other event.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        match self.action {
            Action::Alloc(kind) | Action::Free(kind) | Action::BulkFree(kind) | Action::Bulk(kind) => Some(kind),
            Action::Deferred => Some(Kind::Kmalloc),
            Action::Other => None,
        }
    }

    /// True for an allocation, failed or not, and for a record of several ones.
    #[inline]
    pub fn allocates(&self) -> bool {
        let is_bulk = matches!(self.bulk, Some(Bulk::Record { action: BulkAction::Alloc, .. }));
        matches!(self.action, Action::Alloc(_)) || is_bulk
    }

    /// True for an event that the recorder's probes alone record, except for objects allocated in bulk, which are allocations like others.
    #[inline]
    pub fn is_of_probe(&self) -> bool {
        matches!(self.action, Action::Deferred | Action::BulkFree(_) | Action::Bulk(_))
    }

    /// Hands the event to a consumer.
    #[inline(always)]
    pub fn hand_to(&self, items: &mut impl EventSink, names: &Names) {
        if self.is_of_probe() { items.probe_event(self, names) } else { items.event(*self, names) }
    }

    /// True if the event is one address of the record before it, which counts in its place.
    #[inline]
    pub fn is_address(&self) -> bool {
        matches!(self.bulk, Some(Bulk::Address))
    }

    /// Number of objects of a record of several, as the caller gave it; `None` for any other event.
    #[inline]
    pub fn objects(&self) -> Option<u64> {
        let is_record = matches!(self.bulk, Some(Bulk::Record { .. }));
        is_record.then(|| self.value.map_or(0, i64::cast_unsigned))
    }

    /// Number of events after this one that belong to the same record.
    #[inline]
    pub fn addresses(&self) -> u8 {
        match self.bulk {
            Some(Bulk::Record { addresses, .. }) => addresses,
            _ => 0,
        }
    }

    /// Owner of the memory, where the input gives it.
    pub fn owner<'n>(&self, names: &'n Names) -> Option<&'n Owner> {
        names.owners.get(self.owner?)
    }

    /// Command name of the thread: the event's own where the input gives it, else that of its id in `comms`.
    #[inline]
    pub fn comm<'n>(&self, names: &'n Names, comms: &'n HashMap<i32, Box<[u8]>>) -> Option<&'n [u8]> {
        match self.owner {
            Some(owner) => names.owners.get(owner)?.comm.as_deref(),
            None => comms.get(&self.pid?).map(|comm| &**comm),
        }
    }

    /// Order key, unless the input does not give it: a block of a page_owner text may have no time.
    pub fn told_at(&self) -> Option<u64> {
        Some(self.at).filter(|&at| self.owner.is_none() || at != 0)
    }

    /// CPU, unless the input does not give it, as a text of page_owner.
    pub fn told_cpu(&self) -> Option<u32> {
        self.owner.is_none().then_some(self.cpu)
    }

    /// Bytes asked for and taken; `None` for frees, and for per-CPU memory where the number of CPUs is not known.
    pub fn told_bytes(&self) -> Option<(u64, u64)> {
        let is_sized = self.kind().is_none_or(|kind| kind.has_size(self.requested.into()));
        (self.allocates() && is_sized).then_some((self.requested, self.allocated))
    }

    /// Bytes asked for and bytes taken, each `None` where the input does not give it: [`Event::told_bytes`], or what a text lists.
    pub fn told_amounts(&self, names: &Names) -> [Option<u64>; 2] {
        match self.owner(names).and_then(|owner| owner.listed.as_deref()) {
            Some(listed) => [listed.amounts.requested, listed.amounts.allocated],
            None => self.told_bytes().map_or([None; 2], |(requested, allocated)| [Some(requested), Some(allocated)]),
        }
    }

    /// The kernel context of the event; `None` without flags.
    pub fn context(&self) -> Option<Context> {
        self.flags.map(Context::of_flags)
    }

    /// An event with this name, about which nothing else is known.
    #[inline]
    pub fn new(at: u64, cpu: u32, name: NameId) -> Event {
        Event {
            at,
            address: 0,
            call_site: 0,
            requested: 0,
            allocated: 0,
            gfp: None,
            accounted: None,
            cpu,
            pid: None,
            flags: None,
            node: None,
            cache: None,
            name,
            action: Action::Other,
            failed: false,
            order: None,
            stack: None,
            mark: Mark::None,
            value: None,
            owner: None,
            fields: None,
            bulk: None,
        }
    }

    /// A record that is there and cannot be decoded.
    #[cold]
    pub(crate) fn unreadable(at: u64, cpu: u32, names: &mut Names) -> Event {
        Event::new(at, cpu, names.intern(b"unreadable"))
    }
}

/// Why events may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum GapCause {
    /// The kernel overwrote or dropped events before the recorder took them.
    Overrun,
    /// Loss that only the counters show: its place is unknown.
    Counters,
    /// The recorder lost them (another program cleared the buffer, a write failed).
    Recorder,
    /// Another program changed what is recorded.
    Foreign,
    /// Bytes of the file are damaged.
    Damage,
    /// The file ends early, or is not there.
    Cut,
    /// Relay sequence numbers are missing.
    Sequence,
}

/// An interval of the order key on one CPU in which events may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Gap {
    /// The CPU's last event before it; `None`: the start of the trace.
    pub from: Option<u64>,
    /// End; `None`: the end of the trace.
    pub to: Option<u64>,
    /// The CPU that lost them.
    pub cpu: u32,
    /// Number of lost events, where known.
    pub lost: Option<u64>,
    /// Cause of the loss.
    pub cause: GapCause,
}

impl Gap {
    /// Order keys at which it begins and ends, in a trace whose first event has the key `first`. One from the start of the trace may end
    /// before that event, and begins no later than it ends.
    #[inline]
    pub fn ends(&self, first: u64) -> (u64, u64) {
        let to = self.to.unwrap_or(u64::MAX);
        (self.from.unwrap_or(first.min(to)), to)
    }
}

/// Item of a CPU's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamItem {
    /// An event.
    Event(Event),
    /// A gap; it comes before the first event after it.
    Gap(Gap),
}

/// Load of a module, as the kernel's event `module_load` reports it: its initialisation comes next, on the same thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleLoad<'n> {
    /// Order key.
    pub at: u64,
    /// Thread that loads the module.
    pub pid: i32,
    /// Name of the module: any bytes.
    pub name: &'n [u8],
}

/// End of a module, as the kernel's event `module_free` reports it: unloaded, or its initialisation has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleFree<'n> {
    /// Order key.
    pub at: u64,
    /// Name of the module: any bytes.
    pub name: &'n [u8],
}

/// Event about a thread or a cgroup. Paths are any bytes; `root` is the number of the cgroup's hierarchy, 0 for that of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent<'n> {
    /// A new thread.
    New {
        /// Order key.
        at: u64,
        /// Thread that made it.
        parent: i32,
        /// The new thread.
        pid: i32,
        /// Flags of `clone`.
        clone_flags: u64,
    },
    /// A thread group is moved into a cgroup.
    Attach {
        /// Order key.
        at: u64,
        /// Thread that stands for its group.
        pid: i32,
        /// Hierarchy.
        root: i32,
        /// Number of the cgroup.
        id: u64,
        /// Path of the cgroup.
        path: &'n [u8],
    },
    /// A cgroup is made.
    Make {
        /// Order key.
        at: u64,
        /// Hierarchy.
        root: i32,
        /// Number of the cgroup.
        id: u64,
        /// Path of the cgroup.
        path: &'n [u8],
    },
    /// A cgroup gets another path.
    Rename {
        /// Order key.
        at: u64,
        /// Hierarchy.
        root: i32,
        /// Number of the cgroup.
        id: u64,
        /// The other path.
        path: &'n [u8],
    },
    /// A cgroup is removed.
    Remove {
        /// Order key.
        at: u64,
        /// Hierarchy.
        root: i32,
        /// Number of the cgroup.
        id: u64,
    },
}

/// What a consumer of events made of one, for later ones that differ from it in key and address alone. Only the consumer knows what the
/// numbers mean.
pub type Note = [u64; 4];

/// Consumer of a stream's items, in stream order: a gap comes before the first event after it.
pub trait EventSink {
    /// The consumer looks at `Event::cache`; where false, cache names are not interned.
    const NAMES: bool = true;
    /// The consumer looks at `Event::flags`; where false, they are not read.
    const FLAGS: bool = true;
    /// The consumer looks at `Event::stack`; where false, stacks are not tied to their events.
    const STACKS: bool = true;
    /// The consumer looks at `Event::mark`; where false, events that are of no objects are not decoded.
    const MARKS: bool = true;
    /// The consumer looks at `Event::fields`, and releases them; where false, records are never kept.
    const FIELDS: bool = false;
    /// The consumer gives notes of events, and takes later events by them; where false, every record is decoded.
    const NOTES: bool = false;
    /// The next event; its names are in `names`.
    fn event(&mut self, event: Event, names: &Names);
    /// The next event, one that [only probes record](Event::is_of_probe). Apart for consumers that are fast because the compiler knows
    /// which fields of an event they look at; the others get it as any event.
    fn probe_event(&mut self, event: &Event, names: &Names) {
        self.event(*event, names);
    }
    /// Note of the event that was handed over last; `None` where an event that differs in key and address alone may become something else.
    fn last_note(&self) -> Option<Note> {
        None
    }
    /// The next event, which differs from an earlier one with this note in key and address only. It has an address: neither null nor
    /// what `kmalloc(0)` returns.
    fn noted(&mut self, _at: u64, _address: u64, _note: &Note) {}
    /// A gap.
    fn gap(&mut self, gap: Gap);
    /// Load of a module; its event follows as an item.
    fn module_load(&mut self, _load: ModuleLoad<'_>) {}
    /// End of a module; its event follows as an item.
    fn module_free(&mut self, _free: ModuleFree<'_>) {}
    /// Event about a thread or a cgroup; it follows as an item.
    fn task(&mut self, _event: TaskEvent<'_>) {}
}

impl EventSink for Vec<StreamItem> {
    #[inline]
    fn event(&mut self, event: Event, _: &Names) {
        self.push(StreamItem::Event(event));
    }

    fn gap(&mut self, gap: Gap) {
        self.push(StreamItem::Gap(gap));
    }
}

/// Interned names: the strings of a trace, each kept once.
///
/// Bytes are kept as the trace has them; the code that prints them escapes them.
#[derive(Clone, Debug)]
pub struct Names {
    by_id: Vec<Box<[u8]>>,
    by_name: HashMap<Box<[u8]>, NameId>,
    /// The last name seen per bucket of a cheap hash: a trace repeats a few names millions of times.
    recent: Box<[Option<Recent>; RECENT]>,
    /// Last field seen per bucket: a name and its NUL.
    recent_fields: Box<[Option<Recent>; RECENT]>,
    /// Names of events that may allocate or free objects and that are not known.
    unknown: Vec<bool>,
    /// Call stacks of events.
    pub stacks: Stacks,
    /// Owners of memory.
    pub owners: Owners,
    /// Records of events that are not handed on yet, where a reader asks for them.
    pub fields: FieldTable,
}

/// A name, known by its ends: all of it where it has at most 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Recent {
    ends: (u64, u64),
    len: usize,
    id: NameId,
}

const RECENT: usize = 1024;

impl Default for Names {
    fn default() -> Names {
        let recent = Box::new([None; RECENT]);
        Names {
            by_id: Vec::new(),
            by_name: HashMap::new(),
            recent_fields: recent.clone(),
            recent,
            unknown: Vec::new(),
            stacks: Stacks::default(),
            owners: Owners::default(),
            fields: FieldTable::default(),
        }
    }
}

impl Names {
    /// An empty table.
    pub fn new() -> Names {
        Names::default()
    }

    /// The id of `name`, which is added if it is new.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`bucket` is below `RECENT`")]
    pub fn intern(&mut self, name: &[u8]) -> NameId {
        let ends = ends(name);
        let bucket = bucket(ends, name.len());
        if let Some(recent) = self.recent[bucket]
            && recent.ends == ends
            && recent.len == name.len()
            && (name.len() <= 16 || *self.get(recent.id) == *name)
        {
            return recent.id;
        }
        self.intern_slow(name, bucket)
    }

    /// The id of the name that a field of a record holds: all of it up to the first NUL. `None` where that is nothing.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`bucket` is below `RECENT`")]
    pub(crate) fn intern_field(&mut self, field: &[u8]) -> Option<NameId> {
        let ends = ends(field);
        let bucket = bucket(ends, field.len());
        if let Some(recent) = self.recent_fields[bucket]
            && recent.ends == ends
            && recent.len == field.len()
            // The ends of a longer field say that the NUL is its last byte, if its name has all others.
            && (field.len() <= 16 || field.split_last().is_some_and(|(_, name)| *name == *self.get(recent.id)))
        {
            return Some(recent.id);
        }
        self.intern_field_slow(field, bucket)
    }

    #[cold]
    #[expect(clippy::indexing_slicing, reason = "`bucket` is below `RECENT`")]
    fn intern_field_slow(&mut self, field: &[u8], bucket: usize) -> Option<NameId> {
        let name = field.split(|&byte| byte == 0).next().filter(|name| !name.is_empty())?;
        let id = self.intern(name);
        self.recent_fields[bucket] = Some(Recent { ends: ends(field), len: field.len(), id });
        Some(id)
    }

    #[cold]
    #[expect(clippy::indexing_slicing, reason = "`bucket` is below `RECENT`")]
    fn intern_slow(&mut self, name: &[u8], bucket: usize) -> NameId {
        let id = match self.by_name.get(name) {
            Some(&id) => id,
            None => {
                // 2^32 names do not fit in memory, so this never saturates.
                let id = NameId(NonZeroU32::MIN.saturating_add(u32::try_from(self.by_id.len()).unwrap_or(u32::MAX)));
                self.by_id.push(name.into());
                self.by_name.insert(name.into(), id);
                id
            }
        };
        self.recent[bucket] = Some(Recent { ends: ends(name), len: name.len(), id });
        id
    }

    /// The name's bytes.
    pub fn get(&self, id: NameId) -> &[u8] {
        self.by_id.get(id.index()).map_or(b"", |n| n)
    }

    /// The name at this [`NameId::index`].
    pub fn at(&self, index: usize) -> Option<&[u8]> {
        self.by_id.get(index).map(|n| &**n)
    }

    /// Notes that events of this name may allocate or free objects, and that their fields are not known.
    pub(crate) fn mark_unknown(&mut self, name: NameId) {
        match self.unknown.get_mut(name.index()) {
            Some(is_unknown) => *is_unknown = true,
            None => {
                self.unknown.resize(name.index(), false);
                self.unknown.push(true);
            }
        }
    }

    /// True for an event's name where such events may allocate or free objects on a path that is not known: an event of the
    /// kernel's system `kmem` that has a caller and a pointer. Their action is [`Action::Other`].
    #[inline]
    pub fn is_unknown(&self, name: NameId) -> bool {
        self.unknown.get(name.index()).is_some_and(|&is_unknown| is_unknown)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True if there is no name.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// The first and the last eight bytes; they overlap in shorter names.
#[inline]
fn ends(name: &[u8]) -> (u64, u64) {
    match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(head), Some(tail)) => (u32::from_le_bytes(*head).into(), u32::from_le_bytes(*tail).into()),
            _ => (name.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0),
        },
    }
}

/// A number below [`RECENT`].
#[inline]
fn bucket((head, tail): (u64, u64), len: usize) -> usize {
    const SHIFT: u32 = u64::BITS - RECENT.ilog2();
    let word = head ^ tail.rotate_left(29) ^ len as u64;
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_context_counts() {
        for (flags, context) in [
            (0x00, Context::Task),
            // Interrupts disabled, need_resched and so on are no contexts.
            (0x01 | 0x04 | 0x20 | 0x80, Context::Task),
            (0x10, Context::SoftIrq),
            (0x10 | 0x08 | 0x01, Context::HardIrq),
            (0x40 | 0x10 | 0x08, Context::Nmi),
        ] {
            assert_eq!(Context::of_flags(flags), context, "{flags:#x}");
        }
    }

    #[test]
    fn names_are_kept_once() {
        let mut names = Names::new();
        let ids: Vec<_> = (0..5000).map(|i| names.intern(format!("cache-{i}").as_bytes())).collect();
        for (i, id) in ids.iter().enumerate() {
            assert_eq!(names.intern(format!("cache-{i}").as_bytes()), *id);
            assert_eq!(names.get(*id), format!("cache-{i}").as_bytes());
        }
        assert_eq!(names.len(), 5000);
        assert_eq!(names.get(names.by_name[&b"cache-7"[..]]), b"cache-7");
    }

    #[test]
    fn a_field_holds_the_name_before_its_first_nul() {
        let mut names = Names::new();
        let fields: [(&[u8], &[u8]); 9] = [
            (b"dentry\0", b"dentry"),
            (b"dentry", b"dentry"),
            (b"dentry\0x", b"dentry"),
            (b"kmalloc-rnd-05-192\0", b"kmalloc-rnd-05-192"),
            (b"kmalloc-rnd-05-192", b"kmalloc-rnd-05-192"),
            (b"kmalloc-rnd-05-193\0", b"kmalloc-rnd-05-193"),
            // Ends and length as in the one above, and a NUL between.
            (b"kmalloc-rn\0-05-193\0", b"kmalloc-rn"),
            (b"kmalloc-rn\0-05-192\0", b"kmalloc-rn"),
            (b"kmalloc-rnd-05-193x", b"kmalloc-rnd-05-193x"),
        ];
        for (field, name) in fields.iter().chain(&fields).chain(fields.iter().rev()) {
            let id = names.intern_field(field).unwrap();
            assert_eq!(names.get(id), *name);
            assert_eq!(id, names.intern(name));
        }
        assert_eq!([names.intern_field(b""), names.intern_field(b"\0dentry")], [None, None]);
    }
}
