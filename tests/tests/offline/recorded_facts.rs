//! What a recording keeps of its machine and of its recorder, as documents and headings show it.

use kmemtrace_abi::disk::block::item;
use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{data, json, run_to};
use kmemtrace_tests::recording::Directory;
use serde_json::{Value, json};

const REPORT: &str = "kmemtrace-report";

#[test]
fn dates_command_and_red_zones_are_shown_where_the_recording_has_them() {
    let [bare, mut told] = [(), ()].map(|()| workload(5, &Options::plain(Shape::plain(), 1, 200)));
    // Nanoseconds whose bytes are characters, then those of the monotonic clock.
    let (bytes, monotonic) = ("AAAAABp\x18", "\0".repeat(8));
    let ended = u64::from_le_bytes(bytes.as_bytes().try_into().unwrap()) / 1_000_000_000;
    told.items = vec![
        (item::STOPPED, format!("{bytes}{monotonic}")),
        (item::COMMAND_LINE, "kmemtraced\0-d\x005".to_owned()),
        (item::RED_ZONES, "dentry\nkmalloc-64\n".to_owned()),
    ];
    let [bare, told] = [bare, told].map(|workload| Directory::new(&trace_dir(&workload, 5)));
    let sample = data("amd64-6.18");
    let day = json!("2026-11-21T04:02:45Z");
    let words = ["kmemtraced", "-q", "-B", "kmemtrace-x", "-o", "sample", "--", "kmemstorm"];
    let ended = json!(kmemtrace::documents::head::utc(ended));
    for (trace, members) in [
        (bare.path(), [Value::Null, Value::Null, Value::Null]),
        (told.path(), [Value::Null, ended, json!(["kmemtraced", "-d", "5"])]),
        (sample.as_path(), [day.clone(), day, json!(words)]),
    ] {
        let document = json(&run_to(0, REPORT, &["summary", "--format", "json"], &[trace]));
        let found = ["begun", "ended", "command"].map(|name| document["trace"][name].clone());
        let table = String::from_utf8(run_to(0, REPORT, &["summary"], &[trace])).unwrap();
        assert_eq!(table.contains("begun 2026-11-2"), !members[0].is_null(), "{table}");
        assert_eq!(table.contains("recorded by"), !members[2].is_null(), "{table}");
        let red_zones = "Waste contains red zones: slub_debug is on for 2 caches.";
        assert_eq!(table.contains(red_zones), trace == told.path(), "{table}");
        assert_eq!(found, members);
    }
}
