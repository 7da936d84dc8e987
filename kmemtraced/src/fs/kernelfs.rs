//! File systems of the kernel (proc, sysfs, tracefs, debugfs), held by descriptor. One that is not mounted is mounted for this
//! process alone: single-user mode needs no mounts, and a mount that is taken away disturbs nothing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context, anyhow};
use kmemtrace_sandbox::{Purpose, Sandbox};
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags};

use crate::fs::mounts;

/// Kind of a kernel file system: its name, its magic number (`include/uapi/linux/magic.h`) and its usual mount points.
#[derive(Debug)]
pub(crate) struct Kind {
    name: &'static str,
    magic: u32,
    usual: &'static [&'static str],
}

pub(crate) const PROC: Kind = Kind { name: "proc", magic: 0x9fa0, usual: &["/proc"] };
pub(crate) const SYSFS: Kind = Kind { name: "sysfs", magic: 0x6265_6572, usual: &["/sys"] };
pub(crate) const TRACEFS: Kind =
    Kind { name: "tracefs", magic: 0x7472_6163, usual: &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] };
pub(crate) const SECURITYFS: Kind = Kind { name: "securityfs", magic: 0x7363_6673, usual: &["/sys/kernel/security"] };
pub(crate) const DEBUGFS: Kind = Kind { name: "debugfs", magic: 0x6462_6720, usual: &["/sys/kernel/debug"] };

impl Kind {
    /// Usual mount point, for messages.
    pub(crate) fn usual_path(&self) -> &'static str {
        self.usual.first().copied().unwrap_or_default()
    }
}

/// Name of the file system of a descriptor, if it is one of the kernel's.
pub(crate) fn kind_of(fd: impl AsFd) -> Option<&'static str> {
    let magic = rustix::fs::fstatfs(fd).ok()?.f_type as u32;
    let kinds = [PROC, SYSFS, TRACEFS, SECURITYFS, DEBUGFS];
    kinds.into_iter().find(|kind| kind.magic == magic).map(|kind| kind.name)
}

/// A directory of a kernel file system; all files in it are reached by relative names.
#[derive(Debug)]
pub(crate) struct KernelFs {
    dir: OwnedFd,
    /// Path for messages.
    path: PathBuf,
    /// Private mount, held for as long as anything in it is.
    mount: Option<Arc<OwnMount>>,
}

