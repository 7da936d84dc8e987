//! `perfetto`: counter tracks of live bytes a kind and of events a CPU, and an instant for each gap, as packets of TrackEvent.
//!
//! Two passes: the first counts live bytes over time, the second events and gaps between the keys that the first one found.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

use kmemtrace::documents::head::TraceMembers;
use kmemtrace::documents::{self, Head};
use kmemtrace::{Analysis, Kind, LiveCurve, Observer, OrderedItem, Query, Shape};
use kmemtrace_abi::clock::{Agreement, Clock, Unit};
use kmemtrace_abi::text::units::grouped;

use super::about;
use super::job::Job;
use super::protobuf::Message;

/// Greatest number of points of a track.
const MAX_POINTS: usize = 10_000;
/// Track that all others belong to.
const ROOT: u64 = 1;
/// Tracks of kinds, of CPUs' events, and of CPUs' losses begin here; the kind's place or the CPU's number follows.
const KINDS: u64 = 2;
const EVENTS: u64 = 1 << 32;
const LOSSES: u64 = 2 << 32;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of `TrackDescriptor`, and units of `CounterDescriptor`.
mod track {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PARENT: u32 = 5;
    pub(super) const COUNTER: u32 = 8;
    pub(super) const UNIT_COUNT: u64 = 2;
    pub(super) const UNIT_BYTES: u64 = 3;
}

/// Fields of `TrackEvent`, and its types.
mod event {
    pub(super) const TYPE: u32 = 9;
    pub(super) const TRACK: u32 = 11;
    pub(super) const NAME: u32 = 23;
    pub(super) const COUNTER_VALUE: u32 = 30;
    pub(super) const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub(super) const INSTANT: u64 = 3;
    pub(super) const COUNTER: u64 = 4;
}

/// Writes the tracks of a trace.
pub(super) fn perfetto(job: &Job<'_>) -> anyhow::Result<u8> {
    let mut out = job.binary_output()?;
    let analysis = job.analyse(Query::by_kind().with_live_curve(MAX_POINTS))?;
    let head = documents::summary(&analysis, &Shape::default()).head;
    let mut tracks = Tracks { out: &mut out, field: Message::default() };
    let mut written = begin(&mut tracks, &head, &about::lines(&head, job.host(), &job.asked));
    if written.is_ok() {
        let mut rates = Rates::new(&mut tracks, &head.trace);
        job.observe(&mut rates)?;
        written = rates.finish();
    }
    let written = written.and_then(|()| live(&mut tracks, &analysis, head.trace.keys()));
    out.finish(written)?;
    Ok(job.end(&analysis))
}

/// Writes the root of the tracks, whose name has the verdict, and an instant with each line about the trace.
fn begin(tracks: &mut Tracks<'_>, head: &Head<'_>, lines: &[String]) -> io::Result<()> {
    tracks.describe(ROOT, None, &format!("kmemtrace: {}", about::verdict(head)), None)?;
    let unit = match head.trace.keys().unit {
        Unit::Nanoseconds => None,
        Unit::Ticks => Some("a nanosecond stands for a tick of the trace's clock".to_owned()),
        Unit::Records => Some("a nanosecond stands for a sequence number".to_owned()),
    };
    lines.iter().chain(&unit).try_for_each(|line| tracks.instant(ROOT, head.trace.first, line))
}

/// Writes the live bytes of each kind; none where the clock puts events in no order.
fn live(tracks: &mut Tracks<'_>, analysis: &Analysis, keys: Clock) -> io::Result<()> {
    let no_curve = LiveCurve::default();
    let curve = analysis.live_curve().filter(|_| keys.agreement != Agreement::Nothing).unwrap_or(&no_curve);
    for (kind, uuid) in Kind::ALL.into_iter().zip(KINDS..) {
        let points = curve.points(kind);
        if points.is_empty() {
            continue;
        }
        // Frees that have no event leave objects live.
        let bound = if analysis.kind(kind).live_is_upper_bound { ", upper bound" } else { "" };
        tracks.describe(uuid, Some(ROOT), &format!("{} live{bound}", kind.name()), Some(track::UNIT_BYTES))?;
        points.iter().try_for_each(|&(at, bytes)| tracks.bytes(uuid, at, bytes))?;
    }
    Ok(())
}

/// Writer of tracks.
struct Tracks<'a> {
    out: &'a mut dyn Write,
    /// Memory of one packet.
    field: Message,
}

