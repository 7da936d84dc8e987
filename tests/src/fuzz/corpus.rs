//! Inputs that earlier runs have found, in `fuzz/corpus/TARGET`, and a loop that changes them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use crate::fuzz::mutate;
use crate::fuzz::target::{MAX_BYTES, Target};
use crate::generate::Random;

/// Folder of the corpus.
pub fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target.name)
}

/// Inputs of a target: those of the corpus, then its seeds.
pub fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder(target)).into_iter().flatten().flatten().map(|f| f.path()).collect();
    paths.sort_unstable();
    let kept = paths.iter().filter_map(|path| fs::read(path).ok());
    kept.chain((target.seeds)()).collect()
}

/// Costs of one run of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor time of this thread, in seconds.
    pub seconds: f64,
    /// Growth of the process's largest resident memory, in bytes.
    pub bytes: u64,
}

/// Runs a target; the error is the panic's message.
pub fn run(target: &Target, input: &[u8]) -> Result<(), String> {
    let ran = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    ran.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
    })
}

/// Runs a target and measures it. The memory is that of the whole process.
pub fn measure(target: &Target, input: &[u8]) -> (Result<(), String>, Cost) {
    // 5: the largest resident memory becomes what is resident now (proc_pid_clear_refs(5)).
    let _ = fs::write("/proc/self/clear_refs", "5");
    let before = (processor_seconds(), resident("VmRSS:"));
    let ran = run(target, input);
    let seconds = processor_seconds() - before.0;
    (ran, Cost { seconds, bytes: resident("VmHWM:").saturating_sub(before.1) })
}

/// Processor time of the process, in seconds.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A size in the process's status, in bytes.
fn resident(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok());
    kilobytes.unwrap_or(0u64) << 10
}

/// Changes one of the inputs, in the target's own way or in any.
pub fn changed(target: &Target, inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = if inputs.is_empty() { Vec::new() } else { random.pick(inputs).clone() };
    match random.below(10) {
        0 => mutate::bytes(random, &mut input),
        1 => mutate::text(random, &mut input),
        2 if !inputs.is_empty() => {
            let other = random.pick(inputs);
            let (at, from) = (random.below(input.len() as u64 + 1), random.below(other.len() as u64 + 1));
            input.truncate(at as usize);
            input.extend_from_slice(&other[from as usize..]);
        }
        _ => {
            for _ in 0..1 + random.below(3) {
                (target.mutate)(random, &mut input);
            }
        }
    }
    input.truncate(MAX_BYTES);
    input
}
