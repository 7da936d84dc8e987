//! Grid: rows of cells under their headings, as wide as the screen allows.

pub(crate) mod cell;
pub(crate) mod fit;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

use super::cut;
use crate::columns::column::{Column, Holds, Shows};
use crate::terminal::screen::{Paint, Screen};
use cell::{Cell, Notes};
use fit::{Need, fit};

/// Rows laid out together.
const AT_ONCE: usize = 512;
/// Blanks on both sides of a cell.
const PADDING: usize = 2;
/// Length limit of a cell, in characters. The layout library counts columns in 16 bits, and a character takes up to
/// three columns. Kernel names fit: a symbol of 512 bytes, each written as `\xNN`, takes 2,048.
const MAX_CHARACTERS: usize = 4096;
/// Mark at the end of a cell that exceeds it.
const CUT: char = '…';
/// Fifths of the screen that one call-site keeps while other columns are dropped for it, and those that two keep together.
const FIFTHS: (usize, usize) = (2, 3);
/// Figures that are shown faint.
const ZEROS: [&str; 4] = ["0", "0 B", "0.0%", "-"];

/// Table: columns, and the screen that it is made for.
pub(crate) struct Grid<'a> {
    pub(crate) columns: &'a [Column<'a>],
    /// Title of the column that ranks the rows: strong, never dropped, and beside the first call-site.
    pub(crate) ranked: Option<&'a str>,
    pub(crate) screen: &'a Screen,
}

/// Column of the layout: its place in a row, and its width.
#[derive(Clone, Copy, Debug)]
struct ShownColumn {
    index: usize,
    width: usize,
}

