//! Decoder: its items are those of the generator, for any machine, kernel and loss.

use kmemtrace_abi::event::{Action, Event, EventSink, Gap, Names, Space, StreamItem};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::{Workload, relay_dir, trace_dir, tree, workload};
use kmemtrace_tests::recording::{Directory, random_relay, random_tree, random_workload};
use kmemtrace_tests::reference::Known;

/// Item with its names spelled out, comparable between traces.
#[derive(Debug, PartialEq)]
enum Plain {
    Event { event: Event, name: String, cache: Option<String>, stack: Option<Vec<u64>> },
    Gap(Gap),
}

fn plain(items: &[StreamItem], names: &Names) -> Vec<Plain> {
    let text = |id| String::from_utf8_lossy(names.get(id)).into_owned();
    let mut nothing = Names::new();
    let same = nothing.intern(b"");
    let plain = |item: &StreamItem| match *item {
        StreamItem::Gap(gap) => Plain::Gap(gap),
        StreamItem::Event(event) => {
            let (name, cache) = (text(event.name), event.cache.map(text));
            let stack = event.stack.map(|stack| names.stacks.get(stack).to_vec());
            let mut event = Event { name: same, cache: None, stack: None, ..event };
            // Other events promise only time, thread and name.
            if event.action == Action::Other {
                event.address = 0;
            }
            // The reference has the site of a stack already, which a decoder does not look for.
            if matches!(event.action, Action::Alloc(kind) if kind.space() != Space::Slab) {
                event.call_site = 0;
            }
            Plain::Event { event, name, cache, stack }
        }
    };
    items.iter().map(plain).collect()
}

fn assert_same(seed: u64, truth: &Known, found: &Known) {
    let cpus = |known: &Known| known.cpus.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>();
    assert_eq!(cpus(truth), cpus(found), "seed {seed}");
    for ((cpu, want), (_, have)) in truth.cpus.iter().zip(&found.cpus) {
        let (want, have) = (plain(want, &truth.names), plain(have, &found.names));
        if let Some(at) = (0..want.len().max(have.len())).find(|&i| want.get(i) != have.get(i)) {
            panic!("seed {seed}, CPU {cpu}, item {at}:\nwant {:?}\nhave {:?}", want.get(at), have.get(at));
        }
    }
    assert_eq!((truth.verdict, truth.lost), (found.verdict, found.lost), "seed {seed}");
    assert_eq!((&truth.truncated, &truth.missing), (&found.truncated, &found.missing), "seed {seed}");
    assert_eq!((&truth.comms, &truth.nodes), (&found.comms, &found.nodes), "seed {seed}");
    assert_eq!(format!("{:?}", truth.trace), format!("{:?}", found.trace), "seed {seed}");
}

#[test]
fn trace_directories_are_read_back() {
    for seed in 0..150 {
        let (_, workload) = random_workload(seed, 1200);
        let dir = Directory::new(&trace_dir(&workload, seed));
        let found = Known::of_trace(Trace::open(&[dir.path().to_owned()]).unwrap());
        assert_same(seed, &Known::of_workload(workload), &found);
    }
}

/// Stacks that are tied to events of a workload, and records of other stacks.
fn stacks(workload: &Workload) -> (u64, u64) {
    let items = workload.cpus.iter().flat_map(|cpu| &cpu.items);
    let (mut tied, mut records) = (0, 0);
    for item in items {
        let StreamItem::Event(event) = item else { continue };
        // Addresses have the stack of their record.
        if event.is_address() {
            continue;
        }
        match workload.names.get(event.name) == b"kernel_stack" {
            true => records += 1,
            false => tied += u64::from(event.stack.is_some()),
        }
    }
    (tied, records - tied)
}

/// The same by the reports of a trace, read to its end in pieces of any size, each with other tables of names.
fn reported(path: &std::path::Path) -> (u64, u64) {
    struct Frames(u64);
    impl EventSink for Frames {
        fn event(&mut self, event: Event, names: &Names) {
            let name = names.get(event.name);
            assert!(event.stack.is_none_or(|stack| name != b"kernel_stack" && !names.stacks.get(stack).is_empty()));
            self.0 += u64::from(event.stack.is_some() && !event.is_address());
        }
        fn gap(&mut self, _: Gap) {}
    }
    let mut trace = Trace::open(&[path.to_owned()]).unwrap();
    let (mut seen, mut tied, mut unmatched) = (Frames(0), 0, 0);
    for stream in &mut trace.streams {
        let mut batch = 1;
        while stream.decode(&mut trace.names.clone(), &mut seen, batch) {
            batch = batch % 90 + 7;
        }
        tied += stream.report().stacks;
        unmatched += stream.report().stacks_unmatched;
    }
    assert_eq!(seen.0, tied);
    (tied, unmatched)
}

#[test]
fn stacks_are_tied_to_their_events() {
    let mut sum = (0, 0);
    for seed in 0..60 {
        let (mut options, _) = if seed % 2 == 0 { random_workload(seed, 1500) } else { random_tree(seed, 1500) };
        options.stacks = true;
        let workload = workload(seed, &options);
        let files = if seed % 2 == 0 { trace_dir(&workload, seed) } else { tree(&workload, seed) };
        let dir = Directory::new(&files);
        let want = stacks(&workload);
        assert_eq!(reported(dir.path()), want, "seed {seed}");
        (sum.0, sum.1) = (sum.0 + want.0, sum.1 + want.1);
        if seed % 2 == 1 {
            let found = Known::of_trace(Trace::open(&[dir.path().to_owned()]).unwrap());
            let truth = Known::of_tree(workload);
            let events = |known: &Known, items: &[StreamItem]| {
                plain(items, &known.names)
                    .into_iter()
                    .filter(|item| matches!(item, Plain::Event { .. }))
                    .collect::<Vec<_>>()
            };
            for ((cpu, want), (_, have)) in truth.cpus.iter().zip(&found.cpus) {
                let (want, have) = (events(&truth, want), events(&found, have));
                let first = (0..want.len().max(have.len())).find(|&at| want.get(at) != have.get(at));
                let Some(at) = first else { continue };
                panic!("seed {seed}, CPU {cpu}, event {at}:\nwant {:?}\nhave {:?}", want.get(at), have.get(at));
            }
        }
    }
    assert!(sum.0 > 10_000 && sum.1 > 500, "{sum:?} are too few to mean anything");
}

#[test]
fn relay_channels_are_read_back_raw_and_recorded() {
    for seed in 0..150 {
        for raw in [true, false] {
            let (workload, options, streams) = random_relay(seed, 800);
            let files = if raw {
                let name = |cpu: u32| if seed % 2 == 0 { format!("cpu{cpu}") } else { format!("cpu{cpu}.out") };
                streams.cpus.iter().map(|s| (name(s.cpu), s.bytes())).collect()
            } else {
                relay_dir(&workload, &options, &streams, seed)
            };
            let dir = Directory::new(&files);
            let mut found = Known::of_trace(Trace::open(&[dir.path().to_owned()]).unwrap());
            let truth = Known::of_relay(workload, &options, &streams, raw, None);
            // A reader of single files does not see missing numbers: they show only in the merge of all CPUs.
            (found.verdict, found.lost) = (truth.verdict, truth.lost);
            assert_same(seed, &truth, &found);
        }
    }
}
