//! Head of a document: schema, completeness, origin and request, the same for all views.

use kmemtrace_abi::clock::{Clock, OrderKey};
use kmemtrace_abi::event::Kind;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::{Addresses, Deferred, InputKind, NO_SYMBOLS, SymbolSource, TextInfo, TraceInfo};
use serde::{Serialize, Serializer};

use crate::account::completeness::Completeness;
use crate::analysis::Analysis;
use crate::engine::observe::Observed;
use crate::names::place::{NameSource, NamesReport};

/// The members that every document opens with.
#[derive(Clone, Debug, Serialize)]
pub struct Head<'a> {
    /// Name and version of the document's form, as `kmemtrace.sites/1`.
    pub schema: String,
    /// Loss and damage.
    pub completeness: CompletenessMembers<'a>,
    /// Origin of the figures.
    pub trace: TraceMembers<'a>,
    /// Origin of the names of call-sites.
    pub names: NamesMembers,
    /// Request that the document answers.
    pub query: QueryMembers<'a>,
}

/// Origin of the names of call-sites.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NamesMembers {
    /// Names of the kernel itself.
    pub kernel: KernelNames,
    /// Modules of the call-sites, by what is known of them.
    pub modules: ModuleNames,
    /// Units of debug information that make no sense: their functions have no names from there.
    #[serde(skip_serializing_if = "is_none")]
    pub broken_units: u64,
    /// Files that failed a check.
    pub rejected: Vec<RejectedFile>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Names of the kernel itself.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelNames {
    /// Best source: `dwarf`, `objects`, `map` or `symbols`; `None` without any.
    pub from: Option<&'static str>,
    /// File of the names, where it is not the trace.
    pub file: Option<String>,
    /// Check that the file passed: `build-id` or `symbols`; `None` for a file that was not checked.
    pub checked: Option<&'static str>,
}

/// Numbers of modules, by what is known of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModuleNames {
    /// Modules with debug information.
    pub dwarf: usize,
    /// Modules whose path is known, and no more.
    pub path: usize,
    /// Modules of which the name is known, and no more.
    pub none: usize,
}

/// File that failed a check.
#[derive(Clone, Debug, Serialize)]
pub struct RejectedFile {
    /// Path of the file.
    pub file: String,
    /// Reason.
    pub why: String,
}

impl NamesMembers {
    fn of(analysis: &Analysis) -> NamesMembers {
        NamesMembers::of_report(analysis.names.report())
    }

    /// Origin of names by this report.
    pub(super) fn of_report(report: NamesReport) -> NamesMembers {
        let rejected = report.rejected.into_iter();
        NamesMembers {
            kernel: KernelNames {
                from: report.kernel.map(NameSource::name),
                file: report.file.map(|file| file.to_string_lossy().into_owned()),
                checked: report.checked,
            },
            broken_units: report.broken_units,
            modules: ModuleNames { dwarf: report.modules_dwarf, path: report.modules_path, none: report.modules_none },
            rejected: rejected
                .map(|(file, why)| RejectedFile { file: file.to_string_lossy().into_owned(), why })
                .collect(),
        }
    }
}

/// Request that a document answers.
#[derive(Clone, Debug, Serialize)]
pub struct QueryMembers<'a> {
    /// Texts of the filters as they were given, by option.
    pub filters: Filters<'a>,
    /// Order keys from and to, both included; `None`: all events.
    pub time: Option<(u64, u64)>,
    /// Words of the keys that make the rows.
    pub by: Vec<&'static str>,
}

/// Texts of filters, by option.
#[derive(Clone, Copy, Debug)]
pub struct Filters<'a>(pub &'a [(&'static str, Vec<String>)]);

impl Serialize for Filters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(option, values)| (option, values)))
    }
}

/// Loss and damage over all files.
#[derive(Clone, Debug, Serialize)]
pub struct CompletenessMembers<'a> {
    /// `complete`, `lossy`, `truncated` or `corrupt`.
    pub verdict: &'static str,
    /// Number of events lost; `None` if a file does not give it.
    pub lost_events: Option<u64>,
    /// Number of gaps.
    pub gaps: u64,
    /// Names of files that end early.
    pub truncated_files: &'a [String],
    /// CPUs whose file is missing.
    pub missing_cpus: &'a [u32],
    /// Inferred frees over the whole trace; `None` for an input that gives no frees.
    pub inferred_frees: Option<u64>,
    /// Frees without an allocation over the whole trace; `None` for an input that gives no frees.
    pub frees_without_alloc: Option<u64>,
    /// Lines and blocks that were left out, of a text of one moment.
    #[serde(flatten)]
    pub skipped: Option<Skipped>,
    /// True if a sum did not fit 64 bits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub saturated: bool,
}

/// Order keys of the first and the last event in the window; `None` for a text without times.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ToldKeys {
    /// Of the first event.
    pub first: Option<u64>,
    /// Of the last event.
    pub last: Option<u64>,
}

