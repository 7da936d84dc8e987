//! Builders of small traces, and a reader that takes down all that a stream tells.

use std::path::{Path, PathBuf};

use kmemtrace_abi::disk::block::{
    self, BlockInfo, CounterSample, Counters, End, GapRecord, HEADER_BYTES, Interval, MARKS_COUNTED, MARKS_VAGUE,
    MINOR, crc32c, item, kind,
};
use kmemtrace_abi::event::{Event, Gap, GapCause, StreamItem};
use kmemtrace_abi::fault::Code;
use kmemtrace_abi::kernel::subbuffer::Missed;
use kmemtrace_abi::stream::report::FileReport;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::Trace;
use zerocopy::IntoBytes;

pub(crate) const RECORDING: [u8; 16] = [7; 16];
/// Bytes of a whole sub-buffer.
pub(crate) const PAGE: usize = 512;
/// Bytes of a record of `kfree` with the first word of its entry.
pub(crate) const ENTRY: usize = 4 + 24;

/// A kernel's byte order and word size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) endian: Endian,
    pub(crate) word: u8,
}

pub(crate) const PC: Machine = Machine { endian: Endian::Little, word: 8 };
pub(crate) const MACHINES: [Machine; 4] = [
    PC,
    Machine { endian: Endian::Big, word: 8 },
    Machine { endian: Endian::Little, word: 4 },
    Machine { endian: Endian::Big, word: 4 },
];

impl Machine {
    pub(crate) fn put(self, out: &mut Vec<u8>, value: u64, size: usize) {
        match self.endian {
            Endian::Little => out.extend_from_slice(&value.to_le_bytes()[..size]),
            Endian::Big => out.extend_from_slice(&value.to_be_bytes()[8 - size..]),
        }
    }

    pub(crate) fn header_page(self) -> String {
        let word = usize::from(self.word);
        let data = 8 + word;
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{word};\tsigned:1;\n\
             \tfield: char data;\toffset:{data};\tsize:{};\tsigned:1;\n",
            PAGE - data
        )
    }

    /// A trimmed sub-buffer with a `kfree` at each of the times, which must not fall.
    pub(crate) fn page(self, page: &Page) -> Vec<u8> {
        let mut time = page.start.or(page.times.first().copied()).unwrap_or(0);
        let (flags, behind) = match page.missed {
            None => (0, None),
            Some(Missed::Uncounted) => (1u32 << 31, None),
            Some(Missed::Counted(n)) => (3 << 30, Some(n)),
        };
        let mut out = Vec::new();
        self.put(&mut out, time, 8);
        let commit = flags | (page.times.len() * ENTRY) as u32;
        self.put(&mut out, i64::from(commit.cast_signed()).cast_unsigned(), self.word.into());
        for &at in &page.times {
            let delta = u32::try_from(at - time).unwrap();
            let head = match self.endian {
                Endian::Little => delta << 5 | 6,
                Endian::Big => 6 << 27 | delta,
            };
            self.put(&mut out, head.into(), 4);
            self.put(&mut out, 9, 2);
            self.put(&mut out, 0, 2);
            self.put(&mut out, 77, 4);
            self.put(&mut out, 0xffff_8000_0000_0000 + at, 8);
            self.put(&mut out, at, 8);
            time = at;
        }
        behind.into_iter().for_each(|n| self.put(&mut out, n, self.word.into()));
        out
    }
}

/// The format of event 9.
pub(crate) const KFREE: &str = "name: kfree\nID: 9\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
    \tfield:unsigned long call_site;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:const void * ptr;\toffset:16;\tsize:8;\tsigned:0;\n";

/// A sub-buffer to be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// Time stamp, where it is not the first record's time.
    pub(crate) start: Option<u64>,
    pub(crate) missed: Option<Missed>,
    pub(crate) times: Vec<u64>,
}

pub(crate) fn page(times: &[u64]) -> Page {
    Page { times: times.to_vec(), ..Page::default() }
}

pub(crate) fn marked(missed: Missed, times: &[u64]) -> Page {
    Page { missed: Some(missed), ..page(times) }
}

/// A file of ours. Totals and headers are right unless a test changes them.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) machine: Machine,
    pub(crate) minor: u16,
    info: BlockInfo,
    pub(crate) blocks: Vec<Vec<u8>>,
    pub(crate) end: End,
}

