//! Sums over spans: one set for all that is certain, and two for spans that the task's next event decides on.

use foldhash::HashMap;
use kmemtrace_abi::event::Span;
use kmemtrace_abi::stack::StackId;

use super::figures::DurationFigures;
use super::task::{Closed, InsideEvent, InsideSpans, ShrinkerKey, SpanClass, sum};
use crate::account::cgroups::CgroupNumber;

/// Number of a task in its list.
pub(super) type TaskNumber = u32;

/// Figures of a kind of span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSums {
    /// Durations of spans that no loss touches.
    pub figures: DurationFigures,
    /// Number of spans that loss touches, and the sum of their durations.
    pub suspect: (u64, u64),
    /// Spans whose end is missing.
    pub unfinished: u64,
    /// Ends whose start is missing.
    pub unstarted: u64,
    /// Wakes of daemons.
    pub passes: u64,
}

/// Figures of a shrinker on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShrinkerSums {
    /// Durations of spans that no loss touches.
    pub figures: DurationFigures,
    /// Objects freed by these; `None` where the trace does not give it.
    pub freed: Option<u64>,
    /// Spans that loss touches.
    pub suspect: u64,
}

impl ShrinkerSums {
    /// Adds the figures of another row.
    pub(crate) fn merge(&mut self, other: &ShrinkerSums) {
        self.figures.merge(&other.figures);
        self.freed = sum(self.freed, other.freed);
        self.suspect += other.suspect;
    }
}

/// Keys of a row of waits; `None`: not asked for, or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey {
    /// Call-site, by the stack.
    pub call_site: Option<u64>,
    /// Thread.
    pub pid: Option<i32>,
    /// Binary logarithm of the number of pages.
    pub order: Option<u8>,
    /// Flags of the allocation.
    pub gfp: Option<u64>,
    /// Number of the thread's cgroup.
    pub(crate) cgroup: Option<CgroupNumber>,
}

/// Figures of the waits of allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSums {
    /// Allocations.
    pub allocs: u64,
    /// Waits of those that waited.
    pub figures: DurationFigures,
}

/// Span that an allocation or charge waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Stall {
    /// Kind of the span.
    pub span: Span,
    /// Order key of its start.
    pub begin: u64,
    /// Order key of its end.
    pub end: u64,
    /// Duration less that of the direct children.
    pub own: u64,
    /// Number of the task.
    pub(super) task: TaskNumber,
    /// Binary logarithm of the number of pages asked for.
    pub order: Option<u8>,
    /// Flags of the allocation.
    pub gfp: Option<u64>,
    /// Pages reclaimed.
    pub reclaimed: Option<u64>,
    /// Stack of the start.
    pub stack: Option<StackId>,
    /// Spans inside.
    pub inside: Vec<InsideSpans>,
    /// Events inside, where they were asked for.
    pub events: Vec<InsideEvent>,
}

/// Stall with its task.
#[derive(Clone, Debug)]
pub struct ListedStall {
    /// The stall.
    pub stall: Stall,
    /// Thread.
    pub pid: Option<i32>,
    /// Command name of the thread.
    pub comm: Option<Box<[u8]>>,
    /// Return address in the function that waited; `None` without a stack.
    pub call_site: Option<u64>,
}

impl Stall {
    /// Stall that has ended, of the task with this number.
    pub(super) fn of(task: TaskNumber, closed: &Closed) -> Stall {
        Stall {
            span: closed.span,
            begin: closed.begin,
            end: closed.end,
            own: closed.own,
            task,
            order: closed.order,
            gfp: closed.gfp,
            reclaimed: closed.value.and_then(|value| u64::try_from(value).ok()),
            stack: closed.stack,
            inside: closed.inside.clone(),
            events: closed.events.clone(),
        }
    }
}

/// Spans of a kind below one of another kind, or of none.
pub(super) type Nesting = (TaskNumber, Span, Option<Span>, SpanClass);

