//! `parquet-objects`: a row per allocation and per free without an object, when its fate becomes known.

use std::ops::ControlFlow;
use std::rc::Rc;

use kmemtrace::documents::row::Address;
use kmemtrace::{ByKind, Fate, ObjectFate, ObjectSink, Query, Symbolizer};
use kmemtrace_abi::trace::InputCapabilities;
use parquet::errors::{ParquetError, Result};

use super::names::{CommTexts, SiteTexts, StackTexts, utf8};
use super::table::{Of, Spec, Table, TextId, position};
use super::{ORIGIN, Origin, PLACE, Place, observed_footer};
use crate::export::Job;
use crate::report;
use crate::terminal::progress::ProgressLine;

/// Columns after those of the origin and the place. The first ones tell of the allocation, or of the free without an object.
const COLUMNS: [Spec; 22] = [
    Spec::each("kind", Of::Text),
    Spec::each("call_site", Of::Int64),
    Spec::some("symbol", Of::Text),
    Spec::some("module", Of::Text),
    Spec::some("cache", Of::Text),
    Spec::some("requested", Of::Int64),
    Spec::some("allocated", Of::Int64),
    Spec::each("fate", Of::Text),
    Spec::some("free_seq", Of::Steps),
    Spec::some("lifetime", Of::Steps),
    Spec::some("free_cpu", Of::Int32),
    Spec::some("free_site", Of::Int64),
    Spec::some("free_symbol", Of::Text),
    Spec::some("free_kind", Of::Text),
    Spec::some("free_cache", Of::Text),
    Spec::some("suspect", Of::Boolean),
    Spec::some("pages_allocated", Of::Int64),
    Spec::some("pages_freed", Of::Int64),
    Spec::some("pages_inferred", Of::Int64),
    Spec::some("live_pages", Of::Int64),
    Spec::some("cross_cpu_pages", Of::Int64),
    Spec::some("stack", Of::Text),
];

/// Column that is there where addresses are shown.
const ADDRESS: Spec = Spec::some("address", Of::Int64);

/// Writes the table of objects.
pub(crate) fn objects(job: &Job<'_>) -> anyhow::Result<u8> {
    let request = job.request;
    let mut trace = job.open()?;
    let query = report::with_options(request, Query::by_kind())?.without_index();
    query.check_window(&trace)?;
    let event_names = trace.names.len();
    let origin = Origin::of(&trace.info, job.host());
    let symbols = Rc::new(query.symbols(&mut trace, &mut ProgressLine::new(request.args.quiet))?);
    let mut rows = ObjectRows {
        job,
        origin: &origin,
        writer: RowWriter::new(&origin, &symbols, job)?,
        symbols,
        written: Ok(()),
        has_rows: false,
    };
    let observed = query.objects_with(&mut trace, &mut rows, &mut ProgressLine::new(request.args.quiet))?;
    let ObjectRows { writer, written, has_rows, .. } = rows;
    writer.table.finish(written, &observed_footer(&trace, &observed, &origin, true))?;
    Ok(report::end_observed(request, &trace, &observed, has_rows, event_names))
}

/// Sink that writes the rows, and begins again where they have to be taken back.
struct ObjectRows<'a> {
    job: &'a Job<'a>,
    origin: &'a Origin,
    symbols: Rc<Symbolizer>,
    writer: RowWriter,
    written: Result<()>,
    has_rows: bool,
}

impl ObjectSink for ObjectRows<'_> {
    fn object(&mut self, object: &ObjectFate<'_>) -> ControlFlow<()> {
        self.has_rows = true;
        if self.written.is_ok() {
            self.written = self.writer.row(object);
        }
        if self.written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn restart(&mut self) {
        let is_hidden = self.writer.table.is_hidden();
        let again = RowWriter::new(self.origin, &self.symbols, self.job);
        match again {
            Ok(writer) if is_hidden => self.writer = writer,
            Ok(_) => self.fail("loss came to light at the end, and rows were handed out before: name a file with -o"),
            Err(error) => self.fail(&format!("{error:#}")),
        }
    }
}

