//! The seam for inputs that this crate does not read: an [`EventSource`] for each CPU.

use std::fmt::Debug;
use std::path::Path;

use super::state::StreamState;
use crate::disk::blocks::Ending;
use crate::event::{EventSink, GapCause, Names, StreamItem};
use crate::fault::{Fault, Verdict};

/// Decoded events and gaps of one CPU, from an input of another format.
///
/// [`CpuStream::of_source`](crate::stream::CpuStream::of_source) makes a stream of it, which merges and pairs as any other.
pub trait EventSource: Debug + Send {
    /// The CPU. Two sources of one trace have different ones.
    fn cpu(&self) -> u32;

    /// The file, for messages.
    fn path(&self) -> &Path;

    /// Appends the next events and gaps to `items`, in the order of the stream; a gap stands before the first event after it.
    /// At most a few thousand at once, and none only at the end. Names of events and caches are interned in `names`, which differs
    /// from thread to thread: a `NameId` is valid within one call. The same holds for call stacks in `names.stacks`, whose `StackId`
    /// an event carries. Times that go back are told as a finding (K401), and the events
    /// take the time before them.
    ///
    /// # Errors
    /// The finding that ends the stream: nothing behind it is read, and the rest counts as a gap.
    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault>;

    /// Bytes read so far.
    fn bytes_read(&self) -> u64 {
        0
    }

    /// Bytes to read in all, about.
    fn bytes_to_read(&self) -> u64 {
        self.bytes_read()
    }
}

/// Hands on the items that a source has read. An event whose time is before its predecessor's takes that one's time.
pub(super) fn hand_over(
    state: &mut StreamState,
    read: &mut Vec<StreamItem>,
    names: &Names,
    items: &mut impl EventSink,
) {
    for item in read.drain(..) {
        match item {
            StreamItem::Event(mut event) => {
                event.at = state.key(event.at, 0);
                event.cpu = state.cpu;
                state.report.stacks += u64::from(event.stack.is_some());
                state.push(items, event, names);
            }
            StreamItem::Gap(mut gap) => {
                gap.cpu = state.cpu;
                state.report.lost = state.report.lost.zip(gap.lost).map(|(sum, lost)| sum.saturating_add(lost));
                state.push_gap(items, gap);
            }
        }
    }
}

impl StreamState {
    /// Ends a source: completes the report, and hands over the gap behind a cut or damage.
    pub(super) fn finish_source(&mut self, ending: Ending, items: &mut impl EventSink) {
        self.report.last = self.last;
        let cause = match ending {
            Ending::Whole => None,
            Ending::Cut => Some(GapCause::Cut),
            Ending::Damaged => Some(GapCause::Damage),
        };
        if cause.is_some() {
            self.report.lost = None;
            self.gap(items, cause, None);
        }
        if self.report.lost.is_none_or(|lost| lost > 0) {
            self.report.verdict = self.report.verdict.max(Verdict::Lossy);
        }
    }
}
