//! Columns of tables: title, meaning, and behaviour in a narrow table.

use kmemtrace::{ColumnContent, KeyColumn};

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Numbers: aligned right, never cut.
    Figure,
    /// Words of the contract: aligned left, never cut.
    Word,
    /// Names of commands and caches: aligned left, cut in a narrow table.
    Name,
    /// Paths with lines: aligned left, lose their begin in a narrow table.
    Path,
    /// Call-sites: never dropped. Long ones lose their middle, but neither the offset nor the module.
    Site,
    /// Bars: aligned left, never cut.
    Bar,
}

/// Column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column<'a> {
    /// Heading.
    pub(crate) title: &'a str,
    /// Explanation, one sentence.
    pub(crate) meaning: &'a str,
    /// Content.
    pub(crate) holds: Holds,
    /// Order in which a narrow table drops columns: the greatest number first, 0 never.
    pub(crate) drop: u8,
}

impl Column<'static> {
    /// Column of a key.
    pub(crate) const fn of_key(column: &KeyColumn) -> Column<'static> {
        let KeyColumn { title, meaning, content } = *column;
        match content {
            ColumnContent::Number => Column::figure(title, 0, meaning),
            ColumnContent::Word => Column::word(title, 0, meaning),
            ColumnContent::Name => Column::site(title, meaning),
            ColumnContent::Path => Column::path(title, 4, meaning),
        }
    }
}

impl<'a> Column<'a> {
    /// Column of numbers.
    pub(crate) const fn figure(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Figure, drop }
    }

    /// Column of words.
    pub(crate) const fn word(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Word, drop }
    }

    /// Column of names.
    pub(crate) const fn name(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Name, drop }
    }

    /// Column of paths.
    pub(crate) const fn path(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Path, drop }
    }

    /// Column of call-sites.
    pub(crate) const fn site(title: &'a str, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Site, drop: 0 }
    }

    /// Column of bars.
    pub(crate) const fn bar(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Bar, drop }
    }

    /// True if the content may lose characters.
    pub(crate) fn can_be_cut(&self) -> bool {
        matches!(self.holds, Holds::Name | Holds::Path | Holds::Site)
    }
}
