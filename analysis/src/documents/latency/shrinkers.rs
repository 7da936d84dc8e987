//! `shrinkers`: calls of each shrinker.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::naming::{function_name, known, told};
use crate::documents::ranked::{Listing, Others};
use crate::documents::row::{Address, Cell, Field, Name, Row, Rows, TakeMember, row, serialize_row};
use crate::latency::{Latency, ShrinkerKey, ShrinkerSums};

/// Row of `shrinkers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShrinkerRow<'a> {
    /// Function that the shrinker calls; `None` where the trace does not give it.
    pub function: Option<Address>,
    /// Name of the function.
    pub symbol: Name<'a>,
    /// Address of the shrinker; `None` where rows are functions, or the trace does not give it.
    pub shrinker: Option<Address>,
    /// NUMA node; `None` where rows are functions.
    pub node: Option<i32>,
    /// Calls that no loss touches.
    pub count: u64,
    /// Sum of their durations.
    pub total: Option<u64>,
    /// Sum of their durations less those of their direct children.
    pub own: Option<u64>,
    /// Percentiles: 50, 90 and 99.
    pub percentiles: [Option<u64>; 3],
    /// Largest duration.
    pub max: Option<u64>,
    /// Objects freed; `None` where the trace does not give it.
    pub freed: Option<u64>,
    /// Calls that loss touches.
    pub suspect: u64,
}

impl Row for ShrinkerRow<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        self.function.put("function", take);
        self.symbol.put("symbol", take);
        self.shrinker.put("shrinker", take);
        self.node.put("node", take);
        self.count.put("count", take);
        self.total.put("total", take);
        self.own.put("self", take);
        for (name, value) in ["p50", "p90", "p99"].into_iter().zip(&self.percentiles) {
            value.put(name, take);
        }
        self.max.put("max", take);
        self.freed.put("freed", take);
        take("suspect", Cell::Count(self.suspect));
    }
}

impl serde::Serialize for ShrinkerRow<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}

row! {
    /// Sum of rows left out.
    pub struct OtherShrinkers {
        /// Calls.
        pub count: u64,
        /// Sum of their durations.
        pub total: Option<u64>,
        /// Objects freed; `None` where the trace does not give it.
        pub freed: Option<u64>,
        /// Calls that loss touches.
        pub suspect: u64,
    }
}

/// Body of `shrinkers`.
pub type Shrinkers<'a> = Listing<'a, ShrinkerRow<'a>, OtherShrinkers>;

/// The body of `shrinkers`.
pub(super) fn shrinkers(latency: &Latency, by_function: bool, top: Option<usize>) -> Shrinkers<'_> {
    let mut rows: Vec<(ShrinkerKey, ShrinkerSums)> = latency.shrinkers.clone();
    if by_function {
        let mut functions: BTreeMap<u64, ShrinkerSums> = BTreeMap::new();
        for (key, sums) in &rows {
            functions.entry(key.function).or_default().merge(sums);
        }
        rows = functions
            .into_iter()
            .map(|(function, sums)| (ShrinkerKey { function, ..Default::default() }, sums))
            .collect();
        rows.sort_by_cached_key(|(key, sums)| {
            (
                Reverse(known(latency, sums.figures.total)),
                function_name(latency, key.function).map(Cow::into_owned),
                *key,
            )
        });
    }
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = OtherShrinkers {
        count: rest.iter().map(|(_, sums)| sums.figures.count).sum(),
        total: known(latency, rest.iter().fold(0, |sum, (_, sums)| sums.figures.total.saturating_add(sum))),
        freed: rest.iter().filter_map(|(_, sums)| sums.freed).reduce(u64::saturating_add),
        suspect: rest.iter().map(|(_, sums)| sums.suspect).sum(),
    };
    let others = Others::one(rest.len(), others);
    let make = move |(key, sums): &(ShrinkerKey, ShrinkerSums)| {
        let figures = &sums.figures;
        let of_any = |duration: u64| known(latency, duration).filter(|_| figures.count > 0);
        ShrinkerRow {
            function: told(key.function),
            symbol: told(key.function).and_then(|at| function_name(latency, at.0)),
            shrinker: told(key.shrinker).filter(|_| !by_function),
            node: key.node,
            count: figures.count,
            total: known(latency, figures.total),
            own: known(latency, figures.own),
            percentiles: figures.percentiles([50, 90, 99]).map(of_any),
            max: of_any(figures.max),
            freed: sums.freed,
            suspect: sums.suspect,
        }
    };
    let template = rows.first().or(rest.first()).map(make);
    Listing::new(Rows::of(rows, make), (!rest.is_empty()).then_some(others), template)
}
