//! Reference model for reports: slow and simple. Every figure is counted again from the list of all events, by the
//! definition in the contract, without regard to speed or memory.
//!
//! [`order`] puts events in their total order, [`pairs`] decides the effect of each, [`figures`] counts. [`documents`],
//! [`groups`], [`growth`] and [`compare`] write the JSON of the views, [`asked`] picks one of them.

pub mod asked;
pub mod caches;
pub mod compare;
pub mod documents;
#[cfg(test)]
mod examples;
pub mod failed;
pub mod figures;
pub mod groups;
pub mod growth;
pub mod head;
pub mod keys;
pub mod latency;
pub mod leaks;
pub mod machine;
pub mod order;
pub mod pairs;
pub mod selection;
pub mod symbols;
pub mod texts;

pub use selection::Selection;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::generate::layout::{Layout, UNKNOWN_EVENTS, layouts};
use crate::generate::{Era, RelayOptions, RelayStreams, Shape, Workload};

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Action, Event, Kind, Names, Space, StreamItem};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::kernel::relay::Layout as RelayLayout;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::{Deferred, InputKind, SymbolSource, Trace};

use caches::Classes;
use symbols::Symbols;
use texts::Texts;

/// Facts about a trace, from its generator or its decoder.
#[derive(Clone, Debug)]
pub struct Known {
    /// Members of `trace`, without those that follow from the events.
    pub trace: TraceMembers,
    /// Items of each CPU, ascending by CPU.
    pub cpus: Vec<(u32, Vec<StreamItem>)>,
    /// Names of events and caches.
    pub names: Names,
    /// Command names by thread id.
    pub comms: HashMap<i32, String>,
    /// Thread ids of the recorder, if the input has them.
    pub own_threads: Option<Vec<i32>>,
    /// True if the recorder's own objects are not left out.
    pub shows_own: bool,
    /// Order keys of the window that is asked for, if any, both ends included. Gaps outside of it stay known.
    pub bounds: Option<(u64, u64)>,
    /// Allocations that are asked for.
    pub selection: Selection,
    /// NUMA nodes by CPU.
    pub nodes: HashMap<u32, u32>,
    /// Worst verdict of the files.
    pub verdict: Verdict,
    /// Lost events; `None` if the number is unknown.
    pub lost: Option<u64>,
    /// Names of the files that are cut.
    pub truncated: Vec<String>,
    /// CPUs without a file.
    pub missing: Vec<u32>,
    /// Records that a relay channel dropped, if the channel has a counter.
    pub total_overruns: Option<u64>,
    /// Functions of the machine; `None` if the reference does not know which the trace tells. Documents then lack all names
    /// of functions and modules.
    pub symbols: Option<Symbols>,
    /// Names of the `kmem` events that the contract does not list and that have both `call_site` and `ptr`; `None` if the
    /// reference does not know them. Documents then lack their number.
    pub unknown: Option<BTreeSet<String>>,
    /// Allocation events have a field for the name of the cache.
    pub names_allocations: bool,
    /// Caches of kmalloc objects.
    pub classes: Classes,
    /// Kinds of whose events the trace has the formats.
    pub kinds: BTreeSet<Kind>,
    /// Events of per-CPU memory name their callers.
    pub percpu_names_callers: bool,
    /// Events of pages carry frame numbers.
    pub has_frames: bool,
    /// Lines `CACHE 0` and `CACHE 1` of caches whose objects the kernel takes back.
    pub reclaim_account: String,
    /// Threads that lived at the end, where the trace tells them.
    pub threads_end: Option<Vec<i32>>,
    /// Kinds whose frees the recorder was asked for.
    pub recorded_frees: BTreeSet<Kind>,
    /// Texts of the machine's memory; `None` if the reference does not know which the trace has. Documents then lack what follows from
    /// them.
    pub texts: Option<Texts>,
}

