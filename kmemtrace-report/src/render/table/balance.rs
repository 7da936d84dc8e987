//! Table of `balance`: the change of free memory, the parts that it went to, and the call-sites behind them.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::balance::{BalanceBody, PartRow, PartSite};

use super::options::TableOptions;
use super::{cells, heading};
use crate::columns::BALANCE;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;
use crate::terminal::screen::Paint;

/// Share of the changes from which a part has its call-sites, in percent.
const MANY: u128 = 1;

/// Writes the table of `balance`.
pub(crate) fn balance(
    head: &Head<'_>,
    view: &BalanceBody<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if view.moment.is_some() {
        return of_moment(view, options, out);
    }
    for line in notes(head, view, options) {
        heading::text(&line, options, out)?;
    }
    writeln!(out)?;
    let changes = view.parts.iter().map(|part| u128::from(part.change.unwrap_or(0).unsigned_abs())).sum::<u128>();
    let mut parts: Vec<&PartRow<'_>> = view.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.change.map_or(0, i64::unsigned_abs)));
    let rows = || {
        parts.iter().flat_map(|part| {
            let is_large = match part.change {
                Some(change) => u128::from(change.unsigned_abs()) * 100 >= changes * MANY && change != 0,
                None => true,
            };
            let sites = part.rows.iter().filter(move |_| is_large).map(|site| site_row(site, options));
            std::iter::once(part_row(part, options)).chain(sites)
        })
    };
    let grid = Grid { columns: &BALANCE, ranked: None, screen: &options.screen };
    let mut notes = grid.write(rows, out)?;
    // The view's own notes tell which pages have call-sites.
    notes.has_pages_without_site = false;
    writeln!(out)?;
    heading::text(&unexplained(view, changes, options), options, out)?;
    heading::footer(notes, options, out)
}

/// Writes parts of memory that are known, the largest first.
pub(crate) fn parts(parts: &[PartRow<'_>], options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut parts: Vec<&PartRow<'_>> = parts.iter().filter(|part| part.bytes.is_some()).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let grid = Grid { columns: &BALANCE, ranked: None, screen: &options.screen };
    grid.write(|| parts.iter().map(|part| part_row(part, options)), out).map(drop)
}

/// Writes the parts of memory at one moment, and the processes of a report.
fn of_moment(view: &BalanceBody<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let known = view.moment.as_ref();
    let totals = [known.and_then(|totals| totals.memtotal), known.and_then(|totals| totals.memfree)];
    let [total, free] = totals.map(|bytes| cells::bytes(bytes, options));
    heading::text(&format!("All memory: {total}; free: {free}."), options, out)?;
    writeln!(out)?;
    self::parts(&view.parts, options, out)?;
    writeln!(out)?;
    let left = match view.unexplained {
        Some(left) => format!("In no part: {}.", cells::change(left, options)),
        None if totals.contains(&None) => {
            "What is in no part is not known: total or free memory has no counter here.".to_owned()
        }
        None => "What is in no part is not known: anonymous pages, files or slab have no counter here.".to_owned(),
    };
    heading::text(&left, options, out)?;
    let tasks = view.tasks.iter().flatten().map(|task| {
        let rss = cells::bytes(task.rss, options);
        let pid = task.pid.map_or("-".to_owned(), |pid| pid.to_string());
        format!(" {rss:>10}  {pid:>7}  {}", cells::shown(&task.comm).unwrap_or_default())
    });
    let tasks: Vec<String> = tasks.collect();
    if tasks.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    heading::title("Processes with most memory", options, out)?;
    tasks.iter().try_for_each(|task| writeln!(out, "{task}"))
}

/// Lines above the table: the change that is to be explained, and what the recording does not tell.
fn notes(head: &Head<'_>, view: &BalanceBody<'_>, options: &TableOptions) -> Vec<String> {
    let Some(free) = view.memfree_change else {
        let why = if head.query.time.is_some() {
            "The counters are those of the whole recording, so with --time no change is known."
        } else {
            "The recording has no /proc/meminfo of its start and end, which kmemtraced and capture.sh keep: no change is known."
        };
        return vec![why.to_owned()];
    };
    let total = match view.memtotal_change {
        None | Some(0) => String::new(),
        Some(change) => format!("; MemTotal changed by {}", cells::change(change, options)),
    };
    let mut lines = vec![match free {
        0 => format!("MemFree did not change{total}."),
        free if free < 0 => format!("MemFree shrank by {}{total}.", cells::bytes(free.unsigned_abs(), options)),
        free => format!("MemFree grew by {}{total}.", cells::bytes(free.unsigned_abs(), options)),
    }];
    let of = |name: &str| view.parts.iter().find(|part| part.part == name);
    if of("anonymous").is_some_and(|part| part.explained.is_none()) {
        lines.push("Call sites of pages need events of pages: record with kmemtraced -e all --stack.".to_owned());
    } else if of("other pages").is_some_and(|part| part.explained.is_none()) {
        lines.push("Call sites and uses of pages need stacks: record with kmemtraced -e all --stack.".to_owned());
    }
    if view.slab_of_no_cache > 0 {
        let bytes = cells::bytes(view.slab_of_no_cache, options);
        lines.push(format!("{bytes} of slab objects are in neither part of slab: their cache is not known."));
    }
    lines
}

fn part_row(part: &PartRow<'_>, options: &TableOptions) -> Vec<Cell> {
    let change = part.change.map_or("-".to_owned(), |change| cells::change(change, options));
    vec![
        change.into(),
        cells::bytes(part.bytes, options).into(),
        cells::bytes(part.explained, options).into(),
        Cell::default(),
        Cell::painted(part.part, Paint::Strong),
    ]
}

fn site_row(site: &PartSite<'_>, options: &TableOptions) -> Vec<Cell> {
    let mut cell = cells::site(&site.site, site.kind);
    cell.text.insert_str(0, "  ");
    vec![
        Cell::default(),
        Cell::default(),
        cells::upper(site.live_is_upper_bound, cells::bytes(site.live_allocated, options)),
        cells::count(site.live_objects).into(),
        cell,
    ]
}

/// Line below the table.
fn unexplained(view: &BalanceBody<'_>, changes: u128, options: &TableOptions) -> String {
    let Some(left) = view.unexplained else {
        return "What stays unexplained is not known: anonymous pages, files or slab have no counter here.".to_owned();
    };
    let share = match changes {
        0 => String::new(),
        changes => {
            let whole = u64::try_from(changes).unwrap_or(u64::MAX);
            format!(", {} of the changes", cells::percent(left.unsigned_abs(), whole))
        }
    };
    format!("Unexplained: {}{share}. EXPLAINED counts what this recording saw allocated.", cells::change(left, options))
}
