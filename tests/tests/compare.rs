//! Two builds of the programs on the same traces: documents, messages and exit statuses must be the same. Run by `tests/compare`.
//!
//! Arguments: `[--quick|--added]`, the directories of both builds, and a directory for the traces.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kmemtrace_abi::fault::Code;
use kmemtrace_tests::corpus::{self, Case, Origin};
use kmemtrace_tests::generate::Random;
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";
const CHECK: &str = "kmemtrace-check";

/// Views, some with options of their own. Both sides of a comparison are windows of one trace.
const VIEWS: &[&[&str]] = &[
    &["summary"],
    &["leaks"],
    &["sites"],
    &["sites", "--by", "comm,site"],
    &["sites", "--by", "gfp,size,context"],
    &["caches"],
    &["mismatch"],
    &["live"],
    &["live", "--by", "task"],
    &["live", "--objects"],
    &["cross"],
    &["compare", "--before", ",50%", "--after", "50%,"],
    &["growth"],
    &["account"],
    &["account", "--style", "slab-account"],
    &["events"],
    &["tasks"],
    &["tasks", "--by", "comm"],
    &["modules"],
    &["uses"],
    &["tree", "--by", "stack"],
    &["tree", "--by", "module,task,site,use"],
    &["sites", "--by", "stack"],
];
const FORMATS: [&str; 4] = ["table", "json", "csv", "jsonl"];
const CHECK_FORMATS: [&str; 4] = ["table", "json", "csv", "tsv"];
const THREADS: [&str; 4] = ["1", "2", "3", "4"];

/// Option sets of a view. One option each where the options do not act on each other.
const OPTIONS: [&[&str]; 18] = [
    &[],
    &["--time", "20%,70%"],
    &["--time", "+0.001s,"],
    &["--time", "40%,60%", "--own"],
    &["--own"],
    &["--sort", "allocated"],
    &["--sort", "peak,live,site"],
    &["--sort", "live_wasted,site"],
    &["--context", "softirq,hardirq"],
    &["--top", "3"],
    &["--kind", "kmalloc,pages"],
    &["--size", "64..1K"],
    &["--comm", "k*,init", "--time", ",50%"],
    &["--pid", "77,4242"],
    &["--cache", "*kmalloc*,dentry"],
    &["--module", "*"],
    &["--site", "*alloc*,0xffffffff81100000"],
    &["--bytes", "--show-addresses", "--strict"],
];

/// Windows that an index narrows to a part of the files.
const WINDOWS: [&str; 4] = ["20%,70%", "90%,", ",5%", "-0.01s,"];

/// Differences printed with the lines that differ; of further ones the command alone is printed.
const SHOWN: usize = 40;

/// One run of a program.
#[derive(Clone, Debug)]
struct Run {
    program: &'static str,
    arguments: Vec<String>,
    /// Options for tests, with a value. A build that does not know one runs without it: none changes a document.
    hidden: Vec<[&'static str; 2]>,
}

#[derive(Clone, Debug)]
enum Step {
    Run(Run),
    /// Deletes the index beside the trace.
    Forget,
}

/// One of the two builds, with traces of its own: the index beside a trace belongs to the build that wrote it.
struct Side {
    programs: PathBuf,
    traces: PathBuf,
    knows: HashSet<&'static str>,
}

struct Comparison {
    before: Side,
    now: Side,
    compared: AtomicUsize,
    differ: AtomicUsize,
    printing: Mutex<()>,
    /// Members and columns that only the later build has; `None`: there may be none.
    added: Option<Mutex<BTreeSet<String>>>,
}

/// Amount of what is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Whole,
    Quick,
    /// Documents, which may have got members.
    Added,
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let amount = match arguments.first().map(String::as_str) {
        Some("--quick") => Amount::Quick,
        Some("--added") => Amount::Added,
        _ => Amount::Whole,
    };
    arguments.drain(..usize::from(amount != Amount::Whole));
    let [before, now, traces] = &arguments[..] else {
        eprintln!("run by tests/compare, which builds what is compared");
        return ExitCode::from(2);
    };
    match compare(Path::new(before), Path::new(now), Path::new(traces), amount) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tests/compare: {error}");
            ExitCode::from(2)
        }
    }
}

