//! The trace directory: made, locked, and given the name of an earlier recording once this one has begun.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kmemtrace_sandbox::{Kept, Mode, Purpose, Sandbox};
use rustix::io::Errno;

use crate::fs::held_dir::HeldDir;
use crate::output::earlier::{self, Earlier, Replaced, remove_trace};
use crate::output::made_file::{MadeFile, Size};

/// Trace directory where the command line names none.
const DEFAULT: &str = "kmemtrace.data";

/// Most looks whether another recorder gives the lock of a new directory back, and the pause after each: a second.
const MAX_LOOKS: u32 = 100;
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// A trace directory, locked while it is written. Where an earlier recording has the asked name, the directory is made beside it
/// under a temporary name, and takes the asked name once the recording has begun: `NAME.exchange-…` has nothing that counts, or a
/// replaced recording; `NAME.begun-…` has a recording that did not take the name. Neither is removed by a later recorder, which cannot know
/// who made it.
pub(crate) struct TraceDir {
    /// Path for messages.
    pub(crate) dir: PathBuf,
    held: HeldDir,
    parent: Arc<HeldDir>,
    /// Current name in `parent`.
    name: OsString,
    /// Earlier recording with the asked name, until the new one has begun.
    earlier: Option<Earlier>,
    has_begun: bool,
    /// Thread that removes the replaced recording.
    removal: Option<JoinHandle<anyhow::Result<()>>>,
    made: Mutex<Vec<MadeFile>>,
    /// Path from the root, which changes when the directory takes the asked name; empty where /proc does not tell it.
    path: PathBuf,
}

/// Place of a trace directory, as it is now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where it was made.
    Here,
    /// Elsewhere on its file system: somebody has renamed it, or a directory above.
    Moved(PathBuf),
    /// No path leads to it: removed, unmounted, or behind another mount.
    Unreached,
}

/// Locks a new directory, also if another recorder has it locked for a moment.
fn lock_patiently(held: &HeldDir) -> io::Result<()> {
    for _ in 0..MAX_LOOKS {
        match held.lock() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(LOOK_PAUSE),
            locked => return locked,
        }
    }
    held.lock()
}

