//! Pairing: the effect of each event on the table of live objects.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Action, Bulk, BulkAction, Event, Gap, Kind, NameId, Space};

use super::caches::{Cache, Learned};
use super::selection::Named;
use super::{Known, order};

/// End of an object's life in the trace.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// No end: the object is live at the end of the trace.
    Live,
    /// Pair: a free event ended the object.
    Freed {
        /// Free event.
        free: Event,
        /// Position of the free in the total order.
        number: usize,
    },
    /// Reissue: the kernel handed the address out again, and the trace has no free event.
    Reissued {
        /// Position of the new allocation in the total order.
        number: usize,
        /// True if loss may be the cause.
        suspect: bool,
    },
}

/// Pages that an event has taken off an object.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    /// Position of the event in the total order.
    pub number: usize,
    /// CPU of the event.
    pub cpu: u32,
    /// Number of pages.
    pub pages: u64,
    /// True for an allocation: the pages' free was not seen.
    pub inferred: bool,
}

/// Free event of pages that carries a frame number.
#[derive(Clone, Debug, Default)]
pub struct PageFree {
    /// Allocation events of the objects that it takes pages off.
    pub hits: Vec<Event>,
    /// Allocation events of those that have pages left then.
    pub left: Vec<Event>,
    /// Frames that are not live, and that no event before had.
    pub unseen: u64,
    /// Frames that are not live, and that an event before had.
    pub seen: u64,
}

/// Object of a successful allocation.
#[derive(Clone, Debug)]
pub struct Object {
    /// Allocation event.
    pub alloc: Event,
    /// Kind of the object.
    pub kind: Kind,
    /// Position of the allocation in the total order.
    pub number: usize,
    /// End of the object: that of its last page.
    pub end: End,
    /// Pages that have gone, of an object whose events carry frame numbers.
    pub gone: Option<Vec<Gone>>,
}

impl Object {
    /// Pages of the object where events carry frame numbers.
    pub fn frames(&self) -> Option<u64> {
        self.gone.as_ref().and(self.alloc.order).map(|order| 1 << order)
    }

    /// Changes of the live bytes after the allocation: event and bytes that it takes off, and its CPU if it is a free.
    pub fn losses(&self) -> Vec<(usize, u64, Option<u32>)> {
        match (&self.gone, self.frames()) {
            (Some(gone), Some(frames)) => {
                let bytes = |gone: &Gone| self.alloc.allocated / frames * gone.pages;
                gone.iter().map(|gone| (gone.number, bytes(gone), (!gone.inferred).then_some(gone.cpu))).collect()
            }
            _ => match self.end {
                End::Live => Vec::new(),
                End::Freed { free, number } => vec![(number, self.alloc.allocated, Some(free.cpu))],
                End::Reissued { number, .. } => vec![(number, self.alloc.allocated, None)],
            },
        }
    }

    /// Bytes that are live at the end, requested and allocated.
    pub fn live_bytes(&self) -> (u64, u64) {
        let lost: u64 = self.losses().iter().map(|(_, bytes, _)| bytes).sum();
        match (self.frames(), self.end) {
            (Some(_), _) => (self.alloc.requested - lost, self.alloc.allocated - lost),
            (None, End::Live) => (self.alloc.requested, self.alloc.allocated),
            (None, _) => (0, 0),
        }
    }
}

/// Classes of findings: those of the mismatch view, and others that are only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Free by the other kind's function.
    KindMismatch,
    /// Free by the other kind's function where the kernel allows it.
    KindMismatchLegal,
    /// Free to another cache.
    CacheMismatch,
    /// Second free in a row.
    FreeAfterFree,
    /// Free without an event, inferred from a reissued address.
    InferredFree,
    /// Allocation smaller than requested.
    ShortAlloc,
    /// Free of an object older than the trace.
    FreeWithoutAlloc,
    /// Allocation that returned null.
    FailedAlloc,
    /// Free of `NULL` or `ZERO_SIZE_PTR`.
    NullFree,
}

