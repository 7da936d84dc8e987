//! Reports of memstrack: its layouts, which scripts parse, with the figures of this project.
//!
//! Rows and stacks come from two trees of the library, by module and by thread, each read once. A layout has no place for a verdict, and
//! none for marks: both are told on standard error.

mod json;
mod rows;
mod slabs;
mod text;

use std::io::{self, Write};

use kmemtrace::documents::tree::TreeBody;
use kmemtrace::documents::{self, Body};
use kmemtrace::{Analysis, Figure, GroupKey, ModuleRule, Query, Shape, SortKey, TreeOptions};
use kmemtrace_abi::event::Kind;
use kmemtrace_abi::text::memstrack::{Layout, Report};
use kmemtrace_abi::trace::InputKind;

use crate::cli::Request;
use crate::report;
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;
use crate::told;
use rows::Choice;
use slabs::Slabs;

/// First key of a tree; stacks lie below it.
const TREES: [GroupKey; 2] = [GroupKey::Module, GroupKey::Task];

/// Level of the outermost frames.
const FRAMES: usize = 2;

/// Answers that the reports of a command line need.
struct Answers {
    /// In the order of [`TREES`], `None` where no report needs it.
    trees: [Option<Analysis>; 2],
    /// Answer that has the verdict where no tree is needed.
    plain: Option<Analysis>,
    slabs: Slabs,
}

/// Prints the reports of `--memstrack`, in their order.
pub(crate) fn memstrack(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    report::saved_document(request)?;
    let (answers, suggestions) = answers(request)?;
    let Some(first) = answers.trees.iter().flatten().chain(&answers.plain).next() else { return Ok(crate::exit::OK) };
    report::check_branches(args, &first.source_paths())?;
    told::rejected(&first.names_report());
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = args.memstrack.iter().try_for_each(|asked| print(asked, &answers, &mut out));
    out.finish(written)?;
    told::verdict(first.completeness());
    if let Some(tree) = answers.trees.iter().flatten().next() {
        with_tree(tree, SortKey::Figure(Figure::LiveAllocated), Some(FRAMES), |tree| {
            // A recording of pages without one has nothing to record again.
            let was_asked = first.info().input == InputKind::Kmemtrace && first.info().capabilities.kinds[Kind::Pages];
            tell_limits(tree, &args.memstrack, !suggestions.is_empty(), was_asked)
        });
    }
    suggestions.iter().for_each(|line| say(line));
    Ok(report::status(args, first.completeness()))
}

/// First key of the tree that a layout needs.
fn tree_of(layout: Layout) -> Option<GroupKey> {
    match layout {
        Layout::ModuleSummary | Layout::ModuleTop => Some(GroupKey::Module),
        Layout::TaskSummary | Layout::TaskTop | Layout::TaskTopJson => Some(GroupKey::Task),
        Layout::ProcSlabStatic => None,
    }
}

/// Runs a query for each tree that is needed, and one for the verdict where none is.
fn answers(request: &Request) -> anyhow::Result<(Answers, Vec<String>)> {
    let mut suggestions = Vec::new();
    let mut is_first = true;
    let mut ask = |query: Query| -> anyhow::Result<Analysis> {
        // Unknown events and an empty window are told once.
        if std::mem::take(&mut is_first) {
            let (analysis, told) = report::analyse(request, query)?;
            suggestions = told;
            return Ok(analysis);
        }
        let mut trace = report::open(request, &request.inputs())?;
        let query = report::with_options(request, query)?;
        Ok(query.run_with(&mut trace, &mut ProgressLine::new(request.args.quiet))?)
    };
    let is_needed = |key: GroupKey| request.args.memstrack.iter().any(|asked| tree_of(asked.layout) == Some(key));
    let mut trees = [None, None];
    for (tree, key) in trees.iter_mut().zip(TREES) {
        if is_needed(key) {
            let query = Query::by(&[key, GroupKey::Stack]).module_rule(ModuleRule::Innermost).with_nodes(true);
            *tree = Some(ask(query)?);
        }
    }
    let plain = if trees.iter().all(Option::is_none) { Some(ask(Query::by_kind())?) } else { None };
    let has_slabs = request.args.memstrack.iter().any(|asked| asked.layout == Layout::ProcSlabStatic);
    let slabs = if has_slabs { Slabs::of(&report::open(request, &request.inputs())?) } else { Slabs::default() };
    Ok((Answers { trees, plain, slabs }, suggestions))
}

