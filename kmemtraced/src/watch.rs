//! `kmemtraced watch`: the command line of a recording of waits for memory, which `kmemtrace-report` prints meanwhile.
//!
//! The recorder decodes nothing: it starts the report, and writes the blocks of all files to its standard input.

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
    let mut viewer = words(&line);
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
    let flush = *args.flush.get_or_insert(FLUSH);
    if args.output.is_none() {
        // A pipe takes blocks as they are faster than the compressor.
        args.compress.get_or_insert(Compression::None);
    }
    viewer.extend(["--flush".into(), format!("{}ns", flush.as_nanos()).into()]);
    args.viewer = Some(viewer);
    Ok(args)
}

/// Words of `kmemtrace-report`.
fn words(line: &WatchArgs) -> Vec<OsString> {
    let mut words = vec!["stalls".to_owned(), "--follow".to_owned(), "-".to_owned()];
    for (option, value) in [("--threshold", &line.threshold), ("--format", &line.format)] {
        words.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
    }
    words.extend(line.all_spans.then(|| "--all-spans".to_owned()));
    words.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{CommandLine, Verb};

    fn args(line: &str) -> anyhow::Result<Args> {
        match CommandLine::try_parse_from(line.split(' ')).unwrap().verb {
            Some(Verb::Watch(args)) => recording(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_report_gets_its_options_and_the_recorder_the_others() {
        let asked =
            args("kmemtraced watch --threshold 5ms --all-spans --format jsonl -e slab,page -B b -- make x").unwrap();
        let words: Vec<_> = asked.viewer.unwrap().into_iter().map(|word| word.into_string().unwrap()).collect();
        assert_eq!(words.join(" "), "stalls --follow - --threshold 5ms --format jsonl --all-spans --flush 200000000ns");
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
