//! First pass over a text: the facts that readers must know before the first event, gaps above all. A line about loss stands right
//! before its CPU's next event, long after the gap began.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use super::buffers::{BufferFacts, Buffers};
use super::entry::{Entry, entry};
use super::graph::{Call, Task};
use super::head::{Form, Head, Time, decimal, strip};
use super::record::{self, Caller, Content, Pointer};
use super::refusal::{self, Refusal};
use super::sites::{self, Sites};
use super::waits;
use crate::event::{Action, ByKind, Gap, GapCause, Mark};
use crate::fault::{Code, Fault};
use crate::kernel::latency::{self, Meaning};
use crate::kernel::profile::EventProfile;
use crate::kernel::release::Release;
use crate::memory::Meter;
use crate::open::first_pass::{add_fault, add_gap};
use crate::open::lines::{Line, Lines};
use crate::open::listing::MAX_CPUS;
use crate::text::split::split_once;

/// Limit of names of events in pairs.
const MAX_PAIRED: usize = 1 << 8;
/// Limit of command names.
const MAX_COMMS: usize = 1 << 20;

/// Facts that several texts of one trace share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) sites: Sites,
    /// Command name of each thread, the last one.
    pub(super) comms: HashMap<i32, Box<[u8]>>,
    /// Names of events that may be of pairs which have no name here.
    pub(super) paired: HashSet<Box<[u8]>>,
}

/// Order keys of a CPU's first and last event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Time of the last event, which may be before its key.
    time: u64,
}

/// Facts of a text.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) cpus: BTreeMap<u32, Extent>,
    pub(super) gaps: Vec<Gap>,
    /// Entries of the kernel's buffer: events and stacks.
    pub(super) events: u64,
    /// Entries that the header counts: in the buffer, and written.
    pub(super) told: Option<(u64, u64)>,
    /// Kinds of objects that events are of.
    pub(super) kinds: ByKind<bool>,
    /// CPUs that the kernel may have.
    pub(super) possible: Option<u32>,
    /// Release of the kernel.
    pub(super) kernel: Option<String>,
    pub(super) has_header: bool,
    pub(super) is_of_perf: bool,
    /// Ring buffers that the text has events of.
    pub(super) buffers: Vec<BufferFacts>,
    /// Dump of the kernel's buffer on a console.
    pub(super) is_dump: bool,
    /// Events that lines about loss count, and whether one has no number.
    pub(super) lost: u64,
    pub(super) has_uncounted: bool,
    pub(super) has_loss_lines: bool,
    pub(super) has_stacks: bool,
    /// Some call site is an address, which symbols may name.
    pub(super) has_bare_sites: bool,
    /// Some pointer is no hash.
    pub(super) has_real_pointer: bool,
    /// Times are numbers without a unit.
    pub(super) is_whole: bool,
    /// Some line has no time.
    pub(super) is_untimed: bool,
    /// Thread that runs on each CPU before the first switch that the text tells.
    pub(super) first_tasks: BTreeMap<u32, Option<i32>>,
    /// Events whose address the kernel did not print.
    pub(super) hidden: u64,
    pub(super) faults: Vec<Fault>,
    /// The last line, if it is cut.
    pub(super) cut: Option<Fault>,
    /// Reason for which lines cannot be read, where there is no event.
    pub(super) refusal: Option<Refusal>,
    /// Lines, and offset of the last one.
    lines: u64,
    offset: u64,
}

/// State of the pass.
#[derive(Debug, Default)]
struct Scan {
    facts: Facts,
    buffers: Buffers,
    /// Events of each buffer, by its number.
    counts: Vec<BufferFacts>,
    /// Order key of the last event.
    last: Option<u64>,
    /// Loss of CPUs whose next event has not come.
    lost: BTreeMap<u32, Option<u64>>,
    /// Lines since the last event that make no sense.
    bad: Option<BadLines>,
    /// Other lines belong to the last event: it is of another kind, whose text may have several lines, or of a stack.
    may_go_on: bool,
}

