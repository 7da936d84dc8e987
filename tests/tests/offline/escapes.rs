//! Escaping of names. Any process sets its comm, any module names its caches; whatever bytes they choose, no output
//! has a character that a terminal, a spreadsheet or a reader's eye would act on, and programs get the names
//! unchanged.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use kmemtrace_abi::event::{Action, Event, Kind, StreamItem};
use kmemtrace_abi::text::cut::cut;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_tests::generate::{Options, Shape, Workload, trace_dir, tree, workload};
use kmemtrace_tests::programs::{check, document, json, json_lines, run};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::scenario::Scenario;
use serde_json::Value;

/// Views, some with options of their own. The sides of the comparison are windows of one trace.
const VIEWS: &[&[&str]] = &[
    &["summary"],
    &["leaks", "--all"],
    &["leaks", "--all", "--parts"],
    &["leaks", "--all", "--by", "comm,cache"],
    &["sites"],
    &["sites", "--by", "comm,site,cache,gfp"],
    &["caches"],
    &["balance"],
    &["failed"],
    &["mismatch"],
    &["live"],
    &["live", "--by", "task,cache"],
    &["live", "--objects"],
    &["cross"],
    &["growth", "--by", "comm,module"],
    &["compare", "--before", ",50%", "--after", "50%,"],
    &["account"],
    &["account", "--style", "slab-account"],
    &["account", "--style", "callers"],
    &["events"],
];
const FORMATS: [&str; 4] = ["table", "json", "jsonl", "csv"];

/// Hostile names: to the clipboard, the screen, the order of letters, a spreadsheet, JSON, or a CSV file.
const NAMES: [&[u8]; 16] = [
    b"a\x1b]52;c;cm0gLXJm\x07",
    b"b\x1b[2J\x08",
    b"c\x7f\r",
    "d\u{9b}31m\u{85}".as_bytes(),
    "e\u{202e}cod.exe".as_bytes(),
    "f\u{2066}g\u{2069}\u{61c}".as_bytes(),
    "h\u{200b}\u{200d}\u{feff}\u{2060}".as_bytes(),
    "i\u{e0041}\u{2028}".as_bytes(),
    b"j\"k','<&>",
    b"l\xff\x9b\xc3",
    b"=cmd|'/C calc'!A0",
    b"+1+1",
    b"-2+3",
    b"@SUM(1)",
    "größe-日本".as_bytes(),
    b"plain",
];
const SITE: u64 = 0xffff_ffff_8100_0001;
/// Return address in the function that initialises modules.
const INIT: u64 = SITE + 0x10_0000;

/// Views of stacks, tasks and modules.
const VIEWS_OF_STACKS: [&[&str]; 13] = [
    &["tasks"],
    &["tasks", "--by", "comm", "--sort", "growth"],
    &["modules"],
    &["modules", "--module-rule", "any"],
    &["tree", "--by", "stack"],
    &["tree", "--by", "task,module,stack", "--sort", "growth"],
    &["tree", "--by", "site,use", "-n", "3"],
    &["sites", "--by", "stack,use,order"],
    &["sites", "--by", "site"],
    &["live", "--by", "stack"],
    &["live", "--objects"],
    &["growth", "--by", "stack"],
    &["uses"],
];

