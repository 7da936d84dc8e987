//! Decoder: its items are those of the generator, for any machine, kernel and loss.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kmemtrace_abi::event::{Action, Event, Gap, Names, StreamItem};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::{relay_dir, trace_dir};
use kmemtrace_tests::recording::{Directory, random_relay, random_workload};
use kmemtrace_tests::reference::Known;

/// Item with its names spelled out, comparable between traces.
#[derive(Debug, PartialEq)]
enum Plain {
    Event { event: Event, name: String, cache: Option<String> },
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
            let mut event = Event { name: same, cache: None, ..event };
            // Other events promise only time, thread and name.
            if event.action == Action::Other {
                event.address = 0;
            }
            Plain::Event { event, name, cache }
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
