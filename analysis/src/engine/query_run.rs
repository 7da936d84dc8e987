//! Runs a query: finds the index, the window and the filters, runs the analysis, and makes an [`Analysis`] of its result.

use std::cell::Cell;
use std::collections::HashMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kmemtrace_abi::clock::{Agreement, OrderKey, Unit};
use kmemtrace_abi::disk::block::End;
use kmemtrace_abi::disk::end_block;
use kmemtrace_abi::event::{ByKind, Kind, Space};
use kmemtrace_abi::memory::OverLimit;
use kmemtrace_abi::open::regular;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::trace::{Addresses, Scope, SymbolSource, Trace, TraceInfo};

use crate::account::cgroups::Cgroups;
use crate::account::group_reader::GroupFacts;
use crate::account::grouping::{GroupKey, Grouping, ModuleRule};
use crate::account::machine::MachineTexts;
use crate::account::module_loads::ModuleLoads;
use crate::account::over_time::OverTimeRequest;
use crate::analysis::{Analysis, CacheFacts, compares};
use crate::cache::{AnalysisRequest, Index, Settings};
use crate::engine::config::{Parallelism, RunConfig};
use crate::engine::index_or_pass::AnalysisRun;
use crate::engine::init_sites::{self, InitFacts};
use crate::engine::read_in_order;
use crate::error::AnalysisError;
use crate::memory::budget::Budget;
use crate::names::aliases::CacheAliases;
use crate::names::allocinfo::AllocinfoChange;
use crate::names::caches::CacheNames;
use crate::names::error::NamesError;
use crate::names::kallsyms::Symbolizer;
use crate::names::known::KnownNames;
use crate::names::options::NameOptions;
use crate::names::resolver::Places;
use crate::names::slabinfo::Slabinfo;
use crate::names::symbol_files::{self, SymbolFile, joined};
use crate::pairing::learn::LearnedName;
use crate::pairing::pairs::PairingOptions;
use crate::pairing::result::PairingResult;
use crate::progress::{Progress, Silent};
use crate::query::Query;
use crate::query::filter::{EventFilter, Selected};
use crate::query::select::Select;
use crate::query::time::TimeWindow;
use crate::query::window::AskedWindow;

/// Memory of a row of groups or of growth while it is sorted by its values, in rows of a call-site.
const GROUP_ROW: usize = 4;

/// Facts of the trace, with the kinds that have rows.
fn info_with(trace: &Trace, symbols: Option<SymbolSource>, paired: &PairingResult) -> TraceInfo {
    let mut capabilities = trace.info.capabilities;
    capabilities.kinds.iter_mut().for_each(|(kind, has)| *has |= paired.has[kind]);
    TraceInfo { symbols, capabilities, ..trace.info.clone() }
}

impl Query {
    /// Reads the trace and answers. The streams of `trace` are at their ends afterwards, and its names belong to the analysis.
    ///
    /// # Errors
    /// [`AnalysisError::Memory`] beyond [`Query::max_memory`], and the other variants of [`AnalysisError`]. Damage and loss are no
    /// errors: they are in [`Analysis::completeness`].
    pub fn run(&self, trace: &mut Trace) -> Result<Analysis, AnalysisError> {
        self.run_with(trace, &mut Silent)
    }

    /// [`Query::run`] with progress.
    ///
    /// # Errors
    /// As for [`Query::run`].
    pub fn run_with(&self, trace: &mut Trace, progress: &mut dyn Progress) -> Result<Analysis, AnalysisError> {
        if self.splits_stacks && self.grouping == Grouping::SITE && trace.may_have_stacks() {
            let query = Query { grouping: Grouping::SITE_AND_STACK, splits_stacks: false, ..self.clone() };
            return query.run_with(trace, progress);
        }
        if self.leaks.is_some() && !self.select.is_all() {
            // Rows are chosen once they are known to be steady.
            let (grouping, chosen) = (self.grouping.with(&self.select.keys()), self.select.clone());
            let query = Query { grouping, chosen, select: Select::default(), ..self.clone() };
            return query.run_with(trace, progress);
        }
        match self.until_peak(trace, progress)? {
            Some(query) => query.run_with(trace, progress),
            None => self.run_once(trace, progress),
        }
    }

