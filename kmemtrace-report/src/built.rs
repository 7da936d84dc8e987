//! Commands whose input is a built kernel and no trace: `static` and `names`.

use std::path::Path;

use kmemtrace::documents::row::RowSource;
use kmemtrace::documents::static_sizes::{self, StaticShape};
use kmemtrace::{Branch, LeftOut, ModuleSizes, StaticSizes};
use kmemtrace_abi::text::escape::escape;

use crate::args::Format;
use crate::cli::Request;
use crate::exit;
use crate::fitted::top;
use crate::render::table::static_sizes as table;
use crate::render::{csv, json};
use crate::report::table_options;
use crate::suggest::like_folder;
use crate::terminal::messages::say;
use crate::terminal::output::Output;

/// Files left out that are told by name.
const TOLD: usize = 10;

/// Prints the document of `static`.
pub(crate) fn static_sizes(request: &Request) -> anyhow::Result<u8> {
    let (args, inputs) = (&request.args, request.inputs());
    let path: &Path = &inputs[0];
    let is_table = request.format() == Format::Table;
    let (kind, sizes) = sizes_of(path, &args.filters.branch)?;
    let (files, count) = sizes.left_out();
    tell_left_out(files, count);
    let branches = args.filters.branch.clone();
    let shape = StaticShape { branches, depth: args.depth.or(is_table.then_some(1)), top: top(request) };
    let shown = String::from_utf8_lossy(path.as_os_str().as_encoded_bytes()).into_owned();
    let document = static_sizes::static_sizes(&sizes, kind, shown, &shape);
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = match request.format() {
        Format::Json => json::json(&document, &mut out),
        Format::Jsonl => json::line(&document.head(), &mut out)
            .and_then(|()| document.each_row(&mut |row| json::line(&row, &mut out))),
        Format::Csv => csv::csv(&document, &mut out),
        Format::Table => table::static_sizes(&document, &table_options(request, path), &mut out),
    };
    out.finish(written)?;
    Ok(exit::OK)
}

/// Sizes of a built tree or of a linked kernel, with the word for it.
///
/// # Errors
/// A branch without a source file, too.
pub(crate) fn sizes_of(path: &Path, branches: &[Branch]) -> anyhow::Result<(&'static str, StaticSizes)> {
    let (kind, sizes) = if std::fs::metadata(path).is_ok_and(|data| data.is_dir()) {
        ("tree", StaticSizes::of_tree(path)?)
    } else {
        ("vmlinux", StaticSizes::of_vmlinux(path)?)
    };
    let paths = || sizes.files().map(|(path, _)| path);
    if let Some(branch) = branches.iter().find(|branch| !paths().any(|path| branch.holds(path))) {
        let branch = branch.to_string();
        let like = like_folder(&branch, paths());
        anyhow::bail!("--branch {}: no source file of this kernel is there{like}", escape(branch.as_bytes()));
    }
    Ok((kind, sizes))
}

/// Makes a map of functions to source files.
pub(crate) fn names(request: &Request) -> anyhow::Result<u8> {
    let (args, inputs) = (&request.args, request.inputs());
    let kernel = StaticSizes::of_vmlinux(&inputs[0])?;
    let modules = inputs.get(1).map_or(Ok(ModuleSizes::default()), |folder| ModuleSizes::read(folder))?;
    let (files, count) = kernel.left_out();
    tell_left_out(files, count);
    tell_left_out(&modules.left_out, modules.left_out.len());
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = kmemtrace::write_map(&kernel, &modules.modules, &mut out);
    out.finish(written)?;
    Ok(exit::OK)
}

/// Tells which of the files and folders are left out, and how many.
fn tell_left_out(files: &[LeftOut], count: usize) {
    for LeftOut { path, why } in files.iter().take(TOLD) {
        say(&format!("{}: left out: {}", escape(path.as_os_str().as_encoded_bytes()), escape(why.as_bytes())));
    }
    if count > TOLD {
        say(&format!("{} more files and folders are left out", count - TOLD));
    }
}
