//! Reports of an analysis to its caller while it runs: progress, and notes.

use std::fmt::{self, Arguments};
use std::sync::Arc;

/// Receiver of an analysis's progress. The caller shows it; the library prints nothing.
pub trait Progress {
    /// A pass over the trace begins: bytes and events are counted from 0.
    fn begin(&mut self) {}

    /// True when [`Progress::show`] should be called again. The engine asks after each task, so the call must be quick.
    fn is_due(&self) -> bool;

    /// Shows the state: bytes read, bytes to read in all (about), and number of events, if they are counted.
    fn show(&mut self, bytes_read: u64, bytes_to_read: u64, events: Option<u64>);

    /// Removes the progress shown: the pass has ended.
    fn clear(&mut self) {}
}

/// Progress that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn is_due(&self) -> bool {
        false
    }

    fn show(&mut self, _: u64, _: u64, _: Option<u64>) {}
}

/// Receiver of notes on the cache and on the times of the stages, a sentence each. [`Notes::default`] drops them.
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
