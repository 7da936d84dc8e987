//! One CPU's file as a stream: the origin of its bytes, the range that is read, and its report.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "inputs")]
use super::file_loss::{FileLoss, ToldLoss};
use super::payload::PayloadFormat;
use super::report::FileReport;
use super::restricted_range::RestrictedRange;
use super::source::EventSource;
use super::state::StreamState;
use crate::clock::Clock;
use crate::disk::block::RecordingId;
use crate::disk::blocks::{Block, BlockReader, Hole, Window};
#[cfg(feature = "inputs")]
use crate::disk::part::Part;
use crate::disk::seek_index::{SeekIndex, SeekIndexBuilder};
use crate::event::{GapCause, StreamItem};
use crate::fault::{Code, Fault};
use crate::kind::Kind;

/// Origin of a stream's bytes.
#[derive(Debug)]
pub(super) enum Backing {
    /// A file of ours.
    Blocks(Box<BlockReader>),
    /// Bytes as the kernel handed them out, without blocks around them.
    Raw(Window),
    /// An input of another format, and the items that it has just read.
    Source(Box<dyn EventSource>, Vec<StreamItem>),
    /// Nowhere: the CPU's file is missing.
    Missing,
    /// No bytes left.
    Done,
}

/// One CPU's events and gaps.
#[derive(Debug)]
pub struct CpuStream {
    pub(super) backing: Backing,
    pub(super) format: Arc<PayloadFormat>,
    /// The block being decoded, and how far.
    pub(super) block: Option<(Block, usize)>,
    pub(super) state: StreamState,
    /// The range to read, where that is not the whole file.
    pub(super) range: Option<RestrictedRange>,
    /// Bytes of that range, about.
    pub(super) range_bytes: Option<u64>,
    /// Loss without marks has been looked for.
    pub(super) is_prepared: bool,
    /// The file is being written: its end is that of the recording only with an end block.
    pub(super) follows: bool,
    /// Blocks that were passed over since the last call of `take_hole`.
    pub(super) hole: Option<Hole>,
}

impl CpuStream {
    pub(crate) fn blocks(path: PathBuf, cpu: u32, reader: BlockReader, format: Arc<PayloadFormat>) -> CpuStream {
        CpuStream::new(path, cpu, Backing::Blocks(Box::new(reader)), format)
    }

    pub(crate) fn raw(path: PathBuf, cpu: u32, file: File, format: Arc<PayloadFormat>) -> CpuStream {
        CpuStream::new(path, cpu, Backing::Raw(Window::new(file)), format)
    }

    /// The raw bytes of a part of a file.
    #[cfg(feature = "inputs")]
    pub(crate) fn part(path: PathBuf, cpu: u32, part: Part, format: Arc<PayloadFormat>) -> CpuStream {
        CpuStream::new(path, cpu, Backing::Raw(Window::of_part(part)), format)
    }

    pub(crate) fn missing(path: PathBuf, cpu: u32) -> CpuStream {
        let mut stream = CpuStream::new(path, cpu, Backing::Missing, Arc::new(PayloadFormat::Unknown));
        let message = format!("the file of CPU {cpu} is not there");
        stream.state.report.add(Fault { code: Code::Missing, offset: 0, block: None, message });
        stream
    }

    fn new(path: PathBuf, cpu: u32, backing: Backing, format: Arc<PayloadFormat>) -> CpuStream {
        CpuStream {
            backing,
            format,
            block: None,
            state: StreamState::new(path, cpu),
            range: None,
            range_bytes: None,
            is_prepared: false,
            follows: false,
            hole: None,
        }
    }

    /// The stream of a source.
    pub fn of_source(source: Box<dyn EventSource>) -> CpuStream {
        let (path, cpu) = (source.path().to_owned(), source.cpu());
        CpuStream::new(path, cpu, Backing::Source(source, Vec::new()), Arc::new(PayloadFormat::Unknown))
    }

    pub(crate) fn report_mut(&mut self) -> &mut FileReport {
        &mut self.state.report
    }

    /// Takes the loss of the stream from `loss`, not from counters.
    #[cfg(feature = "inputs")]
    pub(crate) fn tell_loss(&mut self, loss: FileLoss) {
        self.state.told = Some(Box::new(ToldLoss::new(loss, self.state.cpu)));
    }

    /// Sets the clock of the events' order keys.
    pub(crate) fn set_keys(&mut self, keys: Clock) {
        self.state.keys = keys;
    }

