//! One file a view: from what the events came to, to a document that serialises. No I/O, no terminal.

mod caches;
mod cross;
pub(crate) mod events;
mod live;
mod mismatch;
pub mod row;
mod sites;
mod summary;

use std::collections::HashMap;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Kind, Names};
use kmemtrace_abi::kernel::target::Endian;
use kmemtrace_abi::stream::report::Source;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use crate::account::classes::Grouping;
use crate::account::stats::{Narrow, Stats};
use crate::analysis::Analysis;
use crate::names::kallsyms::Symbolizer;
pub use cross::CpuMatrix;
use row::{Cell, Row, Rows};

/// A view's content, before it has the form of an output.
pub struct Document<'a> {
    /// All members; `rows` and `matrix` are `null` here, and made while they are printed.
    pub members: Map<String, Value>,
    /// The rows of the view; of `summary` those that its CSV and its table have.
    pub rows: Rows<'a>,
    /// The call-sites in the table of `summary`.
    pub top_sites: Rows<'a>,
    /// Pairs per allocating and freeing CPU; only `cross` has it.
    pub matrix: Option<CpuMatrix<'a>>,
}

impl<'a> Document<'a> {
    /// The document of members and rows.
    pub fn new(members: Map<String, Value>, rows: Rows<'a>) -> Document<'a> {
        Document { members, rows, top_sites: Rows::none(), matrix: None }
    }
}

/// Rows that a document shows, and their order.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Keys, greatest first.
    pub sort: Vec<SortKey>,
    /// Greatest number of rows; the rest becomes `others`.
    pub top: Option<usize>,
}

/// Call-sites in the table of `summary`.
const TOP_SITES: usize = 5;

/// `summary`: totals per kind, pairs and findings; with the top call-sites where rows are call-sites.
pub fn summary<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    of("summary", analysis, |narrow| {
        let members = summary::summary(&analysis.paired, analysis.own_threads.is_some(), &analysis.order, narrow);
        let mut body = Document::new(members, summary::rows(&analysis.paired, narrow));
        if analysis.grouping == Grouping::Site {
            let naming = Naming::of(analysis);
            body.top_sites = sites::sites(&analysis.paired, naming, &shape.sort, Some(TOP_SITES), narrow).rows;
        }
        body
    })
}

/// `sites`: a row per call-site and kind.
pub fn sites<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("sites", analysis, |narrow| sites::sites(&analysis.paired, naming, &shape.sort, shape.top, narrow))
}

/// `caches`: a row per cache name and kind. The query is [`crate::Query::by_cache`].
pub fn caches<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("caches", analysis, |narrow| caches::caches(&analysis.paired, naming, &shape.sort, shape.top, narrow))
}

/// `mismatch`: findings, by class and the two sides of the pair.
pub fn mismatch<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("mismatch", analysis, |_| mismatch::mismatch(&analysis.paired, naming, shape.top))
}

/// `live`: objects that are live at the end, oldest first. The query is one [`crate::Query::with_live_objects`].
pub fn live<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("live", analysis, |narrow| live::live(&analysis.paired, naming, shape.top, narrow))
}

/// `cross`: pairs freed on another CPU, per call-site and as a matrix. The query is one [`crate::Query::with_cpu_matrix`].
pub fn cross<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("cross", analysis, |narrow| cross::cross(&analysis.paired, naming, &analysis.info.cpus, shape.top, narrow))
}

/// A view's body under the head that every document has. Sums that do not fit 64 bits are known once the body is made.
fn of<'a>(view: &str, analysis: &'a Analysis, body: impl FnOnce(&Narrow) -> Document<'a>) -> Document<'a> {
    let narrow = Narrow::new(analysis.info.keys().agreement);
    let body = body(&narrow);
    let mut members = head(view, analysis, &narrow);
    members.extend(body.members);
    Document { members, ..body }
}

