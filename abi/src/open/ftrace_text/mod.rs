//! Texts of events: `trace` and `trace_pipe` of the kernel's tracer from Linux 2.6.32 on, `trace-cmd report` and `perf script`.
//!
//! A text is read twice. The first pass ([`scan`]) collects what must be known before the first event: gaps, CPUs, functions, and whether
//! pointers are hashed. The second one ([`source`]) hands over the events in the order of the lines, which is the order in which they
//! happened: printed times are rounded.

mod buffers;
mod calls;
mod entry;
mod graph;
mod head;
mod record;
mod refusal;
mod scan;
mod sites;
mod source;
mod texts;
mod waits;

use std::sync::Arc;

use self::source::TextSource;
pub(super) use self::texts::{Texts, read};
use super::foreign::is_text;
use super::listing::MAX_CPUS;
use super::options::OpenOptions;
use crate::clock::Clock;
use crate::event::ByKind;
use crate::kernel::release::Release;
use crate::stream::source::EventSource;
use crate::trace::{
    Addresses, Deferred, FTRACE_TEXT, InputCapabilities, Metadata, OpenError, PageBytesFrom, Scope, Trace,
};

/// First release that hashes pointers: `lib/vsprintf.c` of Linux 4.15.
const HASHES: Release = Release(4, 15, 0);

/// True for a file whose first bytes are `sample` and that may be such a text: its events may stand far behind.
pub(super) fn may_be(sample: &[u8]) -> bool {
    sample.starts_with(b"# tracer:")
        || is_text(sample)
        || sample.split(|&byte| byte == b'\n').any(|line| entry::is_event(&entry::entry(line)))
}

/// Opens texts that were read.
pub(super) fn open(texts: &Arc<Texts>, options: &OpenOptions) -> Result<Trace, OpenError> {
    let of_index = |index| Box::new(TextSource::new(Arc::clone(texts), index)) as Box<dyn EventSource>;
    let is_whole = texts.texts.iter().any(|text| text.facts.is_whole);
    let clock = options.clock.clone().or_else(|| is_whole.then(|| Clock::UNNAMED_TICKS.to_owned()));
    let mut trace = Trace::of_sources(FTRACE_TEXT, clock.as_deref(), (0..texts.texts.len()).map(of_index).collect())?;
    let facts = || texts.texts.iter().map(|text| &text.facts);
    let is_raw = facts().any(|facts| facts.has_real_pointer) || texts.release.is_some_and(|release| release < HASHES);
    let cpus = || facts().flat_map(|facts| facts.cpus.keys().copied());
    let info = &mut trace.info;
    if cpus().next().is_some() {
        let all = texts.possible.filter(|_| facts().all(|facts| facts.cpus.len() > 1)).unwrap_or(0).min(MAX_CPUS);
        info.cpus = cpus().chain(0..all).collect();
        info.cpus.sort_unstable();
        info.cpus.dedup();
    }
    info.capabilities = InputCapabilities {
        call_sites: texts.kallsyms.is_empty() || facts().any(|facts| facts.has_bare_sites),
        times: !facts().any(|facts| facts.is_untimed),
        ..InputCapabilities::events(ByKind::from_fn(|kind| {
            kind.space().is_always_shown() || facts().any(|facts| facts.kinds[kind])
        }))
    };
    info.kernel.clone_from(&texts.kernel);
    info.page_bytes = Some(texts.page_bytes);
    info.page_bytes_from = if options.page_bytes.is_some() { PageBytesFrom::Option } else { PageBytesFrom::Guess };
    info.addresses = if is_raw { Addresses::Raw } else { Addresses::Hashed };
    info.scope = Scope::Unknown;
    info.deferred = Deferred::without_probes(texts.kernel.as_deref());
    trace.metadata = Metadata { kallsyms: texts.kallsyms.clone(), comms: texts.comms.clone(), ..Metadata::default() };
    Ok(trace)
}
