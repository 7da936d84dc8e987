//! Foreign changes: changes of a running recording by other programs, as intervals in which events may be missing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kmemtrace_abi::block::Interval;

use crate::control::files::{Control, Difference, may_clear};

/// Interval between two readings of all control files.
const LOOK: Duration = Duration::from_secs(1);
/// Control files that a text names; of more it tells the number.
const NAMED: usize = 16;

/// A change of the control state by another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignChange {
    /// From when the state was last seen right to when it was seen right again; its end is that of the trace while it is wrong, and
    /// 0 where the source has no clock.
    pub(crate) interval: Interval,
    /// True if the change may have emptied the buffers: events that were not read by then are gone, too.
    pub(crate) clears: bool,
    /// The files that were changed, for people.
    pub(crate) text: String,
}

/// All changes that were seen so far. An entry with the same begin as an earlier one takes its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignChanges {
    all: Arc<Mutex<Vec<ForeignChange>>>,
    is_closed: Arc<AtomicBool>,
}

impl ForeignChanges {
    pub(crate) fn push(&self, change: ForeignChange) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    /// The entries from number `from` on.
    pub(crate) fn since(&self, from: usize) -> Vec<ForeignChange> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(from..).unwrap_or_default().to_vec()
    }

    /// The last look is over: no more entries come.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// True once no more entries come.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// The result of a look at the control files.
#[derive(Debug, Default)]
struct Seen {
    /// The time before and after it: not later than, not earlier than.
    before: Option<u64>,
    after: Option<u64>,
    /// Files that were written to since the look before.
    written: Vec<String>,
    /// Differences from the state that was set.
    differences: Vec<Difference>,
}

/// Looks for foreign changes while a recording runs.
pub(crate) struct Watcher {
    control: Control,
    looked: Instant,
    /// The recorder has switched the recording since the last look.
    has_switched: bool,
    log: Log,
}

/// The control state over time.
#[derive(Debug, Default)]
struct Log {
    changes: ForeignChanges,
    /// The state was right until then.
    right_until: Option<u64>,
    /// The state is wrong since then.
    wrong: Option<Wrong>,
    happened: bool,
}

/// A state that is not as it was set.
#[derive(Debug)]
struct Wrong {
    since: Option<u64>,
    /// The last difference of each file that had one.
    how: BTreeMap<String, String>,
}

impl Watcher {
    /// Begins with control files as they were set, before the recording is switched on.
    pub(crate) fn new(control: Control, changes: ForeignChanges) -> Watcher {
        let right_until = control.now().map(|(not_later, _)| not_later);
        let log = Log { changes, right_until, ..Log::default() };
        Watcher { control, looked: Instant::now(), has_switched: false, log }
    }

    /// The recorder is about to switch the recording on or off.
    pub(crate) fn switch(&mut self, on: bool) {
        self.has_switched = true;
        self.control.switch(on);
    }

    /// The message on selections that other programs made before the recorder took the buffers over.
    pub(crate) fn selections(&mut self) -> Option<String> {
        let text = self.control.selections().join("; ");
        if text.is_empty() {
            return None;
        }
        self.log.happened = true;
        let interval =
            if self.control.now().is_some() { Interval::new(0, Interval::TO_THE_END) } else { Interval::default() };
        self.log.changes.push(ForeignChange { interval, clears: false, text: text.clone() });
        Some(format!("events are left out that the recorder did not leave out: {text}: set that back before recording"))
    }

    /// Looks, at all files where it is time or `all` is asked for, and returns what is to be told.
    pub(crate) fn look(&mut self, all: bool) -> Option<String> {
        let is_time = all || self.looked.elapsed() >= LOOK;
        let is_cheap = self.control.has_cheap_clock();
        let before = if is_time || is_cheap { self.control.now() } else { None };
        let written = self.control.written(std::mem::take(&mut self.has_switched));
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

    /// Looks for the last time, once the buffers are drained.
    pub(crate) fn last_look(&mut self) -> Option<String> {
        let told = self.look(true);
        self.log.changes.close();
        told
    }

    /// True if a change was seen.
    pub(crate) fn happened(&self) -> bool {
        self.log.happened
    }

    /// True if the kernel tells of each write to the control files.
    pub(crate) fn is_watched(&self) -> bool {
        self.control.is_watched()
    }

    /// True if the instance was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.control.is_gone()
    }
}

/// Some names, and how many more there are.
fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>, between: &str) -> String {
    let more = names.len().saturating_sub(NAMED);
    let named = names.take(NAMED).collect::<Vec<_>>().join(between);
    if more > 0 { format!("{named}{between}{more} more") } else { named }
}

impl Wrong {
    fn text(&self) -> String {
        let lines: Vec<String> = self.how.iter().map(|(file, how)| format!("{file} {how}")).collect();
        named(lines.iter().map(String::as_str), "; ")
    }
}

impl Log {
    /// The state is right at this time.
    fn is_right(&mut self, now: Option<u64>) {
        if self.wrong.is_none() {
            self.right_until = now;
        }
    }

    fn push(&self, from: Option<u64>, to: Option<u64>, clears: bool, text: String) {
        let interval = from.zip(to).map_or_else(Interval::default, |(from, to)| Interval::new(from, to));
        self.changes.push(ForeignChange { interval, clears, text });
    }

    fn add(&mut self, seen: Seen) -> Option<String> {
        if seen.differences.is_empty() { self.add_right(&seen) } else { self.add_wrong(seen) }
    }

