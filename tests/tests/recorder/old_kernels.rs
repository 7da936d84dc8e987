//! Kernels from 3.10 to 5.4: the recorder sets up, records and cleans up on a scripted tracefs with the layout and the format texts
//! of each, without the system calls that came later; check and report decode the figures of the script.

use std::path::Path;
use std::process::Output;

use kmemtrace_tests::old_kernel::{FRAMES, OldKernel, Scripted, THREAD, VERSIONS, Version, WITHOUT_INSTANCES};
use kmemtrace_tests::programs::{differences, json, json_lines, text};
use kmemtrace_tests::recorder::instance_name;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use serde_json::{Value, json};

kmemtrace_tests::tests![
    slab_and_page_events,
    direct_reclaim,
    stacks_by_the_option_of_an_instance,
    one_command_alone,
    what_a_kernel_lacks_is_refused,
    options_of_all_buffers_are_left_alone,
    no_instances,
    what_a_kernel_offers,
];

const SITES: [u64; 5] = [0x8100_0010, 0x8100_0020, 0x8100_0030, 0x8100_0040, 0x8100_0050];
const OBJECTS: [u64; 5] = [0x1000, 0x2000, 0x3000, 0x4000, 0x5000];
const FRAME: [u64; 2] = [0x1234, 0x2000];

/// Script of the tasks of each kernel.
static SCRIPT: [Scripted; 14] = [
    (0, "mm_vmscan_direct_reclaim_begin", &[("order", 2)]),
    (0, "kmalloc", &[("call_site", SITES[0]), ("ptr", OBJECTS[0]), ("bytes_req", 20), ("bytes_alloc", 32)]),
    (0, "kmalloc", &[("call_site", SITES[0]), ("ptr", OBJECTS[1]), ("bytes_req", 20), ("bytes_alloc", 32)]),
    (0, "kfree", &[("call_site", SITES[3]), ("ptr", OBJECTS[0])]),
    (0, "kmem_cache_alloc", &[("call_site", SITES[2]), ("ptr", OBJECTS[3]), ("bytes_req", 192), ("bytes_alloc", 192)]),
    (
        0,
        "kmem_cache_alloc_node",
        &[("call_site", SITES[2]), ("ptr", OBJECTS[4]), ("bytes_req", 192), ("bytes_alloc", 192)],
    ),
    (0, "kmem_cache_free", &[("call_site", SITES[4]), ("ptr", OBJECTS[3])]),
    (0, "mm_page_alloc", &[("frame", FRAME[0]), ("order", 0)]),
    (0, "mm_page_alloc", &[("frame", FRAME[1]), ("order", 2)]),
    (0, "mm_page_free", &[("frame", FRAME[0]), ("order", 0)]),
    (0, "mm_page_free_batched", &[("frame", FRAME[0])]),
    (0, "mm_vmscan_direct_reclaim_end", &[("nr_reclaimed", 32)]),
    (
        1,
        "kmalloc_node",
        &[("call_site", SITES[1]), ("ptr", OBJECTS[2]), ("bytes_req", 100), ("bytes_alloc", 128), ("node", 1)],
    ),
    (1, "kfree", &[("call_site", SITES[3]), ("ptr", OBJECTS[2])]),
];

/// A kernel, and a recording made on it.
struct Recorded {
    kernel: OldKernel,
    dir: Directory,
    messages: String,
}

impl Recorded {
    /// Records `true` with these options; nothing is lost, and nothing is left.
    fn new(version: Version, options: &[&str]) -> Result<Recorded, Skip> {
        let kernel = OldKernel::new(version, &SCRIPT)?;
        let dir = Directory::new(&[]);
        let output = kernel.record(options, &dir.file("trace"), &["true"]);
        let messages = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {messages}", version.release);
        let names = std::fs::read_dir(kernel.path().join("instances")).map(Iterator::count);
        assert_eq!(names.ok(), Some(0), "{}: an instance is left", version.release);
        let check = kernel.run("kmemtrace-check", &[], &[&dir.file("trace")]);
        assert_eq!(check.status.code(), Some(0), "{}: {}", version.release, text(&check.stdout));
        Ok(Recorded { kernel, dir, messages })
    }

    /// Output of the report.
    fn report(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.kernel.run("kmemtrace-report", arguments, &[&self.dir.file("trace")]);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        output.stdout
    }

