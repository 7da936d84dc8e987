//! Writes sub-buffers as the kernel's ring buffer does, and a CPU's items as a row of them.

use std::collections::HashMap;

use super::layout::{Layout, foreign_record, layouts};
use super::probes::{ProbeLayout, probe_layouts};
use super::workload::PerCpu;
use super::{Random, Shape, put, set};
use kmemtrace_abi::disk::block::{GAP_CLEARED, GAP_NOT_WRITTEN, GapRecord, LOST_UNKNOWN};
use kmemtrace_abi::event::{Event, GapCause, Names, StreamItem};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::subbuffer::Missed;
use kmemtrace_abi::target::Endian;

const MAX_SHORT: usize = 112;
const DELTA_BITS: u32 = 27;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// How an entry's time is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// In its own delta; by a time extend where that is too small.
    Delta,
    /// By a time extend before it.
    Extend,
    /// By an absolute stamp before it.
    Absolute,
}

/// One sub-buffer being filled.
#[derive(Clone, Debug)]
pub struct SubBufferWriter {
    page: PageShape,
    aligned: bool,
    timestamp: u64,
    time: u64,
    data: Vec<u8>,
}

impl SubBufferWriter {
    /// An empty one that counts from `timestamp`.
    pub fn new(shape: &Shape, timestamp: u64) -> SubBufferWriter {
        SubBufferWriter { page: shape.page(), aligned: shape.aligned, timestamp, time: timestamp, data: Vec::new() }
    }

    /// Bytes of event data that fit in; the count of lost events is left room for.
    pub fn room(&self) -> usize {
        let word = usize::from(self.page.target.word_bytes).max(if self.aligned { 8 } else { 4 });
        (self.page.size - self.page.data_offset - self.data.len()).saturating_sub(word)
    }

    /// True if the page has no record.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Time of its last entry.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Appends a record; false where there is no room for it.
    pub fn record(&mut self, at: u64, payload: &[u8], stamp: Stamp) -> bool {
        let mut entry = Vec::with_capacity(payload.len() + 16);
        let mut delta = at.wrapping_sub(self.time);
        if stamp == Stamp::Absolute {
            self.word(&mut entry, TIME_STAMP, at & ((1 << DELTA_BITS) - 1));
            put(&mut entry, self.page.target.endian, (at >> DELTA_BITS) & 0xffff_ffff, 4);
            delta = 0;
        } else if stamp == Stamp::Extend || delta >> DELTA_BITS != 0 {
            self.word(&mut entry, TIME_EXTEND, delta & ((1 << DELTA_BITS) - 1));
            put(&mut entry, self.page.target.endian, delta >> DELTA_BITS, 4);
            delta = 0;
        }
        let step = if self.aligned { 8 } else { 4 };
        let start = entry.len();
        if self.aligned || payload.len() > MAX_SHORT || payload.is_empty() {
            let total = (8 + payload.len()).next_multiple_of(step);
            self.word(&mut entry, 0, delta);
            put(&mut entry, self.page.target.endian, total as u64 - 4, 4);
            entry.extend_from_slice(payload);
            entry.resize(start + total, 0xa5);
        } else {
            self.word(&mut entry, payload.len().div_ceil(4) as u32, delta);
            entry.extend_from_slice(payload);
            entry.resize(start + 4 + payload.len().next_multiple_of(4), 0xa5);
        }
        if entry.len() > self.room() {
            return false;
        }
        self.data.extend_from_slice(&entry);
        self.time = at;
        true
    }

    /// Appends a discarded event of `words` words that took `delta` (1: none) of time; false where there is no room.
    pub(crate) fn discarded(&mut self, delta: u64, words: usize) -> bool {
        let bytes = (4 + 4 * words.max(1)).next_multiple_of(8);
        if bytes > self.room() {
            return false;
        }
        let mut entry = Vec::new();
        self.word(&mut entry, PADDING, delta.max(1));
        put(&mut entry, self.page.target.endian, bytes as u64 - 4, 4);
        entry.resize(bytes, 0xda);
        self.data.extend_from_slice(&entry);
        if delta > 1 {
            self.time += delta;
        }
        true
    }

    /// Fills it to its end with what the kernel leaves there, which a mapped sub-buffer counts as data.
    /// There is then no room for a count of lost events.
    pub(crate) fn fill_up(&mut self) {
        let left = self.page.size - self.page.data_offset - self.data.len();
        let mut entry = Vec::new();
        match left {
            0..4 => return,
            4..8 => self.word(&mut entry, PADDING, 0),
            _ => {
                self.word(&mut entry, PADDING, 1);
                put(&mut entry, self.page.target.endian, left as u64 - 4, 4);
            }
        }
        entry.resize(left, 0);
        self.data.extend_from_slice(&entry);
    }