/// True if all is the same.
fn compare(before: &Path, now: &Path, traces: &Path, amount: Amount) -> io::Result<bool> {
    let started = Instant::now();
    if traces.exists() {
        fs::remove_dir_all(traces)?;
    }
    let (a, b) = (traces.join("before"), traces.join("now"));
    fs::create_dir_all(&a)?;
    let mut cases = corpus::write(&a, if amount == Amount::Whole { 120 } else { 18 })?;
    cases.extend(corpus::foreign(&a)?);
    corpus::copy(&a, &b)?;
    // An index is written only of files that have not changed for a while.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let comparison = Comparison {
        before: Side::new(before, a)?,
        now: Side::new(now, b)?,
        compared: AtomicUsize::new(0),
        differ: AtomicUsize::new(0),
        printing: Mutex::new(()),
        added: (amount == Amount::Added).then(Mutex::default),
    };
    println!("{} traces, written in {:.0} s", cases.len(), started.elapsed().as_secs_f64());
    // Before any trace is packed.
    if amount != Amount::Added {
        general().iter().try_for_each(|step| comparison.step("", step))?;
    }
    let jobs = cases.iter().enumerate().map(|(seed, case)| (case.name.as_str(), steps(case, seed as u64, amount)));
    let jobs = Mutex::new(jobs);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let work = || -> io::Result<()> {
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((name, steps)) = job else { return Ok(()) };
            steps.iter().try_for_each(|step| comparison.step(name, step))?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    })?;
    if let Some(added) = comparison.added {
        let added = added.into_inner().unwrap_or_else(PoisonError::into_inner);
        added.iter().for_each(|member| println!("added: {member}"));
    }
    let (compared, differ) = (comparison.compared.into_inner(), comparison.differ.into_inner());
    println!("{:.0} s", started.elapsed().as_secs_f64());
    println!("{compared} documents compared, {differ} differ");
    Ok(differ == 0)
}

impl Side {
    fn new(programs: &Path, traces: PathBuf) -> io::Result<Side> {
        let mut knows = HashSet::new();
        for option in ["--window-events", "--sized-classes", "--index-from"] {
            let known = Command::new(programs.join(REPORT)).args([option, "9", "--version"]).output()?;
            if known.status.success() {
                knows.insert(option);
            } else {
                println!("{} has no {option}: run without it", programs.display());
            }
        }
        Ok(Side { programs: programs.to_owned(), traces, knows })
    }

    fn run(&self, run: &Run) -> io::Result<Output> {
        let mut command = Command::new(self.programs.join(run.program));
        command.current_dir(&self.traces).args(&run.arguments).stdin(Stdio::null());
        for [option, value] in run.hidden.iter().filter(|[option, _]| self.knows.contains(option)) {
            command.args([option, value]);
        }
        command.output()
    }
}

impl Comparison {
    fn step(&self, name: &str, step: &Step) -> io::Result<()> {
        let run = match step {
            Step::Run(run) => run,
            Step::Forget => {
                for side in [&self.before, &self.now] {
                    match fs::remove_file(side.traces.join(name).join("report.index")) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                }
                return Ok(());
            }
        };
        let (before, now) = (self.before.run(run)?, self.now.run(run)?);
        self.compared.fetch_add(1, Ordering::Relaxed);
        let differences = match &self.added {
            None => differences(&before, &now),
            Some(added) => {
                let mut new = BTreeSet::new();
                let found = differences_but_added(run, &before, &now, &mut new);
                added.lock().unwrap_or_else(PoisonError::into_inner).extend(new);
                found
            }
        };
        if !differences.is_empty() {
            let _printing = self.printing.lock().unwrap_or_else(PoisonError::into_inner);
            let hidden = run.hidden.iter().flatten().map(|word| format!(" {word}")).collect::<String>();
            println!("differs: {} {}{hidden}", run.program, run.arguments.join(" "));
            if self.differ.fetch_add(1, Ordering::Relaxed) < SHOWN {
                differences.iter().for_each(|line| println!("  {line}"));
            }
        }
        Ok(())
    }
}

