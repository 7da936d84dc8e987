//! A span that has just ended, as a follower of a trace lists it.

use super::naming::Naming;
use super::stalls::{StallRow, frames, row_without_stack};
use crate::documents::row::{Address, Cell, Field, Name, Row, TakeMember, row, serialize_row};
use crate::latency::{EndedSpan, SpanClass};

row! {
    /// Frame of the stack of a span.
    pub struct EndedFrame<'a> {
        /// Return address.
        pub address: Address,
        /// Name of the function.
        pub symbol: Name<'a>,
        /// Module of the function; `None` for the kernel itself.
        pub module: Name<'a>,
    }
}

/// Row of a span that has ended.
pub struct EndedRow<'a> {
    /// Span with its task; its stack is `frames`.
    pub stall: StallRow<'a>,
    /// Class.
    pub class: SpanClass,
    /// Kind of the span around.
    pub parent: Name<'a>,
    /// Loss may have touched it.
    pub is_suspect: bool,
    /// Function of a shrinker.
    pub function: Option<Address>,
    /// Name of that function.
    pub function_name: Name<'a>,
    /// Address of the shrinker.
    pub shrinker: Option<Address>,
    /// NUMA node of the shrinker.
    pub node: Option<i32>,
    /// Objects freed by the shrinker.
    pub freed: Option<u64>,
    /// Stack of the start; `None` where none was recorded.
    pub frames: Option<Vec<EndedFrame<'a>>>,
}

impl<'a> EndedRow<'a> {
    pub(crate) fn of(naming: Naming<'a>, span: &'a EndedSpan) -> EndedRow<'a> {
        let frame = |frame: crate::documents::stack_frame::StackFrame<'a>| EndedFrame {
            address: Address(frame.address),
            symbol: frame.symbol,
            module: frame.module,
        };
        let stack = span.listed.stall.stack.map(|stack| frames(naming, stack).into_iter().map(frame).collect());
        let shrinker = span.shrinker;
        let mut stall = row_without_stack(naming, &span.listed);
        stall.cgroup = span.cgroup.as_deref().map(Into::into);
        if shrinker.is_some() {
            // The end of a shrinker counts objects.
            stall.reclaimed = None;
        }
        EndedRow {
            stall,
            class: span.class,
            parent: span.parent.and_then(|parent| naming.span(parent)),
            is_suspect: span.is_suspect,
            function: shrinker.map(|shrinker| Address(shrinker.function)),
            function_name: shrinker.and_then(|shrinker| naming.function(shrinker.function)),
            shrinker: shrinker.map(|shrinker| Address(shrinker.shrinker)),
            node: shrinker.and_then(|shrinker| shrinker.node),
            freed: span.freed,
            frames: stack,
        }
    }
}

impl Row for EndedRow<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        let stall = &self.stall;
        stall.at.put("at", take);
        stall.end.put("end", take);
        stall.pid.put("pid", take);
        stall.comm.put("comm", take);
        stall.span.put("span", take);
        take("class", Cell::Word(self.class.name()));
        self.parent.put("parent", take);
        take("suspect", Cell::Bool(self.is_suspect));
        stall.total.put("total", take);
        stall.own.put("self", take);
        stall.order.put("order", take);
        stall.gfp.put("gfp", take);
        stall.reclaimed.put("reclaimed", take);
        stall.call_site.put("call_site", take);
        stall.symbol.put("symbol", take);
        if self.function.is_some() {
            self.function.put("function", take);
            self.function_name.put("function_name", take);
            self.shrinker.put("shrinker", take);
            self.node.put("node", take);
            self.freed.put("freed", take);
        }
        match &self.frames {
            Some(frames) => frames.put("frames", take),
            None => take("frames", Cell::Null),
        }
        stall.inside.put("inside", take);
        if let Some(events) = &stall.events {
            take("events", Cell::List(events));
        }
    }
}

impl serde::Serialize for EndedRow<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}
