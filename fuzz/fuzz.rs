//! Hands the targets in `tests/src/fuzz` to libFuzzer. `fuzz/run` has the command lines.

#![no_main]

use std::fs;
use std::process::exit;
use std::sync::LazyLock;

use kmemtrace_abi::disk::block::crc32c;
use kmemtrace_tests::fuzz::target::MAX_BYTES;
use kmemtrace_tests::fuzz::{TARGETS, Target, mutate};
use kmemtrace_tests::generate::Random;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// Word that names the target. libFuzzer passes over words that begin with two hyphens.
const TARGET: &str = "--target=";
/// Word that names a folder which the seeds of the target are written into.
const SEEDS: &str = "--seeds=";

static CHOSEN: LazyLock<&Target> = LazyLock::new(|| {
    let name = word(TARGET).unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("{TARGET}{name}: there is no such target; use one of {}", names.join(", "));
        exit(2)
    })
});

/// The value of a word of the command line.
fn word(prefix: &str) -> Option<String> {
    std::env::args().find_map(|word| word.strip_prefix(prefix).map(str::to_owned))
}

/// Writes the seeds, each under its checksum.
fn begin() {
    if let Some(folder) = word(SEEDS) {
        for seed in (CHOSEN.seeds)() {
            let written = fs::write(format!("{folder}/{:08x}", crc32c(&seed)), &seed);
            written.unwrap_or_else(|error| panic!("{folder}: {error}"));
        }
    }
}

fuzz_target!(init: begin(), |input: &[u8]| (CHOSEN.run)(input));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Random::new(seed.into());
    let mut input = data[..size].to_vec();
    match random.below(4) {
        // libFuzzer knows what comparisons have failed.
        0 => return fuzzer_mutate(data, size, max_size),
        1 => mutate::bytes(&mut random, &mut input),
        _ => (CHOSEN.mutate)(&mut random, &mut input),
    }
    input.truncate(max_size.min(data.len()).min(MAX_BYTES));
    data[..input.len()].copy_from_slice(&input);
    input.len()
});
