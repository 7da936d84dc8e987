//! Foreign changes: changes of a running recording by other programs, as intervals in which events may be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::Interval;

use crate::control::files::{Control, Difference, OwnWrites, Watching};
use crate::control::rules::may_clear;

/// Interval between two comparisons of the control files.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time from when a write empties a buffer to when the kernel reports the write, nanoseconds, rounded up generously.
const SLOWEST_WRITE: u64 = 1_000_000_000;
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
    /// Files that were written to since the comparison before, each with the writer where it is known.
    written: BTreeMap<String, Option<String>>,
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
    /// Time of set-up, when all was right.
    begun: Option<u64>,
    /// Time of the last comparison: a file without a difference was right then.
    compared: Option<u64>,
    /// Deviations that are not over, by the last time when their files were right.
    open: BTreeMap<Option<u64>, Deviation>,
    /// True once a change was found.
    has_changed: bool,
    /// True once the recorder has switched the recording off: what is off by then may be so by another hand.
    is_off: bool,
}

/// Files that differ from their state at set-up.
#[derive(Debug, Default)]
struct Deviation {
    /// Last difference of each file that had one.
    files: BTreeMap<String, String>,
}

impl Watcher {
    /// Starts with the control files as set-up left them, before the recording is switched on.
    pub(crate) fn new(control: Control, changes: ForeignChanges) -> Watcher {
        let now = control.now().map(|(not_later, _)| not_later);
        let history = History { changes, begun: now, compared: now, ..History::default() };
        Watcher { control, compared: Instant::now(), own: OwnWrites::default(), history }
    }

    /// Announces that the recorder is about to switch the recording on or off, but for the events `later`.
    pub(crate) fn switch(&mut self, on: bool, later: &[String]) {
        self.own.to_switches = true;
        self.history.is_off = !on;
        self.control.switch(on, later);
    }

