//! Static sizes: bytes of the kernel's functions and objects by source file, from a built tree or a linked image.

mod folders;
mod linked;
mod modules;
mod parts;
mod sizes;
mod symbols;
mod tree;
pub(crate) mod units;

use std::path::Path;

use linked::Linked;
pub use modules::ModuleSizes;
pub use parts::PartSizes;
pub use sizes::{FileSizes, LeftOut, StaticSizes};

use super::error::NamesError;

impl StaticSizes {
    /// Sizes of a built tree: its objects that have a source.
    ///
    /// # Errors
    /// [`NamesError`] if `path` is no folder that can be read, or has no such object.
    pub fn of_tree(path: &Path) -> Result<StaticSizes, NamesError> {
        tree::read(path)
    }

    /// Sizes of a linked kernel: its symbols by compile unit.
    ///
    /// # Errors
    /// [`NamesError`] if `path` is no ELF file that can be read, or has no symbols.
    pub fn of_vmlinux(path: &Path) -> Result<StaticSizes, NamesError> {
        linked::read(path, Linked::Kernel)
    }

    /// Sizes of a module with debug information: `NAME.ko` or `NAME.ko.debug`.
    ///
    /// # Errors
    /// [`NamesError`] if `path` is no ELF file that can be read, or has no symbols.
    pub fn of_module(path: &Path) -> Result<StaticSizes, NamesError> {
        linked::read(path, Linked::Module)
    }
}