    /// The state is right, and may have been wrong since the last look.
    fn add_right(&mut self, seen: &Seen) -> Option<String> {
        let files = named(seen.written.iter().map(String::as_str), ", ");
        let mut clears = seen.written.iter().any(|file| may_clear(file));
        let told = match self.wrong.take() {
            Some(wrong) => {
                clears |= wrong.how.keys().any(|file| may_clear(file));
                self.push(wrong.since, seen.after, clears, wrong.text());
                Some("the recording is as it was set again; events of the meantime may be missing".to_owned())
            }
            None if seen.written.is_empty() => None,
            None => {
                let text = format!("{files} written to");
                self.push(self.right_until, seen.after, clears, text.clone());
                Some(format!("another program changed the recording: {text}: events may be missing here"))
            }
        };
        self.happened |= told.is_some();
        self.right_until = seen.before;
        told
    }

    /// The state is wrong; files that were so before are told once.
    fn add_wrong(&mut self, seen: Seen) -> Option<String> {
        self.happened = true;
        let mut wrong = self.wrong.take().unwrap_or_else(|| Wrong { since: self.right_until, how: BTreeMap::new() });
        let mut news = Vec::new();
        for Difference { file, how } in seen.differences {
            if !wrong.how.contains_key(&file) {
                news.push(format!("{file} {how}"));
            }
            wrong.how.insert(file, how);
        }
        // A buffer that was emptied while the state is wrong shows in no difference.
        let cleared: Vec<&str> = seen.written.iter().map(String::as_str).filter(|file| may_clear(file)).collect();
        for file in cleared {
            if !wrong.how.contains_key(file) {
                news.push(format!("{file} written to"));
                wrong.how.insert(file.to_owned(), "written to".to_owned());
            }
        }
        let told = (!news.is_empty()).then(|| {
            let news = named(news.iter().map(String::as_str), "; ");
            format!("another program changed the recording: {news}: from here on events may be missing until that is set back")
        });
        if told.is_some() {
            let to_the_end = seen.after.map(|_| Interval::TO_THE_END);
            self.push(wrong.since, to_the_end, wrong.how.keys().any(|file| may_clear(file)), wrong.text());
        }
        self.wrong = Some(wrong);
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: u64, written: &[&str], differences: &[(&str, &str)]) -> Seen {
        let differences =
            differences.iter().map(|(file, how)| Difference { file: (*file).to_owned(), how: (*how).to_owned() });
        let written = written.iter().map(|file| (*file).to_owned()).collect();
        Seen { before: Some(at), after: Some(at + 1), written, differences: differences.collect() }
    }

    fn change(from: u64, to: u64, text: &str) -> ForeignChange {
        ForeignChange { interval: Interval::new(from, to), clears: false, text: text.to_owned() }
    }

    const OFF: (&str, &str) = ("tracing_on", "is 0 instead of 1");

    #[test]
    fn a_change_lasts_from_the_last_right_look_to_the_next() {
        let mut log = Log { right_until: Some(10), ..Log::default() };
        assert!(log.add(seen(20, &[], &[])).is_none() && !log.happened);
        let told = log.add(seen(30, &["tracing_on"], &[OFF])).unwrap();
        assert!(told.contains("tracing_on is 0 instead of 1"), "{told}");
        assert!(log.add(seen(40, &[], &[OFF])).is_none(), "it was told");
        log.is_right(Some(45));
        assert!(log.add(seen(50, &[], &[OFF, ("filter", "is x")])).unwrap().contains("filter is x"));
        assert!(log.add(seen(60, &[], &[])).unwrap().contains("again"));
        assert!(log.add(seen(70, &[], &[])).is_none() && log.happened);
        let both = "filter is x; tracing_on is 0 instead of 1";
        let end = Interval::TO_THE_END;
        assert_eq!(
            log.changes.since(0),
            [change(20, end, "tracing_on is 0 instead of 1"), change(20, end, both), change(20, 61, both)]
        );
        assert_eq!(log.changes.since(2).len(), 1);
    }

    #[test]
    fn a_change_that_was_taken_back_is_told_and_has_an_end() {
        let mut log = Log { right_until: Some(10), ..Log::default() };
        log.is_right(Some(15));
        assert!(log.add(seen(20, &["trace"], &[])).unwrap().contains("trace written to"));
        assert!(log.add(seen(30, &["tracing_on"], &[])).is_some());
        let cleared = ForeignChange { clears: true, ..change(15, 21, "trace written to") };
        assert_eq!(log.changes.since(0), [cleared, change(20, 31, "tracing_on written to")]);
    }

    #[test]
    fn a_value_that_changes_again_and_again_is_told_once() {
        let mut log = Log { right_until: Some(10), ..Log::default() };
        for n in 0..1000u64 {
            let how = format!("is {n} instead of none");
            assert_eq!(log.add(seen(20 + n, &[], &[("filter", &how)])).is_some(), n == 0);
        }
        assert!(log.add(seen(2000, &["trace"], &[("filter", "is x")])).unwrap().contains("trace written to"));
        assert_eq!(log.changes.since(0).len(), 2);
        let names: Vec<String> = (0..100).map(|n| format!("file{n:02}")).collect();
        let text = named(names.iter().map(String::as_str), ", ");
        assert!(text.ends_with("file15, 84 more"), "{text}");
    }

    #[test]
    fn a_source_without_a_clock_has_changes_without_times() {
        let mut log = Log::default();
        let wrong = |differences: &[(&str, &str)]| Seen { before: None, after: None, ..seen(0, &[], differences) };
        assert!(log.add(wrong(&[("enabled", "is 0 instead of 1")])).is_some());
        assert!(log.add(wrong(&[])).is_some());
        assert!(log.changes.since(0).iter().all(|change| change.interval == Interval::default()));
    }
}
