//! `live --objects`: the objects that are live at the end, oldest first.

use std::collections::HashSet;

use kmemtrace_abi::event::{Kind, Space};
use kmemtrace_abi::trace::InputCapabilities;

use super::naming::{CallSite, Naming};
use super::ranked::{Listing, Others};
use super::row::{Address, Name, Rows, row};
use super::stack_frame::RowStack;
use super::stacks::StackNaming;
use super::sums::{Ordering, Saturation};
use crate::account::classes::Class;
use crate::account::figures::Figure;
use crate::account::group_reader::parts_of_task;
use crate::account::grouping::{GroupKey, GroupValue, Grouping, NO_VALUE, RowKey};
use crate::analysis::Analysis;
use crate::order::pair_event::NO_PID;
use crate::pairing::result::{Live, PairingResult};

row! {
    /// Row of `live`: an object.
    pub struct LiveRow<'a> {
        /// Address; a frame number for pages.
        pub address: Address,
        /// Call-site of the allocation.
        pub site: CallSite<'a>,
        /// Kind of the object.
        pub kind: Kind,
        /// Name of its cache; `None` where events name none.
        pub cache: Name<'a>,
        /// Bytes requested.
        pub requested: Option<u64>,
        /// Bytes allocated; of pages, those of the pages that are live.
        pub allocated: Option<u64>,
        /// Number of live pages of the object; `None` for other kinds than `pages`, and where the size of a page is not known.
        pub live_pages: Option<u64>,
        /// CPU of the allocation; `None` if the input does not tell it.
        pub cpu: Option<u32>,
        /// Thread of the allocation; `None` if the trace does not tell it.
        pub pid: Option<i32>,
        /// Command name of the thread.
        pub comm: Name<'a>,
        /// Order key of the allocation; `None` if the input does not tell it.
        pub at: Option<u64>,
        /// Call stack of the allocation, from the call-site on; `None` where it has none.
        pub stack: Option<RowStack<'a>>,
        /// True if objects of this call-site are also freed on paths without events.
        pub live_is_upper_bound: bool,
    }
}

row! {
    /// Sum of objects left out, in bytes.
    pub struct OtherObjects {
        /// Bytes requested.
        pub requested: Option<u64>,
        /// Bytes allocated.
        pub allocated: Option<u64>,
    }
}

/// Maker of the rows of `live`.
#[derive(Clone)]
struct Objects<'a> {
    paired: &'a PairingResult,
    naming: Naming<'a>,
    /// Names of stacks, where rows of the analysis have them.
    stacks: Option<StackNaming<'a>>,
    /// Rows of the analysis have threads behind their stacks.
    has_tasks: bool,
    capabilities: InputCapabilities,
    page_bytes: Option<u64>,
    /// Call-sites and kinds whose objects are also freed on paths without events.
    bounds: HashSet<(u64, Kind)>,
}

/// The listing of `live`.
pub(super) fn live<'a>(
    paired: &'a PairingResult,
    analysis: &'a Analysis,
    top: Option<usize>,
    (saturation, ordering): (&Saturation, Ordering),
) -> Listing<'a, LiveRow<'a>, OtherObjects> {
    let listed = top.unwrap_or(usize::MAX).min(paired.live.len());
    let others = Others::of_spaces(paired.live.len() - listed, ordering, |space| {
        let classes = paired.live.iter_from(listed).map(|object| paired.class(&object));
        let classes: Vec<&Class> = classes.filter(|class| class.kind.space() == space).collect();
        let is_known = classes.iter().all(|class| class.kind.has_size(class.requested.into()));
        let sum = |size: fn(&Class) -> u64| {
            is_known.then(|| saturation.sum(classes.iter().map(|class| u128::from(size(class))).sum()))
        };
        OtherObjects { requested: sum(|class| class.requested), allocated: sum(|class| class.allocated) }
    });
    let stacks = StackNaming::of(analysis);
    let bounds = paired.rows.iter().filter(|(_, stats)| stats.live_is_upper_bound);
    let objects = Objects {
        paired,
        naming: Naming::of(analysis),
        stacks: analysis.grouping.has(GroupKey::Stack).then(|| stacks.clone()),
        has_tasks: analysis.grouping == Grouping::SITE_STACK_AND_TASK,
        capabilities: analysis.info.capabilities,
        page_bytes: analysis.info.page_bytes,
        bounds: bounds.map(|(key, _)| (key.site, key.kind)).collect(),
    };
    // The columns of a stack's row do not depend on its stack, which is numbered by its first use.
    let template = paired.live.get(0).map(|object| Objects { stacks: None, ..objects.clone() }.row(&object));
    let rows = Rows::new(listed, move |index| objects.row(&paired.live.get(index).unwrap_or_default()));
    Listing { stacks: Some(stacks.members()), ..Listing::new(rows, others, template) }
}

impl<'a> Objects<'a> {
    /// Values of a row's stack, and of its thread where rows have that, too.
    fn stack_and_task(&self, others: u64) -> (GroupValue, Option<GroupValue>) {
        if !self.has_tasks {
            return (others, None);
        }
        let values = self.paired.lists.of(others);
        (values.first().copied().unwrap_or(NO_VALUE), values.get(1).copied())
    }

    fn row(&self, object: &Live) -> LiveRow<'a> {
        let class = self.paired.class(object);
        let (RowKey { site, others, .. }, stats) = &self.paired.rows[class.row as usize];
        let told = |figure| stats.told.is_empty() || stats.told.has(figure);
        let pid = Some(object.alloc_info.pid).filter(|&pid| pid != NO_PID).map(u32::cast_signed);
        let cache = self.naming.numbered(class.cache.into());
        let (stack, task) = self.stack_and_task(*others);
        // A thread may have had several names, and the input tells the one that it had.
        let own = task.and_then(|task| self.naming.numbered(parts_of_task(task).1?));
        let (at, cpu) = self.capabilities.told_place(object.alloc_info.at, object.cpu);
        let whole = || self.page_bytes.filter(|_| class.kind.space() == Space::Pages);
        LiveRow {
            address: Address(object.address),
            site: self.naming.call_site(*site),
            kind: class.kind,
            cache: cache.map(Into::into),
            requested: told(Figure::Requested).then_some(class.requested),
            allocated: told(Figure::Allocated).then_some(class.allocated),
            live_pages: match object.pages {
                Some(pages) => Some(pages.live.into()),
                None => whole().and_then(|size| class.allocated.checked_div(size)),
            },
            cpu,
            pid,
            comm: own.map(Into::into).or_else(|| self.naming.comm(pid?)),
            at,
            stack: self.stacks.as_ref().and_then(|stacks| stacks.stack(stack)),
            live_is_upper_bound: self.bounds.contains(&(*site, class.kind)),
        }
    }
}