impl Made {
    /// Begins with the header of a tracefs recording of the CPUs.
    pub(crate) fn new(machine: Machine, cpu: u32, cpus: &[u32]) -> Made {
        let mut header = Vec::new();
        put_target(&mut header, machine, b"tracefs", cpus);
        item::put(&mut header, item::CLOCK, 0, b"mono");
        item::put(&mut header, item::HEADER_PAGE, 0, machine.header_page().as_bytes());
        item::put(&mut header, item::EVENT_FORMAT, 0, format!("kmem/kfree\n{KFREE}").as_bytes());
        Made::with_header(machine, cpu, &header)
    }

    pub(crate) fn with_header(machine: Machine, cpu: u32, header: &[u8]) -> Made {
        let info = BlockInfo { cpu, recording: RECORDING, ..BlockInfo::default() };
        let end = End { marks: MARKS_COUNTED.into(), ..End::default() };
        let mut made = Made { machine, minor: MINOR, info, blocks: Vec::new(), end };
        made.block(kind::FILE_HEADER, header, |_| {});
        made
    }

    /// One CPU's file of a 64-bit little endian machine.
    pub(crate) fn pc() -> Made {
        Made::new(PC, 0, &[0])
    }

    /// A file with the minor version, from its first block on.
    pub(crate) fn in_minor(mut self, minor: u16) -> Made {
        self.minor = minor;
        self.blocks.iter_mut().for_each(|block| set_minor(block, minor));
        self
    }

    pub(crate) fn block(&mut self, kind: u8, payload: &[u8], change: impl FnOnce(&mut BlockInfo)) -> &mut Made {
        let mut info = BlockInfo { kind, sequence: self.blocks.len() as u64, ..self.info };
        change(&mut info);
        let mut block = block::block(&info, payload);
        set_minor(&mut block, self.minor);
        self.blocks.push(block);
        self
    }

    pub(crate) fn data(&mut self, pages: &[Page]) -> &mut Made {
        self.data_with(pages, |_| {})
    }

    /// A block of sub-buffers whose header is changed.
    pub(crate) fn data_with(&mut self, pages: &[Page], change: impl FnOnce(&mut BlockInfo)) -> &mut Made {
        let payload: Vec<u8> = pages.iter().flat_map(|page| self.machine.page(page)).collect();
        let times: Vec<u64> = pages.iter().flat_map(|page| page.times.clone()).collect();
        let ends = times.first().zip(times.last()).map_or((0, 0), |(&first, &last)| (first, last));
        let events = times.len() as u64;
        self.block(kind::DATA, &payload, |info| {
            (info.first, info.last, info.events) = (ends.0, ends.1, events as u32);
            change(info);
        });
        self.count(events, ends);
        for missed in pages.iter().filter_map(|page| page.missed) {
            match missed {
                Missed::Counted(n) => self.info.lost_before += n,
                Missed::Uncounted => self.end.marks = MARKS_VAGUE.into(),
            }
        }
        self
    }

    /// Takes events on into the totals.
    pub(crate) fn count(&mut self, events: u64, (first, last): (u64, u64)) {
        if events > 0 && self.info.events_before == 0 {
            self.end.first = first.into();
        }
        if events > 0 {
            self.end.last = last.into();
        }
        self.info.events_before += events;
    }

    pub(crate) fn counters(&mut self, counters: Counters, grew: Interval) -> &mut Made {
        self.count_timed(grew);
        self.block(kind::COUNTERS, CounterSample { counters, grew }.as_bytes(), |_| {})
    }

    pub(crate) fn gap(&mut self, reason: u32, lost: u64, interval: Interval, text: &str) -> &mut Made {
        self.count_timed(interval);
        let record = GapRecord { lost: lost.into(), reason: reason.into(), interval, ..GapRecord::default() };
        self.block(kind::GAP, &[record.as_bytes(), text.as_bytes()].concat(), |_| {})
    }

    fn count_timed(&mut self, interval: Interval) {
        self.end.timed = (self.end.timed.get() + u32::from(interval.ends().is_some())).into();
    }

    pub(crate) fn end(&mut self) -> &mut Made {
        self.end_with(|_, _| {})
    }

    /// The end block, changed: by default the kernel handed out the events that are there.
    pub(crate) fn end_with(&mut self, change: impl FnOnce(&mut End, &mut BlockInfo)) -> &mut Made {
        let mut end = self.end;
        end.events = self.info.events_before.into();
        end.blocks = (self.blocks.len() as u64).into();
        end.counters.read = end.events;
        let mut info = self.info;
        change(&mut end, &mut info);
        let change = |to: &mut BlockInfo| *to = BlockInfo { kind: to.kind, sequence: to.sequence, ..info };
        self.block(kind::END, end.as_bytes(), change)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.blocks.concat()
    }

