//! Recordings of many real machines, in `tests/data`: their known contents, and every view compared with the
//! reference.

use std::collections::BTreeSet;
use std::path::PathBuf;

use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::archive;
use kmemtrace_tests::guest::checked;
use kmemtrace_tests::programs::{data, differences, document, json, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::runs;
use kmemtrace_tests::views::{assert_invariants, assert_views, printed};
use serde_json::{Value, json};

/// Path of a recording, unpacked into a temporary directory if it is an archive.
fn sample(name: &str) -> (PathBuf, Option<Directory>) {
    let plain = data(name);
    if plain.is_dir() {
        return (plain, None);
    }
    let dir = Directory::new(&[]);
    (archive::unpack(name, dir.path()).unwrap(), Some(dir))
}

/// Per-CPU memory and areas, with stacks that the reference does not look at.
const SPACES: &str = "tree-spaces-amd64-6.18";

/// Name, verdict of the check, its events, and members of `trace` in the report.
fn samples() -> Vec<(&'static str, &'static str, u64, Value)> {
    let machine = |input: &str, arch: &str, endian: &str, word: u32, page: u32| json!({ "input": input, "source": "tracefs", "arch": arch, "endian": endian, "word_bytes": word, "page_bytes": page });
    let relay = |endian: &str| json!({ "input": "relay", "source": "relay", "endian": endian, "order": "sequence" });
    vec![
        ("amd64-6.18", "ok", 1_259, machine("kmemtrace", "x86_64", "little", 8, 4096)),
        ("amd64-6.1", "ok", 22_955, machine("kmemtrace", "x86_64", "little", 8, 4096)),
        ("amd64-6.1-lossy", "lossy", 17_473, machine("kmemtrace", "x86_64", "little", 8, 4096)),
        ("i386-6.1", "ok", 22_612, machine("kmemtrace", "i686", "little", 4, 4096)),
        ("ppc64el-6.1", "ok", 22_886, machine("kmemtrace", "ppc64le", "little", 8, 65536)),
        ("arm64-16k-6.12", "ok", 22_882, machine("kmemtrace", "aarch64", "little", 8, 16384)),
        ("s390x-6.1", "ok", 23_114, machine("kmemtrace", "s390x", "big", 8, 4096)),
        ("tree-ppc64el-6.1", "ok", 22_796, machine("tree", "ppc64le", "little", 8, 65536)),
        ("tree-s390x-6.1", "ok", 23_057, machine("tree", "s390x", "big", 8, 4096)),
        (SPACES, "ok", 542, machine("tree", "x86_64", "little", 8, 4096)),
        ("relay-amd64-6.1", "ok", 23_282, relay("little")),
        ("relay-s390x-6.1", "ok", 23_581, relay("big")),
    ]
}

#[test]
fn each_has_what_was_recorded() {
    for (name, verdict, events, machine) in samples() {
        let (trace, _dir) = sample(name);
        assert_eq!(checked(&trace), (verdict.to_owned(), events), "{name}");
        let head = json(&printed("summary", &trace));
        for (member, expected) in machine.as_object().unwrap() {
            assert_eq!(&head["trace"][member], expected, "{name}: {member}");
        }
        if verdict == "lossy" {
            // The recorder printed this number when it stopped.
            assert_eq!(head["completeness"]["lost_events"], 22_678, "{name}");
        }
    }
}

#[test]
fn the_loads_known_allocations_are_in_each() {
    for (name, verdict, _, machine) in samples() {
        if verdict == "lossy" || ["amd64-6.18", SPACES].contains(&name) {
            continue;
        }
        let (trace, _dir) = sample(name);
        let document = document(&["sites"], &trace);
        // 256 times nine iovecs, as tests/data/README.md says: sites have names where there were symbols.
        let requested = 256 * 9 * 2 * machine["word_bytes"].as_u64().unwrap_or(8);
        let is_iovec = |row: &&Value| match row["symbol"].as_str() {
            Some(symbol) => symbol.starts_with("iovec_from_user"),
            None => row["requested"] == requested && row["kind"] == "kmalloc" && row["allocs"] == 256,
        };
        let rows: Vec<&Value> = document["rows"].as_array().unwrap().iter().filter(is_iovec).collect();
        let [row] = rows[..] else { panic!("{name}: {rows:?}") };
        for (member, expected) in [("allocs", 256), ("frees", 256), ("requested", requested), ("live_objects", 0)] {
            assert_eq!(row[member], expected, "{name}: {member}");
        }
    }
}

/// Figures that a script counted in the kernel's own text of the events.
#[test]
fn per_cpu_memory_and_areas_are_those_of_the_kernels_text() {
    let (trace, _dir) = sample(SPACES);
    let summary = json(&printed("summary", &trace));
    let percpu = json!({ "allocs": 156, "frees": 154, "free_events": 162, "requested": 10_968, "live_objects": 2 });
    let vmalloc =
        json!({ "allocs": 21, "frees": 6, "free_events": 13, "requested": 430_080, "live_allocated": 307_200 });
    for (kind, want) in [("percpu", percpu), ("vmalloc", vmalloc)] {
        assert_eq!(differences(&want, &summary["kinds"][kind]), [""; 0], "{kind}");
    }
    // Stacks of processes, whose sites lie behind the allocators of address space.
    let rows =
        &json(&run_to(0, "kmemtrace-report", &["sites", "--kind", "vmalloc", "--format", "json"], &[&trace]))["rows"];
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["symbol"]), (1, &json!("copy_process+0xe41")));
}

#[test]
fn flags_have_the_names_of_each_kernel() {
    for (name, .., machine) in samples() {
        let (path, _dir) = sample(name);
        let mut trace = Trace::open(std::slice::from_ref(&path)).unwrap();
        let names = trace.metadata.gfp_names.clone();
        if machine["source"] == "relay" {
            assert!(names.is_none(), "{name}");
            continue;
        }
        let names = names.unwrap_or_else(|| panic!("{name}: no names"));
        // So they are in all kernels from 4.20 to 6.18, whatever their formats look like.
        for (flags, text) in [(0xdc0, "GFP_KERNEL|__GFP_ZERO"), (0x40_0cc0, "GFP_KERNEL_ACCOUNT"), (0, "none")] {
            assert_eq!(names.text(flags).to_string(), text, "{name}");
        }
        let (mut values, mut items) = (BTreeSet::new(), Vec::new());
        for stream in &mut trace.streams {
            while stream.fill(&mut trace.names, &mut items) {
                let gfp = |item: &StreamItem| if let StreamItem::Event(event) = item { event.gfp } else { None };
                values.extend(items.iter().filter_map(gfp));
            }
        }
        assert!(values.len() > 4 || name == SPACES && !values.is_empty(), "{name}: {values:x?}");
        for flags in values {
            let text = names.text(flags).to_string();
            assert!(!text.contains("0x"), "{name}: {flags:#x} is {text}");
            let back = text.split('|').map(|flag| names.flags(flag)).try_fold(0, |sum, flag| Some(sum | flag?));
            assert_eq!(back, Some(flags), "{name}: {text}");
        }
    }
}

#[test]
fn reports_equal_the_reference() {
    for (name, ..) in samples().into_iter().step_by(runs::step(2)) {
        let (trace, _dir) = sample(name);
        if name != SPACES {
            assert_views(name, &trace, &Known::of_trace(Trace::open(std::slice::from_ref(&trace)).unwrap()));
        }
        assert_invariants(name, &trace);
    }
}