    /// The query up to the peak, which a pass of its own finds; `None` for a query of another moment. The trace is opened anew.
    fn until_peak(&self, trace: &mut Trace, progress: &mut dyn Progress) -> Result<Option<Query>, AnalysisError> {
        if !self.at_peak {
            return Ok(None);
        }
        if !trace.info.capabilities.past || !trace.is_readable_again() {
            return Err(AnalysisError::PeakUnknown);
        }
        let plain = Query { at_peak: false, ..self.clone() };
        let finding = Query {
            grouping: Grouping::KIND,
            lists_live: false,
            leaks: None,
            marks_reclaim: false,
            over_time: OverTimeRequest::default(),
            uses_index: false,
            ..plain.clone()
        };
        let found = finding.run_with(trace, progress)?.paired;
        let space = match &self.select.kind[..] {
            [] if found.has[Kind::Pages] && !self.slab_peak => Space::Pages,
            [first, rest @ ..] if rest.iter().all(|kind| kind.space() == first.space()) => first.space(),
            _ => Space::Slab,
        };
        let peak_at = found.peak_at[space];
        *trace = trace.reopen()?;
        let window = peak_at.map(TimeWindow::until);
        Ok(Some(Query { window: window.or(plain.window), ..plain }))
    }

    fn run_once(&self, trace: &mut Trace, progress: &mut dyn Progress) -> Result<Analysis, AnalysisError> {
        begin(trace)?;
        let budget = Budget::new(self.max_memory);
        let index = if self.may_be_indexed() { self.find_index(trace, budget) } else { None };
        if self.grouping == Grouping::SITE_AND_STACK && index.as_ref().is_some_and(Index::knows_of_no_stacks) {
            return Query { grouping: Grouping::SITE, ..self.clone() }.answer(trace, (index, budget), progress);
        }
        self.answer(trace, (index, budget), progress)
    }

