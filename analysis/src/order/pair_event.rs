//! One CPU's stream as chunks of events for the pairing: 48 bytes each, with call-site, kind and cache as one number, and the
//! hash of the address. Gaps are kept next to them.

use kmemtrace_abi::event::{
    Action, Bulk, BulkAction, Event, EventSink, Gap, Kind, ModuleLoad, NameId, Names, Note, Space, TaskEvent,
};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::owner::OwnerId;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::trace::NO_SITE;

use crate::account::cgroups::TaskChanges;
use crate::account::classes::{CacheNumber, ClassCache, Classes, UNSELECTED};
use crate::account::group_reader::{EventNumbers, GroupReader, OwnerValues};
use crate::account::grouping::{RowKey, Through};
use crate::account::stack_reader::{EventStack, StackReader};
use crate::account::text_sites::{TextSite, TextSites};
use crate::memory::hashing::{FRAME_BITS, Seed, part};
use crate::order::merge::{Chunk, Keyed};
use crate::query::filter::EventFilter;

/// `ZERO_SIZE_PTR`: what `kmalloc(0)` returns, without an event.
const ZERO_SIZE_PTR: u64 = 16;

/// Action of an event, as the pairing tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairAction {
    /// An object becomes live.
    Alloc,
    /// An object of the recorder itself becomes live.
    Own,
    /// Frames of a block of pages become live.
    AllocFrames,
    /// Frames of a block of the recorder itself become live.
    OwnFrames,
    /// Frames of pages are freed.
    FreeFrames,
    /// An allocation returned null.
    Failed,
    /// A free with a real pointer.
    Free,
    /// A free of `NULL` or `ZERO_SIZE_PTR`.
    NullFree,
    /// A deferred free with a real pointer.
    Deferred,
    /// An address of a bulk free.
    BulkFree,
    /// A record of several objects, whose addresses follow.
    BulkRecord,
    /// Objects that a text of one moment lists together.
    Listed,
    /// Counted, not analysed.
    Other,
}

impl PairAction {
    /// True for an event that tells the frames of its pages.
    #[inline(always)]
    pub(crate) fn is_of_frames(self) -> bool {
        matches!(self, PairAction::AllocFrames | PairAction::OwnFrames | PairAction::FreeFrames)
    }
}

/// Actions of events that have notes, by their numbers in notes.
const NOTED: [PairAction; 6] = [
    PairAction::Alloc,
    PairAction::Own,
    PairAction::Free,
    PairAction::AllocFrames,
    PairAction::OwnFrames,
    PairAction::FreeFrames,
];

/// Event in the form that the pairing needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairEvent {
    /// Order key.
    pub(crate) at: u64,
    /// Listed objects: their number, 0 where it is not known.
    pub(crate) address: u64,
    /// Allocations: bytes asked for. Frees: the call-site. Records of several objects: their addresses.
    pub(crate) requested: u64,
    /// Bytes that an allocation took; the order of frames. Records of several objects: those without an address. Failed allocations: 1
    /// where the flags tell that the caller can do without the memory.
    pub(crate) allocated: u64,
    /// Allocations: the class. Frees: [`UNSELECTED`] where the filters do not take the event. Records of several objects: the
    /// [`BulkAction`] as a number.
    pub(crate) class: u32,
    /// Allocations: the thread, [`NO_PID`] where it is not known. Frees: the [`CacheNumber`]. Others: 1 for an event that may concern
    /// objects and is not known.
    pub(crate) extra: u32,
    /// Hash of the address; of frames, of the partition of frames that they belong to.
    pub(crate) hash: u32,
    /// Number of the stream.
    pub(crate) stream: u16,
    pub(crate) action: PairAction,
    pub(crate) kind: Kind,
}

impl Default for PairEvent {
    /// Event that changes nothing.
    fn default() -> PairEvent {
        PairEvent {
            at: 0,
            address: 0,
            requested: 0,
            allocated: 0,
            class: 0,
            extra: 0,
            hash: 0,
            stream: 0,
            action: PairAction::Other,
            kind: Kind::Kmalloc,
        }
    }
}

/// `PairEvent::extra` of an allocation by an unknown thread.
pub(crate) const NO_PID: u32 = 1 << 31;

