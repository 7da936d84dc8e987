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
//! - `top`: a recorder and the live screen as processes of one command;
//! - `watch`: the command line of a recorder with a program that prints waits for memory meanwhile.

mod args;
mod choices;
mod control;
mod fs;
mod output;
mod probe;
mod process;
mod record;
mod recover;
mod source;
mod top;
mod watch;
mod write;

use std::process::ExitCode;

use args::{Args, CommandLine, NOT_STARTED, Verb};
use process::{limits, messages, thread};
use record::shutdown;

fn main() -> ExitCode {
    kmemtrace_fence::with_stack(work)
}

fn work() -> ExitCode {
    let CommandLine { verb, args } = CommandLine::of_process();
    let done = match verb {
        // The recorder is a process of its own there, with its own messages and signals.
        Some(Verb::Top(args)) => return ExitCode::from(top::top(*args)),
        Some(Verb::Watch(args)) => watch::recording(*args).and_then(record),
        Some(Verb::Recover) => recover::recover(&args),
        Some(Verb::Probe) => probe::probe(&args),
        Some(Verb::Completions { shell }) => {
            clap_complete::generate(shell, &mut args::program(), "kmemtraced", &mut std::io::stdout());
            return ExitCode::SUCCESS;
        }
        None => record(args),
    };
    let status = done.unwrap_or_else(|error| {
        messages::say(format!("kmemtraced: {error:#}"));
        NOT_STARTED
    });
    messages::finish(shutdown::LAST_WORDS);
    ExitCode::from(status)
}

fn record(args: Args) -> anyhow::Result<u8> {
    limits::raise_open_files();
    messages::start(args.priority).map_err(|error| thread::not_started("messages", &error))?;
    record::record(args)
}
