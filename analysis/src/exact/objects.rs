//! Objects of random traces, one by one, against the slow reference; places in the total order against those of observers.

use std::ops::ControlFlow;

use kmemtrace_abi::event::{Action, Event, Kind};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::recording::{Directory, random_relay};
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::reference::pairs::{Class, End, Object, Pairs, pairs};
use kmemtrace_tests::reference::selection::Selection;

use super::{Cut, cut, each_seed, recorded, take_selection, take_window};
use crate::{Fate, ObjectFate, ObjectSink, OrderedItem, Query};

/// Members of an object that the two sides are compared by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    /// Place of the event that ends it; live objects come last.
    known_from: u64,
    seq: u64,
    fate: Fate,
    at: u64,
    cpu: u32,
    pid: Option<i32>,
    comm: Option<String>,
    address: u64,
    call_site: u64,
    kind: Kind,
    cache: Option<Vec<u8>>,
    sizes: (u64, u64),
    end: Option<(u64, u64)>,
    free: Option<(u32, u64, Kind, Option<Vec<u8>>)>,
    suspect: Option<bool>,
    /// Pages allocated, freed, inferred to be free, live, and freed on another CPU.
    pages: Option<[u64; 5]>,
}

#[derive(Default)]
struct Collected {
    objects: Vec<Told>,
    restarts: usize,
}

impl ObjectSink for Collected {
    fn object(&mut self, of: &ObjectFate<'_>) -> ControlFlow<()> {
        self.objects.push(Told {
            known_from: match of.fate {
                Fate::Live => u64::MAX,
                _ => of.end.map_or(of.seq, |end| end.seq),
            },
            seq: of.seq,
            fate: of.fate,
            at: of.at,
            cpu: of.cpu,
            pid: of.pid,
            comm: of.comm.map(|comm| String::from_utf8_lossy(comm).into_owned()),
            address: of.address,
            call_site: of.call_site,
            kind: of.kind,
            cache: of.cache.map(<[u8]>::to_vec),
            sizes: (of.requested, of.allocated),
            end: of.end.map(|end| (end.seq, end.at)),
            free: of.free.map(|free| (free.cpu, free.call_site, free.kind, free.cache.map(<[u8]>::to_vec))),
            suspect: of.suspect,
            pages: of
                .pages
                .map(|pages| [pages.allocated, pages.freed, pages.inferred, pages.live, pages.freed_elsewhere]),
        });
        ControlFlow::Continue(())
    }

    fn restart(&mut self) {
        self.restarts += 1;
        self.objects.clear();
    }
}

/// Pages of an object as the reference counts them.
fn pages(known: &Known, object: &Object) -> Option<[u64; 5]> {
    if object.kind != Kind::Pages {
        return None;
    }
    if let (Some(gone), Some(all)) = (&object.gone, object.frames()) {
        let sum = |inferred| gone.iter().filter(|gone| gone.inferred == inferred).map(|gone| gone.pages).sum::<u64>();
        let elsewhere = gone.iter().filter(|gone| !gone.inferred && gone.cpu != object.alloc.cpu);
        let elsewhere = elsewhere.map(|gone| gone.pages).sum();
        return Some([all, sum(false), sum(true), all - sum(false) - sum(true), elsewhere]);
    }
    let all = object.alloc.allocated / known.trace.page_bytes?;
    Some(match object.end {
        End::Freed { free, .. } => [all, all, 0, 0, if free.cpu == object.alloc.cpu { 0 } else { all }],
        End::Reissued { .. } => [all, 0, all, 0, 0],
        End::Live => [all, 0, 0, all, 0],
    })
}

/// Objects and events alone as the reference finds them; `seqs` are the places of events by their numbers.
fn expected(known: &Known, pairs: &Pairs, seqs: &[u64]) -> Vec<Told> {
    let cache = |event: &Event| event.cache.map(|name| known.names.get(name).to_vec());
    let told = |fate, number: usize, event: &Event, kind| Told {
        known_from: seqs[number],
        seq: seqs[number],
        fate,
        at: event.at,
        cpu: event.cpu,
        pid: event.pid,
        comm: known.comm(event).map(str::to_owned),
        address: event.address,
        call_site: event.call_site,
        kind,
        cache: cache(event),
        sizes: (event.requested, event.allocated),
        end: None,
        free: None,
        suspect: None,
        pages: None,
    };
    let objects = pairs.objects.iter().map(|object| {
        let of = Told { pages: pages(known, object), ..told(Fate::Live, object.number, &object.alloc, object.kind) };
        let end = |number: usize| Some((seqs[number], pairs.events[number].at));
        match object.end {
            End::Live => Told { known_from: u64::MAX, ..of },
            End::Reissued { number, suspect } => {
                Told { known_from: seqs[number], fate: Fate::Inferred, end: end(number), suspect: Some(suspect), ..of }
            }
            End::Freed { free, number } => {
                let suspect = Some(pairs.is_suspect_pair(known, &object.alloc, &free));
                let kind = match free.action {
                    Action::Free(kind) => kind,
                    // Frees of objects of either kind.
                    Action::Deferred | Action::BulkFree(_) => object.kind,
                    other => panic!("{other:?} ended an object"),
                };
                let free = Some((free.cpu, free.call_site, kind, cache(&free)));
                Told { known_from: seqs[number], fate: Fate::Pair, end: end(number), free, suspect, ..of }
            }
        }
    });
    let alone = pairs.findings.iter().filter_map(|finding| {
        let (fate, suspect) = match finding.class {
            Class::FreeWithoutAlloc => (Fate::FreeWithoutAlloc, None),
            Class::FreeAfterFree => (Fate::FreeAfterFree, Some(finding.suspect)),
            Class::NullFree => (Fate::NullFree, None),
            Class::FailedAlloc => (Fate::Failed, None),
            _ => return None,
        };
        let of = told(fate, finding.number, &finding.event, finding.kind);
        let (address, sizes) = match fate {
            Fate::Failed => (0, (finding.event.requested, 0)),
            _ => (of.address, (0, 0)),
        };
        Some(Told { address, sizes, suspect, ..of })
    });
    let mut all: Vec<Told> = objects.chain(alone).collect();
    all.sort();
    all
}

