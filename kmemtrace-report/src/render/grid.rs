//! Rows of cells under their headings.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

/// Rows that are laid out at once.
const AT_ONCE: usize = 512;
/// Blanks on both sides of a cell.
const PADDING: u16 = 2;

/// A table's headings.
pub(super) struct Grid<'a> {
    pub(super) header: &'a [&'a str],
    /// Columns of text; numbers stand to the right.
    pub(super) left: &'a [usize],
}

impl Grid<'_> {
    /// Writes the rows. Columns are as wide as their widest cell: `rows` is asked for them twice, first for their widths,
    /// so that any number of rows takes no memory.
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

/// Hands on some rows after the other.
fn each_piece(
    mut rows: impl Iterator<Item = Vec<String>>,
    mut take: impl FnMut(Vec<Vec<String>>) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let piece: Vec<Vec<String>> = rows.by_ref().take(AT_ONCE).collect();
        if piece.is_empty() {
            return Ok(());
        }
        take(piece)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
