//! `parquet-events`: a row per event or gap, in the total order; of an event of several objects a row per address.

use std::ops::ControlFlow;

use kmemtrace::{Action, Event, EventNames, Kind, Observer, OrderedItem, Query};
use kmemtrace_abi::trace::is_made_up;
use parquet::errors::Result;

use super::table::{Table, row, within_63_bits};
use super::texts::{SiteTexts, SymbolTexts, TextId};
use super::{Origin, flow};
use crate::export::Job;
use crate::report;
use crate::terminal::progress::ProgressLine;

row! {
    /// An event or a gap.
    EventRow {
        seq: u64,
        ts: Option<u64>,
        cpu: Option<u32>,
        pid: Option<i32>,
        comm: Option<TextId>,
        cgroup: Option<TextId>,
        event: TextId,
        kind: Option<TextId>,
        action: TextId,
        failed: bool,
        own: bool,
        call_site: Option<u64>,
        symbol: Option<TextId>,
        module: Option<TextId>,
        address: Option<u64>,
        requested: Option<u64>,
        allocated: Option<u64>,
        gfp: Option<u64>,
        node: Option<i32>,
        order: Option<u32>,
        cache: Option<TextId>,
        reclaimable: Option<bool>,
        gap_from: Option<u64>,
        lost: Option<u64>,
    }
}

/// Writes the table of events.
pub(crate) fn events(job: &Job<'_>) -> anyhow::Result<u8> {
    let request = job.request;
    let mut trace = job.open()?;
    let query = report::with_options(request, Query::by_kind())?.without_index().with_owners(true);
    query.check_window(&trace)?;
    let event_names = trace.names.len();
    let origin = Origin::of(&trace.info, job);
    let symbols = query.symbols(&mut trace, &mut ProgressLine::new(request.args.quiet))?;
    let mut rows = EventRows {
        table: origin.table(job.binary_output()?, EventRow::columns())?,
        symbols: SymbolTexts::new(&symbols),
        page_bytes: trace.info.page_bytes,
        written: Ok(()),
        has_rows: false,
    };
    let observed = query.observe_with(&mut trace, &mut rows, &mut ProgressLine::new(request.args.quiet))?;
    let EventRows { table, written, has_rows, .. } = rows;
    table.finish(written, &origin.observed_footer(&trace, &observed, false))?;
    Ok(report::end_observed(request, &trace, &observed, has_rows, event_names))
}

/// Observer that writes the rows.
struct EventRows<'a> {
    table: Table<EventRow>,
    symbols: SymbolTexts<'a>,
    page_bytes: Option<u64>,
    written: Result<()>,
    has_rows: bool,
}

/// Thread of an event, and what is known of its object.
#[derive(Clone, Copy)]
struct EventOwner<'a> {
    comm: Option<&'a [u8]>,
    cgroup: Option<&'a [u8]>,
    reclaimable: Option<bool>,
    own: bool,
}

impl EventRows<'_> {
    fn item(&mut self, item: &OrderedItem<'_>) -> Result<()> {
        match *item {
            OrderedItem::Event { seq, event, addresses, names, comm, cgroup, reclaimable, own } => {
                let owner = EventOwner { comm, cgroup, reclaimable, own };
                if !matches!(event.action, Action::Bulk(_)) {
                    return self.event(seq, event, names, owner);
                }
                // A row an address in place of one for the record.
                let mut places = addresses.iter().zip(seq + 1..);
                places.try_for_each(|(event, seq)| self.event(seq, event, names, owner))
            }
            OrderedItem::Gap { seq, from, at, cpu, lost } => {
                let gap = self.table.texts.id(b"gap");
                let place = EventRow { seq, ts: Some(at), cpu: Some(cpu), ..EventRow::default() };
                self.table.push(EventRow { event: gap, action: gap, gap_from: Some(from), lost, ..place })
            }
        }
    }

    #[inline]
    fn event(&mut self, seq: u64, event: &Event, names: &EventNames, owner: EventOwner<'_>) -> Result<()> {
        let EventOwner { comm, cgroup, reclaimable, own } = owner;
        let texts = &mut self.table.texts;
        let kind = event.kind();
        let allocates = event.allocates();
        let action: &[u8] = match event.action {
            Action::Other => b"other",
            _ if allocates => b"alloc",
            _ => b"free",
        };
        let SiteTexts { symbol, module } =
            kind.map_or_else(SiteTexts::default, |_| self.symbols.site(event.call_site, texts));
        let object = |value: u64| kind.and(Some(value));
        let [requested, allocated] = event.told_amounts(names).map(|bytes| bytes.map(within_63_bits));
        let row = EventRow {
            seq,
            ts: event.told_at(),
            cpu: event.told_cpu(),
            pid: event.pid,
            comm: event.pid.and(comm).map(|comm| texts.id(comm)),
            cgroup: cgroup.map(|cgroup| texts.id(cgroup)),
            event: texts.id(names.get(event.name)),
            kind: kind.map(|kind| texts.id(kind.name().as_bytes())),
            action: texts.id(action),
            failed: event.failed,
            own,
            call_site: object(event.call_site).filter(|&site| !is_made_up(site)),
            symbol,
            module,
            address: object(event.address),
            requested,
            allocated,
            gfp: event.gfp,
            node: event.node,
            order: match event.action {
                Action::Alloc(Kind::Pages) => order(event.requested, self.page_bytes),
                _ => None,
            },
            cache: event.cache.map(|cache| texts.id(names.get(cache))),
            reclaimable: reclaimable.filter(|_| allocates),
            gap_from: None,
            lost: None,
        };
        self.table.push(row)
    }
}

/// Order of an allocation of pages of so many bytes.
fn order(bytes: u64, page_bytes: Option<u64>) -> Option<u32> {
    bytes.checked_div(page_bytes?)?.checked_ilog2()
}

impl Observer for EventRows<'_> {
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        self.has_rows |= matches!(item, OrderedItem::Event { .. });
        self.written = self.item(item);
        flow(&self.written)
    }
}
