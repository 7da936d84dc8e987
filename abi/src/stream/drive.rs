//! Decoding of a stream: the driver that gives a file's bytes to their decoder, block by block.

use super::cpu_stream::{Backing, CpuStream};
use super::payload::PayloadFormat;
use super::report::Source;
use super::restricted_range::RestrictedRange;
use super::state::StreamState;
use super::sub_buffers::SubBufferPlace;
use super::{source, unmarked};
use crate::disk::block::{CounterSample, End, GapRecord, Watermark, kind};
use crate::disk::blocks::{Block, BlockReader, Ending, Hole};
use crate::event::{EventSink, GapCause, Names, StreamItem};
use crate::fault::{Code, Fault, Verdict};

/// Events that any file may have, and events that each stored byte adds to that: a recording has less than one a byte. Some kilobytes can
/// unpack to gigabytes of the shortest records.
const LEAST_EVENTS: u64 = 1 << 22;
const EVENTS_OF_BYTE: u64 = 64;
/// What is told of more of them.
const TOO_MANY: &str =
    "has more events than its size explains: it is damaged, or made to keep readers busy; the rest of it is left out";

/// Items after which [`CpuStream::fill`] hands over what it has: they should stay in a core's cache.
const BATCH: usize = 512;

impl CpuStream {
    /// Takes on the first block, which was read while the file was opened.
    pub(crate) fn start_with(&mut self, block: Block) {
        self.begin(block);
    }

