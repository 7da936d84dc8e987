//! Figures of some objects alone, by what is known about their allocations: rows of any grouping can be filtered by it.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::numbering::Numbering;
use super::snapshot::{LiveGroup, LiveKey, ObjectNames, Selection};
use super::sums::LiveSums;
use crate::account::cgroups::CgroupNumber;

/// Figures of the objects that a selection takes.
#[derive(Debug)]
pub(super) struct SelectedObjects {
    pub(super) selection: Arc<dyn Selection>,
    /// Order key from which on peaks and changes are counted.
    pub(super) since: u64,
    pub(super) sums: LiveSums,
    judged: Judged,
}

/// Answers of a selection so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// By the pairing's numbers of rows.
    classes: Vec<Option<bool>>,
    threads: HashMap<u32, bool, RandomState>,
    /// By number; 0 for cgroups that are not known.
    cgroups: HashMap<CgroupNumber, bool, RandomState>,
}

impl Judged {
    /// True where an object of these rows was taken, that a thread of the cgroup has allocated.
    pub(super) fn takes(&self, row: u32, pid: u32, cgroup: CgroupNumber) -> bool {
        let takes_class = self.classes.get(row as usize).copied().flatten().unwrap_or(false);
        let took = |answer: Option<&bool>| answer.copied().unwrap_or(false);
        takes_class && took(self.threads.get(&pid)) && took(self.cgroups.get(&cgroup))
    }
}

impl SelectedObjects {
    pub(super) fn new(selection: Arc<dyn Selection>, since: u64) -> SelectedObjects {
        SelectedObjects { selection, since, sums: LiveSums::default(), judged: Judged::default() }
    }

    /// True where the selection takes objects of a class, by the pairing's number of its rows, that a thread has allocated at this order
    /// key.
    #[inline]
    pub(super) fn takes(&mut self, numbering: &mut Numbering<'_>, row: u32, (pid, at): (u32, u64)) -> bool {
        let takes_class = match self.judged.classes.get(row as usize) {
            Some(Some(takes)) => *takes,
            _ => self.judge_class(numbering, row),
        };
        takes_class
            && match self.judged.threads.get(&pid) {
                Some(takes) => *takes,
                None => self.judge_thread(numbering, pid),
            }
            && {
                let cgroup = numbering.cgroup(pid, at).unwrap_or(0);
                match self.judged.cgroups.get(&cgroup) {
                    Some(takes) => *takes,
                    None => self.judge_cgroup(numbering, cgroup),
                }
            }
    }

    #[cold]
    fn judge_class(&mut self, numbering: &mut Numbering<'_>, row: u32) -> bool {
        let groups = [LiveGroup::Sites, LiveGroup::Modules, LiveGroup::Caches, LiveGroup::Uses];
        let Some((kind, [site, module, cache, usage])) = numbering.names_of_class(row, groups) else { return false };
        let names = ObjectNames { site: &site, module: &module, cache: &cache, usage: &usage };
        let takes = self.selection.takes_objects(kind, &names);
        let row = row as usize;
        if row >= self.judged.classes.len() {
            self.judged.classes.resize(row + 1, None);
        }
        if let Some(judged) = self.judged.classes.get_mut(row) {
            *judged = Some(takes);
        }
        takes
    }

    #[cold]
    fn judge_thread(&mut self, numbering: &mut Numbering<'_>, pid: u32) -> bool {
        let takes = self.selection.takes_thread(&numbering.name(LiveKey::Task(pid)));
        self.judged.threads.insert(pid, takes);
        takes
    }

    #[cold]
    fn judge_cgroup(&mut self, numbering: &mut Numbering<'_>, cgroup: CgroupNumber) -> bool {
        let takes = self.selection.takes_cgroup(&numbering.name(LiveKey::Cgroup(cgroup)));
        self.judged.cgroups.insert(cgroup, takes);
        takes
    }

    /// Asks the selection again, after names have changed. Returns its answers before, where one is another now.
    pub(super) fn judge_again(&mut self, numbering: &mut Numbering<'_>) -> Option<Judged> {
        let before = std::mem::take(&mut self.judged);
        for (row, _) in (0..).zip(&before.classes).filter(|(_, judged)| judged.is_some()) {
            self.judge_class(numbering, row);
        }
        before.threads.keys().for_each(|pid| _ = self.judge_thread(numbering, *pid));
        before.cgroups.keys().for_each(|cgroup| _ = self.judge_cgroup(numbering, *cgroup));
        (self.judged != before).then_some(before)
    }
}
