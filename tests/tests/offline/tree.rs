//! Captured trees, generated for any machine: reports equal the reference's, missing files are named, and no damage
//! stops a reader.

use std::fs;
use std::path::Path;

use kmemtrace_abi::text::units;
use kmemtrace_tests::archive;
use kmemtrace_tests::generate::{Options, Random, Shape, tree, workload};
use kmemtrace_tests::programs::{document, json, run, run_to};
use kmemtrace_tests::recording::{Directory, random_tree};
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::runs::{self, seeds};
use kmemtrace_tests::views::{assert_invariants, assert_views, printed};
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";

fn check(path: &Path) -> (Option<i32>, Value) {
    let output = run("kmemtrace-check", &["--format", "json"], &[path]);
    (output.status.code(), json(&output.stdout))
}

/// Whole tree of some events on two CPUs.
fn plain(seed: u64) -> Directory {
    Directory::new(&tree(&workload(seed, &Options::plain(Shape::plain(), 2, 400)), seed))
}

#[test]
fn reports_of_trees_equal_the_reference() {
    for seed in seeds(0..25) {
        let (options, workload) = random_tree(seed, 600);
        let dir = Directory::new(&tree(&workload, seed));
        let what = format!("seed {seed}, {:?}", options.shape);
        assert_views(&what, dir.path(), &Known::of_tree(workload));
        assert_invariants(&what, dir.path());
    }
}

#[test]
fn a_whole_tree_is_ok_and_a_cut_one_is_truncated() {
    let dir = plain(1);
    let (status, found) = check(dir.path());
    assert_eq!((status, &found["truncated"]), (Some(0), &0.into()), "{found}");
    let raw = dir.file("per_cpu/cpu1/trace_pipe_raw");
    let whole = fs::read(&raw).unwrap();
    for len in [1, 15, 4095, 4097, whole.len() - 1] {
        fs::write(&raw, &whole[..len]).unwrap();
        let (status, found) = check(dir.path());
        assert_eq!((status, &found["truncated"]), (Some(1), &1.into()), "{len}: {found}");
        let completeness = json(&printed("summary", dir.path()))["completeness"].clone();
        assert_eq!(completeness["verdict"], "truncated", "{len}");
        assert_eq!(completeness["truncated_files"][0], "per_cpu/cpu1/trace_pipe_raw");
    }
    // A cut at the end of a sub-buffer shows only in the kernel's count.
    fs::write(&raw, &whole[..4096]).unwrap();
    assert!(check(dir.path()).1.to_string().contains("K503"));
    fs::remove_file(&raw).unwrap();
    assert_eq!(json(&printed("summary", dir.path()))["completeness"]["missing_cpus"], Value::from(vec![1]));
}

#[test]
fn one_cpus_file_is_enough_to_be_checked() {
    let dir = plain(2);
    let (status, found) = check(&dir.file("per_cpu/cpu1/trace_pipe_raw"));
    assert_eq!(status, Some(0), "{found}");
    assert_eq!((&found["files"][0]["cpu"], found["files"].as_array().map(Vec::len)), (&1.into(), Some(1)));
    assert!(found["files"][0]["events"].as_u64() > Some(10));
}

