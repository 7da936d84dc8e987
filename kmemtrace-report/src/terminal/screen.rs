//! Screen: width, colours and characters of the destination.

use std::env;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use anstyle::{AnsiColor, Effects, Style};
use unicode_width::UnicodeWidthStr;

use crate::args::Color;

/// Standard output and standard error go through pipes to a terminal.
static COPIED: OnceLock<[bool; 2]> = OnceLock::new();

/// Width of a terminal that does not tell its own.
const USUAL_WIDTH: usize = 80;
/// Least width that tables are made for.
const LEAST_WIDTH: usize = 40;

/// Emphasis of a text. Colour never carries a meaning alone: the text says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Headings, and the column that ranks the rows.
    Strong,
    /// Zeros.
    Faint,
    /// A complete trace.
    Good,
    /// Loss, and suspect findings.
    Warning,
    /// Damage, and errors.
    Bad,
}

impl Paint {
    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into())).effects(Effects::BOLD);
        match self {
            Paint::Strong => Style::new().bold(),
            Paint::Faint => Style::new().dimmed(),
            Paint::Good => colour(AnsiColor::Green),
            Paint::Warning => colour(AnsiColor::Yellow),
            Paint::Bad => colour(AnsiColor::Red),
        }
    }
}

/// Abilities of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Greatest width of a line, in columns; `None`: no limit, and nothing is cut.
    pub(crate) width: Option<usize>,
    /// Lines of a terminal; `None`: no limit, or not known.
    pub(crate) height: Option<usize>,
    /// True for a terminal that shows bars.
    pub(crate) has_bars: bool,
    /// True for characters beyond ASCII.
    pub(crate) is_unicode: bool,
    /// True for colours and bold text.
    pub(crate) has_colour: bool,
    /// A table is of a text of one moment: columns that it does not tell are left out.
    pub(crate) is_of_text: bool,
}

/// Variables of the environment that a screen depends on.
#[derive(Clone, Copy, Debug, Default)]
struct Environment {
    /// `COLUMNS`.
    columns: Option<usize>,
    /// `LINES`.
    lines: Option<usize>,
    /// `NO_COLOR` is set and not empty.
    no_color: bool,
    /// `CLICOLOR_FORCE` is set, and neither empty nor 0.
    forces_color: bool,
    /// `TERM` is `dumb`.
    is_dumb: bool,
    /// The locale's character set is UTF-8.
    is_utf8: bool,
}

impl Environment {
    fn read() -> Environment {
        let text = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(text).unwrap_or_default();
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        Environment {
            columns: text("COLUMNS").and_then(|value| value.to_str()?.parse().ok()),
            lines: text("LINES").and_then(|value| value.to_str()?.parse().ok()),
            no_color: text("NO_COLOR").is_some(),
            forces_color: text("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            is_dumb: text("TERM").is_some_and(|value| value == "dumb"),
            is_utf8: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }
}

/// Notes which of `stdout` and `stderr` another program copies to a terminal.
pub(crate) fn set_copied(names: &[String]) {
    let _ = COPIED.set(["stdout", "stderr"].map(|name| names.iter().any(|copied| copied == name)));
}

fn is_copied() -> [bool; 2] {
    COPIED.get().copied().unwrap_or_default()
}

/// True where standard error reaches a terminal.
pub(crate) fn is_terminal_for_errors() -> bool {
    is_copied()[1] || io::stderr().is_terminal()
}

/// True where the locale's character set is UTF-8.
#[cfg(feature = "top")]
pub(crate) fn is_unicode() -> bool {
    Environment::read().is_utf8
}

/// Lines and columns of the terminal that standard output is; `None` where it is none, or does not tell its lines.
pub(crate) fn terminal_size() -> Option<(usize, usize)> {
    let screen = Screen::of_output(false, Color::Never, None);
    Some((screen.height?, screen.width?))
}

/// Lines that a text takes on a screen of so many columns: a terminal breaks longer lines.
pub(crate) fn lines_of(text: &[u8], columns: usize) -> usize {
    let text = String::from_utf8_lossy(text);
    text.lines().map(|line| without_colours(line).width().div_ceil(columns.max(1)).max(1)).sum()
}

/// Line without the sequences that colour it.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let mut out = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| out += part.split_once('m').map_or("", |(_, text)| text));
    out
}

impl Screen {
    /// Screen of standard output; `is_file`: the output goes to a file instead. `width` comes before the terminal's.
    pub(crate) fn of_output(is_file: bool, color: Color, width: Option<usize>) -> Screen {
        let stdout = std::io::stdout();
        let is_terminal = !is_file && (is_copied()[0] || rustix::termios::isatty(&stdout));
        let size = || {
            let size = rustix::termios::tcgetwinsize(&stdout).ok();
            size.map_or((0, 0), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
        };
        let (terminal, rows) = is_terminal.then(size).unzip();
        let environment = Environment::read();
        let lines = environment.lines.filter(|&n| n > 0);
        let height = rows.and_then(|own| lines.or((own > 0).then_some(own)));
        Screen { height, ..Screen::new(environment, terminal, color, width) }
    }

    /// Screen of a terminal with this number of columns, whose lines are not known; `None`: of a file or a pipe.
    fn new(environment: Environment, terminal: Option<usize>, color: Color, width: Option<usize>) -> Screen {
        let Environment { columns, lines: _, no_color, forces_color, is_dumb, is_utf8 } = environment;
        let of_terminal = |own| columns.filter(|&n| n > 0).unwrap_or(if own == 0 { USUAL_WIDTH } else { own });
        let has_colour = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto if no_color => false,
            Color::Auto => forces_color || terminal.is_some() && !is_dumb,
        };
        Screen {
            width: width.or(terminal.map(of_terminal)).map(|width| width.max(LEAST_WIDTH)),
            height: None,
            has_bars: terminal.is_some(),
            is_unicode: terminal.is_none() || is_utf8,
            has_colour,
            is_of_text: false,
        }
    }

