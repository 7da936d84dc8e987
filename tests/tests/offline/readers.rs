//! Check and report on random traces of any machine: every view equals the reference's.
//!
//! `KMEMTRACE_SEEDS=FROM..TO` tries other traces than the usual ones.

use std::collections::HashMap;
use std::mem::offset_of;

use kmemtrace_abi::disk::block::{End, block, kind};
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::{Options, PerCpu, Shape, relay_dir, trace_dir, workload};
use kmemtrace_tests::programs::{json, run, text};
use kmemtrace_tests::recording::{Directory, random_relay, random_workload};
use kmemtrace_tests::reference::Known;
use kmemtrace_tests::reference::pairs::{self, Class};
use kmemtrace_tests::runs::seeds;
use kmemtrace_tests::views::{DOCUMENTS, assert_invariants, assert_views, printed};
use serde_json::Value;

#[test]
fn the_usual_traces_have_every_finding() {
    use Class::*;
    let mut seen: HashMap<(Class, bool), usize> = HashMap::new();
    for seed in 0..25 {
        let (_, workload) = random_workload(seed, 700);
        for finding in pairs::pairs(&Known::of_workload(workload)).findings {
            *seen.entry((finding.class, finding.suspect)).or_default() += 1;
        }
    }
    let always = Class::SUSPECT.into_iter().flat_map(|class| [(class, false), (class, true)]);
    let plain = [ShortAlloc, FreeWithoutAlloc, FailedAlloc, NullFree].map(|class| (class, false));
    for wanted in always.chain(plain) {
        assert!(seen.get(&wanted).is_some_and(|&n| n > 3), "too few of {wanted:?}: {seen:?}");
    }
}

#[test]
fn reports_equal_the_reference() {
    for seed in seeds(0..25) {
        let (options, workload) = random_workload(seed, 700);
        let dir = Directory::new(&trace_dir(&workload, seed));
        let what = format!("seed {seed}, {:?}", options.shape);
        assert_views(&what, dir.path(), &Known::of_workload(workload));
        assert_invariants(&what, dir.path());
    }
}

#[test]
fn reports_of_relay_channels_equal_the_reference() {
    for seed in seeds(0..20) {
        for raw in [true, false] {
            let (workload, options, streams) = random_relay(seed, 500);
            let dir = if raw {
                let name = |cpu: u32| if seed % 2 == 0 { format!("cpu{cpu}") } else { format!("cpu{cpu}.out") };
                Directory::new(&streams.cpus.iter().map(|s| (name(s.cpu), s.bytes())).collect::<Vec<_>>())
            } else {
                Directory::new(&relay_dir(&workload, &options, &streams, seed))
            };
            // Historic streams have no numbers: only the channel's counter shows loss.
            let overruns = (raw && seed % 3 == 0).then_some(5);
            if let Some(overruns) = overruns {
                dir.write("total_overruns", format!("{overruns}\n").as_bytes());
            }
            let what = format!("seed {seed}, raw {raw}, {options:?}");
            assert_views(&what, dir.path(), &Known::of_relay(workload, &options, &streams, raw, overruns));
            assert_invariants(&what, dir.path());
        }
    }
}

#[test]
fn a_damaged_trace_is_reported_as_its_readable_part() {
    for seed in seeds(0..8) {
        let mut options = Options::plain(Shape::plain(), 3, 1500);
        (options.loss, options.uncounted) = (true, seed % 2 == 0);
        let mut files = trace_dir(&workload(seed, &options), seed);
        let bytes = &mut files[1].1;
        let at = bytes.len() * 2 / 3;
        match seed % 4 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 0x10,
            2 => drop(bytes.drain(at..at + 50)),
            _ => bytes.clear(),
        }
        let dir = Directory::new(&files);
        let known = Known::of_trace(Trace::open(&[dir.path().to_owned()]).unwrap());
        assert!(known.verdict >= Verdict::Truncated, "seed {seed}");
        assert_views(&format!("seed {seed}"), dir.path(), &known);
    }
}

#[test]
fn two_runs_print_the_same_bytes() {
    let (_, workload) = random_workload(4, 3000);
    let dir = Directory::new(&trace_dir(&workload, 4));
    for view in DOCUMENTS.into_iter().chain(["events"]) {
        let first = printed(view, dir.path());
        assert!(!first.is_empty());
        for _ in 0..3 {
            assert!(printed(view, dir.path()) == first, "{view} differs from run to run");
        }
    }
}

