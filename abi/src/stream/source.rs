//! The seam for inputs that this crate does not read: an [`EventSource`] for each CPU.

use std::fmt::Debug;
use std::path::Path;

use super::CpuStream;
use super::cursor::StreamState;
use crate::disk::blocks::Ending;
use crate::event::{EventSink, GapCause, Names, StreamItem};
use crate::fault::{Fault, Verdict};

/// Decoded events and gaps of one CPU, from an input of another format.
///
/// [`CpuStream::of_source`] makes a stream of it, which merges and pairs as any other.
pub trait EventSource: Debug + Send {
    /// The CPU. Two sources of one trace have different ones.
    fn cpu(&self) -> u32;

    /// The file, for messages.
    fn path(&self) -> &Path;

    /// Appends the next events and gaps to `items`, in the order of the stream; a gap stands before the first event after it.
    /// At most a few thousand at once, and none only at the end. Names of events and caches are interned in `names`.
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

impl CpuStream {
    /// The stream of a source.
    pub fn of_source(source: Box<dyn EventSource>) -> CpuStream {
        let (path, cpu) = (source.path().to_owned(), source.cpu());
        CpuStream::new_of(path, cpu, source)
    }
}

/// Hands on what a source has read. An event whose time is before its predecessor's takes that one's time.
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
                state.push(items, event, names);
            }
            StreamItem::Gap(mut gap) => {
                gap.cpu = state.cpu;
                state.facts.lost = state.facts.lost.zip(gap.lost).map(|(sum, lost)| sum.saturating_add(lost));
                state.push_gap(items, gap);
            }
        }
    }
}

impl StreamState {
    /// The source has ended: facts of the whole stream, and the gap behind damage.
    pub(super) fn finish_source(&mut self, ending: Ending, items: &mut impl EventSink) {
        self.facts.last = self.last;
        if ending == Ending::Damaged {
            self.facts.lost = None;
            self.gap(items, Some(GapCause::Damage), None);
        }
        if self.facts.lost.is_none_or(|lost| lost > 0) {
            self.facts.verdict = self.facts.verdict.max(Verdict::Lossy);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::event::{Action, Event, Gap, Kind};
    use crate::fault::Code;

    #[derive(Debug)]
    struct Listed {
        path: PathBuf,
        left: Vec<Vec<StreamItem>>,
        fails: bool,
    }

    impl EventSource for Listed {
        fn cpu(&self) -> u32 {
            3
        }

        fn path(&self) -> &Path {
            &self.path
        }

        fn read(&mut self, _: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
            match self.left.pop() {
                Some(next) => items.extend(next),
                None if self.fails => {
                    let message = "line 7 is no event".to_owned();
                    return Err(Fault { code: Code::BadRecord, offset: 70, block: None, message });
                }
                None => {}
            }
            Ok(())
        }
    }

    fn event(names: &mut Names, at: u64) -> StreamItem {
        let name = names.intern(b"kmalloc");
        let event = Event { call_site: 1, address: 2, action: Action::Alloc(Kind::Kmalloc), ..Event::new(at, 0, name) };
        StreamItem::Event(event)
    }

    #[test]
    fn items_of_a_source_are_the_streams_and_keys_do_not_go_back() {
        let mut names = Names::new();
        let gap = Gap { from: Some(5), to: Some(9), cpu: 0, lost: Some(4), cause: GapCause::Overrun };
        let left =
            vec![vec![event(&mut names, 4)], vec![event(&mut names, 5), StreamItem::Gap(gap), event(&mut names, 9)]];
        let source = Listed { path: "list".into(), left, fails: true };
        let mut stream = CpuStream::of_source(Box::new(source));
        let (mut all, mut items) = (Vec::new(), Vec::new());
        while stream.fill(&mut names, &mut items) {
            all.append(&mut items);
        }
        let keys = all.iter().map(|item| match item {
            StreamItem::Event(event) => (event.at, event.cpu),
            StreamItem::Gap(gap) => (gap.from.unwrap_or(0), gap.cpu),
        });
        assert_eq!(keys.collect::<Vec<_>>(), [(5, 3), (5, 3), (9, 3), (9, 3), (9, 3)]);
        let facts = stream.facts();
        assert_eq!((facts.events, facts.gaps, facts.first, facts.last), (3, 2, Some(5), Some(9)));
        assert_eq!(facts.verdict, Verdict::Corrupt, "a source that fails ends the stream with a finding");
        let codes: Vec<Code> = facts.faults.iter().map(|fault| fault.code).collect();
        assert_eq!(codes, [Code::BackInTime, Code::BadRecord]);
    }
}
