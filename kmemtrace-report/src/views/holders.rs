//! Views of who allocated, or what for: tasks, modules, uses.

use kmemtrace::documents;
use kmemtrace::{Figure, GroupKey, ModuleRule, SortKey};

use super::view::{Run, TextNeeds, View};
use crate::args::SortBy;
use crate::columns;

/// Sort keys of rows that hold memory.
const HELD: &[SortBy] = &[
    SortBy::figure(Figure::LiveAllocated),
    SortBy::figure(Figure::PeakLiveAllocated),
    SortBy::figure(Figure::Allocated),
    SortBy::figure(Figure::Allocs),
    SortBy::Key(SortKey::Growth),
    SortBy::figure(Figure::Frees),
    SortBy::Key(SortKey::Site),
];

pub(super) const TASKS: View = View {
    name: "tasks",
    meaning: "Memory by the thread that allocated it",
    help: "\
Figures for each thread that allocated, or with --by comm for each command. That thread need not be the one that holds the memory: \
page cache stays when its reader is gone. Pages count where they were recorded, else objects of slabs; --kind chooses.",
    examples: &[
        ("tasks --sort peak DIR", "threads by the greatest number of live bytes"),
        ("tasks --by comm --at peak DIR", "commands, when most memory was in use"),
    ],
    options: &["by", "sort", "top", "at"],
    groupings: &[GroupKey::Task, GroupKey::Comm],
    sort_keys: HELD,
    columns: &[("figures", &columns::HELD), ("keys of --by", &columns::TASKS)],
    text: Some(TextNeeds::Threads),
    run: Run::Document {
        query: |_, args| args.held_by(&[args.by.first().copied().unwrap_or(GroupKey::Task)]),
        document: |analysis, shape, _| documents::tasks(analysis, shape),
    },
};

pub(super) const MODULES: View = View {
    name: "modules",
    meaning: "Memory by module of the kernel",
    help: "\
Figures for each module. An allocation belongs to the module whose frame of the stack is nearest to it, else to the kernel itself; \
--module-rule chooses another rule. While a module loads, what its thread allocates belongs to it. Without a stack it belongs to the module of its call-site. Pages count where they were recorded, \
else objects of slabs; --kind chooses.",
    examples: &[
        ("modules -n 3 DIR", "the three that hold most"),
        ("modules --module-rule any DIR", "each module that a stack runs through"),
    ],
    options: &["sort", "top", "module-rule", "at"],
    groupings: &[],
    sort_keys: HELD,
    columns: &[("figures", &columns::HELD), ("names", &columns::MODULES)],
    text: Some(TextNeeds::Stacks),
    run: Run::Document {
        query: |_, args| args.held_by(&[GroupKey::Module]).with_nodes(args.module_rule == Some(ModuleRule::Any)),
        document: |analysis, shape, _| documents::modules(analysis, shape),
    },
};

pub(super) const USES: View = View {
    name: "uses",
    meaning: "Uses of pages: user, cache, slab, page tables and more",
    help: "\
Figures of pages for each use, by rules over the functions of the stack, the flags and the order of each allocation; --uses names \
another list of rules. Below stands the sum beside the change of free memory.",
    examples: &[("uses DIR", "what pages are for")],
    options: &["sort", "top", "at", "uses"],
    groupings: &[],
    sort_keys: HELD,
    columns: &[("figures", &columns::HELD), ("names", &columns::USES)],
    text: Some(TextNeeds::Pages),
    run: Run::Document {
        query: |_, args| args.held_by(&[GroupKey::Use]),
        document: |analysis, shape, _| documents::uses(analysis, shape),
    },
};
