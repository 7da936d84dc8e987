//! Documents: from an [`Analysis`] to a value that serialises, one file a view. No I/O, no terminal.
//!
//! A [`Document`] is a head, which is the same for all views, and a [`Body`] with the structs of one view. Serialised it is the JSON
//! that `kmemtrace-report` prints. A renderer reads the structs; one that prints all views alike, as CSV, takes their members from
//! [`row::RowSource::each_row`].
//!
//! ```no_run
//! use kmemtrace::documents::{self, Body};
//! use kmemtrace::{Figure, Query, Shape, SortKey, Trace};
//!
//! let mut trace = Trace::open(&["kmemtrace.data".into()])?;
//! let analysis = Query::by_site().run(&mut trace)?;
//! let document = documents::sites(&analysis, &Shape { sort: vec![SortKey::Figure(Figure::Wasted)], top: Some(10) });
//! if let Body::Sites(sites) = &document.body {
//!     for row in sites.rows.iter() {
//!         println!("{} {}", row.site.call_site, row.stats.wasted.unwrap_or(0));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod account;
pub mod balance;
pub mod caches;
pub mod compare;
pub mod cross;
pub mod document;
pub(crate) mod events;
pub mod failed;
pub mod group;
pub mod growth;
pub mod head;
pub mod holders;
pub(crate) mod key_tree;
pub mod latency;
pub mod leaks;
pub mod live;
pub mod live_groups;
pub mod mismatch;
pub mod names_of_texts;
pub mod naming;
pub mod ranked;
pub mod row;
pub mod saved;
pub(crate) mod series;
pub mod shown;
pub mod sites;
pub mod slab_members;
pub mod stack_frame;
pub mod stacks;
#[cfg(feature = "dwarf")]
pub mod static_sizes;
pub mod summary;
pub mod sums;
pub mod text_members;
pub mod tree;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::account::grouping::{GroupKey, Grouping, RowKey};
use crate::account::stats;
use crate::analysis::Analysis;
use crate::error::AnalysisError;
use crate::pairing::findings::Finding;
use crate::pairing::result::PairingResult;
pub use account::AccountStyle;
pub use cross::CpuMatrix;
pub use document::{Body, Document};
use group::GroupNaming;
use head::CompletenessMembers;
pub use head::Head;
use holders::HoldersBody;
use naming::Naming;
pub use ranked::{Shape, SortKey};
use summary::Summary;
use sums::{Ordering, Saturation};
use text_members::TextNaming;
use tree::{Counted, Leaf, TreeBody};
pub use tree::{PlacedBy, TreeOptions};

/// Call-sites in each list of `summary`.
const TOP_SITES: usize = 5;

/// The rows of an analysis whose query was grouped otherwise: none.
static NO_ROWS: LazyLock<PairingResult> = LazyLock::new(PairingResult::default);

/// Pairs of an analysis, if its rows are those that the view shows.
fn grouped(analysis: &Analysis, by: Grouping) -> &PairingResult {
    if analysis.grouping == by { &analysis.paired } else { &NO_ROWS }
}

/// `summary`: totals per kind, pairs and findings; with lists of the top call-sites where rows are call-sites.
pub fn summary<'a>(analysis: &'a Analysis, _: &Shape) -> Document<'a> {
    of("summary", analysis, |sums| {
        let mut summary = summary::summary(analysis, sums);
        if analysis.grouping == Grouping::SITE {
            let rows = analysis.paired.rows.iter().map(|(key, stats)| (*key, stats));
            add_tops(&mut summary, analysis, rows, &|_, stats| stats.live_allocated);
        }
        Body::Summary(Box::new(summary))
    })
}

