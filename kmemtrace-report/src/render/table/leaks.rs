//! Lines of `leaks`: a group a line, or with `--parts` a table of its rows.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::group::{GroupNames, KeyValue};
use kmemtrace::documents::leaks::{LeakGroup, LeakRow, LeaksBody};
use kmemtrace_abi::text::units;

use super::options::TableOptions;
use super::{cells, groups, heading};
use crate::columns::LEAK_PARTS;
use crate::columns::column::Column;
use crate::render::cut;
use crate::render::grid::cell::{Cell, Notes};
use crate::render::grid::{Grid, cut_cell};
use crate::terminal::screen::Paint;

/// Blanks between two parts of a line.
const BETWEEN: usize = 3;
/// Width of the verdict.
const VERDICT: usize = 5;

/// Writes the groups, or the rows of each.
pub(crate) fn leaks(
    head: &Head<'_>,
    view: &LeaksBody<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if view.groups.is_empty() {
        return match view.is_judged() || options.missing.is_some() {
            true => heading::empty("no memory grows steadily", options, out),
            // The heading has the reason.
            false => Ok(()),
        };
    }
    if options.shows_parts {
        return parts(head, view, options, out);
    }
    let shown = &view.groups[..view.groups.len().saturating_sub(view.other_groups)];
    let lines: Vec<Line> = shown.iter().map(|group| Line::of(group, options)).collect();
    let widths = widths(&lines);
    let whole = widths.iter().sum::<usize>() + (widths.len() - 1) * BETWEEN;
    let fits = options.screen.width.is_none_or(|width| whole <= width);
    let mut notes = Notes::default();
    for line in &lines {
        notes |= line.notes;
        line.write(fits.then_some(&widths), options, out)?;
    }
    if view.other_groups > 0 {
        heading::text(&format!("({}: --top N)", cells::counted(view.other_groups as u64, "more group")), options, out)?;
    }
    heading::footer(notes, options, out)
}

/// The line of a group, as `summary` has it, too.
pub(crate) fn line(group: &LeakGroup<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    Line::of(group, options).write(None, options, out)
}

/// Parts of a line: verdict, names, call-sites, rate, and bytes.
struct Line {
    parts: [String; 5],
    notes: Notes,
}

fn widths(lines: &[Line]) -> [usize; 5] {
    let mut widths = [0; 5];
    for line in lines {
        widths.iter_mut().zip(&line.parts).for_each(|(width, part)| *width = cut::width(part).max(*width));
    }
    widths
}

impl Line {
    fn of(group: &LeakGroup<'_>, options: &TableOptions) -> Line {
        let most = &group.most;
        let (name, site) = names(&most.names, most, options);
        let bound = |text: String| cells::upper(most.live_is_upper_bound, text);
        let objects = bound(cells::count(most.live_objects));
        let others = group.call_sites.saturating_sub(1) as u64;
        let others =
            if others > 0 { format!(" and {}", cells::counted(others, "more call site")) } else { String::new() };
        // Without call-sites two groups may differ in their kind alone.
        let site_text = if site.text.is_empty() {
            format!("objects of {}", most.kind.name())
        } else {
            format!("x {}", cut_cell(site.text.as_str().into()).text)
        };
        let bytes = bound(cells::bytes(group.sums.live_allocated, options));
        let growth = group
            .bytes_rate
            .map_or(String::new(), |rate| format!(", +{}/s", cells::bytes(rate.round() as u64, options)));
        let rate = most.rate.map_or(String::new(), |rate| format!("{}/s, ", decimal(rate.0)));
        let mut notes = site.notes;
        notes |= objects.notes;
        Line {
            parts: [
                format!("{:VERDICT$}", group.verdict.unwrap_or("-")),
                cut_cell(name.into()).text,
                format!("{} {site_text}{others}", objects.text),
                format!("{rate}{}", freed(group)),
                format!("{}{growth}", bytes.text),
            ],
            notes,
        }
    }