/// Members of a document's `trace`; see [`Known::trace`].
#[derive(Clone, Debug)]
pub struct TraceMembers {
    /// Kind of the input.
    pub input: InputKind,
    /// Source of the recording.
    pub source: Option<Source>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Machine name.
    pub arch: Option<String>,
    /// Byte order, `"little"` or `"big"`.
    pub endian: Option<&'static str>,
    /// Bytes of a `long`.
    pub word_bytes: Option<u8>,
    /// Bytes of a page.
    pub page_bytes: Option<u64>,
    /// Who tells them.
    pub page_bytes_from: &'static str,
    /// Trace clock.
    pub clock: Option<String>,
    /// Order key of the events.
    pub order: OrderKey,
    /// Threads of the recording: `"system"` or `"tasks"`; `None` if the input does not tell.
    pub scope: Option<&'static str>,
    /// The kernel's filter on allocation events.
    pub filtered: Option<String>,
    /// Deferred frees.
    pub deferred: Option<Deferred>,
    /// Source of the symbols: `"trace"` or `"none"`; `None` if the reference does not know it.
    pub symbols: Option<&'static str>,
}

/// True if records of an allocation have a field for the name of the cache.
fn names_allocations(shape: &Shape) -> bool {
    layouts(shape).iter().any(|layout| layout.name.starts_with("kmem_cache_alloc") && layout.has_cache())
}

/// Names of events.
type EventNames = &'static [&'static str];

/// Names of the events of allocations of this kind, and of its frees.
fn events_of(kind: Kind) -> (EventNames, EventNames) {
    match kind {
        Kind::Kmalloc => (&["kmalloc", "kmalloc_node"], &["kfree"]),
        Kind::Cache => (&["kmem_cache_alloc", "kmem_cache_alloc_node"], &["kmem_cache_free"]),
        Kind::Pages => (&["mm_page_alloc"], &["mm_page_free", "mm_page_free_direct"]),
        Kind::Percpu => (&["percpu_alloc_percpu"], &["percpu_free_percpu"]),
        Kind::Vmalloc => (&["alloc_vmap_area"], &["free_vmap_area_noflush"]),
        Kind::Tag => (&[], &[]),
    }
}

/// The kinds of which the machine has one of the events that `names` gives.
fn described_kinds(described: &[Layout], names: impl Fn(Kind) -> EventNames) -> impl Iterator<Item = Kind> {
    let has = move |kind: &Kind| described.iter().any(|layout| names(*kind).contains(&layout.name));
    Kind::ALL.into_iter().filter(has)
}

/// Gives allocations without a call-site that of their stack; without names, no frame can be told from the kernel's own tracing.
fn take_sites_of_stacks(workload: &mut Workload, has_symbols: bool) {
    // A reader finds stacks with their events alone, and not with the records that they come in.
    let record = workload.names.intern(b"kernel_stack");
    for item in workload.cpus.iter_mut().flat_map(|cpu| &mut cpu.items) {
        if let StreamItem::Event(event) = item
            && event.name == record
        {
            event.stack = None;
        }
        // The frames of made-up machines are no allocators, so that the innermost one has asked for the memory.
        if let StreamItem::Event(event) = item
            && let Action::Alloc(kind) = event.action
            && kind.space() != Space::Slab
            && event.call_site == 0
            // Failed allocations of per-CPU memory are all at one place.
            && !(event.failed && kind == Kind::Percpu)
            && has_symbols
            && let Some(stack) = event.stack
        {
            event.call_site = workload.names.stacks.get(stack).first().copied().unwrap_or(0);
        }
    }
}

/// Items of a source of several CPUs as those of each CPU.
fn apart(items: Vec<StreamItem>) -> Vec<(u32, Vec<StreamItem>)> {
    let mut cpus: BTreeMap<u32, Vec<StreamItem>> = BTreeMap::new();
    for item in items {
        let cpu = match &item {
            StreamItem::Event(event) => event.cpu,
            StreamItem::Gap(gap) => gap.cpu,
        };
        cpus.entry(cpu).or_default().push(item);
    }
    cpus.into_iter().collect()
}

