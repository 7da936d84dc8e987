//! Exported files against the readers of their formats: `go tool pprof`, speedscope, Perfetto's own messages.

mod speedscope;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_abi::event::{Action, Event, Kind, StreamItem};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::archive;
use kmemtrace_tests::generate::{Options, Shape, trace_dir, tree, workload};
use kmemtrace_tests::programs::{data, json, json_lines, run, run_to, text};
use kmemtrace_tests::python;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::scenario::Scenario;
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";
/// Figures of `summary` in the order of a profile's types of samples.
const FIGURES: [&str; 5] = ["allocs", "allocated", "wasted", "live_objects", "live_allocated"];

kmemtrace_tests::tests![
    profiles_sum_up_to_the_summary,
    pprof_shows_verdict_names_and_the_wasted_bytes_first,
    a_trace_gives_the_same_file_wherever_it_lies,
    profiles_of_two_boots_merge_by_call_site,
    inlined_functions_are_frames,
    stacks_sum_up_to_the_summary,
    stacks_are_exported_whole,
    speedscope_shows_the_bytes_of_each_function => speedscope::shows_the_bytes_of_each_function,
    tracks_are_exact_at_their_points,
    tracks_tell_loss_and_rates,
    events_are_those_of_the_view,
    wrong_requests_are_refused_and_leave_no_file,
];

/// Recording of a made-up machine, with pages and failed allocations; its code was moved by `slide` at boot.
fn made(slide: u64) -> Directory {
    let options = Options { symbols: true, varied: true, slide, ..Options::plain(Shape::plain(), 3, 4000) };
    Directory::new(&trace_dir(&workload(7, &options), 7))
}

/// File of a format in a folder of its own.
fn exported(to: &str, options: &[&str], trace: &Path) -> Directory {
    let place = Directory::new(&[]);
    let file = place.file("exported").display().to_string();
    run_to(0, REPORT, &[&["export", "--no-index", "--to", to, "-o", &file], options].concat(), &[trace]);
    place
}

fn summary(trace: &Path, options: &[&str]) -> Value {
    json(&run_to(0, REPORT, &[&["summary", "--no-index", "--format", "json"], options].concat(), &[trace]))
}

fn figures(of: &Value) -> [u64; 5] {
    FIGURES.map(|figure| of[figure].as_u64().unwrap())
}

/// Text that `go tool pprof` prints of profiles.
fn pprof(form: &str, profiles: &[PathBuf]) -> Result<String, Skip> {
    pprof_of(&[form], profiles)
}

/// Text that `go tool pprof` prints of profiles with these options.
fn pprof_of(options: &[&str], profiles: &[PathBuf]) -> Result<String, Skip> {
    let output = Command::new("go").args(["tool", "pprof"]).args(options).args(profiles).output();
    let output = output.map_err(|_| Skip("go is not installed: package golang-go".to_owned()))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout).unwrap())
}

/// Lines of a part of `pprof -raw`.
fn part<'r>(raw: &'r str, begin: &str, end: &str) -> Vec<&'r str> {
    let lines = raw.lines().skip_while(|line| !line.starts_with(begin)).skip(1);
    lines.take_while(|line| !line.starts_with(end)).collect()
}

/// Sums of all samples, and of those of each kind, in `pprof -raw`.
fn sums(raw: &str) -> BTreeMap<String, [u64; 5]> {
    let mut sums = BTreeMap::<String, [u64; 5]>::new();
    let mut sample = [0; 5];
    for line in part(raw, "Samples:", "Locations").into_iter().skip(1) {
        if let Some((_, labels)) = line.split_once("kind:[") {
            for kind in ["all", labels.split(']').next().unwrap()] {
                let sum = sums.entry(kind.to_owned()).or_default();
                (0..5).for_each(|figure| sum[figure] += sample[figure]);
            }
        } else {
            let figures: Vec<u64> =
                line.split(':').next().unwrap().split_whitespace().map(|n| n.parse().unwrap()).collect();
            sample = figures.try_into().unwrap();
        }
    }
    sums
}