    /// Runs over a trace whose index was looked for.
    fn answer(
        &self,
        trace: &mut Trace,
        (index, budget): (Option<Index>, Budget),
        progress: &mut dyn Progress,
    ) -> Result<Analysis, AnalysisError> {
        let machine = self.keeps_memory.then(|| MachineTexts::of(&trace.metadata));
        let (mut names, own_threads) = self.take_names(trace, progress)?;
        // A pass that opens the trace anew has no names from files.
        let symbols = trace.info.symbols;
        let first_key = Cell::new(0);
        let window = self.window_on(trace, index.as_ref(), &first_key, progress)?;
        // The index of symbols counts towards the memory limit, so it is made before the pass. Rows of kinds have no names.
        if self.grouping != Grouping::KIND || !self.select.branch.is_empty() || self.names.has_files() {
            names.symbolizer();
            names.find_sources(trace)?;
        }
        self.find_init_sites(trace, &names, window, progress)?;
        let names = Arc::new(names);
        let is_whole = self.select.is_all() && window.is_none();
        let request = self.request(index.as_ref().filter(|_| is_whole), own_threads.is_some());
        let is_answered = is_whole && index.as_ref().is_some_and(|index| !index.misses(request));
        let caches = self.cache_names(trace, is_answered, progress)?;
        let aliases = CacheAliases::parse(&trace.metadata.cache_aliases);
        let select = self.select.with_aliases(aliases.as_ref());
        let cgroups = self.cgroups(trace, progress)?;
        let selected = Selected::new(&select, &names, &caches, cgroups.as_ref());
        let filter = EventFilter::new(selected, own_threads.as_deref(), self.shows_own).only_failed(self.only_failed);
        let (gfp_names, parallelism) = (trace.metadata.gfp_names.clone(), self.parallelism());
        let (loads, by_area) = (self.module_loads(trace, progress)?, self.place_nodes(trace, &names, progress)?);
        let config = RunConfig {
            rules: self.pairing_options(trace, request),
            grouping: request.grouping,
            facts: GroupFacts {
                comms: &names.comms,
                symbols: request.grouping.keys().any(GroupKey::is_of_call_site).then(|| names.symbolizer()),
                places: &names.places,
                caches: &caches,
                names: Some(&names),
                gfp_names: gfp_names.as_deref(),
                module_rule: self.module_rule,
                loads: loads.as_ref(),
                cgroups: cgroups.as_ref(),
                marks_reclaim: self.marks_reclaim,
            },
            over_time: self.over_time(by_area.is_some()),
            counts_births: self.leaks.is_some(),
            places: by_area.map(|by_area| (Arc::clone(&names), by_area)),
            parallelism,
            budget,
            notes: self.notes.clone(),
        };
        let pass = AnalysisRun { trace, index, config, request, progress };
        let (order, mut paired, mut completeness) = pass.run(&filter, window)?;
        completeness.set_unpaired(paired.counts.all_inferred, paired.counts.all_without_alloc);
        self.check_sorted(budget, &paired, order.events)?;
        self.name_rows(&names, &mut paired)?;
        let info = info_with(trace, symbols, &paired);
        let static_sizes = if self.has_static { names.places.static_sizes()? } else { None };
        let trace_names = std::mem::take(&mut trace.names);
        let names = Arc::into_inner(names).ok_or(AnalysisError::Thread)?;
        Ok(Analysis {
            info,
            completeness,
            order,
            paired,
            names: KnownNames { trace_names, ..names },
            own_threads,
            first_key: first_key.get(),
            grouping: self.grouping,
            inputs: trace.inputs.clone(),
            budget,
            window: window.map(|window| window.resolve(first_key.get())),
            given: self.given.clone(),
            gfp_names,
            static_sizes,
            kinds: self.select.kind.clone(),
            module_rule: self.module_rule,
            memfree_change: self.memfree_change(trace),
            caches: CacheFacts { aliases, ..self.cache_facts(trace) },
            machine,
            is_whole,
            allocinfo: self.allocinfo(trace).filter(|_| is_whole),
            chosen: self.chosen.clone(),
            leaks: self.leaks.clone().unwrap_or_default(),
            threads_end: trace.metadata.threads_end.take(),
            records_frees: ByKind::from_fn(|kind| trace.records_frees(kind)),
        })
    }

    /// Hands the names that a pass found to the symbols, and finds the places of rows: the head of documents tells the origin of all names.
    fn name_rows(&self, names: &KnownNames, paired: &mut PairingResult) -> Result<(), AnalysisError> {
        let init_sites = std::mem::take(&mut paired.init_sites);
        if !init_sites.is_empty() {
            names.symbols().set_init_sites(init_sites);
        }
        if self.grouping.has(GroupKey::Site) { names.find_places(paired) } else { Ok(()) }
    }

    /// Refuses rows that need more memory than is left while they are sorted.
    fn check_sorted(&self, budget: Budget, paired: &PairingResult, events: u64) -> Result<(), AnalysisError> {
        let sorted = paired.rows.len() + paired.findings.len() + paired.counts.matrix.len();
        let sorted = sorted + GROUP_ROW * paired.counts.free_sites.len();
        let rows_of_groups = if self.may_be_indexed() { 0 } else { paired.rows.len() };
        budget.check_sorted(sorted + GROUP_ROW * rows_of_groups, events)
    }

