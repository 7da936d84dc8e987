//! Rules of a task's spans, one by one.

use kmemtrace_abi::event::{Event, Mark, Names, Span};

use super::task::{Outcome, SpanClass, TaskSpans};

/// A task, and the key of its last event.
struct Walk {
    spans: TaskSpans,
    at: u64,
}

impl Walk {
    fn new() -> Walk {
        Walk { spans: TaskSpans::default(), at: 0 }
    }

    fn event(&mut self, address: u64) -> Event {
        self.at += 10;
        Event { address, mark: Mark::Beside, ..Event::new(self.at, 0, Names::new().intern(b"made")) }
    }

    fn attempt(&mut self) {
        let event = self.event(0);
        self.spans.attempt(&event);
    }

    fn begin(&mut self, span: Span) -> Outcome {
        let event = self.event(1);
        self.spans.begin(span, &event, true)
    }

    fn end(&mut self, span: Span) -> Outcome {
        let event = self.event(1);
        self.spans.end(span, &event)
    }
}

#[test]
fn self_is_total_less_the_direct_children() {
    let mut task = Walk::new();
    task.begin(Span::Kswapd);
    task.begin(Span::Softlimit);
    task.begin(Span::Shrinker);
    assert_eq!(task.end(Span::Shrinker).closed.map(|closed| (closed.total(), closed.own)), Some((10, 10)));
    assert_eq!(task.end(Span::Softlimit).closed.map(|closed| (closed.total(), closed.own)), Some((30, 20)));
    let kswapd = task.end(Span::Kswapd).closed.unwrap();
    assert_eq!((kswapd.total(), kswapd.own, kswapd.inside.len()), (50, 20, 2));
}

#[test]
fn an_end_leaves_those_above_it_unfinished() {
    let mut task = Walk::new();
    task.begin(Span::Direct);
    task.begin(Span::Compaction);
    let outcome = task.end(Span::Direct);
    assert_eq!(
        (outcome.unfinished, outcome.closed.map(|closed| closed.span)),
        (vec![Span::Compaction], Some(Span::Direct))
    );
    let outcome = task.end(Span::Compaction);
    assert_eq!((outcome.unstarted, outcome.closed.is_none()), (Some(Span::Compaction), true));
}

#[test]
fn a_shrinker_ends_with_its_own_address() {
    let mut task = Walk::new();
    task.begin(Span::Shrinker);
    let other = task.event(2);
    assert_eq!(task.spans.end(Span::Shrinker, &other).unstarted, Some(Span::Shrinker));
    assert!(task.end(Span::Shrinker).closed.is_some());
}

#[test]
fn reclaim_inside_reclaim_shows_a_lost_end() {
    for begin in [Span::Direct, Span::Memcg, Span::Node] {
        let mut task = Walk::new();
        task.begin(Span::Memcg);
        task.begin(Span::Shrinker);
        assert_eq!(task.begin(begin).unfinished, [Span::Memcg, Span::Shrinker]);
        assert_eq!(task.end(begin).closed.map(|closed| closed.parent), Some(None));
        // Without reclaim around it stays open.
        task.begin(Span::Kswapd);
        assert!(task.begin(begin).unfinished.is_empty());
    }
    let mut task = Walk::new();
    task.begin(Span::Shrinker);
    let outcome = task.end(Span::Direct);
    assert_eq!((outcome.unstarted, outcome.unfinished), (Some(Span::Direct), vec![Span::Shrinker]));
    assert_eq!(outcome.reclaim, Some(true));
}

#[test]
fn a_span_does_not_stand_in_one_of_its_kind() {
    for span in [Span::Shrinker, Span::Compaction] {
        let mut task = Walk::new();
        task.begin(Span::Memcg);
        task.begin(span);
        assert_eq!(task.begin(span).unfinished, [span]);
        assert_eq!(task.end(span).closed.map(|closed| closed.parent), Some(Some(Span::Memcg)));
    }
}

#[test]
fn another_wake_is_another_pass_and_a_sleep_alone_is_normal() {
    let mut task = Walk::new();
    let outcome = task.end(Span::Kcompactd);
    assert!(outcome.slept && outcome.unstarted.is_none() && outcome.reclaim == Some(false));
    task.begin(Span::Kswapd);
    task.begin(Span::Kswapd);
    assert_eq!(task.end(Span::Kswapd).closed.map(|closed| (closed.passes, closed.total())), Some((2, 20)));
}

#[test]
fn a_sleep_begins_after_the_span_before() {
    let sleep = |task: &mut Walk, delayed| {
        let event = task.event(0);
        let closed = task.spans.throttled(&event, delayed).closed.unwrap();
        (closed.begin, closed.end, closed.exposed_from)
    };
    let mut task = Walk::new();
    assert_eq!(sleep(&mut task, 4), (6, 10, 6));
    task.begin(Span::Memcg);
    assert_eq!(sleep(&mut task, 5), (25, 30, 25));
    assert_eq!(sleep(&mut task, 15), (30, 40, 25), "not before the sleep before");
    task.end(Span::Memcg);
    task.begin(Span::Memcg);
    assert_eq!(sleep(&mut task, u64::MAX), (60, 70, 0), "not before its parent");
    assert_eq!(task.end(Span::Memcg).closed.map(|closed| (closed.total(), closed.own)), Some((20, 10)));
}

#[test]
fn a_span_is_a_stall_where_an_allocation_waits() {
    let class = |prepare: fn(&mut Walk), span: Span, is_charge: bool| {
        let mut task = Walk::new();
        prepare(&mut task);
        let event = task.event(1);
        task.spans.begin(span, &event, is_charge);
        task.end(span).closed.map(|closed| closed.class)
    };
    let nothing = |_: &mut Walk| {};
    for (span, is_charge, wanted) in [
        (Span::Direct, true, SpanClass::Stall),
        (Span::Node, true, SpanClass::Stall),
        (Span::Memcg, true, SpanClass::Stall),
        (Span::Memcg, false, SpanClass::Asked),
        (Span::Softlimit, true, SpanClass::Asked),
        (Span::Shrinker, true, SpanClass::Asked),
        (Span::Compaction, true, SpanClass::Asked),
    ] {
        assert_eq!(class(nothing, span, is_charge), Some(wanted), "{span:?} {is_charge}");
    }
    assert_eq!(class(Walk::attempt, Span::Compaction, true), Some(SpanClass::Stall));
    let over = |task: &mut Walk| {
        task.attempt();
        task.spans.end_attempt();
    };
    assert_eq!(class(over, Span::Compaction, true), Some(SpanClass::Asked));
    let reclaimed = |task: &mut Walk| {
        task.attempt();
        task.begin(Span::Direct);
        task.end(Span::Direct);
    };
    assert_eq!(class(reclaimed, Span::Compaction, true), Some(SpanClass::Asked));
    let inside = |task: &mut Walk| drop(task.begin(Span::Kswapd));
    assert_eq!(class(inside, Span::Node, true), Some(SpanClass::Inner));
}
