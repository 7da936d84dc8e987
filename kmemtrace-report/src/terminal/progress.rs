//! Progress of an analysis: one line on a terminal, cleared at the end.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use kmemtrace::Progress;
use kmemtrace_abi::text::units::percent;

/// Delay before the first line; shorter runs show nothing.
const FIRST: Duration = Duration::from_millis(700);
const BETWEEN: Duration = Duration::from_millis(250);

/// Progress line on standard error.
pub(crate) struct ProgressLine {
    started: Instant,
    /// Time of the next update; `None`: never.
    next: Option<Instant>,
    is_shown: bool,
}

impl ProgressLine {
    /// Creates a line that is shown on a terminal only, and never if `is_quiet`.
    pub(crate) fn new(is_quiet: bool) -> ProgressLine {
        let started = Instant::now();
        // A dumb terminal cannot clear a line.
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_watched = !is_quiet && !is_dumb && io::stderr().is_terminal();
        ProgressLine { started, next: is_watched.then(|| started + FIRST), is_shown: false }
    }
}

impl Progress for ProgressLine {
    fn is_due(&self) -> bool {
        self.next.is_some_and(|next| Instant::now() >= next)
    }

    fn show(&mut self, bytes_read: u64, bytes_to_read: u64, events: Option<u64>) {
        let now = Instant::now();
        let line = line(bytes_read, bytes_to_read, events, now - self.started);
        self.is_shown = true;
        self.next = write!(io::stderr(), "\r\x1b[K{line}").is_ok().then(|| now + BETWEEN);
    }

    fn begin(&mut self) {
        self.started = Instant::now();
        self.next = self.next.map(|_| self.started + FIRST);
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
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
        // A file that grows, and an empty one.
        assert_eq!(line_of(2000, 1000), "100.0% read   30.0 M events   15.0 M events/s   0:00 left");
        assert_eq!(line_of(0, 0), "- read   30.0 M events   15.0 M events/s   0:00 left");
        assert_eq!(line(250, 1000, None, Duration::from_secs(2)), "25.0% read   0:06 left");
    }
}
