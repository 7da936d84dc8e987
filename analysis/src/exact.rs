//! Random traces, a million where one has an hour: however the work is cut, every view says what the slow reference says.
//!
//! The views are taken within this process, which is what makes a million of them possible: `tests/tests/contract.rs` does
//! the same with the program as it is run, and some more.

use std::thread;

use kmemtrace_tests::generate::{relay_dir, trace_dir};
use kmemtrace_tests::recording::{Directory, random_relay, random_workload, seeds};
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::views::{DOCUMENTS, assert_document, expected};

use crate::documents::{self, Document};
use crate::{Analysis, Query, Shape, SortKey, Trace};

/// How the work is cut: threads, events of a window, classes with sizes of their own.
type Cut = (usize, usize, u32);

/// The document of a view, as JSON.
fn document(trace: &Directory, view: &str, (threads, window, sized): Cut, shows_own: bool) -> Vec<u8> {
    let (query, make): (Query, for<'a> fn(&'a Analysis, &Shape) -> Document<'a>) = match view {
        "summary" => (Query::by_kind(), documents::summary),
        "sites" => (Query::by_site(), documents::sites),
        "caches" => (Query::by_cache(), documents::caches),
        "mismatch" => (Query::by_site(), documents::mismatch),
        "live" => (Query::by_site().with_live_objects(true), documents::live),
        _ => (Query::by_site().with_cpu_matrix(true), documents::cross),
    };
    let query = query.with_own(shows_own).threads(threads).cut(Some(window), Some(sized));
    let mut opened = Trace::open(&[trace.path().to_owned()]).unwrap_or_else(|error| panic!("{view}: {error}"));
    let analysis = query.run(&mut opened).unwrap_or_else(|error| panic!("{view}: {error}"));
    let shape = Shape { sort: vec![SortKey::Wasted], top: None };
    serde_json::to_vec(&make(&analysis, &shape)).unwrap_or_else(|error| panic!("{view}: {error}"))
}

/// Each number of threads against the reference, and two of them against each other, byte for byte; the views take turns,
/// and so do windows and numbers of classes with known sizes.
fn assert_exact(seed: u64) {
    const EVENTS: usize = 60;
    let (dir, known) = if seed.is_multiple_of(5) {
        let (workload, options, streams) = random_relay(seed, EVENTS);
        let dir = Directory::new(&relay_dir(&workload, &options, &streams, seed));
        (dir, Known::of_relay(workload, &options, &streams, false, None))
    } else {
        let (_, workload) = random_workload(seed, EVENTS);
        (Directory::new(&trace_dir(&workload, seed)), Known::of_workload(workload))
    };
    // Every fourth trace shows the recorder's own objects.
    let known = Known { shows_own: seed % 4 == 1, ..known };
    let (documents, _) = expected(&known);
    let mut earlier: [Option<Vec<u8>>; DOCUMENTS.len()] = Default::default();
    for jobs in 1..=8 {
        let turn = (seed + jobs) as usize;
        let number = turn % DOCUMENTS.len();
        let window = [1, 2, 7, 40, 300][turn % 5];
        let sized = [0, 5, 1000][turn / 7 % 3];
        let cut = (jobs as usize, window, sized);
        let bytes = document(&dir, DOCUMENTS[number], cut, known.shows_own);
        let what = format!("seed {seed}, {} {cut:?}", DOCUMENTS[number]);
        match &earlier[number] {
            Some(earlier) => assert!(*earlier == bytes, "{what}: not the bytes of -j{}", jobs - DOCUMENTS.len() as u64),
            None => assert_document(&what, documents[number].clone(), &bytes),
        }
        earlier[number] = Some(bytes);
    }
}

#[test]
fn random_traces_are_reported_exactly() {
    let seeds = seeds(0..300);
    let threads = thread::available_parallelism().map_or(1, usize::from) * 2;
    thread::scope(|scope| {
        for first in 0..threads {
            let own = seeds.clone().skip(first).step_by(threads);
            scope.spawn(move || own.for_each(assert_exact));
        }
    });
}
