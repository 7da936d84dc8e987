//! Index beside a trace: every view is the same without it, while it is written, and from it. An index that does not
//! fit the trace, or is damaged, is ignored.
//!
//! `KMEMTRACE_SEEDS=FROM..TO` tries other traces than the usual ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use kmemtrace_abi::disk::block::crc32c;
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_tests::generate::{Options, Random, Shape, Workload, relay_dir, trace_dir, workload};
use kmemtrace_tests::programs::{check, json, program, run, run_to};
use kmemtrace_tests::recording::{Directory, random_relay};
use kmemtrace_tests::runs::{self, seeds};

/// Views whose figures an index keeps, and `events`, of which it keeps where windows are.
const INDEXED: [&[&str]; 7] =
    [&["summary"], &["sites"], &["caches"], &["mismatch"], &["live", "--objects"], &["cross"], &["events"]];
/// View that an index answers as a whole alone: what is steady in a window has to be counted again.
const WHOLE: &[&str] = &["leaks"];
/// Views that no index answers: it keeps no growth, and no rows of other keys.
const NOT_INDEXED: [&[&str]; 4] = [&["live"], &["growth"], &["sites", "--by", "comm,size"], &["live", "--by", "task"]];
/// Views that no index answers, and of which it may narrow a window.
const NARROWED_ALONE: [&[&str]; 3] = [&["leaks", "--all", "--by", "comm,site"], &["balance"], &["failed"]];
const INDEX: &str = "report.index";
const USED: &str = "the figures are taken from it";
const NARROWED: &str = "bytes had to be read";
const WRITTEN: &str = "report.index: written";

/// Output of a report: the document, messages about the trace, and messages about the index.
struct Report {
    out: Vec<u8>,
    said: Vec<String>,
    of_index: Vec<String>,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.said, self.of_index)
    }
}

impl Report {
    fn of(output: Output) -> Report {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        // Durations differ from run to run, and what the sandbox allows is no message about the trace.
        let is_of_run = |line: &&str| ["paired for ", ": sandbox: "].iter().any(|part| line.contains(part));
        let lines = text.lines().filter(|line| !is_of_run(line)).map(str::to_owned);
        let (of_index, said) = lines.partition(|line| line.contains(INDEX));
        Report { out: output.stdout, said, of_index }
    }

    fn says(&self, what: &str) -> bool {
        self.of_index.iter().any(|line| line.contains(what))
    }
}

fn report(options: &[&str], dir: &Path) -> Report {
    Report::of(run("kmemtrace-report", &[options, &["--format", "json"]].concat(), &[dir]))
}

fn without(options: &[&str], dir: &Path) -> Report {
    report(&[options, &["--no-index"]].concat(), dir)
}

fn with(options: &[&str], dir: &Path) -> Report {
    report(&[options, &["--index-from", "0", "-v"]].concat(), dir)
}

/// Asserts equal output and messages about the trace.
fn assert_same(what: &str, a: &Report, b: &Report) {
    assert_eq!(a.said, b.said, "{what}");
    if a.out != b.out {
        let (a, b) = (String::from_utf8_lossy(&a.out).into_owned(), String::from_utf8_lossy(&b.out).into_owned());
        let line = a.lines().zip(b.lines()).find(|(a, b)| a != b);
        panic!("{what}: {} and {} bytes; first difference: {line:#?}", a.len(), b.len());
    }
}

/// Directory with a trace whose files are old enough for an index: a later change shows in their times.
fn directory(files: &[(String, Vec<u8>)]) -> Directory {
    let dir = Directory::new(files);
    settle();
    dir
}

fn settle() {
    std::thread::sleep(Duration::from_millis(40));
}

/// Workload without cut or missing files: other traces have no index.
fn whole(seed: u64, events: usize) -> (String, Workload) {
    let mut options = Options::random(&mut Random::new(seed), events);
    (options.cut, options.missing) = (Vec::new(), Vec::new());
    (format!("seed {seed}, {:?}", options.shape), workload(seed, &options))
}

