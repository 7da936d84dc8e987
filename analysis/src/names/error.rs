//! Reasons for which a source of names cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use kmemtrace_abi::memory::OverLimit;
use kmemtrace_abi::text::escape::escape;

/// Reason for which a file or a tree that was named gives no names or sizes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamesError {
    /// The file system refuses it.
    #[error("{}: {error}", shown(.path))]
    Read {
        /// File or folder.
        path: PathBuf,
        /// Reason of the system.
        error: io::Error,
    },
    /// File or folder of another kind than was asked for, or a damaged one.
    #[error("{}: {why}", shown(.path))]
    Unusable {
        /// File or folder.
        path: PathBuf,
        /// Reason and remedy, in one line.
        why: String,
    },
}

impl NamesError {
    /// Refusal by the file system.
    #[cfg(feature = "dwarf")]
    pub(crate) fn read(path: &Path, error: io::Error) -> NamesError {
        NamesError::Read { path: path.to_owned(), error }
    }

    /// Why, without the file's name.
    #[cfg(feature = "dwarf")]
    pub(crate) fn reason(&self) -> String {
        match self {
            NamesError::Read { error, .. } => error.to_string(),
            NamesError::Unusable { why, .. } => why.clone(),
        }
    }

    /// The limit of memory that a file is over; any other error as it is.
    pub(crate) fn into_over_limit(self) -> Result<OverLimit, NamesError> {
        let over = match &self {
            NamesError::Read { error, .. } => error.get_ref().and_then(|inner| inner.downcast_ref().copied()),
            NamesError::Unusable { .. } => None,
        };
        over.ok_or(self)
    }

    /// File or folder that is no use.
    pub(crate) fn unusable(path: &Path, why: impl Into<String>) -> NamesError {
        NamesError::Unusable { path: path.to_owned(), why: why.into() }
    }
}

/// Path, escaped for a terminal.
fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes()).into_owned()
}
