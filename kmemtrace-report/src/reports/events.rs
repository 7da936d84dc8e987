//! `events`: the decoded events in the total order, one JSON object a line.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Write};

use kmemtrace_abi::event::{Action, Event, EventSink, Gap, Names};
use serde::ser::{SerializeMap, Serializer as _};
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Compound};

use super::row::{Address, text_of};
use crate::decode::Filter;
use crate::merge::{Chunk, Keyed};
use crate::order::Window;
use crate::render::json::Harmless;

/// Writes each event as it comes, so that no trace is too long.
pub(crate) struct Lines<'a, F> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) comms: &'a HashMap<i32, Box<[u8]>>,
    pub(crate) filter: Option<F>,
    /// The first error; nothing is written after it.
    pub(crate) error: Option<io::Error>,
    /// Gaps that have not ended yet, by their ends.
    pub(crate) gaps: BinaryHeap<Reverse<GapLine>>,
    /// Memory of a line.
    pub(crate) buffer: Vec<u8>,
}

/// Members of a line, written as they come.
type Members<'a> = Compound<'a, &'a mut Vec<u8>, Harmless<CompactFormatter>>;

/// A gap, to be written where it ends: its end, CPU and beginning, and how many events were lost.
pub(crate) type GapLine = (u64, u32, u64, Option<u64>);

impl Keyed for Event {
    fn key(&self) -> u64 {
        self.at
    }

    fn part(&self, _: u32) -> u8 {
        0
    }

    fn cpu(&self, _: &[u32]) -> u32 {
        self.cpu
    }
}

impl EventSink for Chunk<Event> {
    fn event(&mut self, event: Event, _: &Names) {
        self.events.push(event);
    }

    fn gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }
}

impl<F: Filter> Lines<'_, F> {
    /// Writes the events of a window, and the gaps that end before them. `first` is the first key of all.
    pub(crate) fn window(&mut self, window: &Window<Event>, first: u64, names: &Names) {
        let line = |gap: &Gap| Reverse((gap.to.unwrap_or(u64::MAX), gap.cpu, gap.from.unwrap_or(first), gap.lost));
        self.gaps.extend(window.gaps.iter().map(line));
        for event in &window.events {
            while let Some(&Reverse((to, cpu, from, lost))) = self.gaps.peek()
                && to <= event.at
            {
                self.gaps.pop();
                self.gap_line(from, to, cpu, lost);
            }
            self.event(event, names);
        }
    }

    /// Writes a line of the members that `put` gives it.
    fn line(&mut self, put: impl FnOnce(&mut Members<'_>, &Self) -> serde_json::Result<()>) {
        if self.error.is_some() {
            return;
        }
        let mut line = std::mem::take(&mut self.buffer);
        let mut serializer = Serializer::with_formatter(&mut line, Harmless(CompactFormatter));
        let written = serializer.serialize_map(None).and_then(|mut members| {
            put(&mut members, self)?;
            members.end()
        });
        line.push(b'\n');
        self.error = written.map_err(io::Error::from).and_then(|()| self.out.write_all(&line)).err();
        line.clear();
        self.buffer = line;
    }

    /// Adds a gap of an unknown number of events on each of these CPUs, between two keys, which came to light at the end.
    pub(crate) fn gap_on_every_cpu(&mut self, cpus: &[u32], (from, to): (u64, u64)) {
        self.gaps.extend(cpus.iter().map(|&cpu| Reverse((to, cpu, from, None))));
    }

    /// Writes the gaps that go to the end, whose key is `last`.
    pub(crate) fn finish(&mut self, last: u64) {
        while let Some(Reverse((to, cpu, from, lost))) = self.gaps.pop() {
            let at = if to == u64::MAX { last.max(from) } else { to };
            self.gap_line(from, at, cpu, lost);
        }
    }

    fn gap_line(&mut self, from: u64, at: u64, cpu: u32, lost: Option<u64>) {
        self.line(|members, _| {
            members.serialize_entry("at", &at)?;
            members.serialize_entry("from", &from)?;
            members.serialize_entry("cpu", &cpu)?;
            members.serialize_entry("event", "gap")?;
            members.serialize_entry("lost", &lost)
        });
    }

    fn event(&mut self, event: &Event, names: &Names) {
        let object = event.action != Action::Other;
        if self.filter.as_mut().is_some_and(|filter| !object || !filter.takes(event, names)) {
            return;
        }
        self.line(|members, lines| {
            members.serialize_entry("at", &event.at)?;
            members.serialize_entry("cpu", &event.cpu)?;
            members.serialize_entry("pid", &event.pid)?;
            name(members, "comm", event.pid.and_then(|pid| lines.comms.get(&pid)).map(|comm| &**comm))?;
            if let Some(context) = event.context() {
                members.serialize_entry("context", context.name())?;
            }
            name(members, "event", Some(names.get(event.name)))?;
            if object {
                members.serialize_entry("call_site", &Address(event.call_site))?;
                members.serialize_entry("address", &Address(event.address))?;
            }
            if matches!(event.action, Action::Alloc(_)) {
                members.serialize_entry("requested", &event.requested)?;
                members.serialize_entry("allocated", &event.allocated)?;
                if let Some(gfp) = event.gfp {
                    members.serialize_entry("gfp", &gfp)?;
                }
                if let Some(node) = event.node {
                    members.serialize_entry("node", &node)?;
                }
            }
            if let Some(cache) = event.cache {
                name(members, "cache", Some(names.get(cache)))?;
            }
            Ok(())
        });
    }
}

/// Writes a name as rows have it, with its bytes as digits where they are no UTF-8.
fn name(members: &mut Members<'_>, member: &str, name: Option<&[u8]>) -> serde_json::Result<()> {
    let (text, hex) = name.map(text_of).unzip();
    members.serialize_entry(member, &text)?;
    match hex.flatten() {
        Some(hex) => members.serialize_entry(&format!("{member}_hex"), &hex),
        None => Ok(()),
    }
}