    /// Rules of the pairing on this trace.
    pub(crate) fn pairing_options(&self, trace: &Trace, request: AnalysisRequest) -> PairingOptions {
        let is_hashed = trace.info.addresses == Addresses::Hashed;
        PairingOptions {
            kfree_takes_all: trace.info.kernel.as_deref().is_none_or(kfree_takes_all),
            cpus: Vec::new(),
            nodes: every_node(trace),
            // A hash may stand for two addresses, so that no finding counts on it.
            agreement: if is_hashed { Agreement::Nothing } else { trace.info.keys().agreement },
            is_hashed,
            by_site: [Grouping::SITE, Grouping::SITE_AND_STACK].contains(&request.grouping),
            counts_old_frees: request.grouping == Grouping::CACHE,
            learns_caches: self.learns_caches,
            is_partial: trace.info.scope == Scope::Tasks,
            matrix: request.matrix,
            compares: ByKind::from_fn(|kind| compares(&self.select.kind, kind)),
            lists_live: request.lists_live || self.leaks.is_some(),
            tells_frames: trace.info.capabilities.frames,
            counts_free_sites: self.free_sites,
            page_bytes: trace.info.page_bytes,
        }
    }

    /// Facts of caches but for their other names.
    fn cache_facts(&self, trace: &Trace) -> CacheFacts {
        let texts = || [&trace.metadata.slabinfo_start, &trace.metadata.slabinfo_end];
        CacheFacts {
            slabinfo: (self.grouping == Grouping::CACHE).then(|| texts().map(|text| Slabinfo::parse(text))),
            aliases: None,
            are_whole: self.window.is_none() && self.select.takes_whole_caches(),
            asked: self.select.cache.clone(),
        }
    }

    /// Change of the bytes of functions by allocinfo, where the rows are functions.
    fn allocinfo(&self, trace: &Trace) -> Option<AllocinfoChange> {
        let is_of_functions = self.grouping == Grouping::of(&[GroupKey::Function]);
        let [start, end] = [&trace.metadata.memory_start, &trace.metadata.memory_end].map(|texts| &texts.allocinfo);
        is_of_functions.then(|| AllocinfoChange::between(start, end)).flatten()
    }

    /// Bytes by which free memory grew over the recording; `None` for a part of it, in time or by filters.
    fn memfree_change(&self, trace: &Trace) -> Option<i64> {
        let [start, end] = [&trace.metadata.meminfo_start, &trace.metadata.meminfo_end].map(|text| memfree(text));
        let change = i128::from(end?) - i128::from(start?);
        i64::try_from(change).ok().filter(|_| self.window.is_none() && self.select.is_all())
    }

    /// True where an index may answer the query, or keep its result.
    fn may_be_indexed(&self) -> bool {
        let known = [Grouping::KIND, Grouping::SITE, Grouping::SITE_AND_STACK, Grouping::CACHE];
        let is_known = match self.leaks {
            Some(_) => self.grouping == Grouping::LEAKS && !self.names.uses.is_other(),
            None => known.contains(&self.grouping),
        };
        is_known
            && (self.leaks.is_some() || !self.marks_reclaim)
            && !self.over_time.is_asked()
            && !self.learns_caches
            && !self.free_sites
            && !self.names.frames.is_other()
            // Page call-sites and modules that load go by the symbols.
            && !self.names.has_symbol_files()
    }

