//! The recorder on the running kernel, and what else needs to be root. Tests that cannot run here are listed as skipped at
//! the end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod boot;
mod encoded;
mod faults;
mod latency_recorder;
mod live;
mod live_pages;
mod machine;
mod memstrack;
mod nth_call;
mod old_kernels;
mod output;
mod promises;
mod rights;
mod sandbox;
mod scope;
mod signals;
mod stacks;
mod strangers;
mod tasks;
mod text_stacks;
mod top;
mod viewer;
mod watch;

use std::process::ExitCode;

/// Recordings, whose events are counted exactly, and their files.
const RECORDINGS: &[&[kmemtrace_tests::runner::Test]] = &[
    encoded::TESTS,
    promises::TESTS,
    output::TESTS,
    faults::TESTS,
    scope::TESTS,
    tasks::TESTS,
    latency_recorder::TESTS,
    stacks::TESTS,
    live::TESTS,
    live_pages::TESTS,
    machine::TESTS,
    text_stacks::TESTS,
];

/// How programs begin and end, and their screens. Viewers take numbers of users, which a test of theirs looks at afterwards: all
/// tests with a viewer are in this list.
const PROGRAMS: &[&[kmemtrace_tests::runner::Test]] = &[
    boot::TESTS,
    signals::TESTS,
    nth_call::TESTS,
    viewer::TESTS,
    top::TESTS,
    watch::TESTS,
    sandbox::TESTS,
    strangers::TESTS,
    old_kernels::TESTS,
    memstrack::TESTS,
    rights::TESTS,
];

/// Most of these tests wait for something: `tests/run` runs the two lists side by side.
fn main() -> ExitCode {
    kmemtrace_tests::runner::main_of_tracks(&[RECORDINGS, PROGRAMS])
}
