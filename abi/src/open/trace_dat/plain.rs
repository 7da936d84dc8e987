//! Facts that any `trace.dat` has.

use super::container::{Buffer, Container};
use super::kept::Kept;
use crate::capabilities::InputCapabilities;
use crate::clock::OrderKey;
use crate::open::header::host_of_uname;
use crate::open::options::OpenOptions;
use crate::open::tree::release_and_machine;
use crate::stream::report::Source;
use crate::target::Target;
use crate::trace::{Addresses, Deferred, InputKind, PageBytesFrom, Run, Scope, TraceInfo};

/// Facts that any `trace.dat` has.
pub(super) struct PlainFacts {
    pub(super) kernel: Option<String>,
    pub(super) machine: Option<String>,
    pub(super) host: Option<String>,
    pub(super) clock: Option<String>,
    /// Bytes of a page, and who says so.
    pub(super) page_bytes: (Option<u64>, PageBytesFrom),
    /// Number of possible CPUs.
    pub(super) cpus: usize,
    /// Statistics of the CPUs, where the file has those of all.
    pub(super) stats: Vec<(u32, String)>,
}

impl PlainFacts {
    pub(super) fn of(container: &Container, buffer: &Buffer, kept: Option<&Kept>, options: &OpenOptions) -> PlainFacts {
        let (kernel, machine) = release_and_machine(&container.uname);
        // Version 7 has the clock's name for each buffer, which trace-cmd 3.1 sets to "local" whatever the clock is: a text with brackets
        // is the kernel's own.
        let own = buffer.clock.as_deref().filter(|clock| clock.contains('['));
        let clock = own.or(container.clock.as_deref()).or(buffer.clock.as_deref()).map(clock_name);
        let page_bytes = match kept {
            Some(kept) if options.page_bytes.is_none() => kept.page_bytes(),
            _ => page_bytes(container, machine.as_deref(), options),
        };
        let has_stats = buffer.stats.len() == buffer.parts.len();
        let stats = buffer.parts.iter().map(|part| part.cpu).zip(buffer.stats.iter().cloned());
        PlainFacts {
            kernel,
            machine,
            host: host_of_uname(container.uname.as_bytes()),
            clock,
            page_bytes,
            cpus: container.cpus.map_or(buffer.parts.len(), |cpus| cpus as usize),
            stats: stats.filter(|_| has_stats).collect(),
        }
    }

    /// Facts of the trace; `cpus`: all, and those that are missing.
    pub(super) fn info(
        &self,
        target: Target,
        capabilities: InputCapabilities,
        (cpus, missing): (Vec<u32>, Vec<u32>),
    ) -> TraceInfo {
        let (page_bytes, page_bytes_from) = self.page_bytes;
        TraceInfo {
            input: InputKind::TraceDat,
            capabilities,
            source: Some(Source::Tracefs),
            deferred: Deferred::without_probes(self.kernel.as_deref()),
            kernel: self.kernel.clone(),
            arch: self.machine.clone(),
            endian: Some(target.endian),
            word_bytes: Some(target.word_bytes),
            page_bytes,
            page_bytes_from,
            addresses: Addresses::Raw,
            clock: self.clock.clone(),
            since_boot: false,
            cpus,
            missing,
            order: OrderKey::Time,
            scope: Scope::Unknown,
            filter: None,
            host: self.host.clone(),
            boot: None,
            recording: None,
            run: Run::default(),
            symbols: None,
            text: None,
        }
    }
}

/// Bytes of a page, and who says so. The head has the size of a sub-buffer of the main buffer, which is a page by default, and machines
/// of two kinds have pages of one size.
pub(super) fn page_bytes(
    container: &Container,
    machine: Option<&str>,
    options: &OpenOptions,
) -> (Option<u64>, PageBytesFrom) {
    if let Some(bytes) = options.page_bytes {
        return (Some(bytes), PageBytesFrom::Option);
    }
    match (machine, container.page_bytes) {
        (Some("x86_64" | "i386" | "i486" | "i586" | "i686" | "s390x" | "s390"), _) | (_, 4096) => {
            (Some(4096), PageBytesFrom::Trace)
        }
        (_, 0) => (None, PageBytesFrom::Guess),
        (_, bytes) => (Some(bytes.into()), PageBytesFrom::Guess),
    }
}

/// The clock in brackets, as in the text of `trace_clock`, or the word alone.
fn clock_name(text: &str) -> String {
    text.split(['[', ']']).nth(1).unwrap_or(text).trim().to_owned()
}
