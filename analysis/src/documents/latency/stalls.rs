//! `stalls`: every time that an allocation or charge waited.

use std::cmp::Reverse;

use foldhash::HashMap;
use kmemtrace_abi::stack::StackId;
use serde::{Serialize, Serializer};

use super::events::EventRow;
use super::naming::{Naming, known, told};
use crate::documents::ranked::{Listing, Others};
use crate::documents::row::{Address, Cell, Field, Name, Row, Rows, TakeMember, row, serialize_row};
use crate::documents::stack_frame::{RowStack, StackFrame};
use crate::latency::{InsideSpans, Latency, ListedStall};

row! {
    /// Spans inside a stall, of one kind and function.
    pub struct InsideRow<'a> {
        /// Kind of the spans.
        pub span: Name<'a>,
        /// Function of the shrinker; `None` of other spans.
        pub function: Option<Address>,
        /// Name of the function.
        pub symbol: Name<'a>,
        /// Number of spans.
        pub count: u64,
        /// Sum of their durations.
        pub total: Option<u64>,
        /// Largest duration.
        pub max: Option<u64>,
        /// Objects freed; `None` of spans that are no shrinkers.
        pub freed: Option<u64>,
    }
}

/// Row of `stalls`.
pub struct StallRow<'a> {
    /// Order key of the start.
    pub at: u64,
    /// Order key of the end.
    pub end: u64,
    /// Thread.
    pub pid: Option<i32>,
    /// Command name of the thread.
    pub comm: Name<'a>,
    /// Path of the thread's cgroup, which tables alone show.
    pub cgroup: Name<'a>,
    /// Kind of the span.
    pub span: Name<'a>,
    /// Duration.
    pub total: Option<u64>,
    /// Duration less that of the direct children.
    pub own: Option<u64>,
    /// Binary logarithm of the number of pages.
    pub order: Option<u64>,
    /// Flags of the allocation.
    pub gfp: Name<'a>,
    /// Pages reclaimed.
    pub reclaimed: Option<u64>,
    /// Return address in the function that waited; `None` without a stack.
    pub call_site: Option<Address>,
    /// Name of the function.
    pub symbol: Name<'a>,
    /// Stack of the start.
    pub stack: Option<RowStack<'a>>,
    /// Spans inside, largest total first.
    pub inside: Vec<InsideRow<'a>>,
    /// Events inside, where they were asked for.
    pub events: Option<Vec<EventRow<'a>>>,
}

impl Row for StallRow<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        self.at.put("at", take);
        self.end.put("end", take);
        self.pid.put("pid", take);
        self.comm.put("comm", take);
        self.span.put("span", take);
        self.total.put("total", take);
        self.own.put("self", take);
        self.order.put("order", take);
        self.gfp.put("gfp", take);
        self.reclaimed.put("reclaimed", take);
        self.call_site.put("call_site", take);
        self.symbol.put("symbol", take);
        self.stack.put("stack", take);
        self.inside.put("inside", take);
        if let Some(events) = &self.events {
            take("events", Cell::List(events));
        }
    }
}

impl Serialize for StallRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}

row! {
    /// Sum of rows left out.
    pub struct OtherStalls {
        /// Sum of their durations.
        pub total: Option<u64>,
    }
}

/// Body of `stalls`.
#[derive(Serialize)]
pub struct Stalls<'a> {
    /// Stalls.
    #[serde(flatten)]
    pub listing: Listing<'a, StallRow<'a>, OtherStalls>,
    /// Stacks that rows name by number.
    pub stacks: StackTable<'a>,
    /// Number of stalls, with those left out.
    #[serde(skip)]
    pub count: u64,
    /// Sum of their durations.
    #[serde(skip)]
    pub total: Option<u64>,
}

/// Stacks that rows use, in the order of their numbers.
pub struct StackTable<'a>(Vec<RowStack<'a>>);

impl StackTable<'_> {
    /// True where no row has a stack.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for StackTable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|stack| (stack.number.to_string(), &stack.frames[..])))
    }
}

