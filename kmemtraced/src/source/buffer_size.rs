//! Size of the kernel buffers: the default, and the limit of --buffer-size. Kernel buffers may take half of the available memory.
//! The kernel itself sets no limit: it allocates all memory there is, and its OOM killer ends other programs.

use std::ops::RangeInclusive;

use anyhow::bail;

use crate::fs::kernelfs::{KernelFs, PROC, SYSFS};
use crate::process::memory;

/// Default kernel buffer of a CPU, bytes: within this range all CPUs together take `1 / DEFAULT_SHARE` of the available memory.
const DEFAULT_BYTES: RangeInclusive<u64> = 16 << 20..=64 << 20;
const DEFAULT_SHARE: u64 = 16;
/// Default buffers of all CPUs together take at most `1 / MAX_DEFAULT_SHARE` of the machine's memory, even if they are smaller than
/// the range says.
const MAX_DEFAULT_SHARE: u64 = 4;
/// Smallest default buffer of a CPU, bytes.
const MIN_DEFAULT_BYTES: u64 = 1 << 20;

/// Filled bytes of a buffer at which the kernel wakes the reader, at most a quarter of the buffer. More of them at once would make
/// the writer fall behind, and store blocks without compression.
const WAKE_BYTES: u64 = 4 << 20;
const MAX_WAKE_PERCENT: u64 = 25;

/// Buffers of a given size take at most `1 / MAX_SHARE` of the available memory.
const MAX_SHARE: u64 = 2;

/// Memory of all buffers together that one write makes the kernel allocate, KiB: it takes seconds for gigabytes, and no signal ends that.
const STEP_KIB: u64 = 256 << 10;

/// Sizes of a CPU's buffer, KiB, in which the buffers of `cpus` CPUs grow up to `kib`.
pub(crate) fn steps(kib: u64, cpus: usize) -> impl Iterator<Item = u64> {
    let step = (STEP_KIB / cpus.max(1) as u64).max(1);
    (1..=kib.div_ceil(step)).map(move |n| n.saturating_mul(step).min(kib))
}

/// Default kernel buffer of a CPU on a machine with `cpus` CPUs, bytes.
pub(crate) fn default_bytes(cpus: usize) -> u64 {
    memory::share_of_memory(wanted(available(), cpus), MAX_DEFAULT_SHARE, cpus).max(MIN_DEFAULT_BYTES)
}

/// Default kernel buffer of a CPU by the available memory, in whole MiB.
fn wanted(available: u64, cpus: usize) -> u64 {
    let share = available / DEFAULT_SHARE / cpus.max(1) as u64;
    (share >> 20 << 20).clamp(*DEFAULT_BYTES.start(), *DEFAULT_BYTES.end())
}

/// `buffer_percent` of a buffer of so many bytes.
pub(crate) fn wake_percent(bytes: u64) -> u64 {
    (WAKE_BYTES * 100 / bytes.max(1)).clamp(1, MAX_WAKE_PERCENT)
}

/// Refuses `-b BYTES` where the buffers would grow by more than half of the available memory. Each CPU has a buffer of `held` bytes
/// already.
pub(crate) fn check(tracefs: &KernelFs, bytes: u64, held: u64) -> anyhow::Result<()> {
    let possible = tracefs.numbered("per_cpu", "cpu")?.len() as u64;
    match refusal(bytes, held, online_cpus().unwrap_or(possible), available()) {
        Some(reason) => bail!(reason),
        None => Ok(()),
    }
}

/// The reason to refuse, where there is one.
fn refusal(bytes: u64, held: u64, cpus: u64, available: u64) -> Option<String> {
    let may_take = available / MAX_SHARE;
    if bytes.saturating_sub(held).saturating_mul(cpus) <= may_take {
        return None;
    }
    let (given, all) = (as_given(bytes), rounded(bytes.saturating_mul(cpus)));
    let may_take = rounded(may_take);
    Some(format!(
        "-b {given} on {cpus} CPUs is {all}, and {may_take} may be taken (half of what is available): give a smaller one, or \
         --force-buffer"
    ))
}

