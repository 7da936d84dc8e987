//! Command line of `kmemtraced top`: options of a recording, and `--keep`.

use std::ffi::OsString;
use std::mem;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use crate::args::TopArgs;
use crate::fs::held_dir::random_digits;

/// Flush interval where none is asked for.
const FLUSH: Duration = Duration::from_millis(200);
/// Bytes of all files that stay where the recording is not kept.
const KEPT: &str = "64M";

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
    /// Options from those that were parsed and the words behind `top`.
    pub(super) fn of(TopArgs { keep, recording }: TopArgs, rest: &[OsString]) -> anyhow::Result<Options> {
        if recording.output.is_some() || recording.force {
            bail!("top: -o and -f are not for the screen: --keep NAME keeps the recording under a new name");
        }
        if !recording.report.is_empty() || recording.memstrack.notui {
            bail!("top: prints no reports: keep the recording (--keep NAME), and run kmemtrace-report on it");
        }
        let dashes = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
        let (ours, command) = rest.split_at(dashes);
        let dir = match &keep {
            Some(name) => name.clone(),
            None => std::env::temp_dir().join(format!("kmemtrace-top-{}", random_digits()?)),
        };
        Ok(Options {
            dir,
            keeps: keep.is_some(),
            flush: recording.flush.unwrap_or(FLUSH),
            instance: recording.instance,
            words: (without_keep(ours), command.to_vec()),
            has_flush: recording.flush.is_some(),
            is_quiet: recording.quiet || recording.verbose || keep.is_some(),
        })
    }

    /// Words of the recorder's command line.
    pub(super) fn recorder_words(&self, reader: Option<(u32, u32)>) -> Vec<OsString> {
        let (ours, command) = &self.words;
        let mut words = ours.clone();
        words.extend(["-o".into(), self.dir.clone().into()]);
        if !self.has_flush {
            words.extend(["--flush".into(), format!("{}ms", FLUSH.as_millis()).into()]);
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

/// The words without `--keep NAME`.
fn without_keep(words: &[OsString]) -> Vec<OsString> {
    let mut is_name = false;
    let is_other = |word: &&OsString| {
        let was_name = mem::replace(&mut is_name, *word == "--keep");
        !is_name && !was_name && !word.as_encoded_bytes().starts_with(b"--keep=")
    };
    words.iter().filter(is_other).cloned().collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{CommandLine, Verb};

    fn words(line: &str) -> anyhow::Result<Vec<String>> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let Some(Verb::Top(args)) = CommandLine::try_parse_from(&words)?.verb else { panic!("{line}") };
        let options = Options::of(*args, &words[2..])?;
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
    }
}
