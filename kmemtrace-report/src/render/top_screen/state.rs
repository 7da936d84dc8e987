//! State of the screen: what is shown, and how.

use std::cmp::{Ordering, Reverse};
use std::collections::HashSet;

use kmemtrace::live::{LiveGroup, LiveKey, LiveRow, Snapshot, SnapshotRequest};

use super::filter::RowFilter;
use super::tree::{self, Fold, RowId, Shown};
use super::who;

/// Windows of growth, in seconds.
const WINDOWS: [u64; 7] = [2, 5, 10, 60, 300, 600, 3600];
/// Window at the begin: its index.
const FIRST_WINDOW: usize = 3;
/// Points of the curve that a screen can show at most.
const POINTS: usize = 200;

/// Sort keys of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Growth,
    SinceMark,
    Live,
    Peak,
    Wasted,
    Allocs,
    CrossCpu,
    Name,
}

impl Sort {
    /// All keys, in the order in which `s` goes through them.
    const ALL: [Sort; 8] =
        [Sort::Growth, Sort::Live, Sort::Peak, Sort::Wasted, Sort::Allocs, Sort::CrossCpu, Sort::SinceMark, Sort::Name];

    fn compare(self, a: &LiveRow, b: &LiveRow) -> Ordering {
        let greatest = |of: fn(&LiveRow) -> i128| of(b).cmp(&of(a));
        let by_key = match self {
            Sort::Growth => greatest(|row| row.growth.into()),
            Sort::SinceMark => greatest(|row| row.since_mark.unwrap_or(row.growth).into()),
            Sort::Live => greatest(|row| row.live.into()),
            Sort::Peak => greatest(|row| row.peak.into()),
            Sort::Wasted => greatest(|row| row.wasted.into()),
            Sort::Allocs => greatest(|row| row.allocs_now.into()),
            Sort::CrossCpu => greatest(|row| row.cross_cpu.into()),
            Sort::Name => who::name(&a.name).cmp(&who::name(&b.name)),
        };
        // Rows of a text may have a number of objects alone.
        let objects = |row: &LiveRow| if row.live == 0 { row.objects } else { 0 };
        let tie = |row: &LiveRow| (Reverse((row.live, objects(row))), row.key, row.kind);
        by_key.then_with(|| tie(a).cmp(&tie(b)))
    }
}

/// State of the screen.
#[derive(Clone, Debug)]
pub(crate) struct ScreenState {
    pub(crate) group: LiveGroup,
    pub(crate) sort: Sort,
    /// Smallest first.
    pub(crate) is_reversed: bool,
    pub(crate) filter: RowFilter,
    /// Filter that is being typed.
    pub(crate) typed: Option<String>,
    pub(super) window: usize,
    /// Key and kind of the chosen row; the first one where it is gone.
    pub(crate) chosen: Option<RowId>,
    /// First row of the table.
    pub(crate) first_row: usize,
    /// Nodes of the trees that are open.
    pub(super) open: HashSet<RowId>,
    /// The screen stands still.
    pub(crate) is_frozen: bool,
    pub(crate) shows_detail: bool,
    pub(crate) shows_help: bool,
    /// Line for the user, until the next key.
    pub(crate) message: Option<String>,
}

impl Default for ScreenState {
    fn default() -> ScreenState {
        ScreenState {
            group: LiveGroup::Sites,
            sort: Sort::Growth,
            is_reversed: false,
            filter: RowFilter::default(),
            typed: None,
            window: FIRST_WINDOW,
            chosen: None,
            first_row: 0,
            open: HashSet::new(),
            is_frozen: false,
            shows_detail: true,
            shows_help: false,
            message: None,
        }
    }
}

impl ScreenState {
    /// Window of growth, in seconds.
    pub(crate) fn window(&self) -> u64 {
        WINDOWS.get(self.window).copied().unwrap_or(60)
    }

    /// Goes to a longer or shorter window.
    pub(super) fn change_window(&mut self, is_longer: bool) {
        let next = if is_longer { self.window + 1 } else { self.window.saturating_sub(1) };
        self.window = next.min(WINDOWS.len() - 1);
    }

    /// Sorts by a key; by the same one again, the other way round.
    pub(super) fn sort_by(&mut self, sort: Sort) {
        self.is_reversed = self.sort == sort && !self.is_reversed;
        self.sort = sort;
    }

    pub(super) fn next_sort(&mut self) {
        let at = Sort::ALL.iter().position(|sort| *sort == self.sort).map_or(0, |at| at + 1);
        self.sort = Sort::ALL[at % Sort::ALL.len()];
        self.is_reversed = false;
    }

    /// Goes to the next of these groupings.
    pub(super) fn next_group(&mut self, groups: &[LiveGroup]) {
        let at = groups.iter().position(|group| *group == self.group).map_or(0, |at| at + 1);
        self.show_group(groups.get(at).or(groups.first()).copied().unwrap_or_default());
    }

    /// Shows a grouping from its first row on.
    pub(super) fn show_group(&mut self, group: LiveGroup) {
        self.group = group;
        self.chosen = None;
        self.first_row = 0;
    }

