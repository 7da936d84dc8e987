//! `proc_slab_static`: caches by the pages of their slabs, as the kernel itself counted them at the end of the recording.

use std::cmp::Reverse;
use std::io::{self, Write};

use kmemtrace::{SlabCache, Slabinfo, Trace};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::memstrack::Report;

use super::rows::Choice;
use crate::terminal::messages::say;

/// Caches of the kernel.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    slabinfo: Slabinfo,
    page_bytes: Option<u64>,
}

impl Slabs {
    /// Caches at the end of the recording; told where the trace does not have them.
    pub(super) fn of(trace: &Trace) -> Slabs {
        let slabinfo = Slabinfo::parse(&trace.metadata.slabinfo_end);
        if slabinfo.is_empty() {
            say("the trace has no /proc/slabinfo of its end: caches are not known; see kmemtrace-report caches");
        }
        Slabs { slabinfo, page_bytes: trace.info.page_bytes }
    }

    pub(super) fn print(&self, asked: &Report, out: &mut dyn Write) -> io::Result<()> {
        let mut caches: Vec<&SlabCache> = self.slabinfo.caches().iter().collect();
        caches.sort_by_key(|cache| Reverse(cache.pages()));
        caches.truncate(Choice::of(asked, false).caches(caches.iter().map(|cache| cache.pages()).collect()));
        writeln!(out, "Top Slab Usage:")?;
        for cache in caches {
            let mib = self.page_bytes.map(|bytes| cache.pages() as f64 * bytes as f64 / f64::from(1 << 20));
            let mib = mib.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.1}"));
            writeln!(out, "{:>17}: {mib} MB", escape(&cache.name))?;
        }
        Ok(())
    }
}
