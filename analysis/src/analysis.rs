//! Answer to a query: rows, findings, live objects, totals, and the completeness of the trace.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use kmemtrace_abi::event::{ByKind, Kind, Space};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::kernel::unknown::UnknownEvents;
use kmemtrace_abi::trace::TraceInfo;

use crate::account::classes::Class;
use crate::account::completeness::Completeness;
use crate::account::completeness::MergeStats;
use crate::account::grouping::{GroupKey, Grouping, ModuleRule, RowKey};
use crate::account::live_curve::LiveCurve;
use crate::account::machine::MachineTexts;
use crate::account::stats::Stats;
use crate::error::AnalysisError;
use crate::memory::budget::Budget;
use crate::names::aliases::CacheAliases;
use crate::names::allocinfo::AllocinfoChange;
use crate::names::caches::candidates;
use crate::names::kallsyms::Symbolizer;
use crate::names::known::KnownNames;
use crate::names::place::{NamesReport, Place, StaticByFile};
use crate::names::slabinfo::Slabinfo;
use crate::order::pair_event::NO_PID;
use crate::pairing::findings::Finding;
use crate::pairing::result::{Live, PairingResult};
use crate::query::select::Select;
use kmemtrace_abi::text::glob::Glob;

/// Answer to a [`crate::Query`]: rows, findings, live objects and totals.
///
/// ```no_run
/// use kmemtrace::{Kind, Query, Trace};
///
/// let analysis = Query::by_kind().run(&mut Trace::open(&["kmemtrace.data".into()])?)?;
/// println!("{} bytes still live, peak {:?}", analysis.total().live_allocated, analysis.total().peak_live_allocated);
/// println!("{} pages allocations", analysis.kind(Kind::Pages).allocs);
/// for finding in analysis.findings() {
///     println!("{} {} times, {} of them may be due to loss", finding.class.name(), finding.count, finding.suspect);
/// }
/// if analysis.completeness().verdict_name() != "complete" {
///     println!("events are missing: figures are estimates");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Analysis {
    pub(crate) info: TraceInfo,
    pub(crate) completeness: Completeness,
    pub(crate) order: MergeStats,
    pub(crate) paired: PairingResult,
    pub(crate) names: KnownNames,
    pub(crate) own_threads: Option<Vec<i32>>,
    pub(crate) first_key: u64,
    pub(crate) grouping: Grouping,
    pub(crate) budget: Budget,
    /// Paths of the trace's files.
    pub(crate) inputs: Vec<PathBuf>,
    /// Order keys from and to, both included, where the query has a window.
    pub(crate) window: Option<(u64, u64)>,
    /// Texts of the filters as the user gave them, by option.
    pub(crate) given: Vec<(&'static str, Vec<String>)>,
    /// Names of allocation flags, where the trace has the kernel's.
    pub(crate) gfp_names: Option<Arc<GfpNames>>,
    /// Static bytes by source file, where the query wants them and they are known.
    pub(crate) static_sizes: Option<StaticByFile>,
    /// Kinds that the filters take; none for all.
    pub(crate) kinds: Vec<Kind>,
    /// Rule by which rows of modules take an allocation.
    pub(crate) module_rule: ModuleRule,
    /// Bytes by which free memory grew over the recording.
    pub(crate) memfree_change: Option<i64>,
    /// Facts of caches beside the events.
    pub(crate) caches: CacheFacts,
    /// Texts of the machine's memory, where the query keeps them: those of the whole recording.
    pub(crate) machine: Option<MachineTexts>,
    /// The query has neither filters nor a window.
    pub(crate) is_whole: bool,
    /// Change of the bytes of functions by allocinfo, where the rows are functions and all objects of each.
    pub(crate) allocinfo: Option<AllocinfoChange>,
    /// Rows of leaks are chosen by this.
    pub(crate) chosen: Select,
    /// Keys of rows of leaks; none for threads and call-sites.
    pub(crate) leaks: Vec<GroupKey>,
    /// Ids of the threads that lived at the end, ascending.
    pub(crate) threads_end: Option<Vec<i32>>,
    /// Kinds whose frees the recorder was asked for.
    pub(crate) records_frees: ByKind<bool>,
}

