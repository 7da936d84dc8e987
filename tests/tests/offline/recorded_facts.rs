//! What a recording keeps of its machine and of its recorder, as documents and headings show it.

use kmemtrace_abi::disk::block::item;
use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{json, run_to};
use kmemtrace_tests::recording::Directory;
use serde_json::{Value, json};

const REPORT: &str = "kmemtrace-report";

/// Time of day in nanoseconds whose bytes are characters, and the same in seconds.
fn moment(last: u8) -> (String, u64) {
    let bytes = [b'A', b'A', b'A', b'A', b'A', last, b'p', 0x18];
    (String::from_utf8(bytes.to_vec()).unwrap(), u64::from_le_bytes(bytes) / 1_000_000_000)
}

#[test]
fn dates_command_and_red_zones_are_shown_where_the_recording_has_them() {
    let [bare, mut told] = [(), ()].map(|()| workload(5, &Options::plain(Shape::plain(), 1, 200)));
    let ((start, begun), (end, ended)) = (moment(b'A'), moment(b'B'));
    told.items = vec![
        (item::STARTED, start + "\0\0\0\0\0\0\0\0"),
        (item::STOPPED, end + "\0\0\0\0\0\0\0\0"),
        (item::COMMAND_LINE, "kmemtraced\0-d\x005\0".to_owned()),
        (item::RED_ZONES, "dentry\nkmalloc-64\n".to_owned()),
    ];
    let [bare, told] = [bare, told].map(|workload| Directory::new(&trace_dir(&workload, 5)));
    let utc = |seconds| json!(kmemtrace::documents::head::utc(seconds));
    for (trace, members) in [
        (&bare, [Value::Null, Value::Null, Value::Null]),
        (&told, [utc(begun), utc(ended), json!(["kmemtraced", "-d", "5"])]),
    ] {
        let document = json(&run_to(0, REPORT, &["summary", "--format", "json"], &[trace.path()]));
        let found = ["begun", "ended", "command"].map(|name| document["trace"][name].clone());
        assert_eq!(found, members);
        let table = String::from_utf8(run_to(0, REPORT, &["summary"], &[trace.path()])).unwrap();
        let is_told = std::ptr::eq(trace, &told);
        for said in ["begun 20", "kmemtraced -d 5", "Waste contains red zones: slub_debug is on for 2 caches."] {
            assert_eq!(table.contains(said), is_told, "{said}: {table}");
        }
    }
}
