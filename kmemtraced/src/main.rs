//! `kmemtraced`: records the kernel's memory events into a trace directory.
//!
//! A `source` is where bytes come from: `tracefs` (in an `instance` of its own, or what was filled since `boot`) or the
//! `channel` of the 2008 kmemtrace, both reached through `kernelfs`. A `reader` thread per CPU moves them, a `writer`
//! thread per CPU counts them and puts them (it may `compress` them) into a `block_file`; the `crew` is all of these. `control` holds
//! the control files, `foreign` tells what others did to them, on the `clock` of the trace. `output` is the directory, a `held_dir`;
//! `state` files tell of what a killed recorder leaves in the kernel, `as_found` of what a buffer was before it was taken over.
//! `record` is the whole from start to end, `closing` its last lines. `meta` is what names things in it. `messages` writes what there
//! is to say, `signals` takes what others say, `memory` keeps the recorder's own from being taken away.

mod args;
mod as_found;
mod block_file;
mod boot;
mod buffer_limit;
mod channel;
mod clock;
mod closing;
mod compress;
mod control;
mod crew;
mod foreign;
mod held_dir;
mod instance;
mod kernelfs;
mod memory;
mod messages;
mod meta;
mod output;
mod own;
mod probe;
mod reader;
mod record;
mod signals;
mod source;
mod state;
mod tracefs;
mod writer;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Verb};

/// Could not start: usage, permission, no source, already running.
const NOT_STARTED: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.verb {
        None => {
            messages::start().map_err(|error| crew::not_started("messages", &error)).and_then(|()| record::record(args))
        }
        Some(Verb::Recover) => recover(&args),
        Some(Verb::Probe) => probe::probe(&args),
    };
    let status = done.unwrap_or_else(|error| {
        messages::say(format!("kmemtraced: {error:#}"));
        NOT_STARTED
    });
    messages::finish(closing::LAST_WORDS);
    ExitCode::from(status)
}

fn recover(args: &Args) -> anyhow::Result<u8> {
    let tracefs = record::tracefs(args)?;
    let (mut removed, foreign) = instance::recover(&tracefs, &args.instance)?;
    removed.extend(boot::recover(&tracefs));
    removed.extend(channel::recover()?);
    let _ = match removed.is_empty() {
        true => writeln!(io::stdout(), "nothing was left behind"),
        false => writeln!(io::stdout(), "removed: {}", removed.join(", ")),
    };
    if let Some(path) = foreign {
        let _ = writeln!(io::stdout(), "left: {} was not made by a recorder: remove it by hand", path.display());
    }
    Ok(0)
}