impl Class {
    /// Name in the documents.
    pub fn name(self) -> &'static str {
        match self {
            Class::KindMismatch => "kind_mismatch",
            Class::KindMismatchLegal => "kind_mismatch_legal",
            Class::CacheMismatch => "cache_mismatch",
            Class::FreeAfterFree => "free_after_free",
            Class::InferredFree => "inferred_free",
            Class::ShortAlloc => "short_alloc",
            Class::FreeWithoutAlloc => "free_without_alloc",
            Class::FailedAlloc => "failed_alloc",
            Class::NullFree => "null_free",
        }
    }

    /// Classes that loss may explain.
    pub const SUSPECT: [Class; 5] = [
        Class::KindMismatch,
        Class::KindMismatchLegal,
        Class::CacheMismatch,
        Class::FreeAfterFree,
        Class::InferredFree,
    ];

    /// Classes that frees without events may explain.
    pub const UNSEEN: [Class; 3] = [Class::KindMismatch, Class::KindMismatchLegal, Class::CacheMismatch];

    /// True if a finding is an error where neither loss nor frees without events explain it.
    pub fn has_errors(self) -> bool {
        matches!(self, Class::KindMismatch | Class::CacheMismatch)
    }
}

/// Finding: an event that breaks a rule of pairing.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Class of the finding.
    pub class: Class,
    /// Call-site of the allocation, if known.
    pub alloc_site: Option<u64>,
    /// Call-site of the free, if any.
    pub free_site: Option<u64>,
    /// Kind of the allocation, else of the free.
    pub kind: Kind,
    /// True if loss may be the cause.
    pub suspect: bool,
    /// Event that shows the finding.
    pub event: Event,
    /// Position of the event in the total order.
    pub number: usize,
    /// True if the finding is not suspect and its allocation's row has inferred frees that are not: the address may have
    /// changed hands on paths without events.
    pub unseen: bool,
    /// Allocation event, or the free without one: filters go by it.
    pub owner: Event,
}

/// Result of pairing.
#[derive(Debug)]
pub struct Pairs {
    /// Events in the total order.
    pub events: Vec<Event>,
    /// Objects that are not left out, in order.
    pub objects: Vec<Object>,
    /// Findings that are not left out, in order.
    pub findings: Vec<Finding>,
    /// Free events of frames by their positions, left out or not.
    pub page_frees: BTreeMap<usize, PageFree>,
    /// Positions of the events that are left out: the recorder's own allocations and those that are not selected, frees of such
    /// objects, and other frees that are not selected.
    pub left_out: BTreeSet<usize>,
    /// Successful allocations of the recorder itself, and their bytes.
    pub own: (usize, u64),
    /// Inferred frees, and frees without an allocation, before the recorder's own are left out.
    pub unfiltered: (usize, usize),
    /// Gaps of the trace.
    pub gaps: Vec<Gap>,
    /// Effects of deferred and bulk frees.
    pub bulk: BulkFrees,
    /// Caches that frees of the window name.
    pub learned: Learned,
    /// True if caches are learned from frees: allocation events have no name.
    pub learns: bool,
}

/// Deferred frees, and frees and allocations in bulk.
#[derive(Debug, Default)]
pub struct BulkFrees {
    /// Frees of addresses that were given up, those beyond the room of a record included.
    pub completions: u64,
    /// Plain free events among them, by their positions.
    pub completions_at: BTreeSet<usize>,
    /// Kind of each deferred free, and of each address of a bulk free that ended an object, by position.
    pub kinds: BTreeMap<usize, Kind>,
    /// Addresses of bulk frees that were neither live nor given up.
    pub unknown: u64,
    /// Frees beyond the room of a record.
    pub unseen_frees: u64,
    /// Allocations beyond the room of a record.
    pub unseen_allocs: u64,
    /// Caches of such frees; `None` for one without a name.
    pub unseen_caches: HashSet<Option<NameId>>,
}

