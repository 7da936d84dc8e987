//! The kernel's counters of a CPU's buffer: `per_cpu/cpuN/stats`.

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
    /// True if the source counts what it hands out.
    pub counts_reads: bool,
}

impl Stats {
    /// Reads `per_cpu/cpuN/stats`; what is missing, or not a number, is 0.
    pub fn parse(text: &str) -> Stats {
        let mut stats = Stats::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let Ok(value) = value.trim().parse() else { continue };
            match name.trim() {
                "entries" => stats.entries = value,
                "overrun" => stats.overrun = value,
                "commit overrun" => stats.commit_overrun = value,
                "dropped events" => stats.dropped = value,
                "read events" => (stats.read, stats.counts_reads) = (value, true),
                _ => {}
            }
        }
        stats
    }

    /// True if a counter went back: the buffer was reset in between.
    pub fn is_before(&self, earlier: &Stats) -> bool {
        // Only the entries tell of a reset before the first read and the first overrun.
        let is_untouched = (self.overrun, self.read) == (earlier.overrun, earlier.read);
        (self.counts_reads && is_untouched && self.entries < earlier.entries)
            || self.overrun < earlier.overrun
            || self.commit_overrun < earlier.commit_overrun
            || self.dropped < earlier.dropped
            || self.read < earlier.read
    }
}

/// The time in the line `now ts` of a `stats` text, as (not later than, not earlier than) on the trace's clock: the kernel cuts
/// nanoseconds to microseconds, and writes ticks as they are. `None` where there is no such line.
pub fn now_ts(text: &str) -> Option<(u64, u64)> {
    let value = text.lines().find_map(|line| line.strip_prefix("now ts:"))?.trim();
    match value.split_once('.') {
        None => value.parse().ok().map(|ticks| (ticks, ticks)),
        Some((seconds, microseconds)) => {
            let (seconds, microseconds): (u64, u64) = (seconds.parse().ok()?, microseconds.parse().ok()?);
            let all = seconds.checked_mul(1_000_000)?.checked_add(microseconds)?;
            Some((all.checked_mul(1_000)?, all.checked_add(1)?.checked_mul(1_000)?))
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
        assert_eq!(
            stats,
            Stats { entries: 7, overrun: 12, commit_overrun: 3, dropped: 4, read: 1000, counts_reads: true }
        );
        assert!(Stats { read: 999, ..stats }.is_before(&stats));
        assert!(!Stats { entries: 0, read: 1007, ..stats }.is_before(&stats));
        assert!(Stats { entries: 6, ..stats }.is_before(&stats), "nothing was read, and entries are gone");
        let old = Stats { counts_reads: false, ..stats };
        assert!(!Stats { entries: 6, ..old }.is_before(&old), "they may have been read");
    }

    #[test]
    fn the_time_is_rounded_outwards() {
        assert_eq!(now_ts("oldest event ts:  81.5\nnow ts:    90.000012\n"), Some((90_000_012_000, 90_000_013_000)));
        assert_eq!(now_ts("now ts: 4711\n"), Some((4711, 4711)));
        assert_eq!(now_ts("now ts: 99999999999999999999.1\n"), None);
        assert_eq!(now_ts("now ts: 18446744073.999999\n"), None);
        assert_eq!(now_ts("entries: 1\n"), None);
    }
}
