//! The generator's own random numbers: the same for a seed on every machine and in every version.

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The high half of the product: no division, and the bias is far below what a test sees.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Removes one of `choices`, if there is any.
    pub fn take<T>(&mut self, choices: &mut Vec<T>) -> Option<T> {
        if choices.is_empty() {
            return None;
        }
        let at = self.below(choices.len() as u64) as usize;
        Some(choices.swap_remove(at))
    }
}
