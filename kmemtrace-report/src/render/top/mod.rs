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
mod who;

use kmemtrace::live::Snapshot;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use state::ScreenState;

/// Least size of the screen.
const LEAST: (u16, u16) = (60, 10);
/// Width from which on all columns are shown.
const WIDE: u16 = 120;
/// Least height with a pane of details.
const TALL: u16 = 18;

/// Abilities of the terminal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// True for characters beyond ASCII.
    pub(crate) is_unicode: bool,
    /// True for colours and bold text.
    pub(crate) has_colour: bool,
}

/// Emphasis of a part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    Plain,
    Strong,
    Faint,
    Warning,
    Chosen,
}

impl Look {
    fn style(self, paint: Paint) -> Style {
        if !self.has_colour {
            return Style::default();
        }
        match paint {
            Paint::Plain => Style::default(),
            Paint::Strong => Style::default().add_modifier(Modifier::BOLD),
            Paint::Faint => Style::default().add_modifier(Modifier::DIM),
            Paint::Warning => Style::default().fg(Color::Yellow).add_modifier(Modifier::BOLD),
            Paint::Chosen => Style::default().add_modifier(Modifier::REVERSED),
        }
    }
}

/// Trace and recorder, as the first line names them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    /// Name of the trace, escaped.
    pub(crate) name: String,
    /// Host, kernel and machine, escaped; empty where the trace does not tell.
    pub(crate) machine: String,
    /// State of the recording.
    pub(crate) state: Recording,
}

/// State of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recording {
    /// Events come.
    #[default]
    Runs,
    /// Events recorded before the screen began are being read.
    Loads,
    /// A finished trace is played.
    Plays,
    /// The end, and its reason.
    Ended(String),
}

/// Everything that the screen shows.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) subject: &'a Subject,
    pub(crate) state: &'a ScreenState,
    pub(crate) look: Look,
}

/// Writes lines into a buffer.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    look: Look,
}

impl Pen<'_> {
    fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Writes a text from a column on, as far as the line goes.
    fn put(&mut self, x: u16, y: u16, text: &str, paint: Paint) {
        let area = self.buffer.area;
        if x < area.width && y < area.height {
            let style = self.look.style(paint);
            self.buffer.set_stringn(area.x + x, area.y + y, text, usize::from(area.width - x), style);
        }
    }
}

/// Draws the screen. Returns the number of rows that the table has room for.
pub(crate) fn draw(view: View<'_>, buffer: &mut Buffer) -> usize {
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
