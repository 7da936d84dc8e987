//! Columns and cells of the keys that make rows, and the table of `sites --by`.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::group::{AllocinfoAgreement, FunctionChange, GroupMember, GroupNames, GroupRow, KeyValue};
use kmemtrace::documents::head::QueryMembers;
use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::row::Name;
use kmemtrace::documents::sums::{PrintedStats, ToldStats};
use kmemtrace::documents::text_members::TextMembers;
use kmemtrace::{Figure, GroupKey, Kind, SortKey, SourceLine, Space};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns;
use crate::columns::column::{Column, Holds};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// True for a key whose column another key's columns show, too. The column of call-sites does not show the folder.
fn is_shown_by(key: GroupKey, has: impl Fn(GroupKey) -> bool) -> bool {
    key != GroupKey::Folder && key.entry().part_of.is_some_and(has)
}

/// Columns of the keys of a query.
pub(crate) fn columns(query: &QueryMembers<'_>) -> Vec<Column<'static>> {
    let keys: Vec<GroupKey> = query.by.iter().filter_map(|word| word.parse().ok()).collect();
    let shown = keys.iter().filter(|key| !is_shown_by(**key, |whole| keys.contains(&whole)));
    shown.flat_map(|key| key.entry().columns).map(Column::of_key).collect()
}

fn number(n: Option<impl ToString>) -> Cell {
    n.map_or("-".to_owned(), |n| n.to_string()).into()
}

fn known(name: &Name<'_>, unknown: &str) -> Cell {
    cells::shown(name).unwrap_or(unknown.to_owned()).into()
}

/// Function of a line of source, and the line.
fn source_line(source: &SourceLine) -> Cell {
    let line = cells::source_line(Some(source)).map_or(String::new(), |line| format!("  {line}"));
    format!("{}{line}", escape(&source.function)).into()
}

/// Cells of a row's keys.
pub(crate) fn cells(names: &GroupNames<'_>, kind: Kind, options: &TableOptions) -> Vec<Cell> {
    let shown = names.0.iter().filter(|member| !is_shown_by(member.key, |whole| names.has(whole)));
    shown.flat_map(|member| cells_of(member, kind, options)).collect()
}

/// Cells of a key.
pub(crate) fn cells_of(member: &GroupMember<'_>, kind: Kind, options: &TableOptions) -> Vec<Cell> {
    let unknown = member.key.entry().unknown;
    let cell = match &member.value {
        KeyValue::Site(site) => return vec![cells::site(site, kind), cells::source(&site.place)],
        KeyValue::Task { pid, comm } => return vec![number(*pid), cells::text(comm)],
        KeyValue::Source(source) => source.as_ref().map_or(unknown.into(), source_line),
        KeyValue::Function { function, module } => {
            let mut cell = known(function, unknown);
            if let Some(module) = cells::shown(module) {
                cell.text += &format!(" [{module}]");
            }
            cell
        }
        KeyValue::Cache { cache, candidates, .. } => cells::cache(cache, candidates.as_ref()),
        KeyValue::Module { module, is_known } => known(module, if *is_known { "(kernel)" } else { unknown }),
        KeyValue::Stack(stack) => {
            let text = stack.as_ref().map(|stack| escape(&stack.text()).into_owned());
            text.unwrap_or(unknown.to_owned()).into()
        }
        KeyValue::Gfp { gfp, names } => {
            let flags = gfp.map(|gfp| format!("{gfp:#x}"));
            names.clone().or(flags).unwrap_or(unknown.to_owned()).into()
        }
        KeyValue::Name(name) => known(name, unknown),
        KeyValue::Id(id) => number(*id),
        KeyValue::Number(n) => number(*n),
        KeyValue::Bytes(bytes) => cells::bytes(*bytes, options).into(),
        KeyValue::Word(word) => number(*word),
        KeyValue::Flag(flag) => number(flag.map(|yes| if yes { "yes" } else { "no" })),
    };
    vec![cell]
}

/// Cells of a row's keys; its call site has the allocator behind it that the memory came through.
pub(crate) fn cells_through(
    names: &GroupNames<'_>,
    kind: Kind,
    text: &TextMembers,
    options: &TableOptions,
) -> Vec<Cell> {
    let shown = names.0.iter().filter(|member| !is_shown_by(member.key, |whole| names.has(whole)));
    let cells = shown.flat_map(|member| {
        let mut cells = cells_of(member, kind, options);
        if let (KeyValue::Site(_), Some(site)) = (&member.value, cells.first_mut()) {
            site.text += cells::through(text);
        }
        cells
    });
    cells.collect()
}

/// Cells of the row that sums up those left out.
pub(crate) fn other_cells(columns: &[Column<'_>], rows: usize) -> Vec<Cell> {
    text_cells(columns, &figures::others_text(rows))
}

/// Cells of a row that has a text in place of its keys.
pub(crate) fn text_cells(columns: &[Column<'_>], text: &str) -> Vec<Cell> {
    let at = columns.iter().rposition(|column| column.holds == Holds::Site);
    let at = at.unwrap_or(columns.len().saturating_sub(1));
    (0..columns.len()).map(|index| if index == at { text.into() } else { Cell::default() }).collect()
}

/// Writes the table of `sites` for a grouping other than the call-site.
pub(crate) fn groups<'a>(
    head: &Head<'_>,
    listing: &Listing<'a, GroupRow<'a>, ToldStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let keys = columns(&head.query);
    if head.trace.input == "page_owner" {
        return blocks(&keys, listing, options, out);
    }
    let has_allocinfo = options.allocinfo.is_some();
    if let Some(of) = options.allocinfo {
        heading::text(&agreement(of), options, out)?;
        writeln!(out)?;
    }
    let more = has_allocinfo.then_some(columns::ALLOCINFO[0]);
    let columns: Vec<Column<'static>> = columns::FIGURES.into_iter().chain(more).chain(keys.iter().copied()).collect();
    let row = |row: GroupRow<'_>| {
        let figures = figures::sums(&row.stats, row.kind.name(), options).into_iter();
        let change =
            has_allocinfo.then(|| change_of(&row).map_or("-".to_owned(), |n| cells::change(n, options)).into());
        figures.chain(change).chain(cells_through(&row.names, row.kind, &row.text, options)).collect::<Vec<Cell>>()
    };
    let others = || {
        figures::other_rows(listing.others.as_ref(), options).map(|(sums, rows)| {
            let change = has_allocinfo.then(|| "-".into());
            sums.into_iter().chain(change).chain(other_cells(&keys, rows)).collect::<Vec<Cell>>()
        })
    };
    let grid = Grid { columns: &columns, ranked: figures::ranked(&columns, options.ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others()), out)?;
    heading::footer(notes, options, out)
}

/// Change of a row's function by allocinfo.
fn change_of(row: &GroupRow<'_>) -> Option<i64> {
    match row.allocinfo {
        FunctionChange::Change(change) => change,
        FunctionChange::NoMember => None,
    }
}

/// How far the functions of `/proc/allocinfo` and the events agree.
fn agreement(of: AllocinfoAgreement) -> String {
    format!(
        "ALLOCINFO of {} of {} differs from the live bytes by more than 1% and 64 KiB. Among the causes are lines of inlined \
         functions, memory without events, memory older than the recording, and counters of other CPUs.",
        cells::count(of.differing),
        cells::counted(of.functions, "function"),
    )
}

/// Writes the table of groups of blocks of page_owner.
fn blocks<'a>(
    keys: &[Column<'static>],
    listing: &Listing<'a, GroupRow<'a>, ToldStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sums = |stats: &PrintedStats| columns::BLOCKS.map(|column| figures::cell(&column, stats, "", options)).to_vec();
    let columns: Vec<Column<'static>> = columns::BLOCKS.into_iter().chain(keys.iter().copied()).collect();
    let row = |row: GroupRow<'_>| {
        let names = cells_through(&row.names, row.kind, &row.text, options);
        sums(&row.stats).into_iter().chain(names).collect::<Vec<Cell>>()
    };
    let others = listing.others.iter().filter_map(|others| {
        let figures = sums(others.sums.told().find(|(space, _)| *space == Space::Pages)?.1).into_iter();
        Some(figures.chain(other_cells(keys, others.others_count)).collect::<Vec<Cell>>())
    });
    let others: Vec<Vec<Cell>> = others.collect();
    // All blocks of such a text are held.
    let by = options.ranked.map(|by| match by {
        SortKey::Figure(Figure::Allocs) => SortKey::Figure(Figure::LiveObjects),
        by => by,
    });
    let ranked = figures::ranked(&columns, by);
    let grid = Grid { columns: &columns, ranked, screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others.iter().cloned()), out)?;
    heading::footer(notes, options, out)
}
