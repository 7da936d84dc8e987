//! Stacks that the running kernel records are tied to the events that its own text shows them behind.

use std::collections::{BTreeMap, HashMap};
use std::net::UdpSocket;

use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::load;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

kmemtrace_tests::tests![stacks_are_those_of_the_kernels_text,];

/// Events with a stack, and those without one. Frees of pages have none.
const WITH: [&str; 3] = ["mm_page_alloc", "kmalloc", "kfree"];
const WITHOUT: [&str; 2] = ["mm_page_free", "kmem_cache_alloc"];

/// Stacks by CPU and time of the event.
type Found = BTreeMap<(u32, u64), Vec<u64>>;

/// Event of the text that has no stack yet.
struct Bare<'t> {
    at: u64,
    pid: &'t str,
    context: char,
    name: &'t str,
}

fn stacks_are_those_of_the_kernels_text() -> Result<(), Skip> {
    let tracefs = Tracefs::find()?;
    let instance = Instance::new(&tracefs)?;
    for event in WITH.iter().chain(&WITHOUT) {
        tracefs.need_event(&format!("kmem/{event}"))?;
    }
    record(&instance)?;
    let text = instance.read("trace").unwrap();
    if text.lines().all(|line| !line.ends_with("<stack trace>")) {
        return Err(Skip("this kernel writes the stacks of triggers to its top-level buffer".to_owned()));
    }
    let (want, records) = of_text(&text);
    assert!(want.len() > 2000, "{} stacks are too few to mean anything", want.len());
    let dir = captured(&instance);
    let mut trace = Trace::open(&[dir.path().to_owned()]).unwrap();
    let (mut found, mut counts) = (Found::new(), (0, 0));
    for stream in &mut trace.streams {
        let mut items = Vec::new();
        while stream.fill(&mut trace.names, &mut items) {
            for item in &items {
                if let StreamItem::Event(event) = item
                    && let Some(stack) = event.stack
                {
                    found.insert((event.cpu, event.at), trace.names.stacks.get(stack).to_vec());
                }
            }
        }
        let report = stream.report();
        assert_eq!(report.lost, Some(0), "the buffer is too small for this machine's load");
        counts = (counts.0 + report.stacks, counts.1 + report.stacks_unmatched);
    }
    assert_eq!(counts, (records, 0));
    let wrong = want.iter().find(|(place, frames)| found.get(place) != Some(frames));
    assert_eq!(wrong.map(|(place, _)| (place, found.get(place))), None, "of {}", want.len());
    assert_eq!(found.len(), want.len());
    println!("{} stacks, {} distinct", found.len(), trace.names.stacks.len());
    Ok(())
}

/// Records allocations with stacks, some of them in softirqs.
fn record(instance: &Instance<'_>) -> Result<(), Skip> {
    instance.write("buffer_size_kb", "65536").unwrap();
    // Each event has a number of its own, in the text, too.
    instance.write("trace_clock", "counter").unwrap();
    instance.write("options/sym-addr", "1").unwrap();
    let enable = |event: &str| instance.write(&format!("events/kmem/{event}/enable"), "1").unwrap();
    WITH.iter().chain(&WITHOUT).for_each(|event| enable(event));
    // A trigger without its event would write stacks that belong to nothing.
    for event in WITH {
        let trigger = instance.write(&format!("events/kmem/{event}/trigger"), "stacktrace");
        trigger.map_err(|error| Skip(format!("this kernel has no stacktrace trigger: {error}")))?;
    }
    load::iov(2000, 9).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    for _ in 0..2000 {
        socket.send_to(&[7; 1400], to).unwrap();
        socket.recv(&mut [0; 2000]).unwrap();
    }
    drop(vec![1u8; 8 << 20]);
    for event in WITH {
        instance.write(&format!("events/kmem/{event}/trigger"), "!stacktrace").unwrap();
    }
    instance.write("tracing_on", "0").unwrap();
    Ok(())
}

/// Stacks of the kernel's text by the events that they belong to, and their number.
///
/// On one CPU, a stack belongs to the last event of its thread without one; of the event that its innermost frames name, if
/// they name one, else of its context.
fn of_text(text: &str) -> (Found, u64) {
    let mut found = Found::new();
    let mut bare: HashMap<u32, Vec<Bare<'_>>> = HashMap::new();
    let (mut lines, mut records) = (text.lines().peekable(), 0);
    while let Some(line) = lines.next() {
        let Some((cpu, event)) = parse(line) else { continue };
        let events = bare.entry(cpu).or_default();
        if event.name != "<stack trace>" {
            events.push(event);
            continue;
        }
        let (mut frames, mut named) = (Vec::new(), None);
        while let Some(frame) = lines.next_if(|line| line.starts_with(" => ")) {
            let address = frame.rsplit_once('<').and_then(|(_, address)| address.strip_suffix('>'));
            frames.push(u64::from_str_radix(address.unwrap_or_default(), 16).unwrap());
            let symbol = frame.trim_start_matches(" => ");
            let probe = ["trace_event_raw_event_", "__traceiter_"].iter().find_map(|head| symbol.strip_prefix(head));
            named = named.or(probe.and_then(|rest| rest.split([' ', '+']).next()));
        }
        let is_its = |other: &Bare<'_>| {
            other.pid == event.pid && named.map_or(other.context == event.context, |name| name == other.name)
        };
        let index = events.iter().rposition(is_its).unwrap_or_else(|| panic!("a stack without an event: {line}"));
        found.insert((cpu, events.remove(index).at), frames);
        records += 1;
    }
    (found, records)
}

/// CPU and event of a line like `comm-7 [001] d..1. 123: kfree: call_site=…`.
fn parse(line: &str) -> Option<(u32, Bare<'_>)> {
    let (thread, rest) = line.split_once(" [")?;
    let (cpu, rest) = rest.split_once(']')?;
    let mut words = rest.split_whitespace();
    let (flags, at) = (words.next()?, words.next()?.strip_suffix(':')?);
    let name = if rest.ends_with("<stack trace>") { "<stack trace>" } else { words.next()?.strip_suffix(':')? };
    let (_, pid) = thread.trim_end().rsplit_once('-')?;
    // A stack's flags may differ from its event's in the others.
    let context = flags.chars().nth(2)?;
    Some((cpu.parse().ok()?, Bare { at: at.parse().ok()?, pid, context, name }))
}

/// The instance's buffers and formats, as a captured tree.
fn captured(instance: &Instance<'_>) -> Directory {
    let dir = Directory::new(&[]);
    let copy = |name: &str| dir.write(name, instance.read(name).unwrap().as_bytes());
    copy("events/header_page");
    copy("trace_clock");
    for event in WITH.iter().chain(&WITHOUT) {
        copy(&format!("events/kmem/{event}/format"));
    }
    copy("events/ftrace/kernel_stack/format");
    let shape = PageShape::parse(&dir.text("events/header_page"), Endian::NATIVE).unwrap();
    for cpu in instance.cpus().unwrap() {
        let mut bytes = Vec::new();
        for page in instance.drain(cpu, shape.size).unwrap() {
            bytes.extend_from_slice(&page);
            bytes.resize(bytes.len().next_multiple_of(shape.size), 0);
        }
        copy(&format!("per_cpu/cpu{cpu}/stats"));
        dir.write(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"), &bytes);
    }
    dir
}
