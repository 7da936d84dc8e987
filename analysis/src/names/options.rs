//! Options of names: files of debug information, built trees, maps, wrappers.

use std::path::PathBuf;

use crate::names::areas::Areas;
use crate::names::frame_list::FrameList;
use crate::names::uses::Uses;
use crate::names::wrappers::Wrappers;

impl NameOptions {
    /// True where a file or a tree was named.
    pub(crate) fn has_files(&self) -> bool {
        self.vmlinux.is_some() || self.kernel_tree.is_some() || self.map.is_some()
    }

    /// True where symbols or modules come from a file.
    pub(crate) fn has_symbol_files(&self) -> bool {
        self.kallsyms.is_some() || self.proc_modules.is_some()
    }
}

/// Sources of names next to the trace. The default has none: names are the trace's symbols.
#[derive(Clone, Debug, Default)]
pub struct NameOptions {
    /// The kernel with debug information.
    pub vmlinux: Option<PathBuf>,
    /// Folders that are searched for debug information, before the system's.
    pub debug_dirs: Vec<PathBuf>,
    /// Searches the system's folders, too.
    pub searches: bool,
    /// A built tree of the kernel.
    pub kernel_tree: Option<PathBuf>,
    /// Map of functions to source files, from another build.
    pub map: Option<PathBuf>,
    /// Symbols in place of the trace's: a copy of `/proc/kallsyms` of the same boot, or the System.map of the same build.
    pub kallsyms: Option<PathBuf>,
    /// Modules in place of the trace's: a copy of `/proc/modules` of the same boot.
    pub proc_modules: Option<PathBuf>,
    /// Functions that allocate on behalf of their callers.
    pub wrappers: Wrappers,
    /// Areas of source files.
    pub areas: Areas,
    /// Functions between an allocation of pages and the code that asked for it.
    pub frames: FrameList,
    /// Rules for the use of pages.
    pub uses: Uses,
}
