//! Places where debug information may be: folders of distributions, built trees, debuginfod's cache. Never the network.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use kmemtrace_abi::open::regular;

use super::check::hex;
use crate::names::module_info::ModuleInfo;
use crate::names::options::NameOptions;

/// Largest depth of folders below a kernel's modules.
const MAX_DEPTH: usize = 24;
/// Largest number of entries that are looked at below a kernel's modules. Distributions have some 7,000.
const MAX_ENTRIES: usize = 1 << 20;
/// Largest size of a `modules.order` that is read. Distributions have some 300 KB.
const MAX_ORDER_BYTES: u64 = 16 << 20;
/// Ends of file names: as they are, as separate debug files, and packed.
const SUFFIXES: [&str; 8] = ["", ".debug", ".gz", ".xz", ".zst", ".debug.gz", ".debug.xz", ".debug.zst"];

/// Folder of all kernels' modules.
pub const MODULES: &str = "/lib/modules";
/// Debug information that distributions install.
const INSTALLED: &str = "/usr/lib/debug";

/// Folders of the system that are searched for debug information unasked, besides [`MODULES`]: what is installed, and debuginfod's cache.
pub fn debug_folders() -> Vec<PathBuf> {
    iter::once(INSTALLED.into()).chain(cache()).collect()
}

/// Cache of debuginfod.
fn cache() -> Option<PathBuf> {
    // An empty value would be the working directory.
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("DEBUGINFOD_CACHE_PATH").or_else(|| Some(folder("HOME")?.join(".cache/debuginfod_client")))
}

/// Folders that are searched, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Folders {
    /// Folders laid out as `/usr/lib/debug`.
    pub(super) debug: Vec<PathBuf>,
    /// Folder of all kernels' modules: `/lib/modules`.
    pub(super) modules: Option<PathBuf>,
    /// A built tree of the kernel.
    pub(super) tree: Option<PathBuf>,
    /// Cache of debuginfod.
    pub(super) cache: Option<PathBuf>,
}

impl Folders {
    /// Folders of the options, and the system's if these are searched.
    pub(super) fn of(options: &NameOptions) -> Folders {
        let mut folders =
            Folders { debug: options.debug_dirs.clone(), tree: options.kernel_tree.clone(), ..Folders::default() };
        if options.searches {
            folders.debug.push(INSTALLED.into());
            folders.modules = Some(MODULES.into());
            folders.cache = cache();
        }
        folders
    }

    /// Files that may be the kernel's, best first.
    pub(super) fn kernels(&self, release: Option<&str>, build_id: Option<&[u8]>) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for folder in &self.debug {
            files.extend(build_id.and_then(|id| by_build_id(folder, id)));
            if let Some(release) = release {
                for suffix in SUFFIXES {
                    files.push(folder.join(format!("boot/vmlinux-{release}{suffix}")));
                }
                for modules in ["lib/modules", "usr/lib/modules"] {
                    for suffix in SUFFIXES {
                        files.push(folder.join(modules).join(release).join(format!("vmlinux{suffix}")));
                    }
                }
            }
        }
        if let Some((modules, release)) = self.modules.as_ref().zip(release) {
            files.push(modules.join(release).join("build/vmlinux"));
        }
        files.extend(self.cached(build_id));
        files.retain(|file| file.exists());
        files
    }

    /// Files that may be a module's, best first. `name` has `_` for `-`, as the kernel has it.
    pub(super) fn modules(
        &self,
        name: &[u8],
        info: Option<&ModuleInfo>,
        release: Option<&str>,
        listed: &mut Listed,
    ) -> Vec<PathBuf> {
        let build_id = info.and_then(|info| info.build_id.as_deref());
        let path = info.and_then(|info| below(info.path.as_deref()?));
        let mut files = Vec::new();
        let mut roots: Vec<PathBuf> = Vec::new();
        for folder in &self.debug {
            files.extend(build_id.and_then(|id| by_build_id(folder, id)));
            if let Some(release) = release {
                roots.push(folder.join("lib/modules").join(release));
                roots.push(folder.join("usr/lib/modules").join(release));
            }
        }
        if let Some((modules, release)) = self.modules.as_ref().zip(release) {
            roots.push(modules.join(release));
        }
        for root in roots {
            let by_path = path.iter().flat_map(|path| with_suffixes(&root.join("kernel").join(path)));
            let before = files.len();
            files.extend(by_path.filter(|file| file.exists()));
            if files.len() == before {
                files.extend(listed.below(&root).get(name).into_iter().flatten().cloned());
            }
        }
        let build = self.modules.as_ref().zip(release).map(|(modules, release)| modules.join(release).join("build"));
        for tree in self.tree.iter().cloned().chain(build) {
            let in_tree = path.clone().or_else(|| listed.of_tree(&tree).get(name)?.first().cloned());
            files.extend(in_tree.map(|path| with_end(&tree.join(path), ".ko")));
        }
        files.extend(self.cached(build_id));
        files.retain(|file| file.exists());
        files
    }

    fn cached(&self, build_id: Option<&[u8]>) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join(hex(build_id?)).join("debuginfo"))
    }
}

