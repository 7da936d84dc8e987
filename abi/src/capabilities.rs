//! What an input can provide, whatever it holds.

use crate::kind::ByKind;

/// What an input can provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputCapabilities {
    /// Events over time: frees, failed allocations, peaks. False for a list of what is live at one moment.
    pub past: bool,
    /// CPU and time of every allocation.
    pub places: bool,
    /// Addresses of call sites, which symbols name. False for an input that names functions itself.
    pub call_sites: bool,
    /// Times of events. False for a text of calls that was printed without them: all its keys are 0.
    pub times: bool,
    /// Numbers of page frames. False for one that knows a block of pages by an address, so that blocks stay whole.
    pub frames: bool,
    /// Kinds whose events the input describes, whether one came or not.
    pub kinds: ByKind<bool>,
}

impl InputCapabilities {
    /// A recording of events of these kinds.
    pub fn events(kinds: ByKind<bool>) -> InputCapabilities {
        InputCapabilities { past: true, places: true, call_sites: true, times: true, frames: true, kinds }
    }

    /// A list of what is live at one moment, of these kinds.
    pub fn one_moment(kinds: ByKind<bool>) -> InputCapabilities {
        InputCapabilities { past: false, places: false, call_sites: false, times: true, frames: true, kinds }
    }

    /// Order key and CPU of an allocation as far as the input gives them: a block of a list may have no time, which is 0.
    pub fn told_place(&self, at: u64, cpu: u32) -> (Option<u64>, Option<u32>) {
        (Some(at).filter(|&at| self.places || at != 0), Some(cpu).filter(|_| self.places))
    }
}