fn profiles_sum_up_to_the_summary() -> Result<(), Skip> {
    let made = made(0);
    for trace in [data("amd64-6.1"), data("amd64-6.1-lossy"), data("s390x-6.1"), made.path().to_owned()] {
        let place = exported("pprof", &[], &trace);
        let (sums, summary) = (sums(&pprof("-raw", &[place.file("exported")])?), summary(&trace, &[]));
        assert_eq!(sums["all"], figures(&summary["total"]), "{trace:?}");
        for kind in ["kmalloc", "cache"] {
            assert_eq!(sums[kind], figures(&summary["kinds"][kind]), "{kind} of {trace:?}");
        }
        assert!(!sums.contains_key("pages"), "pages hold the other objects");
    }
    let some = ["--time", ",50%", "--site", "fn_1*"];
    let some = exported("pprof", &some, made.path());
    let raw = pprof("-raw", &[some.file("exported")])?;
    assert!(raw.contains("Comment: filter site=fn_1*") && raw.contains("Comment: time: ,50%"), "{raw}");
    let pages = exported("pprof", &["--kind", "pages"], made.path());
    let sums = sums(&pprof("-raw", &[pages.file("exported")])?);
    assert_eq!(sums["all"], figures(&summary(made.path(), &[])["kinds"]["pages"]));
    assert_eq!(sums.keys().collect::<Vec<_>>(), ["all", "pages"]);
    Ok(())
}

fn pprof_shows_verdict_names_and_the_wasted_bytes_first() -> Result<(), Skip> {
    let place = exported("pprof", &["--host", "host-1"], &data("amd64-6.1-lossy"));
    let top = pprof("-top", &[place.file("exported")])?;
    let (head, rows) = top.split_once("flat%").unwrap();
    assert!(head.contains("lossy: 22,678 events lost, 4 gaps, figures are estimates"), "{head}");
    assert!(head.contains("Type: wasted_space") && head.contains("host: host-1"), "{head}");
    assert!(head.contains("trace: Linux 6.1.0-56-cloud-amd64 x86_64"), "{head}");
    assert!(rows.lines().nth(1).unwrap().ends_with("alloc_pipe_info"), "{rows}");
    let tags = pprof("-tags", &[place.file("exported")])?;
    assert!(tags.contains(": kmalloc-cg-1k") && tags.contains(": sock_inode_cache"), "{tags}");
    // Source files of functions are known by a map.
    let map = zstd::encode_all(&b"/fs/pipe.c\nalloc_pipe_info\n"[..], 3).unwrap();
    place.write("map", &[b"kmemtrace.names/1\n", &map[..]].concat());
    let map = place.file("map").display().to_string();
    let named = exported("pprof", &["--names", &map], &data("amd64-6.1"));
    let raw = pprof("-raw", &[named.file("exported")])?;
    assert!(raw.contains("alloc_pipe_info fs/pipe.c:0"), "{raw}");
    Ok(())
}

fn a_trace_gives_the_same_file_wherever_it_lies() -> Result<(), Skip> {
    let (trace, copy) = (data("amd64-6.1"), Directory::new(&[]));
    for entry in fs::read_dir(&trace).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.file(&path.file_name().unwrap().to_string_lossy())).unwrap();
    }
    for to in ["pprof", "folded", "perfetto"] {
        let bytes = |jobs: &str, trace: &Path| fs::read(exported(to, &["-j", jobs], trace).file("exported")).unwrap();
        let first = bytes("1", &trace);
        assert!(!first.is_empty() && first == bytes("3", copy.path()), "{to}");
    }
    Ok(())
}

