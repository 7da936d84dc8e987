//! Lines above tables that tell what a verdict or an empty view comes from.

use std::fs::File;
use std::path::Path;

use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{data, run, text};
use kmemtrace_tests::recording::Directory;
use rustix::fs::{FlockOperation, flock};

const REPORT: &str = "kmemtrace-report";

/// Standard output and standard error of a view.
fn printed(arguments: &[&str], traces: &[&Path]) -> [String; 2] {
    let output = run(REPORT, arguments, traces);
    [text(&output.stdout), text(&output.stderr)]
}

#[test]
fn a_recording_that_goes_on_is_no_damaged_one() {
    let options = Options { cut: vec![0], ..Options::plain(Shape::plain(), 2, 1000) };
    let cut = Directory::new(&trace_dir(&workload(1, &options), 1));
    let running = "It is still being recorded: figures are those of the events written so far.";
    let heading = || printed(&["sites"], &[cut.path()])[0].lines().take(2).collect::<Vec<_>>().join("\n");
    let before = heading();
    assert!(before.starts_with("TRUNCATED ") && before.contains("kmemtrace-check shows where"), "{before}");
    // The recorder's lock.
    let recorder = File::open(cut.path()).unwrap();
    flock(&recorder, FlockOperation::LockExclusive).unwrap();
    let heading = heading();
    assert!(heading.starts_with("TRUNCATED ") && heading.ends_with(running), "{heading}");
}

#[test]
fn a_view_without_its_events_says_so_above_its_rows() {
    const RECLAIM: &str =
        "the recording has no events of reclaim, compaction or shrinkers: record them with kmemtraced -e latency";
    const TIMED: &str = "the recording has no timed functions: record them with kmemtraced -e latency --functions, on a kernel that has \
                         the function_graph tracer in instances (Linux 6.12)";
    for (view, missing) in
        [("latency", RECLAIM), ("stalls", RECLAIM), ("shrinkers", RECLAIM), ("waits", RECLAIM), ("functions", TIMED)]
    {
        let trace = data("amd64-6.1");
        let [table, said] = printed(&[view], &[&trace]);
        assert!(table.contains(&format!("Nothing to show: {missing}.")), "{view}: {table}");
        assert_eq!(said, "", "{view}");
        // Other formats have no place for it.
        let [document, said] = printed(&[view, "--format", "json"], &[&trace]);
        assert!(!document.contains(missing), "{view}");
        assert_eq!(said, format!("kmemtrace-report: {missing}\n"), "{view}");
    }
}

#[test]
fn a_view_of_memory_whose_events_were_not_recorded_is_no_empty_one() {
    let missing = "the recording has no allocation events: record them with kmemtraced -e slab,page";
    let waits = data("latency-amd64-6.18");
    for view in ["leaks", "live", "sites", "tasks", "mismatch", "failed"] {
        let [table, _] = printed(&[view], &[&waits]);
        assert!(table.contains(&format!("Nothing to show: {missing}.")), "{view}: {table}");
    }
    let [_, said] = printed(&["leaks", "--fail-on", "leak"], &[&waits]);
    assert_eq!(said, format!("kmemtrace-report: --fail-on: no leak could be found: {missing}\n"));
    let slabs = data("amd64-6.1");
    for view in ["leaks", "live", "sites"] {
        let [table, _] = printed(&[view, "--kind", "page"], &[&slabs]);
        assert!(table.contains("no page events: record them with kmemtraced -e page."), "{view}: {table}");
    }
    let [table, _] = printed(&[], &[&slabs]);
    assert!(table.contains("not recorded         pages: kmemtraced -e slab,page"), "{table}");
}

#[test]
fn leaks_without_a_verdict_are_not_said_to_be_none() {
    let short = data("amd64-6.18");
    let [table, said] = printed(&["leaks", "--fail-on", "leak"], &[&short]);
    assert!(table.contains("No verdict: the recording is shorter than 2 seconds"), "{table}");
    assert!(!table.contains("no memory grows"), "{table}");
    assert!(said.contains("--fail-on: no leak could be found: the events are too few seconds"), "{said}");
    let [table, _] = printed(&["leaks", "--time", ",+1s"], &[&data("amd64-6.1")]);
    assert!(table.contains("No verdict: the events in this time span less than 2 seconds"), "{table}");
}

#[test]
fn recordings_that_cannot_be_compared_as_they_are_say_why() {
    let of = |name: &str| data(name);
    let [table, _] = printed(&["compare"], &[&of("amd64-6.1"), &of("latency-amd64-6.18")]);
    assert!(table.contains("One side is longer: TOTAL/S compares bytes a second."), "{table}");
    assert!(table.contains("Only before has events of slab:"), "{table}");
    let [table, _] = printed(&["compare"], &[&of("amd64-6.1"), &of("amd64-6.1")]);
    assert!(
        !table.contains("One side is longer") && !table.contains("Only ") && !table.contains("exchanged"),
        "{table}"
    );
    let [table, _] = printed(&["compare"], &[&of("arm64-16k-6.12"), &of("amd64-6.1")]);
    assert!(table.contains("The side before was recorded after the other one: they may be exchanged."), "{table}");
    let [table, _] = printed(&["compare"], &[&of("amd64-6.1"), &of("amd64-6.18")]);
    assert!(table.lines().any(|line| line.starts_with("after ") && line.ends_with("   host vm")), "{table}");
}

#[test]
fn ages_of_one_text_are_no_growth() {
    let [table, _] = printed(&["growth"], &[&data("page_owner-amd64-6.1.txt.zst")]);
    assert!(table.contains("freed ones are not known, so a rise here is not growth."), "{table}");
    let text = data("texts/page_owner_minimal.txt");
    let [table, _] = printed(&["growth"], &[&text, &text]);
    assert!(!table.contains("not growth"), "{table}");
}
