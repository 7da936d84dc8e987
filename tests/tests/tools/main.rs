//! What needs a program that not every machine has: a browser, a compiler, readers of the formats that the report writes.
//! Tests that cannot run here are listed as skipped at the end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command_line;
mod data_frames;
mod debug_info;
mod fleet;
mod fuzz;
mod mutated;
mod one_command;
mod opening;
mod packages;
mod page;
mod quickstart;
mod read_once;
mod sandbox;
mod screens;
mod static_sizes;
mod trace_cmd;
mod viewers;

use std::process::ExitCode;

fn main() -> ExitCode {
    kmemtrace_tests::runner::main(&[
        command_line::TESTS,
        data_frames::TESTS,
        debug_info::TESTS,
        fleet::TESTS,
        fuzz::TESTS,
        mutated::TESTS,
        one_command::TESTS,
        opening::TESTS,
        packages::TESTS,
        page::TESTS,
        quickstart::TESTS,
        read_once::TESTS,
        sandbox::TESTS,
        screens::TESTS,
        static_sizes::TESTS,
        trace_cmd::TESTS,
        viewers::TESTS,
    ])
}
