//! Tables of `latency`, `shrinkers`, `waits` and `functions`.

use std::io::{self, Write};

use kmemtrace::documents::latency::{FunctionRow, Functions, ShrinkerRow, Shrinkers, SpanRow, Spans, WaitRow, Waits};
use kmemtrace::documents::row::{Address, Name};
use kmemtrace::latency::WaitBy;
use kmemtrace_abi::text::units;

use super::options::TableOptions;
use super::{cells, heading};
use crate::columns::column::Column;
use crate::columns::latency::{BUCKETS, FUNCTIONS, NESTING, SHRINKERS, SPANS, WAIT_KEYS, WAITING_TASKS, WAITS};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Tasks that the table lists where no number is asked for.
const TASKS: usize = 10;

/// Writes the tables of `latency`.
pub(super) fn latency(view: &Spans<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    if view.spans.is_empty() {
        return heading::empty("no span of reclaim, compaction or a shrinker", options, out);
    }
    let of_loss = |row: &SpanRow<'_>| [row.suspect.count, row.unfinished, row.unstarted];
    let is_shown: Vec<bool> = (0..3).map(|column| view.spans.iter().any(|row| of_loss(row)[column] > 0)).collect();
    // Columns of loss stand there where something was lost.
    let place_of_loss = SPANS.len() - is_shown.len();
    let is_shown = |place: usize| place < place_of_loss || is_shown[place - place_of_loss];
    let columns: Vec<Column<'_>> =
        (0..SPANS.len()).filter(|place| is_shown(*place)).map(|place| SPANS[place]).collect();
    let row = |row: &SpanRow<'_>| -> Vec<Cell> {
        let [p50, p90, p99] = row.percentiles.map(cells::duration);
        let classes = [row.classes.stall, row.classes.asked, row.classes.inner, row.classes.background];
        let mut cells = vec![cells::text(&row.span), cells::count(row.count).into()];
        cells.extend(
            [cells::duration(row.total), cells::duration(row.own), p50, p90, p99, cells::duration(row.max)]
                .map(Cell::from),
        );
        cells.extend(classes.into_iter().chain(of_loss(row)).map(|count| Cell::from(cells::count(count))));
        cells.into_iter().enumerate().filter(|(place, _)| is_shown(*place)).map(|(_, cell)| cell).collect()
    };
    let grid = Grid { columns: &columns, ranked: Some("TOTAL"), screen: &options.screen };
    grid.write(|| view.spans.iter().map(row), out)?;
    writeln!(out)?;
    let nested = || {
        view.nesting.iter().map(|row| {
            let (count, total) = (cells::count(row.count), cells::duration(row.total));
            vec![cells::text(&row.span), cells::text(&row.parent), row.class.into(), count.into(), total.into()]
        })
    };
    Grid { columns: &NESTING, ranked: None, screen: &options.screen }.write(nested, out)?;
    if !view.tasks.is_empty() {
        writeln!(out)?;
        let shown = options.top.unwrap_or(TASKS);
        let tasks = || {
            view.tasks.iter().take(shown).map(|row| -> Vec<Cell> {
                let pid = row.pid.map_or("-".to_owned(), |pid| pid.to_string());
                let count = cells::count(row.count);
                vec![
                    cells::text(&row.comm),
                    pid.into(),
                    count.into(),
                    cells::duration(row.total).into(),
                    cells::duration(row.max).into(),
                ]
            })
        };
        Grid { columns: &WAITING_TASKS, ranked: Some("TOTAL"), screen: &options.screen }.write(tasks, out)?;
        let left_out = view.others.as_ref().map_or(0, |others| others.others_count);
        heading::more_rows((view.tasks.len().saturating_sub(shown) + left_out) as u64, options, out)?;
    }
    for row in view.spans.iter().filter(|row| row.classes.stall > 0 && !row.histogram.is_empty()) {
        histogram(row, options, out)?;
    }
    if view.sleeps_without_wake > 0 {
        let sleeps = cells::counted(view.sleeps_without_wake, "sleep");
        heading::text(&format!("\n{sleeps} of kswapd or kcompactd without a wake: normal."), options, out)?;
    }
    Ok(())
}

/// Writes the durations of a kind of span, a line for each power of two.
fn histogram(row: &SpanRow<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    let span = cells::shown(&row.span).unwrap_or_default();
    heading::title(&format!("{span}: durations"), options, out)?;
    let most = row.histogram.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let lines = || {
        row.histogram.iter().map(|bucket| -> Vec<Cell> {
            let bar = cells::bar(bucket.count, most, &options.screen);
            let [from, to] = [bucket.from, bucket.to].map(units::duration);
            vec![from.into(), to.into(), cells::count(bucket.count).into(), bar]
        })
    };
    Grid { columns: &BUCKETS, ranked: None, screen: &options.screen }.write(lines, out).map(drop)
}

/// Name of a function, else its address.
pub(super) fn function(symbol: &Name<'_>, address: Option<Address>) -> Cell {
    let address = || address.map_or("-".to_owned(), |address| address.to_string());
    cells::shown(symbol).unwrap_or_else(address).into()
}

