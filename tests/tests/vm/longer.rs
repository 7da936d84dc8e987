//! Guests that take too long for every day: `tests/run-vm` runs them.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use kmemtrace_abi::kernel::notes;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::cgroup_loads;
use kmemtrace_tests::guest::{Guest, checked, dracut, hold_module, package, programs_for, relay_module, sites};
use kmemtrace_tests::programs::json;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::views;
use kmemtrace_tests::{guest_memory, kernels};
use serde_json::Value;

const LINUX_6_12: &str = r"linux-image-6\.12\.[0-9.+a-z-]+-cloud-amd64";
const SLAB_EVENTS: &str = "kmem:kmalloc,kmem:kfree,kmem:kmem_cache_alloc,kmem:kmem_cache_free";

kmemtrace_tests::tests![
    single_user_mode,
    the_only_child_of_init,
    a_big_endian_machine,
    relay_amd64 => || relay("amd64"),
    relay_s390x => || relay("s390x"),
    linux_7_3 => || kernels::assert_recordings(kernels::LINUX_7_3),
    linux_5_10_rt => || kernels::assert_recordings(kernels::LINUX_5_10_RT),
    linux_6_1 => || kernels::assert_recordings(kernels::LINUX_6_1),
    linux_6_12 => || kernels::assert_recordings(kernels::LINUX_6_12),
    linux_6_18 => || kernels::assert_recordings(kernels::LINUX_6_18),
    balance_on_linux_6_1 => || guest_memory::assert_balance(kernels::LINUX_6_1, false),
    balance_on_linux_6_18 => || guest_memory::assert_balance(kernels::LINUX_6_18, true),
    balance_on_linux_7_3 => || guest_memory::assert_balance(kernels::LINUX_7_3, true),
    leaks_on_linux_6_12 => || guest_memory::assert_leaks(kernels::LINUX_6_12),
    leaks_on_linux_6_18 => || guest_memory::assert_leaks(kernels::LINUX_6_18),
    leaks_on_linux_7_3 => || guest_memory::assert_leaks(kernels::LINUX_7_3),
    live_bytes_by_cgroup_on_linux_6_1 => || cgroup_loads::assert_bytes_of_the_kernel(kernels::LINUX_6_1),
    live_bytes_by_cgroup_on_linux_6_18 => || cgroup_loads::assert_bytes_of_the_kernel(kernels::LINUX_6_18),
    live_bytes_by_cgroup_on_linux_7_3 => || cgroup_loads::assert_bytes_of_the_kernel(kernels::LINUX_7_3),
    both_ways_on_linux_6_1 => || both_ways(None),
    both_ways_on_linux_6_12 => || both_ways(Some(LINUX_6_12)),
    functions_of_reclaim_on_linux_6_1 => || functions_of_reclaim(None),
    functions_of_reclaim_on_linux_6_12 => || functions_of_reclaim(Some(LINUX_6_12)),
    a_machine_of_32_bits => || other_machine("i386", 4, 4096),
    pages_of_64_kib => || other_machine("ppc64el", 8, 65536),
    pages_of_16_kib => || other_machine("arm64", 8, 16384),
    boot_events_of_the_top_level_buffer,
    boot_events_of_an_instance,
    a_power_cut,
    dracut_reports_on_the_console,
];

/// Compares both recordings that [`BOTH_WAYS`] makes, by our recorder and by plain `cat`, with the load.
fn assert_recordings(out: &Directory, word_bytes: u64) {
    for name in ["trace", "tree"] {
        let trace = out.file(name);
        assert_eq!(checked(&trace).0, "ok", "{name}");
        views::assert_invariants(name, &trace);
        views::assert_iov(&trace, &["--comm", "kmemload"], word_bytes);
        assert_modules(name, &trace);
    }
}

/// Checks that the trace has the kernel's build-id, and build-id, path and code of each module, which Debian's have.
fn assert_modules(name: &str, trace: &Path) {
    let trace = Trace::open(&[trace.to_owned()]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let endian = trace.info.endian.unwrap_or(Endian::NATIVE);
    assert!(notes::build_id(&trace.metadata.notes, endian).is_some(), "{name}: no build-id in the notes");
    let [modules, info] =
        [&trace.metadata.modules, &trace.metadata.module_info].map(|text| String::from_utf8_lossy(text));
    let names = |text: &str| text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    let [there, told]: [BTreeSet<String>; 2] = [names(&modules), names(&info)];
    assert_eq!(there, told, "{name}");
    for line in info.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_known = words.len() > 3 && words[1].len() == 40 && words[2].contains('/');
        let has_code = words.iter().any(|word| word.starts_with(".text=0x") || word.starts_with(".init.text=0x"));
        assert!(is_known && has_code, "{name}: {line}");
    }
}

