//! Slow model of the time that tasks wait for memory: every rule looked up anew in the whole list of events.
//!
//! It shares no code with the library. Each task's events are walked once per rule, gaps are asked one by one, durations are sorted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::event::{Action, Event, Kind, Mark, Span};
use serde_json::{Value, json};

/// Events in the total order, and gaps as (first key, last key).
#[derive(Debug, Default)]
pub struct Timeline {
    /// Events of all CPUs.
    pub events: Vec<Event>,
    /// Gaps of all CPUs.
    pub gaps: Vec<(u64, u64)>,
    /// Spans count from this duration on.
    pub threshold: u64,
}

/// Span of the model.
#[derive(Clone, Debug)]
struct Found {
    span: Span,
    task: (i32, u32),
    begin: u64,
    end: u64,
    exposed_from: u64,
    children: u64,
    parent: Option<Span>,
    /// Kinds of all spans around it.
    around: Vec<Span>,
    attempted: bool,
    /// Numbers of its events in the task's list.
    opened: usize,
    closed: usize,
    key: (u64, u64, Option<i32>),
    order: Option<u8>,
    freed: u64,
    reclaimed: Option<i64>,
    passes: u64,
    suspect: bool,
    class: &'static str,
}

/// Events of a task: those of interrupts are left out.
fn of_task(timeline: &Timeline, task: (i32, u32)) -> Vec<&Event> {
    let in_task = |event: &&Event| event.flags.unwrap_or(0) & 0x58 == 0;
    timeline.events.iter().filter(|event| task_of(event) == task).filter(in_task).collect()
}

fn task_of(event: &Event) -> (i32, u32) {
    let pid = event.pid.unwrap_or(0);
    (pid, if pid == 0 { event.cpu } else { 0 })
}

fn never_nests(span: Span) -> bool {
    [Span::Direct, Span::Memcg, Span::Node].contains(&span)
}

fn daemon(span: Span) -> bool {
    [Span::Kswapd, Span::Kcompactd].contains(&span)
}

/// Result of walking a task's events.
#[derive(Debug, Default)]
struct Walk {
    spans: Vec<Found>,
    unfinished: Vec<Span>,
    unstarted: Vec<Span>,
    /// Numbers of the ends of reclaim without a begin.
    unstarted_at: Vec<usize>,
    sleeps: u64,
    /// Numbers of the events that found something open.
    busy: Vec<bool>,
}

fn walk(task: (i32, u32), events: &[&Event]) -> Walk {
    let mut walk = Walk::default();
    let mut open: Vec<Found> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        walk.busy.push(!open.is_empty());
        match event.mark {
            Mark::Begin(span) if daemon(span) && open.iter().any(|found| found.span == span) => {
                let awake = open.iter_mut().rev().find(|found| found.span == span);
                awake.into_iter().for_each(|found| found.passes += 1);
            }
            Mark::Begin(span) => {
                if never_nests(span) && open.iter().any(|found| never_nests(found.span)) {
                    walk.unfinished.extend(open.drain(..).map(|found| found.span));
                }
                let own_kind = [Span::Shrinker, Span::Compaction].contains(&span);
                if own_kind && open.last().is_some_and(|last| last.span == span) {
                    walk.unfinished.extend(open.pop().map(|found| found.span));
                }
                open.push(begun(task, span, number, events, open.iter().map(|open| open.span).collect()));
            }
            Mark::End(span) => {
                let fits =
                    |found: &Found| found.span == span && (span != Span::Shrinker || found.key.1 == event.address);
                match (0..open.len()).rev().find(|index| fits(&open[*index])) {
                    Some(index) => {
                        walk.unfinished.extend(open.drain(index + 1..).map(|found| found.span));
                        let mut found = open.remove(index);
                        (found.end, found.closed, found.reclaimed) = (event.at, number, event.value);
                        if span == Span::Shrinker {
                            found.freed = event.value.unwrap_or(0).max(0) as u64;
                        }
                        if let Some(parent) = open.last_mut() {
                            parent.children += found.end - found.begin;
                        }
                        walk.spans.push(found);
                    }
                    None if daemon(span) => walk.sleeps += 1,
                    None => {
                        walk.unstarted.push(span);
                        if never_nests(span) {
                            walk.unstarted_at.push(number);
                            walk.unfinished.extend(open.drain(..).map(|found| found.span));
                        }
                    }
                }
            }
            Mark::Throttled => {
                let delayed = event.value.unwrap_or(0).max(0) as u64 * 1000;
                let parent = open.last();
                let before = walk.spans.last().map_or(0, |before| before.end);
                let least = before.max(parent.map_or(0, |parent| parent.begin));
                let exposed_from = event.at.saturating_sub(delayed);
                let mut found =
                    begun(task, Span::Throttled, number, events, open.iter().map(|open| open.span).collect());
                (found.begin, found.end, found.closed) = (exposed_from.max(least).min(event.at), event.at, number);
                found.exposed_from = exposed_from;
                if let Some(parent) = open.last_mut() {
                    parent.children += found.end - found.begin;
                }
                walk.spans.push(found);
            }
            _ => {}
        }
    }
    walk.unfinished.extend(open.iter().map(|found| found.span));
    walk
}