/// [`summary()`] with the leaks of the same trace: `found` is the answer to a [`crate::Query::leaks`], and may be the `analysis` itself
/// where no filters choose among the objects. Memory that the kernel takes back by itself ranks after the rest.
pub fn summary_with_leaks<'a>(analysis: &'a Analysis, found: &'a Analysis, shape: &Shape) -> Document<'a> {
    let mut document = summary(analysis, shape);
    let Body::Leaks(leaks) = self::leaks(found, &Shape::default(), leaks::LeakOptions::default()).body else {
        return document;
    };
    if let Body::Summary(summary) = &mut document.body {
        let mut sites: BTreeMap<RowKey, stats::Stats> = BTreeMap::new();
        for (key, stats) in &analysis.paired.rows {
            sites.entry(RowKey { others: 0, ..*key }).or_default().add(stats);
        }
        let stays = |key: &RowKey, stats: &stats::Stats| {
            let stays = leaks.by_site.get(&(key.site, key.kind)).map_or(0, |[stays, _]| *stays);
            u128::from(stays).min(stats.live_allocated)
        };
        add_tops(summary, analysis, sites.iter().map(|(key, stats)| (*key, stats)), &stays);
        summary.leaks = Some(leaks);
    }
    document
}

/// Adds the lists of the top call-sites. `rows` are call-sites; live ones rank by the bytes that `live` gives, then by all of theirs.
fn add_tops<'a, 'r>(
    summary: &mut Summary<'a>,
    analysis: &'a Analysis,
    rows: impl Iterator<Item = (RowKey, &'r stats::Stats)> + Clone,
    live: &dyn Fn(&RowKey, &stats::Stats) -> u128,
) {
    let (naming, ordering) = ((Naming::of(analysis), TextNaming::of(analysis)), Ordering::of(&analysis.info));
    let top = |by: &dyn Fn(&RowKey, &stats::Stats) -> (u128, u128)| {
        Some(sites::top(rows.clone(), naming, by, TOP_SITES, ordering))
    };
    summary.top_sites = top(&|_, stats| (stats.wasted, 0));
    summary.top_live = top(&|key, stats| (live(key, stats), stats.live_allocated));
    summary.top_live_waste = top(&|_, stats| (stats.live_wasted, 0));
}

/// `sites`: a row per combination of the keys of the query, [`crate::Query::by_site`] or [`crate::Query::by`], and kind. An analysis
/// by kind has no rows here.
pub fn sites<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    if [Grouping::SITE, Grouping::KIND].contains(&analysis.grouping) {
        return of("sites", analysis, |sums| {
            let naming = (naming, TextNaming::of(analysis));
            Body::Sites(sites::sites(grouped(analysis, Grouping::SITE), naming, shape, sums))
        });
    }
    of("sites/2", analysis, |sums| Body::Groups(group::groups(GroupNaming::of(analysis), shape, sums)))
}

/// `caches`: a row per cache and kind. The query is [`crate::Query::by_cache`]; an analysis of another one has no rows here.
pub fn caches<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let (paired, text) = (grouped(analysis, Grouping::CACHE), TextNaming::of(analysis));
    of("caches/2", analysis, |sums| Body::Caches(Box::new(caches::caches(paired, analysis, text, shape, sums))))
}

/// `balance`: where free memory went over the recording. The query is [`crate::Query::by_part`]; an analysis of another one has no
/// texts of the machine's memory.
pub fn balance<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    of("balance", analysis, |sums| {
        let of_text = balance::of_text::balance(analysis, shape.top);
        Body::Balance(Box::new(of_text.unwrap_or_else(|| balance::balance(analysis, shape.top, sums.0))))
    })
}

/// `failed`: allocations that returned null. The query is [`crate::Query::by_failure`].
pub fn failed<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    of("failed", analysis, |_| Body::Failed(Box::new(failed::failed(analysis, shape.top))))
}

/// `mismatch`: findings, by class and the two sides of the pair; of these classes, or of all if none is named.
pub fn mismatch<'a>(analysis: &'a Analysis, shape: &Shape, classes: &[Finding]) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("mismatch", analysis, |_| {
        let (paired, compares) = (grouped(analysis, Grouping::SITE), |kind| analysis.compares(kind));
        Body::Mismatch(mismatch::mismatch(paired, naming, compares, shape.top, classes))
    })
}

/// `live`: objects that are live at the end, summed by the keys of the query. The query is one [`crate::Query::with_live_objects`]
/// and [`crate::Query::with_growth`].
pub fn live_groups<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = GroupNaming::of(analysis);
    let paired = if analysis.grouping == Grouping::KIND { &*NO_ROWS } else { &analysis.paired };
    of("live/2", analysis, |sums| {
        Body::LiveGroups(live_groups::live_groups(paired, naming, &analysis.order, shape, sums))
    })
}