impl Known {
    /// Facts about the recording of `workload`.
    pub fn of_workload(mut workload: Workload) -> Known {
        let has_symbols = !workload.symbols.kallsyms().is_empty();
        take_sites_of_stacks(&mut workload, has_symbols);
        let mut verdict = Verdict::Complete;
        let mut lost = Some(0);
        let mut truncated = Vec::new();
        for cpu in &workload.cpus {
            lost = lost.zip(cpu.lost()).map(|(a, b)| a + b);
            if cpu.items.iter().any(|i| matches!(i, StreamItem::Gap(_))) || cpu.lost() != Some(0) {
                verdict = verdict.max(Verdict::Lossy);
            }
            if cpu.missing || cpu.cut {
                verdict = verdict.max(Verdict::Truncated);
            }
            if cpu.cut {
                truncated.push(format!("cpu{}.out", cpu.cpu));
            }
        }
        let target = workload.shape.target;
        let described = layouts(&workload.shape);
        let texts = Some(Texts::of(&workload));
        let percpu = described.iter().find(|layout| layout.name == "percpu_alloc_percpu");
        Known {
            percpu_names_callers: percpu.is_some_and(Layout::has_call_site),
            has_frames: workload.shape.era != Era::V2_6_32,
            texts,
            reclaim_account: workload.reclaim_account,
            threads_end: workload.threads_end,
            recorded_frees: described_kinds(&described, |kind| events_of(kind).1).collect(),
            kinds: described_kinds(&described, |kind| events_of(kind).0)
                .filter(|kind| !kind.space().is_always_shown())
                .collect(),
            trace: TraceMembers {
                input: InputKind::Kmemtrace,
                source: Some(Source::Tracefs),
                kernel: workload.kernel.map(str::to_owned),
                arch: Some(workload.shape.arch().to_owned()),
                endian: Some(target.endian.name()),
                word_bytes: Some(target.word_bytes),
                page_bytes: Some(u64::from(workload.shape.page_bytes)),
                page_bytes_from: "trace",
                clock: workload.clock.map(str::to_owned),
                order: OrderKey::Time,
                scope: Some("system"),
                filtered: None,
                deferred: match (workload.probes, workload.kernel) {
                    (Some(from), _) => Some(Deferred::From(from)),
                    // Linux 5.7 and later free objects of `kfree_rcu` in bulk; the generator has no kernel of 3 or 4.
                    (None, Some(kernel)) => (!kernel.starts_with('2')).then_some(Deferred::Unseen),
                    (None, None) => None,
                },
                symbols: Some(if has_symbols { "trace" } else { "none" }),
            },
            total_overruns: None,
            symbols: Some(workload.symbols),
            unknown: Some(UNKNOWN_EVENTS.iter().map(|&name| name.to_owned()).collect()),
            names_allocations: names_allocations(&workload.shape),
            classes: Classes::of_slabinfo(workload.slabinfo.each_ref().map(String::as_str), |_| None)
                .with_pages(Some(u64::from(workload.shape.page_bytes))),
            missing: workload.cpus.iter().filter(|c| c.missing).map(|c| c.cpu).collect(),
            cpus: workload.cpus.into_iter().map(|c| (c.cpu, c.items)).collect(),
            names: workload.names,
            own_threads: workload.own_threads,
            shows_own: false,
            bounds: None,
            selection: Selection::default(),
            comms: workload.comms.iter().map(|&(pid, comm)| (pid, comm.to_owned())).collect(),
            nodes: workload.nodes.iter().copied().collect(),
            verdict,
            lost,
            truncated,
        }
    }

    /// Facts about `workload` as a captured tree.
    pub fn of_tree(workload: Workload) -> Known {
        let known = Known::of_workload(workload);
        // The events of a tree's script were on before its recording began.
        let deferred = known.trace.deferred.map(|deferred| match deferred {
            Deferred::From(_) => Deferred::From(0),
            Deferred::Unseen => Deferred::Unseen,
        });
        let trace = TraceMembers { input: InputKind::Tree, deferred, symbols: Some("none"), ..known.trace };
        let classes = Classes::default().with_pages(trace.page_bytes);
        Known { trace, own_threads: None, symbols: Some(Symbols::default()), classes, texts: None, ..known }
    }

