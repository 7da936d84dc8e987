//! `latency`, `shrinkers`, `stalls`, `waits` and `functions`: the time that tasks wait for memory.

mod ended;
mod events;
mod functions;
mod naming;
mod shrinkers;
mod spans;
mod stalls;
mod waits;

pub use ended::{EndedFrame, EndedRow};
pub use events::EventRow;
pub use functions::{FunctionRow, Functions, OtherCalls};
pub(crate) use naming::Naming;
pub use shrinkers::{OtherShrinkers, ShrinkerRow, Shrinkers};
pub use spans::{Bucket, NestingMembers, SpanRow, Spans, TaskMembers};
pub use stalls::{InsideRow, OtherStalls, StackTable, StallRow, Stalls};
pub use waits::{OtherWaits, WaitRow, Waits};

use super::document::{Body, Document};
use super::head::{CompletenessMembers, Filters, Head, NamesMembers, QueryMembers, TraceMembers};
use crate::latency::Latency;

/// `latency`: a row per kind of span, their nesting, and tasks that waited, `top` of these.
pub fn latency(latency: &Latency, top: Option<usize>) -> Document<'_> {
    of("latency", latency, Vec::new(), Body::Latency(Box::new(spans::spans(latency, top))))
}

/// `shrinkers`: a row per shrinker and node; `by_function`: per function.
pub fn shrinkers(latency: &Latency, by_function: bool, top: Option<usize>) -> Document<'_> {
    let by = if by_function { vec!["function"] } else { Vec::new() };
    of("shrinkers", latency, by, Body::Shrinkers(shrinkers::shrinkers(latency, by_function, top)))
}

/// `stalls`: a row per stall, the longest first, or in the order of time.
pub fn stalls(latency: &Latency, by_time: bool, top: Option<usize>) -> Document<'_> {
    of("stalls", latency, Vec::new(), Body::Stalls(Box::new(stalls::stalls(latency, by_time, top))))
}

/// `waits`: a row per combination of the keys of the request.
pub fn waits(latency: &Latency, top: Option<usize>) -> Document<'_> {
    let by = latency.request.wait_keys().iter().map(|key| key.name()).collect();
    of("waits", latency, by, Body::Waits(Box::new(waits::waits(latency, top))))
}

/// `functions`: a row per function that was timed.
pub fn functions(latency: &Latency, top: Option<usize>) -> Document<'_> {
    of("functions", latency, Vec::new(), Body::Functions(functions::functions(latency, top)))
}

fn of<'a>(view: &str, latency: &'a Latency, by: Vec<&'static str>, body: Body<'a>) -> Document<'a> {
    let Latency { observed, info, names, given, window, .. } = latency;
    let head = Head {
        schema: format!("kmemtrace.{view}/1"),
        completeness: CompletenessMembers::of(&observed.completeness, false),
        trace: TraceMembers::of_observed(info, observed),
        names: NamesMembers::of_report(names.report()),
        query: QueryMembers { filters: Filters(given), time: *window, by },
    };
    Document { head, body }
}