/// Workload whose caches have these names; their objects are freed to another cache, leaked, and freed twice.
fn machine() -> Workload {
    let fill = |workload: &mut Workload| {
        let mut put = |cpu: u32, at: u64, number: usize, address: u64, action: Action, cache: &[u8]| {
            let of = if matches!(action, Action::Alloc(_)) { &b"kmem_cache_alloc"[..] } else { b"kmem_cache_free" };
            let allocates = matches!(action, Action::Alloc(_));
            let (name, cache) = (workload.names.intern(of), workload.names.intern(cache));
            let bytes = if allocates { 64 } else { 0 };
            let event = Event {
                accounted: None,
                at,
                address,
                call_site: SITE + number as u64 * 0x100,
                requested: bytes,
                allocated: bytes,
                gfp: allocates.then_some(0xcc0),
                cpu,
                pid: Some(100 + number as i32),
                flags: None,
                node: allocates.then_some(-1),
                cache: Some(cache),
                name,
                action,
                failed: allocates && address == 0,
                order: None,
                stack: None,
                mark: kmemtrace_abi::event::Mark::None,
                value: None,
                owner: None,
                fields: None,
                bulk: None,
            };
            workload.cpus[cpu as usize].items.push(StreamItem::Event(event));
        };
        for (number, name) in NAMES.iter().enumerate() {
            let at = 1000 + number as u64 * 10;
            let address = 0xffff_8880_0000_1000 + number as u64 * 0x1000;
            let other = NAMES[(number + 1) % NAMES.len()];
            put(0, at, number, address, Action::Alloc(Kind::Cache), name);
            put(0, at + 1, number, address + 64, Action::Alloc(Kind::Cache), name);
            put(0, at + 4, number, 0, Action::Alloc(Kind::Cache), name);
            put(1, at + 2, number, address, Action::Free(Kind::Cache), other);
            put(1, at + 3, number, address, Action::Free(Kind::Cache), name);
        }
    };
    Scenario::new(Shape::plain(), 2).with(fill).finish()
}

/// Workload of pages whose stacks run through the call-sites, two of them in each, while modules of these names load.
fn machine_with_stacks() -> Workload {
    let site = |number: usize| SITE + (number % NAMES.len()) as u64 * 0x100;
    let numbers = 0..NAMES.len();
    let made = numbers.fold(Scenario::new(Shape::plain(), 2), |made, number| {
        let (at, frame) = (10 * number as u64, 8 * number as u64);
        let module = String::from_utf8_lossy(NAMES[number]).into_owned();
        let made = made.thread(100 + number as i32, 0).module_load(at, 0, &module);
        let made = made.page_alloc(at + 1, 0, frame, 4096).stack(at + 1, 0, &[site(number), site(number + 1)]);
        made.page_alloc(at + 2, 1, frame + 4, 8192).stack(at + 2, 1, &[site(number), INIT])
    });
    made.finish()
}

/// Captured tree of [`machine`], in a directory with a hostile name.
fn hostile() -> (Directory, PathBuf) {
    hostile_of(&machine())
}

/// Captured tree of a workload, in a directory with a hostile name.
fn hostile_of(machine: &Workload) -> (Directory, PathBuf) {
    let dir = Directory::new(&[]);
    for (name, bytes) in tree(machine, 1) {
        dir.write(&format!("tree/{name}"), &bytes);
    }
    let lines = |line: &dyn Fn(usize, &[u8]) -> Vec<u8>| -> Vec<u8> {
        NAMES.iter().enumerate().flat_map(|(number, name)| line(number, name)).collect()
    };
    let symbol = |number: usize, name: &[u8]| {
        let address = format!("{:x} t ", SITE - 1 + number as u64 * 0x100);
        [address.as_bytes(), name, b"\0\t[", name, b"\t\0]\n"].concat()
    };
    let init = format!("{:x} t do_init_module\n", INIT - 1).into_bytes();
    dir.write("tree/kallsyms", &[lines(&symbol), init].concat());
    dir.write("tree/modules", b"");
    let comm = |number: usize, name: &[u8]| [format!("{} ", 100 + number).as_bytes(), name, b"\t\0\n"].concat();
    dir.write("tree/saved_cmdlines", &lines(&comm));
    dir.write("tree/uname", "Linux box 6.18\u{1b}[31m\u{202e} #1 SMP x86_64 GNU/Linux\n".as_bytes());
    dir.write("tree/trace_clock", "local [mo\u{9b}no\u{7f}]\n".as_bytes());
    let path = dir.path().join(OsStr::from_bytes(&NAMES[..10].concat()));
    fs::rename(dir.file("tree"), &path).unwrap();
    (dir, path)
}

/// Checks that both streams of a program are valid text without characters that act or hide; returns them.
fn assert_harmless(what: &str, output: &Output) -> String {
    let mut all = String::new();
    for bytes in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(bytes).unwrap();
        let acts = |c: char| c != '\n' && c.is_control();
        let hides = |c: char| {
            let bidi =
                matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            bidi || matches!(
                c,
                '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{e0041}'
            )
        };
        let found: Vec<_> = text.match_indices(|c| acts(c) || hides(c)).take(5).collect();
        assert!(found.is_empty(), "{what}: {found:?} in {text}");
        all.push_str(text);
    }
    all
}