/// Order keys at which a reader may go wrong: those of several events, and the last ones of blocks.
fn edges(dir: &Path) -> Vec<u64> {
    let lines = without(&["events"], dir).out;
    let mut keys: Vec<u64> = lines
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(json)
        .filter(|line| line["event"] != "gap")
        .map(|line| line["at"].as_u64().unwrap())
        .collect();
    keys.sort_unstable();
    let mut edges: Vec<u64> = keys.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "out") {
            edges.extend(pieces(&fs::read(path).unwrap()).filter_map(|piece| match piece {
                Piece::Block { info, .. } if info.events > 0 => Some(info.last),
                _ => None,
            }));
        }
    }
    edges.retain(|key| keys.binary_search(key).is_ok());
    edges.extend(keys.first());
    edges
}

/// Random windows on the trace, `count` of them.
fn windows(dir: &Path, random: &mut Random, count: usize) -> Vec<String> {
    let summary = json(&without(&["summary"], dir).out);
    let [first, last] = ["first", "last"].map(|member| summary["trace"][member].as_u64().unwrap());
    let counts_ticks = ["x86-tsc", "counter", "uptime"].iter().any(|clock| summary["trace"]["clock"] == *clock);
    let is_time = summary["trace"]["order"] == "time" && !counts_ticks;
    let span = last - first + 1;
    let shown =
        |at: u64| if is_time { format!("{}.{:09}", at / 1_000_000_000, at % 1_000_000_000) } else { at.to_string() };
    let edges = edges(dir);
    let window = |n: usize| {
        let (a, b) = (first + random.below(span), first + random.below(span));
        let edge = edges.get(random.below(edges.len().max(1) as u64) as usize).copied().unwrap_or(first);
        match n % 9 {
            0 => format!("{},{}", shown(a.min(b)), shown(a.max(b))),
            1 => format!("{},", shown(a)),
            2 => format!(",{}", shown(edge)),
            3 => format!("{},{}", shown(edge), shown(edge)),
            4 => "+0,".to_owned(),
            5 => format!("{},{}", shown(last), shown(last)),
            6 => "40%,60%".to_owned(),
            7 => format!("{},{}", shown(edge), shown(edge.saturating_add(span / 20))),
            _ => format!("{},{}", shown(a), shown(a + span / 20)),
        }
    };
    (0..count).map(window).collect()
}

/// True if the trace can have an index.
fn is_whole(dir: &Path) -> bool {
    let verdict = &json(&without(&["summary"], dir).out)["completeness"]["verdict"];
    verdict == "complete" || verdict == "lossy"
}

/// Asserts that every view, with and without window and filters, is the same with an index.
fn assert_index_changes_nothing(what: &str, dir: &Path, seed: u64) {
    let mut random = Random::new(seed ^ 0x1dec);
    let by_time = json(&without(&["summary"], dir).out)["trace"]["order"] == "time";
    assert!(is_whole(dir), "{what}");
    let windows = windows(dir, &mut random, 27);
    let mut views: Vec<&[&str]> = INDEXED.into_iter().chain(NOT_INDEXED).chain(NARROWED_ALONE).chain([WHOLE]).collect();
    let start = seed as usize % views.len();
    views.rotate_left(start);
    for (number, view) in views.into_iter().enumerate() {
        let window = &windows[(2 * number + seed as usize) % windows.len()];
        let other = &windows[(2 * number + 3 + seed as usize) % windows.len()];
        let few: &[&str] = match view {
            ["summary"] => &["--pid", "7"],
            ["sites" | "caches", ..] => &["-n", "3", "-s", "live"],
            _ => &["-n", "3"],
        };
        let cases: [&[&str]; 8] = [
            &["--time", window],
            &[],
            &["--kind", "kmalloc"],
            &["--time", window, "--size", "..128"],
            &["--time", other],
            few,
            &["--own"],
            &["--own", "--time", window],
        ];
        // Each view has some of the cases, and another view the others.
        let turn = number + seed as usize;
        for case in
            cases.into_iter().cycle().skip(turn % cases.len()).take(runs::number(3, cases.len() as u64) as usize)
        {
            let options = [view, case].concat();
            let plain = without(&options, dir);
            assert_eq!(plain.of_index, [""; 0]);
            let jobs = random.pick(&[1, 2, 3, 5]).to_string();
            let events = random.pick(&[1, 1, 7, 300, 8192]).to_string();
            let cut = [&options[..], &["-j", &jobs, "--window-events", &events]].concat();
            let (first, second) = (with(&cut, dir), with(&cut, dir));
            let what = format!("{what}: {cut:?}");
            assert_same(&format!("{what}, first ({:?})", first.of_index), &plain, &first);
            assert_same(&format!("{what}, second ({:?})", second.of_index), &plain, &second);
            let is_filtered = ["--kind", "--pid"].iter().any(|option| case.contains(option));
            if NOT_INDEXED.contains(&view) {
                assert_eq!(second.of_index, [""; 0], "{what}");
            } else if view == WHOLE {
                assert!(second.says(USED) || !case.is_empty(), "{what}: {:?}", second.of_index);
            } else if NARROWED_ALONE.contains(&view) {
                assert!(!second.says(USED), "{what}: {:?}", second.of_index);
            } else if case.contains(&"--time") {
                assert_eq!(second.says(NARROWED), by_time, "{what}: {second:?}");
            } else if view == ["live", "--objects"] && has_stacks(&plain) {
                assert!(!second.says(USED), "{what}: an index keeps no stacks of objects");
            } else if view != ["events"] && !is_filtered {
                assert!(second.says(USED), "{what}: {:?}", second.of_index);
            }
        }
    }
}

