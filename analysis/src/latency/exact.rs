//! Random events of tasks that wait, with losses: every figure is that of the slow model.

use std::path::Path;

use kmemtrace_abi::event::{Action, Event, Gap, GapCause, Kind, Mark, Names, Span, StreamItem};
use kmemtrace_abi::fault::Fault;
use kmemtrace_abi::stream::source::EventSource;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::reference::latency::{self as model, Timeline};
use kmemtrace_tests::runs::seeds;
use serde_json::{Value, json};

use super::{LatencyRequest, WaitBy};
use crate::Query;
use crate::documents::latency as documents;
use crate::progress::Silent;

/// Items of a CPU, some at a time.
#[derive(Debug)]
struct Made {
    cpu: u32,
    items: std::vec::IntoIter<StreamItem>,
    at_once: usize,
}

impl EventSource for Made {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn path(&self) -> &Path {
        Path::new("made")
    }

    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        let name = names.intern(b"made");
        items.extend(self.items.by_ref().take(self.at_once).map(|item| match item {
            StreamItem::Event(event) => StreamItem::Event(Event { name, ..event }),
            gap => gap,
        }));
        Ok(())
    }
}

const SPANS: [Span; 9] = [
    Span::Direct,
    Span::Memcg,
    Span::Softlimit,
    Span::Node,
    Span::Compaction,
    Span::Shrinker,
    Span::Shrinker,
    Span::Kswapd,
    Span::Kcompactd,
];

/// Event of a task that mostly ends what it began; `open` has the spans that it has not ended yet.
fn next(random: &mut Random, open: &mut Vec<(Span, u64)>, event: Event) -> Event {
    let shrinker = |address: u64, event: Event| Event {
        address: address + 1,
        call_site: 0x1000 + address % 2,
        node: Some((address % 3) as i32 - 1),
        ..event
    };
    match random.below(20) {
        0..8 => {
            // Some ends are of another shrinker, or of nothing.
            let (span, address) =
                if random.chance(90) { open.pop() } else { None }.unwrap_or((*random.pick(&SPANS), random.below(3)));
            let value = Some(random.below(50) as i64 - 3);
            shrinker(address, Event { mark: Mark::End(span), value, ..event })
        }
        8..16 => {
            let (span, address) = (*random.pick(&SPANS), random.below(3));
            if open.len() < 3 && random.chance(85) {
                open.push((span, address));
            }
            let (order, gfp) = (Some(random.below(4) as u8), Some(random.below(2)));
            shrinker(address, Event { mark: Mark::Begin(span), order, gfp, ..event })
        }
        16 => Event { mark: Mark::Throttled, value: Some(random.below(4) as i64), ..event },
        17 => Event { mark: Mark::CompactionAttempt, ..event },
        18 => Event { mark: Mark::Beside, ..event },
        _ => Event { action: Action::Alloc(Kind::Pages), order: Some(0), ..event },
    }
}

/// Items of each CPU. Tasks go from CPU to CPU, keys are equal at times, and events are lost.
fn streams(random: &mut Random) -> Vec<Vec<StreamItem>> {
    let cpus = 1 + random.below(3) as usize;
    let mut streams: Vec<Vec<StreamItem>> = vec![Vec::new(); cpus];
    let mut last: Vec<Option<u64>> = vec![None; cpus];
    let mut lost = vec![false; cpus];
    let mut open: Vec<Vec<(Span, u64)>> = vec![Vec::new(); 4];
    let steps = *random.pick(&[0, 1, 2]);
    let loss = *random.pick(&[0, 0, 1, 4]);
    let name = Names::new().intern(b"made");
    let mut at = 1 + random.below(5);
    for _ in 0..20 + random.below(300) {
        at += *random.pick(&[0, 1, 7, 400, 3000, 1 << 21]) * steps;
        let cpu = random.below(cpus as u64) as usize;
        let task = random.below(4) as usize;
        let flags = *random.pick(&[0, 0, 0, 0, 1, 1, 0x20, 0x08, 0x10, 0x40]);
        let event = Event { pid: Some(task as i32 * 7), flags: Some(flags), ..Event::new(at, cpu as u32, name) };
        let event = next(random, &mut open[task], event);
        if random.chance(loss) {
            lost[cpu] = true;
            continue;
        }
        if std::mem::take(&mut lost[cpu]) {
            let gap = Gap { from: last[cpu], to: Some(at), cpu: cpu as u32, lost: Some(1), cause: GapCause::Overrun };
            streams[cpu].push(StreamItem::Gap(gap));
        }
        last[cpu] = Some(at);
        streams[cpu].push(StreamItem::Event(event));
    }
    for (cpu, stream) in streams.iter_mut().enumerate().filter(|(cpu, _)| lost[*cpu]) {
        let gap = Gap { from: last[cpu], to: None, cpu: cpu as u32, lost: Some(1), cause: GapCause::Cut };
        stream.push(StreamItem::Gap(gap));
    }
    streams
}

