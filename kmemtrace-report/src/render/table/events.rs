//! Table of `events`, written as they come: columns have fixed widths.

use std::io::{self, Write};
use std::sync::Arc;

use kmemtrace::documents::row::Address;
use kmemtrace::{Clock, Event, EventNames, GfpNames, Kind, OrderedItem, Symbolizer, Trace};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, heading};
use crate::columns::EVENTS;
use crate::columns::column::{Column, Holds};
use crate::render::cut;
use crate::render::event_output::EventOutput;
use crate::render::grid::fit::{Need, fit};
use crate::render::wrap;
use crate::terminal::screen::Paint;

/// Widths of the columns: the most that their usual content takes.
const WIDTHS: [usize; EVENTS.len()] = [12, 3, 7, 16, 7, 16, 9, 8, 24, 4, 20, 18, 60];
/// Width of a call-site that other columns are dropped for.
const SITE: usize = 22;

/// Names that events do not carry themselves.
#[derive(Debug, Default)]
pub(crate) struct EventLabels {
    symbols: Symbolizer,
    gfp: Option<Arc<GfpNames>>,
}

impl EventLabels {
    /// Copies of the trace's own, because a pass takes these out of the trace.
    pub(crate) fn of(trace: &Trace) -> EventLabels {
        let metadata = &trace.metadata;
        let symbols = Symbolizer::new(metadata.kallsyms.clone(), &metadata.modules);
        EventLabels { symbols, gfp: metadata.gfp_names.clone() }
    }

    /// The reason for which call sites are not named.
    pub(crate) fn left_out(&self) -> Option<&str> {
        self.symbols.left_out()
    }

    /// Flags of an allocation by the kernel's names, else as a number.
    fn flags(&self, gfp: u64) -> String {
        let names = self.gfp.as_ref().map(|names| escape(names.text(gfp).to_string().as_bytes()).into_owned());
        names.unwrap_or_else(|| format!("{gfp:#x}"))
    }
}

/// Writer of a row for each event and each gap.
pub(crate) struct EventTable<'a> {
    out: &'a mut dyn Write,
    options: &'a TableOptions,
    labels: &'a EventLabels,
    clock: Clock,
    /// Key of the trace's first event.
    first: Option<u64>,
    has_titles: bool,
    /// Places of the columns that are shown, with their widths.
    shown: Vec<(usize, usize)>,
}

