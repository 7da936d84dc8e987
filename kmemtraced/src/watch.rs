//! `kmemtraced watch`: the command line of a recording of waits for memory, which `kmemtrace-report` prints meanwhile.
//!
//! The recorder decodes nothing: it starts the report, and writes the blocks of all files to its standard input.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};
use kmemtrace_abi::text::duration;

use crate::args::Args;
use crate::write::compress::Compression;

/// Flush interval where none is asked for.
const FLUSH: Duration = Duration::from_millis(200);
/// Events that are recorded beside those that the user asks for.
const PROFILE: &str = "latency";

/// Records who waits for memory, and prints each wait as it ends
#[derive(Debug, Parser)]
#[command(
    name = "kmemtraced watch",
    bin_name = "kmemtraced watch",
    version,
    max_term_width = 80,
    disable_help_subcommand = true,
    after_long_help = "Exit status: that of the recording (0 nothing lost, 1 events were lost, 2 could not start, 3 ended early), or \
                  else of the report; with COMMAND its own, unless the recording's is 2 or 3"
)]
struct Line {
    /// Print waits of this length and longer: 5ms, 134us
    ///
    /// Units: ns, us, ms, s, min (or m), h; a number alone is seconds.
    #[arg(long, value_name = "TIME", value_parser = threshold)]
    threshold: Option<String>,
    /// Print every span, not stalls alone: shrinkers, compaction, kswapd
    #[arg(long)]
    all_spans: bool,
    /// Form of what is printed
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(["table", "jsonl"]))]
    format: Option<String>,
    #[command(flatten)]
    recording: Args,
}

/// Options of the recording, where the command line asks for `watch`; ends the process after help and errors of usage.
pub(crate) fn asked() -> Option<anyhow::Result<Args>> {
    of(&std::env::args_os().collect::<Vec<_>>())
}

/// Error for `watch` behind other words.
pub(crate) fn out_of_place() -> anyhow::Error {
    anyhow!("watch: stands before its options: kmemtraced watch [OPTIONS] [-- COMMAND]")
}

/// The command line: options of a recording, with what differs here.
fn command() -> clap::Command {
    let help = |text: &'static str| move |arg: clap::Arg| arg.help(text).long_help(text);
    let mut command = Line::command()
        .override_usage("kmemtraced watch [OPTIONS] [-- <COMMAND>...]")
        .mut_arg("output", help("Keep the recording in this directory, too; without it there is no file"))
        .mut_arg(
            "events",
            help("Events to record beside those of reclaim: slab, page, percpu, vmalloc, all, or names of events"),
        )
        .mut_arg("flush", |arg| {
            help("Longest time that an event stays in the kernel's buffer [default: 200ms]")(arg)
                .hide_default_value(true)
        })
        .mut_arg("report", |arg| arg.hide(true))
        .mut_arg("relay", |arg| arg.hide(true));
    for verb in command.get_subcommands_mut() {
        *verb = std::mem::take(verb).hide(true);
    }
    command
}

fn of(words: &[OsString]) -> Option<anyhow::Result<Args>> {
    let rest = words.get(2..).filter(|_| words.get(1).is_some_and(|word| word == "watch"))?;
    let typed = [OsString::from("kmemtraced watch")].into_iter().chain(rest.iter().cloned());
    let matches = command().try_get_matches_from(typed).unwrap_or_else(|error| error.exit());
    let has_flush = matches.value_source("flush") == Some(ValueSource::CommandLine);
    let line = Line::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    Some(of_line(line, has_flush))
}

fn of_line(line: Line, has_flush: bool) -> anyhow::Result<Args> {
    let mut viewer = words(&line);
    let mut args = line.recording;
    if args.verb.is_some() {
        bail!("watch: takes no other verb: kmemtraced watch [OPTIONS] [-- COMMAND]");
    }
    if !args.report.is_empty() || args.memstrack.notui {
        bail!("watch: prints no other reports: keep the recording (-o DIR), and run kmemtrace-report on it");
    }
    if args.relay.is_some() {
        bail!("watch: a relay channel has no events of reclaim: leave out --relay");
    }
    if args.force && args.output.is_none() {
        bail!("watch: makes no files without -o DIR: leave out --force");
    }
    let events = args.events.take().unwrap_or_default();
    args.events = Some([PROFILE.to_owned()].into_iter().chain(events).collect());
    if !has_flush {
        args.flush = FLUSH;
    }
    if args.output.is_none() {
        // A pipe takes blocks as they are faster than the compressor.
        args.compress.get_or_insert(Compression::None);
    }
    viewer.extend(["--flush".into(), format!("{}ns", args.flush.as_nanos()).into()]);
    args.viewer = Some(viewer);
    Ok(args)
}

/// Words of `kmemtrace-report`.
fn words(line: &Line) -> Vec<OsString> {
    let mut words = vec!["stalls".to_owned(), "--follow".to_owned(), "-".to_owned()];
    for (option, value) in [("--threshold", &line.threshold), ("--format", &line.format)] {
        words.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
    }
    words.extend(line.all_spans.then(|| "--all-spans".to_owned()));
    words.into_iter().map(OsString::from).collect()
}

/// Checks a threshold before the recording; the report reads the same words.
fn threshold(text: &str) -> Result<String, String> {
    match duration::parse(text).map(u64::try_from) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("a time is 5ms, 134us, 1.5s or 2min".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> anyhow::Result<Args> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        of(&words).unwrap()
    }

    #[test]
    fn the_report_gets_its_options_and_the_recorder_the_others() {
        let asked =
            args("kmemtraced watch --threshold 5ms --all-spans --format jsonl -e slab,page -B b -- make x").unwrap();
        let words: Vec<_> = asked.viewer.unwrap().into_iter().map(|word| word.into_string().unwrap()).collect();
        assert_eq!(words.join(" "), "stalls --follow - --threshold 5ms --format jsonl --all-spans --flush 200000000ns");
        assert_eq!(asked.events.unwrap(), ["latency", "slab", "page"]);
        assert_eq!((asked.flush, asked.instance.as_str(), asked.command.len()), (FLUSH, "b", 2));
        assert_eq!((asked.compress, asked.output), (Some(Compression::None), None));
        let kept = args("kmemtraced watch -o kept --flush 1s").unwrap();
        assert_eq!((kept.flush, kept.compress), (Duration::from_secs(1), None));
    }

    #[test]
    fn options_that_a_stream_has_no_use_for_are_refused() {
        for line in ["watch --report sites", "watch -f", "watch recover", "watch --notui -o x", "watch --relay /x"] {
            assert!(args(&format!("kmemtraced {line}")).is_err(), "{line}");
        }
        assert!(of(&["kmemtraced".into(), "probe".into()]).is_none());
    }
}
