//! Result of a pass over a whole trace as bytes, for every later view whose request it covers.

use kmemtrace_abi::event::Names;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::account::classes::{CacheNumber, Class};
use crate::account::completeness::MergeStats;
use crate::account::figures::{Figure, FigureUnit};
use crate::account::grouping::{Grouping, RowKey, ValueLists};
use crate::pairing::result::{Live, LiveList, PairingResult};

/// Limit of live objects that an index keeps.
pub(super) const MAX_LIVE: usize = 1 << 20;

/// Request of a view to a whole trace: grouping, and the parts that take memory or time of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnalysisRequest {
    #[serde(serialize_with = "grouping_number", deserialize_with = "numbered_grouping")]
    pub(crate) grouping: Grouping,
    /// Pairs per allocating and freeing CPU are counted.
    pub(crate) matrix: bool,
    /// Live objects are listed.
    pub(crate) lists_live: bool,
    /// The recorder's own objects are counted, too.
    pub(crate) shows_own: bool,
    /// Births of the live objects are counted.
    pub(crate) births: bool,
}

impl AnalysisRequest {
    /// True if the result of this request has that of `other`. Sums per kind follow from rows of any grouping.
    pub(super) fn covers(self, other: AnalysisRequest) -> bool {
        (self.grouping == other.grouping || other.grouping == Grouping::KIND)
            && self.shows_own == other.shows_own
            && self.matrix >= other.matrix
            && self.lists_live >= other.lists_live
            && self.births >= other.births
    }

    /// This request with parts that cost little, so that the index answers other views, too.
    pub(crate) fn with_more(self) -> AnalysisRequest {
        match self.grouping {
            Grouping::KIND | Grouping::SITE => AnalysisRequest { grouping: Grouping::SITE, matrix: true, ..self },
            Grouping::SITE_AND_STACK => AnalysisRequest { matrix: true, ..self },
            _ => self,
        }
    }

    /// The request that the result of this one is kept under: without stacks, rows of call-sites and their stacks are those of
    /// call-sites. `None` for a result that is not kept.
    pub(super) fn kept(self, has_stacks: bool) -> Option<AnalysisRequest> {
        match self.grouping {
            Grouping::SITE_AND_STACK if has_stacks => None,
            Grouping::SITE_AND_STACK => Some(AnalysisRequest { grouping: Grouping::SITE, ..self }),
            _ => Some(self),
        }
    }
}

/// Groupings whose results an index keeps, by their numbers in it.
const KEPT: [Grouping; 4] = [Grouping::KIND, Grouping::SITE, Grouping::CACHE, Grouping::LEAKS];

fn grouping_number<S: Serializer>(grouping: &Grouping, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(KEPT.iter().position(|kept| kept == grouping).map_or(u8::MAX, |number| number as u8))
}

fn numbered_grouping<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Grouping, D::Error> {
    let number = u8::deserialize(deserializer)?;
    KEPT.get(usize::from(number)).copied().ok_or_else(|| D::Error::custom("unknown grouping"))
}

/// The value that all of `bytes` stand for.
pub(super) fn read_all<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// Bytes of the result of `request`: names, then sums, then live objects with their classes. Numbers of caches are those of `names`.
pub(super) fn write(
    request: AnalysisRequest,
    order: &MergeStats,
    paired: &PairingResult,
    names: &Names,
) -> postcard::Result<Vec<u8>> {
    let names: Vec<&[u8]> = (0..).map_while(|index| names.at(index)).collect();
    let live = if request.lists_live { (&paired.classes[..], paired.live.paired()) } else { Default::default() };
    postcard::to_extend(&live, postcard::to_allocvec(&(names, order, paired, &paired.lists))?)
}