impl BulkFrees {
    /// True for an object that a free beyond the room of a record may have ended.
    pub fn may_have_freed(&self, object: &Object) -> bool {
        let caches = &self.unseen_caches;
        let is_unknown = object.alloc.cache.is_none() || caches.contains(&None);
        object.kind == Kind::Cache && !caches.is_empty() && (is_unknown || caches.contains(&object.alloc.cache))
    }

    /// Takes a deferred free, or an address of a bulk free, at an address whose last event was `before`; the class of a finding.
    fn free(
        &mut self,
        (event, number): (&Event, usize),
        before: Option<Last>,
        objects: &mut [Object],
    ) -> Option<Class> {
        if let Some(Last { object: Some(index), .. }) = before {
            let object = &mut objects[index];
            object.end = End::Freed { free: *event, number };
            self.kinds.insert(number, object.kind);
            return None;
        }
        if event.action == Action::Deferred {
            self.kinds.insert(number, Kind::Kmalloc);
            return Some(if before.is_none() { Class::FreeWithoutAlloc } else { Class::FreeAfterFree });
        }
        let counter =
            if before.is_some_and(|last| last.is_given_up) { &mut self.completions } else { &mut self.unknown };
        *counter += 1;
        None
    }

    /// Takes a plain free of an address that was given up.
    fn complete(&mut self, number: usize) {
        self.completions += 1;
        self.completions_at.insert(number);
    }

    /// Takes a record: objects beyond its room.
    fn record(&mut self, event: &Event) {
        let Some(Bulk::Record { action, addresses }) = event.bulk else { return };
        let rest = event.objects().unwrap_or(0).saturating_sub(addresses.into());
        match action {
            BulkAction::Alloc => self.unseen_allocs += rest,
            BulkAction::Complete => self.completions += rest,
            BulkAction::Free if rest > 0 => {
                self.unseen_frees += rest;
                self.unseen_caches.insert(event.cache);
            }
            BulkAction::Free => {}
        }
    }
}

/// Last event of an address.
#[derive(Clone, Copy)]
struct Last {
    /// Order key of the event.
    at: u64,
    /// CPU of the event.
    cpu: u32,
    /// Index of the live object; `None` after a free.
    object: Option<usize>,
    /// The last free was a deferred one.
    is_given_up: bool,
}

impl Last {
    fn new(event: &Event, object: Option<usize>) -> Last {
        let is_given_up = event.action == Action::Deferred;
        Last { at: event.at, cpu: event.cpu, object, is_given_up }
    }
}

/// Pairs all events, and leaves out those that are not asked for.
pub fn pairs(known: &Known) -> Pairs {
    let events = order::events(known);
    let gaps = known.gaps();
    let Paired { objects, mut findings, page_frees, bulk } = pair_all(known, &events, &gaps);
    mark_unseen(known, &objects, &bulk, &mut findings);
    let learned = learn_caches(known, &gaps, &objects);
    let all = Pairs {
        events,
        objects,
        findings,
        page_frees,
        bulk,
        gaps,
        left_out: BTreeSet::new(),
        own: (0, 0),
        unfiltered: (0, 0),
        learned,
        learns: !known.names_allocations,
    };
    without_unselected(known, all)
}

/// Objects and findings of all events.
struct Paired {
    objects: Vec<Object>,
    findings: Vec<Finding>,
    page_frees: BTreeMap<usize, PageFree>,
    bulk: BulkFrees,
}