    /// Names of caches that allocations do not carry. A pass of its own learns those that only frees name, unless an index answers.
    pub(super) fn cache_names(
        &self,
        trace: &Trace,
        is_answered: bool,
        progress: &mut dyn Progress,
    ) -> Result<CacheNames, AnalysisError> {
        let names = CacheNames::of(&trace.metadata, trace.info.page_bytes);
        let is_selected = !self.select.cache.is_empty() || self.select.reclaimable.is_some();
        let is_asked = self.grouping.has(GroupKey::Cache) || is_selected || self.leaks.is_some() || self.tells_owners;
        if !is_asked || is_answered || !trace.frees_alone_name_caches() {
            return Ok(names);
        }
        let learning = Query {
            grouping: Grouping::KIND,
            leaks: None,
            marks_reclaim: false,
            tells_owners: false,
            learns_caches: true,
            // Objects of the recorder come from the same caches.
            shows_own: true,
            over_time: OverTimeRequest::default(),
            free_sites: false,
            matrix: false,
            lists_live: false,
            only_failed: false,
            keeps_memory: false,
            select: Select::default(),
            ..self.clone()
        };
        let learned = learning.run_with(&mut trace.reopen()?, progress)?;
        let name = |name: &LearnedName| match name {
            LearnedName::One(cache) => learned.names.numbered((*cache).into()).map(Into::into),
            LearnedName::Several => None,
        };
        let named = learned.paired.learned.iter().filter_map(|(place, cache)| Some((*place, name(cache)?)));
        Ok(names.with_learned(named.collect()))
    }

    /// Loads of modules, by a pass of its own, where rows are made of modules of stacks and the trace tells of loads.
    fn module_loads(&self, trace: &Trace, progress: &mut dyn Progress) -> Result<Option<ModuleLoads>, AnalysisError> {
        let is_asked = self.grouping.has(GroupKey::Module) && self.module_rule != ModuleRule::Site;
        if !is_asked || !trace.may_have_stacks() || !trace.tells_module_loads() {
            return Ok(None);
        }
        Ok(Some(read_in_order::module_loads(&mut trace.reopen()?, progress)))
    }

    /// Cgroups of threads, by a pass of its own, where rows or filters need them and the trace tells them.
    pub(crate) fn cgroups(&self, trace: &Trace, progress: &mut dyn Progress) -> Result<Option<Cgroups>, AnalysisError> {
        let is_asked = self.grouping.has(GroupKey::Cgroup) || !self.select.cgroup.is_empty() || self.tells_owners;
        if !is_asked || !trace.tells_tasks() && trace.metadata.cgroups.is_empty() {
            return Ok(None);
        }
        Ok(Some(read_in_order::cgroups(&mut trace.reopen()?, &trace.metadata.cgroups, progress)))
    }

    /// Figures over time; a trace whose places are not known has no nodes of places.
    pub(crate) fn over_time(&self, has_places: bool) -> OverTimeRequest {
        let nodes = self.over_time.nodes.filter(|_| self.place_nodes.is_none() || has_places);
        OverTimeRequest { nodes, ..self.over_time }
    }

    /// True for a tree of areas, false for one of folders, where peaks of its nodes are counted. Debug information is checked by all
    /// call-sites, and read for all of them at once: a pass of its own, or the index, tells them before.
    fn place_nodes(
        &self,
        trace: &Trace,
        names: &KnownNames,
        progress: &mut dyn Progress,
    ) -> Result<Option<bool>, AnalysisError> {
        let is_asked = self.over_time.nodes.is_some() && trace.info.capabilities.past;
        let Some(by_area) = self.place_nodes.filter(|_| is_asked) else { return Ok(None) };
        if names.places.has_debug_information() {
            // Only a filter by folders needs the sources of call-sites here.
            let sources = if self.select.branch.is_empty() { NameOptions::default() } else { self.names.clone() };
            let over_time = OverTimeRequest::default();
            let finding = Query { over_time, window: None, has_static: false, names: sources, ..self.clone() };
            names.find_places(&finding.run_with(&mut trace.reopen()?, progress)?.paired)?;
        }
        Ok(Some(by_area))
    }

    /// Takes symbols and modules from the files that the query names; without such files the trace keeps its own. A pass over the trace does
    /// so, too: this is for callers that look at [`Trace::metadata`] before. A file that takes more memory than the limit leaves is left out,
    /// which [`Analysis::names_report`] and [`crate::Observed::names`] tell of a pass.
    ///
    /// # Errors
    /// [`AnalysisError::Names`] for a file that cannot be used, and for one that names too few of the trace's call-sites where these are all
    /// that it can be checked by.
    pub fn load_symbols(&self, trace: &mut Trace, progress: &mut dyn Progress) -> Result<(), AnalysisError> {
        self.load_named(trace, progress).map(drop)
    }

