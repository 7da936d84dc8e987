//! A workload as the files of a recording, in memory or, piece by piece, on disk.

use std::io::{self, Write};
use std::path::Path;

use super::layout::{header_event, header_page, layouts};
use super::pages::{Encoder, Open, Page, Stamp};
use super::relay::{RelayOptions, RelayStreams};
use super::workload::{Hand, PerCpu, Sample, Workload};
use super::{Random, Shape, probes};
use kmemtrace_abi::disk::block::{
    self, BlockInfo, CounterSample, Counters, END_ASKED, End, GAP_FOREIGN, GapRecord, Interval, LOST_UNKNOWN,
    MARKS_COUNTED, MARKS_UNKNOWN, MARKS_VAGUE, NO_CPU, RecordingId, item, kind,
};
use kmemtrace_abi::event::Event;
use kmemtrace_abi::kernel::format::without_print_fmt;
use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::kernel::subbuffer::Missed;
use kmemtrace_abi::target::Endian;
use zerocopy::IntoBytes;

/// The files of the recording of `workload`, by name: `cpuN.out` and `meta.out`.
pub fn trace_dir(workload: &Workload, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(seed);
    let recording = recording_id(&mut random);
    let header = file_header(workload, "tracefs", None);
    let encoder = Encoder::new(&workload.shape, &workload.names);
    let mut files = Vec::new();
    for cpu in workload.cpus.iter().filter(|c| !c.missing) {
        let pages = encoder.pages(cpu, &mut random);
        let mut file = File::new(recording, cpu.cpu, &header);
        let (mut samples, mut hands) = (cpu.samples.iter(), records(&cpu.hands).into_iter());
        for page in group(&pages, &mut random) {
            file.pages(page);
            if random.chance(10) {
                file.counters(Interval::new(1, random.below(3)));
            }
            if random.chance(30) {
                samples.next().into_iter().for_each(|sample| file.sample(sample));
            }
            if random.chance(30) {
                hands.next().into_iter().for_each(|hand| file.hand(&hand));
            }
        }
        samples.for_each(|sample| file.sample(sample));
        hands.for_each(|hand| file.hand(&hand));
        match cpu.cut {
            // The last counters know of all that was lost.
            true if !cpu.samples.is_empty() => file.counters(Interval::default()),
            true => {}
            false => {
                // The first recorders of this version did not tell of marks. A copy of the generator: the rest stays as it is.
                if random.clone().chance(40) {
                    file.marks = MARKS_UNKNOWN;
                }
                file.end(cpu);
            }
        }
        files.push((format!("cpu{}.out", cpu.cpu), file.bytes));
    }
    files.push(("meta.out".to_owned(), meta(workload, recording, "tracefs", None)));
    files
}

/// The records of what other programs did: each as it is seen, some again once it is over.
fn records(hands: &[Hand]) -> Vec<GapRecord> {
    let record = |hand: &Hand, to| GapRecord {
        lost: LOST_UNKNOWN.into(),
        reason: GAP_FOREIGN.into(),
        interval: Interval::new(hand.from, to),
        ..GapRecord::default()
    };
    let both = |hand: &Hand| [Some(Interval::TO_THE_END), hand.to].map(|to| to.map(|to| record(hand, to)));
    hands.iter().flat_map(both).flatten().collect()
}

/// Writes the files of a recording into the directory `dir`, which must be there: of `machine`, on which nothing happens but
/// `events`, in the order of their times. They are taken one by one, so there may be more of them than memory holds.
///
/// # Errors
/// Errors of the file system.
pub fn write_trace(
    dir: &Path,
    machine: &Workload,
    events: impl IntoIterator<Item = Event>,
    seed: u64,
) -> io::Result<()> {
    let mut random = Random::new(seed);
    let recording = recording_id(&mut random);
    let header = file_header(machine, "tracefs", None);
    let encoder = Encoder::new(&machine.shape, &machine.names);
    let create = |cpu: &PerCpu| {
        let file = File::new(recording, cpu.cpu, &header);
        let disk = std::fs::File::create(dir.join(format!("cpu{}.out", cpu.cpu)))?;
        Ok(FileOnDisk { disk, file, shape: machine.shape, pages: Vec::new(), open: None })
    };
    let mut files = machine.cpus.iter().map(create).collect::<io::Result<Vec<FileOnDisk>>>()?;
    for event in events {
        let file = files.iter_mut().find(|file| file.file.info.cpu == event.cpu);
        let file =
            file.ok_or_else(|| io::Error::other(format!("an event on CPU {}, of which there is none", event.cpu)))?;
        file.event(event.at, &encoder.record(&event, &mut random))?;
    }
    for (file, cpu) in files.into_iter().zip(&machine.cpus) {
        file.end(cpu)?;
    }
    std::fs::write(dir.join("meta.out"), meta(machine, recording, "tracefs", None))
}

