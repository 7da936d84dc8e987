//! `html`: runs the queries of a page, and writes it.

use std::io::{self, IsTerminal};

use kmemtrace::documents::{self, Body};
use kmemtrace::{Analysis, GroupKey, NameOptions, Query, Shape, SortKey};

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
    let by_site = Query::by_site().with_static_sizes(true);
    // A saved document has call-sites and nothing else.
    let (sites, others) = match report::saved_document(request)? {
        Some(saved) => (with_options(request, by_site, Names::All)?.of_document(&saved)?, None),
        None => {
            let sites = analyse(request, by_site.with_cpu_matrix(true).with_growth(true), Names::All)?;
            let caches = analyse(request, Query::by_cache(), Names::Filters)?;
            let sizes = analyse(request, Query::by(&[GroupKey::Size]), Names::Filters)?;
            (sites, Some((caches, sizes)))
        }
    };
    let others = others.as_ref();
    let of_trace = others.map(|_| &sites);
    let shape = |key: SortKey, top: usize| Shape { sort: vec![key, SortKey::Wasted], top: Some(top) };
    let summary = documents::summary(&sites, &Shape::default());
    let trace = &summary.head.trace;
    let clock = trace.keys();
    let loss = match (others, sites.completeness().gaps) {
        (None, _) => None,
        (_, 0) => Some(Vec::new()),
        _ => Some(gaps(request)?.intervals(trace.first, trace.last)),
    };
    let said = report::table_options(request, &request.inputs()[0]);
    let time = said.time.as_ref().map(|time| format!("time {time}"));
    let whole = Shape { sort: vec![SortKey::Live], top: None };
    let Body::Tree(tree) = documents::tree(&sites, &whole, &args.tree()).body else {
        anyhow::bail!("html: the tree has another form");
    };
    let documents = Documents {
        title: said.title.clone(),
        asked: said.filter().into_iter().chain(time).collect(),
        clock,
        summary,
        tree: *tree,
        sites: documents::sites(&sites, &shape(SortKey::Live, MAX_ROWS)),
        caches: others.map(|(caches, _)| documents::caches(caches, &shape(SortKey::Live, MAX_ROWS))),
        mismatch: of_trace.map(|sites| documents::mismatch(sites, &shape(SortKey::Wasted, MAX_ROWS), &[])),
        growth: of_trace.map(|sites| documents::growth(sites, &shape(SortKey::Growth, SHORT))),
        loss,
        cross: of_trace.map(|sites| documents::cross(sites, &shape(SortKey::Cross, MAX_ROWS))),
        sizes: others.map(|(_, sizes)| documents::sites(sizes, &shape(SortKey::Wasted, MAX_ROWS))),
    };
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = html::page(&documents, &mut out);
    out.finish(written)?;
    Ok(report::status(args, sites.completeness()))
}

/// Use of names in a query: debug information is read once where rows have no call-sites.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Names of call-sites.
    All,
    /// Names that a filter goes by, if there is one.
    Filters,
}

/// One of the page's queries, with the options of the command line.
fn with_options(request: &Request, query: Query, names: Names) -> anyhow::Result<Query> {
    let query = report::with_options(request, query)?;
    let needs_names = names == Names::All || !request.args.filters.branch.is_empty();
    Ok(if needs_names { query } else { query.names(NameOptions::default()) })
}

/// Answer to one of the page's queries.
fn analyse(request: &Request, query: Query, names: Names) -> anyhow::Result<Analysis> {
    let mut trace = report::open(request, &request.inputs())?;
    let query = with_options(request, query, names)?;
    Ok(query.run_with(&mut trace, &mut ProgressLine::new(request.args.quiet))?)
}

/// Gaps of the trace: a pass of their own, for a trace that has any.
fn gaps(request: &Request) -> anyhow::Result<loss::Gaps> {
    let mut trace = report::open(request, &request.inputs())?;
    let mut gaps = loss::Gaps::default();
    let query = with_options(request, Query::by_kind(), Names::Filters)?;
    query.observe_with(&mut trace, &mut gaps, &mut ProgressLine::new(request.args.quiet))?;
    Ok(gaps)
}
