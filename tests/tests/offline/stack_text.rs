//! Call stacks of trees that were captured on five machines, held against the kernel's own text of the same events.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kmemtrace_abi::event::{Action, StreamItem};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::archive;
use kmemtrace_tests::recording::Directory;

const TREES: [&str; 5] = [
    "tree-stacks-amd64-6.1",
    "tree-stacks-i386-6.1",
    "tree-stacks-s390x-6.1",
    "tree-stacks-ppc64el-6.1",
    "tree-stacks-arm64-6.12",
];

/// An event of pages: name, thread, frame number, and its stack, innermost first.
type Told = (String, i32, u64, Option<Vec<u64>>);

/// Line of the text before the stacks are tied: the context is the kernel's letter for interrupts.
struct Open {
    told: Told,
    context: char,
}

/// Value of `key=` in the fields of a line.
fn field<'l>(line: &'l str, key: &str) -> &'l str {
    line.split_once(key).unwrap().1.split(' ').next().unwrap()
}

/// The events of each CPU as the kernel's text has them. A stack belongs to the last event of its thread and context without one.
fn of_text(text: &str) -> BTreeMap<u32, Vec<Told>> {
    let mut cpus: BTreeMap<u32, Vec<Open>> = BTreeMap::new();
    let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let (task, rest) = line.split_once(" [").unwrap();
        let pid = task.trim().rsplit_once('-').unwrap().1.parse().unwrap();
        let (cpu, rest) = rest.split_once("] ").unwrap();
        let context = rest.chars().nth(2).unwrap();
        let events = cpus.entry(cpu.parse().unwrap()).or_default();
        if line.ends_with("<stack trace>") {
            let mut frames = Vec::new();
            while let Some(frame) = lines.next_if(|line| line.starts_with(" => ")) {
                let address = frame.rsplit_once('<').unwrap().1.trim_end_matches('>');
                frames.push(u64::from_str_radix(address, 16).unwrap());
            }
            let is_its = |open: &&mut Open| open.told.1 == pid && open.context == context && open.told.3.is_none();
            let open = events.iter_mut().rev().find(is_its).unwrap();
            open.told.3 = Some(frames);
        } else {
            let name = rest.split(": ").nth(1).unwrap().to_owned();
            let pfn = u64::from_str_radix(field(line, "pfn=").trim_start_matches("0x"), 16).unwrap();
            events.push(Open { told: (name, pid, pfn, None), context });
        }
    }
    let told = |events: Vec<Open>| events.into_iter().map(|open| open.told).collect();
    cpus.into_iter().map(|(cpu, events)| (cpu, told(events))).collect()
}

/// The events of each CPU as they are decoded, and the stacks that were not tied.
fn of_tree(dir: &Path) -> (BTreeMap<u32, Vec<Told>>, u64) {
    let mut trace = Trace::open(&[dir.to_owned()]).unwrap();
    let (mut cpus, mut unmatched) = (BTreeMap::new(), 0);
    for stream in &mut trace.streams {
        let (mut items, mut more): (Vec<StreamItem>, _) = (Vec::new(), true);
        while more {
            let mut read = Vec::new();
            more = stream.fill(&mut trace.names, &mut read);
            items.append(&mut read);
        }
        let events = items.iter().filter_map(|item| match item {
            StreamItem::Event(event) if event.action != Action::Other => Some(event),
            _ => None,
        });
        let told = events.map(|event| {
            let name = String::from_utf8_lossy(trace.names.get(event.name)).into_owned();
            let stack = event.stack.map(|stack| trace.names.stacks.get(stack).to_vec());
            (name, event.pid.unwrap(), event.address, stack)
        });
        cpus.insert(stream.cpu(), told.collect());
        unmatched += stream.report().stacks_unmatched;
    }
    cpus.retain(|_, told: &mut Vec<Told>| !told.is_empty());
    (cpus, unmatched)
}

#[test]
fn every_stack_is_tied_to_the_event_that_the_kernel_wrote_it_for() {
    for name in TREES {
        let dir = Directory::new(&[]);
        let tree = archive::unpack(name, dir.path()).unwrap();
        let expected = of_text(&fs::read_to_string(tree.join("trace")).unwrap());
        let stacks: usize = expected.values().flatten().filter(|told| told.3.is_some()).count();
        assert!(stacks > 100, "{name}: {stacks} stacks");
        let (decoded, unmatched) = of_tree(&tree);
        assert_eq!(unmatched, 0, "{name}");
        assert_eq!(decoded.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name}");
        for (cpu, events) in &expected {
            let found = &decoded[cpu];
            assert_eq!(found.len(), events.len(), "{name}: CPU {cpu}");
            for (number, (found, event)) in found.iter().zip(events).enumerate() {
                assert_eq!(found, event, "{name}: CPU {cpu}, event {number}");
            }
        }
    }
}
