//! JSON Lines: a document's head and then a row a line, or a trace's events, one a line.

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::CompactFormatter;

use super::event_output::EventOutput;
use super::json::{Harmless, line};
use kmemtrace::documents::latency::StackTable;
use kmemtrace::documents::row::RowSource;
use kmemtrace::documents::{Body, Document};
use kmemtrace::{Observer, OrderedItem};

/// Writes a view; `summary`, whose document has no rows, is one line. Call stacks that rows name by number are the last line.
pub(crate) fn jsonl(document: &Document<'_>, out: &mut dyn Write) -> io::Result<()> {
    if let Body::Summary(_) = document.body {
        return line(document, out);
    }
    line(&document.head, out)?;
    document.each_row(&mut |row| line(&row, out))?;
    if let Body::Stalls(stalls) = &document.body
        && !stalls.stacks.is_empty()
    {
        return line(&Stacks { stacks: &stalls.stacks }, out);
    }
    document.stacks().filter(|stacks| !stacks.is_empty()).map_or(Ok(()), |stacks| line(stacks, out))
}

/// Last line of `stalls`.
#[derive(Serialize)]
struct Stacks<'s, 'a> {
    stacks: &'s StackTable<'a>,
}

/// Observer that writes each event and gap at once, so that memory does not grow with the trace.
pub(crate) struct LineWriter<'a> {
    out: &'a mut dyn Write,
    /// First error; nothing is written after it.
    error: Option<io::Error>,
    /// Memory of one line.
    buffer: Vec<u8>,
}

impl<'a> LineWriter<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> LineWriter<'a> {
        LineWriter { out, error: None, buffer: Vec::new() }
    }
}

impl EventOutput for LineWriter<'_> {
    fn finish(self: Box<Self>, _: u64) -> io::Result<()> {
        self.error.map_or(Ok(()), Err)
    }
}

impl Observer for LineWriter<'_> {
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        self.buffer.clear();
        let mut serializer = Serializer::with_formatter(&mut self.buffer, Harmless(CompactFormatter));
        let written = item.serialize(&mut serializer).map_err(io::Error::from);
        self.buffer.push(b'\n');
        self.error = written.and_then(|()| self.out.write_all(&self.buffer)).err();
        if self.error.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