impl Grid<'_> {
    /// Writes the rows; returns the notes of the cells that were written. A cell stands for each column.
    ///
    /// Columns are as wide as their widest cell, or as the screen allows: `rows` is called twice, first for the widths, so that
    /// memory does not grow with the number of rows. Cells are escaped text; longer ones than [`MAX_CHARACTERS`] are cut.
    pub(crate) fn write<I: Iterator<Item = Vec<Cell>>>(
        &self,
        rows: impl Fn() -> I,
        out: &mut dyn Write,
    ) -> io::Result<Notes> {
        let widths = self.widths(&self.needs(rows())?);
        let shown: Vec<ShownColumn> =
            self.order().into_iter().filter_map(|index| Some(ShownColumn { index, width: widths[index]? })).collect();
        let titles = shown.iter().map(|column| Cell::painted(self.columns[column.index].title, Paint::Strong));
        self.print(&shown, vec![titles.collect()], out)?;
        let mut notes = Notes::default();
        each_piece(rows(), |piece| {
            let piece = self.fitted_rows(&shown, piece);
            piece.iter().flatten().for_each(|cell| notes |= cell.notes);
            self.print(&shown, piece, out)
        })?;
        Ok(notes)
    }

    /// Widths of the columns; `None` for one that is not shown.
    fn widths(&self, needs: &[Need]) -> Vec<Option<usize>> {
        // A column of names that no row has says nothing.
        let has_content =
            |index: usize| !matches!(self.columns[index].holds, Holds::Name | Holds::Path) || !needs[index].is_empty;
        // Of a text of one moment: what it does not tell, and figures of all allocations, which are those of live ones.
        let is_told = |index: usize| {
            let column = &self.columns[index];
            let is_ranked = Some(column.title) == self.ranked;
            !self.screen.is_of_text
                || is_ranked
                || column.holds == Holds::Site
                || !needs[index].is_unknown && !column.shows.is_of_all_allocations()
        };
        let can_be_shown = |index: &usize| {
            let has_bars = self.screen.has_bars || self.columns[*index].holds != Holds::Bar;
            has_bars && has_content(*index) && is_told(*index)
        };
        let places: Vec<usize> = (0..self.columns.len()).filter(can_be_shown).collect();
        let needs: Vec<Need> = places.iter().map(|&index| needs[index]).collect();
        let mut widths = vec![None; self.columns.len()];
        places.into_iter().zip(fit(&needs, self.screen.width)).for_each(|(index, width)| widths[index] = width);
        widths
    }

    /// Places of the columns in their order on the screen.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        // The figure that ranks rows stands beside their names, and not between two of them.
        let is_name =
            |column: &Column<'_>| matches!(column.holds, Holds::Site | Holds::Bar) || column.shows == Shows::Key;
        let site = self.columns.iter().position(is_name);
        let ranked = self.columns.iter().position(|column| Some(column.title) == self.ranked);
        if let (Some(ranked), Some(site)) = (ranked, site)
            && ranked < site
        {
            order[ranked..site].rotate_left(1);
        }
        order
    }

    /// Room that the columns need for these rows and their headings.
    fn needs(&self, rows: impl Iterator<Item = Vec<Cell>>) -> io::Result<Vec<Need>> {
        let sites = self.columns.iter().filter(|column| column.holds == Holds::Site).count();
        let fifths = if sites > 1 { FIFTHS.1 } else { FIFTHS.0 };
        let share = self.screen.width.unwrap_or(0).saturating_mul(fifths) / 5 / sites.max(1);
        let of_column = |column: &Column<'_>| Need {
            width: cut::width(column.title),
            site: (column.holds == Holds::Site).then_some(share),
            kept: 0,
            is_name: matches!(column.holds, Holds::Name | Holds::Path),
            is_empty: true,
            is_unknown: true,
            drop: if Some(column.title) == self.ranked { 0 } else { column.drop },
        };
        let mut needs: Vec<Need> = self.columns.iter().map(of_column).collect();
        let limits_sites = self.screen.width.is_some();
        let has_keys = self.columns.iter().any(|column| column.shows == Shows::Key);
        let kind = self.columns.iter().position(|column| column.shows == Shows::Kind);
        let kind = kind.filter(|_| limits_sites && has_keys);
        let (mut names, mut has_alike) = (HashSet::new(), false);
        each_piece(rows, |piece| {
            if kind.is_some() {
                has_alike |= piece.iter().any(|row| !names.insert(self.hash_of_keys(row)));
            }
            for (index, need) in needs.iter_mut().enumerate().filter(|(_, need)| limits_sites && need.site.is_some()) {
                let cells = piece.iter().filter_map(|row: &Vec<Cell>| row.get(index));
                need.kept = cells.map(|cell| cut::least_of_site(&cell.text)).fold(need.kept, usize::max);
                need.site = need.site.map(|share| share.max(need.kept));
            }
            for (index, need) in needs.iter_mut().enumerate() {
                let is_known = |cell: &Cell| !matches!(&*cell.text, "" | "-");
                need.is_unknown &= piece.iter().all(|row| row.get(index).is_none_or(|cell| !is_known(cell)));
                need.is_empty &= piece.iter().all(|row| row.get(index).is_none_or(|cell| cell.text.is_empty()));
            }
            let mut table = plain_table();
            table.add_rows(piece.into_iter().map(texts));
            let widths = table.column_max_content_widths();
            needs.iter_mut().zip(widths).for_each(|(need, width)| need.width = need.width.max(width.into()));
            Ok(())
        })?;
        if let Some(need) = kind.and_then(|kind| needs.get_mut(kind)).filter(|_| has_alike) {
            // Rows that only their kinds tell apart.
            need.drop = need.drop.min(1);
        }
        Ok(needs)
    }

    /// Hash of the keys of a row.
    fn hash_of_keys(&self, row: &[Cell]) -> u64 {
        let mut hasher = DefaultHasher::new();
        let keys = self.columns.iter().zip(row).filter(|(column, _)| column.shows == Shows::Key);
        keys.for_each(|(_, cell)| cell.text.hash(&mut hasher));
        hasher.finish()
    }

    /// Rows with the cells of the columns that are shown, cut to their widths. Stacks that differ do not look the same.
    fn fitted_rows(&self, shown: &[ShownColumn], rows: Vec<Vec<Cell>>) -> Vec<Vec<Cell>> {
        let texts = |rows: &[Vec<Cell>], index: usize| -> Vec<String> {
            rows.iter().map(|row| row.get(index).map_or_else(String::new, |cell| cell.text.clone())).collect()
        };
        let is_cut = |column: &&ShownColumn| self.columns[column.index].holds == Holds::Site;
        let cut: Vec<_> = shown.iter().filter(|_| self.screen.width.is_some()).filter(is_cut).collect();
        let whole: Vec<Vec<String>> = cut.iter().map(|column| texts(&rows, column.index)).collect();
        let mut fitted: Vec<Vec<Cell>> = rows.into_iter().map(|row| self.fitted(shown, row)).collect();
        for (column, whole) in cut.into_iter().zip(whole) {
            let Some(place) = shown.iter().position(|other| other.index == column.index) else { continue };
            let mut apart = texts(&fitted, place);
            cut::tell_stacks_apart(&whole, &mut apart, column.width, self.screen.cut_mark());
            fitted.iter_mut().zip(apart).for_each(|(row, text)| row[place].text = text);
        }
        fitted
    }

    /// Cells of the columns that are shown, cut to their widths.
    fn fitted(&self, shown: &[ShownColumn], mut row: Vec<Cell>) -> Vec<Cell> {
        let of_column = |&ShownColumn { index, width }: &ShownColumn| {
            let mut cell = row.get_mut(index).map(std::mem::take).unwrap_or_default();
            let column = &self.columns[index];
            let mark = self.screen.cut_mark();
            if self.screen.width.is_some() && column.can_be_cut() {
                let fitted = match column.holds {
                    Holds::Site => cut::site,
                    Holds::Path => cut::begin,
                    _ => cut::middle,
                };
                cell.text = fitted(&cell.text, width, mark);
            }
            if column.holds == Holds::Figure && cell.paint.is_none() && ZEROS.contains(&cell.text.as_str()) {
                cell.paint = Some(Paint::Faint);
            } else if Some(column.title) == self.ranked {
                cell.paint = cell.paint.or(Some(Paint::Strong));
            }
            cell
        };
        shown.iter().map(of_column).collect()
    }

    /// Writes rows that fit.
    fn print(&self, shown: &[ShownColumn], rows: Vec<Vec<Cell>>, out: &mut dyn Write) -> io::Result<()> {
        let mut table = plain_table();
        table.add_rows(rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str())));
        for (place, column) in shown.iter().enumerate() {
            let Some(laid_out) = table.column_mut(place) else { continue };
            if self.columns[column.index].holds == Holds::Figure {
                laid_out.set_cell_alignment(CellAlignment::Right);
            }
            let width = u16::try_from(column.width + PADDING).unwrap_or(u16::MAX);
            laid_out.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
        }
        table.lines().zip(&rows).try_for_each(|(line, row)| writeln!(out, "{}", self.painted(line.trim_end(), row)))
    }

    /// Line of a row with its cells' emphasis.
    fn painted(&self, line: &str, row: &[Cell]) -> String {
        if !self.screen.has_colour {
            return line.to_owned();
        }
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        for cell in row {
            let text = cell.text.trim();
            let blanks = rest.len() - rest.trim_start().len();
            let Some(after) = rest[blanks..].strip_prefix(text).filter(|_| !text.is_empty()) else { continue };
            out += &rest[..blanks];
            match cell.paint {
                Some(paint) => out += &self.screen.paint(paint, text),
                None => out += text,
            }
            rest = after;
        }
        out + rest
    }
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn texts(row: Vec<Cell>) -> Vec<String> {
    row.into_iter().map(|cell| cell.text).collect()
}

