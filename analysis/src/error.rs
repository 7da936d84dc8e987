//! Reasons for which an analysis ends without figures.

use std::path::PathBuf;

use kmemtrace_abi::memory::Limit;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units;
use kmemtrace_abi::trace::OpenError;

use crate::names::error::NamesError;

/// Advice for a run that needs too much memory.
pub(crate) const LESS_OF_THE_TRACE: &str = "take less of the trace with --time";

/// Reason for which an analysis has no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The trace could not be opened again, after it had changed while it was read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The limit on memory would be exceeded.
    #[error("{}", memory_message(.what, *.limit, *.is_default, *.events, .less))]
    Memory {
        /// Memory that grew beyond the limit, in words.
        what: &'static str,
        /// The limit, in bytes.
        limit: u64,
        /// The limit is the system's default, and no caller asked for it.
        is_default: bool,
        /// Events taken so far.
        events: u64,
        /// Advice that would need less memory.
        less: &'static str,
    },
    /// A time of the window has a unit, and the trace's clock counts no seconds.
    #[error(
        "--time: this trace's clock ({clock}) counts no seconds: give ticks or numbers, as +601, or percent, without a unit"
    )]
    NoSeconds {
        /// The clock's name, or `none`.
        clock: String,
    },
    /// Live figures go by seconds, and the trace's clock counts none.
    #[error(
        "this trace's clock ({clock}) counts no seconds, by which live figures go: record with --clock mono, or read it with other views"
    )]
    NoLiveSeconds {
        /// The clock's name, or `none`.
        clock: String,
    },
    /// The window counts from the end of the trace, and the input can be read only once.
    #[error(
        "--time: this input can be read only once, and the end of the trace is known too late: give times from its begin"
    )]
    EndUnknown,
    /// The peak is known at the end, and the input can be read only once.
    #[error("--at peak: this input can be read only once, and the peak is known too late: give a time")]
    PeakUnknown,
    /// An earlier run has read the trace: a trace is opened anew for each.
    #[error("the trace was read by an earlier run: open it again")]
    AlreadyRead,
    /// A saved document cannot be read, or does not answer the query.
    #[error("{}: {why}", escape(.path.as_os_str().as_encoded_bytes()))]
    Document {
        /// Path of the document.
        path: PathBuf,
        /// Reason and remedy.
        why: String,
    },
    /// A file of names that was asked for cannot be used.
    #[error(transparent)]
    Names(#[from] NamesError),
    /// A thread ended early.
    #[error("a thread has failed")]
    Thread,
    /// More different allocations than there are numbers for them.
    #[error("the trace has more than {limit} different allocations: take less of it with --time")]
    TooMany {
        /// Largest number of them.
        limit: u32,
    },
}

/// The sentence of [`AnalysisError::Memory`], with the option that allows more.
fn memory_message(what: &str, limit: u64, is_default: bool, events: u64, less: &str) -> String {
    let after = format!(" after {} events", units::grouped(events));
    Limit { bytes: limit, is_default }.message(what, &after, &format!(", or {less}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_tells_how_to_allow_more_memory() {
        let words = |limit, is_default| {
            let (what, events, less) = ("live objects", 1_234_567, "take less");
            AnalysisError::Memory { what, limit, is_default, events, less }.to_string()
        };
        assert_eq!(
            words(64 << 20, false),
            "live objects need more than the 64.0 MiB of --max-memory after 1,234,567 events: allow more with --max-memory 128M, or take less"
        );
        let default = words(3 << 29, true);
        assert!(default.contains("1.50 GiB of --max-memory (its default here) after"), "{default}");
        assert!(default.contains("allow more with --max-memory 4G, or"), "{default}");
    }
}
