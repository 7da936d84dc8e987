//! `html`: runs the queries of a page, and writes it.

use std::io::{self, IsTerminal};
use std::path::Path;

use kmemtrace::documents::latency as of_latency;
use kmemtrace::documents::leaks::LeakOptions;
use kmemtrace::documents::tree::TreeNode;
use kmemtrace::documents::{self, Body};
use kmemtrace::latency::{Latency, LatencyRequest};
use kmemtrace::{Analysis, Figure, GroupKey, NameOptions, PlacedBy, Query, Select, Shape, SortKey, Space, TreeOptions};

use crate::chart::{self, is_asked_by_place, knows_places};
use crate::cli::Request;
use crate::render::html::{self, Documents, PageTree, loss};
use crate::report;
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;
use crate::told;

/// Rows of a table at most: its search and its order take all of them.
const MAX_ROWS: usize = 10_000;
/// Rows that grew most, of which a page shows some.
const GROWN_ROWS: usize = 20;

/// Stalls of a page at most, the longest ones.
const MAX_STALLS: usize = 500;
/// Rows of leaks of a page at most.
const MAX_LEAKS: usize = 500;
/// Keys of the trees that a page has beside folders or areas, each with call sites below unless it is the stack.
const TREES: [&[GroupKey]; 4] = [
    &[GroupKey::Module, GroupKey::Site],
    &[GroupKey::Task, GroupKey::Site],
    &[GroupKey::Cgroup, GroupKey::Site],
    &[GroupKey::Stack],
];

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
    /// `None` for an input of one moment.
    leaks: Option<Analysis>,
    /// `None` where the trace describes no event of reclaim or compaction.
    latency: Option<Latency>,
    trees: Vec<PageTree>,
    gaps: loss::Gaps,
}

/// Writes the page of a trace, or of a saved document.
pub(crate) fn page(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    if args.output.is_none() && io::stdout().is_terminal() {
        anyhow::bail!("html: a page is not for a terminal: name a file with -o FILE");
    }
    report::check_tree(request)?;
    let answers = match report::saved_document(request)? {
        Some(saved) => Answers::of_document(request, &saved)?,
        None => Answers::of_trace(request)?,
    };
    report::check_branches(args, &answers.sites.source_paths())?;
    told::rejected(&answers.sites.names_report());
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
        let has_past = sites.info().capabilities.past;
        let leaks = if has_past { Some(analyse(request, Query::leaks(&[]))?) } else { None };
        let (latency, trees) = (latency(request)?, key_trees(request)?);
        let gaps = if sites.completeness().gaps > 0 { gaps(request)? } else { loss::Gaps::default() };
        let of_trace = OfTrace { caches, sizes, leaks, latency, trees, gaps };
        Ok(Answers { sites, of_trace: Some(of_trace), suggestions })
    }
}

/// Time that tasks waited for memory; `None` where the trace describes no such events. Filters by objects choose no spans.
fn latency(request: &Request) -> anyhow::Result<Option<Latency>> {
    let mut trace = report::open(request, &request.inputs())?;
    if !trace.describes_reclaim() {
        return Ok(None);
    }
    let select = request.args.filters.select();
    let select = Select { pid: select.pid, comm: select.comm, ..Select::default() };
    let query = with_options(request, Query::by_kind())?.select(select);
    let asked = LatencyRequest { lists_stalls: true, ..LatencyRequest::default() };
    let latency = query.latency(&mut trace, asked, &mut ProgressLine::new(request.args.quiet))?;
    Ok(Some(latency))
}

/// Trees over keys that the trace tells, a tree for each space that has allocations.
fn key_trees(request: &Request) -> anyhow::Result<Vec<PageTree>> {
    let args = &request.args;
    let asked = chart::keys(args);
    let is_more = args.is_key_tree() && !TREES.contains(&&asked[..]);
    let mut trees = Vec::new();
    for keys in is_more.then_some(&asked[..]).into_iter().chain(TREES) {
        let mut trace = report::open(request, &request.inputs())?;
        let text = trace.info.text.as_deref();
        let is_told = match keys[0] {
            GroupKey::Stack => text.map_or_else(|| trace.may_have_stacks(), |text| text.has_stacks),
            GroupKey::Task => text.is_none_or(|text| text.has_threads),
            GroupKey::Cgroup => trace.tells_tasks(),
            _ => true,
        };
        if !is_told && keys != asked {
            continue;
        }
        let query = report::with_options(request, args.held_by(keys).with_nodes(true))?;
        let analysis = query.run_with(&mut trace, &mut ProgressLine::new(args.quiet))?;
        trees.extend(Space::ALL.into_iter().filter_map(|space| key_tree(&analysis, keys, space)));
    }
    Ok(trees)
}

