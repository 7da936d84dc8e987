//! Pace of a screen beside a recorder: less than half of a CPU's time, so that the machine under watch keeps its own.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time of the clock for each unit of processor time.
const SHARE: f64 = 2.4;
/// Time over which the share holds.
const SPAN: Duration = Duration::from_secs(1);
/// Longest rest at once.
const LONGEST: Duration = Duration::from_millis(250);

/// Processor time of the process since a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    since: Instant,
    used: Duration,
}

/// Processor time of all threads of the process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { since: Instant::now(), used: used() }
    }

    /// Time to rest for, so that the share holds; zero where it does.
    pub(super) fn rest(&mut self) -> Duration {
        let (elapsed, spent) = (self.since.elapsed(), used().saturating_sub(self.used));
        let owed = spent.mul_f64(SHARE).saturating_sub(elapsed);
        if owed.is_zero() && elapsed >= SPAN {
            *self = Pace::new();
        }
        owed.min(LONGEST)
    }
}
