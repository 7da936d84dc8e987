//! The sandbox of each thread of the recorder, which the thread closes as its first act, with the calls of its role.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use kmemtrace_sandbox::{Kept, Missing, Mode, Purpose, Role, Sandbox};

use crate::fs::kernelfs::{KernelFs, PROC, SYSFS};

/// Folder of modules, with the list of their files for each kernel.
const MODULES: &str = "/lib/modules";

/// A sandbox in which no file can be opened. Memory that is locked may grow in it.
pub(crate) fn sandbox(role: Role) -> Sandbox {
    let mut sandbox = Sandbox::new(role);
    sandbox.keep(Kept::memory());
    if !rustix::process::geteuid().is_root() {
        // Control files and texts of the kernel belong to root.
        sandbox.keep(Kept::files());
    }
    sandbox
}

/// Allows to read texts of the kernel, with addresses in them, and the list of modules.
pub(crate) fn allow_names(sandbox: &mut Sandbox) -> anyhow::Result<()> {
    sandbox.keep(Kept::addresses());
    for kind in [&PROC, &SYSFS] {
        // What is not there was told by the one who reads it.
        if let Ok(found) = KernelFs::find(kind) {
            found.allow(Purpose::Read, sandbox)?;
        }
    }
    sandbox.read(MODULES);
    sandbox.read(list_of_modules());
    Ok(())
}

/// Path of the list of the running kernel's modules.
pub(crate) fn list_of_modules() -> PathBuf {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    [Path::new(MODULES), release.as_ref(), "modules.dep".as_ref()].iter().collect()
}

/// Closes a sandbox around the calling thread; returns the layers that are missing.
pub(crate) fn close(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<Vec<Missing>> {
    sandbox.close(mode).map_err(|lack| refused(mode, &lack))
}

/// Takes from the calling thread what `sandbox` does not allow, in a sandbox that it has closed before.
pub(crate) fn narrow(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    sandbox.narrow(mode).map(drop).map_err(|lack| refused(mode, &lack))
}

fn refused(mode: Mode, lack: &Missing) -> anyhow::Error {
    anyhow!("--sandbox {}: {lack}; --sandbox off does without", mode.name())
}