fn begun(task: (i32, u32), span: Span, number: usize, events: &[&Event], around: Vec<Span>) -> Found {
    let parent = around.last().copied();
    let event = events[number];
    // An attempt counts until an allocation of pages or a begin of direct reclaim.
    let ends = |event: &&&Event| event.action == Action::Alloc(Kind::Pages) || event.mark == Mark::Begin(Span::Direct);
    let last = events[..number].iter().rev().find(|event| event.mark == Mark::CompactionAttempt || ends(event));
    let attempted = span == Span::Compaction && last.is_some_and(|event| event.mark == Mark::CompactionAttempt);
    let class = match span {
        _ if parent.is_some() => "inner",
        Span::Direct | Span::Node | Span::Memcg => "stall",
        Span::Compaction if attempted => "stall",
        _ => "asked",
    };
    Found {
        span,
        task,
        begin: event.at,
        end: event.at,
        exposed_from: event.at,
        children: 0,
        parent,
        around,
        attempted,
        opened: number,
        closed: number,
        key: (event.call_site, event.address, event.node),
        order: event.order.or(last.filter(|_| attempted).and_then(|event| event.order)),
        freed: 0,
        reclaimed: None,
        passes: 1,
        suspect: false,
        class,
    }
}

/// True where loss may explain the span, or put it at a wrong depth.
fn is_suspect(timeline: &Timeline, found: &Found, events: &[&Event], walk: &Walk) -> bool {
    let touches = |from: u64| timeline.gaps.iter().any(|&(s, e)| s <= found.end && e >= from);
    if touches(found.exposed_from) {
        return true;
    }
    if found.parent.is_some() || never_nests(found.span) || daemon(found.span) {
        return false;
    }
    let those = |event: &Event| match event.mark {
        Mark::Begin(span) | Mark::End(span) => never_nests(span) || daemon(span),
        _ => false,
    };
    let last = events[..found.opened].iter().rev().find(|event| those(event)).map(|event| event.at);
    let ended = |&(s, e): &(u64, u64)| s <= found.end && last.is_none_or(|last| e > last);
    let next = (found.opened + 1..events.len()).find(|number| those(events[*number]));
    timeline.gaps.iter().any(ended) || next.is_some_and(|next| walk.unstarted_at.contains(&next))
}

/// Percentile by nearest rank; the value is cut to eleven bits, and stands for the greatest one with these.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    let value = sorted[rank - 1];
    let bits = 64 - value.leading_zeros();
    let quantized = if bits <= 11 { value } else { value | ((1 << (bits - 11)) - 1) };
    quantized.min(sorted[sorted.len() - 1])
}

fn percentiles(durations: &[u64], percents: &[usize]) -> Vec<Value> {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let of = |percent: &usize| if sorted.is_empty() { Value::Null } else { json!(percentile(&sorted, *percent)) };
    percents.iter().map(of).collect()
}

/// All spans of the timeline, and what else the walks found.
fn all(timeline: &Timeline) -> (Vec<Found>, Vec<Walk>) {
    let mut tasks: Vec<(i32, u32)> = timeline.events.iter().map(task_of).collect();
    tasks.sort_unstable();
    tasks.dedup();
    let (mut spans, mut walks) = (Vec::new(), Vec::new());
    for task in tasks {
        let events = of_task(timeline, task);
        let mut walk = walk(task, &events);
        let is_daemon = events.iter().any(|event| {
            matches!(
                event.mark,
                Mark::Begin(Span::Kswapd | Span::Kcompactd) | Mark::End(Span::Kswapd | Span::Kcompactd)
            )
        });
        let suspects: Vec<bool> = walk.spans.iter().map(|found| is_suspect(timeline, found, &events, &walk)).collect();
        for (found, suspect) in walk.spans.iter_mut().zip(suspects) {
            found.suspect = suspect;
            if is_daemon {
                found.class = "background";
            }
        }
        spans.extend(walk.spans.iter().cloned());
        walks.push(walk);
    }
    (spans, walks)
}

fn total(found: &Found) -> u64 {
    found.end - found.begin
}

