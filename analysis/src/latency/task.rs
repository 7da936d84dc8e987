//! Rules of one task's spans: a stack of those that are open.
//!
//! An end closes the innermost open span that fits. The kernel never reclaims inside reclaim, so a start shows which ends were lost:
//! spans that such an event leaves behind are unfinished, and have no length.

use kmemtrace_abi::event::{Event, Span};
use kmemtrace_abi::fields::RecordFields;
use kmemtrace_abi::stack::StackId;

/// Reason of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanClass {
    /// Wait of an allocation or a charge.
    Stall,
    /// Work that a program asked for.
    Asked,
    /// Part of another span.
    Inner,
    /// Work of a daemon.
    Background,
}

impl SpanClass {
    /// All classes, in the order of documents.
    pub const ALL: [SpanClass; 4] = [SpanClass::Stall, SpanClass::Asked, SpanClass::Inner, SpanClass::Background];

    /// Word of documents.
    pub fn name(self) -> &'static str {
        match self {
            SpanClass::Stall => "stall",
            SpanClass::Asked => "asked",
            SpanClass::Inner => "inner",
            SpanClass::Background => "background",
        }
    }
}

/// Shrinker and NUMA node of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShrinkerKey {
    /// Function that the shrinker calls.
    pub function: u64,
    /// Address of the shrinker.
    pub shrinker: u64,
    /// NUMA node; `None` where the trace does not give it.
    pub node: Option<i32>,
}

/// Spans inside another one, of one kind and shrinker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsideSpans {
    /// Kind of the spans.
    pub span: Span,
    /// Function of the shrinker; 0 of other spans.
    pub function: u64,
    /// Number of spans.
    pub count: u64,
    /// Sum of their durations.
    pub total: u64,
    /// Largest duration.
    pub max: u64,
    /// Objects freed by shrinkers; `None` of other spans, and where the trace does not give it.
    pub freed: Option<u64>,
}

/// Event inside a stall.
#[derive(Clone, Debug, PartialEq)]
pub struct InsideEvent {
    /// The event.
    pub event: Event,
    /// Fields of its record, where the trace has its format.
    pub fields: Option<RecordFields>,
}

/// Span that is open.
#[derive(Clone, Debug)]
struct Open {
    span: Span,
    begin: u64,
    class: SpanClass,
    parent: Option<Span>,
    is_attempted: bool,
    shrinker: ShrinkerKey,
    order: Option<u8>,
    gfp: Option<u64>,
    stack: Option<StackId>,
    passes: u64,
    /// Sum of the direct children.
    children: u64,
    inside: Vec<InsideSpans>,
    events: Vec<InsideEvent>,
    mark: ReclaimMark,
}

/// Place of a moment between the task's events of reclaim and daemons.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReclaimMark {
    /// Number of such events before.
    pub(super) number: u64,
    /// Key of the last of them.
    pub(super) last: Option<u64>,
}

/// Span that has ended.
#[derive(Clone, Debug)]
pub(super) struct Closed {
    pub(super) span: Span,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Begin of the time that a gap may touch.
    pub(super) exposed_from: u64,
    pub(super) own: u64,
    pub(super) class: SpanClass,
    pub(super) parent: Option<Span>,
    /// A span around it is of a kind that counts, and what is inside such a span does, too.
    pub(super) is_inside: bool,
    /// Compaction that an allocation attempted.
    pub(super) is_attempted: bool,
    pub(super) shrinker: ShrinkerKey,
    pub(super) order: Option<u8>,
    pub(super) gfp: Option<u64>,
    pub(super) stack: Option<StackId>,
    /// Stack of the outermost span around this one, or its own.
    pub(super) outer_stack: Option<StackId>,
    pub(super) passes: u64,
    /// Pages reclaimed, or objects freed.
    pub(super) value: Option<i64>,
    pub(super) inside: Vec<InsideSpans>,
    pub(super) events: Vec<InsideEvent>,
    pub(super) mark: ReclaimMark,
}

impl Closed {
    pub(super) fn total(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// True where a lost begin or end may have put the span at a wrong depth: it has no parent, and is neither reclaim nor a daemon's.
    pub(super) fn may_be_misplaced(&self) -> bool {
        self.parent.is_none() && !is_reclaim(self.span) && !is_daemon(self.span)
    }

    /// Objects freed; 0 of a shrinker that stopped, `None` of other spans and where the trace does not tell it.
    pub(super) fn freed(&self) -> Option<u64> {
        self.value.filter(|_| self.span == Span::Shrinker).map(|n| u64::try_from(n).unwrap_or(0))
    }
}

/// Result of an event.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Span that the event ended.
    pub(super) closed: Option<Box<Closed>>,
    /// Spans whose end was lost.
    pub(super) unfinished: Vec<Span>,
    /// An end whose begin was lost.
    pub(super) unstarted: Option<Span>,
    /// The event is one of reclaim or of a daemon; true where it is an end without a begin.
    pub(super) reclaim: Option<bool>,
    /// A daemon goes to sleep that was not awake.
    pub(super) slept: bool,
}