fn profiles_of_two_boots_merge_by_call_site() -> Result<(), Skip> {
    let boots = [0, 0x1400_0000].map(made);
    let places = boots.each_ref().map(|boot| exported("pprof", &[], boot.path()));
    let files = places.each_ref().map(|place| place.file("exported"));
    // Locations of the kernel that have a name; the recording lists no addresses of modules.
    let named = |raw: &str| -> Vec<String> {
        let lines = part(raw, "Locations", "Mappings").into_iter().filter_map(|line| line.split_once(" M=1 "));
        let lines = lines.filter(|(_, name)| !name.starts_with("0x"));
        lines.map(|(address, name)| format!("{} {name}", address.rsplit(' ').next().unwrap())).collect()
    };
    let (one, other) = (pprof("-raw", &files[..1])?, pprof("-raw", &files[1..])?);
    assert_ne!(named(&one), named(&other), "the second boot has other addresses");
    let merged = pprof("-raw", &files)?;
    assert_eq!(named(&merged).len(), 6, "{merged}");
    assert_eq!(named(&merged), named(&one));
    assert_eq!(sums(&merged)["all"], sums(&one)["all"].map(|sum| 2 * sum));
    Ok(())
}

fn inlined_functions_are_frames() -> Result<(), Skip> {
    const TEXT: u64 = 0xffff_ffff_8100_0000;
    // A return address behind the call that fork_1 has from the third function put into it.
    let call_site = TEXT + 0x53;
    let scenario = Scenario::new(Shape::plain(), 1).kmalloc(1000, 0, call_site, 0xffff_8880_0000_0000, (40, 64));
    let mut files = tree(&scenario.finish(), 1);
    files.retain(|(name, _)| name != "uname");
    let others = (1..=20).map(|n| (0x40 + (n - 1) * 0x50, format!("fork_{n}")));
    let named =
        [(0, "fork_failed"), (0x680, "_stext"), (0x6f0, "slab_alloc"), (0x720, "slab_reset"), (0x72c, "copy_words")];
    let named = named.map(|(at, name)| (at, name.to_owned()));
    let line = |(at, name): (u64, String)| format!("{:x} T {name}\n", TEXT + at);
    let kallsyms: String = named.into_iter().chain(others).map(line).collect();
    files.push(("kallsyms".to_owned(), kallsyms.into_bytes()));
    let trace = Directory::new(&files);
    let vmlinux = data("debug-info/vmlinux").display().to_string();
    let folded = exported("folded", &["--vmlinux", &vmlinux], trace.path());
    assert_eq!(folded.text("exported"), "kernel;fork_1;dup;kzalloc;kmalloc 24\n");
    let profile = exported("pprof", &["--vmlinux", &vmlinux], trace.path());
    let raw = pprof("-raw", &[profile.file("exported")])?;
    let frames = part(&raw, "Locations", "Mappings").join(" ");
    let frames: Vec<&str> = frames.split_whitespace().filter(|word| !word.starts_with("s=")).collect();
    let expected = [
        ["kmalloc", "include/linux/slab.h:6"],
        ["kzalloc", "include/linux/slab.h:10"],
        ["dup", "kernel/fork.c:6"],
        ["fork_1", "kernel/fork.c:17"],
    ];
    assert_eq!(frames[..3], ["1:", &format!("{call_site:#x}"), "M=1"]);
    assert_eq!(frames[3..], expected.concat());
    assert!(raw.contains("[kernel.kallsyms]  [FN][FL][LN][IN]"), "{raw}");
    Ok(())
}

/// Lines of folded stacks: frames and weight.
fn folded(text: &str) -> Vec<(Vec<&str>, u64)> {
    let line = |line| {
        let (stack, weight): (&str, &str) = str::rsplit_once(line, ' ').unwrap();
        assert!(!stack.contains(char::is_whitespace), "{line:?}");
        (stack.split(';').collect(), weight.parse().unwrap())
    };
    text.lines().map(line).collect()
}

