//! `trace.dat` and `perf.data` of five machines, in `tests/data/other-programs`: their known figures, and every view compared with the
//! reference.

use std::path::PathBuf;

use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::guest::checked;
use kmemtrace_tests::programs::{data, document, run_to, text};
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::views::{assert_invariants, assert_views};
use serde_json::{Value, json};

/// A machine, and what `perf kmem` and `perf script` print of its events (for ppc64el, whose `perf.data` went through a pipe, a script).
struct Machine {
    name: &'static str,
    arch: &'static str,
    endian: &'static str,
    word_bytes: u64,
    page_bytes: u64,
    /// Events of `kmalloc`, `kmem_cache_alloc`, `kfree` and `kmem_cache_free`.
    events: [u64; 4],
    /// Bytes requested, allocated, and wasted.
    bytes: [u64; 3],
}

const MACHINES: [Machine; 5] = [
    Machine {
        name: "amd64-6.1",
        arch: "x86_64",
        endian: "little",
        word_bytes: 8,
        page_bytes: 4096,
        events: [110, 444, 104, 258],
        bytes: [259_166, 266_776, 7610],
    },
    Machine {
        name: "i386-6.1",
        arch: "i686",
        endian: "little",
        word_bytes: 4,
        page_bytes: 4096,
        events: [149, 650, 160, 383],
        bytes: [307_238, 315_552, 8314],
    },
    Machine {
        name: "ppc64el-6.1",
        arch: "ppc64le",
        endian: "little",
        word_bytes: 8,
        page_bytes: 65536,
        events: [287, 1171, 309, 706],
        bytes: [843_390, 881_856, 38_466],
    },
    Machine {
        name: "arm64-16k-6.12",
        arch: "aarch64",
        endian: "little",
        word_bytes: 8,
        page_bytes: 16384,
        events: [150, 577, 152, 361],
        bytes: [351_686, 369_992, 18_306],
    },
    Machine {
        name: "s390x-6.1",
        arch: "s390x",
        endian: "big",
        word_bytes: 8,
        page_bytes: 4096,
        events: [104, 448, 101, 263],
        bytes: [274_870, 286_320, 11_450],
    },
];

/// Name of the input, and the file.
fn files(machine: &Machine) -> [(&'static str, PathBuf); 2] {
    ["trace.dat", "perf.data"]
        .map(|input| (input, data("other-programs").join(format!("{}.{input}.zst", machine.name))))
}

#[test]
fn each_has_the_figures_that_other_programs_print() {
    for machine in &MACHINES {
        for (input, file) in files(machine) {
            let what = format!("{}, {input}", machine.name);
            let all: u64 = machine.events.iter().sum();
            assert_eq!(checked(&file), ("ok".to_owned(), all), "{what}");
            let summary = document(&["summary"], &file);
            let trace = &summary["trace"];
            let source = if input == "trace.dat" { json!("tracefs") } else { Value::Null };
            for (member, expected) in [
                ("input", json!(input)),
                ("source", source),
                ("arch", json!(machine.arch)),
                ("endian", json!(machine.endian)),
                ("word_bytes", json!(machine.word_bytes)),
                ("page_bytes", json!(machine.page_bytes)),
                ("clock", json!("mono")),
                ("scope", Value::Null),
                ("cpus", json!(2)),
            ] {
                assert_eq!(trace[member], expected, "{what}: {member}");
            }
            let found = ["requested", "allocated", "wasted"].map(|member| summary["total"][member].as_u64().unwrap());
            assert_eq!(found, machine.bytes, "{what}");
            let events = text(&run_to(0, "kmemtrace-report", &["events"], &[&file]));
            let count = |name: &str| events.matches(&format!("\"event\":\"{name}\"")).count() as u64;
            let found = ["kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free"].map(count);
            assert_eq!(found, machine.events, "{what}");
        }
    }
}

#[test]
fn reports_equal_the_reference() {
    for machine in &MACHINES {
        for (input, file) in files(machine) {
            let what = format!("{}, {input}", machine.name);
            assert_views(&what, &file, &Known::of_trace(Trace::open(std::slice::from_ref(&file)).unwrap()));
            assert_invariants(&what, &file);
        }
    }
}

/// Both files of a machine hold the same records of the kernel.
#[test]
fn both_programs_files_have_the_same_rows() {
    for machine in &MACHINES {
        for view in ["sites", "mismatch", "cross"] {
            let [dat, perf] = files(machine).map(|(_, file)| {
                let mut rows = document(&[view], &file)["rows"].take();
                for row in rows.as_array_mut().unwrap() {
                    // perf.data has no symbols.
                    let of_symbols = ["symbol", "frames", "source", "folder", "folder_from", "wrapper", "module"];
                    let is_of_symbol = |name: &str| of_symbols.iter().any(|end| name.ends_with(end));
                    row.as_object_mut().unwrap().retain(|name, _| !is_of_symbol(name));
                }
                rows
            });
            assert_eq!(dat, perf, "{}: {view}", machine.name);
        }
    }
}
