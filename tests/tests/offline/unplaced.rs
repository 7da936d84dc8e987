//! Loss without a mark of its place, and clocks that CPUs do not share: findings that either may explain are suspect.

use std::fs;
use std::path::Path;

use kmemtrace_abi::disk::block::{
    BlockInfo, CounterSample, Counters, End, GAP_FOREIGN, GAP_UNCOUNTED, GapRecord, HEADER_BYTES, Interval, block, kind,
};
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::fault::Code;
use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::stream::report::FileReport;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::{
    Hand, Load, LoadOptions, Options, Sample, Shape, Workload, relay, trace_dir, tree, workload,
};
use kmemtrace_tests::generate::{Random, RelayOptions};
use kmemtrace_tests::programs::{check, json, run, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::runs;
use kmemtrace_tests::scenario::Scenario;
use kmemtrace_tests::views::{assert_views, printed};
use serde_json::Value;
use zerocopy::IntoBytes;

const SITE: u64 = 0xffff_ffff_8100_0010;
/// Bytes of the block at a file's end.
const END_BYTES: usize = HEADER_BYTES + size_of::<End>();

fn summary(dir: &Path) -> Value {
    json(&printed("summary", dir))
}

/// Number of findings of a class, and of those without an explanation.
fn findings(summary: &Value, class: &str) -> (u64, u64) {
    let finding = &summary["findings"][class];
    let [count, suspect] = ["count", "suspect"].map(|member| finding[member].as_u64().unwrap());
    (count, count - suspect)
}

/// Codes and messages of check's findings in a file.
fn found(check: &Value, file: usize) -> Vec<(String, String)> {
    let findings = check["files"][file]["findings"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    findings.iter().map(|finding| (text(&finding["code"]), text(&finding["message"]))).collect()
}

#[test]
fn a_cpu_whose_clock_is_behind_makes_no_finding_that_nothing_explains() {
    // One CPU's clock is behind, so its frees sort before the allocations of other CPUs.
    let behind = |clock| {
        let mut work = workload(3, &Options { clock, ..Options::plain(Shape::plain(), 4, 8000) });
        let late = work.cpus[1].items.iter_mut();
        late.for_each(|item| match item {
            StreamItem::Event(event) => event.at -= 100_000,
            StreamItem::Gap(_) => {}
        });
        let dir = Directory::new(&trace_dir(&work, 3));
        let summary = summary(dir.path());
        if clock.is_some_and(|clock| ["mono", "local"].contains(&clock)) || runs::is_all() {
            assert_views(&format!("{clock:?}"), dir.path(), &Known::of_workload(work));
        }
        findings(&summary, "free_after_free")
    };
    let (count, unexplained) = behind(Some("mono"));
    assert!(unexplained > 200, "{count} {unexplained}: too few to mean anything");
    for clock in [Some("local"), Some("perf"), Some("uptime"), None] {
        assert_eq!(behind(clock), (count, 0), "{clock:?}");
    }
}

#[test]
fn a_tree_without_some_of_its_sub_buffers_has_a_gap() {
    let (mut work, load) = Load::new(5, LoadOptions { cpus: 2, events: 30_000, live: 2000, reuses: true });
    load.for_each(|event| work.cpus[event.cpu as usize].items.push(StreamItem::Event(event)));
    let dir = Directory::new(&tree(&work, 5));
    let whole = summary(dir.path());
    let raw = dir.file("per_cpu/cpu1/trace_pipe_raw");
    let bytes = fs::read(&raw).unwrap();
    // Whole sub-buffers are gone from the middle, which shows only in the kernel's count.
    let fifth = bytes.len() / 4096 / 5 * 4096;
    fs::write(&raw, [&bytes[..2 * fifth], &bytes[3 * fifth..]].concat()).unwrap();
    let cut = summary(dir.path());
    let (before, _) = findings(&whole, "inferred_free");
    let (after, unexplained) = findings(&cut, "inferred_free");
    assert!(before == 0 && after > 50 && unexplained == 0, "{before} {after} {unexplained}");
    assert_eq!((&cut["completeness"]["gaps"], &cut["completeness"]["verdict"]), (&1.into(), &"lossy".into()));
    assert!(cut["completeness"]["lost_events"].as_u64() > Some(100));
    let check = check(dir.path());
    assert!(found(&check, 1).iter().any(|(code, _)| code == "K503"), "{check}");
    assert_eq!((&check["files"][1]["gaps"], &check["files"][1]["verdict"]), (&1.into(), &"lossy".into()));
}

#[test]
fn loss_in_a_trees_stats_beyond_its_marks_is_a_gap() {
    let work = workload(6, &Options { loss: true, ..Options::plain(Shape::plain(), 2, 5000) });
    let dir = Directory::new(&tree(&work, 6));
    let gaps = |dir: &Directory| summary(dir.path())["completeness"]["gaps"].as_u64().unwrap();
    let marks = gaps(&dir);
    let stats = dir.text("per_cpu/cpu0/stats");
    for (counter, more) in [("dropped events: ", 7), ("overrun: ", 9), ("commit overrun: ", 5)] {
        let line = stats.lines().find(|line| line.starts_with(counter)).unwrap();
        let count: u64 = line[counter.len()..].parse().unwrap();
        dir.write("per_cpu/cpu0/stats", stats.replace(line, &format!("{counter}{}", count + more)).as_bytes());
        assert_eq!(gaps(&dir), marks + 1, "{counter}");
        let (count, unexplained) = findings(&summary(dir.path()), "free_after_free");
        assert!(count > 3 && unexplained == 0, "{counter}: {unexplained} of {count}");
    }
}

#[test]
fn drops_of_a_relay_channel_make_every_finding_suspect() {
    let mut work = workload(7, &Options::plain(Shape::plain(), 3, 20_000));
    let options =
        |layout| RelayOptions { layout, endian: Endian::Little, first_sequence: 1, features: true, holes: true };
    for layout in [Layout::R4, Layout::R3] {
        let streams = relay(&mut work, &options(layout), 7);
        let dir =
            Directory::new(&streams.cpus.iter().map(|s| (format!("cpu{}", s.cpu), s.bytes())).collect::<Vec<_>>());
        let missing = summary(dir.path())["completeness"]["lost_events"].as_u64().unwrap();
        let holes = streams.holes.len() as u64;
        for (dropped, more) in [(missing, 0), (missing + 2230, 3)] {
            dir.write("total_overruns", dropped.to_string().as_bytes());
            let what = format!("{layout:?}, {dropped} dropped");
            let summary = summary(dir.path());
            assert_eq!(summary["completeness"]["gaps"], holes + more, "{what}");
            assert_eq!(summary["completeness"]["lost_events"], dropped, "{what}");
            let sites = json(&printed("sites", dir.path()));
            let bounds = sites["rows"].as_array().unwrap().iter().filter(|row| row["live_is_upper_bound"] == true);
            assert_eq!(bounds.count() == 0, more > 0, "{what}");
            let (count, unexplained) = findings(&summary, "free_after_free");
            assert!(count > 100, "{what}");
            // Historic streams have times of an unknown clock.
            assert_eq!(unexplained == 0, more > 0 || layout == Layout::R3, "{what}");
            let check = check(dir.path());
            let gaps = check["files"].as_array().unwrap().iter().filter_map(|file| file["gaps"].as_u64());
            assert_eq!(gaps.sum::<u64>(), holes + more, "{what}");
        }
    }
}

/// Scenario of pairs of allocations of an address each, on CPU 0: the second shows a free without an event, at 10, 30,
/// 50, 70 and 90.
fn reissued() -> Scenario {
    let each = |work: Scenario, at: u64| {
        let address = 0xffff_8880_0000_1000 + at * 64;
        work.kmalloc(at - 5, 0, SITE, address, (8, 8)).kmalloc(at, 0, SITE, address, (8, 8))
    };
    [10, 30, 50, 70, 90].into_iter().fold(Scenario::new(Shape::plain(), 2), each).kmalloc(
        42,
        1,
        SITE,
        0xffff_8880_0000_0100,
        (8, 8),
    )
}

/// Inferred frees that loss does not explain: their number, and the first time of each call-site and kind.
fn unexplained(work: Workload) -> (u64, Value) {
    let dir = Directory::new(&trace_dir(&work, 1));
    let summary = summary(dir.path());
    assert_views("by hand", dir.path(), &Known::of_workload(work));
    (findings(&summary, "inferred_free").1, summary["completeness"].clone())
}

#[test]
fn counters_with_times_tell_where_events_were_lost() {
    let sampled = |samples: &[(u64, u64, u64, u64)], last: (u64, Interval)| {
        let work = reissued().with(|work| {
            let cpu = &mut work.cpus[1];
            cpu.samples = samples
                .iter()
                .map(|&(from, to, refused, taken)| Sample { refused, taken, grew: Interval::new(from, to) })
                .collect();
            cpu.dropped = samples.iter().map(|sample| sample.2).sum::<u64>() + last.0;
            cpu.taken = samples.iter().map(|sample| sample.3).sum();
            cpu.last_grew = last.1;
            if last.1 == Interval::default() {
                cpu.lose_unplaced(last.0);
            }
            cpu.foretell();
        });
        let (unexplained, completeness) = unexplained(work.finish());
        (unexplained, completeness["gaps"].as_u64().unwrap(), completeness["lost_events"].as_u64().unwrap())
    };
    let nothing = (0, Interval::default());
    assert_eq!(sampled(&[], nothing), (5, 0, 0));
    // 30 lies in the interval; 50 does not.
    assert_eq!(sampled(&[(26, 44, 3, 0)], nothing), (4, 1, 3));
    // Events that other readers took count as lost; the gap's end belongs to the gap.
    assert_eq!(sampled(&[(26, 45, 0, 4)], nothing), (3, 1, 4));
    // Two growths are two gaps; a sample without growth is none.
    assert_eq!(sampled(&[(0, 11, 1, 0), (11, 64, 0, 0), (64, 71, 1, 1)], nothing), (3, 2, 3));
    // The end block has an interval of its own; without one the gap begins at the CPU's first event.
    assert_eq!(sampled(&[], (6, Interval::new(86, 1000))), (4, 1, 6));
    assert_eq!(sampled(&[(0, 6, 1, 0)], (6, Interval::default())), (1, 2, 7));
    // An interval to the end of the trace.
    assert_eq!(sampled(&[(66, u64::MAX, 2, 0)], nothing), (3, 1, 2));
}

#[test]
fn a_recording_that_was_killed_still_tells_where_events_were_lost() {
    let work = reissued().with(|work| {
        work.cpus[1].samples = vec![Sample { refused: 3, taken: 0, grew: Interval::new(26, 44) }];
        work.cpus[1].dropped = 3;
        work.cpus[1].foretell();
    });
    let dir = Directory::new(&trace_dir(&work.finish(), 1));
    let file = dir.file("cpu1.out");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - END_BYTES]).unwrap();
    let summary = summary(dir.path());
    // The gap from the last event, at 42, to the end explains the findings at 50, 70 and 90.
    assert_eq!(findings(&summary, "inferred_free"), (5, 1));
    assert_eq!((&summary["completeness"]["gaps"], &summary["completeness"]["lost_events"]), (&2.into(), &3.into()));
}