    fn document(&self, view: &str) -> Value {
        json(&self.report(&[view, "--format", "json"]))
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn slab_and_page_events() -> Result<(), Skip> {
    for version in VERSIONS {
        let recorded = Recorded::new(version, &["-e", "all"])?;
        let clock = if version.numbers < (3, 17) { "global" } else { "mono" };
        let banner = if clock == "global" { "clock global (this kernel has no mono)\n" } else { "clock mono\n" };
        assert!(recorded.messages.contains(banner), "{}: {}", version.release, recorded.messages);
        let expected = json!({
            "completeness": { "verdict": "complete", "lost_events": 0, "inferred_frees": 0, "frees_without_alloc": 0 },
            "trace": { "kernel": version.release, "clock": clock, "cpus": 2 },
            "kinds": {
                "kmalloc": { "allocs": 3, "requested": 140, "allocated": 192, "frees": 2, "live_allocated": 32, "cross_cpu": 0 },
                "cache": { "allocs": 2, "requested": 384, "allocated": 384, "frees": 1, "live_allocated": 192 },
                "pages": { "allocs": 2, "pages_allocated": 5, "pages_freed": 1, "live_pages": 4 },
            },
        });
        assert_eq!(differences(&expected, &recorded.document("summary")), [""; 0], "{}", version.release);
        let sites = recorded.document("sites");
        let row = |site: u64| {
            let rows = sites["rows"].as_array().into_iter().flatten();
            let row = rows.into_iter().find(|row| row["call_site"] == hex(site)).unwrap_or(&Value::Null);
            ["kind", "allocs", "frees", "live_allocated"].map(|member| row[member].to_string()).join(" ")
        };
        let found = [SITES[0], SITES[1], SITES[2]].map(row);
        assert_eq!(found, ["\"kmalloc\" 2 1 32", "\"kmalloc\" 1 1 0", "\"cache\" 2 1 192"], "{}", version.release);
        assert_events(version, &recorded);
    }
    Ok(())
}

/// Compares single events with the script.
fn assert_events(version: Version, recorded: &Recorded) {
    let events = json_lines(&recorded.report(&["events", "--format", "jsonl"]));
    let named = |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
    let node = named("kmalloc_node");
    assert_eq!(node.len(), 1, "{}", version.release);
    let expected =
        json!({ "cpu": 1, "pid": THREAD.0, "comm": THREAD.1, "address": hex(OBJECTS[2]), "requested": 100, "node": 1 });
    assert_eq!(differences(&expected, node[0]), [""; 0], "{}", version.release);
    let freed = named("mm_page_free");
    let expected = json!({ "address": hex(version.frame_key(FRAME[0])) });
    assert_eq!((freed.len(), differences(&expected, freed[0])), (1, Vec::new()), "{}", version.release);
    // The event of a page in a batch is no free of its own, and is not asked for.
    assert!(named("mm_page_free_batched").is_empty(), "{}", version.release);
}

fn direct_reclaim() -> Result<(), Skip> {
    for version in VERSIONS {
        let recorded = Recorded::new(version, &["-e", "latency"])?;
        let stalls = recorded.document("stalls");
        let rows = stalls["rows"].as_array().cloned().unwrap_or_default();
        let expected = json!({ "pid": THREAD.0, "comm": THREAD.1, "span": "direct", "total": 1000, "order": 2, "gfp": "GFP_KERNEL", "reclaimed": 32 });
        assert_eq!(rows.len(), 1, "{}: {stalls:#}", version.release);
        assert_eq!(differences(&expected, &rows[0]), [""; 0], "{}", version.release);
    }
    Ok(())
}

fn stacks_by_the_option_of_an_instance() -> Result<(), Skip> {
    for version in VERSIONS.into_iter().filter(|version| version.numbers >= (4, 4)) {
        let recorded = Recorded::new(version, &["--stack"])?;
        let set: Vec<String> = recorded.kernel.changes();
        assert!(set.contains(&"instance/options/stacktrace 1".to_owned()), "{}: {set:?}", version.release);
        let events = json_lines(&recorded.report(&["events", "--format", "jsonl"]));
        let allocs: Vec<&Value> = events.iter().filter(|event| event["event"] == "kmalloc").collect();
        assert_eq!(allocs.len(), 2, "{}", version.release);
        for alloc in allocs {
            assert_eq!(alloc["stack"], json!(FRAMES.map(hex)), "{}: {alloc}", version.release);
        }
    }
    Ok(())
}

fn one_command_alone() -> Result<(), Skip> {
    for version in VERSIONS.into_iter().filter(|version| version.numbers >= (4, 8)) {
        let changes = Recorded::new(version, &["--only-command"])?.kernel.changes();
        let at = |prefix: &str| changes.iter().position(|change| change.starts_with(&format!("instance/{prefix}")));
        let order = [at("options/event-fork 1"), at("set_event_pid "), at("events/kmem/kfree/enable 1")];
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{}: {changes:#?}", version.release);
    }
    Ok(())
}

/// True for a change of the recorder's instance.
fn is_of_instance(change: &str) -> bool {
    change.starts_with("instance/") || ["mkdir instance", "rmdir instance"].contains(&change)
}

/// Runs a recorder that must refuse, before it changes anything.
fn refusal(kernel: &OldKernel, options: &[&str]) -> Output {
    let dir = Directory::new(&[]);
    let output = kernel.record(options, &dir.file("trace"), &["true"]);
    assert_eq!(output.status.code(), Some(2), "{options:?}: {}", text(&output.stderr));
    assert!(!dir.file("trace").exists(), "{options:?}: a trace is left");
    output
}

fn what_a_kernel_lacks_is_refused() -> Result<(), Skip> {
    let filters = |release: &str, option: &str| {
        format!(
            "{option}: before Linux 3.14 a filter holds for all users of an event, and this is {release}: leave it out, and select rows in the report"
        )
    };
    let tasks = |release: &str, option: &str| {
        format!(
            "{option}: Linux 4.8 or later is required (set_event_pid with event-fork), and this is {release}: record the whole machine, and give the report --comm NAME"
        )
    };
    let [v3_10, v4_4] = [VERSIONS[0], VERSIONS[1]];
    let stacks = format!(
        "--stack: before Linux 4.4 the option for stacks holds for all buffers, and this is {} (this kernel has no triggers): leave out --stack",
        v3_10.release
    );
    let clocks = "local global counter uptime perf";
    let cases: [(Version, &[&str], String, bool); 8] = [
        (v3_10, &["--filter", "bytes_req > 8"], filters(v3_10.release, "--filter"), false),
        (v3_10, &["--stack=bytes_req > 8"], filters(v3_10.release, "--stack=FILTER"), false),
        (v3_10, &["--only-command"], tasks(v3_10.release, "--only-command"), false),
        (v4_4, &["--only-command"], tasks(v4_4.release, "--only-command"), false),
        (v4_4, &["--pid", "1"], tasks(v4_4.release, "--pid"), false),
        (v3_10, &["--stack"], stacks, true),
        (v3_10, &["--clock", "mono"], format!("--clock mono: this kernel has [local] {} x86-tsc", &clocks[6..]), true),
        (
            v4_4,
            &["--clock", "boot"],
            format!("--clock boot: this kernel has [local] {} mono mono_raw x86-tsc", &clocks[6..]),
            true,
        ),
    ];
    for (version, options, message, has_instance) in cases {
        let kernel = OldKernel::new(version, &SCRIPT)?;
        let output = refusal(&kernel, options);
        assert_eq!(text(&output.stderr), format!("kmemtraced: {message}\n"), "{options:?}");
        let changes = kernel.changes();
        let elsewhere = changes.iter().find(|change| !is_of_instance(change));
        assert_eq!((elsewhere, changes.is_empty()), (None, !has_instance), "{options:?}: {changes:?}");
        let left = std::fs::read_dir(kernel.path().join("instances")).map(Iterator::count);
        assert_eq!(left.ok(), Some(0), "{options:?}: an instance is left");
    }
    Ok(())
}

fn options_of_all_buffers_are_left_alone() -> Result<(), Skip> {
    for version in VERSIONS {
        let changes = Recorded::new(version, &[])?.kernel.changes();
        let elsewhere: Vec<&String> = changes.iter().filter(|change| !is_of_instance(change)).collect();
        assert!(elsewhere.is_empty(), "{}: {elsewhere:?}", version.release);
        let options = changes.iter().any(|change| change.contains("/options/") || change.contains("/trace_options"));
        assert_eq!(options, version.numbers >= (4, 4), "{}: {changes:?}", version.release);
    }
    Ok(())
}

fn no_instances() -> Result<(), Skip> {
    let kernel = OldKernel::new(WITHOUT_INSTANCES, &SCRIPT)?;
    let output = refusal(&kernel, &[]);
    let message = format!(
        "kmemtraced: this kernel ({}) has no trace instances, in which the recorder works: Linux 3.10 or later is required\n",
        WITHOUT_INSTANCES.release
    );
    assert_eq!(text(&output.stderr), message);
    assert_eq!(kernel.changes(), [""; 0]);
    Ok(())
}

fn what_a_kernel_offers() -> Result<(), Skip> {
    for version in VERSIONS {
        let kernel = OldKernel::new(version, &SCRIPT)?;
        let path: &Path = kernel.path();
        let output = kernel.run("kmemtraced", &["doctor", "--quick", "-B", &instance_name(), "--tracefs"], &[path]);
        let listed = text(&output.stdout);
        let lines = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        let events = "kfree kmalloc kmalloc_node kmem_cache_alloc kmem_cache_alloc_node kmem_cache_free mm_page_alloc mm_page_free";
        assert_eq!(lines("events").trim_start_matches("events").trim(), events, "{listed}");
        assert_eq!(output.status.code(), Some(0), "{}: {listed}{}", version.release, text(&output.stderr));
    }
    Ok(())
}