    /// Does what [`Query::load_symbols`] does. Returns the files that are left out because they take too much memory.
    fn load_named(
        &self,
        trace: &mut Trace,
        progress: &mut dyn Progress,
    ) -> Result<Vec<(PathBuf, OverLimit)>, AnalysisError> {
        let mut left_out = Vec::new();
        if trace.info.symbols.is_none() {
            trace.find_symbols();
        }
        let NameOptions { kallsyms, proc_modules, .. } = &self.names;
        if let Some(path) = kallsyms.as_ref().or(proc_modules.as_ref()).filter(|_| trace.info.symbols.is_none()) {
            let why = match trace.info.capabilities.past {
                true => "not for this text, which names its functions itself",
                false => "not for a text of page_owner, which names its functions itself",
            };
            return Err(NamesError::unusable(path, why).into());
        }
        if trace.info.symbols == Some(SymbolSource::File) {
            return Ok(left_out);
        }
        if let Some(path) = proc_modules {
            match symbol_files::read_modules(path) {
                Ok(text) => trace.metadata.modules = joined(text, &trace.metadata.modules),
                Err(error) => left_out.push((path.clone(), error.into_over_limit()?)),
            }
        }
        if let Some(path) = kallsyms {
            match named_symbols(path, trace, progress) {
                Ok(text) => {
                    // Modules that were gone when the file was copied are in the trace alone.
                    trace.metadata.kallsyms = joined(text, &trace.metadata.kallsyms);
                    trace.info.symbols = Some(SymbolSource::File);
                }
                Err(AnalysisError::Names(error)) => left_out.push((path.clone(), error.into_over_limit()?)),
                Err(error) => return Err(error),
            }
        }
        Ok(left_out)
    }

    /// Symbols as a pass with this query has them, for callers that name call-sites while it runs. Where the trace tells of loads of
    /// modules, a pass of its own finds the call-sites in their initialisation.
    ///
    /// # Errors
    /// As for [`Query::load_symbols`], and if the trace cannot be opened again.
    pub fn symbols(&self, trace: &mut Trace, progress: &mut dyn Progress) -> Result<Symbolizer, AnalysisError> {
        self.load_symbols(trace, progress)?;
        let symbols = Symbolizer::new(trace.metadata.kallsyms.clone(), &trace.metadata.modules);
        let first = Cell::new(0);
        let window = self.window_on(trace, None, &first, progress)?;
        if trace.tells_module_loads() && !trace.inputs.is_empty() {
            keep_init_sites(trace, &symbols, window, progress)?;
        }
        Ok(symbols)
    }

    /// Moves the names out of the trace, those of files included, and the recorder's threads if events tell theirs.
    pub(crate) fn take_names(
        &self,
        trace: &mut Trace,
        progress: &mut dyn Progress,
    ) -> Result<(KnownNames, Option<Vec<i32>>), AnalysisError> {
        let left_out = self.load_named(trace, progress)?;
        let (mut names, own_threads) = KnownNames::take(trace, &self.names);
        names.places.lists_left_out = left_out;
        Ok((names, own_threads))
    }

    /// Finds the call-sites in the initialisation of modules, by a pass of its own, where filters or the keys of rows need them before
    /// the events are read. Elsewhere they are looked for afterwards, if any module was loaded.
    pub(super) fn find_init_sites(
        &self,
        trace: &Trace,
        names: &KnownNames,
        window: Option<AskedWindow<'_>>,
        progress: &mut dyn Progress,
    ) -> Result<(), AnalysisError> {
        let has_nodes = self.place_nodes.is_some() && self.over_time.nodes.is_some();
        let is_asked = !self.select.module.is_empty() || self.grouping.has(GroupKey::Module) || has_nodes;
        if !is_asked || !trace.tells_module_loads() || trace.inputs.is_empty() {
            return Ok(());
        }
        keep_init_sites(trace, names.symbols(), window, progress)
    }

