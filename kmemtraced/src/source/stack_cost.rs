//! Cost of a stack on this machine, measured in an instance that lasts for a moment.

use std::time::{Duration, Instant};

use anyhow::bail;
use kmemtrace_abi::kernel::stats::Stats;
use kmemtrace_abi::trace::Scope;

use crate::choices::StackWhen;
use crate::fs::kernelfs::KernelFs;
use crate::source::instance::Instance;
use crate::source::stacks::{self, Way};

/// Rounds with stacks, and as many without: the fastest ones are compared, because other programs disturb a round.
const ROUNDS: usize = 5;
/// Allocations of a round, a few events each.
const ALLOCATIONS: usize = 500;

/// Way of `--stack`, and the time that a stack takes; `None` where the machine is too busy to tell.
pub(crate) struct StackCost {
    pub(crate) way: Way,
    pub(crate) each: Option<Duration>,
}

/// Time and number of records of a round.
#[derive(Clone, Copy)]
struct Round {
    time: Duration,
    records: u64,
}

/// Measures in a new instance `name`, which is removed again.
pub(crate) fn measure(tracefs: KernelFs, name: &str) -> anyhow::Result<StackCost> {
    let instance = Instance::create(tracefs, name)?;
    let fs = &instance.fs;
    let events: Vec<String> = stacks::proof_event(fs)?.map(str::to_owned).into_iter().collect();
    let [event] = &*events else { bail!("no event to measure with") };
    let when = StackWhen::Alloc;
    let way = stacks::choose(fs, instance.top(), Some(&when), Scope::System)?;
    fs.set(&format!("events/{event}/enable"), "1")?;
    let without = fastest(fs)?;
    stacks::set(fs, &events, &when, None, way.clone())?;
    let with = fastest(fs)?;
    let stacks = with.records.saturating_sub(without.records);
    let time = with.time.saturating_sub(without.time);
    let each = u32::try_from(stacks).ok().and_then(|stacks| time.checked_div(stacks)).filter(|each| !each.is_zero());
    Ok(StackCost { way, each })
}

/// The fastest of some rounds.
fn fastest(fs: &KernelFs) -> anyhow::Result<Round> {
    let mut best = round(fs)?;
    for _ in 1..ROUNDS {
        let next = round(fs)?;
        best = if next.time < best.time { next } else { best };
    }
    Ok(best)
}

fn round(fs: &KernelFs) -> anyhow::Result<Round> {
    let before = records(fs)?;
    fs.set("tracing_on", "1")?;
    let start = Instant::now();
    (0..ALLOCATIONS).for_each(|_| stacks::allocate());
    let time = start.elapsed();
    fs.set("tracing_on", "0")?;
    Ok(Round { time, records: records(fs)?.saturating_sub(before) })
}

/// Records that were written to the buffers of all CPUs, those that are overwritten by now too.
fn records(fs: &KernelFs) -> anyhow::Result<u64> {
    let mut records = 0;
    for cpu in fs.numbered("per_cpu", "cpu")? {
        let stats = Stats::parse(&fs.get_if_there(&format!("per_cpu/cpu{cpu}/stats"))?);
        records += stats.entries + stats.overrun;
    }
    Ok(records)
}
