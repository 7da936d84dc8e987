//! `account`: a line per caller, in the forms of the programs that had such files first.

use std::cmp::Ordering as Order;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Space};
use serde::{Serialize, Serializer};

use super::naming::CallSite;
use super::ranked::{Shape, SortKey};
use super::row::{Name, RowSource, Rows, TakeRow, row};
use super::sums::{Ordering, Saturation, saturated};
use crate::account::figures::Figure;
use crate::account::stats::Stats;

/// Form of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AccountStyle {
    /// Account file of trace_analyze: objects by their allocating caller, and their frees.
    #[default]
    TraceAnalyze,
    /// File of slab_account: allocations and frees that a caller made.
    SlabAccount,
    /// Callers file of trace_analyze: live bytes, and the object file.
    Callers,
}

impl AccountStyle {
    /// Word of documents and options.
    pub fn name(self) -> &'static str {
        match self {
            AccountStyle::TraceAnalyze => "trace-analyze",
            AccountStyle::SlabAccount => "slab-account",
            AccountStyle::Callers => "callers",
        }
    }

    /// True where frees count for the caller that made them.
    pub fn counts_frees_made(self) -> bool {
        self == AccountStyle::SlabAccount
    }

    /// Sort key where none is given.
    fn own_sort(self) -> SortKey {
        if self == AccountStyle::SlabAccount {
            SortKey::Figure(Figure::Allocated)
        } else {
            SortKey::Figure(Figure::LiveAllocated)
        }
    }
}

impl Serialize for AccountStyle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

row! {
    /// Figures of a caller, or of all; `None` where the input does not tell them.
    pub struct AccountFigures {
        /// Number of allocations.
        pub allocs: Option<u64>,
        /// Number of objects that are gone, inferred frees included.
        pub frees: Option<u64>,
        /// Number of free events that the caller made; `None` where they are not counted, too.
        pub frees_made: Option<u64>,
        /// Bytes requested.
        pub requested: Option<u64>,
        /// Bytes allocated.
        pub allocated: Option<u64>,
        /// Bytes allocated and not requested.
        pub wasted: Option<u64>,
        /// Bytes requested for live objects.
        pub live_requested: Option<u64>,
        /// Bytes allocated for live objects.
        pub live_allocated: Option<u64>,
        /// Bytes wasted by live objects.
        pub live_wasted: Option<u64>,
    }
}

row! {
    /// Row of `account`.
    pub struct AccountRow<'a> {
        /// The caller.
        pub site: CallSite<'a>,
        /// Object file of the caller's source, as `fs/inode.o`; `None` where it is not known.
        pub object: Name<'a>,
        /// Sums of the caller.
        pub figures: AccountFigures,
    }
}

/// Body of `account`.
#[derive(Serialize)]
pub struct AccountBody<'a> {
    /// Form of the text.
    pub style: AccountStyle,
    /// Kinds of objects that are counted.
    pub kinds: Vec<&'static str>,
    /// Number of callers.
    pub callers: usize,
    /// Sums over all callers.
    pub total: AccountFigures,
    /// Callers, the largest first.
    pub rows: Rows<'a, AccountRow<'a>>,
}

impl RowSource for AccountBody<'_> {
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        self.rows.each_row(take)
    }
}

/// Call-sites, their objects and their frees, from an analysis or a saved document.
pub(super) struct Callers<'a> {
    /// Sums by call-site and kind.
    pub(super) rows: Box<dyn Iterator<Item = (u64, Kind, &'a Stats)> + 'a>,
    /// Frees by the call-site that made them, where the style counts them.
    pub(super) frees_made: Option<Box<dyn Iterator<Item = (u64, u64)> + 'a>>,
    /// Names of a call-site.
    pub(super) site: Box<dyn Fn(u64) -> CallSite<'a> + 'a>,
}

/// Caller with its sums over all kinds that are counted.
#[derive(Default)]
struct Caller {
    stats: Stats,
    frees_made: Option<u64>,
}

impl Caller {
    fn figures(&self, ordering: Ordering) -> AccountFigures {
        let of = |figure| ordering.figure(figure, &self.stats).map(saturated);
        AccountFigures {
            allocs: of(Figure::Allocs),
            frees: of(Figure::Frees).map(|_| self.frees()),
            frees_made: ordering.past(self.frees_made).flatten(),
            requested: of(Figure::Requested),
            allocated: of(Figure::Allocated),
            wasted: of(Figure::Wasted),
            live_requested: of(Figure::LiveRequested),
            live_allocated: of(Figure::LiveAllocated),
            live_wasted: of(Figure::LiveWasted),
        }
    }

