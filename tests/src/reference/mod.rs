//! The slow, obvious model that reports are held against: every figure counted again from the list of all
//! events, by the words that define it, without a thought for speed or memory.
//!
//! [`order`] puts events in their total order, [`pairs`] says what each of them does, [`figures`] counts,
//! [`documents`] writes the JSON of each view.

pub mod documents;
pub mod figures;
pub mod order;
pub mod pairs;

use std::collections::HashMap;

use crate::generate::{RelayOptions, RelayStreams, Workload};
use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Event, Gap, Names, StreamItem};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::kernel::target::Endian;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::trace::{InputKind, Trace};

/// What is known of a trace, however it is known.
#[derive(Debug)]
pub struct Known {
    /// Members of `trace`, without those that follow from the events.
    pub trace: TraceMembers,
    /// Each CPU's items, ascending by CPU.
    pub cpus: Vec<(u32, Vec<StreamItem>)>,
    /// Names of events and caches.
    pub names: Names,
    /// Command names by thread id.
    pub comms: HashMap<i32, String>,
    /// The recorder's thread ids, where the input tells them.
    pub own_threads: Option<Vec<i32>>,
    /// The recorder's own objects are not left out.
    pub shows_own: bool,
    /// NUMA nodes by CPU.
    pub nodes: HashMap<u32, u32>,
    /// The worst of the files.
    pub verdict: Verdict,
    /// Lost events; `None` where nobody knows.
    pub lost: Option<u64>,
    /// Names of the files that are cut.
    pub truncated: Vec<String>,
    /// CPUs without a file.
    pub missing: Vec<u32>,
    /// Records that a relay channel dropped, where it tells.
    pub total_overruns: Option<u64>,
}

/// See [`Known::trace`].
#[derive(Clone, Debug)]
pub struct TraceMembers {
    /// What was opened.
    pub input: InputKind,
    /// Where it was recorded from.
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
    /// Trace clock.
    pub clock: Option<String>,
    /// What orders the events.
    pub order: OrderKey,
}

impl Known {
    /// What a reader must know of the recording of `workload`.
    pub fn of_workload(workload: Workload) -> Known {
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
        Known {
            trace: TraceMembers {
                input: InputKind::Kmemtrace,
                source: Some(Source::Tracefs),
                kernel: workload.kernel.map(str::to_owned),
                arch: Some(workload.shape.arch().to_owned()),
                endian: Some(target.endian.name()),
                word_bytes: Some(target.word_bytes),
                page_bytes: Some(u64::from(workload.shape.page_bytes)),
                clock: workload.clock.map(str::to_owned),
                order: OrderKey::Time,
            },
            total_overruns: None,
            missing: workload.cpus.iter().filter(|c| c.missing).map(|c| c.cpu).collect(),
            cpus: workload.cpus.into_iter().map(|c| (c.cpu, c.items)).collect(),
            names: workload.names,
            own_threads: workload.own_threads,
            shows_own: false,
            comms: workload.comms.iter().map(|&(pid, comm)| (pid, comm.to_owned())).collect(),
            nodes: workload.nodes.iter().copied().collect(),
            verdict,
            lost,
            truncated,
        }
    }

    /// What a reader must know of `workload` as a captured tree.
    pub fn of_tree(workload: Workload) -> Known {
        let known = Known::of_workload(workload);
        Known { trace: TraceMembers { input: InputKind::Tree, ..known.trace }, own_threads: None, ..known }
    }