    /// The whole sub-buffer, zeros behind what it holds, and how many of its bytes a trace keeps.
    pub fn finish(self, missed: Option<Missed>) -> (Vec<u8>, usize) {
        let (endian, word) = (self.page.target.endian, usize::from(self.page.target.word_bytes));
        let mut bytes = vec![0; self.page.size];
        let marks: u32 = match missed {
            None => 0,
            Some(Missed::Uncounted) => 1 << 31,
            Some(Missed::Counted(_)) => 3 << 30,
        };
        // The kernel's addition is one of signed 32-bit numbers: the mark spreads over the upper half.
        let commit = i64::from((self.data.len() as u32 | marks) as i32) as u64;
        set(&mut bytes, endian, 0, self.timestamp, 8);
        set(&mut bytes, endian, self.page.commit_offset, commit, self.page.commit_size);
        let end = self.page.data_offset + self.data.len();
        bytes[self.page.data_offset..end].copy_from_slice(&self.data);
        if let Some(Missed::Counted(lost)) = missed {
            set(&mut bytes, endian, end, lost, word);
            return (bytes, end + word);
        }
        (bytes, end)
    }

    fn word(&self, out: &mut Vec<u8>, type_len: u32, delta: u64) {
        let delta = delta as u32;
        let word = match self.page.target.endian {
            Endian::Little => (delta << 5) | type_len,
            Endian::Big => (type_len << DELTA_BITS) | delta,
        };
        put(out, self.page.target.endian, u64::from(word), 4);
    }
}

/// A finished sub-buffer and what a recorder knows of it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The whole sub-buffer.
    pub bytes: Vec<u8>,
    /// How many of them a trace keeps.
    pub trimmed: usize,
    /// Event records.
    pub events: u32,
    /// Time of the first one.
    pub first: u64,
    /// Time of the last one.
    pub last: u64,
    /// Loss mark of the page.
    pub missed: Option<Missed>,
    /// Loss before it that the recorder, not the kernel, knows of.
    pub gap: Option<GapRecord>,
}

/// Encodes events.
#[derive(Debug)]
pub struct Encoder<'a> {
    shape: Shape,
    names: &'a Names,
    layouts: HashMap<&'static [u8], Layout>,
    probes: Vec<ProbeLayout>,
}

