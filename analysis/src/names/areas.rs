//! Areas of the kernel: names for patterns of source files, as the kernel's `MAINTAINERS` has them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::names::work::{Spent, Work};
use kmemtrace_abi::text::glob::Glob;

/// Areas and their patterns.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    names: Vec<Box<str>>,
    patterns: Vec<Pattern>,
    /// Work that is left for questions.
    work: Arc<Mutex<Work>>,
}

/// Pattern of an area: files that belong to it, or that do not.
#[derive(Clone, Debug)]
struct Pattern {
    area: usize,
    glob: Glob,
    /// Path components; the deepest pattern that matches a file names its area.
    depth: usize,
    /// Number of `/` in a file's path, where the pattern's `*` takes none.
    slashes: Option<usize>,
    excludes: bool,
}

/// Limit of patterns: the kernel's file has 9,000.
const MAX_PATTERNS: usize = 1 << 17;

impl Areas {
    /// Areas from a text: the kernel's `MAINTAINERS` (`F:` and `X:` lines under a title), or lines `AREA<TAB>GLOB`.
    ///
    /// In `MAINTAINERS` a pattern that ends with `/` takes all files below the folder, and `*` takes no `/`. In lines of one's own
    /// `*` takes any bytes.
    pub fn parse(text: &str) -> Areas {
        let work = Arc::new(Mutex::new(Work::of(text.len() as u64)));
        let mut areas = Areas { work, ..Areas::default() };
        if text.lines().any(|line| line.starts_with("F:\t")) {
            areas.add_maintainers(text);
        } else {
            let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t'));
            lines.for_each(|(name, glob)| areas.add(name.trim(), glob.trim(), None, false));
        }
        areas
    }

    fn add_maintainers(&mut self, text: &str) {
        let mut title = None;
        for line in text.lines() {
            match line.split_once(":\t") {
                Some((tag @ ("F" | "X"), glob)) => {
                    let glob = glob.trim();
                    let is_folder = glob.ends_with('/');
                    let slashes = (!is_folder).then(|| glob.bytes().filter(|byte| *byte == b'/').count());
                    let glob = if is_folder { format!("{glob}*") } else { glob.to_owned() };
                    title.into_iter().for_each(|title| self.add(title, &glob, slashes, tag == "X"));
                }
                Some((tag, _)) if tag.len() == 1 => {}
                _ if line.trim().is_empty() => title = None,
                _ => title = title.or(Some(line.trim())),
            }
        }
    }

    fn add(&mut self, name: &str, glob: &str, slashes: Option<usize>, excludes: bool) {
        if self.patterns.len() >= MAX_PATTERNS || glob.is_empty() || name.is_empty() {
            return;
        }
        if self.names.last().is_none_or(|last| **last != *name) {
            self.names.push(name.into());
        }
        let depth = glob.split('/').filter(|part| !part.is_empty() && *part != "*").count();
        let area = self.names.len().saturating_sub(1);
        self.patterns.push(Pattern { area, glob: Glob::new(glob), depth, slashes, excludes });
    }

    /// True without any pattern.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Area of a source file, as `fs/ext4/inode.c`: that of the deepest pattern, of equal ones the first.
    pub fn of_file(&self, file: &[u8]) -> Option<&str> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(file, &mut work).ok()?
    }

    /// The reason for which files have no areas any more.
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).spent()
    }

    fn find(&self, file: &[u8], work: &mut Work) -> Result<Option<&str>, Spent> {
        work.look_at(self.patterns.len().saturating_mul(8))?;
        let mut compared = 0;
        let slashes = file.iter().filter(|byte| **byte == b'/').count();
        let takes = |pattern: &&Pattern| {
            pattern.slashes.is_none_or(|own| own == slashes) && pattern.glob.matches_in(file, &mut compared)
        };
        let matching: Vec<&Pattern> = self.patterns.iter().filter(takes).collect();
        work.look_at(compared.saturating_mul(8))?;
        let excluded: HashSet<usize> =
            matching.iter().filter(|pattern| pattern.excludes).map(|pattern| pattern.area).collect();
        let mut best: Option<&Pattern> = None;
        for pattern in matching.iter().filter(|pattern| !pattern.excludes && !excluded.contains(&pattern.area)) {
            if best.is_none_or(|best| pattern.depth > best.depth) {
                best = Some(pattern);
            }
        }
        Ok(best.and_then(|pattern| self.names.get(pattern.area)).map(|name| &**name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAINTAINERS: &str = "List of maintainers\n===\n\nEXT4 FILE SYSTEM\nM:\tA <a@b>\nF:\tfs/ext4/\n\n\
        FILESYSTEMS (VFS)\nF:\tfs/*\nF:\tfs/iomap/\nX:\tfs/io*.c\n\nTHE REST\nF:\t*\nF:\t*/\n";

    #[test]
    fn the_deepest_pattern_names_the_area() {
        let areas = Areas::parse(MAINTAINERS);
        for (file, want) in [
            ("fs/ext4/inode.c", "EXT4 FILE SYSTEM"),
            ("fs/inode.c", "FILESYSTEMS (VFS)"),
            ("fs/ioctl.c", "THE REST"),
            ("fs/iomap/buffered-io.c", "FILESYSTEMS (VFS)"),
            ("fs/xfs/xfs_inode.c", "THE REST"),
            ("Makefile", "THE REST"),
        ] {
            assert_eq!(areas.of_file(file.as_bytes()), Some(want), "{file}");
        }
    }

    #[test]
    fn lines_of_ones_own_name_areas_too() {
        let areas = Areas::parse("# mine\nstorage\tfs/*\nstorage\tblock/*\nnet\tnet/*\nno tab\n\t\n");
        let area = |file: &str| areas.of_file(file.as_bytes()).map(str::to_owned);
        assert_eq!(area("fs/ext4/inode.c").as_deref(), Some("storage"));
        assert_eq!((area("net/core/skbuff.c").as_deref(), area("mm/slub.c")), (Some("net"), None));
        assert!(Areas::parse("").is_empty() && !areas.is_empty());
    }
}