/// Pairs all events, in one pass.
fn pair_all(known: &Known, events: &[Event], gaps: &[Gap]) -> Paired {
    let (mut frames, mut bulk) = (Frames::default(), BulkFrees::default());
    let (mut objects, mut findings): (Vec<Object>, Vec<Finding>) = Default::default();
    let mut table: HashMap<(Space, u64), Last> = HashMap::new();
    let suspect = |before: &Last, now: &Event, class: Class| is_suspect(known, gaps, before, now, class);
    for (number, event) in events.iter().enumerate() {
        let finding = |class, alloc_site, free_site, kind, suspect| {
            let event = *event;
            Finding { class, alloc_site, free_site, kind, suspect, event, number, unseen: false, owner: event }
        };
        match event.action {
            Action::Other => {}
            Action::Bulk(_) => bulk.record(event),
            Action::Alloc(kind) if event.failed => {
                findings.push(finding(Class::FailedAlloc, Some(event.call_site), None, kind, false));
            }
            Action::Free(Kind::Kmalloc | Kind::Cache) | Action::Deferred if matches!(event.address, 0 | 16) => {
                let kind = if let Action::Free(kind) = event.action { kind } else { Kind::Kmalloc };
                findings.push(finding(Class::NullFree, None, Some(event.call_site), kind, false));
            }
            Action::Deferred | Action::BulkFree(_) => {
                let before = table.insert((freed_space(&table, event), event.address), Last::new(event, None));
                if let Some(class) = bulk.free((event, number), before, &mut objects) {
                    let suspect = before.is_some_and(|last| suspect(&last, event, class));
                    findings.push(finding(class, None, Some(event.call_site), Kind::Kmalloc, suspect));
                }
            }
            Action::Alloc(Kind::Pages) | Action::Free(Kind::Pages) if event.order.is_some() => {
                let first = Last { at: events[0].at, ..Last::new(event, None) };
                // A frame has one bit: its event before may be any since the first.
                let is_suspect = suspect(&first, event, Class::FreeAfterFree);
                let (ended, again) = frames.event(event, number, &mut objects, is_suspect);
                for index in ended {
                    findings.extend(end_block(known, gaps, &mut objects[index], event, number));
                }
                frames.note_left(number, &objects);
                let site = Some(event.call_site);
                findings.extend(again.map(|(class, suspect)| finding(class, None, site, Kind::Pages, suspect)));
            }
            Action::Alloc(kind) => {
                let key = (kind.space(), event.address);
                let before = table.insert(key, Last::new(event, Some(objects.len())));
                if let Some(last @ Last { object: Some(index), .. }) = before {
                    let suspect = suspect(&last, event, Class::InferredFree);
                    let old = &mut objects[index];
                    old.end = End::Reissued { number, suspect };
                    let inferred = finding(Class::InferredFree, Some(old.alloc.call_site), None, old.kind, suspect);
                    findings.push(Finding { owner: old.alloc, ..inferred });
                }
                if event.allocated < event.requested {
                    findings.push(finding(Class::ShortAlloc, Some(event.call_site), None, kind, false));
                }
                objects.push(Object { alloc: *event, kind, number, end: End::Live, gone: None });
            }
            Action::Free(kind) => {
                let key = (kind.space(), event.address);
                let site = Some(event.call_site);
                match table.insert(key, Last::new(event, None)) {
                    None => findings.push(finding(Class::FreeWithoutAlloc, None, site, kind, false)),
                    Some(Last { object: None, is_given_up: true, .. }) => bulk.complete(number),
                    Some(last @ Last { object: None, .. }) => {
                        let suspect = suspect(&last, event, Class::FreeAfterFree);
                        findings.push(finding(Class::FreeAfterFree, None, site, kind, suspect));
                    }
                    Some(last @ Last { object: Some(index), .. }) => {
                        let object = &mut objects[index];
                        object.end = End::Freed { free: *event, number };
                        let (alloc, of) = (object.alloc, object.kind);
                        for class in mismatches(known, (of, kind), (&alloc, event)) {
                            let suspect = suspect(&last, event, class);
                            let found = finding(class, Some(alloc.call_site), site, of, suspect);
                            findings.push(Finding { owner: alloc, ..found });
                        }
                    }
                }
            }
        }
    }
    Paired { objects, findings, page_frees: frames.frees, bulk }
}

