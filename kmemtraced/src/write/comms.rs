//! Command names of threads, collected during the recording: the kernel remembers the last few threads only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Interval between two readings where the kernel remembers [`FEWEST`] threads. Fewer could begin on a busy machine meanwhile.
const INTERVAL: Duration = Duration::from_millis(100);
/// Threads that kernels remember at least. One that remembers more is read less often, so that all cost the same.
const FEWEST: usize = 128;
/// Longest interval, in units of [`INTERVAL`].
const MAX_INTERVALS: usize = 10;
/// The same in a recording that a viewer follows.
const MAX_INTERVALS_FOLLOWED: usize = 2;
/// Bytes of a name: `TASK_COMM_LEN`, the NUL at its end included.
const MAX_NAME: usize = 16;
/// Most threads that are kept, so that memory stays limited in a recording of many days.
const MAX_THREADS: usize = 1 << 18;

/// Names by thread id.
#[derive(Debug)]
pub(crate) struct Comms {
    /// Each name ends at its first NUL.
    names: BTreeMap<i32, [u8; MAX_NAME]>,
    /// Threads whose names were learnt or have changed since they were last taken.
    new: BTreeSet<i32>,
    /// Threads that had ended before the recording. A viewer that follows it would give their names to threads that get their
    /// numbers, and so gets them at the end only, as far as they still hold.
    ended: BTreeSet<i32>,
    /// Longest interval between two readings, in units of [`INTERVAL`].
    max_intervals: usize,
    /// Time of the next reading.
    due: Option<Instant>,
}

impl Comms {
    /// No names. A viewer that follows the recording shows them as they come, which is worth more readings.
    pub(crate) fn new(is_followed: bool) -> Comms {
        let max_intervals = if is_followed { MAX_INTERVALS_FOLLOWED } else { MAX_INTERVALS };
        Comms { names: BTreeMap::new(), new: BTreeSet::new(), ended: BTreeSet::new(), max_intervals, due: None }
    }

    /// Adds `PID COMM` lines of the kernel before the recording, which name threads that have ended, too.
    pub(crate) fn begin(&mut self, lines: &[u8], lives: impl Fn(i32) -> bool) {
        self.add_lines(lines);
        let ended: BTreeSet<i32> = self.new.iter().copied().filter(|thread| !lives(*thread)).collect();
        self.new.retain(|thread| !ended.contains(thread));
        self.ended = ended;
    }

    /// Adds `PID COMM` lines of the kernel, every 100 ms to one second; a later name of a thread wins.
    pub(crate) fn add_if_due(&mut self, lines: impl FnOnce() -> Vec<u8>) {
        if self.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        let lines = lines();
        self.add_lines(&lines);
        let remembered = lines.iter().filter(|&&b| b == b'\n').count();
        let intervals = (remembered / FEWEST).clamp(1, self.max_intervals);
        self.due = Some(Instant::now() + INTERVAL * intervals as u32);
    }

    /// Adds `PID COMM` lines of the kernel; a later name of a thread wins.
    pub(crate) fn add_lines(&mut self, lines: &[u8]) {
        for line in lines.split(|&b| b == b'\n') {
            let line = line.trim_ascii_start();
            let Some(blank) = line.iter().position(|&b| b == b' ') else { continue };
            if let Some(thread) = std::str::from_utf8(&line[..blank]).ok().and_then(|id| id.parse().ok()) {
                self.add(thread, &line[blank + 1..]);
            }
        }
    }

    /// Adds the name of a thread, cut to the kernel's length.
    pub(crate) fn add(&mut self, thread: i32, name: &[u8]) {
        let mut bytes = [0; MAX_NAME];
        let len = name.len().min(MAX_NAME - 1);
        bytes[..len].copy_from_slice(&name[..len]);
        if self.names.len() >= MAX_THREADS && !self.names.contains_key(&thread) {
            return;
        }
        if self.names.insert(thread, bytes) != Some(bytes) {
            self.new.insert(thread);
            self.ended.remove(&thread);
        }
    }

    /// Makes the names new that were kept for the end.
    pub(crate) fn stop(&mut self) {
        self.new.append(&mut self.ended);
    }

    /// Makes all names new.
    pub(crate) fn renew(&mut self) {
        self.new = self.names.keys().copied().collect();
    }

    /// Names that are new since the last call, as `PID COMM` lines.
    pub(crate) fn take_new(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        for thread in std::mem::take(&mut self.new) {
            let Some(name) = self.names.get(&thread) else { continue };
            lines.extend_from_slice(format!("{thread} ").as_bytes());
            lines.extend(name.iter().take_while(|&&b| b != 0));
            lines.push(b'\n');
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_forgot_are_kept_and_later_ones_win() {
        let mut comms = Comms::new(true);
        comms.add(12, b"a-command-with-a-long-name");
        comms.add_lines(b"  7 sh\n9 Web Content\ngarbage\nx y\n");
        comms.add_lines(b"7 make\n10 \n");
        assert_eq!(comms.take_new(), b"7 make\n9 Web Content\n10 \n12 a-command-with-\n");
        comms.add_lines(b"7 make\n9 Web\n13 sh\n");
        assert_eq!(comms.take_new(), b"9 Web\n13 sh\n");
        assert_eq!(comms.take_new(), b"");
        comms.renew();
        assert_eq!(comms.take_new(), b"7 make\n9 Web\n10 \n12 a-command-with-\n13 sh\n");
    }

    #[test]
    fn names_of_threads_that_had_ended_come_at_the_end_if_they_hold() {
        let mut comms = Comms::new(true);
        comms.begin(b"7 sh\n8 old\n9 older\n", |thread| thread == 7);
        assert_eq!(comms.take_new(), b"7 sh\n");
        comms.add_lines(b"7 sh\n8 make\n9 older\n");
        assert_eq!(comms.take_new(), b"8 make\n");
        comms.stop();
        assert_eq!(comms.take_new(), b"9 older\n");
    }

    #[test]
    fn names_are_read_at_intervals() {
        let mut comms = Comms::new(true);
        comms.add_if_due(|| b"1 first\n".to_vec());
        comms.add_if_due(|| b"1 second\n".to_vec());
        assert_eq!(comms.take_new(), b"1 first\n");
        comms.due = None;
        comms.add_if_due(|| b"1 second\n".to_vec());
        assert_eq!(comms.take_new(), b"1 second\n");
    }
}