/// True for a document of a trace with stacks.
fn has_stacks(document: &Report) -> bool {
    json(&document.out)["stacks_seen"].as_u64().is_some_and(|stacks| stacks > 0)
}

#[test]
fn every_view_says_the_same_with_an_index() {
    for seed in seeds(0..6) {
        let (what, workload) = whole(seed, 1500);
        let dir = directory(&trace_dir(&workload, seed));
        assert_index_changes_nothing(&what, dir.path(), seed);
    }
}

#[test]
fn a_relay_recording_has_an_index_too() {
    for seed in seeds(0..4) {
        let (workload, options, streams) = random_relay(seed, 800);
        let dir = directory(&relay_dir(&workload, &options, &streams, seed));
        if is_whole(dir.path()) {
            assert_index_changes_nothing(&format!("seed {seed}, {options:?}"), dir.path(), seed);
        }
    }
}

#[test]
fn real_recordings_say_the_same_with_an_index() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let recordings = ["amd64-6.1-lossy", "s390x-6.1", "amd64-6.18", "i386-6.1"];
    for (seed, name) in seeds(0..4).zip(recordings) {
        let files = fs::read_dir(data.join(name)).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        });
        let dir = directory(&files.collect::<Vec<_>>());
        assert_index_changes_nothing(name, dir.path(), seed);
    }
}

/// Trace of many blocks.
fn long(seed: u64) -> Directory {
    let mut options = Options::plain(Shape::plain(), 3, 60_000);
    (options.loss, options.step) = (true, 2000);
    directory(&trace_dir(&workload(seed, &options), seed))
}

#[test]
fn a_window_reads_what_is_in_it() {
    let dir = long(7);
    assert!(with(&["sites", "--time", "10%,11%"], dir.path()).says(WRITTEN));
    for view in [&["sites"][..], &["events"], &["live", "--objects"]] {
        for window in ["0%,2%", "50%,51%", "98%,100%"] {
            let options = [view, &["--time", window]].concat();
            let report = with(&options, dir.path());
            assert_same(&format!("{options:?}"), &without(&options, dir.path()), &report);
            let line = report.of_index.iter().find(|line| line.contains(NARROWED)).unwrap();
            let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [read, all] = numbers[..] else { panic!("{line}") };
            assert!(read > 0 && read < all / 5, "{line}");
        }
    }
}

#[test]
fn views_with_the_same_query_share_figures() {
    let dir = long(8);
    let whole = |view: &[&str]| with(view, dir.path());
    assert!(whole(&["summary"]).says(WRITTEN));
    for view in ["sites", "mismatch", "cross", "summary"] {
        assert!(whole(&[view]).says(USED), "{view}");
    }
    assert!(whole(&["caches"]).says(WRITTEN));
    assert!(whole(&["live", "--objects"]).says(WRITTEN));
    for view in INDEXED.into_iter().filter(|view| *view != ["events"]) {
        let report = whole(view);
        assert!(report.says(USED) && !report.says(WRITTEN), "{view:?}");
    }
    // Formats, tables among them, are rendered from the same figures.
    for format in ["table", "csv", "jsonl"] {
        let [plain, used] = [&["--no-index"][..], &["--index-from", "0"]].map(|options| {
            run_to(0, "kmemtrace-report", &[&["sites", "--format", format], options].concat(), &[dir.path()])
        });
        assert!(plain == used, "{format}");
    }
}

