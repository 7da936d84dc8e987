//! Guests with other kernels and of other architectures: recorded there, analysed here. Tests that cannot run on this
//! machine are listed as skipped at the end. `KMEMTRACE_RUNS=all` boots those of [`longer`] as well.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod longer;
mod vm_probes;

use std::path::Path;
use std::process::ExitCode;

use kmemtrace_tests::guest::{Guest, checked, relay_module, sites};
use kmemtrace_tests::kernels;
use kmemtrace_tests::programs::json;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use kmemtrace_tests::views;
use serde_json::Value;

fn main() -> ExitCode {
    let daily = [TESTS, vm_probes::TESTS];
    let longer = if runs::is_all() { [longer::TESTS, vm_probes::longer::TESTS].as_slice() } else { &[] };
    kmemtrace_tests::runner::main(&[&daily, longer].concat())
}

kmemtrace_tests::tests![
    single_user_mode,
    the_only_child_of_init,
    a_locked_down_kernel,
    relay_amd64,
    linux_5_10 => || kernels::assert_recordings(kernels::LINUX_5_10),
    linux_7_3 => || kernels::assert_recordings(kernels::LINUX_7_3),
];

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
    let out = Guest::new("amd64")?.bare().run(script)?;
    let log = out.text("log");
    assert!(log.contains("COMPLETE"), "{log}");
    // The summary names the call-site, too; its row in `sites` comes last.
    let line = log.lines().rfind(|line| line.contains("iovec_from_user"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    assert_eq!(words.iter().filter(|&&word| word == "3,000").count(), 2, "allocated and freed: {log}");
    views::assert_iov(&out.file("trace"), &["--comm", "kmemload"], 8);
    Ok(())
}

fn a_locked_down_kernel() -> Result<(), Skip> {
    let script = "kmemtraced -d 1 -o /out/trace 2>/out/messages || echo $? >>/out/messages; [ ! -e /out/trace ]";
    let out = Guest::new("amd64")?.option("-c", "lockdown=confidentiality").run(script)?;
    let expected = "kmemtraced: /sys/kernel/tracing: the kernel is locked down (lockdown=confidentiality); boot with lockdown=integrity\n2\n";
    assert_eq!(out.text("messages"), expected);
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

fn relay_amd64() -> Result<(), Skip> {
    relay("amd64")
}