/// The files of the recording of a relay channel.
pub fn relay_dir(
    workload: &Workload,
    options: &RelayOptions,
    streams: &RelayStreams,
    seed: u64,
) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(seed);
    let recording = recording_id(&mut random);
    let header = file_header(workload, "relay", Some(options));
    let mut files = Vec::new();
    for stream in &streams.cpus {
        let mut file = File::new(recording, stream.cpu, &header);
        let mut at = 0;
        while at < stream.records.len() {
            let n = (1 + random.below(200) as usize).min(stream.records.len() - at);
            file.records(&stream.records[at..at + n], options.layout == Layout::R4);
            at += n;
        }
        file.end(&PerCpu { cpu: stream.cpu, ..PerCpu::default() });
        files.push((format!("cpu{}.out", stream.cpu), file.bytes));
    }
    files.push(("meta.out".to_owned(), meta(workload, recording, "relay", Some(options))));
    files
}

fn recording_id(random: &mut Random) -> RecordingId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random.bits().to_le_bytes());
    id[8..].copy_from_slice(&random.bits().to_le_bytes());
    id
}

fn target_item(shape: &Shape, endian: Endian) -> Vec<u8> {
    let mut target = vec![if endian == Endian::Little { 1 } else { 2 }, shape.target.word_bytes, 0, 0];
    target.extend_from_slice(&shape.page_bytes.to_le_bytes());
    target
}

/// Items of the first block: those of all files.
fn common_items(workload: &Workload, source: &str, relay: Option<&RelayOptions>) -> Vec<u8> {
    let shape = &workload.shape;
    let mut out = Vec::new();
    let endian = relay.map_or(shape.target.endian, |r| r.endian);
    item::put(&mut out, item::TARGET, 0, &target_item(shape, endian));
    item::put(&mut out, item::SOURCE, 0, source.as_bytes());
    if let Some(relay) = relay {
        item::put(&mut out, item::RELAY_LAYOUT, 0, relay.layout.name().as_bytes());
    } else if let Some(clock) = workload.clock {
        item::put(&mut out, item::CLOCK, 0, clock.as_bytes());
    }
    let cpus: Vec<u8> = workload.cpus.iter().flat_map(|c| c.cpu.to_le_bytes()).collect();
    item::put(&mut out, item::CPUS, 0, &cpus);
    if let Some(kernel) = workload.kernel {
        item::put(&mut out, item::KERNEL, 0, kernel.as_bytes());
    }
    item::put(&mut out, item::ARCH, 0, shape.arch().as_bytes());
    item::put(&mut out, item::RECORDER, 0, b"generator");
    out
}

fn file_header(workload: &Workload, source: &str, relay: Option<&RelayOptions>) -> Vec<u8> {
    let mut out = common_items(workload, source, relay);
    if relay.is_none() {
        item::put(&mut out, item::HEADER_PAGE, 0, header_page(&workload.shape).as_bytes());
        item::put(&mut out, item::HEADER_EVENT, 0, header_event().as_bytes());
        for layout in layouts(&workload.shape) {
            let text = layout.text();
            let text = format!("{}/{}\n{}", layout.system, layout.name, without_print_fmt(&text));
            item::put(&mut out, item::EVENT_FORMAT, 0, text.as_bytes());
        }
        if workload.probes.is_some() {
            item::put(&mut out, item::PROBE_GROUP, 0, probes::GROUP.as_bytes());
            for layout in probes::probe_layouts(&workload.shape) {
                let text = layout.text();
                let text = format!("{}/{}\n{}", probes::GROUP, layout.name, without_print_fmt(&text));
                item::put(&mut out, item::EVENT_FORMAT, 0, text.as_bytes());
            }
        }
    }
    out
}