fn stacks_sum_up_to_the_summary() -> Result<(), Skip> {
    let made = made(0);
    for trace in [data("amd64-6.1"), made.path().to_owned()] {
        let total = &summary(&trace, &[])["total"];
        let text = |options: &[&str]| exported("folded", options, &trace).text("exported");
        let weights =
            [("allocs", "allocs"), ("allocated", "allocated"), ("wasted", "wasted"), ("live", "live_allocated")];
        for (weight, figure) in weights {
            let text = text(&["--weight", weight]);
            let stacks = folded(&text);
            let sum: u64 = stacks.iter().map(|(_, weight)| weight).sum();
            assert_eq!(Some(sum), total[figure].as_u64(), "{weight} of {trace:?}");
            assert!(stacks.iter().all(|(frames, weight)| frames.len() == 2 && *weight > 0), "{text}");
            assert!(stacks.is_sorted_by(|(a, _), (b, _)| a < b), "each stack has one line: {text}");
        }
        assert_eq!(text(&[]), text(&["--weight", "wasted"]));
        let modules: Vec<String> = folded(&text(&[])).iter().map(|(frames, _)| frames[0].to_owned()).collect();
        assert!(modules.iter().any(|module| module == "kernel"), "{modules:?}");
    }
    Ok(())
}

/// Recorded pages with stacks: exported without a word about kinds, as nothing else is there.
fn stacks_are_exported_whole() -> Result<(), Skip> {
    let place = Directory::new(&[]);
    let trace = archive::unpack("tree-stacks-amd64-6.1", place.path()).unwrap();
    let kinds = &summary(&trace, &[])["kinds"]["pages"];
    for (weight, figure) in [("allocs", "allocs"), ("allocated", "allocated"), ("live", "live_allocated")] {
        let text = exported("folded", &["--weight", weight], &trace).text("exported");
        let stacks = folded(&text);
        assert_eq!(Some(stacks.iter().map(|(_, weight)| weight).sum()), kinds[figure].as_u64(), "{weight}");
        assert!(stacks.is_sorted_by(|(a, _), (b, _)| a < b), "each stack has one line: {text}");
        let is_whole =
            |frames: &Vec<&str>| ["ret_from_fork", "entry_", "asm_"].iter().any(|of| frames[0].starts_with(of));
        assert!(stacks.iter().all(|(frames, _)| is_whole(frames)), "the outermost function comes first: {text}");
        assert!(!text.contains("__alloc_pages"), "a stack ends with the function that asked: {text}");
    }
    let plain = exported("folded", &[], &trace).text("exported");
    assert_eq!(plain, exported("folded", &["--weight", "live"], &trace).text("exported"), "pages waste nothing");
    assert_eq!(exported("folded", &["--kind", "kmalloc"], &trace).text("exported"), "");
    let profile = exported("pprof", &[], &trace);
    let raw = pprof("-raw", &[profile.file("exported")])?;
    assert_eq!(sums(&raw)["all"], figures(kinds));
    let cumulative = pprof("-top", &[profile.file("exported")])?;
    assert!(cumulative.contains("Type: inuse_space"), "{cumulative}");
    // Weights of a function and all that it calls, by both formats.
    let text = exported("folded", &["--weight", "allocs"], &trace).text("exported");
    let stacks = folded(&text);
    let below = |function: &str| -> u64 {
        let has = |frames: &[&str]| frames.contains(&function);
        stacks.iter().filter(|(frames, _)| has(frames)).map(|(_, weight)| weight).sum()
    };
    let top = pprof_of(&["-top", "-cum", "-sample_index=alloc_objects"], &[profile.file("exported")])?;
    for function in ["handle_mm_fault", "do_syscall_64", "filename_lookup"] {
        let line = top.lines().find(|line| line.trim_end().ends_with(&format!(" {function}"))).unwrap();
        let cumulative: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert_eq!(cumulative, below(function), "{function}: {line}");
        assert!(cumulative > 0, "{function}");
    }
    Ok(())
}