/// Sums.
#[derive(Clone, Debug, Default)]
pub(super) struct LatencySums {
    pub(super) spans: HashMap<Span, SpanSums>,
    pub(super) nesting: HashMap<Nesting, (u64, u64)>,
    /// Number, sum and largest duration of each task's stalls.
    pub(super) tasks: HashMap<TaskNumber, (u64, u64, u64)>,
    pub(super) shrinkers: HashMap<ShrinkerKey, ShrinkerSums>,
    pub(super) waits: HashMap<WaitKey, WaitSums>,
    pub(super) stalls: Vec<Stall>,
}

impl LatencySums {
    /// Adds a span that no loss touches; `keeps`: stalls are listed.
    pub(super) fn add(&mut self, task: TaskNumber, closed: &Closed, keeps: bool) {
        let total = closed.total();
        let row = self.spans.entry(closed.span).or_default();
        row.figures.add(total, closed.own);
        row.passes += closed.passes;
        let nested = self.nesting.entry((task, closed.span, closed.parent, closed.class)).or_default();
        *nested = (nested.0 + 1, nested.1.saturating_add(total));
        if closed.span == Span::Shrinker {
            let row = self.shrinkers.entry(closed.shrinker).or_default();
            row.figures.add(total, closed.own);
            row.freed = sum(row.freed, closed.freed());
        }
        if closed.class == SpanClass::Stall {
            let (count, sum, max) = self.tasks.entry(task).or_default();
            (*count, *sum, *max) = (*count + 1, sum.saturating_add(total), (*max).max(total));
            if keeps {
                self.stalls.push(Stall::of(task, closed));
            }
        }
    }

    /// Adds a span that loss touches.
    pub(super) fn add_suspect(&mut self, closed: &Closed) {
        let suspect = &mut self.spans.entry(closed.span).or_default().suspect;
        *suspect = (suspect.0 + 1, suspect.1.saturating_add(closed.total()));
        if closed.span == Span::Shrinker {
            let row = self.shrinkers.entry(closed.shrinker).or_default();
            row.suspect += 1;
            row.freed = sum(row.freed, closed.freed().map(|_| 0));
        }
    }

    /// Adds the wait of an allocation.
    pub(super) fn add_wait(&mut self, key: WaitKey, wait: u64) {
        self.waits.entry(key).or_default().figures.add(wait, wait);
    }

    /// Adds other sums.
    pub(super) fn merge(&mut self, other: LatencySums) {
        for (span, more) in other.spans {
            let row = self.spans.entry(span).or_default();
            row.figures.merge(&more.figures);
            row.suspect = (row.suspect.0 + more.suspect.0, row.suspect.1.saturating_add(more.suspect.1));
            row.unfinished += more.unfinished;
            row.unstarted += more.unstarted;
            row.passes += more.passes;
        }
        for (key, (count, total)) in other.nesting {
            let row = self.nesting.entry(key).or_default();
            *row = (row.0 + count, row.1.saturating_add(total));
        }
        for (task, (count, total, max)) in other.tasks {
            let row = self.tasks.entry(task).or_default();
            *row = (row.0 + count, row.1.saturating_add(total), row.2.max(max));
        }
        for (key, more) in other.shrinkers {
            self.shrinkers.entry(key).or_default().merge(&more);
        }
        for (key, more) in other.waits {
            let row = self.waits.entry(key).or_default();
            row.allocs += more.allocs;
            row.figures.merge(&more.figures);
        }
        self.stalls.extend(other.stalls);
    }

    /// Makes all spans suspect: loss came to light at the end that may touch each of them.
    pub(super) fn suspect_all(&mut self) {
        for row in self.spans.values_mut() {
            let SpanSums { figures, suspect, .. } = row;
            *suspect = (suspect.0 + figures.count, suspect.1.saturating_add(figures.total));
            (row.figures, row.passes) = (DurationFigures::default(), 0);
        }
        for row in self.shrinkers.values_mut() {
            row.suspect += row.figures.count;
            (row.figures, row.freed) = (DurationFigures::default(), row.freed.map(|_| 0));
        }
        self.waits.values_mut().for_each(|row| row.figures = DurationFigures::default());
        self.nesting.clear();
        self.tasks.clear();
        self.stalls.clear();
    }
}
