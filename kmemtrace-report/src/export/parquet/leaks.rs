//! `parquet-leaks`: a row per row of `leaks`, with its members.

use kmemtrace::documents::group::{GroupNames, KeyValue};
use kmemtrace::documents::leaks::{LeakOptions, LeakRow};
use kmemtrace::documents::{self, Body};
use kmemtrace::{Query, Shape};
use parquet::errors::Result;

use super::Origin;
use super::table::{Table, row};
use super::texts::{TextId, Texts};
use crate::export::Job;

row! {
    /// Row of `leaks`.
    LeakTableRow {
        verdict: Option<TextId>,
        group: Option<u64>,
        pid: Option<i32>,
        comm: Option<TextId>,
        task_alive: Option<bool>,
        kind: TextId,
        module: Option<TextId>,
        symbol: Option<TextId>,
        call_site: Option<u64>,
        reclaimable: Option<bool>,
        reclaimable_from: Option<TextId>,
        live_objects: u64,
        live_allocated: Option<u64>,
        allocs: u64,
        /// Ten numbers with blanks between them.
        born: TextId,
        kept: Option<f64>,
        rate: Option<f64>,
        bytes_rate: Option<f64>,
        live_is_upper_bound: bool,
        seconds: Option<f64>,
        /// Verdict on the recording.
        completeness: TextId,
        lost_events: Option<u64>,
    }
}

/// Writes the table of leaks.
pub(crate) fn leaks(job: &Job<'_>) -> anyhow::Result<u8> {
    // An output that exists is reported before the analysis.
    let out = job.binary_output()?;
    let analysis = job.analyse(Query::leaks(&[]))?;
    let document = documents::leaks(&analysis, &Shape { sort: Vec::new(), top: None }, LeakOptions::default());
    let Body::Leaks(leaks) = &document.body else { anyhow::bail!("leaks have another form") };
    let origin = Origin::of(analysis.info(), job);
    let mut table: Table<LeakTableRow> = origin.table(out, LeakTableRow::columns())?;
    let completeness = table.texts.id(analysis.completeness().verdict_name().as_bytes());
    let common = LeakTableRow {
        seconds: leaks.seconds,
        completeness,
        lost_events: analysis.completeness().lost_events,
        ..LeakTableRow::default()
    };
    let written: Result<()> = leaks.listing.rows.iter().try_for_each(|row| {
        let row = leak_row(&row, common, &mut table.texts);
        table.push(row)
    });
    let head = &document.head;
    table.finish(written, &origin.footer(head.completeness.clone(), head.trace.clone()))?;
    Ok(job.end(&analysis))
}

fn leak_row(row: &LeakRow<'_>, common: LeakTableRow, texts: &mut Texts) -> LeakTableRow {
    let born: Vec<String> = row.born.iter().map(u64::to_string).collect();
    let named = with_names(&row.names, common, texts);
    LeakTableRow {
        verdict: row.verdict.map(|verdict| texts.id(verdict.as_bytes())),
        group: row.group,
        task_alive: row.task_alive,
        kind: texts.id(row.kind.name().as_bytes()),
        reclaimable: row.reclaimable,
        reclaimable_from: row.reclaimable_from.map(|from| texts.id(from.as_bytes())),
        live_objects: row.live_objects,
        live_allocated: row.live_allocated,
        allocs: row.allocs,
        born: texts.id(born.join(" ").as_bytes()),
        kept: row.kept.map(|kept| kept.0),
        rate: row.rate.map(|rate| rate.0),
        bytes_rate: row.bytes_rate.map(|rate| rate.0),
        live_is_upper_bound: row.live_is_upper_bound,
        ..named
    }
}

/// The row with thread and call site; rows of several threads have no thread.
fn with_names(names: &GroupNames<'_>, mut row: LeakTableRow, texts: &mut Texts) -> LeakTableRow {
    for member in &names.0 {
        match &member.value {
            KeyValue::Task { pid, comm } => {
                row.pid = *pid;
                row.comm = comm.as_ref().map(|comm| texts.id(comm));
            }
            KeyValue::Site(site) => {
                row.symbol = site.symbol.as_ref().map(|symbol| texts.id(symbol));
                row.module = site.module.as_ref().map(|module| texts.id(module));
                row.call_site = site.call_site.told().map(|address| address.0);
            }
            _ => {}
        }
    }
    row
}