    /// Facts about the relay channel `streams` of `workload`, as raw bytes or as our recording. `total_overruns` is
    /// the channel's counter, if known.
    pub fn of_relay(
        workload: Workload,
        options: &RelayOptions,
        streams: &RelayStreams,
        raw: bool,
        total_overruns: Option<u64>,
    ) -> Known {
        let missing_numbers = streams.holes.iter().map(|(before, after)| after - before - 1).sum();
        let numbered = options.layout == RelayLayout::R4;
        let lost = total_overruns.unwrap_or(0).max(missing_numbers);
        let known = Known::of_workload(workload);
        let own = |value: Option<String>| value.filter(|_| !raw);
        Known {
            trace: TraceMembers {
                input: if raw { InputKind::Relay } else { InputKind::Kmemtrace },
                source: Some(Source::Relay),
                kernel: own(known.trace.kernel),
                arch: own(known.trace.arch),
                endian: Some(options.endian.name()),
                word_bytes: known.trace.word_bytes.filter(|_| !raw),
                page_bytes: known.trace.page_bytes.filter(|_| !raw),
                page_bytes_from: "trace",
                clock: None,
                order: if numbered { OrderKey::Sequence } else { OrderKey::Time },
                scope: Some("system"),
                filtered: None,
                deferred: None,
                symbols: if raw { Some("none") } else { known.trace.symbols },
            },
            cpus: streams
                .cpus
                .iter()
                .map(|s| (s.cpu, s.events.iter().map(|e| StreamItem::Event(*e)).collect()))
                .collect(),
            comms: if raw { HashMap::new() } else { known.comms },
            own_threads: None,
            shows_own: false,
            bounds: None,
            selection: Selection::default(),
            nodes: if raw { HashMap::new() } else { known.nodes },
            names: known.names,
            verdict: if lost > 0 { Verdict::Lossy } else { Verdict::Complete },
            lost: Some(lost),
            truncated: Vec::new(),
            missing: Vec::new(),
            total_overruns,
            symbols: known.symbols.map(|symbols| if raw { Symbols::default() } else { symbols }),
            unknown: known.unknown,
            names_allocations: known.names_allocations,
            classes: if raw { Classes::default() } else { known.classes },
            kinds: BTreeSet::new(),
            percpu_names_callers: false,
            has_frames: false,
            reclaim_account: known.reclaim_account,
            threads_end: known.threads_end,
            recorded_frees: BTreeSet::new(),
            texts: known.texts.filter(|_| !raw),
        }
    }

    /// Facts that the decoder finds in the files of `trace`, read to their ends.
    pub fn of_trace(mut trace: Trace) -> Known {
        let frees_alone = trace.frees_alone_name_caches();
        let mut cpus = Vec::new();
        for stream in &mut trace.streams {
            let mut all = Vec::new();
            let mut items = Vec::new();
            while stream.fill(&mut trace.names, &mut items) {
                all.extend_from_slice(&items);
            }
            if stream.has_several_cpus() {
                cpus.extend(apart(all));
            } else {
                cpus.push((stream.cpu(), all));
            }
        }
        let facts = trace.streams.iter().map(CpuStream::report);
        let verdict = facts.clone().map(|f| f.verdict).max().unwrap_or_default();
        let cut = facts.clone().filter(|f| f.verdict == Verdict::Truncated);
        let cut = cut.filter(|f| !f.cpu.is_some_and(|cpu| trace.info.missing.contains(&cpu)));
        let name = |path: &std::path::Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let truncated = cut.map(|f| name(&f.path)).collect();
        let lost = facts.map(|f| f.lost).try_fold(0u64, |sum, lost| Some(sum.saturating_add(lost?)));
        let total_overruns = trace.total_overruns();
        let gfp_names = trace.metadata.gfp_names.as_deref();
        let texts =
            [&trace.metadata.slabinfo_start, &trace.metadata.slabinfo_end].map(|text| String::from_utf8_lossy(text));
        let classes = Classes::of_slabinfo(texts.each_ref().map(|text| &**text), |name| {
            gfp_names.and_then(|names| names.flags(name))
        });
        let info = trace.info;
        let classes = classes.with_pages(info.page_bytes);
        Known {
            trace: TraceMembers {
                input: info.input,
                source: info.source,
                kernel: info.kernel,
                arch: info.arch,
                endian: info.endian.map(Endian::name),
                word_bytes: info.word_bytes,
                page_bytes: info.page_bytes,
                page_bytes_from: info.page_bytes_from.name(),
                clock: info.clock,
                order: info.order,
                scope: info.scope.name(),
                filtered: None,
                deferred: info.deferred,
                symbols: info.symbols.map(SymbolSource::name),
            },
            cpus,
            names: trace.names,
            comms: trace
                .metadata
                .comms
                .iter()
                .map(|(&pid, comm)| (pid, String::from_utf8_lossy(comm).into_owned()))
                .collect(),
            // Records of a relay channel have no thread ids.
            own_threads: trace.metadata.own_threads.filter(|_| info.source != Some(Source::Relay)),
            shows_own: false,
            bounds: None,
            selection: Selection::default(),
            nodes: trace.metadata.nodes,
            verdict,
            lost,
            truncated,
            missing: info.missing,
            total_overruns,
            symbols: None,
            unknown: None,
            names_allocations: !frees_alone,
            classes,
            kinds: info.capabilities.kinds.iter().filter(|(_, has)| **has).map(|(kind, _)| kind).collect(),
            // Here no call-site comes from a stack.
            percpu_names_callers: true,
            has_frames: info.capabilities.frames,
            reclaim_account: String::from_utf8_lossy(&trace.metadata.reclaim_account).into_owned(),
            threads_end: trace.metadata.threads_end,
            recorded_frees: BTreeSet::new(),
            texts: None,
        }
    }

