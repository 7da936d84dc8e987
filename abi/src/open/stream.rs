//! A recording that comes as a stream: the blocks of all its files, interleaved, as through a pipe.
//!
//! The caller reads the bytes, as it likes to wait for them, and hands them to a [`StreamInput`]. This cuts them into blocks and gives
//! each to the stream of its CPU, which decodes it as that of a file that grows.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::foreign::{self, STREAM_MARK_BYTES};
use super::listing::{MAX_CPUS, no_trace};
use super::recording::{MetaFile, Opened, assemble};
use crate::disk::block::{self, End, Header, MAGIC, NO_CPU, Parsed, RecordingId, item, kind};
use crate::disk::blocks::BlockReader;
use crate::disk::feed::Feed;
use crate::fault::{Code, Fault};
use crate::trace::{MAX_STREAMS, Metadata, OpenError, Trace};

/// Limit of the names that come before the first events, in bytes.
const MAX_NAMES: usize = 256 << 20;
/// Limit of command names that come later.
const MAX_COMMS: usize = 1 << 18;
/// Largest block of names that is still taken beyond the limit, in bytes.
const MAX_COMMS_BLOCK: u32 = 64 << 10;

/// Reader of a stream of interleaved blocks.
#[derive(Debug)]
pub struct StreamInput {
    /// Name for messages.
    name: PathBuf,
    /// Bytes that are no whole block yet.
    buffer: Vec<u8>,
    /// Offset of their first one in the stream.
    offset: u64,
    /// Length of headers, and the recording, once a block was seen.
    known: Option<(usize, RecordingId)>,
    /// Blocks of each CPU; none of others are taken once the trace is open.
    feeds: BTreeMap<u32, Feed>,
    /// CPUs whose first block is there.
    begun: u32,
    names: Feed,
    meta: MetaFile,
    /// Bytes of names so far.
    bytes_of_names: usize,
    /// The end block of `meta.out` is there.
    has_end: bool,
    /// The symbols are all there.
    has_symbols: bool,
    /// The recorder's own threads are there: it lists them when all of them run, after the first blocks of all files.
    has_own_threads: bool,
    stage: Stage,
    /// The last bytes were damaged, which was reported.
    is_damaged: bool,
    /// Blocks of CPUs that the recording does not have.
    strangers: u64,
    /// Names that came since the caller took them.
    later: LaterNames,
    /// `END_*` of the CPUs whose end is there.
    ends: BTreeMap<u32, u32>,
}

/// Names that come while the recording goes on.
#[derive(Clone, Debug, Default)]
pub struct LaterNames {
    /// Command names by thread id.
    pub comms: HashMap<i32, Box<[u8]>>,
    /// Lines of `/proc/kallsyms` of new modules.
    pub kallsyms: Vec<u8>,
    /// Lines of `/proc/modules`.
    pub modules: Vec<u8>,
    /// `/proc/meminfo` once the kernel records.
    pub meminfo_start: Vec<u8>,
    /// Lines `TID TGID ROOT PATH` of threads whose cgroups the recorder has found.
    pub cgroups: Vec<u8>,
}

/// Progress of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// First blocks are missing.
    Opening,
    /// A trace can be made.
    Opened,
    /// The caller has the trace.
    Running,
}

