//! The layer of capabilities: all are dropped from all sets but those that a program still needs.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Highest number of a capability that is looked for; Linux 7.0 has 41 of them.
const MAX_CAPABILITY: u32 = 63;

/// Capabilities that a program keeps if it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept(CapabilitySet);

impl Kept {
    /// None.
    pub const fn none() -> Kept {
        Kept(CapabilitySet::empty())
    }

    /// Opening files of other users, which root expects to read and replace by name. Landlock limits which ones.
    pub const fn files() -> Kept {
        Kept(CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH))
    }

    /// Addresses in the lists of the running kernel, which are zeros without it.
    pub const fn addresses() -> Kept {
        Kept(CapabilitySet::SYSLOG)
    }

    /// Handing files over to the user who called sudo, and replacing that user's files in a folder with the sticky bit.
    pub const fn hand_over() -> Kept {
        Kept(CapabilitySet::CHOWN.union(CapabilitySet::FOWNER))
    }

    /// Looking at files in folders of other users, which a path may lead through.
    pub const fn looks() -> Kept {
        Kept(CapabilitySet::DAC_READ_SEARCH)
    }

    /// Locked memory that grows.
    pub const fn memory() -> Kept {
        Kept(CapabilitySet::IPC_LOCK)
    }

    /// Replacing files of other users, also in a folder with the sticky bit.
    pub const fn replacing() -> Kept {
        Kept::files().with(Kept(CapabilitySet::FOWNER))
    }

    /// Handing files over.
    pub const fn owners() -> Kept {
        Kept(CapabilitySet::CHOWN)
    }

    /// Taking mounts away.
    pub const fn mounts() -> Kept {
        Kept(CapabilitySet::SYS_ADMIN)
    }

    pub(crate) const fn with(self, other: Kept) -> Kept {
        Kept(self.0.union(other.0))
    }
}

/// Drops all capabilities but `kept` from all sets of the calling thread.
pub(crate) fn drop_all_but(kept: Kept) -> io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    drop_bounds(now, kept.0)?;
    // Before Linux 4.3 there is no ambient set.
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let left = now.permitted.intersection(kept.0);
    let sets = CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Drops all that an exec could give back.
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    drop_bounds(rustix::thread::capabilities(None)?, CapabilitySet::empty())
}

/// Drops what an exec could give back. Without the right to do so it is left to `no_new_privs`.
fn drop_bounds(now: CapabilitySets, kept: CapabilitySet) -> io::Result<()> {
    if !now.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    for number in 0..=MAX_CAPABILITY {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel has no capability of this number, and none above it.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