/// Facts of caches beside the events.
#[derive(Debug, Default)]
pub(crate) struct CacheFacts {
    /// Statistics of the slab allocator at start and end, where the rows are caches.
    pub(crate) slabinfo: Option<[Slabinfo; 2]>,
    /// Other names of merged caches, where the recording keeps them.
    pub(crate) aliases: Option<CacheAliases>,
    /// The query has all objects of the caches that it takes.
    pub(crate) are_whole: bool,
    /// Caches that the filters take; none for all.
    pub(crate) asked: Vec<Glob>,
}

/// True for a kind that is compared, where filters name these `asked` ones.
pub(crate) fn compares(asked: &[Kind], kind: Kind) -> bool {
    kind.space().is_always_shown() || asked.contains(&kind)
}

/// Row of an analysis: the sums of one call-site or one cache, and one kind.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Return address of the allocating call; `None` in rows of caches and kinds.
    pub call_site: Option<u64>,
    /// Name of the cache in the allocation events; `None` in other rows, and where events name none.
    pub cache: Option<&'a [u8]>,
    /// Kind of the objects.
    pub kind: Kind,
    /// Sums over the objects of the row.
    pub stats: &'a Stats,
    /// Whether the kernel takes the objects back by itself, for a query [`crate::Query::with_reclaim`] that knows their cache.
    pub reclaimable: Option<bool>,
}

/// Row of findings: one class between the same two call-sites.
#[derive(Clone, Copy, Debug)]
pub struct FindingEntry {
    /// Class of the finding.
    pub class: Finding,
    /// Call-site of the allocation, where rows are call-sites.
    pub alloc_site: Option<u64>,
    /// Call-site of the free.
    pub free_site: Option<u64>,
    /// Kind of the object.
    pub kind: Kind,
    /// Number of findings.
    pub count: u64,
    /// Number of findings that a gap may explain.
    pub suspect: u64,
    /// Number of findings, not suspect, that frees and allocations on paths without events may explain.
    pub unseen: u64,
}

impl FindingEntry {
    /// Number of findings that nothing known explains.
    pub fn errors(&self) -> u64 {
        if self.class.is_error() { self.count - self.suspect - self.unseen } else { 0 }
    }
}

/// An object that is live at the end of the trace.
#[derive(Clone, Copy, Debug)]
pub struct LiveObject {
    /// Address; a frame number for pages.
    pub address: u64,
    /// Call-site of its allocation, where rows are call-sites.
    pub call_site: Option<u64>,
    /// Kind of the object.
    pub kind: Kind,
    /// Bytes requested.
    pub requested: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// CPU of the allocation.
    pub cpu: u32,
    /// Thread id of the allocation; `None` if the trace does not give it.
    pub pid: Option<i32>,
    /// Order key of the allocation: a time in the clock's unit, or a sequence number.
    pub at: u64,
}

impl Analysis {
    /// Verdict, loss and damage over all files.
    pub fn completeness(&self) -> &Completeness {
        &self.completeness
    }

    /// Origin of the trace: kernel, clock, CPUs, byte order.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Events of all streams that may concern objects and are not known, by name; none where an index has answered the query.
    pub fn unknown_events(&self) -> &UnknownEvents {
        &self.completeness.unknown
    }

    /// Folders and files of the call-sites, ascending: those that a filter may name.
    pub fn source_paths(&self) -> BTreeSet<Box<[u8]>> {
        let mut paths = self.names.places.paths();
        paths.extend(self.static_sizes.iter().flat_map(|sizes| sizes.keys()).flatten().cloned());
        paths
    }

