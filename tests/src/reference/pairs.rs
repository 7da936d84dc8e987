//! Pairing: the effect of each event on the table of live objects.

use std::collections::{BTreeSet, HashMap};

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Action, Event, Gap, Kind};

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

/// Object of a successful allocation.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Allocation event.
    pub alloc: Event,
    /// Kind of the object.
    pub kind: Kind,
    /// Position of the allocation in the total order.
    pub number: usize,
    /// End of the object.
    pub end: End,
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
    /// Positions of the events that are left out: the recorder's own allocations and those that are not selected, frees of such
    /// objects, and other frees that are not selected.
    pub left_out: BTreeSet<usize>,
    /// Successful allocations of the recorder itself, and their bytes.
    pub own: (usize, u64),
    /// Inferred frees, and frees without an allocation, before the recorder's own are left out.
    pub unfiltered: (usize, usize),
    /// Gaps of the trace.
    pub gaps: Vec<Gap>,
    /// Caches that frees of the window name.
    pub learned: Learned,
    /// True if caches are learned from frees: allocation events have no name.
    pub learns: bool,
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
}

/// Pairs all events, and leaves out those that are not asked for.
pub fn pairs(known: &Known) -> Pairs {
    let events = order::events(known);
    let gaps = known.gaps();
    let (objects, mut findings) = pair_all(known, &events, &gaps);
    mark_unseen(known, &objects, &mut findings);
    let learned = learn_caches(known, &gaps, &objects);
    let all = Pairs {
        events,
        objects,
        findings,
        gaps,
        left_out: BTreeSet::new(),
        own: (0, 0),
        unfiltered: (0, 0),
        learned,
        learns: !known.names_allocations,
    };
    without_unselected(known, all)
}

/// Objects and findings of all events, in one pass.
fn pair_all(known: &Known, events: &[Event], gaps: &[Gap]) -> (Vec<Object>, Vec<Finding>) {
    let mut objects: Vec<Object> = Vec::new();
    let mut findings: Vec<Finding> = Vec::new();
    let mut table: HashMap<(bool, u64), Last> = HashMap::new();
    let suspect = |before: &Last, now: &Event, class: Class| is_suspect(known, gaps, before, now, class);
    for (number, event) in events.iter().enumerate() {
        let finding = |class, alloc_site, free_site, kind, suspect| {
            let event = *event;
            Finding { class, alloc_site, free_site, kind, suspect, event, number, unseen: false, owner: event }
        };
        match event.action {
            Action::Other => {}
            Action::Alloc(kind) if event.failed => {
                findings.push(finding(Class::FailedAlloc, Some(event.call_site), None, kind, false));
            }
            Action::Alloc(kind) => {
                let key = (kind == Kind::Pages, event.address);
                let before = table.insert(key, Last { at: event.at, cpu: event.cpu, object: Some(objects.len()) });
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
                objects.push(Object { alloc: *event, kind, number, end: End::Live });
            }
            Action::Free(kind) if kind != Kind::Pages && matches!(event.address, 0 | 16) => {
                findings.push(finding(Class::NullFree, None, Some(event.call_site), kind, false));
            }
            Action::Free(kind) => {
                let key = (kind == Kind::Pages, event.address);
                let site = Some(event.call_site);
                match table.insert(key, Last { at: event.at, cpu: event.cpu, object: None }) {
                    None => {
                        findings.push(finding(Class::FreeWithoutAlloc, None, site, kind, false));
                    }
                    Some(last @ Last { object: None, .. }) => {
                        let suspect = suspect(&last, event, Class::FreeAfterFree);
                        findings.push(finding(Class::FreeAfterFree, None, site, kind, suspect));
                    }
                    Some(last @ Last { object: Some(index), .. }) => {
                        let object = &mut objects[index];
                        object.end = End::Freed { free: *event, number };
                        let (alloc, of) = (object.alloc, object.kind);
                        let mut pair = |class| {
                            let suspect = suspect(&last, event, class);
                            let found = finding(class, Some(alloc.call_site), site, of, suspect);
                            findings.push(Finding { owner: alloc, ..found });
                        };
                        if kind != of {
                            let legal = of == Kind::Cache && known.kfree_of_cache_is_legal();
                            pair(if legal { Class::KindMismatchLegal } else { Class::KindMismatch });
                        }
                        if let (Some(to), Some(from)) = (event.cache, alloc.cache)
                            && known.names.get(to) != known.names.get(from)
                        {
                            pair(Class::CacheMismatch);
                        }
                    }
                }
            }
        }
    }
    (objects, findings)
}

/// Caches that frees of cache objects name, where no loss is between allocation and free.
fn learn_caches(known: &Known, gaps: &[Gap], objects: &[Object]) -> Learned {
    let mut learned = Learned::default();
    for Object { alloc, kind, end, .. } in objects {
        let End::Freed { free, .. } = end else { continue };
        let before = Last { at: alloc.at, cpu: alloc.cpu, object: None };
        if let (Kind::Cache, Action::Free(Kind::Cache), Some(name)) = (kind, free.action, known.cache_in(free))
            && !is_suspect(known, gaps, &before, free, Class::CacheMismatch)
        {
            learned.add(alloc, name);
        }
    }
    learned
}

/// Marks findings whose allocation's row has an inferred free that loss does not explain.
fn mark_unseen(known: &Known, objects: &[Object], findings: &mut [Finding]) {
    let is_bound = |o: &&Object| matches!(o.end, End::Reissued { suspect: false, .. });
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
            End::Freed { number, .. } => Some((number, o.alloc)),
            _ => None,
        })
        .collect();
    // A free is the allocation's, where there is one.
    let takes = |event: &Event| pairs.takes(known, event);
    let owner = |number, event| *freed.get(&number).unwrap_or(event);
    let events = pairs.events.iter().enumerate();
    let left_out = events.filter(|&(number, event)| !takes(&owner(number, event))).map(|(number, _)| number).collect();
    let objects = pairs.objects.iter().filter(|o| takes(&o.alloc)).copied().collect();
    let findings = pairs.findings.iter().filter(|f| takes(&f.owner)).copied().collect();
    (pairs.left_out, pairs.objects, pairs.findings) = (left_out, objects, findings);
    pairs
}

impl Pairs {
    /// Cache of an allocation's object.
    pub fn cache(&self, known: &Known, alloc: &Event, kind: Kind) -> Cache {
        self.learned.cache(&known.classes, alloc, kind, known.cache_in(alloc), self.learns)
    }

    /// True for an allocation, or a free without one, that figures and findings count.
    fn takes(&self, known: &Known, event: &Event) -> bool {
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
        let before = Last { at: alloc.at, cpu: alloc.cpu, object: None };
        is_suspect(known, &self.gaps, &before, free, Class::KindMismatch)
    }

    /// Events that are not left out.
    pub fn taken(&self) -> impl Iterator<Item = &Event> + Clone {
        self.events.iter().enumerate().filter(|(number, _)| !self.left_out.contains(number)).map(|(_, event)| event)
    }
}
