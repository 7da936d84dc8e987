//! Grid: rows of cells under their headings.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

/// Rows laid out together.
const AT_ONCE: usize = 512;
/// Blanks on both sides of a cell.
const PADDING: u16 = 2;
/// Length limit of a cell, in characters. The layout library counts columns in 16 bits, and a character takes up to
/// three columns. Kernel names fit: a symbol of 512 bytes, each written as `\xNN`, takes 2,048.
const MAX_CHARACTERS: usize = 4096;
/// Mark at the end of a cell that was cut.
const CUT: char = '…';

/// Headings of a table.
pub(super) struct Grid<'a> {
    pub(super) header: &'a [&'a str],
    /// Columns of text, aligned left; the others are numbers, aligned right.
    pub(super) left: &'a [usize],
}

impl Grid<'_> {
    /// Writes the rows. Columns are as wide as their widest cell: `rows` is called twice, first for the widths, so
    /// that memory does not grow with the number of rows. Cells are escaped text; longer ones than [`MAX_CHARACTERS`]
    /// are cut.
    pub(super) fn write<I: Iterator<Item = Vec<String>>>(
        &self,
        rows: impl Fn() -> I,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut widths = self.table(true, &[]).column_max_content_widths();
        each_piece(rows(), |piece| {
            let piece = self.with_rows(false, &[], piece).column_max_content_widths();
            widths.iter_mut().zip(piece).for_each(|(width, wider)| *width = wider.max(*width));
            Ok(())
        })?;
        let print =
            |table: Table, out: &mut dyn Write| table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()));
        print(self.table(true, &widths), out)?;
        each_piece(rows(), |piece| print(self.with_rows(false, &widths, piece), out))
    }

    fn with_rows(&self, has_header: bool, widths: &[u16], rows: Vec<Vec<String>>) -> Table {
        let mut table = self.table(has_header, widths);
        table.add_rows(rows);
        self.align(&mut table, widths);
        table
    }

    fn table(&self, has_header: bool, widths: &[u16]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if has_header {
            table.set_header(self.header.to_vec());
        }
        self.align(&mut table, widths);
        table
    }

    fn align(&self, table: &mut Table, widths: &[u16]) {
        for index in 0..table.column_count() {
            let Some(column) = table.column_mut(index) else { continue };
            if !self.left.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if let Some(width) = widths.get(index) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width.saturating_add(PADDING))));
            }
        }
    }
}

/// Passes the rows to `take` in pieces of [`AT_ONCE`].
fn each_piece(
    mut rows: impl Iterator<Item = Vec<String>>,
    mut take: impl FnMut(Vec<Vec<String>>) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let cut_cells = |cells: Vec<String>| cells.into_iter().map(cut).collect();
        let piece: Vec<Vec<String>> = rows.by_ref().take(AT_ONCE).map(cut_cells).collect();
        if piece.is_empty() {
            return Ok(());
        }
        take(piece)?;
    }
}

/// Cell, cut to its length limit.
fn cut(mut cell: String) -> String {
    if let Some((limit, _)) = cell.char_indices().nth(MAX_CHARACTERS) {
        cell.truncate(whole_escapes(&cell, limit));
        cell.push(CUT);
    }
    cell
}

/// Length of the escaped text up to `limit`, a character boundary, without the escape sequence that would be cut there.
fn whole_escapes(text: &str, limit: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < limit {
        let rest = &bytes[at..];
        let taken = match rest {
            [b'\\', b'x', ..] => 4,
            [b'\\', b'u', ..] => rest.iter().position(|&b| b == b'}').map_or(2, |last| last + 1),
            [b'\\', ..] => 2,
            _ => 1,
        };
        if at + taken > limit {
            return at;
        }
        at += taken;
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmemtrace_abi::text::escape::escape;

    #[test]
    fn many_rows_have_columns_of_one_width() {
        let grid = Grid { header: &["N"], left: &[] };
        let rows = || (0..2 * AT_ONCE + 3).map(|n| vec!["9".repeat(1 + n / AT_ONCE)]);
        let mut out = Vec::new();
        grid.write(rows, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2 * AT_ONCE + 4);
        assert!(text.lines().all(|line| line.len() == " 999".len()), "{text}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["1", "a"], ["1,000", "日本"], ["20", "größe"]];
        let grid = Grid { header: &["N", "NAME", "X"], left: &[1] };
        let mut out = Vec::new();
        let with_x = |row: [&str; 2]| row.into_iter().chain(["x"]).map(str::to_owned).collect();
        grid.write(|| rows.into_iter().map(with_x), &mut out).unwrap();
        let want = "     N  NAME   X\n     1  a      x\n 1,000  日本   x\n    20  größe  x\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
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
            let grid = Grid { header: &["N", "NAME"], left: &[1] };
            let mut out = Vec::new();
            grid.write(|| [vec!["1".to_owned(), cell.clone().into_owned()]].into_iter(), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!(" N  NAME\n 1  {shown}…\n"));
        }
        let longest = escape("\x1b".repeat(MAX_CHARACTERS / 4).as_bytes()).into_owned();
        assert_eq!(cut(longest.clone()), longest);
    }
}
