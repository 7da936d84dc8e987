//! Names and durations of rows about the time that tasks wait for memory.

use kmemtrace_abi::event::{Names, Span};
use kmemtrace_abi::kernel::gfp::GfpNames;

use crate::account::cgroups::Cgroups;
use crate::documents::row::{Address, Name};
use crate::latency::{Latency, span_name};
use crate::names::kallsyms::inside_of;
use crate::names::known::KnownNames;

/// Facts that name what spans tell of.
#[derive(Clone, Copy)]
pub(crate) struct Naming<'a> {
    pub(crate) names: &'a KnownNames,
    /// Cgroups of the threads, where they are known.
    pub(crate) cgroups: Option<&'a Cgroups>,
    pub(crate) trace_names: &'a Names,
    pub(crate) gfp_names: Option<&'a GfpNames>,
    /// Order keys count nanoseconds.
    pub(crate) has_durations: bool,
    /// Stalls have the events inside them.
    pub(crate) lists_events: bool,
}

/// Address of a record; `None` where its event has no such field.
pub(super) fn told(address: u64) -> Option<Address> {
    (address != 0).then_some(Address(address))
}

impl<'a> Naming<'a> {
    /// Facts of an answer.
    pub(super) fn of(latency: &'a Latency) -> Naming<'a> {
        Naming {
            names: &latency.names,
            cgroups: latency.cgroups.as_ref(),
            trace_names: &latency.names.trace_names,
            gfp_names: latency.gfp_names.as_deref(),
            has_durations: latency.has_durations(),
            lists_events: latency.request.lists_events,
        }
    }

    /// Name of a kind of span.
    pub(super) fn span(self, span: Span) -> Name<'a> {
        Some(span_name(span, self.trace_names).into())
    }

    /// Path of the cgroup of a thread at an order key.
    pub(super) fn cgroup(self, pid: Option<i32>, at: u64) -> Name<'a> {
        Some(self.cgroups?.path(pid?, at)?.into())
    }

    /// A duration; `None` where order keys count no nanoseconds.
    pub(super) fn known(self, duration: u64) -> Option<u64> {
        self.has_durations.then_some(duration)
    }

    /// Name of the function that begins at an address.
    pub(super) fn function(self, address: u64) -> Name<'a> {
        let symbol = self.names.symbolizer().lookup(inside_of(address))?;
        Some(symbol.name.into())
    }

    /// `symbol+0xoffset` of a call-site.
    pub(super) fn symbol(self, call_site: u64) -> Name<'a> {
        self.names.symbolizer().lookup(call_site).map(|symbol| symbol.text().into())
    }

    /// Flags of an allocation by the kernel's names, as a number where the trace does not tell them.
    pub(super) fn gfp(self, flags: u64) -> Name<'static> {
        let text = match self.gfp_names {
            Some(names) => names.text(flags).to_string(),
            None => format!("{flags:#x}"),
        };
        Some(text.into_bytes().into())
    }
}

/// Name of a kind of span.
pub(super) fn name_of(span: Span, latency: &Latency) -> Name<'_> {
    Naming::of(latency).span(span)
}

/// A duration; `None` where order keys count no nanoseconds.
pub(super) fn known(latency: &Latency, duration: u64) -> Option<u64> {
    Naming::of(latency).known(duration)
}

/// Name of the function that begins at an address.
pub(super) fn function_name(latency: &Latency, address: u64) -> Name<'_> {
    Naming::of(latency).function(address)
}

/// `symbol+0xoffset` of a call-site.
pub(super) fn symbol(latency: &Latency, call_site: u64) -> Name<'_> {
    Naming::of(latency).symbol(call_site)
}

/// Flags of an allocation by the kernel's names, as a number where the trace does not tell them.
pub(super) fn gfp_name(latency: &Latency, flags: u64) -> Name<'static> {
    Naming::of(latency).gfp(flags)
}
