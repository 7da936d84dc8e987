//! Texts of one moment of real kernels, beside sums that a few lines here make of the same texts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kmemtrace_tests::programs::{json, run, run_to};
use kmemtrace_tests::recording::Directory;
use serde_json::Value;

/// Folders of `tests/data`, each of one guest.
const OLD: &str = "texts-amd64-6.1";
const NEW: &str = "texts-amd64-6.12";
/// Of kernels with page_owner; the first one has memory allocation profiling, too.
const SMALL: [&str; 2] = ["texts-small-6.12", "texts-small-6.1"];

/// A text, unpacked below the folder as the guest had it.
fn unpacked(dir: &Directory, guest: &str, name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(guest).join(format!("{name}.zst"));
    let text = String::from_utf8(zstd::decode_all(&std::fs::read(path).unwrap()[..]).unwrap()).unwrap();
    let to = dir.path().join(name);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::write(&to, &text).unwrap();
    (to, text)
}

fn document(arguments: &[&str], path: &Path) -> Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--format", "json"]).collect();
    let document = json(&run_to(0, "kmemtrace-report", &arguments, &[path]));
    let completeness = &document["completeness"];
    assert!(completeness["verdict"] == "complete" && completeness["skipped_blocks"] == 0, "{completeness}");
    document
}

fn assert_refused(status: i32, arguments: &[&str], path: &Path, why: &str) {
    let output = run("kmemtrace-report", arguments, &[path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(status) && said.contains(why), "{said}");
}

/// Numbers of rows by these members.
fn rows(document: &Value, members: &[&str], figures: &[&str]) -> BTreeMap<String, Vec<u64>> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut all = BTreeMap::new();
    for row in document["rows"].as_array().unwrap() {
        let name: Vec<String> = members.iter().map(|member| text(&row[*member])).collect();
        let sum: &mut Vec<u64> = all.entry(name.join(" ")).or_insert_with(|| vec![0; figures.len()]);
        sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += row[*figure].as_u64().unwrap());
    }
    all
}

/// Number behind a word of a line.
fn behind(line: &str, word: &str) -> Option<u64> {
    let digits = line.split_once(word)?.1;
    let end = digits.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// `symbol module` of `function+0x1c/0x40 [module]`.
fn site(text: &str) -> String {
    let (place, module) =
        text.split_once(" [").map_or((text, "null"), |(place, module)| (place, module.trim_end_matches(']')));
    match place {
        "<not-available>" => "null null".to_owned(),
        place => format!("{} {module}", place.split('/').next().unwrap()),
    }
}

/// Objects and waste by call site.
fn sums_of_traces(text: &str) -> BTreeMap<String, Vec<u64>> {
    let mut sums = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains(" age=")) {
        let (count, rest) = line.trim().split_once(' ').unwrap();
        let place = rest.split(" age=").next().unwrap().split(" waste=").next().unwrap();
        let sum: &mut Vec<u64> = sums.entry(site(place)).or_insert_with(|| vec![0; 2]);
        sum[0] += count.parse::<u64>().unwrap();
        sum[1] += behind(line, " waste=").unwrap_or(0);
    }
    sums
}

fn has_the_counts_of_traces(guest: &str, cache: &str) {
    let dir = Directory::new(&[]);
    let (path, text) = unpacked(&dir, guest, &format!("slab/{cache}/alloc_traces"));
    let sites = document(&["sites"], &path);
    let expected = sums_of_traces(&text);
    assert!(expected.len() > 10, "{expected:?}");
    assert_eq!(rows(&sites, &["symbol", "module"], &["live_objects", "live_wasted"]), expected);
    let objects: u64 = expected.values().map(|sums| sums[0]).sum();
    let caches = document(&["caches"], &path);
    let bytes = objects * cache.trim_start_matches("kmalloc-").parse::<u64>().unwrap();
    let whole = BTreeMap::from([(format!("{cache} kmalloc"), vec![objects, bytes])]);
    assert_eq!(rows(&caches, &["cache", "kind"], &["live_objects", "live_allocated"]), whole);
}

#[test]
fn lists_of_caches_have_the_kernels_counts() {
    for (guest, cache) in [
        (OLD, "kmalloc-64"),
        (OLD, "kmalloc-128"),
        (NEW, "kmalloc-64"),
        (SMALL[0], "kmalloc-64"),
        (SMALL[1], "kmalloc-64"),
    ] {
        has_the_counts_of_traces(guest, cache);
    }
    let dir = Directory::new(&[]);
    let (frees, _) = unpacked(&dir, OLD, "slab/kmalloc-128/free_traces");
    assert_refused(2, &["sites"], &frees, "previous free");
}