/// Number of online CPUs: the kernel makes a buffer for each.
fn online_cpus() -> Option<u64> {
    let list = KernelFs::find(&SYSFS).ok()?.read("devices/system/cpu/online").ok()?;
    counted(str::from_utf8(&list).ok()?)
}

/// Count of the numbers in a kernel list such as `0-3,8`.
fn counted(list: &str) -> Option<u64> {
    list.trim().split(',').try_fold(0u64, |sum, range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
        sum.checked_add(to.checked_sub(from)?.checked_add(1)?)
    })
}

/// Memory available without swapping, bytes.
fn available() -> u64 {
    let meminfo = KernelFs::find(&PROC).ok().and_then(|proc| proc.read("meminfo").ok());
    let printed = meminfo.and_then(|text| mem_available(str::from_utf8(&text).ok()?));
    printed.unwrap_or_else(|| {
        // Linux before 3.14, or no /proc. The fields are words, which hold units: a word has 4 bytes on some machines.
        let info = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "not where a word has 4 bytes")]
        let units = u64::from(info.freeram).saturating_add(u64::from(info.bufferram));
        units.saturating_mul(info.mem_unit.into())
    })
}

/// MemAvailable of /proc/meminfo, bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Text of a size as the command line takes it.
fn as_given(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Text of a size with at most one decimal.
fn rounded(bytes: u64) -> String {
    let (shift, unit) = if bytes >> 30 > 0 { (30, "GiB") } else { (20, "MiB") };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        rest => format!("{}.{rest} {unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_above_half_of_the_available_memory_are_refused_by_number() {
        let gib = 1 << 30;
        let said = refusal(100 * gib, 0, 2, 22 * gib + (gib >> 1)).unwrap();
        assert!(said.starts_with("-b 100G on 2 CPUs is 200 GiB, and 11.2 GiB may be taken"), "{said}");
        assert_eq!(refusal(gib, 0, 2, 4 * gib), None);
        assert!(refusal(gib + 4096, 0, 2, 4 * gib).is_some());
        // Bytes that a buffer has already are not new.
        assert_eq!(refusal(3 * gib, 2 * gib, 2, 4 * gib), None);
        assert_eq!(refusal(3 * gib, 8 * gib, 2, 4 * gib), None);
        // A product that 64 bits do not hold.
        assert!(refusal(u64::MAX, 0, 4096, u64::MAX).is_some());
    }

    #[test]
    fn the_default_grows_with_the_available_memory() {
        let gib = 1 << 30;
        let mib = |available, cpus| wanted(available, cpus) >> 20;
        assert_eq!(mib(22 * gib, 2), 64);
        assert_eq!(mib(15 * gib + 7, 32), 30);
        assert_eq!(mib(gib, 4), 16);
        assert_eq!(mib(0, 0), 16);
        assert_eq!([64 << 10, 16 << 20, 64 << 20, 1 << 40].map(wake_percent), [25, 25, 6, 1]);
    }

    #[test]
    fn large_buffers_grow_in_steps() {
        let sizes = |kib, cpus| steps(kib, cpus).collect::<Vec<u64>>();
        assert_eq!(sizes(1, 2), [1]);
        assert_eq!(sizes(128 << 10, 2), [128 << 10]);
        assert_eq!(sizes(300 << 10, 2), [128 << 10, 256 << 10, 300 << 10]);
        assert_eq!(steps(u64::MAX, 0).next(), Some(STEP_KIB));
        assert_eq!(steps(4095 << 10, 1 << 20).next(), Some(1));
    }

    #[test]
    fn texts_of_the_kernel_are_read_or_refused() {
        assert_eq!(mem_available("MemTotal: 9 kB\nMemAvailable:   22 kB\n"), Some(22 << 10));
        for bad in ["", "MemAvailable: x kB", "MemAvailable: 22", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(mem_available(bad), None, "{bad}");
        }
        assert_eq!(counted("0-3,8\n"), Some(5));
        for bad in ["", "3-1", "0-18446744073709551615", "x"] {
            assert_eq!(counted(bad), None, "{bad}");
        }
    }
}