/// Spans of a task.
#[derive(Debug, Default)]
pub(super) struct TaskSpans {
    open: Vec<Open>,
    /// End of the last span that ended.
    last_end: Option<u64>,
    mark: ReclaimMark,
    /// Order and flags of the allocation that tries compaction.
    attempt: Option<(Option<u8>, Option<u64>)>,
}

/// True for reclaim that never stands inside reclaim.
fn is_reclaim(span: Span) -> bool {
    matches!(span, Span::Direct | Span::Memcg | Span::Node)
}

fn is_daemon(span: Span) -> bool {
    matches!(span, Span::Kswapd | Span::Kcompactd)
}

impl TaskSpans {
    /// True without an open span.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// True inside a span of which `takes` is true.
    pub(super) fn is_inside(&self, takes: impl Fn(Span) -> bool) -> bool {
        self.open.iter().any(|open| takes(open.span))
    }

    /// Takes an event that shows that no compaction is attempted any more.
    pub(super) fn end_attempt(&mut self) {
        self.attempt = None;
    }

    /// Takes an attempt at compaction.
    pub(super) fn attempt(&mut self, event: &Event) {
        self.attempt = Some((event.order, event.gfp));
    }

    /// Keeps an event with the outermost open span, if there is one.
    pub(super) fn keep(&mut self, event: &Event, fields: impl FnOnce() -> Option<RecordFields>) {
        if let Some(outermost) = self.open.first_mut().filter(|open| open.class == SpanClass::Stall) {
            outermost.events.push(InsideEvent { event: *event, fields: fields() });
        }
    }

    /// Opens a span. `is_charge`: a stack, if there is one, shows that a charge waits for it.
    pub(super) fn begin(&mut self, span: Span, event: &Event, is_charge: bool) -> Outcome {
        let mut outcome = Outcome::default();
        if is_daemon(span)
            && let Some(open) = self.open.iter_mut().rfind(|open| open.span == span)
        {
            open.passes += 1;
            self.note_reclaim(event.at);
            return Outcome { reclaim: Some(false), ..outcome };
        }
        if is_reclaim(span) && self.open.iter().any(|open| is_reclaim(open.span)) {
            outcome.unfinished = self.open.drain(..).map(|open| open.span).collect();
        }
        let is_repeated = |open: &&Open| matches!(span, Span::Shrinker | Span::Compaction) && open.span == span;
        if self.open.last().filter(is_repeated).is_some() {
            outcome.unfinished.extend(self.open.pop().map(|open| open.span));
        }
        if span == Span::Direct {
            self.attempt = None;
        }
        let parent = self.open.last().map(|open| open.span);
        let attempt = self.attempt.filter(|_| span == Span::Compaction);
        let is_attempted = attempt.is_some();
        // The begin of a compaction does not tell what for.
        let (order, gfp) = attempt.unwrap_or_default();
        let class = match span {
            _ if parent.is_some() => SpanClass::Inner,
            Span::Direct | Span::Node => SpanClass::Stall,
            Span::Memcg if is_charge => SpanClass::Stall,
            Span::Compaction if is_attempted => SpanClass::Stall,
            _ => SpanClass::Asked,
        };
        self.open.push(Open {
            span,
            begin: event.at,
            class,
            parent,
            is_attempted,
            shrinker: shrinker(event),
            order: event.order.or(order),
            gfp: event.gfp.or(gfp),
            stack: event.stack,
            passes: 1,
            children: 0,
            inside: Vec::new(),
            events: Vec::new(),
            mark: self.mark,
        });
        if is_reclaim(span) || is_daemon(span) {
            self.note_reclaim(event.at);
            outcome.reclaim = Some(false);
        }
        outcome
    }