    /// Number of objects that are gone.
    fn frees(&self) -> u64 {
        self.stats.frees.saturating_add(self.stats.inferred_frees)
    }

    fn figure(&self, key: SortKey, ordering: Ordering) -> u128 {
        match key {
            SortKey::Figure(Figure::Frees) => self.frees_made.unwrap_or_else(|| self.frees()).into(),
            key => key.of(&self.stats, ordering),
        }
    }
}

/// The body of `account`, of one space.
pub(super) fn account<'a>(
    callers: Callers<'a>,
    style: AccountStyle,
    space: Space,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> AccountBody<'a> {
    let Callers { rows, frees_made, site } = callers;
    let mut by_site: HashMap<u64, Caller, RandomState> = HashMap::default();
    for (call_site, _, stats) in rows.filter(|(_, kind, stats)| kind.space() == space && stats.allocs > 0) {
        by_site.entry(call_site).or_default().stats.add(stats);
    }
    for (call_site, frees) in frees_made.into_iter().flatten() {
        by_site.entry(call_site).or_default().frees_made = Some(frees);
    }
    // Names decide ties, and each name is made once.
    let named = |(call_site, caller): (u64, Caller)| (name(&site(call_site)), call_site, caller);
    let mut sorted: Vec<(CallerName, u64, Caller)> = by_site.into_iter().map(named).collect();
    if style == AccountStyle::TraceAnalyze {
        // The original knows callers by their names alone.
        sorted.sort_by(|(a, address, _), (b, other, _)| a.cmp(b).then(address.cmp(other)));
        sorted.dedup_by(|(name, _, caller), (first, _, sum)| {
            let is_same = name == first;
            if is_same {
                sum.stats.add(&caller.stats);
            }
            is_same
        });
    }
    let mut total = Caller::default();
    for (.., caller) in &mut sorted {
        if style.counts_frees_made() {
            let made = *caller.frees_made.get_or_insert(0);
            *total.frees_made.get_or_insert(0) += made;
        }
        saturation.check(&caller.stats);
        total.stats.add(&caller.stats);
    }
    saturation.check(&total.stats);
    let own_sort = [style.own_sort()];
    let keys = if shape.sort.is_empty() { &own_sort[..] } else { &shape.sort };
    sorted.sort_by(|((name, _), address, caller), ((other_name, _), other_address, other)| {
        let by_figure = |key: &SortKey| other.figure(*key, ordering).cmp(&caller.figure(*key, ordering));
        let by_figures = keys.iter().map(by_figure).find(|order| order.is_ne()).unwrap_or(Order::Equal);
        by_figures.then_with(|| name.cmp(other_name)).then_with(|| address.cmp(other_address))
    });
    let sorted: Vec<(u64, AccountFigures)> =
        sorted.into_iter().map(|(_, call_site, caller)| (call_site, caller.figures(ordering))).collect();
    AccountBody {
        style,
        kinds: Kind::ALL.into_iter().filter(|kind| kind.space() == space).map(Kind::name).collect(),
        callers: sorted.len(),
        total: total.figures(ordering),
        rows: Rows::of(sorted, move |(call_site, figures)| {
            let site = site(*call_site);
            let file = site.place.0.source.as_ref().and_then(|source| source.file.as_deref());
            AccountRow { object: file.map(|file| object(file).into()), site, figures: figures.clone() }
        }),
    }
}

/// Symbol, else address, and module of a caller.
type CallerName = (Vec<u8>, Option<Vec<u8>>);

/// Name that decides a tie.
fn name(site: &CallSite<'_>) -> CallerName {
    let symbol = site.symbol.as_deref().map_or_else(|| site.call_site.to_string().into_bytes(), <[u8]>::to_vec);
    (symbol, site.module.as_deref().map(<[u8]>::to_vec))
}