/// Places of all events in the total order, as an observer gets them.
fn places(dir: &Directory, options: &Cut) -> Vec<u64> {
    let mut seqs = Vec::new();
    let mut last = None;
    let mut observer = |item: &OrderedItem<'_>| {
        let (OrderedItem::Event { seq, .. } | OrderedItem::Gap { seq, .. }) = *item;
        assert!(last.is_none_or(|last| last + 1 == seq), "places have no holes");
        last = Some(seq);
        if let OrderedItem::Event { addresses, .. } = item {
            // Each address has a place of its own.
            let end = seq + addresses.len() as u64;
            seqs.extend(seq..=end);
            last = Some(end);
        }
        ControlFlow::Continue(())
    };
    let mut trace = Trace::open(&[dir.path().to_owned()]).unwrap();
    let query = Query::by_kind().time(options.time).cut(Some(options.window_events), None);
    query.observe(&mut trace, &mut observer).unwrap();
    seqs
}

/// Objects of a query against those of the reference; returns how often the pass began again.
fn assert_same(what: &str, dir: &Directory, known: &Known, options: &Cut) -> usize {
    let query = Query::by_kind().with_own(options.shows_own).time(options.time).select(options.select.clone());
    let query = query.cut(Some(options.window_events), Some(options.sized_classes));
    let mut collected = Collected::default();
    let mut trace = Trace::open(&[dir.path().to_owned()]).unwrap();
    let observed = query.objects(&mut trace, &mut collected).unwrap_or_else(|error| panic!("{what}: {error}"));
    let Collected { mut objects, restarts } = collected;
    assert_eq!(observed.has_late_loss, restarts == 1, "{what}");
    let live = objects.iter().position(|object| object.fate == Fate::Live).unwrap_or(objects.len());
    assert!(objects[live..].is_sorted_by_key(|object| (object.fate != Fate::Live, object.seq)), "{what}");
    objects.sort();
    let pairs = pairs(known);
    assert_eq!(objects, expected(known, &pairs, &places(dir, options)), "{what}");
    let (inferred, old) = pairs.unfiltered;
    let of = &observed.completeness;
    assert_eq!((of.inferred_frees, of.frees_without_alloc), (Some(inferred as u64), Some(old as u64)), "{what}");
    restarts
}

/// Objects of the whole trace, of a window, or of some allocations.
fn assert_objects_exact(seed: u64) {
    let (dir, mut known) = recorded(seed);
    let mut random = Random::new(seed ^ 0x0b1ec);
    for turn in 0..4 {
        (known.bounds, known.selection) = (None, Selection::default());
        let mut options = cut(&known, 1, random.below(100) as usize);
        if turn % 2 == 1 {
            options.time = take_window(&mut known, &dir, &mut random);
        }
        if turn >= 2 {
            take_selection(&mut known, &mut random, &mut options);
        }
        assert_same(&format!("seed {seed}, {options:?}"), &dir, &known, &options);
    }
}

#[test]
fn objects_of_random_traces_are_handed_over_exactly() {
    each_seed(0..300, assert_objects_exact);
}

/// A relay channel's counter tells of loss that has no place: the pass begins again, and all findings are suspect.
#[test]
fn loss_that_comes_to_light_at_the_end_makes_everything_suspect() {
    let mut restarts = 0;
    for seed in 0..30 {
        let (workload, options, streams) = random_relay(seed, 80);
        let dir = Directory::new(&[]);
        for stream in &streams.cpus {
            dir.write(&format!("cpu{}", stream.cpu), &stream.bytes());
        }
        let overruns = seed % 2 * 1000;
        dir.write("total_overruns", format!("{overruns}\n").as_bytes());
        let known = Known::of_relay(workload, &options, &streams, true, Some(overruns));
        restarts += assert_same(&format!("seed {seed}"), &dir, &known, &cut(&known, 1, seed as usize));
    }
    assert_eq!(restarts, 15);
}