/// `leaks`: live objects that are born evenly over the window, by thread and call-site, or by the keys of the query. The query is
/// [`crate::Query::leaks`]; another one has no rows here.
pub fn leaks<'a>(analysis: &'a Analysis, shape: &Shape, options: leaks::LeakOptions) -> Document<'a> {
    let mut document =
        of("leaks", analysis, |sums| Body::Leaks(Box::new(leaks::leaks(analysis, options, shape, sums))));
    document.head.query.by = match &analysis.leaks[..] {
        [] => vec![GroupKey::Task.name(), GroupKey::Site.name()],
        keys => keys.iter().map(|key| key.name()).collect(),
    };
    document
}

/// `growth`: live bytes and allocations over time, by the keys of the query. The query is one [`crate::Query::with_growth`].
pub fn growth<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = GroupNaming::of(analysis);
    of("growth", analysis, |sums| Body::Growth(Box::new(growth::growth(&analysis.paired, naming, shape.top, sums))))
}

/// `growth` of a series of texts of one moment, the oldest first, by the keys of the query.
/// `None` without a text.
pub fn growth_of_texts<'a>(texts: &[&'a Analysis], shape: &Shape) -> Option<Document<'a>> {
    let last = *texts.last()?;
    let saturation = Saturation::default();
    let body = Body::Growth(Box::new(series::series(texts, shape.top, &saturation)));
    let by = last.grouping.keys().map(GroupKey::name).collect();
    let head = Head::new("growth", last, by, saturation.has_occurred());
    let worst = texts.iter().max_by_key(|text| text.completeness.verdict).unwrap_or(&last);
    let completeness = CompletenessMembers::of(&worst.completeness, saturation.has_occurred());
    Some(Document { head: Head { completeness, ..head }, body })
}

/// `tree`: sums by folder, file, function and call-site of the kernel's sources, or by area. The query is [`crate::Query::by_site`];
/// nodes have peaks of their own where it is one [`crate::Query::with_place_nodes`], too. The tree has one space,
/// [`Analysis::shown_space`].
pub fn tree<'a>(analysis: &'a Analysis, shape: &Shape, options: &TreeOptions) -> Document<'a> {
    let (naming, space) = (Naming::of(analysis), analysis.shown_space());
    let mut document = of("tree", analysis, |sums| {
        let rows = (0..).zip(&grouped(analysis, Grouping::SITE).rows).zip(shown::rows(analysis));
        let is_shown = |key: &RowKey| key.kind.space() == space;
        let rows = rows.filter(|((_, (key, stats)), _)| is_shown(key) && !stats.is_empty());
        let nodes = analysis.paired.nodes.as_ref();
        let leaves = rows.map(|((row, (key, _)), grown)| Leaf {
            site: naming.placed(key.site),
            grown,
            nodes: nodes.map_or(&[][..], |nodes| nodes.paths.of(row)),
        });
        let counted = nodes.map(|nodes| Counted {
            peaks: &nodes.peaks,
            root: space as u32,
            page_bytes: analysis.info.page_bytes,
        });
        // Files belong to no module.
        let sizes = analysis.static_sizes.as_ref().filter(|_| options.by != tree::PlacedBy::Module);
        let files = (&analysis.names.places.options.areas, sizes);
        let tree = tree::tree(leaves, files, counted, options, shape, sums);
        Body::Tree(Box::new(TreeBody { shows: space.name(), ..tree }))
    });
    document.head.query.by = vec![options.by.key().name()];
    document
}

/// `tree` over the keys of the query, the first at the top, each node with a peak of its own. The query is one
/// [`crate::Query::with_nodes`] by keys among task, cgroup, module, use, site and stack. It has pages where they were recorded, else objects of
/// slabs; where the query selects kinds, those.
pub fn key_tree<'a>(analysis: &'a Analysis, shape: &Shape, options: &TreeOptions) -> Document<'a> {
    let mut document =
        of("tree", analysis, |sums| Body::Tree(Box::new(key_tree::key_tree(analysis, options, shape, sums))));
    document.head.query.by = analysis.grouping.keys().map(GroupKey::name).collect();
    document
}

/// `tasks`: a row per thread, or per command, of [`crate::Query::by`] one of them.
pub fn tasks<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    of("tasks", analysis, |sums| Body::Holders(Box::new(holders::holders(analysis, None, shape, sums))))
}