#[test]
fn a_change_by_another_program_is_a_gap_on_every_cpu() {
    let changed = |hands: &[Hand]| {
        reissued().with(|work| {
            for cpu in &mut work.cpus {
                cpu.hands = hands.to_vec();
                cpu.foretell();
            }
        })
    };
    let (unexplained, completeness) = unexplained(changed(&[Hand { from: 26, to: Some(44) }]).finish());
    assert_eq!((unexplained, &completeness["gaps"]), (4, &2.into()));
    assert_eq!((&completeness["lost_events"], &completeness["verdict"]), (&Value::Null, &"lossy".into()));
    let to_the_end = changed(&[Hand { from: 26, to: None }]).finish();
    let dir = Directory::new(&trace_dir(&to_the_end, 1));
    assert_eq!(findings(&summary(dir.path()), "inferred_free"), (5, 1));
    let check = check(dir.path());
    for cpu in 0..2 {
        let found = found(&check, cpu);
        let hands: Vec<_> = found.iter().filter(|(code, _)| code == "K107").collect();
        assert_eq!(hands.len(), 1, "{found:?}");
        assert!(hands[0].1.ends_with("another program changed what is recorded: tracing_on is 0"), "{hands:?}");
        assert_eq!((&check["files"][cpu]["gaps"], &check["files"][cpu]["lost_events"]), (&1.into(), &Value::Null));
    }
    assert_eq!(run("kmemtrace-check", &[], &[dir.path()]).status.code(), Some(1));
    let explained = String::from_utf8(run_to(0, "kmemtrace-check", &["--explain", "K107"], &[])).unwrap();
    assert!(explained.contains("What to do:") && explained.contains("-B NAME"), "{explained}");
}