/// A private mount; dropping it unmounts.
#[derive(Debug)]
enum OwnMount {
    /// Mount without a path (Linux 5.2 on); closing the descriptor unmounts it.
    Detached(OwnedFd),
    At(&'static str),
}

/// Private mounts by the name of their kind: in the sandbox nothing can be mounted, and it allows what was mounted before.
static MOUNTED: Mutex<Vec<(&'static str, Weak<OwnMount>)>> = Mutex::new(Vec::new());

/// True while there is a private mount at a path, which needs a capability to be taken away.
pub(crate) fn has_mount_at_path() -> bool {
    let mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    mounted.iter().filter_map(|(_, mount)| mount.upgrade()).any(|mount| matches!(*mount, OwnMount::At(_)))
}

impl OwnMount {
    fn new(kind: &Kind) -> anyhow::Result<OwnMount> {
        match OwnMount::detached(kind) {
            // Linux before 5.2 has no detached mounts.
            Err(Errno::NOSYS) => {}
            mounted => return Ok(mounted?),
        }
        let at = kind.usual.first().copied().ok_or_else(|| anyhow!("no place for it"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount::mount(kind.name, at, kind.name, flags, None).context(at)?;
        Ok(OwnMount::At(at))
    }

    fn detached(kind: &Kind) -> Result<OwnMount, Errno> {
        let context = mount::fsopen(kind.name, FsOpenFlags::FSOPEN_CLOEXEC)?;
        mount::fsconfig_create(&context)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(OwnMount::Detached)
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        if let OwnMount::At(path) = self {
            let _ = mount::unmount(*path, UnmountFlags::DETACH);
        }
    }
}

impl AsFd for KernelFs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Modification time of a marked directory with this inode number, in 1970: the letters km, and the number, so that no copy of another
/// directory's times is a mark.
fn mark_of(inode: u64) -> Timespec {
    Timespec { tv_sec: 0x6b6d, tv_nsec: (inode % 1_000_000_000) as _ }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl KernelFs {
    /// Opens a kernel file system where it is mounted, else mounts it.
    pub(crate) fn find(kind: &Kind) -> anyhow::Result<KernelFs> {
        let elsewhere = mounts::all().into_iter().filter(|mounted| mounted.kind == kind.name);
        let usual = kind.usual.iter().map(PathBuf::from);
        let mut mounted = usual.chain(elsewhere.map(|mounted| mounted.dir)).filter_map(|path| KernelFs::at(&path).ok());
        match mounted.find(|fs| fs.is_of(kind)) {
            Some(found) => Ok(found),
            None => KernelFs::mount(kind)
                .with_context(|| format!("{} is not mounted and cannot be: {}", kind.name, mount_remedy())),
        }
    }

    /// Opens the private mount of this kind, which is made where there is none.
    fn mount(kind: &Kind) -> anyhow::Result<KernelFs> {
        let mut mounted = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.retain(|(_, mount)| mount.strong_count() > 0);
        let there = mounted.iter().find(|(name, _)| *name == kind.name).and_then(|(_, mount)| mount.upgrade());
        let mount = match there {
            Some(mount) => mount,
            None => {
                let mount = Arc::new(OwnMount::new(kind)?);
                mounted.push((kind.name, Arc::downgrade(&mount)));
                mount
            }
        };
        match &*mount {
            OwnMount::Detached(held) => {
                let dir = rustix::fs::openat(held, ".", DIRECTORY, Mode::empty())?;
                Ok(KernelFs { dir, path: PathBuf::from(kind.name), mount: Some(mount) })
            }
            OwnMount::At(path) => Ok(KernelFs { mount: Some(Arc::clone(&mount)), ..KernelFs::at(path.as_ref())? }),
        }
    }

    /// Allows this beneath the directory.
    pub(crate) fn allow(&self, purpose: Purpose, sandbox: &mut Sandbox) -> anyhow::Result<()> {
        let allowed = sandbox.allow(purpose, &self.dir, &self.path);
        allowed.map_err(|error| self.failed("", "opened again", error))
    }

    /// Opens any directory by path.
    pub(crate) fn at(path: &Path) -> io::Result<KernelFs> {
        let dir = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(KernelFs { dir, path: path.to_owned(), mount: None })
    }

    /// True if the directory is of this kind of file system.
    pub(crate) fn is_of(&self, kind: &Kind) -> bool {
        rustix::fs::fstatfs(&self.dir).is_ok_and(|stat| stat.f_type as u32 == kind.magic)
    }

    /// Opens the directory `dir` in this one.
    pub(crate) fn sub(&self, dir: &str) -> io::Result<KernelFs> {
        let fd = rustix::fs::openat(&self.dir, dir, DIRECTORY, Mode::empty())?;
        Ok(KernelFs { dir: fd, path: self.path.join(dir), mount: self.mount.clone() })
    }

    /// Opens the directory `dir` in this one. An error names the directory.
    pub(crate) fn open_dir(&self, dir: &str) -> anyhow::Result<KernelFs> {
        self.sub(dir).map_err(|error| self.failed(dir, "opened", error))
    }

    /// Opens the directory `dir` in this one; `None` where it is absent. An error names the directory.
    pub(crate) fn open_dir_if_there(&self, dir: &str) -> anyhow::Result<Option<KernelFs>> {
        match self.sub(dir) {
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(self.failed(dir, "opened", error)),
            Ok(opened) => Ok(Some(opened)),
        }
    }

    /// Opens this directory once more, by another descriptor.
    pub(crate) fn again(&self) -> anyhow::Result<KernelFs> {
        Ok(KernelFs { path: self.path.clone(), ..self.open_dir(".")? })
    }

    /// Path of `file` for messages.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        if file.is_empty() { self.path.clone() } else { self.path.join(file) }
    }

    /// Inode number of the directory; no two directories since boot have the same.
    pub(crate) fn inode(&self) -> anyhow::Result<u64> {
        let stat = rustix::fs::fstat(&self.dir).map_err(|error| self.failed("", "looked at", error.into()))?;
        Ok(stat.st_ino)
    }

    /// Marks the directory by its modification time, which the kernel never changes in a trace instance.
    pub(crate) fn mark(&self) -> io::Result<()> {
        let mark = mark_of(rustix::fs::fstat(&self.dir)?.st_ino);
        Ok(rustix::fs::futimens(&self.dir, &Timestamps { last_access: mark, last_modification: mark })?)
    }

    /// True if the directory was marked.
    pub(crate) fn has_mark(&self) -> anyhow::Result<bool> {
        let stat = rustix::fs::fstat(&self.dir).map_err(|error| self.failed("", "looked at", error.into()))?;
        let mark = mark_of(stat.st_ino);
        #[allow(clippy::useless_conversion, reason = "not where a word has 4 bytes")]
        let is_marked =
            i64::from(stat.st_mtime) == mark.tv_sec && i64::try_from(stat.st_mtime_nsec) == Ok(mark.tv_nsec.into());
        Ok(is_marked)
    }

    /// Inode number of a file, or of the target of a link; `None` where it is absent. An error names the file.
    pub(crate) fn inode_of(&self, file: &str) -> anyhow::Result<Option<u64>> {
        match rustix::fs::statat(&self.dir, file, AtFlags::empty()).map_err(io::Error::from) {
            Err(error) if is_absent(&error) => Ok(None),
            found => found.map(|stat| Some(stat.st_ino)).map_err(|error| self.failed(file, "looked at", error)),
        }
    }

    /// Target of a symbolic link; `None` where the file is none, or absent. An error names the file.
    pub(crate) fn link(&self, file: &str) -> anyhow::Result<Option<Vec<u8>>> {
        match rustix::fs::readlinkat(&self.dir, file, Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed(file, "read", error.into())),
        }
    }

    /// True if the file is there. An error names the file.
    pub(crate) fn has(&self, file: &str) -> anyhow::Result<bool> {
        match rustix::fs::statat(&self.dir, file, AtFlags::empty()).map_err(io::Error::from) {
            Err(error) if is_absent(&error) => Ok(false),
            found => found.map(|_| true).map_err(|error| self.failed(file, "looked at", error)),
        }
    }

    /// Permission bits of a regular file; `None` where it is absent, something else, or cannot be looked at.
    pub(crate) fn mode_of(&self, file: &str) -> Option<Mode> {
        let stat = rustix::fs::statat(&self.dir, file, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then(|| Mode::from_raw_mode(stat.st_mode))
    }

    /// True if the file belongs to this user, who may write to it.
    pub(crate) fn belongs_to_caller(&self, file: &str) -> bool {
        rustix::fs::statat(&self.dir, file, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
            stat.st_uid == rustix::process::geteuid().as_raw() && Mode::from_raw_mode(stat.st_mode).contains(Mode::WUSR)
        })
    }

    /// Opens a file.
    pub(crate) fn open(&self, file: &str, flags: OFlags) -> io::Result<File> {
        Ok(rustix::fs::openat(&self.dir, file, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Opens a file; `None` where it is absent, or the CPU has no such device. Any other error names the file and the remedy.
    pub(crate) fn open_if_there(&self, file: &str, flags: OFlags) -> anyhow::Result<Option<File>> {
        match self.open(file, flags) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(self.failed(file, "opened", error)),
        }
    }

    /// Error that names the file, and the limit to raise where one was met, or how to find who holds the directory.
    pub(crate) fn failed(&self, file: &str, done: &str, error: io::Error) -> anyhow::Error {
        let limit = kmemtrace_abi::unreadable::more_files(&error);
        let holder = if error.kind() == io::ErrorKind::ResourceBusy { held_open(&self.path) } else { String::new() };
        anyhow!("{}: cannot be {done}: {error}{limit}{holder}", self.path(file).display())
    }

    /// Path of the directory by its descriptor, valid where /proc is mounted.
    pub(crate) fn descriptor_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()))
    }

    /// True if the directory was removed.
    pub(crate) fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.dir).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Reads a file. The kernel hands out `events/header_page` on the first read only, so the buffer must hold all of it.
    pub(crate) fn read(&self, file: &str) -> io::Result<Vec<u8>> {
        let mut file = self.open(file, OFlags::RDONLY)?;
        let mut all = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(all),
                Ok(n) => all.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads a file; empty where it is absent. An error names the file.
    pub(crate) fn read_if_there(&self, file: &str) -> anyhow::Result<Vec<u8>> {
        match self.read(file) {
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            read => read.map_err(|error| self.failed(file, "read", error)),
        }
    }

    /// Reads a text file; empty where it is absent. An error names the file.
    pub(crate) fn get_if_there(&self, file: &str) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&self.read_if_there(file)?).into_owned())
    }

    /// Reads a text file. An error names the file.
    pub(crate) fn get(&self, file: &str) -> anyhow::Result<String> {
        let bytes = self.read(file).map_err(|error| self.failed(file, "read", error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Writes a control file, without truncation: opening some of these files with O_TRUNC is a command of its own.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        self.open(file, OFlags::WRONLY)?.write_all(text.as_bytes())
    }

    /// Writes a control file. An error names the file.
    pub(crate) fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        self.write(file, value).map_err(|error| self.failed(file, &format!("set to {}", value.trim()), error))
    }

    /// Sorted names in the directory `dir` (`.`: this one); none where it is absent. An error names the directory.
    pub(crate) fn names(&self, dir: &str) -> anyhow::Result<Vec<String>> {
        Ok(self.entries(dir)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Names in a directory as [`KernelFs::names`], each with its type where the file system tells it.
    fn entries(&self, dir: &str) -> anyhow::Result<Vec<(String, FileType)>> {
        let opened = rustix::fs::openat(&self.dir, dir, DIRECTORY, Mode::empty()).and_then(Dir::read_from);
        let entries = match opened {
            Ok(entries) => entries,
            Err(error) if is_absent(&error.into()) => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(dir, "opened", error.into())),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(dir, "listed", error.into()))?;
            names.extend(entry.file_name().to_str().map(|name| (name.to_owned(), entry.file_type())).ok());
        }
        names.retain(|(name, _)| name != "." && name != "..");
        names.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(names)
    }

    /// True if `dir` is a directory; false where it is absent. An error names it.
    pub(crate) fn is_dir(&self, dir: &str) -> anyhow::Result<bool> {
        match rustix::fs::statat(&self.dir, dir, AtFlags::empty()).map_err(io::Error::from) {
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(self.failed(dir, "looked at", error)),
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        }
    }

    /// Sorted names of the directories in the directory `dir`; none where it is absent. An error names the directory.
    pub(crate) fn dirs(&self, dir: &str) -> anyhow::Result<Vec<String>> {
        let mut dirs = Vec::new();
        for (name, kind) in self.entries(dir)? {
            let is_dir = match kind {
                FileType::Directory => true,
                FileType::Symlink | FileType::Unknown => self.is_dir(&format!("{dir}/{name}"))?,
                _ => false,
            };
            if is_dir {
                dirs.push(name);
            }
        }
        Ok(dirs)
    }

    /// Numbers N of the files `PREFIX<N>` in a directory, ascending. An error names the directory.
    pub(crate) fn numbered(&self, dir: &str, prefix: &str) -> anyhow::Result<Vec<u32>> {
        let names = self.names(dir)?.into_iter();
        let mut numbers: Vec<u32> = names.filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes a directory.
    pub(crate) fn make_dir(&self, dir: &str) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.dir, dir, Mode::RWXU)?)
    }

    /// Removes a directory; for an instance of tracefs the kernel removes its files, too.
    pub(crate) fn remove_dir(&self, dir: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, dir, AtFlags::REMOVEDIR)?)
    }

    /// Locks the directory until the descriptor is closed; the kernel closes it for a killed process. `WouldBlock` where another
    /// process has the lock.
    pub(crate) fn lock(&self) -> io::Result<OwnedFd> {
        let lock = rustix::fs::openat(&self.dir, ".", DIRECTORY, Mode::empty())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(lock)
    }

    /// Locks the directory; `None` where another process has the lock. An error names the directory.
    pub(crate) fn lock_if_free(&self) -> anyhow::Result<Option<OwnedFd>> {
        match self.lock() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            lock => Ok(Some(lock.map_err(|error| self.failed("", "locked", error))?)),
        }
    }

    /// Locks the directory; the error is `in_use` where another process has the lock, else it names directory and reason.
    pub(crate) fn lock_or(&self, in_use: impl FnOnce() -> String) -> anyhow::Result<OwnedFd> {
        self.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => anyhow!(in_use()),
            _ => anyhow!("{}: cannot be locked: {error}", self.path.display()),
        })
    }
}

