//! Modules that are loaded while the recorder records: a trace by hand.

use std::collections::BTreeMap;

use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::symbols::Function;
use kmemtrace_tests::generate::{Shape, trace_dir};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::documents;
use crate::{GroupKey, ModuleRule, Query, Shape as RowShape};

const PAGE: u64 = 4096;
/// Functions, each with a page of its own; a frame is within it.
const FUNCTIONS: [(&str, Option<&str>); 8] = [
    ("__alloc_pages", None),
    ("vmalloc", None),
    ("load_module", None),
    ("do_init_module.constprop.0", None),
    ("do_init_module", Some("bar")),
    ("bar_alloc", Some("bar")),
    ("foo_init", Some("foo")),
    ("vfs_read", None),
];
const ALLOC: u64 = frame(0);
const VMALLOC: u64 = frame(1);
const LOAD: u64 = frame(2);
const INIT: u64 = frame(3);
const NO_INIT: u64 = frame(4);
const BAR: u64 = frame(5);
const FOO: u64 = frame(6);
const READ: u64 = frame(7);

const fn frame(function: u64) -> u64 {
    0xffff_ffff_8100_0010 + function * PAGE
}

fn scenario() -> Scenario {
    let function = |(at, (name, module)): (u64, &(&str, Option<&str>))| {
        let start = 0xffff_ffff_8100_0000 + at * PAGE;
        Function { start, end: start + 0x100, name: (*name).to_owned(), module: module.map(str::to_owned) }
    };
    let functions = (0..).zip(&FUNCTIONS).map(function).collect();
    Scenario::new(Shape::plain(), 2).with(|machine| machine.symbols.functions = functions)
}

/// Rows of `modules` by their names: pages that are live.
fn rows(made: Scenario, rule: ModuleRule) -> BTreeMap<Option<String>, u64> {
    let dir = Directory::new(&trace_dir(&made.finish(), 1));
    let mut all = Vec::new();
    // However the events are cut, and threads read them.
    for (threads, window) in [(1, 2048), (1, 1), (3, 2)] {
        let query = Query::by(&[GroupKey::Module]).module_rule(rule).with_nodes(rule == ModuleRule::Any);
        let query = query.threads(threads).cut(Some(window), None);
        let analysis = query.run(&mut Trace::open(&[dir.path().to_owned()]).unwrap()).unwrap();
        let document = json!(documents::modules(&analysis, &RowShape::default()));
        let unknown = |row: &Value| (row["module_known"] == false).then_some("(unknown)");
        let name = |row: &Value| row["module"].as_str().or(unknown(row)).map(str::to_owned);
        let pages = |row: &Value| row["live_pages"].as_u64().unwrap();
        all.push(document["rows"].as_array().unwrap().iter().map(|row| (name(row), pages(row))).collect());
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
    all.swap_remove(0)
}

fn named<const N: usize>(rows: [(&str, u64); N]) -> BTreeMap<Option<String>, u64> {
    rows.into_iter().map(|(name, pages)| ((name != "(kernel)").then(|| name.to_owned()), pages)).collect()
}

#[test]
fn allocations_of_an_initialisation_belong_to_the_module_that_is_loaded() {
    let init = |at| [ALLOC, at, INIT, LOAD];
    let made = || {
        let made = scenario().thread(7, 0);
        // Before the load: the module has no name yet.
        let made = made.page_alloc(10, 0, 1 << 10, PAGE).stack(11, 0, &[ALLOC, VMALLOC, LOAD]);
        let made = made.module_load(20, 0, "foo");
        let made = made.page_alloc(21, 0, 2 << 10, 2 * PAGE).stack(22, 0, &init(FOO));
        // The thread has moved to another CPU; another module and the kernel allocate for it.
        let made = made.page_alloc(23, 1, 3 << 10, 4 * PAGE).stack(24, 1, &init(BAR));
        let made = made.page_alloc(25, 1, 4 << 10, 8 * PAGE).stack(26, 1, &init(VMALLOC));
        // The initialisation is done.
        let made = made.page_alloc(30, 1, 5 << 10, 16 * PAGE).stack(31, 1, &[ALLOC, READ, LOAD]);
        let made = made.page_alloc(32, 1, 6 << 10, 32 * PAGE);
        let made = made.page_alloc(33, 1, 7 << 10, 64 * PAGE).stack(34, 1, &[ALLOC, NO_INIT]);
        // Another thread, whose load was not seen.
        let made = made.thread(8, 0).page_alloc(40, 1, 8 << 10, 128 * PAGE).stack(41, 1, &init(VMALLOC));
        // The next module of the first thread.
        let made = made.thread(7, 0).module_load(50, 1, "bar");
        made.page_alloc(51, 1, 9 << 10, 256 * PAGE).stack(52, 1, &init(VMALLOC))
    };
    // Pages without a stack have no call-site.
    let (kernel, unknown) = (1 + 16 + 128, 32);
    let want = named([("foo", 2 + 4 + 8), ("bar", 64 + 256), ("(kernel)", kernel), ("(unknown)", unknown)]);
    assert_eq!(rows(made(), ModuleRule::Innermost), want);
    assert_eq!(rows(made(), ModuleRule::Outermost), want);
    // Each module of the stack, and the one that is loaded.
    let overlapping = named([("foo", 2 + 4 + 8), ("bar", 4 + 64 + 256), ("(kernel)", kernel), ("(unknown)", unknown)]);
    assert_eq!(rows(made(), ModuleRule::Any), overlapping);
    let of_sites = named([("foo", 2), ("bar", 4 + 64), ("(kernel)", kernel + 8 + 256), ("(unknown)", unknown)]);
    assert_eq!(rows(made(), ModuleRule::Site), of_sites);
}

/// A name that is no text is one as it is; a record without a name tells of no load.
#[test]
fn names_of_loaded_modules_are_any_bytes() {
    let frames = [ALLOC, VMALLOC, INIT];
    let made = scenario().module_load(1, 0, "a\u{1b}[2Jb").page_alloc(2, 0, 1 << 10, PAGE).stack(3, 0, &frames);
    assert_eq!(rows(made, ModuleRule::Innermost), named([("a\u{1b}[2Jb", 1)]));
    let made = scenario().module_load(1, 0, "").page_alloc(2, 0, 1 << 10, PAGE).stack(3, 0, &frames);
    assert_eq!(rows(made, ModuleRule::Innermost), named([("(kernel)", 1)]));
}
