//! A directory held by its descriptor. Every file in it is reached by one name below that descriptor, no link is followed and no
//! open blocks: a user who may rename files there cannot lead the recorder, which runs as root, elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use kmemtrace_abi::random;
use kmemtrace_sandbox::{Purpose, Sandbox};
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, StatVfs};
use rustix::io::Errno;

use crate::fs::kernelfs;

/// Flags to open a directory; a FIFO or a link under the name is an error at once.
const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
/// Flags for a directory on the way to another one: search permission is enough.
const WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Magic number of overlayfs (`include/uapi/linux/magic.h`).
const OVERLAYFS: u32 = 0x794c_7630;

/// Most links followed on one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// 16 random hexadecimal digits for a name that no other user can foresee.
pub(crate) fn random_digits() -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    random::fill(&mut bytes).context("the kernel returns no random bytes")?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// A directory; each file in it is reached by one name, without following links.
#[derive(Debug)]
pub(crate) struct HeldDir {
    fd: OwnedFd,
}

impl HeldDir {
    /// Opens the directory at `path` (empty: the current one), one component at a time. A link on the way is followed if its owner
    /// is root, the caller, or the user for whom sudo runs this program; any other owner could point it anywhere.
    pub(crate) fn reach(path: &Path) -> anyhow::Result<HeldDir> {
        let start = if path.is_absolute() { "/" } else { "." };
        let mut fd = rustix::fs::openat(CWD, start, WAY, Mode::empty()).context(start)?;
        let mut left: Vec<OsString> = reversed(path);
        let mut links = 0;
        while let Some(name) = left.pop() {
            match rustix::fs::openat(&fd, &name, WAY, Mode::empty()) {
                Ok(next) => fd = next,
                Err(Errno::NOTDIR | Errno::LOOP) if links < MAX_LINKS => {
                    links += 1;
                    left.extend(reversed(Path::new(&trusted_link(&fd, &name)?)));
                }
                Err(error) => return Err(anyhow!(error).context(name.to_string_lossy().into_owned())),
            }
        }
        Ok(HeldDir { fd })
    }

    /// Opens the directory `name` in this one.
    pub(crate) fn open_dir(&self, name: &OsStr) -> io::Result<HeldDir> {
        Ok(HeldDir { fd: rustix::fs::openat(&self.fd, name, DIRECTORY, Mode::empty())? })
    }

    /// Makes the directory `name` in this one, with mode 0700 whatever the umask is, and opens it. An error where another user
    /// put another directory in its place meanwhile.
    pub(crate) fn make_dir(&self, name: &OsStr) -> anyhow::Result<HeldDir> {
        rustix::fs::mkdirat(&self.fd, name, Mode::RWXU)?;
        let opened = self.open_dir(name).map_err(anyhow::Error::new).and_then(|dir| {
            if !dir.is_own()? || !dir.names()?.is_empty() {
                bail!("another user put another directory in its place: use a directory of your own");
            }
            Ok(dir)
        });
        if opened.is_err() {
            let _ = self.remove_dir(name);
        }
        let dir = opened?;
        // Fails on file systems without modes, where mount options say which users may enter.
        let _ = rustix::fs::fchmod(&dir.fd, Mode::RWXU);
        Ok(dir)
    }

    /// Makes the directory `name` in this one, with mode 0755 whatever the umask is.
    pub(crate) fn make_public_dir(&self, name: &OsStr) -> io::Result<()> {
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        rustix::fs::mkdirat(&self.fd, name, mode)?;
        Ok(rustix::fs::fchmod(self.open_dir(name)?.fd, mode)?)
    }

