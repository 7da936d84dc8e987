//! `html`: runs the queries of a page, and writes it.

use std::io::{self, IsTerminal};
use std::path::Path;

use kmemtrace::documents::{self, Body};
use kmemtrace::{Analysis, Figure, GroupKey, NameOptions, Query, Shape, SortKey};

use crate::cli::Request;
use crate::render::html::{self, Documents, loss};
use crate::report;
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;

/// Rows of a table at most: its search and its order take all of them.
const MAX_ROWS: usize = 10_000;
/// Rows that grew most, of which a page shows some.
const GROWN_ROWS: usize = 20;

/// Answers to the queries of a page. A saved document answers one of them.
struct Answers {
    sites: Analysis,
    of_trace: Option<OfTrace>,
    /// Suggestions where the filters take nothing.
    suggestions: Vec<String>,
}

/// Answers that need the trace itself.
struct OfTrace {
    caches: Analysis,
    sizes: Analysis,
    gaps: loss::Gaps,
}

/// Writes the page of a trace, or of a saved document.
pub(crate) fn page(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    if args.output.is_none() && io::stdout().is_terminal() {
        anyhow::bail!("html: a page is not for a terminal: name a file with -o FILE");
    }
    let answers = match report::saved_document(request)? {
        Some(saved) => Answers::of_document(request, &saved)?,
        None => Answers::of_trace(request)?,
    };
    report::check_branches(args, &answers.sites.source_paths())?;
    report::tell_rejected(&answers.sites);
    let documents = documents(request, &answers)?;
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = html::page(&documents, &mut out);
    out.finish(written)?;
    answers.suggestions.iter().for_each(|line| say(line));
    Ok(report::status(args, answers.sites.completeness()))
}

impl Answers {
    fn of_document(request: &Request, saved: &Path) -> anyhow::Result<Answers> {
        let sites = report::with_options(request, Query::by_site().with_static_sizes(true))?.of_document(saved)?;
        Ok(Answers { sites, of_trace: None, suggestions: Vec::new() })
    }

    fn of_trace(request: &Request) -> anyhow::Result<Answers> {
        let by_site = Query::by_site().with_cpu_matrix(true).with_growth(true).with_static_sizes(true);
        let (sites, suggestions) = report::analyse(request, by_site)?;
        let caches = analyse(request, Query::by_cache())?;
        let sizes = analyse(request, Query::by(&[GroupKey::Size]))?;
        let gaps = if sites.completeness().gaps > 0 { gaps(request)? } else { loss::Gaps::default() };
        Ok(Answers { sites, of_trace: Some(OfTrace { caches, sizes, gaps }), suggestions })
    }
}

/// Documents of the answers.
fn documents<'a>(request: &Request, answers: &'a Answers) -> anyhow::Result<Documents<'a>> {
    let Answers { sites, of_trace, .. } = answers;
    let shape = |key: SortKey, top: usize| Shape { sort: vec![key, SortKey::Figure(Figure::Wasted)], top: Some(top) };
    let summary = documents::summary(sites, &Shape::default());
    let (clock, first, last) = (summary.head.trace.keys(), summary.head.trace.first, summary.head.trace.last);
    let whole = Shape { sort: vec![SortKey::Figure(Figure::LiveAllocated)], top: None };
    let Body::Tree(tree) = documents::tree(sites, &whole, &request.args.tree()).body else {
        anyhow::bail!("html: the tree has another form");
    };
    let said = report::table_options(request, &request.inputs()[0]);
    let time = said.time.as_ref().map(|time| format!("time {time}"));
    let of_trace = of_trace.as_ref();
    Ok(Documents {
        title: said.title.clone(),
        asked: said.filter().into_iter().chain(time).collect(),
        clock,
        summary,
        tree: *tree,
        sites: documents::sites(sites, &shape(SortKey::Figure(Figure::LiveAllocated), MAX_ROWS)),
        caches: of_trace
            .map(|all| documents::caches(&all.caches, &shape(SortKey::Figure(Figure::LiveAllocated), MAX_ROWS))),
        mismatch: of_trace.map(|_| documents::mismatch(sites, &shape(SortKey::Figure(Figure::Wasted), MAX_ROWS), &[])),
        growth: of_trace.map(|_| documents::growth(sites, &shape(SortKey::Growth, GROWN_ROWS))),
        loss: of_trace.map(|all| all.gaps.intervals(first, last)),
        cross: of_trace.map(|_| documents::cross(sites, &shape(SortKey::Figure(Figure::CrossCpu), MAX_ROWS))),
        sizes: of_trace.map(|all| documents::sites(&all.sizes, &shape(SortKey::Figure(Figure::Wasted), MAX_ROWS))),
    })
}

/// One of the further queries. Its rows have no call-sites, so debug information is read only where a filter goes by it.
fn with_options(request: &Request, query: Query) -> anyhow::Result<Query> {
    let query = report::with_options(request, query)?;
    let (names, filters) = (&request.args.names, &request.args.filters);
    let needs_names = !filters.branch.is_empty() || names.kallsyms.is_some() || names.proc_modules.is_some();
    Ok(if needs_names { query } else { query.names(NameOptions::default()) })
}

/// Answer to one of the further queries.
fn analyse(request: &Request, query: Query) -> anyhow::Result<Analysis> {
    let mut trace = report::open(request, &request.inputs())?;
    let query = with_options(request, query)?;
    Ok(query.run_with(&mut trace, &mut ProgressLine::new(request.args.quiet))?)
}

/// Gaps of the trace: a pass of their own.
fn gaps(request: &Request) -> anyhow::Result<loss::Gaps> {
    let mut trace = report::open(request, &request.inputs())?;
    let mut gaps = loss::Gaps::default();
    let query = with_options(request, Query::by_kind())?;
    query.observe_with(&mut trace, &mut gaps, &mut ProgressLine::new(request.args.quiet))?;
    Ok(gaps)
}
