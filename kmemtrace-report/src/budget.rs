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

/// What would need less of the rows of a report.
pub(crate) const FEWER_ROWS: &str = "ask for fewer with --top";

/// Memory of a cell of the matrix of CPUs until it is printed.
const CELL_BYTES: u64 = 48;

/// How the rows of a report are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// Printed one by one.
    OneByOne,
    /// In one document.
    Document,
    /// And in a table, whose columns are as wide as their widest cell.
    Table,
}

impl Making {
    /// Memory of a row until it is printed, a little more than was measured for `sites`: some twenty members with their names;
    /// in a table each cell is styled and split into lines, too.
    fn row_bytes(self) -> u64 {
        match self {
            Making::OneByOne => 0,
            Making::Document => 4000,
            Making::Table => 6000,
        }
    }
}

/// The memory of the rows of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBudget {
    budget: Budget,
    making: Making,
    top: Option<usize>,
}

impl RowBudget {
    /// Of at most `top` rows.
    pub(crate) fn new(budget: Budget, making: Making, top: Option<usize>) -> RowBudget {
        RowBudget { budget, making, top }
    }

    /// Bytes for those that are printed of so many.
    pub(crate) fn bytes(self, rows: usize) -> u64 {
        self.top.map_or(rows, |top| top.min(rows)) as u64 * self.making.row_bytes()
    }

    /// Stops before so many rows, and a matrix of so many CPUs, are made that need more.
    pub(crate) fn check(self, rows: usize, cpus: usize, events: u64) -> anyhow::Result<()> {
        let (cells, left) = ((cpus as u64).pow(2) * CELL_BYTES, self.budget.left(0));
        if cells > left {
            let what = format!("pairs of {cpus} CPUs");
            self.budget.exceeded(&what, events, "see sites for what was freed elsewhere")?;
        }
        if cells + self.bytes(rows) > left {
            self.budget.exceeded("rows of the report", events, FEWER_ROWS)?;
        }
        Ok(())
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
