//! A trace as its readers see it: what it is, a stream of items for each CPU, and the names next to it.
//!
//! One way to open what `kmemtraced` writes and what the kernel leaves (raw relay bytes), for check and
//! report alike. Reading is one pass in bounded memory; findings are in each stream's [`FileReport`], complete
//! once the stream has ended.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::capabilities::InputCapabilities;
use crate::clock::{Clock, OrderKey};
use crate::event::{ByKind, Kind, Names};
use crate::kernel::gfp::GfpNames;
use crate::kernel::kallsyms::has_addresses;
use crate::kernel::probes::KVFREE_RCU;
use crate::kernel::release::Release;
use crate::kernel_texts::KernelTexts;
use crate::stream::CpuStream;
use crate::stream::report::{FileReport, Source};
use crate::stream::source::EventSource;
use crate::target::Endian;

/// Name of the kernel's text of page owners, as an input.
pub const PAGE_OWNER: &str = "page_owner";

/// Name of the text that the kernel's tracer, trace-cmd and perf print, as an input.
pub const FTRACE_TEXT: &str = "ftrace-text";
/// Name of a `perf.data` in documents.
pub const PERF_DATA: &str = "perf.data";

/// Part of [`MADE_UP`] for functions of which an input does not say how far from their start a call is.
pub const WITHOUT_OFFSET: std::ops::Range<u64> = (1 << 62) + (1 << 31)..MADE_UP.end;

/// Symbol of memory that was allocated before page_owner began: no function, so that an offset in it says nothing.
pub const BEFORE_PAGE_OWNER: &[u8] = b"before page_owner";

/// Symbol of memory whose stack page_owner could not keep; no function, either.
pub const NO_STACK: &[u8] = b"no stack";

/// Addresses of functions that an input names without an address: no kernel has code there. Documents have null for them.
pub const MADE_UP: std::ops::Range<u64> = 1 << 62..(1 << 62) + (1 << 32);

/// Addresses that stand for stacks by their numbers, where a text gives the number alone.
pub const HANDLES: std::ops::Range<u64> = MADE_UP.end..MADE_UP.end + (1 << 32);

/// Address that stands for a call site that a text does not give.
pub const NO_SITE: u64 = HANDLES.end;

/// True for an address that no input has given: [`MADE_UP`], [`HANDLES`], [`NO_SITE`].
pub fn is_made_up(address: u64) -> bool {
    (MADE_UP.start..=NO_SITE).contains(&address)
}

/// Kinds of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A trace directory of ours, or files out of one.
    Kmemtrace,
    /// Raw relay bytes: `cpu0`, `cpu1`, ... or header-less `cpuN.out`.
    Relay,
    /// The files of a tracefs instance, copied with `cat`.
    Tree,
    /// A `trace.dat` of trace-cmd.
    TraceDat,
    /// An input of another format: the name that documents have for it.
    Other(&'static str),
}

impl InputKind {
    /// `"kmemtrace"`, `"relay"`, `"tree"` or the other format's name, as documents have it.
    pub fn name(self) -> &'static str {
        match self {
            InputKind::Kmemtrace => "kmemtrace",
            InputKind::Relay => "relay",
            InputKind::Tree => "tree",
            InputKind::TraceDat => "trace.dat",
            InputKind::Other(name) => name,
        }
    }
}

/// Part of the system whose events a recording has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole machine.
    #[default]
    System,
    /// Some tasks alone, as one command and its children: frees by other tasks are unseen, so live figures are upper bounds.
    Tasks,
    /// The input does not say.
    Unknown,
}

/// Addresses of objects, as the input has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// Those of the kernel.
    #[default]
    Raw,
    /// Numbers of 32 bits that `%p` prints in their place since Linux 4.15 (`lib/vsprintf.c`): equal for equal addresses, and two
    /// addresses may share one.
    Hashed,
}