    /// Closes a span.
    pub(super) fn end(&mut self, span: Span, event: &Event) -> Outcome {
        let mut outcome = Outcome::default();
        let fits =
            |open: &Open| open.span == span && (span != Span::Shrinker || open.shrinker.shrinker == event.address);
        let is_counted = is_reclaim(span) || is_daemon(span);
        let Some(place) = self.open.iter().rposition(fits) else {
            if is_daemon(span) {
                outcome.slept = true;
            } else {
                outcome.unstarted = Some(span);
            }
            if is_reclaim(span) {
                outcome.unfinished = self.open.drain(..).map(|open| open.span).collect();
            }
            outcome.reclaim = is_counted.then_some(!is_daemon(span));
            if is_counted {
                self.note_reclaim(event.at);
            }
            return outcome;
        };
        outcome.unfinished = self.open.drain(place + 1..).map(|open| open.span).collect();
        if let Some(mut open) = self.open.pop() {
            if open.events.last().is_some_and(|last| last.event == *event) {
                open.events.pop();
            }
            let total = event.at.saturating_sub(open.begin);
            let closed = Box::new(Closed {
                span,
                begin: open.begin,
                end: event.at,
                exposed_from: open.begin,
                own: total.saturating_sub(open.children),
                class: open.class,
                parent: open.parent,
                is_inside: false,
                is_attempted: open.is_attempted,
                shrinker: open.shrinker,
                order: open.order,
                gfp: open.gfp,
                stack: open.stack,
                outer_stack: self.open.first().map_or(open.stack, |outermost| outermost.stack),
                passes: open.passes,
                value: event.value,
                inside: open.inside,
                events: open.events,
                mark: open.mark,
            });
            self.add_to_parent(&closed);
            outcome.closed = Some(closed);
        }
        if is_counted {
            self.note_reclaim(event.at);
            outcome.reclaim = Some(false);
        }
        outcome
    }

    /// Takes the end of a sleep in reclaim of which the trace does not tell how long it took.
    pub(super) fn throttled_somehow() -> Outcome {
        Outcome { unstarted: Some(Span::Throttled), ..Outcome::default() }
    }

    /// Takes the end of a sleep in reclaim that took `delayed`, as the kernel counted: the sleep begins neither before its
    /// parent nor before the end of the last span.
    pub(super) fn throttled(&mut self, event: &Event, delayed: u64) -> Outcome {
        let parent = self.open.last();
        let earliest = parent.map_or(0, |open| open.begin).max(self.last_end.unwrap_or(0));
        let exposed_from = event.at.saturating_sub(delayed);
        let begin = exposed_from.max(earliest).min(event.at);
        let closed = Box::new(Closed {
            span: Span::Throttled,
            begin,
            end: event.at,
            exposed_from,
            own: event.at - begin,
            class: if parent.is_some() { SpanClass::Inner } else { SpanClass::Asked },
            parent: parent.map(|open| open.span),
            is_inside: false,
            is_attempted: false,
            shrinker: ShrinkerKey::default(),
            order: None,
            gfp: None,
            stack: None,
            outer_stack: self.open.first().and_then(|outermost| outermost.stack),
            passes: 1,
            value: None,
            inside: Vec::new(),
            events: Vec::new(),
            mark: self.mark,
        });
        self.add_to_parent(&closed);
        Outcome { closed: Some(closed), ..Outcome::default() }
    }

    /// Spans that are open at the end of the trace.
    pub(super) fn finish(&mut self) -> Vec<Span> {
        self.open.drain(..).map(|open| open.span).collect()
    }

    /// Adds a span that has ended to its parent.
    fn add_to_parent(&mut self, closed: &Closed) {
        let total = closed.total();
        self.last_end = Some(closed.end);
        if let Some(parent) = self.open.last_mut() {
            parent.children = parent.children.saturating_add(total);
            let function = if closed.span == Span::Shrinker { closed.shrinker.function } else { 0 };
            let freed = closed.freed();
            let own = InsideSpans { span: closed.span, function, count: 1, total, max: total, freed };
            add_inside(&mut parent.inside, own);
            closed.inside.iter().for_each(|inside| add_inside(&mut parent.inside, inside.clone()));
        }
    }

    fn note_reclaim(&mut self, at: u64) {
        self.mark = ReclaimMark { number: self.mark.number + 1, last: Some(at) };
    }

    /// Number of the task's events of reclaim and daemons.
    pub(super) fn reclaim_events(&self) -> u64 {
        self.mark.number
    }
}

fn shrinker(event: &Event) -> ShrinkerKey {
    ShrinkerKey { function: event.call_site, shrinker: event.address, node: event.node }
}

/// Sum of what is known.
pub(super) fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (one, other) => one.or(other),
    }
}

fn add_inside(list: &mut Vec<InsideSpans>, more: InsideSpans) {
    match list.iter_mut().find(|row| (row.span, row.function) == (more.span, more.function)) {
        Some(row) => {
            row.count += more.count;
            row.total = row.total.saturating_add(more.total);
            row.max = row.max.max(more.max);
            row.freed = sum(row.freed, more.freed);
        }
        None => list.push(more),
    }
}