/// The result of `request` in `bytes`, with live objects only if `with_live`; names of caches are added to `names`. `None` if the
/// bytes are no result, or sums of it do not fit.
pub(super) fn read(
    request: AnalysisRequest,
    bytes: &[u8],
    with_live: bool,
    names: &mut Names,
) -> Option<(MergeStats, PairingResult)> {
    type Kept<'a> = (Vec<&'a [u8]>, MergeStats, PairingResult, ValueLists);
    let ((known, order, mut paired, lists), rest) = postcard::take_from_bytes::<Kept<'_>>(bytes).ok()?;
    let numbers: Vec<CacheNumber> =
        known.into_iter().map(|name| (names.intern(name).index() as u32).saturating_add(1)).collect();
    let cache = |number: CacheNumber| match number.checked_sub(1) {
        Some(index) => numbers.get(index as usize).copied(),
        None => Some(0),
    };
    // Without stacks, rows of call-sites and their stacks are those of call-sites.
    let row = |key: RowKey| match request.grouping {
        Grouping::LEAKS => Some(key),
        Grouping::CACHE => Some(RowKey { others: cache(u32::try_from(key.others).ok()?)?.into(), ..key }),
        _ => Some(RowKey { others: 0, ..key }),
    };
    for (key, _) in &mut paired.rows {
        *key = row(*key)?;
    }
    let caches_from = paired.caches_from.into_iter().map(|(key, from)| Some((row(key)?, from)));
    paired.caches_from = caches_from.collect::<Option<_>>()?;
    let old_frees = paired.counts.old_frees.into_iter().map(|(number, frees)| Some((cache(number)?, frees)));
    paired.counts.old_frees = old_frees.collect::<Option<_>>()?;
    if request.grouping == Grouping::LEAKS {
        let name = |number| Some(cache(u32::try_from(number).ok()?)?.into());
        // The use is the second key beside the call-site.
        paired.lists = lists.map(1, name)?;
    }
    if with_live {
        // The order of the list is that of the index.
        let (classes, live) = read_all::<(Vec<Class>, Vec<Live>)>(rest)?;
        (paired.classes, paired.live) = (classes, LiveList::Paired(live));
        for class in &mut paired.classes {
            class.cache = cache(class.cache)?;
        }
    }
    let has_row = |class: &Class| (class.row as usize) < paired.rows.len();
    let has_class = |live: Live| (live.class as usize) < paired.classes.len();
    let has_births = !request.births || paired.births.len() == paired.rows.len();
    let fits = has_births && paired.classes.iter().all(has_row) && paired.live.iter().all(has_class);
    (fits && sums_fit(&order, &paired)).then_some((order, paired))
}