const BOTH_WAYS: &str = "
    kmemtraced -o /out/trace -- kmemload iov 3000 20
    sh /bin/capture.sh /out/tree kmemload iov 3000 20";

fn both_ways(kernel: Option<&str>) -> Result<(), Skip> {
    let mut guest = Guest::new("amd64")?;
    if let Some(kernel) = kernel {
        guest = guest.option("-k", kernel);
    }
    assert_recordings(&guest.run(BOTH_WAYS)?, 8);
    Ok(())
}

/// Records waits for memory and times of functions while a command in a small memory cgroup reads its disk, then kills a recorder.
const RECLAIM: &str = "
    tracing=/sys/kernel/tracing
    top() {
        for file in current_tracer set_ftrace_filter set_ftrace_notrace set_graph_function tracing_thresh tracing_on trace_clock \
            trace_options set_event set_event_pid tracing_cpumask kprobe_events dynamic_events trace events/enable \
            events/vmscan/mm_vmscan_memcg_reclaim_begin/trigger; do
            echo == $file
            cat $tracing/$file
        done
        ls $tracing/instances
    }
    mkdir /tmp/group
    mount -t cgroup2 none /tmp/group
    echo +memory >/tmp/group/cgroup.subtree_control
    mkdir /tmp/group/load
    echo 24M >/tmp/group/load/memory.max
    top >/out/before
    kmemtraced -e latency --functions -o /out/trace -- \
        sh -c 'echo $$ >/tmp/group/load/cgroup.procs; exec dd if=/dev/vda of=/dev/null bs=64k count=1600' 2>/out/messages
    top >/out/after
    kmemtraced -e latency --functions -o /tmp/killed 2>/tmp/messages &
    recorder=$!
    recording /tmp/messages
    kill -KILL $recorder
    wait $recorder || true
    kmemtraced recover
    top >/out/recovered";

fn functions_of_reclaim(kernel: Option<&str>) -> Result<(), Skip> {
    let mut guest = Guest::new("amd64")?;
    if let Some(kernel) = kernel {
        guest = guest.option("-k", kernel);
    }
    let out = guest.run(RECLAIM)?;
    for after in ["after", "recovered"] {
        assert_eq!(out.text(after), out.text("before"), "{after}: the top-level trace directory differs");
    }
    assert_eq!(checked(&out.file("trace")).0, "ok");
    let lines = views::events(&out.file("trace"));
    let count = |name: &str| lines.iter().filter(|line| line["event"] == name).count();
    let (begins, calls) = (count("mm_vmscan_memcg_reclaim_begin"), count("funcgraph_exit"));
    assert!(begins > 20, "{begins} reclaims");
    let messages = out.text("messages");
    if kernel.is_some() {
        assert!(messages.contains("times of functions: ") && calls >= begins, "{calls} calls: {messages}");
    } else {
        let note = "no times of functions: this kernel has the tracer function_graph for its top-level buffer only";
        assert!(messages.contains(note) && calls == 0, "{calls} calls: {messages}");
    }
    let functions = json(&views::printed("functions", &out.file("trace")));
    let counts = functions["rows"].as_array().into_iter().flatten().filter_map(|row| row["count"].as_u64());
    assert_eq!(counts.sum::<u64>(), calls as u64, "{functions}");
    Ok(())
}