impl Tracks<'_> {
    /// Writes the description of a track; with the unit of its counts, where it has some.
    fn describe(&mut self, uuid: u64, parent: Option<u64>, name: &str, unit: Option<u64>) -> io::Result<()> {
        let mut descriptor = Message::default();
        descriptor.uint(track::UUID, uuid).text(track::NAME, name);
        if let Some(parent) = parent {
            descriptor.uint(track::PARENT, parent);
        }
        if let Some(unit) = unit {
            let mut counter = Message::default();
            counter.uint(3, unit);
            descriptor.message(track::COUNTER, &counter);
        }
        let mut packet = Message::default();
        packet.message(packet::TRACK_DESCRIPTOR, &descriptor);
        self.put(packet)
    }

    fn bytes(&mut self, uuid: u64, at: u64, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.event(uuid, at, event::COUNTER, |event| _ = event.int(event::COUNTER_VALUE, bytes))
    }

    fn rate(&mut self, uuid: u64, at: u64, rate: f64) -> io::Result<()> {
        self.event(uuid, at, event::COUNTER, |event| _ = event.double(event::DOUBLE_COUNTER_VALUE, rate))
    }

    fn instant(&mut self, uuid: u64, at: u64, name: &str) -> io::Result<()> {
        self.event(uuid, at, event::INSTANT, |event| _ = event.text(event::NAME, name))
    }

    fn event(&mut self, uuid: u64, at: u64, event_type: u64, add: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut event = Message::default();
        event.uint(event::TYPE, event_type).uint(event::TRACK, uuid);
        add(&mut event);
        let mut packet = Message::default();
        packet.uint(packet::TIMESTAMP, at).message(packet::TRACK_EVENT, &event);
        self.put(packet)
    }

    /// Writes a packet. All are of one sequence, without interned data.
    fn put(&mut self, mut packet: Message) -> io::Result<()> {
        packet.uint(packet::SEQUENCE, 1);
        self.field.clear();
        self.field.message(1, &packet);
        self.out.write_all(self.field.bytes())
    }
}

/// Observer that counts events of each CPU in slices of time, and writes gaps as they come.
struct Rates<'a, 'b> {
    tracks: &'a mut Tracks<'b>,
    keys: Clock,
    first: u64,
    last: u64,
    /// Keys of a slice.
    width: u64,
    /// Events in slices that have some, by CPU; slices ascend.
    cpus: BTreeMap<u32, Vec<(u64, u64)>>,
    /// CPUs whose track of losses is described.
    lossy: Vec<u32>,
    /// First error; nothing is written after it.
    error: Option<io::Error>,
}

impl<'a, 'b> Rates<'a, 'b> {
    /// Counter for the keys of a trace.
    fn new(tracks: &'a mut Tracks<'b>, trace: &TraceMembers<'_>) -> Rates<'a, 'b> {
        let (first, last) = (trace.first, trace.last);
        let width = last.saturating_sub(first) / MAX_POINTS as u64 + 1;
        let (cpus, lossy) = (BTreeMap::new(), Vec::new());
        Rates { tracks, keys: trace.keys(), first, last, width, cpus, lossy, error: None }
    }

    fn gap(&mut self, cpu: u32, at: u64, lost: Option<u64>) -> io::Result<()> {
        let uuid = LOSSES + u64::from(cpu);
        if let Err(place) = self.lossy.binary_search(&cpu) {
            self.lossy.insert(place, cpu);
            self.tracks.describe(uuid, Some(ROOT), &format!("CPU {cpu} loss"), None)?;
        }
        let lost = lost.map_or("an unknown number of".to_owned(), grouped);
        self.tracks.instant(uuid, at, &format!("lost {lost} events"))
    }

    /// Writes the events of each CPU: a point where the rate changes.
    fn finish(self) -> io::Result<()> {
        let Rates { tracks, keys, first, last, width, cpus, error, .. } = self;
        error.map_or(Ok(()), Err)?;
        let unit = match keys.unit {
            Unit::Nanoseconds => "events/s".to_owned(),
            Unit::Ticks => format!("events in {width} ticks"),
            Unit::Records => format!("events in {width} numbers"),
        };
        for (cpu, slices) in cpus {
            let uuid = EVENTS + u64::from(cpu);
            tracks.describe(uuid, Some(ROOT), &format!("CPU {cpu} {unit}"), Some(track::UNIT_COUNT))?;
            let begin = |slice: u64| first.saturating_add(slice.saturating_mul(width));
            let (mut next, mut shown) = (0, None);
            for (slice, events) in slices {
                if slice > next && shown != Some(0.0) {
                    tracks.rate(uuid, begin(next), 0.0)?;
                    shown = Some(0.0);
                }
                let rate = match keys.unit {
                    // The last slice is cut at the last event.
                    Unit::Nanoseconds => {
                        let keys_of_slice = width.min(last.saturating_sub(begin(slice)).saturating_add(1));
                        events as f64 * 1e9 / keys_of_slice as f64
                    }
                    Unit::Ticks | Unit::Records => events as f64,
                };
                if shown != Some(rate) {
                    tracks.rate(uuid, begin(slice), rate)?;
                    shown = Some(rate);
                }
                next = slice + 1;
            }
            if begin(next) <= last {
                tracks.rate(uuid, begin(next), 0.0)?;
            }
        }
        Ok(())
    }
}

impl Observer for Rates<'_, '_> {
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        match *item {
            OrderedItem::Event { event, .. } => {
                let slice = event.at.saturating_sub(self.first) / self.width;
                let slices = self.cpus.entry(event.cpu).or_default();
                match slices.last_mut().filter(|(last, _)| *last == slice) {
                    Some((_, events)) => *events += 1,
                    None => slices.push((slice, 1)),
                }
            }
            OrderedItem::Gap { at, cpu, lost, .. } => self.error = self.gap(cpu, at, lost).err(),
        }
        if self.error.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
