//! Cells of a grid.

use std::ops::BitOrAssign;

use crate::terminal::screen::Paint;

/// Cell: escaped text, its emphasis, and the notes that explain it below the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) paint: Option<Paint>,
    pub(crate) notes: Notes,
}

/// Notes that a table needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// A figure is an upper bound: `<=`.
    pub(crate) has_bounds: bool,
    /// A row of pages has no call-site.
    pub(crate) has_pages_without_site: bool,
    /// A call-site is in a wrapper: `~`.
    pub(crate) has_wrappers: bool,
    /// A figure is of memory that the kernel takes back by itself: `*`.
    pub(crate) has_reclaimable: bool,
}

impl BitOrAssign for Notes {
    fn bitor_assign(&mut self, other: Notes) {
        self.has_bounds |= other.has_bounds;
        self.has_pages_without_site |= other.has_pages_without_site;
        self.has_wrappers |= other.has_wrappers;
        self.has_reclaimable |= other.has_reclaimable;
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, ..Cell::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        text.to_owned().into()
    }
}

impl Cell {
    /// Cell with an emphasis.
    pub(crate) fn painted(text: impl Into<String>, paint: Paint) -> Cell {
        Cell { text: text.into(), paint: Some(paint), ..Cell::default() }
    }
}