/// Lines between two events, or behind the last one, that make no sense.
#[derive(Clone, Copy, Debug)]
struct BadLines {
    /// Number of the first one.
    first: u64,
    /// Its offset.
    offset: u64,
    count: u64,
    /// One is longer than any line of an event.
    has_long: bool,
}

/// Lines behind the last event that are no damage: a prompt, and what a program says at its end.
const LAST_WORDS: u64 = 3;

/// Reads a text once, or the lines of one of its buffers.
///
/// # Errors
/// Errors of the system; [`OverLimit`](crate::memory::OverLimit) inside where what is kept takes too much memory.
pub(super) fn scan(
    lines: &mut Lines,
    release: Option<Release>,
    buffers: Buffers,
    shared: &mut Shared,
) -> io::Result<Facts> {
    let mut scan = Scan { buffers, ..Scan::default() };
    let mut meter = Meter::default();
    while let Some(line) = lines.next()? {
        // Functions, names and gaps are kept, of which each line may have one.
        meter.take(line.bytes.len() as u64).map_err(io::Error::other)?;
        (scan.facts.lines, scan.facts.offset) = (line.number, line.offset);
        if line.is_long {
            scan.other(&[], line);
            continue;
        }
        if !line.is_whole {
            let message = format!("line {} is cut; the lines before it count", line.number);
            scan.facts.cut = Some(Fault { code: Code::TextCut, offset: line.offset, block: None, message });
            break;
        }
        scan.take(line, release, shared);
    }
    Ok(scan.end())
}

impl Scan {
    fn take(&mut self, line: Line<'_>, release: Option<Release>, shared: &mut Shared) {
        let entry = entry(line.bytes);
        let buffer = self.buffers.of(&entry);
        if !self.buffers.is_taken(buffer) {
            return;
        }
        if let (Entry::Record(_, content), Some(buffer)) = (&entry, buffer) {
            self.count(buffer, content, release);
        }
        match entry {
            Entry::Record(head, content) => self.record(&head, &content, line, release, shared),
            Entry::Switch(cpu, tasks) => {
                self.facts.first_tasks.entry(cpu % MAX_CPUS).or_insert(tasks[0].pid);
                tasks.iter().for_each(|task| note_comm(task, shared));
            }
            Entry::Lost(_, cpu, lost) => self.loss(cpu, lost),
            Entry::Frame(text) => {
                shared.sites.learn(text, sites::frame);
            }
            Entry::ChainFrame(text) => {
                self.facts.has_stacks |= shared.sites.learn(text, sites::chain_frame);
            }
            Entry::Header(text) => self.header(text),
            Entry::Empty => {}
            Entry::Other(text) => self.other(text, line),
        }
    }

    /// Counts an event of a buffer.
    fn count(&mut self, buffer: usize, content: &Content<'_>, release: Option<Release>) {
        if self.counts.len() <= buffer {
            self.counts.resize_with(buffer.saturating_add(1), BufferFacts::default);
        }
        let Some(BufferFacts { events, wanted: [objects, waits, calls], .. }) = self.counts.get_mut(buffer) else {
            return;
        };
        *events = events.saturating_add(1);
        match content {
            // One event of objects decides, whatever else there is.
            Content::Event { system, name, .. } if *objects == 0 => {
                let is_object = record::profile(*system, name, release).is_some();
                *objects = u64::from(is_object);
                *waits = waits.saturating_add(u64::from(!is_object && meaning(*system, name).is_some()));
            }
            Content::Call(..) => *calls = calls.saturating_add(1),
            _ => {}
        }
    }