/// Writes the table of `shrinkers`.
pub(super) fn shrinkers(view: &Shrinkers<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    if view.rows.is_empty() && view.others.is_none() {
        return heading::empty("no call of a shrinker", options, out);
    }
    let has_addresses = view.rows.iter().any(|row| row.shrinker.is_some());
    let has_nodes = view.rows.iter().any(|row| row.node.is_some());
    let has_suspects = view.rows.iter().any(|row| row.suspect > 0);
    let is_shown = |column: &Column<'_>| match column.title {
        "ADDRESS" => options.show_addresses && has_addresses,
        "NODE" => has_nodes,
        "SUSPECT" => has_suspects,
        _ => true,
    };
    let places: Vec<usize> = (0..SHRINKERS.len()).filter(|place| is_shown(&SHRINKERS[*place])).collect();
    let columns: Vec<Column<'_>> = places.iter().map(|place| SHRINKERS[*place]).collect();
    let row = |row: ShrinkerRow<'_>| -> Vec<Cell> {
        let [p50, p90, p99] = row.percentiles.map(cells::duration);
        let address = row.shrinker.map_or("-".to_owned(), |shrinker| shrinker.to_string());
        let node = row.node.map_or("-".to_owned(), |node| node.to_string());
        let texts = [
            address,
            node,
            cells::count(row.count),
            cells::duration(row.total),
            cells::duration(row.own),
            p50,
            p90,
            p99,
            cells::duration(row.max),
            row.freed.map_or("-".to_owned(), cells::count),
            cells::count(row.suspect),
        ];
        let all: Vec<Cell> =
            std::iter::once(function(&row.symbol, row.function)).chain(texts.map(Cell::from)).collect();
        all.into_iter().enumerate().filter(|(place, _)| places.contains(place)).map(|(_, cell)| cell).collect()
    };
    let grid = Grid { columns: &columns, ranked: Some("TOTAL"), screen: &options.screen };
    grid.write(|| view.rows.iter().map(row), out)?;
    heading::more_rows(view.others.as_ref().map_or(0, |others| others.others_count as u64), options, out)
}

/// Writes the table of `waits`.
pub(super) fn waits(view: &Waits<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let listing = &view.listing;
    let counts = format!("{}, {} waited.", cells::counted(view.allocs, "allocation"), units::grouped(view.waited));
    heading::text(&counts, options, out)?;
    if view.memcg_stalls > 0 {
        let stalls = cells::counted(view.memcg_stalls, "stall");
        heading::text(
            &format!(
                "{stalls} of memory cgroups: a charge waits in these, no allocation of pages; see the view stalls."
            ),
            options,
            out,
        )?;
    }
    writeln!(out)?;
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation of pages in task context", options, out);
    }
    let place = |key: &WaitBy| match key {
        WaitBy::Site => 0,
        WaitBy::Task => 1,
        WaitBy::Order => 2,
        WaitBy::Gfp => 3,
        WaitBy::Cgroup => 4,
    };
    let keys: Vec<usize> = view.keys.iter().map(place).collect();
    let columns: Vec<Column<'_>> = WAITS.into_iter().chain(keys.iter().map(|place| WAIT_KEYS[*place])).collect();
    let row = |row: WaitRow<'_>| -> Vec<Cell> {
        let site = match (&row.symbol, row.call_site) {
            (symbol, Some(site)) => function(symbol, Some(site)),
            (_, None) => "-".into(),
        };
        let pid = row.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let comm = cells::shown(&row.comm).map_or(String::new(), |comm| format!("{comm}-"));
        let cgroup = cells::shown(&row.cgroup).unwrap_or_else(|| "(unknown)".to_owned());
        let names: [Cell; 5] =
            [site, (comm + &pid).into(), cells::count(row.order).into(), cells::text(&row.gfp), cgroup.into()];
        let figures = [
            cells::count(row.allocs),
            cells::count(row.waited),
            cells::duration(row.p50),
            cells::duration(row.p99),
            cells::duration(row.max),
            cells::duration(row.total),
        ];
        figures.map(Cell::from).into_iter().chain(keys.iter().map(|place| names[*place].clone())).collect()
    };
    let grid = Grid { columns: &columns, ranked: Some("TOTAL"), screen: &options.screen };
    grid.write(|| listing.rows.iter().map(row), out)?;
    heading::more_rows(listing.others.as_ref().map_or(0, |others| others.others_count as u64), options, out)
}

/// Writes the table of `functions`.
pub(super) fn functions(view: &Functions<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    if view.rows.is_empty() && view.others.is_none() {
        return heading::empty("no function was timed", options, out);
    }
    let row = |row: FunctionRow<'_>| -> Vec<Cell> {
        let durations = [row.total, row.p50, row.p90, row.p99, row.max].map(|time| Cell::from(cells::duration(time)));
        let names = [function(&row.symbol, row.function), cells::count(row.count).into()];
        names.into_iter().chain(durations).collect()
    };
    let grid = Grid { columns: &FUNCTIONS, ranked: Some("TOTAL"), screen: &options.screen };
    grid.write(|| view.rows.iter().map(row), out)?;
    heading::more_rows(view.others.as_ref().map_or(0, |others| others.others_count as u64), options, out)
}