/// Strings of a member, in any row.
fn strings(rows: &Value, member: &str) -> BTreeSet<String> {
    rows.as_array().unwrap().iter().filter_map(|row| Some(row[member].as_str()?.to_owned())).collect()
}

/// Names as JSON has them, with the text that follows each.
fn expected(after: &str) -> BTreeSet<String> {
    NAMES.iter().map(|name| format!("{}{after}", String::from_utf8_lossy(name))).collect()
}

#[test]
fn no_output_of_any_view_acts_on_a_terminal() {
    let (_dir, path) = hostile();
    for &view in VIEWS {
        for format in FORMATS {
            let what = format!("{view:?} {format}");
            let output = run("kmemtrace-report", &[view, &["--format", format, "--show-addresses"]].concat(), &[&path]);
            assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
            let text = assert_harmless(&what, &output);
            if view == ["events"] || format.starts_with("json") {
                continue;
            }
            // No name has a backslash, so two of them show that a name was escaped twice.
            assert!(!text.contains(r"\\"), "{what}: {text}");
            let has_names = view != ["summary"] || format == "table";
            assert!(!has_names || text.contains(r"\x1b]52;c;cm0gLXJm\x07"), "{what}: {text}");
            assert!(!has_names || text.contains(r"l\xff\x9b\xc3"), "{what}: {text}");
            if format == "csv" && has_names {
                let is_formula = |cell: &str| cell.trim_start_matches('"').starts_with(['=', '+', '@']);
                assert!(!text.split([',', '\n']).any(is_formula), "{what}: {text}");
                assert!(text.contains("'=cmd|'/C calc'!A0") && text.contains("'-2+3"), "{what}: {text}");
            }
        }
    }
}

#[test]
fn names_in_stacks_act_on_no_terminal() {
    let (_dir, path) = hostile_of(&machine_with_stacks());
    for view in VIEWS_OF_STACKS {
        for format in FORMATS {
            let what = format!("{view:?} {format}");
            let output = run("kmemtrace-report", &[view, &["--format", format]].concat(), &[&path]);
            assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
            let text = assert_harmless(&what, &output);
            if format.starts_with("json") || view == ["uses"] || view.contains(&"-n") {
                continue;
            }
            assert!(!text.contains(r"\\"), "{what}: {text}");
            assert!(text.contains(r"a\x1b]52;c;cm0gLXJm\x07") && text.contains(r"l\xff\x9b\xc3"), "{what}: {text}");
            if format == "csv" {
                let is_formula = |cell: &str| cell.trim_start_matches('"').starts_with(['=', '+', '@']);
                assert!(!text.split([',', '\n']).any(is_formula), "{what}: {text}");
            }
        }
    }
    // The screen counts seconds.
    fs::write(path.join("trace_clock"), "[mono]\n").unwrap();
    for arguments in [&["top", "--once"][..], &["export", "--to", "folded"], &["export", "--to", "jsonl"]] {
        let output = run("kmemtrace-report", arguments, &[&path]);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        let text = assert_harmless(&format!("{arguments:?}"), &output);
        assert!(text.contains("cm0gLXJm"), "{arguments:?}: {text}");
    }
}

#[test]
fn json_of_stacks_has_the_names_as_they_are() {
    let (_dir, path) = hostile_of(&machine_with_stacks());
    let document =
        |view: &[&str]| json(&run("kmemtrace-report", &[view, &["--format", "json"]].concat(), &[&path]).stdout);
    let sites = document(&["sites", "--by", "stack"]);
    let frames: Vec<Value> = sites["stacks"].as_object().unwrap().values().cloned().collect();
    let frames: Value = frames.iter().flat_map(|stack| stack.as_array().unwrap().clone()).collect();
    let init: BTreeSet<String> = ["do_init_module+0x1".to_owned()].into();
    assert_eq!(&strings(&frames, "symbol") - &init, expected("\0+0x1"));
    assert_eq!(strings(&frames, "module"), expected("\t\0"));
    assert_eq!(strings(&frames, "symbol_hex").len(), 1, "a name that is no text has its bytes beside it");
    assert_eq!(strings(&document(&["tasks"])["rows"], "comm"), expected("\t\0"));
    // Names of modules that load end at their zeros, those of kallsyms do not.
    let modules = strings(&document(&["modules"])["rows"], "module");
    assert_eq!(modules, &expected("") | &expected("\t\0"));
    let tree = document(&["tree", "--by", "module,task", "--module-rule", "site"]);
    assert_eq!(strings(&tree["root"]["children"], "name"), expected("\t\0"));
}

