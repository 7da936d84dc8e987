//! Random traces, a million if there is an hour: however the work is cut, every view says what the slow reference says.
//!
//! The documents are made within this process, which makes a million of them possible: `tests/tests/offline/contract.rs` does
//! the same with the program as it is run, and some more.

mod init_sites;
mod modules;
mod monitor;
mod objects;
mod stacks;

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::encoded::encoded;
use kmemtrace_tests::generate::counters::workload_with_counters;
use kmemtrace_tests::generate::leaks::workload_with_leaks;
use kmemtrace_tests::generate::{Random, Workload, relay_dir, trace_dir};
use kmemtrace_tests::recording::{Directory, random_relay, random_workload};
use kmemtrace_tests::reference::asked::Asked;
use kmemtrace_tests::reference::groups::Sort;
use kmemtrace_tests::reference::keys::Key;
use kmemtrace_tests::reference::selection::Selection;
use kmemtrace_tests::reference::{Known, order, pairs};
use kmemtrace_tests::runs::seeds;
use kmemtrace_tests::views::{DOCUMENTS, assert_document, expected};

use crate::cache;
use crate::documents::leaks::LeakOptions;
use crate::documents::{self, Document};
use crate::{Analysis, Figure, Glob, GroupKey, Query, Select, Shape, Site, SizeRange, SortKey, TimeWindow};

/// Options of a query beside its view: how the work is cut, and which part of the trace is asked for.
#[derive(Clone, Debug, Default)]
struct Cut {
    threads: usize,
    window_events: usize,
    sized_classes: u32,
    shows_own: bool,
    time: Option<TimeWindow>,
    select: Select,
    given: Vec<(&'static str, Vec<String>)>,
    /// An index is used and written.
    has_index: bool,
}

type Make = for<'a> fn(&'a Analysis, &Shape) -> Document<'a>;

/// Query and document of a view.
fn view(asked: &Asked) -> (Query, Make) {
    let keys: Vec<GroupKey> = asked.by.iter().flatten().map(|key| key.word().parse().unwrap()).collect();
    let by = || if keys.is_empty() { Query::by_site() } else { Query::by(&keys) };
    match asked.view {
        "summary" => (Query::by_kind(), documents::summary),
        "sites" => (by(), documents::sites),
        "caches" => (Query::by_cache(), documents::caches),
        "balance" => (Query::by_part(), documents::balance),
        "failed" => (Query::by_failure(), documents::failed),
        "leaks" => (Query::leaks(&keys), |analysis, shape| documents::leaks(analysis, shape, LeakOptions::default())),
        "mismatch" => (Query::by_site(), |analysis, shape| documents::mismatch(analysis, shape, &[])),
        "live" if asked.objects => (Query::by_site().with_stacks(true).with_live_objects(true), documents::live),
        "live" => (by().with_live_objects(true).with_growth(true), documents::live_groups),
        "cross" => (Query::by_site().with_cpu_matrix(true), documents::cross),
        "growth" => (by().with_growth(true), documents::growth),
        other => panic!("{other}: not a view of the reference"),
    }
}

fn sort_key(sort: Sort) -> SortKey {
    let figure = Figure::ALL.into_iter().find(|figure| figure.entry().sort.first() == Some(&sort.word));
    let others = [SortKey::Growth, SortKey::Site];
    let key = figure.map(SortKey::Figure).or_else(|| others.into_iter().find(|key| key.name() == sort.word));
    key.unwrap_or_else(|| panic!("{}: no word of --sort", sort.word))
}

/// The document of a view, as JSON.
fn document(trace: &Directory, asked: &Asked, cut: &Cut) -> Vec<u8> {
    let (query, make) = view(asked);
    let query = query.with_own(cut.shows_own).threads(cut.threads).time(cut.time).select(cut.select.clone());
    let query = query.given(cut.given.clone()).cut(Some(cut.window_events), Some(cut.sized_classes));
    let query = if cut.has_index { query.index(0) } else { query };
    let what = || format!("{asked:?} {cut:?}");
    let mut opened = Trace::open(&[trace.path().to_owned()]).unwrap_or_else(|error| panic!("{}: {error}", what()));
    let analysis = query.run(&mut opened).unwrap_or_else(|error| panic!("{}: {error}", what()));
    let mut sort: Vec<SortKey> = asked.shape.sort.iter().map(|&sort| sort_key(sort)).collect();
    if sort.is_empty() && asked.view != "live" {
        sort.push(SortKey::Figure(Figure::Wasted));
    }
    let shape = Shape { sort, top: asked.shape.top };
    serde_json::to_vec(&make(&analysis, &shape)).unwrap_or_else(|error| panic!("{}: {error}", what()))
}

