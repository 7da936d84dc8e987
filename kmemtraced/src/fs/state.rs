//! State files in /run/kmemtraced. Files `uid-N` hold the user of a viewer by their locks. Each other one records a change that a
//! recorder made in the kernel, so that the next recorder can undo it if this one is killed. The first line is the recorder's process
//! id, the second the path of its trace directory, for programs that follow a recording; it is empty before the recording has begun.
//! Root acts on their contents, so only root may be able to write them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use kmemtrace_sandbox::{Purpose, Sandbox};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::fs::held_dir::HeldDir;

const RUN: &str = "/run";
const DIR: &str = "kmemtraced";
/// Begins the name of a file that is being written; the writer's process id follows.
const UNFINISHED: &str = ".new-";
/// Most bytes read back from a state file.
const MAX_BYTES: u64 = 1 << 20;

/// Opens the directory of the state files; `None` where it is absent, or another user may write to it.
fn find() -> anyhow::Result<Option<Dir>> {
    match HeldDir::reach(Path::new(RUN)) {
        Err(error) if error.root_cause().downcast_ref() == Some(&Errno::NOENT) => Ok(None),
        run => Dir::open(&run?),
    }
}

/// Opens the directory of the state files, and makes it where it is absent.
fn make() -> Option<Dir> {
    if let Ok(root) = HeldDir::reach(Path::new("/")) {
        let _ = root.make_public_dir(RUN.trim_start_matches('/').as_ref());
    }
    let run = HeldDir::reach(Path::new(RUN)).ok()?;
    let _ = run.make_public_dir(DIR.as_ref());
    Dir::open(&run).ok().flatten()
}

/// Allows to write and remove state files, where they can be kept.
pub(crate) fn allow(sandbox: &mut Sandbox) -> anyhow::Result<()> {
    make().map_or(Ok(()), |dir| dir.0.allow(Purpose::Write, sandbox, &Path::new(RUN).join(DIR)))
}

/// Writes the state file `name`; an error names the file. A machine without a place for it can record all the same.
pub(crate) fn write(name: &str, text: &str) -> anyhow::Result<()> {
    let dir = make().with_context(|| format!("{RUN}/{DIR}: cannot be made, or another user may write to it"))?;
    dir.write(name, text).map_err(|error| anyhow!("{RUN}/{DIR}/{name}: cannot be written: {error}"))
}

/// Text of the state file `name`; `None` where it is absent. An error names the file.
pub(crate) fn read(name: &str) -> anyhow::Result<Option<String>> {
    let read = || match find()?.map(|dir| dir.read(name)) {
        None => Ok(None),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Some(text) => Ok(Some(text?)),
    };
    read().map_err(|error: anyhow::Error| anyhow!("{RUN}/{DIR}/{name}: cannot be read: {error:#}"))
}

/// Removes the state file `name`.
pub(crate) fn remove(name: &str) {
    if let Ok(Some(dir)) = find() {
        let _ = dir.0.remove(name.as_ref());
    }
}

/// Makes the file `name`, and locks it for as long as it is open; `None` where another process has it.
pub(crate) fn lock(name: &str) -> io::Result<Option<File>> {
    match make() {
        Some(dir) => dir.lock(name),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Removes the files whose names begin with `prefix` and that no process has locked.
pub(crate) fn remove_unlocked(prefix: &str) {
    let Ok(Some(dir)) = find() else { return };
    for name in dir.0.names().unwrap_or_default() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(prefix)) else { continue };
        // Whoever makes it anew meanwhile sees that the file that it has locked is not under the name.
        if let Ok(Some(_held)) = dir.lock(name) {
            let _ = dir.0.remove(name.as_ref());
        }
    }
}

/// Removes what killed recorders have left and nothing else would remove: files that were not finished, and those of instances that
/// are gone. `has_instance` tells whether an instance is still there.
pub(crate) fn remove_leftovers(has_instance: impl Fn(&str) -> bool) {
    if let Ok(Some(dir)) = find() {
        dir.remove_leftovers(has_instance);
    }
}

