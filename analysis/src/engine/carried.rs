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

use crate::account::group_reader::parts_of_task;
use crate::account::grouping::{GroupKey, GroupValue, NO_VALUE, RowKey};
use crate::account::keys::KeyForm;
use crate::account::stats::Stats;
use crate::analysis::Analysis;
use crate::error::AnalysisError;
use crate::pairing::result::PairingResult;
use crate::progress::Progress;
use crate::query::Query;
use crate::query::time::TimeWindow;

/// Name of a row in analyses that number names and stacks each their own way: its call-site, its kind, and the values of the other keys.
type RowName = (u64, Kind, Vec<Value>);

/// Value of a key, the same in all analyses of a trace.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Value {
    Number(GroupValue),
    Name(Option<Box<[u8]>>),
    /// Thread, and its name where the input tells it with the allocation.
    Task(Option<i32>, Option<Box<[u8]>>),
    Frames(Box<[u64]>),
}

impl Query {
    /// [`Query::run_with`], where live figures are those of all objects that the recording has seen allocated before the window's end,
    /// and not of those that were allocated in the window alone. Peaks are not known, unless the window begins with the recording. The trace is read up to three times.
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
        Ok(carried(window, end, &before))
    }
}

/// The window with the figures of what came before: its rows are those of `end`, with their names.
fn carried(mut window: Analysis, end: Analysis, before: &Analysis) -> Analysis {
    let rows = |analysis: &Analysis| -> HashMap<RowName, Stats> {
        analysis.paired.rows.iter().map(|(key, stats)| (name(analysis, *key), stats.clone())).collect()
    };
    let (earlier, own) = (rows(before), rows(&window));
    let none = Stats::default();
    let figures = |end: &Stats, before: Option<&Stats>, own: Option<&Stats>| {
        let largest = own.and_then(|own| own.largest);
        Stats { largest, ..end.since(before.unwrap_or(&none)) }
    };
    let row = |(key, stats): &(RowKey, Stats)| {
        let name = name(&end, *key);
        (*key, figures(stats, earlier.get(&name), own.get(&name)))
    };
    let carried = end.paired.rows.iter().map(row).collect();
    let paired = &mut window.paired;
    paired.has = end.paired.has;
    paired.kinds = ByKind::from_fn(|kind| {
        figures(&end.paired.kinds[kind], Some(&before.paired.kinds[kind]), Some(&paired.kinds[kind]))
    });
    paired.total = figures(&end.paired.total, Some(&before.paired.total), Some(&paired.total));
    let PairingResult { lists, stacks, caches_from, extras, .. } = end.paired;
    window.paired = PairingResult { rows: carried, lists, stacks, caches_from, extras, ..window.paired };
    window.names = end.names;
    window
}

fn name(analysis: &Analysis, key: RowKey) -> RowName {
    let values = analysis.paired.lists.of(key.others);
    let named = |value: GroupValue| analysis.names.numbered(value).map(Into::into);
    let of = |(key, value): (GroupKey, GroupValue)| match (key.entry().form, key) {
        (KeyForm::Name, _)
        | (KeyForm::Own, GroupKey::Cache | GroupKey::Module | GroupKey::Function | GroupKey::Source)
            if value != NO_VALUE =>
        {
            Value::Name(named(value))
        }
        (_, GroupKey::Task) => {
            let (pid, comm) = parts_of_task(value);
            Value::Task(pid, comm.and_then(named))
        }
        (_, GroupKey::Stack) => Value::Frames(analysis.paired.stacks.frames(value).into()),
        _ => Value::Number(value),
    };
    (key.site, key.kind, analysis.grouping.others().zip(values).map(of).collect())
}
