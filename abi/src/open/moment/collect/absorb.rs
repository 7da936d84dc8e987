//! Adding what one text has to another: caches of one kernel, and stacks that another text explains.

use std::collections::HashMap;

use super::{Alike, Collector, Facts, Kept, Store};
use crate::event::NameId;
use crate::listed::Amounts;
use crate::open::symbols::ByAddress;
use crate::stack::{StackId, Stacks};
use crate::trace::TextInfo;

/// Numbers of the other text's names and stacks in this one.
struct Moved<'o> {
    functions: ByAddress<'o>,
    names: HashMap<NameId, NameId>,
    stacks: HashMap<StackId, StackId>,
}

impl<'o> Moved<'o> {
    fn new(other: &'o Collector) -> Moved<'o> {
        Moved { functions: other.symbols.by_address(), names: HashMap::new(), stacks: HashMap::new() }
    }
}

impl Collector {
    /// Adds all entries, stacks and facts of another text, which was read with the same options.
    pub(crate) fn absorb(&mut self, other: Collector) {
        self.absorb_stacks(&other);
        let mut moved = Moved::new(&other);
        let alone = |kept: &Kept| Alike { oldest: *kept, newest: kept.at, entries: 1, amounts: Amounts::default() };
        let entries: Vec<Alike> = match &other.store {
            Store::Each(all) => all.iter().map(alone).collect(),
            Store::Alike { all, .. } => all.clone(),
        };
        for alike in entries {
            let kept = alike.oldest;
            let Some(facts) = other.facts.get(kept.facts as usize) else { continue };
            let facts = self.moved(&mut moved, *facts, &other);
            let facts = self.number_of(facts);
            let stack = kept.stack.map(|stack| self.stack(&mut moved, stack, &other.stacks));
            self.store.add(Alike { oldest: Kept { stack, facts, ..kept }, ..alike });
        }
        self.add_facts(&other);
    }

    /// Adds the stacks of another text's handles.
    pub(crate) fn absorb_stacks(&mut self, other: &Collector) {
        let mut moved = Moved::new(other);
        for (&handle, &stack) in &other.handles {
            let stack = self.stack(&mut moved, stack, &other.stacks);
            self.handles.insert(handle, stack);
        }
    }

    fn stack(&mut self, moved: &mut Moved<'_>, stack: StackId, stacks: &Stacks) -> StackId {
        if let Some(&known) = moved.stacks.get(&stack) {
            return known;
        }
        let frames: Vec<u64> = stacks.get(stack).iter().map(|&address| self.site_of(moved, address)).collect();
        let own = self.stacks.intern(&frames);
        moved.stacks.insert(stack, own);
        own
    }

    /// Address here of a function of the other text.
    fn site_of(&mut self, moved: &Moved<'_>, address: u64) -> u64 {
        moved.functions.frame(address).map_or(0, |frame| self.symbols.address(frame))
    }

    fn moved(&mut self, moved: &mut Moved<'_>, facts: Facts, other: &Collector) -> Facts {
        let mut name = |name: Option<NameId>| {
            let name = name?;
            Some(*moved.names.entry(name).or_insert_with(|| self.names.intern(other.names.get(name))))
        };
        let (comm, cache, module) = (name(facts.comm), name(facts.cache), name(facts.module));
        let extras = facts.extras.and_then(|number| other.extras.get(number as usize)).cloned().map(|extras| {
            self.extras.push(extras);
            u32::try_from(self.extras.len() - 1).unwrap_or(u32::MAX)
        });
        Facts { site: self.site_of(moved, facts.site), comm, cache, module, extras, ..facts }
    }

    fn add_facts(&mut self, other: &Collector) {
        for (&pid, &(at, comm)) in &other.comms {
            let comm = self.names.intern(other.names.get(comm));
            self.comms.entry(pid).or_insert((at, comm));
        }
        for (kind, has) in other.has.iter() {
            self.has[kind] |= *has;
        }
        self.is_of_pages |= other.is_of_pages;
        self.page_bytes = self.page_bytes.or(other.page_bytes);
        self.kernel = self.kernel.take().or_else(|| other.kernel.clone());
        self.arch = self.arch.take().or_else(|| other.arch.clone());
        self.refusal = self.refusal.or(other.refusal);
        self.troubles.extend(other.troubles.iter().copied());
        let TextInfo { counters, processes, warnings, .. } = &other.info;
        let info = &mut self.info;
        for (name, bytes) in counters {
            if !info.counters.iter().any(|(known, _)| known == name) {
                info.counters.push((name.clone(), *bytes));
            }
        }
        info.processes.extend(processes.iter().cloned());
        info.warnings.extend(warnings.iter().cloned());
        info.entries += other.info.entries;
        info.skipped_lines += other.info.skipped_lines;
        info.skipped_blocks += other.info.skipped_blocks;
        info.has_stacks |= other.info.has_stacks;
        info.has_times |= other.info.has_times;
        info.has_threads |= other.info.has_threads;
        info.has_caches |= other.info.has_caches;
        info.lacks_lines |= other.info.lacks_lines;
        info.is_rounded |= other.info.is_rounded;
    }
}
