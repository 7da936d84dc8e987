//! Source files of functions from the objects of a built tree, whose kernel has no debug information.

use std::path::Path;

use super::error::NamesError;
use super::function_files::{FunctionFiles, plain_function};
use super::image_sizes::StaticSizes;
use super::work::Work;

/// Source files of the functions of a built tree. Objects do not tell their module: for a function of one its neighbours must be in the
/// same file.
pub(crate) fn read(tree: &Path) -> Result<FunctionFiles, NamesError> {
    StaticSizes::of_tree(tree).map(|sizes| files(&sizes))
}

/// Source files of functions in a tree that was read for its sizes.
fn files(sizes: &StaticSizes) -> FunctionFiles {
    let mut files = FunctionFiles::default();
    let kernel = files.module(None);
    for (file, of_file) in sizes.files() {
        files.begin_file(file);
        of_file.functions.keys().for_each(|name| files.add(plain_function(name), kernel));
    }
    let work = Work::of(files.text_len());
    files.finish(work)
}
