//! `latency`: figures of each kind of span.

use serde::Serialize;

use super::naming::{known, name_of};
use crate::documents::ranked::Others;
use crate::documents::row::{Cell, Field, Name, Row, RowSource, TakeMember, TakeRow, row, serialize_row};
use crate::latency::{Latency, SpanClass, SpanSums};

row! {
    /// Spans with durations in a power of two.
    pub struct Bucket {
        /// Least duration.
        pub from: u64,
        /// First duration beyond.
        pub to: u64,
        /// Number of spans.
        pub count: u64,
    }
}

row! {
    /// Spans of a kind below another kind.
    pub struct NestingMembers<'a> {
        /// Kind of the spans.
        pub span: Name<'a>,
        /// Kind of the span around; `None` for none.
        pub parent: Name<'a>,
        /// Class.
        pub class: &'static str,
        /// Number of spans.
        pub count: u64,
        /// Sum of their durations.
        pub total: Option<u64>,
    }
}

row! {
    /// Stalls of a task.
    pub struct TaskMembers<'a> {
        /// Thread.
        pub pid: Option<i32>,
        /// Command name of the thread.
        pub comm: Name<'a>,
        /// Number of stalls.
        pub count: u64,
        /// Sum of their durations.
        pub total: Option<u64>,
        /// Longest one.
        pub max: Option<u64>,
    }
}

row! {
    /// Stalls of the tasks that were left out.
    pub struct OtherTasks {
        /// Number of stalls.
        pub count: u64,
        /// Sum of their durations.
        pub total: Option<u64>,
    }
}

row! {
    /// Number of spans in each class.
    pub struct Classes {
        /// Allocations and charges that wait.
        pub stall: u64,
        /// Asked for by programs.
        pub asked: u64,
        /// Parts of other spans.
        pub inner: u64,
        /// Work of daemons.
        pub background: u64,
    }
}

row! {
    /// Spans that loss touches.
    pub struct Suspect {
        /// Number of spans.
        pub count: u64,
        /// Sum of their durations.
        pub total: Option<u64>,
    }
}

/// Row of `latency`: a kind of span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRow<'a> {
    /// Name of the kind.
    pub span: Name<'a>,
    /// Number of spans that no loss touches.
    pub count: u64,
    /// Sum of their durations.
    pub total: Option<u64>,
    /// Sum of their durations less those of their direct children.
    pub own: Option<u64>,
    /// Least duration.
    pub min: Option<u64>,
    /// Percentiles: 50, 90 and 99.
    pub percentiles: [Option<u64>; 3],
    /// Largest duration.
    pub max: Option<u64>,
    /// Durations by powers of two.
    pub histogram: Vec<Bucket>,
    /// Number of spans in each class.
    pub classes: Classes,
    /// Spans that loss touches.
    pub suspect: Suspect,
    /// Spans without an end.
    pub unfinished: u64,
    /// Ends without a start.
    pub unstarted: u64,
    /// Wakes of a daemon; `None` for other spans.
    pub passes: Option<u64>,
}

impl Row for SpanRow<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        self.span.put("span", take);
        self.count.put("count", take);
        self.total.put("total", take);
        self.own.put("self", take);
        self.min.put("min", take);
        for (name, value) in ["p50", "p90", "p99"].into_iter().zip(&self.percentiles) {
            value.put(name, take);
        }
        self.max.put("max", take);
        self.histogram.put("histogram", take);
        take("classes", Cell::Figures(&self.classes));
        take("suspect", Cell::Figures(&self.suspect));
        self.unfinished.put("unfinished", take);
        self.unstarted.put("unstarted", take);
        self.passes.put("passes", take);
    }
}

impl Serialize for SpanRow<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}

/// Body of `latency`.
#[derive(Serialize)]
pub struct Spans<'a> {
    /// Kinds of spans, largest total first.
    pub spans: Vec<SpanRow<'a>>,
    /// Nesting, largest total first.
    pub nesting: Vec<NestingMembers<'a>>,
    /// Tasks that waited, largest total first.
    pub tasks: Vec<TaskMembers<'a>>,
    /// Tasks that were left out.
    #[serde(flatten)]
    pub others: Option<Others<OtherTasks>>,
    /// Sleeps of daemons that were not awake.
    pub sleeps_without_wake: u64,
    /// Number of events that were read.
    #[serde(skip)]
    pub events: u64,
}

impl RowSource for Spans<'_> {
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        self.spans.iter().try_for_each(|row| take(row))
    }
}

/// The body of `latency`.
pub(super) fn spans(latency: &Latency, top: Option<usize>) -> Spans<'_> {
    let row = |(span, sums): &(_, SpanSums)| {
        let class = |class: SpanClass| {
            let of_class = latency.nesting.iter().filter(|row| row.span == *span && row.class == class);
            of_class.map(|row| row.count).sum()
        };
        let [stall, asked, inner, background] = SpanClass::ALL.map(class);
        let figures = &sums.figures;
        let of_any = |duration: u64| known(latency, duration).filter(|_| figures.count > 0);
        let histogram = figures.histogram().into_iter().filter(|_| latency.has_durations());
        let is_daemon = ["kswapd", "kcompactd"].contains(&span.name().unwrap_or_default());
        SpanRow {
            span: name_of(*span, latency),
            count: figures.count,
            total: known(latency, figures.total),
            own: known(latency, figures.own),
            min: of_any(figures.min),
            percentiles: figures.percentiles([50, 90, 99]).map(of_any),
            max: of_any(figures.max),
            histogram: histogram.map(|(from, to, count)| Bucket { from, to, count }).collect(),
            classes: Classes { stall, asked, inner, background },
            suspect: Suspect { count: sums.suspect.0, total: known(latency, sums.suspect.1) },
            unfinished: sums.unfinished,
            unstarted: sums.unstarted,
            passes: is_daemon.then_some(sums.passes),
        }
    };
    let nesting = latency.nesting.iter().map(|row| NestingMembers {
        span: name_of(row.span, latency),
        parent: row.parent.and_then(|parent| name_of(parent, latency)),
        class: row.class.name(),
        count: row.count,
        total: known(latency, row.total),
    });
    let (shown, rest) = latency.tasks.split_at(top.unwrap_or(usize::MAX).min(latency.tasks.len()));
    let left_out = OtherTasks {
        count: rest.iter().map(|row| row.count).sum(),
        total: known(latency, rest.iter().fold(0, |sum, row| row.total.saturating_add(sum))),
    };
    let tasks = shown.iter().map(|row| TaskMembers {
        pid: row.pid,
        comm: row.comm.as_deref().map(Into::into),
        count: row.count,
        total: known(latency, row.total),
        max: known(latency, row.max),
    });
    Spans {
        spans: latency.spans.iter().map(row).collect(),
        nesting: nesting.collect(),
        tasks: tasks.collect(),
        others: (!rest.is_empty()).then(|| Others::one(rest.len(), left_out)),
        sleeps_without_wake: latency.sleeps_without_wake,
        events: latency.observed.events,
    }
}