/// Records a run from tracefs and from a relay channel at the same time, then overruns a small channel.
fn relay(arch: &str) -> Result<(), Skip> {
    // The numbers of the first part cross the end of 31 bits, those of the second the end of 32.
    let script = "
        channel=/sys/kernel/debug/kmemtrace
        insmod /modules/kmemtrace.ko first=2147480000
        kmemtraced --tracefs /sys/kernel/tracing -o /out/tracefs 2>/tmp/tracefs &
        tracefs=$!
        recording /tmp/tracefs
        kmemtraced -o /out/relay 2>/tmp/relay &
        relay=$!
        recording /tmp/relay
        kmemload iov 3000 20
        kmemload cross 500 100
        kill -TERM $relay $tracefs
        wait $relay
        wait $tracefs
        cat /tmp/relay /tmp/tracefs
        [ $(cat $channel/enabled) = 0 ]
        [ $(cat $channel/total_overruns) = 0 ]
        rmmod kmemtrace

        insmod /modules/kmemtrace.ko subbufs=2 first=-500
        kmemtraced -o /out/lossy 2>/tmp/lossy &
        relay=$!
        recording /tmp/lossy
        taskset 1 kmemload iov 1000 20
        kill -STOP $relay
        taskset 1 kmemload iov 30000 20
        kill -CONT $relay
        sleep 2
        taskset 1 kmemload iov 1000 20
        kill -TERM $relay
        wait $relay || [ $? = 1 ]
        cat /tmp/lossy
        cat $channel/total_overruns >/out/total_overruns";
    let out = Guest::new(arch)?.option("-i", relay_module(arch)?).run(script)?;
    let (relay, tracefs) = (out.file("relay"), out.file("tracefs"));
    for trace in [&relay, &tracefs] {
        assert_eq!(checked(trace).0, "ok", "{}", trace.display());
        views::assert_invariants(arch, trace);
    }
    views::assert_iov(&relay, &[], 8);
    // Call-sites of objects that only the load allocates, and frees at once.
    let symbols = ["iovec_from_user", "__alloc_skb", "sk_prot_alloc"];
    let counts = |trace: &Path| -> Vec<Value> {
        let mut rows = sites(trace, &[], &symbols);
        rows.sort_by_key(|row| (row["call_site"].to_string(), row["kind"].to_string()));
        let members = ["symbol", "kind", "allocs", "requested", "allocated", "frees", "cross_cpu"];
        rows.iter().map(|row| members.map(|member| row[member].clone()).into_iter().collect()).collect()
    };
    let (by_relay, by_tracefs) = (counts(&relay), counts(&tracefs));
    assert!(by_relay.len() > 3, "{by_relay:?}");
    assert_eq!(by_relay, by_tracefs, "relay and tracefs have not recorded the same");

    assert_lossy(&out);
    Ok(())
}

/// Asserts that the number lost is the kernel's, and that the gap is between the events before and after.
fn assert_lossy(out: &Directory) {
    let overruns: u64 = out.text("total_overruns").trim().parse().unwrap_or(0);
    assert!(overruns > 1000, "{overruns} overruns: the channel was to be too small");
    let trace = out.file("lossy");
    assert_eq!(checked(&trace).0, "lossy");
    let summary = json(&views::printed("summary", &trace));
    assert_eq!(summary["completeness"]["lost_events"], overruns, "{}", summary["completeness"]);
    let lines = views::events(&trace);
    let gaps: Vec<usize> = (0..lines.len()).filter(|&at| lines[at]["event"] == "gap").collect();
    let lost: u64 = gaps.iter().filter_map(|&at| lines[at]["lost"].as_u64()).sum();
    assert_eq!(lost, overruns, "gaps: {:?}", gaps.iter().map(|&at| &lines[at]).collect::<Vec<_>>());
    let iovecs_among = |range: &[Value]| {
        range.iter().filter(|line| line["event"] == "kmalloc" && line["requested"] == 20 * 16).count()
    };
    // The channel counts for all CPUs and does not number what it drops: events may be missing anywhere on every CPU,
    // which is known at the end. The recorder's own gap is about where the counter grew.
    let (about_here, anywhere): (Vec<usize>, Vec<usize>) = gaps.iter().partition(|&&at| lines[at]["lost"].is_u64());
    let cpus: Vec<_> = anywhere.iter().map(|&at| lines[at]["cpu"].as_u64()).collect();
    assert_eq!(cpus, [Some(0), Some(1)], "gaps without a place");
    assert!(anywhere.iter().all(|&at| lines[at]["from"] == lines[0]["at"]), "a gap without a place begins late");
    let (first, last) = (about_here[0], about_here[about_here.len() - 1]);
    assert!(iovecs_among(&lines[..first]) >= 1000, "too few allocations of the load before the gap");
    assert!(iovecs_among(&lines[last..]) >= 1000, "too few allocations of the load after the gap");
}