/// Source of the size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageBytesFrom {
    /// The recording, or the files of a captured tree.
    Trace,
    /// The text itself: blocks of an order that fit one size alone.
    Text,
    /// The command line.
    Option,
    /// Nothing: the most usual size.
    Guess,
    /// The machine that reads its own kernel's text.
    Machine,
}

impl PageBytesFrom {
    /// `"trace"`, `"text"`, `"option"`, `"guess"` or `"machine"`, as documents have it.
    pub fn name(self) -> &'static str {
        match self {
            PageBytesFrom::Trace => "trace",
            PageBytesFrom::Text => "text",
            PageBytesFrom::Option => "option",
            PageBytesFrom::Guess => "guess",
            PageBytesFrom::Machine => "machine",
        }
    }
}

impl Scope {
    /// `"system"` or `"tasks"`, as files and documents have it; `None` where it is not known.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Scope::System => Some("system"),
            Scope::Tasks => Some("tasks"),
            Scope::Unknown => None,
        }
    }
}

/// Deferred frees (`kfree_rcu`) in a trace of a kernel that hands them to its allocator in bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferred {
    /// Probe events record them from this order key on; 0: from before the first event, `u64::MAX`: it is not known from when.
    From(u64),
    /// No event records them.
    Unseen,
}

impl Deferred {
    /// First release whose `kfree_rcu` batches objects for `kfree_bulk`, which has no event: `kernel/rcu/tree.c` of Linux 5.7.
    const BULK: Release = Release(5, 7, 0);

    /// Deferred frees of a recording of ours from tracefs. `probes` is [`Metadata::probes`]; `is_described`: the trace has the format of
    /// their event.
    pub(crate) fn of_recording(kernel: Option<&str>, probes: Option<&str>, is_described: bool) -> Option<Deferred> {
        let mut lines = probes.unwrap_or_default().lines();
        let from = lines.next().and_then(|line| line.trim().parse().ok());
        let defines = |line: &str| {
            let event = line.split_whitespace().next().and_then(|name| name.rsplit('/').next());
            event == Some(KVFREE_RCU)
        };
        if lines.any(defines) || probes.is_none() && is_described {
            return Some(Deferred::From(from.unwrap_or(u64::MAX)));
        }
        Deferred::without_probes(kernel)
    }

    /// Deferred frees of a trace without events of their own.
    pub(crate) fn without_probes(kernel: Option<&str>) -> Option<Deferred> {
        let release = kernel.and_then(Release::parse)?;
        (release >= Deferred::BULK).then_some(Deferred::Unseen)
    }

    /// `"seen"`, `"partly"` or `"unseen"`, as documents have it, of events from the order key `first` on; `None`: there are none.
    pub fn name(self, first: Option<u64>) -> &'static str {
        match self {
            Deferred::From(0) => "seen",
            Deferred::From(from) if first.is_none_or(|first| from <= first) => "seen",
            Deferred::From(_) => "partly",
            Deferred::Unseen => "unseen",
        }
    }
}

/// Source of the names of call-sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolSource {
    /// The trace has the kernel's symbols.
    Trace,
    /// A file that was named next to the trace.
    File,
    /// None: the kernel showed no symbols, or all of them at address 0, to the one who recorded.
    Hidden,
    /// None: the input never has symbols, or has lost its `meta.out`.
    Absent,
}

/// Reason for [`SymbolSource::Hidden`], as programs print it.
pub const NO_SYMBOLS: &str =
    "no kernel symbols: kptr_restrict=2, no CAP_SYSLOG, CONFIG_KALLSYMS=n, or a damaged meta.out";

impl SymbolSource {
    /// `"trace"`, `"file"` or `"none"`, as documents have it.
    pub fn name(self) -> &'static str {
        match self {
            SymbolSource::Trace => "trace",
            SymbolSource::File => "file",
            SymbolSource::Hidden | SymbolSource::Absent => "none",
        }
    }
}

