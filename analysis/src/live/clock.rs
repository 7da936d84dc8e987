//! Present time on a trace's clock, where this machine has that clock.

use kmemtrace_abi::trace::TraceInfo;
use rustix::time::ClockId;

/// Clock of the kernel that a trace's times are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceClock(Option<ClockId>);

impl TraceClock {
    /// Clock of a trace that was recorded since this machine started; else none.
    pub(crate) fn of(info: &TraceInfo) -> TraceClock {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let is_here = boot.is_some_and(|boot| info.boot.as_deref().map(str::trim) == Some(boot.trim()));
        TraceClock(info.clock.as_deref().filter(|_| is_here).and_then(clock_of))
    }

    /// Nanoseconds on the trace's clock; `None` where this machine cannot tell.
    pub(crate) fn now(self) -> Option<u64> {
        let time = rustix::time::clock_gettime(self.0?);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec).ok()?)
    }
}

/// Clock that programs read, of the name that the kernel's `trace_clock` has for it. The others cannot be read by programs.
fn clock_of(name: &str) -> Option<ClockId> {
    match name {
        "mono" => Some(ClockId::Monotonic),
        "mono_raw" => Some(ClockId::MonotonicRaw),
        "boot" => Some(ClockId::Boottime),
        _ => None,
    }
}
