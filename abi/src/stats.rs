//! What the kernel counts of a CPU's buffer: `per_cpu/cpuN/stats`.

use crate::block::Counters;

/// A CPU's counters, in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// In the buffer and not read.
    pub entries: u64,
    /// Overwritten before they were read.
    pub overrun: u64,
    /// Refused because nested writers wrapped the buffer.
    pub commit_overrun: u64,
    /// Refused because the buffer was full.
    pub dropped: u64,
    /// Handed out; 0 where the source does not count that.
    pub read: u64,
}

impl Stats {
    /// Reads `per_cpu/cpuN/stats`; what is not there, or no number, is 0.
    pub fn parse(text: &str) -> Stats {
        let mut stats = Stats::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let Ok(value) = value.trim().parse() else { continue };
            match name.trim() {
                "entries" => stats.entries = value,
                "overrun" => stats.overrun = value,
                "commit overrun" => stats.commit_overrun = value,
                "dropped events" => stats.dropped = value,
                "read events" => stats.read = value,
                _ => {}
            }
        }
        stats
    }

    /// Whether a counter went back: somebody reset the buffer.
    pub fn is_before(&self, earlier: &Stats) -> bool {
        self.overrun < earlier.overrun
            || self.commit_overrun < earlier.commit_overrun
            || self.dropped < earlier.dropped
            || self.read < earlier.read
    }

    /// All that was counted, where the buffer was last reset at `base`.
    pub fn after(&self, base: &Counters) -> Counters {
        Counters {
            overrun: base.overrun.get().saturating_add(self.overrun).into(),
            commit_overrun: base.commit_overrun.get().saturating_add(self.commit_overrun).into(),
            dropped: base.dropped.get().saturating_add(self.dropped).into(),
            read: base.read.get().saturating_add(self.read).into(),
            unread: self.entries.into(),
            recorder_lost: base.recorder_lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_apart() {
        let text = "entries: 7\noverrun: 12\ncommit overrun: 3\nbytes: 99\noldest event ts:  81.5\nnow ts: 90.1\n\
            dropped events: 4\nread events: 1000\n";
        let stats = Stats::parse(text);
        assert_eq!(stats, Stats { entries: 7, overrun: 12, commit_overrun: 3, dropped: 4, read: 1000 });
        assert!(Stats { read: 999, ..stats }.is_before(&stats));
        assert!(!Stats { entries: 0, read: 1007, ..stats }.is_before(&stats));
    }
}