#[test]
fn an_end_that_hides_blocks_with_times_is_found() {
    let work = reissued().with(|work| {
        work.cpus[1].samples = vec![Sample { refused: 0, taken: 0, grew: Interval::new(26, 44) }];
    });
    let files = trace_dir(&work.finish(), 1);
    let dir = Directory::new(&files);
    let bytes = fs::read(dir.file("cpu1.out")).unwrap();
    let sealed = pieces(&bytes).map(|piece| match piece {
        Piece::Block { info, payload, .. } if payload.len() == size_of::<End>() => {
            let mut payload = payload.to_vec();
            payload[84..88].fill(0);
            kmemtrace_abi::disk::block::block(&info, &payload)
        }
        Piece::Block { whole, .. } | Piece::Other(whole) => whole.to_vec(),
    });
    let sealed = sealed.collect::<Vec<_>>().concat();
    assert_ne!(sealed, bytes);
    dir.write("cpu1.out", &sealed);
    let found = found(&check(dir.path()), 1);
    assert!(found.iter().any(|(code, said)| code == "K307" && said.contains("0 blocks of the file tell")), "{found:?}");
}

/// Block of counters whose `dropped` has this value.
fn sample(dropped: u64, grew: Interval) -> (u8, Vec<u8>) {
    let counters = Counters { dropped: dropped.into(), ..Counters::default() };
    (kind::COUNTERS, CounterSample { counters, grew }.as_bytes().to_vec())
}