/// Run of the recorder, as far as the input knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Time of day at its start, in seconds since 1970.
    pub begun: Option<u64>,
    /// Time of day at its end, in seconds since 1970.
    pub ended: Option<u64>,
    /// Words of its command line with the name of COMMAND and without COMMAND's arguments: bytes of a stranger, to be escaped.
    pub command: Option<Vec<String>>,
}

/// Facts of a trace that are known before its events are read.
#[derive(Clone, Debug)]
pub struct TraceInfo {
    /// Kind of the input.
    pub input: InputKind,
    /// What the input can provide.
    pub capabilities: InputCapabilities,
    /// Kernel interface that it was recorded from.
    pub source: Option<Source>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Machine name.
    pub arch: Option<String>,
    /// Byte order.
    pub endian: Option<Endian>,
    /// Bytes of a `long`: 4 or 8.
    pub word_bytes: Option<u8>,
    /// Bytes of a page.
    pub page_bytes: Option<u64>,
    /// Source of that number; of no meaning without one.
    pub page_bytes_from: PageBytesFrom,
    /// Addresses of objects.
    pub addresses: Addresses,
    /// Trace clock.
    pub clock: Option<String>,
    /// True if the kernel began to record at boot.
    pub since_boot: bool,
    /// CPUs of the recording, ascending, those whose file is missing included.
    pub cpus: Vec<u32>,
    /// CPUs whose file is missing.
    pub missing: Vec<u32>,
    /// Unit of the order: time or sequence number.
    pub order: OrderKey,
    /// Part of the system that was recorded.
    pub scope: Scope,
    /// Deferred frees; `None` where each has an event of its own, and where that is not known.
    pub deferred: Option<Deferred>,
    /// Kernel filter on allocation events, as the recorder was given it: bytes of a stranger, to be escaped.
    pub filter: Option<String>,
    /// Name of the host: bytes of a stranger, to be escaped. `None` where it was left out or is not known.
    pub host: Option<String>,
    /// Id of the boot, as `/proc/sys/kernel/random/boot_id` has it: bytes of a stranger, too.
    pub boot: Option<String>,
    /// Id of the recording, in hexadecimal digits: ours, or a checksum of the first bytes of a captured tree's files.
    pub recording: Option<String>,
    /// Run of the recorder; nothing is known of it for inputs of other programs.
    pub run: Run,
    /// Source of the names of call-sites; `None` where the input names functions itself, as a text of page_owner does.
    pub symbols: Option<SymbolSource>,
    /// Facts of a text that lists what is live at one moment; `None` for other inputs.
    pub text: Option<Box<TextInfo>>,
}

/// Source of the times of a series of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlicesFrom {
    /// The caller.
    Option,
    /// The texts.
    Text,
    /// Names of the files.
    Name,
    /// Times at which the files were changed.
    Files,
    /// Nothing: the order of the names.
    Nothing,
}

impl SlicesFrom {
    /// `"option"`, `"text"`, `"name"`, `"mtime"` or `"none"`, as documents have it.
    pub fn name(self) -> &'static str {
        match self {
            SlicesFrom::Option => "option",
            SlicesFrom::Text => "text",
            SlicesFrom::Name => "name",
            SlicesFrom::Files => "mtime",
            SlicesFrom::Nothing => "none",
        }
    }
}

