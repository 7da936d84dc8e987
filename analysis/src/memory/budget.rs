//! `--max-memory`: an analysis stops with an error before the kernel kills the process.

use std::path::Path;

use crate::error::{AnalysisError, LESS_OF_THE_TRACE};
use crate::memory::room;

/// Smallest default limit, in bytes: reports of ordinary traces need about a fifth of it.
const LEAST: u64 = 256 << 20;
/// Default limit, in bytes, where the system does not tell how much memory is left.
const UNKNOWN: u64 = 1 << 30;
/// Memory of a row, a finding or a pair of CPUs while they are sorted, in bytes, a little more than measured. Documents make
/// their rows one by one.
const SORTED_BYTES: u64 = 64;

/// Limit of the process's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes.
    limit: u64,
    /// The limit was not given as an option.
    is_default: bool,
}

impl Budget {
    /// The limit asked for, in bytes, else a quarter of the memory that the system has left.
    pub(crate) fn new(asked: Option<u64>) -> Budget {
        let limit = asked.unwrap_or_else(|| default_limit(room::left(Path::new("/proc"))));
        Budget { limit, is_default: asked.is_none() }
    }

    /// Bytes that are left beside the process's present memory and what it `reserves` for buffers. An eighth of the limit is
    /// headroom for memory that is not counted: call-sites, findings, fragments of the allocator.
    pub(crate) fn left(self, reserves: u64) -> u64 {
        (self.limit - self.limit / 8).saturating_sub(resident()).saturating_sub(reserves)
    }

    /// True where the process takes more by now.
    pub(crate) fn is_exceeded(self) -> bool {
        resident() > self.limit
    }

    /// Error of a pass that stops after this many events: `what` needs more memory, and `less` is a remedy.
    pub(crate) fn exceeded(self, what: &'static str, events: u64, less: &'static str) -> AnalysisError {
        AnalysisError::Memory { what, limit: self.limit, is_default: self.is_default, events, less }
    }

    /// Checks the limit before this many rows are sorted.
    pub(crate) fn check_sorted(self, rows: usize, events: u64) -> Result<(), AnalysisError> {
        self.check_bytes(rows as u64 * SORTED_BYTES, events)
    }

    /// Checks the limit before rows take this many bytes.
    pub(crate) fn check_bytes(self, bytes: u64, events: u64) -> Result<(), AnalysisError> {
        if bytes > self.left(0) {
            return Err(self.exceeded("rows of the report", events, LESS_OF_THE_TRACE));
        }
        Ok(())
    }
}

/// The default limit, in bytes, of a system with `left` bytes left.
fn default_limit(left: Option<u64>) -> u64 {
    left.map_or(UNKNOWN, |left| (left / 4).max(LEAST))
}

/// Bytes of the process in memory; 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_takes_is_not_left() {
        let of = |limit| Budget::new(Some(limit));
        assert!(of(1 << 10).is_exceeded() && !of(1 << 40).is_exceeded());
        assert_eq!(of(1 << 10).left(0), 0);
        let left = of(1 << 40).left(1 << 39);
        assert!((1 << 37..1 << 39).contains(&left), "{left}");
        assert!(of(1 << 40).check_sorted(1 << 20, 0).is_ok() && of(64 << 20).check_sorted(1 << 20, 0).is_err());
        assert!(!Budget::new(None).is_exceeded());
    }

    #[test]
    fn the_default_is_a_quarter_of_what_is_left_and_never_too_little() {
        for (left, limit) in
            [(None, 1 << 30), (Some(0), 256 << 20), (Some(1 << 30), 256 << 20), (Some(8 << 30), 2 << 30)]
        {
            assert_eq!(default_limit(left), limit, "{left:?}");
        }
    }
}