/// Events in the total order, and gaps, for the model.
fn timeline(streams: &[Vec<StreamItem>], threshold: u64) -> Timeline {
    let mut timeline = Timeline { threshold, ..Timeline::default() };
    for item in streams.iter().flatten() {
        if let StreamItem::Event(event) = item {
            timeline.events.push(*event);
        }
    }
    timeline.events.sort_by_key(|event| (event.at, event.cpu));
    let first = timeline.events.first().map_or(0, |event| event.at);
    for item in streams.iter().flatten() {
        if let StreamItem::Gap(gap) = item {
            timeline.gaps.push(gap.ends(first));
        }
    }
    timeline
}

fn picked(rows: &Value, members: &[&str]) -> Value {
    let row = |row: &Value| json!(members.iter().map(|member| row[member].clone()).collect::<Vec<_>>());
    json!(rows.as_array().unwrap().iter().map(row).collect::<Vec<_>>())
}

fn check(seed: u64) {
    let mut random = Random::new(seed);
    let streams = streams(&mut random);
    let threshold = *random.pick(&[0, 0, 400, 1 << 20]);
    let at_once = 1 + random.below(20) as usize;
    let made = || {
        let sources = streams.iter().zip(0..).map(|(items, cpu)| -> Box<dyn EventSource> {
            Box::new(Made { cpu, items: items.clone().into_iter(), at_once })
        });
        Trace::of_sources("made", Some("mono"), sources.collect()).unwrap()
    };
    let mut trace = made();
    let request =
        LatencyRequest { threshold, lists_stalls: true, waits_by: vec![WaitBy::Task], ..LatencyRequest::default() };
    let query = Query::by_kind().cut(Some(1 + random.below(40) as usize), None);
    let latency = query.latency(&mut trace, request.clone(), &mut Silent).unwrap();
    let timeline = timeline(&streams, threshold);

    let document = serde_json::to_value(documents::latency(&latency, None)).unwrap();
    let wanted = model::latency(&timeline);
    for member in ["spans", "nesting", "tasks", "sleeps_without_wake"] {
        assert_eq!(document[member], wanted[member], "seed {seed}: {member}");
    }
    let shrinkers = serde_json::to_value(documents::shrinkers(&latency, false, None)).unwrap();
    assert_eq!(shrinkers["rows"], model::shrinkers(&timeline, None), "seed {seed}: shrinkers");
    let stalls = serde_json::to_value(documents::stalls(&latency, true, None)).unwrap();
    let members = ["at", "end", "pid", "span", "total", "self", "order", "reclaimed"];
    assert_eq!(picked(&stalls["rows"], &members), model::stalls(&timeline), "seed {seed}: stalls");
    let span = *random.pick(&SPANS);
    let spans = vec![span.name().unwrap().to_owned()];
    let inside = LatencyRequest { spans, takes_inside: true, ..request.clone() };
    let latency_inside = query.latency(&mut made(), inside, &mut Silent).unwrap();
    let shrinkers = serde_json::to_value(documents::shrinkers(&latency_inside, false, None)).unwrap();
    assert_eq!(shrinkers["rows"], model::shrinkers(&timeline, Some(span)), "seed {seed}: shrinkers, {span:?}");
    let span = *random.pick(&[Span::Direct, Span::Node, Span::Compaction]);
    let spans = vec![span.name().unwrap().to_owned()];
    let of_span = query.latency(&mut made(), LatencyRequest { spans, ..request }, &mut Silent).unwrap();
    for (latency, counted) in [(&latency, None), (&of_span, Some(span))] {
        let waits = serde_json::to_value(documents::waits(latency, None)).unwrap();
        let members = ["pid", "allocs", "waited", "total", "p50", "max"];
        let wanted = model::waits(&timeline, counted);
        assert_eq!(picked(&waits["rows"], &members), wanted, "seed {seed}: waits, {counted:?}");
    }
}

#[test]
fn random_spans_have_the_figures_of_the_slow_model() {
    seeds(0..300).for_each(check);
}