/// Record of another program's change.
fn hand(from: u64, to: u64) -> (u8, Vec<u8>) {
    let interval = Interval::new(from, to);
    let record = GapRecord { reason: GAP_FOREIGN.into(), interval, ..GapRecord::default() };
    (kind::GAP, [record.as_bytes(), b"tracing_on is 0"].concat())
}

/// Facts about a file that has `before` when reading begins, and then grows by `after`; neither has an end block.
fn growing(before: &[(u8, Vec<u8>)], after: &[(u8, Vec<u8>)]) -> FileReport {
    let (mut work, load) = Load::new(5, LoadOptions { cpus: 1, events: 30_000, live: 2000, reuses: true });
    work.cpus[0].items.extend(load.map(StreamItem::Event));
    let dir = Directory::new(&trace_dir(&work, 5));
    let whole = fs::read(dir.file("cpu0.out")).unwrap();
    let infos =
        pieces(&whole).filter_map(|piece| if let Piece::Block { info, .. } = piece { Some(info) } else { None });
    let end = infos.last().unwrap();
    let mut sequence = end.sequence;
    let mut sealed = |blocks: &[(u8, Vec<u8>)]| {
        let each = blocks.iter().map(|(kind, payload)| {
            let info = BlockInfo { kind: *kind, sequence, ..end };
            sequence += 1;
            block(&info, payload)
        });
        each.collect::<Vec<_>>().concat()
    };
    let mut bytes = whole[..whole.len() - END_BYTES].to_vec();
    bytes.extend(sealed(before));
    dir.write("cpu0.out", &bytes);
    let mut trace = Trace::open(&[dir.file("cpu0.out")]).unwrap();
    let mut items = Vec::new();
    assert!(trace.streams[0].fill(&mut trace.names, &mut items));
    bytes.extend(sealed(after));
    dir.write("cpu0.out", &bytes);
    while trace.streams[0].fill(&mut trace.names, &mut items) {}
    let facts = trace.streams[0].report();
    assert_eq!(facts.bytes, bytes.len() as u64, "the reader met the file's end before it grew");
    facts.clone()
}

