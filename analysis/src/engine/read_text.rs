//! Figures of a text of one moment: each entry counts as it stands. All of it is live, nothing is paired.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Event, EventSink, Gap, Names, Space};
use kmemtrace_abi::listed::{Listed, RowExtras};
use kmemtrace_abi::trace::Trace;

use crate::account::classes::{Classes, MAX_CLASSES, NodesOfRows};
use crate::account::completeness::MergeStats;
use crate::account::group_reader::{EventNumbers, GroupReader, OwnerValues};
use crate::account::grouping::{GroupKey, RowKey, Through};
use crate::account::over_time::{OverTime, OverTimeFigures};
use crate::account::row_extras::JoinedExtras;
use crate::account::row_paths::{Nodes, SharedPaths};
use crate::account::stats::Stats;
use crate::account::text_sites::{TextSite, TextSites, with_site};
use crate::engine::config::RunConfig;
use crate::engine::read_in_order::bytes_to_read;
use crate::error::{AnalysisError, LESS_OF_THE_TRACE};
use crate::order::pair_event::NO_PID;
use crate::pairing::result::{ListedObjects, ListedThread, LiveList, PairingResult};
use crate::progress::Progress;
use crate::query::filter::EventFilter;

/// Entries that are read at once.
const AT_ONCE: usize = 4096;

/// Adds up all entries of `trace` that `filter` takes, within the bounds that `bounds` gives for its first key.
pub(crate) fn run(
    trace: &mut Trace,
    config: &RunConfig<'_>,
    filter: &EventFilter<'_>,
    bounds: impl FnOnce(u64) -> (u64, u64),
    progress: &mut dyn Progress,
) -> Result<(MergeStats, PairingResult), AnalysisError> {
    let paths = config.over_time.nodes.map(SharedPaths::new);
    // The list of live objects has no sizes beside those of their classes.
    let classes = Classes::new(trace.names.clone(), MAX_CLASSES);
    let classes = match &paths {
        Some(paths) => classes.with_nodes(NodesOfRows {
            grouping: config.grouping,
            rule: config.facts.module_rule,
            places: None,
            paths: paths.clone(),
        }),
        None => classes,
    };
    let mut names = trace.names.clone();
    let mut reader = TextReader::new(config, filter.clone(), &classes, trace.info.page_bytes);
    reader.paths.clone_from(&paths);
    let mut bounds = Some(bounds);
    reader.bounds_of = Some(Box::new(move |first| bounds.take().map_or((0, u64::MAX), |bounds| bounds(first))));
    progress.begin();
    let to_read = bytes_to_read(&trace.streams);
    let owners = names.owners.len();
    let mut is_over = false;
    for stream in &mut trace.streams {
        while !is_over && stream.decode(&mut names, &mut reader, AT_ONCE) {
            is_over = config.budget.is_exceeded();
            // Sums of alike entries have an owner each, which nobody looks at any more.
            names.owners.forget_pushed(owners);
            if progress.is_due() {
                progress.show(stream.bytes_read(), to_read, Some(reader.order.events));
            }
        }
    }
    progress.clear();
    if is_over {
        return Err(config.budget.exceeded("entries of the text", reader.order.events, LESS_OF_THE_TRACE));
    }
    let TextReader { order, rows, extras, live, mut paired, over_time, .. } = reader;
    let OverTimeFigures { growth, curve, node_peaks } =
        over_time.map(|over_time| over_time.finish(order.last)).unwrap_or_default();
    if config.rules.lists_live {
        classes.from(0, |class| paired.classes.push(*class));
        paired.live = LiveList::Listed(live);
    }
    let numbers = classes.into_numbers();
    if numbers.exhausted {
        return Err(AnalysisError::TooMany { limit: MAX_CLASSES });
    }
    for (RowKey { kind, .. }, stats) in &rows {
        paired.kinds[*kind].add(stats);
        if kind.space() == Space::Slab {
            paired.total.add(stats);
        }
    }
    let with_key = |(row, extras): (usize, JoinedExtras)| Some((rows.get(row)?.0, extras));
    paired.extras = extras.into_iter().filter(|(_, extras)| !extras.is_empty()).filter_map(with_key).collect();
    paired.rows = rows;
    paired.nodes = paths.map(|paths| paths.take()).map(|(nodes, paths)| Nodes { nodes, paths, peaks: node_peaks });
    trace.names = numbers.names;
    let paired = PairingResult { lists: numbers.lists, stacks: numbers.stacks, growth, curve, ..paired };
    Ok((order, paired))
}

/// Bounds for the first key.
type BoundsOf<'a> = Box<dyn FnMut(u64) -> (u64, u64) + 'a>;

/// Consumer of a text's entries.
struct TextReader<'r, 'a, 'f> {
    config: &'r RunConfig<'f>,
    filter: EventFilter<'a>,
    classes: &'r Classes,
    sites: TextSites<'r>,
    groups: GroupReader<'r>,
    by_site: bool,
    page_bytes: Option<u64>,
    paths: Option<SharedPaths>,
    /// `None` once the bounds are known.
    bounds_of: Option<BoundsOf<'a>>,
    bounds: (u64, u64),
    order: MergeStats,
    over_time: Option<Box<OverTime>>,
    /// Figures of each row, by the row's number.
    rows: Vec<(RowKey, Stats)>,
    /// Members beside the figures, of the rows that have some.
    extras: HashMap<usize, JoinedExtras, RandomState>,
    /// Live objects, where the query asks for them.
    live: ListedObjects,
    paired: PairingResult,
}

