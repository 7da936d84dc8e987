//! Second pass over a text: its gaps, then its events in the order of the lines.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use super::buffers::Buffers;
use super::calls::Calls;
use super::entry::{Entry, entry};
use super::graph::Call;
use super::head::Head;
use super::record::{self, Caller, Content, Object, Pointer};
use super::scan::{self, value};
use super::sites::Known;
use super::texts::{Text, Texts};
use super::waits::{self, Wait};
use crate::event::{Action, Event, Kind, Mark, NameId, Names, Span, StreamItem};
use crate::fault::{Code, Fault};
use crate::kernel::decoder::page_bytes;
use crate::open::first_pass::GapsFirst;
use crate::open::lines::Lines;
use crate::stack::StackId;
use crate::stream::source::{EventSource, SourceEnd};

/// Items handed over at once.
const AT_ONCE: usize = 32;
/// Events that wait for their stacks: a stack comes behind its event, with events of other CPUs between.
const WAITING: usize = 4096;
/// Frames of a stack. The kernel keeps 64 at most (`PERF_MAX_STACK_DEPTH`, 127, of perf).
const MAX_FRAMES: usize = 256;

/// Events of a text.
#[derive(Debug)]
pub(super) struct TextSource {
    texts: Arc<Texts>,
    index: usize,
    lines: Lines,
    gaps: GapsFirst,
    /// Names and stacks of the events that wait: those of the reader may differ from call to call.
    own: Names,
    waiting: VecDeque<Event>,
    /// Number of the first event that waits.
    first: u64,
    /// Number of each CPU's last event, and its thread.
    latest: Vec<Option<(u64, Option<i32>)>>,
    stack: Option<OpenStack>,
    buffers: Buffers,
    /// Calls of function_graph, and the thread that runs on each CPU.
    calls: Calls,
    tasks: BTreeMap<u32, Option<i32>>,
    /// Stacks without an event.
    unmatched: u64,
    last: u64,
    has_ended: bool,
}

/// Stack whose frames are being read.
#[derive(Debug)]
struct OpenStack {
    /// Number of its event; `None` if there is none.
    event: Option<u64>,
    frames: Vec<u64>,
}

impl TextSource {
    pub(super) fn new(texts: Arc<Texts>, index: usize) -> TextSource {
        let Text { file, facts, buffers, .. } = text(&texts, index);
        let lines = Lines::new(Arc::clone(file));
        let (tasks, buffers) = (facts.first_tasks.clone(), buffers.clone());
        TextSource {
            texts,
            index,
            lines,
            gaps: GapsFirst::default(),
            own: Names::new(),
            waiting: VecDeque::new(),
            first: 0,
            latest: Vec::new(),
            stack: None,
            buffers,
            calls: Calls::default(),
            tasks,
            unmatched: 0,
            last: 0,
            has_ended: false,
        }
    }

    fn text(&self) -> &Text {
        text(&self.texts, self.index)
    }

