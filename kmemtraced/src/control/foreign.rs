//! Foreign changes: changes of a running recording by other programs, as intervals in which events may be missing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::Interval;

use crate::control::files::{Control, Difference, OwnWrites, may_clear};

/// Interval between two comparisons of all control files.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);
/// Most control files that a text names; the rest is a number.
const MAX_NAMED: usize = 16;

/// A change of the control state by another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignChange {
    /// Interval from the last time when the state was right to the next such time; open while the state is wrong, and empty where
    /// the source has no clock.
    pub(crate) interval: Interval,
    /// True if the change may have emptied the buffers, with events that were not read by then.
    pub(crate) clears: bool,
    /// Changed files, as text for the user.
    pub(crate) text: String,
}

/// Changes that were found up to now. A change with the same start as an earlier one replaces it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignChanges {
    all: Arc<Mutex<Vec<ForeignChange>>>,
    is_closed: Arc<AtomicBool>,
}

impl ForeignChanges {
    /// Adds a change.
    pub(crate) fn push(&self, change: ForeignChange) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    /// Changes from number `from` on.
    pub(crate) fn since(&self, from: usize) -> Vec<ForeignChange> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(from..).unwrap_or_default().to_vec()
    }

    /// Marks the list as complete, after the last comparison.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// True once the list is complete.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Result of one comparison of the control files.
#[derive(Debug, Default)]
struct Comparison {
    /// Lower bound of the time before it, upper bound of the time after it.
    before: Option<u64>,
    after: Option<u64>,
    /// Files that were written to since the comparison before.
    written: Vec<String>,
    /// Differences from the state at set-up.
    differences: Vec<Difference>,
}

/// Compares the control files while a recording runs.
pub(crate) struct Watcher {
    control: Control,
    compared: Instant,
    /// What the recorder wrote to since the last comparison.
    own: OwnWrites,
    history: History,
}

/// State of the control files over time.
#[derive(Debug, Default)]
struct History {
    changes: ForeignChanges,
    /// Last time when the state was right.
    right_until: Option<u64>,
    /// Set while the state is wrong.
    deviation: Option<Deviation>,
    /// True once a change was found.
    has_changed: bool,
}

/// A state that differs from that at set-up.
#[derive(Debug)]
struct Deviation {
    /// Last time when the state was right before it.
    since: Option<u64>,
    /// Last difference of each file that had one.
    files: BTreeMap<String, String>,
}

impl Watcher {
    /// Starts with the control files as set-up left them, before the recording is switched on.
    pub(crate) fn new(control: Control, changes: ForeignChanges) -> Watcher {
        let right_until = control.now().map(|(not_later, _)| not_later);
        let history = History { changes, right_until, ..History::default() };
        Watcher { control, compared: Instant::now(), own: OwnWrites::default(), history }
    }

    /// Announces that the recorder is about to switch the recording on or off, but for the events `later`.
    pub(crate) fn switch(&mut self, on: bool, later: &[String]) {
        self.own.to_switches = true;
        self.control.switch(on, later);
    }

    /// Notes that the recorder has added tasks to those that are recorded.
    pub(crate) fn listed(&mut self) {
        self.own.to_task_lists = true;
    }

    /// Message on filters that other programs set before the recorder took the buffers over.
    pub(crate) fn selections(&mut self) -> Option<String> {
        let text = self.control.selections().join("; ");
        if text.is_empty() {
            return None;
        }
        self.history.has_changed = true;
        let interval =
            if self.control.now().is_some() { Interval::new(0, Interval::TO_THE_END) } else { Interval::default() };
        self.history.changes.push(ForeignChange { interval, clears: false, text: text.clone() });
        Some(format!("a filter of another program leaves out events: {text}: reset it before recording"))
    }

