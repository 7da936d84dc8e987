//! `events`: the decoded events in the total order, one JSON object a line.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Write};

use kmemtrace_abi::event::{Action, Event, Gap, Items, Names};
use serde_json::{Map, Value, json};

use super::{address, put_name};
use crate::decode::Filter;
use crate::merge::{Chunk, Keyed};
use crate::order::Window;

/// Writes each event as it comes, so that no trace is too long.
pub(crate) struct Lines<'a, F> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) comms: &'a HashMap<i32, Box<[u8]>>,
    pub(crate) filter: Option<F>,
    /// The first error; nothing is written after it.
    pub(crate) error: Option<io::Error>,
    /// Gaps that have not ended yet, by their ends.
    pub(crate) gaps: BinaryHeap<Reverse<GapLine>>,
}

/// A gap, to be written where it ends: its end, CPU and beginning, and how many events were lost.
pub(crate) type GapLine = (u64, u32, u64, Option<u64>);

impl Keyed for Event {
    fn key(&self) -> u64 {
        self.at
    }

    fn part(&self, _: u32) -> u32 {
        0
    }

    fn cpu(&self, _: &[u32]) -> u32 {
        self.cpu
    }
}

impl Items for Chunk<Event> {
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
        for event in window.parts.iter().flat_map(|part| &part.events) {
            while let Some(&Reverse((to, cpu, from, lost))) = self.gaps.peek()
                && to <= event.at
            {
                self.gaps.pop();
                self.gap_line(from, to, cpu, lost);
            }
            self.event(event, names);
        }
    }

    fn line(&mut self, line: Map<String, Value>) {
        if self.error.is_none() {
            self.error = writeln!(self.out, "{}", Value::Object(line)).err();
        }
    }

    /// Writes the gaps that go to the end, whose key is `last`.
    pub(crate) fn finish(&mut self, last: u64) {
        while let Some(Reverse((to, cpu, from, lost))) = self.gaps.pop() {
            let at = if to == u64::MAX { last.max(from) } else { to };
            self.gap_line(from, at, cpu, lost);
        }
    }

    fn gap_line(&mut self, from: u64, at: u64, cpu: u32, lost: Option<u64>) {
        let mut line = Map::new();
        line.insert("at".to_owned(), json!(at));
        line.insert("from".to_owned(), json!(from));
        line.insert("cpu".to_owned(), json!(cpu));
        line.insert("event".to_owned(), json!("gap"));
        line.insert("lost".to_owned(), json!(lost));
        self.line(line);
    }

    fn event(&mut self, event: &Event, names: &Names) {
        let object = event.action != Action::Other;
        if self.filter.as_mut().is_some_and(|filter| !object || !filter.takes(event, names)) {
            return;
        }
        let mut line = Map::new();
        line.insert("at".to_owned(), json!(event.at));
        line.insert("cpu".to_owned(), json!(event.cpu));
        line.insert("pid".to_owned(), json!(event.pid));
        put_name(&mut line, "comm", event.pid.and_then(|pid| self.comms.get(&pid)).map(|comm| &**comm));
        put_name(&mut line, "event", Some(names.get(event.name)));
        if object {
            line.insert("call_site".to_owned(), address(event.call_site));
            line.insert("address".to_owned(), address(event.address));
        }
        if matches!(event.action, Action::Alloc(_)) {
            line.insert("requested".to_owned(), json!(event.requested));
            line.insert("allocated".to_owned(), json!(event.allocated));
            if let Some(gfp) = event.gfp {
                line.insert("gfp".to_owned(), json!(gfp));
            }
            if let Some(node) = event.node {
                line.insert("node".to_owned(), json!(node));
            }
        }
        if let Some(cache) = event.cache {
            put_name(&mut line, "cache", Some(names.get(cache)));
        }
        self.line(line);
    }
}