/// Facts of a text that lists what is live at one moment.
#[derive(Clone, Debug, Default)]
pub struct TextInfo {
    /// Form, as documents have it: `dump`, `slabtop`.
    pub form: &'static str,
    /// Name of the form for people: `page_owner dump`.
    pub title: &'static str,
    /// What the text has many of: `blocks`, `lines`.
    pub unit: &'static str,
    /// Number of them.
    pub entries: u64,
    /// Lines that do not belong to the form.
    pub skipped_lines: u64,
    /// Blocks that lack what their count needs.
    pub skipped_blocks: u64,
    /// Some entry has a stack.
    pub has_stacks: bool,
    /// Number of entries that have one, or whose handle has one.
    pub stacks_seen: u64,
    /// Number of different stacks of entries.
    pub stacks_distinct: u64,
    /// Some entry has a time.
    pub has_times: bool,
    /// Some entry has a thread: its id or its command.
    pub has_threads: bool,
    /// Some entry names its cache.
    pub has_caches: bool,
    /// Each entry is one object, with its address.
    pub has_objects: bool,
    /// Some entry gives the number of its stack, which no text has.
    pub has_handles_alone: bool,
    /// Lines of the form may be missing, so that sums over all lines are not known.
    pub lacks_lines: bool,
    /// Some sizes were rounded.
    pub is_rounded: bool,
    /// Time of day at which the text was made, in seconds since 1970.
    pub taken_at: Option<i64>,
    /// Number of texts of the series that the text is the last of; 0 for a single one.
    pub slices: usize,
    /// Source of the times of a series that the text is of; `None` for a single text.
    pub slices_from: Option<SlicesFrom>,
    /// Counters of meminfo, zoneinfo or an OOM report: name and bytes, in the order of the text.
    pub counters: Vec<(Box<[u8]>, u64)>,
    /// Processes of an OOM report: id, command, resident bytes.
    pub processes: Vec<(i32, Box<[u8]>, u64)>,
    /// Names of the other texts that were named with it, or are in the same file.
    pub others: Vec<&'static str>,
    /// Warnings for people, a sentence each.
    pub warnings: Vec<String>,
}

impl TraceInfo {
    /// The order keys of its events.
    pub fn keys(&self) -> Clock {
        Clock::of(self.order, self.clock.as_deref())
    }
}

/// Names of symbols, modules, threads, nodes and gfp flags, from `meta.out`.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// `/proc/kallsyms`, lines of start and end.
    pub kallsyms: Vec<u8>,
    /// Symbol at the start of the kernel's image, `_text` or `_stext`, and its address, of an input without the other symbols.
    pub image_begin: Option<(Box<[u8]>, u64)>,
    /// `/proc/modules`, lines of start and end.
    pub modules: Vec<u8>,
    /// Command names by thread id.
    pub comms: HashMap<i32, Box<[u8]>>,
    /// The recorder's thread ids, ascending, each once, at most [`MAX_OWN_THREADS`]; `None`: the recording
    /// does not have them.
    pub own_threads: Option<Vec<i32>>,
    /// NUMA node by CPU.
    pub nodes: HashMap<u32, u32>,
    /// `/proc/slabinfo` at the start.
    pub slabinfo_start: Vec<u8>,
    /// `/proc/slabinfo` at the end.
    pub slabinfo_end: Vec<u8>,
    /// Names of gfp flags, from the formats of events; `None` where no format has them, as in a relay channel.
    pub gfp_names: Option<Arc<GfpNames>>,
    /// Bytes of `/sys/kernel/notes`: ELF notes, 4-byte aligned, in the machine's byte order; empty if the recording has none.
    pub notes: Vec<u8>,
    /// Lines `NAME BUILDID PATH SECTION=0xADDRESS…` of modules, `-` for what is not known.
    pub module_info: Vec<u8>,
    /// Lines `CACHE ALIAS…` of merged slab caches.
    pub cache_aliases: Vec<u8>,
    /// Lines `CACHE 0` and `CACHE 1` of slab caches: 1 for one whose objects the kernel takes back when it is short of memory; empty if the
    /// recording has none.
    pub reclaim_account: Vec<u8>,
    /// Names of slab caches whose objects have red zones, a line each; empty if there are none, or the recording does not give them.
    pub red_zones: Vec<u8>,
    /// Lines `TID TGID ROOT PATH` of the threads at the start, and of those whose cgroup no event told: thread, thread group, number of the
    /// hierarchy and path of the cgroup; empty if the recording has none.
    pub cgroups: Vec<u8>,
    /// Ids of the threads that lived at the end, ascending; `None`: the recording does not have them.
    pub threads_end: Option<Vec<i32>>,
    /// `/proc/meminfo` of the start of the recording; empty if the recording has none.
    pub meminfo_start: Vec<u8>,
    /// `/proc/meminfo` of the recording's end.
    pub meminfo_end: Vec<u8>,
    /// `/proc/vmstat` of the start of the recording; empty if the recording has none.
    pub vmstat_start: Vec<u8>,
    /// `/proc/vmstat` of the recording's end.
    pub vmstat_end: Vec<u8>,
    /// Further texts of the machine's memory at the start of the recording.
    pub memory_start: MemoryTexts,
    /// The same texts of the recording's end.
    pub memory_end: MemoryTexts,
    /// Request of the recorder for call stacks, as `trigger alloc`; empty where the recorder asked the kernel for none. `None`: the
    /// recording does not say, and the reader ties stacks where it finds them.
    pub stacks: Option<String>,
    /// The recorder's probe events: the time from which they were enabled (0: before the first event), then their definitions, a line
    /// each. `None`: the recording has none.
    pub probes: Option<String>,
    /// System name, node name, release and so on.
    pub uname: Vec<u8>,
    /// Time of day and CLOCK_MONOTONIC when recording started, ns.
    pub started: Option<(u64, u64)>,
    /// Time of day and CLOCK_MONOTONIC when it stopped, ns.
    pub stopped: Option<(u64, u64)>,
    /// Command line of the recorder, words separated by NUL; empty if the recording has none.
    pub command_line: Vec<u8>,
    /// Findings about `meta.out`; `None`: there is no such file.
    pub report: Option<FileReport>,
    /// File and line of call sites that the input has itself, by their addresses.
    pub sources: HashMap<u64, (Box<[u8]>, u32)>,
    /// Input that a `trace.dat` was made from, where it keeps all facts of that.
    pub made_from: Option<InputKind>,
    /// Texts of the kernel, where the caller wants them and the trace has sub-buffers.
    pub texts: Option<Box<KernelTexts>>,
}

