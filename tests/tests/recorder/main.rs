//! The recorder on the running kernel, and what else needs to be root. Tests that cannot run here are listed as skipped at
//! the end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod boot;
mod encoded;
mod faults;
mod foreign;
mod latency_recorder;
mod live;
mod live_pages;
mod machine;
mod memstrack;
mod nth_call;
mod old_kernels;
mod output;
mod promises;
mod random;
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

fn main() -> ExitCode {
    kmemtrace_tests::runner::main(&[
        boot::TESTS,
        encoded::TESTS,
        faults::TESTS,
        foreign::TESTS,
        latency_recorder::TESTS,
        live::TESTS,
        live_pages::TESTS,
        machine::TESTS,
        memstrack::TESTS,
        nth_call::TESTS,
        old_kernels::TESTS,
        output::TESTS,
        promises::TESTS,
        random::TESTS,
        rights::TESTS,
        sandbox::TESTS,
        scope::TESTS,
        signals::TESTS,
        stacks::TESTS,
        strangers::TESTS,
        tasks::TESTS,
        text_stacks::TESTS,
        top::TESTS,
        viewer::TESTS,
        watch::TESTS,
    ])
}
