//! Rows of cells under their headings.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

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
        let mut widths: Vec<usize> = self.header.iter().map(|cell| cell.width()).collect();
        for row in rows() {
            for (width, cell) in widths.iter_mut().zip(&row) {
                *width = cell.width().max(*width);
            }
        }
        let mut line = String::new();
        self.line(self.header, &widths, &mut line, out)?;
        rows().try_for_each(|row| self.line(&row, &widths, &mut line, out))
    }

    fn line(
        &self,
        cells: &[impl AsRef<str>],
        widths: &[usize],
        line: &mut String,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        line.clear();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let cell = cell.as_ref();
            let padding = width.saturating_sub(cell.width());
            let (before, after) = if self.left.contains(&column) { (0, padding) } else { (padding, 0) };
            line.extend(std::iter::repeat_n(' ', 1 + before));
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', after + 1));
        }
        writeln!(out, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