/// Passes the rows to `take` in pieces of [`AT_ONCE`].
fn each_piece(
    mut rows: impl Iterator<Item = Vec<Cell>>,
    mut take: impl FnMut(Vec<Vec<Cell>>) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let cut_cells = |cells: Vec<Cell>| cells.into_iter().map(cut_cell).collect();
        let piece: Vec<Vec<Cell>> = rows.by_ref().take(AT_ONCE).map(cut_cells).collect();
        if piece.is_empty() {
            return Ok(());
        }
        take(piece)?;
    }
}

/// Cell, cut to its length limit.
pub(crate) fn cut_cell(mut cell: Cell) -> Cell {
    if let Some((limit, _)) = cell.text.char_indices().nth(MAX_CHARACTERS) {
        cell.text.truncate(cut::whole_escapes(&cell.text, limit));
        cell.text.push(CUT);
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmemtrace_abi::text::escape::escape;

    const N: Column<'_> = Column::figure("N", 0, "");
    const NAME: Column<'_> = Column::site("NAME", "");

    fn written<const M: usize>(columns: &[Column<'_>], rows: &[[&str; M]], screen: &Screen) -> String {
        let grid = Grid { columns, ranked: Some("N"), screen };
        let mut out = Vec::new();
        grid.write(|| rows.iter().map(|row| row.iter().copied().map(Cell::from).collect()), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn many_rows_have_columns_of_one_width() {
        let grid = Grid { columns: &[N], ranked: None, screen: &Screen::plain(None) };
        let rows = || (0..2 * AT_ONCE + 3).map(|n| vec![Cell::from("9".repeat(1 + n / AT_ONCE))]);
        let mut out = Vec::new();
        grid.write(rows, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2 * AT_ONCE + 4);
        assert!(text.lines().all(|line| line.len() == " 999".len()), "{text}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let columns = [N, Column::word("NAME", 0, ""), Column::figure("X", 0, "")];
        let rows = [["1", "a", "x"], ["1,000", "日本", "x"], ["20", "größe", "x"]];
        let want = "     N  NAME   X\n     1  a      x\n 1,000  日本   x\n    20  größe  x\n";
        assert_eq!(written(&columns, &rows, &Screen::plain(None)), want);
    }

    #[test]
    fn the_ranking_column_stands_beside_the_call_site() {
        let columns = [N, Column::figure("X", 0, ""), NAME];
        let text = written(&columns, &[["1", "2", "f+0x1"]], &Screen::plain(None));
        assert_eq!(text, " X  N  NAME\n 2  1  f+0x1\n");
    }

    #[test]
    fn rows_that_only_their_kinds_tell_apart_keep_the_column() {
        let columns = [Column::kind(9), Column::figure("MEDIAN", 8, ""), N, NAME.showing(Shows::Key)];
        let row = |kind, name| [kind, "2.003 s", "494 KiB", name];
        let screen = Screen::plain(Some(29));
        let text = written(&columns, &[row("cache", "python3"), row("kmalloc", "sh")], &screen);
        assert!(text.starts_with("  MEDIAN        N  NAME"), "{text}");
        let text = written(&columns, &[row("cache", "python3"), row("kmalloc", "python3")], &screen);
        assert!(text.starts_with(" KIND           N  NAME"), "{text}");
    }

    #[test]
    fn colours_change_no_width() {
        let columns = [Column::figure("X", 0, ""), N, NAME];
        let rows = [["0", "0", " 0 "], ["1", "1", "1"]];
        let coloured = written(&columns, &rows, &Screen::coloured(80));
        let plain = written(&columns, &rows, &Screen::plain(Some(80)));
        assert!(coloured.contains("\x1b[2m0"), "zeros are faint: {coloured:?}");
        assert!(coloured.contains("\x1b[1m1"), "the ranking column is strong: {coloured:?}");
        let mut bare = String::new();
        for part in coloured.split('\x1b') {
            bare += part.strip_prefix('[').map_or(part, |part| part.split_once('m').map_or("", |(_, text)| text));
        }
        assert_eq!(bare, plain);
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_escape_sequences() {
        let many = 100_000;
        for (name, shown) in [
            ("a".repeat(many), 4096),
            ("日".repeat(many), 4096),
            ("\x1b".repeat(many), 4096),
            (format!("a{}", "\x1b".repeat(many)), 4093),
            (format!("ab{}", "\\".repeat(many)), 4096),
            (format!("a{}", "\\".repeat(many)), 4095),
            ("\u{202e}".repeat(many), 4096),
            (format!("a{}", "\u{202e}".repeat(many)), 4089),
            (format!("{}\u{e0041}", "日".repeat(4090)), 4090),
        ] {
            let cell = escape(name.as_bytes());
            let shown: String = cell.chars().take(shown).collect();
            let text = written(&[N, NAME], &[["1", &cell]], &Screen::plain(None));
            assert_eq!(text, format!(" N  NAME\n 1  {shown}…\n"));
        }
        let longest = escape("\x1b".repeat(MAX_CHARACTERS / 4).as_bytes()).into_owned();
        assert_eq!(cut_cell(longest.clone().into()).text, longest);
    }
}