    /// Notes that the recording has no stacks: no event waits for one.
    pub(crate) fn expect_no_stacks(&mut self) {
        self.state.has_stacks = false;
    }

    /// True where the trace describes events of reclaim, compaction or shrinkers.
    pub(crate) fn describes_reclaim(&self) -> bool {
        matches!(&*self.format, PayloadFormat::SubBuffers(format) if format.decoder.describes_reclaim())
    }

    /// True where the trace describes events that tell of loads of modules.
    pub(crate) fn tells_module_loads(&self) -> bool {
        matches!(&*self.format, PayloadFormat::SubBuffers(format) if format.decoder.tells_module_loads())
    }

    /// False where no event can have a stack: the trace describes none, or tells that none were recorded.
    pub(crate) fn may_have_stacks(&self) -> bool {
        match (&self.backing, &*self.format) {
            (Backing::Source(source, _), _) => source.may_have_stacks(),
            (_, PayloadFormat::SubBuffers(format)) => self.state.has_stacks && format.decoder.stacks().is_some(),
            _ => false,
        }
    }

    /// Notes that the file's first bytes are damaged.
    pub(crate) fn mark_damaged(&mut self) {
        self.state.damage();
    }

    /// Waits for more blocks where the file ends without an end block: [`CpuStream::decode`] returns false then, and has more once
    /// the next whole block is there. To be called before the first item is taken.
    pub fn follow(&mut self, yes: bool) {
        self.follows = yes;
        self.state.follows = yes;
    }

    /// True where the stream waits for more blocks.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// True where the blocks come through a stream of interleaved blocks, which tells how far idle CPUs are.
    pub fn is_streamed(&self) -> bool {
        matches!(&self.backing, Backing::Blocks(reader) if reader.file().is_none())
    }

    /// Key before which no more events of the CPU come beside those handed on, as the recorder tells of an idle one; `None` where it
    /// has not told any.
    pub fn watermark(&self) -> Option<u64> {
        self.state.watermark
    }

    /// Greatest part of the kernel's buffer of this CPU that was full before the last watermark, in thousandths; `None` where the
    /// recorder does not tell it.
    pub fn filled(&self) -> Option<u32> {
        self.state.filled
    }

    /// True once there are no more items, however long a caller waits.
    pub fn has_ended(&self) -> bool {
        matches!(self.backing, Backing::Done)
    }

    /// Passes over the blocks that are there, up to the last one with events: events are missing from the last one before to the
    /// next. False where there is nothing to pass over.
    pub fn skip_to_last(&mut self) -> bool {
        let Backing::Blocks(reader) = &mut self.backing else { return false };
        let has_skipped = reader.skip_to_last().unwrap_or(false);
        // In a stream a mark stands where blocks are missing.
        if has_skipped && reader.file().is_some() {
            self.block = None;
            self.state.damage();
        }
        has_skipped
    }

    /// Blocks that were passed over since the last call: the writer of the file has given them back, or that of a stream left them out.
    pub fn take_hole(&mut self) -> Option<Hole> {
        self.hole.take()
    }

    /// True where the events are of several CPUs: each has its own.
    pub fn has_several_cpus(&self) -> bool {
        matches!(&self.backing, Backing::Source(source, _) if source.has_several_cpus())
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.state.cpu
    }

    /// True where frees name the cache of an object and allocations do not.
    pub(crate) fn frees_alone_name_caches(&self) -> bool {
        match &*self.format {
            PayloadFormat::SubBuffers(format) => format.decoder.frees_alone_name_caches(),
            PayloadFormat::Relay(_) | PayloadFormat::Unknown => false,
        }
    }

    /// True where the stream describes events that tell of threads and cgroups.
    pub(crate) fn tells_tasks(&self) -> bool {
        matches!(&*self.format, PayloadFormat::SubBuffers(format) if format.decoder.tells_tasks())
    }