    /// True where static sizes are known, which [`crate::Query::with_static_sizes`] reads.
    pub fn has_static_sizes(&self) -> bool {
        self.static_sizes.is_some()
    }

    /// Origin of the names of call-sites: files, checks, and files that failed them.
    pub fn names_report(&self) -> NamesReport {
        self.names.report()
    }

    /// Names for call-sites.
    pub fn symbolizer(&self) -> &Symbolizer {
        self.names.symbolizer()
    }

    /// Place of a call-site in the kernel's sources.
    pub fn place(&self, call_site: u64) -> Arc<Place> {
        self.names.places.place(call_site, self.symbolizer())
    }

    /// Call stacks that rows are made of, each from its call-site on, the innermost frame first.
    pub fn stacks(&self) -> impl Iterator<Item = &[u64]> {
        self.paired.stacks.all()
    }

    /// Finds the places of many return addresses at once, which reads each unit of debug information once.
    ///
    /// # Errors
    /// [`AnalysisError::Names`] for a file that was named and does not fit the addresses.
    pub fn find_places(&self, addresses: &[u64]) -> Result<(), AnalysisError> {
        Ok(self.names.places.prepare(addresses, self.symbolizer())?)
    }

    /// Names of the trace's events, then of the caches that they name, taken by filters or not.
    pub fn names(&self) -> &kmemtrace_abi::event::Names {
        &self.names.trace_names
    }

    /// Number of events in the window; filters do not change it.
    pub fn events(&self) -> u64 {
        self.order.events
    }

    /// Number of allocations in the window, whether the filters take them or not.
    pub fn allocations(&self) -> u64 {
        self.selected_allocations().saturating_add(self.paired.counts.unselected_allocs)
    }

    /// Number of allocations that the filters take.
    pub fn selected_allocations(&self) -> u64 {
        self.paired.kinds.values().fold(0u64, |sum, stats| sum.saturating_add(stats.allocs))
    }

    /// Order key of the trace's first event, if the query had a window; else 0.
    pub fn first_key(&self) -> u64 {
        self.first_key
    }

