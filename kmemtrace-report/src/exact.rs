//! Random traces, a million where one has an hour: however the work is cut, every view says what the slow reference says.
//!
//! The views are taken within this process, which is what makes a million of them possible: `tests/tests/contract.rs` does
//! the same with the program as it is run, and some more.

use std::fs;
use std::thread;

use clap::Parser;
use kmemtrace_abi::generate::{relay_dir, trace_dir};
use kmemtrace_tests::recording::{Directory, random_relay, random_workload, seeds};
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::views::{DOCUMENTS, assert_document, expected};

use crate::args::Args;

/// What a view with these options prints.
fn printed(trace: &Directory, view: &str, options: &[String]) -> Vec<u8> {
    let path = trace.file("printed");
    let (input, output) = (trace.path().as_os_str(), path.as_os_str());
    let words = ["kmemtrace-report", view, "--format", "json", "-f", "-o"].map(Into::into);
    let words = words.into_iter().chain([output.to_owned(), input.to_owned()]).chain(options.iter().map(Into::into));
    let args = Args::try_parse_from(words).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    let status = crate::run(&args).unwrap_or_else(|error| panic!("{view} {options:?}: {error:#}"));
    assert_eq!(status, 0, "{view} {options:?}");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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
        let mut options =
            vec![format!("-j{jobs}"), format!("--window-events={window}"), format!("--sized-classes={sized}")];
        options.extend(known.shows_own.then(|| "--own".to_owned()));
        let bytes = printed(&dir, DOCUMENTS[number], &options);
        let what = format!("seed {seed}, {} {options:?}", DOCUMENTS[number]);
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
