//! Files and folders that may be opened, and for what.

use std::path::{Path, PathBuf};

/// Purpose that a path may be opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reading a file, or all beneath a folder.
    Read,
    /// Listing a folder and those beneath it.
    List,
    /// Making, writing, replacing and removing files beneath a folder.
    Write,
    /// Writing to a device.
    Device,
}

/// Paths, each once for a purpose, in the order in which they were named.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<(Purpose, PathBuf)>,
}

impl Rules {
    pub(crate) fn read(&mut self, path: &Path) {
        self.add(Purpose::Read, path);
    }

    pub(crate) fn list(&mut self, path: &Path) {
        self.add(Purpose::List, path);
    }

    pub(crate) fn write(&mut self, path: &Path) {
        self.add(Purpose::Write, path);
    }

    pub(crate) fn device(&mut self, path: &Path) {
        self.add(Purpose::Device, path);
    }

    fn add(&mut self, purpose: Purpose, path: &Path) {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        if !self.rules.iter().any(|(of, there)| *of == purpose && there == path) {
            self.rules.push((purpose, path.to_owned()));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Purpose, &Path)> {
        self.rules.iter().map(|(purpose, path)| (*purpose, path.as_path()))
    }

    /// Paths that can be read, among them only those that are there.
    pub(crate) fn read_paths(&self) -> Vec<PathBuf> {
        self.paths(&[Purpose::Read])
    }

    /// Paths that can be written, among them only those that are there.
    pub(crate) fn written_paths(&self) -> Vec<PathBuf> {
        self.paths(&[Purpose::Write, Purpose::Device])
    }

    fn paths(&self, purposes: &[Purpose]) -> Vec<PathBuf> {
        let of = self.iter().filter(|(purpose, path)| purposes.contains(purpose) && path.exists());
        of.map(|(_, path)| path.to_owned()).collect()
    }
}
