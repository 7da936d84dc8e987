//! Names and durations of rows about the time that tasks wait for memory.

use kmemtrace_abi::event::Span;

use crate::documents::row::Name;
use crate::latency::{Latency, span_name};

/// Name of a kind of span.
pub(super) fn name_of(span: Span, latency: &Latency) -> Name<'_> {
    Some(span_name(span, &latency.names.trace_names).into())
}

/// A duration; `None` where order keys count no nanoseconds.
pub(super) fn known(latency: &Latency, duration: u64) -> Option<u64> {
    latency.has_durations().then_some(duration)
}

/// Name of the function that begins at an address.
pub(super) fn function_name(latency: &Latency, address: u64) -> Name<'_> {
    // Symbols are looked up by return addresses, which are behind the begin.
    let symbol = latency.names.symbolizer().lookup(address.checked_add(1)?)?;
    Some(symbol.name.into())
}

/// `symbol+0xoffset` of a call-site.
pub(super) fn symbol(latency: &Latency, call_site: u64) -> Name<'_> {
    latency.names.symbolizer().lookup(call_site).map(|symbol| symbol.text().into())
}

/// Flags of an allocation by the kernel's names, as a number where the trace does not tell them.
pub(super) fn gfp_name(latency: &Latency, flags: u64) -> Name<'static> {
    let text = match &latency.gfp_names {
        Some(names) => names.text(flags).to_string(),
        None => format!("{flags:#x}"),
    };
    Some(text.into_bytes().into())
}
