//! Targets of fuzzing: the corpus is read, and inputs that are made of it.
//!
//! `KMEMTRACE_RUNS=all` makes twenty times as many, and every cut and flipped bit of a short input. `RENEW=1` gives a target without a corpus its seeds. `fuzz/run` looks for more with libFuzzer.

use std::fs;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use kmemtrace_tests::fuzz::{TARGETS, Target, bombs, corpus};
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;

kmemtrace_tests::tests!(
    the_corpus_is_small_and_each_target_has_one,
    inputs_break_no_promise,
    no_cut_and_no_flipped_bit_breaks_a_promise,
    no_input_is_a_bomb,
);

/// Largest corpus, in bytes.
const MAX_CORPUS: u64 = 8 << 20;
/// Longest seed that a corpus begins with, in bytes.
const MAX_PLANTED: usize = 96 << 10;
/// Seed of the changes.
const SEED: u64 = 45;

fn the_corpus_is_small_and_each_target_has_one() -> Result<(), Skip> {
    if std::env::var_os("RENEW").is_some() {
        TARGETS.iter().for_each(plant);
    }
    let mut bytes = 0;
    for target in TARGETS {
        let files = fs::read_dir(corpus::folder(target)).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        let files: Vec<u64> = files.map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert!(!files.is_empty(), "{}", target.name);
        bytes += files.iter().sum::<u64>();
    }
    assert!(bytes <= MAX_CORPUS, "{bytes} bytes");
    Ok(())
}

/// Writes the short seeds of a target that has no corpus.
fn plant(target: &Target) {
    let folder = corpus::folder(target);
    if folder.exists() {
        return;
    }
    fs::create_dir_all(&folder).unwrap();
    for seed in (target.seeds)().iter().filter(|seed| seed.len() <= MAX_PLANTED) {
        fs::write(folder.join(format!("{:08x}", kmemtrace_abi::disk::block::crc32c(seed))), seed).unwrap();
    }
}

/// The line about an input that broke a promise, which is kept in a file.
fn broken(target: &Target, why: &str, input: &[u8]) -> String {
    let name = format!("kmemtrace-fuzz-{}-{:08x}", target.name, kmemtrace_abi::disk::block::crc32c(input));
    let path = std::env::temp_dir().join(name);
    fs::write(&path, input).unwrap();
    format!("{}, seed {SEED}: {why}: the input is {}", target.name, path.display())
}

/// Runs `test` on each target, as many at once as there are processors; fails with what they found. `KMEMTRACE_FUZZ=NAME,...` chooses some.
fn each_target(test: impl Fn(&Target) -> Result<(), String> + Sync) {
    let chosen = std::env::var("KMEMTRACE_FUZZ").ok();
    let is_chosen =
        |target: &&Target| chosen.as_ref().is_none_or(|names| names.split(',').any(|name| name == target.name));
    let targets: Vec<&Target> = TARGETS.iter().filter(is_chosen).collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(why) = test(target) {
                found.lock().unwrap().push(why);
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(4);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Number of changed inputs of a target.
fn changes(target: &Target) -> u64 {
    runs::number(target.executions / 2, 20 * target.executions)
}

fn inputs_break_no_promise() -> Result<(), Skip> {
    println!("seed {SEED}");
    let (executed, asked) = (AtomicU64::new(0), AtomicU64::new(0));
    each_target(|target| {
        let begin = Instant::now();
        let inputs = corpus::inputs(target);
        let mut random = Random::new(SEED);
        let changed = (0..changes(target)).map(|_| corpus::changed(target, &inputs, &mut random));
        for input in inputs.iter().cloned().chain(changed) {
            corpus::run(target, &input).map_err(|why| broken(target, &why, &input))?;
            executed.fetch_add(1, Ordering::Relaxed);
        }
        asked.fetch_add(inputs.len() as u64 + changes(target), Ordering::Relaxed);
        println!("{}: {} inputs, {:.1} s", target.name, inputs.len(), begin.elapsed().as_secs_f64());
        Ok(())
    });
    assert_eq!(executed.into_inner(), asked.into_inner());
    Ok(())
}

/// The shortest input of each target that is no trifle is cut at its bytes, and its bits are flipped one at a time.
fn no_cut_and_no_flipped_bit_breaks_a_promise() -> Result<(), Skip> {
    let all = runs::is_all();
    each_target(|target| {
        let mut inputs = corpus::inputs(target);
        inputs.sort_by_key(Vec::len);
        let whole = inputs.iter().find(|input| input.len() >= TRIFLE).or(inputs.last()).expect("a target has seeds");
        let damages = 9 * whole.len();
        let mut random = Random::new(SEED);
        let count = if all { damages } else { damages.min(DAMAGES) };
        for n in 0..count {
            let damage = if all { n } else { random.below(damages as u64) as usize };
            // Of nine, one is a cut; the others are the bits of a byte.
            let (at, bit) = (damage / 9, damage % 9);
            let mut input = whole.clone();
            match 1u8.checked_shl(bit as u32) {
                Some(mask) => input[at] ^= mask,
                None => input.truncate(at),
            }
            corpus::run(target, &input).map_err(|why| broken(target, &why, &input))?;
        }
        println!("{}: {} cuts and bits of {} bytes", target.name, count, whole.len());
        Ok(())
    });
    Ok(())
}

/// Searches for inputs that cost much. Processes share the processors here, so the bounds are wide.
fn no_input_is_a_bomb() -> Result<(), Skip> {
    let measuring = Mutex::new(());
    each_target(|target| {
        // The memory is that of the process: one at a time.
        let _alone = measuring.lock().unwrap_or_else(PoisonError::into_inner);
        let found = bombs::search(target, changes(target) / 10, &mut Random::new(SEED));
        let found = found.map_err(|(why, input)| broken(target, &why, &input))?;
        for bombs::Dear { input, cost } in &found {
            let mib = input.len() as f64 / f64::from(1 << 20);
            if cost.seconds > SLOWNESS * (10.0 * mib + 2.0) || cost.bytes > MAX_MEMORY {
                return Err(broken(target, &format!("{cost:?} for {} bytes", input.len()), input));
            }
        }
        if let Some(first) = found.first() {
            println!("{}: {:?} for {} bytes", target.name, first.cost, first.input.len());
        }
        Ok(())
    });
    Ok(())
}

/// Shorter inputs have no parts that could be cut, in bytes.
const TRIFLE: usize = 64;
/// Cuts and bits of an input that are tried in a run of the suite.
const DAMAGES: usize = 60;
/// A debug build takes so many times as long as a release build.
const SLOWNESS: f64 = 5.0;
/// Memory that one input takes at most, in bytes.
const MAX_MEMORY: u64 = 256 << 20;
