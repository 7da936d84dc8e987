//! Tests of call-sites and caches without a name of their own: initialisation of modules, hidden symbols, symbols from files, caches that
//! slabinfo tells.

use std::path::Path;

use kmemtrace_tests::generate::symbols::Function;
use kmemtrace_tests::generate::{Options, Shape, Workload, trace_dir, workload};
use kmemtrace_tests::programs::{data, json, run, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::scenario::Scenario;
use serde_json::{Value, json};

const REPORT: &str = "kmemtrace-report";
const CHECK: &str = "kmemtrace-check";
/// Reason, as the contract has it.
const NO_SYMBOLS: &str = "no kernel symbols: kptr_restrict=2, no CAP_SYSLOG, CONFIG_KALLSYMS=n, or a damaged meta.out";
/// Functions of the kernel, and where the trace's kernel was moved by.
const TEXT: u64 = 0xffff_ffff_8100_0000;
const MOVED: u64 = 0x1a00_0000;

fn document(arguments: &[&str], trace: &Path) -> Value {
    json(&run_to(0, REPORT, &[arguments, &["--format", "json", "--no-index"]].concat(), &[trace]))
}

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().unwrap_or_else(|| panic!("no rows: {document}"))
}

fn table(arguments: &[&str], trace: &Path) -> String {
    String::from_utf8(run_to(0, REPORT, &[arguments, &["--no-index"]].concat(), &[trace])).unwrap()
}

