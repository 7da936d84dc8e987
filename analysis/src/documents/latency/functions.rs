//! `functions`: calls of the functions that the kernel timed.

use super::naming::{function_name, known, told};
use crate::documents::ranked::{Listing, Others};
use crate::documents::row::{Address, Name, Rows, row};
use crate::latency::{FunctionSums, Latency};

row! {
    /// Row of `functions`.
    pub struct FunctionRow<'a> {
        /// Address of the function; `None` where the trace does not give it.
        pub function: Option<Address>,
        /// Name of the function.
        pub symbol: Name<'a>,
        /// Calls.
        pub count: u64,
        /// Sum of their durations; `None` where the kernel does not give them.
        pub total: Option<u64>,
        /// Percentile.
        pub p50: Option<u64>,
        /// Percentile.
        pub p90: Option<u64>,
        /// Percentile.
        pub p99: Option<u64>,
        /// Largest duration.
        pub max: Option<u64>,
    }
}

row! {
    /// Sum of rows left out.
    pub struct OtherCalls {
        /// Calls.
        pub count: u64,
        /// Sum of their durations.
        pub total: Option<u64>,
    }
}

/// Body of `functions`.
pub type Functions<'a> = Listing<'a, FunctionRow<'a>, OtherCalls>;

/// The body of `functions`.
pub(super) fn functions(latency: &Latency, top: Option<usize>) -> Functions<'_> {
    let mut rows: Vec<&(u64, FunctionSums)> = latency.functions.iter().collect();
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = OtherCalls {
        count: rest.iter().map(|(_, sums)| sums.count).sum(),
        total: known(latency, rest.iter().fold(0, |sum, (_, sums)| sums.figures.total.saturating_add(sum))),
    };
    let others = Others::one(rest.len(), others);
    let make = move |(address, sums): &(u64, FunctionSums)| {
        let of_any = |duration: u64| known(latency, duration).filter(|_| sums.figures.count > 0);
        let [p50, p90, p99] = sums.figures.percentiles([50, 90, 99]).map(of_any);
        let (total, max) = (of_any(sums.figures.total), of_any(sums.figures.max));
        let function = told(*address);
        let symbol = function.and_then(|at| function_name(latency, at.0));
        FunctionRow { function, symbol, count: sums.count, total, p50, p90, p99, max }
    };
    let template = rows.first().or(rest.first()).map(|row| make(row));
    Listing::new(Rows::of(rows, move |row| make(row)), (!rest.is_empty()).then_some(others), template)
}
