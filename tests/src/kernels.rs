//! Recordings of one load on any kernel that a guest can boot, held against the kernel's own text of the same events in a second
//! instance.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::guest::{Guest, checked};
use crate::programs::{json, run_to};
use crate::recording::Directory;
use crate::runner::Skip;
use crate::{spaces, views};

/// A kernel of Debian: suite, and the name of its package.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Suite that has the package; `None`: one of this machine's.
    pub suite: Option<&'static str>,
    /// Pattern of the package's whole name.
    pub package: &'static str,
}

impl Kernel {
    /// Guest that boots the kernel.
    pub(crate) fn guest(self) -> Result<Guest, Skip> {
        let guest = Guest::new("amd64")?.option("-k", self.package);
        Ok(match self.suite {
            Some(suite) => guest.option("-S", suite),
            None => guest,
        })
    }
}

pub const LINUX_5_10: Kernel = Kernel { suite: Some("bullseye"), package: r"linux-image-5\.10\.0-[0-9]+-cloud-amd64" };
/// Debian 11, PREEMPT_RT.
pub const LINUX_5_10_RT: Kernel = Kernel { suite: Some("bullseye"), package: r"linux-image-5\.10\.0-[0-9]+-rt-amd64" };
pub const LINUX_6_1: Kernel = Kernel { suite: Some("bookworm"), package: r"linux-image-6\.1\.[0-9.-]+-cloud-amd64" };
pub const LINUX_6_12: Kernel =
    Kernel { suite: Some("trixie"), package: r"linux-image-6\.12\.[0-9.+a-z-]+-cloud-amd64" };
/// Backport to Debian 13.
pub const LINUX_6_18: Kernel =
    Kernel { suite: Some("trixie-backports"), package: r"linux-image-6\.18\.[0-9.+a-z-]+-cloud-amd64" };
/// Backport to Debian 13.
pub const LINUX_7_3: Kernel =
    Kernel { suite: Some("trixie-backports"), package: r"linux-binary-7\.3\.[0-9.+a-z-]+-cloud-amd64" };

/// Words of the kernel command line: slab events are recorded from the start on.
const AT_BOOT: &str = "trace_event=kmem:kmalloc,kmem:kmalloc_node,kmem:kmem_cache_alloc,kmem:kmem_cache_alloc_node,kmem:kfree,kmem:kmem_cache_free trace_buf_size=64M";

/// Records slab events since boot, then of a load slab events, pages with stacks, and waits for memory. A second instance has the
/// events of the shell that runs the recorder and of all its children, in which the load's tasks are from their first event to their
/// last.
const SCRIPT: &str = "
    tracing=/sys/kernel/tracing
    count=$tracing/instances/count
    begin() {
        mkdir $count
        echo mono >$count/trace_clock
        echo 16384 >$count/buffer_size_kb
        echo 1 >$count/options/event-fork
        echo $$ >$count/set_event_pid
        for event in $@; do
            [ ! -e $count/events/$event ] || echo 1 >$count/events/$event/enable
        done
    }
    end() {
        echo 0 >$count/tracing_on
        cat $count/trace >/out/$1.text
        grep -h overrun $count/per_cpu/cpu*/stats >/out/$1.overruns
        echo 0 >$count/events/enable
        rmdir $count
    }

    kmemtraced doctor --quick >/out/probe
    kmemtraced --boot -o /out/boot 2>/out/boot.messages &
    recorder=$!
    recording /out/boot.messages
    kmemload iov 3000 20
    kill -TERM $recorder
    wait $recorder

    begin kmem/kmalloc kmem/kmalloc_node kmem/kmem_cache_alloc kmem/kmem_cache_alloc_node kmem/kfree kmem/kmem_cache_free
    kmemtraced -o /out/slab -- sh -c 'kmemload iov 3000 20; kmemload cross 500 100; kmemload rounds 64; sleep 0.2' 2>/out/slab.messages
    end slab

    kmemtraced -o /out/hands 2>/out/hands.messages &
    recorder=$!
    recording /out/hands.messages
    trigger=$tracing/instances/kmemtrace/events/sched/sched_switch/trigger
    echo 'traceoff if next_pid == 99999999' >$trigger
    cat $tracing/instances/kmemtrace/set_event >/out/hands.set_event
    sleep 2
    echo '!traceoff if next_pid == 99999999' >>$trigger
    sleep 2
    kill -TERM $recorder
    wait $recorder || echo $? >/out/hands.status

    kmemtraced -o /out/deferred -- sh -c 'kmemload items 300 1; sleep 1' 2>/out/deferred.messages

    begin kmem/mm_page_alloc kmem/mm_page_free
    kmemtraced -e page --stack -o /out/pages -- sh -c 'kmemload rounds 64; sleep 0.2' 2>/out/pages.messages
    end pages

    mkdir /tmp/group
    mount -t cgroup2 none /tmp/group
    echo +memory >/tmp/group/cgroup.subtree_control
    mkdir /tmp/group/load
    echo 24M >/tmp/group/load/memory.max
    begin vmscan/mm_vmscan_memcg_reclaim_begin vmscan/mm_vmscan_memcg_reclaim_end
    kmemtraced -e latency -o /out/latency -- sh -c 'echo $$ >/tmp/group/load/cgroup.procs
        dd if=/dev/vda of=/dev/null bs=64k count=1600; sleep 0.2' 2>/out/latency.messages
    end latency
