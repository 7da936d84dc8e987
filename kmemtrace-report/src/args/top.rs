//! Options of the live screen.

use std::path::PathBuf;

use kmemtrace_abi::text::duration;

/// Options of the live screen.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Print one frame as text: of a finished trace that of its end, or of --from
    #[arg(long, conflicts_with = "batch")]
    pub(crate) once: bool,
    /// Print N frames as text, one a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch: Option<u64>,
    /// Keys to press first: lines of wait TIME, text WORDS, or a key
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Play a finished trace from this time after its first event on: 90s, 1h30m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) from: Option<u64>,
    /// Play a finished trace X times as fast as it happened
    #[arg(long, value_name = "X", value_parser = speed, default_value = "1")]
    pub(crate) speed: f64,
    /// Flush interval of the recorder, where it was asked for another one than 1s: events older than that are shown
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) flush: Option<u64>,
    /// Directory for screens that are saved [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) save_in: Option<PathBuf>,
}

/// Parses a time; in nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    let time = duration::parse(text).and_then(|time| u64::try_from(time).ok());
    time.ok_or_else(|| "a time is a number with a unit: 90s, 1h30m, 200ms".to_owned())
}

/// Parses a speed.
fn speed(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('x').parse::<f64>().ok();
    number.filter(|n| (0.001..=1e6).contains(n)).ok_or_else(|| "a speed is a number from 0.001 to 1000000".to_owned())
}