#[test]
fn slabinfo_has_the_kernels_columns() {
    [OLD, NEW].into_iter().for_each(has_the_columns_of_slabinfo);
}

fn has_the_columns_of_slabinfo(guest: &str) {
    let dir = Directory::new(&[]);
    let (path, text) = unpacked(&dir, guest, "slabinfo");
    let mut expected = BTreeMap::new();
    for line in text.lines().skip(2) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| columns[at].parse::<u64>().unwrap();
        let slabs = number(14);
        expected.insert(columns[0].to_owned(), vec![number(1), number(1) * number(3), slabs * number(5) * 4096]);
    }
    let caches = document(&["caches"], &path);
    let mut found = rows(&caches, &["cache"], &["live_objects", "live_allocated"]);
    for row in caches["rows"].as_array().unwrap() {
        found.get_mut(row["cache"].as_str().unwrap()).unwrap().push(row["slab"]["bytes"].as_u64().unwrap());
    }
    assert_eq!((found.len() > 100, &found), (true, &expected));
}

#[test]
fn areas_of_vmalloc_have_the_kernels_sizes() {
    [OLD, NEW].into_iter().for_each(has_the_sizes_of_vmallocinfo);
}

fn has_the_sizes_of_vmallocinfo(guest: &str) {
    let dir = Directory::new(&[]);
    let (path, text) = unpacked(&dir, guest, "vmallocinfo");
    let sizes = text.lines().map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap());
    let pages: u64 = text.lines().filter_map(|line| behind(line, " pages=")).sum();
    let sites = document(&["sites"], &path);
    let sum =
        |member: &str| -> u64 { sites["rows"].as_array().unwrap().iter().filter_map(|row| row[member].as_u64()).sum() };
    assert_eq!((sum("live_allocated"), sum("live_pages")), (sizes.sum(), pages));
    assert_eq!(sum("live_objects"), text.lines().count() as u64);
}

#[test]
fn counters_of_a_guest_are_parts_of_its_memory() {
    let dir = Directory::new(&[]);
    let (path, text) = unpacked(&dir, OLD, "meminfo");
    let value = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    let balance = document(&["balance"], &path);
    assert_eq!(
        (balance["memtotal"].as_u64(), balance["memfree"].as_u64()),
        (Some(value("MemTotal:")), Some(value("MemFree:")))
    );
    let part = |name: &str| {
        let parts = balance["parts"].as_array().unwrap();
        parts.iter().find(|part| part["part"] == name).unwrap_or_else(|| panic!("{name}: {parts:?}"))["bytes"].as_u64()
    };
    assert_eq!(part("slab unreclaimable"), Some(value("SUnreclaim:")));
}

/// The module's init function, which has allocated the objects, is gone when the cache is destroyed.
#[test]
fn objects_left_in_a_cache_are_those_of_the_log() {
    let dir = Directory::new(&[]);
    let (path, text) = unpacked(&dir, OLD, "dmesg");
    let objects = text.lines().filter(|line| line.contains("Object 0x")).count();
    let caches = document(&["caches"], &path);
    let row = &caches["rows"][0];
    assert_eq!((row["cache"].as_str(), row["kind"].as_str()), (Some("kmemtext_node"), Some("cache")));
    assert_eq!((row["live_objects"].as_u64(), objects), (Some(10), 10));
    let sites = document(&["sites"], &path);
    assert_eq!(
        (&sites["rows"][0]["symbol"], &sites["rows"][0]["call_site"]),
        (&Value::Null, &"0xffffffffc02c9084".into())
    );
    let trace = &sites["trace"];
    assert_eq!((trace["kernel"].as_str(), trace["arch"].as_str()), (Some("6.1.0-56-cloud-amd64"), Some("x86_64")));
    let (path, _) = unpacked(&dir, OLD, "slab/kmemtext_node/alloc_traces");
    let sites = document(&["sites", "--object-size", "200"], &path);
    let row = &sites["rows"][0];
    assert_eq!((row["live_objects"].as_u64(), row["live_allocated"].as_u64()), (Some(100), Some(20_000)));
}

#[test]
fn a_log_without_a_report_is_told() {
    let dir = Directory::new(&[]);
    let (path, _) = unpacked(&dir, NEW, "dmesg");
    assert_refused(3, &["summary"], &path, "a kernel log without a report on memory");
}

/// Blocks and pages of each group of page_owner_sort, by what stands behind `word` on its line.
fn culled(text: &str, word: &str) -> BTreeMap<String, Vec<u64>> {
    let groups = text.lines().filter_map(|line| Some((line, line.split_once(word)?.1.trim())));
    let counts = |line: &str| {
        let (blocks, rest) = line.split_once(" times, ").unwrap();
        [blocks, rest.split(' ').next().unwrap()].map(|number| number.parse().unwrap()).to_vec()
    };
    groups.map(|(line, name)| (name.trim_end_matches(':').to_owned(), counts(line))).collect()
}