    /// Reads lines until enough events are there, or the text ends.
    fn read_lines(&mut self) -> std::io::Result<()> {
        let texts = Arc::clone(&self.texts);
        let Text { facts, .. } = text(&texts, self.index);
        let enough = if facts.has_stacks { AT_ONCE + WAITING } else { AT_ONCE };
        while self.waiting.len() < enough {
            let Some(line) = self.lines.next()?.filter(|line| line.is_whole || line.is_long) else {
                self.has_ended = true;
                close(&mut self.stack, &mut self.own, &mut self.waiting, self.first);
                return Ok(());
            };
            let next = if line.is_long { Entry::Other(&[]) } else { entry(line.bytes) };
            if let Entry::Frame(word) | Entry::ChainFrame(word) = next {
                let stack = self.stack.as_mut().filter(|stack| stack.frames.len() < MAX_FRAMES);
                if let (Some(stack), Some(&address)) = (stack, texts.known.get(word)) {
                    stack.frames.push(address);
                }
                continue;
            }
            close(&mut self.stack, &mut self.own, &mut self.waiting, self.first);
            if !self.buffers.takes(&next) {
                continue;
            }
            if let Entry::Switch(cpu, tasks) = next
                && let Some(task) = self.tasks.get_mut(&cpu)
            {
                *task = tasks[1].pid;
            }
            let Entry::Record(mut head, content) = next else { continue };
            head.pid = head.pid.or_else(|| self.tasks.get(&head.cpu).copied().flatten());
            if !facts.cpus.contains_key(&head.cpu) {
                continue;
            }
            if matches!(content, Content::Lost(_)) {
                continue;
            }
            self.last = self.last.max(value(head.time));
            match content {
                Content::Event { system, name, fields } => {
                    let number = self.first.saturating_add(self.waiting.len() as u64);
                    let event = event(&texts, &mut self.own, self.last, &head, (system, name, fields));
                    self.waiting.push_back(event);
                    if facts.has_stacks {
                        note(&mut self.latest, head.cpu, (number, head.pid));
                        // perf's call chain stands behind its event, without a head.
                        self.stack = facts.is_of_perf.then(|| OpenStack { event: Some(number), frames: Vec::new() });
                    }
                }
                Content::Stack(true) => {
                    let latest = self.latest.get_mut(head.cpu as usize).and_then(Option::take);
                    let number = latest.filter(|(_, pid)| *pid == head.pid).map(|(number, _)| number);
                    let event = number.filter(|&number| number >= self.first);
                    self.unmatched = self.unmatched.saturating_add(event.is_none().into());
                    self.stack = Some(OpenStack { event, frames: Vec::new() });
                    self.waiting.push_back(plain(&mut self.own, self.last, &head, b"kernel_stack"));
                }
                Content::Call(call, depth) => {
                    let ended = self.calls.take(&texts.known, (head.cpu, head.pid), call, depth);
                    if !matches!(call, Call::End(..)) {
                        self.waiting.push_back(plain(&mut self.own, self.last, &head, b"funcgraph_entry"));
                    }
                    if let Some((call_site, value)) = ended {
                        let event = plain(&mut self.own, self.last, &head, b"funcgraph_exit");
                        self.waiting.push_back(Event { mark: Mark::Function, call_site, value, ..event });
                    }
                }
                Content::Stack(false) => self.waiting.push_back(plain(&mut self.own, self.last, &head, b"user_stack")),
                Content::Lost(_) => {}
            }
        }
        Ok(())
    }

    /// Hands over the events that wait no more.
    fn hand_over(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) {
        let keeps = if self.text().facts.has_stacks && !self.has_ended { WAITING } else { 0 };
        let is_due = self.waiting.len().saturating_sub(keeps).min(AT_ONCE);
        for mut event in self.waiting.drain(..is_due) {
            let own = &self.own;
            let is_unknown = own.is_unknown(event.name);
            let named = |name: NameId, names: &mut Names| names.intern(own.get(name));
            event.name = named(event.name, names);
            event.cache = event.cache.map(|cache| named(cache, names));
            event.mark = match event.mark {
                Mark::Begin(Span::Named(name)) => Mark::Begin(Span::Named(named(name, names))),
                Mark::End(Span::Named(name)) => Mark::End(Span::Named(named(name, names))),
                mark => mark,
            };
            event.stack = event.stack.map(|stack| names.stacks.intern(own.stacks.get(stack)));
            if is_unknown {
                names.mark_unknown(event.name);
            }
            items.push(StreamItem::Event(event));
        }
        self.first = self.first.saturating_add(is_due as u64);
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "a source is made of an index of the texts that there are, and no text goes"
)]
fn text(texts: &Texts, index: usize) -> &Text {
    &texts.texts[index]
}

/// Notes a CPU's last event.
fn note(latest: &mut Vec<Option<(u64, Option<i32>)>>, cpu: u32, event: (u64, Option<i32>)) {
    let cpu = cpu as usize;
    if latest.len() <= cpu {
        latest.resize(cpu.saturating_add(1), None);
    }
    if let Some(latest) = latest.get_mut(cpu) {
        *latest = Some(event);
    }
}

/// Ends a stack: its event gets it, if it still waits.
fn close(stack: &mut Option<OpenStack>, own: &mut Names, waiting: &mut VecDeque<Event>, first: u64) {
    let Some(OpenStack { event: Some(number), frames }) = stack.take() else { return };
    let event = number.checked_sub(first).and_then(|index| waiting.get_mut(usize::try_from(index).ok()?));
    if let Some(event) = event.filter(|_| !frames.is_empty()) {
        event.stack = Some::<StackId>(own.stacks.intern(&frames));
    }
}

/// An event of which only the begin of its line is used.
fn plain(names: &mut Names, at: u64, head: &Head<'_>, name: &[u8]) -> Event {
    Event { pid: head.pid, flags: head.flags, ..Event::new(at, head.cpu, names.intern(name)) }
}

