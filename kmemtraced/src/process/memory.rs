//! Memory of the recorder: reserved once before anything is changed, locked, and spared by the OOM killer.

use std::collections::TryReserveError;

use anyhow::anyhow;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use crate::fs::kernelfs::{KernelFs, PROC};

/// Address space of the main thread, bytes: mostly texts of proc (symbols, several copies of them).
const TEXTS: usize = 64 << 20;
/// Address space of a CPU's threads besides the blocks, bytes: stacks, tables of the compressor, a frame.
const THREADS: usize = 8 << 20;
/// `oom_score_adj` while recording: the kernel kills other processes first.
const SCORE: i32 = -900;
const SCORE_FILE: &str = "self/oom_score_adj";

/// Reserves the memory of a recording once and releases it: a limit that is too low is an error before anything is changed.
/// `pool_bytes` is the size of a CPU's block pool.
pub(crate) fn try_out(cpus: usize, pool_bytes: usize) -> anyhow::Result<()> {
    if [Resource::As, Resource::Data].iter().all(|&limit| getrlimit(limit).current.is_none()) {
        return Ok(());
    }
    let bytes = TEXTS + cpus * (THREADS + pool_bytes);
    let failed =
        |_| anyhow!("recording takes {} MiB more than is available: raise ulimit -v and ulimit -d", bytes >> 20);
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(failed)
}

/// Bytes for each CPU: `wanted`, limited so that all CPUs together take at most `1 / share` of memory.
pub(crate) fn share_of_memory(wanted: u64, share: u64, cpus: usize) -> u64 {
    let info = rustix::system::sysinfo();
    // Units, because `totalram` is a word: 4 bytes on some machines.
    #[allow(clippy::useless_conversion, reason = "not where a word has 4 bytes")]
    let memory = u64::from(info.totalram).saturating_mul(info.mem_unit.into());
    wanted.min(memory / share / cpus.max(1) as u64)
}

/// Allocates a buffer and touches its pages.
pub(crate) fn touched(bytes: usize) -> Result<Vec<u8>, TryReserveError> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes)?;
    buffer.resize(bytes, 1);
    Ok(buffer)
}

/// Locks the memory of the process, present and future; an error is the message. Pages that are never touched are not locked, so
/// stacks cost little.
pub(crate) fn lock() -> Result<(), String> {
    let failed = |why: String| format!("memory is not locked ({why}): a machine short of memory may lose events");
    // Under a limit, locking future memory would make later allocations fail.
    let may_lock = rustix::thread::capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::IPC_LOCK));
    if !may_lock && getrlimit(Resource::Memlock).current.is_some() {
        return Err(failed("raise ulimit -l".into()));
    }
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(all).map_err(|error| failed(error.to_string()))
}

/// Lowers the OOM score of this process, which starts no other one any more; an error is the message.
pub(crate) fn lower_oom_score() -> Result<(), String> {
    let lower = || {
        let proc = KernelFs::find(&PROC)?;
        let is_low = proc.get(SCORE_FILE)?.trim().parse().is_ok_and(|score: i32| score <= SCORE);
        if is_low { Ok(()) } else { proc.set(SCORE_FILE, &SCORE.to_string()) }
    };
    lower().map_err(|error: anyhow::Error| format!("the OOM killer may choose this process: {error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        assert_eq!(touched(5).map(|buffer| buffer.len()), Ok(5));
        assert!(touched(isize::MAX.cast_unsigned()).is_err());
    }
}