";

/// Lists what is left in the kernel.
const LEFT: &str = "
    ls $tracing/instances >/out/instances
    cat $tracing/set_event >/out/set_event";

/// A trigger that never acts, on an event that is not recorded: the kernel lists the event, and the recorder tells who set it.
fn assert_hands(out: &Directory) {
    let messages = out.text("hands.messages");
    assert!(out.text("hands.set_event").contains("sched:sched_switch"), "the kernel does not list it");
    assert_eq!(out.text("hands.status").trim(), "1", "{messages}");
    for text in ["events/sched/sched_switch/trigger is traceoff", "set by process ", "as the recorder set them again"] {
        assert!(messages.contains(text), "{text}: {messages}");
    }
    assert_eq!(checked(&out.file("hands")).0, "lossy");
}

/// Events of each thread.
type Threads = BTreeMap<i64, Vec<String>>;

/// Boots the kernel, and checks all recordings.
pub fn assert_recordings(kernel: Kernel) -> Result<(), Skip> {
    let out = kernel.guest()?.option("-c", AT_BOOT).run(&[SCRIPT, spaces::SCRIPT, LEFT].concat())?;
    assert_eq!((out.text("instances"), out.text("set_event")), (String::new(), String::new()), "something is left");
    for name in ["boot", "slab", "deferred", "pages", "latency"] {
        let messages = out.text(&format!("{name}.messages"));
        assert!(messages.contains("   0 lost\n"), "{name}: {messages}");
        assert_eq!(checked(&out.file(name)).0, "ok", "{name}");
        views::assert_invariants(name, &out.file(name));
    }
    views::assert_iov(&out.file("boot"), &["--comm", "kmemload"], 8);
    let head = json(&views::printed("summary", &out.file("boot")));
    assert_eq!(head["trace"]["since_boot"]["lost_before_first"], 0);

    for (name, comm, least) in [("slab", "kmemload", 12_000), ("pages", "kmemload", 100), ("latency", "dd", 40)] {
        let events: usize = assert_same_events(&out, name, comm).values().map(Vec::len).sum();
        assert!(events >= least, "{name}: the load made {events} events only");
    }
    assert_figures(&out);
    assert_stacks(&out);
    assert_deferred_frees(&out);
    assert_hands(&out);
    spaces::assert_recorded(&out);
    Ok(())
}

