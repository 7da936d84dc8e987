//! Earlier recordings under the asked name: found and locked before a recording, kept or removed once it has begun.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow, bail};
use kmemtrace_sandbox::{Kept, Mode, Purpose, Role, Sandbox};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::fs::held_dir::{HeldDir, joined, random_digits};
use crate::process::confine;

/// Begins the end of a temporary name, before random digits: of a recording that has not begun, or of one that was replaced; and of one
/// that has begun.
pub(crate) const UNBEGUN: &str = ".exchange-";
pub(crate) const BEGUN: &str = ".begun-";
/// Random digits of a temporary name.
const DIGITS: usize = 16;
/// Most bytes of the asked name in a temporary one: file systems have names of at most 255 bytes, and `.aside` may follow.
const MAX_STEM: usize = 255 - UNBEGUN.len() - DIGITS - ".aside".len();

/// An earlier recording, locked.
pub(crate) struct Earlier {
    pub(crate) held: HeldDir,
    pub(crate) name: OsString,
    /// Name under which it is to be kept, and the still earlier recording with that name.
    pub(crate) kept: Option<(OsString, Option<HeldDir>)>,
}

/// A recording that a new one replaced, to be removed.
pub(crate) struct Replaced {
    pub(crate) held: HeldDir,
    pub(crate) parent: Arc<HeldDir>,
    pub(crate) name: OsString,
    pub(crate) shown: PathBuf,
}

/// True for names of trace files, and of files that report, pack and index leave in a trace directory.
fn is_of_trace(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let name = without_mark(name, ".packing");
    let of_cpu = name.strip_prefix("cpu").and_then(|rest| rest.strip_suffix(".out"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    matches!(name, "meta.out" | "report.index")
        || without_mark(name, ".new") == "report.index"
        || of_cpu.is_some_and(is_number)
}

/// Name without the mark of a half-written file: `MARK` or `MARK-RANDOM`.
fn without_mark<'a>(name: &'a str, mark: &str) -> &'a str {
    let before_random = match name.rsplit_once('-') {
        Some((before, random)) if !random.is_empty() && random.bytes().all(|b| b.is_ascii_alphanumeric()) => before,
        _ => name,
    };
    before_random.strip_suffix(mark).or_else(|| name.strip_suffix(mark)).unwrap_or(name)
}

/// The asked name as temporary names begin.
fn stem(asked: &OsStr) -> &OsStr {
    OsStr::from_bytes(asked.as_bytes().get(..MAX_STEM).unwrap_or(asked.as_bytes()))
}

/// A temporary name in place of the asked one, with [`UNBEGUN`] or [`BEGUN`].
pub(crate) fn temporary_name(asked: &OsStr, mark: &str) -> anyhow::Result<OsString> {
    Ok(joined(stem(asked), &format!("{mark}{}", random_digits()?)))
}

/// Opens and locks the directory `name`, which is to be renamed.
fn open_earlier(parent: &HeldDir, name: &OsStr, shown: &Path) -> anyhow::Result<HeldDir> {
    let shown = shown.display();
    let kind = parent.kind(name).with_context(|| format!("{shown}: cannot be looked at"))?;
    if kind != Some(FileType::Directory) {
        let but = if kind == Some(FileType::Symlink) { " but a symbolic link" } else { "" };
        bail!("{shown}: is not a directory{but}: move it away, or use another name (-o)");
    }
    let held = parent.open_dir(name).with_context(|| format!("{shown}: cannot be opened"))?;
    held.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => anyhow!("{shown}: another recorder writes to it: use another name (-o)"),
        _ => anyhow!("{shown}: cannot be locked: {error}: use another file system (-o)"),
    })?;
    Ok(held)
}

/// Refuses a directory that cannot be replaced as a whole.
fn must_be_replaceable(held: &HeldDir, parent: &HeldDir, shown: &Path) -> anyhow::Result<()> {
    if held.is_mount_point(parent)? {
        let shown = shown.display();
        bail!("{shown}: is a mount point and cannot be replaced: use a name in it (-o {shown}/NAME)");
    }
    Ok(())
}

/// Refuses a directory with any file that is not of a trace.
fn must_be_trace(held: &HeldDir, shown: &Path) -> anyhow::Result<()> {
    for name in held.names().with_context(|| format!("{}: cannot be read", shown.display()))? {
        if !is_of_trace(&name) || held.kind(&name)?.is_some_and(|kind| kind != FileType::RegularFile) {
            let path = shown.join(name);
            bail!("{}: is not part of a trace: move it away first, or use another name (-o)", path.display());
        }
    }
    Ok(())
}

