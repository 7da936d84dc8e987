//! Tests of names beyond symbols: source files, folders, wrappers, areas and the tree over them, on a recording of a real kernel.

use std::path::PathBuf;

use kmemtrace_tests::programs::{data, json, run, run_to};
use kmemtrace_tests::recording::Directory;
use serde_json::{Value, json};

const REPORT: &str = "kmemtrace-report";

/// Source files of functions of the recording, as `names` writes them: a version line and packed text.
const MAP: &str = "/fs/pipe.c\nalloc_pipe_info\n/net/socket.c\nsock_alloc_inode\n/fs/eventpoll.c\ndo_epoll_create\n\
                   /net/core/skbuff.c\n__alloc_skb\n";

/// Folder with a map, wrappers and areas.
fn files() -> Directory {
    let dir = Directory::new(&[]);
    let packed = zstd::encode_all(MAP.as_bytes(), 3).unwrap();
    dir.write("map", &[b"kmemtrace.names/1\n", &packed[..]].concat());
    dir.write("wrappers", b"# mine\nalloc_pipe_*\n");
    dir.write("areas", b"PIPES\tfs/pipe.c\nNETWORKING\tnet/*\n");
    dir
}

/// Document of a view with the map.
fn document(files: &Directory, arguments: &[&str]) -> Value {
    let map = files.file("map").display().to_string();
    let line = [arguments, &["--format", "json", "--names", &map]].concat();
    json(&run_to(0, REPORT, &line, &[&data("amd64-6.1")]))
}

fn number(value: &Value, member: &str) -> u64 {
    value[member].as_u64().unwrap_or_else(|| panic!("{member} of {value}"))
}

fn child<'v>(node: &'v Value, name: &str) -> &'v Value {
    let children = node["children"].as_array().unwrap_or_else(|| panic!("children of {node}"));
    children.iter().find(|child| child["name"] == name).unwrap_or_else(|| panic!("no {name} in {node}"))
}

/// Checks that the figures of each node are the sums of its children's.
fn assert_sums(node: &Value) {
    let children = node["children"].as_array().unwrap_or_else(|| panic!("children of {node}"));
    for member in ["allocs", "requested", "allocated", "wasted", "frees", "live_objects", "live_allocated"] {
        let sum: u64 = children.iter().map(|child| number(child, member)).sum();
        assert!(children.is_empty() || sum == number(node, member), "{member}: {sum} in {node}");
    }
    children.iter().for_each(assert_sums);
}

#[test]
fn the_tree_sums_up_and_its_root_is_the_summary() {
    let files = files();
    let tree = document(&files, &["tree"]);
    let summary = document(&files, &["summary"]);
    assert_sums(&tree["root"]);
    for member in ["allocs", "failed_allocs", "allocated", "wasted", "frees", "inferred_frees", "live_allocated"] {
        assert_eq!(tree["root"][member], summary["total"][member], "{member}");
    }
    assert_eq!((&tree["schema"], &tree["query"]["by"]), (&json!("kmemtrace.tree/1"), &json!(["folder"])));
    assert_eq!(tree["names"]["kernel"]["from"], "map");
    let fs = child(&tree["root"], "fs");
    let pipe = child(child(fs, "pipe.c"), "alloc_pipe_info");
    assert_eq!((&pipe["kind"], number(pipe, "allocs")), (&json!("function"), 512));
    assert!(child(&tree["root"], "(no folder known)")["kind"] == "unknown");
    let pages = document(&files, &["tree", "--kind", "pages"]);
    assert_eq!(pages["root"]["allocs"], summary["kinds"]["pages"]["allocs"], "a tree of pages has nothing else");
    let folded = document(&files, &["tree", "-n", "1", "--depth", "1"]);
    assert_sums(&folded["root"]);
    assert_eq!(folded["root"]["children"][1]["kind"], "others");
}

