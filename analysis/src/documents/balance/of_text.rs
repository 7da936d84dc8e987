//! `balance` of a text of one moment: meminfo, or a report of the OOM killer.

use std::cmp::Reverse;

use kmemtrace_abi::trace::TextInfo;

use super::counters::Counters;
use super::parts::{CounterForm, PartSums};
use super::{BalanceBody, MomentTotals, PartRow, Process};
use crate::analysis::Analysis;

/// Processes of a report that are listed where nothing else is asked for.
const PROCESSES: usize = 10;

/// Form of a text's counters.
fn form(text: &TextInfo, counters: &Counters) -> CounterForm {
    let has = |name| counters.get(name).is_some();
    match text.form {
        "oom" if has("limit") && (has("anon") || !has("rss")) => CounterForm::Memcg,
        "oom" if has("limit") => CounterForm::OldMemcg,
        "oom" => CounterForm::Oom,
        _ => CounterForm::Meminfo,
    }
}

/// Parts of a text, and the form of its counters; `None` for an analysis of any other input.
fn sums(analysis: &Analysis) -> Option<(CounterForm, PartSums)> {
    let text = analysis.info.text.as_deref().filter(|_| analysis.info.input.name() == "meminfo")?;
    let mut counters = Counters::default();
    for (name, bytes) in &text.counters {
        counters.add(&String::from_utf8_lossy(name), *bytes);
    }
    let form = form(text, &counters);
    Some((form, PartSums::of(form, &counters, true)))
}

/// Parts of memory that a text has counters of, with their bytes.
pub(crate) fn parts(analysis: &Analysis) -> Option<Vec<PartRow<'_>>> {
    let (form, sums) = sums(analysis)?;
    let row = |(part, bytes): &(super::Part, Option<u64>)| PartRow {
        part: part.name(),
        change: None,
        from: form.source(*part),
        explained: None,
        bytes: *bytes,
        rows: Vec::new(),
    };
    Some(sums.parts.iter().map(row).collect())
}

/// The body of a text's `balance`; `None` for a recording.
pub(crate) fn balance(analysis: &Analysis, top: Option<usize>) -> Option<BalanceBody<'_>> {
    let (form, sums) = sums(analysis)?;
    let text = analysis.info.text.as_deref()?;
    let mut tasks: Vec<Process<'_>> = Vec::new();
    for (pid, comm, rss) in &text.processes {
        tasks.push(Process { pid: Some(*pid), comm: Some((&**comm).into()), rss: *rss });
    }
    tasks.sort_by_key(|task| (Reverse(task.rss), task.pid));
    tasks.truncate(top.unwrap_or(PROCESSES));
    Some(BalanceBody {
        memfree_change: None,
        memtotal_change: None,
        moment: Some(MomentTotals { memtotal: sums.memtotal, memfree: sums.memfree }),
        parts: parts(analysis)?,
        unexplained: sums.unexplained(),
        slab_of_no_cache: 0,
        tasks: (form != CounterForm::Meminfo).then_some(tasks),
    })
}