/// Space of a deferred free, which takes areas of vmalloc, too, or of an address of a bulk free.
fn freed_space(table: &HashMap<(Space, u64), Last>, event: &Event) -> Space {
    let area = table.get(&(Space::Vmalloc, event.address));
    let is_area = area.is_some_and(|last| last.object.is_some() || last.is_given_up);
    if is_area && event.action == Action::Deferred { Space::Vmalloc } else { Space::Slab }
}

/// Classes of a free as kind `kind` of an object of kind `of`.
fn mismatches(known: &Known, (of, kind): (Kind, Kind), (alloc, free): (&Event, &Event)) -> Vec<Class> {
    let mut classes = Vec::new();
    if kind != of {
        let legal = of == Kind::Cache && known.kfree_of_cache_is_legal();
        classes.push(if legal { Class::KindMismatchLegal } else { Class::KindMismatch });
    }
    if let (Some(to), Some(from)) = (free.cache, alloc.cache)
        && known.names.get(to) != known.names.get(from)
    {
        classes.push(Class::CacheMismatch);
    }
    classes
}

/// Frames one by one: the object that each is live under, and all that were seen.
#[derive(Default)]
struct Frames {
    live: HashMap<u64, usize>,
    seen: HashSet<u64>,
    frees: BTreeMap<usize, PageFree>,
    /// Objects that the latest free event has hit.
    hits: Vec<usize>,
}

impl Frames {
    /// Takes the frames of an event, and makes them live under `now`; the pages taken off each object, and the frames that were
    /// not live.
    fn take(&mut self, event: &Event, now: Option<usize>) -> (BTreeMap<usize, u64>, PageFree) {
        let (mut hits, mut dead) = (BTreeMap::new(), PageFree::default());
        for frame in event.address..event.address + (1 << event.order.unwrap_or(0)) {
            let before = match now {
                Some(object) => self.live.insert(frame, object),
                None => self.live.remove(&frame),
            };
            let is_new = self.seen.insert(frame);
            match before {
                Some(object) => *hits.entry(object).or_insert(0) += 1,
                None if is_new => dead.unseen += 1,
                None => dead.seen += 1,
            }
        }
        (hits, dead)
    }

    /// Takes an event; the objects that have no page left, and the class of a free that hits none, with its suspicion.
    fn event(
        &mut self,
        event: &Event,
        number: usize,
        objects: &mut Vec<Object>,
        is_suspect: bool,
    ) -> (Vec<usize>, Option<(Class, bool)>) {
        let allocates = matches!(event.action, Action::Alloc(_));
        let (hits, mut free) = self.take(event, allocates.then_some(objects.len()));
        let ended = self.take_off(&hits, objects, event, number);
        if allocates {
            let gone = Some(Vec::new());
            objects.push(Object { alloc: *event, kind: Kind::Pages, number, end: End::Live, gone });
            return (ended, None);
        }
        let again = match (hits.is_empty(), free.seen) {
            (false, _) => None,
            (true, 0) => Some((Class::FreeWithoutAlloc, false)),
            (true, _) => Some((Class::FreeAfterFree, is_suspect)),
        };
        free.hits = hits.keys().map(|&index| objects[index].alloc).collect();
        self.frees.insert(number, free);
        self.hits = hits.into_keys().collect();
        (ended, again)
    }

    /// Notes which objects of a free event have pages left.
    fn note_left(&mut self, number: usize, objects: &[Object]) {
        if let Some(free) = self.frees.get_mut(&number) {
            let left = self.hits.iter().filter(|index| matches!(objects[**index].end, End::Live));
            free.left = left.map(|&index| objects[index].alloc).collect();
        }
    }

