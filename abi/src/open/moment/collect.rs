//! Entries of a text, kept once where they are alike, as the trace's only source of events.
//!
//! A text stands in any order, so it is read whole and put in the order of its times. An entry becomes one event, whose sums stand in
//! its owner ([`Listed`]). Where the caller needs counts and sums alone ([`OpenOptions::alike`]), entries that differ in time and
//! address alone are added up ([`Store`]), and where it does not look at stacks, those that differ in their stack, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use foldhash::fast::RandomState;

use super::entry::{Beside, Entry, EntryKind, Fact, FormName, Out, Site, Trouble};
use super::store::{Alike, Kept, Store};
use crate::event::{Action, ByKind, Event, Kind, NameId, Names, StreamItem};
use crate::fault::{Code, Fault};
use crate::listed::{Amounts, Listed, RowExtras, SlabColumns};
use crate::open::options::OpenOptions;
use crate::open::symbols::{Frame, Symbols};
use crate::owner::{Allocators, Owner};
use crate::stack::{StackId, Stacks};
use crate::stream::source::EventSource;
use crate::trace::{HANDLES, InputCapabilities, Metadata, NO_SITE, OpenError, PageBytesFrom, TextInfo, Trace};

/// Bytes of a page where neither the text nor the caller tells.
const USUAL_PAGE_BYTES: u64 = 4096;
/// Largest number, and largest number of bytes, that an entry may have.
const MAX_BYTES: u64 = i64::MAX as u64;
/// Events handed over at once.
const AT_ONCE: usize = 1024;
/// Different troubles that are told.
const MAX_TROUBLES: usize = 64;

/// Facts of an entry that many entries share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Facts {
    kind: EntryKind,
    /// Call site; 0 where the stack tells it.
    site: u64,
    handle: Option<u64>,
    gfp: Option<u64>,
    order: Option<u8>,
    pid: Option<i32>,
    tgid: Option<i32>,
    comm: Option<NameId>,
    cache: Option<NameId>,
    module: Option<NameId>,
    allocators: Allocators,
    is_released: bool,
    /// Number of the members beside the figures.
    extras: Option<u32>,
    /// Sums of each entry.
    amounts: Amounts,
}

/// Collector of the entries and facts of one text.
#[derive(Debug)]
pub(crate) struct Collector {
    without_threads: bool,
    without_stacks: bool,
    at_free_before: bool,
    released: bool,
    store: Store,
    facts: Vec<Facts>,
    numbers: HashMap<Facts, u32, RandomState>,
    latest_facts: u32,
    stacks: Stacks,
    symbols: Symbols,
    names: Names,
    extras: Vec<RowExtras>,
    /// Stacks of handles.
    handles: HashMap<u64, StackId, RandomState>,
    /// Number of entries by the handles that they tell.
    handle_entries: HashMap<u64, u64, RandomState>,
    /// Whether a stack is that of an entry, by its number.
    is_of_entry: Vec<bool>,
    /// Command name of each thread in its latest entry, and the time of that.
    comms: HashMap<i32, (u64, NameId), RandomState>,
    has: ByKind<bool>,
    is_of_pages: bool,
    page_bytes: Option<u64>,
    asked_page_bytes: Option<u64>,
    kernel: Option<String>,
    arch: Option<String>,
    info: TextInfo,
    /// Reason for which the text is not read as a list of who holds memory.
    refusal: Option<&'static str>,
    /// Each with its number, and line and offset of the first one.
    troubles: Vec<(Trouble, u64, u64, u64)>,
    /// Number of the line that is read, from 1, and the offset of its first byte.
    line: (u64, u64),
}

impl Collector {
    /// Collector of a text with these options.
    pub(crate) fn new(options: &OpenOptions) -> Collector {
        Collector {
            without_threads: options.alike && options.without_threads,
            without_stacks: options.alike && options.without_stacks,
            at_free_before: options.at_free_before,
            released: options.released,
            store: Store::new(options.alike),
            facts: Vec::new(),
            numbers: HashMap::default(),
            latest_facts: 0,
            stacks: Stacks::default(),
            symbols: Symbols::default(),
            names: Names::new(),
            extras: Vec::new(),
            handles: HashMap::default(),
            handle_entries: HashMap::default(),
            is_of_entry: Vec::new(),
            comms: HashMap::default(),
            has: ByKind::default(),
            is_of_pages: false,
            page_bytes: None,
            asked_page_bytes: options.page_bytes,
            kernel: None,
            arch: None,
            info: TextInfo::default(),
            refusal: None,
            troubles: Vec::new(),
            line: (0, 0),
        }
    }