/// Compares the recording `name` with the kernel's text: each thread of `comm` has the same events, each as often. The order of two
/// buffers differs where an interrupt comes between the records of one event. Returns the events.
fn assert_same_events(out: &Directory, name: &str, comm: &str) -> Threads {
    let overruns = out.text(&format!("{name}.overruns"));
    assert!(overruns.lines().all(|line| line.ends_with(": 0")), "{name}: the second instance lost events: {overruns}");
    let mut theirs = of_text(&out.text(&format!("{name}.text")));
    let lines = views::events(&out.file(name));
    let mut ours = Threads::new();
    for line in &lines {
        let Some(pid) = line["pid"].as_i64() else { continue };
        let event = line["event"].as_str().unwrap_or_default();
        let number = |member: &str| line[member].as_u64().map(|number| format!(" {number}")).unwrap_or_default();
        if theirs.values().flatten().any(|known| known.split(' ').next() == Some(event)) {
            ours.entry(pid).or_default().push(event.to_owned() + &number("requested") + &number("allocated"));
        }
    }
    let is_load = |line: &&Value| line["comm"] == comm;
    let threads: Vec<i64> = lines.iter().filter(is_load).filter_map(|line| line["pid"].as_i64()).collect();
    assert!(!threads.is_empty(), "{name}: no event of {comm}");
    ours.retain(|pid, _| threads.contains(pid));
    theirs.retain(|pid, _| threads.contains(pid));
    for (pid, events) in &ours {
        let other = theirs.get(pid).cloned().unwrap_or_default();
        let (events, other) = (counted(events), counted(&other));
        let differs: Vec<_> = events.iter().filter(|(event, n)| other.get(*event) != Some(n)).collect();
        assert!(events == other, "{name}: thread {pid}: {differs:?} are not so often in the kernel's text: {other:?}");
    }
    assert_eq!(ours.len(), theirs.len(), "{name}: threads");
    ours
}

/// Compares figures of the load's call-sites with the kernel's text of its slab events.
fn assert_figures(out: &Directory) {
    let lines = views::events(&out.file("slab"));
    let of_load = lines.iter().filter(|line| line["comm"] == "kmemload").filter_map(|line| line["pid"].as_i64());
    let threads: BTreeSet<i64> = of_load.collect();
    let theirs = of_text(&out.text("slab.text"));
    let events = theirs.iter().filter(|(pid, _)| threads.contains(*pid)).flat_map(|(_, events)| events);
    let mut expected = [0, 0, 0];
    for bytes in events.filter_map(|event| event.split_once(' ')?.1.split_once(' ')) {
        let figures = [1, bytes.0.parse().unwrap_or(0), bytes.1.parse().unwrap_or(0)];
        expected = std::array::from_fn(|at| expected[at] + figures[at]);
    }
    // The second instance has no probe events, so allocations in bulk are ours alone.
    for line in lines.iter().filter(|line| line["event"] == "alloc_bulk" && line["comm"] == "kmemload") {
        let objects = line["addresses"].as_array().map_or(0, |addresses| addresses.len() as u64);
        let bytes = |member: &str| objects * line[member].as_u64().unwrap_or(0);
        let figures = [objects, bytes("requested"), bytes("allocated")];
        expected = std::array::from_fn(|at| expected[at] + figures[at]);
    }
    let document = json(&run_to(
        0,
        "kmemtrace-report",
        &["sites", "--format", "json", "--comm", "kmemload"],
        &[&out.file("slab")],
    ));
    let rows = document["rows"].as_array().into_iter().flatten();
    let sums = rows.fold([0, 0, 0], |sums: [u64; 3], row| {
        let members = ["allocs", "requested", "allocated"];
        std::array::from_fn(|at| sums[at] + row[members[at]].as_u64().unwrap_or(0))
    });
    assert_eq!(sums, expected, "allocations, bytes requested and allocated");
}

fn counted(events: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    events.iter().for_each(|event| *counts.entry(event.as_str()).or_default() += 1);
    counts
}

/// Events of each thread in the text of a `trace` file: names, and sizes of allocations.
fn of_text(text: &str) -> Threads {
    let mut threads = Threads::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // `COMM-PID [CPU] FLAGS TIME: EVENT: FIELD=VALUE ...`; a name may have blanks.
        let Some((task, rest)) = line.split_once(" [") else { continue };
        let pid = task.trim_end().rsplit('-').next().and_then(|pid| pid.parse().ok());
        let words: Vec<&str> = rest.split_whitespace().collect();
        let event = words.get(3).and_then(|word| word.strip_suffix(':'));
        let (Some(pid), Some(event)) = (pid, event) else { continue };
        let field = |name: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
            value.and_then(|value| value.parse::<u64>().ok())
        };
        let bytes = match field("bytes_req").zip(field("bytes_alloc")) {
            Some((requested, allocated)) => format!(" {requested} {allocated}"),
            None => field("order").filter(|_| event == "mm_page_alloc").map_or_else(String::new, |order| {
                let bytes = 4096 << order;
                format!(" {bytes} {bytes}")
            }),
        };
        threads.entry(pid).or_default().push(format!("{event}{bytes}"));
    }
    threads
}

