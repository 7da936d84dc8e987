//! Targets of fuzzing: readers of bytes that may come from a stranger. Each is a function that takes bytes and panics where a promise is
//! broken; where a reference exists, the answers are compared with it.
//!
//! `fuzz/` hands the targets to libFuzzer. A test of the suite replays the corpus of it and changes that for about a minute. A new target
//! is a constant in one of the files here, and a line of [`TARGETS`].

pub mod bombs;
pub mod corpus;
pub mod documents;
pub mod encoded;
pub mod files;
pub mod mutate;
pub mod names;
pub mod pages;
pub mod read;
pub mod recordings;
pub mod target;
pub mod texts;

pub use target::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    pages::SUB_BUFFER,
    pages::FORMAT,
    pages::RELAY,
    encoded::ENCODED,
    recordings::BLOCKS,
    recordings::FILE_HEADER,
    recordings::META,
    recordings::STREAM,
    texts::PAGE_OWNER,
    texts::MOMENT,
    texts::FTRACE_TEXT,
    files::TRACE_DAT,
    files::PERF_DATA,
    files::TRACER_STREAM,
    files::PACKED,
    names::KALLSYMS,
    names::VMLINUX,
    names::MODULE,
    names::NAMES_MAP,
    names::LISTS,
    documents::SAVED,
    documents::INDEX,
    documents::EXPRESSIONS,
];