/// Texts of proc on the machine's memory at one moment; a text is empty if the recording has none.
#[derive(Clone, Debug, Default)]
pub struct MemoryTexts {
    /// `/proc/zoneinfo`, read right after `/proc/meminfo`.
    pub zoneinfo: Vec<u8>,
    /// `/proc/buddyinfo`.
    pub buddyinfo: Vec<u8>,
    /// `/proc/vmallocinfo`.
    pub vmallocinfo: Vec<u8>,
    /// `/proc/allocinfo`, of kernels that have it (6.10 on).
    pub allocinfo: Vec<u8>,
}

/// Largest number of thread ids that a recording may have: several for each CPU that a kernel can have.
pub const MAX_OWN_THREADS: usize = 1 << 16;

/// Inode number of the first pid namespace, whose thread ids the events have (`PROC_PID_INIT_INO` of `include/linux/proc_ns.h`, Linux 3.8
/// on).
pub const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Why a trace could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A path cannot be opened or read.
    #[error("{}", crate::unreadable::message(.path, .error))]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        error: std::io::Error,
    },
    /// Neither our format nor anything else that is known.
    #[error("{path}: {reason}", path = path.display())]
    NoTrace {
        /// The path.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A newer major version.
    #[error("{path}: written in format version {found}, and this program reads up to version {known}: use a newer kmemtrace", path = path.display(), known = crate::disk::block::MAJOR)]
    Newer {
        /// The path.
        path: PathBuf,
        /// The file's major version.
        found: u16,
    },
    /// Files of different recordings.
    #[error(
        "{a} and {b} are of different recordings: keep the files of each in a directory of its own",
        a = a.display(),
        b = b.display()
    )]
    Mixed {
        /// First file.
        a: PathBuf,
        /// Second file.
        b: PathBuf,
    },
    /// An input holds several things: the caller must say which one to read.
    #[error("{path}: {reason}", path = path.display())]
    Choose {
        /// The path.
        path: PathBuf,
        /// What there is, and how to choose.
        reason: String,
    },
    /// Reading the trace needs more memory than the process may take.
    #[error("{path}: {over}", path = path.display())]
    Memory {
        /// The path.
        path: PathBuf,
        /// The limit.
        over: crate::memory::OverLimit,
    },
    /// Two files of one CPU: its events would count twice.
    #[error("{a} and {b} are both of CPU {cpu}: name one of them", a = a.display(), b = b.display())]
    Twice {
        /// First file.
        a: PathBuf,
        /// Second file.
        b: PathBuf,
        /// CPU of both files.
        cpu: u32,
    },
}

