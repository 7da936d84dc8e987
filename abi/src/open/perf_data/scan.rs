//! The first pass over a `perf.data`: where the records of each CPU stand, and what records besides samples say.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::facts::Facts;
use super::layout::{Attr, Attrs};
use super::records::{Record, Records, kind};
use crate::disk::part::Part;
use crate::memory::{Meter, OverLimit};
use crate::open::trace_dat::items::Stop;
use crate::target::{Endian, u32_of, u64_of};

/// Bit of `misc`: the lost samples are those that a program of BPF turned away, no loss.
const LOST_SAMPLES_BPF: u16 = 1 << 15;
/// Runs of all CPUs that are kept, at most; then neighbours become one, and a reader passes over the records of other CPUs.
const MAX_RUNS: usize = 2 << 20;
/// Ends of rounds that are kept, at most.
const MAX_ROUNDS: usize = 1 << 20;
/// Command names that are kept, at most.
const MAX_COMMS: usize = 1 << 19;
/// Bytes that one takes, about: its entry, with the room that a growing table has, and the name.
const COMM_BYTES: u64 = 96;

/// Ids of events whose CPUs are kept, at most: one for each CPU and event.
const MAX_IDS: usize = 1 << 20;
/// Bytes that one takes, about.
const ID_BYTES: u64 = 32;

/// A part of the file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What was found about a CPU.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// Parts of the file that hold all of its samples and losses, ascending.
    pub(super) runs: Vec<Run>,
    /// Time of its latest sample.
    last: u64,
    /// A sample is earlier than one before it.
    pub(super) is_unordered: bool,
    /// Sums of the LOST records, and of the LOST_SAMPLES records.
    pub(super) lost: [u64; 2],
}

impl Cpu {
    /// Adds a record to the runs; returns the number of new ones.
    fn extend(&mut self, record: &Record<'_>) -> usize {
        let (start, end) = (record.offset, record.end());
        match self.runs.last_mut() {
            Some(run) if run.end == start => {
                run.end = end;
                0
            }
            _ => {
                self.runs.push(Run { start, end });
                1
            }
        }
    }
}

/// End of a round of perf's: all earlier records of the round before have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// Offset in the file.
    pub(super) at: u64,
    /// Samples up to this time are all there.
    pub(super) until: u64,
}

/// What the first pass has found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) attrs: Attrs,
    pub(super) facts: Facts,
    pub(super) cpus: BTreeMap<u32, Cpu>,
    pub(super) rounds: Vec<Round>,
    pub(super) comms: HashMap<i32, Box<[u8]>>,
    /// Symbol at the begin of the kernel's image, and its address.
    pub(super) image_begin: Option<(Box<[u8]>, u64)>,
    /// The recording is of some threads: an id belongs to one.
    pub(super) has_threads: Option<bool>,
    /// The file ends inside a record, or one makes no sense: offset and reason.
    pub(super) broken: Option<(u64, io::Error)>,
    /// Samples that end before their time or CPU: offset of the first one, and how many.
    pub(super) short: Option<(u64, u64)>,
    /// The file has compressed records.
    pub(super) is_compressed: bool,
    /// Descriptions of events, or names of threads, take more memory than the process may.
    pub(super) over: Option<OverLimit>,
    meter: Meter,
    /// CPU of each id that is of one.
    id_cpus: HashMap<u64, u32>,
    /// Sum of the LOST_SAMPLES records that tell no CPU.
    lost_anywhere: u64,
    /// Number of runs of all CPUs.
    runs: usize,
    /// Largest time so far, and at the end of the round before.
    latest: u64,
    latest_before: u64,
}

impl Scan {
    /// Reads all records from byte `at` to `end`; those that the file does not hold any more are told in `broken`.
    pub(super) fn read(&mut self, file: &Arc<File>, endian: Endian, at: u64, end: u64) {
        self.read_records(file, endian, at, end);
        self.place_lost();
    }

    /// Distributes the sums that name no CPU: each CPU takes as much as its own marks tell, and the first one takes the rest.
    fn place_lost(&mut self) {
        let mut left = std::mem::take(&mut self.lost_anywhere);
        for cpu in self.cpus.values_mut() {
            let [marked, counted] = cpu.lost;
            let part = marked.saturating_sub(counted).min(left);
            cpu.lost = [marked, counted.saturating_add(part)];
            left = left.saturating_sub(part);
        }
        if left > 0 {
            let first = self.cpus.keys().next().copied().unwrap_or(0);
            let [_, counted] = &mut self.cpus.entry(first).or_default().lost;
            *counted = counted.saturating_add(left);
        }
    }

