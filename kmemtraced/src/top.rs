//! `kmemtraced top`: the command line of a recording that the live screen shows.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use crate::args::{Args, TopArgs};
use crate::write::compress::Compression;

/// Flush interval where none is asked for.
const FLUSH: Duration = Duration::from_millis(200);

/// Options of the recording.
pub(crate) fn recording(TopArgs { keep, recording }: TopArgs) -> anyhow::Result<Args> {
    let mut args = recording;
    if args.output.is_some() || args.force {
        bail!("top: -o and -f are not for the screen: --keep NAME keeps the recording under a new name");
    }
    if !args.report.is_empty() || args.memstrack.notui {
        bail!("top: prints no reports: keep the recording (--keep NAME), and run kmemtrace-report on it");
    }
    args.flush.get_or_insert(FLUSH);
    if keep.is_none() {
        // A pipe takes blocks as they are faster than the compressor, and without files the last lines say nothing.
        args.compress.get_or_insert(Compression::None);
        args.quiet |= !args.verbose;
    }
    args.output = keep;
    Ok(args)
}

/// Words of `kmemtrace-report`.
pub(crate) fn words(args: &Args) -> Vec<OsString> {
    let flush = format!("{}ns", args.flush.unwrap_or(FLUSH).as_nanos());
    let mut words: Vec<OsString> = ["top", "--viewer", "--flush", &flush].map(OsString::from).into();
    if let Some(name) = args.output.as_deref().and_then(Path::file_name) {
        words.extend(["--title".into(), name.to_owned()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{CommandLine, Verb};

    fn args(line: &str) -> anyhow::Result<Args> {
        match CommandLine::try_parse_from(line.split(' '))?.verb {
            Some(Verb::Top(args)) => recording(*args),
            other => panic!("{other:?}"),
        }
    }

    fn viewers(line: &str) -> String {
        words(&args(line).unwrap()).join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn the_recorder_gets_its_options_and_the_screen_its_name() {
        let kept = args("kmemtraced top -e page --keep a/kept --stack -B b -- make --keep x").unwrap();
        assert_eq!(kept.output.as_deref(), Some(Path::new("a/kept")));
        assert_eq!((kept.flush, kept.compress, kept.quiet, kept.command.len()), (Some(FLUSH), None, false, 3));
        let shown = args("kmemtraced top --flush=1s").unwrap();
        assert_eq!((shown.output, shown.compress, shown.quiet), (None, Some(Compression::None), true));
        assert!(!args("kmemtraced top -v").unwrap().quiet);
        assert_eq!(viewers("kmemtraced top --keep a/kept"), "top --viewer --flush 200000000ns --title kept");
        assert_eq!(viewers("kmemtraced top --flush 1s"), "top --viewer --flush 1000000000ns");
    }

    #[test]
    fn options_that_a_screen_has_no_use_for_are_refused() {
        for line in ["top -o x", "top -f", "top --report sites", "top recover"] {
            assert!(args(&format!("kmemtraced {line}")).is_err(), "{line}");
        }
    }
}