    /// Notes the number of the line that is read, from 1, and the offset of its first byte: findings have them.
    pub(crate) fn at_line(&mut self, number: u64, offset: u64) {
        self.line = (number, offset);
    }

    /// Counts a line that does not belong to the form.
    pub(crate) fn skip_line(&mut self) {
        self.info.skipped_lines = self.info.skipped_lines.saturating_add(1);
    }

    /// Facts of the text, and what is wrong with it.
    #[cfg(test)]
    pub(crate) fn told(&self) -> (&TextInfo, Vec<Trouble>) {
        (&self.info, self.troubles.iter().map(|(trouble, ..)| *trouble).collect())
    }

    /// True for a text that must not be read as a list of who holds memory.
    pub(crate) fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// True without an entry, a counter and a process.
    pub(crate) fn is_empty(&self) -> bool {
        self.info.entries == 0 && self.info.counters.is_empty() && self.info.processes.is_empty()
    }

    fn site(&mut self, site: Site<'_>) -> (u64, Option<u64>) {
        match site {
            Site::OfStack => (0, None),
            Site::Frame(address) => (if address == 0 { NO_SITE } else { address }, None),
            Site::Word(name) => (self.symbols.address(Frame::Name { name, module: None }), None),
            Site::Handle(handle) => (NO_SITE, Some(handle)),
            Site::Source { file, line, function, module } => {
                (self.symbols.source((file, line), function, module), None)
            }
            Site::Unknown => (NO_SITE, None),
        }
    }

    /// Number of the members beside the figures; `None` without any.
    fn extras(&mut self, beside: Beside<'_>) -> Option<u32> {
        let extras = match beside {
            Beside::Nothing => return None,
            Beside::Traces(traces) => RowExtras::Traces {
                age_jiffies: traces.age_jiffies,
                pids: traces.pids,
                cpus: traces.cpus.map(Into::into),
                nodes: traces.nodes.map(Into::into),
            },
            Beside::Slab(columns) => RowExtras::Slab(columns),
            Beside::Tag { is_accurate, is_rounded } => {
                self.info.is_rounded |= is_rounded;
                RowExtras::Tag { is_accurate, is_rounded }
            }
        };
        let number = u32::try_from(self.extras.len()).unwrap_or(u32::MAX);
        self.extras.push(extras);
        Some(number)
    }

