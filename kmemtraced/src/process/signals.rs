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

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::process::thread::HighPriority;

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

/// Interval between two looks at the flags.
const LOOK: Duration = Duration::from_millis(20);
/// Signals this close are one: `timeout` sends its own twice, to the process and to its group, and so do shells that hang up.
const SAME: Duration = Duration::from_millis(50);
/// Time for the work to end by itself after a second signal.
const PATIENCE: Duration = Duration::from_millis(800);

/// Signals that have come, from [`Signals::take`] on.
#[derive(Default)]
pub(crate) struct Signals {
    /// A stop signal that has not been counted yet.
    asked: Arc<AtomicBool>,
    /// Stop signals, without repetitions.
    stops: AtomicU32,
    /// Stop signals that the recording's end has answered.
    answered: AtomicU32,
    /// A second stop signal: threads give up all that waits.
    pub(crate) abandon: Arc<AtomicBool>,
    cpu_limit: Arc<AtomicBool>,
    power: Arc<AtomicBool>,
    counters: Arc<AtomicBool>,
}

impl Signals {
    pub(crate) fn take() -> anyhow::Result<Signals> {
        let (signals, ignored) = (Signals::default(), Arc::new(AtomicBool::new(false)));
        let ignores_hup = is_ignored(Signal::HUP);
        let stop = STOP.into_iter().filter(|&signal| signal != Signal::HUP || !ignores_hup);
        let others =
            [(Signal::XCPU, &signals.cpu_limit), (Signal::POWER, &signals.power), (Signal::USR1, &signals.counters)];
        let all = stop.map(|s| (s, &signals.asked)).chain(others).chain(IGNORED.into_iter().map(|s| (s, &ignored)));
        for (signal, flag) in all {
            signal_hook::flag::register(signal.as_raw(), Arc::clone(flag)).context("signals cannot be taken")?;
        }
        // A C library may keep some of these for itself.
        for signal in STKFLT.into_iter().chain(REAL_TIME) {
            let _ = signal_hook::flag::register(signal, Arc::clone(&ignored));
        }
        Ok(signals)
    }

    /// Counts stop signals, repetitions left out, until all is over. False where that takes too long after a second one: the work
    /// hangs in a system call. The caller is the process's first thread and does nothing else: the kernel gives it the signals,
    /// and one that hangs would take none.
    pub(crate) fn watch(&self, is_over: impl Fn() -> bool) -> bool {
        // Writers that are far behind leave others little of the processor.
        let _first = HighPriority::take();
        let mut last: Option<Instant> = None;
        let mut end: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if self.asked.swap(false, Ordering::AcqRel) && last.is_none_or(|last| now - last >= SAME) {
                last = Some(now);
                if self.stops.fetch_add(1, Ordering::AcqRel) > 0 {
                    self.abandon.store(true, Ordering::Release);
                    end.get_or_insert(now + PATIENCE);
                }
            }
            if is_over() {
                return true;
            }
            if end.is_some_and(|end| now >= end) {
                return false;
            }
            thread::park_timeout(LOOK);
        }
    }

    /// Stop signals so far.
    pub(crate) fn stops(&self) -> u32 {
        self.stops.load(Ordering::Acquire)
    }

    /// The recording stops, for whatever reason: signals until now have had their effect.
    pub(crate) fn acknowledge(&self) {
        self.answered.store(self.stops(), Ordering::Release);
    }

    /// A stop signal has come since the recording stopped, or a second one at all: nothing is waited for that is not the trace.
    pub(crate) fn is_pressing(&self) -> bool {
        self.is_second() || self.stops() > self.answered.load(Ordering::Acquire)
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

    /// True if the counters were asked for since the last call.
    pub(crate) fn wants_counters(&self) -> bool {
        self.counters.swap(false, Ordering::AcqRel)
    }
}

/// True if this process was started with a signal ignored; not known without proc.
fn is_ignored(signal: Signal) -> bool {
    let status = KernelFs::find(&PROC).and_then(|proc| proc.get("self/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stop signals that are counted of those sent after these times, ms.
    fn counted(after: &[u64]) -> (u32, bool) {
        let (signals, is_over) = (Signals::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| signals.watch(|| is_over.load(Ordering::Acquire)));
            for &after in after {
                thread::sleep(Duration::from_millis(after));
                signals.asked.store(true, Ordering::Release);
            }
            thread::sleep(Duration::from_millis(300));
            is_over.store(true, Ordering::Release);
        });
        (signals.stops(), signals.is_second())
    }

    #[test]
    fn a_signal_sent_twice_at_once_is_one_and_a_later_one_is_a_second() {
        assert_eq!(counted(&[0]), (1, false));
        assert_eq!(counted(&[0, 1, 1]), (1, false));
        assert_eq!(counted(&[0, 200]), (2, true));
    }

    #[test]
    fn work_that_hangs_is_given_up_within_a_second_of_the_second_signal() {
        let signals = Signals::default();
        let watched = thread::scope(|scope| {
            let watch = scope.spawn(|| signals.watch(|| false));
            for _ in 0..2 {
                thread::sleep(Duration::from_millis(200));
                signals.asked.store(true, Ordering::Release);
            }
            let begin = Instant::now();
            (watch.join().unwrap(), begin.elapsed())
        });
        assert!(!watched.0);
        assert!(watched.1 < Duration::from_secs(2), "{:?}", watched.1);
    }
}
