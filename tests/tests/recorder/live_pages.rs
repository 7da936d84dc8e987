//! Pages on the running kernel, as root: figures held against the kernel's own counters and against memory of known size.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use kmemtrace_tests::programs::{json, run_to};
use kmemtrace_tests::recorder::{Recorder, can_record};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde_json::Value;

kmemtrace_tests::tests![
    pages_are_those_that_the_kernel_counts,
    memory_of_known_size_is_live,
    memory_given_back_in_part_is_live_in_part,
];

/// Time over which counters are compared.
const COMPARED: Duration = Duration::from_secs(8);
/// Pages of a file in memory: 64 MiB.
const PAGES: u64 = 16 << 10;
/// Pages that may be counted more or less: frees wait in lists of each CPU.
const WAITING: u64 = 64;

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn record() -> Result<Recorder, Skip> {
    can_record()?.need_event("kmem/mm_page_alloc")?;
    Ok(Recorder::start(&["-e", "page", "--buffer-size", "32M"]))
}

/// Pages that the kernel has allocated and freed since boot.
fn vmstat() -> (u64, u64) {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let sum = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(key, _)| key.starts_with(name)).filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
    };
    (sum("pgalloc_"), sum("pgfree"))
}

fn kind_pages(dir: &Directory) -> Value {
    // The kernel counts the recorder's pages, too.
    let arguments = ["summary", "--own", "--format", "json"];
    json(&run_to(0, "kmemtrace-report", &arguments, &[&dir.file("trace")]))["kinds"]["pages"].take()
}

fn count(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().unwrap_or_else(|| panic!("{name}: {figures}"))
}

fn pages_are_those_that_the_kernel_counts() -> Result<(), Skip> {
    let recorder = record()?;
    // Both readings lie within the recording: what happens between a reading and the recording's end is not compared.
    let before = vmstat();
    let end = Instant::now() + COMPARED;
    while Instant::now() < end {
        drop(file_in_memory("kmt-load", PAGES));
    }
    let after = vmstat();
    let pages = kind_pages(&recorder.stop_whole());
    let freed = count(&pages, "pages_freed")
        + count(&pages, "free_pages_without_alloc")
        + count(&pages, "free_pages_after_free");
    for (what, counted, found) in
        [("allocated", after.0 - before.0, count(&pages, "pages_allocated")), ("freed", after.1 - before.1, freed)]
    {
        let difference = counted.abs_diff(found);
        assert!(counted > 100_000, "{what}: {counted} pages");
        assert!(difference * 100 <= counted, "{what}: the kernel counted {counted}, events tell of {found}");
    }
    Ok(())
}

/// Writes a file in memory of [`PAGES`] on a thread of this name, and cuts it to `kept` pages.
fn file_in_memory(thread_name: &str, kept: u64) -> OwnedFd {
    let work = move || {
        let file = memfd_create("pages", MemfdFlags::CLOEXEC).unwrap();
        let block = vec![7u8; 16 << 10];
        let mut rest = PAGES * page_bytes();
        while rest > 0 {
            rest -= rustix::io::write(&file, &block).unwrap() as u64;
        }
        if kept < PAGES {
            ftruncate(&file, kept * page_bytes()).unwrap();
        }
        file
    };
    let thread = thread::Builder::new().name(thread_name.to_owned()).spawn(work).unwrap();
    thread.join().unwrap_or_else(|_| panic!("{thread_name} panicked"))
}

/// Pages of a thread of this name that are live at the end.
fn live_pages(dir: &Directory, comm: &str) -> u64 {
    let arguments = ["sites", "--by", "comm", "--kind", "pages", "--comm", comm, "--format", "json"];
    let document = json(&run_to(0, "kmemtrace-report", &arguments, &[&dir.file("trace")]));
    document["rows"].as_array().into_iter().flatten().map(|row| count(row, "live_pages")).sum()
}

fn held(thread_name: &str, kept: u64) -> Result<(), Skip> {
    let recorder = record()?;
    let file = file_in_memory(thread_name, kept);
    let dir = recorder.stop_whole();
    drop(file);
    let live = live_pages(&dir, thread_name);
    // The thread's own tables and stack are pages, too.
    assert!((kept.saturating_sub(WAITING)..=kept + WAITING).contains(&live), "{live} pages of {kept} are live");
    Ok(())
}

fn memory_of_known_size_is_live() -> Result<(), Skip> {
    held("kmt-held", PAGES)
}

fn memory_given_back_in_part_is_live_in_part() -> Result<(), Skip> {
    held("kmt-cut", PAGES / 2)
}