    fn number_of(&mut self, facts: Facts) -> u32 {
        // Blocks that follow each other mostly have the same facts, whose hash costs more than comparing them.
        if self.facts.get(self.latest_facts as usize) == Some(&facts) {
            return self.latest_facts;
        }
        let next = u32::try_from(self.facts.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(facts).or_insert(next);
        if number == next {
            self.facts.push(facts);
        }
        self.latest_facts = number;
        number
    }

    /// Size of a page, and its source.
    fn page_size(&mut self, is_live: bool) -> (u64, PageBytesFrom) {
        match (self.asked_page_bytes, self.page_bytes) {
            (Some(asked), told) => {
                if let Some(told) = told.filter(|told| *told != asked) {
                    self.info.warnings.push(format!(
                        "--page-size {asked}: the blocks of this text are those of pages of {told} bytes; figures may be wrong"
                    ));
                }
                (asked, PageBytesFrom::Option)
            }
            (None, _) if is_live => (rustix::param::page_size() as u64, PageBytesFrom::Machine),
            (None, Some(told)) => (told, PageBytesFrom::Text),
            (None, None) => (USUAL_PAGE_BYTES, PageBytesFrom::Guess),
        }
    }

    /// Notes that a stack is an entry's.
    fn note_stack(&mut self, stack: StackId) {
        let index = stack.index();
        if index >= self.is_of_entry.len() {
            self.is_of_entry.resize(index.saturating_add(1), false);
        }
        if let Some(is_of_entry) = self.is_of_entry.get_mut(index) {
            *is_of_entry = true;
        }
    }

    /// Counts the stacks of entries, those of their handles included. True where some handle has no stack.
    fn count_stacks_of_handles(&mut self) -> bool {
        let mut has_handles_alone = false;
        for (handle, entries) in std::mem::take(&mut self.handle_entries) {
            match self.handles.get(&handle).copied() {
                Some(stack) => {
                    self.info.stacks_seen = self.info.stacks_seen.saturating_add(entries);
                    self.note_stack(stack);
                }
                None => has_handles_alone = true,
            }
        }
        self.info.stacks_distinct = self.is_of_entry.iter().filter(|is_of_entry| **is_of_entry).count() as u64;
        has_handles_alone
    }

    /// The findings.
    fn faults(&mut self) -> Vec<Fault> {
        let troubles = std::mem::take(&mut self.troubles);
        let fault = |(trouble, count, line, offset)| {
            let (code, message) = match trouble {
                Trouble::SkippedBlock(why) if count == 1 => {
                    (Code::BadText, format!("line {line}: a block that {why} was left out"))
                }
                Trouble::SkippedBlock(why) => (
                    Code::BadText,
                    format!("{count} blocks were left out: each {why}; the first one is at line {line}"),
                ),
                Trouble::Cut(why) => (Code::TextCut, format!("line {line}: the text {why}; the other blocks count")),
                Trouble::Dropped => (Code::DroppedLines, format!("line {line}: lines of the text were dropped")),
            };
            Fault { code, offset, block: None, message }
        };
        troubles.into_iter().map(fault).collect()
    }

    /// True for a text that tells stacks of handles, and nothing else.
    pub(crate) fn explains_handles(&self) -> bool {
        self.info.entries == 0 && !self.handles.is_empty()
    }

    /// Notes what other texts the file has, by their names for people.
    pub(crate) fn note_others(&mut self, titles: &[&'static str]) {
        self.info.others = titles.to_vec();
    }

    /// Names of the caches that entries are of; `None` among them where an entry names none.
    pub(crate) fn caches(&self) -> BTreeSet<Option<&[u8]>> {
        self.facts.iter().map(|facts| facts.cache.map(|cache| self.names.get(cache))).collect()
    }

    /// Adds the entries and facts of another text.
    pub(crate) fn add(&mut self, other: &Collector) {
        let begins = other.symbols.begins();
        let mut moved: HashMap<StackId, StackId, RandomState> = HashMap::default();
        let mut stack_of = |collector: &mut Collector, stack: StackId| match moved.get(&stack) {
            Some(known) => *known,
            None => {
                let frames = other.stacks.get(stack).iter();
                let frames: Vec<u64> =
                    frames.map(|frame| collector.symbols.moved((&other.symbols, &begins), *frame)).collect();
                let new = collector.stacks.intern(&frames);
                moved.insert(stack, new);
                new
            }
        };
        for (handle, stack) in &other.handles {
            let stack = stack_of(self, *stack);
            self.handles.insert(*handle, stack);
        }
        for (handle, entries) in &other.handle_entries {
            let sum = self.handle_entries.entry(*handle).or_default();
            *sum = sum.saturating_add(*entries);
        }
        for stack in other.stacks.ids().filter(|stack| other.is_of_entry.get(stack.index()) == Some(&true)) {
            let stack = stack_of(self, stack);
            self.note_stack(stack);
        }
        let facts: Vec<u32> = other.facts.iter().map(|facts| self.moved_facts(other, &begins, facts)).collect();
        other.store.each(|alike| {
            let kept = alike.oldest;
            let stack = kept.stack.map(|stack| stack_of(self, stack));
            let facts = facts.get(kept.facts as usize).copied().unwrap_or(0);
            self.store.add(Alike { oldest: Kept { stack, facts, ..kept }, ..alike });
        });
        for (pid, (at, comm)) in &other.comms {
            let comm = self.names.intern(other.names.get(*comm));
            let latest = self.comms.entry(*pid).or_insert((*at, comm));
            *latest = (*latest).max((*at, comm));
        }
        self.has.iter_mut().for_each(|(kind, has)| *has |= other.has[kind]);
        self.is_of_pages |= other.is_of_pages;
        self.page_bytes = self.page_bytes.or(other.page_bytes);
        self.kernel = self.kernel.take().or_else(|| other.kernel.clone());
        self.arch = self.arch.take().or_else(|| other.arch.clone());
        self.refusal = self.refusal.or(other.refusal);
        self.troubles.extend(&other.troubles);
        self.add_info(&other.info);
    }

    fn moved_facts(&mut self, other: &Collector, begins: &BTreeMap<u64, &[u8]>, facts: &Facts) -> u32 {
        let name = |names: &mut Names, name: Option<NameId>| name.map(|name| names.intern(other.names.get(name)));
        let extras = facts.extras.and_then(|number| other.extras.get(number as usize)).map(|extras| {
            let number = u32::try_from(self.extras.len()).unwrap_or(u32::MAX);
            self.extras.push(extras.clone());
            number
        });
        let facts = Facts {
            site: self.symbols.moved((&other.symbols, begins), facts.site),
            comm: name(&mut self.names, facts.comm),
            cache: name(&mut self.names, facts.cache),
            module: name(&mut self.names, facts.module),
            extras,
            ..*facts
        };
        self.number_of(facts)
    }

    fn add_info(&mut self, other: &TextInfo) {
        let info = &mut self.info;
        info.entries = info.entries.saturating_add(other.entries);
        info.skipped_lines = info.skipped_lines.saturating_add(other.skipped_lines);
        info.skipped_blocks = info.skipped_blocks.saturating_add(other.skipped_blocks);
        info.stacks_seen = info.stacks_seen.saturating_add(other.stacks_seen);
        info.has_times |= other.has_times;
        info.has_threads |= other.has_threads;
        info.has_caches |= other.has_caches;
        info.lacks_lines |= other.lacks_lines;
        info.is_rounded |= other.is_rounded;
        info.taken_at = info.taken_at.or(other.taken_at);
        info.counters.extend_from_slice(&other.counters);
        info.processes.extend_from_slice(&other.processes);
        info.warnings.extend_from_slice(&other.warnings);
    }

    /// The trace of what was collected; `is_live`: the text is of the kernel that runs.
    ///
    /// # Errors
    /// [`OpenError::Choose`] for a text that is no list of who holds memory.
    pub(crate) fn into_trace(mut self, path: &Path, form: FormName, is_live: bool) -> Result<Trace, OpenError> {
        if let Some(reason) = self.refusal {
            return Err(OpenError::Choose { path: path.to_owned(), reason: reason.to_owned() });
        }
        self.store.sort();
        self.numbers = HashMap::default();
        let (page_bytes, from) = self.page_size(is_live);
        let faults = self.faults();
        let has_handles_alone = self.count_stacks_of_handles();
        let (has_times, all) = (self.info.has_times, self.store.len() as u64);
        let clock = has_times.then_some("local");
        let Collector { store, facts, stacks, mut symbols, names, extras, handles, comms, has, is_of_pages, .. } = self;
        let metadata = Metadata {
            sources: symbols.take_sources(),
            kallsyms: symbols.into_kallsyms(),
            comms: comms.into_iter().map(|(pid, (_, comm))| (pid, names.get(comm).into())).collect(),
            ..Metadata::default()
        };
        let has_stacks = self.info.stacks_seen > 0 || !handles.is_empty();
        let entries = Entries {
            path: path.to_owned(),
            page_bytes,
            all,
            store,
            facts,
            stacks,
            names,
            extras,
            handles,
            has_stacks,
        };
        let mut trace = Trace::of_sources(form.input, clock, vec![Box::new(entries)])?;
        // The text was read whole, so that a screen of its first entries tells what is missing, too.
        for stream in &mut trace.streams {
            let report = stream.report_mut();
            report.lost = report.lost.filter(|_| faults.is_empty());
            faults.iter().for_each(|fault| report.add(fault.clone()));
        }
        let info = &mut trace.info;
        info.page_bytes = is_of_pages.then_some(page_bytes);
        info.page_bytes_from = from;
        info.capabilities = InputCapabilities::one_moment(has);
        info.kernel = self.kernel;
        info.arch = self.arch;
        let FormName { form, title, unit, has_objects, .. } = form;
        info.text =
            Some(Box::new(TextInfo { form, title, unit, has_stacks, has_objects, has_handles_alone, ..self.info }));
        trace.metadata = metadata;
        Ok(trace)
    }
}

impl Out for Collector {
    fn address(&mut self, frame: Frame<'_>) -> u64 {
        self.symbols.address(frame)
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        if entry.is_released && !self.released {
            return;
        }
        let kind = if entry.kind == EntryKind::Tag { EntryKind::Told(Kind::Tag) } else { entry.kind };
        let limit = self.asked_page_bytes.unwrap_or(USUAL_PAGE_BYTES);
        let bytes_of_pages = entry.pages.map_or(Some(0), |pages| pages.checked_mul(limit));
        let told = [entry.objects, entry.requested, entry.allocated, entry.wasted, bytes_of_pages.or(Some(u64::MAX))];
        if told.into_iter().flatten().any(|n| n > MAX_BYTES) {
            return self.trouble(Trouble::SkippedBlock("has a number out of range"));
        }
        let amounts = Amounts {
            objects: entry.objects,
            requested: entry.requested,
            allocated: entry.allocated,
            wasted: entry.wasted,
            pages: entry.pages,
        };
        let at = if self.at_free_before { entry.free_at } else { entry.at };
        let has_thread = entry.pid.is_some() || entry.tgid.is_some() || entry.comm.is_some();
        let (pid, tgid, comm) =
            if self.without_threads { (None, None, None) } else { (entry.pid, entry.tgid, entry.comm) };
        let [comm, cache, module] =
            [comm, entry.cache, entry.module].map(|name| name.map(|name| self.names.intern(name)));
        if let Some((pid, comm)) = pid.zip(comm) {
            let at = entry.at.unwrap_or(0);
            let latest = self.comms.entry(pid).or_insert((at, comm));
            if at > latest.0 {
                *latest = (at, comm);
            }
        }
        // Where the stack tells the kind it is needed all the same.
        let takes_stack = !(self.without_stacks && matches!(kind, EntryKind::Told(_)));
        if let Site::Handle(handle) = entry.site {
            let entries = self.handle_entries.entry(handle).or_default();
            *entries = entries.saturating_add(1);
        }
        let (site, handle) = if takes_stack { self.site(entry.site) } else { (NO_SITE, None) };
        let facts = Facts {
            kind,
            site,
            handle,
            gfp: entry.gfp,
            order: entry.order,
            pid,
            tgid,
            comm,
            cache,
            module,
            allocators: entry.allocators,
            is_released: entry.is_released,
            extras: self.extras(entry.beside),
            amounts,
        };
        let stack = (!entry.stack.is_empty()).then(|| self.stacks.intern(entry.stack));
        if let Some(stack) = stack {
            self.info.stacks_seen = self.info.stacks_seen.saturating_add(1);
            self.note_stack(stack);
        }
        let facts = self.number_of(facts);
        let is_of_slabs = matches!(entry.beside, Beside::Slab(SlabColumns { pagesperslab: Some(_), .. }));
        // Kinds that stacks tell are known once the stacks were looked at.
        if let EntryKind::Told(kind) = kind {
            self.has[kind] = true;
        }
        self.is_of_pages |= kind == EntryKind::Told(Kind::Pages) && entry.pages.is_some() || is_of_slabs;
        let info = &mut self.info;
        info.entries = info.entries.saturating_add(1);
        info.has_times |= entry.at.is_some_and(|at| at != 0);
        info.has_threads |= has_thread;
        info.has_caches |= cache.is_some();
        self.store.push(Kept {
            at: at.unwrap_or(0),
            address: entry.address,
            stack: stack.filter(|_| takes_stack),
            facts,
        });
    }

    fn fact(&mut self, fact: Fact<'_>) {
        let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned());
        match fact {
            Fact::Kernel(release) => self.kernel = self.kernel.take().or_else(|| text(release)),
            Fact::Arch(machine) => self.arch = self.arch.take().or_else(|| text(machine)),
            Fact::PageBytes(bytes) => self.page_bytes = Some(bytes),
            Fact::CountsPages => self.is_of_pages = true,
            Fact::TakenAt(seconds) => self.info.taken_at = Some(seconds),
            Fact::MayLackLines => self.info.lacks_lines = true,
            Fact::Counter(name, bytes) => self.info.counters.push((name.into(), bytes)),
            Fact::Process(pid, comm, bytes) => self.info.processes.push((pid, comm.into(), bytes)),
            Fact::Refusal(reason) => self.refusal = Some(reason),
            Fact::HandleStack(handle, frames) => {
                if !frames.is_empty() {
                    let stack = self.stacks.intern(frames);
                    self.handles.insert(handle, stack);
                }
            }
        }
    }

    fn trouble(&mut self, trouble: Trouble) {
        if matches!(trouble, Trouble::SkippedBlock(_)) {
            self.info.skipped_blocks = self.info.skipped_blocks.saturating_add(1);
        }
        if let Some((_, count, ..)) = self.troubles.iter_mut().find(|(known, ..)| *known == trouble) {
            *count = count.saturating_add(1);
        } else if self.troubles.len() < MAX_TROUBLES {
            self.troubles.push((trouble, 1, self.line.0, self.line.1));
        }
    }
}

/// The entries of a text, oldest first.
#[derive(Debug)]
struct Entries {
    path: PathBuf,
    page_bytes: u64,
    /// Number of events.
    all: u64,
    store: Store,
    facts: Vec<Facts>,
    stacks: Stacks,
    names: Names,
    extras: Vec<RowExtras>,
    handles: HashMap<u64, StackId, RandomState>,
    has_stacks: bool,
}

impl Entries {
    fn name(&self, name: Option<NameId>) -> Option<Box<[u8]>> {
        name.map(|name| self.names.get(name).into())
    }

