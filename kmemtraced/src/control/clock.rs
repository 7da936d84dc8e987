//! The trace clock, as the recorder can read it: an interval has to be on the clock that stamps the events.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use kmemtrace_abi::kernel::stats::{Stats, now_ts};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds by which the event clock may differ from the clock of programs (`ktime_get_mono_fast_ns` while the kernel adjusts
/// its time), rounded up generously.
const SLACK: u64 = 1_000;
/// Nanoseconds of difference that prove a time namespace: longer than any reading of `stats`, shorter than any useful offset.
const FAR: u64 = 1_000_000_000;

/// Access to a trace clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceClock {
    /// A system clock, in nanoseconds.
    System(ClockId),
    /// A clock of the tracer, readable only as `now ts` in a CPU's `stats`.
    Stats,
}

impl TraceClock {
    /// Clock of this name in `trace_clock` (`kernel/trace/trace.c`, Linux 6.18).
    pub(crate) fn named(name: &str) -> TraceClock {
        match name {
            "mono" => TraceClock::System(ClockId::Monotonic),
            "mono_raw" => TraceClock::System(ClockId::MonotonicRaw),
            "boot" => TraceClock::System(ClockId::Boottime),
            _ => TraceClock::Stats,
        }
    }

    /// Returns a way to read the same clock that is right in a time namespace, where system clocks have an offset.
    pub(crate) fn checked(self, stats: &File) -> io::Result<TraceClock> {
        let (Some((own, _)), Some((kernel, _))) = (self.system_now(), now_ts(&text(stats)?)) else { return Ok(self) };
        Ok(if own.abs_diff(kernel) < FAR { self } else { TraceClock::Stats })
    }

    /// True if reading the clock takes no system call, and so leaves no event in the trace.
    pub(crate) fn is_cheap(self) -> bool {
        self != TraceClock::Stats
    }

    /// Current time as (lower bound, upper bound); `None` where only `stats` has it.
    pub(crate) fn system_now(self) -> Option<(u64, u64)> {
        let TraceClock::System(id) = self else { return None };
        let time = clock_gettime(id);
        let nanoseconds = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
        Some((nanoseconds.saturating_sub(SLACK), nanoseconds + SLACK))
    }

    /// Current time as (lower bound, upper bound), from the CPU's `stats` if necessary; `None` where the kernel does not print it.
    pub(crate) fn now(self, stats: &File) -> io::Result<Option<(u64, u64)>> {
        match self.system_now() {
            Some(now) => Ok(Some(now)),
            None => Ok(now_ts(&text(stats)?)),
        }
    }

    /// Reads a CPU's `stats`: its counters, and the times before and after the reading where the clock is known.
    pub(crate) fn read_counters(self, stats: &File) -> io::Result<(Stats, Option<(u64, u64)>)> {
        let before = self.now(stats)?;
        let counters = Stats::parse(&text(stats)?);
        // The kernel prints the time in the middle of the file, with counters behind it.
        let after = self.now(stats)?;
        Ok((counters, before.zip(after).map(|((from, _), (_, to))| (from, to))))
    }
}

/// Text of a `stats` file.
fn text(stats: &File) -> io::Result<String> {
    let mut buffer = [0; 1024];
    let len = stats.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..len]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn stats(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_clock_of_the_system_is_read_around_the_counters() {
        let clock = TraceClock::named("mono");
        let now = || {
            let time = clock_gettime(ClockId::Monotonic);
            time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
        };
        let before = now();
        let (counters, read) = clock.read_counters(&stats("entries: 7\nread events: 5\n")).unwrap();
        let (from, to) = read.unwrap();
        assert!((before - SLACK..=now()).contains(&from) && to >= from + 2 * SLACK && to <= now() + SLACK);
        assert_eq!((counters.entries, counters.read), (7, 5));
    }

    #[test]
    fn other_clocks_are_read_from_stats_and_rounded_outwards() {
        let clock = TraceClock::named("global");
        assert!(!clock.is_cheap());
        let (_, read) = clock.read_counters(&stats("entries: 0\nnow ts:    81.500007\nread events: 5\n")).unwrap();
        assert_eq!(read, Some((81_500_007_000, 81_500_008_000)));
        let ticks = TraceClock::named("x86-tsc").now(&stats("now ts: 12345\n")).unwrap();
        assert_eq!(ticks, Some((12345, 12345)));
        assert_eq!(clock.now(&stats("entries: 0\n")).unwrap(), None);
    }

    #[test]
    fn a_clock_that_this_process_has_otherwise_is_read_from_stats() {
        let clock = TraceClock::named("mono");
        let (now, _) = clock.system_now().unwrap();
        let at = |ns: u64| stats(&format!("now ts: {}.{:06}\n", ns / 1_000_000_000, ns / 1_000 % 1_000_000));
        assert_eq!(clock.checked(&at(now)).unwrap(), clock);
        assert_eq!(clock.checked(&at(now + 5_000_000_000)).unwrap(), TraceClock::Stats);
    }
}