#[test]
fn owners_are_those_of_page_owner_sort() {
    for guest in SMALL {
        let dir = Directory::new(&[]);
        let (path, _) = unpacked(&dir, guest, "page_owner");
        for (key, member, word) in
            [("pid", "pid", " PID "), ("tgid", "tgid", " TGID "), ("name", "comm", " task_comm_name: ")]
        {
            let expected = culled(&unpacked(&dir, guest, &format!("culled-{key}")).1, word);
            let found = document(&["sites", "--cull", key], &path);
            assert!(expected.len() > 10, "{guest} {key}: {expected:?}");
            assert_eq!(rows(&found, &[member], &["live_objects", "live_pages"]), expected, "{guest} {key}");
        }
    }
}

/// Groups of a list of page_owner_sort by stack: blocks and pages, the stacks of before page_owner was at work and those that it did not
/// store as one group each, as the report has them.
fn groups_by_stack(text: &str) -> Vec<[u64; 2]> {
    let mut groups: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for group in text.split("\n\n").filter(|group| group.contains(" times, ")) {
        let (head, stack) = group.trim_start().split_once('\n').unwrap_or((group, ""));
        let first = stack.trim_start().split('+').next().unwrap_or("");
        let is_made_up = matches!(first, "register_early_stack" | "register_dummy_stack" | "register_failure_stack");
        let sum = groups.entry(if is_made_up { first } else { stack }.to_owned()).or_default();
        let mut numbers = head.split(' ').filter_map(|word| word.parse::<u64>().ok());
        sum.iter_mut().for_each(|sum| *sum += numbers.next().unwrap());
    }
    let mut groups: Vec<[u64; 2]> = groups.into_values().collect();
    groups.sort_unstable();
    groups
}

#[test]
fn stacks_are_those_of_page_owner_sort() {
    for guest in SMALL {
        let dir = Directory::new(&[]);
        let (path, _) = unpacked(&dir, guest, "page_owner");
        let expected = groups_by_stack(&unpacked(&dir, guest, "culled-stacktrace").1);
        let found = document(&["sites", "--cull", "stacktrace"], &path);
        let rows = found["rows"].as_array().unwrap().iter();
        let mut found: Vec<[u64; 2]> =
            rows.map(|row| ["live_objects", "live_pages"].map(|member| row[member].as_u64().unwrap())).collect();
        found.sort_unstable();
        assert!(found.len() > 100);
        assert_eq!(found, expected, "{guest}");
    }
}

#[test]
fn sorted_owners_have_the_sites_of_the_dump() {
    for guest in SMALL {
        let dir = Directory::new(&[]);
        let sites = |name| {
            let (path, _) = unpacked(&dir, guest, name);
            rows(&document(&["sites"], &path), &["symbol", "module", "through"], &["live_objects", "live_pages"])
        };
        let dump = sites("page_owner");
        assert!(dump.len() > 50, "{dump:?}");
        assert_eq!(sites("sorted"), dump, "{guest}");
    }
}

#[test]
fn stacks_that_the_kernel_lists_have_its_pages() {
    let dir = Directory::new(&[]);
    let (path, text) = unpacked(&dir, SMALL[0], "show_stacks");
    let pages: Vec<u64> = text.lines().filter_map(|line| behind(line, "nr_base_pages: ")).collect();
    let sites = document(&["sites"], &path);
    let found = rows(&sites, &["kind"], &["live_pages"]);
    assert_eq!((pages.len() > 100, found), (true, BTreeMap::from([("pages".to_owned(), vec![pages.iter().sum()])])));
}

#[test]
fn lines_of_allocinfo_have_the_kernels_sums() {
    let dir = Directory::new(&[]);
    let (path, text) = unpacked(&dir, SMALL[0], "allocinfo");
    let mut expected = BTreeMap::new();
    for line in text.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [bytes, calls] = [words[0], words[1]].map(|number| number.parse::<u64>().unwrap());
        let function = line.split_once("func:").unwrap().1.trim();
        let module =
            words.iter().find_map(|word| word.strip_prefix('[')).map_or("null", |word| word.trim_end_matches(']'));
        let sum: &mut Vec<u64> = expected.entry(format!("{function} {module}")).or_insert_with(|| vec![0; 2]);
        sum.iter_mut().zip([bytes, calls]).for_each(|(sum, number)| *sum += number);
    }
    let found = rows(&document(&["sites"], &path), &["symbol", "module"], &["live_allocated", "live_objects"]);
    assert_eq!((found.len() > 500, found), (true, expected));
}
