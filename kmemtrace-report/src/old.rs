//! `trace-analyze`: does the steps of the old program's command line, one after the other.

use std::ffi::OsString;

use kmemtrace_sandbox::Mode;

use crate::cli::commands::PROGRAM;
use crate::cli::old::Step;
use crate::cli::settings::Settings;
use crate::cli::{self, CommandLine, Refusal, Request};
use crate::terminal::messages::say;
use crate::{confine, exit};

/// Lines that stand for those of the old program have no settings.
fn no_settings() -> Result<Settings, String> {
    Ok(Settings::default())
}

/// Does all steps, up to the first error; `view` runs a view. The status is the worst of all views.
pub(crate) fn run(steps: Vec<Step>, view: impl Fn(&Request) -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    let mut status = exit::OK;
    for step in steps {
        match step {
            Step::Tell(line) => say(&line),
            Step::StaticRings { tree, branch, output } => static_rings(&tree, branch.as_deref(), &output)?,
            Step::Line(line) => match cli::parse(words(&line), no_settings) {
                Ok(CommandLine::Request(request)) => status = status.max(view(&request)?),
                Ok(CommandLine::Steps(..) | CommandLine::Text(_)) => {}
                Err(Refusal::Line(line)) => anyhow::bail!(line),
                Err(Refusal::Clap(error)) => return Err(error.into()),
            },
        }
    }
    Ok(status)
}

/// Closes one sandbox around all steps, once `limit_memory` has been called for the first view.
pub(crate) fn confine(steps: &[Step], mode: Mode, limit_memory: impl Fn(&Request)) -> anyhow::Result<()> {
    let requests: Vec<Box<Request>> = steps.iter().filter_map(request).collect();
    if let Some(first) = requests.first() {
        limit_memory(first);
    }
    confine::close_all(mode, false, requests.iter().map(|request| &**request), |sandbox| {
        for step in steps {
            if let Step::StaticRings { tree, output, .. } = step {
                sandbox.tree(tree);
                sandbox.output(output);
            }
        }
    })
}

/// The view of a step; a line that is none is told when its turn comes.
fn request(step: &Step) -> Option<Box<Request>> {
    let Step::Line(line) = step else { return None };
    match cli::parse(words(line), no_settings) {
        Ok(CommandLine::Request(request)) => Some(request),
        _ => None,
    }
}

/// The words of a command line, with the program's name.
fn words(line: &[OsString]) -> Vec<OsString> {
    std::iter::once(OsString::from(PROGRAM)).chain(line.iter().cloned()).collect()
}

#[cfg(feature = "full")]
use with_pictures::static_rings;

#[cfg(not(feature = "full"))]
fn static_rings(_: &std::path::Path, _: Option<&str>, _: &std::path::Path) -> anyhow::Result<()> {
    anyhow::bail!("trace-analyze: {}", crate::terminal::messages::SMALL)
}

#[cfg(feature = "full")]
mod with_pictures {
    use std::path::Path;

    use kmemtrace::Branch;
    use kmemtrace::documents::static_sizes::{self, SizeNode, StaticShape};
    use kmemtrace::documents::tree::TreeNode;
    use kmemtrace_abi::text::escape::escape;

    use crate::render::picture::{self, Chart, Measure, Shape};
    use crate::sources::{self, Source};
    use crate::terminal::output::Output;
    use crate::{built, chart};

    /// Draws the static sizes of a built tree, or of an image.
    pub(super) fn static_rings(tree: &Path, branch: Option<&str>, output: &Path) -> anyhow::Result<()> {
        sources::refuse_replacing(output, &[Source::of_kernel(tree.to_owned())])?;
        let form = chart::form(Some(output))?;
        let branches: Vec<Branch> =
            branch.map(str::parse).transpose().map_err(anyhow::Error::msg)?.into_iter().collect();
        let (kind, sizes) = built::sizes_of(tree, &branches)?;
        let name = escape(tree.as_os_str().as_encoded_bytes()).into_owned();
        let shape = StaticShape { branches, ..StaticShape::default() };
        let root = static_sizes::static_sizes(&sizes, kind, name.clone(), &shape).root;
        let chart = Chart { shape: Shape::Rings, measure: Measure::Static, depth: picture::MAX_LEVELS, subtitle: name };
        let mut out = Output::open(Some(output), true)?;
        let written = picture::write(&node(root), &chart, form, &mut out);
        out.finish(written)
    }

    /// Node of a tree that has static bytes and nothing else.
    fn node(sizes: SizeNode) -> TreeNode {
        let bytes = sizes.sizes.total();
        TreeNode {
            name: sizes.name,
            kind: sizes.kind,
            static_bytes: Some(bytes),
            current: Some(bytes),
            folded: sizes.folded,
            children: sizes.children.into_iter().map(node).collect(),
            ..TreeNode::default()
        }
    }
}
