//! `--max-memory`: an analysis stops with an error before the kernel kills the process.

use kmemtrace_abi::memory::{self, Limit, resident};

use crate::error::{AnalysisError, LESS_OF_THE_TRACE};

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
    /// The limit asked for, in bytes, else that of the process, else the system's default.
    pub(crate) fn new(asked: Option<u64>) -> Budget {
        let of_process = || memory::limit().unwrap_or_else(|| Limit::new(None));
        let limit = asked.map_or_else(of_process, |bytes| Limit::new(Some(bytes)));
        Budget { limit: limit.bytes, is_default: limit.is_default }
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
}
