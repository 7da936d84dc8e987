//! `parquet-objects`: a row per allocation and per free without an object, when its fate becomes known.

use std::ops::ControlFlow;

use kmemtrace::documents::row::Address;
use kmemtrace::{Fate, ObjectFate, ObjectSink, Query};
use kmemtrace_abi::trace::InputCapabilities;
use parquet::errors::{ParquetError, Result};

use super::table::{Table, row, within_63_bits};
use super::texts::{SiteTexts, SymbolTexts, TextId};
use super::{Origin, flow};
use crate::export::Job;
use crate::report;
use crate::terminal::progress::ProgressLine;

row! {
    /// An allocation, or a free without an object.
    ObjectRow {
        seq: u64,
        ts: Option<u64>,
        cpu: Option<u32>,
        pid: Option<i32>,
        comm: Option<TextId>,
        cgroup: Option<TextId>,
        kind: TextId,
        call_site: Option<u64>,
        symbol: Option<TextId>,
        module: Option<TextId>,
        cache: Option<TextId>,
        reclaimable: Option<bool>,
        requested: Option<u64>,
        allocated: Option<u64>,
        fate: TextId,
        free_seq: Option<u64>,
        lifetime: Option<u64>,
        free_cpu: Option<u32>,
        free_site: Option<u64>,
        free_symbol: Option<TextId>,
        free_kind: Option<TextId>,
        free_cache: Option<TextId>,
        suspect: Option<bool>,
        pages_allocated: Option<u64>,
        pages_freed: Option<u64>,
        pages_inferred: Option<u64>,
        live_pages: Option<u64>,
        cross_cpu_pages: Option<u64>,
        stack: Option<TextId>,
        /// Last column, there with `--show-addresses`.
        address: Option<u64>,
    }
}

/// Writes the table of objects.
pub(crate) fn objects(job: &Job<'_>) -> anyhow::Result<u8> {
    let request = job.request;
    let mut trace = job.open()?;
    let query = report::with_options(request, Query::by_kind())?.without_index().with_owners(true);
    query.check_window(&trace)?;
    let event_names = trace.names.len();
    let origin = Origin::of(&trace.info, job);
    let symbols = query.symbols(&mut trace, &mut ProgressLine::new(request.args.quiet))?;
    let mut rows = ObjectRows {
        job,
        origin: &origin,
        table: table(job, &origin)?,
        symbols: SymbolTexts::new(&symbols),
        capabilities: trace.info.capabilities,
        written: Ok(()),
        has_rows: false,
    };
    let observed = query.objects_with(&mut trace, &mut rows, &mut ProgressLine::new(request.args.quiet))?;
    let ObjectRows { table, written, has_rows, .. } = rows;
    table.finish(written, &origin.observed_footer(&trace, &observed, true))?;
    Ok(report::end_observed(request, &trace, &observed, has_rows, event_names))
}

fn table(job: &Job<'_>, origin: &Origin) -> anyhow::Result<Table<ObjectRow>> {
    let mut columns = ObjectRow::columns();
    columns.truncate(columns.len() - usize::from(!job.request.args.show_addresses));
    origin.table(job.binary_output()?, columns)
}

/// Sink that writes the rows, and begins again if they have to be taken back.
struct ObjectRows<'a> {
    job: &'a Job<'a>,
    origin: &'a Origin,
    table: Table<ObjectRow>,
    symbols: SymbolTexts<'a>,
    capabilities: InputCapabilities,
    written: Result<()>,
    has_rows: bool,
}

impl ObjectSink for ObjectRows<'_> {
    fn object(&mut self, object: &ObjectFate<'_>) -> ControlFlow<()> {
        self.has_rows = true;
        if self.written.is_ok() {
            let row = self.row(object);
            self.written = self.table.push(row);
        }
        flow(&self.written)
    }

    fn restart(&mut self) {
        let is_hidden = self.table.is_hidden();
        match table(self.job, self.origin) {
            Ok(table) if is_hidden => {
                self.table = table;
                self.symbols.clear();
            }
            Ok(_) => self.fail("loss came to light at the end, and rows were handed out before: name a file with -o"),
            Err(error) => self.fail(&format!("{error:#}")),
        }
    }
}

impl ObjectRows<'_> {
    fn fail(&mut self, why: &str) {
        self.written = Err(ParquetError::External(std::io::Error::other(why.to_owned()).into()));
    }

    fn row(&mut self, object: &ObjectFate<'_>) -> ObjectRow {
        let texts = &mut self.table.texts;
        let ObjectFate { fate, free, end, pages, .. } = *object;
        let allocates = matches!(fate, Fate::Pair | Fate::Inferred | Fate::Live | Fate::Failed);
        let has_bytes = allocates && object.kind.has_size(object.requested.into());
        // No entry of a text has 0 bytes: the text does not tell them.
        let told = |bytes: u64| {
            let is_told = has_bytes && (bytes > 0 || self.capabilities.past);
            is_told.then(|| within_63_bits(bytes))
        };
        let (ts, cpu) = self.capabilities.told_place(object.at, object.cpu);
        let SiteTexts { symbol, module } = self.symbols.site(object.call_site, texts);
        ObjectRow {
            seq: object.seq,
            ts,
            cpu,
            pid: object.pid,
            comm: object.pid.and(object.comm).map(|comm| texts.id(comm)),
            cgroup: object.cgroup.map(|cgroup| texts.id(cgroup)),
            kind: texts.id(object.kind.name().as_bytes()),
            call_site: Address(object.call_site).told().map(|address| address.0),
            symbol,
            module,
            cache: object.cache.map(|cache| texts.id(cache)),
            reclaimable: object.reclaimable,
            requested: told(object.requested),
            allocated: told(object.allocated),
            fate: texts.id(fate.name().as_bytes()),
            free_seq: end.map(|end| end.seq),
            lifetime: free.and(end).map(|end| end.at.saturating_sub(object.at)),
            free_cpu: free.map(|free| free.cpu),
            free_site: free.and_then(|free| Address(free.call_site).told()).map(|address| address.0),
            free_symbol: free.and_then(|free| self.symbols.site(free.call_site, texts).symbol),
            free_kind: free.map(|free| texts.id(free.kind.name().as_bytes())),
            free_cache: free.and_then(|free| free.cache).map(|cache| texts.id(cache)),
            suspect: object.suspect,
            pages_allocated: pages.map(|pages| pages.allocated),
            pages_freed: pages.map(|pages| pages.freed),
            pages_inferred: pages.map(|pages| pages.inferred),
            live_pages: pages.map(|pages| pages.live),
            cross_cpu_pages: pages.map(|pages| pages.freed_elsewhere),
            stack: self.symbols.stack(object.stack, texts),
            address: (fate != Fate::Failed).then_some(object.address),
        }
    }
}
