//! Line that shows that the program watches while nothing stalls: on standard error, rewritten in its place.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use kmemtrace_abi::text::units::counted;

use crate::terminal::screen;

/// Interval between two lines.
const INTERVAL: Duration = Duration::from_secs(5);

/// The line; on a terminal only.
pub(super) struct Alive {
    started: Instant,
    /// Time of the next line; `None`: never.
    due: Option<Instant>,
    is_shown: bool,
    spans: u64,
    last: Option<Instant>,
}

impl Alive {
    /// A line that is shown from the first interval on, and never if `is_quiet`.
    pub(super) fn new(is_quiet: bool) -> Alive {
        let started = Instant::now();
        // A dumb terminal cannot rewrite a line.
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_watched = !is_quiet && !is_dumb && screen::is_terminal_for_errors();
        Alive { started, due: is_watched.then(|| started + INTERVAL), is_shown: false, spans: 0, last: None }
    }

    /// So many spans are about to be printed: the line makes room for them.
    pub(super) fn make_room(&mut self, spans: usize) {
        if spans > 0 {
            self.clear();
            self.spans += spans as u64;
            self.last = Some(Instant::now());
        }
    }

    /// Rewrites the line if it is time.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let text = text(now - self.started, self.spans, self.last.map(|last| now - last));
        self.is_shown = true;
        self.due = write!(io::stderr(), "\r\x1b[K{text}").is_ok().then(|| now + INTERVAL);
    }

    /// Takes the line off the screen.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.clear();
    }
}

fn text(time: Duration, spans: u64, since: Option<Duration>) -> String {
    let seconds = |time: Duration| format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60);
    let last = since.map_or(String::new(), |since| format!(", the last one {} ago", seconds(since)));
    format!("watching for {}: {}{last}", seconds(time), counted(spans, "stall"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_how_long_and_what_was_seen() {
        assert_eq!(text(Duration::from_secs(65), 0, None), "watching for 1:05: 0 stalls");
        let since = Some(Duration::from_secs(7));
        assert_eq!(text(Duration::from_secs(600), 1, since), "watching for 10:00: 1 stall, the last one 0:07 ago");
    }
}