fn single_user_mode() -> Result<(), Skip> {
    let script = "
        [ ! -e /proc/self ] && [ ! -e /sys/kernel ]
        kmemtraced -o /out/trace 2>/tmp/messages &
        recorder=$!
        recording /tmp/messages
        kmemload iov 3000 20
        kill -TERM $recorder
        wait $recorder
        cat /tmp/messages
        [ ! -e /proc/self ] && [ ! -e /sys/kernel ]
        mkdir /tracefs
        mount -t tracefs none /tracefs
        ls /tracefs/instances >/out/instances";
    let out = Guest::new("amd64")?.bare().run(script)?;
    let trace = out.file("trace");
    let (verdict, events) = checked(&trace);
    assert_eq!(verdict, "ok");
    assert!(events > 6000, "{events} events");
    views::assert_iov(&trace, &["--comm", "kmemload"], 8);
    views::assert_invariants("single-user mode", &trace);
    assert_eq!(out.text("instances"), "", "an instance is left");
    Ok(())
}

fn the_only_child_of_init() -> Result<(), Skip> {
    let script = "exec kmemtraced -o /out/trace --report summary,sites -- /bin/kmemload iov 3000 20";
    let out = Guest::new("amd64")?.with_report("amd64")?.bare().run(script)?;
    let log = out.text("log");
    assert!(log.contains("COMPLETE"), "{log}");
    // The summary names the call-site, too; its row in `sites` comes last.
    let line = log.lines().rfind(|line| line.contains("iovec_from_user"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    assert_eq!(words.iter().filter(|&&word| word == "3,000").count(), 2, "allocated and freed: {log}");
    views::assert_iov(&out.file("trace"), &["--comm", "kmemload"], 8);
    Ok(())
}

fn a_big_endian_machine() -> Result<(), Skip> {
    let emulator = package("qemu-user-static")?.join("usr/bin/qemu-s390x-static");
    let script = "kmemtraced -o /out/trace -- sh -c 'kmemload iov 3000 20; kmemload cross 500 100'";
    let out = Guest::new("s390x")?.run(script)?;
    let trace = out.file("trace");
    let (verdict, _) = checked(&trace);
    assert_eq!(verdict, "ok");
    views::assert_iov(&trace, &["--comm", "kmemload"], 8);
    views::assert_invariants("s390x", &trace);
    let head = json(&views::printed("summary", &trace));
    assert_eq!((&head["trace"]["endian"], &head["trace"]["arch"]), (&"big".into(), &"s390x".into()));
    let theirs = programs_for("s390x")?.join("kmemtrace-report");
    for view in views::DOCUMENTS.into_iter().chain(["events"]) {
        let output = Command::new(&emulator).arg(&theirs).args([view, "--format", "json"]).arg(&trace).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{view}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == views::printed(view, &trace), "{view} is not the same on both machines");
    }
    Ok(())
}

fn other_machine(arch: &str, word_bytes: u64, page_bytes: u64) -> Result<(), Skip> {
    let out = Guest::new(arch)?.run(BOTH_WAYS)?;
    assert_recordings(&out, word_bytes);
    for name in ["trace", "tree"] {
        let head = json(&views::printed("summary", &out.file(name)));
        assert_eq!(head["trace"]["word_bytes"], word_bytes, "{name}");
        assert_eq!(head["trace"]["page_bytes"], page_bytes, "{name}");
    }
    Ok(())
}

/// Boots, takes the buffer over, and checks that the boot's events and the load's are there and no event stays
/// enabled.
fn take_over(guest: Guest, directory: &str) -> Result<Directory, Skip> {
    let script = format!(
        "
        kmemtraced --boot -o /out/trace 2>/tmp/messages &
        recorder=$!
        recording /tmp/messages
        kmemload iov 300 20
        kill -TERM $recorder
        wait $recorder || [ $? = 1 ]
        cat /tmp/messages
        ls /sys/kernel/tracing/instances >/out/instances
        cat /sys/kernel/tracing{directory}/set_event >/out/set_event || true"
    );
    let out = guest.run(&script)?;
    assert_eq!(out.text("instances"), "");
    assert_eq!(out.text("set_event"), "");
    let trace = out.file("trace");
    let rows = sites(&trace, &["--comm", "kmemload"], &["iovec_from_user"]);
    assert_eq!(rows.iter().filter_map(|row| row["allocs"].as_u64()).sum::<u64>(), 300, "{rows:?}");
    Ok(out)
}

fn boot_events_of_the_top_level_buffer() -> Result<(), Skip> {
    let options = format!("trace_event={SLAB_EVENTS} trace_buf_size=64M");
    let out = take_over(Guest::new("amd64")?.option("-c", options), "")?;
    let trace = out.file("trace");
    assert_eq!(checked(&trace).0, "ok");
    let head = json(&views::printed("summary", &trace));
    assert_eq!(head["trace"]["since_boot"]["lost_before_first"], 0);
    let first = head["trace"]["first"].as_u64().unwrap_or(u64::MAX);
    assert!(first < 2_000_000_000, "the first event was {first} ns after boot");
    Ok(())
}

fn boot_events_of_an_instance() -> Result<(), Skip> {
    // The buffer is so small that most events are lost before the recorder comes, and large enough for the load.
    let options = format!("trace_instance=kmemtrace,{SLAB_EVENTS} trace_buf_size=512K");
    let guest = Guest::new("amd64")?.option("-k", LINUX_6_12).option("-c", options);
    let out = take_over(guest, "/instances/kmemtrace")?;
    let trace = out.file("trace");
    assert_eq!(checked(&trace).0, "lossy");
    let head = json(&views::printed("summary", &trace));
    let lost = head["trace"]["since_boot"]["lost_before_first"].as_u64();
    assert!(lost.is_some_and(|lost| lost > 1000), "{}", head["trace"]);
    assert_eq!(head["completeness"]["lost_events"].as_u64(), lost, "every lost event was lost before the first one");
    Ok(())
}

fn run(program: &str, arguments: &[&str], path: &Path) -> Result<(), Skip> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.map_err(|error| Skip(format!("{program}: {error}")))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(Skip(format!("{program}: {}", errors.trim()))) }
}

