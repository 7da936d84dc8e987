//! Call-sites in the initialisation of modules: who has loaded which module before, in every way in which a trace is read.

use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::symbols::Function;
use kmemtrace_tests::generate::{Shape, trace_dir};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::documents;
use crate::{Analysis, Glob, GroupKey, Query, Select, Shape as RowShape};

/// Initialisation of `exleak`, of `other`, and an address that no load explains.
const EXLEAK: u64 = 0xffff_ffff_c023_c019;
const OTHER: u64 = 0xffff_ffff_c024_0030;
const STRAY: u64 = 0xffff_ffff_c0ff_0000;
/// In the range of `exleak`, in no symbol.
const IN_RANGE: u64 = 0xffff_ffff_c010_0800;
/// In the kernel's image.
const KERNEL: u64 = 0xffff_ffff_8100_0010;
/// In no area of modules.
const HEAP: u64 = 0xffff_8881_0000_1000;

fn scenario() -> Scenario {
    let function = |start, name: &str, module: Option<&str>| Function {
        start,
        end: start + 0x100,
        name: name.to_owned(),
        module: module.map(str::to_owned),
    };
    let functions = vec![
        function(0xffff_ffff_8100_0000, "do_one_initcall", None),
        function(0xffff_ffff_c010_0000, "exleak_work", Some("exleak")),
    ];
    Scenario::new(Shape::plain(), 2).with(|machine| {
        machine.symbols.functions = functions;
        machine.modules = "exleak 4096 0 - Live 0xffffffffc0100000\n".to_owned();
        machine.module_info =
            "exleak - - .text=0xffffffffc0100000 .init.text=0xffffffffc023c000\nother - -\n".to_owned();
    })
}

/// Allocations of different sizes, so that each is seen.
fn made() -> Scenario {
    let bytes = |n: u64| (n, n);
    let made = scenario().thread(7, 0).module_load(10, 0, "exleak");
    // The thread has moved to another CPU, which is read after the first.
    let made = made.kmalloc(20, 1, EXLEAK, 0x1000, bytes(1)).kmalloc(21, 1, EXLEAK, 0x2000, bytes(2));
    let made = made.kmalloc(22, 1, IN_RANGE, 0x3000, bytes(4)).kmalloc(23, 1, KERNEL, 0x4000, bytes(8));
    let made = made.kmalloc(24, 1, HEAP, 0x5000, bytes(16));
    // Another thread, and a call-site of both.
    let made = made.thread(8, 0).kmalloc(25, 0, STRAY, 0x6000, bytes(32));
    made.module_load(30, 0, "other").kmalloc(31, 0, OTHER, 0x7000, bytes(64))
}

/// Runs a query in every way: in pieces, and by several threads.
fn each_way<T: PartialEq + std::fmt::Debug>(dir: &Directory, query: &Query, take: impl Fn(&Analysis) -> T) -> T {
    let ways = [(1, 2048), (1, 1), (2, 3), (3, 2)];
    let mut all = ways.into_iter().map(|(threads, window)| {
        let query = query.clone().threads(threads).cut(Some(window), None);
        take(&query.run(&mut Trace::open(&[dir.path().to_owned()]).unwrap()).unwrap())
    });
    let first = all.next().unwrap();
    all.for_each(|other| assert_eq!(other, first));
    first
}

fn rows(document: &Value) -> Vec<Value> {
    document["rows"].as_array().unwrap().clone()
}

/// Module and symbol of the row of a call-site, and its text in tables.
fn named(dir: &Directory, query: &Query, site: u64) -> (Option<String>, Option<String>, String) {
    each_way(dir, query, |analysis| {
        let document = json!(documents::sites(analysis, &RowShape::default()));
        let row = rows(&document).into_iter().find(|row| row["call_site"] == format!("{site:#x}")).unwrap();
        let text = String::from_utf8(documents::naming::call_site(analysis, site).text()).unwrap();
        (row["module"].as_str().map(str::to_owned), row["symbol"].as_str().map(str::to_owned), text)
    })
}

fn stored(made: Scenario) -> Directory {
    Directory::new(&trace_dir(&made.finish(), 1))
}

#[test]
fn an_allocation_of_the_initialisation_belongs_to_the_module_that_its_thread_has_loaded() {
    let dir = stored(made());
    let of = |module: &str, text: &str| (Some(module.to_owned()), None, text.to_owned());
    assert_eq!(named(&dir, &Query::by_site(), EXLEAK), of("exleak", "[exleak] init+0x19"));
    assert_eq!(named(&dir, &Query::by_site(), OTHER), of("other", "[other] init"));
    assert_eq!(named(&dir, &Query::by_site(), IN_RANGE), of("exleak", "0xffffffffc0100800 [exleak]"));
    let unknown = |site: u64| (None, None, format!("{site:#x} (unknown)"));
    assert_eq!(named(&dir, &Query::by_site(), STRAY), unknown(STRAY));
    assert_eq!(named(&dir, &Query::by_site(), HEAP), unknown(HEAP), "modules do not lie there");
    let symbol = "do_one_initcall+0x10".to_owned();
    assert_eq!(named(&dir, &Query::by_site(), KERNEL), (None, Some(symbol.clone()), symbol));
}