/// Verdicts of the checker for each file, by CPU.
fn checked(dir: &Directory, status: i32) -> Vec<(Option<u64>, String, Value)> {
    let output = run("kmemtrace-check", &["--format", "json"], &[dir.path()]);
    assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    let document = json(&output.stdout);
    assert_eq!(document["schema"], "kmemtrace.check/1");
    let files = document["files"].as_array().unwrap();
    let verdict = |file: &Value| file["verdict"].as_str().unwrap_or_default().to_owned();
    files.iter().map(|file| (file["cpu"].as_u64(), verdict(file), file.clone())).collect()
}

fn verdict_of(cpu: &PerCpu) -> &'static str {
    if cpu.cut || cpu.missing {
        "truncated"
    } else if cpu.lost() == Some(0) {
        "ok"
    } else {
        "lossy"
    }
}

#[test]
fn check_prints_each_files_verdict_and_counts() {
    for seed in seeds(0..30) {
        let (_, workload) = random_workload(seed, 400);
        let dir = Directory::new(&trace_dir(&workload, seed));
        let worst = workload.cpus.iter().map(verdict_of).any(|verdict| verdict != "ok");
        let files = checked(&dir, i32::from(worst));
        for cpu in &workload.cpus {
            let (_, verdict, file) = files
                .iter()
                .find(|(number, ..)| *number == Some(u64::from(cpu.cpu)))
                .unwrap_or_else(|| panic!("seed {seed}: no CPU {}", cpu.cpu));
            assert_eq!(verdict, verdict_of(cpu), "seed {seed}: {file}");
            // The addresses of a record are no events of their own.
            let events =
                cpu.items.iter().filter(|i| matches!(i, StreamItem::Event(event) if !event.is_address())).count();
            let gaps = cpu.items.iter().filter(|i| matches!(i, StreamItem::Gap(_))).count();
            if !cpu.missing {
                let found = ["events", "gaps", "lost_events"].map(|member| file[member].as_u64());
                let expected = [Some(events as u64), Some(gaps as u64), cpu.lost()];
                assert_eq!(found, expected, "seed {seed}: {file}");
            }
        }
    }
}

#[test]
fn check_tells_cut_from_damaged() {
    let options = Options::plain(Shape::plain(), 2, 600);
    let files = trace_dir(&workload(1, &options), 1);
    let dir = Directory::new(&files);
    let verdicts =
        |status| checked(&dir, status).into_iter().map(|(cpu, verdict, _)| (cpu, verdict)).collect::<Vec<_>>();
    assert!(verdicts(0).iter().all(|(_, verdict)| verdict == "ok"));
    let good = &files[1].1;
    dir.write("cpu1.out", &good[..good.len() - 7]);
    assert!(verdicts(1).contains(&(Some(1), "truncated".into())));
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    dir.write("cpu1.out", &flipped);
    assert!(verdicts(3).contains(&(Some(1), "corrupt".into())));
    assert!(verdicts(3).contains(&(Some(0), "ok".into())));
    dir.write("cpu1.out", b"");
    assert!(verdicts(1).contains(&(Some(1), "truncated".into())));
}

/// Number in a block that another program may change, with right checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forged {
    First,
    Last,
    LostBefore,
    EndFirst,
    EndLast,
}

/// File with such a number made greater or less, in block `which` of those that have it; `None` if there is no such
/// block.
fn forge(file: &[u8], forged: Forged, which: usize, by: u64) -> Option<Vec<u8>> {
    let (mut out, mut met) = (Vec::new(), 0);
    for piece in pieces(file) {
        let Piece::Block { mut info, payload, whole } = piece else { return None };
        let of_end = matches!(forged, Forged::EndFirst | Forged::EndLast);
        let has_it = match info.kind {
            kind::DATA => !of_end && info.events > 0,
            kind::END => of_end || forged == Forged::LostBefore,
            _ => forged == Forged::LostBefore,
        };
        met += usize::from(has_it);
        if !has_it || met != which + 1 {
            out.extend_from_slice(whole);
            continue;
        }
        let mut payload = payload.to_vec();
        match forged {
            Forged::First => info.first = info.first.wrapping_add(by),
            Forged::Last => info.last = info.last.wrapping_add(by),
            Forged::LostBefore => info.lost_before = info.lost_before.wrapping_add(by),
            Forged::EndFirst | Forged::EndLast => {
                let at = if forged == Forged::EndFirst { offset_of!(End, first) } else { offset_of!(End, last) };
                let time = payload.get_mut(at..)?.first_chunk_mut()?;
                *time = u64::from_le_bytes(*time).wrapping_add(by).to_le_bytes();
            }
        }
        out.extend_from_slice(&block(&info, &payload));
    }
    (met > which).then_some(out)
}

