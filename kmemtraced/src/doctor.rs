//! `kmemtraced doctor`: what this machine offers a recording, what is missing and how to get it, and a recording of two seconds
//! as a test. Changes nothing but instances that last for a moment.

mod held;
mod self_test;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::thread::{self, JoinHandle};

use anyhow::{Context, bail};
use held::Held;
use kmemtrace_sandbox::{Mode, Role, Sandbox};

use crate::args::{Args, NOT_STARTED};
use crate::fs::kernelfs::{KernelFs, PROC};
use crate::fs::rights;
use crate::source::{buffer_size, events, functions, kernel, latency, ownership, probes, relay, stack_cost, tracefs};

/// Bytes of an event in a trace, about; for the time until a disk is full.
const EVENT_BYTES: u64 = 62;
/// Events a second of a busy CPU.
const BUSY_EVENTS: u64 = 1_000_000;

/// Lines that report a lack: name of the line, begin of its text, and how to get what is missing.
const REMEDIES: [(&str, &str, &str); 12] = [
    ("user", "not root", "run kmemtraced as root (sudo kmemtraced doctor)"),
    ("rights", "no ", "run with these capabilities (docker run --cap-add NAME)"),
    ("instances", "no", "boot Linux 3.10 or later"),
    ("events", "none", "boot a kernel with CONFIG_TRACING and CONFIG_EVENT_TRACING"),
    (
        "RCU frees",
        "not seen",
        "boot Linux 6.9 or later with CONFIG_FPROBE_EVENTS or CONFIG_KPROBE_EVENTS, and CONFIG_DEBUG_INFO_BTF",
    ),
    ("bulk frees", "not seen", "as for RCU frees; without both such objects look live until their address comes back"),
    ("percpu", "no events", "boot Linux 4.13 or later"),
    ("vmalloc", "no events", "boot Linux 6.2 or later"),
    ("functions", "no times", "boot Linux 6.12 or later with CONFIG_FUNCTION_GRAPH_TRACER; only --functions needs it"),
    ("symbols", "no ", "as the line above says; the recording itself is whole without them"),
    ("sandbox", "without", "boot Linux 5.13 or later with landlock among its security modules (lsm=landlock,...)"),
    ("self-test", "failed", "follow the message above; kmemtraced recover removes what is left"),
];