/// Prints the tracks of a file as JSON: by name, values and instants with their times.
const READ_TRACKS: &str = r#"
import json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
trace = Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
names, tracks = {}, {}
for packet in trace.packet:
    parts = [packet, packet.track_event, packet.track_descriptor, packet.track_descriptor.counter]
    assert packet.trusted_packet_sequence_id and not any(len(UnknownFieldSet(part)) for part in parts)
    if packet.HasField('track_descriptor'):
        track = packet.track_descriptor
        assert not track.HasField('parent_uuid') or track.parent_uuid in names
        names[track.uuid] = track.name
        unit = track.counter.unit if track.HasField('counter') else 0
        tracks[track.name] = {'unit': unit, 'values': [], 'instants': []}
        continue
    event = packet.track_event
    track = tracks[names[event.track_uuid]]
    if event.type == TrackEvent.TYPE_COUNTER:
        value = event.counter_value if event.HasField('counter_value') else event.double_counter_value
        track['values'].append([packet.timestamp, value])
    else:
        assert event.type == TrackEvent.TYPE_INSTANT
        track['instants'].append([packet.timestamp, event.name])
print(json.dumps(tracks))
"#;

fn tracks(trace: &Path) -> Result<Value, Skip> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-perfetto");
    let python = python::with_packages(&place, &["perfetto==0.59.1", "protobuf==7.36.2"])?;
    let exported = exported("perfetto", &[], trace);
    let output = Command::new(python).args(["-c", READ_TRACKS]).arg(exported.file("exported")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(json(&output.stdout))
}

/// Tracks whose names begin so: name and points.
fn values<'t, T: serde_of::Number>(tracks: &'t Value, begin: &str) -> Vec<(&'t str, Vec<(u64, T)>)> {
    let point = |point: &Value| (point[0].as_u64().unwrap(), T::of(&point[1]));
    let points = |track: &Value| track["values"].as_array().unwrap().iter().map(point).collect();
    let named = tracks.as_object().unwrap().iter().filter(|(name, _)| name.starts_with(begin));
    named.map(|(name, track)| (name.as_str(), points(track))).collect()
}

/// Numbers in a JSON value.
mod serde_of {
    use serde_json::Value;

    pub(crate) trait Number {
        fn of(value: &Value) -> Self;
    }

    impl Number for u64 {
        fn of(value: &Value) -> u64 {
            value.as_u64().unwrap_or_else(|| panic!("{value}"))
        }
    }

    impl Number for f64 {
        fn of(value: &Value) -> f64 {
            value.as_f64().unwrap_or_else(|| panic!("{value}"))
        }
    }
}

/// Events of a trace, by time and CPU.
fn ordered(trace: &Path) -> Vec<Event> {
    let known = Known::of_trace(Trace::open(&[trace.to_owned()]).unwrap());
    let event = |item: &StreamItem| if let StreamItem::Event(event) = item { Some(*event) } else { None };
    let mut events: Vec<Event> = known.cpus.iter().flat_map(|(_, items)| items.iter().filter_map(event)).collect();
    events.sort_by_key(|event| (event.at, event.cpu));
    events
}

/// Live bytes of each kind after each change of them, with the change's time: by the rule that an address, or the frame of a page, is
/// live exactly if its last event was an allocation.
fn live_bytes(events: &[Event]) -> BTreeMap<&'static str, Vec<(u64, u64)>> {
    let mut objects = HashMap::<(bool, u64), (&'static str, u64)>::new();
    let mut changes = BTreeMap::<&'static str, Vec<(u64, u64)>>::new();
    for event in events {
        let (kind, is_alloc) = match event.action {
            Action::Alloc(kind) => (kind, true),
            Action::Free(kind) | Action::BulkFree(kind) => (kind, false),
            Action::Deferred => (Kind::Kmalloc, false),
            Action::Bulk(_) | Action::Other => continue,
        };
        let is_page = kind == Kind::Pages;
        let is_nothing = match is_page {
            true => event.failed,
            false => event.address == 0 || (!is_alloc && event.address == 0x10),
        };
        if is_nothing {
            continue;
        }
        let places = if is_page { 1 << event.order.unwrap() } else { 1 };
        let mut change = BTreeMap::<&'static str, i64>::new();
        for place in event.address..event.address + places {
            if let Some((kind, bytes)) = objects.remove(&(is_page, place)) {
                *change.entry(kind).or_default() -= bytes.cast_signed();
            }
            if is_alloc {
                let bytes = event.allocated / places;
                objects.insert((is_page, place), (kind.name(), bytes));
                *change.entry(kind.name()).or_default() += bytes.cast_signed();
            }
        }
        for (kind, bytes) in change {
            let numbers = changes.entry(kind).or_default();
            let live = numbers.last().map_or(0, |(_, live)| *live);
            numbers.push((event.at, live.checked_add_signed(bytes).unwrap()));
        }
    }
    changes
}