#[test]
fn texts_that_were_not_copied_are_named() {
    for name in ["trace_clock", "uname", "page_size", "saved_cmdlines", "per_cpu/cpu0/stats", "events/header_page"] {
        let dir = plain(3);
        fs::remove_file(dir.file(name)).unwrap();
        let (status, found) = check(dir.path());
        assert_eq!(status, Some(0), "{name}: {found}");
        let said = found.to_string();
        assert!(said.contains("K502") && said.contains(name.rsplit('/').next().unwrap()), "{name}: {found}");
        assert_eq!(json(&printed("summary", dir.path()))["completeness"]["verdict"], "complete", "{name}");
    }
    let dir = plain(3);
    fs::remove_dir_all(dir.file("events/kmem/kfree")).unwrap();
    let (status, found) = check(dir.path());
    assert!(status == Some(0) && found.to_string().contains("events/kmem/kfree/format is missing"), "{found}");
    // Without formats all events would be other events, and the report must refuse that.
    for gone in ["events/kmem", "events"] {
        fs::remove_dir_all(dir.file(gone)).unwrap();
        let output = run("kmemtrace-report", &[], &[dir.path()]);
        assert_eq!(output.status.code(), Some(3), "{gone}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("no events/kmem/*/format"), "{gone}");
    }
}

#[test]
fn without_stats_the_marks_tell_what_was_lost() {
    let mut options = Options::plain(Shape::plain(), 2, 800);
    (options.loss, options.uncounted) = (true, false);
    // Loss behind the last event has no mark: this seed has none there.
    let files = tree(&workload(2, &options), 2);
    let with = Directory::new(&files);
    let without = Directory::new(&files.into_iter().filter(|(name, _)| !name.ends_with("stats")).collect::<Vec<_>>());
    let lost = |dir: &Directory| json(&printed("summary", dir.path()))["completeness"]["lost_events"].clone();
    assert!(lost(&with).as_u64() > Some(0));
    assert_eq!(lost(&with), lost(&without));
}

#[test]
fn damage_anywhere_stops_no_reader() {
    let dir = plain(5);
    let mut random = Random::new(5);
    for file in ["per_cpu/cpu0/trace_pipe_raw", "events/header_page", "events/kmem/kfree/format", "per_cpu/cpu0/stats"]
    {
        let whole = fs::read(dir.file(file)).unwrap();
        for _ in 0..runs::number(20, 60) {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(4) {
                let bit = random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            dir.write(file, &bytes);
            let status = run("kmemtrace-check", &[], &[dir.path()]).status.code();
            assert!(matches!(status, Some(0 | 1 | 3)), "{file}: {status:?}");
            let status = run("kmemtrace-report", &["sites", "--format", "json"], &[dir.path()]).status.code();
            assert!(matches!(status, Some(0 | 3)), "{file}: {status:?}");
        }
        dir.write(file, &whole);
    }
}

#[test]
fn figures_at_a_time_are_those_of_the_events_until_then() {
    let dir = Directory::new(&[]);
    let tree = archive::unpack("tree-stacks-amd64-6.1", dir.path()).unwrap();
    for view in [&["tasks"][..], &["uses"], &["modules"], &["tree", "--by", "stack"]] {
        let document = |time: &[&str]| {
            let arguments = [view, time, &["--format", "json"]].concat();
            json(&run("kmemtrace-report", &arguments, &[&tree]).stdout)
        };
        let (until, at, all) = (document(&["--time", ",20%"]), document(&["--at", "20%"]), document(&[]));
        assert_eq!(until, at, "{view:?}");
        assert_ne!(all["events"], at["events"], "{view:?}: all events count");
        let before = run("kmemtrace-report", &[view, &["--at", "-1h"]].concat(), &[&tree]).stderr;
        assert!(String::from_utf8_lossy(&before).contains("--at: no events in this window"), "{view:?}");
    }
}

#[test]
fn a_recording_of_pages_alone_has_trees_accounts_and_pictures_of_pages() {
    let place = Directory::new(&[]);
    let trace = archive::unpack("tree-stacks-amd64-6.1", place.path()).unwrap();
    let of = |view: &str| document(&[view], &trace);
    let (pages, tree) = (of("summary")["kinds"]["pages"].clone(), of("tree"));
    assert!(pages["allocs"].as_u64() > Some(0), "{pages}");
    assert_eq!(tree["shows"], "pages");
    for figure in ["allocs", "live_allocated", "peak_live_allocated"] {
        assert_eq!(tree["root"][figure], pages[figure], "{figure}");
    }
    let table = String::from_utf8(run_to(0, REPORT, &["tree"], &[&trace])).unwrap();
    assert!(table.lines().next().unwrap().contains("   pages   "), "{table}");
    assert_eq!(of("account")["total"]["live_allocated"], pages["live_allocated"]);
    let account = run(REPORT, &["account"], &[&trace]);
    let said = String::from_utf8_lossy(&account.stderr);
    assert!(said.contains("these are callers of pages"), "{said}");
    let picture = place.file("pages.svg");
    run_to(0, REPORT, &["chart", "-o", picture.to_str().unwrap()], &[&trace]);
    let (picture, live) = (fs::read_to_string(picture).unwrap(), pages["live_allocated"].as_u64().unwrap());
    let live = format!("({} bytes)", units::grouped(live));
    assert!(picture.contains(" · pages") && picture.contains(&live), "{live}");
    // Nothing is left by the filters: kinds that were asked for stay.
    assert_eq!(document(&["tree", "--kind", "cache"], &trace)["shows"], "slab");
}

#[test]
fn uses_of_slab_objects_alone_name_the_option_and_a_share_of_nothing_is_refused() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/amd64-6.1");
    let uses = String::from_utf8(run_to(0, REPORT, &["uses"], &[&data])).unwrap();
    assert!(uses.contains("kmemtraced -e page") && !uses.contains("Live pages"), "{uses}");
    let refused = run(REPORT, &["tree", "--throttle", "0"], &[&data]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("above 0 and up to 100"), "{said}");
}