impl Keyed for PairEvent {
    #[inline]
    fn key(&self) -> u64 {
        self.at
    }

    #[inline]
    fn part(&self, parts: u32) -> u8 {
        part(self.hash, parts)
    }

    fn cpu(&self, cpus: &[u32]) -> u32 {
        cpus.get(usize::from(self.stream)).copied().unwrap_or(0)
    }

    #[inline]
    fn addresses(&self) -> u64 {
        if self.action == PairAction::BulkRecord { self.requested } else { 0 }
    }
}

impl PairEvent {
    /// What later events have in common with this one if only key and address tell them from it; `None` for an event that is no
    /// allocation and no free.
    fn note(&self) -> Option<Note> {
        let action = NOTED.iter().position(|&action| action == self.action)?;
        let numbers = u64::from(self.class) | u64::from(self.extra) << 32;
        let kinds = u64::from(self.stream) | (action as u64) << 16 | (self.kind as u64) << 24;
        Some([self.requested, self.allocated, numbers, kinds])
    }

    /// The event of this key and address that has a note.
    #[inline(always)]
    fn of_note(at: u64, address: u64, seed: Seed, &[requested, allocated, numbers, kinds]: &Note) -> PairEvent {
        let (action, kind) = ((kinds >> 16) as u8, (kinds >> 24) as u8);
        let action = NOTED.get(usize::from(action)).copied().unwrap_or(PairAction::Other);
        PairEvent {
            at,
            address,
            requested,
            allocated,
            class: numbers as u32,
            extra: (numbers >> 32) as u32,
            hash: seed.hash(if action.is_of_frames() { address >> FRAME_BITS } else { address }),
            stream: kinds as u16,
            action,
            kind: Kind::ALL.get(usize::from(kind)).copied().unwrap_or(Kind::Kmalloc),
        }
    }

    /// Effect of a record of several objects on those without an address.
    pub(crate) fn bulk_action(&self) -> BulkAction {
        [BulkAction::Alloc, BulkAction::Free, BulkAction::Complete]
            .into_iter()
            .find(|&action| action as u32 == self.class)
            .unwrap_or(BulkAction::Free)
    }
}

/// Reads streams as pair events. Each thread has one reader for all its streams: the tables that each event needs stay in the
/// core's cache, however many streams there are.
#[derive(Clone)]
pub(crate) struct PairEventReader<'a> {
    names: Names,
    sink: PairEventSink<'a>,
}

impl<'a> PairEventReader<'a> {
    /// Reader with `names`, those that the trace had when it was opened.
    /// `by_site`: rows are made of call-sites, too.
    pub(crate) fn new(
        names: &Names,
        classes: &'a Classes,
        groups: GroupReader<'a>,
        by_site: bool,
        seed: Seed,
        filter: EventFilter<'a>,
    ) -> Self {
        let sink = PairEventSink {
            classes,
            fallback_flags: groups.facts().gfp_names.and_then(GfpNames::fallback_flags).unwrap_or(0),
            stacks: StackReader::new(groups.facts(), classes),
            text_sites: None,
            has_notes: !filter.selects() && !groups.depends_on_time(),
            groups,
            by_site,
            seed,
            filter,
            number: 0,
            numbers: Vec::new(),
            caches: Vec::new(),
            owners: Vec::new(),
            recent: Box::new([Recent::default(); RECENT]),
            tasks: None,
            listed: ListedSoFar::default(),
            chunk: Chunk::default(),
        };
        PairEventReader { names: names.clone(), sink }
    }

    /// The reader, which collects events about threads and cgroups, too.
    pub(crate) fn with_tasks(mut self, tasks: Option<TaskChanges>) -> Self {
        self.sink.tasks = tasks;
        self
    }

    /// The reader, which finds the sites of a text of one moment by the rule of texts.
    pub(crate) fn with_text_sites(mut self, sites: Option<TextSites<'a>>) -> Self {
        self.sink.text_sites = sites.map(Box::new);
        self
    }

    /// What was read of a text of one moment; `None` for other traces.
    pub(crate) fn listed(&self) -> Option<ListedSoFar> {
        self.sink.text_sites.as_ref().map(|_| self.sink.listed)
    }

    /// Events about threads and cgroups that were read and not taken yet, where they are collected.
    pub(crate) fn tasks(&mut self) -> Option<&mut TaskChanges> {
        self.sink.tasks.as_mut()
    }