    pub(super) fn find_index(&self, trace: &Trace, budget: Budget) -> Option<Index> {
        let settings = Settings { from: self.index_from, is_wanted: self.uses_index, notes: self.notes.clone() };
        Index::of(trace, settings, budget)
    }

    /// Refuses a window with units of time for a trace whose keys are no times.
    ///
    /// # Errors
    /// [`AnalysisError::NoSeconds`].
    pub fn check_window(&self, trace: &Trace) -> Result<(), AnalysisError> {
        let has_units = self.window.is_some_and(|window| window.has_units);
        if !has_units || trace.info.keys().unit == Unit::Nanoseconds {
            return Ok(());
        }
        Err(AnalysisError::NoSeconds { clock: trace.info.clock.as_deref().unwrap_or("none").to_owned() })
    }

    /// The window, with what resolves it on this trace.
    pub(super) fn window_on<'a>(
        &self,
        trace: &Trace,
        index: Option<&Index>,
        first: &'a Cell<u64>,
        progress: &mut dyn Progress,
    ) -> Result<Option<AskedWindow<'a>>, AnalysisError> {
        self.check_window(trace)?;
        let Some(window) = self.window else { return Ok(None) };
        let keys = trace.info.keys();
        let last = if window.needs_last() { last_key(trace, index, progress)? } else { u64::MAX };
        Ok(Some(AskedWindow { window, units: keys.per_second(), last, first }))
    }

    /// The request of this query; `index`: the index of a whole trace, whose later readers gain by a little more.
    fn request(&self, index: Option<&Index>, knows_own: bool) -> AnalysisRequest {
        let request = AnalysisRequest {
            grouping: self.grouping,
            matrix: self.matrix,
            lists_live: self.lists_live,
            shows_own: self.shows_own && knows_own,
            births: self.leaks.is_some(),
        };
        if index.is_some_and(|index| index.misses(request)) { request.with_more() } else { request }
    }

    fn parallelism(&self) -> Parallelism {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok().map(NonZero::get)).unwrap_or(1);
        let mut size = Parallelism::of_threads(u32::try_from(threads).unwrap_or(u32::MAX));
        size.window = self.window_events.unwrap_or(size.window);
        size.sized_classes = self.sized_classes;
        size
    }
}

/// Finds the call-sites in the initialisation of modules, and keeps them with the symbols.
fn keep_init_sites(
    trace: &Trace,
    symbols: &Symbolizer,
    window: Option<AskedWindow<'_>>,
    progress: &mut dyn Progress,
) -> Result<(), AnalysisError> {
    let Some(facts) = InitFacts::of(trace, symbols) else { return Ok(()) };
    let bounds = |first| window.map_or((0, u64::MAX), |window| window.resolve(first));
    symbols.set_init_sites(init_sites::find(trace, facts, bounds, progress)?);
    Ok(())
}

