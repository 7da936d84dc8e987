//! Values that control files of a buffer had before the recorder took it over. A state file has them, too, so that the next
//! recorder can restore them after one that was killed.

use std::path::PathBuf;

use crate::fs::kernelfs::KernelFs;
use crate::fs::state;
use crate::process::messages;
use crate::source::probes;

/// Word in a state file before the group of probe events, in the place of a control file.
const PROBES: &str = "probes";

/// Control files of a trace directory, with their values as found.
pub(crate) struct AsFound {
    fs: KernelFs,
    /// Top-level trace directory.
    top: KernelFs,
    /// Group of the recorder's probe events, whether they are defined or not.
    probes: Option<String>,
    /// File and value, in the order to write them.
    values: Vec<(String, String)>,
    /// Path of the trace directory; empty before the recording has begun.
    trace_dir: String,
}

/// Name of the state file of a trace directory that was taken over. No instance has such a name, and no two directories have the
/// same.
fn state_file(fs: &KernelFs) -> anyhow::Result<String> {
    Ok(format!(".boot-{}", fs.inode()?))
}

impl AsFound {
    /// Writes the state file; to be called before the first change.
    pub(crate) fn save(fs: KernelFs, top: KernelFs, probes: Option<String>, values: Vec<(String, String)>) -> AsFound {
        let as_found = AsFound { fs, top, probes, values, trace_dir: String::new() };
        let _ = as_found.write_state();
        as_found
    }

    /// Adds files and values, to be restored before the others.
    pub(crate) fn add(&mut self, values: impl Iterator<Item = (String, String)>) {
        self.values.splice(0..0, values);
        let _ = self.write_state();
    }

    /// Sets the path of the trace directory, for other programs. An error says why the state file is not there.
    pub(crate) fn set_trace_dir(&mut self, path: String) -> anyhow::Result<()> {
        self.trace_dir = path;
        self.write_state()
    }

    fn write_state(&self) -> anyhow::Result<()> {
        let probes = self.probes.iter().map(|group| format!("{PROBES} {group}\n"));
        let values = self.values.iter().map(|(file, value)| format!("{file} {value}\n"));
        let lines: String = probes.chain(values).collect();
        state::write(&state_file(&self.fs)?, &format!("{}\n{}\n{lines}", std::process::id(), self.trace_dir))
    }

    /// The trace directory, for people.
    pub(crate) fn path(&self) -> PathBuf {
        self.fs.path("")
    }

    /// Removes the probe events, restores all files and removes the state file. Reports what fails.
    pub(crate) fn restore(self) {
        // First: nothing is recorded that their removal would empty the buffer of.
        if let Some(Err(error)) = self.probes.as_ref().map(|group| probes::remove(&self.top, &self.fs, group)) {
            messages::say(format!("kmemtraced: {error:#}"));
        }
        for (file, value) in &self.values {
            if let Err(error) = self.fs.write(file, value) {
                let path = self.fs.path(file);
                messages::say(format!("kmemtraced: {}: cannot be set back to {value}: {error}", path.display()));
            }
        }
        self.forget();
    }

    /// Removes the state file without restoring anything.
    pub(crate) fn forget(self) {
        if let Ok(file) = state_file(&self.fs) {
            state::remove(&file);
        }
    }
}

/// Process id of the recorder that took this directory over, as text.
pub(crate) fn holder(fs: &KernelFs) -> Option<String> {
    state::read(&state_file(fs).ok()?).ok()??.lines().next().map(str::to_owned)
}

/// Restores a directory that a killed recorder had taken over; false where there is nothing to restore, or its recorder runs. `top` is
/// the top-level trace directory. An error names what could not be restored; the state file stays then, for another try.
pub(crate) fn recover(fs: &KernelFs, top: &KernelFs) -> anyhow::Result<bool> {
    let file = state_file(fs)?;
    let Some(state) = state::read(&file)? else { return Ok(false) };
    let Some(_lock) = fs.lock_if_free()? else { return Ok(false) };
    let mut failed = Ok(());
    // The first two lines are the recorder and its trace directory; recorders of earlier versions wrote no second one.
    for (control, value) in state.lines().skip(1).filter_map(|line| line.split_once(' ')) {
        let done = match control {
            PROBES => probes::remove(top, fs, value),
            control if control.starts_with('/') || control.contains("..") => Ok(()),
            // An event, or a CPU, that is gone has nothing to set back.
            control if !fs.has(control)? => Ok(()),
            control => fs.set(control, value),
        };
        failed = failed.and(done);
    }
    failed?;
    state::remove(&file);
    Ok(true)
}
