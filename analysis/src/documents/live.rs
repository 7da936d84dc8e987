//! `live --objects`: the objects that are live at the end, oldest first.

use kmemtrace_abi::event::Kind;

use super::naming::{CallSite, Naming};
use super::ranked::{Listing, Others};
use super::row::{Address, Name, Rows, row};
use super::sums::Saturation;
use crate::account::classes::Class;
use crate::account::group_reader::parts_of_task;
use crate::account::grouping::RowKey;
use crate::order::pair_event::NO_PID;
use crate::pairing::pairs::{Live, PairingResult};

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
        pub requested: u64,
        /// Bytes allocated; of pages, those of the pages that are live.
        pub allocated: u64,
        /// Number of live pages of the object; `None` for other kinds than `pages`, and where the size of a page is not known.
        pub live_pages: Option<u64>,
        /// CPU of the allocation.
        pub cpu: u32,
        /// Thread of the allocation; `None` if the trace does not tell it.
        pub pid: Option<i32>,
        /// Command name of the thread.
        pub comm: Name<'a>,
        /// Order key of the allocation.
        pub at: u64,
        /// True if objects of this call-site are also freed on paths without events.
        pub live_is_upper_bound: bool,
    }
}

row! {
    /// Sum of objects left out, in bytes.
    pub struct OtherObjects {
        /// Bytes requested.
        pub requested: u64,
        /// Bytes allocated.
        pub allocated: u64,
    }
}

/// The listing of `live`.
pub(super) fn live<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    page_bytes: Option<u64>,
    top: Option<usize>,
    saturation: &Saturation,
) -> Listing<'a, LiveRow<'a>, OtherObjects> {
    let (listed, rest) = paired.live.split_at(top.unwrap_or(usize::MAX).min(paired.live.len()));
    let sum = |is_pages: bool| {
        let classes = rest.iter().map(|object| paired.class(object));
        let classes: Vec<&Class> = classes.filter(|class| (class.kind == Kind::Pages) == is_pages).collect();
        let sum = |size: fn(&Class) -> u64| saturation.sum(classes.iter().map(|class| u128::from(size(class))).sum());
        OtherObjects { requested: sum(|class| class.requested), allocated: sum(|class| class.allocated) }
    };
    let others = || Others { others: sum(false), others_pages: Some(sum(true)), others_count: rest.len() };
    let others = (!rest.is_empty()).then(others);
    let template = paired.live.first().map(|object| row(paired, naming, page_bytes, object));
    Listing::new(
        Rows::new(listed.len(), move |index| row(paired, naming, page_bytes, &listed[index])),
        others,
        template,
    )
}

fn row<'a>(paired: &'a PairingResult, naming: Naming<'a>, page_bytes: Option<u64>, object: &Live) -> LiveRow<'a> {
    let class = paired.class(object);
    let (RowKey { site, others, .. }, stats) = &paired.rows[class.row as usize];
    // Rows have a thread for inputs that tell the names of each allocation, see [`crate::Query::with_owners`].
    let own = parts_of_task(*others).1.and_then(|comm| naming.numbered(comm));
    let pid = Some(object.alloc_info.pid).filter(|&pid| pid != NO_PID).map(u32::cast_signed);
    let cache = naming.numbered(class.cache.into());
    LiveRow {
        address: Address(object.address),
        site: naming.call_site(*site),
        kind: class.kind,
        cache: cache.map(Into::into),
        requested: class.requested,
        allocated: class.allocated,
        live_pages: match object.pages {
            Some(pages) => Some(pages.live.into()),
            None => page_bytes.filter(|_| class.kind == Kind::Pages).and_then(|size| class.allocated.checked_div(size)),
        },
        cpu: object.cpu,
        pid,
        comm: own.map(Into::into).or_else(|| naming.comm(pid?)),
        at: object.alloc_info.at,
        live_is_upper_bound: stats.live_is_upper_bound,
    }
}
