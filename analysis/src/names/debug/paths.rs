//! Paths of source files, relative to the root of the kernel's sources.

/// Largest length of a path, in bytes, as the kernel's own limit.
const MAX_PATH: usize = 4096;
/// Largest number of folders that are tried as the root.
const MAX_ROOTS: usize = 16;
/// Sources that every kernel has: the root is what precedes them.
const LANDMARKS: [&[u8]; 2] = [b"kernel/fork.c", b"init/main.c"];

/// Folders in which the kernel was built. Compilers are given relative paths, assemblers absolute ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roots {
    /// Folders before a landmark.
    landmarks: Vec<Vec<u8>>,
    /// Folders of compilation.
    folders: Vec<Vec<u8>>,
}

impl Roots {
    /// Takes a unit's source and folder of compilation into account.
    pub(crate) fn add_unit(&mut self, name: &[u8], folder: &[u8]) {
        if name.len() > MAX_PATH || folder.len() > MAX_PATH {
            return;
        }
        if LANDMARKS.iter().any(|landmark| name.ends_with(landmark)) {
            let path = join(folder, name);
            for landmark in LANDMARKS {
                if let Some(root) = path.strip_suffix(landmark) {
                    keep(&mut self.landmarks, root.strip_suffix(b"/").unwrap_or(root));
                }
            }
        }
        if !folder.is_empty() {
            keep(&mut self.folders, &normal(folder));
        }
    }

    /// Adds the roots of the kernel that a module belongs to.
    pub(crate) fn add_kernel(&mut self, kernel: &Roots) {
        for root in &kernel.landmarks {
            keep(&mut self.landmarks, root);
        }
        for folder in &kernel.folders {
            keep(&mut self.folders, folder);
        }
    }

    /// The path of a file of a unit, relative to the root where it is below it.
    pub(crate) fn relative(&self, folder: &[u8], path: &[u8]) -> Vec<u8> {
        let path = join(folder, path);
        let mut best: &[u8] = &path;
        for root in self.landmarks.iter().chain(&self.folders) {
            if let Some(rest) = below(&path, root)
                && rest.len() < best.len()
            {
                best = rest;
            }
            // The assembler's absolute folder ends in the compiler's relative one: what precedes it is the root, too.
            for folder in &self.folders {
                if let Some(before) = folder.strip_suffix(&root[..]).and_then(|before| before.strip_suffix(b"/"))
                    && let Some(rest) = below(&path, before)
                    && rest.len() < best.len()
                    && !before.is_empty()
                {
                    best = rest;
                }
            }
        }
        best.to_vec()
    }
}

fn keep(list: &mut Vec<Vec<u8>>, folder: &[u8]) {
    if list.len() < MAX_ROOTS && !list.iter().any(|kept| kept == folder) {
        list.push(folder.to_vec());
    }
}

/// The rest of a path below a folder; the empty folder holds every relative path.
fn below<'a>(path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    if folder.is_empty() {
        return None;
    }
    path.strip_prefix(folder)?.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

/// A path in a folder, without `.` and `..`.
fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") || folder.is_empty() { normal(path) } else { normal(&[folder, b"/", path].concat()) }
}

/// A path without `.`, `..` and doubled slashes, as far as it can be told from the text.
fn normal(path: &[u8]) -> Vec<u8> {
    let is_absolute = path.starts_with(b"/");
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|&last| last != b"..") => {
                parts.pop();
            }
            b".." if is_absolute => {}
            _ => parts.push(part),
        }
    }
    let mut normal = if is_absolute { b"/".to_vec() } else { Vec::new() };
    normal.extend(parts.join(&b'/'));
    normal
}

/// A path of a unit's file from its parts; `None` for one that no file system has.
pub(crate) fn of_parts(folder: Option<&[u8]>, name: &[u8]) -> Option<Vec<u8>> {
    let folder = folder.unwrap_or_default();
    if folder.len().saturating_add(name.len()) >= MAX_PATH || name.is_empty() {
        return None;
    }
    Some(if folder.is_empty() || name.starts_with(b"/") { name.to_vec() } else { [folder, b"/", name].concat() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(units: &[(&str, &str)], folder: &str, path: &str) -> String {
        let mut roots = Roots::default();
        for (name, folder) in units {
            roots.add_unit(name.as_bytes(), folder.as_bytes());
        }
        String::from_utf8(roots.relative(folder.as_bytes(), path.as_bytes())).unwrap()
    }

    #[test]
    fn paths_are_relative_to_the_sources() {
        // Debian: relative folders for C, absolute ones for assembler.
        let debian = [
            ("/build/linux-6.1/arch/x86/kernel/head_64.S", "/build/linux-6.1/debian/build/amd64"),
            ("init/main.c", "debian/build/amd64"),
            ("kernel/fork.c", "debian/build/amd64"),
        ];
        let c = |path| relative(&debian, "debian/build/amd64", path);
        assert_eq!(c("fs/inode.c"), "fs/inode.c");
        assert_eq!(c("./include/../fs//ext4/./inode.c"), "fs/ext4/inode.c");
        assert_eq!(c("/build/linux-6.1/arch/x86/kernel/head_64.S"), "arch/x86/kernel/head_64.S");
        assert_eq!(c("/build/linux-6.1/debian/build/amd64/include/generated/a.h"), "include/generated/a.h");
        assert_eq!(c("/usr/lib/gcc/include/stdarg.h"), "/usr/lib/gcc/include/stdarg.h");
        // A build in the tree, and one beside it.
        let tree = [("kernel/fork.c", "/home/me/linux")];
        assert_eq!(relative(&tree, "/home/me/linux", "mm/slub.c"), "mm/slub.c");
        let beside = [("/src/linux/kernel/fork.c", "/obj")];
        assert_eq!(relative(&beside, "/obj", "/src/linux/mm/slub.c"), "mm/slub.c");
        assert_eq!(relative(&beside, "/obj", "include/generated/a.h"), "include/generated/a.h");
        let above = [("../linux/kernel/fork.c", "/src/obj")];
        assert_eq!(relative(&above, "/src/obj", "../linux/mm/slub.c"), "mm/slub.c");
        // A module of its own.
        assert_eq!(relative(&tree, "/home/me/linux", "/home/me/driver/a.c"), "/home/me/driver/a.c");
        assert_eq!(relative(&[], "", "kernel/fork.c"), "kernel/fork.c");
    }
}