fn a_power_cut() -> Result<(), Skip> {
    let script = "
        mkdir /disk
        mount -t ext4 /dev/vdb /disk
        kmemtraced --sync 1s --flush 200ms -o /disk/trace 2>/tmp/messages &
        recording /tmp/messages
        echo at work >/dev/console
        while true; do kmemload iov 2000 20; kmemload mix 1; done >/dev/null";
    for (seconds, number) in [(3.0, 0), (4.3, 1), (5.6, 2), (7.0, 3)] {
        let dir = Directory::on_disk();
        let disk = dir.file("disk");
        let made = File::create(&disk).and_then(|file| file.set_len(512 << 20));
        made.unwrap_or_else(|error| panic!("{}: {error}", disk.display()));
        run("mkfs.ext4", &["-q"], &disk)?;
        Guest::new("amd64")?.option("-M", "ext4").option("-d", &disk).cut_after(seconds, script)?;
        // e2fsck replays the journal, as the next boot would do.
        run("e2fsck", &["-p", "-E", "journal_only"], &disk)?;
        let trace = dir.file("trace");
        run("debugfs", &["-R", &format!("rdump trace {}", dir.path().display())], &disk)?;
        let (verdict, events) = checked(&trace);
        assert!(["ok", "truncated"].contains(&verdict.as_str()), "cut {number}: {verdict}");
        assert!(events > 1000, "cut {number}: {events} events");
        views::assert_invariants("power cut", &trace);
    }
    Ok(())
}

/// The module holds 1,024 pages: 512 one by one, and 32 blocks of order 4. A report is on the console before the root is switched.
fn dracut_reports_on_the_console() -> Result<(), Skip> {
    let console = dracut(hold_module()?)?;
    let line =
        |has: &dyn Fn(&str) -> bool| console.lines().find(|line| has(line)).unwrap_or_else(|| panic!("{console}"));
    assert!(line(&|line| line.starts_with("stopped: ")).contains("SIGTERM"), "{console}");
    let head = line(&|line| line.starts_with("COMPLETE"));
    assert!(head.contains("0 lost"), "{console}");
    let module = line(&|line| line.ends_with("  kmemhold"));
    let figures: Vec<&str> = module.split_whitespace().collect();
    assert_eq!(figures, ["4.00", "MiB", "4.00", "MiB", "4.00", "MiB", "1,024", "544", "kmemhold"], "{console}");
    line(&|line| line.starts_with("left: /run/initramfs/kmemtrace.txt"));
    Ok(())
}