/// Release as a part of a path; `None` for one that would lead elsewhere.
pub(super) fn as_folder(release: &str) -> Option<&str> {
    let is_plain = !release.is_empty() && !release.contains(['/', '\0']) && !matches!(release, "." | "..");
    is_plain.then_some(release)
}

fn by_build_id(folder: &Path, id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    Some(folder.join(format!(".build-id/{first:02x}/{}.debug", hex(rest))))
}

/// A module's path of the trace, unless it would lead elsewhere.
fn below(path: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path));
    path.components().all(|part| matches!(part, Component::Normal(_))).then(|| path.to_owned())
}

fn with_suffixes(path: &Path) -> Vec<PathBuf> {
    SUFFIXES.iter().map(|suffix| with_end(path, &format!(".ko{suffix}"))).collect()
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

type ByName = HashMap<Vec<u8>, Vec<PathBuf>>;

/// Files of modules by name, listed once for each folder.
#[derive(Debug, Default)]
pub(super) struct Listed {
    folders: HashMap<PathBuf, ByName>,
    trees: HashMap<PathBuf, ByName>,
}

impl Listed {
    /// Modules' files in and below a folder. Links to folders are not followed: they would leave the kernel's modules, or run in circles.
    fn below(&mut self, folder: &Path) -> &ByName {
        self.folders.entry(folder.to_owned()).or_insert_with(|| {
            let (mut files, mut seen) = (ByName::new(), 0);
            list(folder, 0, &mut seen, &mut files);
            for paths in files.values_mut() {
                paths.sort();
            }
            files
        })
    }

    /// Paths of a built tree's modules without suffix, relative to it, of its `modules.order`.
    fn of_tree(&mut self, tree: &Path) -> &ByName {
        self.trees.entry(tree.to_owned()).or_insert_with(|| {
            let order = read_order(&tree.join("modules.order")).unwrap_or_default();
            let mut files = ByName::new();
            for line in order.split(|&byte| byte == b'\n') {
                let line = line.strip_prefix(b"kernel/").unwrap_or(line);
                let path = line.strip_suffix(b".ko").or_else(|| line.strip_suffix(b".o"));
                if let Some((path, name)) = path.and_then(below).zip(module_of(line)) {
                    files.entry(name).or_default().push(path);
                }
            }
            files
        })
    }
}

/// Text of a tree's `modules.order`; `None` where it is no stored file.
fn read_order(path: &Path) -> Option<Vec<u8>> {
    let mut order = Vec::new();
    regular::open(path).ok()?.take(MAX_ORDER_BYTES).read_to_end(&mut order).ok()?;
    Some(order)
}

fn list(folder: &Path, depth: usize, seen: &mut usize, files: &mut ByName) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        *seen = seen.saturating_add(1);
        if *seen > MAX_ENTRIES {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => list(&entry.path(), depth.saturating_add(1), seen, files),
            Ok(_) => {
                let name: OsString = entry.file_name();
                if let Some(module) = module_of(&name.into_vec()) {
                    files.entry(module).or_default().push(entry.path());
                }
            }
            Err(_) => {}
        }
    }
}

/// Name of the module in a file `dir/NAME.ko…`, with `_` for `-`.
fn module_of(path: &[u8]) -> Option<Vec<u8>> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let at = name.windows(3).position(|end| end == b".ko").or_else(|| Some(name.strip_suffix(b".o")?.len()))?;
    let (name, end) = name.split_at_checked(at)?;
    let is_known = end == b".o" || SUFFIXES.iter().any(|suffix| end.strip_prefix(b".ko") == Some(suffix.as_bytes()));
    let name: Vec<u8> = name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte }).collect();
    (is_known && !name.is_empty()).then_some(name)
}
