//! Files and folders that may be opened, and for what.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Purpose that a path may be opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading a file, or all beneath a folder.
    Read,
    /// Listing a folder and those beneath it.
    List,
    /// Making, writing, replacing and removing files beneath a folder.
    Write,
    /// Reading files beneath a folder, and writing to those that are there: control files of the kernel.
    Control,
    /// Giving folders in a folder other names, and removing them with the files in them.
    Replace,
    /// Removing empty folders in a folder.
    RemoveFolders,
    /// Writing to a device.
    Device,
}

/// A file or folder, and what it may be opened for.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) purpose: Purpose,
    /// Path, for people where the folder is held.
    pub(crate) path: PathBuf,
    /// The folder itself, where its path need not lead to it.
    pub(crate) held: Option<OwnedFd>,
}

/// Paths, each once for a purpose, in the order in which they were named.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Adds a path. An empty one is the working directory.
    pub(crate) fn add(&mut self, purpose: Purpose, path: &Path) {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        if !self.rules.iter().any(|rule| rule.purpose == purpose && rule.path == path) {
            self.rules.push(Rule { purpose, path: path.to_owned(), held: None });
        }
    }

    /// Adds a folder that is held.
    pub(crate) fn add_held(&mut self, purpose: Purpose, held: OwnedFd, shown: &Path) {
        self.rules.push(Rule { purpose, path: shown.to_owned(), held: Some(held) });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Paths for these purposes, among them only those that are there.
    pub(crate) fn paths(&self, purposes: &[Purpose]) -> Vec<PathBuf> {
        let is_there = |rule: &&Rule| rule.held.is_some() || rule.path.exists();
        let of = self.iter().filter(|rule| purposes.contains(&rule.purpose)).filter(is_there);
        of.map(|rule| rule.path.clone()).collect()
    }
}
