//! `events`: the decoded events in the total order, one JSON object a line.

use std::collections::HashMap;
use std::io::{self, Write};

use kmemtrace_abi::event::{Action, Event, Gap, Names};
use serde_json::{Map, Value, json};

use super::{address, put_name};
use crate::order::Sink;
use crate::pairs::Filter;

/// Writes each event as it comes, so that no trace is too long.
pub(crate) struct Lines<'a, F> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) comms: &'a HashMap<i32, Box<[u8]>>,
    pub(crate) filter: Option<F>,
    /// The first error; nothing is written after it.
    pub(crate) error: Option<io::Error>,
    /// Gaps that go to the end of the trace, whose key is known only then.
    pub(crate) open: Vec<(u64, Gap)>,
    /// `--time`: gaps outside of the window are not shown.
    pub(crate) last: u64,
}

impl<F> Lines<'_, F> {
    fn line(&mut self, line: Map<String, Value>) {
        if self.error.is_none() {
            self.error = writeln!(self.out, "{}", Value::Object(line)).err();
        }
    }

    /// Writes the gaps that go to the end.
    pub(crate) fn finish(&mut self, last: u64) {
        for (from, gap) in std::mem::take(&mut self.open) {
            self.gap_line(from, last.max(from), &gap);
        }
    }

    fn gap_line(&mut self, from: u64, at: u64, gap: &Gap) {
        let mut line = Map::new();
        line.insert("at".to_owned(), json!(at));
        line.insert("from".to_owned(), json!(from));
        line.insert("cpu".to_owned(), json!(gap.cpu));
        line.insert("event".to_owned(), json!("gap"));
        line.insert("lost".to_owned(), json!(gap.lost));
        self.line(line);
    }
}

impl<F: Filter> Sink for Lines<'_, F> {
    fn gap_known(&mut self, _to: u64) {}

    fn advance(&mut self) {}

    fn event(&mut self, event: &Event, names: &Names) {
        self.last = event.at;
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

    fn gap(&mut self, from: u64, gap: &Gap) {
        match gap.to {
            Some(to) => self.gap_line(from, to, gap),
            None => self.open.push((from, *gap)),
        }
    }
}