/// A key that the reference lacks has no random test, unless it has one of its own.
#[test]
fn every_key_is_of_random_traces() {
    use GroupKey::{Accounted, Allocator, Cgroup, Order, Released, Stack, Tgid, Use};
    let others = [Accounted, Allocator, Cgroup, Order, Released, Stack, Tgid, Use];
    for key in GroupKey::ALL {
        let is_known = Key::ALL.iter().any(|known| known.word() == key.name());
        assert_eq!(is_known, !others.contains(&key), "{}", key.name());
    }
}

const EVENTS: usize = 60;

/// The recording of a workload: one of three as the kernel wrote it, the others with encoded records.
fn stored(workload: &Workload, seed: u64) -> Directory {
    let files = trace_dir(workload, seed);
    match seed % 3 {
        0 => Directory::new(&files),
        way => Directory::new(&encoded(&files, way == 1)),
    }
}

/// The recording of `seed` and the reference's knowledge of it.
fn recorded(seed: u64) -> (Directory, Known) {
    let (dir, known) = if seed.is_multiple_of(5) {
        let (workload, options, streams) = random_relay(seed, EVENTS);
        let dir = Directory::new(&relay_dir(&workload, &options, &streams, seed));
        (dir, Known::of_relay(workload, &options, &streams, false, None))
    } else {
        let (_, workload) = random_workload(seed, EVENTS);
        (stored(&workload, seed), Known::of_workload(workload))
    };
    // Every fourth trace shows the recorder's own objects.
    (dir, Known { shows_own: seed % 4 == 1, ..known })
}

/// As many threads, and a window and a number of classes with known sizes that `turn` picks.
fn cut(known: &Known, jobs: u64, turn: usize) -> Cut {
    Cut {
        threads: jobs as usize,
        window_events: [1, 2, 7, 40, 300][turn % 5],
        sized_classes: [0, 5, 1000][turn / 7 % 3],
        shows_own: known.shows_own,
        ..Cut::default()
    }
}

/// Each number of threads against the reference, and two of them against each other, byte for byte; the views take turns,
/// and so do windows and numbers of classes with known sizes.
fn assert_exact(seed: u64) {
    let (dir, known) = recorded(seed);
    let (documents, _) = expected(&known);
    let mut earlier: [Option<Vec<u8>>; DOCUMENTS.len()] = Default::default();
    for jobs in 1..=8 {
        let turn = (seed + jobs) as usize;
        let number = turn % DOCUMENTS.len();
        let options = cut(&known, jobs, turn);
        let bytes = document(&dir, &Asked::view(DOCUMENTS[number]), &options);
        let what = format!("seed {seed}, {} {options:?}", DOCUMENTS[number]);
        match &earlier[number] {
            Some(earlier) => assert!(*earlier == bytes, "{what}: not the bytes of -j{}", jobs - DOCUMENTS.len() as u64),
            None => assert_document(&what, documents[number].clone(), &bytes),
        }
        earlier[number] = Some(bytes);
    }
}

/// A window on a part of the trace that has events and begins or ends at one, or beside one; its bounds go to `known`.
fn take_window(known: &mut Known, dir: &Directory, random: &mut Random) -> Option<TimeWindow> {
    let keys: Vec<u64> = order::all_events(known).iter().map(|event| event.at).collect();
    let (first, last) = (*keys.first()?, *keys.last()?);
    let clock = Trace::open(&[dir.path().to_path_buf()]).unwrap().info.keys();
    let shown = |at: u64| match clock.unit {
        Unit::Nanoseconds => format!("{}.{:09}", at / 1_000_000_000, at % 1_000_000_000),
        _ => at.to_string(),
    };
    loop {
        let mut edge = || random.pick(&keys).saturating_add(random.below(3)).saturating_sub(1);
        let (a, b) = (edge(), edge());
        let (a, b) = (a.min(b), a.max(b));
        let (bounds, text) = match random.below(6) {
            0 => ((a, u64::MAX), format!("{},", shown(a))),
            1 => ((0, b), format!(",{}", shown(b))),
            2 => (
                (a.max(first), b.min(last)),
                format!("+{},-{}", shown(a.max(first) - first), shown(last - b.min(last))),
            ),
            3 => {
                let (from, to) = (random.below(101), random.below(101));
                let (from, to) = (u128::from(from.min(to)), u128::from(from.max(to)));
                let (start, span) = (u128::from(first), u128::from(last - first));
                let bounds = (start + (span * from).div_ceil(100), start + span * to / 100);
                ((bounds.0 as u64, bounds.1 as u64), format!("{from}%,{to}%"))
            }
            _ => ((a, b), format!("{},{}", shown(a), shown(b))),
        };
        if keys.iter().any(|key| (bounds.0..=bounds.1).contains(key)) {
            known.bounds = Some(bounds);
            return Some(text.parse().unwrap_or_else(|error| panic!("{text}: {error}")));
        }
    }
}