/// Lines of the report, as (name, text), printed as they come.
#[derive(Default)]
struct Report {
    lines: Vec<(&'static str, String)>,
    /// First error of a line that could not be written.
    unwritten: Option<io::Error>,
}

impl Report {
    fn add(&mut self, (name, text): (&'static str, String)) {
        self.print(format_args!("{name:<10} {text}"));
        self.lines.push((name, text));
    }

    fn print(&mut self, line: fmt::Arguments<'_>) {
        // A reader that has seen enough is no failure.
        let failed = writeln!(io::stdout(), "{line}").err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        self.unwritten = self.unwritten.take().or(failed);
    }

    /// Remedies for the lines that report a lack.
    fn remedies(&self) -> Vec<(&'static str, &'static str)> {
        let reports =
            |name: &str, begin: &str| self.lines.iter().any(|(n, text)| *n == name && text.starts_with(begin));
        let lacking = REMEDIES.into_iter().filter(|(name, begin, _)| reports(name, begin));
        lacking.map(|(name, _, remedy)| (name, remedy)).collect()
    }
}

/// Prints the report. The status is 0 where this machine can record; an error says why there is no tracefs.
pub(crate) fn doctor(args: &Args, is_quick: bool) -> anyhow::Result<u8> {
    let mut report = Report::default();
    let root = rustix::process::geteuid().is_root();
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    report.add(("kernel", format!("Linux {} {machine}", kernel::release())));
    report.add(("user", if root { "root" } else { "not root: cannot record" }.to_owned()));
    report.add(("rights", of_rights()));
    if let Some(channel) = relay::find() {
        report.add(("relay", format!("{}: recorded from by default", channel.path("").display())));
    }
    let tracefs = tracefs::find(args.tracefs.as_deref());
    // Instances in which things are tried out are removed before a signal ends this.
    let signals = Held::new().context("signals cannot be taken")?;
    match &tracefs {
        Ok(tracefs) => of_tracefs(tracefs, args).into_iter().for_each(|line| report.add(line)),
        Err(error) => report.add(("tracefs", format!("{error:#}"))),
    }
    signals.act();
    report.add(("symbols", symbols()));
    report.add(("sandbox", of_sandbox()));
    if tracefs.is_ok() && !is_quick {
        report.add(("self-test", self_test::run(args, &signals)));
        signals.act();
    }
    let remedies = report.remedies();
    report.print(format_args!(
        "\n{}",
        if remedies.is_empty() { "nothing is missing" } else { "missing, and how to get it" }
    ));
    let mut status = 0;
    for (name, remedy) in remedies {
        report.print(format_args!("{name:<10} {remedy}"));
        if name == "self-test" {
            status = NOT_STARTED;
        }
    }
    if root && tracefs.is_ok() && status == 0 {
        report.print(format_args!("\nthis machine can record: kmemtraced -d 10, then kmemtrace-report"));
    }
    if let Some(error) = report.unwritten {
        bail!("standard output: cannot be written: {error}: use another file or a terminal");
    }
    tracefs.map(|_| status)
}

/// Capabilities that a recording uses and this process lacks.
fn of_rights() -> String {
    let missing: Vec<String> = rights::missing().map(|(name, why)| format!("{name} ({why})")).collect();
    if missing.is_empty() { "all that a recording uses".to_owned() } else { format!("no {}", missing.join(", no ")) }
}

/// Layers of the sandbox that this kernel has: each is closed around a thread that ends.
fn of_sandbox() -> String {
    let started = thread::Builder::new().spawn(|| Sandbox::new(Role::Reader).close(Mode::Auto));
    let missing = match started.map(JoinHandle::join) {
        Ok(Ok(Ok(missing))) => missing,
        Ok(Ok(Err(lack))) => vec![lack],
        Ok(Err(_)) => return "not known: the thread that tried it has panicked".to_owned(),
        Err(error) => return format!("not known: no thread can be started: {error}"),
    };
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    match missing.is_empty() {
        true => "all layers: capabilities, landlock, system calls".to_owned(),
        false => format!("without {}", missing.join("; ")),
    }
}

/// Lines about tracefs, as (name, text).
fn of_tracefs(tracefs: &KernelFs, args: &Args) -> Vec<(&'static str, String)> {
    let cpus = tracefs.numbered("per_cpu", "cpu").map_or(0, |cpus| cpus.len());
    let buffer = args.buffer_bytes().unwrap_or_else(|| buffer_size::default_bytes(cpus));
    let mut events = events::of_system(tracefs, "kmem").unwrap_or_default();
    events.retain(|event| events::is_of_objects(&format!("kmem/{event}")));
    let yes_or = |yes: bool, no: &str| if yes { "yes".to_owned() } else { no.to_owned() };
    let is_at_work = |name: &String| tracefs.sub(&format!("instances/{name}")).is_ok_and(|dir| dir.lock().is_err());
    let instances = tracefs.names("instances").unwrap_or_default().into_iter().map(|name| {
        let is_ours = tracefs.open_dir(&format!("instances/{name}")).and_then(|dir| ownership::is_ours(&name, &dir));
        match is_ours.unwrap_or(false) {
            true if is_at_work(&name) => format!("{name} (of a recorder)"),
            true => format!("{name} (left by a killed recorder: kmemtraced recover)"),
            false => name,
        }
    });
    let instances: Vec<String> = instances.collect();
    let dir = args.output.as_deref().unwrap_or(Path::new("."));
    let free = rustix::fs::statvfs(dir).map(|s| s.f_bavail.saturating_mul(s.f_frsize));
    let disk = match free {
        Ok(bytes) => {
            let seconds = bytes / (EVENT_BYTES * BUSY_EVENTS * cpus.max(1) as u64);
            let time = if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) };
            format!("{} MiB free: {time} at a million events a second on each CPU, longer at a lower rate", bytes >> 20)
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
