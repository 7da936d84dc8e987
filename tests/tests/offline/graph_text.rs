//! Texts of the tracer function_graph, and events of reclaim in texts: calls and spans as of the pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::archive;
use kmemtrace_tests::graph_text::{self, Calls, Shape};
use kmemtrace_tests::programs::{data, document, run};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runs;
use serde_json::{Value, json};

const RECORDING: &str = "latency-amd64-6.12";

fn write(dir: &Directory, name: &str, text: &str) -> PathBuf {
    dir.write(name, text.as_bytes());
    dir.file(name)
}

/// Calls and their sum of each function.
fn functions(path: &Path) -> BTreeMap<String, Calls> {
    let document = document(&["functions"], path);
    let rows = document["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let number = |member: &str| row[member].as_u64().unwrap();
        (row["symbol"].as_str().unwrap().to_owned(), Calls { count: number("count"), total: number("total") })
    })
    .collect()
}

/// Each shape of the text has the calls of the pages, with the digits that the kernel prints.
#[test]
fn calls_of_a_text_are_those_of_its_pages() {
    let dir = Directory::new(&[]);
    let recording = data(RECORDING);
    let of_pages = functions(&recording);
    assert!(of_pages.len() > 4);
    let full = Shape::FULL;
    for (name, shape) in [
        ("full", full),
        ("tail", Shape { tail: true, ..full }),
        ("latency format", Shape { latency_format: true, ..full }),
        ("without tasks", Shape { proc: false, ..full }),
        ("without times", Shape { abstime: false, ..full }),
        ("plain", Shape { proc: false, abstime: false, ..full }),
        ("without switches", Shape { proc: false, abstime: false, switches: false, ..full }),
        ("threshold", Shape { thresh: Some(1), ..full }),
        ("threshold of all", Shape { thresh: Some(1), tail: true, abstime: false, proc: false, ..full }),
    ] {
        let made = graph_text::print(&recording, shape);
        let found = functions(&write(&dir, name, &made.text));
        assert_eq!(found, made.functions, "{name}");
        for (function, calls) in &of_pages {
            assert_eq!(found[function].count, calls.count, "{name}: {function}");
            assert!(found[function].total.abs_diff(calls.total) <= calls.total / 100_000, "{name}: {function}");
        }
        assert_eq!(found.len(), of_pages.len(), "{name}");
    }
    let only_long = graph_text::print(&recording, Shape { thresh: Some(1_000_000), ..full });
    let found = functions(&write(&dir, "long", &only_long.text));
    let sum = |calls: &BTreeMap<String, Calls>| calls.values().map(|calls| calls.count).sum::<u64>();
    assert!(found == only_long.functions && (1..sum(&of_pages)).contains(&sum(&found)));
}

/// Count and sum of each kind of span, and of each shrinker's function.
fn spans(path: &Path) -> BTreeMap<String, (u64, u64)> {
    let latency = document(&["latency"], path);
    let shrinkers = document(&["shrinkers", "--by", "function"], path);
    let rows = |document: &Value, rows: &str, name: &str| -> Vec<(String, (u64, u64))> {
        let row = |row: &Value| {
            let number = |member: &str| row[member].as_u64().unwrap();
            (row[name].as_str().unwrap().to_owned(), (number("count"), number("total")))
        };
        document[rows].as_array().unwrap().iter().map(row).collect()
    };
    [rows(&latency, "spans", "span"), rows(&shrinkers, "rows", "symbol")].concat().into_iter().collect()
}

fn assert_spans(name: &str, text: &Path, pages: &Path) {
    let (found, expected) = (spans(text), spans(pages));
    assert!(!expected.is_empty() && found.keys().eq(expected.keys()), "{name}: {found:?}");
    for (span, (count, total)) in expected {
        let (found_count, found_total) = found[&span];
        assert_eq!(found_count, count, "{name}: {span}");
        assert!(found_total.abs_diff(total) <= 1000 * count, "{name}: {span}: {found_total} of {total}");
    }
    // Stalls one by one: times are cut at both ends.
    let stalls = |path: &Path| document(&["stalls", "--sort", "time"], path)["rows"].as_array().unwrap().clone();
    let (found, expected) = (stalls(text), stalls(pages));
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(&expected) {
        let number = |row: &Value, member: &str| row[member].as_u64().unwrap();
        assert!(number(found, "total").abs_diff(number(expected, "total")) <= 1000, "{name}: {found} {expected}");
        for member in ["pid", "comm", "span", "reclaimed", "order"] {
            assert_eq!(found[member], expected[member], "{name}: {member}");
        }
        let inside = |row: &Value| {
            let inside = row["inside"].as_array().unwrap().iter();
            inside.map(|inside| json!([inside["span"], inside["count"], inside["freed"]])).collect::<Vec<_>>()
        };
        assert_eq!(inside(found), inside(expected), "{name}");
    }
}

/// Comments of function_graph are events; without funcgraph-proc the switches tell the tasks.
#[test]
fn spans_of_a_text_are_those_of_its_pages() {
    let dir = Directory::new(&[]);
    let recording = data(RECORDING);
    let full = Shape::FULL;
    for (name, shape) in [("full", full), ("without tasks", Shape { proc: false, ..full })] {
        let text = write(&dir, name, &graph_text::print(&recording, shape).text);
        assert_spans(name, &text, &recording);
        // A shrinker's hashed pointer keeps its rows apart, and its function has no address.
        let rows = document(&["shrinkers"], &text)["rows"].as_array().unwrap().clone();
        assert_eq!(rows.len(), document(&["shrinkers"], &recording)["rows"].as_array().unwrap().len(), "{name}");
        assert!(rows.iter().all(|row| row["function"].is_null() && row["shrinker"].is_string()), "{name}: {rows:?}");
    }
    for name in ["tree-latency-amd64-6.18", "tree-latency-amd64-6.1", "tree-latency-s390x-6.1"] {
        let tree = archive::unpack(name, dir.path()).unwrap();
        assert_spans(name, &tree.join("trace"), &tree);
    }
}

