//! `chart`: runs the query of a tree, and draws it.

use std::path::Path;

use kmemtrace::documents::tree::{NodeKind, TreeBody, TreeNode};
use kmemtrace::documents::{self, Body, Document, Head};
use kmemtrace::{GroupKey, PlacedBy, Query, Shape, SortKey, TreeOptions};

use crate::args::{Args, ChartShape};
use crate::cli::Request;
use crate::render::picture::{self, Chart, FileForm, Measure};
use crate::render::table::heading;
use crate::report;
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;
use crate::told;

/// Draws the tree of a trace.
pub(crate) fn chart(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    let form = form(args.output.as_deref())?;
    let saved = report::saved_document(request)?;
    if args.is_key_tree() {
        if let Some(path) = saved {
            anyhow::bail!("{}: a saved document makes a picture by folder; name the trace for --by", path.display());
        }
        return draw_keys(request, keys(args), form);
    }
    let query = report::with_options(request, Query::by_site().with_static_sizes(true))?;
    let analysis = match &saved {
        Some(path) => query.of_document(path)?,
        None => {
            let mut trace = report::open(request, &request.inputs())?;
            query.run_with(&mut trace, &mut ProgressLine::new(args.quiet))?
        }
    };
    report::check_branches(args, &analysis.source_paths())?;
    told::rejected(&analysis.names_report());
    report::check_static(request, &analysis)?;
    let options = args.tree();
    let (head, tree) = tree_of(documents::tree(&analysis, &shape_of(request), &options))?;
    if is_asked_by_place(args) || knows_places(&tree) {
        write(request, &head, &tree, form)?;
    } else if saved.is_none() {
        return draw_keys(request, vec![GroupKey::Module, GroupKey::Site], form);
    } else {
        let options = TreeOptions { by: PlacedBy::Module, ..options };
        let (head, tree) = tree_of(documents::tree(&analysis, &shape_of(request), &options))?;
        write(request, &head, &tree, form)?;
    }
    Ok(report::status(args, analysis.completeness()))
}

/// Keys of the tree that a picture shows, where it is one over keys: below threads, cgroups and modules stand call-sites.
pub(crate) fn keys(args: &Args) -> Vec<GroupKey> {
    let mut keys = args.by.clone();
    if keys.last().is_some_and(|last| ![GroupKey::Stack, GroupKey::Site].contains(last)) {
        keys.push(GroupKey::Site);
    }
    keys
}

/// Draws the tree over these keys.
fn draw_keys(request: &Request, keys: Vec<GroupKey>, form: FileForm) -> anyhow::Result<u8> {
    let args = &request.args;
    report::check_tree(request)?;
    if let Some(SortKey::Static | SortKey::Current) = request.sort_keys().first() {
        anyhow::bail!("--sort: static bytes are those of folders; use --by folder");
    }
    let (analysis, suggestions) = report::analyse(request, args.held_by(&keys).with_nodes(true))?;
    report::check_branches(args, &analysis.source_paths())?;
    told::rejected(&analysis.names_report());
    let (head, tree) = tree_of(documents::key_tree(&analysis, &shape_of(request), &args.tree()))?;
    write(request, &head, &tree, form)?;
    suggestions.iter().for_each(|line| say(line));
    Ok(report::status(args, analysis.completeness()))
}

fn shape_of(request: &Request) -> Shape {
    Shape { sort: request.sort_keys(), top: None }
}

fn tree_of(document: Document<'_>) -> anyhow::Result<(Head<'_>, Box<TreeBody>)> {
    let Document { head, body } = document;
    let Body::Tree(tree) = body else { anyhow::bail!("the tree has another form") };
    Ok((head, tree))
}

/// True where the command line asks for folders or areas, whether they are known or not.
pub(crate) fn is_asked_by_place(args: &Args) -> bool {
    !args.by.is_empty() || args.names.areas.is_some() || !args.filters.branch.is_empty()
}

/// True where folders or areas of most allocations are known: without debug information a tree of them would be one node.
pub(crate) fn knows_places(tree: &TreeBody) -> bool {
    let weight = |node: &TreeNode| node.stats.allocs.or(node.stats.live_allocated).unwrap_or(0);
    let is_place = |node: &&TreeNode| matches!(node.kind, NodeKind::Folder | NodeKind::File | NodeKind::Area);
    let known: u64 = tree.root.children.iter().filter(is_place).map(weight).sum();
    known > 0 && known >= weight(&tree.root) / 2
}

/// Writes the picture of a tree.
fn write(request: &Request, head: &Head<'_>, tree: &TreeBody, form: FileForm) -> anyhow::Result<()> {
    let args = &request.args;
    let said = report::table_options(request, &request.inputs()[0]);
    let is_by_folder = head.query.by.first() == Some(&GroupKey::Folder.name());
    let by = (!is_by_folder).then(|| format!("by {}", head.query.by.join(" and ")));
    let chart = Chart {
        shape: shape(args.shape.unwrap_or_default()),
        measure: Measure::of_key(request.sort_keys().first().copied()),
        depth: args.depth.unwrap_or(picture::MAX_LEVELS),
        subtitle: by.into_iter().chain(heading::brief(head, tree.other_space(), &said)).collect::<Vec<_>>().join(" · "),
    };
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = picture::write(&tree.root, &chart, form, &mut out);
    out.finish(written)
}

/// Form of a file, by the end of its name.
pub(crate) fn form(output: Option<&Path>) -> anyhow::Result<FileForm> {
    let Some(output) = output else { anyhow::bail!("chart: name a file: -o FILE.svg or -o FILE.png") };
    match output.extension().map(|end| end.to_string_lossy().to_lowercase()).as_deref() {
        Some("svg") => Ok(FileForm::Svg),
        Some("png") => Ok(FileForm::Png),
        _ => anyhow::bail!("{}: no picture has such a name: use FILE.svg or FILE.png", output.display()),
    }
}

fn shape(shape: ChartShape) -> picture::Shape {
    match shape {
        ChartShape::Rings => picture::Shape::Rings,
        ChartShape::Treemap => picture::Shape::Treemap,
        ChartShape::Icicle => picture::Shape::Icicle,
    }
}