    /// Lines of a terminal that are left below a text, without the last one, which the shell's prompt takes.
    pub(crate) fn room_below(&self, above: &[u8]) -> Option<usize> {
        let used = lines_of(above, self.width.unwrap_or(usize::MAX));
        self.height.map(|height| height.saturating_sub(1 + used))
    }

    /// Text with an emphasis.
    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        let style = if self.has_colour { paint.style() } else { Style::new() };
        format!("{style}{text}{style:#}")
    }

    /// Mark in place of characters that were cut.
    pub(crate) fn cut_mark(&self) -> char {
        if self.is_unicode { '…' } else { '~' }
    }
}

#[cfg(test)]
impl Screen {
    /// Screen without colours.
    pub(crate) fn plain(width: Option<usize>) -> Screen {
        Screen { width, height: None, has_bars: false, is_unicode: true, has_colour: false, is_of_text: false }
    }

    /// Screen of a terminal with colours.
    pub(crate) fn coloured(width: usize) -> Screen {
        Screen {
            width: Some(width),
            height: None,
            has_bars: true,
            is_unicode: true,
            has_colour: true,
            is_of_text: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_is_the_terminals_and_a_pipe_has_none() {
        let width = |columns, terminal, asked| {
            let environment = Environment { columns, ..Environment::default() };
            Screen::new(environment, terminal, Color::Auto, asked).width
        };
        assert_eq!(width(None, Some(132), None), Some(132));
        assert_eq!(width(None, Some(0), None), Some(80));
        assert_eq!(width(Some(100), Some(132), None), Some(100));
        assert_eq!(width(Some(0), Some(132), None), Some(132));
        assert_eq!(width(Some(3), Some(132), None), Some(40));
        assert_eq!(width(Some(100), None, None), None, "a pipe has no width, whatever COLUMNS says");
        assert_eq!(width(None, None, Some(120)), Some(120));
        assert_eq!(width(Some(100), Some(132), Some(120)), Some(120));
    }

    #[test]
    fn a_long_line_takes_several_lines_and_colours_take_no_room() {
        for (text, lines) in
            [("", 0), ("a\n", 1), ("a\n\nb", 3), ("12345\n", 1), ("123456\n", 2), ("\x1b[1m12345\x1b[0m\n", 1)]
        {
            assert_eq!(lines_of(text.as_bytes(), 5), lines, "{text:?}");
        }
    }

    #[test]
    fn an_option_beats_variables_and_these_beat_the_terminal() {
        let plain = Environment::default();
        let [no_color, forced, dumb] = [
            Environment { no_color: true, ..plain },
            Environment { forces_color: true, ..plain },
            Environment { is_dumb: true, ..plain },
        ];
        let is_coloured = |environment, terminal, color| {
            let screen = Screen::new(environment, terminal, color, None);
            screen.paint(Paint::Bad, "x") != "x"
        };
        for (environment, terminal, color, expected) in [
            (plain, Some(80), Color::Auto, true),
            (plain, None, Color::Auto, false),
            (plain, None, Color::Always, true),
            (plain, Some(80), Color::Never, false),
            (no_color, Some(80), Color::Auto, false),
            (no_color, Some(80), Color::Always, true),
            (forced, None, Color::Auto, true),
            (forced, None, Color::Never, false),
            (dumb, Some(80), Color::Auto, false),
        ] {
            assert_eq!(is_coloured(environment, terminal, color), expected, "{environment:?} {terminal:?} {color:?}");
        }
    }
}
