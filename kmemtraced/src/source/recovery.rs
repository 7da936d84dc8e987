//! What `recover` has undone, what it could not look at or undo, and what it leaves.

use std::path::PathBuf;

use crate::fs::kernelfs::KernelFs;

/// Outcome of a look at everything that a killed recorder may have left. An error ends no look at the rest.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// What was undone, a text each.
    pub(crate) undone: Vec<String>,
    /// Instance of the asked name that another program made.
    pub(crate) foreign: Option<PathBuf>,
    /// What could not be looked at or undone, with its reason.
    pub(crate) failed: Vec<anyhow::Error>,
}

impl Recovery {
    /// Adds one look: what was undone, if anything was to be.
    pub(crate) fn add(&mut self, undone: anyhow::Result<Option<String>>) {
        match undone {
            Ok(undone) => self.undone.extend(undone),
            Err(error) => self.failed.push(error),
        }
    }

    /// Names of all instances; none where they cannot be listed.
    pub(crate) fn names_of_instances(&mut self, tracefs: &KernelFs) -> Vec<String> {
        tracefs.names("instances").unwrap_or_else(|error| {
            self.failed.push(error);
            Vec::new()
        })
    }
}
