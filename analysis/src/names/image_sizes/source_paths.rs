//! Paths of compile units below the root of the kernel's sources.
//!
//! A unit names its source as the compiler was called: from the folder of the build, or from the root of the file system, and
//! assembler in another way than C.

use std::collections::HashMap;

/// Folders at the root of the kernel's sources.
const TOP: [&[u8]; 20] = [
    b"arch",
    b"block",
    b"certs",
    b"crypto",
    b"drivers",
    b"fs",
    b"init",
    b"io_uring",
    b"ipc",
    b"kernel",
    b"lib",
    b"mm",
    b"net",
    b"rust",
    b"samples",
    b"security",
    b"sound",
    b"usr",
    b"virt",
    b"debian",
];
/// Longest path that is looked at.
const MAX_PATH_BYTES: usize = 4096;

/// Path of a unit, as far as it is known by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnitPath {
    /// Path below the root.
    Known(Box<[u8]>),
    /// Path from the root of the file system.
    Absolute(Box<[u8]>),
}

impl UnitPath {
    /// Path of a unit from its name and the folder that the compiler ran in.
    pub(crate) fn of(name: &[u8], folder: &[u8]) -> UnitPath {
        // Rust names a crate's part after the path of its source.
        let name = memchr::memmem::find(name, b"/@/").map_or(name, |end| &name[..end]);
        let name = &name[..name.len().min(MAX_PATH_BYTES)];
        if name.starts_with(b"/") {
            return UnitPath::Absolute(plain(name));
        }
        let own = plain(name);
        if !own.starts_with(b"../") {
            return UnitPath::Known(own);
        }
        let folder = &folder[..folder.len().min(MAX_PATH_BYTES)];
        let path = plain(&[folder, b"/", name].concat());
        if path.starts_with(b"/") { UnitPath::Absolute(path) } else { UnitPath::Known(path) }
    }

    /// Name of the file without its folder.
    pub(crate) fn base_name(&self) -> &[u8] {
        let (UnitPath::Known(path) | UnitPath::Absolute(path)) = self;
        path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }
}

/// Root of the sources of paths from the root of the file system: what precedes a folder of the kernel's in most of them.
pub(crate) fn root<'p>(paths: impl Iterator<Item = &'p UnitPath>) -> Option<Box<[u8]>> {
    let mut votes: HashMap<&[u8], usize> = HashMap::new();
    for path in paths {
        let UnitPath::Absolute(path) = path else { continue };
        let slashes = memchr::memchr_iter(b'/', path);
        for at in slashes {
            let below = &path[at + 1..];
            let first = below.split(|&byte| byte == b'/').next().unwrap_or_default();
            if first.len() < below.len() && TOP.contains(&first) {
                *votes.entry(&path[..at]).or_default() += 1;
            }
        }
    }
    // Of folders with equal votes the innermost: `/home/lib/linux` and not `/home`.
    let best = votes.into_iter().max_by_key(|&(root, votes)| (votes, root.len(), root));
    best.map(|(root, _)| root.into())
}

/// Path below the root; `None` for a source elsewhere.
pub(crate) fn below<'p>(path: &'p UnitPath, root: Option<&[u8]>) -> Option<&'p [u8]> {
    match path {
        UnitPath::Known(path) => {
            (!path.is_empty() && !path.starts_with(b"..") && !path.starts_with(b"<")).then_some(path)
        }
        UnitPath::Absolute(path) => path.strip_prefix(root?)?.strip_prefix(b"/"),
    }
}

/// Path without `.`, `..` behind a folder, and double slashes.
fn plain(path: &[u8]) -> Box<[u8]> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let start: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    [start, &parts.join(&b'/')].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths below the root of all units together.
    fn all(units: &[(&str, &str)]) -> Vec<Option<String>> {
        let paths: Vec<UnitPath> =
            units.iter().map(|(name, folder)| UnitPath::of(name.as_bytes(), folder.as_bytes())).collect();
        let root = root(paths.iter());
        let text = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        paths.iter().map(|path| below(path, root.as_deref()).map(text)).collect()
    }

    #[test]
    fn units_are_below_the_root_of_the_sources_whichever_way_the_compiler_was_called() {
        // As Debian builds: C relative, assembler absolute.
        let debian = "debian/build/build_amd64";
        let whole = "/build/linux-6.1/debian/build/build_amd64";
        let units = [
            ("kernel/fork.c", debian),
            ("./init/main.c", debian),
            ("/build/linux-6.1/arch/x86/entry/entry.S", whole),
            ("/build/linux-6.1/arch/x86/lib/memcpy.S", whole),
            ("/usr/lib/gcc/crtstuff.c", "/usr"),
        ];
        let known = ["kernel/fork.c", "init/main.c", "arch/x86/entry/entry.S", "arch/x86/lib/memcpy.S"];
        let want: Vec<_> = known.iter().map(|path| Some((*path).to_owned())).chain([None]).collect();
        assert_eq!(all(&units), want);
        // A folder for the build within the sources, and one beside them; one file is made by the build.
        for (fork, main, folder) in [
            ("../kernel/fork.c", "../init/main.c", "/home/lib/linux/out"),
            ("/home/lib/linux/kernel/fork.c", "/home/lib/linux/init/main.c", "/home/out"),
        ] {
            let found = all(&[(fork, folder), (main, folder), ("lib/crc_table.c", folder)]);
            assert_eq!(found.iter().flatten().collect::<Vec<_>>(), ["kernel/fork.c", "init/main.c", "lib/crc_table.c"]);
        }
        assert_eq!(all(&[("rust/kernel/lib.rs/@/kernel.7bb5-cgu.0", "/b")]), [Some("rust/kernel/lib.rs".to_owned())]);
        assert_eq!(all(&[("../../x.c", "a"), ("<artificial>", "/b"), ("", "")]), [None, None, None]);
    }
}
