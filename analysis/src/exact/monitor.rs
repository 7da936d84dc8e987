//! Live figures of random traces against a slow replay of every event, and of files that grow against the whole ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::growing::Growing;
use kmemtrace_tests::runs::seeds;

use super::stacks::{Known, StackSums, made, replay, trace};
use crate::ModuleRule;
use crate::live::{
    Fed, LiveGroup, LiveKey, LiveName, LiveRow, Monitor, MonitorBase, MonitorOptions, ObjectNames, Selection,
    SnapshotRequest,
};

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn request(group: LiveGroup) -> SnapshotRequest {
    SnapshotRequest { group, selection: None, window: 60_000_000_000, detail: None, points: 4 }
}

/// Facts of a finished trace, whose objects all count.
fn base(trace: &mut Trace) -> MonitorBase {
    MonitorBase::new(trace, MonitorOptions { shows_own: true, ..MonitorOptions::default() }).unwrap()
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
        LiveName::Cgroup(path) => format!("{:?} {:?}", row.kind, module(path)),
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
        LiveGroup::Cgroups => unreachable!("a made trace has no cgroups"),
        LiveGroup::Caches => format!("{:?}", known.kind),
        LiveGroup::Uses => format!("{folded:?} {}", known.is_pages),
    }
}

/// Groups that a made trace tells: it has no cgroups.
fn told_groups() -> impl Iterator<Item = LiveGroup> {
    LiveGroup::ALL.into_iter().filter(|group| *group != LiveGroup::Cgroups)
}

#[test]
fn live_figures_are_those_of_a_replay() {
    for seed in seeds(0..60) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let mut trace = trace(&events);
        let base = base(&mut trace);
        let mut monitor = Monitor::new(&base, &mut trace);
        let mut until = 0;
        while monitor.feed(&mut trace, Some(until), deadline()) != Fed::Ended {
            until += random.below(90);
        }
        for group in told_groups() {
            let expected = replay(&events, |known| vec![expected_key(known, group)]);
            let mut found: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
            for row in monitor.snapshot(&trace, &request(group)).rows.iter().filter(|row| row.allocs > 0) {
                // Uses and caches are several rows, of which the replay knows the sum.
                let sums = found.entry(key(row)).or_default();
                *sums = (sums.0 + row.allocs, sums.1 + row.live, sums.2 + row.peak);
            }
            let figures = |sums: &StackSums| (sums.allocs, sums.live, sums.peak);
            let mut expected: BTreeMap<_, _> =
                expected.iter().map(|(key, sums)| (key.clone(), figures(sums))).collect();
            if matches!(group, LiveGroup::Uses | LiveGroup::Caches) {
                found.values_mut().chain(expected.values_mut()).for_each(|sums| sums.2 = 0);
            }
            assert_eq!(found, expected, "seed {seed}, {group:?}");
        }
    }
}

/// Takes allocations by every second call-site and by threads that are no multiples of a number.
#[derive(Debug)]
struct SomeObjects {
    text: String,
    parity: u64,
    leaves_out: AtomicI32,
}

impl SomeObjects {
    fn takes(&self, site: u64, pid: i32) -> bool {
        self.takes_site(site) && self.takes_pid(pid)
    }

    fn takes_site(&self, site: u64) -> bool {
        site / 0x1000 % 2 == self.parity
    }

    fn takes_pid(&self, pid: i32) -> bool {
        pid % self.leaves_out.load(Ordering::Relaxed) != 0
    }
}

impl Selection for SomeObjects {
    fn text(&self) -> &str {
        &self.text
    }

    fn takes_objects(&self, _: Kind, names: &ObjectNames<'_>) -> bool {
        matches!(names.site, LiveName::Site(site, _) if self.takes_site(*site))
    }

    fn takes_thread(&self, task: &LiveName) -> bool {
        matches!(task, LiveName::Task(Some(pid), _) if self.takes_pid(*pid))
    }

    fn takes_cgroup(&self, _: &LiveName) -> bool {
        true
    }
}