fn span_word(span: Span) -> &'static str {
    span.name().unwrap_or("?")
}

/// Members `spans`, `nesting`, `tasks` and `sleeps_without_wake` of the document `latency`.
pub fn latency(timeline: &Timeline) -> Value {
    let (spans, walks) = all(timeline);
    let count = |lists: fn(&Walk) -> &Vec<Span>, span: Span| {
        walks.iter().flat_map(lists).filter(|other| **other == span).count()
    };
    let mut kinds: Vec<Span> =
        spans.iter().filter(|found| total(found) >= timeline.threshold).map(|found| found.span).collect();
    kinds.extend(walks.iter().flat_map(|walk| walk.unfinished.iter().chain(&walk.unstarted)));
    kinds.sort_by_key(|span| span_word(*span));
    kinds.dedup();
    let taken: Vec<&Found> = spans.iter().filter(|found| total(found) >= timeline.threshold).collect();
    let mut rows: Vec<(u64, Value)> = Vec::new();
    for span in kinds {
        let of_kind: Vec<&&Found> = taken.iter().filter(|found| found.span == span).collect();
        let clean: Vec<&&&Found> = of_kind.iter().filter(|found| !found.suspect).collect();
        let suspect: Vec<&&&Found> = of_kind.iter().filter(|found| found.suspect).collect();
        let durations: Vec<u64> = clean.iter().map(|found| total(found)).collect();
        let sum: u64 = durations.iter().sum();
        let of_class = |class: &str| clean.iter().filter(|found| found.class == class).count();
        let mut powers: BTreeMap<u64, u64> = BTreeMap::new();
        for duration in &durations {
            *powers.entry(if *duration == 0 { 0 } else { 1 << duration.ilog2() }).or_default() += 1;
        }
        let bucket = |(from, count): (&u64, &u64)| json!({"from": from, "to": if *from == 0 { 1 } else { from * 2 }, "count": count});
        let p = percentiles(&durations, &[50, 90, 99]);
        let passes: u64 = clean.iter().map(|found| found.passes).sum();
        rows.push((sum, json!({
            "span": span_word(span), "count": clean.len(), "total": sum,
            "self": clean.iter().map(|found| total(found) - found.children).sum::<u64>(),
            "min": durations.iter().min(), "p50": p[0], "p90": p[1], "p99": p[2], "max": durations.iter().max(),
            "histogram": powers.iter().map(bucket).collect::<Vec<_>>(),
            "classes": {"stall": of_class("stall"), "asked": of_class("asked"), "inner": of_class("inner"), "background": of_class("background")},
            "suspect": {"count": suspect.len(), "total": suspect.iter().map(|found| total(found)).sum::<u64>()},
            "unfinished": count(|walk| &walk.unfinished, span), "unstarted": count(|walk| &walk.unstarted, span),
            "passes": if daemon(span) { json!(passes) } else { Value::Null },
        })));
    }
    rows.sort_by_key(|row| Reverse(row.0));
    let mut nesting: BTreeMap<(&str, Option<&str>, &str), (u64, u64)> = BTreeMap::new();
    let mut tasks: BTreeMap<i32, (u64, u64, u64)> = BTreeMap::new();
    for found in taken.iter().filter(|found| !found.suspect) {
        let row = nesting.entry((span_word(found.span), found.parent.map(span_word), found.class)).or_default();
        *row = (row.0 + 1, row.1 + total(found));
        if found.class == "stall" {
            let row = tasks.entry(found.task.0).or_default();
            *row = (row.0 + 1, row.1 + total(found), row.2.max(total(found)));
        }
    }
    let mut nesting: Vec<_> = nesting.into_iter().collect();
    let rank = |class: &str| ["stall", "asked", "inner", "background"].iter().position(|word| *word == class);
    nesting.sort_by_key(|((span, parent, class), row)| (Reverse(row.1), *span, *parent, rank(class)));
    let nesting: Vec<Value> = nesting
        .iter()
        .map(|((span, parent, class), (count, total))| {
            json!({"span": span, "parent": parent, "class": class, "count": count, "total": total})
        })
        .collect();
    let mut tasks: Vec<_> = tasks.into_iter().collect();
    tasks.sort_by_key(|(pid, row)| (Reverse(row.1), *pid));
    let tasks: Vec<Value> = tasks
        .iter()
        .map(|(pid, (count, total, max))| json!({"pid": pid, "comm": null, "count": count, "total": total, "max": max}))
        .collect();
    json!({
        "spans": rows.into_iter().map(|row| row.1).collect::<Vec<_>>(), "nesting": nesting, "tasks": tasks,
        "sleeps_without_wake": walks.iter().map(|walk| walk.sleeps).sum::<u64>(),
    })
}

