//! Time that tasks wait for memory: a recording held against the kernel's own text, and what users see of the views.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kmemtrace_abi::disk::block::{Header, item};
use kmemtrace_tests::archive;
use kmemtrace_tests::generate::{Shape, trace_dir};
use kmemtrace_tests::programs::{document, json_lines, run, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::scenario::Scenario;
use serde_json::{Value, json};
use zerocopy::FromBytes as _;

const REPORT: &str = "kmemtrace-report";
const TREE: &str = "tree-latency-amd64-6.18";
/// Recordings with the kernel's text: two kernels, two byte orders.
const TREES: [&str; 3] = [TREE, "tree-latency-amd64-6.1", "tree-latency-s390x-6.1"];

/// The recording of most tests, in a directory of its own.
fn tree() -> (Directory, PathBuf) {
    unpacked(TREE)
}

fn unpacked(name: &str) -> (Directory, PathBuf) {
    let dir = Directory::new(&[]);
    let tree = archive::unpack(name, dir.path()).unwrap();
    (dir, tree)
}

/// Microseconds of a time in seconds with six places.
fn microseconds(text: &str) -> u64 {
    let (seconds, rest) = text.split_once('.').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + rest.parse::<u64>().unwrap()
}

/// Span of the text: thread, begin, end, pages reclaimed, and the duration and objects freed of each shrinker inside.
#[derive(Debug, Default)]
struct Told {
    pid: u64,
    begin: u64,
    end: u64,
    reclaimed: u64,
    inside: Vec<(u64, u64)>,
}

/// Spans of memcg reclaim in the kernel's text, and the durations of shrinkers outside of them.
fn of_text(text: &str) -> (Vec<Told>, Vec<u64>) {
    let (mut spans, mut outside) = (Vec::new(), Vec::new());
    let mut open: HashMap<u64, Told> = HashMap::new();
    let mut shrinkers: HashMap<u64, u64> = HashMap::new();
    let is_event =
        |line: &&str| !line.starts_with('#') && !line.starts_with(" => ") && !line.ends_with("<stack trace>");
    for line in text.lines().filter(is_event) {
        let (task, rest) = line.split_once(" [").unwrap();
        let pid = task.trim().rsplit_once('-').unwrap().1.parse().unwrap();
        let mut parts = rest.split(": ");
        let at = microseconds(parts.next().unwrap().rsplit_once(' ').unwrap().1);
        let name = parts.next().unwrap();
        let number = |key: &str| line.split_once(key).unwrap().1.split(' ').next().unwrap().parse().unwrap();
        match name {
            "mm_vmscan_memcg_reclaim_begin" => {
                let begun = open.insert(pid, Told { pid, begin: at, ..Told::default() });
                assert!(begun.is_none(), "{line}");
            }
            "mm_vmscan_memcg_reclaim_end" => {
                let told = open.remove(&pid).unwrap();
                spans.push(Told { end: at, reclaimed: number("nr_reclaimed="), ..told });
            }
            "mm_shrink_slab_start" => assert!(shrinkers.insert(pid, at).is_none(), "{line}"),
            "mm_shrink_slab_end" => {
                let took = at - shrinkers.remove(&pid).unwrap();
                match open.get_mut(&pid) {
                    Some(told) => told.inside.push((took, number("last shrinker return val "))),
                    None => outside.push(took),
                }
            }
            _ => {}
        }
    }
    (spans, outside)
}

#[test]
fn spans_are_those_of_the_kernels_text() {
    TREES.iter().for_each(|name| has_the_spans_of_its_text(name));
}

fn has_the_spans_of_its_text(name: &str) {
    let (_dir, tree) = unpacked(name);
    let (mut told, outside) = of_text(&fs::read_to_string(tree.join("trace")).unwrap());
    told.sort_by_key(|told| told.begin);
    assert!(told.len() > 100 && outside.len() > 10, "{name}: {} {}", told.len(), outside.len());
    let stalls = document(&["stalls", "--sort", "time"], &tree);
    let rows = stalls["rows"].as_array().unwrap();
    assert_eq!(rows.len(), told.len());
    for (row, told) in rows.iter().zip(&told) {
        // The text has microseconds, rounded at both ends.
        let took = row["total"].as_u64().unwrap();
        assert!(took.abs_diff((told.end - told.begin) * 1000) <= 1000, "{row} {told:?}");
        assert!((row["at"].as_u64().unwrap()).abs_diff(told.begin * 1000) <= 1000, "{row} {told:?}");
        assert_eq!((row["pid"].as_u64(), row["reclaimed"].as_u64()), (Some(told.pid), Some(told.reclaimed)));
        let inside = row["inside"].as_array().unwrap().iter().filter(|inside| inside["span"] == "shrinker");
        let sum = |member: &str| inside.clone().map(|inside| inside[member].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("count"), told.inside.len() as u64, "{row}");
        assert_eq!(sum("freed"), told.inside.iter().map(|shrinker| shrinker.1).sum::<u64>(), "{row}");
        let took: u64 = told.inside.iter().map(|shrinker| shrinker.0 * 1000).sum();
        assert!(sum("total").abs_diff(took) <= 1000 * sum("count"), "{row} {told:?}");
    }
    let latency = document(&["latency"], &tree);
    let shrinkers = latency["spans"].as_array().unwrap().iter().find(|row| row["span"] == "shrinker").unwrap();
    let tasks = latency["tasks"].as_array().unwrap();
    let none = document(&["latency", "-n", "0"], &tree);
    assert_eq!((&none["tasks"], &none["others_count"]), (&json!([]), &json!(tasks.len())));
    let count = |task: &Value| task["count"].as_u64().unwrap();
    assert_eq!(none["others"]["count"].as_u64(), Some(tasks.iter().map(count).sum()));
    let classes = &shrinkers["classes"];
    assert_eq!(classes["asked"].as_u64(), Some(outside.len() as u64), "drop_caches asks for those without a parent");
    assert_eq!(classes["inner"].as_u64(), Some(told.iter().map(|told| told.inside.len() as u64).sum()));
}

#[test]
fn rows_of_shrinkers_add_up_and_superblocks_are_apart() {
    let (_dir, tree) = tree();
    let latency = document(&["latency"], &tree);
    let all = latency["spans"].as_array().unwrap().iter().find(|row| row["span"] == "shrinker").unwrap();
    let sum = |arguments: &[&str], member: &str| {
        let document = document(arguments, &tree);
        document["rows"].as_array().unwrap().iter().map(|row| row[member].as_u64().unwrap()).sum::<u64>()
    };
    for arguments in [&["shrinkers"][..], &["shrinkers", "--by", "function"]] {
        for member in ["count", "total", "self"] {
            assert_eq!(Some(sum(arguments, member)), all[member].as_u64(), "{arguments:?} {member}");
        }
    }
    let document = document(&["shrinkers"], &tree);
    let superblocks = document["rows"].as_array().unwrap().iter().filter(|row| row["symbol"] == "super_cache_scan");
    let addresses: Vec<&Value> = superblocks.map(|row| &row["shrinker"]).collect();
    assert!(
        addresses.len() > 1 && addresses.iter().all(|address| addresses.iter().filter(|a| a == &address).count() == 1)
    );
}

#[test]
fn a_stall_has_the_call_site_beyond_allocators() {
    let (_dir, tree) = tree();
    let document = document(&["stalls"], &tree);
    for row in document["rows"].as_array().unwrap() {
        let symbol = row["symbol"].as_str().unwrap();
        let listed = ["try_to_free", "try_charge", "charge_memcg", "kmem_cache_alloc", "__kmalloc", "__memcg"];
        assert!(!listed.iter().any(|listed| symbol.starts_with(listed)), "{symbol}");
        let stack = document["stacks"][row["stack"].as_str().unwrap()].as_array().unwrap();
        assert!(stack.iter().any(|frame| frame["address"] == row["call_site"]), "{row}");
    }
}

#[test]
fn all_formats_have_the_rows_and_threads_do_not_matter() {
    let (_dir, tree) = tree();
    for view in [&["latency"][..], &["shrinkers"], &["stalls", "--threshold", "1ms", "--timeline"]] {
        let member = if view[0] == "latency" { "spans" } else { "rows" };
        let rows = document(view, &tree)[member].as_array().unwrap().len();
        assert!(rows > 2, "{view:?}");
        let of = |more: &[&str]| run_to(0, REPORT, &[view, more].concat(), &[&tree]);
        let lines = json_lines(&of(&["--format", "jsonl"]));
        // Stacks that rows name by number are the last line.
        let stacks = usize::from(view[0] == "stalls");
        assert_eq!(lines.len(), rows + 1 + stacks, "{view:?}");
        assert_eq!(lines.iter().filter(|line| line["stacks"]["1"].is_array()).count(), stacks, "{view:?}");
        assert_eq!(String::from_utf8(of(&["--format", "csv"])).unwrap().lines().count(), rows + 1, "{view:?}");
        let table = of(&["-j", "1"]);
        assert!(table == of(&["-j", "8"]) && table == of(&["-j", "1"]) && table.starts_with(b"COMPLETE"), "{view:?}");
    }
    let events = document(&["stalls", "-n", "1", "--timeline"], &tree);
    let row = &events["rows"][0];
    let times = row["events"].as_array().unwrap().iter().map(|event| event["at"].as_u64().unwrap());
    let (begin, end) = (row["at"].as_u64().unwrap(), row["end"].as_u64().unwrap());
    assert!(times.clone().is_sorted() && times.clone().count() > 0);
    assert!(times.into_iter().all(|at| (begin..=end).contains(&at)));
}

#[test]
fn thresholds_and_filters_select_spans() {
    let (_dir, tree) = tree();
    let all = document(&["stalls"], &tree);
    let rows = all["rows"].as_array().unwrap();
    let longest = rows[0]["total"].as_u64().unwrap();
    let of = |arguments: &[&str]| document(&[&["stalls"], arguments].concat(), &tree)["rows"].as_array().unwrap().len();
    assert_eq!(of(&["--threshold", &format!("{longest}ns")]), 1, "the threshold is inclusive");
    assert_eq!(of(&["--threshold", &format!("{}ns", longest + 1)]), 0);
    let (pid, comm) = (rows[0]["pid"].to_string(), rows[0]["comm"].as_str().unwrap());
    let of_task = rows.iter().filter(|row| row["pid"] == rows[0]["pid"]).count();
    assert_eq!((of(&["--pid", &pid]), of(&["--span", "direct"])), (of_task, 0));
    assert!(of(&["--comm", comm]) >= of_task && of(&["--comm", "nothing"]) == 0);
}

/// Events that the text has of a task within these microseconds: name, and fields that are decimal numbers.
fn events_of_text(text: &str, told: &Told) -> Vec<(String, Vec<(String, i64)>)> {
    let task = format!("-{} ", told.pid);
    let of_task = text.lines().filter(|line| line.contains(&task) && !line.ends_with("<stack trace>"));
    let event = |line: &str| {
        let mut parts = line.split_once(" [")?.1.splitn(3, ": ");
        let at = microseconds(parts.next()?.rsplit_once(' ')?.1);
        let (name, fields) = (parts.next()?, parts.next().unwrap_or_default());
        let number = |field: &str| {
            let (name, value) = field.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let fields = fields.split(' ').filter_map(number).collect();
        (told.begin..=told.end).contains(&at).then(|| (name.to_owned(), fields))
    };
    let is_inside = |event: &(String, _)| !event.0.starts_with("mm_vmscan_memcg_reclaim_");
    of_task.filter_map(event).filter(is_inside).collect()
}

#[test]
fn a_timeline_has_each_event_of_the_text_with_its_fields() {
    for name in TREES {
        let (_dir, tree) = unpacked(name);
        let text = fs::read_to_string(tree.join("trace")).unwrap();
        let (mut told, _) = of_text(&text);
        told.sort_by_key(|told| told.begin);
        let stalls = document(&["stalls", "--sort", "time", "--timeline"], &tree);
        let mut compared = 0;
        // Text has microseconds: what stands at the edges cannot be told apart, so short stalls are left out.
        let rows = stalls["rows"].as_array().unwrap().iter().zip(&told);
        for (row, told) in rows.filter(|(row, _)| row["total"].as_u64() > Some(500_000)) {
            let inside = row["events"].as_array().unwrap().iter().filter(|event| event["event"] != "kernel_stack");
            let of_text = events_of_text(&text, told);
            let names: Vec<&str> = inside.clone().map(|event| event["event"].as_str().unwrap()).collect();
            assert_eq!(names, of_text.iter().map(|event| &*event.0).collect::<Vec<_>>(), "{name} {told:?}");
            for (event, (_, fields)) in inside.zip(&of_text) {
                for (field, value) in fields {
                    // The text calls some fields otherwise than their format does.
                    let Some(member) = event[field].as_i64() else { continue };
                    assert_eq!(member, *value, "{name} {field}: {event}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 200, "{name}: {compared} fields");
        let events = stalls["rows"].as_array().unwrap().iter().flat_map(|row| row["events"].as_array().unwrap());
        let shrinkers: Vec<&Value> = events.filter(|event| event["event"] == "mm_shrink_slab_start").collect();
        assert_eq!(shrinkers.is_empty(), name != TREE, "{name}");
        for (shrinker, address) in shrinkers.iter().flat_map(|shrinker| [(shrinker, "shr"), (shrinker, "shrink")]) {
            assert!(shrinker[address].as_str().unwrap().starts_with("0x"), "{shrinker}");
        }
    }
}

#[test]
fn filters_by_site_take_the_stalls_with_that_call_site() {
    let (_dir, tree) = tree();
    let all = document(&["stalls"], &tree);
    let rows = all["rows"].as_array().unwrap();
    let symbol = |row: &Value| row["symbol"].as_str().unwrap().split_once('+').unwrap().0.to_owned();
    let function = symbol(&rows[0]);
    let wanted: Vec<&Value> = rows.iter().filter(|row| symbol(row) == function).collect();
    assert!(wanted.len() > 1 && wanted.len() < rows.len(), "{function}: {}", wanted.len());
    let of = |arguments: &[&str]| document(&[&["stalls"], arguments].concat(), &tree)["rows"].clone();
    let found = of(&["--site", &function]);
    let key = |row: &Value| (row["at"].clone(), row["pid"].clone(), row["call_site"].clone());
    assert_eq!(
        found.as_array().unwrap().iter().map(key).collect::<Vec<_>>(),
        wanted.iter().map(|row| key(row)).collect::<Vec<_>>()
    );
    for nothing in [["--site", "nothing"], ["--module", "nothing"]] {
        assert_eq!(of(&nothing).as_array().unwrap().len(), 0, "{nothing:?}");
    }
}

/// A folder takes the stalls of its functions; one that holds no call-site would look like one without stalls, and is refused.
#[test]
fn filters_by_folder_take_the_stalls_of_its_functions() {
    let (dir, tree) = tree();
    let all = document(&["stalls"], &tree);
    let function = all["rows"][0]["symbol"].as_str().unwrap().split_once('+').unwrap().0.to_owned();
    let map = zstd::encode_all(format!("/mm/filemap.c\n{function}\n").as_bytes(), 3).unwrap();
    dir.write("map", &[b"kmemtrace.names/1\n", &map[..]].concat());
    let map = dir.file("map").display().to_string();
    for view in ["stalls", "latency"] {
        let of_function = document(&[view, "--site", &function], &tree);
        let of_folder = document(&[view, "--names", &map, "--branch", "mm"], &tree);
        for member in ["rows", "spans", "nesting", "tasks"] {
            assert_eq!(of_folder[member], of_function[member], "{view}: {member}");
        }
        for (arguments, reason) in [
            (&[view, "--branch", "mm"][..], "--branch mm: no source folders are known"),
            (&["stalls", "--follow", "--branch", "mm"], "--branch mm: no source folders are known"),
            (&[view, "--names", &map, "--branch", "mn"], "--branch mn: no call site of this trace is in it"),
        ] {
            let output = run(REPORT, arguments, &[&tree]);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(2) && told.contains(reason), "{arguments:?}: {told}");
        }
    }
}

#[test]
fn filters_by_site_take_the_shrinkers_of_that_function() {
    let (_dir, tree) = tree();
    let rows = |arguments: &[&str]| -> Vec<Value> {
        let document = document(&[&["shrinkers"], arguments].concat(), &tree);
        document["rows"].as_array().unwrap().clone()
    };
    let all = rows(&[]);
    let superblocks: Vec<&Value> = all.iter().filter(|row| row["symbol"] == "super_cache_scan").collect();
    assert!(!superblocks.is_empty() && superblocks.len() < all.len());
    assert_eq!(rows(&["--site", "super_cache_*"]).iter().collect::<Vec<_>>(), superblocks);
    assert_eq!(rows(&["--module", "nothing"]), [] as [Value; 0]);
}

/// Spans of a call-site are the stalls that `stalls` lists of it, and what is inside them.
#[test]
fn filters_by_site_take_the_spans_of_its_stalls() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/latency-amd64-6.18");
    let all = document(&["stalls", "--no-index"], &data);
    let symbol = all["rows"][0]["symbol"].as_str().unwrap();
    let site = symbol.split('+').next().unwrap();
    let stalls = document(&["stalls", "--no-index", "--site", site], &data);
    let rows = stalls["rows"].as_array().unwrap();
    assert!(rows.len() < all["rows"].as_array().unwrap().len());
    let mut expected: HashMap<String, (u64, u64)> = HashMap::new();
    let mut add = |span: &Value, count: u64, total: &Value| {
        let sums = expected.entry(span.as_str().unwrap().to_owned()).or_default();
        *sums = (sums.0 + count, sums.1 + total.as_u64().unwrap());
    };
    for row in rows {
        add(&row["span"], 1, &row["total"]);
        for inside in row["inside"].as_array().unwrap() {
            add(&inside["span"], inside["count"].as_u64().unwrap(), &inside["total"]);
        }
    }
    let latency = document(&["latency", "--no-index", "--site", site], &data);
    let spans = latency["spans"].as_array().unwrap().iter().filter(|span| span["count"] != 0);
    let found: HashMap<String, (u64, u64)> = spans
        .map(|span| {
            let figure = |member: &str| span[member].as_u64().unwrap();
            (span["span"].as_str().unwrap().to_owned(), (figure("count"), figure("total")))
        })
        .collect();
    assert_eq!(found, expected);
    assert_eq!(document(&["latency", "--no-index", "--module", "nothing"], &data)["tasks"], json!([]));
}

/// Offsets at which blocks of a file of our own end.
fn block_ends(bytes: &[u8]) -> Vec<usize> {
    let (mut ends, mut end) = (Vec::new(), 0);
    while let Some((header, _)) = bytes.get(end..).and_then(|rest| Header::read_from_prefix(rest).ok()) {
        end += usize::from(header.header_len.get()) + header.payload_len.get() as usize;
        ends.push(end);
    }
    ends
}

#[test]
fn a_recording_cut_at_any_block_leaves_no_wrong_span() {
    for name in ["latency-amd64-6.12", "latency-amd64-6.18"] {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name);
        let whole = document(&["stalls", "--no-index"], &data);
        let rows = whole["rows"].as_array().unwrap();
        let counts = |view: &Value| -> HashMap<String, u64> {
            let nesting = view["nesting"].as_array().unwrap().iter();
            let key = |row: &Value| format!("{} in {}, {}", row["span"], row["parent"], row["class"]);
            nesting.map(|row| (key(row), row["count"].as_u64().unwrap())).collect()
        };
        let nesting = counts(&document(&["latency", "--no-index"], &data));
        let mut left = Vec::new();
        for cpu in ["cpu0.out", "cpu1.out"] {
            let bytes = fs::read(data.join(cpu)).unwrap();
            let dir = Directory::new(&[]);
            for file in fs::read_dir(&data).unwrap() {
                let file = file.unwrap();
                fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
            }
            let ends = block_ends(&bytes);
            assert_eq!(ends.last(), Some(&bytes.len()));
            for end in &ends[..ends.len() - 1] {
                fs::write(dir.path().join(cpu), &bytes[..*end]).unwrap();
                let cut = document(&["stalls", "--no-index"], dir.path());
                let cut = cut["rows"].as_array().unwrap();
                assert!(cut.iter().all(|row| rows.iter().any(|whole| same_span(row, whole))), "{name} {cpu} {end}");
                left.push(cut.len());
                for (key, count) in counts(&document(&["latency", "--no-index"], dir.path())) {
                    assert!(nesting.get(&key).is_some_and(|whole| *whole >= count), "{name} {cpu} {end}: {key}");
                }
            }
        }
        assert!(left.len() > 3 && left.iter().any(|rows| *rows > 0), "{name}: {left:?} of {}", rows.len());
    }
}

/// True for the same span with the same spans inside; stacks may have other numbers.
fn same_span(a: &Value, b: &Value) -> bool {
    ["at", "end", "pid", "span", "total", "self", "reclaimed", "call_site", "inside"]
        .iter()
        .all(|name| a[name] == b[name])
}

#[test]
fn a_recording_of_waits_alone_names_their_views() {
    let (_dir, tree) = tree();
    let summary = String::from_utf8(run_to(0, REPORT, &["summary"], &[&tree])).unwrap();
    assert!(summary.contains("kmemtrace-report latency"), "{summary}");
    let refused = run(REPORT, &["latency", "--kind", "pages"], &[&tree]);
    assert!(refused.status.code() == Some(2) && String::from_utf8_lossy(&refused.stderr).contains("--kind"));
}

/// Line of a view's output, or beside it, with the words `said`.
fn line_with(said: &str, arguments: &[&str], trace: &Path) -> String {
    let output = run(REPORT, &[arguments, &["-q", "--no-index"]].concat(), &[trace]);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    told.lines().find(|line| line.contains(said)).unwrap_or_else(|| panic!("{arguments:?}: {told}")).to_owned()
}

#[test]
fn events_that_were_recorded_are_not_said_to_be_missing() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/latency-amd64-6.12");
    // Nothing came: each CPU has its first block alone.
    let quiet = Directory::new(&[]);
    fs::copy(data.join("meta.out"), quiet.path().join("meta.out")).unwrap();
    for cpu in ["cpu0.out", "cpu1.out"] {
        let bytes = fs::read(data.join(cpu)).unwrap();
        fs::write(quiet.path().join(cpu), &bytes[..block_ends(&bytes)[0]]).unwrap();
    }
    for (arguments, trace, said) in [
        (&["functions", "--pid", "1"][..], data.as_path(), "the filters leave no timed function"),
        (&["functions", "--threshold", "1h"], &data, "the filters leave no timed function"),
        (&["latency", "--time", "+1000s,+1001s"], &data, "--time: no events in this window"),
        (&["latency"], quiet.path(), "such events were recorded, and none came"),
        (&["stalls", "--follow"], quiet.path(), "such events were recorded, and none came"),
    ] {
        let told = line_with(said, arguments, trace);
        assert!(!told.contains("kmemtraced"), "{arguments:?}: {told}");
    }
}

#[test]
fn ticks_are_no_durations_and_counts_stay() {
    let (_dir, tree) = tree();
    let known = document(&["latency"], &tree);
    fs::write(tree.join("trace_clock"), "local [x86-tsc] mono").unwrap();
    let ticks = document(&["latency"], &tree);
    let pairs = known["spans"].as_array().unwrap().iter().filter_map(|known| {
        let ticks = ticks["spans"].as_array().unwrap().iter().find(|row| row["span"] == known["span"]);
        Some((known, ticks?))
    });
    assert_eq!(pairs.clone().count(), 3);
    for (known, ticks) in pairs {
        assert_eq!(known["count"], ticks["count"]);
        assert!(["total", "self", "min", "p50", "max"].iter().all(|member| ticks[member].is_null()), "{ticks}");
    }
}

#[test]
fn a_threshold_over_ticks_is_refused() {
    let (_dir, tree) = tree();
    fs::write(tree.join("trace_clock"), "local global [counter]\n").unwrap();
    for view in ["latency", "stalls", "shrinkers", "waits", "functions"] {
        let refused = run(REPORT, &[view, "--threshold", "5ms"], &[&tree]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{view}: {message}");
        assert!(message.contains("--threshold: ") && message.contains("counter"), "{view}: {message}");
    }
}

#[test]
fn what_was_asked_for_stands_in_the_document_and_a_kind_that_is_none_is_refused() {
    let (_dir, tree) = tree();
    let asked = document(&["latency", "--threshold", "5ms", "--span", "memcg,shrinker"], &tree);
    let filters = serde_json::json!({"threshold": ["5ms"], "span": ["memcg", "shrinker"]});
    assert_eq!(asked["query"]["filters"], filters, "{}", asked["query"]);
    let refused = run(REPORT, &["latency", "--span", "memgc"], &[&tree]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && message.contains("memcg"), "{message}");
}

/// Takes a field out of the format of an event.
fn forget(tree: &Path, event: &str, field: &str) {
    let format = tree.join("events/vmscan").join(event).join("format");
    let text = fs::read_to_string(&format).unwrap();
    let is_other = |line: &&str| !line.contains(&format!(" {field};"));
    let left: Vec<&str> = text.lines().filter(is_other).collect();
    assert_eq!(left.len() + 1, text.lines().count(), "{event}: {field}");
    fs::write(&format, left.join("\n")).unwrap();
}

#[test]
fn figures_of_fields_that_are_missing_are_null() {
    let (_dir, tree) = tree();
    let before = document(&["latency"], &tree);
    let row = |document: &Value, name: &str| -> Value {
        let spans = document["spans"].as_array().unwrap();
        spans.iter().find(|row| row["span"] == name).cloned().unwrap_or_default()
    };
    forget(&tree, "mm_shrink_slab_end", "retval");
    forget(&tree, "mm_shrink_slab_start", "shrink");
    forget(&tree, "mm_vmscan_throttled", "usec_delayed");
    let after = document(&["latency"], &tree);
    assert_eq!(row(&after, "shrinker")["count"], row(&before, "shrinker")["count"]);
    let throttled = row(&after, "throttled");
    let there = row(&before, "throttled")["count"].as_u64().unwrap();
    assert!(there > 0 && throttled["count"] == 0 && throttled["unstarted"] == there, "{throttled}");
    for row in document(&["shrinkers"], &tree)["rows"].as_array().unwrap() {
        assert!(row["freed"].is_null() && row["function"].is_null() && row["shrinker"].is_string(), "{row}");
    }
    let stalls = document(&["stalls"], &tree);
    let mut inside = stalls["rows"].as_array().unwrap().iter().flat_map(|row| row["inside"].as_array().unwrap());
    assert!(inside.clone().count() > 0 && inside.all(|row| row["freed"].is_null()), "{stalls}");
}

#[test]
fn a_cut_file_leaves_no_wrong_span() {
    let (_dir, tree) = tree();
    let all = document(&["stalls"], &tree);
    let key = |row: &Value| (row["at"].as_u64(), row["end"].as_u64(), row["pid"].as_u64(), row["self"].as_u64());
    let whole: Vec<_> = all["rows"].as_array().unwrap().iter().map(key).collect();
    let file = tree.join("per_cpu/cpu0/trace_pipe_raw");
    let bytes = fs::read(&file).unwrap();
    for pages in (0..bytes.len() / 4096).step_by(7) {
        fs::write(&file, &bytes[..pages * 4096 + 1000]).unwrap();
        let cut = document(&["stalls"], &tree);
        assert!(cut["rows"].as_array().unwrap().iter().all(|row| whole.contains(&key(row))), "{pages} pages");
    }
}

#[test]
fn names_from_a_recording_do_not_act_on_a_terminal() {
    let (_dir, tree) = tree();
    let replace = |file: &str, from: &[u8], to: &[u8]| {
        let bytes = fs::read(tree.join(file)).unwrap();
        let mut parts = Vec::new();
        let mut rest = &bytes[..];
        while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
            parts.extend_from_slice(&rest[..at]);
            parts.extend_from_slice(to);
            rest = &rest[at + from.len()..];
        }
        assert!(!parts.is_empty(), "{file}");
        parts.extend_from_slice(rest);
        fs::write(tree.join(file), parts).unwrap();
    };
    replace("kallsyms", b"super_cache_scan", b"super\x1b[2J\xff\xe2\x80\xae");
    replace("kallsyms", b"filemap_add_folio", b"=cmd|\x07");
    replace("saved_cmdlines", b" dd", b" d\x1b]52;c;cm0g\x07\xc2\x9b");
    for view in [&["latency"][..], &["shrinkers"], &["stalls", "--timeline"]] {
        for format in ["table", "json", "jsonl", "csv"] {
            let output = run_to(0, REPORT, &[view, &["--format", format, "-n", "30"]].concat(), &[&tree]);
            let text = String::from_utf8(output).unwrap();
            let acts = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
            assert!(!text.contains(acts), "{view:?} {format}");
        }
    }
}

#[test]
fn an_output_that_cannot_be_written_is_named_and_a_closed_pipe_is_none() {
    let (_dir, tree) = tree();
    for view in ["latency", "shrinkers", "stalls"] {
        let report = |to: Stdio| {
            Command::new(kmemtrace_tests::programs::program(REPORT)).arg(view).arg(&tree).stdout(to).output()
        };
        let full = report(fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()).unwrap();
        assert!(
            full.status.code() == Some(2) && String::from_utf8_lossy(&full.stderr).contains("No space left"),
            "{view}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = report(writer.into()).unwrap();
        assert_eq!((closed.status.code(), closed.stderr.len()), (Some(0), 0), "{view}");
    }
}

/// A charge of a memory cgroup waits before no event of pages, so that `waits` tells their number alone.
#[test]
fn waits_count_the_stalls_of_memory_cgroups() {
    let sample = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/latency-amd64-6.12");
    let stalls = document(&["stalls", "--span", "memcg"], &sample)["rows"].as_array().unwrap().len();
    assert_eq!((stalls, &document(&["waits"], &sample)["memcg_stalls"]), (309, &serde_json::json!(309)));
    let table = String::from_utf8(run_to(0, REPORT, &["waits", "-q"], &[&sample])).unwrap();
    assert!(table.contains("309 stalls of memory cgroups"), "{table}");
}

/// Waits, stalls and the live screen go by the cgroups that the recorder found the threads in.
#[test]
fn waits_and_the_screen_go_by_cgroup() {
    let page = |scenario: Scenario, (at, pid): (u64, i32)| scenario.thread(pid, 0).page_alloc(at, 0, at * 16, 4096);
    let allocations = [(10, 7), (20, 7), (30, 8), (40, 9), (50, 11)];
    let scenario = allocations.into_iter().fold(Scenario::new(Shape::plain(), 1), page);
    let cgroups = "7 7 0 /a\n8 8 0 /a\n9 9 0 /b\n";
    let work = scenario.with(|work| work.items.push((item::CGROUPS, cgroups.to_owned()))).finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    let rows = |arguments: &[&str]| -> Vec<(Value, Value)> {
        let found = document(arguments, dir.path());
        found["rows"].as_array().unwrap().iter().map(|row| (row["cgroup"].clone(), row["allocs"].clone())).collect()
    };
    let mut by_cgroup = rows(&["waits", "--by", "cgroup"]);
    by_cgroup.sort_by_key(|(cgroup, _)| cgroup.to_string());
    assert_eq!(by_cgroup, [(json!("/a"), json!(3)), (json!("/b"), json!(1)), (Value::Null, json!(1))]);
    assert_eq!(rows(&["waits", "--cgroup", "/b"]), [(Value::Null, json!(1))], "the key was not asked for");
    let table = String::from_utf8(run_to(0, REPORT, &["waits", "--by", "cgroup", "-q"], &[dir.path()])).unwrap();
    assert!(table.contains("CGROUP") && table.contains("(unknown)"), "{table}");
    let screen = |keys: &str| {
        let script = dir.path().join("script");
        fs::write(&script, keys).unwrap();
        let script = script.display().to_string();
        String::from_utf8(run_to(0, REPORT, &["top", "--once", "--script", &script], &[dir.path()])).unwrap()
    };
    let groups = screen(&"m\n".repeat(3));
    let row = |name: &str, objects: &str| {
        let is_its = |line: &&str| line.contains(name) && line.contains("pages");
        groups.lines().find(is_its).is_some_and(|line| line.contains(objects))
    };
    assert!(groups.contains("[cgroups]"), "{groups}");
    assert!(row("/a", "12.0 K") && row("/b", "4.00 K") && row("(unknown)", "4.00 K"), "{groups}");
    let typed: String = "/cgroup=/b".chars().map(|key| format!("{key}\n")).collect();
    let filtered = screen(&(typed + "enter\n"));
    assert!(filtered.lines().any(|line| line.contains("4.00 K") && line.contains("pages")), "{filtered}");
}

/// Shrinkers inside spans of a kind are those that the nesting of all spans has there.
#[test]
fn shrinkers_and_functions_are_selected_by_the_spans_around_them() {
    for name in TREES {
        let (_dir, tree) = unpacked(name);
        let nesting = document(&["latency"], &tree)["nesting"].take();
        let nested =
            nesting.as_array().unwrap().iter().filter(|row| row["span"] == "shrinker" && row["parent"] == "memcg");
        let nested = nested
            .fold((0, 0), |sum, row| (sum.0 + row["count"].as_u64().unwrap(), sum.1 + row["total"].as_u64().unwrap()));
        let rows = |arguments: &[&str]| document(&[&["shrinkers"], arguments].concat(), &tree)["rows"].take();
        let inside = rows(&["--span", "memcg"]);
        let sum =
            |member: &str| inside.as_array().unwrap().iter().map(|row| row[member].as_u64().unwrap()).sum::<u64>();
        assert_eq!((sum("count"), sum("total")), nested, "{name}");
        assert!(nested.0 > 0 || name != TREE, "the recording has shrinkers inside");
        assert_eq!(rows(&["--span", "shrinker"]), rows(&[]), "{name}");
    }
    let sample = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/latency-amd64-6.12");
    let calls = |arguments: &[&str]| {
        let rows = document(&[&["functions"], arguments].concat(), &sample)["rows"].take();
        let calls =
            rows.as_array().unwrap().iter().map(|row| (row["symbol"].to_string(), row["count"].as_u64().unwrap()));
        calls.collect::<HashMap<_, _>>()
    };
    let (all, inside) = (calls(&[]), calls(&["--span", "memcg"]));
    // Reclaim of a memory cgroup begins in try_to_free_mem_cgroup_pages, which so ends after the span.
    let of = |calls: &HashMap<String, u64>, name: &str| {
        calls.iter().find(|(symbol, _)| symbol.contains(name)).map_or(0, |(_, count)| *count)
    };
    assert_eq!(of(&inside, "try_to_free_mem_cgroup_pages"), 0);
    assert_eq!(of(&inside, "shrink_node"), of(&all, "shrink_node"));
    assert!(of(&inside, "do_shrink_slab") < of(&all, "do_shrink_slab"), "{inside:?} {all:?}");
}

#[test]
fn words_of_these_views_mean_times_and_a_key_counts_once() {
    let help = |view: &str| String::from_utf8(run_to(0, REPORT, &["help", view], &[])).unwrap();
    let stalls = help("stalls");
    assert!(stalls.contains("total: Duration") && !stalls.contains("llocated bytes"), "{stalls}");
    assert!(!help("shrinkers").contains("asked for the memory"));
    let (_place, tree) = tree();
    assert_eq!(document(&["waits", "--by", "gfp,gfp"], &tree)["query"]["by"], json!(["gfp"]));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/latency-amd64-6.12");
    let followed = ["stalls", "-q", "--follow", "--threshold", "5\u{b5}s"];
    let text = String::from_utf8(run_to(0, REPORT, &followed, &[&data])).unwrap();
    assert!(text.contains("SHRINKER") && !text.contains("filter threshold"), "{text}");
}
