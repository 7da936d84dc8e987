//! A search for inputs that cost most for their size. The costs of an input decide whether it is changed further, if all is asked
//! for; otherwise the inputs are the same in every run, whatever the time that they take.

use crate::fuzz::corpus::{self, Cost};
use crate::fuzz::target::Target;
use crate::generate::Random;
use crate::runs;

/// Inputs that are kept, the dearest first.
const KEPT: usize = 24;
/// Bytes that every input is counted as having: what all of them cost.
const BASE_BYTES: f64 = 4096.0;
/// Seconds that weigh as much as a MiB of memory.
const SECONDS_OF_MIB: f64 = 0.01;

/// An input and its costs.
#[derive(Clone, Debug)]
pub struct Dear {
    pub input: Vec<u8>,
    pub cost: Cost,
}

impl Dear {
    /// Costs for each byte.
    fn score(&self) -> f64 {
        let mib = self.cost.bytes as f64 / f64::from(1 << 20);
        (self.cost.seconds / SECONDS_OF_MIB + mib) / (self.input.len() as f64 + BASE_BYTES)
    }
}

/// The dearest inputs after so many runs. A panic is an error, with the input.
pub fn search(target: &Target, runs: u64, random: &mut Random) -> Result<Vec<Dear>, (String, Vec<u8>)> {
    let mut kept: Vec<Dear> = Vec::new();
    let first = corpus::inputs(target);
    let mut queue = first.clone();
    for _ in 0..runs.max(queue.len() as u64) {
        let input = queue.pop().unwrap_or_else(|| {
            let inputs: Vec<Vec<u8>> = kept.iter().map(|dear| dear.input.clone()).collect();
            corpus::changed(target, if runs::is_all() && random.chance(80) { &inputs } else { &first }, random)
        });
        let (ran, cost) = corpus::measure(target, &input);
        ran.map_err(|why| (why, input.clone()))?;
        kept.push(Dear { input, cost });
        kept.sort_by(|a, b| b.score().total_cmp(&a.score()));
        kept.truncate(KEPT);
    }
    Ok(kept)
}
