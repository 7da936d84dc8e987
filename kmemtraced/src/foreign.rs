//! Foreign hands: what somebody else does to a running recording, as intervals in which events may be missing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kmemtrace_abi::block::Interval;

use crate::control::Control;

/// How often all control files are read back.
const LOOK: Duration = Duration::from_secs(1);

/// A change of the control state by somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hand {
    /// From when the state was last seen right to when it was seen right again; its end is that of the trace while it is wrong, and
    /// 0 where the source has no clock.
    pub(crate) interval: Interval,
    /// What was changed, for people.
    pub(crate) text: String,
}

/// All that was seen so far. An entry with the same begin as an earlier one takes its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hands(Arc<Mutex<Vec<Hand>>>);

impl Hands {
    pub(crate) fn push(&self, hand: Hand) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(hand);
    }

    /// Those from number `from` on.
    pub(crate) fn since(&self, from: usize) -> Vec<Hand> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(from..).unwrap_or_default().to_vec()
    }
}

/// What a look at the control files came to.
#[derive(Debug, Default)]
struct Seen {
    /// The time before and after it: not later than, not earlier than.
    before: Option<u64>,
    after: Option<u64>,
    /// Files that were written to since the look before.
    written: Vec<String>,
    /// What is not as it was set.
    differences: Vec<String>,
}

/// Looks for foreign hands while a recording runs.
pub(crate) struct Watcher {
    control: Control,
    looked: Instant,
    log: Log,
}

/// The control state over time.
#[derive(Debug, Default)]
struct Log {
    hands: Hands,
    /// The state was right until then.
    right_until: Option<u64>,
    /// The state is wrong since then, and what is.
    wrong: Option<(Option<u64>, Vec<String>)>,
    happened: bool,
}

impl Watcher {
    /// Begins with control files that are right.
    pub(crate) fn new(control: Control, hands: Hands) -> Watcher {
        let right_until = control.now().map(|(not_later, _)| not_later);
        Watcher { control, looked: Instant::now(), log: Log { hands, right_until, ..Log::default() } }
    }

    /// Looks, at all files where it is time or `all` is asked for, and returns what is to be told.
    pub(crate) fn look(&mut self, all: bool) -> Option<String> {
        let is_time = all || self.looked.elapsed() >= LOOK;
        let is_cheap = self.control.has_cheap_clock();
        let before = if is_time || is_cheap { self.control.now() } else { None };
        let written = self.control.written();
        if written.is_empty() && !is_time {
            if self.control.is_watched() && is_cheap {
                self.log.is_right(before.map(|(not_later, _)| not_later));
            }
            return None;
        }
        self.looked = Instant::now();
        let differences = self.control.differences();
        let after = self.control.now().map(|(_, not_earlier)| not_earlier);
        let before = before.or_else(|| self.control.now()).map(|(not_later, _)| not_later);
        self.log.add(Seen { before, after, written, differences })
    }

    /// Whether anything was seen.
    pub(crate) fn happened(&self) -> bool {
        self.log.happened
    }

    /// Whether the kernel tells of each write to the control files.
    pub(crate) fn is_watched(&self) -> bool {
        self.control.is_watched()
    }

    /// Whether what is recorded from was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.control.is_gone()
    }
}

impl Log {
    /// The state is right at this time.
    fn is_right(&mut self, now: Option<u64>) {
        if self.wrong.is_none() {
            self.right_until = now;
        }
    }

    fn add(&mut self, seen: Seen) -> Option<String> {
        let written = |files: &[String]| format!("{} written to", files.join(", "));
        let interval = |from: Option<u64>, to: Option<u64>| match (from, to) {
            (Some(from), Some(to)) => Interval::new(from, to),
            _ => Interval::default(),
        };
        let to_the_end = seen.after.map(|_| Interval::TO_THE_END);
        if seen.differences.is_empty() {
            let told = match self.wrong.take() {
                Some((from, what)) => {
                    let what = what.join("; ");
                    self.hands.push(Hand { interval: interval(from, seen.after), text: what });
                    Some("the recording is as it was set again; what was not recorded meanwhile is missing".to_owned())
                }
                None if seen.written.is_empty() => None,
                None => {
                    let text = written(&seen.written);
                    self.hands.push(Hand { interval: interval(self.right_until, seen.after), text: text.clone() });
                    Some(format!("somebody else changed the recording: {text}: events may be missing here"))
                }
            };
            self.happened |= told.is_some();
            self.right_until = seen.before;
            return told;
        }
        self.happened = true;
        let (from, known) = self.wrong.take().unwrap_or((self.right_until, Vec::new()));
        let news: Vec<String> = seen.differences.into_iter().filter(|text| !known.contains(text)).collect();
        let told = (!news.is_empty()).then(|| {
            let what = news.join("; ");
            format!(
                "somebody else changed the recording: {what}: from here on events are missing until that is set back"
            )
        });
        let known = [known, news].concat();
        if told.is_some() {
            self.hands.push(Hand { interval: interval(from, to_the_end), text: known.join("; ") });
        }
        self.wrong = Some((from, known));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: u64, written: &[&str], differences: &[&str]) -> Seen {
        let all = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Seen { before: Some(at), after: Some(at + 1), written: all(written), differences: all(differences) }
    }

    fn hand(from: u64, to: u64, text: &str) -> Hand {
        Hand { interval: Interval::new(from, to), text: text.to_owned() }
    }

    #[test]
    fn a_change_lasts_from_the_last_right_look_to_the_next() {
        let mut log = Log { right_until: Some(10), ..Log::default() };
        assert!(log.add(seen(20, &[], &[])).is_none() && !log.happened);
        let told = log.add(seen(30, &["tracing_on"], &["tracing_on is 0 instead of 1"])).unwrap();
        assert!(told.contains("tracing_on is 0 instead of 1"), "{told}");
        assert!(log.add(seen(40, &[], &["tracing_on is 0 instead of 1"])).is_none(), "it was told");
        log.is_right(Some(45));
        assert!(
            log.add(seen(50, &[], &["tracing_on is 0 instead of 1", "filter is x"])).unwrap().contains("filter is x")
        );
        assert!(log.add(seen(60, &[], &[])).unwrap().contains("again"));
        assert!(log.add(seen(70, &[], &[])).is_none() && log.happened);
        let both = "tracing_on is 0 instead of 1; filter is x";
        let end = Interval::TO_THE_END;
        assert_eq!(
            log.hands.since(0),
            [hand(20, end, "tracing_on is 0 instead of 1"), hand(20, end, both), hand(20, 61, both)]
        );
        assert_eq!(log.hands.since(2).len(), 1);
    }

    #[test]
    fn a_change_that_was_taken_back_is_told_and_has_an_end() {
        let mut log = Log { right_until: Some(10), ..Log::default() };
        log.is_right(Some(15));
        assert!(log.add(seen(20, &["trace"], &[])).unwrap().contains("trace written to"));
        assert!(log.add(seen(30, &["trace"], &[])).is_some());
        assert_eq!(log.hands.since(0), [hand(15, 21, "trace written to"), hand(20, 31, "trace written to")]);
    }

    #[test]
    fn a_source_without_a_clock_has_changes_without_times() {
        let mut log = Log::default();
        let wrong = |differences: &[&str]| Seen { before: None, after: None, ..seen(0, &[], differences) };
        assert!(log.add(wrong(&["enabled is 0 instead of 1"])).is_some());
        assert!(log.add(wrong(&[])).is_some());
        assert!(log.hands.since(0).iter().all(|hand| hand.interval == Interval::default()));
    }
}