    /// Gives each of `cpus` its own number, where a stream has the events of several.
    pub(crate) fn tell_cpus_apart(&mut self, streams: &[CpuStream], cpus: &[u32]) {
        let Some(&last) = cpus.last().filter(|_| streams.iter().any(CpuStream::has_several_cpus)) else { return };
        self.sink.numbers = vec![0; last as usize + 1];
        cpus.iter().zip(0..).for_each(|(&cpu, number)| self.sink.numbers[cpu as usize] = number);
    }

    /// Reads the next chunk of the stream of this number into the memory of a used one; true with the last one.
    pub(crate) fn read(
        &mut self,
        number: u16,
        stream: &mut CpuStream,
        mut used: Chunk<PairEvent>,
        batch: usize,
    ) -> (Chunk<PairEvent>, bool) {
        used.clear();
        (self.sink.number, self.sink.chunk) = (number, used);
        let owners = self.names.owners.len();
        let more = match self.sink.is_plain() {
            true => stream.decode(&mut self.names, &mut DecodedEvents::<true>(&mut self.sink), batch),
            false => stream.decode(&mut self.names, &mut DecodedEvents::<false>(&mut self.sink), batch),
        };
        // Sums of alike entries have an owner each, which nobody looks at any more.
        self.names.owners.forget_pushed(owners);
        (std::mem::take(&mut self.sink.chunk), !more)
    }

    /// Events of the stream up to the key `until` that wait for their stacks in vain; `None` where there are none.
    pub(crate) fn read_waiting(&mut self, number: u16, stream: &mut CpuStream, until: u64) -> Option<Chunk<PairEvent>> {
        (self.sink.number, self.sink.chunk) = (number, Chunk::default());
        let has_any = stream.end_waiting(&mut self.names, &mut DecodedEvents::<false>(&mut self.sink), until);
        has_any.then(|| std::mem::take(&mut self.sink.chunk))
    }

    /// Appends events that were read as such, and are in order already, to `ordered`; `stream` gives the number of a CPU's stream.
    pub(crate) fn convert(
        &mut self,
        events: &[Event],
        names: &Names,
        stream: impl Fn(u32) -> u16,
        ordered: &mut Vec<PairEvent>,
    ) {
        self.sink.chunk.clear();
        for event in events {
            self.sink.number = stream(event.cpu);
            event.hand_to(&mut DecodedEvents::<false>(&mut self.sink), names);
        }
        ordered.append(&mut self.sink.chunk.events);
    }
}

/// Entries of a text of one moment that were read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListedSoFar {
    /// Number of them; those that are alike may come together.
    pub(crate) entries: u64,
    /// Latest time.
    pub(crate) newest: u64,
}

/// Class of an earlier event, with the event's facts that it depends on.
#[derive(Clone, Copy, Debug)]
struct Recent {
    call_site: u64,
    others: u64,
    sizes: (u64, u64),
    cache: CacheNumber,
    class: u32,
    kind: Kind,
    is_selected: bool,
    asks_reclaimable: Option<bool>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent {
            call_site: 0,
            others: 0,
            sizes: (0, 0),
            cache: 0,
            class: UNSELECTED,
            kind: Kind::Pages,
            is_selected: true,
            asks_reclaimable: None,
        }
    }
}

const RECENT: usize = 2048;

#[derive(Clone)]
struct PairEventSink<'a> {
    classes: &'a Classes,
    groups: GroupReader<'a>,
    stacks: StackReader<'a>,
    /// Sites of the entries of a text of one moment.
    text_sites: Option<Box<TextSites<'a>>>,
    by_site: bool,
    /// Events that differ in time and address alone are of one class.
    has_notes: bool,
    /// Flags of failed allocations whose caller has a way without the memory.
    fallback_flags: u64,
    seed: Seed,
    filter: EventFilter<'a>,
    /// Number of the stream that is read.
    number: u16,
    /// Number of each CPU in place of it, where one stream has the events of several.
    numbers: Vec<u16>,
    /// Number of each cache, by index of the thread's own names; 0: not looked up yet.
    caches: Vec<CacheNumber>,
    /// Values of each owner, by index of the thread's own ones.
    owners: Vec<OwnerValues>,
    recent: Box<[Recent; RECENT]>,
    /// Events about threads and cgroups, where the caller asks for them.
    tasks: Option<TaskChanges>,
    listed: ListedSoFar,
    chunk: Chunk<PairEvent>,
}

