//! File systems that are mounted, from `/proc/mounts`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mounted file system, as a line of `/proc/mounts` has it (`fs/proc_namespace.c`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) dir: PathBuf,
    /// Name of the file system: `tracefs`, `cgroup2`.
    pub(crate) kind: String,
    options: String,
}

impl Mounted {
    /// True if the mount has this option.
    pub(crate) fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// Mounted file systems, in the order of their mounts; none without proc.
pub(crate) fn all() -> Vec<Mounted> {
    of_text(&std::fs::read("/proc/mounts").unwrap_or_default())
}

fn of_text(text: &[u8]) -> Vec<Mounted> {
    let lines = text.split(|&b| b == b'\n').filter_map(|line| {
        let mut words = line.split(|&b| b == b' ');
        let (_, dir, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        Some(Mounted { dir: OsString::from_vec(unescaped(dir)).into(), kind: text(kind), options: text(options) })
    });
    lines.collect()
}

/// A path with the bytes that the kernel writes as `\040`: blank, tab, newline, backslash, `#`.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_odd_paths() {
        let text = b"none /sys/fs/cgroup/a\\040b\\134 cgroup rw,memory 0 0\nshort line\ncgroup2 /c\\9 cgroup2 rw 0 0\n";
        let found = of_text(text);
        let dirs: Vec<_> = found.iter().map(|mounted| mounted.dir.display().to_string()).collect();
        assert_eq!(dirs, ["/sys/fs/cgroup/a b\\", "/c\\9"]);
        assert!(found[0].has_option("memory") && !found[0].has_option("mem") && found[1].kind == "cgroup2");
    }
}
