//! Columns and cells of the keys that make rows, and the table of `sites --by`.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::group::{GroupMember, GroupNames, GroupRow};
use kmemtrace::documents::head::QueryMembers;
use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::row::Name;
use kmemtrace::documents::sums::{PrintedStats, ToldStats};
use kmemtrace::{GroupKey, Kind, SortKey, SourceLine, Space};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::column::{Column, Holds};
use crate::columns::{
    self, KEY_ALLOCATOR, KEY_AREA, KEY_CACHE, KEY_COMM, KEY_CONTEXT, KEY_FILE, KEY_FOLDER, KEY_FUNCTION, KEY_GFP,
    KEY_MODULE, KEY_NODE, KEY_ORDER, KEY_PID, KEY_RELEASED, KEY_SITE, KEY_SIZE, KEY_SOURCE, KEY_SOURCE_LINE, KEY_STACK,
    KEY_TGID, KEY_USE,
};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Columns of the keys of a query.
pub(crate) fn columns(query: &QueryMembers<'_>) -> Vec<Column<'static>> {
    let keys: Vec<GroupKey> = query.by.iter().filter_map(|word| word.parse().ok()).collect();
    let has = |key: GroupKey| keys.contains(&key);
    let columns = keys.iter().flat_map(|key| match key {
        GroupKey::Site => vec![KEY_SITE, KEY_SOURCE],
        // The call-site shows its source.
        GroupKey::Source if has(GroupKey::Site) => vec![],
        GroupKey::Source => vec![KEY_SOURCE_LINE],
        GroupKey::Function => vec![KEY_FUNCTION],
        GroupKey::File => vec![KEY_FILE],
        GroupKey::Folder => vec![KEY_FOLDER],
        GroupKey::Area => vec![KEY_AREA],
        GroupKey::Task => vec![KEY_PID, KEY_COMM],
        GroupKey::Pid if has(GroupKey::Task) => vec![],
        GroupKey::Comm if has(GroupKey::Task) => vec![],
        // The call-site shows its module.
        GroupKey::Module if has(GroupKey::Site) => vec![],
        GroupKey::Pid => vec![KEY_PID],
        GroupKey::Tgid => vec![KEY_TGID],
        GroupKey::Comm => vec![KEY_COMM],
        GroupKey::Cache => vec![KEY_CACHE],
        GroupKey::Module => vec![KEY_MODULE],
        GroupKey::Stack => vec![KEY_STACK],
        GroupKey::Use => vec![KEY_USE],
        GroupKey::Order => vec![KEY_ORDER],
        GroupKey::Size => vec![KEY_SIZE],
        GroupKey::Gfp => vec![KEY_GFP],
        GroupKey::Node => vec![KEY_NODE],
        GroupKey::Context => vec![KEY_CONTEXT],
        GroupKey::Allocator => vec![KEY_ALLOCATOR],
        GroupKey::Released => vec![KEY_RELEASED],
    });
    columns.collect()
}

fn number(n: Option<impl ToString>) -> Cell {
    n.map_or("-".to_owned(), |n| n.to_string()).into()
}

fn known(name: &Name<'_>, unknown: &str) -> Cell {
    cells::shown(name).unwrap_or(unknown.to_owned()).into()
}

/// Function of a line of source, and the line.
fn source_line(source: Option<&SourceLine>) -> Cell {
    let Some(source) = source else { return "(no source known)".into() };
    let line = cells::source_line(Some(source)).map_or(String::new(), |line| format!("  {line}"));
    format!("{}{line}", escape(&source.function)).into()
}

/// Cells of a row's keys.
pub(crate) fn cells(names: &GroupNames<'_>, kind: Kind, options: &TableOptions) -> Vec<Cell> {
    let has_site = names.0.iter().any(|member| matches!(member, GroupMember::Site(_)));
    let has_task = names.0.iter().any(|member| matches!(member, GroupMember::Task { .. }));
    let cells = names.0.iter().flat_map(|member| match member {
        GroupMember::Site(site) => vec![cells::site(site, kind), cells::source(&site.place)],
        GroupMember::Source(_) if has_site => vec![],
        GroupMember::Source(source) => vec![source_line(source.as_ref())],
        GroupMember::Function { function, module } => {
            let mut cell = known(function, "(no function known)");
            if let Some(module) = cells::shown(module) {
                cell.text += &format!(" [{module}]");
            }
            vec![cell]
        }
        GroupMember::File(name) => vec![known(name, "(no file known)")],
        GroupMember::Folder(name) => vec![known(name, "(no folder known)")],
        GroupMember::Area(name) => vec![known(name, "(no area known)")],
        GroupMember::Task { pid, comm } => vec![number(*pid), cells::text(comm)],
        GroupMember::Pid(_) | GroupMember::Comm(_) if has_task => vec![],
        GroupMember::Module { .. } if has_site => vec![],
        GroupMember::Pid(number_of) | GroupMember::Tgid(number_of) => vec![number(*number_of)],
        GroupMember::Comm(comm) => vec![cells::text(comm)],
        GroupMember::Cache { cache, candidates, .. } => vec![cells::cache(cache, candidates.as_ref())],
        GroupMember::Module { module, is_known } => {
            vec![known(module, if *is_known { "(kernel)" } else { "(unknown)" })]
        }
        GroupMember::Stack(stack) => {
            let text = stack.as_ref().map(|stack| escape(&stack.text()).into_owned());
            vec![text.unwrap_or("(no stack)".to_owned()).into()]
        }
        GroupMember::Use(name) => vec![known(name, "-")],
        GroupMember::Order(order) => vec![number(*order)],
        GroupMember::Size(size) => vec![cells::bytes(*size, options).into()],
        GroupMember::Gfp { gfp, names } => {
            let flags = gfp.map(|gfp| format!("{gfp:#x}"));
            vec![names.clone().or(flags).unwrap_or("-".to_owned()).into()]
        }
        GroupMember::Node(node) => vec![number(*node)],
        GroupMember::Context(context) => vec![number(*context)],
        GroupMember::Allocator(name) => vec![known(name, "-")],
        GroupMember::Released(released) => vec![number(released.map(|yes| if yes { "yes" } else { "no" }))],
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
    if head.trace.one_moment {
        return blocks(&keys, listing, options, out);
    }
    let columns: Vec<Column<'_>> = columns::FIGURES.into_iter().chain(keys.iter().copied()).collect();
    let row = |row: GroupRow<'_>| {
        let figures = figures::sums(&row.stats, row.kind.name(), options);
        figures.into_iter().chain(cells(&row.names, row.kind, options)).collect::<Vec<Cell>>()
    };
    let others = || {
        figures::other_rows(listing.others.as_ref(), options)
            .map(|(sums, rows)| sums.into_iter().chain(other_cells(&keys, rows)).collect::<Vec<Cell>>())
    };
    let grid = Grid { columns: &columns, ranked: options.ranked.and_then(figures::ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others()), out)?;
    heading::footer(notes, options, out)
}

/// Writes the table of groups of blocks of page_owner.
fn blocks<'a>(
    keys: &[Column<'_>],
    listing: &Listing<'a, GroupRow<'a>, ToldStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sums = |stats: &PrintedStats| -> Vec<Cell> {
        let (blocks, pages) = (cells::count(stats.live_objects), cells::count(stats.live_pages));
        vec![blocks.into(), pages.into(), cells::bytes(stats.live_allocated, options).into()]
    };
    let columns: Vec<Column<'_>> = columns::BLOCKS.into_iter().chain(keys.iter().copied()).collect();
    let row = |row: GroupRow<'_>| {
        sums(&row.stats).into_iter().chain(cells(&row.names, row.kind, options)).collect::<Vec<Cell>>()
    };
    let others = listing.others.iter().filter_map(|others| {
        let figures = sums(others.sums.told().find(|(space, _)| *space == Space::Pages)?.1).into_iter();
        Some(figures.chain(other_cells(keys, others.others_count)).collect::<Vec<Cell>>())
    });
    let others: Vec<Vec<Cell>> = others.collect();
    let ranked =
        if options.ranked == Some(SortKey::Allocs) { Some("BLOCKS") } else { options.ranked.and_then(figures::ranked) };
    let grid = Grid { columns: &columns, ranked, screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others.iter().cloned()), out)?;
    heading::footer(notes, options, out)
}