impl OpenError {
    /// Exit status 3 (no trace at all) rather than 2 (unreadable).
    pub fn is_no_trace(&self) -> bool {
        use OpenError::{Choose, Io, Memory, Twice};

        !matches!(self, Io { .. } | Twice { .. } | Choose { .. } | Memory { .. })
    }
}

/// Largest number of streams of a trace: 16 bits tell them apart.
pub(crate) const MAX_STREAMS: usize = u16::MAX as usize;

/// Whatever it takes to open a trace once more.
pub(crate) trait Origin: std::fmt::Debug + Send + Sync {
    /// Opens the trace that `paths` name.
    fn open(self: Arc<Self>, paths: &[PathBuf]) -> Result<Trace, OpenError>;
}

/// An opened trace.
#[derive(Debug)]
pub struct Trace {
    /// A caller has begun to read the streams.
    pub(crate) has_begun: bool,
    /// The paths that were opened, as the caller named them.
    pub inputs: Vec<PathBuf>,
    /// Whatever it takes to open them again; `None` for a trace that is read once.
    pub(crate) origin: Option<Arc<dyn Origin>>,
    /// Earlier texts of the same input, oldest first, of a text of one moment; empty for other inputs.
    pub series: Vec<Trace>,
    /// Facts about all of it.
    pub info: TraceInfo,
    /// One stream for each of `info.cpus`, in that order; a missing CPU's yields one gap.
    pub streams: Vec<CpuStream>,
    /// Names of caches and events.
    pub names: Names,
    /// Symbols, modules, comms, nodes.
    pub metadata: Metadata,
    /// From a directory of raw relay files.
    pub(crate) total_overruns: Option<u64>,
}

impl Trace {
    /// True where frees name the cache of an object and allocations do not: a recording of Linux 6.1 to 6.17.
    pub fn frees_alone_name_caches(&self) -> bool {
        self.streams.iter().any(CpuStream::frees_alone_name_caches)
    }

    /// False where no event can have a call stack: the trace describes none, or says that none were recorded.
    pub fn may_have_stacks(&self) -> bool {
        self.streams.iter().any(CpuStream::may_have_stacks)
    }

    /// True where the recorder was asked for events of reclaim, compaction or shrinkers, whether one came or not. False for other
    /// inputs than ours: a captured tree may describe events that were not switched on.
    pub fn records_reclaim(&self) -> bool {
        self.first_input() == InputKind::Kmemtrace && self.describes_reclaim()
    }

    /// True where the trace describes events of reclaim, compaction or shrinkers, whether they were switched on or not.
    pub fn describes_reclaim(&self) -> bool {
        self.streams.iter().any(CpuStream::describes_reclaim)
    }

    /// True where the recorder was asked for allocations of pages, as in [`Trace::records_reclaim`].
    pub fn records_page_allocs(&self) -> bool {
        self.first_input() == InputKind::Kmemtrace && self.info.capabilities.kinds[Kind::Pages]
    }

    /// Kind of the input, or of the one that a `trace.dat` was made from.
    fn first_input(&self) -> InputKind {
        self.metadata.made_from.unwrap_or(self.info.input)
    }

    /// True where the recorder was asked for frees of this kind, as in [`Trace::records_reclaim`].
    pub fn records_frees(&self, kind: Kind) -> bool {
        self.first_input() == InputKind::Kmemtrace && self.streams.iter().any(|stream| stream.describes_frees(kind))
    }

    /// True where the trace describes events about threads and cgroups: [`crate::event::EventSink::task`].
    pub fn tells_tasks(&self) -> bool {
        self.streams.iter().any(CpuStream::tells_tasks)
    }

