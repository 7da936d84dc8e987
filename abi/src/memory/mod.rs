//! Memory that the process may take: `--max-memory` of a program, which holds for all that it does.
//!
//! A small file can ask for a lot of memory: compressed texts, tables that refer to one another, one long name for many addresses.
//! What grows with the contents of a file is metered before it is taken. The limit is one for the process, as its memory is.

mod room;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::text::units;

/// Smallest default limit, in bytes: reports of ordinary traces need about a fifth of it.
const LEAST: u64 = 256 << 20;
/// Default limit, in bytes, where the system does not tell how much memory is left.
const UNKNOWN: u64 = 1 << 30;
/// Bytes that a [`Meter`] lets pass between two looks at the process, which take 20 µs each.
const BETWEEN_LOOKS: u64 = 1 << 20;

/// The limit in bytes; 0 for none.
static LIMIT: AtomicU64 = AtomicU64::new(0);
static IS_DEFAULT: AtomicBool = AtomicBool::new(false);

/// Limit of the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// The limit was not given as an option.
    pub is_default: bool,
}

impl Limit {
    /// The limit asked for, in bytes, else a quarter of the memory that the system has left.
    pub fn new(asked: Option<u64>) -> Limit {
        let bytes = asked.unwrap_or_else(|| default_limit(room::left(Path::new("/proc"))));
        Limit { bytes, is_default: asked.is_none() }
    }

    /// The sentence for `what`, in the plural, that needs more than the limit; `after` follows the limit, and `less` is another remedy.
    pub fn message(self, what: &str, after: &str, less: &str) -> String {
        let (shown, more) = (units::bytes(self.bytes), more_than(self.bytes));
        let whose = if self.is_default { " (its default here)" } else { "" };
        format!(
            "{what} need more than the {shown} of --max-memory{whose}{after}: allow more with --max-memory {more}{less}"
        )
    }

    /// True if the process would take more than the share of the limit that is left to `bytes` of this kind.
    fn is_over(self, bytes: u64) -> bool {
        // The rest is for the events, and for fragments of the allocator.
        resident().saturating_add(bytes) > self.bytes.saturating_sub(self.bytes / 4)
    }
}

/// Sets the limit of this process. Without a call there is none.
pub fn set_limit(limit: Limit) {
    IS_DEFAULT.store(limit.is_default, Ordering::Relaxed);
    LIMIT.store(limit.bytes.max(1), Ordering::Relaxed);
}

/// The limit of this process.
pub fn limit() -> Option<Limit> {
    let (bytes, is_default) = (LIMIT.load(Ordering::Relaxed), IS_DEFAULT.load(Ordering::Relaxed));
    (bytes > 0).then_some(Limit { bytes, is_default })
}

/// More memory than the limit allows to what comes before and besides the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message("its contents", "", ""))]
pub struct OverLimit(Limit);

/// Checks that the process may take this many bytes more.
///
/// # Errors
/// [`OverLimit`] if three quarters of the limit do not suffice for them.
pub fn check(bytes: u64) -> Result<(), OverLimit> {
    limit().filter(|limit| limit.is_over(bytes)).map_or(Ok(()), |limit| Err(OverLimit(limit)))
}

/// Meter of memory that is taken in small parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    unseen: u64,
}

impl Meter {
    /// Takes this many bytes, which the caller is about to allocate.
    ///
    /// # Errors
    /// [`OverLimit`], as [`check`].
    pub fn take(&mut self, bytes: u64) -> Result<(), OverLimit> {
        self.unseen = self.unseen.saturating_add(bytes);
        if self.unseen < BETWEEN_LOOKS {
            return Ok(());
        }
        check(std::mem::take(&mut self.unseen))
    }
}

/// The default limit, in bytes, of a system with `left` bytes left.
fn default_limit(left: Option<u64>) -> u64 {
    left.map_or(UNKNOWN, |left| (left / 4).max(LEAST))
}

/// Bytes of the process in memory; 0 where the system does not say.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// At least twice a limit, as the option takes it.
fn more_than(limit: u64) -> String {
    let more = limit.max(1 << 20).saturating_mul(2).checked_next_power_of_two().unwrap_or(1 << 63);
    if more < 1 << 30 { format!("{}M", more >> 20) } else { format!("{}G", more >> 30) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_quarter_of_what_is_left_and_never_too_little() {
        for (left, limit) in
            [(None, 1 << 30), (Some(0), 256 << 20), (Some(1 << 30), 256 << 20), (Some(8 << 30), 2 << 30)]
        {
            assert_eq!(default_limit(left), limit, "{left:?}");
        }
    }

    #[test]
    fn what_the_process_takes_counts() {
        let of = |bytes| Limit { bytes, is_default: false };
        assert!(of(1 << 10).is_over(0) && of(1 << 40).is_over(1 << 40) && !of(1 << 40).is_over(1 << 30));
        assert!(resident() > 1 << 20);
    }

    #[test]
    fn twice_the_limit_is_advised() {
        for (limit, more) in [(1, "2M"), (100 << 20, "256M"), (1 << 30, "2G"), (u64::MAX, "8589934592G")] {
            assert_eq!(more_than(limit), more);
        }
        let limit = Limit { bytes: 64 << 20, is_default: true };
        assert_eq!(
            OverLimit(limit).to_string(),
            "its contents need more than the 64.0 MiB of --max-memory (its default here): allow more with --max-memory 128M"
        );
    }
}