#[test]
fn figures_without_the_recorders_own_objects_serve_no_report_with_them() {
    let mut options = Options::plain(Shape::plain(), 2, 3000);
    options.own_threads = true;
    let dir = directory(&trace_dir(&workload(9, &options), 9));
    for view in [&["summary"][..], &["sites"], &["live", "--objects"], &["caches"]] {
        let options = [view.to_vec(), [view, &["--own"]].concat()];
        let plain = options.each_ref().map(|options| without(options, dir.path()));
        assert_ne!(plain[0].out, plain[1].out, "{view:?}");
        for _ in 0..2 {
            for (options, plain) in options.iter().zip(&plain) {
                assert_same(&format!("{options:?}"), plain, &with(options, dir.path()));
            }
        }
        assert!(options.iter().all(|options| with(options, dir.path()).says(USED)), "{view:?}");
    }
}

#[test]
fn small_unfinished_and_damaged_traces_have_no_index() {
    let files = trace_dir(&workload(3, &Options::plain(Shape::plain(), 2, 2000)), 3);
    let dir = directory(&files);
    report(&["summary"], dir.path());
    assert!(!dir.file(INDEX).exists(), "a trace below 64 MiB has no index");
    let (name, whole) = &files[0];
    let cut = whole[..whole.len() - 10].to_vec();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for bytes in [cut, flipped] {
        dir.write(name, &bytes);
        settle();
        for options in [&["summary"][..], &["events"], &["sites", "--time", "10%,20%"]] {
            assert_same(name, &without(options, dir.path()), &with(options, dir.path()));
            assert!(!dir.file(INDEX).exists(), "{options:?}");
        }
    }
    // A single file of a recording has no index either.
    dir.write(name, whole);
    settle();
    run_to(0, "kmemtrace-report", &["summary", "--index-from", "0"], &[&dir.file(name)]);
    assert!(!dir.file(INDEX).exists());
}

/// Views and windows to compare after a change.
const LOOKS: [&[&str]; 4] =
    [&["summary"], &["live", "--objects"], &["sites", "--time", "30%,50%"], &["events", "--time", "60%,65%"]];

fn assert_not_used(what: &str, dir: &Path) {
    for options in LOOKS {
        let report = with(options, dir);
        assert_same(&format!("{what} {options:?}: {:?}", report.of_index), &without(options, dir), &report);
    }
}