    /// True where the trace describes events about loads of modules: [`crate::event::EventSink::module_load`].
    pub fn tells_module_loads(&self) -> bool {
        self.streams.iter().any(CpuStream::tells_module_loads)
    }

    /// A trace of `sources`, one for each CPU; `input` is the format's name in documents.
    ///
    /// Order keys are times of `clock`, a name of the kernel's `trace_clock`. With `mono`, `mono_raw`, `boot`, `tai` or `global`
    /// they are nanoseconds that compare between CPUs; with `None`, nanoseconds that compare on one CPU only, so that findings over
    /// two CPUs are suspect. Times of a clock that is not known here count as ticks of one CPU. The caller puts symbols and
    /// commands into `metadata`.
    ///
    /// # Errors
    /// Two sources of one CPU, or more than 65,535 sources.
    pub fn of_sources(
        input: &'static str,
        clock: Option<&str>,
        sources: Vec<Box<dyn EventSource>>,
    ) -> Result<Trace, OpenError> {
        if sources.len() > MAX_STREAMS {
            let path = sources.first().map_or_else(PathBuf::new, |source| source.path().to_owned());
            return Err(OpenError::NoTrace { path, reason: format!("has more than {MAX_STREAMS} sources") });
        }
        let mut streams: Vec<CpuStream> = sources.into_iter().map(CpuStream::of_source).collect();
        streams.sort_by_key(CpuStream::cpu);
        if let Some((a, b)) = streams.iter().zip(streams.iter().skip(1)).find(|(a, b)| a.cpu() == b.cpu()) {
            return Err(OpenError::Twice { a: a.path().to_owned(), b: b.path().to_owned(), cpu: a.cpu() });
        }
        let info = TraceInfo {
            input: InputKind::Other(input),
            capabilities: InputCapabilities::events(ByKind::from_fn(|kind| kind.space().is_always_shown())),
            source: None,
            kernel: None,
            arch: None,
            endian: None,
            word_bytes: None,
            page_bytes: None,
            page_bytes_from: PageBytesFrom::Trace,
            addresses: Addresses::Raw,
            clock: clock.map(str::to_owned),
            since_boot: false,
            cpus: streams.iter().map(CpuStream::cpu).collect(),
            missing: Vec::new(),
            order: OrderKey::Time,
            scope: Scope::System,
            deferred: None,
            filter: None,
            host: None,
            boot: None,
            recording: None,
            run: Run::default(),
            symbols: None,
            text: None,
        };
        let keys = info.keys();
        streams.iter_mut().for_each(|stream| stream.set_keys(keys));
        let inputs = streams.iter().map(|stream| stream.path().to_owned()).collect();
        Ok(Trace {
            has_begun: false,
            inputs,
            origin: None,
            series: Vec::new(),
            info,
            streams,
            names: Names::new(),
            metadata: Metadata::default(),
            total_overruns: None,
        })
    }

    /// True where [`Trace::reopen`] can read the same events once more.
    pub fn is_readable_again(&self) -> bool {
        self.origin.is_some()
    }

    /// Opens the trace once more, with the options that it was opened with.
    ///
    /// # Errors
    /// A trace that is read once ([`Trace::is_readable_again`]), and what [`Trace::open`] fails with.
    pub fn reopen(&self) -> Result<Trace, OpenError> {
        if let Some(origin) = &self.origin {
            return Arc::clone(origin).open(&self.inputs);
        }
        let path = self.inputs.first().cloned().unwrap_or_default();
        let reason = "can be read once only: write it to a file, and name that file".to_owned();
        Err(OpenError::NoTrace { path, reason })
    }

    /// Finds out whether the trace has symbols: [`TraceInfo::symbols`].
    pub fn find_symbols(&mut self) {
        let may_have =
            matches!(self.first_input(), InputKind::Kmemtrace | InputKind::Tree) && self.metadata.report.is_some();
        let found = match has_addresses(&self.metadata.kallsyms) {
            true => SymbolSource::Trace,
            false if may_have => SymbolSource::Hidden,
            false => SymbolSource::Absent,
        };
        self.info.symbols = self.info.capabilities.call_sites.then_some(found);
    }