/// Lines that say where two outputs differ; none where they are the same.
fn differences(before: &Output, now: &Output) -> Vec<String> {
    let mut found = Vec::new();
    if before.status != now.status {
        found.push(format!("{} before, {} now", before.status, now.status));
    }
    found.extend(first_difference("stdout", &before.stdout, &now.stdout));
    found.extend(first_difference("stderr", &timeless(&before.stderr), &timeless(&now.stderr)));
    found
}

/// The same of documents, where members and columns that only the later one has are noted in `added`. Messages are not compared.
fn differences_but_added(run: &Run, before: &Output, now: &Output, added: &mut BTreeSet<String>) -> Vec<String> {
    if before.status != now.status {
        return vec![format!("{} before, {} now", before.status, now.status)];
    }
    if !before.status.success() {
        return Vec::new();
    }
    let [a, b] = [before, now].map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let view = if run.program == CHECK { "check" } else { run.arguments.first().map_or("", |view| view) };
    let mut found = Vec::new();
    if run.arguments.iter().any(|argument| argument == "csv") {
        compare_columns(view, &a, &b, added, &mut found);
        return found;
    }
    let documents = |text: &str| -> Vec<Value> {
        serde_json::Deserializer::from_str(text).into_iter::<Value>().map_while(Result::ok).collect()
    };
    let (a, b) = (documents(&a), documents(&b));
    if a.len() != b.len() || a.is_empty() && before.stdout != now.stdout {
        found.push(format!("{} JSON values before, {} now", a.len(), b.len()));
    }
    a.iter().zip(&b).for_each(|(a, b)| compare_members(view, a, b, added, &mut found));
    found
}

/// Notes the members of `now` that `before` lacks, and where both differ otherwise.
fn compare_members(place: &str, before: &Value, now: &Value, added: &mut BTreeSet<String>, found: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(a), Value::Object(b)) => {
            found.extend(a.keys().filter(|name| !b.contains_key(*name)).map(|name| format!("{place}.{name}: gone")));
            for (name, now) in b {
                let place = format!("{place}.{name}");
                match a.get(name) {
                    Some(before) => compare_members(&place, before, now, added, found),
                    None => drop(added.insert(place)),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).for_each(|(a, b)| compare_members(&format!("{place}[]"), a, b, added, found));
        }
        (a, b) if a == b => {}
        (a, b) => {
            let short = |value: &Value| value.to_string().chars().take(120).collect::<String>();
            found.push(format!("{place}: {} before, {} now", short(a), short(b)));
        }
    }
}

/// The same of the columns of a table in CSV, whose cells have no line break.
fn compare_columns(view: &str, before: &str, now: &str, added: &mut BTreeSet<String>, found: &mut Vec<String>) {
    let heads = [before, now].map(|text| text.lines().next().unwrap_or_default().split(',').collect::<Vec<_>>());
    let [a, b] = &heads;
    found.extend(a.iter().filter(|name| !b.contains(name)).map(|name| format!("{view}: column {name} is gone")));
    let new: Vec<&&str> = b.iter().filter(|name| !a.contains(name)).collect();
    added.extend(new.iter().map(|name| format!("{view}: column {name}")));
    if new.is_empty() && before != now {
        found.extend(first_difference(view, before.as_bytes(), now.as_bytes()));
    }
}

/// Standard error without the lines that tell times, and without the size of an index.
fn timeless(stderr: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.split_inclusive('\n').filter(|line| !line.contains("paired for "));
    lines
        .map(|line| line.split_once("report.index: written").map_or(line, |_| "index written\n"))
        .collect::<String>()
        .into()
}

fn first_difference(what: &str, before: &[u8], now: &[u8]) -> Vec<String> {
    if before == now {
        return Vec::new();
    }
    let same = before.iter().zip(now).take_while(|(a, b)| a == b).count();
    let line = before[..same].iter().filter(|&&byte| byte == b'\n').count();
    let shown = |bytes: &[u8]| {
        let from =
            bytes[..same].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1).max(same.saturating_sub(60));
        let to =
            bytes[same..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| same + at).min(same + 60);
        String::from_utf8_lossy(&bytes[from..to]).into_owned()
    };
    let lengths = format!("{} bytes before, {} now", before.len(), now.len());
    vec![
        format!("{what}, line {}, {lengths}:", line + 1),
        format!("  before: {}", shown(before)),
        format!("  now:    {}", shown(now)),
    ]
}

