//! `account`: the same text as trace_analyze's own, and the same figures as a plain count over the events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use kmemtrace_tests::generate::trace_dir;
use kmemtrace_tests::programs::{data, document, json, json_lines, run_to};
use kmemtrace_tests::recording::{Directory, random_workload};
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";
/// Caller that the original does not know: its function's name stands twice in the symbols.
const NOT_IN_THE_ORIGINAL: &str = "mas_alloc_nodes+0x6f";

fn text(arguments: &[&str], trace: &Path) -> String {
    let arguments: Vec<&str> = ["account"].iter().chain(arguments).copied().collect();
    String::from_utf8(run_to(0, REPORT, &arguments, &[trace])).unwrap()
}

/// Heading and rows of an account file.
fn parts(account: &str) -> (Vec<&str>, Vec<&str>) {
    let lines: Vec<&str> = account.lines().collect();
    let rows = lines.iter().position(|line| line.starts_with("---")).unwrap() + 1;
    (lines[..rows].to_vec(), lines[rows..].to_vec())
}

fn caller(row: &str) -> &str {
    row.rsplit(' ').next().unwrap()
}

/// Callers some of whose objects' addresses came back without a free event: the original leaves those objects live.
fn callers_with_inferred_frees(trace: &Path) -> BTreeSet<String> {
    let sites = document(&["sites"], trace);
    let rows = sites["rows"].as_array().unwrap().iter().filter(|row| row["inferred_frees"] != 0);
    rows.map(|row| row["symbol"].as_str().unwrap().to_owned()).collect()
}

/// Rows that ours and the original's must share, to the byte, in any order.
fn comparable<'a>(rows: &[&'a str], excepted: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let is_common = |row: &&&str| caller(row) != NOT_IN_THE_ORIGINAL && !excepted.contains(caller(row));
    rows.iter().filter(is_common).copied().collect()
}

#[test]
fn account_is_that_of_trace_analyze() {
    let trace = data("amd64-6.1");
    let excepted = callers_with_inferred_frees(&trace);
    assert_eq!(excepted.len(), 6);
    for (file, arguments, column) in [
        ("current_dynamic", &["--sort", "current_dynamic"][..], Some(2)),
        ("current_dynamic", &[], Some(2)),
        ("total_dynamic", &["--sort", "total_dynamic"], Some(0)),
        ("alloc_count", &["--sort", "alloc_count"], Some(3)),
        ("free_count", &["--sort", "free_count"], Some(4)),
        ("waste", &["--sort", "waste"], Some(1)),
        ("malloc", &["--kind", "kmalloc"], Some(2)),
        ("cache", &["--kind", "cache"], Some(2)),
    ] {
        let original = fs::read_to_string(data(&format!("account/account.{file}.txt"))).unwrap();
        let ours = text(arguments, &trace);
        let ((heading, rows), (our_heading, our_rows)) = (parts(&original), parts(&ours));
        // Sums include the rows that differ; labels, widths and lines between do not.
        let is_blank = |c: char| c.is_ascii_digit() || c == ' ';
        let form = |lines: &[&str]| {
            lines.iter().map(|line| (line.trim_end_matches(is_blank).to_owned(), line.len())).collect::<Vec<_>>()
        };
        assert_eq!(form(&our_heading), form(&heading), "{file}");
        let compared = comparable(&our_rows, &excepted);
        assert_eq!(compared, comparable(&rows, &excepted), "{file}");
        assert!(compared.len() > 15, "{file}: {}", compared.len());
        let figure = |row: &str| {
            row.split([' ', '/']).filter(|word| !word.is_empty()).nth(column.unwrap()).unwrap().parse::<u64>().unwrap()
        };
        let order: Vec<(u64, &str)> = our_rows.iter().map(|row| (u64::MAX - figure(row), caller(row))).collect();
        assert!(order.is_sorted(), "{file}: the greatest come first, ties go by name");
    }
}

