//! The table: the columns that the width has room for, and the rows around the chosen one.

use std::ops::Range;

use kmemtrace::live::{LiveGroup, LiveRow};

use super::state::Sort;
use super::tree::{Fold, Shown};
use super::view::{Paint, Pen, ScreenView, WIDE};
use super::{figures, who};
use crate::render::cut;

/// Column of figures.
struct FigureColumn {
    title: String,
    width: usize,
    sort: Option<Sort>,
    figure: fn(&LiveRow) -> String,
}

/// Depth from which on nodes of a tree stand below each other.
const MOST_DEPTH: u16 = 12;
/// Width of the origin of objects beside their call-site.
const ORIGIN: usize = 14;

/// Columns of figures at a width.
fn columns(view: ScreenView<'_>, width: u16) -> Vec<FigureColumn> {
    let column = |title: &str, width, sort, figure| FigureColumn { title: title.to_owned(), width, sort, figure };
    let title = figures::window(view.state.window()).replace("min", "m");
    let growth_width = if width < WIDE { 7 } else { 8 };
    let growth = column(&format!("+{title}"), growth_width, Some(Sort::Growth), |row| figures::change(row.growth));
    let live = column("LIVE", 9, Some(Sort::Live), |row| figures::bytes(row.live));
    let peak = column("PEAK", 9, Some(Sort::Peak), |row| figures::bytes(row.peak));
    let pages = column("PAGES", 9, None, |row| row.pages.map_or("-".to_owned(), figures::number));
    let objects = column("OBJS", 8, None, |row| figures::number(row.objects));
    if view.is_still() {
        return vec![
            column("LIVE", 9, Some(Sort::Live), |row| told(row.live, figures::bytes)),
            column("PAGES", 9, None, |row| told(row.pages.unwrap_or(0), figures::number)),
            column("OBJS", 8, None, |row| told(row.objects, figures::number)),
        ];
    }
    if width < WIDE {
        if view.state.group == LiveGroup::Stacks {
            return vec![growth, live, peak];
        }
        return vec![growth, live, peak, column("NOW/s", 8, None, |row| figures::change_now(row.growth_now))];
    }
    vec![
        growth,
        column("SINCE MARK", 12, Some(Sort::SinceMark), |row| row.since_mark.map_or("-".to_owned(), figures::change)),
        live,
        peak,
        pages,
        objects,
        column("WASTED", 9, Some(Sort::Wasted), |row| figures::bytes(row.wasted)),
        column("ALLOC/s", 9, Some(Sort::Allocs), |row| figures::number(row.allocs_now)),
        column("FREE/s", 8, None, |row| figures::number(row.frees_now)),
        column("XCPU", 6, Some(Sort::CrossCpu), |row| figures::percent(row.cross_cpu, row.frees)),
        column("AGE50", 7, None, |row| row.median_age.map_or("-".to_owned(), figures::age)),
    ]
}

/// Figure of a text of one moment. Every row of one has pages and objects: where there are 0 the text does not tell them.
fn told(figure: u64, text: fn(u64) -> String) -> String {
    if figure == 0 { "-".to_owned() } else { text(figure) }
}

/// Draws heading and rows; returns the number of rows that there is room for.
pub(super) fn draw(view: ScreenView<'_>, pen: &mut Pen<'_>, lines: Range<u16>) -> usize {
    let width = pen.area().width;
    let columns = columns(view, width);
    heading(view, pen, &columns, lines.start);
    let rows = view.state.rows(view.snapshot);
    let first_line = lines.start + 1;
    let room = usize::from(lines.end.saturating_sub(first_line));
    if rows.is_empty() {
        pen.put(2, first_line + 1, &nothing(view), Paint::Plain);
        return room;
    }
    let chosen = view.state.chosen_index(&rows);
    let first =
        view.state.first_row.min(chosen).max((chosen + 1).saturating_sub(room)).min(rows.len().saturating_sub(room));
    for ((index, row), y) in rows.iter().enumerate().skip(first).take(room).zip(first_line..) {
        let is_chosen = index == chosen;
        let others = rows.len() - (first + room).min(rows.len());
        let others = if index + 1 == first + room { others } else { 0 };
        draw_row(view, pen, &columns, y, row, (is_chosen, others));
    }
    room
}