fn meta(workload: &Workload, recording: RecordingId, source: &str, relay: Option<&RelayOptions>) -> Vec<u8> {
    let mut header = common_items(workload, source, relay);
    let is_of_header = |tag: &u16| *tag < item::KALLSYMS;
    for (tag, text) in workload.items.iter().filter(|(tag, _)| is_of_header(tag)) {
        item::put(&mut header, *tag, 0, text.as_bytes());
    }
    let mut file = File::new(recording, NO_CPU, &header);
    let mut out = Vec::new();
    if !workload.nodes.is_empty() {
        let text: String = workload.nodes.iter().map(|(cpu, node)| format!("{cpu} {node}\n")).collect();
        item::put(&mut out, item::CPU_NODES, 0, text.as_bytes());
    }
    item::put(&mut out, item::UNAME, 0, b"Linux box 0 0 machine");
    if let Some(threads) = &workload.own_threads {
        let text: String = threads.iter().map(|thread| format!("{thread}\n")).collect();
        item::put(&mut out, item::OWN_THREADS, 0, text.as_bytes());
    }
    if let Some(from) = workload.probes.filter(|_| relay.is_none()) {
        let text = format!("{from}\nf:{}/kvfree_rcu kvfree_call_rcu ptr call_site=$stack0:x64\n", probes::GROUP);
        item::put(&mut out, item::PROBES, 0, text.as_bytes());
    }
    file.block(kind::META, &out, Tally::default());
    if !workload.comms.is_empty() {
        let mut out = Vec::new();
        let text: String = workload.comms.iter().map(|(pid, comm)| format!("{pid} {comm}\n")).collect();
        // Cut anywhere, as a long text is.
        let (head, tail) = text.as_bytes().split_at(text.len() / 2);
        item::put(&mut out, item::COMMS, 0, head);
        item::put(&mut out, item::COMMS, item::MORE, tail);
        file.block(kind::META, &out, Tally::default());
    }
    if let Some(threads) = &workload.threads_end {
        let mut out = Vec::new();
        let text: String = threads.iter().map(|thread| format!("{thread}\n")).collect();
        item::put(&mut out, item::THREADS_END, 0, text.as_bytes());
        file.block(kind::META, &out, Tally::default());
    }
    let [slabinfo_start, slabinfo_end] = &workload.slabinfo;
    let texts = [
        (item::SLABINFO_START, slabinfo_start),
        (item::SLABINFO_END, slabinfo_end),
        (item::MODULES, &workload.modules),
        (item::MODULE_INFO, &workload.module_info),
        (item::RECLAIM_ACCOUNT, &workload.reclaim_account),
    ];
    let more = workload.items.iter().filter(|(tag, _)| !is_of_header(tag)).map(|(tag, text)| (*tag, text));
    for (tag, text) in texts.into_iter().chain(more) {
        if !text.is_empty() {
            let mut out = Vec::new();
            item::put(&mut out, tag, 0, text.as_bytes());
            file.block(kind::META, &out, Tally::default());
        }
    }
    let kallsyms = match workload.hidden_symbols {
        true => format!("{:016x} T _text\n{:016x} t kfree\n{:016x} t foo_open\t[foo]\n", 0, 0, 0),
        false => workload.symbols.kallsyms(),
    };
    if !kallsyms.is_empty() {
        let mut out = Vec::new();
        item::put(&mut out, item::KALLSYMS, 0, kallsyms.as_bytes());
        file.block(kind::META, &out, Tally::default());
    }
    file.end(&PerCpu { cpu: NO_CPU, ..PerCpu::default() });
    file.bytes
}

/// Sub-buffers that go into one block: never across loss that only the recorder knows of.
fn group<'a>(pages: &'a [Page], random: &mut Random) -> Vec<&'a [Page]> {
    let mut groups = Vec::new();
    let mut start = 0;
    for i in 1..=pages.len() {
        if pages.get(i).is_none_or(|p| p.gap.is_some() || random.chance(30)) {
            groups.push(&pages[start..i]);
            start = i;
        }
    }
    groups
}

#[derive(Clone, Copy, Default)]
struct Tally {
    events: u32,
    first: u64,
    last: u64,
}

/// A file in the making.
struct File {
    bytes: Vec<u8>,
    info: BlockInfo,
    first: u64,
    last: u64,
    recorder_lost: u64,
    /// Events so far that the kernel refused.
    refused: u64,
    /// Events so far that other readers took.
    taken: u64,
    /// Blocks with an interval.
    timed: u32,
    /// The end block's word on marks without a count.
    marks: u32,
}

impl File {
    fn new(recording: RecordingId, cpu: u32, header: &[u8]) -> File {
        let info = BlockInfo { recording, cpu, ..BlockInfo::default() };
        let mut file = File {
            bytes: Vec::new(),
            info,
            first: 0,
            last: 0,
            recorder_lost: 0,
            refused: 0,
            taken: 0,
            timed: 0,
            marks: MARKS_COUNTED,
        };
        file.block(kind::FILE_HEADER, header, Tally::default());
        file
    }

    fn block(&mut self, kind: u8, payload: &[u8], tally: Tally) {
        let info = BlockInfo { kind, events: tally.events, first: tally.first, last: tally.last, ..self.info };
        self.bytes.extend_from_slice(&block::block(&info, payload));
        if tally.events > 0 {
            if self.info.events_before == 0 {
                self.first = tally.first;
            }
            self.last = tally.last;
        }
        self.info.sequence += 1;
        self.info.events_before += u64::from(tally.events);
    }

