//! Table of `compare`: two traces, or two windows of one, side by side.

use kmemtrace::{Kind, Space};
use std::io::{self, Write};

use kmemtrace::documents::compare::{CompareBody, CompareNames, CompareRow, Sides};
use kmemtrace::documents::sums::PrintedStats;

use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, groups, heading};
use crate::columns::COMPARE;
use crate::columns::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

fn name(names: &CompareNames<'_>, options: &TableOptions) -> Cell {
    match names {
        CompareNames::Part { part } => (*part).into(),
        CompareNames::Common(names) => {
            let keys = groups::cells(names.names(), Kind::Kmalloc, options).into_iter().map(|cell| cell.text);
            let frames =
                names.stack().map(|stack| stack.iter().map(|frame| escape(frame).into_owned()).collect::<Vec<_>>());
            let stack =
                frames.map(|frames| if frames.is_empty() { "(no stack)".to_owned() } else { frames.join(" < ") });
            let parts: Vec<String> = keys.filter(|text| !text.is_empty()).chain(stack).collect();
            parts.join("  ").into()
        }
        CompareNames::Cache { cache } => cells::shown(cache).unwrap_or("(no name)".to_owned()).into(),
        CompareNames::Function { function, module, call_site } => {
            let mut text = match (cells::shown(function), call_site) {
                (Some(function), _) => function,
                (None, Some(site)) if site.0 == 0 => "(no call-site)".to_owned(),
                (None, Some(site)) => site.to_string(),
                (None, None) => "-".to_owned(),
            };
            if let Some(module) = cells::shown(module) {
                text += &format!(" [{module}]");
            }
            text.into()
        }
    }
}

fn sides(sides: &Sides, kind: &str, name: Cell, options: &TableOptions) -> Vec<Cell> {
    let (before, after) = (&sides.before, &sides.after);
    let is_there = |side: &PrintedStats| !side.is_empty();
    let seen = match (is_there(before), is_there(after)) {
        (false, true) => "new",
        (true, false) => "gone",
        _ => "",
    };
    let rate = sides.per_second.map(|rates| (rates.allocated[1] - rates.allocated[0]) as i64);
    let change = |change: Option<i64>| change.map_or("-".to_owned(), |change| cells::change(change, options));
    let live = |figures: &PrintedStats| {
        cells::upper(figures.live_is_upper_bound, cells::bytes(figures.live_allocated, options))
    };
    vec![
        kind.into(),
        seen.into(),
        sides.change.allocs.map_or("-".to_owned(), cells::signed).into(),
        change(sides.change.allocated).into(),
        rate.map_or("-".to_owned(), |rate| cells::change(rate, options)).into(),
        live(before),
        live(after),
        change(sides.change.live_allocated).into(),
        name,
    ]
}

/// True for a row of zeros. Texts such as slabinfo list caches that nobody uses.
fn is_zero(sides: &Sides) -> bool {
    let told = [&sides.before, &sides.after]
        .map(|side| [side.live_allocated, side.live_objects, side.live_pages, side.allocs])
        .into_iter()
        .flatten()
        .flatten();
    told.clone().next().is_some() && told.clone().all(|n| n == 0)
}

/// True where one side is longer than the other by more than 5%.
fn differ_in_length(view: &CompareBody<'_>) -> bool {
    matches!((view.before.seconds, view.after.seconds), (Some(a), Some(b)) if (a - b).abs() > 0.05 * a)
}

/// What makes sums of the two sides differ beside what the kernel did.
fn unlike(view: &CompareBody<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let is_of_events = view.before.trace.text.is_none() && view.after.trace.text.is_none();
    if differ_in_length(view) && is_of_events {
        lines.push("One side is longer: TOTAL/S compares bytes a second.".to_owned());
    }
    if matches!((view.before.trace.begun, view.after.trace.begun), (Some(before), Some(after)) if before > after) {
        lines.push("The side before was recorded after the other one: they may be exchanged.".to_owned());
    }
    let one_sided = view.totals.iter().filter(|(_, sum)| is_of_events && sum.before.is_empty() != sum.after.is_empty());
    for (space, sum) in one_sided {
        let side = if sum.before.is_empty() { "after" } else { "before" };
        lines.push(format!(
            "Only {side} has events of {}: the other may have been recorded without them.",
            space.name()
        ));
    }
    lines
}

