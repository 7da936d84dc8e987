//! `chart`: runs the query of a tree, and draws it.

use std::path::Path;

use kmemtrace::documents::tree::TreeBody;
use kmemtrace::documents::{self, Body, Document, Head};
use kmemtrace::{Query, Shape};

use crate::args::ChartShape;
use crate::cli::Request;
use crate::render::picture::{self, Chart, FileForm, Measure};
use crate::render::table::heading;
use crate::report;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;

/// Draws the tree of a trace.
pub(crate) fn chart(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    let form = form(args.output.as_deref())?;
    let query = report::with_options(request, Query::by_site().with_static_sizes(true))?;
    let analysis = match report::saved_document(request)? {
        Some(saved) => query.of_document(&saved)?,
        None => {
            let mut trace = report::open(request, &request.inputs())?;
            query.run_with(&mut trace, &mut ProgressLine::new(args.quiet))?
        }
    };
    report::check_branches(args, &analysis.source_paths())?;
    report::tell_rejected(&analysis);
    report::check_static(request, &analysis)?;
    let shape = Shape { sort: request.sort_keys(), top: None };
    let Document { head, body } = documents::tree(&analysis, &shape, &args.tree());
    let Body::Tree(tree) = body else { anyhow::bail!("chart: the tree has another form") };
    write(request, &head, &tree, form)?;
    Ok(report::status(args, analysis.completeness()))
}

/// Writes the picture of a tree.
fn write(request: &Request, head: &Head<'_>, tree: &TreeBody, form: FileForm) -> anyhow::Result<()> {
    let args = &request.args;
    let said = report::table_options(request, &request.inputs()[0]);
    let chart = Chart {
        shape: shape(args.shape.unwrap_or_default()),
        measure: Measure::of_key(request.sort_keys().first().copied()),
        depth: args.depth.unwrap_or(picture::MAX_LEVELS),
        subtitle: heading::brief(head, tree.other_space(), &said).join(" · "),
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