/// True if `pid` is the process id of a process that runs, or may be one.
pub(crate) fn may_run(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// The directory of the state files, which only root or the caller may write to.
struct Dir(HeldDir);

impl Dir {
    fn open(run: &HeldDir) -> anyhow::Result<Option<Dir>> {
        let dir = match run.open_dir(DIR.as_ref()) {
            // A link, or another file of that name, is none of a recorder's.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                return Ok(None);
            }
            dir => dir?,
        };
        let stat = dir.stat()?;
        let is_trusted = stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw();
        Ok((is_trusted && stat.st_mode & 0o022 == 0).then_some(Dir(dir)))
    }

    /// Writes a file by rename: a recorder that is killed meanwhile leaves the old text or the new one.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let new = format!("{UNFINISHED}{}", std::process::id());
        let new: &OsStr = new.as_ref();
        // A killed recorder with the same process id may have left one.
        let _ = self.0.remove(new);
        let written = self.0.create(new).and_then(|mut file| file.write_all(text.as_bytes()));
        let done = written.and_then(|()| self.0.rename(new, name.as_ref()));
        if done.is_err() {
            let _ = self.0.remove(new);
        }
        done
    }

    fn remove_leftovers(&self, has_instance: impl Fn(&str) -> bool) {
        for name in self.0.names().unwrap_or_default() {
            let Some(text) = name.to_str() else { continue };
            let is_left = match text.strip_prefix(UNFINISHED) {
                Some(writer) => !may_run(writer),
                // Changes that are undone from their texts.
                None if text.starts_with('.') => false,
                None => {
                    // A lock has no text.
                    let recorder = self.read(text).ok().and_then(|text| text.lines().next().map(str::to_owned));
                    !has_instance(text) && recorder.is_some_and(|pid| !may_run(&pid))
                }
            };
            if is_left {
                let _ = self.0.remove(&name);
            }
        }
    }

    fn lock(&self, name: &str) -> io::Result<Option<File>> {
        let file = match self.0.create(name.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.0.open(name.as_ref())?,
            made => made?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        let (own, there) = (rustix::fs::fstat(&file)?, self.0.stat_of(name.as_ref()));
        let is_there = there.is_ok_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino));
        Ok(is_there.then_some(file))
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        self.0.open(name.as_ref())?.take(MAX_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_state_file_replaces_a_link_and_is_not_read_through_one() {
        let place = tempfile::tempdir().unwrap();
        let (dir, other) = (place.path().join(DIR), place.path().join("other"));
        fs::create_dir(&dir).unwrap();
        fs::write(&other, "other").unwrap();
        symlink(&other, dir.join("a")).unwrap();
        let run = HeldDir::reach(place.path()).unwrap();
        let state = Dir::open(&run).unwrap().unwrap();
        assert!(state.read("a").is_err(), "a link is not followed");
        state.write("a", "7").unwrap();
        assert_eq!((state.read("a").unwrap().as_str(), fs::read_to_string(&other).unwrap().as_str()), ("7", "other"));
    }

    #[test]
    fn a_lock_is_of_one_process_and_of_the_file_under_the_name() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join(DIR)).unwrap();
        let run = HeldDir::reach(place.path()).unwrap();
        let state = Dir::open(&run).unwrap().unwrap();
        let held = state.lock("uid-1").unwrap();
        assert!(held.is_some() && state.lock("uid-1").unwrap().is_none());
        drop(held);
        assert!(state.lock("uid-1").unwrap().is_some());
    }

    #[test]
    fn what_dead_recorders_wrote_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join(DIR);
        fs::create_dir(&dir).unwrap();
        // Above the kernel's limit of process ids.
        let (dead, own) = (99_999_999, std::process::id());
        for (name, text) in [
            (format!("{UNFINISHED}{dead}"), String::new()),
            (format!("{UNFINISHED}{own}"), String::new()),
            ("gone".into(), format!("{dead}\n\n")),
            ("there".into(), format!("{dead}\n\n")),
            ("starting".into(), format!("{own}\n\n")),
            (".relay".into(), "0\n/x\n".into()),
            ("uid-61184".into(), String::new()),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        let run = HeldDir::reach(place.path()).unwrap();
        Dir::open(&run).unwrap().unwrap().remove_leftovers(|name| name == "there");
        let mut left: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(
            left,
            [format!("{UNFINISHED}{own}"), ".relay".into(), "starting".into(), "there".into(), "uid-61184".into()]
        );
    }

    #[test]
    fn a_state_directory_that_others_may_write_to_is_none() {
        let place = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (place.path().join(DIR), place.path().join("elsewhere"));
        fs::create_dir(&dir).unwrap();
        let run = HeldDir::reach(place.path()).unwrap();
        for (mode, is_safe) in [(0o755, true), (0o777, false), (0o775, false), (0o1777, false)] {
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            assert_eq!(Dir::open(&run).unwrap().is_some(), is_safe, "{mode:o}");
        }
        fs::remove_dir(&dir).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &dir).unwrap();
        assert!(Dir::open(&run).unwrap().is_none(), "a link is not followed");
    }
}
