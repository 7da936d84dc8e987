//! Triggers of events that are not recorded: one of them may switch the recording off, or swap its buffer.
//!
//! There are thousands of these events. The kernel enables an event that has a trigger, without recording it, and lists it in `set_event`
//! (`trace_event_trigger_enable_disable`, `kernel/trace/trace_events_trigger.c`), so the triggers of listed events are enough. A trigger
//! that is paused does nothing, and enables nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::control::rules::{TRIGGER, what_counts};
use crate::fs::kernelfs::KernelFs;

/// Most triggers that are read in a look: somebody may have enabled all events.
const MAX_LOOKS: usize = 64;

/// Text of a trigger that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) file: String,
    pub(crate) text: String,
    /// Text at set-up.
    pub(crate) expected: String,
}

/// The triggers of events that are not recorded.
#[derive(Debug, Default)]
pub(crate) struct OtherTriggers {
    /// Triggers of the recorded events.
    recorded: BTreeSet<String>,
    /// Triggers that were set before the recording, with their text.
    set_before: BTreeMap<String, String>,
}

impl OtherTriggers {
    /// Triggers other than those of these events.
    pub(crate) fn new(recorded: &[String]) -> OtherTriggers {
        OtherTriggers { recorded: recorded.iter().map(|event| file(event)).collect(), ..OtherTriggers::default() }
    }

    /// Takes those that are set now, by `listed`, the text of `set_event`, for right.
    pub(crate) fn take_for_right(&mut self, fs: &KernelFs, listed: &str) {
        self.set_before = self.look(fs, listed).into_iter().map(|found| (found.file, found.text)).collect();
    }

    /// Triggers that are not right. An event that has vanished is no change.
    pub(crate) fn look(&self, fs: &KernelFs, listed: &str) -> Vec<Found> {
        let listed = listed.lines().map(|event| file(&event.trim_end().replacen(':', "/", 1)));
        let files: BTreeSet<String> = listed.chain(self.set_before.keys().cloned()).collect();
        let files = files.into_iter().filter(|file| !self.recorded.contains(file)).take(MAX_LOOKS);
        let differs = |file: String| {
            let text = what_counts(&file, &String::from_utf8_lossy(&fs.read(&file).ok()?));
            let expected = self.set_before.get(&file).cloned().unwrap_or_default();
            (text != expected).then_some(Found { file, text, expected })
        };
        files.filter_map(differs).collect()
    }
}

/// Trigger of an event, `system/event`.
fn file(event: &str) -> String {
    format!("events/{event}/{TRIGGER}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(names: &[&str]) -> (tempfile::TempDir, KernelFs) {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::create_dir_all(dir.path().join("events").join(name)).unwrap();
            set(&dir, name, "# Available triggers:\n");
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        (dir, fs)
    }

    fn set(dir: &tempfile::TempDir, event: &str, text: &str) {
        std::fs::write(dir.path().join(file(event)), text).unwrap();
    }

    #[test]
    fn a_trigger_of_a_listed_event_is_compared() {
        let (dir, fs) = events(&["kmem/kfree", "sched/sched_switch"]);
        let triggers = OtherTriggers::new(&["kmem/kfree".to_owned()]);
        assert!(triggers.look(&fs, "kmem:kfree\nsched:sched_switch\n").is_empty(), "enabled, without a trigger");
        set(&dir, "sched/sched_switch", "traceoff:unlimited\n");
        set(&dir, "kmem/kfree", "stacktrace:unlimited\n");
        let found = triggers.look(&fs, "kmem:kfree\nsched:sched_switch\n");
        let expected = Found {
            file: "events/sched/sched_switch/trigger".to_owned(),
            text: "traceoff:unlimited".to_owned(),
            expected: String::new(),
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn triggers_that_were_there_must_stay_and_events_that_vanish_are_no_change() {
        let (dir, fs) = events(&["a/one", "a/two"]);
        set(&dir, "a/one", "snapshot:unlimited\n");
        set(&dir, "a/two", "traceoff:unlimited\n");
        let mut triggers = OtherTriggers::new(&[]);
        triggers.take_for_right(&fs, "a:one\na:two\n");
        assert!(triggers.look(&fs, "a:one\na:two\n").is_empty(), "they were there before");
        std::fs::remove_dir_all(dir.path().join("events/a/two")).unwrap();
        assert!(triggers.look(&fs, "a:one\n").is_empty());
        set(&dir, "a/one", "# none\n");
        let found = triggers.look(&fs, "");
        let texts: Vec<(&str, &str)> = found.iter().map(|found| (&*found.text, &*found.expected)).collect();
        assert_eq!(texts, [("", "snapshot:unlimited")]);
    }
}