impl<'a> Encoder<'a> {
    /// An encoder of events whose names are in `names`.
    pub fn new(shape: &Shape, names: &'a Names) -> Encoder<'a> {
        let layouts = layouts(shape).into_iter().map(|l| (l.name.as_bytes(), l)).collect();
        Encoder { shape: *shape, names, layouts, probes: probe_layouts(shape) }
    }

    /// The record of `event`.
    pub fn record(&self, event: &Event, random: &mut Random) -> Vec<u8> {
        match self.layouts.get(self.names.get(event.name)) {
            Some(layout) => {
                let frames = event.stack.map(|stack| self.names.stacks.get(stack));
                layout.record(event, event.cache.map_or(b"", |c| self.names.get(c)), frames, random)
            }
            None => foreign_record(&self.shape, event.pid.unwrap_or(0), random),
        }
    }

    /// The record of an event and the addresses behind it in `items`.
    fn record_with(&self, event: &Event, items: &[StreamItem], random: &mut Random) -> Vec<u8> {
        let name = self.names.get(event.name);
        let Some(probe) = self.probes.iter().find(|probe| probe.name.as_bytes() == name) else {
            return self.record(event, random);
        };
        let addresses: Vec<u64> = addresses_behind(items).map(|event| event.address).collect();
        // Memory of the caller looks like an object that is there.
        let leftover = addresses.first().map_or(0, |first| first + 0x40);
        probe.record(event, (&addresses, leftover), event.cache.map(|cache| self.names.get(cache)), random)
    }

    /// A CPU's items as sub-buffers: full and partial ones, every form of entry, loss marks where the gaps are.
    pub fn pages(&self, cpu: &PerCpu, random: &mut Random) -> Vec<Page> {
        let mut pages = Vec::new();
        let mut open: Option<Open> = None;
        let mut last = None;
        let mut gap = None;
        let mut mark: Option<(u64, Missed)> = None;
        for (number, item) in cpu.items.iter().enumerate() {
            let event = match item {
                StreamItem::Event(event) if event.is_address() => continue,
                StreamItem::Gap(lost) => {
                    pages.extend(open.take().map(|o| o.finish_any_way(random)));
                    let count = lost.lost.unwrap_or(LOST_UNKNOWN);
                    match lost.cause {
                        GapCause::Overrun => {
                            let missed = lost.lost.map_or(Missed::Uncounted, Missed::Counted);
                            mark = Some((lost.to.unwrap_or(0), missed));
                        }
                        GapCause::Recorder => {
                            let reason = if lost.lost.is_some() { GAP_NOT_WRITTEN } else { GAP_CLEARED };
                            gap = Some(GapRecord { lost: count.into(), reason: reason.into(), ..GapRecord::default() });
                        }
                        // Known from the end block, or from its absence.
                        _ => {}
                    }
                    continue;
                }
                StreamItem::Event(event) => event,
            };
            let record = self.record_with(event, &cpu.items[number + 1..], random);
            // Now and then a sub-buffer is taken before it is full.
            if open.is_some() && random.below(150) == 0 {
                pages.extend(open.take().map(|o| o.finish_any_way(random)));
            }
            if open.as_mut().is_some_and(|page| page.add_any_way(event.at, &record, random)) {
                last = Some(event.at);
                continue;
            }
            pages.extend(open.take().map(|o| o.finish_any_way(random)));
            // The rest of a sub-buffer that was taken before counts from the last event taken.
            let (from, missed) = match mark.take() {
                Some((to, missed)) => (to, Some(missed)),
                None if gap.is_none() && random.chance(20) => (last.unwrap_or(event.at), None),
                None => (event.at, None),
            };
            let mut page = Open { missed, gap: gap.take(), ..Open::new(&self.shape, from) };
            page.add_any_way(event.at, &record, random);
            last = Some(event.at);
            open = Some(page);
        }
        pages.extend(open.take().map(|o| o.finish_any_way(random)));
        pages
    }
}

/// Addresses of the record before `items`.
pub(crate) fn addresses_behind(items: &[StreamItem]) -> impl Iterator<Item = &Event> {
    items.iter().map_while(|item| match item {
        StreamItem::Event(event) if event.is_address() => Some(event),
        _ => None,
    })
}

/// A sub-buffer and its tally.
pub(super) struct Open {
    writer: SubBufferWriter,
    events: u32,
    first: u64,
    last: u64,
    missed: Option<Missed>,
    gap: Option<GapRecord>,
}

impl Open {
    /// An empty one that counts from `from`.
    pub(super) fn new(shape: &Shape, from: u64) -> Open {
        let writer = SubBufferWriter::new(shape, from);
        Open { writer, events: 0, first: 0, last: 0, missed: None, gap: None }
    }

    /// Appends a record; false where there is no room for it.
    pub(super) fn add(&mut self, at: u64, record: &[u8], stamp: Stamp) -> bool {
        let added = self.writer.record(at, record, stamp);
        if added {
            self.first = if self.events == 0 { at } else { self.first };
            self.last = at;
            self.events += 1;
        }
        added
    }

    /// The same in any of the ways that the kernel has.
    fn add_any_way(&mut self, at: u64, record: &[u8], random: &mut Random) -> bool {
        let spare = at - self.writer.time();
        if random.chance(2) {
            let delta = if random.chance(50) { random.below(spare.min(1000) + 1) } else { 1 };
            self.writer.discarded(delta, 1 + random.below(12) as usize);
        }
        let stamp = match random.below(30) {
            0 => Stamp::Extend,
            1 => Stamp::Absolute,
            _ => Stamp::Delta,
        };
        self.add(at, record, stamp)
    }

    pub(super) fn finish(self) -> Page {
        let (bytes, trimmed) = self.writer.finish(self.missed);
        Page {
            bytes,
            trimmed,
            events: self.events,
            first: self.first,
            last: self.last,
            missed: self.missed,
            gap: self.gap,
        }
    }

    /// Now and then it is filled up.
    fn finish_any_way(mut self, random: &mut Random) -> Page {
        if !matches!(self.missed, Some(Missed::Counted(_))) && random.chance(10) {
            self.writer.fill_up();
        }
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Options, layout, workload};
    use kmemtrace_abi::event::Action;
    use kmemtrace_abi::kernel::format::EventFormat;
    use kmemtrace_abi::kernel::subbuffer::SubBuffer;
    use kmemtrace_abi::target::{Big, Little, TargetOrder, uint_at};