/// The three members that every document opens with.
fn head(view: &str, analysis: &Analysis, narrow: &Narrow) -> Map<String, Value> {
    let Analysis { completeness, info, own_threads, order, .. } = analysis;
    let mut complete = json!({
        "verdict": completeness.verdict_name(),
        "lost_events": completeness.lost_events,
        "gaps": completeness.gaps,
        "truncated_files": completeness.truncated_files,
        "missing_cpus": completeness.missing_cpus,
        "inferred_frees": completeness.inferred_frees,
        "frees_without_alloc": completeness.frees_without_alloc,
    });
    if narrow.saturated() {
        complete["saturated"] = json!(true);
    }
    let mut trace = json!({
        "input": info.input.name(),
        "source": info.source.map(|s| match s { Source::Tracefs => "tracefs", Source::Relay => "relay" }),
        "kernel": info.kernel,
        "arch": info.arch,
        "endian": info.endian.map(Endian::name),
        "word_bytes": info.word_bytes,
        "page_bytes": info.page_bytes,
        "addresses": "raw",
        "clock": info.clock,
        "cpus": info.cpus.len(),
        "order": match info.order { OrderKey::Time => "time", OrderKey::Sequence => "sequence" },
        "first": order.first.unwrap_or(0),
        "last": order.last.unwrap_or(0),
        "own_threads": own_threads,
    });
    if info.since_boot {
        trace["since_boot"] = json!({ "lost_before_first": completeness.lost_before });
    }
    let mut document = Map::new();
    document.insert("schema".to_owned(), json!(format!("kmemtrace.{view}/1")));
    document.insert("completeness".to_owned(), complete);
    document.insert("trace".to_owned(), trace);
    document
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.members {
            match name.as_str() {
                "rows" => map.serialize_entry(name, &self.rows)?,
                "matrix" => map.serialize_entry(name, &self.matrix)?,
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// Names of call-sites, caches and commands in a view.
#[derive(Clone, Copy)]
pub(crate) struct Naming<'a> {
    symbols: &'a Symbolizer,
    names: &'a Names,
    comms: &'a HashMap<i32, Box<[u8]>>,
}

impl<'a> Naming<'a> {
    fn of(analysis: &'a Analysis) -> Naming<'a> {
        let names = &analysis.names;
        Naming { symbols: names.symbolizer(), names: &names.trace_names, comms: &names.comms }
    }

    /// The cell of `symbol+0xoffset` of a call-site.
    fn symbol(&self, call_site: Option<u64>) -> Cell<'a> {
        Cell::name(call_site.and_then(|site| self.symbols.lookup(site)).map(|symbol| symbol.text()))
    }

    /// Appends `call_site`, `symbol` and `module`.
    fn put_site(&self, row: &mut Row<'a>, call_site: u64) {
        let symbol = self.symbols.lookup(call_site);
        row.put("call_site", Cell::Address(call_site));
        row.put("symbol", Cell::name(symbol.map(|symbol| symbol.text())));
        row.put("module", Cell::name(symbol.and_then(|symbol| symbol.module)));
    }
}

/// Number of a kind, for ties.
fn rank(kind: Kind) -> usize {
    Kind::ALL.iter().position(|&k| k == kind).unwrap_or(0)
}

/// What rows are sorted by, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Bytes lost to internal fragmentation.
    Wasted,
    /// Bytes live at the end.
    Live,
    /// Greatest number of live bytes.
    Peak,
    /// Bytes taken, over all allocations.
    Allocated,
    /// Bytes asked for, over all allocations.
    Requested,
    /// Allocations.
    Allocs,
    /// Frees that were seen.
    Frees,
    /// Frees on another CPU.
    Cross,
    /// The call-site or cache itself.
    Site,
}

impl SortKey {
    fn of(self, figures: &Stats) -> u128 {
        match self {
            SortKey::Wasted => figures.wasted,
            SortKey::Live => figures.live_allocated,
            SortKey::Peak => figures.peak_live_allocated.unwrap_or(0),
            SortKey::Allocated => figures.allocated,
            SortKey::Requested => figures.requested,
            SortKey::Allocs => figures.allocs.into(),
            SortKey::Frees => figures.frees.into(),
            SortKey::Cross => figures.cross_cpu.into(),
            SortKey::Site => 0,
        }
    }
}

/// The document of a view that has a row a name and kind, without the head: `put` appends the name's members.
///
/// Rows are sorted by the keys, greatest first, then by name and kind; those after the first `top` are summed in `others`.
fn ranked<'a, N: Ord + Copy + 'a>(
    rows: impl Iterator<Item = (N, Kind, &'a Stats)>,
    keys: &[SortKey],
    top: Option<usize>,
    narrow: &Narrow,
    put: impl Fn(&mut Row<'a>, N) + 'a,
) -> Document<'a> {
    let mut rows: Vec<_> = rows.filter(|(_, _, figures)| !figures.is_empty()).collect();
    rows.sort_by_key(|(name, kind, _)| (*name, rank(*kind)));
    rows.sort_by(|(_, _, a), (_, _, b)| {
        keys.iter().map(|key| key.of(b).cmp(&key.of(a))).find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    });
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    rows.iter().for_each(|(_, _, figures)| narrow.note(figures));
    let mut members = Map::new();
    members.insert("rows".to_owned(), Value::Null);
    if !rest.is_empty() {
        let mut sum = Stats::default();
        rest.iter().for_each(|(_, _, figures)| sum.add(figures));
        let mut others = Map::new();
        sum.put(&mut others, narrow);
        members.insert("others".to_owned(), Value::Object(others));
        members.insert("others_count".to_owned(), json!(rest.len()));
    }
    let narrow = narrow.clone();
    let rows = Rows::of(rows, move |(name, kind, figures)| {
        let mut row = Row::default();
        put(&mut row, *name);
        row.put("kind", Cell::Word(kind.name()));
        row.extend(figures.cells(&narrow));
        row
    });
    Document::new(members, rows)
}