/// Filters of one or two sorts; they go to `known`.
fn take_selection(known: &mut Known, random: &mut Random, cut: &mut Cut) {
    let selection = Selection::random(random, known.trace.word_bytes.unwrap_or(8));
    let size = |least| SizeRange { from: least, to: u64::MAX };
    cut.select = Select {
        pid: selection.pid.into_iter().collect(),
        tgid: Vec::new(),
        comm: selection.comm.iter().map(|name| Glob::new(name)).collect(),
        module: selection.module.iter().map(|name| Glob::new(name)).collect(),
        cache: selection.cache.iter().map(|name| Glob::new(name)).collect(),
        site: selection.site.iter().map(|&site| Site::Address(site)).collect(),
        kind: selection.kind.into_iter().collect(),
        size: selection.least.map(size).into_iter().collect(),
        context: selection.context.iter().map(|word| word.parse().unwrap()).collect(),
        branch: Vec::new(),
        reclaimable: None,
        cgroup: Vec::new(),
        accounted: None,
    };
    cut.given = selection.given();
    known.selection = selection;
}

/// Parts of a trace and of its allocations against the reference.
fn assert_parts_exact(seed: u64) {
    let (dir, mut known) = recorded(seed);
    let mut random = Random::new(seed ^ 0x9a57);
    for turn in [0, 1, 2] {
        (known.bounds, known.selection) = (None, Selection::default());
        let mut options = cut(&known, *random.pick(&[1, 1, 2, 3, 5]), random.below(100) as usize);
        if turn != 0 {
            options.time = take_window(&mut known, &dir, &mut random);
        }
        if turn != 1 {
            take_selection(&mut known, &mut random, &mut options);
        }
        let (documents, _) = expected(&known);
        let number = random.below(DOCUMENTS.len() as u64) as usize;
        let bytes = document(&dir, &Asked::view(DOCUMENTS[number]), &options);
        let what = format!("seed {seed}, {} {options:?}", DOCUMENTS[number]);
        assert_document(&what, documents[number].clone(), &bytes);
    }
}

/// Views of any groups, of the whole trace, a window, or some allocations, against the reference.
fn assert_groups_exact(seed: u64) {
    let (dir, mut known) = recorded(seed);
    let mut random = Random::new(seed ^ 0x960a);
    for turn in 0..4 {
        (known.bounds, known.selection) = (None, Selection::default());
        let mut options = cut(&known, *random.pick(&[1, 1, 2, 3, 5]), random.below(100) as usize);
        if turn == 1 {
            options.time = take_window(&mut known, &dir, &mut random);
        }
        if turn == 2 {
            take_selection(&mut known, &mut random, &mut options);
        }
        let asked = Asked::random(&mut random);
        let expected = asked.document(&known, &pairs::pairs(&known));
        let bytes = document(&dir, &asked, &options);
        assert_document(&format!("seed {seed}, {asked:?} {options:?}"), (asked.view, expected), &bytes);
    }
}

/// Leaks of a trace that has some: of all rows, of other keys, of a window, of some allocations, with and without an index.
fn assert_leaks_exact(seed: u64) {
    let workload = workload_with_leaks(seed);
    let dir = stored(&workload, seed);
    let mut known = Known { shows_own: seed % 4 == 1, ..Known::of_workload(workload) };
    // Files that were written a moment ago are not trusted to stay.
    thread::sleep(Duration::from_millis(60));
    let mut random = Random::new(seed ^ 0x1ea4_5000);
    for turn in 0..5 {
        (known.bounds, known.selection) = (None, Selection::default());
        let mut options = cut(&known, *random.pick(&[1, 1, 2, 3]), random.below(100) as usize);
        let mut asked = Asked::view("leaks");
        match turn {
            1 => asked = asked.by(&[*random.pick(&Key::ALL), *random.pick(&Key::ALL)]),
            2 => options.time = take_window(&mut known, &dir, &mut random),
            3 => take_selection(&mut known, &mut random, &mut options),
            _ => options.has_index = true,
        }
        let what = format!("seed {seed}, {asked:?} {options:?}");
        let expected = asked.document(&known, &pairs::pairs(&known));
        let bytes = document(&dir, &asked, &options);
        assert_document(&what, (asked.view, expected), &bytes);
        if options.has_index {
            let again = document(&dir, &asked, &Cut { threads: 3, ..options });
            assert!(bytes == again, "{what}: the index changes the document");
        }
    }
}

