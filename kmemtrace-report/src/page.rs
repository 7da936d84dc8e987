//! `html`: runs the queries of a page, and writes it.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};

use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::documents::tree::{NodeKind, TreeBody, TreeNode};
use kmemtrace::documents::{self, Body};
use kmemtrace::{Analysis, GroupKey, Kind, Query, Shape, SortKey};

use crate::cli::Request;
use crate::render::html::{self, Documents, loss};
use crate::report;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;

/// Rows of a table at most: its search and its order take all of them.
const MAX_ROWS: usize = 10_000;
/// Rows that grew most, and rows of call-sites whose objects were freed on another CPU.
const SHORT: usize = 20;

/// Writes the page of a trace.
pub(crate) fn page(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    if args.output.is_none() && io::stdout().is_terminal() {
        anyhow::bail!("html: a page is no text for a terminal: name a file with -o FILE");
    }
    let sites = analyse(request, Query::by_site().with_cpu_matrix(true).with_growth(true))?;
    let caches = analyse(request, Query::by_cache())?;
    let sizes = analyse(request, Query::by(&[GroupKey::Size]))?;
    let shape = |key: SortKey, top: usize| Shape { sort: vec![key, SortKey::Wasted], top: Some(top) };
    let summary = documents::summary(&sites, &Shape::default());
    let trace = &summary.head.trace;
    let clock = trace.keys();
    let loss = match sites.completeness().gaps {
        0 => Vec::new(),
        _ => gaps(request)?.intervals(trace.first, trace.last),
    };
    let said = report::table_options(request, &request.inputs()[0]);
    let time = said.time.as_ref().map(|time| format!("time {time}"));
    let documents = Documents {
        title: said.title.clone(),
        asked: said.filter().into_iter().chain(time).collect(),
        clock,
        summary,
        tree: tree(&sites),
        sites: documents::sites(&sites, &shape(SortKey::Live, MAX_ROWS)),
        caches: Some(documents::caches(&caches, &shape(SortKey::Live, MAX_ROWS))),
        mismatch: Some(documents::mismatch(&sites, &shape(SortKey::Wasted, MAX_ROWS), &[])),
        growth: Some(documents::growth(&sites, &shape(SortKey::Growth, SHORT))),
        loss: Some(loss),
        cross: Some(documents::cross(&sites, &shape(SortKey::Cross, MAX_ROWS))),
        sizes: Some(documents::sites(&sizes, &shape(SortKey::Wasted, MAX_ROWS))),
    };
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = html::page(&documents, &mut out);
    out.finish(written)?;
    Ok(report::status(args, sites.completeness()))
}

/// Answer to one of the page's queries.
fn analyse(request: &Request, query: Query) -> anyhow::Result<Analysis> {
    let mut trace = report::open(request, &request.inputs())?;
    let query = report::with_options(request, query);
    Ok(query.run_with(&mut trace, &mut ProgressLine::new(request.args.quiet))?)
}

/// Gaps of the trace: a pass of their own, for a trace that has any.
fn gaps(request: &Request) -> anyhow::Result<loss::Gaps> {
    let mut trace = report::open(request, &request.inputs())?;
    let mut gaps = loss::Gaps::default();
    let query = report::with_options(request, Query::by_kind());
    query.observe_with(&mut trace, &mut gaps, &mut ProgressLine::new(request.args.quiet))?;
    Ok(gaps)
}

/// Tree by module, function and call-site, of `kmalloc` and `cache`; of pages where the filters take these alone.
fn tree(analysis: &Analysis) -> TreeBody {
    let document = documents::sites(analysis, &Shape::default());
    let is_of_pages = analysis.rows().all(|row| row.kind == Kind::Pages);
    let mut modules: BTreeMap<Option<Vec<u8>>, BTreeMap<Vec<u8>, Vec<TreeNode>>> = BTreeMap::new();
    if let Body::Sites(listing) = &document.body {
        for row in listing.rows.iter().filter(|row| is_of_pages || row.kind != Kind::Pages) {
            let address = row.site.call_site.to_string().into_bytes();
            let name = row.site.symbol.map_or(address, std::borrow::Cow::into_owned);
            let function = name.split(|byte| *byte == b'+').next().unwrap_or(&name).to_vec();
            let module = row.site.module.map(std::borrow::Cow::into_owned);
            let sites = modules.entry(module).or_default().entry(function).or_default();
            sites.push(TreeNode { stats: row.stats, ..node(name, NodeKind::Site, Vec::new()) });
        }
    }
    let modules = modules.into_iter().map(|(module, functions)| {
        let functions = functions.into_iter().map(|(name, sites)| node(name, NodeKind::Function, sites)).collect();
        match module {
            Some(module) => node([b"[", &*module, b"]"].concat(), NodeKind::Module, functions),
            None => node(b"(no folder known)".to_vec(), NodeKind::Unknown, functions),
        }
    });
    let root = node(b"linux".to_vec(), NodeKind::Folder, modules.collect());
    TreeBody { sort: "live", branch: None, wrapped_live: 0, root }
}

fn node(name: Vec<u8>, kind: NodeKind, children: Vec<TreeNode>) -> TreeNode {
    let mut stats = PrintedStats {
        allocs: 0,
        failed_allocs: 0,
        requested: 0,
        allocated: 0,
        wasted: 0,
        frees: 0,
        inferred_frees: 0,
        cross_cpu: None,
        live_objects: 0,
        live_requested: 0,
        live_allocated: 0,
        live_wasted: 0,
        peak_live_allocated: None,
        live_is_upper_bound: false,
    };
    for child in children.iter().map(|child| &child.stats) {
        let sums = [
            (&mut stats.allocs, child.allocs),
            (&mut stats.allocated, child.allocated),
            (&mut stats.wasted, child.wasted),
            (&mut stats.frees, child.frees),
            (&mut stats.live_objects, child.live_objects),
            (&mut stats.live_allocated, child.live_allocated),
            (&mut stats.live_wasted, child.live_wasted),
        ];
        sums.into_iter().for_each(|(sum, n)| *sum = sum.saturating_add(n));
        stats.live_is_upper_bound |= child.live_is_upper_bound;
    }
    TreeNode { name: name.into(), kind, stats, static_bytes: None, current: None, folded: 0, children }
}