    /// Sums in bytes: those of pages are known by the size of a page.
    fn amounts(&self, facts: &Facts, amounts: Amounts) -> Amounts {
        if facts.kind != EntryKind::Told(Kind::Pages) {
            return amounts;
        }
        let bytes = amounts.pages.map(|pages| pages.saturating_mul(self.page_bytes));
        Amounts { requested: bytes, allocated: bytes, wasted: bytes.map(|_| 0), ..amounts }
    }

    fn extras(&self, facts: &Facts) -> RowExtras {
        let Some(extras) = facts.extras.and_then(|number| self.extras.get(number as usize)) else {
            return RowExtras::Nothing;
        };
        let mut extras = extras.clone();
        if let RowExtras::Slab(columns) = &mut extras
            && columns.bytes.is_none()
        {
            let pages = columns.num_slabs.zip(columns.pagesperslab).and_then(|(slabs, pages)| slabs.checked_mul(pages));
            columns.bytes = pages.and_then(|pages| pages.checked_mul(self.page_bytes));
        }
        extras
    }

    fn event(&self, alike: Alike, facts: &Facts, name: NameId, names: &mut Names) -> Event {
        let amounts = self.amounts(facts, facts.amounts.times(alike.entries));
        let of_handle = facts.handle.and_then(|handle| self.handles.get(&handle).copied());
        let handle = facts.handle.filter(|_| of_handle.is_none());
        let site = match handle {
            Some(handle) => HANDLES.start.saturating_add(handle.min(HANDLES.end - HANDLES.start - 1)),
            None if of_handle.is_some() => 0,
            None => facts.site,
        };
        let listed = Listed {
            entries: alike.entries,
            amounts,
            // Owners of single entries are alike without their times.
            newest: if self.store.is_alike() { alike.newest } else { 0 },
            tells_site: site != 0,
            kind_is_of_stack: facts.kind == EntryKind::OfStack,
            handle,
            module: self.name(facts.module),
            extras: self.extras(facts),
        };
        let owner = Owner {
            tgid: facts.tgid,
            comm: self.name(facts.comm),
            allocators: facts.allocators,
            is_released: facts.is_released,
            listed: Some(Box::new(listed)),
        };
        let kind = match facts.kind {
            EntryKind::Told(kind) => kind,
            EntryKind::Tag => Kind::Tag,
            EntryKind::OfStack => Kind::Kmalloc,
        };
        let stack = alike.oldest.stack.or(of_handle);
        Event {
            address: alike.oldest.address,
            call_site: site,
            requested: amounts.requested.unwrap_or(0),
            allocated: amounts.allocated.unwrap_or(0),
            gfp: facts.gfp,
            pid: facts.pid,
            order: facts.order,
            cache: facts.cache.map(|cache| names.intern(self.names.get(cache))),
            stack: stack.map(|stack| names.stacks.intern(self.stacks.get(stack))),
            owner: Some(if self.store.is_alike() { names.owners.push(owner) } else { names.owners.intern(&owner) }),
            action: Action::Alloc(kind),
            ..Event::new(alike.oldest.at, 0, name)
        }
    }
}

impl EventSource for Entries {
    fn cpu(&self) -> u32 {
        0
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        while items.len() < AT_ONCE
            && let Some(alike) = self.store.take()
            && let Some(facts) = self.facts.get(alike.oldest.facts as usize).copied()
        {
            let name = names.intern(if facts.order.is_some() { b"mm_page_alloc" } else { b"alloc" });
            items.push(StreamItem::Event(self.event(alike, &facts, name, names)));
        }
        Ok(())
    }

    fn may_have_stacks(&self) -> bool {
        self.has_stacks
    }

    fn bytes_read(&self) -> u64 {
        self.all.saturating_sub(self.store.len() as u64)
    }

    fn bytes_to_read(&self) -> u64 {
        self.all
    }
}