#[test]
fn exported_text_has_a_line_a_row_and_nothing_that_acts() {
    let (_dir, path) = hostile();
    for to in ["folded", "jsonl", "csv"] {
        let output = run(
            "kmemtrace-report",
            &["export", "--to", to, "--weight", "allocs"][..if to == "folded" { 5 } else { 3 }],
            &[&path],
        );
        assert_eq!(output.status.code(), Some(0), "{to}: {output:?}");
        let text = assert_harmless(to, &output);
        let lines: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        if to != "folded" {
            assert!(lines.len() >= 4 * NAMES.len() && text.contains("52;c;cm0gLXJm"), "{to}");
            continue;
        }
        let frame = |name: &[u8]| escape(name).replace(';', r"\x3b").replace(' ', r"\x20");
        let stack =
            |name: &&[u8]| format!("{};{} 2", frame(&[*name, b"\t\0"].concat()), frame(&[*name, b"\0"].concat()));
        assert_eq!(
            lines.iter().map(|line| (*line).to_owned()).collect::<BTreeSet<_>>(),
            NAMES.iter().map(stack).collect()
        );
    }
}

#[test]
fn json_parses_to_the_names_as_they_are() {
    let (_dir, path) = hostile();
    let rows = |view: &str| document(&[view], &path);
    let caches = rows("caches");
    assert_eq!(strings(&caches["rows"], "cache"), expected(""));
    let hex = strings(&caches["rows"], "cache_hex");
    assert_eq!(hex, ["6cff9bc3".to_owned()].into(), "a name that is no text has its bytes beside it");
    assert_eq!(caches["trace"]["kernel"], "6.18\u{1b}[31m\u{202e}");
    assert_eq!(caches["trace"]["clock"], "mo\u{9b}no\u{7f}");
    let sites = rows("sites");
    assert_eq!(strings(&sites["rows"], "symbol"), expected("\0+0x1"));
    assert_eq!(strings(&sites["rows"], "module"), expected("\t\0"));
    assert_eq!(strings(&rows("mismatch")["rows"], "alloc_symbol"), expected("\0+0x1"));
    assert_eq!(strings(&rows("cross")["rows"], "symbol"), expected("\0+0x1"));
    let live = document(&["live", "--objects"], &path);
    assert_eq!(strings(&live["rows"], "comm"), expected("\t\0"));
    assert_eq!(strings(&live["rows"], "cache"), expected(""));
    let lines = run("kmemtrace-report", &["events", "--format", "json"], &[&path]).stdout;
    assert_eq!(strings(&json_lines(&lines).into(), "comm"), expected("\t\0"));
}