    fn record(
        &mut self,
        head: &Head<'_>,
        content: &Content<'_>,
        line: Line<'_>,
        release: Option<Release>,
        shared: &mut Shared,
    ) {
        if head.cpu >= MAX_CPUS {
            return self.other(line.bytes, line);
        }
        let facts = &mut self.facts;
        facts.is_of_perf |= head.form == Form::Perf;
        let at = self.key(head, line);
        if let Content::Lost(lost) = content {
            return self.perf_loss(head.cpu, *lost, at);
        }
        self.facts.events = self.facts.events.saturating_add(1);
        if let Some(bad) = self.bad.take() {
            self.damage(bad, Some(at), head.cpu);
        }
        if let Some(lost) = self.lost.remove(&head.cpu) {
            let from = self.facts.cpus.get(&head.cpu).map(|extent| extent.last);
            self.gap(Gap { from, to: Some(at), cpu: head.cpu, lost, cause: GapCause::Overrun });
        }
        let time = value(head.time);
        let extent = self.facts.cpus.entry(head.cpu).or_insert(Extent { first: at, last: at, time });
        (extent.last, extent.time) = (at, time);
        self.last = Some(at);
        note_comm(&Task { comm: head.comm, pid: head.pid }, shared);
        self.facts.has_stacks |= *content == Content::Stack(true);
        self.may_go_on = true;
        match content {
            Content::Event { system, name, fields } => {
                let profile = record::profile(*system, name, release);
                self.may_go_on = profile.is_none();
                match profile {
                    Some(profile) if !self.object(fields, profile, shared) => {
                        let message = format!("line {}: a field is missing or makes no sense", line.number);
                        self.fault(Code::BadLine, line.offset, message);
                        let (from, cause) = (Some(at), GapCause::Damage);
                        self.gap(Gap { from, to: from, cpu: head.cpu, lost: None, cause });
                    }
                    Some(_) => {}
                    None => wait(*system, name, fields, shared),
                }
            }
            Content::Call(call, _) => {
                // A call that called nothing stands in one line, and in two records.
                self.facts.events = self.facts.events.saturating_add(matches!(call, Call::Leaf(..)).into());
                if let Call::Begin(name) | Call::Leaf(name, _) | Call::End(Some(name), _) = call {
                    shared.sites.learn(name, sites::function);
                }
            }
            Content::Stack(_) | Content::Lost(_) => {}
        }
    }

    /// Order key of an event: its time, and never below that of the line before. Times are rounded, so only the lines tell the order.
    fn key(&mut self, head: &Head<'_>, line: Line<'_>) -> u64 {
        let time = value(head.time);
        self.facts.is_whole |= matches!(head.time, Time::Whole(_));
        self.facts.is_untimed |= head.time == Time::Untold;
        if let Some(before) = self.facts.cpus.get(&head.cpu).map(|extent| extent.time).filter(|&before| time < before) {
            let message = format!("line {}: time stamp {time} follows {before}", line.number);
            self.fault(Code::BackInTime, line.offset, message);
        }
        self.last.map_or(time, |last| last.max(time))
    }

    /// Notes what the fields of an event tell; false if they make no sense.
    fn object(&mut self, fields: &[u8], profile: &EventProfile, shared: &mut Shared) -> bool {
        let Some(fields) = record::fields(fields) else { return false };
        let Ok(object) = fields.object(profile, 1) else { return false };
        if let Action::Alloc(kind) | Action::Free(kind) = profile.action {
            self.facts.kinds[kind] = true;
        }
        self.facts.has_real_pointer |= fields.has_real_pointer();
        let is_hidden = object.is_none() && fields.pointer == Some(Pointer::Hidden);
        self.facts.hidden = self.facts.hidden.saturating_add(is_hidden.into());
        match fields.caller {
            Some(Caller::Named(word)) => shared.sites.learn(word, sites::function),
            Some(Caller::Address(address)) => {
                self.facts.has_bare_sites |= address != 0;
                true
            }
            None => true,
        }
    }

    /// Loss that perf tells: between its CPU's last event and its own time.
    fn perf_loss(&mut self, cpu: u32, lost: u64, at: u64) {
        self.facts.has_loss_lines = true;
        self.facts.lost = self.facts.lost.saturating_add(lost);
        let from = self.facts.cpus.get(&cpu).map(|extent| extent.last);
        self.gap(Gap { from, to: Some(at), cpu, lost: Some(lost), cause: GapCause::Overrun });
    }

