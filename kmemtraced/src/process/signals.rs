//! Signals. Each one that can be caught stops the recording in order or is ignored on purpose:
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
//! Ignored signals have a handler, too: a child process (COMMAND) starts with the default action where a handler was, but would
//! inherit SIG_IGN. HUP that was ignored at the start (nohup) stays ignored.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal};

use crate::choices::Priority;
use crate::fs::kernelfs::{KernelFs, PROC};
use crate::process::thread::raise;

/// Signals that ask for an orderly stop.
const STOP: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// Signals that are ignored on purpose.
const IGNORED: [Signal; 6] = [Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::IO, Signal::XFSZ];
/// Number of STKFLT; `None` on architectures where another signal has that number.
const STKFLT: Option<i32> =
    if cfg!(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64", target_arch = "s390x")) {
        Some(16)
    } else {
        None
    };
/// Real-time signals that are not the C library's own.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// Poll interval of the flags; less than half of [`MIN_DISTANCE`], or two signals at once count as two where a look comes between them.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Stop signals closer than this count as one: `timeout` and a shell that hangs up send theirs to the process and to its group.
const MIN_DISTANCE: Duration = Duration::from_millis(50);
/// Time for the threads to end by themselves after a second stop signal.
const PATIENCE: Duration = Duration::from_millis(800);

/// Reason for which a recording ends whose viewer has ended.
pub(crate) const VIEWER_ENDED: &str = "the viewer has ended";

/// Orders to stop, through a pipe: the process that shows the recording gives them, which gets signals of a terminal as this one does.
/// Each is two bytes: how often it was asked to stop up to now, and the number of the signal, 0 for none.
struct Orders {
    taken: Mutex<Taken>,
    /// The other process.
    parent: Option<Pid>,
}

/// Orders up to now.
struct Taken {
    /// None once no more are taken.
    pipe: Option<File>,
    /// Number of times that it was asked to stop.
    stops: u8,
    /// The last signal.
    signal: u8,
}