/// Hands decoded events to the sink. With `PLAIN` no option selects events and rows have no key but the call site: the compiler then drops
/// the loads of all other fields. Most passes are plain.
struct DecodedEvents<'s, 'a, const PLAIN: bool>(&'s mut PairEventSink<'a>);

impl<const PLAIN: bool> EventSink for DecodedEvents<'_, '_, PLAIN> {
    const MARKS: bool = false;
    const NOTES: bool = true;

    #[inline(always)]
    fn event(&mut self, event: Event, names: &Names) {
        self.0.event::<PLAIN>(event, names);
    }

    fn last_note(&self) -> Option<Note> {
        self.0.chunk.events.last().filter(|_| self.0.has_notes).and_then(PairEvent::note)
    }

    #[inline(always)]
    fn noted(&mut self, at: u64, address: u64, note: &Note) {
        self.0.chunk.events.push(PairEvent::of_note(at, address, self.0.seed, note));
    }

    #[cold]
    fn probe_event(&mut self, event: &Event, names: &Names) {
        self.0.probe_event(event, names);
    }

    fn gap(&mut self, gap: Gap) {
        self.0.chunk.gaps.push(gap);
    }

    fn module_load(&mut self, load: ModuleLoad<'_>) {
        self.0.classes.note_load();
        self.0.groups.take_load(load);
    }

    #[cold]
    fn task(&mut self, event: TaskEvent<'_>) {
        if let Some(tasks) = &mut self.0.tasks {
            tasks.add(event);
        }
    }
}