    /// Notes the pages that an event takes off objects; those that have none left.
    fn take_off(
        &self,
        hits: &BTreeMap<usize, u64>,
        objects: &mut [Object],
        event: &Event,
        number: usize,
    ) -> Vec<usize> {
        let inferred = matches!(event.action, Action::Alloc(_));
        let mut ended = Vec::new();
        for (&index, &pages) in hits {
            let object = &mut objects[index];
            let gone = object.gone.get_or_insert_default();
            gone.push(Gone { number, cpu: event.cpu, pages, inferred });
            let all: u64 = gone.iter().map(|gone| gone.pages).sum();
            if Some(all) == object.frames() {
                ended.push(index);
            }
        }
        ended
    }
}

/// Ends an object with its last page; the finding where a page of it was inferred to be free.
fn end_block(known: &Known, gaps: &[Gap], object: &mut Object, event: &Event, number: usize) -> Option<Finding> {
    let inferred = object.gone.iter().flatten().any(|gone| gone.inferred);
    if !inferred {
        object.end = End::Freed { free: *event, number };
        return None;
    }
    let before = Last::new(&object.alloc, None);
    let suspect = is_suspect(known, gaps, &before, event, Class::InferredFree);
    object.end = End::Reissued { number, suspect };
    Some(Finding {
        class: Class::InferredFree,
        alloc_site: Some(object.alloc.call_site),
        free_site: None,
        kind: Kind::Pages,
        suspect,
        event: *event,
        number,
        unseen: false,
        owner: object.alloc,
    })
}

/// Caches that frees of cache objects name, where no loss is between allocation and free.
fn learn_caches(known: &Known, gaps: &[Gap], objects: &[Object]) -> Learned {
    let mut learned = Learned::default();
    for Object { alloc, kind, end, .. } in objects {
        let End::Freed { free, .. } = end else { continue };
        let before = Last::new(alloc, None);
        if let (Kind::Cache, Action::Free(Kind::Cache), Some(name)) = (kind, free.action, known.cache_in(free))
            && !is_suspect(known, gaps, &before, free, Class::CacheMismatch)
        {
            learned.add(alloc, name);
        }
    }
    learned
}

/// Marks findings whose allocation's row has an inferred free that loss does not explain, or objects that were freed beyond the room
/// of a record.
fn mark_unseen(known: &Known, objects: &[Object], bulk: &BulkFrees, findings: &mut [Finding]) {
    let is_bound = |o: &&Object| matches!(o.end, End::Reissued { suspect: false, .. }) || bulk.may_have_freed(o);
    let rows: BTreeSet<(u64, Kind)> = objects.iter().filter(is_bound).map(|o| (o.alloc.call_site, o.kind)).collect();
    for finding in findings.iter_mut().filter(|finding| Class::UNSEEN.contains(&finding.class)) {
        let has_bound = finding.alloc_site.is_some_and(|site| rows.contains(&(site, finding.kind)));
        finding.unseen = !finding.suspect && (has_bound || known.is_of_tasks());
    }
}

/// True if loss, or a clock that does not compare, may explain a finding of `class` at `now`, whose address had its event before
/// at `before`.
fn is_suspect(known: &Known, gaps: &[Gap], before: &Last, now: &Event, class: Class) -> bool {
    let in_unknown_order = match known.trace.order {
        OrderKey::Sequence => false,
        OrderKey::Time => match known.trace.clock.as_deref() {
            Some("uptime") => true,
            Some("local" | "perf") | None => before.cpu != now.cpu || class == Class::FreeAfterFree,
            Some(_) => false,
        },
    };
    // A gap on any CPU counts if it touches the time between the address's event before and this one.
    let touches = |gap: &Gap| gap.from.is_none_or(|s| s <= now.at) && gap.to.is_none_or(|e| e >= before.at);
    in_unknown_order || gaps.iter().any(touches)
}

