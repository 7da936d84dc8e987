//! Source files of functions from the objects of a built tree, whose kernel has no debug information.

use std::path::Path;

use super::error::NamesError;
use super::function_files::FunctionFiles;
use super::image_sizes::StaticSizes;

/// Source files of the functions of a built tree.
#[derive(Debug, Default)]
pub(crate) struct ObjectNames {
    files: FunctionFiles,
}

impl ObjectNames {
    /// Reads the objects of a tree.
    pub(crate) fn read(tree: &Path) -> Result<ObjectNames, NamesError> {
        StaticSizes::of_tree(tree).map(|sizes| ObjectNames::of(&sizes))
    }

    /// Functions of a tree that was read for its sizes.
    pub(crate) fn of(sizes: &StaticSizes) -> ObjectNames {
        let mut files = FunctionFiles::default();
        let kernel = files.module(None);
        for (file, of_file) in sizes.files() {
            files.begin_file(file);
            of_file.functions.keys().for_each(|name| files.add(super::function_files::plain_function(name), kernel));
        }
        ObjectNames { files: files.finish() }
    }

    /// Source file of a function; `neighbours` are the names of functions around it, the nearest first: they decide where the name
    /// is in several files.
    pub(crate) fn file_of<'n, I: Iterator<Item = &'n [u8]>>(
        &self,
        function: &[u8],
        module: Option<&[u8]>,
        neighbours: impl FnOnce() -> I,
    ) -> Option<&[u8]> {
        // Objects do not tell their module: for one its neighbours must be in the same file.
        self.files.file_of(function, module, neighbours)
    }
}
