//! What an analysis tells its caller while it runs: how far it is, and notes.

use std::fmt::{self, Arguments};
use std::sync::Arc;

/// Progress of an analysis. The caller shows it; the library prints nothing.
pub trait Progress {
    /// True where it is time to call [`Progress::show`] again. Asked often: it must be quick.
    fn is_due(&self) -> bool;

    /// Takes the state: bytes read, bytes to read in all (about), and events taken where they are counted.
    fn show(&mut self, bytes_read: u64, bytes_to_read: u64, events: Option<u64>);

    /// The pass has ended: whatever was shown can go.
    fn clear(&mut self) {}
}

/// Progress that is not shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn is_due(&self) -> bool {
        false
    }

    fn show(&mut self, _: u64, _: u64, _: Option<u64>) {}
}

/// Takes notes of what became of the cache and how long the stages took, a sentence each. Without a function notes are dropped.
#[derive(Clone, Default)]
pub struct Notes(Option<Arc<TakeNote>>);

type TakeNote = dyn Fn(&str) + Send + Sync;

impl Notes {
    /// Hands each note to `take`.
    pub fn to(take: impl Fn(&str) + Send + Sync + 'static) -> Notes {
        Notes(Some(Arc::new(take)))
    }

    pub(crate) fn note(&self, text: Arguments<'_>) {
        if let Some(take) = &self.0 {
            take(&text.to_string());
        }
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notes").field(&self.0.is_some()).finish()
    }
}
