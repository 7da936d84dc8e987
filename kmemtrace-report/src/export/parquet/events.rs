//! `parquet-events`: a row per event or gap, in the total order; of an event of several objects a row per address.

use std::ops::ControlFlow;
use std::rc::Rc;

use kmemtrace::{Action, ByKind, Event, EventNames, Observer, OrderedItem, Query, Space, Symbolizer, Trace};
use parquet::errors::Result;

use super::names::{CommTexts, NameTexts, SiteTexts};
use super::table::{Of, Spec, Table, TextId, position};
use super::{ORIGIN, Origin, PLACE, Place, observed_footer};
use crate::export::Job;
use crate::report;
use crate::terminal::progress::ProgressLine;

/// Columns after those of the origin and the place.
const COLUMNS: [Spec; 16] = [
    Spec::each("event", Of::Text),
    Spec::some("kind", Of::Text),
    Spec::each("action", Of::Text),
    Spec::each("failed", Of::Boolean),
    Spec::each("own", Of::Boolean),
    Spec::some("call_site", Of::Int64),
    Spec::some("symbol", Of::Text),
    Spec::some("module", Of::Text),
    Spec::some("address", Of::Int64),
    Spec::some("requested", Of::Int64),
    Spec::some("allocated", Of::Int64),
    Spec::some("gfp", Of::Int64),
    Spec::some("node", Of::Int32),
    Spec::some("order", Of::Int32),
    Spec::some("cache", Of::Text),
    Spec::some("gap_from", Of::Int64),
];

/// Last column.
const LOST: Spec = Spec::some("lost", Of::Int64);

/// Writes the table of events.
pub(crate) fn events(job: &Job<'_>) -> anyhow::Result<u8> {
    let request = job.request;
    let mut trace = job.open()?;
    let query = report::with_options(request, Query::by_kind())?.without_index();
    query.check_window(&trace)?;
    let event_names = trace.names.len();
    let origin = Origin::of(&trace.info, job.host());
    let symbols = Rc::new(query.symbols(&mut trace, &mut ProgressLine::new(request.args.quiet))?);
    let mut rows = EventRows::new(&trace, &symbols, &origin, job)?;
    let observed = query.observe_with(&mut trace, &mut rows, &mut ProgressLine::new(request.args.quiet))?;
    let EventRows { table, written, has_rows, .. } = rows;
    table.finish(written, &observed_footer(&trace, &observed, &origin, false))?;
    Ok(report::end_observed(request, &trace, &observed, has_rows, event_names))
}

/// Observer that writes the rows.
struct EventRows {
    table: Table,
    origin: [TextId; ORIGIN.len()],
    sites: SiteTexts,
    comms: CommTexts,
    names: NameTexts,
    caches: NameTexts,
    kinds: ByKind<TextId>,
    /// `alloc`, `free`, `other` and `gap`.
    actions: [TextId; 4],
    gap: TextId,
    page_bytes: Option<u64>,
    written: Result<()>,
    has_rows: bool,
}

impl EventRows {
    fn new(trace: &Trace, symbols: &Rc<Symbolizer>, origin: &Origin, job: &Job<'_>) -> anyhow::Result<EventRows> {
        let specs = origin.columns(PLACE.into_iter().chain(COLUMNS).chain([LOST]));
        let mut table = Table::new(job.binary_output()?, &specs)?;
        let column = |name| position(&specs, name);
        Ok(EventRows {
            origin: origin.ids(&mut table),
            sites: SiteTexts::new(symbols, (column("symbol"), Some(column("module")))),
            comms: CommTexts::new(column("comm")),
            names: NameTexts::new(column("event")),
            caches: NameTexts::new(column("cache")),
            kinds: ByKind::from_fn(|kind| table.text_id(column("kind"), kind.name().as_bytes())),
            actions: ["alloc", "free", "other", "gap"].map(|word| table.text_id(column("action"), word.as_bytes())),
            gap: table.text_id(column("event"), b"gap"),
            page_bytes: trace.info.page_bytes,
            written: Ok(()),
            has_rows: false,
            table,
        })
    }

    fn item(&mut self, item: &OrderedItem<'_>) -> Result<()> {
        match *item {
            // A row an address in place of one for the record.
            OrderedItem::Event { seq, event, addresses, names, comm, own }
                if matches!(event.action, Action::Bulk(_)) =>
            {
                let mut places = addresses.iter().zip(seq + 1..);
                places.try_for_each(|(event, seq)| self.event(seq, event, names, comm, own))
            }
            OrderedItem::Event { seq, event, names, comm, own, .. } => self.event(seq, event, names, comm, own),
            OrderedItem::Gap { seq, from, at, cpu, lost } => {
                let place = Place { seq, at: Some(at), cpu: Some(cpu), pid: None, comm: TextId::NONE };
                let table = place.begin_row(&mut self.table, &self.origin);
                table.text(self.gap).text(TextId::NONE).text(self.actions[3]);
                table.boolean(Some(false)).boolean(Some(false));
                table.bits(None).text(TextId::NONE).text(TextId::NONE).bits(None).bits(None).bits(None).bits(None);
                table.int32(None).int32(None).text(TextId::NONE).bits(Some(from)).bits(lost).end_row()
            }
        }
    }

    #[inline]
    fn event(&mut self, seq: u64, event: &Event, names: &EventNames, comm: Option<&[u8]>, own: bool) -> Result<()> {
        let kind = event.kind();
        let action = match event.action {
            Action::Other => 2,
            _ if event.allocates() => 0,
            _ => 1,
        };
        let table = &mut self.table;
        let (symbol, module) = match kind {
            Some(_) => self.sites.ids(event.call_site, table),
            None => (TextId::NONE, TextId::NONE),
        };
        let comm = self.comms.id(event.pid, comm, table);
        let name = self.names.id(event.name.index(), || names.get(event.name), table);
        let cache = match event.cache {
            Some(cache) => self.caches.id(cache.index(), || names.get(cache), table),
            None => TextId::NONE,
        };
        let order = match event.action {
            Action::Alloc(kind) if kind.space() == Space::Pages => order(event.requested, self.page_bytes),
            _ => None,
        };
        let object = |value: u64| Some(value).filter(|_| kind.is_some());
        let allocation = |value: u64| Some(value).filter(|_| action == 0);
        Place { seq, at: event.told_at(), cpu: event.told_cpu(), pid: event.pid, comm }
            .begin_row(table, &self.origin)
            .text(name)
            .text(kind.map_or(TextId::NONE, |kind| self.kinds[kind]))
            .text(self.actions[action])
            .boolean(Some(event.failed))
            .boolean(Some(own))
            .bits(object(event.call_site))
            .text(symbol)
            .text(module)
            .bits(object(event.address))
            .bits(allocation(event.requested))
            .bits(allocation(event.allocated))
            .bits(event.gfp)
            .int32(event.node)
            .int32(order)
            .text(cache)
            .bits(None)
            .bits(None)
            .end_row()
    }
}

/// Order of an allocation of pages of so many bytes.
fn order(bytes: u64, page_bytes: Option<u64>) -> Option<i32> {
    bytes.checked_div(page_bytes?)?.checked_ilog2().map(u32::cast_signed)
}

impl Observer for EventRows {
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        self.has_rows |= matches!(item, OrderedItem::Event { .. });
        self.written = self.item(item);
        if self.written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