/// True if no sum that a view makes of these overflows: a real trace's sums never do.
fn sums_fit(order: &MergeStats, paired: &PairingResult) -> bool {
    let figures = || paired.rows.iter().map(|(_, figures)| figures).chain(paired.kinds.values());
    let all_fit = || {
        let (mut sums, mut cross_cpu_bytes) = ([0u128; Figure::ALL.len()], 0u128);
        for row in figures() {
            for (sum, figure) in sums.iter_mut().zip(Figure::ALL) {
                let is_count = figure.entry().unit == FigureUnit::Count;
                let most = if is_count { u64::MAX.into() } else { u128::MAX };
                *sum = sum.checked_add(row.get(figure).unwrap_or(0)).filter(|sum| *sum <= most)?;
            }
            cross_cpu_bytes = cross_cpu_bytes.checked_add(row.cross_cpu_bytes)?;
        }
        paired.findings.values().try_fold(0u64, |sum, row| {
            let is_possible = row.suspect.checked_add(row.unseen)? <= row.count;
            sum.checked_add(row.count)?.checked_add(row.suspect).filter(|_| is_possible)
        })
    };
    paired.counts.other <= order.events && all_fit().is_some()
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::trace::Trace;
    use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
    use kmemtrace_tests::recording::Directory;

    use super::*;
    use crate::Query;
    use crate::pairing::findings::FindingRow;

    const REQUEST: AnalysisRequest =
        AnalysisRequest { grouping: Grouping::SITE, matrix: true, lists_live: true, shows_own: false, births: false };

    /// The result of a pass over a small trace, and the names that it numbers caches by.
    fn answer(grouping: Grouping) -> (MergeStats, PairingResult, Names) {
        let dir = Directory::new(&trace_dir(&workload(5, &Options::plain(Shape::plain(), 2, 120)), 5));
        let mut trace = Trace::open(&[dir.path().to_path_buf()]).unwrap();
        let query = Query { grouping, matrix: true, lists_live: true, uses_index: false, ..Query::by_site() };
        let analysis = query.run(&mut trace).unwrap();
        // What an index does not keep.
        let paired = PairingResult { lists: Default::default(), stacks: Default::default(), ..analysis.paired };
        (analysis.order, paired, analysis.names.trace_names)
    }

    /// All figures as text, a line each, in one order.
    fn shown(order: &MergeStats, paired: &PairingResult) -> Vec<String> {
        let mut lines: Vec<String> = format!("{order:#?} {paired:#?}").lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// Every figure of an answer comes back from its bytes, in a run that has numbered the caches otherwise.
    #[test]
    fn an_answer_comes_back_from_its_bytes() {
        for grouping in KEPT {
            let request = AnalysisRequest { grouping, ..REQUEST };
            let (order, paired, mut names) = answer(grouping);
            assert!(!paired.live.is_empty() && !paired.rows.is_empty() && !paired.counts.matrix.is_empty());
            let bytes = write(request, &order, &paired, &names).unwrap();
            let mut others = Names::new();
            for index in (0..names.len()).rev() {
                others.intern(names.at(index).unwrap());
            }
            let (_, numbered_otherwise) = read(request, &bytes, true, &mut others).unwrap();
            let again = write(request, &order, &numbered_otherwise, &others).unwrap();
            assert_ne!(again, bytes);
            let (order_read, read_back) = read(request, &again, true, &mut names).unwrap();
            let (is, was) = (shown(&order_read, &read_back), shown(&order, &paired));
            let differs = is.iter().zip(&was).find(|(is, was)| is != was);
            assert!(differs.is_none() && is.len() == was.len(), "{grouping:?}: {differs:?}");
            let (_, without_live) = read(request, &bytes, false, &mut others).unwrap();
            assert!(without_live.live.is_empty() && without_live.rows.len() == paired.rows.len());
            let bytes = write(AnalysisRequest { lists_live: false, ..request }, &order, &paired, &names).unwrap();
            let (_, none) = read(request, &bytes, true, &mut others).unwrap();
            assert!(none.live.is_empty() && none.classes.is_empty());
        }
    }

    #[test]
    fn an_answer_that_is_cut_or_longer_is_none() {
        let request = AnalysisRequest { grouping: Grouping::CACHE, ..REQUEST };
        let (order, paired, mut names) = answer(request.grouping);
        let mut bytes = write(request, &order, &paired, &names).unwrap();
        for len in 0..bytes.len() {
            assert!(read(request, &bytes[..len], true, &mut names).is_none(), "{len} bytes");
        }
        bytes.push(0);
        assert!(read(request, &bytes, true, &mut names).is_none());
    }

    /// Numbers that no trace comes to, and that a sum over rows would not hold, are no answer.
    #[test]
    fn sums_that_overflow_are_no_answer() {
        let passes = |change: &dyn Fn(&mut PairingResult)| {
            let (mut order, mut paired, mut names) = answer(Grouping::SITE);
            order.events = 1000;
            let finding = FindingRow { count: 9, suspect: 5, unseen: 4, first: (1, 2, 3), serial: 4 };
            paired.findings.values_mut().for_each(|row| *row = finding);
            change(&mut paired);
            read(REQUEST, &write(REQUEST, &order, &paired, &names).unwrap(), true, &mut names).is_some()
        };
        assert!(passes(&|paired| paired.counts.other = 1000));
        assert!(!passes(&|paired| paired.counts.other = 1001));
        assert!(!passes(&|paired| paired.rows[0].1.allocs = u64::MAX));
        assert!(!passes(&|paired| paired.rows[2].1.live_objects = u64::MAX));
        assert!(!passes(&|paired| paired.rows[1].1.requested = u128::MAX));
        assert!(!passes(&|paired| paired.kinds[kmemtrace_abi::event::Kind::Cache].live_wasted = u128::MAX));
        let changes: [fn(&mut FindingRow); 3] =
            [|row| row.count = u64::MAX, |row| row.suspect = u64::MAX, |row| row.unseen = 5];
        for change in changes {
            assert!(!passes(&|paired| change(paired.findings.values_mut().next().unwrap())));
        }
        assert!(!passes(&|paired| {
            let LiveList::Paired(live) = &mut paired.live else { unreachable!() };
            live[0].class = paired.classes.len() as u32;
        }));
        assert!(!passes(&|paired| paired.classes[0].row = paired.rows.len() as u32));
        assert!(!passes(&|paired| paired.classes[0].cache = 1000));
    }

    /// An answer serves a view that asks for no more: the same rows, or only sums over all of them.
    #[test]
    fn an_answer_covers_requests_that_ask_for_less() {
        let groupings = [Grouping::KIND, Grouping::SITE, Grouping::CACHE];
        let all = || {
            let flags = (0..8).map(|n| [n & 1 != 0, n & 2 != 0, n & 4 != 0]);
            flags.flat_map(move |[matrix, lists_live, shows_own]| {
                groupings.map(|grouping| AnalysisRequest { grouping, matrix, lists_live, shows_own, births: false })
            })
        };
        for known in all() {
            for asked in all() {
                let has_rows = known.grouping == asked.grouping || asked.grouping == Grouping::KIND;
                let has_more_than = |known: bool, asked: bool| known || !asked;
                let covers = has_rows
                    && known.shows_own == asked.shows_own
                    && has_more_than(known.matrix, asked.matrix)
                    && has_more_than(known.lists_live, asked.lists_live);
                assert_eq!(known.covers(asked), covers, "{known:?} {asked:?}");
            }
            assert!(known.with_more().covers(known));
            assert_eq!(read_all(&postcard::to_allocvec(&known).unwrap()), Some(known));
        }
        assert_eq!(read_all::<AnalysisRequest>(&[3, 0, 0, 0]), None);
    }
}