#[test]
fn rows_and_filters_of_modules_go_by_the_same_names() {
    let dir = stored(made());
    let by_module = each_way(&dir, &Query::by(&[GroupKey::Module]), |analysis| {
        let document = json!(documents::sites(analysis, &RowShape::default()));
        let name =
            |row: &Value| (row["requested"].as_u64().unwrap(), row["module"].clone(), row["module_known"].clone());
        let mut all: Vec<_> = rows(&document).iter().map(name).collect();
        all.sort_by_key(|(sum, ..)| *sum);
        all
    });
    let expected = [
        (1 + 2 + 4, json!("exleak"), json!(true)),
        (8, Value::Null, json!(true)),
        (16 + 32, Value::Null, json!(false)),
        (64, json!("other"), json!(true)),
    ];
    assert_eq!(by_module, expected);
    for (pattern, sum) in [("exleak", 7), ("*", 71), ("(kernel)", 8), ("(unknown)", 48), ("oth*", 64)] {
        let select = Select { module: vec![Glob::new(pattern)], ..Select::default() };
        let found = each_way(&dir, &Query::by_site().select(select), |analysis| analysis.total().requested);
        assert_eq!(found, sum, "{pattern}");
    }
}

#[test]
fn a_module_that_is_gone_has_no_initialisation() {
    let bytes = (8, 8);
    let made = scenario().thread(7, 0).module_load(10, 0, "exleak").module_free(15, 1, "exleak");
    let dir = stored(made.kmalloc(20, 0, EXLEAK, 0x1000, bytes));
    assert_eq!(named(&dir, &Query::by_site(), EXLEAK).0, None);
    // The next load of the same name counts.
    let made = scenario().thread(7, 0).module_load(10, 0, "exleak").module_free(15, 1, "exleak");
    let made = made.module_load(16, 0, "exleak").kmalloc(20, 0, EXLEAK, 0x1000, bytes).module_free(30, 1, "exleak");
    assert_eq!(named(&stored(made), &Query::by_site(), EXLEAK).0.as_deref(), Some("exleak"));
}

/// A call-site of two modules, or of a module and of none, is of none: a row has one module.
#[test]
fn a_call_site_of_several_modules_belongs_to_none() {
    let bytes = (8, 8);
    let first = || scenario().thread(7, 0).module_load(10, 0, "exleak").kmalloc(11, 0, EXLEAK, 0x1000, bytes);
    let made = first().module_load(20, 0, "other").kmalloc(21, 0, EXLEAK, 0x2000, bytes);
    assert_eq!(named(&stored(made), &Query::by_site(), EXLEAK).0, None);
    let made = first().thread(9, 0).kmalloc(12, 1, EXLEAK, 0x2000, bytes);
    assert_eq!(named(&stored(made), &Query::by_site(), EXLEAK).0, None);
}

/// Events outside of a window are as if not recorded, loads among them.
#[test]
fn a_load_outside_of_the_window_does_not_count() {
    let dir = stored(made());
    let window = |text: &str| Query::by_site().time(Some(text.parse().unwrap()));
    assert_eq!(named(&dir, &window("0.00000002,"), EXLEAK).0, None);
    assert_eq!(named(&dir, &window("0.00000001,"), EXLEAK).0.as_deref(), Some("exleak"));
}

/// Frames of a page's stack are named as call-sites are.
#[test]
fn pages_of_the_initialisation_belong_to_the_module() {
    let made = scenario().thread(7, 0).module_load(10, 0, "exleak").page_alloc(20, 1, 1 << 10, 4096);
    let dir = stored(made.stack(21, 1, &[EXLEAK, KERNEL]));
    let rows = each_way(&dir, &Query::by(&[GroupKey::Site, GroupKey::Stack]), |analysis| {
        rows(&json!(documents::sites(analysis, &RowShape::default())))
    });
    assert_eq!(
        (rows[0]["call_site"].as_str(), rows[0]["module"].as_str()),
        (Some("0xffffffffc023c019"), Some("exleak"))
    );
}

/// An index has the names, too: it answers without a pass over the trace.
#[test]
fn an_index_keeps_the_names() {
    let dir = stored(made());
    std::thread::sleep(std::time::Duration::from_millis(60));
    let query = Query::by_site().index(0);
    let first = named(&dir, &query, EXLEAK);
    assert!(dir.file(crate::cache::NAME).exists());
    assert_eq!(first.2, "[exleak] init+0x19");
    assert_eq!(named(&dir, &query, EXLEAK), first);
}
