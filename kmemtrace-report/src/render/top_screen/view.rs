//! Parts of the screen that all its areas share: the figures to show, the emphasis of text, and a pen that writes into a buffer.

use kmemtrace::live::Snapshot;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::state::ScreenState;

/// Width from which on all columns are shown.
pub(super) const WIDE: u16 = 120;

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
pub(super) enum Paint {
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
    /// Memory of this machine, where it is the one that is recorded.
    pub(crate) memory: Option<Memory>,
    /// Bytes of the files that were read in the last second, while the trace is followed.
    pub(crate) bytes_now: Option<u64>,
    /// Members `completeness` and `trace` of a document, as of the snapshot.
    pub(crate) head: serde_json::Value,
}

/// Memory of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Bytes of MemAvailable.
    pub(crate) available: u64,
    /// Bytes by which MemFree has fallen since the recording's begin; `None` where it has not, or the recording does not tell.
    pub(crate) taken: Option<u64>,
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
    /// A text of what is held, which stands still: changes, peaks and frees are not known.
    Still,
}

/// Everything that the screen shows.
#[derive(Clone, Copy)]
pub(crate) struct ScreenView<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) subject: &'a Subject,
    pub(crate) state: &'a ScreenState,
    pub(crate) look: Look,
}

impl ScreenView<'_> {
    /// True where nothing is known but what is held now.
    pub(super) fn is_still(&self) -> bool {
        self.subject.state == Recording::Still
    }
}

/// Writes lines into a buffer.
pub(super) struct Pen<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) look: Look,
}

impl Pen<'_> {
    pub(super) fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Writes a text from a column on, as far as the line goes.
    pub(super) fn put(&mut self, x: u16, y: u16, text: &str, paint: Paint) {
        let area = self.buffer.area;
        if x < area.width && y < area.height {
            let style = self.look.style(paint);
            self.buffer.set_stringn(area.x + x, area.y + y, text, usize::from(area.width - x), style);
        }
    }
}