    /// Writes the line: in columns of these widths, else broken between its parts where the screen ends.
    fn write(&self, widths: Option<&[usize; 5]>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
        let parts: Vec<String> = match widths {
            Some(widths) => {
                let padded = |(part, width): (&String, &usize)| {
                    part.clone() + &" ".repeat(width.saturating_sub(cut::width(part)))
                };
                self.parts.iter().zip(widths).filter(|(_, width)| **width > 0).map(padded).collect()
            }
            None => self.parts.iter().filter(|part| !part.is_empty()).cloned().collect(),
        };
        let verdict = self.parts[0].trim_end();
        let paint = match verdict {
            "leak" => Paint::Bad,
            "maybe" => Paint::Warning,
            _ => Paint::Faint,
        };
        let wrapped = heading::parts_behind(&parts, VERDICT + BETWEEN, options);
        let rest = wrapped.strip_prefix(verdict).unwrap_or_default();
        writeln!(out, "{}{}", options.screen.paint(paint, verdict), rest.trim_end())
    }
}

/// Names of a row but its call-site, and its call-site.
fn names(names: &GroupNames<'_>, row: &LeakRow<'_>, options: &TableOptions) -> (String, Cell) {
    let mut site = Cell::default();
    let mut texts = Vec::new();
    for member in &names.0 {
        match &member.value {
            KeyValue::Site(of) => site = cells::site(of, row.kind),
            KeyValue::Task { pid: None, comm: None } => texts.push("any task".to_owned()),
            KeyValue::Task { pid: None, comm } => texts.push(format!("{}, any task", cells::text(comm).text)),
            KeyValue::Task { pid: Some(pid), comm } => {
                let state = match row.task_alive {
                    Some(true) => " (runs)",
                    Some(false) => " (ended)",
                    None => "",
                };
                texts.push(format!("{} {pid}{state}", cells::text(comm).text));
            }
            _ => texts.extend(groups::cells_of(member, row.kind, options).into_iter().map(|cell| cell.text)),
        }
    }
    texts.retain(|text| !text.is_empty());
    (texts.join(" "), site)
}

/// Share of the allocations of a group that was freed.
fn freed(group: &LeakGroup<'_>) -> String {
    let freed = group.sums.allocs.saturating_sub(group.sums.live_objects);
    match freed {
        0 => "none freed".to_owned(),
        freed => format!("{} freed", units::percent(freed, group.sums.allocs)),
    }
}

/// Number with a digit behind the point, with two where it is small.
fn decimal(number: f64) -> String {
    if number < 0.095 { format!("{number:.2}") } else { format!("{number:.1}") }
}

/// Writes a row for each row of the groups.
fn parts(head: &Head<'_>, view: &LeaksBody<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let keys = groups::columns(&head.query);
    let columns: Vec<Column<'_>> = LEAK_PARTS.into_iter().chain(keys.iter().copied()).collect();
    let row = |row: LeakRow<'_>| {
        let born: Vec<String> = row.born.iter().map(u64::to_string).collect();
        let bound = |text: String| cells::upper(row.live_is_upper_bound, text);
        let kept = units::percent(row.live_objects, row.allocs);
        let figures: [Cell; LEAK_PARTS.len()] = [
            row.group.map_or("-".to_owned(), |group| group.to_string()).into(),
            row.verdict.unwrap_or("-").into(),
            row.kind.name().into(),
            born.join(" ").into(),
            cells::count(row.allocs).into(),
            kept.into(),
            row.rate.map_or("-".to_owned(), |rate| decimal(rate.0)).into(),
            bound(cells::count(row.live_objects)),
            row.bytes_rate.map_or("-".to_owned(), |rate| cells::bytes(rate.0.round() as u64, options)).into(),
            cells::reclaimed(row.reclaimable, bound(cells::bytes(row.live_allocated, options))),
        ];
        figures.into_iter().chain(groups::cells(&row.names, row.kind, options)).collect::<Vec<Cell>>()
    };
    let grid = Grid { columns: &columns, ranked: None, screen: &options.screen };
    let notes = grid.write(|| view.listing.rows.iter().map(row), out)?;
    let others = view.listing.others.as_ref().map_or(0, |others| others.others_count as u64);
    heading::more_rows(others, options, out)?;
    heading::footer(notes, options, out)
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn small_rates_have_two_digits() {
        assert_eq!([0.0, 0.016, 0.0949, 0.1, 1.0, 12.34].map(decimal), ["0.00", "0.02", "0.09", "0.1", "1.0", "12.3"]);
    }
}