/// Rows of the document `shrinkers`, without symbols; `within`: of shrinkers inside spans of this kind.
pub fn shrinkers(timeline: &Timeline, within: Option<Span>) -> Value {
    let (spans, _) = all(timeline);
    let is_within = |found: &Found| within.is_none_or(|span| found.span == span || found.around.contains(&span));
    let is_taken =
        |found: &&Found| found.span == Span::Shrinker && total(found) >= timeline.threshold && is_within(found);
    let mut rows: BTreeMap<(u64, u64, Option<i32>), Vec<Found>> = BTreeMap::new();
    for found in spans.iter().filter(is_taken) {
        rows.entry(found.key).or_default().push(found.clone());
    }
    let mut rows: Vec<(u64, Value)> = rows
        .into_iter()
        .map(|((function, shrinker, node), calls)| {
            let clean: Vec<&Found> = calls.iter().filter(|found| !found.suspect).collect();
            let durations: Vec<u64> = clean.iter().map(|found| total(found)).collect();
            let p = percentiles(&durations, &[50, 90, 99]);
            let sum: u64 = durations.iter().sum();
            let row = json!({
                "function": format!("{function:#x}"), "symbol": null, "shrinker": format!("{shrinker:#x}"), "node": node,
                "count": clean.len(), "total": sum,
                "self": clean.iter().map(|found| total(found) - found.children).sum::<u64>(),
                "p50": p[0], "p90": p[1], "p99": p[2], "max": durations.iter().max(),
                "freed": clean.iter().map(|found| found.freed).sum::<u64>(), "suspect": calls.len() - clean.len(),
            });
            (sum, row)
        })
        .collect();
    rows.sort_by_key(|row| Reverse(row.0));
    json!(rows.into_iter().map(|row| row.1).collect::<Vec<_>>())
}

/// Stalls in the order of time: begin, end, thread, kind, duration, the same without children, order, and pages reclaimed.
pub fn stalls(timeline: &Timeline) -> Value {
    let (spans, _) = all(timeline);
    let is_taken = |found: &&Found| found.class == "stall" && !found.suspect && total(found) >= timeline.threshold;
    let mut rows: Vec<&Found> = spans.iter().filter(is_taken).collect();
    rows.sort_by_key(|found| (found.begin, found.task.0, found.end));
    let row = |found: &&Found| {
        let reclaimed = found.reclaimed.and_then(|n| u64::try_from(n).ok());
        json!([
            found.begin,
            found.end,
            found.task.0,
            span_word(found.span),
            total(found),
            total(found) - found.children,
            found.order,
            reclaimed
        ])
    };
    json!(rows.iter().map(row).collect::<Vec<_>>())
}

/// Waits by thread: allocations, those that waited, and the sum, the median and the greatest of the waits.
pub fn waits(timeline: &Timeline, counted: Option<Span>) -> Value {
    let (spans, walks) = all(timeline);
    let mut rows: BTreeMap<i32, (u64, Vec<u64>)> = BTreeMap::new();
    let mut tasks: Vec<(i32, u32)> = timeline.events.iter().map(task_of).collect();
    tasks.sort_unstable();
    tasks.dedup();
    for (task, walk) in tasks.into_iter().zip(&walks) {
        let events = of_task(timeline, task);
        let mut before = None;
        for (number, event) in events.iter().enumerate() {
            if event.action != Action::Alloc(Kind::Pages) || walk.busy[number] {
                continue;
            }
            let is_wait = |found: &&Found| {
                let kind = [Span::Direct, Span::Node].contains(&found.span) || found.attempted;
                let kind = kind && counted.is_none_or(|counted| counted == found.span);
                let since = before.is_none_or(|before| found.closed > before) && found.closed < number;
                found.task == task && kind && since && !found.suspect
            };
            let waits: Vec<u64> = spans.iter().filter(is_wait).map(total).collect();
            let row = rows.entry(task.0).or_default();
            row.0 += 1;
            let wait = waits.iter().sum::<u64>();
            if !waits.is_empty() && wait >= timeline.threshold {
                row.1.push(wait);
            }
            before = Some(number);
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(pid, (_, waits))| (Reverse((waits.iter().sum::<u64>(), waits.len())), *pid));
    let row = |(pid, (allocs, waits)): &(i32, (u64, Vec<u64>))| {
        let p = percentiles(waits, &[50]);
        json!([pid, allocs, waits.len(), waits.iter().sum::<u64>(), p[0], waits.iter().max()])
    };
    json!(rows.iter().map(row).collect::<Vec<_>>())
}
