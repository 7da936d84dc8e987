//! Live figures of random traces against a slow replay of every event, and of files that grow against the whole ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::growing::Growing;
use kmemtrace_tests::recording::seeds;

use super::stacks::{Known, Sums, made, replay, trace};
use crate::ModuleRule;
use crate::live::{Fed, LiveGroup, LiveName, LiveRow, Monitor, MonitorBase, MonitorOptions, SnapshotRequest};

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn request(group: LiveGroup) -> SnapshotRequest {
    SnapshotRequest { group, window: 60_000_000_000, detail: None, points: 4 }
}

/// Key of a row as text, the same for a row and for an allocation.
fn key(row: &LiveRow) -> String {
    let module = |module: &Option<Box<[u8]>>| module.as_deref().map(|name| String::from_utf8_lossy(name).into_owned());
    match &*row.name {
        LiveName::Site(site, _) => format!("{:?} {site:#x}", row.kind),
        LiveName::Stack(frames) => {
            format!("{:?} {:x?}", row.kind, frames.iter().map(|(frame, _)| *frame).collect::<Vec<_>>())
        }
        LiveName::Module(name) => format!("{:?} {:?}", row.kind, module(name)),
        LiveName::Task(pid, _) => format!("{:?} {pid:?}", row.kind),
        LiveName::Cache(_) => format!("{:?}", row.kind),
        LiveName::Use(name) => format!("{:?} {}", row.kind, name.is_some()),
    }
}

fn expected_key(known: &Known, group: LiveGroup) -> String {
    let folded = if known.is_pages { Kind::Pages } else { Kind::Kmalloc };
    match group {
        LiveGroup::Sites => format!("{:?} {:#x}", known.kind, known.site),
        LiveGroup::Stacks => format!("{folded:?} {:x?}", known.stack),
        LiveGroup::Modules => format!("{folded:?} {:?}", known.modules(ModuleRule::Innermost)[0]),
        LiveGroup::Tasks => format!("{folded:?} {:?}", Some(known.pid)),
        LiveGroup::Caches => format!("{:?}", known.kind),
        LiveGroup::Uses => format!("{folded:?} {}", known.is_pages),
    }
}

#[test]
fn live_figures_are_those_of_a_replay() {
    for seed in seeds(0..60) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let mut trace = trace(&events);
        let base =
            MonitorBase::new(&mut trace, MonitorOptions { shows_own: true, ..MonitorOptions::default() }).unwrap();
        let mut monitor = Monitor::new(&base, &mut trace);
        let mut until = 0;
        while monitor.feed(&mut trace, Some(until), deadline()) != Fed::Ended {
            until += random.below(90);
        }
        for group in LiveGroup::ALL {
            let expected = replay(&events, |known| vec![expected_key(known, group)]);
            let mut found: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
            for row in monitor.snapshot(&trace, &request(group)).rows.iter().filter(|row| row.allocs > 0) {
                // Uses and caches are several rows, of which the replay knows the sum.
                let sums = found.entry(key(row)).or_default();
                *sums = (sums.0 + row.allocs, sums.1 + row.live, sums.2 + row.peak);
            }
            let figures = |sums: &Sums| (sums.allocs, sums.live, sums.peak);
            let mut expected: BTreeMap<_, _> =
                expected.iter().map(|(key, sums)| (key.clone(), figures(sums))).collect();
            if matches!(group, LiveGroup::Uses | LiveGroup::Caches) {
                found.values_mut().chain(expected.values_mut()).for_each(|sums| sums.2 = 0);
            }
            assert_eq!(found, expected, "seed {seed}, {group:?}");
        }
    }
}

/// Figures of all rows.
fn figures(monitor: &mut Monitor<'_>, trace: &Trace) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for group in LiveGroup::ALL {
        let snapshot = monitor.snapshot(trace, &request(group));
        rows.push(format!("{:?} {:?} {:?}", snapshot.elapsed, snapshot.pages, snapshot.slab));
        rows.extend(snapshot.rows.iter().map(|row| {
            let LiveRow { live, peak, objects, allocs, frees, cross_cpu, wasted, .. } = row;
            format!("{group:?} {} {live} {peak} {objects} {allocs} {frees} {cross_cpu} {wasted}", key(row))
        }));
    }
    rows.sort_unstable();
    rows
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

#[test]
fn files_that_grow_in_many_steps_have_the_figures_of_whole_ones() {
    for name in ["amd64-6.1", "amd64-6.18", "s390x-6.1", "i386-6.1", "amd64-6.1-lossy"] {
        let mut trace = Trace::open(&[sample(name)]).unwrap();
        let base = MonitorBase::new(&mut trace, MonitorOptions::default()).unwrap();
        let mut monitor = Monitor::new(&base, &mut trace);
        while monitor.feed(&mut trace, None, deadline()) != Fed::Ended {}
        let whole = figures(&mut monitor, &trace);
        for seed in seeds(0..6) {
            let mut random = Random::new(seed);
            let mut growing = Growing::new(&sample(name));
            let mut trace = Trace::open(&[growing.directory.path().to_owned()]).unwrap();
            let options = MonitorOptions { follows: true, ..MonitorOptions::default() };
            let base = MonitorBase::new(&mut trace, options).unwrap();
            let mut monitor = Monitor::new(&base, &mut trace);
            let (mut time, end) = growing.times;
            let step = 1 + (end - time) / 20;
            while time < end {
                time += random.below(2 * step);
                growing.grow_to(time.min(end));
                for _ in 0..random.below(3) {
                    monitor.feed(&mut trace, None, deadline());
                }
            }
            growing.finish();
            monitor.feed(&mut trace, None, deadline());
            trace.streams.iter_mut().for_each(|stream| stream.follow(false));
            while monitor.feed(&mut trace, None, deadline()) != Fed::Ended {}
            assert_eq!(figures(&mut monitor, &trace), whole, "{name}, seed {seed}");
        }
    }
}
