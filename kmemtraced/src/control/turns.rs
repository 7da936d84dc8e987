//! Triggers of events that are not recorded, compared in turn: one of them may switch the recording off, or swap its buffer.
//!
//! There are thousands. A few are opened each second, so that each is looked at within half a minute.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::control::rules::what_counts;
use crate::fs::kernelfs::KernelFs;

/// Seconds in which each trigger is looked at once.
const ROUND: usize = 25;
/// Longest time of the looks of one second.
const LIMIT: Duration = Duration::from_millis(8);
/// Triggers of a kernel, before they are counted.
const MANY: usize = 3000;

/// Text of a trigger that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) file: String,
    pub(crate) text: String,
    /// Text at set-up.
    pub(crate) expected: String,
    /// Last time when it was as it was at set-up.
    pub(crate) right: Option<u64>,
}

/// The round of looks.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Triggers that are compared each second.
    recorded: BTreeSet<String>,
    /// Time of set-up.
    begun: Option<u64>,
    /// Triggers that were set before the recording, with their text.
    set_before: BTreeMap<String, String>,
    /// Directories and files of this round that are still to be looked at, last first.
    left: Vec<String>,
    /// Number of triggers in the round before and in this one.
    count: usize,
    counted: usize,
    /// Times at which triggers were as at set-up.
    right: HashMap<String, u64>,
}

impl Turns {
    /// Starts at time `begun` with an instance of which nobody has set a trigger but the recorder those of `recorded`, or if `is_used`
    /// with the triggers that there are.
    pub(crate) fn begin(fs: &KernelFs, recorded: BTreeSet<String>, begun: Option<u64>, is_used: bool) -> Turns {
        let mut turns = Turns { recorded, begun, count: MANY, ..Turns::default() };
        if is_used {
            let found = turns.look(fs, begun, true);
            turns.set_before = found.into_iter().map(|found| (found.file, found.text)).collect();
        }
        turns
    }

    /// Compares the next triggers, or `all` of them; `now` is a time before this call.
    pub(crate) fn look(&mut self, fs: &KernelFs, now: Option<u64>, all: bool) -> Vec<Found> {
        let begun = Instant::now();
        if all || self.left.is_empty() {
            self.left = fs.dirs("events").unwrap_or_default();
            self.left.reverse();
            self.count = if self.counted == 0 { self.count } else { std::mem::take(&mut self.counted) };
        }
        let (mut looks, share) = (0, self.count.div_ceil(ROUND));
        let mut found = Vec::new();
        while (all || (looks < share && begun.elapsed() < LIMIT))
            && let Some(next) = self.left.pop()
        {
            if next.ends_with("/trigger") {
                looks += 1;
                found.extend(self.compare(fs, &next, now));
                continue;
            }
            let events = fs.dirs(&format!("events/{next}")).unwrap_or_default();
            let files = events.iter().map(|event| format!("events/{next}/{event}/trigger"));
            self.left.extend(files.filter(|file| !self.recorded.contains(file)));
            self.counted += events.len();
        }
        found
    }

    /// Compares one trigger, if it is not among those that are compared each second. An event that has vanished is no change.
    pub(crate) fn compare(&mut self, fs: &KernelFs, file: &str, now: Option<u64>) -> Option<Found> {
        if self.recorded.contains(file) {
            return None;
        }
        let Ok(text) = fs.read(file) else {
            self.right.remove(file);
            return None;
        };
        let text = what_counts(file, &String::from_utf8_lossy(&text));
        let expected = self.set_before.get(file).map_or("", String::as_str);
        if text == expected {
            self.right.extend(now.map(|now| (file.to_owned(), now)));
            return None;
        }
        let right = self.right.get(file).copied().or(self.begun);
        Some(Found { file: file.to_owned(), text, expected: expected.to_owned(), right })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(names: &[&str]) -> (tempfile::TempDir, KernelFs) {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::create_dir_all(dir.path().join("events").join(name)).unwrap();
            std::fs::write(dir.path().join("events").join(name).join("trigger"), "# Available triggers:\n").unwrap();
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        (dir, fs)
    }

    #[test]
    fn each_trigger_has_its_turn_in_a_round() {
        let names: Vec<String> = (0..100).map(|n| format!("system{}/event{n}", n % 7)).collect();
        let (dir, fs) = events(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut turns = Turns::begin(&fs, BTreeSet::new(), Some(5), false);
        assert!(turns.look(&fs, Some(6), true).is_empty());
        let file = |name: &str| dir.path().join("events").join(name).join("trigger");
        std::fs::write(file("system3/event10"), "traceoff:unlimited\n").unwrap();
        let looks = (10..10 + 2 * ROUND as u64).map(|now| turns.look(&fs, Some(now), false)).collect::<Vec<_>>();
        let found: Vec<&Found> = looks.iter().flatten().collect();
        let expected = Found {
            file: "events/system3/event10/trigger".to_owned(),
            text: "traceoff:unlimited".to_owned(),
            expected: String::new(),
            right: Some(6),
        };
        assert!(!found.is_empty() && found.iter().all(|found| **found == expected), "{found:?}");
    }

    #[test]
    fn events_that_appear_or_vanish_are_no_change() {
        let (dir, fs) = events(&["a/one", "a/two"]);
        std::fs::write(dir.path().join("events/a/one/trigger"), "snapshot:unlimited\n").unwrap();
        let mut turns = Turns::begin(&fs, BTreeSet::new(), None, true);
        assert!(turns.look(&fs, None, true).is_empty(), "it was there before");
        std::fs::remove_dir_all(dir.path().join("events/a/two")).unwrap();
        std::fs::create_dir_all(dir.path().join("events/b/three")).unwrap();
        std::fs::write(dir.path().join("events/b/three/trigger"), "# Available triggers:\n").unwrap();
        assert!(turns.look(&fs, None, true).is_empty());
        std::fs::write(dir.path().join("events/a/one/trigger"), "# none\n").unwrap();
        let found = turns.look(&fs, None, true);
        assert_eq!(
            found.iter().map(|found| (found.text.as_str(), found.expected.as_str())).collect::<Vec<_>>(),
            [("", "snapshot:unlimited")]
        );
    }
}
