//! Reports of memstrack: our figures in its layouts, and memstrack itself beside us where its source is named.

mod beside;
mod expected;
mod layouts;

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};

use expected::{Order, Trees};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::corpus;
use kmemtrace_tests::generate::{Options, Random, Workload, trace_dir, workload};
use kmemtrace_tests::programs::{json, program, run, run_to, stderr};
use kmemtrace_tests::recorder::kmemtraced;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs::seeds;

const REPORT: &str = "kmemtrace-report";

kmemtrace_tests::tests![
    figures_of_samples_are_those_of_our_views,
    figures_of_random_traces_are_those_of_our_views,
    names_are_escaped_and_json_parses,
    words_that_are_none_are_refused,
    a_report_without_a_place_is_refused_before_it_records,
    outputs_fail_as_those_of_views_do,
    a_layout_that_cannot_mark_loss_leaves_it_to_a_line,
    slabs_are_those_that_the_kernel_counted => beside::slabs_are_those_that_the_kernel_counted,
    memstrack_and_we_parse_alike_on_a_known_load => beside::memstrack_and_we_parse_alike_on_a_known_load,
];

fn text(arguments: &[&str], paths: &[&Path]) -> String {
    String::from_utf8(run_to(0, REPORT, arguments, paths)).unwrap()
}

fn figures_of_samples_are_those_of_our_views() -> Result<(), Skip> {
    let directory = Directory::new(&[]);
    let mut count = 0;
    for case in corpus::write(directory.path(), 0).unwrap().iter().filter(|case| case.name.contains("stacks")) {
        let rows = compared(&directory.file(&case.name));
        assert!(rows > 10, "{}: {rows} nodes are too few to mean anything", case.name);
        count += 1;
    }
    assert_eq!(count, 5, "samples with stacks");
    Ok(())
}

/// Trace of a seed with pages, stacks and modules, whole or not.
fn random_trace(seed: u64) -> Workload {
    let options = Options::random(&mut Random::new(seed), 900);
    workload(seed, &Options { pages: true, stacks: true, symbols: true, missing: Vec::new(), ..options })
}

fn figures_of_random_traces_are_those_of_our_views() -> Result<(), Skip> {
    let mut rows = 0;
    for seed in seeds(0..12) {
        let directory = Directory::new(&trace_dir(&random_trace(seed), seed));
        rows += compared(directory.path());
    }
    assert!(rows > 1000, "{rows} nodes are too few to mean anything");
    Ok(())
}

/// Holds all layouts of a trace against the JSON of our views; returns the number of nodes of the largest.
fn compared(trace: &Path) -> usize {
    let trees = Trees::of(trace);
    let mut nodes = 0;
    for parameters in
        ["", ":top=1", ":top=0:throttle=0", ":throttle=60", ":sort_by_peak", ":sort_by_peak:throttle=30:top=3"]
    {
        let order = Order::parse(parameters);
        let words = ["module_summary", "module_top", "task_summary", "task_top", "task_top_json"];
        let list = words.map(|word| format!("{word}{parameters}")).join(",");
        let printed = text(&["--no-index", "--memstrack", &list], &[trace]);
        assert_eq!(layouts::sections(&printed).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), words);
        let section = |name| layouts::section(&printed, name);
        let what = format!("{} {parameters}", trace.display());
        assert_eq!(layouts::modules(&section("module_summary")), trees.module_summary(&order), "{what}");
        assert_eq!(layouts::module_top(&section("module_top")), trees.module_top(&order), "{what}");
        assert_eq!(layouts::tasks(&section("task_summary")), trees.task_summary(&order), "{what}");
        assert_eq!(layouts::task_top(&section("task_top")), trees.task_top(&order), "{what}");
        let document = json(section("task_top_json").join("\n").as_bytes());
        let found = expected::of_memstrack_json(&document);
        assert_eq!(found, trees.task_top_json(&order), "{what}");
        nodes = nodes.max(found.iter().map(expected::size).sum());
    }
    nodes
}

fn names_are_escaped_and_json_parses() -> Result<(), Skip> {
    const NAME: &str = "a\u{1b}[2J\",\\\u{202e} (1) Pages: 9";
    let mut machine = random_trace(3);
    machine.comms = machine.cpus.iter().flat_map(|_| [0, 1, 77, 4242, 4243, 31999]).map(|pid| (pid, NAME)).collect();
    let directory = Directory::new(&trace_dir(&machine, 3));
    let printed = text(&["--memstrack", "task_summary,task_top,task_top_json"], &[directory.path()]);
    let harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert_eq!(printed.find(harmful), None, "{printed:?}");
    let shown = kmemtrace_abi::text::escape::escape(NAME.as_bytes()).into_owned();
    let rows = layouts::tasks(&layouts::section(&printed, "task_summary"));
    assert!(!rows.is_empty() && rows.iter().all(|row| row.name == shown || row.name == "(no name)"), "{rows:?}");
    let document = json(layouts::section(&printed, "task_top_json").join("\n").as_bytes());
    let tasks = document.as_array().unwrap();
    assert!(!tasks.is_empty() && tasks.iter().any(|task| task["task_name"] == NAME), "{document}");
    Ok(())
}

