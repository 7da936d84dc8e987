//! Columns of tables: title, meaning, and behaviour in a narrow table.

use kmemtrace::{ColumnContent, Figure, FigureEntry, KeyColumn, SortKey};

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

/// Figure that the cells of a column show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Something of the view's own.
    Own,
    /// A key that rows are made of.
    Key,
    /// A figure of the row.
    Figure(Figure),
    /// Share that a figure of the row is of another one.
    Share(Figure, Figure),
    /// Share that a figure of the row is of the same figure of all rows.
    ShareOfAll(Figure),
    /// Kind of the objects.
    Kind,
    /// Growth of live bytes.
    Growth,
    /// Static bytes.
    Static,
    /// Static and live bytes.
    Current,
}

impl Shows {
    /// True for figures of all allocations that a figure of the live ones stands beside.
    pub(crate) fn is_of_all_allocations(self) -> bool {
        use Figure::{Allocated, Allocs, Wasted};
        matches!(self, Shows::Figure(Allocs | Allocated | Wasted) | Shows::Share(..))
    }

    /// True for the figure that rows are sorted by.
    pub(crate) fn is_sorted_by(self, key: SortKey) -> bool {
        match self {
            Shows::Figure(figure) => key == SortKey::Figure(figure),
            Shows::Growth => key == SortKey::Growth,
            Shows::Static => key == SortKey::Static,
            Shows::Current => key == SortKey::Current,
            Shows::Own | Shows::Key | Shows::Share(..) | Shows::ShareOfAll(_) | Shows::Kind => false,
        }
    }
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
    /// Figure that it shows.
    pub(crate) shows: Shows,
}

impl Column<'static> {
    /// Column of a figure.
    pub(crate) const fn of(figure: Figure, drop: u8) -> Column<'static> {
        let FigureEntry { title, meaning, .. } = *figure.entry();
        Column { shows: Shows::Figure(figure), ..Column::figure(title, drop, meaning) }
    }

    /// Column of the kind of a row's objects.
    pub(crate) const fn kind(drop: u8) -> Column<'static> {
        let meaning = "Allocator: kmalloc, cache (kmem_cache_alloc), pages, or another kind of memory by its name.";
        Column { shows: Shows::Kind, ..Column::word("KIND", drop, meaning) }
    }

    /// Column of the growth of a row.
    pub(crate) const fn growth() -> Column<'static> {
        let meaning = "Live bytes at the end less those at the end of the first slice; with --sort growth.";
        Column { shows: Shows::Growth, ..Column::figure("GREW", 0, meaning) }
    }

    /// The column under another heading.
    pub(crate) const fn titled(self, title: &'static str) -> Column<'static> {
        Column { title, ..self }
    }

    /// The column with another explanation.
    pub(crate) const fn meaning(self, meaning: &'static str) -> Column<'static> {
        Column { meaning, ..self }
    }

    /// The column with cells of something else.
    pub(crate) const fn showing(self, shows: Shows) -> Column<'static> {
        Column { shows, ..self }
    }

    /// Column of a key.
    pub(crate) const fn of_key(column: &KeyColumn) -> Column<'static> {
        let KeyColumn { title, meaning, content } = *column;
        let column = match content {
            ColumnContent::Number => Column::figure(title, 0, meaning),
            ColumnContent::Word => Column::word(title, 0, meaning),
            ColumnContent::Name => Column::site(title, meaning),
            ColumnContent::Path => Column::path(title, 4, meaning),
        };
        Column { shows: Shows::Key, ..column }
    }
}

impl<'a> Column<'a> {
    /// Column of numbers.
    pub(crate) const fn figure(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Figure, drop, shows: Shows::Own }
    }

    /// Column of words.
    pub(crate) const fn word(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Word, drop, shows: Shows::Own }
    }

    /// Column of names.
    pub(crate) const fn name(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Name, drop, shows: Shows::Own }
    }

    /// Column of paths.
    pub(crate) const fn path(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Path, drop, shows: Shows::Own }
    }

    /// Column of call-sites.
    pub(crate) const fn site(title: &'a str, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Site, drop: 0, shows: Shows::Own }
    }

    /// Column of bars.
    pub(crate) const fn bar(title: &'a str, drop: u8, meaning: &'a str) -> Column<'a> {
        Column { title, meaning, holds: Holds::Bar, drop, shows: Shows::Own }
    }

    /// True if the content may lose characters.
    pub(crate) fn can_be_cut(&self) -> bool {
        matches!(self.holds, Holds::Name | Holds::Path | Holds::Site)
    }
}