/// Removes the files of a trace and its directory `name`. Three attempts, because a report may leave its index there meanwhile.
pub(crate) fn remove_trace(held: &HeldDir, parent: &HeldDir, name: &OsStr) -> io::Result<()> {
    let mut removed = Ok(());
    for _ in 0..3 {
        for file in held.names()?.iter().filter(|file| is_of_trace(file)) {
            match held.remove(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        removed = parent.remove_dir(name);
        if !removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty) {
            break;
        }
    }
    removed
}

impl Earlier {
    /// Finds and locks the recording in `dir`; `None` where the name is free. Without `is_default`, which keeps it as `dir.old`, it is
    /// an error unless `force`.
    pub(crate) fn find(
        parent: &HeldDir,
        dir: &Path,
        name: &OsStr,
        is_default: bool,
        force: bool,
    ) -> anyhow::Result<Option<Earlier>> {
        if parent.kind(name).with_context(|| format!("{}: cannot be looked at", dir.display()))?.is_none() {
            return Ok(None);
        }
        let held = open_earlier(parent, name, dir)?;
        let mut kept = None;
        if is_default {
            let (old_name, old_dir) = (joined(name, ".old"), dir.with_extension("data.old"));
            let mut older = None;
            if parent.kind(&old_name).with_context(|| format!("{}: cannot be looked at", old_dir.display()))?.is_some()
            {
                let old = open_earlier(parent, &old_name, &old_dir)?;
                must_be_replaceable(&old, parent, &old_dir)?;
                must_be_trace(&old, &old_dir)?;
                older = Some(old);
            }
            kept = Some((old_name, older));
        } else if force {
            must_be_trace(&held, dir)?;
        } else {
            bail!("{}: exists already: use -f to overwrite it, or another name", dir.display());
        }
        must_be_replaceable(&held, parent, dir)?;
        Ok(Some(Earlier { held, name: name.to_owned(), kept }))
    }

    /// Refuses a recording in a lower layer of overlayfs, of which the kernel renames no directory. It says so before it finds that the
    /// target is not empty: the new directory, with a file that is made for this.
    pub(crate) fn must_be_renamable(
        &self,
        parent: &HeldDir,
        dir: &Path,
        (new, new_name): (&HeldDir, &OsStr),
    ) -> anyhow::Result<()> {
        if !parent.is_of_overlay() {
            return Ok(());
        }
        let file = OsString::from(random_digits()?);
        new.create(&file)?;
        let older = self.kept.iter().filter(|(_, older)| older.is_some()).map(|(name, _)| name);
        let is_lower = |name: &&OsString| {
            let renamed = parent.rename(name, new_name);
            renamed.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::XDEV))
        };
        let lower = [&self.name].into_iter().chain(older).find(is_lower);
        new.remove(&file)?;
        let Some(lower) = lower else { return Ok(()) };
        let shown = dir.with_file_name(lower);
        let shown = shown.display();
        bail!("{shown}: is in a lower layer of overlayfs and cannot be renamed: remove it, or use another name (-o)")
    }
}

impl Replaced {
    fn remove(&self) -> anyhow::Result<()> {
        let shown = self.shown.display();
        if !self.held.is_at(&self.parent, &self.name).unwrap_or(false) {
            bail!("{shown}: was put in place of the recording to overwrite, and stays");
        }
        // The new recording's name must outlast a power cut before the old files go.
        self.parent
            .sync()
            .and_then(|()| remove_trace(&self.held, &self.parent, &self.name))
            .with_context(|| format!("{shown}: the replaced recording cannot be removed"))
    }

    /// Sandbox of the thread that removes it.
    fn sandbox(&self) -> anyhow::Result<Sandbox> {
        let mut sandbox = confine::sandbox(Role::Remover);
        sandbox.keep(Kept::replacing());
        self.parent.allow(Purpose::Replace, &mut sandbox, self.shown.parent().unwrap_or(Path::new("")))?;
        Ok(sandbox)
    }

    /// Removes the recording in a thread, because large files take seconds.
    pub(crate) fn start_removal(self, sandbox: Mode) -> anyhow::Result<Option<JoinHandle<anyhow::Result<()>>>> {
        let replaced = Arc::new(self);
        let work = Arc::clone(&replaced);
        let remove = move || {
            confine::close(&work.sandbox()?, sandbox)?;
            work.remove()
        };
        match thread::Builder::new().name("remove".to_owned()).spawn(remove) {
            Ok(thread) => Ok(Some(thread)),
            // The caller removes it where no thread can be started.
            Err(_) => replaced.remove().map(|()| None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_no_longer_than_a_file_system_allows() {
        for mark in [UNBEGUN, BEGUN] {
            let name = temporary_name("n".repeat(255).as_ref(), mark).unwrap();
            assert!(name.len() + ".aside".len() <= 255, "{name:?}");
        }
        assert!(temporary_name("t".as_ref(), BEGUN).unwrap().to_str().unwrap().starts_with("t.begun-"));
    }

    #[test]
    fn names_of_half_written_files_end_with_a_mark_and_random_digits() {
        let is_ours = |name: &&str| is_of_trace(name.as_ref());
        let ours = [
            "meta.out",
            "cpu12.out",
            "cpu0.out.packing",
            "cpu0.out.packing-a2bc3def",
            "meta.out.packing-1",
            "report.index",
            "report.index.new",
            "report.index.new-0123456789abcdef",
        ];
        assert_eq!(ours.iter().filter(|name| !is_ours(name)).count(), 0);
        let others =
            ["cpu.out", "cpux.out", "cpu0.out-1", "cpu0.out.packing-", "cpu0.out.packing-.x", "notes", "meta.out.new"];
        assert_eq!(others.iter().filter(|name| is_ours(name)).count(), 0);
    }
}
