//! JSON Lines: a document's head and then a row a line, or a trace's events, one a line.

use std::io::{self, Write};

use serde::Serialize;

use super::event_output::EventOutput;
use super::json::line;
use kmemtrace::OrderedItem;
use kmemtrace::documents::cross::{CpuMatrix, Cross};
use kmemtrace::documents::latency::StackTable;
use kmemtrace::documents::row::RowSource;
use kmemtrace::documents::{Body, Document, Head};

/// Writes a view; `summary`, whose document has no rows, is one line. Call stacks that rows name by number are the last line.
pub(crate) fn jsonl(document: &Document<'_>, out: &mut dyn Write) -> io::Result<()> {
    if let Body::Summary(_) = document.body {
        return line(document, out);
    }
    match &document.body {
        Body::Cross(Cross { cpus, matrix, .. }) => {
            line(&CrossHead { head: &document.head, cpus: *cpus, matrix: matrix.as_ref() }, out)?;
        }
        _ => line(&document.head, out)?,
    }
    document.each_row(&mut |row| line(&row, out))?;
    if let Body::Stalls(stalls) = &document.body
        && !stalls.stacks.is_empty()
    {
        return line(&Stacks { stacks: &stalls.stacks }, out);
    }
    document.stacks().filter(|stacks| !stacks.is_empty()).map_or(Ok(()), |stacks| line(stacks, out))
}

/// First line of `cross`: its rows come after the matrix.
#[derive(Serialize)]
struct CrossHead<'d, 'a> {
    #[serde(flatten)]
    head: &'d Head<'a>,
    cpus: Option<&'a [u32]>,
    matrix: Option<&'d CpuMatrix<'a>>,
}

/// Last line of `stalls`.
#[derive(Serialize)]
struct Stacks<'s, 'a> {
    stacks: &'s StackTable<'a>,
}

/// Writer of events and gaps, each at once, so that memory does not grow with the trace.
pub(crate) struct LineWriter<'a> {
    out: &'a mut dyn Write,
    /// Memory of one line.
    buffer: Vec<u8>,
}

impl<'a> LineWriter<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> LineWriter<'a> {
        LineWriter { out, buffer: Vec::new() }
    }
}

impl EventOutput for LineWriter<'_> {
    fn item(&mut self, item: &OrderedItem<'_>) -> io::Result<()> {
        self.buffer.clear();
        line(item, &mut self.buffer)?;
        self.out.write_all(&self.buffer)
    }

    fn finish(self: Box<Self>, _: u64) -> io::Result<()> {
        Ok(())
    }
}