fn words_that_are_none_are_refused() -> Result<(), Skip> {
    let directory = Directory::new(&trace_dir(&random_trace(1), 1));
    for (list, said) in [
        ("modul_top", &["'modul_top'", "'module_top'", "task_top_json, proc_slab_static"][..]),
        ("task_top,,", &["task_top_json, proc_slab_static"]),
        ("task_top,module_top:throtle=8", &["throtle=8 of module_top", "throttle=PERCENT"]),
        ("task_top:throttle=101", &["a percentage from 0 to 100"]),
        ("task_top:top=many", &["top=many of task_top", "a number of rows"]),
    ] {
        let line = stderr(2, &run(REPORT, &["--memstrack", list], &[directory.path()]));
        assert!(said.iter().all(|said| line.contains(said)), "{list}: {line}");
        // The recorder refuses it before it records.
        let mut recorder = kmemtraced();
        recorder.args(["--report", list, "--notui", "--output"]).arg(directory.file("report"));
        let line = stderr(2, &recorder.output().unwrap());
        assert!(said.iter().all(|said| line.contains(said)), "{list}: {line}");
        assert!(!directory.file("report").exists());
    }
    for (line, said) in [
        (&["summary", "--memstrack", "task_top"][..], "--memstrack: takes the place of a view; leave out summary"),
        (&["--memstrack", "task_top", "--format", "json"], "cannot be used with '--format"),
        (&["--memstrack", "task_top", "--kind", "cache"], "cannot be used with '--kind"),
    ] {
        let line = stderr(2, &run(REPORT, line, &[directory.path()]));
        assert!(line.contains(said), "{line}");
    }
    Ok(())
}

fn a_report_without_a_place_is_refused_before_it_records() -> Result<(), Skip> {
    let directory = Directory::new(&[]);
    let fifo = Command::new("mkfifo").arg(directory.file("fifo")).status().unwrap();
    assert!(fifo.success());
    for (file, reason) in [("none/report", "No such file"), (".", "Is a directory"), ("fifo", "No such device")] {
        let mut recorder = kmemtraced();
        recorder.args(["--report", "task_summary", "--notui", "-d", "1", "--output"]).arg(directory.file(file));
        let line = stderr(2, &recorder.output().unwrap());
        assert!(line.contains(reason) && line.contains("name another file with --output"), "{line}");
        assert!(!line.contains("recording"), "{line}");
    }
    Ok(())
}

fn outputs_fail_as_those_of_views_do() -> Result<(), Skip> {
    let directory = Directory::new(&trace_dir(&random_trace(1), 1));
    let command = || {
        let mut command = Command::new(program(REPORT));
        command.args(["-q", "--memstrack", "task_top,module_summary,task_top_json"]).arg(directory.path());
        command.stdin(Stdio::null());
        command
    };
    let whole = command().output().unwrap();
    let warnings = stderr(0, &whole);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let line = stderr(2, &command().stdout(full).output().unwrap());
    assert!(line.contains("standard output: cannot be written: No space left"), "{line}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(stderr(0, &command().stdout(writer).output().unwrap()), "");
    let file = directory.file("report");
    let output = command().arg("-o").arg(&file).output().unwrap();
    assert_eq!((stderr(0, &output), output.stdout.len()), (warnings, 0));
    assert_eq!(fs::read(&file).unwrap(), whole.stdout);
    let line = stderr(2, &command().arg("-o").arg(&file).output().unwrap());
    assert!(line.contains("exists already"), "{line}");
    let line = stderr(2, &run(REPORT, &["--memstrack", "task_top"], &[&directory.file("none")]));
    assert!(line.contains("none: No such file"), "{line}");
    Ok(())
}

fn a_layout_that_cannot_mark_loss_leaves_it_to_a_line() -> Result<(), Skip> {
    let lossy = (0..200)
        .map(|seed| (seed, random_trace(seed)))
        .find(|(_, machine)| machine.cpus.iter().any(|cpu| cpu.lost().is_some_and(|lost| lost > 0)));
    let (seed, machine) = lossy.unwrap();
    let directory = Directory::new(&trace_dir(&machine, seed));
    let line = stderr(0, &run(REPORT, &["--memstrack", "task_summary"], &[directory.path()]));
    assert!(line.contains("events lost, the figures are estimates"), "{line}");
    stderr(3, &run(REPORT, &["--strict", "--memstrack", "task_summary"], &[directory.path()]));
    // A recording of slab events has no pages.
    let slab = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/amd64-6.18");
    assert!(Trace::open(std::slice::from_ref(&slab)).is_ok());
    let output = run(REPORT, &["--no-index", "--memstrack", "task_summary"], &[&slab]);
    let line = stderr(0, &output);
    assert!(line.contains("kmemtraced -e page --stack"), "{line}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(layouts::section(&printed, "task_summary"), [""; 0]);
    Ok(())
}