/// Lines and blocks of a text that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Lines that do not belong to the form.
    pub skipped_lines: u64,
    /// Blocks that lack what their count needs.
    pub skipped_blocks: u64,
}

/// Origin of the figures.
#[derive(Clone, Debug, Serialize)]
pub struct TraceMembers<'a> {
    /// Tool that wrote the trace.
    pub input: &'static str,
    /// Form of a text of one moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<&'static str>,
    /// Interface of the kernel: `tracefs` or `relay`.
    pub source: Option<&'static str>,
    /// Kernel release.
    pub kernel: Option<&'a str>,
    /// Machine name.
    pub arch: Option<&'a str>,
    /// Byte order: `little` or `big`.
    pub endian: Option<&'static str>,
    /// Bytes of a `long`.
    pub word_bytes: Option<u8>,
    /// Bytes of a page.
    pub page_bytes: Option<u64>,
    /// Source of that number: `trace`, `option`, `guess` or `machine`.
    pub page_bytes_from: Option<&'static str>,
    /// Form of the addresses of objects: `raw` or `hashed`; `None` where the input has none.
    pub addresses: Option<&'static str>,
    /// Name of the trace clock.
    pub clock: Option<&'a str>,
    /// Clock of the order keys; no member of documents.
    #[serde(skip)]
    pub keys: Clock,
    /// Number of CPUs; `None` where the input does not give it.
    pub cpus: Option<usize>,
    /// Meaning of order keys.
    #[serde(serialize_with = "order_word")]
    pub order: OrderKey,
    /// True for an input that lists what is live at one moment.
    pub one_moment: bool,
    /// Order key of the first event in the window; 0 for a text without times.
    #[serde(skip)]
    pub first: u64,
    /// Order key of the last event in the window; 0 for a text without times.
    #[serde(skip)]
    pub last: u64,
    /// Both as documents have them.
    #[serde(flatten)]
    pub told_keys: ToldKeys,
    /// Thread ids of the recorder, if the trace gives them.
    pub own_threads: Option<&'a [i32]>,
    /// Part of the system that was recorded: `system` or `tasks`.
    pub scope: Option<&'static str>,
    /// Deferred frees of a kernel that frees them in bulk: `seen`, `partly` or `unseen`; `None` where each has an event of its own, and
    /// where that is not known.
    pub deferred: Option<&'static str>,
    /// Order key from which deferred frees are seen, if that is known and comes between the first event and the last.
    #[serde(skip)]
    pub deferred_from: Option<u64>,
    /// Kernel filter on allocation events, if there was one.
    pub filtered: Option<&'a str>,
    /// Start of the recorder, UTC: `2026-11-26T08:00:30Z`.
    #[serde(serialize_with = "time_of_day")]
    pub begun: Option<u64>,
    /// End of the recorder, UTC.
    #[serde(serialize_with = "time_of_day")]
    pub ended: Option<u64>,
    /// Command line of the recorder, without COMMAND's arguments.
    pub command: Option<&'a [String]>,
    /// Name of the host, unless it was left out.
    pub host: Option<&'a str>,
    /// Id of the boot.
    pub boot: Option<&'a str>,
    /// Id of the recording, in hexadecimal digits.
    pub recording: Option<&'a str>,
    /// Source of the names of call-sites: `trace`, `file` or `none`; `None` where the input names functions itself.
    pub symbols: Option<&'static str>,
    /// Why the trace has no symbols, if it should have some; no member of documents.
    #[serde(skip)]
    pub lacks_symbols: Option<&'static str>,
    /// Documents have rows of `vmalloc`; no member of these.
    #[serde(skip)]
    pub shows_vmalloc: bool,
    /// Facts of a text of one moment, for headings.
    #[serde(skip)]
    pub text: Option<&'a TextInfo>,
    /// Loss before the first event, if the kernel began to record at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_boot: Option<SinceBoot>,
}

/// Loss of a recording that began at boot.
#[derive(Clone, Debug, Serialize)]
pub struct SinceBoot {
    /// Number of events lost before the first one; `None` if a file does not give it.
    pub lost_before_first: Option<u64>,
}

/// A time in seconds since 1970 as `2026-11-26T08:00:30Z`; `None` for one beyond the year 9999.
pub fn utc(seconds: u64) -> Option<String> {
    Some(jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?.to_string())
}

fn time_of_day<S: Serializer>(seconds: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    seconds.and_then(utc).serialize(serializer)
}

fn order_word<S: Serializer>(order: &OrderKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match order {
        OrderKey::Time => "time",
        OrderKey::Sequence => "sequence",
    })
}

impl TraceMembers<'_> {
    /// Clock of the order keys.
    pub fn keys(&self) -> Clock {
        self.keys
    }
}