    /// Takes the writes that the kernel reported, and compares all files once a second or if `all`; returns the message, if any.
    pub(crate) fn compare(&mut self, all: bool) -> Option<String> {
        let is_time = all || self.compared.elapsed() >= COMPARISON_INTERVAL;
        let is_cheap = self.control.has_cheap_clock();
        let before = if is_time || is_cheap { self.control.now() } else { None };
        let written = self.control.written(std::mem::take(&mut self.own));
        if written.is_empty() && !is_time {
            if self.control.is_watched() && is_cheap {
                self.history.mark_right(before.map(|(not_later, _)| not_later));
            }
            return None;
        }
        self.compared = Instant::now();
        let differences = self.control.differences();
        let after = self.control.now().map(|(_, not_earlier)| not_earlier);
        let before = before.or_else(|| self.control.now()).map(|(not_later, _)| not_later);
        self.history.add(Comparison { before, after, written, differences })
    }

    /// Compares for the last time, once the buffers are drained.
    pub(crate) fn last_comparison(&mut self) -> Option<String> {
        let message = self.compare(true);
        self.history.changes.close();
        message
    }

    /// True if a change was found.
    pub(crate) fn happened(&self) -> bool {
        self.history.has_changed
    }

    /// True if the kernel reports each write to the control files.
    pub(crate) fn is_watched(&self) -> bool {
        self.control.is_watched()
    }

    /// True if the instance was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.control.is_gone()
    }
}

/// At most [`MAX_NAMED`] names, and the number of the others.
fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>, between: &str) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    let named = names.take(MAX_NAMED).collect::<Vec<_>>().join(between);
    if more > 0 { format!("{named}{between}{more} more") } else { named }
}

impl Deviation {
    fn text(&self) -> String {
        let lines: Vec<String> = self.files.iter().map(|(file, how)| format!("{file} {how}")).collect();
        named(lines.iter().map(String::as_str), "; ")
    }
}

impl History {
    /// Notes that no file was written to up to now.
    fn mark_right(&mut self, now: Option<u64>) {
        if self.deviation.is_none() {
            self.right_until = now;
        }
    }

    fn push(&self, from: Option<u64>, to: Option<u64>, clears: bool, text: String) {
        let interval = from.zip(to).map_or_else(Interval::default, |(from, to)| Interval::new(from, to));
        self.changes.push(ForeignChange { interval, clears, text });
    }

    fn add(&mut self, found: Comparison) -> Option<String> {
        if found.differences.is_empty() { self.add_right(&found) } else { self.add_wrong(found) }
    }

    /// Adds a comparison without differences; the state may have been wrong since the one before.
    fn add_right(&mut self, found: &Comparison) -> Option<String> {
        let files = named(found.written.iter().map(String::as_str), ", ");
        let mut clears = found.written.iter().any(|file| may_clear(file));
        let message = match self.deviation.take() {
            Some(deviation) => {
                clears |= deviation.files.keys().any(|file| may_clear(file));
                self.push(deviation.since, found.after, clears, deviation.text());
                Some("the changed control files are as the recorder set them again: events between the change and now may be missing".to_owned())
            }
            None if found.written.is_empty() => None,
            None => {
                let text = format!("{files} written to");
                self.push(self.right_until, found.after, clears, text.clone());
                Some(format!("another program changed the recording: {text}: events may be missing here"))
            }
        };
        self.has_changed |= message.is_some();
        self.right_until = found.before;
        message
    }

    /// Adds a comparison with differences; a file is reported once.
    fn add_wrong(&mut self, found: Comparison) -> Option<String> {
        self.has_changed = true;
        let mut deviation =
            self.deviation.take().unwrap_or_else(|| Deviation { since: self.right_until, files: BTreeMap::new() });
        let mut news = Vec::new();
        for Difference { file, how } in found.differences {
            if !deviation.files.contains_key(&file) {
                news.push(format!("{file} {how}"));
            }
            deviation.files.insert(file, how);
        }
        // A write that empties the buffer leaves no difference.
        let cleared: Vec<&str> = found.written.iter().map(String::as_str).filter(|file| may_clear(file)).collect();
        for file in cleared {
            if !deviation.files.contains_key(file) {
                news.push(format!("{file} written to"));
                deviation.files.insert(file.to_owned(), "written to".to_owned());
            }
        }
        let message = (!news.is_empty()).then(|| {
            let news = named(news.iter().map(String::as_str), "; ");
            format!("another program changed the recording: {news}: from here on events may be missing until that is set back")
        });
        if message.is_some() {
            let to_the_end = found.after.map(|_| Interval::TO_THE_END);
            self.push(
                deviation.since,
                to_the_end,
                deviation.files.keys().any(|file| may_clear(file)),
                deviation.text(),
            );
        }
        self.deviation = Some(deviation);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: u64, written: &[&str], differences: &[(&str, &str)]) -> Comparison {
        let differences =
            differences.iter().map(|(file, how)| Difference { file: (*file).to_owned(), how: (*how).to_owned() });
        let written = written.iter().map(|file| (*file).to_owned()).collect();
        Comparison { before: Some(at), after: Some(at + 1), written, differences: differences.collect() }
    }

