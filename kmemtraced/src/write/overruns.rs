//! Why the kernel's buffer of a CPU overran: the reader had not begun, it waited for the writer, or it did not run.

use std::time::{Duration, Instant};

/// Events that were overwritten in the kernel's buffer for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrun {
    pub(crate) events: u64,
    /// Longest time for which the reader was kept from the buffer, of those in which events were lost.
    pub(crate) longest: Duration,
}

impl Overrun {
    fn add(&mut self, events: u64, away: Duration) {
        if events > 0 {
            self.events = self.events.saturating_add(events);
            self.longest = self.longest.max(away);
        }
    }
}

/// Overwritten events of a CPU, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overruns {
    /// Lost before the reader began.
    pub(crate) start: Overrun,
    /// All blocks were filled, and the reader waited for the writer to give one back.
    pub(crate) writer: Overrun,
    /// Blocks were free, and the reader did not come in time.
    pub(crate) reader: Overrun,
}

/// Watch over what keeps a reader from its buffer.
#[derive(Debug, Default)]
pub(crate) struct OverrunWatch {
    overruns: Overruns,
    /// The kernel's count of overwritten events up to which the reasons are known.
    seen: u64,
    /// Start of the current turn of the reader, or the last look in it; `None` before the first one.
    turn: Option<Instant>,
    /// Time that the reader waited for the writer since then.
    waited: Duration,
    /// Longest turn since the last look, without waits for the writer.
    longest_turn: Duration,
    /// Longest wait for the writer since the buffer was last empty; `None` if there was none.
    behind: Option<Duration>,
}

impl OverrunWatch {
    /// Overwritten events by reason, up to the last [`OverrunWatch::look`].
    pub(crate) fn overruns(&self) -> Overruns {
        self.overruns
    }

    /// Takes the count of events that were overwritten before the recording.
    pub(crate) fn set_base(&mut self, overrun: u64) {
        self.seen = overrun;
    }

    /// Begins a turn of the reader.
    pub(crate) fn begin_turn(&mut self, now: Instant) {
        self.end_turn(now);
        self.turn = Some(now);
    }

    fn end_turn(&mut self, now: Instant) {
        if let Some(before) = &mut self.turn {
            let turn = now.saturating_duration_since(*before).saturating_sub(self.waited);
            self.longest_turn = self.longest_turn.max(turn);
            *before = now;
        }
        self.waited = Duration::ZERO;
    }

    /// True between a wait for the writer and the next round that empties the buffer: what the kernel overwrites then is lost
    /// because of the wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.is_some()
    }

    /// Adds a wait for the writer, which follows a look.
    pub(crate) fn add_wait(&mut self, wait: Duration) {
        self.waited += wait;
        self.behind = Some(self.behind.unwrap_or_default().max(wait));
    }

    /// Takes the kernel's count: what is new in it is lost for the reason that holds now.
    pub(crate) fn look(&mut self, overrun: u64, now: Instant) {
        // The reader may have been kept from the buffer in this turn: the process was stopped while it waited for data.
        self.end_turn(now);
        // A buffer that another program cleared counts anew.
        let new = overrun.saturating_sub(self.seen);
        self.seen = overrun;
        match self.behind.take() {
            Some(longest) => self.overruns.writer.add(new, longest),
            None if self.turn.is_none() => self.overruns.start.add(new, Duration::ZERO),
            None => self.overruns.reader.add(new, self.longest_turn),
        }
        self.longest_turn = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn overwritten_events_have_the_reason_that_held() {
        let (mut watch, start) = (OverrunWatch::default(), Instant::now());
        watch.set_base(1000);
        watch.look(1007, start);
        watch.begin_turn(start);
        // The reader comes after 300 ms, and waits for the writer for 200 ms of the next 250.
        watch.begin_turn(start + 300 * MS);
        watch.look(1020, start + 301 * MS);
        watch.add_wait(200 * MS);
        watch.add_wait(90 * MS);
        assert!(watch.is_behind());
        watch.look(1120, start + 600 * MS);
        assert!(!watch.is_behind());
        watch.begin_turn(start + 600 * MS);
        watch.look(1125, start + 600 * MS);
        // It is stopped in its turn.
        watch.look(1126, start + 3100 * MS);
        watch.begin_turn(start + 3101 * MS);
        watch.look(1127, start + 3102 * MS);
        let reason = |events, longest| Overrun { events, longest };
        let expected =
            Overruns { start: reason(7, Duration::ZERO), writer: reason(100, 200 * MS), reader: reason(20, 2500 * MS) };
        assert_eq!(watch.overruns(), expected);
    }

    #[test]
    fn a_counter_that_began_anew_adds_what_it_has_counted_later() {
        let mut watch = OverrunWatch::default();
        watch.set_base(1000);
        watch.begin_turn(Instant::now());
        watch.look(4, Instant::now());
        watch.look(9, Instant::now());
        assert_eq!(watch.overruns().reader.events, 5);
    }
}