/// Writes the table of `compare`.
pub(crate) fn compare(view: &CompareBody<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let listing = &view.listing;
    let titles = options.title_before.as_ref().map(|before| [before, &options.title]);
    let has_hosts = view.before.trace.host != view.after.trace.host;
    for (word, side, of) in [("before", &view.before, 0), ("after", &view.after, 1)] {
        let title = titles.map_or(String::new(), |titles| format!("{}   ", titles[of]));
        let kernel = side.trace.kernel.map_or(String::new(), |kernel| format!("   Linux {}", cells::plain(kernel)));
        let host = side.trace.host.filter(|_| has_hosts);
        let host = host.map_or(String::new(), |host| format!("   host {}", cells::plain(host)));
        let seconds = side.seconds.map_or("unknown time".to_owned(), |seconds| format!("{seconds:.3} s"));
        let verdict = side.completeness.verdict.to_uppercase();
        heading::text(&format!("{word:<6}  {title}{verdict}   {seconds}{kernel}{host}"), options, out)?;
    }
    for line in unlike(view) {
        heading::text(&line, options, out)?;
    }
    writeln!(out)?;
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("neither side has an allocation", options, out);
    }
    let filled = view.totals.iter().find(|(_, sum)| !sum.before.is_empty() || !sum.after.is_empty());
    let (space, sum) = filled.unwrap_or((Space::Slab, &view.totals.slab));
    if let Some(by) = sum.change.live_allocated {
        let percent = match sum.before.live_allocated {
            None | Some(0) => String::new(),
            Some(before) => format!(" ({:+.1}%)", by as f64 * 100.0 / before as f64),
        };
        let of = if space == Space::Slab { "kmalloc and cache" } else { space.name() };
        heading::text(&format!("live bytes of {of}: {}{percent}", cells::change(by, options)), options, out)?;
    }
    writeln!(out)?;
    let row =
        |row: CompareRow<'_>| sides(&row.sides, row.kind.map_or("-", Kind::name), name(&row.names, options), options);
    let is_shown = |space: Space, sum: &Sides| {
        let is_always = space == Space::Slab && !options.screen.is_of_text;
        is_always || !sum.before.is_empty() || !sum.after.is_empty()
    };
    let rest = listing.others.iter().flat_map(|others| {
        let text = figures::others_text(others.others_count);
        let shown = others.sums.iter().filter(|(space, sum)| is_shown(*space, sum));
        shown
            .map(|(space, sum)| sides(sum, figures::kind_of_sum(space), text.clone().into(), options))
            .collect::<Vec<_>>()
    });
    let totals = view.totals.iter().filter(|(space, sum)| is_shown(*space, sum));
    let totals = totals.map(|(space, sum)| match space {
        Space::Slab => sides(sum, "total", "(kmalloc and cache)".into(), options),
        space => sides(sum, space.name(), "(all)".into(), options),
    });
    let rest: Vec<Vec<Cell>> = rest.chain(totals).collect();
    let differ = differ_in_length(view);
    // A text of one moment has objects, and no allocations of before.
    let is_of_texts = view.before.trace.text.is_some();
    let is_shown = |column: &Column<'_>| match column.title {
        "TOTAL/S +/-" => differ && !is_of_texts,
        "TOTAL +/-" => !is_of_texts,
        _ => true,
    };
    let titled = |column: Column<'static>| match column.title {
        "ALLOCS +/-" if is_of_texts => column.titled("OBJECTS +/-"),
        _ => column,
    };
    let columns: Vec<Column<'_>> = COMPARE.into_iter().filter(is_shown).map(titled).collect();
    let shown = |cells: Vec<Cell>| -> Vec<Cell> {
        COMPARE.iter().zip(cells).filter(|(column, _)| is_shown(column)).map(|(_, cell)| cell).collect()
    };
    let grid = Grid { columns: &columns, ranked: Some("LIVE +/-"), screen: &options.screen };
    let rows =
        || listing.rows.iter().filter(|row| !is_zero(&row.sides)).map(row).chain(rest.iter().cloned()).map(shown);
    let notes = grid.write(rows, out)?;
    heading::footer(notes, options, out)
}
