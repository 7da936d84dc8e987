//! The running kernel, as root: our report beside memstrack's own, on memory of a known size.

use std::env;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::live::Instance;
use kmemtrace_tests::programs::{program, run_to, until};
use kmemtrace_tests::recorder::{Recorder, can_record, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use super::layouts;

/// Variable with the folder of memstrack's sources.
const SOURCE: &str = "KMEMTRACE_MEMSTRACK_SOURCE";
/// Reports that are compared.
const REPORTS: &str = "module_summary,module_top,task_summary,task_top,proc_slab_static";
/// Pages that are written, and pages that stay.
const PAGES: [u64; 2] = [16 << 10, 8 << 10];
/// Pages that may be counted more or less: those of the thread itself, and frees that wait in lists of each CPU.
const WAITING: u64 = 64;

/// Caches of the trace's own text are compared in size and order.
pub(crate) fn slabs_are_those_that_the_kernel_counted() -> Result<(), Skip> {
    can_record()?;
    let recorder = Recorder::start(&[]);
    let directory = recorder.stop_whole();
    let trace = directory.file("trace");
    let text = Trace::open(std::slice::from_ref(&trace)).unwrap().metadata.slabinfo_end;
    let text = String::from_utf8_lossy(&text).into_owned();
    if text.is_empty() {
        return Err(Skip("this kernel has no /proc/slabinfo".to_owned()));
    }
    let page_bytes = rustix::param::page_size() as f64;
    let size = |line: &str| -> Option<(u64, String, String)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word: &&str| word.parse::<u64>().ok());
        let pages = number(words.iter().position(|word| *word == "slabdata")? + 2)? * number(5)?;
        Some((pages, words[0].to_owned(), format!("{:.1}", pages as f64 * page_bytes / 1024.0 / 1024.0)))
    };
    let mut expected: Vec<(u64, String, String)> = text.lines().skip(2).filter_map(size).collect();
    expected.sort_by_key(|(pages, _, _)| std::cmp::Reverse(*pages));
    let expected: Vec<(String, String)> = expected.into_iter().map(|(_, name, size)| (name, size)).collect();
    assert!(expected.len() > 20, "{text}");
    for (parameter, count) in [("", expected.len()), (":top=3", 3)] {
        let word = format!("proc_slab_static{parameter}");
        let printed = run_to(0, "kmemtrace-report", &["--memstrack", &word], &[&trace]);
        let printed = String::from_utf8(printed).unwrap();
        assert_eq!(layouts::slabs(&layouts::section(&printed, "proc_slab_static")), expected[..count], "{word}");
    }
    Ok(())
}

/// Builds memstrack in a copy of the named folder.
fn memstrack(place: &Directory) -> Result<PathBuf, Skip> {
    let Some(source) = env::var_os(SOURCE) else {
        return Err(Skip(format!("{SOURCE} names no folder with memstrack's sources")));
    };
    let copy = place.file("source");
    let copied = Command::new("cp").arg("-rL").arg(&source).arg(&copy).status();
    if !copied.is_ok_and(|status| status.success()) {
        return Err(Skip(format!("{}: {SOURCE} cannot be copied", Path::new(&source).display())));
    }
    let made = Command::new("make").arg("-C").arg(&copy).arg("memstrack").output();
    let made = made.map_err(|error| Skip(format!("make is needed to build memstrack: {error}")))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        let line = said.lines().find(|line| line.contains("error")).unwrap_or("make failed");
        return Err(Skip(format!("memstrack does not build (it needs gcc and libncurses-dev): {line}")));
    }
    Ok(copy.join("memstrack"))
}

/// Recorder that ends with the test, whatever becomes of it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = self.0.wait();
    }
}

fn start(program: &Path, output: &Path, options: &[&str]) -> Running {
    let mut command = Command::new(program);
    command.args(["--notui", "--report", REPORTS, "--output"]).arg(output).args(options);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Running(child.unwrap())
}

/// Writes a file in memory, frees a part of it, and returns the thread that did it.
fn known_load() -> (OwnedFd, u64) {
    let work = || {
        let file = memfd_create("pages", MemfdFlags::CLOEXEC).unwrap();
        let page_bytes = rustix::param::page_size() as u64;
        let block = vec![7u8; 16 << 10];
        let mut rest = PAGES[0] * page_bytes;
        while rest > 0 {
            rest -= rustix::io::write(&file, &block).unwrap() as u64;
        }
        ftruncate(&file, PAGES[1] * page_bytes).unwrap();
        (file, rustix::thread::gettid().as_raw_nonzero().get() as u64)
    };
    thread::spawn(work).join().unwrap()
}

pub(crate) fn memstrack_and_we_parse_alike_on_a_known_load() -> Result<(), Skip> {
    let tracefs = can_record()?;
    tracefs.need_event("kmem/mm_page_alloc")?;
    let place = Directory::on_disk();
    let memstrack = memstrack(&place)?;
    let (theirs, ours, name) = (place.file("theirs"), place.file("ours"), instance_name());
    let other = start(&memstrack, &theirs, &[]);
    let recorder = start(&program("kmemtraced"), &ours, &["-B", &name]);
    let is_on = || Instance::of(&tracefs, &name).read("tracing_on").is_ok_and(|on| on.trim() == "1");
    until("the start of the recorder", is_on);
    // Nothing tells when memstrack has begun.
    thread::sleep(Duration::from_secs(3));
    let (file, thread_id) = known_load();
    thread::sleep(Duration::from_millis(500));
    drop((other, recorder));
    drop(file);
    let row = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let section = |name| layouts::section(&text, name);
        layouts::modules(&section("module_summary"));
        layouts::module_top(&section("module_top"));
        assert!(!layouts::task_top(&section("task_top")).is_empty(), "{text}");
        let caches = layouts::slabs(&section("proc_slab_static"));
        let rows = layouts::tasks(&section("task_summary"));
        let row = rows.into_iter().find(|row| row.pid == Some(thread_id as i64));
        (row.and_then(|row| Some((row.pages?, row.peak?))), caches.len())
    };
    let ((ours, our_caches), (theirs, their_caches)) = (row(&ours), row(&theirs));
    println!("known: {} live, peak {}; kmemtrace {ours:?}; memstrack {theirs:?}", PAGES[1], PAGES[0]);
    println!("caches: kmemtrace {our_caches}, memstrack {their_caches}");
    let (live, peak) = ours.unwrap_or_else(|| panic!("the thread of the load is not in our report"));
    for (known, found) in [(PAGES[1], live), (PAGES[0], peak)] {
        assert!((known - WAITING..=known + WAITING).contains(&found), "{found} pages, {known} are known");
    }
    Ok(())
}