#[test]
fn loss_that_is_written_while_the_file_is_read_is_told() {
    let hands = |facts: &FileReport| facts.faults.iter().filter(|fault| fault.code == Code::ForeignHand).count();
    let to_the_end = Interval::TO_THE_END;
    let facts = growing(&[], &[hand(9, to_the_end), hand(9, 40), hand(50, to_the_end)]);
    assert_eq!((hands(&facts), facts.lost, facts.late_loss), (2, None, true));
    // The end of a change that was first reported to the end of the trace is no new finding.
    let facts = growing(&[hand(9, to_the_end)], &[hand(9, 40)]);
    assert_eq!((hands(&facts), facts.lost, facts.late_loss), (1, None, false));
    let facts = growing(&[sample(2, Interval::new(5, 9))], &[sample(7, Interval::new(9, 20))]);
    assert_eq!((hands(&facts), facts.lost, facts.late_loss), (0, Some(7), true));
    let facts = growing(&[sample(2, Interval::new(5, 9))], &[sample(2, Interval::new(9, 20))]);
    assert_eq!((hands(&facts), facts.lost, facts.late_loss), (0, Some(2), false));
}

/// File with changed payloads of its blocks, and right checksums.
fn resealed(bytes: &[u8], mut change: impl FnMut(&BlockInfo, &mut Vec<u8>)) -> Vec<u8> {
    let sealed = pieces(bytes).map(|piece| match piece {
        Piece::Block { info, payload, .. } => {
            let mut payload = payload.to_vec();
            change(&info, &mut payload);
            block(&info, &payload)
        }
        Piece::Other(whole) => whole.to_vec(),
    });
    sealed.collect::<Vec<_>>().concat()
}

#[test]
fn a_damaged_sample_moves_no_loss_into_a_later_interval() {
    let work = reissued().with(|work| {
        let grown = [(26, 44, 3), (66, 68, 1)];
        work.cpus[1].samples =
            grown.map(|(from, to, refused)| Sample { refused, taken: 0, grew: Interval::new(from, to) }).to_vec();
        work.cpus[1].dropped = 4;
        work.cpus[1].foretell();
    });
    let dir = Directory::new(&trace_dir(&work.finish(), 1));
    let mut bytes = fs::read(dir.file("cpu1.out")).unwrap();
    let mut at = 0;
    for piece in pieces(&bytes.clone()) {
        // The first sample: 3 events were dropped until then.
        if matches!(piece, Piece::Block { info, payload, .. } if info.kind == kind::COUNTERS && payload[16] == 3) {
            bytes[at + HEADER_BYTES] ^= 1;
        }
        at += piece.bytes().len();
    }
    dir.write("cpu1.out", &bytes);
    let found = found(&check(dir.path()), 1);
    assert!(found.iter().any(|(code, _)| code == "K301"), "{found:?}");
    // The loss between 26 and 44 explains the finding at 30.
    let (count, unexplained) = findings(&summary(dir.path()), "inferred_free");
    assert_eq!((count, unexplained), (5, 0));
}

