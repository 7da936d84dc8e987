//! The page of help.

use super::view::{Paint, Pen};

/// Lines of the page.
const LINES: [&str; 21] = [
    "Keys                                            any key goes back",
    " up down j k, g G, PgUp PgDn   move",
    " s S      next sort key, the other way round",
    " l a x n  sort by live, allocations/s, frees on another CPU, name",
    " + P W M  sort by growth, peak, wasted, change since the mark",
    " m Tab t  next grouping, tree of stacks: right left Space open and close",
    " /        filter: comm=foo* module!=ext4 text; an empty one clears it",
    " p        freeze the screen; recording goes on",
    " 0        set the mark: SINCE MARK counts from here",
    " [ ]      shorter, longer window of growth",
    " Enter    show or hide the pane of details",
    " w        save the screen as text and JSON",
    " r        read symbols again",
    " q        quit; kmemtraced top ends with it, another recorder goes on",
    "Columns",
    " +60 s    change of live bytes over the window       NOW/s  in a second",
    " LIVE PEAK  bytes allocated and not freed, at present and at most",
    " XCPU     frees on another CPU     AGE50  median age of live objects",
    "Live bytes are those of allocations since recording began.",
    "Pages are never added to slab objects: the slab allocator takes its",
    "memory from pages.",
];

/// Draws as many lines as there is room for.
pub(super) fn draw(pen: &mut Pen<'_>) {
    for (y, line) in (0..pen.area().height).zip(LINES) {
        let is_heading = !line.starts_with(' ');
        pen.put(0, y, line, if is_heading { Paint::Strong } else { Paint::Plain });
    }
}