#[test]
fn names_of_files_are_escaped_in_results_and_complaints() {
    let (dir, path) = hostile();
    let name = NAMES[..10].concat();
    let lossy = |path: &Path| path.to_string_lossy().into_owned();
    let options = Options { cut: vec![0], ..Options::plain(Shape::plain(), 1, 50) };
    let cut = dir.path().join(OsStr::from_bytes(&[&name[..], b".out"].concat()));
    let recorded = trace_dir(&workload(1, &options), 1);
    fs::write(&cut, &recorded.iter().find(|(name, _)| name == "cpu0.out").unwrap().1).unwrap();
    for format in ["table", "json", "csv", "tsv"] {
        for input in [&cut, &path] {
            let mut output = run("kmemtrace-check", &["--format", format], &[input]);
            if format == "tsv" {
                // Tabs separate the cells.
                output.stdout.iter_mut().filter(|byte| **byte == b'\t').for_each(|byte| *byte = b' ');
            }
            let text = assert_harmless(&format!("check {format}"), &output);
            assert!(format == "json" || text.contains(r"a\x1b]52;c;cm0gLXJm\x07") && !text.contains(r"\\"), "{text}");
        }
    }
    let checked = check(&cut);
    assert_eq!(checked["files"][0]["path"], lossy(&cut));
    for format in FORMATS {
        let output = run("kmemtrace-report", &["summary", "--format", format], &[&cut]);
        let text = assert_harmless(&format!("summary {format}"), &output);
        assert!(format != "table" || text.contains(r"cut: a\x1b]52;c;") && !text.contains(r"\\"), "{text}");
    }
    let summary = document(&["summary"], &cut);
    assert_eq!(summary["completeness"]["truncated_files"][0], lossy(Path::new(cut.file_name().unwrap())));
    let absent = dir.path().join(OsStr::from_bytes(&[&name[..], b".gone"].concat()));
    for program in ["kmemtrace-report", "kmemtrace-check"] {
        let output = run(program, &[], &[&absent]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = assert_harmless(program, &output);
        assert!(text.contains(r"a\x1b]52;c;cm0gLXJm\x07") && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn names_longer_than_a_table_can_be_wide_print() {
    let many = 100_000;
    let long = ["a".repeat(many), "日".repeat(many), "\x1b".repeat(many)];
    for name in &long {
        let dir = Directory::new(&[]);
        for (file, bytes) in tree(&machine(), 1) {
            dir.write(&file, &bytes);
        }
        dir.write("kallsyms", format!("{:x} t {name}\t[{name}]\n", SITE - 1).as_bytes());
        dir.write("modules", b"");
        dir.write("saved_cmdlines", format!("100 {name}\n").as_bytes());
        for &view in VIEWS {
            let what = format!("{view:?} {:?}", name.chars().next());
            let output = run("kmemtrace-report", &[view, &["--format", "table"]].concat(), &[dir.path()]);
            assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stderr));
            let text = assert_harmless(&what, &output);
            // A name has 4 KiB at most, each byte of which may be four characters.
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest < Some(many), "{what}: {longest:?} characters");
            let last = name.char_indices().next_back().map_or(0, |(at, _)| at);
            let end = escape(&name.as_bytes()[last..]).into_owned();
            let mut before_marks = text.split_inclusive('…').filter_map(|part| part.strip_suffix('…'));
            assert!(before_marks.all(|part| part.ends_with(&end)), "{what}: cut in {end}");
        }
        let symbols = document(&["sites"], dir.path());
        let kept = String::from_utf8(cut(name.as_bytes()).to_vec()).unwrap();
        assert!(strings(&symbols["rows"], "symbol").contains(&format!("{kept}+0x1")), "JSON has all that is kept");
    }
}

#[test]
fn caches_with_names_longer_than_a_table_can_be_wide_print() {
    let name = "\x1b".repeat(17_000);
    let shape = Shape { page_bytes: 65536, sub_buffer_bytes: 65536, ..Shape::plain() };
    let address = 0xffff_8880_0000_1000;
    let machine = Scenario::new(shape, 1)
        .cache_alloc(10, 0, SITE, address, (64, 64), &name)
        .cache_alloc(20, 0, SITE, address + 64, (64, 64), &name)
        .cache_free(30, 0, SITE, address, "plain");
    let dir = Directory::new(&trace_dir(&machine.finish(), 1));
    for &view in VIEWS {
        let output = run("kmemtrace-report", &[view, &["--format", "table"]].concat(), &[dir.path()]);
        assert_eq!(output.status.code(), Some(0), "{view:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = assert_harmless(&format!("{view:?}"), &output);
        let has_caches = view[0] == "caches" || view.iter().any(|word| word.contains("cache") || *word == "--objects");
        assert_eq!(text.contains(r"\x1b…"), has_caches, "{view:?}");
    }
    let caches = document(&["caches"], dir.path());
    assert_eq!(caches["rows"][0]["cache"], name, "JSON has the whole name");
}