#[test]
fn wrong_times_and_losses_in_blocks_are_found() {
    let recordings = seeds(0..6).map(|seed| {
        let mut options = Options::plain(Shape::plain(), 2, 1500);
        (options.loss, options.uncounted) = (seed % 3 > 0, seed % 2 == 0);
        trace_dir(&workload(seed, &options), seed)
    });
    let relay = seeds(0..3).map(|seed| {
        let (workload, options, streams) = random_relay(seed, 500);
        relay_dir(&workload, &options, &streams, seed)
    });
    let mut found = HashMap::new();
    for (seed, files) in recordings.chain(relay).enumerate() {
        let dir = Directory::new(&files);
        let whole = run("kmemtrace-check", &[], &[dir.path()]).status.code();
        assert!(matches!(whole, Some(0 | 1)), "seed {seed}");
        let (name, bytes) = &files[0];
        for forged in [Forged::First, Forged::Last, Forged::LostBefore, Forged::EndFirst, Forged::EndLast] {
            for (which, by) in [(0, 1), (0, 1_000_000_000), (1, 1), (1, u64::MAX), (2, 1_000_000)] {
                let Some(bytes) = forge(bytes, forged, which, by) else { continue };
                dir.write(name, &bytes);
                let (_, verdict, file) = checked(&dir, 3).swap_remove(0);
                let what = format!("seed {seed}, {forged:?} of block {which} by {by}: {file}");
                assert_eq!(verdict, "corrupt", "{what}");
                assert!(file["findings"].as_array().unwrap().iter().any(|finding| finding["code"] == "K307"), "{what}");
                let summary = json(&printed("summary", dir.path()));
                assert_eq!(summary["completeness"]["verdict"], "corrupt", "{what}");
                *found.entry(format!("{forged:?}")).or_insert(0) += 1;
            }
        }
        dir.write(name, bytes);
        assert_eq!(run("kmemtrace-check", &[], &[dir.path()]).status.code(), whole);
    }
    assert!(found.len() == 5 && found.values().all(|&n| n > 4), "{found:?}");
}

#[test]
fn an_input_without_a_trace_is_refused_with_status_3_and_one_line() {
    let dir = Directory::new(&[("notes.txt".into(), b"nothing".to_vec())]);
    let garbage = Directory::new(&[("cpu0.out".into(), vec![0x55; 5000])]);
    for program in ["kmemtrace-check", "kmemtrace-report"] {
        for path in [dir.path(), garbage.path()] {
            let output = run(program, &[], &[path]);
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{program} {}: {stderr}", path.display());
            assert_eq!(stderr.trim_end().lines().count(), 1, "{program}: {stderr}");
            assert!(output.stdout.is_empty(), "{program}");
        }
        let output = run(program, &[], &[&dir.file("absent")]);
        assert_eq!(output.status.code(), Some(2), "{program} of a path that does not exist");
    }
}

#[test]
fn windows_from_the_end_are_the_same_with_and_without_end_blocks() {
    for seed in 0..6 {
        let mut options = Options::plain(Shape::plain(), 2, 500);
        options.loss = seed % 2 == 0;
        let files = trace_dir(&workload(seed, &options), seed);
        let dir = Directory::new(&files);
        let trace = json(&printed("summary", dir.path()))["trace"].clone();
        let (first, last) = (trace["first"].as_u64().unwrap(), trace["last"].as_u64().unwrap());
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let middle = first + (last - first) / 2;
        let summary = |dir: &Directory, time: &str| {
            let time = format!("--time={time}");
            let mut summary =
                json(&run("kmemtrace-report", &["summary", "--format", "json", &time], &[dir.path()]).stdout);
            // An open end of a window is no key of the trace.
            assert_eq!(summary["query"].take()["time"][0], middle, "{time}");
            summary
        };
        let absolute = summary(&dir, &format!("{},{}", seconds(middle), seconds(last)));
        let from_the_end = format!("-{}s,", seconds(last - middle));
        let relative = summary(&dir, &from_the_end);
        assert_eq!(relative, absolute, "seed {seed}");
        assert!(relative["events"]["total"].as_u64() > Some(10), "seed {seed}: {relative}");
        // A file without its last byte has no end block.
        let cut = files.into_iter().map(|(name, mut bytes)| {
            bytes.pop();
            (name, bytes)
        });
        let cut = Directory::new(&cut.collect::<Vec<_>>());
        assert_eq!(summary(&cut, &from_the_end)["events"], relative["events"], "seed {seed}");
    }
}