fn heading(view: ScreenView<'_>, pen: &mut Pen<'_>, columns: &[FigureColumn], y: u16) {
    let order = if view.state.is_reversed { "^" } else { "v" };
    let mark = |sort: Option<Sort>| if sort == Some(view.state.sort) { order } else { "" };
    let mut x = 0;
    for column in columns {
        let text = format!("{}{}", column.title, mark(column.sort));
        pen.put(x, y, &format!("{text:>width$}", width = column.width), Paint::Strong);
        x += column.width as u16;
    }
    pen.put(x + 2, y, format!("WHO {}", mark(Some(Sort::Name))).trim_end(), Paint::Strong);
}

/// Words in place of rows.
fn nothing(view: ScreenView<'_>) -> String {
    if !view.state.is_answered_by(view.snapshot) {
        return String::new();
    }
    let has_rows = view.snapshot.rows.iter().any(|row| row.allocs > 0);
    if view.snapshot.selected.is_some() && !has_rows {
        return "the filter takes no live object; / and Esc clear it".to_owned();
    }
    if has_rows {
        return format!("the filter takes none of {} rows; / and Esc clear it", view.snapshot.rows.len());
    }
    // Time begins with the first event.
    if view.snapshot.elapsed == 0 {
        return "no event yet; what was allocated before is not seen".to_owned();
    }
    let since = &figures::moment(view.snapshot.elapsed)[1..];
    format!("nothing allocated in the first {since}; what was there before is not seen")
}

/// Draws a row; `others` is the number of rows below that are not shown.
fn draw_row(
    view: ScreenView<'_>,
    pen: &mut Pen<'_>,
    columns: &[FigureColumn],
    y: u16,
    row: &Shown<'_>,
    (is_chosen, others): (bool, usize),
) {
    let width = usize::from(pen.area().width);
    let mut line: String =
        columns.iter().map(|column| format!("{:>width$}", (column.figure)(row), width = column.width)).collect();
    line += if is_chosen { " >" } else { "  " };
    if let Some(place) = row.place {
        line += &branch(place.depth, place.fold);
    }
    let mut end = if others > 0 { format!("({others} others)") } else { String::new() };
    let origin = who::origin(row);
    let room = width.saturating_sub(line.chars().count());
    if end.is_empty() && !origin.is_empty() && room > 2 * ORIGIN {
        end = cut::middle(&origin, ORIGIN - 1, cut_mark(view));
        end = format!("{end:<width$}", width = ORIGIN - 1);
    }
    let gap = usize::from(!end.is_empty());
    let name_room = room.saturating_sub(end.chars().count() + gap);
    let name = cut::site(&who::name(&row.name), name_room, cut_mark(view));
    line += &name;
    let blanks = name_room.saturating_sub(cut::width(&name)) + gap;
    line += &" ".repeat(blanks);
    line += &end;
    pen.put(0, y, &line, if is_chosen { Paint::Chosen } else { Paint::Plain });
}

/// Blanks before a node of a tree, and its mark.
fn branch(depth: u16, fold: Fold) -> String {
    // Far nodes would leave their names no room.
    let blanks = usize::from(depth.min(MOST_DEPTH)) * 2;
    let mark = match fold {
        Fold::Open => "- ",
        Fold::Closed => "+ ",
        Fold::Leaf => "  ",
    };
    format!("{:blanks$}{mark}", "")
}

/// Mark in place of characters that were cut.
pub(super) fn cut_mark(view: ScreenView<'_>) -> char {
    if view.look.is_unicode { '…' } else { '~' }
}