fn tracks_are_exact_at_their_points() -> Result<(), Skip> {
    let made = made(0);
    for (trace, kinds) in
        [(data("amd64-6.1"), &["kmalloc", "cache"][..]), (made.path().to_owned(), &["kmalloc", "cache", "pages"])]
    {
        let tracks = tracks(&trace)?;
        let (changes, summary) = (live_bytes(&ordered(&trace)), summary(&trace, &[]));
        assert_eq!(changes.keys().copied().count(), kinds.len());
        for kind in kinds {
            let named = values::<u64>(&tracks, &format!("{kind} live"));
            let [(name, points)] = &named[..] else { panic!("{named:?}") };
            let (changes, figures) = (&changes[kind], &summary["kinds"][kind]);
            assert_eq!(name.ends_with("upper bound"), figures["live_is_upper_bound"] == true, "{name}");
            assert_eq!(tracks[name]["unit"], 3, "bytes");
            // The made-up clock leaps, so that most events share few intervals.
            assert!(points.len() > 10 && points.len() <= 10_000, "{kind}: {}", points.len());
            for (at, bytes) in points {
                let begin = changes.partition_point(|(key, _)| key < at);
                let before = begin.checked_sub(1).map_or(0, |before| changes[before].1);
                let then = changes[begin..].iter().take_while(|(key, _)| key == at).map(|(_, live)| *live);
                assert!(std::iter::once(before).chain(then).any(|live| live == *bytes), "{kind}: {bytes} at {at}");
            }
            let greatest = points.iter().map(|(_, bytes)| *bytes).max();
            assert_eq!(greatest, figures["peak_live_allocated"].as_u64(), "{kind}");
            assert_eq!(points.last().map(|(_, bytes)| *bytes), figures["live_allocated"].as_u64(), "{kind}");
        }
    }
    Ok(())
}

fn tracks_tell_loss_and_rates() -> Result<(), Skip> {
    let trace = data("amd64-6.1-lossy");
    let tracks = tracks(&trace)?;
    let root = "kmemtrace: lossy: 22,678 events lost, 4 gaps, figures are estimates";
    assert_eq!(tracks[root]["instants"][1][1], "trace: Linux 6.1.0-56-cloud-amd64 x86_64", "{tracks}");
    let (gaps, events): (Vec<Value>, Vec<Value>) =
        json_lines(&run_to(0, REPORT, &["events", "--no-index", "--format", "jsonl"], &[&trace]))
            .into_iter()
            .partition(|line| line["event"] == "gap");
    assert_eq!(gaps.len(), 4);
    let mut told = BTreeMap::<String, Vec<Value>>::new();
    for gap in &gaps {
        let lost = gap["lost"].as_u64().map(|lost| format!("{},{:03}", lost / 1000, lost % 1000));
        let lost = lost.map_or("an unknown number of".to_owned(), |lost| lost.trim_start_matches("0,").to_owned());
        let instants = told.entry(format!("CPU {} loss", gap["cpu"])).or_default();
        instants.push(serde_json::json!([gap["at"], format!("lost {lost} events")]));
    }
    for (name, instants) in told {
        assert_eq!(tracks[&name]["instants"], Value::from(instants), "{name}");
    }
    let end = events.iter().map(|event| event["at"].as_u64().unwrap()).max().unwrap() + 1;
    for cpu in 0..2u64 {
        let named = values::<f64>(&tracks, &format!("CPU {cpu} events/s"));
        let [(name, points)] = &named[..] else { panic!("{named:?}") };
        assert_eq!(tracks[name]["unit"], 2, "a count");
        assert!(points.len() <= 10_000);
        let ends = points.iter().skip(1).map(|(at, _)| *at).chain([end]);
        let sum: f64 = points.iter().zip(ends).map(|((at, rate), end)| rate * (end - at) as f64 / 1e9).sum();
        let of_cpu = events.iter().filter(|event| event["cpu"] == cpu).count();
        assert!((sum - of_cpu as f64).abs() < 0.01, "CPU {cpu}: {sum} of {of_cpu}");
    }
    Ok(())
}