#[test]
fn each_reason_of_a_gap_has_a_finding_of_its_own() {
    let work = reissued().with(|work| work.cpus[1].hands = vec![Hand { from: 26, to: None }]);
    let dir = Directory::new(&trace_dir(&work.finish(), 1));
    let bytes = fs::read(dir.file("cpu1.out")).unwrap();
    for (reason, wanted, said) in [
        (GAP_UNCOUNTED, "K108", "could not be read or counted: tracing_on is 0; events lost from then on"),
        (77, "K109", "for reason 77, which is not known here: tracing_on is 0"),
    ] {
        let changed = resealed(&bytes, |info, payload| {
            if info.kind == kind::GAP {
                payload[8..12].copy_from_slice(&reason.to_le_bytes());
            }
        });
        dir.write("cpu1.out", &changed);
        let checked = check(dir.path());
        let found = found(&checked, 1);
        assert!(found.iter().any(|(code, message)| code == wanted && message.contains(said)), "{found:?}");
        assert!(found.iter().all(|(code, _)| code != "K104"), "{found:?}");
        assert_eq!((&checked["files"][1]["lost_events"], &checked["files"][1]["gaps"]), (&Value::Null, &1.into()));
        assert_eq!(findings(&summary(dir.path()), "inferred_free"), (5, 1));
        let explained = String::from_utf8(run_to(0, "kmemtrace-check", &["--explain", wanted], &[])).unwrap();
        assert!(explained.contains("What to do:") && !explained.contains("disk"), "{explained}");
    }
}

#[test]
fn an_end_that_is_wrong_about_marks_without_a_count_is_found() {
    let marked = |is_vague: bool| {
        let options = Options { loss: true, uncounted: is_vague, ..Options::plain(Shape::plain(), 1, 3000) };
        trace_dir(&workload(8, &options), 8).swap_remove(0).1
    };
    for (is_vague, marks) in [(false, 2), (true, 1)] {
        let dir = Directory::new(&[]);
        let bytes = resealed(&marked(is_vague), |info, payload| {
            if info.kind == kind::END {
                payload[104] = marks;
            }
        });
        dir.write("cpu0.out", &bytes);
        let found = found(&check(dir.path()), 0);
        assert!(found.iter().any(|(code, said)| code == "K307" && said.contains("it says that")), "{found:?}");
    }
}

