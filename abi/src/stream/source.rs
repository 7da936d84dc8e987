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

    /// True for a source with the events of several CPUs, which is in the total order already: each item has its own CPU.
    fn has_several_cpus(&self) -> bool {
        false
    }

    /// False where no event has a call stack.
    fn may_have_stacks(&self) -> bool {
        true
    }

    /// Facts that are known at the end; asked for once.
    fn end(&mut self) -> SourceEnd {
        SourceEnd::default()
    }

    /// Bytes read so far.
    fn bytes_read(&self) -> u64 {
        0
    }

    /// Bytes to read in all, about.
    fn bytes_to_read(&self) -> u64 {
        self.bytes_read()
    }
}

/// Facts of a source that has been read to its end.
#[derive(Clone, Debug, Default)]
pub struct SourceEnd {
    /// Number of events lost.
    pub lost: Lost,
    /// Findings that did not end the stream.
    pub faults: Vec<Fault>,
    /// Stacks that belong to no event.
    pub stacks_unmatched: u64,
}

/// Number of events that a source has lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lost {
    /// The sum over its gaps; not known after a cut.
    #[default]
    OfGaps,
    /// A number, or `None` where the source does not tell it.
    Told(Option<u64>),
}

/// Hands on the items that a source has read; `has_cpus`: they have their own CPUs. An event whose time is before its predecessor's takes that one's time.
pub(super) fn hand_over(
    state: &mut StreamState,
    has_cpus: bool,
    read: &mut Vec<StreamItem>,
    names: &Names,
    items: &mut impl EventSink,
) {
    // In place: an event has many fields, of which a consumer takes few.
    for item in read.iter_mut() {
        match item {
            StreamItem::Event(event) => {
                event.at = state.key(event.at, 0);
                if !has_cpus {
                    event.cpu = state.cpu;
                }
                if names.is_unknown(event.name) {
                    state.report.unknown.count(names.get(event.name));
                }
                state.report.stacks = state.report.stacks.saturating_add(event.stack.is_some().into());
                state.push(items, event, names);
            }
            StreamItem::Gap(gap) => {
                if !has_cpus {
                    gap.cpu = state.cpu;
                }
                state.report.lost = state.report.lost.zip(gap.lost).map(|(sum, lost)| sum.saturating_add(lost));
                state.push_gap(items, *gap);
            }
        }
    }
    read.clear();
}

impl StreamState {
    /// Ends a source: completes the report, and hands over the gap behind a cut or damage.
    pub(super) fn finish_source(&mut self, ending: Ending, end: SourceEnd, items: &mut impl EventSink) {
        self.report.last = self.last;
        end.faults.into_iter().for_each(|fault| self.report.add(fault));
        self.report.stacks_unmatched = self.report.stacks_unmatched.saturating_add(end.stacks_unmatched);
        let cause = match ending {
            Ending::Whole => None,
            Ending::Cut => Some(GapCause::Cut),
            Ending::Damaged => Some(GapCause::Damage),
        };
        if cause.is_some() {
            self.report.lost = None;
            self.gap(items, cause, None);
        }
        if let Lost::Told(lost) = end.lost {
            self.report.lost = lost;
        }
        if self.report.lost.is_none_or(|lost| lost > 0) {
            self.report.verdict = self.report.verdict.max(Verdict::Lossy);
        }
    }
}