impl<'a> CompletenessMembers<'a> {
    /// Loss and damage; `saturated`: a sum of the document did not fit 64 bits.
    pub fn of(completeness: &'a Completeness, saturated: bool) -> CompletenessMembers<'a> {
        CompletenessMembers {
            verdict: completeness.verdict_name(),
            lost_events: completeness.lost_events,
            gaps: completeness.gaps,
            truncated_files: &completeness.truncated_files,
            missing_cpus: &completeness.missing_cpus,
            inferred_frees: completeness.inferred_frees,
            frees_without_alloc: completeness.frees_without_alloc,
            skipped: completeness
                .skipped
                .map(|[lines, blocks]| Skipped { skipped_lines: lines, skipped_blocks: blocks }),
            saturated,
        }
    }
}

impl<'a> TraceMembers<'a> {
    /// Origin of an analysis.
    pub(super) fn of(analysis: &'a Analysis) -> TraceMembers<'a> {
        let Analysis { completeness, info, own_threads, order, .. } = analysis;
        let keys = order.first.zip(order.last);
        let members = TraceMembers::new(info, completeness.lost_before, own_threads.as_deref(), keys);
        let is_taken = analysis.kinds.is_empty() || analysis.kinds.contains(&Kind::Vmalloc);
        TraceMembers { shows_vmalloc: members.shows_vmalloc && is_taken, ..members }
    }

    /// Origin of what a pass of [`crate::Query::observe`] or [`crate::Query::objects`] handed over.
    pub fn of_observed(info: &'a TraceInfo, observed: &'a Observed) -> TraceMembers<'a> {
        let lost_before = observed.completeness.lost_before;
        TraceMembers::new(info, lost_before, observed.own_threads.as_deref(), observed.keys)
    }

    /// Origin of events that are still being read, the first of them at `first`.
    pub fn of_begun(info: &'a TraceInfo, first: u64) -> TraceMembers<'a> {
        TraceMembers::new(info, None, None, Some((first, first)))
    }

    /// Origin of events whose first and last key are `keys`.
    fn new(
        info: &'a TraceInfo,
        lost_before: Option<u64>,
        own_threads: Option<&'a [i32]>,
        keys: Option<(u64, u64)>,
    ) -> TraceMembers<'a> {
        let (first, last) = keys.unwrap_or_default();
        let has_keys = info.text.as_ref().is_none_or(|text| text.has_times);
        TraceMembers {
            input: info.input.name(),
            form: info.text.as_ref().map(|text| text.form),
            source: info.source.map(|source| match source {
                Source::Tracefs => "tracefs",
                Source::Relay => "relay",
            }),
            kernel: info.kernel.as_deref(),
            arch: info.arch.as_deref(),
            endian: info.endian.map(Endian::name),
            word_bytes: info.word_bytes,
            page_bytes: info.page_bytes,
            page_bytes_from: info.page_bytes.map(|_| info.page_bytes_from.name()),
            addresses: match info.addresses {
                _ if !info.capabilities.past => None,
                Addresses::Raw => Some("raw"),
                Addresses::Hashed => Some("hashed"),
            },
            clock: info.clock.as_deref().filter(|name| *name != Clock::UNNAMED_TICKS),
            keys: info.keys(),
            cpus: info.capabilities.places.then_some(info.cpus.len()),
            order: info.order,
            one_moment: !info.capabilities.past,
            first,
            last,
            told_keys: ToldKeys { first: has_keys.then_some(first), last: has_keys.then_some(last) },
            own_threads,
            scope: info.scope.name(),
            deferred: info.deferred.map(|deferred| deferred.name(keys.map(|(first, _)| first))),
            deferred_from: match info.deferred {
                Some(Deferred::From(from)) if from > first && from < last => Some(from),
                _ => None,
            },
            filtered: info.filter.as_deref(),
            begun: info.run.begun,
            ended: info.run.ended,
            command: info.run.command.as_deref(),
            host: info.host.as_deref(),
            boot: info.boot.as_deref(),
            recording: info.recording.as_deref(),
            symbols: info.symbols.map(SymbolSource::name),
            lacks_symbols: match info.symbols {
                Some(SymbolSource::Hidden) => Some(NO_SYMBOLS),
                // Of a recording without its meta.out kmemtrace-check tells.
                Some(SymbolSource::Absent) if info.input != InputKind::Kmemtrace => {
                    Some("no kernel symbols: the input has none")
                }
                _ => None,
            },
            shows_vmalloc: info.capabilities.kinds[Kind::Vmalloc],
            text: info.text.as_deref(),
            since_boot: info.since_boot.then_some(SinceBoot { lost_before_first: lost_before }),
        }
    }
}

impl<'a> Head<'a> {
    /// The head of a view, `view` with the number of its schema where that is not 1; `saturated`: a sum of the body did not fit
    /// 64 bits.
    pub(super) fn new(view: &str, analysis: &'a Analysis, by: Vec<&'static str>, saturated: bool) -> Head<'a> {
        Head {
            schema: if view.contains('/') { format!("kmemtrace.{view}") } else { format!("kmemtrace.{view}/1") },
            completeness: CompletenessMembers::of(&analysis.completeness, saturated),
            trace: TraceMembers::of(analysis),
            names: NamesMembers::of(analysis),
            query: QueryMembers { filters: Filters(&analysis.given), time: analysis.window, by },
        }
    }
}
