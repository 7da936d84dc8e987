//! `kmemtraced`: records the kernel's memory events into a trace directory.
//!
//! Rooms, each built on those before it:
//! - `fs`: directories held by descriptor, of the kernel and of the user;
//! - `process`: messages, signals, memory and threads of the recorder itself;
//! - `control`: control files, watched for changes by other programs;
//! - `source`: kernel buffers to record from, set up and undone;
//! - `output`: the trace directory;
//! - `write`: threads that move bytes from a source into files;
//! - `record`: a recording from start to end, and its exit status;
//! - `help`: help, through a pager where it is long;
//! - `doctor`: what this machine offers;
//! - `viewer`: a recorder and the program that shows what it records, as processes of one command;
//! - `top` and `watch`: the command lines of a recorder with the live screen, and with a program that prints waits for memory.

mod args;
mod choices;
mod control;
mod doctor;
mod fs;
mod help;
mod options_of_others;
mod output;
mod process;
mod record;
mod recover;
mod source;
mod top;
mod viewer;
mod watch;
mod write;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use args::{CommandLine, NOT_STARTED, Verb};
use kmemtrace_abi::text::escape::{escape, is_harmful};
use kmemtrace_sandbox::pager;
use process::messages;
use record::shutdown;

fn main() -> ExitCode {
    kmemtrace_fence::small_stack("kmemtraced").unwrap_or_else(run)
}

/// The program, once its stack is known to be large enough. Its frame is no part of `main`, which has to fit in the smallest of stacks.
#[inline(never)]
fn run() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == pager::WORD) {
        return pager::wait_for_text();
    }
    let CommandLine { verb, args } = match CommandLine::of_process() {
        Ok(line) => line,
        Err(text) => return help::print(&text),
    };
    let done = match verb {
        // The recorder is a process of its own there.
        Some(Verb::Top(args)) if args.recording.served => top::recording(*args).and_then(record::record),
        Some(Verb::Top(args)) => viewer::top(*args),
        Some(Verb::Watch(args)) if args.recording.served => watch::recording(*args).and_then(record::record),
        Some(Verb::Watch(args)) => viewer::watch(*args),
        Some(Verb::Recover) => recover::recover(&args),
        Some(Verb::Doctor { quick }) => doctor::doctor(&args, quick),
        Some(Verb::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::program(), "kmemtraced", &mut script);
            let mut stdout = std::io::stdout();
            stdout
                .write_all(&script)
                .and_then(|()| stdout.flush())
                .map(|()| 0)
                .context("standard output: cannot be written")
        }
        None => record::record(args),
    };
    let status = done.unwrap_or_else(|error| {
        // Words of the command line may be in it, which a terminal would act on.
        let shown =
            |c: char| if is_harmful(c) { escape(c.encode_utf8(&mut [0; 4]).as_bytes()).into_owned() } else { c.into() };
        messages::say(format!("kmemtraced: {error:#}").chars().map(shown).collect::<String>());
        NOT_STARTED
    });
    messages::finish(shutdown::LAST_WORDS);
    ExitCode::from(status)
}