/// Sizes and threads of each row, where they are shown all, add up to the row.
fn assert_details(monitor: &mut Monitor<'_>, trace: &Trace, request: &SnapshotRequest) {
    for row in monitor.snapshot(trace, request).rows.iter().filter(|row| row.allocs > 0) {
        let request = SnapshotRequest { detail: Some((request.group, row.key, row.kind)), ..request.clone() };
        // A slow machine counts them later.
        let until = deadline();
        let shares = loop {
            match monitor.snapshot(trace, &request).detail.unwrap().shares {
                Some(shares) => break shares,
                None if Instant::now() > until => panic!("no shares of {row:?}"),
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        if shares.sizes.len() < 4 {
            let sums = shares.sizes.iter().fold((0, 0), |sum, of| (sum.0 + of.objects, sum.1 + of.live));
            assert_eq!(sums, (row.objects, row.live), "{row:?}");
        }
        if shares.threads.len() < 2 {
            assert_eq!(shares.threads.iter().map(|(_, live)| live).sum::<u64>(), row.live, "{row:?}");
        }
    }
}

#[test]
fn selected_figures_are_those_of_a_replay() {
    for seed in seeds(0..60) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let mut trace_read = trace(&events);
        let base = base(&mut trace_read);
        let mut monitor = Monitor::new(&base, &mut trace_read);
        let some = |text: &str, parity, leaves_out| {
            Arc::new(SomeObjects { text: text.to_owned(), parity, leaves_out: AtomicI32::new(leaves_out) })
        };
        let (first, late) = (some("first", 0, 3), some("late", random.below(2), 2 + random.below(3) as i32));
        let is_from_the_first = random.below(2) == 0;
        let changes_at = random.below(400);
        let mut selection = if is_from_the_first { late.clone() } else { first };
        let (mut until, mut has_changed) = (0, false);
        loop {
            let fed = monitor.feed(&mut trace_read, Some(until), deadline());
            let selected: Arc<dyn Selection> = selection.clone();
            let of_sites = SnapshotRequest { selection: Some(selected), ..request(LiveGroup::Sites) };
            monitor.snapshot(&trace_read, &of_sites);
            if until >= changes_at && !has_changed && !is_from_the_first {
                // Another filter, and the names of threads have changed for it.
                (has_changed, selection) = (true, late.clone());
                let selected: Arc<dyn Selection> = selection.clone();
                monitor.snapshot(&trace_read, &SnapshotRequest { selection: Some(selected), ..of_sites.clone() });
                late.leaves_out.fetch_add(1, Ordering::Relaxed);
                monitor.renew_names(trace(&events).metadata);
            }
            if fed == Fed::Ended {
                break;
            }
            until += random.below(90);
        }
        for group in told_groups() {
            let expected = replay(&events, |known| match selection.takes(known.site, known.pid) {
                true => vec![expected_key(known, group)],
                false => Vec::new(),
            });
            let selected: Arc<dyn Selection> = selection.clone();
            let of_group = SnapshotRequest { selection: Some(selected), ..request(group) };
            let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            for row in monitor.snapshot(&trace_read, &of_group).rows.iter().filter(|row| row.live > 0) {
                let sums = found.entry(key(row)).or_default();
                *sums = (sums.0 + row.live, sums.1 + row.peak);
            }
            let counts_peak = is_from_the_first && !matches!(group, LiveGroup::Uses | LiveGroup::Caches);
            let peak = |peak: u64| if counts_peak { peak } else { 0 };
            found.values_mut().for_each(|sums| sums.1 = peak(sums.1));
            let expected = expected.iter().filter(|(_, sums)| sums.live > 0);
            let expected: BTreeMap<String, (u64, u64)> =
                expected.map(|(key, sums)| (key.clone(), (sums.live, peak(sums.peak)))).collect();
            assert_eq!(found, expected, "seed {seed}, {group:?}");
            assert_details(&mut monitor, &trace_read, &of_group);
        }
        told_groups().for_each(|group| assert_details(&mut monitor, &trace_read, &request(group)));
    }
}

/// Kind, module in its tree, and frames from the outermost one on, of a node.
type NodePath = (bool, Option<String>, Vec<u64>);

/// Nodes of a row's frames; a stack without frames has one node.
fn paths(is_pages: bool, module: Option<&str>, frames: &[u64]) -> Vec<NodePath> {
    let outermost = frames.iter().rev().copied().collect::<Vec<u64>>();
    (1..=outermost.len().max(1))
        .map(|depth| (is_pages, module.map(str::to_owned), outermost.iter().take(depth).copied().collect()))
        .collect()
}

#[test]
fn nodes_of_live_stacks_have_the_peaks_of_a_replay() {
    for seed in seeds(0..60) {
        let events = made(&mut Random::new(seed));
        let mut trace = trace(&events);
        let base = base(&mut trace);
        let mut monitor = Monitor::new(&base, &mut trace);
        while monitor.feed(&mut trace, None, deadline()) != Fed::Ended {}
        let expected = replay(&events, |known| {
            let module = format!("{:?}", known.modules(ModuleRule::Innermost)[0]);
            let of_module = paths(known.is_pages, Some(&module), &known.stack);
            [paths(known.is_pages, None, &known.stack), of_module].concat()
        });
        let expected: BTreeMap<NodePath, u64> = expected.into_iter().map(|(path, sums)| (path, sums.peak)).collect();
        let mut found = BTreeMap::new();
        let [all, by_module] =
            [LiveGroup::Stacks, LiveGroup::Modules].map(|group| monitor.snapshot(&trace, &request(group)));
        let modules: BTreeMap<_, _> = by_module.rows.iter().map(|row| (row.key, row)).collect();
        let rows = all.rows.iter().map(|row| (row, None)).chain(by_module.below.iter().map(|row| {
            let LiveKey::Stack(_, module) = row.key else { panic!("no stack: {row:?}") };
            let LiveName::Module(name) = &*modules[&LiveKey::Module(module)].name else { panic!("no module: {row:?}") };
            (row, Some(format!("{:?}", name.as_deref().map(|name| String::from_utf8_lossy(name).into_owned()))))
        }));
        for (row, module) in rows.filter(|(row, _)| row.allocs > 0) {
            let LiveName::Stack(frames) = &*row.name else { panic!("no stack: {row:?}") };
            let frames: Vec<u64> = frames.iter().map(|(frame, _)| *frame).collect();
            let nodes = paths(row.kind == Kind::Pages, module.as_deref(), &frames);
            assert_eq!(nodes.len(), row.path.len());
            let peaks = row.path.iter().map(|&node| all.node_peaks[node as usize]);
            found.extend(nodes.into_iter().zip(peaks));
        }
        assert_eq!(found, expected, "seed {seed}");
    }
}

/// Figures of all rows.
fn figures(monitor: &mut Monitor<'_>, trace: &Trace) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for group in told_groups() {
        let snapshot = monitor.snapshot(trace, &request(group));
        rows.push(format!("{:?} {:?}", snapshot.elapsed, snapshot.totals));
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
