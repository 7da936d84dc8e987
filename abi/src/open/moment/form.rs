//! Forms of texts: one table of how each is named, recognised and read.

use std::path::Path;

use super::entry::{FormName, Reader};
#[cfg(feature = "inputs")]
use super::{
    alloc_traces, allocinfo, crash_slabs, kmemleak, meminfo, memleak, oom, slab_report, slabinfo, slabtop, vmallocinfo,
    zoneinfo,
};
use super::{blocks, dump_page};
use crate::open::options::OpenOptions;

/// What is known before a text is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) path: &'a Path,
    pub(super) options: &'a OpenOptions,
}

/// A form.
pub(super) struct Form {
    /// Name where the reader tells no other ([`Reader::form`]).
    pub(super) name: FormName,
    /// Other words of `--form` for it.
    pub(super) aliases: &'static [&'static str],
    /// True for a line, without noise, that a text or one of its blocks begins with.
    pub(super) begins: fn(&[u8]) -> bool,
    /// A block ends with its frames: frames before the first block of all are of one that was cut.
    pub(super) has_frames_last: bool,
    /// True for a line with which a text may begin only if nothing else is found.
    pub(super) may_begin: fn(&[u8]) -> bool,
    pub(super) reader: fn(&About<'_>) -> Box<dyn Reader>,
}

/// Bytes of a page where nothing tells.
#[cfg(feature = "inputs")]
const USUAL_PAGE_BYTES: u64 = 4096;

#[cfg(feature = "inputs")]
fn page_bytes(about: &About<'_>) -> u64 {
    about.options.page_bytes.unwrap_or(USUAL_PAGE_BYTES)
}

fn never(_: &[u8]) -> bool {
    false
}

#[cfg(feature = "inputs")]
const fn of_objects(input: &'static str, form: &'static str, title: &'static str, unit: &'static str) -> FormName {
    FormName { input, form, title, unit, has_objects: false }
}

/// All forms; where several claim a line, the first one has it.
pub(super) const FORMS: &[Form] = &[
    Form {
        name: blocks::DUMP,
        aliases: &["sorted", "culled", "stacks", "handles", "page_owner"],
        begins: blocks::begins,
        has_frames_last: false,
        may_begin: blocks::may_begin,
        reader: |_| Box::new(blocks::Blocks::default()),
    },
    Form {
        name: dump_page::NAME,
        aliases: &[],
        begins: dump_page::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |_| Box::new(dump_page::DumpPage::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: alloc_traces::NAME,
        aliases: &["alloc_calls", "free_traces", "free_calls"],
        begins: alloc_traces::begins,
        has_frames_last: true,
        may_begin: never,
        reader: |about| {
            let OpenOptions { cache_name, object_size, form, .. } = about.options;
            let cache = alloc_traces::Cache::of(about.path, cache_name.as_deref(), *object_size, form.as_deref());
            Box::new(alloc_traces::AllocTraces::new(cache))
        },
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("alloc_traces", "vmallocinfo", "list of vmallocinfo", "areas"),
        aliases: &[],
        begins: vmallocinfo::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |_| Box::new(vmallocinfo::Vmallocinfo),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("alloc_traces", "memleak", "list of memleak", "stacks"),
        aliases: &[],
        begins: memleak::begins,
        has_frames_last: true,
        may_begin: never,
        reader: |_| Box::new(memleak::Memleak::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("slabinfo", "slabinfo", "slabinfo", "caches"),
        aliases: &[],
        begins: slabinfo::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |_| Box::new(slabinfo::Slabinfo::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("slabinfo", "slabtop", "list of slabtop", "caches"),
        aliases: &[],
        begins: slabtop::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |_| Box::new(slabtop::Slabtop::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("slabinfo", "crash", "list of crash's kmem -s", "caches"),
        aliases: &[],
        begins: crash_slabs::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |about| Box::new(crash_slabs::CrashSlabs::new(page_bytes(about))),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("allocinfo", "allocinfo", "allocinfo", "lines"),
        aliases: &[],
        begins: allocinfo::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |_| Box::new(allocinfo::Allocinfo::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: FormName { has_objects: true, ..of_objects("kmemleak", "kmemleak", "report of kmemleak", "objects") },
        aliases: &[],
        begins: kmemleak::begins,
        has_frames_last: true,
        may_begin: never,
        reader: |_| Box::new(kmemleak::Kmemleak::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("slab_report", "slab_report", "log of a cache destroyed with objects left", "objects"),
        aliases: &[],
        begins: slab_report::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |_| Box::new(slab_report::SlabReport::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("meminfo", "meminfo", "meminfo", "counters"),
        aliases: &[],
        begins: meminfo::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |_| Box::new(meminfo::Meminfo::default()),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("meminfo", "zoneinfo", "zoneinfo", "zones"),
        aliases: &[],
        begins: zoneinfo::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |about| Box::new(zoneinfo::Zoneinfo::new(page_bytes(about))),
    },
    #[cfg(feature = "inputs")]
    Form {
        name: of_objects("meminfo", "oom", "report of memory in a log", "slab caches"),
        aliases: &[],
        begins: oom::begins,
        has_frames_last: false,
        may_begin: never,
        reader: |about| Box::new(oom::Oom::new(about.options.page_bytes)),
    },
];

impl Form {
    /// True for a word of `--form` that names it.
    pub(super) fn is(&self, word: &str) -> bool {
        self.name.form == word || self.aliases.contains(&word)
    }
}

/// Words of `--form`.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    FORMS.iter().flat_map(|form| std::iter::once(form.name.form).chain(form.aliases.iter().copied()))
}

/// The form whose text, or a block of it, begins with a line.
pub(super) fn of_line(line: &[u8]) -> Option<usize> {
    FORMS.iter().position(|form| (form.begins)(line))
}