impl<'r, 'a, 'f: 'r> TextReader<'r, 'a, 'f> {
    fn new(
        config: &'r RunConfig<'f>,
        filter: EventFilter<'a>,
        classes: &'r Classes,
        page_bytes: Option<u64>,
    ) -> TextReader<'r, 'a, 'f> {
        let groups = GroupReader::new(config.grouping, config.facts, classes);
        TextReader {
            config,
            filter,
            classes,
            sites: TextSites::new(groups.facts(), classes),
            groups,
            by_site: config.grouping.has(GroupKey::Site),
            page_bytes,
            paths: None,
            bounds_of: None,
            bounds: (0, u64::MAX),
            order: MergeStats::default(),
            over_time: None,
            rows: Vec::new(),
            extras: HashMap::default(),
            live: ListedObjects::default(),
            paired: PairingResult::default(),
        }
    }

    /// Notes the first key of all.
    fn begin(&mut self, first: u64) {
        if let Some(mut bounds_of) = self.bounds_of.take() {
            self.bounds = bounds_of(first);
            let begin = self.bounds.0.max(first);
            self.over_time = OverTime::new(self.config.over_time, begin, self.paths.clone());
        }
    }

    /// The row of an event that the filters take, and the number of its class: only lists of objects have classes.
    fn row(&mut self, event: &Event, found: &TextSite, names: &Names) -> Option<(u32, usize)> {
        let kind = event.kind()?;
        let cache = event.cache.map_or(0, |name| self.classes.cache(names.get(name)));
        let others = if self.groups.has_keys() {
            let owner = event.owner(names).map(|owner| OwnerValues::new(owner, self.classes));
            self.groups.others(event, kind, EventNumbers { cache, stack: found.stack, passed: found.passed, owner })
        } else {
            0
        };
        let (site, through) = if self.by_site { (event.call_site, found.through) } else { (0, Through::Nothing) };
        let from = self.groups.cache_from(kind, cache, (event.call_site, event.allocated));
        let key = RowKey { site, others, kind, through };
        let (class, row) = if self.config.rules.lists_live {
            // Rows tell the call site of their objects where it is one of their keys, and nobody asks for it where it is none.
            let class = self.classes.class(key, site, (cache, from), (event.requested, event.allocated));
            (class, self.classes.row_of(class)? as usize)
        } else {
            (0, self.classes.row(key) as usize)
        };
        if row >= self.rows.len() {
            self.rows.resize(row + 1, (key, Stats::default()));
        }
        if let Some(from) = from {
            let best = self.paired.caches_from.entry(key).or_insert(from);
            *best = from.min(*best);
        }
        Some((class, row))
    }

    fn take(&mut self, event: Event, listed: &Listed, names: &Names) {
        let found = self.sites.read(&event, listed, names);
        let event = with_site(event, &found);
        self.paired.has[found.kind] = true;
        if !self.filter.takes(&event, names) {
            self.paired.counts.unselected_allocs += listed.entries;
            return;
        }
        let Some((class, row)) = self.row(&event, &found, names) else { return };
        let is_pages = found.kind.space() == Space::Pages;
        let size = self.page_bytes.filter(|_| is_pages);
        let largest = size.zip(event.order).map(|(size, order)| size.checked_shl(order.into()).unwrap_or(u64::MAX));
        self.rows[row].1.add(&Stats { oldest: Some(event.at), ..Stats::of_text(&listed.amounts, largest) });
        if listed.extras != RowExtras::Nothing {
            self.extras.entry(row).or_default().add(&listed.extras, listed.amounts.objects);
        }
        if let Some(over_time) = &mut self.over_time {
            over_time.change_live(event.at, (row as u32, found.kind), listed.amounts.allocated.unwrap_or(0), true);
        }
        if self.config.rules.lists_live {
            let comm = event.owner(names).and_then(|owner| owner.comm.as_deref());
            let comm = comm.map_or(0, |comm| self.classes.cache(comm));
            let thread = ListedThread { pid: event.pid.map_or(NO_PID, i32::cast_unsigned), comm };
            self.live.push((event.address, event.at), class, thread);
        }
    }
}

impl EventSink for TextReader<'_, '_, '_> {
    const FLAGS: bool = false;
    const MARKS: bool = false;

    fn event(&mut self, event: Event, names: &Names) {
        self.begin(event.at);
        let listed = event.owner(names).and_then(|owner| owner.listed.as_deref());
        let Some(listed) = listed.filter(|_| (self.bounds.0..=self.bounds.1).contains(&event.at)) else { return };
        self.order.events += listed.entries;
        self.order.first = self.order.first.or(Some(event.at));
        self.order.last = self.order.last.max(Some(listed.newest.max(event.at)));
        self.take(event, listed, names);
    }

    fn gap(&mut self, _: Gap) {}
}