    fn loss(&mut self, cpu: u32, lost: Option<u64>) {
        let facts = &mut self.facts;
        facts.has_loss_lines = true;
        facts.has_uncounted |= lost.is_none();
        facts.lost = facts.lost.saturating_add(lost.unwrap_or(0));
        let waiting = self.lost.entry(cpu % MAX_CPUS).or_insert(Some(0));
        *waiting = waiting.zip(lost).map(|(before, lost)| before.saturating_add(lost));
    }

    fn other(&mut self, text: &[u8], line: Line<'_>) {
        if self.facts.events == 0 {
            if let Some((cpus, _)) = text.strip_prefix(b"cpus=").and_then(decimal) {
                self.facts.possible = cpus.try_into().ok();
            }
            self.facts.is_dump |= text.starts_with(b"Dumping ftrace buffer");
            let is_on_console = strip(line.bytes).is_some();
            let found = || match refusal::of_line(text) {
                Some(Refusal::Off(_)) if is_on_console => Some(Refusal::Console),
                found => found,
            };
            self.facts.refusal = self.facts.refusal.or_else(found);
        } else if !self.may_go_on && !self.facts.is_dump && strip(line.bytes).is_none() {
            let none = BadLines { first: line.number, offset: line.offset, count: 0, has_long: false };
            let bad = self.bad.get_or_insert(none);
            (bad.count, bad.has_long) = (bad.count.saturating_add(1), bad.has_long || line.is_long);
        }
    }

    /// Lines that make no sense, before an event of this CPU at `to` or behind the last event.
    fn damage(&mut self, bad: BadLines, to: Option<u64>, cpu: u32) {
        let message = format!("line {} is none that the kernel, trace-cmd or perf prints", bad.first);
        self.fault(Code::BadLine, bad.offset, message);
        self.gap(Gap { from: self.last, to, cpu, lost: None, cause: GapCause::Damage });
    }

    fn header(&mut self, text: &[u8]) {
        let text = text.trim_ascii();
        let facts = &mut self.facts;
        facts.has_header |= text.starts_with(b"tracer: ");
        if let Some(told) = text.strip_prefix(b"entries-in-buffer/entries-written: ") {
            facts.told = numbers(told);
            facts.possible = after(text, b"#P:").and_then(|(cpus, _)| cpus.try_into().ok());
        } else if text.starts_with(b"latency: ") {
            facts.told = split_once(text, b'#').and_then(|(_, told)| numbers(told));
            facts.possible = after(text, b"#P:").and_then(|(cpus, _)| cpus.try_into().ok());
        } else if text.windows(15).any(|part| part == b" latency trace ") {
            let release = text.rsplit(|&byte| byte == b' ').next();
            facts.kernel = release.map(|release| String::from_utf8_lossy(release).into_owned());
        } else if let Some(cpus) = text.strip_prefix(b"nrcpus avail : ").and_then(decimal) {
            facts.possible = cpus.0.try_into().ok();
        } else if let Some(release) = text.strip_prefix(b"os release : ") {
            facts.kernel = Some(String::from_utf8_lossy(release).into_owned());
        }
    }

    fn fault(&mut self, code: Code, offset: u64, message: String) {
        add_fault(&mut self.facts.faults, Fault { code, offset, block: None, message });
    }

    fn gap(&mut self, gap: Gap) {
        add_gap(&mut self.facts.gaps, gap);
    }

