//! How much a run of the suite tries: a part, which takes minutes on two cores, or with `KMEMTRACE_RUNS=all` all that the project
//! promises to have tried before a release.

use std::ops::Range;

use crate::runner::Skip;

/// True if all is asked for.
pub fn is_all() -> bool {
    std::env::var_os("KMEMTRACE_RUNS").is_some_and(|runs| runs == "all")
}

/// Skips what takes long, unless all is asked for.
pub fn before_a_release() -> Result<(), Skip> {
    if is_all() { Ok(()) } else { Err(Skip("before a release: KMEMTRACE_RUNS=all".to_owned())) }
}

/// `part`, or `all` where that is asked for; `KMEMTRACE_RUNS=N` asks for as many.
pub fn number(part: u64, all: u64) -> u64 {
    match std::env::var("KMEMTRACE_RUNS").as_deref() {
        Ok("all") => all,
        Ok(number) => {
            number.parse().unwrap_or_else(|_| panic!("KMEMTRACE_RUNS={number} is neither \"all\" nor a number"))
        }
        Err(_) => part,
    }
}

/// Seeds of random traces: the first third of these, all of them, or the range in `KMEMTRACE_SEEDS=FROM..TO`.
pub fn seeds(all: Range<u64>) -> Range<u64> {
    let part = all.start..all.start + (all.end - all.start).div_ceil(3);
    asked_or(if is_all() { all } else { part })
}

/// These seeds, or the range in `KMEMTRACE_SEEDS=FROM..TO`.
pub fn asked_or(usual: Range<u64>) -> Range<u64> {
    let asked = std::env::var("KMEMTRACE_SEEDS").ok();
    let parse = |text: &str| text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    asked.map_or(usual, |text| parse(&text).unwrap_or_else(|| panic!("KMEMTRACE_SEEDS={text} is not FROM..TO")))
}

/// Step from one place of damage to the next: 1 where all is asked for.
pub fn step(part: usize) -> usize {
    if is_all() { 1 } else { part }
}