    /// True where the file of each CPU is there, with its first block: a recorder that has just started may still be writing them.
    /// Traces of other programs have no such block, and count as whole.
    pub fn has_all_files(&self) -> bool {
        self.info.input != InputKind::Kmemtrace || self.streams.iter().all(|stream| stream.recording().is_some())
    }

    /// True where the file of some CPU is there, with its first block, as for [`Trace::has_all_files`].
    pub fn has_any_file(&self) -> bool {
        self.info.input != InputKind::Kmemtrace || self.streams.iter().any(|stream| stream.recording().is_some())
    }

    /// Marks the streams as being read; false if they were before. Streams are read once.
    pub fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// Records that a relay channel dropped because it was full: `total_overruns`, which counts all CPUs together.
    /// `None` where no counter is in the trace. In our own recordings the number is complete once the streams have ended.
    pub fn total_overruns(&self) -> Option<u64> {
        if self.total_overruns.is_some() || self.info.source != Some(Source::Relay) {
            return self.total_overruns;
        }
        let counted = self.streams.iter().filter_map(|s| s.report().counters).map(|c| c.kernel_lost());
        counted.reduce(u64::saturating_add)
    }

    /// Records that a relay channel dropped and that are not among the `missing` sequence numbers: a gap on every CPU, from the
    /// first event to the last. 0 until the streams have ended, and where there is no relay channel.
    pub fn dropped_beyond(&self, missing: u64) -> u64 {
        self.total_overruns().unwrap_or(0).saturating_sub(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_frees_are_seen_where_the_probes_were_on() {
        const LINE: &str = "f:kmemtrace_k/kvfree_rcu kvfree_call_rcu ptr call_site=$stack0:x64";
        let bulk = "f:kmemtrace_k/free_bulk kmem_cache_free_bulk s size";
        let of = |kernel, probes: Option<&str>, is_described| Deferred::of_recording(kernel, probes, is_described);
        for (kernel, probes, is_described, want) in [
            (Some("7.3.4"), Some(format!("0\n{LINE}\n")), true, Some(Deferred::From(0))),
            (Some("7.3.4"), Some(format!("700\n{bulk}\n{LINE}")), true, Some(Deferred::From(700))),
            (None, Some(format!("0\n{LINE}\n")), false, Some(Deferred::From(0))),
            // The kernel has refused the event, the text is damaged, or it is not there.
            (Some("7.3.4"), Some(format!("0\n{bulk}\n")), false, Some(Deferred::Unseen)),
            (Some("7.3.4"), Some(LINE.to_owned()), false, Some(Deferred::Unseen)),
            (Some("7.3.4"), Some(format!("-1\n{LINE}")), true, Some(Deferred::From(u64::MAX))),
            (Some("7.3.4"), Some(String::new()), true, Some(Deferred::Unseen)),
            (Some("7.3.4"), None, true, Some(Deferred::From(u64::MAX))),
            (Some("5.7.0-rc1"), None, false, Some(Deferred::Unseen)),
            (Some("5.6.19"), None, false, None),
            (Some("x"), None, false, None),
            (None, None, false, None),
        ] {
            assert_eq!(of(kernel, probes.as_deref(), is_described), want, "{kernel:?} {probes:?}");
        }
        for (deferred, first, want) in [
            (Deferred::From(0), Some(0), "seen"),
            (Deferred::From(700), Some(700), "seen"),
            (Deferred::From(700), Some(699), "partly"),
            (Deferred::From(u64::MAX), Some(1), "partly"),
            (Deferred::From(700), None, "seen"),
            (Deferred::Unseen, Some(1), "unseen"),
        ] {
            assert_eq!(deferred.name(first), want, "{deferred:?} {first:?}");
        }
    }
}