/// Views of a trace that keeps texts of the machine's memory: whole, of a window, of some allocations, with and without an index.
fn assert_counters_exact(seed: u64) {
    let workload = workload_with_counters(seed);
    let dir = stored(&workload, seed);
    let mut known = Known { shows_own: seed % 4 == 1, ..Known::of_workload(workload) };
    // Files that were written a moment ago are not trusted to stay.
    thread::sleep(Duration::from_millis(60));
    let mut random = Random::new(seed ^ 0xc0de_5000);
    let views = ["balance", "caches", "failed", "sites"].map(|view| match view {
        "sites" => Asked::view(view).by(&[Key::SourceFunction]),
        _ => Asked::view(view),
    });
    for (turn, asked) in (0..4).flat_map(|turn| views.iter().map(move |asked| (turn, asked))) {
        (known.bounds, known.selection) = (None, Selection::default());
        let mut options = cut(&known, *random.pick(&[1, 1, 2, 3]), random.below(100) as usize);
        match turn {
            1 => options.time = take_window(&mut known, &dir, &mut random),
            2 => take_selection(&mut known, &mut random, &mut options),
            _ => options.has_index = turn == 3,
        }
        let what = format!("seed {seed}, {asked:?} {options:?}");
        let expected = asked.document(&known, &pairs::pairs(&known));
        let bytes = document(&dir, asked, &options);
        assert_document(&what, (asked.view, expected), &bytes);
        // The first one with an index writes it.
        for (threads, has_index) in [(3, false), (8, true), (2, true)] {
            let again = document(&dir, asked, &Cut { threads, has_index, ..options.clone() });
            assert!(bytes == again, "{what}: {threads} threads or the index ({has_index}) change the document");
        }
    }
}

/// Every view of the whole trace and of a window, first without an index, then while it is written, then from it; traces that
/// are cut or have no file of a CPU have none.
fn assert_index_changes_nothing(seed: u64) {
    let (dir, mut known) = recorded(seed);
    // Files that were written a moment ago are not trusted to stay.
    thread::sleep(Duration::from_millis(60));
    let mut random = Random::new(seed ^ 0x1dec);
    let whole = Cut { window_events: 40, sized_classes: 1000, ..cut(&known, 2, 0) };
    let window = Cut { time: take_window(&mut known, &dir, &mut random), ..whole.clone() };
    let asked: Vec<(&'static str, &Cut)> =
        DOCUMENTS.into_iter().flat_map(|view| [(view, &whole), (view, &window)]).collect();
    let all = |has_index| -> Vec<Vec<u8>> {
        let ask =
            |&(view, cut): &(&'static str, &Cut)| document(&dir, &Asked::view(view), &Cut { has_index, ..cut.clone() });
        asked.iter().map(ask).collect()
    };
    let without = all(false);
    assert!(!dir.file(cache::NAME).exists(), "seed {seed}");
    for round in ["first", "second", "third"] {
        let file = |dir: &Directory| fs::metadata(dir.file(cache::NAME)).ok().map(|data| data.ino());
        let before = file(&dir);
        for (((view, options), without), with) in asked.iter().zip(&without).zip(all(true)) {
            assert!(*without == with, "seed {seed}, {round}: {view} {options:?}");
        }
        assert_eq!(file(&dir).is_some(), known.verdict <= Verdict::Lossy, "seed {seed}, {round}");
        if round != "first" {
            assert_eq!(before, file(&dir), "seed {seed}: all answers are there");
        }
    }
}

/// Every seed, on a few threads.
fn each_seed(usual: Range<u64>, assert: fn(u64)) {
    let seeds = seeds(usual);
    let threads = thread::available_parallelism().map_or(1, usize::from) * 2;
    thread::scope(|scope| {
        for first in 0..threads {
            let own = seeds.clone().skip(first).step_by(threads);
            scope.spawn(move || own.for_each(assert));
        }
    });
}

#[test]
fn random_traces_are_reported_exactly() {
    each_seed(0..300, assert_exact);
}

#[test]
fn parts_of_random_traces_are_reported_exactly() {
    each_seed(0..300, assert_parts_exact);
}

#[test]
fn groups_of_random_traces_are_reported_exactly() {
    each_seed(0..300, assert_groups_exact);
}

#[test]
fn leaks_of_random_traces_are_reported_exactly() {
    each_seed(0..60, assert_leaks_exact);
}

#[test]
fn texts_of_memory_are_reported_exactly() {
    each_seed(0..30, assert_counters_exact);
}

#[test]
fn an_index_changes_no_report() {
    each_seed(0..20, assert_index_changes_nothing);
}