#[test]
fn a_text_without_times_has_functions_alone() {
    let dir = Directory::new(&[]);
    let shape = Shape { abstime: false, ..Shape::FULL };
    let path = write(&dir, "text", &graph_text::print(&data(RECORDING), shape).text);
    for view in [&["latency"][..], &["stalls"], &["summary"], &["events"], &["functions", "--time", "1,2"]] {
        let output = run("kmemtrace-report", view, &[&path]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && message.contains("options/funcgraph-abstime"),
            "{view:?}: {message}"
        );
    }
    let without_cpu = "# tracer: function_graph\n#\n   0.345 us    |  f();\n";
    let output = run("kmemtrace-report", &["functions"], &[&write(&dir, "cpu", without_cpu)]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && message.contains("options/funcgraph-cpu"), "{message}");
}

/// trace-cmd prints calls as events, and perf prints events with their system.
#[test]
fn calls_and_events_of_trace_cmd_and_perf_are_read() {
    let dir = Directory::new(&[]);
    let text = "\
cpus=2
             ls-12    [000]    13.000001: funcgraph_entry:                   |  f() {
             ls-12    [000]    13.000002: funcgraph_entry:        1.500 us   |    g [mod]();
             ls-12    [000]    13.000004: mm_vmscan_direct_reclaim_begin: order=2 gfp_flags=GFP_KERNEL
             ls-12    [001]    13.000014: mm_vmscan_direct_reclaim_end: nr_reclaimed=3
             ls-12    [001]    13.000020: funcgraph_exit:       19.250 us   |  }
";
    let path = write(&dir, "trace-cmd", text);
    let calls = |count, total| Calls { count, total };
    let expected = BTreeMap::from([("f".to_owned(), calls(1, 19_250)), ("g".to_owned(), calls(1, 1500))]);
    assert_eq!(functions(&path), expected);
    let stall = &document(&["stalls"], &path)["rows"][0];
    assert_eq!(
        ["span", "total", "order", "reclaimed"].map(|member| &stall[member]),
        [json!("direct"), json!(10_000), json!(2), json!(3)].each_ref()
    );
    let text = "\
ls  12 [000] 13.000001: vmscan:mm_vmscan_node_reclaim_begin: nid=0 order=2 gfp_flags=GFP_KERNEL
ls  12 [000] 13.000002: vmscan:mm_shrink_slab_start: scan+0x0 0xffff888100873e50: nid: 0 objects to shrink 0 gfp_flags GFP_KERNEL
ls  12 [000] 13.000003: vmscan:mm_shrink_slab_end: scan+0x0 0xffff888100873e50: nid: 0 last shrinker return val -1
ls  12 [000] 13.000004: vmscan:mm_vmscan_balance_begin: nid=0
ls  12 [000] 13.000009: vmscan:mm_vmscan_balance_end: nid=0
ls  12 [000] 13.000021: vmscan:mm_vmscan_node_reclaim_end: nr_reclaimed=3
";
    let path = write(&dir, "perf", text);
    let found = spans(&path);
    let of = |name: &str, total| (name.to_owned(), (1, total));
    let expected =
        [of("node", 20_000), of("shrinker", 1000), of("scan", 1000), of("mm_vmscan_balance", 5000)].into_iter();
    assert_eq!(found, expected.collect());
}

#[test]
fn no_damage_stops_the_reader_of_calls() {
    let dir = Directory::new(&[]);
    let text = "\
# tracer: function_graph
   13.000001 |   0)    ls-12       |               |  f() {
   13.000002 |   0)    ls-12       |   1.500 us    |    g [mod]();
   13.000003 |   0)    ls-12       |               |    /* mm_shrink_slab_start: s+0x0/0x2 0000000000000001: nid: 0 x */
 ------------------------------------------
 0)    ls-12     =>     ps-13
 ------------------------------------------
   13.000004 |   0)    ps-13       | + 10.00 us    |  } /* h [mod] */
   13.000005 |   0)    ls-12       |  d.h1. | ! 178.263 us  |  }
   13.000006 |   0)    ls-12       |               |  /* <stack trace>
 => f
 => g [mod] */
"
    .as_bytes();
    let read = |bytes: &[u8]| -> usize {
        dir.write("text", bytes);
        let Ok(mut trace) = Trace::open(&[dir.file("text")]) else { return 0 };
        let (mut items, mut count): (Vec<StreamItem>, usize) = (Vec::new(), 0);
        for stream in &mut trace.streams {
            while stream.fill(&mut trace.names, &mut items) {
                count += items.len();
            }
        }
        count
    };
    for len in 0..text.len() {
        read(&text[..len]);
    }
    let (mut read_some, step) = (0, runs::step(5));
    for bit in (0..text.len() * 8).step_by(step) {
        let mut bad = text.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        read_some += usize::from(read(&bad) > 0);
    }
    assert!(read_some > text.len() * 7 / step, "{read_some}");
}
