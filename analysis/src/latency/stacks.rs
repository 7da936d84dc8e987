//! Facts of call stacks, each found once: the call-site of an allocation, and charges.

use foldhash::HashMap;
use kmemtrace_abi::event::Names;
use kmemtrace_abi::stack::StackId;

use crate::names::frame_list::FrameList;
use crate::names::kallsyms::inside_of;
use crate::names::known::KnownNames;
use crate::names::wrappers::plain_name;
use crate::query::select::Select;

/// Functions that charge memory to a cgroup, which waits for reclaim there.
const CHARGES: [&[u8]; 4] =
    [b"try_charge", b"try_charge_memcg", b"mem_cgroup_handle_over_high", b"__mem_cgroup_handle_over_high"];
/// Begins of the names of their callers: some kernels leave the innermost frames of a stack out, as Linux 6.1 on s390x.
const CALLERS: [&[u8]; 9] = [
    b"charge_memcg",
    b"mem_cgroup_charge",
    b"__mem_cgroup_charge",
    b"mem_cgroup_swapin_charge",
    b"mem_cgroup_try_charge",
    b"mem_cgroup_hugetlb_try_charge",
    b"obj_cgroup_charge",
    b"__memcg_kmem_charge",
    b"__memcg_slab_post_alloc_hook",
];

/// True for a function that charges memory, or calls one.
fn charges(function: &[u8]) -> bool {
    let name = plain_name(function);
    CHARGES.contains(&name) || CALLERS.iter().any(|caller| name.starts_with(caller))
}

/// Facts of stacks.
pub(super) struct StackFacts<'a> {
    names: &'a KnownNames,
    list: &'a FrameList,
    call_sites: HashMap<StackId, Option<u64>>,
    charges: HashMap<StackId, bool>,
    /// Stacks whose call-sites the filters take.
    taken: HashMap<StackId, bool>,
}

impl<'a> StackFacts<'a> {
    pub(super) fn new(names: &'a KnownNames) -> StackFacts<'a> {
        let list = &names.places.options.frames;
        StackFacts {
            names,
            list,
            call_sites: HashMap::default(),
            charges: HashMap::default(),
            taken: HashMap::default(),
        }
    }

    /// Return address in the function that asked for the memory: the first frame beyond reclaim, charging and allocators. `None` without a
    /// stack, and where a frame before has no symbol.
    pub(super) fn call_site(&mut self, stack: Option<StackId>, trace_names: &Names) -> Option<u64> {
        let stack = stack?;
        *self.call_sites.entry(stack).or_insert_with(|| {
            let symbols = self.names.symbols();
            for &frame in trace_names.stacks.get(stack) {
                if self.list.class(symbols.lookup(frame)?.name).is_none() {
                    return Some(frame);
                }
            }
            None
        })
    }

    /// True for a call-site that the filters take: by function, module and source. One that is not known passes no such filter.
    pub(super) fn takes_site(&self, select: &Select, call_site: Option<u64>) -> bool {
        if select.site.is_empty() && select.module.is_empty() && select.branch.is_empty() {
            return true;
        }
        let (symbols, places) = (self.names.symbolizer(), &self.names.places);
        call_site.is_some_and(|site| {
            select.matches_site(site, symbols.lookup(site).as_ref(), symbols.owner(site))
                && (select.branch.is_empty() || select.matches_branch(&places.place(site, symbols)))
        })
    }

    /// True for a stack whose call-site the filters by function, module and source take.
    pub(super) fn takes_stack(&mut self, select: &Select, stack: Option<StackId>, trace_names: &Names) -> bool {
        let Some(stack) = stack else { return self.takes_site(select, None) };
        if let Some(&is_taken) = self.taken.get(&stack) {
            return is_taken;
        }
        let call_site = self.call_site(Some(stack), trace_names);
        let is_taken = self.takes_site(select, call_site);
        *self.taken.entry(stack).or_insert(is_taken)
    }

    /// True for a function that the filters take, by name and by module.
    pub(super) fn takes_function(&self, select: &Select, function: u64) -> bool {
        if select.site.is_empty() && select.module.is_empty() {
            return true;
        }
        let inside = inside_of(function);
        let symbols = self.names.symbols();
        select.matches_site(inside, symbols.lookup(inside).as_ref(), symbols.owner(inside))
    }

    /// True unless a stack shows that a program asked for the reclaim: none of its symbols charges memory.
    pub(super) fn is_charge(&mut self, stack: Option<StackId>, trace_names: &Names) -> bool {
        let Some(stack) = stack else { return true };
        *self.charges.entry(stack).or_insert_with(|| {
            let symbols = self.names.symbols();
            let frames = trace_names.stacks.get(stack).iter();
            let mut named = frames.filter_map(|frame| symbols.lookup(*frame)).peekable();
            named.peek().is_none() || named.any(|symbol| charges(symbol.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_known_by_name_or_by_their_callers() {
        for name in ["try_charge_memcg", "mem_cgroup_handle_over_high", "charge_memcg", "obj_cgroup_charge_pages"] {
            assert!(charges(name.as_bytes()), "{name}");
        }
        assert!(charges(b"try_charge_memcg.isra.0") && charges(b"__mem_cgroup_charge"));
        for name in
            ["memory_reclaim", "mem_cgroup_force_empty_write", "try_to_free_mem_cgroup_pages", "user_proactive_reclaim"]
        {
            assert!(!charges(name.as_bytes()), "{name}");
        }
    }
}