    /// Name of the kernel's own file system that it is in, such as tracefs; `None` for one that stores files.
    pub(crate) fn kernel_kind(&self) -> Option<&'static str> {
        kernelfs::kind_of(&self.fd)
    }

    /// True if it is on overlayfs.
    pub(crate) fn is_of_overlay(&self) -> bool {
        rustix::fs::fstatfs(&self.fd).is_ok_and(|stat| stat.f_type as u32 == OVERLAYFS)
    }

    /// True if the directory belongs to the caller. File systems that give files other owners (vfat, NFS with squashed root)
    /// give it the owner of a file that is made in it.
    fn is_own(&self) -> anyhow::Result<bool> {
        let owner = self.stat()?.st_uid;
        if owner == rustix::process::geteuid().as_raw() {
            return Ok(true);
        }
        let name = OsString::from(random_digits()?);
        let made = rustix::fs::fstat(self.create(&name)?);
        self.remove(&name)?;
        Ok(made?.st_uid == owner)
    }

    /// Makes a file with mode 0600 whatever the umask is; an error where the name is taken.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let file = rustix::fs::openat(&self.fd, name, FILE, FILE_MODE)?;
        // Fails on file systems without modes.
        let _ = rustix::fs::fchmod(&file, FILE_MODE);
        Ok(file.into())
    }

    /// Opens a file for reading; never blocks.
    pub(crate) fn open(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?.into())
    }

    /// Names in the directory, without `.` and `..`.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            names.push(OsString::from_vec(entry?.file_name().to_bytes().to_vec()));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Type of the file of this name; `None` where the name is free.
    pub(crate) fn kind(&self, name: &OsStr) -> io::Result<Option<FileType>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Facts of the file of this name; of a link itself.
    pub(crate) fn stat_of(&self, name: &OsStr) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Path that the directory has now, from the root of this process; an error where /proc does not tell.
    pub(crate) fn path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// True if the path leads to this directory.
    pub(crate) fn is_reached_by(&self, path: &Path) -> io::Result<bool> {
        let (there, own) = (rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?, self.stat()?);
        Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
    }

    /// Allows this beneath the directory; `shown` is its path for people.
    pub(crate) fn allow(&self, purpose: Purpose, sandbox: &mut Sandbox, shown: &Path) -> anyhow::Result<()> {
        sandbox.allow(purpose, &self.fd, shown).with_context(|| format!("{}: cannot be opened again", shown.display()))
    }

    /// Makes the directory that of a user and a group.
    pub(crate) fn give_to(&self, user: u32, group: u32) -> io::Result<()> {
        let (user, group) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
        Ok(rustix::fs::fchown(&self.fd, Some(user), Some(group))?)
    }

    /// Owner, mode and link count of the directory itself.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.fd)?)
    }

    /// True if `name` in `parent` is this directory.
    pub(crate) fn is_at(&self, parent: &HeldDir, name: &OsStr) -> io::Result<bool> {
        let (there, own) = (parent.open_dir(name)?.stat()?, self.stat()?);
        Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
    }

    /// Size and free space of the file system.
    pub(crate) fn statvfs(&self) -> io::Result<StatVfs> {
        Ok(rustix::fs::fstatvfs(&self.fd)?)
    }

    /// True if the directory is a mount point, `parent` being the directory above. A mount point cannot be renamed.
    pub(crate) fn is_mount_point(&self, parent: &HeldDir) -> io::Result<bool> {
        use rustix::fs::{StatxAttributes, StatxFlags, statx};
        // Linux 5.8 on. Before, a bind mount goes unseen, for it has the device of the directory above.
        if let Ok(found) = statx(&self.fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
            && found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
        {
            return Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
        }
        Ok(self.stat()?.st_dev != parent.stat()?.st_dev)
    }

    /// Locks the directory for as long as it is held; `WouldBlock` where another process has the lock.
    pub(crate) fn lock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive)?)
    }

    /// Removes the file `name`.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Removes the empty directory `name`.
    pub(crate) fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Renames `from` to `to`, replacing a file of that name.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Renames `from` to `to`; an error where that name is taken.
    pub(crate) fn rename_to_free(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Err(error) if is_unsupported(error) && self.kind(to)?.is_none() => self.rename(from, to),
            done => Ok(done?),
        }
    }

    /// Exchanges the names `a` and `b`; after an error both are as before. On file systems that cannot exchange in one step (NFS,
    /// FUSE, older vfat) a caller that is killed meanwhile leaves `b` under the name `a.aside`.
    pub(crate) fn exchange(&self, a: &OsStr, b: &OsStr) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.fd, a, &self.fd, b, RenameFlags::EXCHANGE) {
            Err(error) if is_unsupported(error) => self.exchange_in_steps(a, b),
            done => Ok(done?),
        }
    }

    fn exchange_in_steps(&self, a: &OsStr, b: &OsStr) -> io::Result<()> {
        let aside = joined(a, ".aside");
        self.rename(b, &aside)?;
        if let Err(error) = self.rename(a, b) {
            let _ = self.rename(&aside, b);
            return Err(error);
        }
        if let Err(error) = self.rename(&aside, a) {
            let _ = self.rename(b, a);
            let _ = self.rename(&aside, b);
            return Err(error);
        }
        Ok(())
    }

    /// Returns once the names in the directory survive a power cut, on file systems that can sync directories.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let readable = match rustix::fs::openat(&self.fd, ".", DIRECTORY, Mode::empty()) {
            Err(Errno::ACCESS) => return Ok(()),
            opened => opened?,
        };
        match rustix::fs::fsync(readable) {
            Err(Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }
}

/// Joins a name and a suffix.
pub(crate) fn joined(a: &OsStr, b: &str) -> OsString {
    [a, OsStr::new(b)].into_iter().collect()
}

/// True for the error of kernels before 3.15, and of file systems that can only rename.
fn is_unsupported(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Components of a path in reverse order.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Target of the link `name`; an error if its owner is not trusted.
fn trusted_link(dir: &OwnedFd, name: &OsStr) -> anyhow::Result<OsString> {
    let shown = name.to_string_lossy();
    // One descriptor for both, so that owner and target belong to the same link.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::openat(dir, name, flags, Mode::empty()).with_context(|| shown.clone().into_owned())?;
    let stat = rustix::fs::fstat(&link)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        bail!("{shown} is not a directory");
    }
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    let trusted = [Some(0), Some(rustix::process::geteuid().as_raw()), sudo];
    if !trusted.contains(&Some(stat.st_uid)) {
        bail!(
            "{shown} is a link of another user (uid {}) and is not followed: give the path that it leads to",
            stat.st_uid
        );
    }
    let target = rustix::fs::readlinkat(&link, "", Vec::new()).with_context(|| shown.into_owned())?;
    Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
}