#[test]
fn a_clock_that_counts_ticks_has_no_seconds() {
    let clock = |clock| reissued().with(|work| work.clock = Some(clock)).finish();
    for name in ["x86-tsc", "counter", "uptime"] {
        let dir = Directory::new(&trace_dir(&clock(name), 1));
        let text = |options: &[&str]| {
            let output = run("kmemtrace-report", options, &[dir.path()]);
            (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
        };
        let (_, table, _) = text(&[]);
        assert!(table.contains("recorded -, to +85 ticks") && !table.contains(" s "), "{table}");
        assert_eq!(table.contains("at +80 ticks"), name != "uptime", "{table}");
        assert!(text(&["live", "--objects"]).1.contains("+37 ticks"));
        assert!(text(&["mismatch", "--all"]).1.contains("+5 ticks"));
        let checked = String::from_utf8(run_to(0, "kmemtrace-check", &[], &[dir.path()])).unwrap();
        assert!(checked.contains("+0 ticks") && checked.contains("+85 ticks") && !checked.contains(" s "), "{checked}");
        let events = |window: &str| {
            let (status, lines, said) = text(&["events", "--format", "json", "--time", window]);
            (status, lines.lines().count(), said)
        };
        for (window, count) in [("30,50", 4), ("+25,+45", 4), ("-20,", 3), ("0%,50%", 6), ("1000,", 0)] {
            let (status, lines, said) = events(window);
            assert_eq!((status, lines), (Some(0), count), "{name} {window}: {said}");
        }
        assert!(events("1000,").2.contains("the trace starts at 5\n"));
        for window in ["+1.5s,", ",10ns", "-2m,"] {
            let (status, lines, said) = events(window);
            assert_eq!((status, lines, said.lines().count()), (Some(2), 0, 1), "{name} {window}: {said}");
            assert!(said.contains(name) && said.contains("ticks"), "{said}");
        }
    }
    let dir = Directory::new(&trace_dir(&clock("mono"), 1));
    let table = String::from_utf8(run_to(0, "kmemtrace-report", &[], &[dir.path()])).unwrap();
    assert!(table.contains("recorded 0.000000 s"), "{table}");
    run_to(0, "kmemtrace-report", &["--time", "+0.5s,"], &[dir.path()]);
}

#[test]
fn without_an_order_of_events_ordered_figures_are_null() {
    let options = Options { clock: Some("uptime"), ..Options::plain(Shape::plain(), 3, 3000) };
    let dir = Directory::new(&trace_dir(&workload(9, &options), 9));
    let summary = summary(dir.path());
    for member in ["cross_cpu", "cross_cpu_bytes", "cross_node"] {
        assert_eq!(summary["pairs"][member], Value::Null, "{member}");
    }
    assert_eq!((&summary["total"]["peak_live_allocated"], &summary["total"]["peak_at"]), (&Value::Null, &Value::Null));
    for class in ["kind_mismatch", "free_after_free", "inferred_free"] {
        let (count, unexplained) = findings(&summary, class);
        assert!(count > 0 && unexplained == 0 || count == 0 && class == "kind_mismatch", "{class}");
    }
    let cross = json(&printed("cross", dir.path()));
    assert_eq!(cross["matrix"], Value::Null);
    assert!(
        cross["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["cross_cpu"].is_null() && row["cross_cpu_bytes"].is_null())
    );
    for view in ["summary", "sites", "caches", "cross", "mismatch", "live"] {
        let text = String::from_utf8(run_to(0, "kmemtrace-report", &[view], &[dir.path()])).unwrap();
        assert!(view != "cross" || text.contains("is not known"), "{text}");
    }
}

#[test]
fn loss_without_a_place_survives_any_window_and_the_index() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let options = Options {
            unplaced: true,
            timed: seed % 2 == 0,
            foreign: seed % 3 == 0,
            ..Options::plain(Shape::plain(), 3, 4000)
        };
        let dir = Directory::new(&trace_dir(&workload(seed, &options), seed));
        std::thread::sleep(std::time::Duration::from_millis(40));
        let (from, to) = (random.below(80), 80 + random.below(21));
        let window = format!("{from}%,{to}%");
        let asked = ["summary", "--format", "json", "--time", &window];
        let report = |more: &[&str]| run("kmemtrace-report", &[&asked[..], more].concat(), &[dir.path()]);
        let plain = report(&["--no-index"]);
        assert_eq!(plain.status.code(), Some(0));
        run_to(0, "kmemtrace-report", &["--index-from", "0"], &[dir.path()]);
        let narrowed = report(&["--index-from", "0", "-v"]);
        assert!(String::from_utf8_lossy(&narrowed.stderr).contains("had to be read"), "seed {seed}");
        assert!(plain.stdout == narrowed.stdout, "seed {seed}, {window}");
        if !options.timed {
            let (count, unexplained) = findings(&json(&narrowed.stdout), "inferred_free");
            assert!(unexplained == 0, "seed {seed}, {window}: {unexplained} of {count}");
        }
    }
}
