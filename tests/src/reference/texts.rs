//! Texts of the machine's memory that a recording keeps at both ends, as a workload has them.

use kmemtrace_abi::disk::block::item;

use crate::generate::Workload;

/// Texts of proc at the start and at the end of a recording; empty where it has none.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    pub(crate) meminfo: [String; 2],
    pub(crate) zoneinfo: [String; 2],
    pub(crate) buddyinfo: [String; 2],
    pub(crate) allocinfo: [String; 2],
    pub(crate) slabinfo: [String; 2],
}

impl Texts {
    /// Texts of a workload.
    pub fn of(workload: &Workload) -> Texts {
        let text =
            |tag: u16| workload.items.iter().find(|(of, _)| *of == tag).map_or(String::new(), |(_, t)| t.clone());
        Texts {
            meminfo: [item::MEMINFO_START, item::MEMINFO_END].map(text),
            zoneinfo: [item::ZONEINFO_START, item::ZONEINFO_END].map(text),
            buddyinfo: [item::BUDDYINFO_START, item::BUDDYINFO_END].map(text),
            allocinfo: [item::ALLOCINFO_START, item::ALLOCINFO_END].map(text),
            slabinfo: workload.slabinfo.clone(),
        }
    }
}