#[test]
fn sums_of_the_heading_are_those_of_the_rows() {
    let account = text(&[], &data("amd64-6.1"));
    let (heading, rows) = parts(&account);
    let sum = |label: &str| {
        let line = heading.iter().find(|line| line.starts_with(label)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let figures = |column: usize| {
        let figure = |row: &&str| {
            row.split([' ', '/']).filter(|word| !word.is_empty()).nth(column).unwrap().parse::<u64>().unwrap()
        };
        rows.iter().map(figure).sum::<u64>()
    };
    assert_eq!(sum("current wasted bytes"), figures(1));
    assert_eq!(sum("current bytes allocated"), figures(2));
    assert_eq!(sum("current bytes allocated") - sum("current bytes requested"), figures(1));
    assert_eq!((sum("number of allocs"), sum("number of frees")), (figures(3), figures(4)));
    assert_eq!(sum("number of callers"), rows.len() as u64);
}

#[test]
fn callers_are_those_of_trace_analyze() {
    let trace = data("amd64-6.1");
    let excepted = callers_with_inferred_frees(&trace);
    let original = fs::read_to_string(data("account/callers.txt")).unwrap();
    let ours = text(&["--style", "callers"], &trace);
    // The last column names an object file of the original's tree, a made-up one.
    let rows = |text: &str| {
        let of_row = |line: &str| (line[..78].to_owned(), caller(line[..60].trim_end()).to_owned());
        let is_common = |(_, caller): &(String, String)| caller != NOT_IN_THE_ORIGINAL && !excepted.contains(caller);
        text.lines().map(of_row).filter(is_common).collect::<BTreeSet<_>>()
    };
    assert_eq!(rows(&ours), rows(&original));
    assert_eq!(rows(&ours).len(), 43);
    assert!(ours.lines().all(|line| line.len() >= 60 + 3 * 9));
}

/// Plain count of `slab_account`: allocations, their bytes, and free events by their own callers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    allocs: u64,
    frees: u64,
    requested: u64,
    allocated: u64,
}

fn number(event: &Value, member: &str) -> u64 {
    event[member].as_u64().unwrap_or(0)
}

/// Kind of an event, and true for an allocation.
fn kind(event: &Value) -> Option<(&'static str, bool)> {
    Some(match event["event"].as_str()? {
        "kmalloc" | "kmalloc_node" => ("kmalloc", true),
        "kmem_cache_alloc" | "kmem_cache_alloc_node" => ("cache", true),
        "kfree" => ("kmalloc", false),
        "kmem_cache_free" => ("cache", false),
        _ => return None,
    })
}

/// Counts of the events that a filter takes: a pair by its allocation, any other free by itself.
fn counted(events: &[Value], takes: impl Fn(&Value) -> bool) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let mut live: HashMap<&str, bool> = HashMap::new();
    for event in events {
        let Some((_, allocates)) = kind(event) else { continue };
        let (address, site) = (event["address"].as_str().unwrap(), event["call_site"].as_str().unwrap());
        let is_taken = takes(event);
        if allocates && event.get("failed").is_none() && address != "0x0" {
            live.insert(address, is_taken);
            if is_taken {
                let count = counts.entry(site.to_owned()).or_default();
                count.allocs += 1;
                count.requested += number(event, "requested");
                count.allocated += number(event, "allocated");
            }
        } else if !allocates && !["0x0", "0x10"].contains(&address) && live.remove(address).unwrap_or(is_taken) {
            counts.entry(site.to_owned()).or_default().frees += 1;
        }
    }
    counts
}