/// Functions whose objects outlive the load: what they keep for the kernel itself.
const KEPT: [&str; 7] = [
    // Kernel stacks that the kernel keeps for later threads.
    "__get_vm_area_node",
    "alloc_vmap_area",
    "__vmalloc_node_range_noprof",
    // Sheaves of the slab allocator.
    "__pcs_replace_empty_main",
    "__pcs_replace_full_main",
    "alloc_empty_sheaf",
    "__kfree_rcu_sheaf",
];

/// Checks a recording of a load that frees by RCU and in bulk, on a kernel from 6.9 on: hardly a free is inferred, no large row of
/// live objects is an upper bound, and nothing of the load is left.
fn assert_deferred_frees(out: &Directory) {
    let trace = out.file("deferred");
    let summary = json(&views::printed("summary", &trace));
    let release = summary["trace"]["kernel"].as_str().unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0u32));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let expected = if release >= (6, 9) { "seen" } else { "unseen" };
    assert_eq!(summary["trace"]["deferred"], expected, "Linux {release:?}");
    if expected == "unseen" {
        return;
    }
    let figure = |member: &str| summary["total"][member].as_u64().unwrap_or(0);
    let (allocs, inferred) = (figure("allocs"), figure("inferred_frees"));
    assert!(allocs > 5_000 && inferred * 1000 <= allocs, "{inferred} of {allocs} frees are inferred");
    let rows = |options: &[&str]| {
        let options = [&["live", "--format", "json", "--kind", "kmalloc", "--kind", "cache"], options].concat();
        json(&run_to(0, "kmemtrace-report", &options, &[&trace]))["rows"].as_array().cloned().unwrap_or_default()
    };
    let bounds: Vec<Value> = rows(&["-n", "20"]).into_iter().filter(|row| row["live_is_upper_bound"] == true).collect();
    assert!(bounds.is_empty(), "upper bounds: {bounds:?}");
    let is_kept = |row: &Value| KEPT.iter().any(|name| row["symbol"].as_str().is_some_and(|s| s.starts_with(name)));
    let left: Vec<Value> = rows(&["--comm", "kmemload"]).into_iter().filter(|row| !is_kept(row)).collect();
    assert!(left.is_empty(), "objects of the load are left: {left:?}");
}

/// Checks that each allocation of pages of the load has a stack.
fn assert_stacks(out: &Directory) {
    let lines = views::events(&out.file("pages"));
    let allocs: Vec<&Value> =
        lines.iter().filter(|line| line["event"] == "mm_page_alloc" && line["comm"] == "kmemload").collect();
    let with = allocs.iter().filter(|line| line["stack"].as_array().is_some_and(|stack| stack.len() > 2)).count();
    assert_eq!(with, allocs.len(), "allocations of pages without a stack");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_old_and_new_kernels_are_read() {
        let text = "# tracer: nop\n\
            \x20        kmemload-101     [001] ....    12.345678: kmalloc: call_site=ffffffff8 ptr=00000000a bytes_req=320 bytes_alloc=512 gfp_flags=GFP_KERNEL\n\
            \x20    a b-c-7       [000] d..h1..    12.345679: kfree: call_site=kfree_skb+0x1 ptr=00000000a\n\
            \x20          <...>-101     [001] .....    12.4: mm_page_alloc: page=0xa pfn=0x12 order=1 migratetype=0 gfp_flags=GFP_KERNEL\n\
            nothing\n";
        let threads = of_text(text);
        assert_eq!(threads[&101], ["kmalloc 320 512", "mm_page_alloc 8192 8192"]);
        assert_eq!(threads[&7], ["kfree"]);
    }
}