/// Frames of a stack.
pub(super) fn frames(naming: Naming<'_>, stack: StackId) -> Vec<StackFrame<'_>> {
    let symbols = naming.names.symbolizer();
    let frame = |&address: &u64| {
        let symbol = symbols.lookup(address);
        let owner = symbols.owner_of(address, symbol.as_ref());
        let module = owner.module().map(Into::into);
        let is_gone = symbol.is_some_and(|symbol| symbol.is_gone);
        StackFrame { address, symbol: symbol.map(|symbol| symbol.text().into()), module, owner, is_gone }
    };
    naming.trace_names.stacks.get(stack).iter().map(frame).collect()
}

fn inside_row<'a>(naming: Naming<'a>, row: &InsideSpans) -> InsideRow<'a> {
    InsideRow {
        span: naming.span(row.span),
        function: told(row.function),
        symbol: told(row.function).and_then(|at| naming.function(at.0)),
        count: row.count,
        total: naming.known(row.total),
        max: naming.known(row.max),
        freed: row.freed,
    }
}

/// The body of `stalls`.
pub(super) fn stalls<'a>(latency: &'a Latency, by_time: bool, top: Option<usize>) -> Stalls<'a> {
    let mut rows: Vec<&'a ListedStall> = latency.stalls.iter().collect();
    let duration = |row: &ListedStall| row.stall.end.saturating_sub(row.stall.begin);
    // They are in the order of time, and stay so where no duration is known.
    if !by_time && latency.has_durations() {
        rows.sort_by_key(|row| Reverse(duration(row)));
    }
    let sum = |rows: &[&ListedStall]| known(latency, rows.iter().fold(0, |sum, row| duration(row).saturating_add(sum)));
    let (count, total) = (rows.len() as u64, sum(&rows));
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = Others::one(rest.len(), OtherStalls { total: sum(&rest) });
    let mut numbered: HashMap<StackId, RowStack<'a>> = HashMap::default();
    let mut stacks = Vec::new();
    for id in rows.iter().filter_map(|row| row.stall.stack) {
        numbered.entry(id).or_insert_with(|| {
            let number = stacks.len() as u64 + 1;
            let stack = RowStack { number, frames: frames(Naming::of(latency), id).into() };
            stacks.push(stack.clone());
            stack
        });
    }
    let row = |listed: &'a ListedStall| row_of(latency, listed, &numbered);
    let template = rows.first().or(rest.first()).map(|listed| row(listed));
    let rows = Rows::of(rows, move |listed: &&'a ListedStall| row_of(latency, listed, &numbered));
    let listing = Listing::new(rows, (!rest.is_empty()).then_some(others), template);
    Stalls { listing, stacks: StackTable(stacks), count, total }
}

fn row_of<'a>(
    latency: &'a Latency,
    listed: &'a ListedStall,
    numbered: &HashMap<StackId, RowStack<'a>>,
) -> StallRow<'a> {
    let stack = listed.stall.stack.and_then(|stack| numbered.get(&stack).cloned());
    StallRow { stack, ..row_without_stack(Naming::of(latency), listed) }
}

/// Row of a stall, without its stack.
pub(super) fn row_without_stack<'a>(naming: Naming<'a>, listed: &'a ListedStall) -> StallRow<'a> {
    let ListedStall { stall, pid, comm, call_site } = listed;
    let names = naming.trace_names;
    let mut inside: Vec<InsideRow<'_>> = stall.inside.iter().map(|row| inside_row(naming, row)).collect();
    inside.sort_by(|a, b| {
        let by_name = || (&a.span, &a.symbol).cmp(&(&b.span, &b.symbol));
        let by_address = || a.function.map(|at| at.0).cmp(&b.function.map(|at| at.0));
        b.total.cmp(&a.total).then_with(by_name).then_with(by_address)
    });
    let events = || stall.events.iter().map(|inside| EventRow { inside, names }).collect();
    StallRow {
        at: stall.begin,
        end: stall.end,
        pid: *pid,
        comm: comm.as_deref().map(Into::into),
        cgroup: naming.cgroup(*pid, stall.begin),
        span: naming.span(stall.span),
        total: naming.known(stall.end.saturating_sub(stall.begin)),
        own: naming.known(stall.own),
        order: stall.order.map(u64::from),
        gfp: stall.gfp.and_then(|flags| naming.gfp(flags)),
        reclaimed: stall.reclaimed,
        call_site: call_site.map(Address),
        symbol: call_site.and_then(|site| naming.symbol(site)),
        stack: None,
        inside,
        events: naming.lists_events.then(events),
    }
}
