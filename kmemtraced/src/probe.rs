//! `kmemtraced probe`: events, clocks and buffers of this kernel, the memory and disk
//! space of a recording, and the cost of a stack. Changes nothing but an instance that lasts for a moment.

use std::io::{self, Write};
use std::path::Path;

use crate::args::Args;
use crate::fs::kernelfs::{KernelFs, PROC};
use crate::fs::rights;
use crate::fs::state;
use crate::source::{buffer_size, events, functions, latency, probes, relay, stack_cost, tracefs};

/// Bytes of an event in a trace, about; for the time until a disk is full.
const EVENT_BYTES: u64 = 62;
/// Events a second of a busy CPU.
const BUSY_EVENTS: u64 = 1_000_000;

/// Prints the list. An error only where nothing can be recorded.
pub(crate) fn probe(args: &Args) -> anyhow::Result<u8> {
    let root = rustix::process::geteuid().is_root();
    let mut lines = vec![("user", if root { "root" } else { "not root: cannot record" }.to_owned())];
    if let Some(channel) = relay::find() {
        lines.push(("relay", format!("{}: recorded from by default", channel.path("").display())));
    }
    let tracefs = tracefs::find(args.tracefs.as_deref());
    match &tracefs {
        Ok(tracefs) => lines.extend(of_tracefs(tracefs, args)),
        Err(error) => lines.push(("tracefs", format!("{error:#}"))),
    }
    lines.push(("symbols", symbols()));
    for (name, text) in lines {
        let _ = writeln!(io::stdout(), "{name:<10} {text}");
    }
    tracefs.map(|_| 0)
}

/// Lines about tracefs, as (name, text).
fn of_tracefs(tracefs: &KernelFs, args: &Args) -> Vec<(&'static str, String)> {
    let cpus = tracefs.numbered("per_cpu", "cpu").map_or(0, |cpus| cpus.len());
    let buffer = args.buffer_bytes().unwrap_or_else(|| buffer_size::default_bytes(cpus));
    let events = events::of_system(tracefs, "kmem").unwrap_or_default();
    let yes_or = |yes: bool, no: &str| if yes { "yes".to_owned() } else { no.to_owned() };
    let is_at_work = |name: &String| tracefs.sub(&format!("instances/{name}")).is_ok_and(|dir| dir.lock().is_err());
    let instances = tracefs.names("instances").unwrap_or_default().into_iter().map(|name| {
        match state::read(&name).ok().flatten() {
            Some(_) if is_at_work(&name) => format!("{name} (of a recorder)"),
            Some(_) => format!("{name} (left by a killed recorder: kmemtraced recover)"),
            None => name,
        }
    });
    let instances: Vec<String> = instances.collect();
    let dir = args.output.as_deref().unwrap_or(Path::new("."));
    let free = rustix::fs::statvfs(dir).map(|s| s.f_bavail.saturating_mul(s.f_frsize));
    let disk = match free {
        Ok(bytes) => {
            let seconds = bytes / (EVENT_BYTES * BUSY_EVENTS * cpus.max(1) as u64);
            format!(
                "{} MiB free: {} min at a million events a second on each CPU, longer at a lower rate",
                bytes >> 20,
                seconds / 60
            )
        }
        Err(error) => format!("{}: {error}", dir.display()),
    };
    let offer = |profile| events::offer(tracefs, profile).unwrap_or_else(|error| format!("{error:#}"));
    let [rcu_frees, bulk_frees] = probes::offer(tracefs);
    vec![
        ("tracefs", tracefs.path("").display().to_string()),
        ("instances", yes_or(tracefs.has("instances").unwrap_or(false), "no: cannot record")),
        ("in use", if instances.is_empty() { "none".to_owned() } else { instances.join(" ") }),
        ("events", if events.is_empty() { "none of kmem: cannot record".to_owned() } else { events.join(" ") }),
        ("caches", of_caches(tracefs)),
        rcu_frees,
        bulk_frees,
        ("percpu", offer("percpu")),
        ("vmalloc", offer("vmalloc")),
        ("latency", offer(latency::PROFILE)),
        ("clocks", tracefs.get("trace_clock").map_or_else(|e| format!("{e:#}"), |c| c.trim().to_owned())),
        (
            "marks",
            yes_or(
                tracefs.has("options/overwrite").unwrap_or(false),
                "no: a trace will not have the place of lost events",
            ),
        ),
        (
            "memory",
            format!("{cpus} CPUs x {} KiB = {} MiB of kernel buffers", buffer >> 10, (buffer * cpus as u64) >> 20),
        ),
        ("stacks", stacks(tracefs, args)),
        ("functions", of_functions(tracefs, args)),
        ("disk", disk),
    ]
}

/// Source of the names of caches.
fn of_caches(tracefs: &KernelFs) -> String {
    let format = tracefs.get_if_there("events/kmem/kmem_cache_alloc/format").unwrap_or_default();
    let has_name = format.lines().any(|line| line.contains(" name;"));
    let not = "not named in allocation events (before Linux 6.18): frees and /proc/slabinfo name them";
    if has_name { "named in allocation events" } else { not }.to_owned()
}

/// "yes", or why call sites will have no names.
fn symbols() -> String {
    match KernelFs::find(&PROC).and_then(|proc| rights::no_symbols(&proc)) {
        Ok(missing) => missing.unwrap_or_else(|| "yes".to_owned()),
        Err(error) => format!("{error:#}"),
    }
}

/// The functions that `--functions` records here, or the reason why it cannot.
fn of_functions(tracefs: &KernelFs, args: &Args) -> String {
    let name = format!("{}-probe", args.instance);
    match tracefs.again().and_then(|tracefs| functions::try_out(tracefs, &name)) {
        Ok(functions) => functions.shown().or(functions.note).unwrap_or_default(),
        Err(error) => format!("{error:#}"),
    }
}

/// The way of `--stack`, and the cost of a stack.
fn stacks(tracefs: &KernelFs, args: &Args) -> String {
    let measured = tracefs.again();
    match measured.and_then(|tracefs| stack_cost::measure(tracefs, &format!("{}-probe", args.instance))) {
        Ok(cost) => {
            let by = if cost.way.by_trigger { "a trigger" } else { "an option" };
            let each = cost.each.map_or("cost not measured".to_owned(), |each| {
                format!("{:.1} us each", each.as_nanos() as f64 / 1000.0)
            });
            format!("{each}, by {by}: {}", cost.way.reason)
        }
        Err(error) => format!("{error:#}"),
    }
}