#[test]
fn a_branch_is_a_filter_of_every_view() {
    let files = files();
    let tree = document(&files, &["tree"]);
    let fs = child(&tree["root"], "fs");
    for (view, total) in [("summary", "total"), ("tree", "root")] {
        let branch = document(&files, &[view, "--branch", "fs/"]);
        assert_eq!(branch[total]["allocated"], fs["allocated"], "{view}");
        assert_eq!(branch["query"]["filters"]["branch"], json!(["fs/"]));
    }
    let sites = document(&files, &["sites", "-b", "fs/pipe.c,net"]);
    let rows = sites["rows"].as_array().unwrap_or_else(|| panic!("{sites}"));
    let folders: Vec<&str> = rows.iter().filter_map(|row| row["folder"].as_str()).collect();
    assert!(folders.len() == rows.len() && folders.contains(&"net/core"), "{folders:?}");
    let refused = |branch: &str| {
        let map = files.file("map").display().to_string();
        let output = run(REPORT, &["sites", "--names", &map, "-b", branch], &[&data("amd64-6.1")]);
        assert_eq!(output.status.code(), Some(2), "{branch}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Whole components: `fs/pip` is no folder of `fs/pipe.c`.
    assert!(refused("fs/pip").contains("did you mean fs/pipe.c"));
    assert!(refused("/fs").contains("a branch is a folder of the kernel's sources"));
}

#[test]
fn rows_have_frames_sources_and_folders() {
    let files = files();
    let sites = document(&files, &["sites"]);
    let row = |document: &Value, function: &str| -> Value {
        let rows = document["rows"].as_array().unwrap_or_else(|| panic!("{document}")).clone();
        let is_meant = |row: &Value| row["symbol"].as_str().is_some_and(|symbol| symbol.starts_with(function));
        rows.into_iter().find(is_meant).unwrap_or_else(|| panic!("no {function}"))
    };
    let pipe = row(&sites, "alloc_pipe_info+");
    let source = json!({ "function": "alloc_pipe_info", "file": "fs/pipe.c", "line": null });
    let mut frame = source.clone();
    frame["inlined"] = json!(false);
    assert_eq!((&pipe["source"], &pipe["frames"]), (&source, &json!([frame])));
    assert_eq!((&pipe["folder"], &pipe["folder_from"], &pipe["wrapper"]), (&json!("fs"), &json!("map"), &Value::Null));
    let skb = row(&sites, "__alloc_skb+");
    assert_eq!((&skb["wrapper"], &skb["folder"]), (&json!("__alloc_skb"), &json!("net/core")));
    let file = row(&sites, "__alloc_file+");
    assert_eq!((&file["source"]["file"], &file["folder"]), (&Value::Null, &Value::Null));

    let wrappers = files.file("wrappers").display().to_string();
    let own = document(&files, &["sites", "--wrappers", &wrappers]);
    assert_eq!(row(&own, "alloc_pipe_info+")["wrapper"], "alloc_pipe_info");
    assert_eq!(row(&own, "__alloc_skb+")["wrapper"], Value::Null, "the list takes the place of the built-in one");
    let none = document(&files, &["sites", "--wrappers", "none"]);
    assert!(none["rows"].as_array().is_some_and(|rows| rows.iter().all(|row| row["wrapper"].is_null())));
}

#[test]
fn groups_and_areas_add_up_to_the_tree() {
    let files = files();
    let tree = document(&files, &["tree"]);
    let folders = document(&files, &["sites", "--by", "folder"]);
    let of_folder = |name: &str| -> u64 {
        let rows = folders["rows"].as_array().unwrap_or_else(|| panic!("{folders}"));
        rows.iter()
            .filter(|row| row["folder"] == name && row["kind"] != "pages")
            .map(|row| number(row, "allocated"))
            .sum()
    };
    assert_eq!(of_folder("fs"), number(child(&tree["root"], "fs"), "allocated"));
    assert_eq!(of_folder("net") + of_folder("net/core"), number(child(&tree["root"], "net"), "allocated"));
    let areas = files.file("areas").display().to_string();
    let by_area = document(&files, &["tree", "--by", "area", "--areas", &areas]);
    assert_sums(&by_area["root"]);
    let networking = child(&by_area["root"], "NETWORKING");
    assert_eq!(
        (&networking["kind"], &networking["allocated"]),
        (&json!("area"), &child(&tree["root"], "net")["allocated"])
    );
    assert_eq!(number(child(&by_area["root"], "PIPES"), "allocs"), 512);
}

#[test]
fn files_that_are_no_use_are_refused_in_one_line() {
    let files = files();
    files.write("text", b"no map, no kernel\n");
    let text = files.file("text").display().to_string();
    let missing = files.file("missing").display().to_string();
    for line in [
        ["sites", "--names", &text],
        ["sites", "--names", &missing],
        ["sites", "--vmlinux", &text],
        ["summary", "--vmlinux", &missing],
        ["tree", "--kernel", &missing],
        ["tree", "--areas", &text],
        ["tree", "--wrappers", &missing],
    ] {
        let output = run(REPORT, &line, &[&data("amd64-6.1")]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{line:?}: {said}");
        assert!(said.contains(line[2]) && output.stdout.is_empty(), "{line:?}: {said}");
    }
}

#[test]
fn every_sample_has_a_tree_that_sums_up() {
    let samples = ["amd64-6.18", "amd64-6.1-lossy", "i386-6.1", "ppc64el-6.1", "arm64-16k-6.12", "s390x-6.1"];
    let files = files();
    let map = files.file("map").display().to_string();
    for sample in samples {
        let trace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data").join(sample);
        let document = |view: &str| json(&run_to(0, REPORT, &[view, "--format", "json", "--names", &map], &[&trace]));
        let (tree, summary) = (document("tree"), document("summary"));
        assert_sums(&tree["root"]);
        for member in ["allocs", "requested", "allocated", "wasted", "frees", "live_allocated", "live_wasted"] {
            assert_eq!(tree["root"][member], summary["total"][member], "{sample}: {member}");
        }
        // The load of the guests opens sockets, that of the other machine none.
        assert!(sample == "amd64-6.18" || number(child(&tree["root"], "net"), "allocs") > 0, "{sample}");
    }
}

/// Nodes of a tree with the path of each, folders and files joined by slashes.
fn each_node<'v>(node: &'v Value, path: &str, take: &mut dyn FnMut(&'v Value, &str)) {
    take(node, path);
    for child in node["children"].as_array().unwrap_or_else(|| panic!("children of {node}")) {
        let name = child["name"].as_str().unwrap_or_else(|| panic!("name of {child}"));
        each_node(child, &[path, name].join("/"), take);
    }
}

#[test]
fn each_node_of_a_tree_of_folders_has_the_peak_of_its_own_objects() {
    let files = files();
    let peak = |of: &Value| number(of, "peak_live_allocated");
    let tree = document(&files, &["tree"]);
    let (mut checked, mut sums_differ) = (0, false);
    each_node(&tree["root"], "", &mut |node, path| {
        let is_of_sources = ["folder", "file"].contains(&node["kind"].as_str().unwrap_or_default());
        if is_of_sources && !path.is_empty() {
            let alone = document(&files, &["summary", "--branch", &path[1..]]);
            assert_eq!(peak(node), peak(&alone["total"]), "{path}");
            checked += 1;
        }
        let children: Vec<u64> = node["children"].as_array().map_or(&[][..], |all| all).iter().map(peak).collect();
        assert!(children.iter().all(|child| *child <= peak(node)), "{path}");
        sums_differ |= !children.is_empty() && children.iter().sum::<u64>() != peak(node);
    });
    assert_eq!((checked, sums_differ), (7, true), "the map has so many folders and files");
    assert_eq!(peak(&tree["root"]), peak(&document(&files, &["summary"])["total"]));
    for (by, kind) in [("file", "file"), ("function", "function"), ("site", "site"), ("area", "area")] {
        let areas = files.file("areas").display().to_string();
        let areas = if by == "area" { &["--by", "area", "--areas", &areas][..] } else { &[] };
        let tree = document(&files, &[&["tree", "--kind", "cache"][..], areas].concat());
        let areas = if by == "area" { &areas[2..] } else { &[] };
        let rows = document(&files, &[&["sites", "--kind", "cache", "--by", by][..], areas].concat());
        let rows = rows["rows"].as_array().unwrap_or_else(|| panic!("{rows}"));
        let named = rows.iter().filter(|row| !row[if by == "site" { "call_site" } else { by }].is_null());
        let mut wanted: Vec<u64> = named.map(peak).collect();
        let mut found = Vec::new();
        each_node(&tree["root"], "", &mut |node, _| found.extend((node["kind"] == kind).then(|| peak(node))));
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, wanted, "{by}");
        assert!(!found.is_empty(), "{by}");
    }
    let one = document(&files, &["tree", "-j", "1"]);
    assert_eq!((&one["root"], &document(&files, &["tree", "-j", "8"])["root"]), (&tree["root"], &tree["root"]));
}

#[test]
fn folders_come_by_their_peaks_and_their_growth() {
    let files = files();
    for (sort, member) in [("peak", "peak_live_allocated"), ("growth", "grew")] {
        let tree = document(&files, &["tree", "--sort", sort]);
        each_node(&tree["root"], "", &mut |node, path| {
            let figures = node["children"].as_array().map_or(&[][..], |all| all).iter();
            let figures: Vec<i64> = figures.map(|child| child[member].as_i64().unwrap_or(i64::MIN)).collect();
            assert!(figures.is_sorted_by(|a, b| a >= b) && !figures.contains(&i64::MIN), "{sort}: {path}");
        });
    }
    let kept = document(&files, &["tree", "--throttle", "50"]);
    assert_sums(&kept["root"]);
    let children = kept["root"]["children"].as_array().unwrap_or_else(|| panic!("{kept}"));
    assert_eq!(children.last().map(|child| &child["kind"]), Some(&json!("others")));
    let greatest = number(&children[0], "live_allocated") + number(&children[1], "live_allocated");
    assert!(children.len() == 3 && greatest * 2 >= number(&kept["root"], "live_allocated"), "{kept}");
}
