//! Choice of the source by the command line, and the limits that are checked before anything is changed.

use anyhow::Context;
use kmemtrace_abi::trace::Scope;

use crate::args::Args;
use crate::fs::kernelfs::KernelFs;
use crate::process::memory;
use crate::process::messages;
use crate::process::signals::Signals;
use crate::source::TraceSource;
use crate::source::boot;
use crate::source::buffer_size;
use crate::source::events;
use crate::source::probes;
use crate::source::recovery::Recovery;
use crate::source::relay::{self, RelayChannel};
use crate::source::stacks::Wished;
use crate::source::tracefs::{self, AddedToBoot, InstanceOptions, RingBuffers};
use crate::write::workers::PoolSize;

/// Sets up the source that `args` name; by default the relay channel where the kernel has one, else tracefs.
pub(crate) fn set_up(args: &Args, signals: &Signals) -> anyhow::Result<Box<dyn TraceSource>> {
    if let Some(path) = &args.relay {
        return set_up_relay(args, KernelFs::at(path).with_context(|| format!("--relay {}", path.display()))?);
    }
    if args.boot {
        let more = args.events.as_deref().unwrap_or_default();
        let tracefs = checked_tracefs(args)?;
        let is_stopped = &|| signals.stops() > 0;
        let added = AddedToBoot { events: more, stacks: !args.no_stack, probes: !args.no_probes, is_stopped };
        let buffers = RingBuffers::take_over(tracefs, &args.instance, &added, args.buffer_size)?;
        return Ok(Box::new(buffers));
    }
    let wants_tracefs = args.tracefs.is_some()
        || args.events.is_some()
        || args.buffer_size.is_some()
        || args.clock.is_some()
        || args.filter.is_some()
        || args.only_command
        || args.task_option().is_some()
        || args.stack.is_some()
        || args.functions.is_some();
    if let Some(channel) = relay::find().filter(|_| !wants_tracefs) {
        return set_up_relay(args, channel);
    }
    let task_option = args.only_command.then_some("--only-command").or_else(|| args.task_option());
    let slab = ["slab".to_owned()];
    let events = args.events.as_deref().unwrap_or(&slab);
    let begins = events::has_latency(events) && !args.no_stack;
    let options = InstanceOptions {
        name: &args.instance,
        events,
        clock: args.clock.as_deref(),
        filter: args.filter.as_deref(),
        stack: Wished { when: args.stack.as_ref(), begins, sites: !args.no_stack },
        functions: args.functions.as_deref(),
        probes: !args.no_probes,
        scope: if task_option.is_some() { Scope::Tasks } else { Scope::System },
        task_option: task_option.unwrap_or_default(),
        buffer_bytes: &|cpus| args.buffer_bytes().unwrap_or_else(|| buffer_size::default_bytes(cpus)),
        is_stopped: &|| signals.stops() > 0,
    };
    Ok(Box::new(RingBuffers::set_up(checked_tracefs(args)?, &options)?))
}

fn set_up_relay(args: &Args, channel: KernelFs) -> anyhow::Result<Box<dyn TraceSource>> {
    try_out_memory(args, channel.numbered(".", "cpu")?.len())?;
    Ok(Box::new(RelayChannel::set_up(channel)?))
}

/// The trace directory, once buffer size and memory limits allow the recording and leftovers of a killed recorder are undone.
fn checked_tracefs(args: &Args) -> anyhow::Result<KernelFs> {
    let tracefs = tracefs::find(args.tracefs.as_deref())?;
    if let Some(bytes) = args.buffer_size.filter(|_| !args.force_buffer) {
        let held = if args.boot { boot::buffer_bytes(&tracefs, &args.instance) } else { 0 };
        buffer_size::check(&tracefs, bytes, held)?;
    }
    try_out_memory(args, tracefs.numbered("per_cpu", "cpu")?.len())?;
    let mut recovery = Recovery::default();
    boot::recover(&tracefs, &mut recovery);
    recovery.failed.iter().for_each(|error| messages::say(format!("kmemtraced: {error:#}")));
    if let Err(error) = probes::remove_leftovers(&tracefs) {
        messages::say(format!("kmemtraced: {error:#}"));
    }
    Ok(tracefs)
}

fn try_out_memory(args: &Args, cpus: usize) -> anyhow::Result<()> {
    memory::try_out(cpus, pool(args).max_bytes(cpus))
}

/// Size of the block pools.
pub(crate) fn pool(args: &Args) -> PoolSize {
    if args.lean { PoolSize::Lean } else { PoolSize::Growing }
}
