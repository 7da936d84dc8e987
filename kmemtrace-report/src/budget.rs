//! `--max-memory`: stopping with a word instead of being killed.

use anyhow::bail;

use crate::render::units;

/// The most memory that the program may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes; `None`: whatever there is.
    limit: Option<u64>,
}

impl Budget {
    pub(crate) fn new(limit: Option<u64>) -> Budget {
        Budget { limit }
    }

    /// Bytes that are left beside what the process has now and what it `reserves` for buffers. An eighth is kept for what
    /// nobody counts: call-sites, findings, what the allocator cannot use again.
    pub(crate) fn left(self, reserves: u64) -> u64 {
        let left = |limit: u64| (limit - limit / 8).saturating_sub(resident()).saturating_sub(reserves);
        self.limit.map_or(u64::MAX, left)
    }

    /// Whether the process takes more by now.
    pub(crate) fn is_over(self) -> bool {
        self.limit.is_some_and(|limit| resident() > limit)
    }

    /// Why it stops: `what` needs more, after so many events, and what would need less.
    pub(crate) fn exceeded(self, what: &str, events: u64, less: &str) -> anyhow::Result<()> {
        let limit = units::bytes(self.limit.unwrap_or(u64::MAX));
        let events = units::grouped(events);
        bail!("{what} need more than the {limit} of --max-memory after {events} events: allow more, or {less}");
    }
}

/// Bytes of the process in memory; 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_takes_is_not_left() {
        assert_eq!(Budget::new(None).left(1 << 40), u64::MAX);
        assert!(!Budget::new(None).is_over());
        assert!(Budget::new(Some(1 << 10)).is_over());
        assert_eq!(Budget::new(Some(1 << 10)).left(0), 0);
        let left = Budget::new(Some(1 << 40)).left(1 << 39);
        assert!((1 << 37..1 << 39).contains(&left), "{left}");
        let words =
            Budget::new(Some(64 << 20)).exceeded("live objects", 1_234_567, "take less").unwrap_err().to_string();
        assert!(words.starts_with(
            "live objects need more than the 64.0 MiB of --max-memory after 1,234,567 events: allow more, or take less"
        ));
    }
}