fn word<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    words[random.below(words.len() as u64) as usize]
}

fn some_view(random: &mut Random) -> &'static [&'static str] {
    VIEWS[random.below(VIEWS.len() as u64) as usize]
}

fn run(program: &'static str, words: &[&[&str]]) -> Step {
    let arguments = words.concat().into_iter().map(str::to_owned).collect();
    Step::Run(Run { program, arguments, hidden: Vec::new() })
}

fn hidden(step: Step, options: &[[&'static str; 2]]) -> Step {
    match step {
        Step::Run(run) => Step::Run(Run { hidden: options.to_vec(), ..run }),
        Step::Forget => Step::Forget,
    }
}

/// Runs that need no particular trace: help, explanations, wrong usage. `--max-memory` is left out: how far a run comes before it
/// needs too much depends on the threads.
fn general() -> Vec<Step> {
    let mut steps = Vec::new();
    for program in [REPORT, CHECK] {
        for words in [
            &["--help"][..],
            &["-h"],
            &["--version"],
            &[],
            &["absent"],
            &["--no-such-option"],
            &["-j", "0"],
            &["--format", "xml"],
            &["amd64-6.1", "absent"],
            &["amd64-6.1", "relay-amd64-6.1"],
            &["amd64-6.1/cpu1.out", "amd64-6.1/cpu0.out"],
            &["amd64-6.1/meta.out"],
            &["."],
        ] {
            steps.push(run(program, &[words]));
        }
    }
    for words in [
        &["sights", "amd64-6.1"][..],
        &["amd64-6.1", "live"],
        &["--time", "5,4", "amd64-6.1"],
        &["--time", "x", "amd64-6.1"],
        &["--size", "9..3", "amd64-6.1"],
        &["--kind", "slab", "amd64-6.1"],
        &["--site", "0xg", "amd64-6.1"],
        &["pack", "absent"],
        &["pack", "--level", "99", "amd64-6.1"],
    ] {
        steps.push(run(REPORT, &[words]));
    }
    for code in Code::ALL.iter().map(ToString::to_string).chain(["K999".to_owned()]) {
        steps.push(run(CHECK, &[&["--explain", &code]]));
    }
    steps
}

/// All runs on a trace. Packing it comes last, and the packed trace is looked at once more.
fn steps(case: &Case, seed: u64, amount: Amount) -> Vec<Step> {
    let random = &mut Random::new(seed);
    let name = case.name.as_str();
    let is_quick = amount != Amount::Whole;
    if amount == Amount::Added || case.origin == Origin::Foreign {
        return documents(name, random, amount);
    }
    let mut steps = check(name, &case.files);
    steps.extend(VIEWS.iter().flat_map(|view| some_options(name, view, random)));
    if case.origin == Origin::Sample && !is_quick {
        steps.extend(VIEWS.iter().flat_map(|view| all_options(name, view)));
    }
    steps.extend(files(&case.files, random));
    steps.extend(indexed(name, case.origin == Origin::Generated || is_quick, random));
    steps.push(run(REPORT, &[&["pack", "-j", "1", name]]));
    steps.push(run(REPORT, &[&["pack", "-j", "1", "--force", name]]));
    steps.push(run(CHECK, &[&["--format", "json", name]]));
    steps.extend(VIEWS.iter().map(|view| run(REPORT, &[view, &["--format", "json", name]])));
    steps
}

/// Each view in the formats of documents, and once with options; for tables, too, where these have to be the same.
fn documents(name: &str, random: &mut Random, amount: Amount) -> Vec<Step> {
    let formats = if amount == Amount::Added { &["json", "csv"][..] } else { &FORMATS };
    let mut steps = vec![run(CHECK, &[&["--format", "json", name]])];
    for view in VIEWS {
        let plain = formats.iter().map(|format| run(REPORT, &[view, &["--format", format, "--no-index", name]]));
        steps.extend(plain);
        let options = *random.pick(&options_of(view));
        steps.push(run(REPORT, &[view, &["--format", "json", "--no-index"], options, &[name]]));
    }
    steps
}

/// Option sets that a view takes: not every view sorts rows, has any to leave out, or a window beside its own.
fn options_of(view: &[&str]) -> Vec<&'static [&'static str]> {
    let takes = |options: &&&[&str]| match **options {
        ["--sort", "live_wasted,site"] if view[0] == "live" => !view.contains(&"--objects"),
        ["--sort", ..] => ["sites", "caches"].contains(&view[0]),
        ["--top", ..] => view[0] != "summary",
        ref options => !(options.contains(&"--time") && view[0] == "compare"),
    };
    OPTIONS.iter().filter(takes).copied().collect()
}

/// Every format with options and threads at random, plain documents with each number of threads, and small windows of events.
fn some_options(name: &str, view: &[&str], random: &mut Random) -> Vec<Step> {
    let (mut steps, sets) = (Vec::new(), options_of(view));
    for format in FORMATS {
        let options = *random.pick(&sets);
        let threads = word(random, &THREADS);
        steps.push(run(REPORT, &[view, &["--format", format, "--no-index", "-j", threads], options, &[name]]));
    }
    for threads in THREADS {
        let plain = run(REPORT, &[view, &["--format", "json", "-j", threads, name]]);
        steps.push(hidden(plain.clone(), &[["--window-events", "61"], ["--sized-classes", "2"]]));
        steps.push(plain);
    }
    let options = *random.pick(&sets);
    let small = run(REPORT, &[view, &["--format", "json", "-j", word(random, &THREADS)], options, &[name]]);
    steps.push(hidden(small, &[["--window-events", "17"]]));
    steps
}

/// Every format with every option set on two threads, and JSON on the other numbers of threads.
fn all_options(name: &str, view: &[&str]) -> Vec<Step> {
    let of = |format, threads, options| {
        run(REPORT, &[view, &["--format", format, "--no-index", "-j", threads], options, &[name]])
    };
    let sets = options_of(view);
    let formats = FORMATS.into_iter().flat_map(|format| sets.iter().map(move |options| of(format, "2", options)));
    let threads = ["1", "3", "4"].into_iter();
    let threads = threads.flat_map(|threads| sets.iter().map(move |options| of("json", threads, options)));
    formats.chain(threads).collect()
}

/// Each view while the index is written, and from the index; windows, which read a part of the trace.
fn indexed(name: &str, is_short: bool, random: &mut Random) -> Vec<Step> {
    const INDEX: &[[&str; 2]] = &[["--index-from", "0"]];
    let mut steps = vec![Step::Forget];
    for view in VIEWS {
        let format = word(random, &FORMATS);
        if !is_short || random.chance(30) {
            steps.push(Step::Forget);
        }
        for threads in [word(random, &THREADS), "2"] {
            steps.push(hidden(run(REPORT, &[view, &["-v", "--format", format, "-j", threads, name]]), INDEX));
        }
        let windows: &[&str] = if is_short { &[word(random, &WINDOWS)] } else { &WINDOWS };
        for window in windows.iter().filter(|_| view[0] != "compare") {
            let options = ["--format", "json", "-v", "--time", window];
            steps.push(hidden(run(REPORT, &[view, &options, &[name]]), INDEX));
        }
    }
    steps.push(Step::Forget);
    steps
}

/// Files without their directory: the first, and all together.
fn files(files: &[String], random: &mut Random) -> Vec<Step> {
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let of = |view: &[&str], format, files: &[&str]| run(REPORT, &[view, &["--format", format], files]);
    let some = files.get(..1).unwrap_or_default();
    vec![
        of(&["summary"], "json", some),
        of(some_view(random), word(random, &FORMATS), some),
        of(some_view(random), word(random, &FORMATS), &files),
    ]
}

fn check(name: &str, files: &[String]) -> Vec<Step> {
    let mut steps = Vec::new();
    for format in CHECK_FORMATS {
        for threads in ["1", "2"] {
            steps.push(run(CHECK, &[&["--format", format, "-j", threads, name]]));
        }
        steps.extend(files.iter().map(|file| run(CHECK, &[&["--format", format, file]])));
    }
    for options in [&["--strict", "-q"][..], &["--limit", "1"]] {
        steps.push(run(CHECK, &[options, &[name]]));
    }
    steps
}