impl TraceDir {
    /// Makes the directory. An earlier recording stays as it is until [`TraceDir::begin`]. One in a directory that the command line
    /// names is an error without `force`.
    pub(crate) fn create(given: Option<&Path>, force: bool) -> anyhow::Result<TraceDir> {
        let dir = given.unwrap_or(Path::new(DEFAULT)).to_owned();
        let shown = dir.display();
        let Some(asked) = dir.file_name() else {
            bail!("-o {shown}: is not a name for a new directory: use one that ends with a name (-o DIR/NAME)");
        };
        let above = dir.parent().unwrap_or(Path::new(""));
        let parent = HeldDir::reach(above)
            .with_context(|| format!("{shown}: the directory above cannot be opened: make it, or use another (-o)"))?;
        if let Some(kind) = parent.kernel_kind() {
            bail!("{shown}: is in a file system of the kernel ({kind}), which stores no files: use another place (-o)");
        }
        let earlier = Earlier::find(&parent, &dir, asked, given.is_none(), force)?;
        let name = match &earlier {
            None => asked.to_owned(),
            Some(_) => earlier::temporary_name(asked, earlier::UNBEGUN)?,
        };
        let held = parent.make_dir(&name).map_err(|error| match error.downcast_ref() {
            Some(&Errno::EXIST) => anyhow!("{shown}: another program has just made it: use another name (-o)"),
            _ => error.context(format!("{shown}: cannot be made")),
        })?;
        // Another recorder that finds the new directory takes it for an earlier recording: it refuses it after a look, or replaces it.
        let is_taken = || anyhow!("{shown}: another program has just taken it: use another name (-o)");
        lock_patiently(&held).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => is_taken(),
            _ => {
                let _ = parent.remove_dir(&name);
                anyhow!("{shown}: cannot be locked: {error}: use another file system (-o)")
            }
        })?;
        if !held.is_at(&parent, &name).unwrap_or(false) {
            return Err(is_taken());
        }
        if let Some(earlier) = &earlier {
            earlier.must_be_renamable(&parent, &dir, (&held, &name)).inspect_err(|_| {
                let _ = parent.remove_dir(&name);
            })?;
        }
        let path = held.path().unwrap_or_default();
        Ok(TraceDir {
            dir,
            held,
            parent: Arc::new(parent),
            name,
            earlier,
            has_begun: false,
            removal: None,
            made: Mutex::default(),
            path,
        })
    }

    /// Allows to write in the directory, and to remove it in the end if `is_private`. `replaces`: it may be given another name, or be
    /// discarded, and an earlier recording removed.
    pub(crate) fn allow(&self, sandbox: &mut Sandbox, replaces: bool, is_private: bool) -> anyhow::Result<()> {
        self.held.allow(Purpose::Write, sandbox, &self.dir)?;
        // The path may lead through folders of other users.
        sandbox.keep(Kept::looks());
        if replaces || is_private {
            // What is above, and an earlier recording, may belong to another user.
            sandbox.keep(Kept::replacing());
            let above = self.dir.parent().unwrap_or(Path::new(""));
            self.parent.allow(Purpose::Replace, sandbox, above)?;
        }
        Ok(())
    }

    /// True while files of an earlier recording are there that this one replaces.
    pub(crate) fn is_replacing(&self) -> bool {
        self.replaces() || self.removal.as_ref().is_some_and(|removal| !removal.is_finished())
    }

    /// True while an earlier recording has the asked name.
    pub(crate) fn replaces(&self) -> bool {
        self.earlier.is_some()
    }

    /// Takes the asked name, now that the recording has begun. An earlier recording is removed, or kept as `.old` where the default
    /// name is used. An error names the path under which a recording stays; it does not end the recording.
    /// The earlier one is removed by a thread in a sandbox of its own.
    pub(crate) fn begin(&mut self, sandbox: Mode) -> anyhow::Result<()> {
        let is_renamed = self.earlier.is_some();
        let named = self.take_name(sandbox);
        if is_renamed {
            self.path = self.held.path().unwrap_or_default();
        }
        named
    }

    fn take_name(&mut self, sandbox: Mode) -> anyhow::Result<()> {
        self.has_begun = true;
        let Some(earlier) = self.earlier.take() else { return Ok(()) };
        // Until it has the asked name, the recording must not be taken for one that has not begun.
        let begun = earlier::temporary_name(&earlier.name, earlier::BEGUN)?;
        if let Err(error) = self.parent.rename(&self.name, &begun) {
            self.dir.set_file_name(&self.name);
            // The sandbox allows it, so this is the file system's own refusal.
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "the directory above allows no renaming (lsattr -d shows why)".to_owned()
                }
                _ => error.to_string(),
            };
            bail!(
                "{}: cannot be renamed: {why}: the recording is there; rename it once that is possible",
                self.dir.display()
            );
        }
        let unbegun = std::mem::replace(&mut self.name, begun);
        let shown = self.dir.with_file_name(&self.name);
        let exchanged = match self.parent.exchange(&self.name, &earlier.name) {
            // The earlier one was moved away or removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.parent.rename_to_free(&self.name, &earlier.name).map(|()| false)
            }
            exchanged => exchanged.map(|()| true),
        };
        let exchanged = match exchanged {
            Ok(exchanged) => exchanged,
            Err(error) => {
                let asked = std::mem::replace(&mut self.dir, shown).display().to_string();
                bail!("{asked}: cannot be replaced: {error}: the new recording is in {}", self.dir.display());
            }
        };
        let mut name = std::mem::replace(&mut self.name, earlier.name);
        if !exchanged {
            return Ok(());
        }
        let held = match earlier.kept {
            None => earlier.held,
            Some((old, older)) => {
                let renamed = match older {
                    Some(_) => self.parent.exchange(&name, &old),
                    None => self.parent.rename_to_free(&name, &old),
                };
                renamed.with_context(|| format!("{}: the earlier recording stays under this name", shown.display()))?;
                let Some(older) = older else { return Ok(()) };
                older
            }
        };
        // What a kill leaves of it is not to be taken for a recording that has begun.
        if held.is_at(&self.parent, &name).unwrap_or(false) && self.parent.rename(&name, &unbegun).is_ok() {
            name = unbegun;
        }
        let shown = self.dir.with_file_name(&name);
        self.removal = Replaced { held, parent: Arc::clone(&self.parent), name, shown }.start_removal(sandbox)?;
        Ok(())
    }

    /// Waits until the replaced recording is removed.
    pub(crate) fn finish_removal(&mut self) -> anyhow::Result<()> {
        match self.removal.take().map(JoinHandle::join) {
            Some(Ok(removed)) => removed,
            Some(Err(_)) => bail!("{}: the replaced recording is not wholly removed", self.dir.display()),
            None => Ok(()),
        }
    }

    /// Makes a file in the directory; its size is for the one who writes it to keep.
    pub(crate) fn file(&self, name: &str) -> anyhow::Result<(File, Arc<Size>)> {
        let shown = || format!("{}: cannot be made", self.dir.join(name).display());
        let file = self.held.create(name.as_ref()).with_context(shown)?;
        let size = Arc::new(Size::default());
        let made = MadeFile::new(&self.held, name, &size).with_context(shown)?;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
        Ok((file, size))
    }

    /// What other programs have done to the files: `cpu0.out was replaced`, a text for each file.
    pub(crate) fn changes(&self) -> Vec<String> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.iter().filter_map(|file| file.change(&self.held)).collect()
    }

    /// Place of the directory, once the recording has begun.
    pub(crate) fn place(&self) -> Place {
        match self.held.path() {
            Ok(now) if self.held.is_reached_by(&now).unwrap_or(false) => {
                if now == self.path {
                    Place::Here
                } else {
                    Place::Moved(now)
                }
            }
            Ok(_) => Place::Unreached,
            // Without /proc only the directory above tells.
            Err(_) if self.held.is_at(&self.parent, &self.name).unwrap_or(false) => Place::Here,
            Err(_) => Place::Unreached,
        }
    }

    /// Gives the directory, and the files that this run has made in it, to a user and a group: the files first, while no one else may
    /// enter the directory.
    pub(crate) fn hand_over(&self, (user, group): (u32, u32)) -> anyhow::Result<()> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let files = made.iter().try_for_each(|file| file.give_to(&self.held, user, group));
        files.and_then(|()| self.held.give_to(user, group)).with_context(|| {
            let shown = self.dir.display();
            format!(
                "{shown}: cannot be given to user {user}, and stays root's; type: sudo chown -R {user}:{group} {shown}"
            )
        })
    }

    /// Free bytes of the file system.
    pub(crate) fn room(&self) -> io::Result<u64> {
        self.held.statvfs().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Returns once the directory's name and the names in it survive a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.held.sync()?;
        self.parent.sync()
    }

    /// Removes the directory if no recording has begun in it.
    pub(crate) fn discard(self) {
        if !self.has_begun {
            let _ = remove_trace(&self.held, &self.parent, &self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_earlier_trace_goes_with_what_a_report_left_in_it_and_nothing_else_does() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let fill = |names: &[&str]| {
            fs::create_dir_all(&dir).unwrap();
            names.iter().for_each(|name| fs::write(dir.join(name), b"x").unwrap());
        };
        fill(&["meta.out", "cpu0.out", "report.index", "report.index.new"]);
        let mut output = TraceDir::create(Some(&dir), true).unwrap();
        assert!(dir.join("cpu0.out").exists(), "the recording has not begun");
        output.begin(Mode::Off).and_then(|()| output.finish_removal()).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
        fill(&["meta.out", "notes"]);
        assert!(TraceDir::create(Some(&dir), true).is_err());
        assert!(dir.join("notes").exists() && dir.join("meta.out").exists());
    }

    #[test]
    fn a_discarded_recording_leaves_the_earlier_one() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("cpu0.out"), b"earlier").unwrap();
        let output = TraceDir::create(Some(&dir), true).unwrap();
        output.file("cpu0.out").unwrap();
        output.discard();
        assert_eq!(fs::read(dir.join("cpu0.out")).unwrap(), b"earlier");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_in_place_of_the_earlier_one_is_not_emptied() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, moved) = (parent.path().join("t"), parent.path().join("moved"));
        for (name, file) in [(&dir, "cpu0.out"), (&moved, "meta.out")] {
            fs::create_dir(name).unwrap();
            fs::write(name.join(file), b"x").unwrap();
        }
        let mut output = TraceDir::create(Some(&dir), true).unwrap();
        let names = [parent.path().join("other"), dir.clone(), moved.clone()];
        fs::rename(&dir, &names[0]).unwrap();
        fs::rename(&moved, &dir).unwrap();
        assert!(output.begin(Mode::Off).and_then(|()| output.finish_removal()).is_err());
        assert!(names[0].join("cpu0.out").exists(), "moved away by its owner");
        let kept =
            fs::read_dir(parent.path()).unwrap().filter(|e| e.as_ref().unwrap().path().join("meta.out").exists());
        assert_eq!(kept.count(), 1);
    }
}