/// `modules`: a row per module, by the rule of the query, [`crate::Query::module_rule`]; with [`crate::ModuleRule::Any`] the query is one
/// [`crate::Query::with_nodes`].
pub fn modules<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let rule = Some(analysis.module_rule);
    of("modules", analysis, |sums| Body::Holders(Box::new(holders::holders(analysis, rule, shape, sums))))
}

/// `uses`: a row per use of pages, of [`crate::Query::by`] the use.
pub fn uses<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    of("uses", analysis, |sums| {
        let explained = Some(holders::explained(analysis, sums.0));
        Body::Holders(Box::new(HoldersBody { explained, ..holders::holders(analysis, None, shape, sums) }))
    })
}

/// `compare`: two analyses, of two traces or of two windows of one, side by side: rows of functions where the queries are
/// [`crate::Query::by_site`], of caches where they are [`crate::Query::by_cache`].
///
/// # Errors
/// [`AnalysisError::Memory`] where the rows of both need more than [`crate::Query::max_memory`] of the second one.
pub fn compare<'a>(before: &'a Analysis, after: &'a Analysis, shape: &Shape) -> Result<Document<'a>, AnalysisError> {
    compare::check_room(before, after)?;
    let saturation = Saturation::default();
    let body = compare::compare(before, after, shape.top, &saturation);
    let worse = if before.completeness.verdict > after.completeness.verdict { before } else { after };
    let head = Head::new("compare", after, compare::words(after), false);
    let completeness = CompletenessMembers::of(&worse.completeness, saturation.has_occurred());
    Ok(Document { head: Head { completeness, ..head }, body: Body::Compare(Box::new(body)) })
}

/// `live --objects`: objects that are live at the end, oldest first. The query is one [`crate::Query::with_live_objects`], and
/// [`crate::Query::with_stacks`] where they are to have their stacks.
pub fn live<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let has_objects = [Grouping::SITE, Grouping::SITE_AND_STACK].contains(&analysis.grouping);
    let paired = if has_objects { &analysis.paired } else { &*NO_ROWS };
    of("live", analysis, |sums| Body::Live(live::live(paired, analysis, shape.top, sums)))
}

/// `cross`: pairs freed on another CPU, per call-site and as a matrix. The query is one [`crate::Query::with_cpu_matrix`].
pub fn cross<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    let cpus = &analysis.info.cpus;
    of("cross", analysis, |sums| {
        let (paired, compares) = (grouped(analysis, Grouping::SITE), |kind| analysis.compares(kind));
        Body::Cross(cross::cross(paired, naming, compares, cpus, shape.top, sums))
    })
}

/// `account`: a row per caller, of one space, [`Analysis::shown_space`]. The query is [`crate::Query::by_site`], for [`AccountStyle::SlabAccount`] one [`crate::Query::with_free_sites`].
pub fn account<'a>(analysis: &'a Analysis, shape: &Shape, style: AccountStyle) -> Document<'a> {
    let naming = Naming::of(analysis);
    let (paired, space) = (grouped(analysis, Grouping::SITE), analysis.shown_space());
    let callers = account::Callers {
        rows: Box::new(paired.rows.iter().map(|(key, stats)| (key.site, key.kind, stats))),
        frees_made: style.counts_frees_made().then(|| Box::new(paired.counts.free_sites.iter(space)) as Box<_>),
        site: Box::new(move |call_site| naming.call_site(call_site)),
    };
    of("account", analysis, |sums| Body::Account(Box::new(account::account(callers, style, space, shape, sums))))
}

/// A view's body under its head; `view` has the number of its schema where that is not 1. Sums that do not fit 64 bits are known once the body is made.
fn of<'a>(view: &str, analysis: &'a Analysis, body: impl FnOnce((&Saturation, Ordering)) -> Body<'a>) -> Document<'a> {
    let saturation = Saturation::default();
    let body = body((&saturation, Ordering::of(&analysis.info)));
    let by = if body.has_groups() { analysis.grouping.keys().map(GroupKey::name).collect() } else { Vec::new() };
    Document { head: Head::new(view, analysis, by, saturation.has_occurred()), body }
}