impl Orders {
    fn new(pipe: OwnedFd) -> io::Result<Orders> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let taken = Mutex::new(Taken { pipe: Some(File::from(pipe)), stops: 0, signal: 0 });
        Ok(Orders { taken, parent: rustix::process::getppid() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of times that it was asked to stop, and the last signal. Where the other process is gone it was asked.
    fn last(&self) -> (u8, u8) {
        let mut taken = self.lock();
        let Taken { pipe, stops, signal } = &mut *taken;
        let mut order = [0; 2];
        while let Some(open) = pipe {
            match open.read(&mut order) {
                // Two bytes are written at once.
                Ok(1..) => (*stops, *signal) = (order[0].max(*stops), order[1]),
                Ok(0) => {
                    *stops = (*stops).max(1);
                    *pipe = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        (*stops, *signal)
    }
}

/// Signals received since [`Signals::take`].
#[derive(Default)]
pub(crate) struct Signals {
    /// Set by a stop signal that is not counted yet.
    asked: Arc<AtomicBool>,
    /// Number of the last stop signal; 0 before the first.
    last: Arc<AtomicUsize>,
    /// Number of stop signals of this process, without repetitions.
    own: AtomicU32,
    /// Orders by another process.
    orders: Option<Orders>,
    /// Number of times that this process was asked to stop.
    stops: AtomicU32,
    /// Number of stop signals when the recording stopped.
    acknowledged: AtomicU32,
    /// Set by a second stop signal: threads stop waiting.
    pub(crate) abandon: Arc<AtomicBool>,
    cpu_limit: Arc<AtomicBool>,
    power: Arc<AtomicBool>,
    counters: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handlers, and takes orders through a pipe, too.
    pub(crate) fn take_with(orders: OwnedFd) -> anyhow::Result<Signals> {
        let orders = Orders::new(orders).context("orders cannot be taken")?;
        Ok(Signals { orders: Some(orders), ..Signals::take()? })
    }

    /// Installs the handlers.
    pub(crate) fn take() -> anyhow::Result<Signals> {
        let (signals, ignored) = (Signals::default(), Arc::new(AtomicBool::new(false)));
        let ignores_hup = is_ignored(Signal::HUP);
        let stop: Vec<Signal> = STOP.into_iter().filter(|&signal| signal != Signal::HUP || !ignores_hup).collect();
        for signal in &stop {
            let (last, number) = (Arc::clone(&signals.last), usize::try_from(signal.as_raw()).unwrap_or(0));
            signal_hook::flag::register_usize(signal.as_raw(), last, number).context("signals cannot be taken")?;
        }
        let others =
            [(Signal::XCPU, &signals.cpu_limit), (Signal::POWER, &signals.power), (Signal::USR1, &signals.counters)];
        let all = stop
            .into_iter()
            .map(|s| (s, &signals.asked))
            .chain(others)
            .chain(IGNORED.into_iter().map(|s| (s, &ignored)));
        for (signal, flag) in all {
            signal_hook::flag::register(signal.as_raw(), Arc::clone(flag)).context("signals cannot be taken")?;
        }
        // Some of these may be reserved by the C library.
        for signal in STKFLT.into_iter().chain(REAL_TIME) {
            let _ = signal_hook::flag::register(signal, Arc::clone(&ignored));
        }
        Ok(signals)
    }

    /// Counts stop signals, without repetitions, until `is_done`. False where a thread hangs in a system call for too long after a
    /// second one. The caller is the process's first thread and does nothing else: the kernel delivers signals to it, and a
    /// thread that hangs would take none.
    pub(crate) fn watch(&self, priority: Priority, is_done: impl Fn() -> bool) -> bool {
        // Writers that are far behind leave other threads little processor time.
        raise(priority);
        let mut last: Option<Instant> = None;
        let mut end: Option<Instant> = None;
        loop {
            let now = Instant::now();
            self.count(&mut last);
            if self.is_second() {
                end.get_or_insert(now + PATIENCE);
            }
            if is_done() {
                return true;
            }
            if end.is_some_and(|end| now >= end) {
                return false;
            }
            thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Counts the stop signals since the last call, of which `last` is the time of the last one that counted.
    pub(crate) fn count(&self, last: &mut Option<Instant>) {
        let now = Instant::now();
        if self.asked.swap(false, Ordering::AcqRel) && last.is_none_or(|last| now - last >= MIN_DISTANCE) {
            *last = Some(now);
            self.own.fetch_add(1, Ordering::AcqRel);
        }
        let own = self.own.load(Ordering::Acquire);
        let (ordered, signal) = self.orders.as_ref().map_or((0, 0), Orders::last);
        if own == 0 && ordered > 0 {
            self.last.store(usize::from(signal), Ordering::Release);
        }
        // A terminal sends its signals to both processes.
        let stops = own.max(ordered.into());
        self.stops.store(stops, Ordering::Release);
        if stops > 1 {
            self.abandon.store(true, Ordering::Release);
        }
    }

    /// Takes no more orders: the process that gives them sees that the recording has ended.
    pub(crate) fn end_orders(&self) {
        if let Some(orders) = &self.orders {
            orders.lock().pipe = None;
        }
    }

    /// True once the process that gave orders has ended.
    pub(crate) fn is_orphan(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.parent != rustix::process::getppid())
    }

    /// Number of stop signals up to now.
    pub(crate) fn stops(&self) -> u32 {
        self.stops.load(Ordering::Acquire)
    }

    /// Number of the last stop signal; 0 for none.
    pub(crate) fn last_stop(&self) -> u8 {
        u8::try_from(self.last.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Name of the last stop signal, for people.
    pub(crate) fn stopped_by(&self) -> &'static str {
        let is = |signal: Signal| i32::from(self.last_stop()) == signal.as_raw();
        let names = [
            (Signal::INT, "Ctrl-C"),
            (Signal::TERM, "SIGTERM"),
            (Signal::HUP, "the terminal was closed (SIGHUP)"),
            (Signal::QUIT, "SIGQUIT"),
        ];
        let of_none = if self.orders.is_some() { VIEWER_ENDED } else { "a signal" };
        names.into_iter().find(|(signal, _)| is(*signal)).map_or(of_none, |(_, name)| name)
    }

    /// Marks all stop signals up to now as handled: the recording stops, for whatever reason.
    pub(crate) fn acknowledge(&self) {
        self.acknowledged.store(self.stops(), Ordering::Release);
    }

    /// True if a stop signal came after the recording stopped, or a second one at any time: only the trace itself is waited for.
    pub(crate) fn is_pressing(&self) -> bool {
        self.is_second() || self.stops() > self.acknowledged.load(Ordering::Acquire)
    }

    /// True if a second stop signal came.
    pub(crate) fn is_second(&self) -> bool {
        self.abandon.load(Ordering::Acquire)
    }

    /// Reason to stop by a signal of the kernel or of init: the limit of processor time, a failing power supply.
    pub(crate) fn limit(&self) -> Option<&'static str> {
        if self.cpu_limit.load(Ordering::Acquire) {
            return Some("the limit of processor time (ulimit -t)");
        }
        self.power.load(Ordering::Acquire).then_some("the power fails")
    }

    /// True if SIGUSR1 asked for the counters since the last call.
    pub(crate) fn wants_counters(&self) -> bool {
        self.counters.swap(false, Ordering::AcqRel)
    }
}

/// True if this process was started with a signal ignored; false where proc is not there to ask.
fn is_ignored(signal: Signal) -> bool {
    let status = KernelFs::find(&PROC).and_then(|proc| proc.get("self/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of stop signals counted, and whether one was a second, for signals sent after these times, ms.
    fn counted(after: &[u64]) -> (u32, bool) {
        let (signals, is_over) = (Signals::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| signals.watch(Priority::Nice, || is_over.load(Ordering::Acquire)));
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
    fn an_order_and_the_same_signal_of_a_terminal_are_one() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let orders = Some(Orders::new(reader.into()).unwrap());
        let (signals, mut last) = (Signals { orders, ..Signals::default() }, None);
        signals.count(&mut last);
        assert_eq!(signals.stops(), 0);
        std::io::Write::write_all(&mut writer, &[1, 15]).unwrap();
        signals.count(&mut last);
        assert_eq!((signals.stops(), signals.stopped_by()), (1, "SIGTERM"));
        signals.asked.store(true, Ordering::Release);
        signals.count(&mut last);
        assert_eq!((signals.stops(), signals.is_second()), (1, false));
        std::io::Write::write_all(&mut writer, &[2, 0]).unwrap();
        signals.count(&mut last);
        assert_eq!((signals.stops(), signals.is_second()), (2, true));
    }

    #[test]
    fn the_end_of_the_one_who_gives_orders_is_one() {
        let (reader, writer) = std::io::pipe().unwrap();
        let orders = Some(Orders::new(reader.into()).unwrap());
        let signals = Signals { orders, ..Signals::default() };
        drop(writer);
        signals.count(&mut None);
        signals.count(&mut None);
        assert_eq!((signals.stops(), signals.stopped_by()), (1, VIEWER_ENDED));
    }

    #[test]
    fn work_that_hangs_is_given_up_within_a_second_of_the_second_signal() {
        let signals = Signals::default();
        let watched = thread::scope(|scope| {
            let watch = scope.spawn(|| signals.watch(Priority::Nice, || false));
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