    fn pages(&mut self, pages: &[Page]) {
        if let Some(gap) = pages.first().and_then(|p| p.gap) {
            self.block(kind::GAP, gap.as_bytes(), Tally::default());
            if gap.lost.get() != LOST_UNKNOWN {
                self.info.lost_before += gap.lost.get();
                self.recorder_lost += gap.lost.get();
            }
        }
        let stored: Vec<&[u8]> = pages.iter().map(|p| &p.bytes[..p.trimmed]).collect();
        let events = pages.iter().map(|p| p.events).sum();
        let first = pages.first().map_or(0, |p| p.first);
        let last = pages.last().map_or(0, |p| p.last);
        self.block(kind::DATA, &stored.concat(), Tally { events, first, last });
        for page in pages {
            match page.missed {
                Some(Missed::Counted(lost)) => self.info.lost_before += lost,
                Some(Missed::Uncounted) => self.marks = MARKS_VAGUE,
                None => {}
            }
        }
    }

    fn records(&mut self, records: &[(u64, Vec<u8>)], numbered: bool) {
        let payload: Vec<u8> = records.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        // A recorder sees the number as the record has it, 32 bits.
        let stamp =
            |record: Option<&(u64, Vec<u8>)>| record.map_or(0, |r| if numbered { r.0 & 0xffff_ffff } else { r.0 });
        let (first, last) = (stamp(records.first()), stamp(records.last()));
        self.block(kind::DATA, &payload, Tally { events: records.len() as u32, first, last });
    }

    /// The counters as they are: what was lost so far is what the marks and the samples say.
    fn counters(&mut self, grew: Interval) {
        let counters = Counters {
            overrun: (self.info.lost_before - self.recorder_lost).into(),
            dropped: self.refused.into(),
            read: (self.info.events_before + self.recorder_lost + self.taken).into(),
            recorder_lost: self.recorder_lost.into(),
            ..Counters::default()
        };
        self.timed += u32::from(grew.ends().is_some());
        self.block(kind::COUNTERS, CounterSample { counters, grew }.as_bytes(), Tally::default());
    }

    /// The counters after they have grown.
    fn sample(&mut self, sample: &Sample) {
        (self.refused, self.taken) = (self.refused + sample.refused, self.taken + sample.taken);
        self.counters(sample.grew);
    }

    /// Writes the record of another program's change.
    fn hand(&mut self, record: &GapRecord) {
        self.timed += 1;
        self.block(kind::GAP, &[record.as_bytes(), b"tracing_on is 0"].concat(), Tally::default());
    }

    fn end(&mut self, cpu: &PerCpu) {
        let end = End {
            counters: Counters {
                overrun: cpu.overrun.into(),
                dropped: cpu.dropped.into(),
                read: (self.info.events_before + cpu.recorder_lost + cpu.taken).into(),
                recorder_lost: cpu.recorder_lost.into(),
                ..Counters::default()
            },
            events: self.info.events_before.into(),
            blocks: self.info.sequence.into(),
            first: self.first.into(),
            last: self.last.into(),
            reason: END_ASKED.into(),
            timed: self.timed.into(),
            grew: cpu.last_grew,
            marks: self.marks.into(),
            ..End::default()
        };
        self.block(kind::END, end.as_bytes(), Tally::default());
    }
}

/// Bytes of a block: as many as the recorder puts into one.
const BLOCK_BYTES: usize = 256 << 10;

/// A file in the making whose blocks go to a disk.
struct FileOnDisk {
    disk: std::fs::File,
    file: File,
    shape: Shape,
    /// Pages of the next block.
    pages: Vec<Page>,
    open: Option<Open>,
}

impl FileOnDisk {
    fn event(&mut self, at: u64, record: &[u8]) -> io::Result<()> {
        if self.open.as_mut().is_some_and(|page| page.add(at, record, Stamp::Delta)) {
            return Ok(());
        }
        if let Some(page) = self.open.take() {
            self.pages.push(page.finish());
        }
        if self.pages.len() * self.shape.sub_buffer_bytes >= BLOCK_BYTES {
            self.block()?;
        }
        self.open.insert(Open::new(&self.shape, at)).add(at, record, Stamp::Delta);
        Ok(())
    }

    fn block(&mut self) -> io::Result<()> {
        self.file.pages(&self.pages);
        self.pages.clear();
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        self.disk.write_all(&self.file.bytes)?;
        self.file.bytes.clear();
        Ok(())
    }

    fn end(mut self, cpu: &PerCpu) -> io::Result<()> {
        self.pages.extend(self.open.take().map(Open::finish));
        if !self.pages.is_empty() {
            self.block()?;
        }
        self.file.end(cpu);
        self.write()
    }
}
