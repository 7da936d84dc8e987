//! One file a view: from what the events came to, to a document that serialises. No I/O, no terminal.

pub(crate) mod caches;
pub(crate) mod cross;
pub(crate) mod events;
pub(crate) mod live;
pub(crate) mod mismatch;
pub(crate) mod row;
pub(crate) mod sites;
pub(crate) mod summary;

use std::collections::HashMap;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Kind, Names};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::kernel::target::Endian;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::report::{FileReport, Source};
use kmemtrace_abi::trace::{Trace, TraceInfo};
use serde_json::{Map, Value, json};

use crate::figures::{Figures, Narrow};
use crate::order::Order;
use crate::symbols::Symbols;
use cross::CpuMatrix;
use row::{Cell, Row, Rows};

/// A view's content, before it has the form of an output.
pub(crate) struct Document<'a> {
    /// All members; `rows` and `matrix` are `null` here, and made while they are printed.
    pub(crate) members: Map<String, Value>,
    /// The rows of the view; of `summary` those that its CSV and its table have.
    pub(crate) rows: Rows<'a>,
    /// The call-sites in the table of `summary`.
    pub(crate) top_sites: Rows<'a>,
    pub(crate) matrix: Option<CpuMatrix<'a>>,
}

impl<'a> Document<'a> {
    /// The document of members and rows.
    pub(crate) fn new(members: Map<String, Value>, rows: Rows<'a>) -> Document<'a> {
        Document { members, rows, top_sites: Rows::none(), matrix: None }
    }
}

/// What the files come to, over all of them and whatever the filters.
pub(crate) struct Completeness {
    pub(crate) verdict: Verdict,
    pub(crate) lost_events: Option<u64>,
    pub(crate) gaps: u64,
    pub(crate) lost_before: Option<u64>,
    pub(crate) truncated_files: Vec<String>,
    pub(crate) missing_cpus: Vec<u32>,
    pub(crate) inferred_frees: u64,
    pub(crate) frees_without_alloc: u64,
}

impl Completeness {
    /// From a trace that has been read to its end.
    pub(crate) fn of(trace: &Trace, order: &Order) -> Completeness {
        let facts = || trace.streams.iter().map(CpuStream::facts).chain(trace.side.facts.as_ref());
        let mut verdict = facts().map(|f| f.verdict).max().unwrap_or_default();
        let gaps = facts().fold(0u64, |sum, f| sum.saturating_add(f.gaps)).saturating_add(order.holes);
        let on_every_cpu = if trace.dropped_beyond(order.missing) > 0 { trace.info.cpus.len() as u64 } else { 0 };
        let gaps = gaps.saturating_add(on_every_cpu);
        let files = facts().try_fold(0u64, |sum, f| Some(sum.saturating_add(f.lost?)));
        // A relay channel counts its overruns over all CPUs and does not number what it drops: they have no place.
        let lost_events = match trace.info.source {
            Some(Source::Relay) => Some(order.missing.max(trace.total_overruns().unwrap_or(0)).max(files.unwrap_or(0))),
            _ => files,
        };
        if lost_events.is_some_and(|n| n > 0) {
            verdict = verdict.max(Verdict::Lossy);
        }
        let cut = |f: &&FileReport| f.faults.iter().any(|fault| fault.code.verdict() == Verdict::Truncated);
        let name = |f: &FileReport| f.name().to_string_lossy().into_owned();
        let missing = |f: &&FileReport| f.cpu.is_some_and(|cpu| trace.info.missing.contains(&cpu));
        Completeness {
            verdict,
            lost_events,
            gaps,
            lost_before: facts().try_fold(0u64, |sum, f| Some(sum.saturating_add(f.lost_before?))),
            truncated_files: facts().filter(|f| !missing(f)).filter(cut).map(name).collect(),
            missing_cpus: trace.info.missing.clone(),
            inferred_frees: 0,
            frees_without_alloc: 0,
        }
    }

    /// One line for a terminal or standard error.
    pub(crate) fn verdict_name(&self) -> &'static str {
        match self.verdict {
            Verdict::Complete => "complete",
            Verdict::Lossy => "lossy",
            Verdict::Truncated => "truncated",
            Verdict::Corrupt => "corrupt",
        }
    }
}

/// The three members that every document opens with.
pub(crate) fn head(
    view: &str,
    completeness: &Completeness,
    info: &TraceInfo,
    own_threads: Option<&[i32]>,
    order: &Order,
    narrow: &Narrow,
) -> Map<String, Value> {
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

/// What names things in a view.
pub(crate) struct Naming<'a> {
    pub(crate) symbols: &'a Symbols<'a>,
    pub(crate) names: &'a Names,
    pub(crate) comms: &'a HashMap<i32, Box<[u8]>>,
}

impl<'a> Naming<'a> {
    /// The cell of `symbol+0xoffset` of a call-site.
    pub(crate) fn symbol(&self, call_site: Option<u64>) -> Cell<'a> {
        Cell::name(call_site.and_then(|site| self.symbols.lookup(site)).map(|symbol| symbol.text()))
    }

    /// Appends `call_site`, `symbol` and `module`.
    pub(crate) fn put_site(&self, row: &mut Row<'a>, call_site: u64) {
        let symbol = self.symbols.lookup(call_site);
        row.put("call_site", Cell::Address(call_site));
        row.put("symbol", Cell::name(symbol.map(|symbol| symbol.text())));
        row.put("module", Cell::name(symbol.and_then(|symbol| symbol.module)));
    }
}

/// Number of a kind, for ties.
pub(crate) fn rank(kind: Kind) -> usize {
    Kind::ALL.iter().position(|&k| k == kind).unwrap_or(0)
}

/// What rows are sorted by, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortKey {
    /// Bytes lost to internal fragmentation.
    #[value(alias = "waste")]
    Wasted,
    /// Bytes live at the end.
    #[value(alias = "current_dynamic")]
    Live,
    /// Greatest number of live bytes.
    Peak,
    /// Bytes taken, over all allocations.
    #[value(aliases = ["total", "total_dynamic"])]
    Allocated,
    /// Bytes asked for, over all allocations.
    Requested,
    /// Allocations.
    #[value(alias = "alloc_count")]
    Allocs,
    /// Frees that were seen.
    #[value(alias = "free_count")]
    Frees,
    /// Frees on another CPU.
    Cross,
    /// The call-site or cache itself.
    #[value(alias = "cache")]
    Site,
}

impl SortKey {
    fn of(self, figures: &Figures) -> u128 {
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
pub(crate) fn ranked<'a, N: Ord + Copy + 'a>(
    rows: impl Iterator<Item = (N, Kind, &'a Figures)>,
    keys: &[SortKey],
    top: Option<usize>,
    narrow: &'a Narrow,
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
        let mut sum = Figures::default();
        rest.iter().for_each(|(_, _, figures)| sum.add(figures));
        let mut others = Map::new();
        sum.put(&mut others, narrow);
        members.insert("others".to_owned(), Value::Object(others));
        members.insert("others_count".to_owned(), json!(rest.len()));
    }
    let rows = Rows::of(rows, move |(name, kind, figures)| {
        let mut row = Row::default();
        put(&mut row, *name);
        row.put("kind", Cell::Word(kind.name()));
        row.extend(figures.cells(narrow));
        row
    });
    Document::new(members, rows)
}