/// `fs/inode.o` of `fs/inode.c`.
fn object(file: &[u8]) -> Vec<u8> {
    let name = file.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let end = file.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > name).unwrap_or(file.len());
    [&file[..end], b".o"].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kmemtrace_abi::clock::Agreement;

    use super::super::naming::SitePlace;
    use super::super::row::Address;
    use super::*;
    use crate::names::kallsyms::SiteOwner;
    use crate::names::place::{Place, SourceLine};

    fn stats(allocs: u64, frees: u64, live: u128) -> Stats {
        let inferred_frees = frees / 3;
        Stats {
            allocs,
            frees: frees - inferred_frees,
            inferred_frees,
            allocated: u128::from(allocs) * 10,
            requested: u128::from(allocs) * 7,
            wasted: u128::from(allocs) * 3,
            live_allocated: live,
            live_requested: live / 2,
            live_wasted: live - live / 2,
            ..Stats::default()
        }
    }

    fn account_of<'a>(rows: &'a [(u64, Kind, Stats)], made: &'a [(u64, u64)], style: AccountStyle) -> AccountBody<'a> {
        let source = || SourceLine { function: b"f"[..].into(), file: Some(b"fs/inode.c"[..].into()), line: None };
        let site = move |call_site: u64| CallSite {
            call_site: Address(call_site),
            symbol: (call_site != 9).then(|| format!("f{}+0x1", call_site % 5).into_bytes().into()),
            module: None,
            place: SitePlace(Arc::new(Place { source: (call_site == 1).then(source), ..Place::default() })),
            owner: SiteOwner::Kernel,
        };
        let callers = Callers {
            rows: Box::new(rows.iter().map(|(site, kind, stats)| (*site, *kind, stats))),
            frees_made: style.counts_frees_made().then(|| Box::new(made.iter().copied()) as Box<_>),
            site: Box::new(site),
        };
        account(
            callers,
            style,
            Space::Slab,
            &Shape::default(),
            (&Saturation::default(), Ordering::new(Agreement::AllCpus)),
        )
    }

    #[test]
    fn kinds_of_a_caller_merge_and_pages_stay_apart() {
        let rows = [
            (1, Kind::Kmalloc, stats(2, 1, 10)),
            (1, Kind::Cache, stats(4, 3, 10)),
            (1, Kind::Pages, stats(9, 0, 4096)),
            (2, Kind::Cache, stats(5, 5, 0)),
            (9, Kind::Cache, stats(1, 0, 20)),
            (6, Kind::Cache, Stats { failed_allocs: 3, ..Stats::default() }),
        ];
        let body = account_of(&rows, &[], AccountStyle::TraceAnalyze);
        let shown: Vec<_> =
            body.rows.iter().map(|row| (row.site.call_site.0, row.figures.allocs, row.figures.frees)).collect();
        // Ties go by name, and an address comes before a symbol.
        assert_eq!(shown, [(9, Some(1), Some(0)), (1, Some(6), Some(4)), (2, Some(5), Some(5))]);
        assert_eq!((body.callers, body.total.allocs, body.total.live_allocated), (3, Some(12), Some(40)));
        assert_eq!(body.rows.iter().nth(1).unwrap().object.as_deref(), Some(&b"fs/inode.o"[..]));
        assert_eq!(body.total.frees_made, None);
    }

    #[test]
    fn callers_of_one_name_are_one_in_the_account_of_trace_analyze() {
        let rows =
            [(2, Kind::Cache, stats(5, 3, 30)), (7, Kind::Kmalloc, stats(2, 0, 20)), (1, Kind::Cache, stats(1, 0, 40))];
        for (style, want) in [
            (AccountStyle::TraceAnalyze, vec![(2, Some(7), Some(50)), (1, Some(1), Some(40))]),
            (AccountStyle::Callers, vec![(1, Some(1), Some(40)), (2, Some(5), Some(30)), (7, Some(2), Some(20))]),
        ] {
            let body = account_of(&rows, &[], style);
            let shown =
                body.rows.iter().map(|row| (row.site.call_site.0, row.figures.allocs, row.figures.live_allocated));
            assert_eq!(shown.collect::<Vec<_>>(), want);
            assert_eq!((body.callers, body.total.allocs, body.total.live_allocated), (want.len(), Some(8), Some(90)));
        }
    }

    #[test]
    fn a_caller_that_only_frees_has_a_row_where_frees_count_for_it() {
        let rows = [(1, Kind::Kmalloc, stats(2, 2, 0)), (2, Kind::Kmalloc, stats(3, 1, 20))];
        let body = account_of(&rows, &[(3, 4), (1, 1)], AccountStyle::SlabAccount);
        let shown: Vec<_> = body.rows.iter().map(|row| (row.site.call_site.0, row.figures.frees_made)).collect();
        assert_eq!(shown, [(2, Some(0)), (1, Some(1)), (3, Some(4))]);
        assert_eq!((body.callers, body.total.frees_made), (3, Some(5)));
    }

    #[test]
    fn an_object_file_is_named_after_its_source() {
        for (file, want) in [("fs/inode.c", "fs/inode.o"), ("a.b/entry", "a.b/entry.o"), (".c", ".c.o"), ("x.S", "x.o")]
        {
            assert_eq!(object(file.as_bytes()), want.as_bytes());
        }
    }
}