#[test]
fn an_index_of_files_that_were_changed_is_not_used() {
    let files = trace_dir(&workload(5, &Options::plain(Shape::plain(), 2, 6000)), 5);
    let other = trace_dir(&workload(6, &Options::plain(Shape::plain(), 2, 6000)), 6);
    let (name, bytes) = &files[0];
    let meta = &files.last().unwrap().1;
    let (cut, mut flipped) = (bytes[..bytes.len() * 2 / 3].to_vec(), bytes.clone());
    flipped[bytes.len() / 2] ^= 1;
    type Change<'a> = &'a dyn Fn(&Directory);
    let changes: [(&str, Change<'_>); 8] = [
        ("touched", &|dir| {
            fs::File::options()
                .append(true)
                .open(dir.file(name))
                .unwrap()
                .set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap()
        }),
        ("cut", &|dir| dir.write(name, &cut)),
        ("flipped", &|dir| dir.write(name, &flipped)),
        ("longer", &|dir| dir.write(name, &[bytes.as_slice(), &[0; 600]].concat())),
        ("gone", &|dir| fs::remove_file(dir.file(name)).unwrap()),
        ("another recording", &|dir| other.iter().for_each(|(name, bytes)| dir.write(name, bytes))),
        ("without meta.out", &|dir| fs::remove_file(dir.file("meta.out")).unwrap()),
        ("with half of meta.out", &|dir| dir.write("meta.out", &meta[..meta.len() / 2])),
    ];
    for (what, change) in changes {
        let dir = directory(&files);
        LOOKS.iter().for_each(|options| drop(with(options, dir.path())));
        assert!(with(&["summary"], dir.path()).says(USED), "{what}");
        let old = fs::read(dir.file(INDEX)).unwrap();
        change(&dir);
        let report = with(&["summary"], dir.path());
        assert!(!report.says(USED), "{what}: {report:?}");
        settle();
        dir.write(INDEX, &old);
        assert_not_used(what, dir.path());
    }
    // The index of another directory with equal files.
    let [a, b] = [&files, &files].map(|files| directory(files));
    with(&["summary"], a.path());
    fs::copy(a.file(INDEX), b.file(INDEX)).unwrap();
    assert!(with(&["summary"], b.path()).says("older than the trace"));
    assert!(with(&["summary"], b.path()).says(USED), "the index was written anew");
}

/// Sets the checksum to that of the bytes.
fn seal(index: &mut [u8]) {
    let checksum = crc32c(&index[12..]).to_le_bytes();
    index[8..12].copy_from_slice(&checksum);
}

/// Small trace and its index, with every kind of entry.
fn indexed() -> (Directory, Vec<u8>) {
    let mut options = Options::plain(Shape::plain(), 2, 1500);
    (options.loss, options.uncounted) = (true, true);
    let dir = directory(&trace_dir(&workload(9, &options), 9));
    [&["sites"][..], &["caches"], &["live", "--objects"]].iter().for_each(|view| drop(with(view, dir.path())));
    let index = fs::read(dir.file(INDEX)).unwrap();
    (dir, index)
}

#[test]
fn a_damaged_index_is_ignored() {
    let (dir, index) = indexed();
    let expected = LOOKS.map(|options| without(options, dir.path()));
    let mut random = Random::new(1);
    let step = 97 * (1 + index.len() / 12_000);
    let cuts = (0..index.len()).step_by(step).map(|len| index[..len].to_vec());
    let flips = (0..index.len()).step_by(step).map(|at| {
        let mut bytes = index.clone();
        bytes[at] ^= 1 << random.below(8);
        bytes
    });
    let longer = [[index.as_slice(), &[0]].concat(), vec![0; index.len()]];
    for (number, bytes) in cuts.chain(flips).chain(longer).enumerate() {
        dir.write(INDEX, &bytes);
        let look = number % LOOKS.len();
        let report = with(LOOKS[look], dir.path());
        assert_same(&format!("damage {number}"), &expected[look], &report);
        assert!(report.says("damaged") && report.says(WRITTEN), "damage {number}: {report:?}");
    }
}

#[test]
fn no_index_makes_a_report_fail() {
    let (dir, index) = indexed();
    let mut random = Random::new(2);
    let looks = [
        &["summary"][..],
        &["live", "--objects"],
        &["caches"],
        &["cross"],
        &["mismatch", "-n", "2"],
        LOOKS[2],
        LOOKS[3],
    ];
    for number in 0..280 {
        let mut bytes = index.clone();
        for _ in 0..1 + random.below(3) {
            // Bytes after the magic, the checksum, the version and the identity of the files.
            let at = 300 + random.below(bytes.len() as u64 - 300) as usize;
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
                _ => bytes[at] = random.below(256) as u8,
            }
        }
        seal(&mut bytes);
        dir.write(INDEX, &bytes);
        let options = [looks[number % looks.len()], &["--format", "table", "--index-from", "0"]].concat();
        run_to(0, "kmemtrace-report", &options, &[dir.path()]);
    }
}