    fn read_records(&mut self, file: &Arc<File>, endian: Endian, at: u64, end: u64) {
        let mut records = Records::new(Arc::clone(file), endian, at, end);
        loop {
            match records.next() {
                Ok(Some(record)) => self.take(&record, file, endian),
                Ok(None) => return,
                Err(error) => {
                    let at = records.at();
                    // A record that begins before the end and is not whole: the rest of the file.
                    self.broken = Some((at, error));
                    return;
                }
            }
        }
    }

    fn take(&mut self, record: &Record<'_>, file: &Arc<File>, endian: Endian) {
        let body = record.body();
        match record.kind {
            kind::SAMPLE => {
                let Some(attr) = self.attrs.of_sample(body, endian).filter(|attr| attr.event.is_some()) else { return };
                let Some((time, cpu)) = attr.place(body, endian) else {
                    let (_, count) = self.short.get_or_insert((record.offset, 0));
                    *count = count.saturating_add(1);
                    return;
                };
                self.latest = self.latest.max(time);
                let found = self.cpus.entry(cpu).or_default();
                found.is_unordered |= time < found.last;
                found.last = found.last.max(time);
                self.runs = self.runs.saturating_add(found.extend(record));
                self.limit_runs();
            }
            kind::LOST | kind::LOST_SAMPLES => {
                let attr = self.attrs.of_other(body, endian);
                let Some((time, cpu)) = attr.and_then(|attr| attr.place_at_end(body, endian)) else { return };
                let (index, at) = if record.kind == kind::LOST { (0, 8) } else { (1, 0) };
                if index == 1 && record.misc & LOST_SAMPLES_BPF != 0 {
                    return;
                }
                let lost = u64_of(endian, body, at).unwrap_or(0);
                // perf writes these counts at the end, with the id alone.
                let is_of_perf = index == 1 && time == 0;
                let of_id = || self.id_cpus.get(&self.attrs.id_of_other(body, endian)?).copied();
                let Some(cpu) = (if is_of_perf { of_id() } else { Some(cpu) }) else {
                    self.lost_anywhere = self.lost_anywhere.saturating_add(lost);
                    return;
                };
                let found = self.cpus.entry(cpu).or_default();
                if let Some(sum) = found.lost.get_mut(index) {
                    *sum = sum.saturating_add(lost);
                }
                self.runs = self.runs.saturating_add(found.extend(record));
                self.limit_runs();
            }
            kind::COMM => self.take_comm(body, endian),
            kind::MMAP => self.take_map(body, endian),
            kind::ID_INDEX => {
                // Entries of id, index, CPU and thread; the thread is -1 where the event is of a whole CPU, the CPU where it is of any.
                let entries = body.get(8..).unwrap_or_default().chunks_exact(32);
                let mut threads = entries.clone().map(|entry| u64_of(endian, entry, 24));
                let has_threads = threads.any(|thread| thread.is_some_and(|thread| thread != u64::MAX));
                self.has_threads = Some(has_threads || self.has_threads == Some(true));
                for entry in entries.take(MAX_IDS.saturating_sub(self.id_cpus.len())) {
                    let cpu = u64_of(endian, entry, 16).and_then(|cpu| u32::try_from(cpu).ok());
                    self.id_cpus.extend(u64_of(endian, entry, 0).zip(cpu));
                    self.over = self.over.or(self.meter.take(ID_BYTES).err());
                }
            }
            kind::FINISHED_ROUND => {
                if self.rounds.len() < MAX_ROUNDS {
                    self.rounds.push(Round { at: record.offset, until: self.latest_before });
                }
                self.latest_before = self.latest;
            }
            kind::HEADER_ATTR => {
                let size = u32_of(endian, body, 4).unwrap_or(0) as usize;
                let ids = body.get(size..).unwrap_or_default().chunks_exact(8);
                if let Some(attr) = body.get(..size).and_then(|attr| Attr::parse(attr, endian)) {
                    self.attrs.add(attr, ids.filter_map(|id| u64_of(endian, id, 0)));
                }
            }
            kind::HEADER_TRACING_DATA => {
                let len = u32_of(endian, body, 0).unwrap_or(0);
                self.take_tracing_data(file, record.end(), len.into());
            }
            kind::HEADER_FEATURE => {
                let id = u64_of(endian, body, 0).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
                self.facts.take(id, body.get(8..).unwrap_or_default(), endian);
            }
            kind::COMPRESSED | kind::COMPRESSED2 => self.is_compressed = true,
            _ => {}
        }
    }