    /// What a reader must know of the relay channel `streams` of `workload`: from raw bytes, or from our own recording
    /// of it. `total_overruns` is the channel's, where it is known.
    pub fn of_relay(
        workload: Workload,
        options: &RelayOptions,
        streams: &RelayStreams,
        raw: bool,
        total_overruns: Option<u64>,
    ) -> Known {
        let missing_numbers = streams.holes.iter().map(|(before, after)| after - before - 1).sum();
        let numbered = options.layout == Layout::R4;
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
                clock: None,
                order: if numbered { OrderKey::Sequence } else { OrderKey::Time },
            },
            cpus: streams
                .cpus
                .iter()
                .map(|s| (s.cpu, s.events.iter().map(|e| StreamItem::Event(*e)).collect()))
                .collect(),
            comms: if raw { HashMap::new() } else { known.comms },
            own_threads: None,
            shows_own: false,
            nodes: if raw { HashMap::new() } else { known.nodes },
            names: known.names,
            verdict: if lost > 0 { Verdict::Lossy } else { Verdict::Complete },
            lost: Some(lost),
            truncated: Vec::new(),
            missing: Vec::new(),
            total_overruns,
        }
    }

    /// What the decoder makes of the files of `trace`, read to their ends.
    pub fn of_trace(mut trace: Trace) -> Known {
        let mut cpus = Vec::new();
        for stream in &mut trace.streams {
            let mut all = Vec::new();
            let mut items = Vec::new();
            while stream.fill(&mut trace.names, &mut items) {
                all.extend_from_slice(&items);
            }
            cpus.push((stream.cpu(), all));
        }
        let facts = trace.streams.iter().map(CpuStream::report);
        let verdict = facts.clone().map(|f| f.verdict).max().unwrap_or_default();
        let cut = facts.clone().filter(|f| f.verdict == Verdict::Truncated);
        let cut = cut.filter(|f| !f.cpu.is_some_and(|cpu| trace.info.missing.contains(&cpu)));
        let name = |path: &std::path::Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let truncated = cut.map(|f| name(&f.path)).collect();
        let lost = facts.map(|f| f.lost).try_fold(0u64, |sum, lost| Some(sum.saturating_add(lost?)));
        let total_overruns = trace.total_overruns();
        let info = trace.info;
        Known {
            trace: TraceMembers {
                input: info.input,
                source: info.source,
                kernel: info.kernel,
                arch: info.arch,
                endian: info.endian.map(Endian::name),
                word_bytes: info.word_bytes,
                page_bytes: info.page_bytes,
                clock: info.clock,
                order: info.order,
            },
            cpus,
            names: trace.names,
            comms: trace
                .metadata
                .comms
                .iter()
                .map(|(&pid, comm)| (pid, String::from_utf8_lossy(comm).into_owned()))
                .collect(),
            // Records of a relay channel do not tell their threads.
            own_threads: trace.metadata.own_threads.filter(|_| info.source != Some(Source::Relay)),
            shows_own: false,
            nodes: trace.metadata.nodes,
            verdict,
            lost,
            truncated,
            missing: info.missing,
            total_overruns,
        }
    }

    /// All gaps: those in the streams, the missing sequence numbers, and what a relay channel dropped beyond these.
    pub fn gaps(&self) -> Vec<Gap> {
        let of_items = self.cpus.iter().flat_map(|(_, items)| items).filter_map(|item| match item {
            StreamItem::Gap(gap) => Some(*gap),
            StreamItem::Event(_) => None,
        });
        of_items.chain(order::sequence_gaps(self)).chain(order::dropped(self)).collect()
    }

    /// True where the clock puts events in no order, not even those of one CPU.
    pub fn is_without_order(&self) -> bool {
        self.trace.order == OrderKey::Time && self.trace.clock.as_deref() == Some("uptime")
    }

    /// Whether `kfree` of a cache object is legal: from Linux 6.4 on, and where the kernel is not known.
    pub fn kfree_of_cache_is_legal(&self) -> bool {
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
        let release = self.trace.kernel.as_deref().and_then(|release| {
            let mut parts = release.split('.');
            Some((number(parts.next()?)?, number(parts.next()?)?))
        });
        release.is_none_or(|release| release >= (6, 4))
    }

    /// True where the recorder itself made an allocation: one of its threads did, and no interrupt on it.
    pub fn is_own(&self, alloc: &Event) -> bool {
        let is_of_own_thread = self.own_threads.iter().flatten().any(|thread| alloc.pid == Some(*thread));
        is_of_own_thread && alloc.flags.is_some_and(|flags| flags & (0x40 | 0x08 | 0x10) == 0)
    }

    /// Whether the node of every CPU is known.
    pub fn nodes_are_known(&self) -> bool {
        self.cpus.iter().all(|(cpu, _)| self.nodes.contains_key(cpu))
    }
}
