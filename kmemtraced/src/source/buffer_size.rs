//! The limit of a buffer size that is asked for: kernel buffers may take half of the memory that is available. The kernel itself
//! gives all it has, and other programs are killed for the rest.

use anyhow::bail;

use crate::fs::kernelfs::{KernelFs, PROC, SYSFS};
use crate::process::memory;

/// The default kernel buffer of a CPU, the share of all memory that they may take, and the least of it.
pub(crate) const BUFFER_BYTES: u64 = 16 << 20;
const BUFFER_SHARE: u64 = 4;
const LEAST_BUFFER_BYTES: u64 = 1 << 20;

/// The share of available memory that kernel buffers may take.
const SHARE: u64 = 2;

/// The buffer of each of so many CPUs where nobody asked for another.
pub(crate) fn default_bytes(cpus: usize) -> u64 {
    memory::share_of_memory(BUFFER_BYTES, BUFFER_SHARE, cpus).max(LEAST_BUFFER_BYTES)
}

/// Refuses `-b BYTES` where the buffers of all CPUs, less the `held` bytes that each of them has already, would take more than
/// half of the available memory.
pub(crate) fn check(tracefs: &KernelFs, bytes: u64, held: u64) -> anyhow::Result<()> {
    let possible = tracefs.numbered("per_cpu", "cpu")?.len() as u64;
    match refusal(bytes, held, online_cpus().unwrap_or(possible), available()) {
        Some(reason) => bail!(reason),
        None => Ok(()),
    }
}

fn refusal(bytes: u64, held: u64, cpus: u64, available: u64) -> Option<String> {
    let may_take = available / SHARE;
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

/// CPUs that have a buffer: the kernel makes one for each that is online.
fn online_cpus() -> Option<u64> {
    let list = KernelFs::find(&SYSFS).ok()?.read("devices/system/cpu/online").ok()?;
    counted(str::from_utf8(&list).ok()?)
}

/// Numbers in a list of the kernel's: `0-3,8`.
fn counted(list: &str) -> Option<u64> {
    list.trim().split(',').try_fold(0u64, |sum, range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
        sum.checked_add(to.checked_sub(from)?.checked_add(1)?)
    })
}

/// Memory that can be had without swapping, bytes.
fn available() -> u64 {
    let meminfo = KernelFs::find(&PROC).ok().and_then(|proc| proc.read("meminfo").ok());
    let told = meminfo.and_then(|text| mem_available(str::from_utf8(&text).ok()?));
    told.unwrap_or_else(|| {
        // Without /proc, and before Linux 3.14. In units, because these fields are words: 4 bytes on some machines.
        let info = rustix::system::sysinfo();
        #[allow(clippy::useless_conversion, reason = "not where a word has 4 bytes")]
        let units = u64::from(info.freeram).saturating_add(u64::from(info.bufferram));
        units.saturating_mul(info.mem_unit.into())
    })
}

/// `MemAvailable` of /proc/meminfo, bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A size as the command line takes it.
fn as_given(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// A size with at most one decimal.
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
        // Only what a buffer grows by is new.
        assert_eq!(refusal(3 * gib, 2 * gib, 2, 4 * gib), None);
        assert_eq!(refusal(3 * gib, 8 * gib, 2, 4 * gib), None);
        // A product that 64 bits do not hold.
        assert!(refusal(u64::MAX, 0, 4096, u64::MAX).is_some());
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