/// Prints one report between its two headings.
fn print(asked: &Report, answers: &Answers, out: &mut dyn Write) -> io::Result<()> {
    let name = asked.layout.name();
    writeln!(out, "\n======== Report format {name}: ========")?;
    let tree = tree_of(asked.layout).and_then(|key| TREES.iter().position(|tree| *tree == key));
    match tree.and_then(|at| answers.trees[at].as_ref()) {
        None => answers.slabs.print(asked, out)?,
        Some(analysis) => {
            let has_peaks = with_tree(analysis, SortKey::Figure(Figure::LiveAllocated), Some(0), |tree| {
                tree.root.stats.peak_live_pages.is_some()
            });
            let choice = Choice::of(asked, has_peaks.unwrap_or(false));
            let page_bytes = analysis.info().page_bytes;
            // A line for each row needs no stacks.
            let depth = matches!(asked.layout, Layout::ModuleSummary | Layout::TaskSummary).then_some(1);
            with_tree(analysis, choice.sort_key(), depth, |tree| match asked.layout {
                Layout::ModuleSummary => text::module_summary(&tree.root, &choice, page_bytes, out),
                Layout::ModuleTop => text::module_top(&tree.root, &choice, out),
                Layout::TaskSummary => text::task_summary(&tree.root, &choice, out),
                Layout::TaskTop => text::task_top(&tree.root, &choice, out),
                Layout::TaskTopJson => json::task_top(&tree.root, &choice, out),
                Layout::ProcSlabStatic => Ok(()),
            })
            .unwrap_or(Ok(()))?;
        }
    }
    writeln!(out, "======== Report format {name} END ========")
}

/// Hands on the tree of an analysis to a depth, greatest of the key first; `None` without a tree.
fn with_tree<T>(
    analysis: &Analysis,
    sort: SortKey,
    depth: Option<usize>,
    take: impl FnOnce(&TreeBody) -> T,
) -> Option<T> {
    let shape = Shape { sort: vec![sort], top: None };
    let document = documents::key_tree(analysis, &shape, &TreeOptions { depth, ..TreeOptions::default() });
    if let Body::Tree(tree) = &document.body { Some(take(tree)) } else { None }
}

/// Tells of figures that a layout cannot mark, and of no figures where a suggestion does not explain them.
fn tell_limits(tree: &TreeBody, reports: &[Report], is_explained: bool, was_asked: bool) {
    let stats = &tree.root.stats;
    if stats.is_empty() {
        if was_asked && !is_explained {
            say("no pages were allocated while they were recorded, but by the recorder itself");
        } else if !is_explained {
            say("these reports have no page allocations; pages are recorded by kmemtraced -e page --stack");
        }
        return;
    }
    let mut frames = tree.root.children.iter().flat_map(|row| &row.children);
    if frames.all(|frame| frame.address.is_none()) {
        say("no stacks were recorded: modules and callers are not known; kmemtraced --stack records them");
    }
    if stats.live_is_upper_bound {
        say("some pages were freed without an event: numbers of pages in use are upper bounds");
    }
    if stats.peak_live_pages.is_none() {
        let by_peak = reports.iter().any(|report| report.by_peak);
        let sorted = if by_peak { "; rows are sorted by pages in use" } else { "" };
        say(&format!("peaks are not known here{sorted}"));
    }
}
