//! `kmemtraced watch`: the command line of a recording of waits for memory, which `kmemtrace-report` prints meanwhile.
//!
//! The recorder decodes nothing: it writes the blocks of all files to the standard input of the report.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::bail;

use crate::args::{Args, WatchArgs};
use crate::write::compress::Compression;

/// Flush interval where none is asked for.
const FLUSH: Duration = Duration::from_millis(200);
/// Events that are recorded beside those that the user asks for.
const PROFILE: &str = "latency";

/// Options of the recording.
pub(crate) fn recording(line: WatchArgs) -> anyhow::Result<Args> {
    let mut args = line.recording;
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
    args.flush.get_or_insert(FLUSH);
    args.prints_stream = true;
    if args.output.is_none() {
        // A pipe takes blocks as they are faster than the compressor.
        args.compress.get_or_insert(Compression::None);
    }
    Ok(args)
}

/// Words of `kmemtrace-report`.
pub(crate) fn words(line: &WatchArgs) -> Vec<OsString> {
    let mut words = ["stalls", "--follow", "-", "--viewer"].map(str::to_owned).to_vec();
    for (option, value) in [("--threshold", &line.threshold), ("--format", &line.format)] {
        words.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
    }
    words.extend(line.all_spans.then(|| "--all-spans".to_owned()));
    words.extend(["--flush".to_owned(), format!("{}ns", line.recording.flush.unwrap_or(FLUSH).as_nanos())]);
    words.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{CommandLine, Verb};

    fn typed(line: &str) -> WatchArgs {
        match CommandLine::try_parse_from(line.split(' ')).unwrap().verb {
            Some(Verb::Watch(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn args(line: &str) -> anyhow::Result<Args> {
        recording(typed(line))
    }

    #[test]
    fn the_report_gets_its_options_and_the_recorder_the_others() {
        let line = "kmemtraced watch --threshold 5ms --all-spans --format jsonl -e slab,page -B b -- make x";
        let asked = args(line).unwrap();
        assert_eq!(
            words(&typed(line)).join(" ".as_ref()).into_string().unwrap(),
            "stalls --follow - --viewer --threshold 5ms --format jsonl --all-spans --flush 200000000ns"
        );
        assert_eq!(asked.events.unwrap(), ["latency", "slab", "page"]);
        assert_eq!((asked.flush, asked.instance.as_str(), asked.command.len()), (Some(FLUSH), "b", 2));
        assert_eq!((asked.compress, asked.output), (Some(Compression::None), None));
        let kept = args("kmemtraced watch -o kept --flush 1s").unwrap();
        assert_eq!((kept.flush, kept.compress), (Some(Duration::from_secs(1)), None));
    }

    #[test]
    fn options_that_a_stream_has_no_use_for_are_refused() {
        for line in ["watch --report sites", "watch -f", "watch --notui -o x", "watch --relay /x"] {
            assert!(args(&format!("kmemtraced {line}")).is_err(), "{line}");
        }
    }
}