/// Bytes of MemFree in the text of `/proc/meminfo`.
fn memfree(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Refuses a trace whose events were handed out before: its streams are at their ends.
pub(crate) fn begin(trace: &mut Trace) -> Result<(), AnalysisError> {
    if trace.begin() { Ok(()) } else { Err(AnalysisError::AlreadyRead) }
}

/// Key of the last event: from the end blocks of finished files, or the index, else by a pass of its own over the trace.
fn last_key(trace: &Trace, index: Option<&Index>, progress: &mut dyn Progress) -> Result<u64, AnalysisError> {
    if !trace.is_readable_again() {
        return Err(AnalysisError::EndUnknown);
    }
    // A clock that may go back has its last time not always at the end.
    if trace.info.order == OrderKey::Time && trace.info.clock.as_deref().is_some_and(|clock| clock != "local") {
        let ends = trace.streams.iter().map(|stream| end_block::of(&regular::open(stream.path()).ok()?).ok()?);
        if let Some(ends) = ends.collect::<Option<Vec<End>>>() {
            return Ok(ends.iter().filter(|end| end.events.get() > 0).map(|end| end.last.get()).max().unwrap_or(0));
        }
    }
    if let Some(last) = index.and_then(Index::last_key) {
        return Ok(last);
    }
    Ok(read_in_order::last_key(&mut trace.reopen()?, progress))
}

/// True where `kfree` frees objects of any cache: from Linux 6.4 on (`Documentation/core-api/memory-allocation.rst`).
fn kfree_takes_all(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= (6, 4),
        _ => true,
    }
}

/// Symbols of a file that was named, checked against the trace.
fn named_symbols(path: &Path, trace: &Trace, progress: &mut dyn Progress) -> Result<Vec<u8>, AnalysisError> {
    let of_trace = &trace.metadata.kallsyms;
    let image_begin = trace.metadata.image_begin.as_ref().map(|(symbol, address)| (&**symbol, *address));
    let text = match SymbolFile::read(path, of_trace, image_begin)? {
        SymbolFile::Placed(text) => text,
        SymbolFile::Unproven(text) => {
            let sites = read_in_order::call_sites(&mut trace.reopen()?, progress).into_iter();
            symbol_files::check_unproven(path, &text, &trace.metadata.modules, sites)?;
            text
        }
    };
    symbol_files::check_memory(path, text.len().saturating_add(of_trace.len()))?;
    Ok(text)
}

/// The node of each CPU, if the trace has that of all.
fn every_node(trace: &Trace) -> Option<HashMap<u32, u32>> {
    let nodes = &trace.metadata.nodes;
    (!nodes.is_empty() && trace.info.cpus.iter().all(|cpu| nodes.contains_key(cpu))).then(|| nodes.clone())
}

impl KnownNames {
    /// Moves the names out of the trace, and the recorder's threads if events tell theirs.
    pub(crate) fn take(trace: &mut Trace, options: &NameOptions) -> (KnownNames, Option<Vec<i32>>) {
        let names = KnownNames {
            kallsyms: std::mem::take(&mut trace.metadata.kallsyms).into(),
            modules: std::mem::take(&mut trace.metadata.modules),
            comms: std::mem::take(&mut trace.metadata.comms),
            trace_names: kmemtrace_abi::event::Names::default(),
            symbolizer: OnceLock::new(),
            has_named: OnceLock::new(),
            places: Places::new(options, &trace.metadata),
        };
        // A relay channel's events do not tell their threads.
        (names, trace.metadata.own_threads.take().filter(|_| trace.info.source != Some(Source::Relay)))
    }

    /// Finds the sources of names beside the trace.
    pub(crate) fn find_sources(&mut self, trace: &Trace) -> Result<(), AnalysisError> {
        self.symbolizer();
        let KnownNames { places, symbolizer, .. } = self;
        symbolizer.get().map_or(Ok(()), |symbols| Ok(places.find_sources(trace, symbols)?))
    }

    /// Finds the places of all call-sites of rows and findings.
    fn find_places(&self, paired: &PairingResult) -> Result<(), AnalysisError> {
        // Rows without an allocation are in no document: a part of the trace may have them, and another not.
        let rows = paired.rows.iter().filter(|(_, stats)| !stats.is_empty());
        let of_findings = paired.findings.keys().flat_map(|key| [key.alloc_site, key.free_site]).flatten();
        let sites: Vec<u64> = rows.map(|(key, _)| key.site).chain(of_findings).collect();
        Ok(self.places.prepare(&sites, self.symbolizer())?)
    }
}
