//! A window of a recording with the objects that were allocated before it.
//!
//! [`Query::run`] takes a window as if nothing outside of it were recorded. Here live figures are those at the window's end, of all objects
//! that the recording has seen allocated; what was allocated and freed is the difference of two passes that begin with the recording:
//!
//! ```text
//!  first              from                 to
//!    |-- before (from - 1) --|                |
//!    |------------ until (to) ----------------|     window = until less before, but live figures are those of until
//! ```

use std::collections::HashMap;

use kmemtrace_abi::event::{ByKind, Kind};
use kmemtrace_abi::trace::Trace;

use crate::account::grouping::{Grouping, RowKey};
use crate::account::stats::Stats;
use crate::analysis::Analysis;
use crate::error::AnalysisError;
use crate::progress::Progress;
use crate::query::Query;
use crate::query::time::TimeWindow;

/// Name of a row in analyses that number caches each their own way.
type RowName = (u64, Kind, Option<Box<[u8]>>);

impl Query {
    /// [`Query::run_with`], where live figures are those of all objects that the recording has seen allocated before the window's end,
    /// and not of those that were allocated in the window alone. For queries [`Query::by_site`] and [`Query::by_cache`]; peaks are not known,
    /// unless the window begins with the recording. The trace is read up to three times.
    ///
    /// # Errors
    /// As for [`Query::run`], and if the trace cannot be opened again.
    pub fn run_carried_with(&self, trace: &mut Trace, progress: &mut dyn Progress) -> Result<Analysis, AnalysisError> {
        let window = self.run_with(trace, progress)?;
        let Some((from, to)) = window.window.filter(|(from, _)| *from > window.first_key) else { return Ok(window) };
        let mut until = |key: u64| {
            let bounds = (key < u64::MAX).then(|| TimeWindow::until(key));
            Query { window: bounds, ..self.clone() }.run_with(&mut trace.reopen()?, progress)
        };
        let (end, before) = (until(to)?, until(from - 1)?);
        Ok(carried(window, &end, &before))
    }
}

/// The window with the figures of what came before.
fn carried(mut window: Analysis, end: &Analysis, before: &Analysis) -> Analysis {
    let rows = |analysis: &Analysis| -> HashMap<RowName, Stats> {
        analysis.paired.rows.iter().map(|(key, stats)| (name(analysis, key), stats.clone())).collect()
    };
    let (earlier, own) = (rows(before), rows(&window));
    let none = Stats::default();
    let figures = |end: &Stats, before: Option<&Stats>, own: Option<&Stats>| {
        let largest = own.and_then(|own| own.largest);
        Stats { largest, ..end.since(before.unwrap_or(&none)) }
    };
    let mut carried = Vec::new();
    for (key, stats) in &end.paired.rows {
        let name = name(end, key);
        let stats = figures(stats, earlier.get(&name), own.get(&name));
        let others = match name.2 {
            Some(cache) => window.names.trace_names.intern(&cache).index() as u64 + 1,
            None => 0,
        };
        carried.push((RowKey { others, ..*key }, stats));
    }
    let paired = &mut window.paired;
    paired.rows = carried;
    paired.has = end.paired.has;
    paired.kinds = ByKind::from_fn(|kind| {
        figures(&end.paired.kinds[kind], Some(&before.paired.kinds[kind]), Some(&paired.kinds[kind]))
    });
    paired.total = figures(&end.paired.total, Some(&before.paired.total), Some(&paired.total));
    window
}

fn name(analysis: &Analysis, key: &RowKey) -> RowName {
    let is_of_caches = analysis.grouping == Grouping::CACHE;
    let cache = analysis.names.numbered(key.others).filter(|_| is_of_caches);
    (key.site, key.kind, cache.map(Into::into))
}
