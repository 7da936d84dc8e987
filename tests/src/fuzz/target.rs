//! What a target of fuzzing is.

use crate::generate::Random;

/// Longest input, in bytes. Longer ones find nothing that these do not find, and more slowly.
pub const MAX_BYTES: usize = 256 << 10;

/// A reader of bytes that may come from a stranger.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name on the command line, and of the folder in the corpus.
    pub name: &'static str,
    /// Reads the bytes; panics where they break a promise.
    pub run: fn(&[u8]),
    /// Inputs to begin with: samples and generated ones.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Changes an input and keeps its frame right: checksums, compression, lengths.
    pub mutate: fn(&mut Random, &mut Vec<u8>),
    /// Mutated inputs in a run of the suite: about two seconds of a debug build.
    pub executions: u64,
}

/// The first byte of an input, which chooses among variants, and the rest.
pub fn choice(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(first, rest)| (usize::from(*first), rest))
}

/// An input whose first byte chooses a variant.
pub fn with_choice(choice: u8, bytes: &[u8]) -> Vec<u8> {
    [&[choice], bytes].concat()
}