    /// Reads the bytes with the texts alone and holds every event, time and mark against the truth.
    fn read_back<O: TargetOrder>(options: &Options, seed: u64) -> usize {
        let work = workload(seed, options);
        let shape = PageShape::parse(&layout::header_page(&options.shape), O::ENDIAN).unwrap();
        assert_eq!(shape, options.shape.page());
        let formats: HashMap<u64, EventFormat> = layouts(&options.shape)
            .iter()
            .map(|l| EventFormat::parse(&l.text()).unwrap())
            .map(|f| (u64::from(f.id), f))
            .collect();
        let encoder = Encoder::new(&options.shape, &work.names);
        let mut random = Random::new(seed);
        let mut seen = 0;
        for cpu in &work.cpus {
            let mut items = cpu.items.iter().peekable();
            for page in encoder.pages(cpu, &mut random) {
                assert_eq!(page.bytes.len(), shape.size);
                let sub_buffer = SubBuffer::parse::<O>(&shape, &page.bytes).unwrap();
                assert_eq!((sub_buffer.missed, sub_buffer.stored), (page.missed, page.trimmed));
                while let Some(StreamItem::Gap(gap)) = items.peek() {
                    if gap.cause == GapCause::Overrun {
                        assert_eq!(gap.to, Some(sub_buffer.timestamp));
                        assert_eq!(page.missed, Some(gap.lost.map_or(Missed::Uncounted, Missed::Counted)));
                    }
                    items.next();
                }
                let mut tally = (0, 0, 0);
                for record in sub_buffer.records::<O>() {
                    let record = record.unwrap();
                    let Some(StreamItem::Event(event)) = items.next() else { panic!("no such event") };
                    assert_eq!(record.time, event.at);
                    tally = (tally.0 + 1, if tally.0 == 0 { record.time } else { tally.1 }, record.time);
                    let id = uint_at::<O>(record.payload, 0, 2).unwrap();
                    let name = work.names.get(event.name);
                    let Some(format) = formats.get(&id) else {
                        assert_eq!(name, b"unknown");
                        continue;
                    };
                    assert_eq!(format.name.as_bytes(), name);
                    let field = |name: &str| {
                        let field = format.field(name)?;
                        uint_at::<O>(record.payload, field.offset, field.size)
                    };
                    assert_eq!(field("common_pid"), event.pid.map(|p| u64::from(p as u32)));
                    if event.action != Action::Other {
                        let keys = ["ptr", "pfn", "page", "addr", "va_start"];
                        // A failed allocation of per-CPU memory tells no address.
                        assert_eq!(keys.into_iter().find_map(field).unwrap_or(0), event.address);
                        assert_eq!(field("call_site").unwrap_or(0), event.call_site);
                    }
                    assert_eq!(field("bytes_req").unwrap_or(event.requested), event.requested);
                    assert_eq!(field("gfp_flags"), event.gfp);
                    assert_eq!(field("node"), event.node.map(|n| u64::from(n as u32)));
                    let cache = field("name").map(|place| {
                        let (at, len) = ((place & 0xffff) as usize, (place >> 16) as usize);
                        record.payload[at..at + len].strip_suffix(b"\0").unwrap()
                    });
                    assert_eq!(cache, event.cache.map(|c| work.names.get(c)));
                    seen += 1;
                }
                assert_eq!(tally, (page.events, page.first, page.last));
            }
            assert!(items.all(|item| matches!(item, StreamItem::Gap(_))));
        }
        seen
    }

    #[test]
    fn bytes_and_texts_agree_whatever_the_machine() {
        let mut seen = 0;
        for seed in 0..120 {
            let options = Options::random(&mut Random::new(seed), 1500);
            seen += match options.shape.target.endian {
                Endian::Little => read_back::<Little>(&options, seed),
                Endian::Big => read_back::<Big>(&options, seed),
            };
        }
        assert!(seen > 10_000, "{seen} events are too few to mean anything");
    }

    #[test]
    fn sub_buffers_fill_up_and_every_form_of_loss_occurs() {
        let mut counted = 0;
        let mut uncounted = 0;
        let mut full = 0;
        let mut options = Options::plain(Shape::plain(), 2, 4000);
        (options.loss, options.uncounted) = (true, true);
        let work = workload(7, &options);
        let encoder = Encoder::new(&options.shape, &work.names);
        for page in work.cpus.iter().flat_map(|cpu| encoder.pages(cpu, &mut Random::new(1))) {
            match page.missed {
                Some(Missed::Counted(_)) => counted += 1,
                Some(Missed::Uncounted) => uncounted += 1,
                None => {}
            }
            full += usize::from(page.trimmed > 3700);
        }
        assert!(counted > 5 && uncounted > 5 && full > 10, "{counted} {uncounted} {full}");
    }
}
