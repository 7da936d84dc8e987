//! How busy each CPU is, for writers that choose between less time and less room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::fs::kernelfs::{KernelFs, PROC};

/// Interval between two looks at the machine.
const INTERVAL: Duration = Duration::from_secs(1);
/// A CPU that was idle for a smaller part of the last interval is busy; percent.
const BUSY_BELOW: u64 = 10;
/// An interval with a greater part idle is a calm one; percent.
const CALM_ABOVE: u64 = 30;
/// Calm intervals in a row, and seconds without a waiting block, after which a writer is idle again.
const CALM: u64 = 3;

/// Idle time of a CPU, shared by the thread that reads it and the writer. As long as it cannot be read the CPU counts as idle.
#[derive(Clone, Debug)]
pub(crate) struct CpuLoad(Arc<Shared>);

/// Figures of the last interval.
#[derive(Debug)]
struct Shared {
    is_busy: AtomicBool,
    /// Calm intervals in a row.
    calm: AtomicU64,
}

impl Default for CpuLoad {
    fn default() -> CpuLoad {
        CpuLoad(Arc::new(Shared { is_busy: AtomicBool::new(false), calm: AtomicU64::new(CALM) }))
    }
}

/// Times of a CPU since the boot, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    idle: u64,
    all: u64,
}

/// Reads the idle times of all CPUs once a second.
#[derive(Debug)]
pub(crate) struct LoadWatch {
    cpus: BTreeMap<u32, (CpuLoad, Option<Times>)>,
    due: Instant,
}

impl LoadWatch {
    /// Watches these CPUs.
    pub(crate) fn new(cpus: impl IntoIterator<Item = (u32, CpuLoad)>) -> LoadWatch {
        LoadWatch { cpus: cpus.into_iter().map(|(cpu, load)| (cpu, (load, None))).collect(), due: Instant::now() }
    }

    /// Reads `/proc/stat` where a second has passed since the last time.
    pub(crate) fn look(&mut self) {
        if self.cpus.is_empty() || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + INTERVAL;
        let text = KernelFs::find(&PROC).and_then(|proc| proc.get("stat")).unwrap_or_default();
        self.take(&text);
    }

    fn take(&mut self, stat: &str) {
        for line in stat.lines() {
            let Some((cpu, times)) = parse(line) else { continue };
            let Some((load, before)) = self.cpus.get_mut(&cpu) else { continue };
            if let Some(before) = before.replace(times) {
                load.set(times.idle.saturating_sub(before.idle), times.all.saturating_sub(before.all));
            }
        }
    }
}

/// Times of a CPU in a line of `/proc/stat`: `cpuN user nice system idle iowait irq softirq steal guest guest_nice`. Guest time is
/// part of user and nice.
fn parse(line: &str) -> Option<(u32, Times)> {
    // The line of all CPUs has a space behind `cpu`.
    let mut words = line.strip_prefix("cpu")?.split(' ');
    let cpu = words.next()?.parse().ok()?;
    let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let idle = times.get(3..5)?.iter().fold(0u64, |sum, time| sum.saturating_add(*time));
    Some((cpu, Times { idle, all: times.iter().fold(0u64, |sum, time| sum.saturating_add(*time)) }))
}

impl CpuLoad {
    fn set(&self, idle: u64, all: u64) {
        if all == 0 {
            return;
        }
        let percent = idle.saturating_mul(100) / all;
        let calm = if percent > CALM_ABOVE { self.0.calm.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.0.calm.store(calm, Ordering::Relaxed);
        self.0.is_busy.store(percent < BUSY_BELOW, Ordering::Relaxed);
    }
}

/// Decides for a writer if it is busy.
#[derive(Debug, Default)]
pub(crate) struct Business {
    load: CpuLoad,
    is_busy: bool,
    /// Last time that a block waited.
    waited: Option<Instant>,
}

impl Business {
    pub(crate) fn new(load: CpuLoad) -> Business {
        Business { load, ..Business::default() }
    }

    /// True if the writer has no time to spare, now that so many blocks wait for it: at once where it or the CPU is late, and until
    /// both have been calm for a while.
    pub(crate) fn is_busy(&mut self, waiting: usize, now: Instant) -> bool {
        if waiting > 0 {
            self.waited = Some(now);
        }
        let has_rest = self.waited.is_none_or(|waited| now.duration_since(waited) >= INTERVAL * CALM as u32);
        if waiting > 1 || self.load.0.is_busy.load(Ordering::Relaxed) {
            self.is_busy = true;
        } else if has_rest && self.load.0.calm.load(Ordering::Relaxed) >= CALM {
            self.is_busy = false;
        }
        self.is_busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_busy_at_once_and_idle_after_three_calm_seconds() {
        let load = CpuLoad::default();
        let mut watch = LoadWatch::new([(0, load.clone())]);
        let mut business = Business::new(load);
        let now = Instant::now();
        let mut take = |user: u64, idle: u64| watch.take(&format!("cpu  9 9\ncpu0 {user} 0 0 {idle} 0 0 0 0\n"));
        take(1000, 1000);
        assert!(!business.is_busy(0, now), "nothing is known yet");
        take(1095, 1005);
        assert!(business.is_busy(0, now));
        for calm in 1..=3 {
            take(1095 + 60 * calm, 1005 + 40 * calm);
            assert_eq!(business.is_busy(0, now), calm < 3, "{calm}");
        }
        // 20% are neither busy nor calm.
        take(1095 + 180 + 80, 1005 + 120 + 20);
        assert!(!business.is_busy(0, now));
    }

    #[test]
    fn waiting_blocks_make_a_writer_busy_where_no_load_is_known() {
        let mut business = Business::default();
        let now = Instant::now();
        assert!(!business.is_busy(1, now));
        assert!(business.is_busy(2, now));
        assert!(business.is_busy(0, now + INTERVAL * 2));
        assert!(!business.is_busy(0, now + INTERVAL * 3));
    }

    #[test]
    fn lines_of_proc_stat_are_told_apart() {
        let times = |line| parse(line).map(|(cpu, times)| (cpu, times.idle, times.all));
        assert_eq!(times("cpu12 1 2 3 40 5 6 7 8 9 10"), Some((12, 45, 72)));
        assert_eq!(times("cpu0 1 2 3 40 5"), Some((0, 45, 51)));
        for line in ["cpu  1 2 3 40 5 6 7 8 9 10", "cpu1 1 2 3", "intr 1 2 3 4 5", ""] {
            assert_eq!(times(line), None, "{line}");
        }
    }
}
