//! Signals. Every one that can be caught ends in an orderly stop or is ignored, on purpose:
//!
//! | signals | meaning |
//! |---|---|
//! | INT TERM HUP QUIT | orderly stop; a second one ends everything at once |
//! | XCPU, PWR | orderly stop |
//! | USR1 | the counters so far |
//! | USR2 ALRM VTALRM PROF IO STKFLT, real-time | ignored |
//! | XFSZ | ignored: the write fails, and a file limit is a full disk |
//! | PIPE | ignored by Rust's start-up code: the write fails |
//! | TSTP TTIN TTOU CONT, CHLD URG WINCH | the kernel's default: the kernel's buffers record while the recorder is stopped |
//! | SEGV BUS ILL FPE ABRT TRAP SYS | the kernel's default: a defect must be seen |
//!
//! Handlers stand for all that is ignored here, because a COMMAND begins with its defaults where a handler was, but inherits
//! what is set to be ignored. HUP that was ignored at the start (nohup) stays so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::Signal;

use crate::kernelfs::{KernelFs, PROC};
use crate::messages::SMALL_STACK;

/// Ask for an orderly stop.
const STOP: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// Ignored on purpose.
const IGNORED: [Signal; 6] = [Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::IO, Signal::XFSZ];
/// The number of STKFLT where there is such a signal; elsewhere another signal has it.
const STKFLT: Option<i32> =
    if cfg!(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64", target_arch = "s390x")) {
        Some(16)
    } else {
        None
    };
/// Real-time signals that are not the C library's own.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// How often the flags are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Signals this close are one: `timeout` sends its own twice, to the process and to its group, and so do shells that hang up.
const SAME: Duration = Duration::from_millis(50);
/// Time for the main thread to end by itself after a second signal.
const PATIENCE: Duration = Duration::from_millis(700);

/// Signals that have come, from [`Signals::take`] on.
pub(crate) struct Signals {
    /// Stop signals, without repetitions.
    stops: Arc<AtomicU32>,
    /// A second stop signal: threads give up all that waits.
    pub(crate) abandon: Arc<AtomicBool>,
    cpu_limit: Arc<AtomicBool>,
    power: Arc<AtomicBool>,
    counters: Arc<AtomicBool>,
}

impl Signals {
    /// Takes all signals. `end_now` is called on a thread of its own where the process still runs a while after a second stop
    /// signal: the main thread hangs in a system call.
    pub(crate) fn take(end_now: impl FnOnce() + Send + 'static) -> anyhow::Result<Signals> {
        let signals = Signals {
            stops: Arc::default(),
            abandon: Arc::default(),
            cpu_limit: Arc::default(),
            power: Arc::default(),
            counters: Arc::default(),
        };
        let (asked, ignored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let ignores_hup = is_ignored(Signal::HUP);
        let stop = STOP.into_iter().filter(|&signal| signal != Signal::HUP || !ignores_hup);
        let others =
            [(Signal::XCPU, &signals.cpu_limit), (Signal::POWER, &signals.power), (Signal::USR1, &signals.counters)];
        let all = stop.map(|s| (s, &asked)).chain(others).chain(IGNORED.into_iter().map(|s| (s, &ignored)));
        for (signal, flag) in all {
            signal_hook::flag::register(signal.as_raw(), Arc::clone(flag)).context("signals cannot be taken")?;
        }
        // A C library may keep some of these for itself.
        for signal in STKFLT.into_iter().chain(REAL_TIME) {
            let _ = signal_hook::flag::register(signal, Arc::clone(&ignored));
        }
        let (stops, abandon) = (Arc::clone(&signals.stops), Arc::clone(&signals.abandon));
        thread::Builder::new()
            .name("signals".into())
            .stack_size(SMALL_STACK)
            .spawn(move || watch(&asked, &stops, &abandon, end_now))
            .context("thread signals cannot be started: allow more (pids.max of the cgroup, ulimit -u, ulimit -v)")?;
        Ok(signals)
    }

    /// Stop signals so far.
    pub(crate) fn stops(&self) -> u32 {
        self.stops.load(Ordering::Acquire)
    }

    /// A second stop signal has come.
    pub(crate) fn is_second(&self) -> bool {
        self.abandon.load(Ordering::Acquire)
    }

    /// The reason to stop that is no request: a limit, a failing power supply.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        if self.cpu_limit.load(Ordering::Acquire) {
            return Some("the limit of processor time (ulimit -t)");
        }
        self.power.load(Ordering::Acquire).then_some("the power fails")
    }

    /// Whether the counters were asked for since the last call.
    pub(crate) fn wants_counters(&self) -> bool {
        self.counters.swap(false, Ordering::AcqRel)
    }
}

/// Counts stop signals, repetitions left out, and ends the process if nothing else does after the second.
fn watch(asked: &AtomicBool, stops: &AtomicU32, abandon: &AtomicBool, end_now: impl FnOnce()) {
    let mut last: Option<Instant> = None;
    let mut end: Option<Instant> = None;
    loop {
        thread::sleep(LOOK);
        let now = Instant::now();
        if asked.swap(false, Ordering::AcqRel) && last.is_none_or(|last| now - last >= SAME) {
            last = Some(now);
            if stops.fetch_add(1, Ordering::AcqRel) > 0 {
                abandon.store(true, Ordering::Release);
                end.get_or_insert(now + PATIENCE);
            }
        }
        if end.is_some_and(|end| now >= end) {
            return end_now();
        }
    }
}

/// Whether this process was started with a signal ignored; not known without proc.
fn is_ignored(signal: Signal) -> bool {
    let status = KernelFs::find(&PROC).and_then(|proc| proc.get("self/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stop signals that are counted of those sent after these times, ms, and whether the end was forced.
    fn counted(after: &[u64]) -> (u32, bool) {
        let (asked, stops, abandon) = (AtomicBool::new(false), AtomicU32::new(0), AtomicBool::new(false));
        let forced = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| watch(&asked, &stops, &abandon, || forced.store(true, Ordering::Release)));
            for &after in after {
                thread::sleep(Duration::from_millis(after));
                asked.store(true, Ordering::Release);
            }
            thread::sleep(Duration::from_millis(300));
            let counted = (stops.load(Ordering::Acquire), abandon.load(Ordering::Acquire));
            // Two more end every watch.
            while !forced.load(Ordering::Acquire) {
                asked.store(true, Ordering::Release);
                thread::sleep(Duration::from_millis(100));
            }
            counted
        })
    }

    #[test]
    fn a_signal_sent_twice_at_once_is_one_and_a_later_one_is_a_second() {
        assert_eq!(counted(&[0]), (1, false));
        assert_eq!(counted(&[0, 1, 1]), (1, false));
        assert_eq!(counted(&[0, 200]), (2, true));
    }
}