    /// True where the stream describes frees of this kind.
    pub(crate) fn describes_frees(&self, kind: Kind) -> bool {
        match &*self.format {
            PayloadFormat::SubBuffers(format) => format.decoder.describes_frees(kind),
            PayloadFormat::Relay(_) | PayloadFormat::Unknown => false,
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.state.report.path
    }

    /// Bytes of the file read so far.
    pub fn bytes_read(&self) -> u64 {
        match &self.backing {
            Backing::Blocks(reader) => reader.bytes_read(),
            Backing::Raw(window) => window.stored().map_or_else(|| window.offset(), |(_, read)| read),
            Backing::Source(source, _) => source.bytes_read(),
            Backing::Missing => 0,
            Backing::Done => self.state.report.bytes,
        }
    }

    /// Bytes of the file to read in all, about: for progress.
    pub fn bytes_to_read(&self) -> u64 {
        if let Backing::Source(source, _) = &self.backing {
            return source.bytes_to_read();
        }
        if let Backing::Raw(window) = &self.backing {
            return window.stored().map_or_else(|| window.offset(), |(len, _)| len);
        }
        let whole = || self.file_metadata().and_then(Result::ok).map_or_else(|| self.bytes_read(), |data| data.len());
        self.range_bytes.unwrap_or_else(whole)
    }

    /// The recording that the file belongs to, while it is read.
    pub fn recording(&self) -> Option<RecordingId> {
        match &self.backing {
            Backing::Blocks(reader) => reader.recording(),
            _ => None,
        }
    }

    /// The system's metadata of the open file, while it is read: the name may stand for another file by now.
    pub fn file_metadata(&self) -> Option<io::Result<Metadata>> {
        match &self.backing {
            Backing::Blocks(reader) => reader.file().map(File::metadata),
            Backing::Raw(window) => window.file().map(File::metadata),
            Backing::Source(..) | Backing::Missing | Backing::Done => None,
        }
    }

    /// Builds a seek index from now on; to be called before the first item is taken.
    pub fn keep_seek_index(&mut self) {
        self.state.seek_index = Some(Box::new(SeekIndexBuilder::new()));
    }

    /// The seek index of a file that has been read to its end; `None` where none was built, or the file has too many gaps.
    pub fn seek_index(&self) -> Option<&SeekIndex> {
        self.state.seek_index.as_ref()?.seek_index()
    }

    /// Restricts reading to the blocks of events with keys from `from` to `to`; to be called before the first item is taken. Some
    /// events before and behind come with them, and so do all gaps. `seek_index` must be that of this file.
    ///
    /// The report is then that of the blocks read: where the whole file was good, a verdict worse than lossy means that this range
    /// is not good any more.
    pub fn restrict_to(&mut self, seek_index: &SeekIndex, (from, to): (u64, u64)) {
        let whole = self.bytes_to_read();
        let Backing::Blocks(reader) = &mut self.backing else { return };
        let (mut before, mut begins) = (0, 0);
        if let Some(point) = seek_index.before(from) {
            if let Err(error) = reader.enter(point.offset, point.sequence) {
                let (offset, message) =
                    (point.offset, format!("cannot be read from byte {} on: {error}", point.offset));
                self.state.report.add(Fault { code: Code::CutInBlock, offset, block: Some(point.sequence), message });
            }
            self.block = None;
            self.state.last = point.last;
            self.state.timed = None;
            (self.state.report.events, self.state.report.gaps) = (point.events, point.gaps);
            (before, begins) = (point.gaps, point.offset);
            // The index has every gap. Only one from the first event to the end is handed over with that event, not before.
            let behind =
                usize::try_from(before).ok().and_then(|before| seek_index.gaps.get(before..)).unwrap_or_default();
            let has_whole = behind.iter().any(|gap| gap.cause == GapCause::Counters && gap.to.is_none());
            if point.last.is_some() || !has_whole {
                self.is_prepared = true;
                self.state.walked_to = Some(u64::MAX);
            }
        }
        self.range_bytes = Some(seek_index.end(to).unwrap_or(whole).saturating_sub(begins));
        self.range = Some(RestrictedRange::new(seek_index.gaps.clone(), before, to));
    }

    /// Findings and totals of the file so far; complete once `fill` returned false.
    pub fn report(&self) -> &FileReport {
        &self.state.report
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::event::{Action, Event, Gap, Kind, Names};
    use crate::fault::Verdict;

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
        let report = stream.report();
        assert_eq!((report.events, report.gaps, report.first, report.last), (3, 2, Some(5), Some(9)));
        assert_eq!(report.verdict, Verdict::Corrupt, "a source that fails ends the stream with a finding");
        let codes: Vec<Code> = report.faults.iter().map(|fault| fault.code).collect();
        assert_eq!(codes, [Code::BackInTime, Code::BadRecord]);
    }
}
