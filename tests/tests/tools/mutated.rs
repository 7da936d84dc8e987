//! Files of every kind, made and changed from seeds: the readers end by themselves, in the memory and the time that the file explains.
//!
//! `KMEMTRACE_RUNS=all` tries a thousand files of each kind in place of fifty; `KMEMTRACE_SEEDS=FROM..TO` others.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kmemtrace_tests::measured::{self, Ran};
use kmemtrace_tests::mutated::{FileInput, INPUTS, Written};
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;

kmemtrace_tests::tests!(readers_keep_to_their_limits_whatever_the_file_is);

/// Files of each kind.
const FILES: u64 = 50;
/// Memory beyond the limit, in KiB.
const MARGIN: u64 = 64 << 10;
/// Most lines on standard error: one for each part that is left out, and 64 findings of each file.
const MAX_LINES: usize = 8 + 64 * 5;
/// A program that has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(300);
/// A debug build takes so many times as long as a release build.
const SLOWNESS: f64 = if cfg!(debug_assertions) { 5.0 } else { 1.0 };

fn readers_keep_to_their_limits_whatever_the_file_is() -> Result<(), Skip> {
    let seeds = runs::asked_or(0..runs::number(FILES, 20 * FILES));
    println!("seeds {seeds:?}");
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(input) = INPUTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            let most = seeds.clone().map(|seed| try_file(input, seed)).max_by(f64::total_cmp);
            println!("{}: at most {:.2} of its processor time", input.name, most.unwrap_or_default());
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(4);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    Ok(())
}

/// Has the readers read the file of a seed; returns the largest part of the processor time that it may take.
fn try_file(input: &FileInput, seed: u64) -> f64 {
    let written = input.write(seed);
    let mib = if seed.is_multiple_of(2) { 64 } else { 256 };
    let allowed = 10.0 * written.stored as f64 / f64::from(1 << 20) + 2.0;
    let mut most = 0.0f64;
    for mut command in written.commands() {
        command.args(["--max-memory", &format!("{mib}M")]);
        let ran = measured::run(&mut command, HANGS);
        if let Some(why) = broken(&ran, mib, SLOWNESS * allowed) {
            fail(input, seed, &written, &command, &why, &ran);
        }
        most = most.max(ran.processor.as_secs_f64() / (SLOWNESS * allowed));
    }
    most
}

/// The promise that a run broke.
fn broken(ran: &Ran, mib: u64, seconds: f64) -> Option<String> {
    if !matches!(ran.status, Some(0..=3)) {
        return Some(format!("exit status {:?}", ran.status));
    }
    if ran.peak > (mib << 10) + MARGIN {
        return Some(format!("{} KiB of {mib} MiB", ran.peak));
    }
    if ran.processor.as_secs_f64() > seconds {
        return Some(format!("{:?} of {seconds:.1} s of processor time", ran.processor));
    }
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let mut distinct = lines.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if ran.stderr.contains("panicked") || lines.len() > MAX_LINES || distinct.len() < lines.len() {
        return Some("standard error".to_owned());
    }
    None
}

fn fail(input: &FileInput, seed: u64, written: &Written, command: &Command, why: &str, ran: &Ran) -> ! {
    let kept = written.keep(&format!("kmemtrace-mutated-{}-{seed}", input.name));
    panic!("{}, seed {seed}: {why}; {command:?}; the files are in {}: {}", input.name, kept.display(), ran.stderr);
}