impl StreamInput {
    /// Reader of a stream that messages call `name`.
    pub fn new(name: &Path) -> StreamInput {
        let names = Feed::default();
        let meta = MetaFile::new(PathBuf::from("meta.out"), BlockReader::of_feed(names.clone()));
        StreamInput {
            name: name.to_owned(),
            buffer: Vec::new(),
            offset: 0,
            known: None,
            feeds: BTreeMap::new(),
            begun: 0,
            names,
            meta,
            bytes_of_names: 0,
            has_end: false,
            has_symbols: false,
            has_own_threads: false,
            stage: Stage::Opening,
            is_damaged: false,
            strangers: 0,
            later: LaterNames::default(),
            ends: BTreeMap::new(),
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// A stream that does not begin with a block of a recording, or is of a newer format.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        self.buffer.extend_from_slice(bytes);
        let buffer = std::mem::take(&mut self.buffer);
        let mut from = 0;
        let taken = loop {
            let rest = buffer.get(from..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            match block::parse(rest, self.known.map(|(len, _)| len)) {
                Parsed::Header(header, len) => {
                    let whole = len.saturating_add(header.payload_len.get() as usize);
                    let Some(block) = rest.get(..whole) else { break Ok(()) };
                    self.known.get_or_insert((len, header.recording));
                    self.is_damaged = false;
                    self.block(&header, block);
                    from = from.saturating_add(whole);
                    self.offset = self.offset.saturating_add(whole as u64);
                }
                Parsed::Short(_) => break Ok(()),
                Parsed::Newer(found) if self.known.is_none() => {
                    break Err(OpenError::Newer { path: self.name.clone(), found });
                }
                Parsed::Newer(_) | Parsed::Bad => {
                    if self.known.is_none() {
                        // Too few bytes to tell what it is: wait for more, or for the end.
                        if rest.len() < STREAM_MARK_BYTES {
                            break Ok(());
                        }
                        break Err(self.no_stream(rest));
                    }
                    self.tell_damage();
                    let skipped = rest.iter().skip(1).take_while(|&&byte| byte != MAGIC[0]).count().saturating_add(1);
                    from = from.saturating_add(skipped);
                    self.offset = self.offset.saturating_add(skipped as u64);
                }
            }
        };
        self.buffer = buffer;
        self.buffer.drain(..from);
        taken
    }

    /// Error of bytes that are no stream of ours.
    fn no_stream(&self, bytes: &[u8]) -> OpenError {
        let what = foreign::known(bytes.get(..STREAM_MARK_BYTES).unwrap_or(bytes)).unwrap_or_else(|| {
            "is no stream of a recording: it does not begin with a block of one; kmemtraced watch makes one".to_owned()
        });
        no_trace(&self.name, &what)
    }

    fn tell_damage(&mut self) {
        if !std::mem::replace(&mut self.is_damaged, true) {
            let message = format!("no whole block header at byte {} of the stream", self.offset);
            self.meta.report.add(Fault { code: Code::BadHeader, offset: self.offset, block: None, message });
        }
    }

    /// Gives a block to the reader of its file.
    fn block(&mut self, header: &Header, block: &[u8]) {
        let (recording, cpu) = (header.recording, header.cpu.get());
        if self.known.is_none_or(|(_, known)| known != recording) {
            let message = format!("a block of another recording stands at byte {} of the stream", self.offset);
            self.meta.report.add(Fault { code: Code::Foreign, offset: self.offset, block: None, message });
            return;
        }
        let is_first = matches!(header.kind, kind::FILE_HEADER | kind::META);
        if self.stage == Stage::Opening && !is_first {
            self.stage = Stage::Opened;
        }
        if cpu == NO_CPU {
            return self.name_block(header, block);
        }
        if header.kind == kind::END
            && let Some(end) = End::at_end_of(block)
        {
            self.ends.insert(cpu, end.reason.get());
        }
        let is_room = self.feeds.len() < MAX_CPUS as usize && self.stage != Stage::Running;
        if !self.feeds.contains_key(&cpu) && is_room {
            self.feeds.insert(cpu, Feed::default());
        }
        match self.feeds.get(&cpu) {
            Some(feed) => feed.push(block),
            None => self.strangers = self.strangers.saturating_add(1),
        }
        self.begun = self.begun.saturating_add(u32::from(header.kind == kind::FILE_HEADER));
        self.look_for_all();
    }

    /// Takes a block of `meta.out`.
    fn name_block(&mut self, header: &Header, block: &[u8]) {
        self.bytes_of_names = self.bytes_of_names.saturating_add(header.raw_len.get() as usize);
        // The names of threads go on as long as the recording.
        if self.bytes_of_names > MAX_NAMES && (self.stage != Stage::Running || header.raw_len.get() > MAX_COMMS_BLOCK) {
            return;
        }
        self.has_end |= header.kind == kind::END;
        self.names.push(block);
        while self.meta.reader.has_next() && self.meta.next() {
            if header.kind == kind::META {
                for (tag, flags, _) in item::walk(self.meta.reader.payload()).filter_map(Result::ok) {
                    self.has_symbols |= tag == item::KALLSYMS && flags & item::MORE == 0;
                    self.has_own_threads |= tag == item::OWN_THREADS;
                }
            }
        }
        if self.stage == Stage::Running {
            let Metadata { comms, kallsyms, modules, meminfo_start, cgroups, .. } = self.meta.take_names();
            let later = &mut self.later;
            let room = MAX_COMMS.saturating_sub(later.comms.len());
            later.comms.extend(comms.into_iter().take(room));
            later.kallsyms.extend(kallsyms);
            later.modules.extend(modules);
            later.cgroups.extend(cgroups);
            if !meminfo_start.is_empty() {
                later.meminfo_start = meminfo_start;
            }
        }
        self.look_for_all();
    }

    /// Ends the opening where the first blocks of all files and the facts about the recorder are there. Without these the first event ends it.
    fn look_for_all(&mut self) {
        let cpus = self.meta.header.as_ref().map_or(usize::MAX, |header| header.cpus.len());
        let is_described = self.has_symbols && self.has_own_threads;
        if self.stage == Stage::Opening && is_described && self.begun as usize >= cpus {
            self.stage = Stage::Opened;
        }
    }

    /// The trace, once its first blocks are there; `None` before, and afterwards. Its streams have more once more bytes were taken.
    ///
    /// # Errors
    /// A stream of a newer format, or one that does not describe its events.
    pub fn trace(&mut self) -> Result<Option<Trace>, OpenError> {
        if self.stage != Stage::Opened {
            return Ok(None);
        }
        self.stage = Stage::Running;
        let header = self.meta.header.clone();
        for cpu in header.iter().flat_map(|header| &header.cpus).take(MAX_CPUS as usize) {
            self.feeds.entry(*cpu).or_default();
        }
        let opened: Result<Vec<Opened>, OpenError> =
            self.feeds.iter().map(|(cpu, feed)| Opened::of_feed(*cpu, feed.clone())).collect();
        let opened = opened?;
        if header.is_none() && opened.iter().all(|file| !file.has_header()) {
            return Err(no_trace(
                &self.name,
                "begins in the middle of a recording: start its reader before the recorder",
            ));
        }
        let names = self.meta.take_names();
        let meta = Metadata { report: Some(self.meta.report.clone()), ..names };
        let mut trace = assemble(opened, (meta, header, self.known.map(|(_, recording)| recording)), Path::new(""));
        if trace.streams.len() > MAX_STREAMS {
            return Err(no_trace(&self.name, "has more CPUs than can be told apart"));
        }
        let keys = trace.info.keys();
        trace.streams.iter_mut().for_each(|stream| {
            stream.set_keys(keys);
            stream.follow(true);
        });
        trace.inputs = vec![self.name.clone()];
        trace.find_symbols();
        Ok(Some(trace))
    }

    /// Notes the end of the stream: streams of CPUs without an end block are cut there.
    ///
    /// # Errors
    /// A stream without a block.
    pub fn end(&mut self) -> Result<(), OpenError> {
        if self.known.is_none() {
            let reason = "has no block of a recording: its writer ended before it began";
            return Err(if self.buffer.is_empty() {
                no_trace(&self.name, reason)
            } else {
                self.no_stream(&self.buffer)
            });
        }
        if !self.buffer.is_empty() {
            let message = format!("the stream ends inside a block, at byte {}", self.offset);
            self.meta.report.add(Fault { code: Code::CutInBlock, offset: self.offset, block: None, message });
        }
        self.feeds.values().for_each(Feed::close);
        self.names.close();
        while self.meta.next() {}
        if self.stage == Stage::Opening {
            self.stage = Stage::Opened;
        }
        Ok(())
    }

    /// Completes the report of `meta.out` in the trace, with the findings about the stream.
    pub fn report(&mut self, trace: &mut Trace) {
        if self.strangers > 0 {
            let message = format!("{} blocks are of CPUs that the recording does not have", self.strangers);
            self.meta.report.add(Fault { code: Code::Foreign, offset: 0, block: None, message });
            self.strangers = 0;
        }
        self.meta.sum_up();
        trace.metadata.report = Some(self.meta.report.clone());
    }

    /// True once `meta.out` has ended, which the recorder writes last.
    pub fn has_ended(&self) -> bool {
        self.has_end
    }

    /// Takes the names that came since the last call.
    pub fn take_later(&mut self) -> LaterNames {
        std::mem::take(&mut self.later)
    }

    /// Reasons (`END_*`) why the files of the CPUs end; `None` while one has no end.
    pub fn end_reasons(&self) -> Option<Vec<u32>> {
        self.feeds.keys().map(|cpu| self.ends.get(cpu).copied()).collect()
    }

    /// Bytes of blocks that the streams of the trace have not read yet.
    pub fn bytes_waiting(&self) -> usize {
        self.feeds.values().map(Feed::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read of a pipe may return any number of bytes.
    #[test]
    fn what_is_no_stream_is_told_alike_however_it_is_cut() {
        for (bytes, told) in [
            (&b"S'/usr/src/linux'\np0\n."[..], "a Python pickle, as trace_analyze saved them"),
            (b"S'", "a Python pickle, as trace_analyze saved them"),
            (b"# tracer: nop\n#\n", "text of ftrace"),
            (b"x", "does not begin with a block"),
            (b"kernel: a line of a log that goes on\n", "does not begin with a block"),
        ] {
            for piece in [1, 3, bytes.len()] {
                let mut input = StreamInput::new(Path::new("stream"));
                let refused = bytes.chunks(piece).try_for_each(|piece| input.take(piece)).and_then(|()| input.end());
                let refused = refused.map_err(|error| error.to_string());
                assert!(refused.as_ref().is_err_and(|said| said.contains(told)), "{piece}: {refused:?}");
            }
        }
    }
}
