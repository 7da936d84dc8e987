//! What the programs do with an input: open it, read its events, and answer a view. Nothing of it may panic, and what it says is one line.

use std::path::PathBuf;

use kmemtrace::documents::{self, Document};
use kmemtrace::latency::LatencyRequest;
use kmemtrace::{Analysis, GroupKey, Query, Shape, Silent};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::open::OpenOptions;
use kmemtrace_abi::trace::Trace;

/// Longest sentence of a refusal, in bytes.
const MAX_SENTENCE: usize = 2000;

/// Document of a view.
pub type Make = for<'a> fn(&'a Analysis, &Shape) -> Document<'a>;

/// Queries of views and their documents.
const VIEWS: [(fn() -> Query, Make); 7] = [
    (Query::by_site, documents::sites),
    (Query::by_kind, documents::summary),
    (Query::by_cache, documents::caches),
    (|| Query::by_site().with_live_objects(true).with_growth(true), documents::live_groups),
    (|| Query::by_site().with_stacks(true).with_live_objects(true), documents::live),
    (|| Query::by(&[GroupKey::Task, GroupKey::Size, GroupKey::Gfp]), documents::sites),
    (Query::by_part, documents::balance),
];

/// A sentence for a user has one line.
pub fn sentence(text: &str) {
    assert!(!text.contains('\n') && text.len() < MAX_SENTENCE, "no sentence: {text:?}");
}

/// Opens an input and reads it, in one of the ways of the programs; `choice` picks it.
pub fn whole(paths: &[PathBuf], options: &OpenOptions, choice: u64) {
    let open = || Trace::open_with(paths, options.clone());
    match open() {
        Ok(trace) => items(trace),
        Err(error) => return sentence(&error.to_string()),
    }
    let Ok(mut trace) = open() else { panic!("the input opens once and not twice") };
    let kinds = VIEWS.len() as u64 + 1;
    match VIEWS.get((choice % kinds) as usize) {
        Some((query, make)) => {
            let shape = Shape { sort: Vec::new(), top: Some(20) };
            let one = answer(query(), *make, &shape, trace, 1);
            if (choice / kinds).is_multiple_of(4) {
                let Ok(trace) = open() else { panic!("the input opens twice and not thrice") };
                let three = answer(query(), *make, &shape, trace, 3);
                assert_eq!(one, three, "one thread and three answer differently");
            }
        }
        None => latency(&mut trace),
    }
}

/// The same for one file of this name.
pub fn file(name: &str, bytes: &[u8], options: &OpenOptions) {
    let dir = crate::recording::Directory::new(&[]);
    dir.write(name, bytes);
    whole(&[dir.file(name)], options, sum(bytes));
}

/// Sum of an input, which picks what is done with it.
pub fn sum(bytes: &[u8]) -> u64 {
    u64::from(kmemtrace_abi::disk::block::crc32c(bytes))
}

/// Reads all events: times of a stream never go back, and their number is what the report of the file says.
fn items(mut trace: Trace) {
    for stream in &mut trace.streams {
        let (mut read, mut events, mut last) = (Vec::new(), 0, 0);
        while stream.fill(&mut trace.names, &mut read) {
            for item in read.drain(..) {
                // The ends of a gap are what the file says.
                let StreamItem::Event(event) = item else { continue };
                assert!(event.at >= last, "an event at {} stands behind one at {last}", event.at);
                (last, events) = (event.at, events + 1);
            }
        }
        assert_eq!(stream.report().events, events, "{}", stream.path().display());
        stream.report().faults.iter().for_each(|fault| sentence(&fault.message));
    }
}

/// The document of a view, or the sentence in its place.
pub fn answer(query: Query, make: Make, shape: &Shape, mut trace: Trace, threads: usize) -> Result<String, String> {
    match query.threads(threads).without_index().run(&mut trace) {
        Ok(analysis) => Ok(serde_json::to_string(&make(&analysis, shape)).expect("every document serialises")),
        Err(error) => {
            sentence(&error.to_string());
            Err(error.to_string())
        }
    }
}

fn latency(trace: &mut Trace) {
    let request = LatencyRequest { lists_stalls: true, ..LatencyRequest::default() };
    match Query::by_kind().latency(trace, request, &mut Silent) {
        Ok(latency) => {
            let document = serde_json::to_string(&documents::latency::stalls(&latency, false, Some(20)));
            assert!(document.is_ok(), "every document serialises");
        }
        Err(error) => sentence(&error.to_string()),
    }
}