    /// Offset of a block in the file.
    pub(crate) fn offset(&self, block: usize) -> u64 {
        self.blocks[..block].iter().map(|block| block.len() as u64).sum()
    }

    /// Damages a block's payload.
    pub(crate) fn damage(&mut self, block: usize) -> &mut Made {
        self.blocks[block][HEADER_BYTES + 1] ^= 1;
        self
    }

    pub(crate) fn read(&self) -> Seen {
        let dir = Dir::new(&[("cpu0.out", &self.bytes())]);
        let mut all = dir.read();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }
}

/// Byte order, source and CPUs of a file header.
pub(crate) fn put_target(header: &mut Vec<u8>, machine: Machine, source: &[u8], cpus: &[u32]) {
    let order = if machine.endian == Endian::Little { 1 } else { 2 };
    item::put(header, item::TARGET, 0, &[order, machine.word, 0, 0, 0, 16, 0, 0]);
    item::put(header, item::SOURCE, 0, source);
    let cpus: Vec<u8> = cpus.iter().flat_map(|cpu| cpu.to_le_bytes()).collect();
    item::put(header, item::CPUS, 0, &cpus);
}

fn set_minor(block: &mut [u8], minor: u16) {
    block[16..18].copy_from_slice(&minor.to_le_bytes());
    let crc = crc32c(&block[12..HEADER_BYTES]).to_le_bytes();
    block[8..12].copy_from_slice(&crc);
}

/// A directory of files by their paths in it.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Dir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        Dir(dir)
    }

    pub(crate) fn open(&self) -> Trace {
        Trace::open(&[self.path("")]).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Reads every stream to its end.
    pub(crate) fn read(&self) -> Vec<Seen> {
        let mut trace = self.open();
        (0..trace.streams.len()).map(|stream| Seen::of(&mut trace, stream)).collect()
    }
}

/// An item as tests write it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// An event with this order key.
    At(u64),
    /// From, to and number of a gap.
    Gap(Option<u64>, Option<u64>, Option<u64>, GapCause),
}

impl Told {
    pub(crate) fn of(item: &StreamItem) -> Told {
        match *item {
            StreamItem::Event(event) => Told::At(event.at),
            StreamItem::Gap(Gap { from, to, lost, cause, .. }) => Told::Gap(from, to, lost, cause),
        }
    }
}

/// Items and facts of a stream that was read to its end.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) told: Vec<Told>,
    pub(crate) events: Vec<Event>,
    pub(crate) facts: FileReport,
}

impl Seen {
    pub(crate) fn of(trace: &mut Trace, stream: usize) -> Seen {
        let (names, stream) = (&mut trace.names, &mut trace.streams[stream]);
        let (mut items, mut told, mut events) = (Vec::new(), Vec::new(), Vec::new());
        while stream.fill(names, &mut items) {
            assert!(!items.is_empty(), "a batch has items");
            told.extend(items.iter().map(Told::of));
            events.extend(
                items.iter().filter_map(|item| if let StreamItem::Event(event) = item { Some(*event) } else { None }),
            );
        }
        assert!(items.is_empty() && !stream.fill(names, &mut items), "a stream ends once");
        let facts = stream.report().clone();
        let gaps = told.len() - events.len();
        assert_eq!((facts.events, facts.gaps), (events.len() as u64, gaps as u64));
        Seen { told, events, facts }
    }

    pub(crate) fn codes(&self) -> Vec<Code> {
        self.facts.faults.iter().map(|fault| fault.code).collect()
    }

    /// The text of the only finding of this code.
    pub(crate) fn message(&self, code: Code) -> &str {
        let mut found = self.facts.faults.iter().filter(|fault| fault.code == code);
        match (found.next(), found.next()) {
            (Some(fault), None) => &fault.message,
            _ => panic!("{:#?}", self.facts.faults),
        }
    }

    pub(crate) fn gaps(&self) -> Vec<Told> {
        self.told.iter().copied().filter(|told| matches!(told, Told::Gap(..))).collect()
    }
}

/// Counters with these numbers of events: overrun, dropped, lost by the recorder, read.
pub(crate) fn counters(overrun: u64, dropped: u64, recorder_lost: u64, read: u64) -> Counters {
    Counters {
        overrun: overrun.into(),
        dropped: dropped.into(),
        recorder_lost: recorder_lost.into(),
        read: read.into(),
        ..Counters::default()
    }
}