/// Standard error of a report that is refused.
fn refusal(arguments: &[&str], trace: &Path) -> String {
    let output = run(REPORT, &[arguments, &["--no-index"]].concat(), &[trace]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_cache_whose_objects_are_never_freed_has_its_name() {
    let trace = data("excache");
    let caches = document(&["caches"], &trace);
    let row = rows(&caches).iter().find(|row| row["cache"] == "exleak_node").unwrap_or_else(|| panic!("{caches}"));
    let told = ["live_objects", "cache_from", "cache_candidates"].map(|member| row[member].clone());
    assert_eq!(told, [json!(1000), json!("slabinfo"), Value::Null]);
    let live = document(&["live", "--cache", "exleak_node"], &trace);
    assert_eq!(rows(&live).iter().map(|row| row["live_objects"].as_u64()).collect::<Vec<_>>(), [Some(1000)]);
    let by_cache = document(&["sites", "--by", "cache", "--cache", "exleak_node"], &trace);
    assert_eq!((&rows(&by_cache)[0]["cache_from"], rows(&by_cache).len()), (&json!("slabinfo"), 1));
}

#[test]
fn several_caches_of_one_size_are_candidates() {
    let trace = data("excache");
    let caches = document(&["caches"], &trace);
    let of_several: Vec<&Value> = rows(&caches).iter().filter(|row| !row["cache_candidates"].is_null()).collect();
    assert!(of_several.iter().all(|row| row["cache"].is_null() && row["cache_from"].is_null()), "{of_several:?}");
    let names = json!(["fscrypt_info", "iint_cache", "kernfs_node_cache", "pid"]);
    let row =
        of_several.iter().find(|row| row["cache_candidates"] == names).unwrap_or_else(|| panic!("{of_several:?}"));
    assert_eq!(row["live_objects"], 59);
    assert!(table(&["caches"], &trace).contains("(fscrypt_info, iint_cache, kernfs_node_cache or pid)"));
    let output = run(REPORT, &["live", "--cache", "iint_cache", "--no-index"], &[&trace]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = "--cache iint_cache: no object is known to be of it, but the row (fscrypt_info, iint_cache, kernfs_node_cache or pid) \
                of the view caches may be: 59 allocations, 59 live";
    assert!(output.status.success() && said.contains(line), "{said}");
}

/// The recording has neither loads of modules nor `.init.text`.
#[test]
fn an_address_that_nothing_names_is_unknown_and_not_the_kernel() {
    let trace = data("exleak_init");
    let unknown = |row: &&Value| row["call_site"] == "0xffffffffc023c019";
    let live = document(&["live"], &trace);
    let row = rows(&live).iter().find(unknown).unwrap_or_else(|| panic!("{live}"));
    assert_eq!((&row["module"], &row["symbol"]), (&Value::Null, &Value::Null));
    assert_eq!((&row["live_objects"], &row["live_requested"]), (&json!(8), &json!(8 * 31)));
    for view in [&["live"][..], &["sites"], &["tree"], &["tree", "--by", "site"]] {
        let text = table(view, &trace);
        assert!(text.contains("0xffffffffc023c019 (unknown)"), "{view:?}: {text}");
    }
    for view in
        [&["modules"][..], &["sites", "--by", "module"], &["live", "--by", "module"], &["tree", "--by", "module,site"]]
    {
        let text = table(view, &trace);
        assert!(text.contains("(unknown)") && text.contains("(kernel)"), "{view:?}: {text}");
        let json = document(view, &trace);
        if view[0] != "tree" {
            let of_nobody: Vec<&Value> = rows(&json).iter().filter(|row| row["module_known"] == false).collect();
            assert_eq!(of_nobody.iter().map(|row| &row["live_objects"]).collect::<Vec<_>>(), [8], "{view:?}");
            assert!(of_nobody[0]["module"].is_null());
        }
    }
    let objects = |pattern: &str| {
        let live = document(&["live", "--module", pattern], &trace);
        rows(&live).iter().filter_map(|row| row["live_objects"].as_u64()).sum::<u64>()
    };
    let all: u64 = rows(&live).iter().filter_map(|row| row["live_objects"].as_u64()).sum();
    assert_eq!((objects("(unknown)"), objects("(kernel)") + objects("exleak") + 8), (8, all));
    let folded = table(&["export", "--to", "folded", "--weight", "live"], &trace);
    assert!(folded.contains("unknown;0xffffffffc023c019 256"), "{folded}");
    assert!(!folded.contains("kernel;0xffffffffc023c019"), "{folded}");
}

/// Function at a distance from the begin of the kernel's image.
fn function(at: u64, name: &str) -> Function {
    let start = TEXT + MOVED + at;
    Function { start, end: start + 0x100, name: name.to_owned(), module: None }
}

/// Call-sites of `open` and of a module without symbols.
fn machine(change: impl FnOnce(&mut Workload)) -> Directory {
    let (of_open, of_foo) = (TEXT + MOVED + 0x110, 0xffff_ffff_c010_0010);
    let made = Scenario::new(Shape::plain(), 1).kmalloc(1, 0, of_open, 0x1000, (8, 8));
    let made = made.kmalloc(2, 0, of_foo, 0x2000, (8, 8)).with(change);
    Directory::new(&trace_dir(&made.finish(), 1))
}

/// Names of the rows of `sites`, by module and symbol.
fn names(arguments: &[&str], trace: &Path) -> Vec<(Option<String>, Option<String>)> {
    let sites = document(&[&["sites", "--sort", "site"], arguments].concat(), trace);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    rows(&sites).iter().map(|row| (text(&row["module"]), text(&row["symbol"]))).collect()
}

fn symbols(arguments: &[&str], trace: &Path) -> Value {
    document(&[&["summary"], arguments].concat(), trace)["trace"]["symbols"].clone()
}

#[test]
fn hidden_symbols_are_said_with_the_remedy() {
    let hidden = machine(|machine| machine.hidden_symbols = true);
    let none = machine(|_| {});
    for trace in [&hidden, &none] {
        assert_eq!(symbols(&[], trace.path()), "none");
        let text = table(&["sites"], trace.path());
        let second = text.lines().nth(1).unwrap_or_default();
        assert!(second.starts_with(&format!("{NO_SYMBOLS}. ")) && second.contains("--kallsyms FILE"), "{text}");
        assert_eq!(names(&[], trace.path()), [(None, None), (None, None)]);
        let output = run(CHECK, &[], &[trace.path()]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "nothing was lost: {said}");
        assert!(
            said.contains(&format!("K504  {NO_SYMBOLS}\n")) && said.contains("kmemtrace-report --kallsyms FILE"),
            "{said}"
        );
        assert_eq!(run(CHECK, &["--strict"], &[trace.path()]).status.code(), Some(0));
    }
    // A recording with symbols has no such line, and one without `meta.out` has another finding.
    let named = machine(|machine| machine.symbols.functions = vec![function(0x100, "open")]);
    assert_eq!(symbols(&[], named.path()), "trace");
    assert!(!table(&["sites"], named.path()).contains("no kernel symbols"));
    std::fs::remove_file(hidden.file("meta.out")).unwrap();
    let said = String::from_utf8_lossy(&run(CHECK, &[], &[hidden.path()]).stdout).into_owned();
    assert!(said.contains("K501") && !said.contains("K504"), "{said}");
    assert!(!table(&["sites"], hidden.path()).contains("no kernel symbols"));
}

const FOO: (Option<&str>, Option<&str>) = (Some("foo"), Some("foo_open+0x10"));
const OPEN: (Option<&str>, Option<&str>) = (None, Some("open+0x10"));

fn owned(names: [(Option<&str>, Option<&str>); 2]) -> Vec<(Option<String>, Option<String>)> {
    names.map(|(module, symbol)| (module.map(str::to_owned), symbol.map(str::to_owned))).to_vec()
}

/// Text of a System.map: not moved, without modules.
fn system_map() -> String {
    format!("{TEXT:016x} T _text\n{:016x} T open\n{:016x} D a_table\n", TEXT + 0x100, TEXT + 0x200)
}

#[test]
fn a_copy_of_kallsyms_names_call_sites_afterwards() {
    let trace = machine(|machine| machine.hidden_symbols = true);
    let text = TEXT + MOVED;
    let copy = format!(
        "{text:x} T _text\n{:x} t open\n{:x} d x\nffffffffc0100000 t foo_open\t[foo]\n",
        text + 0x100,
        text + 0x200
    );
    trace.write("kallsyms", copy.as_bytes());
    trace.write("modules", b"foo 4096 0 - Live 0xffffffffc0100000\n");
    let [kallsyms, modules] = ["kallsyms", "modules"].map(|name| trace.file(name).display().to_string());
    assert_eq!(names(&["--kallsyms", &kallsyms], trace.path()), owned([OPEN, FOO]));
    assert_eq!(symbols(&["--kallsyms", &kallsyms], trace.path()), "file");
    assert!(!table(&["sites", "--kallsyms", &kallsyms], trace.path()).contains("no kernel symbols"));
    // Modules alone: the module is known, and no function of it.
    assert_eq!(names(&["--proc-modules", &modules], trace.path()), owned([(None, None), (Some("foo"), None)]));
    for view in
        [&["tree"][..], &["live"], &["export", "--to", "folded", "--weight", "live"], &["events", "--format", "table"]]
    {
        let text = table(&[view, &["--kallsyms", &kallsyms]].concat(), trace.path());
        assert!(text.contains("foo_open"), "{view:?}: {text}");
    }
    let of_foo = document(&["sites", "--module", "foo", "--kallsyms", &kallsyms], trace.path());
    assert_eq!(rows(&of_foo).len(), 1);
}

#[test]
fn a_system_map_is_moved_as_the_kernel_of_the_trace() {
    let moved = machine(|machine| machine.symbols.text = Some(TEXT + MOVED));
    moved.write("System.map", system_map().as_bytes());
    let map = moved.file("System.map").display().to_string();
    assert_eq!(names(&["--kallsyms", &map], moved.path()), owned([OPEN, (None, None)]));
    // Without `_text` in the trace it is used as it is, if it holds the call-sites: here it does not.
    let hidden = machine(|machine| machine.hidden_symbols = true);
    let said = refusal(&["sites", "--kallsyms", &map], hidden.path());
    assert!(said.contains("only 0% of the trace's 2 call-sites lie behind a function of it"), "{said}");
    let unmoved = Scenario::new(Shape::plain(), 1).kmalloc(1, 0, TEXT + 0x110, 0x1000, (8, 8));
    let unmoved = Directory::new(&trace_dir(&unmoved.finish(), 1));
    assert_eq!(names(&["--kallsyms", &map], unmoved.path()), [(None, Some("open+0x10".to_owned()))]);
}

#[test]
fn files_that_are_no_use_are_refused_in_one_sentence() {
    let trace = machine(|machine| machine.symbols.text = Some(TEXT + MOVED));
    let files: [(&str, &[u8], &str); 7] = [
        ("empty", b"", "has no line ADDRESS TYPE NAME"),
        ("binary", &[0xff; 70_000], "has no line ADDRESS TYPE NAME"),
        ("zeros", b"0000000000000000 T _text\n0000000000000000 t x\n", "all addresses in it are 0"),
        ("boot", b"ffffffff81000000 T _text\nffffffffc0000000 t x\t[x]\n", "is of another boot"),
        ("others", b"ffffffffff000000 t function_of_no_kernel\n", "only 0% of the trace's"),
        ("text", b"hello", "has no line ADDRESS TYPE NAME"),
        ("modules", b"foo 4096 0 - Live 0x0000000000000000\n", "has no line ADDRESS TYPE NAME"),
    ];
    for (name, bytes, words) in files {
        trace.write(name, bytes);
        let said = refusal(&["sites", "--kallsyms", &trace.file(name).display().to_string()], trace.path());
        assert!(said.contains(words) && said.contains(name), "{name}: {said}");
    }
    let modules = trace.file("modules").display().to_string();
    assert!(refusal(&["sites", "--proc-modules", &modules], trace.path()).contains("all addresses in it are 0"));
    for path in ["/dev/zero", "/proc/self/maps", "/no/such/file"] {
        assert!(refusal(&["live", "--kallsyms", path], trace.path()).contains(path), "{path}");
    }
}

/// An index beside the trace has page call-sites by the trace's own symbols: it does not answer where a file names them.
#[test]
fn an_index_does_not_answer_with_names_of_other_symbols() {
    let options = Options { symbols: false, ..Options::plain(Shape::plain(), 2, 300) };
    let trace = Directory::new(&trace_dir(&workload(3, &options), 3));
    let symbols = kmemtrace_tests::generate::symbols::Symbols::of_call_sites(&Shape::plain(), 0);
    trace.write("list", symbols.kallsyms().as_bytes());
    std::thread::sleep(std::time::Duration::from_millis(60));
    let list = trace.file("list").display().to_string();
    let sites = |arguments: &[&str]| {
        let line = [&["sites", "--format", "json", "--index-from", "0"], arguments].concat();
        json(&run_to(0, REPORT, &line, &[trace.path()]))
    };
    let named = |document: &Value| rows(document).iter().filter(|row| !row["symbol"].is_null()).count();
    let plain = sites(&[]);
    assert!(trace.file("report.index").exists() && named(&plain) == 0);
    let with_list = sites(&["--kallsyms", &list]);
    assert!(named(&with_list) > 5 && with_list["trace"]["symbols"] == "file");
    assert_eq!(sites(&[]), plain, "the index has nothing of the file");
}