/// Line of an export without what the view does not tell: the cgroup, and whether the memory is reclaimable. They stand at the end.
fn without_owners(format: &str, line: &str) -> String {
    match format {
        "csv" => line.rsplitn(3, ',').last().unwrap_or_default().to_owned(),
        _ => {
            let end = ["\"cgroup\"", "\"reclaimable\""].iter().filter_map(|name| line.find(&format!(",{name}:"))).min();
            end.map_or(line.to_owned(), |end| format!("{}}}", &line[..end]))
        }
    }
}

fn events_are_those_of_the_view() -> Result<(), Skip> {
    let trace = data("amd64-6.1-lossy");
    for format in ["jsonl", "csv"] {
        let options = ["--no-index", "--cache", "dentry"];
        let view = run_to(0, REPORT, &[&["events", "--format", format], &options[..]].concat(), &[&trace]);
        let exported = run(REPORT, &[&["export", "--to", format], &options[..]].concat(), &[&trace]);
        assert!(exported.status.success(), "{format}");
        let plain: Vec<String> = text(&exported.stdout).lines().map(|line| without_owners(format, line)).collect();
        assert_eq!(plain, text(&view).lines().collect::<Vec<_>>(), "{format}");
        assert!(String::from_utf8_lossy(&exported.stderr).contains("lossy: 17473 events"), "{exported:?}");
    }
    Ok(())
}

fn wrong_requests_are_refused_and_leave_no_file() -> Result<(), Skip> {
    let (place, trace) = (Directory::new(&[]), data("amd64-6.1"));
    let file = place.file("exported").display().to_string();
    let sites = run_to(0, REPORT, &["sites", "--no-index", "--format", "json"], &[&trace]);
    place.write("sites.json", &sites);
    let document = place.file("sites.json").display().to_string();
    for (line, said) in [
        (&["export"][..], "name a format with --to"),
        (&["export", "--to", "pprof", "--weight", "live", "-o", &file], "--weight goes with --to folded"),
        (&["export", "--to", "pprof", "--format", "json", "-o", &file], "export has no --format"),
        (&["export", "--to", "folded", "-o", &file, "--time", "9h,"], "no events in this window"),
        (&["export", "--to", "pprof", "-o", &file, "--max-memory", "1M"], "--max-memory"),
        (&["export", "--to", "perfetto", "-o", &document], "exists already"),
    ] {
        let output = run(REPORT, line, &[&trace]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(said), "{line:?}: {told}");
        let is_empty = said == "no events in this window";
        assert_eq!(output.status.code(), Some(if is_empty { 0 } else { 2 }), "{line:?}: {told}");
        assert_eq!(place.file("exported").exists(), is_empty, "{line:?}");
        let _ = fs::remove_file(place.file("exported"));
    }
    assert_eq!(fs::read(place.file("sites.json")).unwrap(), sites);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no unfinished file is left");
    let refused = run(REPORT, &["export", "--to", "folded"], &[&place.file("sites.json")]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("export needs a trace"), "{refused:?}");
    // A device that is always full.
    for to in ["pprof", "folded", "perfetto", "jsonl", "csv"] {
        let full = run(REPORT, &["export", "--to", to, "-o", "/dev/full"], &[&trace]);
        assert_eq!(full.status.code(), Some(2), "{to}: {full:?}");
    }
    Ok(())
}