/// End of a message about a directory that the kernel calls busy.
pub(crate) fn held_open(dir: &Path) -> String {
    let files = format!("{}/*", dir.display());
    format!(
        ": a program has a file of it open, or it is a mount point: end the program (fuser -v {files} names it), or unmount it"
    )
}

/// Right that a process needs to mount a file system and this one lacks.
fn mount_remedy() -> &'static str {
    if rustix::process::geteuid().is_root() { "run with CAP_SYS_ADMIN" } else { "run as root" }
}

/// Reads an open file once more, from its start.
pub(crate) fn read_again(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let mut len = 0;
    loop {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if len == bytes.len() {
            bytes.resize(len * 2, 0);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// True if a file or device is absent: an older kernel, or a CPU that was never online.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV | Errno::NXIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_names_relative_to_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["cpu10", "cpu2", "cpux", "other"] {
            std::fs::write(dir.path().join(name), "7\n").unwrap();
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        assert_eq!(fs.numbered(".", "cpu").unwrap(), [2, 10]);
        assert_eq!(fs.get("other").unwrap(), "7\n");
        fs.set("other", "8").unwrap();
        assert_eq!(fs.get("other").unwrap(), "8\n", "a control file is not truncated");
        assert!(fs.names("nothing").unwrap().is_empty());
        let error = format!("{:#}", fs.names("other").unwrap_err());
        assert!(error.contains("other: cannot be opened"), "{error}");
        assert!(fs.open_if_there("missing", OFlags::RDONLY).unwrap().is_none());
        assert!(fs.open_if_there("other/below", OFlags::RDONLY).is_err(), "only what is not there may be missing");
        let error = format!("{:#}", fs.get("missing").unwrap_err());
        assert!(error.contains("missing: cannot be read"), "{error}");
    }

    #[test]
    fn a_locked_directory_cannot_be_locked_again() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let lock = fs.lock().unwrap();
        assert_eq!(fs.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        fs.lock().unwrap();
    }
}