/// Leaves out allocations that are not asked for, the recorder's own unless they are shown, and counts what there was.
fn without_unselected(known: &Known, mut pairs: Pairs) -> Pairs {
    let count = |class| pairs.findings.iter().filter(|f| f.class == class).count();
    pairs.unfiltered = (count(Class::InferredFree), count(Class::FreeWithoutAlloc));
    let own = pairs.objects.iter().filter(|o| known.is_own(&o.alloc));
    pairs.own = (own.clone().count(), own.map(|o| o.alloc.allocated).sum());
    let freed: HashMap<usize, Event> = pairs
        .objects
        .iter()
        .filter_map(|o| match o.end {
            End::Freed { number, .. } if o.gone.is_none() => Some((number, o.alloc)),
            _ => None,
        })
        .collect();
    // A free is the allocation's, where there is one, and that of any allocation whose pages it takes.
    let takes = |event: &Event| pairs.takes(known, event);
    let is_taken = |number: usize, event: &Event| match pairs.page_frees.get(&number).map(|free| &free.hits[..]) {
        Some(hits @ [_, ..]) => hits.iter().any(takes),
        _ => takes(freed.get(&number).unwrap_or(event)),
    };
    let events = pairs.events.iter().enumerate();
    let left_out = events.filter(|&(number, event)| !is_taken(number, event)).map(|(number, _)| number).collect();
    let objects = pairs.objects.iter().filter(|o| takes(&o.alloc)).cloned().collect();
    let findings = pairs.findings.iter().filter(|f| takes(&f.owner)).copied().collect();
    (pairs.left_out, pairs.objects, pairs.findings) = (left_out, objects, findings);
    pairs
}

impl Pairs {
    /// Cache of an allocation's object.
    pub fn cache(&self, known: &Known, alloc: &Event, kind: Kind) -> Cache {
        self.learned.cache(&known.classes, alloc, kind, known.cache_in(alloc), self.learns)
    }

    /// Free events of frames that are not left out.
    pub fn taken_page_frees(&self) -> impl Iterator<Item = &PageFree> + Clone {
        self.page_frees.iter().filter(|(number, _)| !self.left_out.contains(number)).map(|(_, free)| free)
    }

    /// True where some event of pages does not carry a frame number.
    pub fn has_whole_blocks(&self) -> bool {
        let is_whole = |e: &&Event| {
            matches!(e.action, Action::Alloc(Kind::Pages) | Action::Free(Kind::Pages)) && e.order.is_none() && !e.failed
        };
        self.events.iter().any(|e| is_whole(&e))
    }

    /// True for an allocation, or a free without one, that figures and findings count.
    pub fn takes(&self, known: &Known, event: &Event) -> bool {
        let cache = match event.action {
            Action::Alloc(kind) => self.cache(known, event, kind).name,
            _ => known.cache_in(event).map(str::to_owned),
        };
        let function = known.symbols.as_ref().and_then(|symbols| symbols.function(event.call_site));
        let is_own = matches!(event.action, Action::Alloc(_)) && known.is_own(event);
        known.selection.takes(event, &Named { comm: known.comm(event), function, cache })
            && (known.shows_own || !is_own)
    }

    /// True if loss or a clock may explain what a pair of allocation and free shows.
    pub fn is_suspect_pair(&self, known: &Known, alloc: &Event, free: &Event) -> bool {
        let before = Last::new(alloc, None);
        is_suspect(known, &self.gaps, &before, free, Class::KindMismatch)
    }

    /// Events that are not left out.
    pub fn taken(&self) -> impl Iterator<Item = &Event> + Clone {
        self.taken_numbers().map(|(_, event)| event)
    }

    /// Events that are not left out, with their positions.
    pub fn taken_numbers(&self) -> impl Iterator<Item = (usize, &Event)> + Clone {
        self.events.iter().enumerate().filter(|(number, _)| !self.left_out.contains(number))
    }
}
