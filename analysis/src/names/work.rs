//! Steps and memory that a file of names may take.
//!
//! Some kilobytes of debug information can refer to one another so that reading them takes hours, or gigabytes. Every loop over the
//! contents of such a file counts its steps. A file that takes more than its size explains names nothing.

use kmemtrace_abi::memory::{Meter, OverLimit};

/// Steps that any file may take: half a second of a processor.
const LEAST_STEPS: u64 = 1 << 24;
/// Steps for each stored byte: ten seconds for a MiB. A distribution's kernel takes less than one.
const STEPS_OF_BYTE: u64 = 512;
/// Bytes that are compared, searched or hashed in one step.
const BYTES_OF_STEP: u64 = 64;

/// Reason for which a file of names is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Spent {
    /// More steps than its size explains.
    #[error("it takes more steps to read than any real file of its size: it is damaged, or made to keep readers busy")]
    Steps,
    /// It unpacks to far more bytes than its packed size explains.
    #[cfg_attr(not(feature = "dwarf"), expect(dead_code, reason = "only files of names are unpacked"))]
    #[error("it is too large when unpacked: if it is real, unpack it first")]
    Unpacked,
    /// More memory than the process may take.
    #[error(transparent)]
    Memory(#[from] OverLimit),
}

/// Steps that are left, and the memory that was taken.
#[derive(Debug)]
pub(crate) struct Work {
    left: u64,
    meter: Meter,
    spent: Option<Spent>,
}

impl Work {
    /// Work that a file of this many stored bytes may take.
    pub(crate) fn of(stored: u64) -> Work {
        let left = stored.saturating_mul(STEPS_OF_BYTE).saturating_add(LEAST_STEPS);
        Work { left, meter: Meter::default(), spent: None }
    }

    /// Work of a file that took too much already.
    #[cfg_attr(not(feature = "dwarf"), expect(dead_code, reason = "only files of names end so"))]
    pub(crate) fn done(spent: Spent) -> Work {
        Work { left: 0, meter: Meter::default(), spent: Some(spent) }
    }

    /// Takes steps.
    pub(crate) fn take(&mut self, steps: u64) -> Result<(), Spent> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(*self.spent.get_or_insert(Spent::Steps))
            }
        }
    }

    /// Takes the steps of looking at this many bytes.
    pub(crate) fn look_at(&mut self, bytes: usize) -> Result<(), Spent> {
        self.take((bytes as u64 / BYTES_OF_STEP).saturating_add(1))
    }

    /// Takes memory that is about to be allocated, in bytes.
    pub(crate) fn keep(&mut self, bytes: usize) -> Result<(), Spent> {
        self.meter.take(bytes as u64).map_err(|over| *self.spent.get_or_insert(Spent::Memory(over)))
    }

    /// The reason, once too much was asked for.
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.spent
    }
}

impl Default for Work {
    fn default() -> Work {
        Work::of(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_and_stay_at_an_end() {
        let mut work = Work::of(1);
        assert_eq!(work.take(LEAST_STEPS), Ok(()));
        assert_eq!(work.look_at(64 * 511 - 1), Ok(()));
        assert_eq!((work.spent(), work.take(2)), (None, Err(Spent::Steps)));
        assert_eq!((work.spent(), work.take(1)), (Some(Spent::Steps), Err(Spent::Steps)));
        assert_eq!(work.keep(1 << 30), Ok(()), "without a limit of the process");
    }
}