/// A time of a file, in nanoseconds, as the index has it: seven bits a byte, the least first, of twice the number.
fn varint(seconds: i64, nanos: i64) -> Vec<u8> {
    let mut rest = (i128::from(seconds) * 1_000_000_000 + i128::from(nanos)) * 2;
    let mut bytes = Vec::new();
    while rest > 0x7f {
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

#[test]
fn damage_without_a_new_time_stamp_is_found_on_reading() {
    let files = trace_dir(&workload(11, &Options::plain(Shape::plain(), 1, 20_000)), 11);
    let (name, bytes) = &files[0];
    let dir = directory(&files);
    let options = ["sites", "--time", "30%,70%"];
    with(&options, dir.path());
    let times = || {
        let now = fs::metadata(dir.file(name)).unwrap();
        [(now.mtime(), now.mtime_nsec()), (now.ctime(), now.ctime_nsec())].map(|(s, ns)| varint(s, ns))
    };
    let before = times();
    let mut rotten = bytes.clone();
    rotten[bytes.len() / 4..bytes.len() / 4 * 3].iter_mut().step_by(1000).for_each(|byte| *byte ^= 0x40);
    fs::write(dir.file(name), &rotten).unwrap();
    // The index is changed to name the file as it is now.
    let mut index = fs::read(dir.file(INDEX)).unwrap();
    let mark = index.windows(name.len()).position(|bytes| bytes == name.as_bytes()).unwrap();
    let after = mark + index[mark..].windows(before[0].len()).position(|bytes| bytes == before[0]).unwrap();
    let (old, new) = (before.concat(), times().concat());
    assert_eq!((&index[after..after + old.len()], new.len()), (&old[..], old.len()));
    index[after..after + new.len()].copy_from_slice(&new);
    seal(&mut index);
    // Reports that read all data find the damage, too.
    for options in [&options[..], &["events", "--time", "30%,70%"], &["caches"]] {
        dir.write(INDEX, &index);
        let report = with(options, dir.path());
        assert!(report.says("damaged where it was good"), "{options:?}: {report:?}");
        assert_same(&format!("{options:?}"), &without(options, dir.path()), &report);
        assert!(!dir.file(INDEX).exists());
    }
}

#[test]
fn an_unwritable_directory_has_no_index() {
    let dir = directory(&trace_dir(&workload(4, &Options::plain(Shape::plain(), 2, 2000)), 4));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root ignores permissions unless it has no capabilities.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = Command::new(if is_root { "setpriv".into() } else { program("kmemtrace-report") });
    if is_root {
        command.arg("--bounding-set=-all").arg(program("kmemtrace-report"));
    }
    let output =
        command.args(["sites", "--format", "json", "--index-from", "0", "-v"]).arg(dir.path()).output().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let report = Report::of(output);
    assert_same("read-only", &without(&["sites"], dir.path()), &report);
    assert!(report.says("not written: Permission denied"), "{report:?}");
    assert_eq!(report.of_index.len(), 1, "one note");
    assert!(!dir.file(INDEX).exists());
}

#[test]
fn a_file_in_the_place_of_the_index_is_left_alone() {
    let dir = directory(&trace_dir(&workload(4, &Options::plain(Shape::plain(), 2, 2000)), 4));
    let plain = without(&["sites"], dir.path());
    fs::create_dir(dir.file(INDEX)).unwrap();
    let report = with(&["sites"], dir.path());
    assert_same("directory", &plain, &report);
    assert!(report.says("is not a regular file") && report.says("not written"), "{report:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "two CPUs, meta.out and the directory");
}

#[test]
fn check_and_pack_accept_an_index() {
    let (dir, _) = indexed();
    let checked = || check(dir.path());
    let mode = fs::metadata(dir.file(INDEX)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "traces are for their owners");
    let before = checked();
    fs::remove_file(dir.file(INDEX)).unwrap();
    assert_eq!(before, checked());
    with(&["summary"], dir.path());
    let plain = without(&["summary"], dir.path());
    run_to(0, "kmemtrace-report", &["pack"], &[dir.path()]);
    assert!(!dir.file(INDEX).exists(), "pack has left the index of the files before");
    assert_same("packed", &plain, &with(&["summary"], dir.path()));
}

#[test]
fn the_memory_limit_holds_with_and_without_an_index() {
    let (dir, _) = indexed();
    let limited = ["live", "--objects", "--format", "table", "--max-memory", "1M"];
    let [a, b] = [&["--no-index"][..], &["--index-from", "0"]]
        .map(|options| run("kmemtrace-report", &[&limited[..], options].concat(), &[dir.path()]));
    assert_eq!((a.status.code(), b.status.code()), (Some(2), Some(2)), "{b:?}");
    // The number of events before the limit differs from run to run.
    let line = |output: &Output| String::from_utf8_lossy(&output.stderr).split(" after ").next().map(str::to_owned);
    assert_eq!(line(&a), line(&b));
}