impl<'a> EventTable<'a> {
    pub(crate) fn new(
        clock: Clock,
        labels: &'a EventLabels,
        options: &'a TableOptions,
        out: &'a mut dyn Write,
    ) -> EventTable<'a> {
        let need = |(column, width): (&Column<'_>, usize)| Need {
            width,
            site: (column.holds == Holds::Site).then_some(SITE),
            kept: 0,
            is_name: column.title == "COMM",
            is_empty: false,
            is_unknown: false,
            drop: column.drop,
        };
        let is_shown = |index: usize| options.show_addresses || EVENTS[index].title != "ADDRESS";
        let places: Vec<usize> = (0..EVENTS.len()).filter(|&index| is_shown(index)).collect();
        let needs: Vec<Need> = places.iter().map(|&index| need((&EVENTS[index], WIDTHS[index]))).collect();
        let widths = fit(&needs, options.screen.width);
        let shown = places.into_iter().zip(widths).filter_map(|(index, width)| Some((index, width?))).collect();
        EventTable { out, options, labels, clock, first: None, has_titles: false, shown }
    }

    /// Writes the titles before the first row; returns the first key of the trace.
    fn titles(&mut self, at: u64) -> io::Result<u64> {
        if self.has_titles {
            return Ok(self.first.unwrap_or(at));
        }
        self.has_titles = true;
        let at = *self.first.get_or_insert(at);
        let titles = self.line(&EVENTS.map(|column| column.title.to_owned()));
        writeln!(self.out, "{}", self.options.screen.paint(Paint::Strong, &titles))?;
        Ok(at)
    }

    /// Cells of an event, in the order of [`EVENTS`].
    fn event(
        &self,
        (event, addresses): (&Event, &[Event]),
        names: &EventNames,
        comm: Option<&[u8]>,
        first: u64,
    ) -> [String; EVENTS.len()] {
        let name = |bytes: &[u8]| escape(bytes).into_owned();
        let is_alloc = event.allocates();
        let [requested, allocated] = event.told_amounts(names);
        let size = |bytes: Option<u64>| if is_alloc { cells::bytes(bytes, self.options) } else { String::new() };
        let site = event.kind().map_or(String::new(), |kind| self.site(event.call_site, kind));
        let object = |event: &Event| event.kind().map_or(String::new(), |_| Address(event.address).to_string());
        let (event_name, address) = match event.objects() {
            Some(objects) => {
                (format!("{} x{objects}", name(names.get(event.name))), first_of(addresses.iter().map(object)))
            }
            None => (name(names.get(event.name)), object(event)),
        };
        [
            self.clock.moment(event.at, first, 6),
            event.cpu.to_string(),
            event.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            comm.map_or("-".to_owned(), name),
            event.context().map_or(String::new(), |context| context.name().to_owned()),
            event_name,
            size(requested),
            if event.failed { "failed".to_owned() } else { size(allocated) },
            event.gfp.filter(|_| is_alloc).map_or(String::new(), |gfp| self.labels.flags(gfp)),
            event.node.filter(|_| is_alloc).map_or(String::new(), |node| node.to_string()),
            event.cache.map_or(String::new(), |cache| name(names.get(cache))),
            address,
            site,
        ]
    }

    fn site(&self, call_site: u64, kind: Kind) -> String {
        let Some(symbol) = self.labels.symbols.lookup(call_site) else {
            return cells::function(&None, Some(Address(call_site)), kind).text;
        };
        let function = escape(&symbol.text()).into_owned();
        symbol.module.map_or(function.clone(), |module| {
            format!("{function} {}", cells::in_brackets(&escape(module), symbol.is_gone))
        })
    }

    /// Line of cells: names are cut to their columns, figures are not.
    fn line(&self, row: &[String; EVENTS.len()]) -> String {
        let mut line = String::new();
        for &(index, width) in &self.shown {
            let holds = EVENTS[index].holds;
            let mark = self.options.screen.cut_mark();
            let cell = match holds {
                Holds::Site if self.options.screen.width.is_some() => cut::site(&row[index], width, mark),
                Holds::Name if self.options.screen.width.is_some() => cut::middle(&row[index], width, mark),
                _ => row[index].clone(),
            };
            let blanks = " ".repeat(width.saturating_sub(cut::width(&cell)));
            line += if line.is_empty() { " " } else { "  " };
            line += &if holds == Holds::Figure { blanks + &cell } else { cell + &blanks };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Cell of several addresses: there may be 64.
fn first_of(mut addresses: impl ExactSizeIterator<Item = String>) -> String {
    match (addresses.next(), addresses.len()) {
        (None, _) => String::new(),
        (Some(first), 0) => first,
        (Some(first), more) => format!("{first} and {more} more"),
    }
}

impl EventOutput for EventTable<'_> {
    fn begin(&mut self, first: u64) {
        self.first = Some(first);
    }

    fn item(&mut self, item: &OrderedItem<'_>) -> io::Result<()> {
        match *item {
            OrderedItem::Event { event, addresses, names, comm, .. } => {
                let first = self.titles(event.at)?;
                let row = self.event((event, addresses), names, comm, first);
                writeln!(self.out, "{}", self.line(&row))
            }
            OrderedItem::Gap { from, at, cpu, lost, .. } => {
                let first = self.titles(from)?;
                let lost =
                    lost.map_or("events lost, number unknown".to_owned(), |n| cells::counted(n, "event") + " lost");
                let [since, at] = [from, at].map(|key| self.clock.moment(key, first, 6));
                let line = format!("{at:>13}  gap on CPU {cpu} since {since}: {lost}");
                let line = wrap::words(&line, 15, self.options.screen.width, self.options.screen.cut_mark());
                writeln!(self.out, "{}", self.options.screen.paint(Paint::Warning, &line))
            }
        }
    }

    fn finish(self: Box<Self>, left_out: u64) -> io::Result<()> {
        if !self.has_titles && left_out == 0 {
            return heading::empty("no event", self.options, self.out);
        }
        if left_out > 0 {
            writeln!(self.out, "({}: --top N)", cells::counted(left_out, "more event"))?;
        }
        Ok(())
    }
}
