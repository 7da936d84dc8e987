//! Command line of `kmemtraced top`: options of a recording, and `--keep`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;

use crate::args::Args;
use crate::fs::held_dir::random_digits;

/// Flush interval where none is asked for.
const FLUSH: &str = "200ms";
/// Bytes of all files that stay where the recording is not kept.
const KEPT: &str = "64M";

/// Records into a private directory, and shows who takes memory now.
#[derive(Debug, Parser)]
#[command(
    name = "kmemtraced top",
    bin_name = "kmemtraced top",
    version,
    max_term_width = 80,
    disable_help_subcommand = true
)]
struct Line {
    /// Keep the whole recording in this directory
    ///
    /// Without it the recording stands among the temporary files, older events are given back to the file system from 64 MiB on,
    /// and all of it is removed at the end.
    #[arg(long, value_name = "NAME")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    recording: Args,
}

/// Options of `kmemtraced top`.
#[derive(Debug)]
pub(super) struct Options {
    /// Trace directory.
    pub(super) dir: PathBuf,
    pub(super) keeps: bool,
    pub(super) flush: Duration,
    pub(super) instance: String,
    /// Words of the recorder that the user has typed, before and after `--`.
    words: (Vec<OsString>, Vec<OsString>),
    has_flush: bool,
    is_quiet: bool,
}

impl Options {
    /// Options, where the command line asks for the screen; ends the process after help and errors of usage.
    pub(super) fn of(words: &[OsString]) -> Option<anyhow::Result<Options>> {
        let rest = words.get(2..).filter(|_| words.get(1).is_some_and(|word| word == "top"))?;
        let typed = [OsString::from("kmemtraced top")].into_iter().chain(rest.iter().cloned());
        let line = Line::try_parse_from(typed).unwrap_or_else(|error| error.exit());
        Some(Options::of_line(line, rest))
    }

    fn of_line(line: Line, rest: &[OsString]) -> anyhow::Result<Options> {
        let Line { keep, recording } = line;
        if recording.verb.is_some() {
            bail!("top: takes no other verb: kmemtraced top [OPTIONS] [-- COMMAND]");
        }
        if recording.output.is_some() || recording.force {
            bail!("top: -o and -f are not for the screen: --keep NAME keeps the recording under a new name");
        }
        if !recording.report.is_empty() || recording.memstrack.notui {
            bail!("top: prints no reports: keep the recording (--keep NAME), and run kmemtrace-report on it");
        }
        let dashes = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
        let (ours, command) = rest.split_at(dashes);
        let has_flush = ours.iter().any(|word| is_option(word, "--flush"));
        let dir = match &keep {
            Some(name) => name.clone(),
            None => std::env::temp_dir().join(format!("kmemtrace-top-{}", random_digits()?)),
        };
        Ok(Options {
            dir,
            keeps: keep.is_some(),
            flush: if has_flush { recording.flush } else { Duration::from_millis(200) },
            instance: recording.instance,
            words: (without_keep(ours), command.to_vec()),
            has_flush,
            is_quiet: recording.quiet || recording.verbose || keep.is_some(),
        })
    }

    /// Words of the recorder's command line.
    pub(super) fn recorder_words(&self, reader: Option<(u32, u32)>) -> Vec<OsString> {
        let (ours, command) = &self.words;
        let mut words = ours.clone();
        words.extend(["-o".into(), self.dir.clone().into()]);
        if !self.has_flush {
            words.extend(["--flush", FLUSH].map(OsString::from));
        }
        if !self.keeps {
            words.extend(["--free-behind", KEPT].map(OsString::from));
        }
        if !self.is_quiet {
            // A path says nothing once the recording is gone.
            words.push("--quiet".into());
        }
        let (user, group) =
            reader.unwrap_or((rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()));
        words.extend(["--reader".into(), format!("{user}:{group}").into()]);
        words.extend(command.iter().cloned());
        words
    }
}

fn is_option(word: &OsStr, option: &str) -> bool {
    word == option || word.to_str().is_some_and(|word| word.split_once('=').is_some_and(|(name, _)| name == option))
}

/// The words without `--keep NAME`.
fn without_keep(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.iter();
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        if word == "--keep" {
            words.next();
        } else if !is_option(word, "--keep") && !word.as_encoded_bytes().starts_with(b"--keep=") {
            rest.push(word.clone());
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> anyhow::Result<Vec<String>> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let options = Options::of(&words).unwrap()?;
        let words = options.recorder_words(Some((1000, 100)));
        Ok(words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn the_recorder_gets_its_options_and_command() {
        let of = |line: &str| words(line).unwrap().join(" ");
        assert_eq!(
            of("kmemtraced top -e page --keep kept --stack -B b -- make --keep x"),
            "-e page --stack -B b -o kept --flush 200ms --reader 1000:100 -- make --keep x"
        );
        let private = of("kmemtraced top --flush=1s");
        assert!(private.starts_with("--flush=1s -o ") && private.contains("/kmemtrace-top-"), "{private}");
        assert!(private.ends_with(" --free-behind 64M --quiet --reader 1000:100"), "{private}");
        assert_eq!(of("kmemtraced top --keep=kept --flush 1s"), "--flush 1s -o kept --reader 1000:100");
    }

    #[test]
    fn options_that_a_screen_has_no_use_for_are_refused() {
        for line in ["top -o x", "top -f", "top --report sites", "top recover"] {
            assert!(words(&format!("kmemtraced {line}")).is_err(), "{line}");
        }
        assert!(Options::of(&["kmemtraced".into(), "probe".into()]).is_none());
    }
}