    /// Contents of the next snapshot, after this one.
    pub(crate) fn request(&self, snapshot: &Snapshot) -> SnapshotRequest {
        let rows = self.rows(snapshot);
        let chosen = rows.get(self.chosen_index(&rows));
        SnapshotRequest {
            group: self.group,
            selection: self.filter.selection(self.group),
            window: self.window() * 1_000_000_000,
            detail: chosen.map(|row| {
                let key = row.place.and_then(|place| place.only).unwrap_or(row.key);
                (if matches!(key, LiveKey::Stack(..)) { LiveGroup::Stacks } else { self.group }, key, row.kind)
            }),
            points: POINTS,
        }
    }

    fn compare(&self, a: &LiveRow, b: &LiveRow) -> Ordering {
        let ordering = self.sort.compare(a, b);
        if self.is_reversed { ordering.reverse() } else { ordering }
    }

    /// True where the snapshot has the rows that the screen shows: those of its grouping, of the allocations that its filter selects.
    pub(crate) fn is_answered_by(&self, snapshot: &Snapshot) -> bool {
        let selection = self.filter.selection(self.group);
        let selected = snapshot.selected.as_ref().map(|(text, _)| &**text);
        snapshot.group == self.group && selected == selection.as_ref().map(|selection| selection.text())
    }

    /// Rows of the snapshot that the filter takes, sorted; none of a snapshot that was made for another screen.
    pub(crate) fn listed<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a LiveRow> {
        let rows = if self.is_answered_by(snapshot) { &snapshot.rows[..] } else { &[] };
        let takes = |row: &&LiveRow| row.allocs > 0 && self.filter.takes(self.group, row);
        let mut taken: Vec<&LiveRow> = rows.iter().filter(takes).collect();
        taken.sort_unstable_by(|a, b| self.compare(a, b));
        taken
    }

    /// True where rows are a tree.
    pub(super) fn has_tree(&self, snapshot: &Snapshot) -> bool {
        match self.group {
            LiveGroup::Stacks => true,
            LiveGroup::Modules => !snapshot.below.is_empty(),
            _ => false,
        }
    }

    /// Rows of the table: those that the filter takes, stacks as a tree, and below modules.
    pub(crate) fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<Shown<'a>> {
        let taken = self.listed(snapshot);
        let sort = |rows: &mut Vec<Shown<'a>>| rows.sort_by(|a, b| self.compare(a, b));
        match self.group {
            LiveGroup::Stacks => tree::stacks(snapshot, &taken, &self.open, &sort),
            LiveGroup::Modules if self.has_tree(snapshot) => tree::modules(snapshot, &taken, &self.open, &sort),
            _ => taken.into_iter().map(Shown::listed).collect(),
        }
    }

    /// Opens or closes the chosen node of the tree; opens on, as long as there is only one way. False where no node is chosen that
    /// can be.
    pub(super) fn fold(&mut self, snapshot: &Snapshot, opens: Option<bool>) -> bool {
        let mut next = {
            let rows = self.rows(snapshot);
            rows.get(self.chosen_index(&rows)).and_then(|row| Some((row.id(), row.place?.fold)))
        };
        let mut has_folded = false;
        while let Some((id, fold)) = next.take() {
            let is_open = fold == Fold::Open;
            let opens = opens.unwrap_or(!is_open);
            if fold == Fold::Leaf || is_open == opens {
                break;
            }
            has_folded = true;
            if !opens {
                self.open.remove(&id);
                break;
            }
            self.open.insert(id);
            let rows = self.rows(snapshot);
            let Some(at) = rows.iter().position(|row| row.id() == id) else { break };
            let depth = |row: &Shown<'_>| row.place.map_or(0, |place| place.depth);
            let below: Vec<_> = rows[at + 1..].iter().take_while(|row| depth(row) > depth(&rows[at])).collect();
            if let [only] = &below[..] {
                next = only.place.map(|place| (only.id(), place.fold));
            }
        }
        has_folded
    }

    /// Chooses the node above the chosen one.
    pub(super) fn choose_above(&mut self, snapshot: &Snapshot, height: usize) {
        let rows = self.rows(snapshot);
        let at = self.chosen_index(&rows);
        let depth = |row: &Shown<'_>| row.place.map_or(0, |place| place.depth);
        let Some(own) = rows.get(at).map(depth) else { return };
        let above = rows[..at].iter().rposition(|row| depth(row) < own);
        self.choose(&rows, above.unwrap_or(at), height);
    }

    /// Index of the chosen row.
    pub(crate) fn chosen_index(&self, rows: &[Shown<'_>]) -> usize {
        let chosen = self.chosen;
        chosen.and_then(|chosen| rows.iter().position(|row| row.id() == chosen)).unwrap_or(0)
    }

    /// Chooses a row, and moves the table so that it is seen among `height` rows.
    pub(crate) fn choose(&mut self, rows: &[Shown<'_>], index: usize, height: usize) {
        let index = index.min(rows.len().saturating_sub(1));
        self.chosen = rows.get(index).map(Shown::id);
        let last_first = rows.len().saturating_sub(height);
        self.first_row = self.first_row.clamp((index + 1).saturating_sub(height), index).min(last_first);
    }
}