/// Tree of a space; `None` without an allocation, and where no thread, cgroup or stack of them is known.
fn key_tree(analysis: &Analysis, keys: &[GroupKey], space: Space) -> Option<PageTree> {
    let options = TreeOptions { space: Some(space), ..TreeOptions::default() };
    let Body::Tree(tree) = documents::key_tree(analysis, &whole(), &options).body else { return None };
    let is_unknown = |node: &TreeNode| matches!(&*node.name, b"(unknown)" | b"(no stack)");
    let children = &tree.root.children;
    let is_told = match keys[0] {
        GroupKey::Module => true,
        // Without a recorded stack each is the call site alone.
        GroupKey::Stack => tree.keys.is_some_and(|keys| keys.stacks.seen > 0) || !analysis.info().capabilities.past,
        _ => children.iter().any(|child| !is_unknown(child)),
    };
    (!children.is_empty() && is_told).then(|| PageTree { by: keys[0].name(), keys: keys.to_vec(), tree: *tree })
}

fn whole() -> Shape {
    Shape { sort: vec![SortKey::Figure(Figure::LiveAllocated)], top: None }
}

/// Trees of a page, the one that is shown first at the front: of folders or areas where they are known or asked for, else of modules.
fn trees(request: &Request, sites: &Analysis, of_keys: &[PageTree]) -> anyhow::Result<Vec<PageTree>> {
    let args = &request.args;
    let options = args.tree();
    let placed = |by: PlacedBy| -> anyhow::Result<PageTree> {
        let document = documents::tree(sites, &whole(), &TreeOptions { by, ..options.clone() });
        let (by, Body::Tree(tree)) = (document.head.query.by[0], document.body) else {
            anyhow::bail!("html: the tree has another form")
        };
        Ok(PageTree { by, keys: Vec::new(), tree: *tree })
    };
    let of_places = placed(options.by)?;
    let is_by_place = !args.is_key_tree() && is_asked_by_place(args) || knows_places(&of_places.tree);
    let mut trees = of_keys.to_vec();
    if is_by_place {
        trees.insert(0, of_places);
    } else if trees.iter().all(|tree| tree.by != GroupKey::Module.name()) {
        trees.insert(0, placed(PlacedBy::Module)?);
    }
    if args.is_key_tree() {
        let asked = chart::keys(args);
        // Stable: the others stay in their order.
        trees.sort_by_key(|tree| tree.keys != asked);
    }
    Ok(trees)
}

/// Documents of the answers.
fn documents<'a>(request: &Request, answers: &'a Answers) -> anyhow::Result<Documents<'a>> {
    let Answers { sites, of_trace, .. } = answers;
    let shape = |key: SortKey, top: usize| Shape { sort: vec![key, SortKey::Figure(Figure::Wasted)], top: Some(top) };
    let summary = documents::summary(sites, &Shape::default());
    let (clock, first, last) = (summary.head.trace.keys(), summary.head.trace.first, summary.head.trace.last);
    let said = report::table_options(request, &request.inputs()[0]);
    let time = said.time.as_ref().map(|time| format!("time {time}"));
    let of_trace = of_trace.as_ref();
    let leaks = of_trace.and_then(|all| all.leaks.as_ref());
    let latency = of_trace.and_then(|all| all.latency.as_ref());
    Ok(Documents {
        title: said.title.clone(),
        asked: said.filter().into_iter().chain(time).collect(),
        with_host: request.args.with_host,
        clock,
        summary,
        trees: trees(request, sites, of_trace.map_or(&[][..], |all| &all.trees))?,
        sites: documents::sites(sites, &shape(SortKey::Figure(Figure::LiveAllocated), MAX_ROWS)),
        leaks: leaks.map(|leaks| {
            let shape = Shape { sort: Vec::new(), top: Some(MAX_LEAKS) };
            documents::leaks(leaks, &shape, LeakOptions::default())
        }),
        waiting: latency
            .map(|latency| [of_latency::latency(latency, None), of_latency::stalls(latency, false, Some(MAX_STALLS))]),
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