impl PairEventSink<'_> {
    /// Takes an entry of a text of one moment, with all its objects; false for any other event.
    #[cold]
    fn take_listed(&mut self, event: &Event, names: &Names) -> bool {
        let Some((sites, owner)) = self.text_sites.as_mut().zip(event.owner(names)) else { return false };
        let Some(listed) = owner.listed.as_deref() else { return false };
        let TextSite { stack, passed, site, kind, .. } = sites.read(event, listed, names);
        let call_site = if site == NO_SITE { 0 } else { site };
        let event = Event { action: Action::Alloc(kind), call_site, ..*event };
        let owner = Some(OwnerValues::new(owner, self.classes));
        let cache = event.cache.map_or(0, |name| self.cache(name, names));
        let others = self.groups.others(&event, kind, EventNumbers { cache, stack, passed, owner });
        self.listed.entries += listed.entries;
        self.listed.newest = self.listed.newest.max(listed.newest).max(event.at);
        let class = self.class((call_site, kind), Some((others, None)), cache, (0, 0), 0);
        self.chunk.events.push(PairEvent {
            at: event.at,
            address: listed.amounts.objects.unwrap_or(0),
            requested: event.requested,
            allocated: event.allocated,
            class,
            extra: event.pid.map_or(NO_PID, i32::cast_unsigned),
            hash: self.seed.hash(event.at),
            stream: self.number,
            action: PairAction::Listed,
            kind,
        });
        true
    }

    fn is_plain(&self) -> bool {
        !self.filter.selects() && !self.groups.has_keys() && !self.groups.marks_reclaim()
    }

    #[inline(always)]
    fn event<const PLAIN: bool>(&mut self, mut event: Event, names: &Names) {
        if !PLAIN && self.text_sites.is_some() && self.take_listed(&event, names) {
            return;
        }
        let stack = self.stacks.read(&event, names);
        if matches!(event.action, Action::Alloc(_)) {
            event.call_site = stack.site;
        }
        let takes = if PLAIN { self.filter.takes_unselected(&event) } else { self.filter.takes(&event, names) };
        let cache = event.cache.map_or(0, |name| self.cache(name, names));
        let (action, kind) = match event.action {
            Action::Alloc(kind) if event.failed => (PairAction::Failed, kind),
            Action::Alloc(kind @ Kind::Pages) if event.order.is_some() => {
                (if self.filter.is_own(&event) { PairAction::OwnFrames } else { PairAction::AllocFrames }, kind)
            }
            Action::Free(kind @ Kind::Pages) if event.order.is_some() => (PairAction::FreeFrames, kind),
            Action::Alloc(kind) if self.filter.is_own(&event) => (PairAction::Own, kind),
            Action::Alloc(kind) => (PairAction::Alloc, kind),
            Action::Free(kind) if kind.space() == Space::Slab && matches!(event.address, 0 | ZERO_SIZE_PTR) => {
                (PairAction::NullFree, kind)
            }
            Action::Free(kind) => (PairAction::Free, kind),
            _ => (PairAction::Other, Kind::Kmalloc),
        };
        let has_frames = action.is_of_frames();
        let allocates = matches!(event.action, Action::Alloc(_));
        let class = match (takes, allocates) {
            (true, true) => {
                let sizes = if event.failed { (0, 0) } else { (event.requested, event.allocated) };
                let has_keys = !PLAIN && self.groups.has_keys();
                let others = if has_keys { self.others(&event, kind, (cache, stack), names) } else { 0 };
                let asks_reclaimable = if PLAIN { None } else { self.groups.asks_reclaimable(event.gfp) };
                self.class((event.call_site, kind), Some((others, asks_reclaimable)), cache, sizes, event.allocated)
            }
            (true, false) => 0,
            (false, true) if !event.failed => self.class((event.call_site, kind), None, cache, (0, 0), 0),
            (false, _) => UNSELECTED,
        };
        // Events without an address go to any partition.
        let hashed = match action {
            PairAction::Alloc | PairAction::Own | PairAction::Free => event.address,
            _ if has_frames => event.address >> FRAME_BITS,
            _ => event.at,
        };
        self.chunk.events.push(PairEvent {
            at: event.at,
            address: event.address,
            requested: if allocates { event.requested } else { event.call_site },
            allocated: match action {
                PairAction::Failed => (event.gfp.unwrap_or(0) & self.fallback_flags).min(1),
                _ => event.order.filter(|_| has_frames).map_or(event.allocated, u64::from),
            },
            class,
            extra: match action {
                _ if allocates => event.pid.map_or(NO_PID, i32::cast_unsigned),
                PairAction::Other => names.is_unknown(event.name).into(),
                _ => cache,
            },
            hash: self.seed.hash(hashed),
            stream: if self.numbers.is_empty() { self.number } else { self.number_of(event.cpu) },
            action,
            kind,
        });
    }

    #[cold]
    fn probe_event(&mut self, event: &Event, names: &Names) {
        let takes = self.filter.takes(event, names);
        let of_address = PairEvent {
            at: event.at,
            address: event.address,
            requested: event.call_site,
            class: if takes { 0 } else { UNSELECTED },
            extra: event.cache.map_or(0, |name| self.cache(name, names)),
            hash: self.seed.hash(event.address),
            stream: self.number,
            ..PairEvent::default()
        };
        // Events without an address go to any partition.
        let anywhere = self.seed.hash(event.at);
        let event = match (event.action, event.bulk) {
            (Action::Bulk(_), Some(Bulk::Record { action, addresses })) => {
                self.chunk.has_bulk = true;
                let objects = event.objects().unwrap_or(0);
                PairEvent {
                    requested: addresses.into(),
                    allocated: objects.saturating_sub(addresses.into()),
                    class: action as u32,
                    hash: anywhere,
                    action: PairAction::BulkRecord,
                    ..of_address
                }
            }
            (Action::BulkFree(kind), _) => PairEvent { action: PairAction::BulkFree, kind, ..of_address },
            _ if matches!(event.address, 0 | ZERO_SIZE_PTR) => {
                PairEvent { action: PairAction::NullFree, hash: anywhere, ..of_address }
            }
            _ => PairEvent { action: PairAction::Deferred, ..of_address },
        };
        self.chunk.events.push(event);
    }

    fn number_of(&self, cpu: u32) -> u16 {
        self.numbers.get(cpu as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn cache(&mut self, name: NameId, names: &Names) -> CacheNumber {
        match self.caches.get(name.index()) {
            Some(&number) if number != 0 => number,
            _ => self.new_cache(name, names),
        }
    }

    /// The row's keys but the call-site.
    #[inline]
    fn others(&mut self, event: &Event, kind: Kind, (cache, stack): (CacheNumber, EventStack), names: &Names) -> u64 {
        let owner = event.owner.and_then(|owner| self.owner(owner, names));
        let EventStack { number: stack, passed, .. } = stack;
        self.groups.others(event, kind, EventNumbers { cache, stack, passed, owner })
    }

    /// Values of an owner; those of all before it are known then, too.
    fn owner(&mut self, owner: OwnerId, names: &Names) -> Option<OwnerValues> {
        while self.owners.len() <= owner.index() {
            self.owners.push(OwnerValues::new(names.owners.at(self.owners.len())?, self.classes));
        }
        self.owners.get(owner.index()).copied()
    }

    #[cold]
    fn new_cache(&mut self, name: NameId, names: &Names) -> CacheNumber {
        let number = self.classes.cache(names.get(name));
        if self.caches.len() <= name.index() {
            self.caches.resize(name.index() + 1, 0);
        }
        self.caches[name.index()] = number;
        number
    }

    /// Class of an object; `selected`: the row's keys but the call-site, and whether the allocation asks for memory that the kernel takes
    /// back; `None` for an object that the filters do not take. `sizes` are those of the class, 0 for a failed allocation, and `allocated` is that of the event.
    #[inline]
    fn class(
        &mut self,
        (call_site, kind): (u64, Kind),
        selected: Option<(u64, Option<bool>)>,
        cache: CacheNumber,
        sizes: (u64, u64),
        allocated: u64,
    ) -> u32 {
        let (is_selected, (others, asks_reclaimable)) = (selected.is_some(), selected.unwrap_or_default());
        let sum = call_site ^ u64::from(cache) << 48 ^ (kind as u64) << 40 ^ sizes.0 << 20 ^ sizes.1.rotate_left(33);
        let sum = sum ^ others.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let slot = (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT.ilog2())) as usize;
        let recent = &self.recent[slot];
        // The class of a failed allocation has no sizes, so the origin of its cache's name may differ from that of the last one.
        let same = sizes.1 == allocated
            && recent.call_site == call_site
            && recent.others == others
            && recent.sizes == sizes
            && recent.cache == cache
            && recent.kind == kind
            && recent.is_selected == is_selected
            && recent.asks_reclaimable == asks_reclaimable;
        if same && recent.class != UNSELECTED {
            return recent.class;
        }
        self.rare_class(
            Recent { call_site, others, sizes, cache, class: UNSELECTED, kind, is_selected, asks_reclaimable },
            slot,
            allocated,
        )
    }

    #[cold]
    fn rare_class(&mut self, object: Recent, slot: usize, allocated: u64) -> u32 {
        let Recent { call_site, others, sizes, cache, kind, is_selected, asks_reclaimable, .. } = object;
        let class = if is_selected {
            let site = if self.by_site { call_site } else { 0 };
            let from = self.groups.cache_from(kind, cache, (call_site, allocated));
            let reclaim = self.groups.reclaim(kind, cache, (call_site, allocated), asks_reclaimable);
            let cache = ClassCache { number: cache, from, reclaim };
            let key = RowKey { site, others, kind, through: Through::Nothing };
            self.classes.class(key, call_site, cache, sizes)
        } else {
            self.classes.unselected(call_site, kind, cache)
        };
        self.recent[slot] = Recent { class, ..object };
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions have about as many addresses each, so that no thread has most of the work.
    #[test]
    fn partitions_share_the_addresses() {
        let seed = Seed::random();
        for parts in [2, 3, 8, 256] {
            let mut events = vec![0; parts as usize];
            for address in (0..u64::from(parts) * 200).map(|n| 0xffff_8881_0000_0000 + 0x40 * n) {
                let event = PairEvent { hash: seed.hash(address), ..PairEvent::default() };
                events[usize::from(event.part(parts))] += 1;
            }
            assert!(events.iter().all(|&events| (20..2000).contains(&events)), "{parts}: {events:?}");
        }
    }

    #[test]
    fn an_event_is_of_the_cpu_of_its_stream() {
        let event = |stream| PairEvent { stream, at: 70, ..PairEvent::default() };
        assert_eq!([event(0).cpu(&[4, 9]), event(1).cpu(&[4, 9])], [4, 9]);
        assert_eq!(event(1).key(), 70);
    }
}
