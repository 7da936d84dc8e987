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
use crate::account::figures::Figure;
use crate::account::grouping::{GroupKey, RowKey};
use crate::account::stats::Stats;
use crate::analysis::Analysis;
use crate::order::pair_event::NO_PID;
use crate::pairing::result::PairingResult;

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
        /// CPU of the allocation; `None` if the input does not give it.
        pub cpu: Option<u32>,
        /// Thread of the allocation; `None` if the trace does not give it.
        pub pid: Option<i32>,
        /// Command name of the thread.
        pub comm: Name<'a>,
        /// Order key of the allocation; `None` if the input does not give it.
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
    let others =
        Others::of_spaces(paired.live.len() - listed, ordering, |space| sums_from(paired, listed, space, saturation));
    let stacks = StackNaming::of(analysis);
    let bounds = paired.rows.iter().filter(|(_, stats)| stats.live_is_upper_bound);
    let objects = Objects {
        paired,
        naming: Naming::of(analysis),
        stacks: analysis.grouping.has(GroupKey::Stack).then(|| stacks.clone()),
        capabilities: analysis.info.capabilities,
        page_bytes: analysis.info.page_bytes,
        bounds: bounds.map(|(key, _)| (key.site, key.kind)).collect(),
    };
    // The columns of a stack's row do not depend on its stack, which is numbered by its first use.
    let template = (!paired.live.is_empty()).then(|| Objects { stacks: None, ..objects.clone() }.row(0));
    let rows = Rows::new(listed, move |index| objects.row(index));
    Listing { stacks: Some(stacks.members()), ..Listing::new(rows, others, template) }
}

/// Sums of the objects of a space from a position on. What the input does not tell of an object is left out; `None` where it tells it
/// of none.
fn sums_from(paired: &PairingResult, from: usize, space: Space, saturation: &Saturation) -> OtherObjects {
    let (mut objects, mut have_sizes) = (0u64, true);
    // Bytes, and the number of objects of which they are told.
    let mut sums = [(0u128, 0u64); 2];
    for class in paired.live.iter_from(from).map(|object| paired.class(&object)) {
        if class.kind.space() != space {
            continue;
        }
        let stats = &paired.rows[class.row as usize].1;
        let of_object = [(class.requested, Figure::Requested), (class.allocated, Figure::Allocated)];
        for ((bytes, told), (size, figure)) in sums.iter_mut().zip(of_object) {
            if tells(stats, figure) {
                *bytes += u128::from(size);
                *told += 1;
            }
        }
        objects += 1;
        have_sizes &= class.kind.has_size(class.requested.into());
    }
    let is_known = |told: u64| have_sizes && (told > 0 || objects == 0);
    let [requested, allocated] = sums.map(|(bytes, told)| is_known(told).then(|| saturation.sum(bytes)));
    OtherObjects { requested, allocated }
}

/// True where the input tells the figure of the objects of a row.
fn tells(stats: &Stats, figure: Figure) -> bool {
    stats.told.is_empty() || stats.told.has(figure)
}

impl<'a> Objects<'a> {
    /// Row of the object at a position.
    fn row(&self, index: usize) -> LiveRow<'a> {
        let object = self.paired.live.get(index).unwrap_or_default();
        let class = self.paired.class(&object);
        let (RowKey { site, others, .. }, stats) = &self.paired.rows[class.row as usize];
        let pid = Some(object.alloc_info.pid).filter(|&pid| pid != NO_PID).map(u32::cast_signed);
        let cache = self.naming.numbered(class.cache.into());
        // A thread may have had several names, and a text tells the one that it had.
        let own = self.paired.live.told_comm(index).and_then(|comm| self.naming.numbered(comm.into()));
        let (at, cpu) = self.capabilities.told_place(object.alloc_info.at, object.cpu);
        let whole = || self.page_bytes.filter(|_| class.kind.space() == Space::Pages);
        LiveRow {
            address: Address(object.address),
            site: self.naming.call_site(*site),
            kind: class.kind,
            cache: cache.map(Into::into),
            requested: tells(stats, Figure::Requested).then_some(class.requested),
            allocated: tells(stats, Figure::Allocated).then_some(class.allocated),
            live_pages: match object.pages {
                Some(pages) => Some(pages.live.into()),
                None => whole().and_then(|size| class.allocated.checked_div(size)),
            },
            cpu,
            pid,
            comm: own.map(Into::into).or_else(|| self.naming.comm(pid?)),
            at,
            stack: self.stacks.as_ref().and_then(|stacks| stacks.stack(*others)),
            live_is_upper_bound: self.bounds.contains(&(*site, class.kind)),
        }
    }
}