    fn end(mut self) -> Facts {
        if let Some(bad) = self.bad.take_if(|bad| bad.has_long || bad.count > LAST_WORDS) {
            let cpu = self.facts.cpus.keys().next().copied().unwrap_or(0);
            self.damage(bad, None, cpu);
        }
        for (cpu, lost) in std::mem::take(&mut self.lost) {
            let from = self.facts.cpus.get(&cpu).map(|extent| extent.last);
            self.gap(Gap { from, to: None, cpu, lost, cause: GapCause::Overrun });
        }
        let buffers = &self.buffers;
        let named =
            self.counts.into_iter().enumerate().map(|(n, facts)| BufferFacts { name: buffers.name(n).into(), ..facts });
        self.facts.buffers = named.filter(|facts| facts.events > 0).collect();
        self.facts
    }
}

impl Facts {
    /// Events that the kernel has overwritten, by its header.
    pub(super) fn overwritten(&self) -> u64 {
        self.told.map_or(0, |(entries, written)| written.saturating_sub(entries))
    }

    /// True for a text of one CPU of several: its header counts the entries of all.
    pub(super) fn is_of_one_of_several(&self) -> bool {
        self.cpus.len() <= 1 && self.possible.is_some_and(|possible| possible > 1)
    }

    /// Finding that the text has fewer entries than its header counts.
    pub(super) fn shortfall(&self) -> Option<Fault> {
        let (entries, _) = self.told.filter(|_| !self.is_of_one_of_several())?;
        if self.events >= entries {
            return None;
        }
        let message = format!("line {} is the last, and the text has {} of {entries} entries", self.lines, self.events);
        Some(Fault { code: Code::TextCut, offset: self.offset, block: None, message })
    }
}

/// Number of a time.
pub(super) fn value(time: Time) -> u64 {
    match time {
        Time::Nanoseconds(value) | Time::Whole(value) => value,
        Time::Untold => 0,
    }
}

/// Keeps the name of a thread, unless the printer did not know it.
fn note_comm(task: &Task<'_>, shared: &mut Shared) {
    let Some(pid) = task.pid.filter(|_| !matches!(task.comm, b"" | b"<...>" | b"<idle>" | [b':', ..])) else { return };
    let is_full = shared.comms.len() >= MAX_COMMS;
    match shared.comms.get_mut(&pid) {
        Some(comm) if **comm == *task.comm => {}
        Some(comm) => *comm = task.comm.into(),
        None if is_full => {}
        None => drop(shared.comms.insert(pid, task.comm.into())),
    }
}

/// Notes the function of an event about waiting, and the name of one that may be of a pair.
fn wait(system: Option<&[u8]>, name: &[u8], fields: &[u8], shared: &mut Shared) {
    let Some(meaning) = meaning(system, name) else { return };
    match meaning {
        Meaning::Mark(mark @ (Mark::Begin(_) | Mark::End(_) | Mark::Function)) => {
            if let Some(Caller::Named(word)) = waits::wait(mark, fields).function {
                shared.sites.learn(word, sites::function);
            }
        }
        Meaning::Mark(_) => {}
        Meaning::Pair { .. } if shared.paired.len() < MAX_PAIRED => drop(shared.paired.insert(name.into())),
        Meaning::Pair { .. } => {}
    }
}

/// Meaning of an event for the time that tasks wait for memory.
pub(super) fn meaning<'l>(system: Option<&[u8]>, name: &'l [u8]) -> Option<Meaning<'l>> {
    let text = |bytes: &'l [u8]| std::str::from_utf8(bytes).ok();
    let system = match system {
        Some(system) => Some(std::str::from_utf8(system).ok()?),
        None => None,
    };
    latency::meaning(system, text(name)?)
}

/// `545/1545`
fn numbers(text: &[u8]) -> Option<(u64, u64)> {
    let (entries, rest) = decimal(text)?;
    let (written, _) = decimal(rest.strip_prefix(b"/")?)?;
    Some((entries, written))
}

/// The number behind a word, and what follows it.
fn after<'t>(text: &'t [u8], word: &[u8]) -> Option<(u64, &'t [u8])> {
    let at = text.windows(word.len()).position(|part| part == word)?;
    decimal(text.get(at..)?.strip_prefix(word)?)
}