    /// Rows with at least one allocation, in no order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let by_kind = self.grouping == Grouping::KIND;
        let kinds = self.paired.kinds.iter().filter(move |_| by_kind);
        let kinds = kinds.map(|(kind, stats)| Row { call_site: None, cache: None, kind, stats, reclaimable: None });
        // A pass or an index may have call-sites where only kinds were asked for.
        let rows = self.paired.rows.iter().enumerate().filter(move |_| !by_kind);
        let rows = rows.map(|(index, (key, stats))| self.row(index, *key, stats));
        kinds.chain(rows).filter(|row| !row.stats.is_empty())
    }

    fn row<'a>(&'a self, index: usize, key: RowKey, stats: &'a Stats) -> Row<'a> {
        let cache = || self.names.numbered(key.others).filter(|name| candidates(name).is_none());
        Row {
            call_site: self.grouping.has(GroupKey::Site).then_some(key.site),
            cache: if self.grouping == Grouping::CACHE { cache() } else { None },
            kind: key.kind,
            stats,
            reclaimable: self.paired.reclaim(index).is_reclaimable(),
        }
    }

    /// Sums of one kind; the peak is that of the kind.
    pub fn kind(&self, kind: Kind) -> &Stats {
        &self.paired.kinds[kind]
    }

    /// Sums of one space.
    pub(crate) fn of_space(&self, space: Space) -> &Stats {
        if space == Space::Slab { &self.paired.total } else { &self.paired.kinds[space.kind()] }
    }

    /// Sums of `kmalloc` and `cache` together; pages are not counted, because caches consist of them.
    pub fn total(&self) -> &Stats {
        &self.paired.total
    }

    /// Space of documents that have one: the first of those whose kinds the filters name, else the first that has allocations.
    pub fn shown_space(&self) -> Space {
        let is_shown = |space: &Space| match self.kinds.is_empty() {
            true => self.of_space(*space).allocs > 0 || !self.of_space(*space).told.is_empty(),
            false => self.kinds.iter().any(|kind| kind.space() == *space),
        };
        Space::ALL.into_iter().find(is_shown).unwrap_or(Space::Slab)
    }

    /// True for a kind that pairs, findings and the matrix of CPUs are counted of: others are if the filters name them.
    pub(crate) fn compares(&self, kind: Kind) -> bool {
        compares(&self.kinds, kind)
    }

    /// Live bytes of each kind over time, where the query asked for them.
    pub fn live_curve(&self) -> Option<&LiveCurve> {
        self.paired.curve.as_ref()
    }

    /// Findings of slab objects and pages, and of other kinds that the filters name, in no order.
    pub fn findings(&self) -> impl Iterator<Item = FindingEntry> {
        let compared = self.paired.findings.iter().filter(|(key, _)| self.compares(key.kind));
        compared.map(|(key, row)| FindingEntry {
            class: key.class,
            alloc_site: key.alloc_site.filter(|_| self.grouping == Grouping::SITE),
            free_site: key.free_site,
            kind: key.kind,
            count: row.count,
            suspect: row.suspect,
            unseen: row.unseen,
        })
    }

    /// Objects that are live at the end, oldest first; none unless the query asked for them.
    pub fn live_objects(&self) -> impl Iterator<Item = LiveObject> {
        self.paired.live.iter().map(|object| self.live_object(&object))
    }

    fn live_object(&self, object: &Live) -> LiveObject {
        let class: &Class = self.paired.class(object);
        let call_site = self.paired.rows.get(class.row as usize).map(|(key, _)| key.site);
        LiveObject {
            address: object.address,
            call_site: call_site.filter(|_| self.grouping.has(GroupKey::Site)),
            kind: class.kind,
            requested: class.requested,
            allocated: class.allocated,
            cpu: object.cpu,
            pid: Some(object.alloc_info.pid).filter(|&pid| pid != NO_PID).map(u32::cast_signed),
            at: object.alloc_info.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use kmemtrace_abi::event::Kind;
    use kmemtrace_abi::trace::Trace;
    use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
    use kmemtrace_tests::recording::Directory;

    use crate::documents::{self, Body};
    use crate::{AnalysisError, Query, Shape as RowShape};

    fn recorded() -> Directory {
        let dir = Directory::new(&trace_dir(&workload(5, &Options::plain(Shape::plain(), 2, 200)), 5));
        // Files that were written a moment ago have no index.
        thread::sleep(Duration::from_millis(60));
        dir
    }

    fn open(dir: &Directory) -> Trace {
        Trace::open(&[dir.path().to_owned()]).unwrap()
    }

    #[test]
    fn rows_are_those_of_the_query_with_and_without_an_index() {
        let dir = recorded();
        for round in ["without", "with"] {
            let analysis = Query::by_kind().index(0).run(&mut open(&dir)).unwrap();
            assert!(analysis.rows().count() <= Kind::ALL.len(), "{round}");
            assert!(analysis.rows().all(|row| row.call_site.is_none() && row.cache.is_none()), "{round}");
            assert!(analysis.findings().all(|finding| finding.alloc_site.is_none()), "{round}");
            let document = documents::sites(&analysis, &RowShape::default());
            let Body::Sites(sites) = &document.body else { panic!("not sites") };
            assert_eq!(sites.rows.len(), 0, "an analysis by kind has no call-sites");
        }
    }

    #[test]
    fn a_trace_is_read_once() {
        let dir = recorded();
        let mut trace = open(&dir);
        assert!(Query::by_site().run(&mut trace).unwrap().events() > 0);
        assert!(matches!(Query::by_site().run(&mut trace), Err(AnalysisError::AlreadyRead)));
    }
}
