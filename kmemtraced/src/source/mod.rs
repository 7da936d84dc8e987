//! Sources: kernel buffers to record from, set up before a recording and undone after it.
//!
//! [`TraceSource`] is the seam: the rest of the recorder knows nothing else of a source. `tracefs` records from ring buffers, in
//! an `instance` of its own or in a buffer filled since `boot`; `relay` records from the channel of the 2008 kmemtrace.
//! `events` has the profiles and formats of events, `latency` the profile of that name, `functions` the tracer of functions, `stacks`
//! the ways to stacks, `probes` the events for frees that have none, `stack_cost` the time of a stack, `task_lists` the tasks to record alone, `buffer_size` the default and
//! the limit of buffers. `kernel` has what older kernels lack, `ownership` tells the
//! recorder's instances from those of others, `as_found` keeps earlier values of control files, `undo` removes or restores,
//! `recovery` gathers what `recover` did.
//!
//! Room for another source: implement [`TraceSource`] and [`CpuSource`] in a file of its own, and choose it in `record`.

pub(crate) mod as_found;
pub(crate) mod boot;
pub(crate) mod buffer_size;
pub(crate) mod events;
pub(crate) mod functions;
pub(crate) mod instance;
pub(crate) mod kernel;
pub(crate) mod latency;
pub(crate) mod ownership;
mod poll;
pub(crate) mod probes;
pub(crate) mod recovery;
pub(crate) mod relay;
pub(crate) mod stack_cost;
pub(crate) mod stacks;
pub(crate) mod stop;
mod task_lists;
pub(crate) mod tracefs;
pub(crate) mod undo;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::kernel::stats::Stats;
use kmemtrace_abi::trace::Scope;
use kmemtrace_sandbox::Sandbox;

use crate::control::files::Control;
use crate::source::functions::Functions;
use crate::source::probes::Probes;
use crate::source::stacks::Stacks;
use crate::source::stop::Stop;

/// Trace buffer of one CPU in the kernel.
pub(crate) trait CpuSource: Send {
    /// Waits for data, at most for `timeout` and until the stop; false where there is none.
    fn wait(&self, timeout: Duration, stop: &Stop) -> bool;
    /// Takes bytes out of the buffer: one sub-buffer of a ring buffer, all that fit of a relay channel. 0 and EAGAIN do not mean
    /// the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Bytes of the kernel's sub-buffers now; `None` where they are not known, or cannot change.
    fn sub_buffer_bytes(&self) -> Option<usize> {
        None
    }
    /// Current counters of the kernel.
    fn sample(&self) -> io::Result<Sample>;
    /// Lower bound of the current time on the trace clock; `None` without a clock, or where reading it takes a system call.
    fn now(&self) -> Option<u64>;
}

/// Counters of a CPU at some time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) stats: Stats,
    /// Times before and after the reading, on the trace clock; `None` where the source has no clock.
    pub(crate) read: Option<(u64, u64)>,
    /// Drain time: all events up to it had been taken out of the buffer; `None` where it is not known.
    pub(crate) drained: Option<u64>,
}

/// A source of events, set up to be recorded. Dropping it undoes all that set-up changed in the kernel.
pub(crate) trait TraceSource {
    /// Description of the source.
    fn facts(&self) -> &Arc<SourceFacts>;
    /// Buffer of a CPU; `None` for one that was never online. An error names the file and the reason.
    fn cpu(&self, cpu: u32) -> anyhow::Result<Option<Box<dyn CpuSource>>>;
    /// Limits the recording to the threads and to the tasks that they start; to be called before the events are enabled, and again for
    /// more threads. Only a source whose scope is tasks can do it.
    fn follow(&self, _threads: &[u32]) -> anyhow::Result<()> {
        Ok(())
    }
    /// Threads that the recording is limited to now: those of [`TraceSource::follow`] that live, and their children. `None` where this is
    /// not known.
    fn followed(&self) -> Option<BTreeSet<u32>> {
        None
    }
    /// Allows what the recorder opens of the source from now on to its undo.
    fn allow(&self, sandbox: &mut Sandbox) -> anyhow::Result<()>;
    /// Allows what a [`CpuSource`] opens.
    fn allow_reading(&self, _sandbox: &mut Sandbox) -> anyhow::Result<()> {
        Ok(())
    }
    /// Enables the events.
    fn start(&self) -> anyhow::Result<()>;
    /// Notes that the recording has begun: from here on the readers drain the buffers. A source that is dropped before is left as it
    /// was found, with all events in it. Returns the text of the item PROBES, if there is one.
    fn begun(&self) -> Option<String> {
        None
    }
    /// Control files as set-up left them, returned once. The caller must drop them before the source.
    fn control(&self) -> Option<Control>;
    /// Stops recording; events in the buffers stay there to be read. An error names the switch; a source that is gone has none.
    fn stop(&self) -> anyhow::Result<()>;
    /// Lines `PID COMM` that the kernel kept.
    fn comms(&self) -> Vec<u8>;
}

/// Description of a source, for the header of each file.
pub(crate) struct SourceFacts {
    /// CPUs that can have a buffer, ascending.
    pub(crate) cpus: Vec<u32>,
    pub(crate) framing: Arc<Framing>,
    /// Bytes of a `long` in the kernel.
    pub(crate) word_bytes: u8,
    /// Trace clock; relay records have none.
    pub(crate) clock: Option<String>,
    /// Text of `events/header_page`; empty for a relay channel, as is the next one.
    pub(crate) header_page: String,
    /// Text of `events/header_event`.
    pub(crate) header_event: String,
    /// Format files by `system/event`.
    pub(crate) formats: Vec<(String, String)>,
    /// Enabled events, as `system/event`.
    pub(crate) events: Vec<String>,
    /// Bytes of the kernel buffer of a CPU; `None` where they are not known.
    pub(crate) buffer_bytes: Option<u64>,
    /// True if the kernel began to record at boot.
    pub(crate) since_boot: bool,
    /// Part of the system that is recorded.
    pub(crate) scope: Scope,
    /// Filter of the kernel on allocation events.
    pub(crate) filter: Option<String>,
    /// Stacks that the kernel records.
    pub(crate) stacks: Stacks,
    /// Functions that the kernel records.
    pub(crate) functions: Functions,
    /// Probe events of the recorder; they are among the `events`.
    pub(crate) probes: Probes,
    /// Events that the user asked for by a profile and the kernel lacks.
    pub(crate) missing: Vec<&'static str>,
    /// Text for the user.
    pub(crate) shown: String,
}

/// Units of a byte stream that must not be split between blocks.
#[derive(Debug)]
pub(crate) enum Framing {
    SubBuffers(PageShape),
    Relay(RelayFraming),
}

/// Record layout of a relay channel. All four revisions announce the same version, so the reader finds the layout in the bytes.
#[derive(Debug, Default)]
pub(crate) struct RelayFraming {
    pub(crate) layout: OnceLock<Layout>,
}