    fn change(from: u64, to: u64, text: &str) -> ForeignChange {
        ForeignChange { interval: Interval::new(from, to), clears: false, text: text.to_owned() }
    }

    const OFF: (&str, &str) = ("tracing_on", "is 0 instead of 1");

    #[test]
    fn a_change_lasts_from_the_last_right_look_to_the_next() {
        let mut history = History { right_until: Some(10), ..History::default() };
        assert!(history.add(seen(20, &[], &[])).is_none() && !history.has_changed);
        let message = history.add(seen(30, &["tracing_on"], &[OFF])).unwrap();
        assert!(message.contains("tracing_on is 0 instead of 1"), "{message}");
        assert!(history.add(seen(40, &[], &[OFF])).is_none(), "it was reported");
        history.mark_right(Some(45));
        assert!(history.add(seen(50, &[], &[OFF, ("filter", "is x")])).unwrap().contains("filter is x"));
        assert!(history.add(seen(60, &[], &[])).unwrap().contains("again"));
        assert!(history.add(seen(70, &[], &[])).is_none() && history.has_changed);
        let both = "filter is x; tracing_on is 0 instead of 1";
        let end = Interval::TO_THE_END;
        assert_eq!(
            history.changes.since(0),
            [change(20, end, "tracing_on is 0 instead of 1"), change(20, end, both), change(20, 61, both)]
        );
        assert_eq!(history.changes.since(2).len(), 1);
    }

    #[test]
    fn a_change_that_was_taken_back_is_told_and_has_an_end() {
        let mut history = History { right_until: Some(10), ..History::default() };
        history.mark_right(Some(15));
        assert!(history.add(seen(20, &["trace"], &[])).unwrap().contains("trace written to"));
        assert!(history.add(seen(30, &["tracing_on"], &[])).is_some());
        let cleared = ForeignChange { clears: true, ..change(15, 21, "trace written to") };
        assert_eq!(history.changes.since(0), [cleared, change(20, 31, "tracing_on written to")]);
    }

    #[test]
    fn a_value_that_changes_again_and_again_is_told_once() {
        let mut history = History { right_until: Some(10), ..History::default() };
        for n in 0..1000u64 {
            let how = format!("is {n} instead of none");
            assert_eq!(history.add(seen(20 + n, &[], &[("filter", &how)])).is_some(), n == 0);
        }
        assert!(history.add(seen(2000, &["trace"], &[("filter", "is x")])).unwrap().contains("trace written to"));
        assert_eq!(history.changes.since(0).len(), 2);
        let names: Vec<String> = (0..100).map(|n| format!("file{n:02}")).collect();
        let text = named(names.iter().map(String::as_str), ", ");
        assert!(text.ends_with("file15, 84 more"), "{text}");
    }

    #[test]
    fn a_source_without_a_clock_has_changes_without_times() {
        let mut history = History::default();
        let wrong =
            |differences: &[(&str, &str)]| Comparison { before: None, after: None, ..seen(0, &[], differences) };
        assert!(history.add(wrong(&[("enabled", "is 0 instead of 1")])).is_some());
        assert!(history.add(wrong(&[])).is_some());
        assert!(history.changes.since(0).iter().all(|change| change.interval == Interval::default()));
    }
}