    /// Spaces that documents show.
    pub fn spaces(&self) -> impl Iterator<Item = Space> {
        Space::ALL.into_iter().filter(|space| space.is_always_shown() || self.kinds.contains(&space.kind()))
    }

    /// True for a kind that pairs and findings are counted of.
    pub fn compares(&self, kind: Kind) -> bool {
        kind.space().is_always_shown() || self.selection.kind == Some(kind)
    }

    /// True if the clock puts events in no order, not even those of one CPU.
    pub fn is_without_order(&self) -> bool {
        self.trace.order == OrderKey::Time && self.trace.clock.as_deref() == Some("uptime")
    }

    /// True if `kfree` of a cache object is legal: from Linux 6.4 on, and on an unknown kernel.
    pub fn kfree_of_cache_is_legal(&self) -> bool {
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
        let release = self.trace.kernel.as_deref().and_then(|release| {
            let mut parts = release.split('.');
            Some((number(parts.next()?)?, number(parts.next()?)?))
        });
        release.is_none_or(|release| release >= (6, 4))
    }

    /// True if the recorder itself made an allocation: the event is of one of its threads, outside of interrupts.
    pub fn is_own(&self, alloc: &Event) -> bool {
        let is_of_own_thread = self.own_threads.iter().flatten().any(|thread| alloc.pid == Some(*thread));
        is_of_own_thread && alloc.flags.is_some_and(|flags| flags & (0x40 | 0x08 | 0x10) == 0)
    }

    /// True if the recording is of some tasks only: frees by others are unseen.
    pub fn is_of_tasks(&self) -> bool {
        self.trace.scope == Some("tasks")
    }

    /// Command name of the event's thread.
    pub fn comm(&self, event: &Event) -> Option<&str> {
        self.comms.get(&event.pid?).map(String::as_str)
    }

    /// Cache that the event names.
    pub fn cache_in(&self, event: &Event) -> Option<&str> {
        event.cache.map(|id| std::str::from_utf8(self.names.get(id)).unwrap_or("?"))
    }

    /// True if the clock counts nanoseconds: ticks and numbers of records are no times.
    pub fn is_timed(&self) -> bool {
        let ticks = ["x86-tsc", "ppc-tb", "counter", "uptime"];
        self.trace.order == OrderKey::Time && !self.trace.clock.as_deref().is_some_and(|clock| ticks.contains(&clock))
    }

    /// True if the node of every CPU is known.
    pub fn nodes_are_known(&self) -> bool {
        self.cpus.iter().all(|(cpu, _)| self.nodes.contains_key(cpu))
    }
}
