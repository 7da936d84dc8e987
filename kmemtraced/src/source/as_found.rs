//! Control files of a buffer that was taken over, with the values to set them back to. A state file says the same, so that the
//! next recorder can set back what a killed one has changed.

use std::io;

use crate::fs::kernelfs::KernelFs;
use crate::fs::state;
use crate::process::messages;

/// Control files of a trace directory, and what was in them.
pub(crate) struct AsFound {
    fs: KernelFs,
    /// File and value, in the order to write them.
    values: Vec<(String, String)>,
}

/// State file of a trace directory that was taken over. No instance has a name like this, and no two directories have the same.
fn state_file(fs: &KernelFs) -> String {
    format!(".boot-{}", fs.inode().unwrap_or_default())
}

impl AsFound {
    /// Leaves the state file. It comes before the first change.
    pub(crate) fn note(fs: KernelFs, values: Vec<(String, String)>) -> AsFound {
        let as_found = AsFound { fs, values };
        as_found.leave_state();
        as_found
    }

    /// Sets these files to these values, too, before the others.
    pub(crate) fn add(&mut self, values: impl Iterator<Item = (String, String)>) {
        self.values.splice(0..0, values);
        self.leave_state();
    }

    fn leave_state(&self) {
        let lines: String = self.values.iter().map(|(file, value)| format!("{file} {value}\n")).collect();
        state::leave(&state_file(&self.fs), &format!("{}\n{lines}", std::process::id()));
    }

    /// Sets all files back, and removes the state file. A message tells of a file that cannot be set.
    pub(crate) fn restore(self) {
        for (file, value) in &self.values {
            if let Err(error) = self.fs.write(file, value) {
                let path = self.fs.path(file);
                messages::say(format!("kmemtraced: {}: cannot be set back to {value}: {error}", path.display()));
            }
        }
        self.forget();
    }

    /// Removes the state file: the directory is not to be set back.
    pub(crate) fn forget(self) {
        state::remove(&state_file(&self.fs));
    }
}

/// The process id of the recorder that has taken this directory over, as text.
pub(crate) fn holder(fs: &KernelFs) -> Option<String> {
    state::read(&state_file(fs))?.lines().next().map(str::to_owned)
}

/// Sets a directory back that a killed recorder had taken over; false where there is none, or its recorder runs.
pub(crate) fn recover(fs: &KernelFs) -> bool {
    let Some(state) = state::read(&state_file(fs)) else { return false };
    let Ok(_lock) = fs.lock() else { return false };
    for (file, value) in state.lines().skip(1).filter_map(|line| line.split_once(' ')) {
        if !file.starts_with('/') && !file.contains("..") {
            let _: io::Result<()> = fs.write(file, value);
        }
    }
    state::remove(&state_file(fs));
    true
}
