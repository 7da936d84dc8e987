//! How far the analysis is, as one line on a terminal that is gone at the end.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::render::units::percent;

/// Shorter runs show nothing.
const FIRST: Duration = Duration::from_millis(700);
const BETWEEN: Duration = Duration::from_millis(250);

/// The line on standard error.
pub(crate) struct Progress {
    started: Instant,
    /// When to write next; `None`: never.
    next: Option<Instant>,
    /// Bytes to be read.
    total: u64,
    is_shown: bool,
}

impl Progress {
    /// Of reading `total` bytes; shows nothing where nobody looks.
    pub(crate) fn new(total: u64, is_quiet: bool) -> Progress {
        let started = Instant::now();
        // A dumb terminal cannot clear a line.
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_watched = !is_quiet && !is_dumb && io::stderr().is_terminal();
        Progress { started, next: is_watched.then(|| started + FIRST), total, is_shown: false }
    }

    /// Whether it is time for another line.
    pub(crate) fn is_due(&self) -> bool {
        self.next.is_some_and(|next| Instant::now() >= next)
    }

    /// So much was read, and so many events were taken, where they are counted.
    pub(crate) fn show(&mut self, bytes: u64, events: Option<u64>) {
        let now = Instant::now();
        let line = line(bytes, self.total, events, now - self.started);
        self.is_shown = true;
        self.next = write!(io::stderr(), "\r\x1b[K{line}").is_ok().then(|| now + BETWEEN);
    }

    /// Makes room for what is to be printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(bytes: u64, total: u64, events: Option<u64>, time: Duration) -> String {
    let done = bytes.min(total);
    let seconds = time.as_secs_f64().max(0.001);
    let left = if done == 0 { 0.0 } else { seconds * (total - done) as f64 / done as f64 };
    let left = left.round() as u64;
    let share = percent(done, total);
    let events = events.map_or_else(String::new, |events| {
        let millions = events as f64 / 1e6;
        format!("   {millions:.1} M events   {:.1} M events/s", millions / seconds)
    });
    format!("{share} read{events}   {}:{:02} left", left / 60, left % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_share_rate_and_time_left() {
        let line_of = |bytes, total| line(bytes, total, Some(30_000_000), Duration::from_secs(2));
        assert_eq!(line_of(250, 1000), "25.0% read   30.0 M events   15.0 M events/s   0:06 left");
        assert_eq!(line_of(10, 1010), "1.0% read   30.0 M events   15.0 M events/s   3:20 left");
        // A file that grows, and one that is not known to have anything.
        assert_eq!(line_of(2000, 1000), "100.0% read   30.0 M events   15.0 M events/s   0:00 left");
        assert_eq!(line_of(0, 0), "- read   30.0 M events   15.0 M events/s   0:00 left");
        assert_eq!(line(250, 1000, None, Duration::from_secs(2)), "25.0% read   0:06 left");
    }
}
