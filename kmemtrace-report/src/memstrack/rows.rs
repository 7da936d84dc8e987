//! Rows and callers that a report shows.

use kmemtrace::documents::tree::TreeNode;
use kmemtrace::{Figure, SortKey};
use kmemtrace_abi::text::memstrack::{Layout, Report};

/// Callers of each node in `module_top` where no number is given.
const CALLERS_OF_MODULES: usize = 2;

/// Limit of the rows of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Share of all pages that the rows make up; `None`: rows without pages are shown, too.
    percent: Option<u8>,
    top: Option<usize>,
}

/// Order and limits of a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    by_peak: bool,
    /// Limit of modules, threads or caches.
    rows: Limit,
    /// Limit of the callers of each node.
    callers: Limit,
}

impl Choice {
    /// Order and limits that the parameters ask for, else those of memstrack itself.
    pub(super) fn of(asked: &Report, has_peaks: bool) -> Choice {
        let throttle = asked.throttle.filter(|percent| *percent > 0);
        let top = |default: Option<usize>| asked.top.or(default).filter(|rows| *rows > 0);
        let limit = |percent: Option<u8>, top| Limit { percent: throttle.or(percent), top };
        let (rows, callers) = match asked.layout {
            Layout::ModuleSummary | Layout::ProcSlabStatic => (limit(None, top(None)), limit(None, None)),
            Layout::ModuleTop => (limit(None, None), limit(Some(100), top(Some(CALLERS_OF_MODULES)))),
            Layout::TaskSummary => (limit(Some(100), top(None)), limit(None, None)),
            Layout::TaskTop => (limit(Some(100), None), limit(Some(100), top(None))),
            Layout::TaskTopJson => (limit(Some(100), None), limit(None, top(None))),
        };
        Choice { by_peak: asked.by_peak && has_peaks, rows, callers }
    }

    /// Order of rows.
    pub(super) fn sort_key(&self) -> SortKey {
        if self.by_peak { SortKey::Figure(Figure::PeakLiveAllocated) } else { SortKey::Figure(Figure::LiveAllocated) }
    }

    /// Modules or threads to show, of rows in order.
    pub(super) fn rows<'a>(&self, rows: impl Iterator<Item = &'a TreeNode>) -> Vec<&'a TreeNode> {
        self.rows.kept(rows.collect(), |node| self.figure(node))
    }

    /// Caches to show, of numbers of pages in order.
    pub(super) fn caches(&self, pages: Vec<u64>) -> usize {
        self.rows.kept(pages, |pages| *pages).len()
    }

    /// Callers of a node to show.
    pub(super) fn callers<'a>(&self, node: &'a TreeNode) -> Vec<&'a TreeNode> {
        self.callers.kept(node.children.iter().collect(), |node| self.figure(node))
    }

    fn figure(&self, node: &TreeNode) -> u64 {
        let stats = &node.stats;
        let figure = if self.by_peak { stats.peak_live_pages } else { stats.live_pages };
        figure.unwrap_or(0)
    }
}

impl Limit {
    /// The first rows that make up the share, and no more than the number.
    fn kept<T>(self, mut rows: Vec<T>, figure: impl Fn(&T) -> u64) -> Vec<T> {
        if let Some(percent) = self.percent {
            let all: u128 = rows.iter().map(|row| u128::from(figure(row))).sum();
            let mut sum = 0u128;
            let enough = rows.iter().position(|row| {
                let is_enough = sum * 100 >= all * u128::from(percent);
                sum += u128::from(figure(row));
                is_enough
            });
            rows.truncate(enough.unwrap_or(rows.len()));
        }
        rows.truncate(self.top.unwrap_or(rows.len()));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rows_that_make_up_a_share_are_kept() {
        let kept = |percent, top| Limit { percent, top }.kept(vec![50u64, 30, 15, 5, 0], |row| *row).len();
        for (percent, top, rows) in [
            (None, None, 5),
            (Some(100), None, 4),
            (Some(80), None, 2),
            (Some(81), None, 3),
            (Some(80), Some(1), 1),
            (None, Some(9), 5),
        ] {
            assert_eq!(kept(percent, top), rows, "{percent:?} {top:?}");
        }
        assert_eq!(Limit { percent: Some(100), top: None }.kept(vec![0u64, 0], |row| *row), [0; 0]);
    }

    #[test]
    fn parameters_win_over_the_limits_of_a_layout() {
        let choice = |text: &str| Choice::of(&Report::parse(text).unwrap(), true);
        let limit = |percent, top| Limit { percent, top };
        for (text, rows, callers) in [
            ("module_top", limit(None, None), limit(Some(100), Some(2))),
            ("module_top:top=0:throttle=80", limit(Some(80), None), limit(Some(80), None)),
            ("module_top:top=3:throttle=0", limit(None, None), limit(Some(100), Some(3))),
            ("task_summary:top=3", limit(Some(100), Some(3)), limit(None, None)),
            ("task_top:top=3", limit(Some(100), None), limit(Some(100), Some(3))),
        ] {
            let choice = choice(text);
            assert_eq!((choice.rows, choice.callers), (rows, callers), "{text}");
        }
        let by_peak = Report::parse("task_top:sort_by_peak").unwrap();
        assert_eq!(
            [true, false].map(|has_peaks| Choice::of(&by_peak, has_peaks).sort_key()),
            [SortKey::Figure(Figure::PeakLiveAllocated), SortKey::Figure(Figure::LiveAllocated)]
        );
    }
}