impl ObjectRows<'_> {
    fn fail(&mut self, why: &str) {
        self.written = Err(ParquetError::External(std::io::Error::other(why.to_owned()).into()));
    }
}

/// Writer of rows, with the numbers of their texts.
struct RowWriter {
    table: Table,
    origin: [TextId; ORIGIN.len()],
    sites: SiteTexts,
    free_sites: SiteTexts,
    comms: CommTexts,
    stacks: StackTexts,
    kinds: ByKind<TextId>,
    free_kinds: ByKind<TextId>,
    fates: [TextId; Fate::ALL.len()],
    shows_addresses: bool,
    capabilities: InputCapabilities,
}

impl RowWriter {
    fn new(origin: &Origin, symbols: &Rc<Symbolizer>, job: &Job<'_>) -> anyhow::Result<RowWriter> {
        let shows_addresses = job.request.args.show_addresses;
        let address = Some(ADDRESS).filter(|_| shows_addresses);
        let specs = origin.columns(PLACE.into_iter().chain(COLUMNS).chain(address));
        let mut table = Table::new(job.binary_output()?, &specs)?;
        let column = |name| position(&specs, name);
        let mut kinds = |name| ByKind::from_fn(|kind| table.text_id(column(name), kind.name().as_bytes()));
        let (kinds, free_kinds) = (kinds("kind"), kinds("free_kind"));
        Ok(RowWriter {
            origin: origin.ids(&mut table),
            sites: SiteTexts::new(symbols, (column("symbol"), Some(column("module")))),
            free_sites: SiteTexts::new(symbols, (column("free_symbol"), None)),
            comms: CommTexts::new(column("comm")),
            stacks: StackTexts::new(symbols, column("stack")),
            kinds,
            free_kinds,
            fates: Fate::ALL.map(|fate| table.text_id(column("fate"), fate.name().as_bytes())),
            shows_addresses,
            capabilities: origin.capabilities,
            table,
        })
    }

    fn row(&mut self, object: &ObjectFate<'_>) -> Result<()> {
        let (symbol, module) = self.sites.ids(object.call_site, &mut self.table);
        let comm = self.comms.id(object.pid, object.comm, &mut self.table);
        let stack = self.stacks.id(object.stack, &mut self.table);
        let allocates = matches!(object.fate, Fate::Pair | Fate::Inferred | Fate::Live | Fate::Failed);
        let table = &mut self.table;
        let (at, cpu) = self.capabilities.told_place(object.at, object.cpu);
        Place { seq: object.seq, at, cpu, pid: object.pid, comm }
            .begin_row(table, &self.origin)
            .text(self.kinds[object.kind])
            .bits(Address(object.call_site).told().map(|address| address.0))
            .text(symbol)
            .text(module)
            .new_text(object.cache.map(utf8).as_deref())
            .bits(Some(object.requested).filter(|_| allocates))
            .bits(Some(object.allocated).filter(|_| allocates))
            .text(self.fates[object.fate as usize]);
        let free = object.free;
        let free_symbol = free.map_or(TextId::NONE, |free| self.free_sites.ids(free.call_site, table).0);
        let lifetime = free.and(object.end).map(|end| end.at.saturating_sub(object.at));
        table
            .bits(object.end.map(|end| end.seq))
            .bits(lifetime)
            .int32(free.map(|free| free.cpu.cast_signed()))
            .bits(free.map(|free| free.call_site))
            .text(free_symbol)
            .text(free.map_or(TextId::NONE, |free| self.free_kinds[free.kind]))
            .new_text(free.and_then(|free| free.cache).map(utf8).as_deref())
            .boolean(object.suspect);
        let pages = object.pages;
        table
            .bits(pages.map(|pages| pages.allocated))
            .bits(pages.map(|pages| pages.freed))
            .bits(pages.map(|pages| pages.inferred))
            .bits(pages.map(|pages| pages.live))
            .bits(pages.map(|pages| pages.freed_elsewhere))
            .text(stack);
        if self.shows_addresses {
            table.bits(Some(object.address).filter(|_| object.fate != Fate::Failed));
        }
        table.end_row()
    }
}