fn assert_slab_account(what: &str, trace: &Path) -> usize {
    let events = json_lines(&run_to(0, REPORT, &["events", "--format", "jsonl"], &[trace]));
    let mut rows_that_only_free = 0;
    for of_kind in [None, Some("kmalloc"), Some("cache")] {
        let filter: Vec<&str> = of_kind.iter().flat_map(|kind| ["--kind", kind]).collect();
        let arguments = ["account", "--style", "slab-account", "--own", "--format", "json"];
        let arguments: Vec<&str> = arguments.into_iter().chain(filter).collect();
        let document = json(&run_to(0, REPORT, &arguments, &[trace]));
        let rows = document["rows"].as_array().unwrap().iter();
        let ours: BTreeMap<String, Count> = rows
            .map(|row| {
                let count = Count {
                    allocs: number(row, "allocs"),
                    frees: number(row, "frees_made"),
                    requested: number(row, "requested"),
                    allocated: number(row, "allocated"),
                };
                (row["call_site"].as_str().unwrap().to_owned(), count)
            })
            .collect();
        let expected = counted(&events, |event| {
            of_kind.is_none_or(|of_kind| kind(event).is_some_and(|(kind, _)| kind == of_kind))
        });
        assert_eq!(ours, expected, "{what}, {of_kind:?}");
        let sum = |of: fn(&Count) -> u64| expected.values().map(of).sum::<u64>();
        assert_eq!(number(&document["total"], "allocs"), sum(|count| count.allocs), "{what}");
        assert_eq!(number(&document["total"], "frees_made"), sum(|count| count.frees), "{what}");
        assert_eq!(number(&document, "callers"), expected.len() as u64, "{what}");
        rows_that_only_free += expected.values().filter(|count| count.allocs == 0).count();
    }
    rows_that_only_free
}

#[test]
fn slab_account_is_a_count_of_the_events() {
    for name in ["amd64-6.1", "amd64-6.1-lossy", "amd64-6.18", "s390x-6.1", "i386-6.1"] {
        assert!(assert_slab_account(name, &data(name)) > 10, "{name}: callers that only free");
    }
    for seed in 0..12 {
        let (_, workload) = random_workload(seed, 400);
        assert_slab_account(&format!("seed {seed}"), Directory::new(&trace_dir(&workload, seed)).path());
    }
}

#[test]
fn slab_account_has_the_form_of_its_original() {
    let account = text(&["--style", "slab-account"], &data("amd64-6.1"));
    let lines: Vec<&str> = account.lines().collect();
    assert_eq!(lines[0], "total bytes allocated:  5284952");
    assert_eq!(lines[3], "number of allocs:         11445");
    assert_eq!(lines[6..8], ["", "   total    slack      req alloc/free  caller"]);
    let only_frees = lines.iter().find(|line| line.contains(" 0/")).unwrap();
    assert!(only_frees.starts_with("       0        0        0     0/"), "{only_frees}");
}

#[test]
fn pages_have_an_account_of_their_own() {
    let (_, workload) = random_workload(3, 2000);
    let trace = Directory::new(&trace_dir(&workload, 3));
    let of = |arguments: &[&str]| {
        let arguments = [arguments, &["--own", "--format", "json"]].concat();
        json(&run_to(0, REPORT, &arguments, &[trace.path()]))
    };
    let (pages, objects) = (of(&["account", "--kind", "pages"]), of(&["account"]));
    assert_eq!((&pages["kinds"][0], &objects["kinds"][1]), (&Value::from("pages"), &Value::from("cache")));
    let summary = of(&["summary"]);
    assert!(number(&pages["total"], "allocated") > 0 && number(&objects["total"], "live_allocated") > 0);
    assert_eq!(pages["total"]["allocated"], summary["kinds"]["pages"]["allocated"]);
    assert_eq!(objects["total"]["live_allocated"], summary["total"]["live_allocated"]);
}

/// A list of live objects tells nothing of the past.
#[test]
fn figures_that_a_text_does_not_tell_are_null_in_its_account() {
    let list = data("texts/alloc_traces.txt");
    let account = document(&["account"], &list);
    for figures in [&account["total"], &account["rows"][0]] {
        assert!(number(figures, "allocs") > 0 && number(figures, "live_wasted") > 0, "{figures}");
        assert!(figures["frees"].is_null() && figures["frees_made"].is_null(), "{figures}");
    }
    assert!(text(&[], &list).lines().any(|line| line == "number of frees:                  -"));
    // Allocations of an old list have no waste.
    let without_waste = document(&["account"], &data("texts/alloc_calls.txt"));
    assert!(without_waste["total"]["requested"].is_null() && without_waste["rows"][0]["wasted"].is_null());
}