/// The event of a line.
fn event(
    texts: &Texts,
    names: &mut Names,
    at: u64,
    head: &Head<'_>,
    (system, name, text): (Option<&[u8]>, &[u8], &[u8]),
) -> Event {
    let plain = plain(names, at, head, name);
    let Some(profile) = record::profile(system, name, texts.release) else {
        if is_unknown(system, name, text) {
            names.mark_unknown(plain.name);
        }
        return waited(texts, names, plain, (system, name, text)).unwrap_or(plain);
    };
    let action = profile.action;
    // Per-CPU memory has its size on each CPU. Without their number its bytes are 0, which is no size.
    let cpus = texts.possible.unwrap_or(0);
    let Some(fields) = record::fields(text) else { return plain };
    let Ok(Some(Object { address, sizes, order, failed })) = fields.object(profile, cpus.into()) else { return plain };
    let pages = order.filter(|_| matches!(action, Action::Alloc(Kind::Pages)));
    let of_pages = pages.map(|order| page_bytes(texts.page_bytes, order.into()));
    let (requested, allocated) = of_pages.map_or(sizes, |bytes| (bytes, bytes));
    Event {
        address,
        call_site: fields.caller.map_or(0, |caller| call_site(&texts.known, caller)),
        requested,
        allocated,
        gfp: fields.gfp,
        node: fields.node,
        cache: fields.cache.map(|cache| names.intern(cache)),
        action,
        failed,
        order,
        ..plain
    }
}

/// The event with its meaning for the time that tasks wait for memory; `None` for any other event.
fn waited(
    texts: &Texts,
    names: &mut Names,
    event: Event,
    (system, name, text): (Option<&[u8]>, &[u8], &[u8]),
) -> Option<Event> {
    let mark = scan::meaning(system, name)?.mark(names, |name| texts.paired.contains(name.as_bytes()))?;
    let Wait { shrinker, function, node, order, gfp, value } = waits::wait(mark, text);
    let address = shrinker.map_or(0, |pointer| match pointer {
        Pointer::Value(address, _) => address,
        Pointer::Hidden => 0,
    });
    let call_site = function.map_or(0, |caller| call_site(&texts.known, caller));
    Some(Event { mark, address, call_site, node, order, gfp, value, ..event })
}

fn call_site(known: &Known, caller: Caller<'_>) -> u64 {
    match caller {
        Caller::Address(address) => address,
        Caller::Named(word) => known.get(word).copied().unwrap_or(0),
    }
}

/// True for an event that is not known and may be of objects: one of `kmem` with a caller and a pointer.
fn is_unknown(system: Option<&[u8]>, name: &[u8], text: &[u8]) -> bool {
    let has = |word: &[u8]| memchr::memmem::find(text, word).is_some();
    let may_be = match system {
        Some(system) => system == b"kmem",
        None => name.starts_with(b"kmem") || name.starts_with(b"kmalloc") || name.starts_with(b"kfree"),
    };
    may_be && has(b"call_site=") && has(b" ptr=")
}

impl EventSource for TextSource {
    fn cpu(&self) -> u32 {
        self.text().facts.cpus.keys().next().copied().unwrap_or(0)
    }

    fn path(&self) -> &Path {
        &self.text().path
    }

    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        if self.gaps.hand_over(&text(&self.texts, self.index).gaps, AT_ONCE, items) {
            return Ok(());
        }
        if !self.has_ended {
            self.read_lines().map_err(|error| {
                let message = format!("cannot be read from byte {} on: {error}", self.lines.bytes_read());
                Fault { code: Code::BadText, offset: self.lines.bytes_read(), block: None, message }
            })?;
        }
        self.hand_over(names, items);
        match self.text().cut.clone().filter(|_| items.is_empty()) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn has_several_cpus(&self) -> bool {
        self.texts.texts.len() == 1
    }

    fn may_have_stacks(&self) -> bool {
        self.texts.texts.iter().any(|text| text.facts.has_stacks)
    }

    fn end(&mut self) -> SourceEnd {
        let Text { lost, faults, .. } = self.text();
        SourceEnd { lost: *lost, faults: faults.clone(), stacks_unmatched: self.unmatched }
    }

    fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }

    fn bytes_to_read(&self) -> u64 {
        self.text().bytes
    }
}
