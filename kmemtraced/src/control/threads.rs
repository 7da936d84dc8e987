//! Lists of threads to record, which the kernel changes as threads begin and end: `set_event_pid`, `set_ftrace_pid`.
//!
//! A thread that is in such a list stays there until it ends, and the threads that it starts are added to it. A list that lacks a thread
//! that lives is therefore wrong, and stays wrong: what such a thread started meanwhile is in no list.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::fs::kernelfs::KernelFs;

/// Flag of a thread that is about to end (`PF_EXITING`, `include/linux/sched.h`): the kernel takes it off the lists.
const EXITING: u64 = 4;
/// Places of flags and start time in `/proc/TID/stat` behind the name (`do_task_stat`, `fs/proc/array.c`).
const FLAGS: usize = 6;
const START: usize = 19;

/// Threads that must be in a list.
#[derive(Debug, Default)]
pub(crate) struct ThreadList {
    /// Each thread, with a time at which it was in the list, in clock ticks since boot.
    listed: BTreeMap<u32, u64>,
    /// Threads that lived and were not in the list.
    lost: BTreeSet<u32>,
}

impl ThreadList {
    /// Adds threads that were written to the list.
    pub(crate) fn add(&mut self, threads: impl IntoIterator<Item = u32>) {
        let now = ticks();
        self.listed.extend(threads.into_iter().map(|thread| (thread, now)));
    }

    /// Takes a text of the list; returns the number of threads that it lacked up to now.
    pub(crate) fn look(&mut self, text: &str, proc: &KernelFs) -> usize {
        let threads: BTreeSet<u32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let gone = self.listed.iter().filter(|(thread, _)| !threads.contains(thread));
        let lost = gone.filter(|(thread, since)| lives_since(proc, **thread, **since));
        self.lost.extend(lost.map(|(thread, _)| *thread));
        self.listed.clear();
        self.add(threads);
        self.lost.len()
    }
}

/// Clock ticks since boot.
fn ticks() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let time = Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0));
    (time.as_secs_f64() * rustix::param::clock_ticks_per_second() as f64) as u64
}

/// True if a thread lives that has had this id since then: a later one has the id again.
fn lives_since(proc: &KernelFs, thread: u32, since: u64) -> bool {
    let stat = proc.read(&format!("{thread}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // A name may contain anything.
    let Some((_, behind)) = stat.rsplit_once(')') else { return false };
    let words: Vec<&str> = behind.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let is_dead = matches!(words.first(), Some(&("Z" | "X" | "x")));
    !is_dead
        && number(FLAGS).is_some_and(|flags| flags & EXITING == 0)
        && number(START).is_some_and(|start| start <= since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: &str, flags: u64, start: u64) -> String {
        format!("7 (a) b) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0\n")
    }

    #[test]
    fn a_thread_that_lives_must_stay_in_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let proc = KernelFs::at(dir.path()).unwrap();
        let now = ticks();
        for (thread, text) in [
            (7, stat("S", 0, now)),
            (8, stat("Z", 0, now)),
            (9, stat("R", EXITING, now)),
            (10, stat("R", 0, now + 1_000_000)),
        ] {
            std::fs::create_dir(dir.path().join(thread.to_string())).unwrap();
            std::fs::write(dir.path().join(format!("{thread}/stat")), text).unwrap();
        }
        let mut list = ThreadList::default();
        list.add([7, 8, 9, 10, 11]);
        assert_eq!(list.look("7\n8\n9\n10\n11\n", &proc), 0);
        assert_eq!(list.look("7\n", &proc), 0, "the others have ended, or are others");
        assert_eq!(list.look("1\n", &proc), 1);
        assert_eq!(list.look("1\n7\n", &proc), 1, "what it started meanwhile is not in the list");
    }

    #[test]
    fn children_that_the_kernel_has_added_must_stay_too() {
        let dir = tempfile::tempdir().unwrap();
        let proc = KernelFs::at(dir.path()).unwrap();
        let mut list = ThreadList::default();
        list.add([7]);
        assert_eq!(list.look("7\n12\n", &proc), 0);
        std::fs::create_dir(dir.path().join("12")).unwrap();
        std::fs::write(dir.path().join("12/stat"), stat("S", 0, 0)).unwrap();
        assert_eq!(list.look("no pid\n", &proc), 1);
    }
}