    /// Notes that these tasks were added to those that are recorded: by the recorder, or by the kernel as children of those.
    pub(crate) fn listed(&mut self, threads: &[u32]) {
        self.own.to_task_lists = true;
        self.control.listed(threads);
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

    /// Takes the writes that the kernel reported, and compares the files once a second; returns the message, if any.
    pub(crate) fn compare(&mut self) -> Option<String> {
        self.look(self.compared.elapsed() >= COMPARISON_INTERVAL)
    }

    /// Compares the files, before the recording is switched off.
    pub(crate) fn compare_now(&mut self) -> Option<String> {
        self.look(true)
    }

    /// Compares the files for the last time, once the buffers are drained.
    pub(crate) fn last_comparison(&mut self) -> Option<String> {
        let message = self.look(true);
        self.history.changes.close();
        message
    }

    /// Takes the writes that the kernel reported. Compares the files if there are any, or if it `is_time`.
    fn look(&mut self, is_time: bool) -> Option<String> {
        let before = if is_time || self.control.has_cheap_clock() { self.control.now() } else { None };
        let mut told = self.control.written(std::mem::take(&mut self.own));
        if told.is_empty() && !is_time {
            return None;
        }
        self.compared = Instant::now();
        let before = before.or_else(|| self.control.now()).map(|(not_later, _)| not_later);
        let differences = self.control.differences();
        // The kernel reports a write once it has acted: the writers of what was found may be known only now.
        told.files.extend(self.control.written(OwnWrites::default()).files);
        let after = self.control.now().map(|(_, not_earlier)| not_earlier);
        self.history.add(Comparison { before, after, written: told.files, differences })
    }

    /// True if a change was found.
    pub(crate) fn happened(&self) -> bool {
        self.history.has_changed
    }

    /// How writes of other programs are known.
    pub(crate) fn watching(&self) -> Watching {
        self.control.watching()
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

/// Files that were written to, by their writers: `a, b written to by process 7 (sh)`.
fn written_text(written: &BTreeMap<String, Option<String>>) -> String {
    let mut by_writer: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    for (file, writer) in written {
        by_writer.entry(writer.as_deref()).or_default().push(file);
    }
    let texts = by_writer.into_iter().map(|(writer, files)| {
        let by = writer.map(|writer| format!(" by {writer}")).unwrap_or_default();
        format!("{} written to{by}", named(files.into_iter(), ", "))
    });
    texts.collect::<Vec<_>>().join("; ")
}

impl Deviation {
    fn text(&self) -> String {
        let lines: Vec<String> = self.files.iter().map(|(file, how)| format!("{file} {how}")).collect();
        named(lines.iter().map(String::as_str), "; ")
    }

    fn clears(&self) -> bool {
        self.files.keys().any(|file| may_clear(file))
    }
}

impl History {
    /// Time from which on a change of this file may have acted: since the last comparison, or before, as the buffer is emptied before the
    /// file has another text and before the kernel reports the write.
    fn since(&self, clears: bool) -> Option<u64> {
        let slowest = if clears { SLOWEST_WRITE } else { 0 };
        self.compared.map(|compared| compared.saturating_sub(slowest).max(self.begun.unwrap_or(0)))
    }

    fn push(&self, from: Option<u64>, to: Option<u64>, clears: bool, text: String) {
        let interval = from.zip(to).map_or_else(Interval::default, |(from, to)| Interval::new(from, to));
        self.changes.push(ForeignChange { interval, clears, text });
    }

    /// Takes a comparison; returns the message, if there is something new. A file is reported once.
    fn add(&mut self, found: Comparison) -> Option<String> {
        let are_over = self.end_those_that_are_over(&found);
        let news = self.add_differences(&found);
        let message = if !news.is_empty() {
            let news = named(news.iter().map(String::as_str), "; ");
            Some(format!(
                "another program changed the recording: {news}: from here on events may be missing until that is set back"
            ))
        } else if are_over && self.open.is_empty() && !self.is_off {
            Some("the changed control files are as the recorder set them again: events between the change and now may be missing".to_owned())
        } else if !are_over && self.open.is_empty() && !found.written.is_empty() {
            // It was changed and changed back.
            let text = written_text(&found.written);
            let clears = found.written.keys().any(|file| may_clear(file));
            self.push(self.since(clears), found.after, clears, text.clone());
            Some(format!("another program changed the recording: {text}: events may be missing here"))
        } else {
            None
        };
        self.has_changed |= message.is_some();
        self.compared = found.before;
        message
    }

    /// Ends the deviations of which all files are right again; true if there are some.
    fn end_those_that_are_over(&mut self, found: &Comparison) -> bool {
        let is_wrong = |file: &String| found.differences.iter().any(|difference| difference.file == *file);
        let over = self.open.iter().filter(|(_, deviation)| !deviation.files.keys().any(is_wrong));
        let over: Vec<Option<u64>> = over.map(|(since, _)| *since).collect();
        for since in &over {
            let Some(deviation) = self.open.remove(since) else { continue };
            // A write to another file may have emptied the buffer since.
            let clears = deviation.clears() || found.written.keys().any(|file| may_clear(file));
            self.push(*since, found.after, clears, deviation.text());
        }
        !over.is_empty()
    }

    /// Adds differences to the deviations; returns the texts of those that are new.
    fn add_differences(&mut self, found: &Comparison) -> Vec<String> {
        let (mut news, mut changed) = (Vec::new(), BTreeSet::new());
        for Difference { file, how } in &found.differences {
            let writer = found.written.get(file);
            let by = writer.and_then(Option::as_ref).map(|writer| format!(", set by {writer}"));
            let by = by.unwrap_or_default();
            if let Some(known) = self.open.values_mut().find_map(|deviation| deviation.files.get_mut(file)) {
                // The writer stays known as long as the text is the same.
                if !known.starts_with(how) || !by.is_empty() {
                    *known = format!("{how}{by}");
                }
                continue;
            }
            let how = format!("{how}{by}");
            news.push(format!("{file} {how}"));
            let since = self.since(may_clear(file));
            self.open.entry(since).or_default().files.insert(file.clone(), how);
            changed.insert(since);
        }
        // A write that empties the buffer leaves no difference, and is over with the next comparison.
        if !self.open.is_empty() {
            let since = self.since(true);
            let cleared = found.written.iter().filter(|(file, _)| may_clear(file) && !is_different(found, file));
            for (file, writer) in cleared {
                let text = written_text(&BTreeMap::from([(file.clone(), writer.clone())]));
                let how = text.strip_prefix(file.as_str()).unwrap_or_default().trim_start().to_owned();
                self.open.entry(since).or_default().files.insert(file.clone(), how);
                news.push(text);
                changed.insert(since);
            }
        }
        for since in changed {
            let Some(deviation) = self.open.get(&since) else { continue };
            let to_the_end = found.after.map(|_| Interval::TO_THE_END);
            self.push(since, to_the_end, deviation.clears(), deviation.text());
        }
        news
    }
}

fn is_different(found: &Comparison, file: &str) -> bool {
    found.differences.iter().any(|difference| difference.file == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: u64, written: &[&str], differences: &[(&str, &str)]) -> Comparison {
        let difference = |(file, how): &(&str, &str)| Difference { file: (*file).to_owned(), how: (*how).to_owned() };
        let written = written.iter().map(|file| ((*file).to_owned(), None)).collect();
        let differences = differences.iter().map(difference).collect();
        Comparison { before: Some(at), after: Some(at + 1), written, differences }
    }

    fn change(from: u64, to: u64, text: &str) -> ForeignChange {
        ForeignChange { interval: Interval::new(from, to), clears: false, text: text.to_owned() }
    }

    fn history(right_until: u64) -> History {
        History { compared: Some(right_until), ..History::default() }
    }

    const OFF: (&str, &str) = ("tracing_on", "is 0 instead of 1");
    const END: u64 = Interval::TO_THE_END;

    #[test]
    fn a_change_lasts_from_the_last_right_look_to_the_next() {
        let mut history = history(10);
        assert!(history.add(seen(20, &[], &[])).is_none() && !history.has_changed);
        let message = history.add(seen(30, &["tracing_on"], &[OFF])).unwrap();
        assert!(message.contains("tracing_on is 0 instead of 1"), "{message}");
        assert!(history.add(seen(40, &[], &[OFF])).is_none(), "it was reported");
        assert!(history.add(seen(50, &[], &[OFF, ("filter", "is x")])).unwrap().contains("filter is x"));
        assert!(history.add(seen(60, &[], &[("filter", "is x")])).is_none(), "one of the two is right again");
        assert!(history.add(seen(70, &[], &[])).unwrap().contains("again"));
        assert!(history.add(seen(80, &[], &[])).is_none() && history.has_changed);
        let off = "tracing_on is 0 instead of 1";
        assert_eq!(
            history.changes.since(0),
            [change(20, END, off), change(40, END, "filter is x"), change(20, 61, off), change(40, 71, "filter is x")]
        );
        assert_eq!(history.changes.since(3).len(), 1);
    }

    #[test]
    fn a_writer_is_named() {
        let mut history = history(10);
        let writer = Some("process 7 (sh)".to_owned());
        let mut found = seen(20, &["a", "b"], &[]);
        found.written.insert("tracing_on".to_owned(), writer.clone());
        let text = "a, b written to; tracing_on written to by process 7 (sh)";
        assert!(history.add(found).unwrap().contains(text));
        let off = || Comparison {
            written: BTreeMap::from([("tracing_on".to_owned(), writer.clone())]),
            ..seen(30, &[], &[OFF])
        };
        history.add(off());
        history.add(seen(40, &[], &[OFF]));
        history.add(seen(50, &[], &[]));
        let last = history.changes.since(0).pop().unwrap();
        assert_eq!(last.text, "tracing_on is 0 instead of 1, set by process 7 (sh)");
    }

    #[test]
    fn a_change_that_was_taken_back_is_told_and_has_an_end() {
        let at = |time: u64| time + SLOWEST_WRITE;
        let mut history = history(at(10));
        assert!(history.add(seen(at(20), &["trace"], &[])).unwrap().contains("trace written to"));
        assert!(history.add(seen(at(30), &["tracing_on"], &[])).is_some());
        // The buffer may have been emptied long before the write was reported.
        let cleared = ForeignChange { clears: true, ..change(10, at(21), "trace written to") };
        assert_eq!(history.changes.since(0), [cleared, change(at(20), at(31), "tracing_on written to")]);
    }

    #[test]
    fn a_buffer_that_is_emptied_while_a_file_is_wrong_is_a_gap_of_its_own() {
        let at = |time: u64| time + SLOWEST_WRITE;
        let mut history = history(at(10));
        assert!(history.add(seen(at(20), &["trace"], &[OFF])).unwrap().contains("trace written to"));
        assert!(history.add(seen(at(30), &[], &[OFF])).is_none());
        assert!(history.add(seen(at(40), &[], &[])).is_some());
        let off = "tracing_on is 0 instead of 1";
        let cleared = |to| ForeignChange { clears: true, ..change(10, to, "trace written to") };
        assert_eq!(
            history.changes.since(0),
            [cleared(END), change(at(10), END, off), cleared(at(31)), change(at(10), at(41), off)]
        );
    }

    #[test]
    fn a_value_that_changes_again_and_again_is_told_once() {
        let mut history = history(10);
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