    /// Replaces `items` by the next piece of the stream (never empty); false at its end.
    ///
    /// Items are in stream order: a gap stands before the first event after it, and the last gap may be
    /// open-ended. An unreadable rest is a gap and a fault, not an error.
    pub fn fill(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> bool {
        items.clear();
        self.decode(names, items, BATCH)
    }

    /// Hands the next `batch` items, or some more, to `items`; false at the end of the stream, where there are none.
    ///
    /// Generic, so that fields that `items` does not look at are not even read from the records.
    pub fn decode(&mut self, names: &mut Names, items: &mut impl EventSink, batch: usize) -> bool {
        self.state.waiting.take_up(names);
        let goes_on = self.decode_batch(names, items, batch);
        self.state.waiting.spell_out(names);
        goes_on
    }

    /// Hands on events up to the key `until` that wait for their stacks, where the caller knows that no more records of their time
    /// come; true where there are some. An idle CPU would keep them until its next event.
    pub fn end_waiting(&mut self, names: &mut Names, items: &mut impl EventSink, until: u64) -> bool {
        self.state.waiting.take_up(names);
        let has_any = self.state.waiting.flush_until(until, names, items);
        self.state.waiting.spell_out(names);
        has_any
    }

    fn decode_batch(&mut self, names: &mut Names, items: &mut impl EventSink, batch: usize) -> bool {
        let before = self.state.items();
        let has_gaps = self.range.as_mut().is_some_and(|range| range.begin(items));
        if !self.is_prepared {
            self.prepare(items);
        }
        self.state.until = before.saturating_add(batch as u64);
        while !self.state.is_full() {
            if self.range.as_ref().is_some_and(|range| range.is_passed_by(self.state.handed_to())) {
                return self.leave_range(names, items) || self.state.items() > before || has_gaps;
            }
            match &mut self.backing {
                Backing::Done => break,
                Backing::Missing => {
                    self.state.gap(items, Some(GapCause::Cut), None);
                    self.state.report.lost = None;
                    self.backing = Backing::Done;
                }
                Backing::Raw(window) => {
                    let ending = match &*self.format {
                        PayloadFormat::SubBuffers(format) => self.state.raw_sub_buffers(window, format, names, items),
                        PayloadFormat::Relay(format) => self.state.raw_records(window, format, names, items),
                        PayloadFormat::Unknown => Some(Ending::Whole),
                    };
                    let is_over = window.stored().is_some_and(|(_, read)| self.state.has_too_many(read));
                    let ending = if is_over && ending.is_none() {
                        let (code, offset, message) = (Code::BadSubBuffer, window.offset(), TOO_MANY.to_owned());
                        self.state.report.add(Fault { code, offset, block: None, message });
                        Some(Ending::Damaged)
                    } else {
                        ending
                    };
                    if let Some(ending) = ending {
                        self.state.report.bytes = window.offset();
                        self.state.waiting.flush(names, items);
                        self.state.finish(ending, items);
                        self.backing = Backing::Done;
                    }
                }
                Backing::Source(..) => self.decode_source(names, items),
                Backing::Blocks(reader) => match self.block {
                    Some((block, from)) => {
                        let next = self.state.payload(reader, from, &block, &self.format, names, items);
                        self.block = next.map(|from| (block, from));
                        if next.is_some() && self.state.has_too_many(reader.bytes_met()) {
                            self.state.fault(Code::BadSubBuffer, &block, TOO_MANY.to_owned());
                            self.state.damage();
                            self.block = None;
                        } else if next.is_none() {
                            self.state.end_of_data(&block);
                            self.state.compare_times(&block, reader.payload(), &self.format);
                        }
                    }
                    None if self.follows && !has_next(reader, &mut self.state, &mut self.hole) => break,
                    None => match reader.next(&mut |fault| self.state.report.add(fault)) {
                        Ok(block) => {
                            self.begin(block);
                            self.state.tell_at_once(items);
                        }
                        Err(ending) => {
                            self.state.report.bytes = reader.bytes_read();
                            self.state.report.blocks = reader.blocks();
                            if self.range.is_some() {
                                return self.leave_range(names, items) || self.state.items() > before || has_gaps;
                            }
                            self.state.waiting.flush(names, items);
                            self.state.finish(ending, items);
                            self.backing = Backing::Done;
                        }
                    },
                },
            }
        }
        self.state.items() > before || has_gaps
    }

    /// Hands on what an input of another format reads next.
    fn decode_source(&mut self, names: &mut Names, items: &mut impl EventSink) {
        let Backing::Source(source, read) = &mut self.backing else { return };
        let ending = match source.read(names, read) {
            Ok(()) if read.is_empty() => Some(Ending::Whole),
            Ok(()) => None,
            Err(fault) => {
                let is_cut = fault.code.verdict() == Verdict::Truncated;
                self.state.report.add(fault);
                Some(if is_cut { Ending::Cut } else { Ending::Damaged })
            }
        };
        source::hand_over(&mut self.state, source.has_several_cpus(), read, names, items);
        if let Some(ending) = ending {
            self.state.report.bytes = source.bytes_read();
            self.state.finish_source(ending, source.end(), items);
            self.backing = Backing::Done;
        }
    }

    /// Looks for loss without marks, and hands its gaps over.
    #[cold]
    fn prepare(&mut self, items: &mut impl EventSink) {
        self.is_prepared = true;
        if self.state.told.is_some() {
            return self.state.tell_ahead(items);
        }
        let report = &self.state.report;
        let unmarked = match (&self.backing, &*self.format) {
            (Backing::Blocks(reader), format) if report.source != Some(Source::Relay) => {
                let format = if let PayloadFormat::SubBuffers(format) = format { Some(format) } else { None };
                reader.known().zip(reader.file()).map(|(known, file)| unmarked::of_blocks(file, known, format))
            }
            (Backing::Raw(window), PayloadFormat::SubBuffers(format)) => {
                let again = report.counters.zip(window.again());
                again.map(|(counters, mut read)| unmarked::of_sub_buffers(&mut *read, format, &counters))
            }
            _ => None,
        };
        // A file without positioned reads cannot be read twice: its loss is found at the end.
        let Some(Ok(unmarked)) = unmarked else { return };
        let is_entered = self.range.as_ref().is_some_and(RestrictedRange::is_behind_gaps);
        self.state.foretell(unmarked, is_entered, items);
    }

    /// Ends the range, with the gaps behind it; true where there are any.
    #[cold]
    fn leave_range(&mut self, names: &Names, items: &mut impl EventSink) -> bool {
        self.state.waiting.flush(names, items);
        if let Backing::Blocks(reader) = &self.backing {
            self.state.report.bytes = reader.bytes_met();
        }
        self.backing = Backing::Done;
        self.range.take().is_some_and(|range| range.end(self.state.report.gaps, items))
    }

    /// Takes on a block: data is decoded piece by piece, other blocks at once.
    fn begin(&mut self, block: Block) {
        let Backing::Blocks(reader) = &self.backing else { return };
        let state = &mut self.state;
        state.report.version = Some(reader.version());
        if block.damage_before {
            state.damage();
        }
        let before = block.header.events_before.get();
        state.marks.take_header(block.header.lost_before.get());
        if state.damaged {
            state.report.unread = before.saturating_sub(state.report.events);
        }
        if !state.damaged && before != state.report.events {
            let message =
                format!("its header says that {before} events come before it, and {} do", state.report.events);
            state.fault(Code::WrongTotals, &block, message);
        }
        let payload = reader.payload();
        // Marks outside of the range are not counted.
        if self.range.is_none() {
            state.compare_lost_before(&block, payload);
        }
        match block.header.kind {
            kind::DATA => {
                state.before_block = state.report.events;
                state.first_in_block = None;
                state.keep_point(&block);
                self.block = Some((block, 0));
            }
            kind::COUNTERS => match CounterSample::parse(payload) {
                Some(sample) => state.sample(&sample, &block),
                None => state.fault(Code::WrongTotals, &block, "its counters are cut short".into()),
            },
            kind::GAP => match GapRecord::parse(payload) {
                Some((gap, text)) => state.gap_record(&gap, text, &block),
                None => state.fault(Code::WrongTotals, &block, "its gap record is cut short".into()),
            },
            kind::END => match End::parse(payload) {
                Some(end) => {
                    state.end_block(&end, &block);
                    if self.range.is_none() {
                        state.compare_marks(&end, &block);
                        state.compare_end_times(&end, &block, &self.format);
                    }
                }
                None => state.fault(Code::WrongTotals, &block, "its totals are cut short".into()),
            },
            kind::WATERMARK => match Watermark::parse(payload) {
                Some(watermark) => {
                    state.watermark = state.watermark.max(Some(watermark.time.get()));
                    state.filled = watermark.filled().or(state.filled);
                }
                None => state.fault(Code::WrongTotals, &block, "its time is cut short".into()),
            },
            _ => {}
        }
    }
}

/// True where the next block of a file that grows, or of a stream, is there. Blocks may be missing before it.
fn has_next(reader: &mut BlockReader, state: &mut StreamState, passed: &mut Option<Hole>) -> bool {
    let has_next = reader.has_next();
    if let Some(hole) = reader.take_hole() {
        *passed = Some(hole);
        if hole.is_left_out { state.leave_out(hole) } else { state.damage() }
    }
    has_next
}

impl StreamState {
    /// True where there were more events than so many stored bytes explain.
    fn has_too_many(&self, stored: u64) -> bool {
        self.report.events > stored.saturating_mul(EVENTS_OF_BYTE).saturating_add(LEAST_EVENTS)
    }

