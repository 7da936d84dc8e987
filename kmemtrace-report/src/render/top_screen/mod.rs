//! The live screen: a snapshot and the state of the screen as lines of a terminal.
//!
//! [`draw`] is a pure function: the same snapshot, state and size make the same cells. All marks are ASCII where the terminal has no
//! more, and colour never carries a meaning alone.

mod detail;
mod figures;
pub(crate) mod filter;
mod head;
mod help;
pub(crate) mod keys;
mod rows;
pub(crate) mod saved;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod view;
mod who;

use ratatui::buffer::Buffer;

pub(crate) use view::{Look, Memory, Recording, ScreenView, Subject};
use view::{Paint, Pen};

/// Least size of the screen.
const LEAST: (u16, u16) = (60, 10);
/// Least height with a pane of details.
const TALL: u16 = 18;

/// Draws the screen. Returns the number of rows that the table has room for.
pub(crate) fn draw(view: ScreenView<'_>, buffer: &mut Buffer) -> usize {
    let area = buffer.area;
    let mut pen = Pen { buffer, look: view.look };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (least_width, least_height) = LEAST;
        let text = format!(
            "needs {least_width} columns and {least_height} lines; here are {} and {}",
            area.width, area.height
        );
        pen.put(0, 0, &text, Paint::Plain);
        return 0;
    }
    if view.state.shows_help {
        help::draw(&mut pen);
        return 0;
    }
    let top = head::draw(view, &mut pen);
    let bottom = area.height - 1;
    let pane = if view.state.shows_detail && area.height >= TALL { detail::height(area.height) } else { 0 };
    let rows = rows::draw(view, &mut pen, top..bottom - pane);
    if pane > 0 {
        detail::draw(view, &mut pen, bottom - pane..bottom);
    }
    head::draw_keys(view, &mut pen, bottom);
    rows
}

/// Lines of a buffer as text, without blanks at their ends.
pub(crate) fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |y| (0..area.width).map(|x| buffer[(area.x + x, area.y + y)].symbol()).collect::<String>();
    (0..area.height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}