    /// Takes the tracing data in a part of the file. Without them no event can be decoded, which is told later.
    pub(super) fn take_tracing_data(&mut self, file: &Arc<File>, start: u64, len: u64) {
        let from = io::BufReader::new(Part::range(Arc::clone(file), start, len));
        // What makes no sense is not there.
        if let Err(Stop::Over(over)) = self.facts.take_tracing_data(from) {
            self.over = Some(over);
        }
    }

    /// Threads' names: pid, tid, name. A later one wins, as in other inputs.
    fn take_comm(&mut self, body: &[u8], endian: Endian) {
        let Some(tid) = u32_of(endian, body, 4).map(u32::cast_signed) else { return };
        let name = body.get(8..).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        if self.comms.len() < MAX_COMMS || self.comms.contains_key(&tid) {
            self.comms.insert(tid, name.get(..16).unwrap_or(name).into());
            self.over = self.over.or(self.meter.take(COMM_BYTES).err());
        }
    }

    /// Map of the kernel's own image: pid, tid, address, length, offset, name. The name has the symbol whose address the offset is.
    fn take_map(&mut self, body: &[u8], endian: Endian) {
        let name = body.get(32..).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let Some(symbol @ (b"_text" | b"_stext")) = name.strip_prefix(b"[kernel.kallsyms]") else { return };
        let address = u64_of(endian, body, 24).filter(|&address| address != 0);
        self.image_begin = self.image_begin.take().or_else(|| Some((symbol.into(), address?)));
    }

    /// Makes one run of two neighbours of each CPU where there are too many.
    fn limit_runs(&mut self) {
        if self.runs <= MAX_RUNS {
            return;
        }
        self.runs = 0;
        for cpu in self.cpus.values_mut() {
            let two = cpu.runs.chunks(2);
            let joined = two.filter_map(|two| Some(Run { start: two.first()?.start, end: two.last()?.end }));
            cpu.runs = joined.collect();
            self.runs = self.runs.saturating_add(cpu.runs.len());
        }
    }
}

/// True for an error that means that the file ends early.
pub(super) fn is_cut(error: &io::Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn record(kind: u32, body: &[u64]) -> Vec<u8> {
        let body: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = u16::try_from(body.len() + 8).unwrap();
        [&kind.to_le_bytes()[..], &[0; 2], &len.to_le_bytes(), &body].concat()
    }

    /// Sums of LOST and of LOST_SAMPLES for each CPU.
    fn lost(records: &[Vec<u8>]) -> Vec<(u32, [u64; 2])> {
        let mut attr = [0u64; 17];
        attr[0] = 2 | 136 << 32;
        attr[1] = 653;
        // Samples have an identifier, thread, time, CPU and a raw record.
        attr[3] = 1 << 16 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10;
        let ids = [5, 6];
        let bytes = [record(kind::HEADER_ATTR, &[&attr[..], &ids].concat()), records.concat()].concat();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut scan = Scan::default();
        scan.read(&Arc::new(file), Endian::Little, 0, bytes.len() as u64);
        scan.cpus.into_iter().map(|(cpu, found)| (cpu, found.lost)).collect()
    }

    /// perf writes the sums at the end with an id alone: no thread, time 0, CPU 0.
    #[test]
    fn sums_without_a_place_belong_to_the_cpu_of_their_id() {
        let index = record(kind::ID_INDEX, &[2, 5, 0, 0, u64::MAX, 6, 1, 1, u64::MAX]);
        let mark = |lost, cpu, id| record(kind::LOST, &[id, lost, 0, 555, cpu, id]);
        let sum = |lost, id| record(kind::LOST_SAMPLES, &[lost, 0, 0, 0, id]);
        let marks = [mark(30, 1, 6), mark(7, 0, 5)];
        let with_index = [&[index][..], &marks, &[sum(33, 6), sum(7, 5)]].concat();
        assert_eq!(lost(&with_index), [(0, [7, 7]), (1, [30, 33])]);
        // Without the index sums go where marks tell of loss; no event is counted twice.
        let without = [&marks[..], &[sum(33, 6), sum(7, 5)]].concat();
        assert_eq!(lost(&without), [(0, [7, 10]), (1, [30, 30])]);
        let placed = record(kind::LOST_SAMPLES, &[4, 0, 555, 1, 6]);
        assert_eq!(lost(&[placed]), [(1, [0, 4])]);
    }
}