    /// Decodes some of a data block's payload from byte `from`; returns where to go on, `None` at its end.
    fn payload(
        &mut self,
        reader: &mut BlockReader,
        from: usize,
        block: &Block,
        format: &PayloadFormat,
        names: &mut Names,
        items: &mut impl EventSink,
    ) -> Option<usize> {
        if let Some(encoded) = reader.encoded() {
            let PayloadFormat::SubBuffers(format) = format else {
                let message = "its records are encoded, and the file is none of sub-buffers";
                self.fault(Code::BadCompression, block, message.into());
                self.damage();
                return None;
            };
            return self.encoded(encoded, block, format, names, items).then_some(from);
        }
        let payload = reader.payload();
        match format {
            PayloadFormat::SubBuffers(format) => {
                self.sub_buffers(payload, from, SubBufferPlace::of(block), format, names, items)
            }
            PayloadFormat::Relay(format) => self.relay_payload(payload, from, block, format, names, items),
            PayloadFormat::Unknown => {
                self.damage();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::event::Event;
    use crate::kernel::decoder::{Decoder, TraceFacts};
    use crate::kernel::format::{EventFormat, PageShape};
    use crate::kernel::stats::Stats;
    use crate::stream::payload::SubBufferFormat;
    use crate::stream::report::FileReport;
    use crate::target::Endian;

    const HEADER_PAGE: &str = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";
    const KFREE: &str = "\
name: kfree
ID: 7
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long call_site;\toffset:8;\tsize:8;\tsigned:0;
\tfield:const void * ptr;\toffset:16;\tsize:8;\tsigned:0;
";

    /// Whole sub-buffers with a hundred frees each.
    fn sub_buffers(count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for page in 0..count {
            let start = bytes.len();
            let records = 100u64;
            bytes.extend((page * 1_000_000).to_le_bytes());
            bytes.extend((records * 28).to_le_bytes());
            for n in 0..records {
                // A record of six words, ten nanoseconds after the one before it.
                bytes.extend((6u32 | 10 << 5).to_le_bytes());
                bytes.extend(7u64.to_le_bytes());
                bytes.extend([n, n * 8].map(u64::to_le_bytes).concat());
            }
            bytes.resize(start + 4096, 0);
        }
        bytes
    }

    /// Items and report of a stream of sub-buffers; the kernel dropped 3 of its events without a mark.
    fn read(file: File, bytes: usize) -> (Vec<StreamItem>, FileReport) {
        let shape = PageShape::parse(HEADER_PAGE, Endian::Little).unwrap();
        let formats = [("kmem".to_owned(), EventFormat::parse(KFREE).unwrap())];
        let mut names = Names::new();
        let decoder = Decoder::new(&formats, &TraceFacts::default(), &mut names);
        let format = Arc::new(PayloadFormat::SubBuffers(SubBufferFormat { shape, decoder }));
        let mut stream = CpuStream::raw(PathBuf::new(), 0, file, format);
        stream.report_mut().counters = Some(Stats { dropped: 3, ..Stats::default() }.after(&Default::default()));
        let (mut all, mut items) = (Vec::new(), Vec::new());
        while stream.fill(&mut names, &mut items) {
            all.append(&mut items);
        }
        assert_eq!(stream.report().bytes, bytes as u64);
        (all, stream.report().clone())
    }

    #[test]
    fn a_file_that_cannot_be_read_twice_tells_of_its_loss_at_the_end() {
        let bytes = sub_buffers(40);
        let mut twice = tempfile::tempfile().unwrap();
        twice.write_all(&bytes).unwrap();
        std::io::Seek::rewind(&mut twice).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let to_write = bytes.clone();
        let writing = std::thread::spawn(move || writer.write_all(&to_write));
        let once = File::from(std::os::fd::OwnedFd::from(reader));
        let places = |(items, report): (Vec<StreamItem>, FileReport)| {
            let Some(StreamItem::Event(Event { at, .. })) =
                items.iter().find(|item| matches!(item, StreamItem::Event(_)))
            else {
                panic!("no event");
            };
            let gap =
                items.iter().position(|item| matches!(item, StreamItem::Gap(gap) if gap.from == Some(*at))).unwrap();
            assert_eq!((report.gaps, report.lost), (1, Some(3)));
            (gap == 0, gap == items.len() - 1, report.late_loss)
        };
        assert_eq!(places(read(twice, bytes.len())), (true, false, false));
        assert_eq!(places(read(once, bytes.len())), (false, true, true));
        writing.join().unwrap().unwrap();
    }
}
