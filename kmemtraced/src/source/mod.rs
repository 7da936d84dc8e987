//! Sources: kernel buffers to record from, set up before a recording and undone after it.
//!
//! [`TraceSource`] is the seam: the rest of the recorder knows nothing else of a source. `tracefs` records from ring buffers, in
//! an `instance` of its own or in a buffer filled since `boot`; `relay` records from the channel of the 2008 kmemtrace.
//! `as_found` keeps the earlier values of control files, `buffer_size` refuses buffers that are too large for the machine.
//!
//! Room for another source: implement [`TraceSource`] and [`CpuSource`] in a file of its own, and choose it in `record`.

pub(crate) mod as_found;
pub(crate) mod boot;
pub(crate) mod buffer_size;
mod events;
pub(crate) mod instance;
mod ownership;
mod poll;
pub(crate) mod relay;
pub(crate) mod tracefs;
pub(crate) mod undo;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kmemtrace_abi::format::PageShape;
use kmemtrace_abi::relay::Layout;
use kmemtrace_abi::stats::Stats;

use crate::control::files::Control;

/// A CPU's trace buffer in the kernel.
pub(crate) trait CpuSource: Send {
    /// Waits until there is something to take, at most this long; false where there is not.
    fn wait(&self, timeout: Duration) -> bool;
    /// Takes bytes: of a ring buffer one sub-buffer, of a channel as many as there are. 0 and EAGAIN are no end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// The kernel's counters now.
    fn sample(&self) -> io::Result<Sample>;
    /// A time on the trace's clock that is not later than now; `None` where that takes a system call, or there is no clock.
    fn now(&self) -> Option<u64>;
}

/// A CPU's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) stats: Stats,
    /// From when to when they were read, on the trace's clock; `None` where the source has no clock.
    pub(crate) read: Option<(u64, u64)>,
    /// All events up to this time had been taken out of the buffer; `None`: not known.
    pub(crate) drained: Option<u64>,
}

/// What is recorded from. Dropping it ends that, and undoes all that was changed.
pub(crate) trait TraceSource {
    /// What it is.
    fn facts(&self) -> &Arc<SourceFacts>;
    /// A CPU's buffer; `None` for one that was never online. An error names the file and the reason.
    fn cpu(&self, cpu: u32) -> anyhow::Result<Option<Box<dyn CpuSource>>>;
    fn start(&self) -> anyhow::Result<()>;
    /// The recording has begun: from here on the buffers are drained into its files. A source that is dropped before is left as it
    /// was found, with all that is in it.
    fn begun(&self) {}
    /// The control files as set-up has left them, once. They must be let go of before the source is.
    fn control(&self) -> Option<Control>;
    /// No event comes after this one; what the buffers hold stays there to be taken.
    fn stop(&self);
    /// `PID COMM` lines that the kernel has kept.
    fn comms(&self) -> Vec<u8>;
}

/// What a file of the recording says of its source.
pub(crate) struct SourceFacts {
    /// CPUs that can have a buffer, ascending.
    pub(crate) cpus: Vec<u32>,
    pub(crate) framing: Arc<Framing>,
    pub(crate) word_bytes: u8,
    /// Trace clock; relay records have none.
    pub(crate) clock: Option<String>,
    /// tracefs: `events/header_page` and `events/header_event`.
    pub(crate) header_page: String,
    pub(crate) header_event: String,
    /// `system/event` and its format file.
    pub(crate) formats: Vec<(String, String)>,
    /// What is enabled.
    pub(crate) events: Vec<String>,
    /// Kernel buffer of a CPU.
    pub(crate) buffer_bytes: Option<u64>,
    /// Whether the kernel began to record at boot.
    pub(crate) since_boot: bool,
    /// For people: what is recorded from.
    pub(crate) shown: String,
}

/// How a stream of bytes is made of pieces that must stay whole.
#[derive(Debug)]
pub(crate) enum Framing {
    SubBuffers(PageShape),
    Relay(RelayFraming),
}

/// Which layout the records of a channel have: all revisions announce the same version, so only their bytes tell.
#[derive(Debug, Default)]
pub(crate) struct RelayFraming {
    pub(crate) layout: OnceLock<Layout>,
}
