//! `kmemtraced`: records the kernel's memory events into a trace directory.
//!
//! A `source` is where bytes come from: `tracefs` (in an `instance` of its own, or what was filled since `boot`) or the
//! `channel` of the 2008 kmemtrace, both reached through `kernelfs`. A `reader` thread per CPU moves them, a `writer`
//! thread per CPU counts them and puts them (it may `compress` them) into a `block_file`; the `crew` is all of these.
//! `output` is the directory; `record` is the whole from start to end, `closing` its last lines. `messages` writes what there is
//! to say, `signals` takes what others say, `memory` keeps the recorder's own from being taken away.

mod args;
mod block_file;
mod boot;
mod channel;
mod closing;
mod compress;
mod crew;
mod instance;
mod kernelfs;
mod memory;
mod messages;
mod output;
mod probe;
mod reader;
mod record;
mod signals;
mod source;
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
    let mut removed = instance::recover(&tracefs, &args.instance)?;
    removed.extend(boot::recover(&tracefs));
    removed.extend(channel::recover()?);
    let _ = match removed.is_empty() {
        true => writeln!(io::stdout(), "nothing was left behind"),
        false => writeln!(io::stdout(), "removed: {}", removed.join(", ")),
    };
    Ok(0)
}
