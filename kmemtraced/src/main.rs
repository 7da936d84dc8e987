//! `kmemtraced`: records the kernel's memory events from tracefs into a trace directory.
//!
//! `tracefs` finds the kernel's files and works in an instance of its own; a `reader` thread per CPU moves bytes, a
//! `writer` thread per CPU seals and writes them; `output` is the directory; `record` is the whole from start to end.

mod args;
mod output;
mod reader;
mod record;
mod tracefs;
mod writer;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Verb};
use tracefs::Tracefs;

/// Could not start: usage, permission, no source, already running.
const NOT_STARTED: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.verb {
        None => record::record(&args),
        Some(Verb::Recover) => recover(&args.instance),
        Some(Verb::Probe) => probe(),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(io::stderr(), "kmemtraced: {error:#}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn recover(instance: &str) -> anyhow::Result<u8> {
    let removed = tracefs::recover(&Tracefs::find()?, instance)?;
    let mut out = io::stdout();
    let _ = match removed.is_empty() {
        true => writeln!(out, "nothing was left behind"),
        false => writeln!(out, "removed: {}", removed.join(", ")),
    };
    Ok(0)
}

fn probe() -> anyhow::Result<u8> {
    let tracefs = Tracefs::find()?;
    let read =
        |file: &str| tracefs::read_control(&tracefs.root.join(file)).unwrap_or_else(|e| format!("not readable ({e})"));
    let names = |dir: &str| {
        let entries = std::fs::read_dir(tracefs.root.join(dir)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let events: Vec<String> = names("events/kmem").into_iter().filter(|n| n != "enable" && n != "filter").collect();
    let mut out = io::stdout();
    let _ = writeln!(out, "tracefs    {}", tracefs.root.display());
    let _ = writeln!(
        out,
        "instances  {}",
        if tracefs.root.join("instances").exists() { "yes" } else { "no: cannot record" }
    );
    let _ = writeln!(out, "events     {}", events.join(" "));
    let _ = writeln!(out, "clocks     {}", read("trace_clock").trim());
    let cpus = names("per_cpu").len();
    let _ = writeln!(out, "CPUs       {cpus}: the default buffers take {} MiB", 16 * cpus);
    Ok(0)
}
