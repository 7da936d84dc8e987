//! The layer of landlock: which files can be opened, and for what (`include/uapi/linux/landlock.h`, Linux 6.18).
//!
//! A rule holds for a file, or for all beneath a folder: what is in a folder may be as deep as it likes. Landlock does not limit what
//! only asks for names and states (stat, readlink), nor what is open already.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::folders::{Purpose, Rules};
use crate::kernel;

/// Rights of `LANDLOCK_ACCESS_FS_*`.
mod right {
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const READ_FILE: u64 = 1 << 2;
    pub(super) const READ_DIR: u64 = 1 << 3;
    pub(super) const REMOVE_DIR: u64 = 1 << 4;
    pub(super) const REMOVE_FILE: u64 = 1 << 5;
    pub(super) const MAKE_DIR: u64 = 1 << 7;
    pub(super) const MAKE_REG: u64 = 1 << 8;
    pub(super) const TRUNCATE: u64 = 1 << 14;
    pub(super) const IOCTL_DEV: u64 = 1 << 15;
    /// Rights that a rule for a file can have.
    pub(super) const OF_FILES: u64 = 1 | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
}

/// Rights over files by the version of the interface in which they came: all rights below a bit are there.
const FILE_RIGHTS: [(i64, u64); 4] = [(1, (1 << 13) - 1), (2, (1 << 14) - 1), (3, (1 << 15) - 1), (5, (1 << 16) - 1)];
/// Version from which TCP can be limited: `LANDLOCK_ACCESS_NET_BIND_TCP` and `_CONNECT_TCP`.
const WITH_NETWORK: i64 = 4;
const NETWORK: u64 = 0b11;
/// Version from which abstract sockets and signals of other processes can be: `LANDLOCK_SCOPE_*`.
const WITH_SCOPES: i64 = 6;
const SCOPES: u64 = 0b11;
/// The one of signals among them.
const SIGNALS: u64 = 0b10;

/// Rights that are limited: none of them is left but by a rule.
fn limited(version: i64) -> kernel::Limited {
    let files = FILE_RIGHTS.iter().filter(|(since, _)| version >= *since).map(|(_, rights)| *rights).max();
    kernel::Limited {
        files: files.unwrap_or(0),
        network: if version >= WITH_NETWORK { NETWORK } else { 0 },
        scopes: if version >= WITH_SCOPES { SCOPES } else { 0 },
    }
}

fn rights(purpose: Purpose) -> u64 {
    match purpose {
        Purpose::Read => right::READ_FILE | right::READ_DIR,
        Purpose::List => right::READ_DIR,
        // A temporary file is read back, and a folder is opened to be written to the disk.
        Purpose::Write => {
            right::READ_FILE
                | right::READ_DIR
                | right::WRITE_FILE
                | right::TRUNCATE
                | right::MAKE_REG
                | right::REMOVE_FILE
        }
        Purpose::Control => right::READ_FILE | right::READ_DIR | right::WRITE_FILE,
        // A folder that gets another name is made under that name, for the kernel.
        Purpose::Replace => right::READ_DIR | right::MAKE_DIR | right::REMOVE_DIR | right::REMOVE_FILE,
        Purpose::RemoveFolders => right::READ_DIR | right::REMOVE_DIR,
        Purpose::Device => right::READ_FILE | right::WRITE_FILE | right::IOCTL_DEV,
    }
}

/// Limits the calling thread to the rules; `limits_signals`: to signals of its own process, too, where the kernel can.
pub(crate) fn restrict(rules: &Rules, limits_signals: bool) -> io::Result<()> {
    let version = kernel::landlock_version()?;
    let mut limited = limited(version);
    if !limits_signals {
        limited.scopes &= !SIGNALS;
    }
    let set = kernel::landlock_set(&limited)?;
    for rule in rules.iter() {
        let rights = rights(rule.purpose) & limited.files;
        match &rule.held {
            Some(held) => allow(&set, held.as_fd(), rights)?,
            None => {
                if let Some(opened) = opened(&rule.path)? {
                    allow(&set, opened.as_fd(), rights)?;
                }
            }
        }
    }
    kernel::landlock_restrict(&set)
}

/// Opens a path. What cannot be opened needs no rule: opening it later says why.
fn opened(path: &Path) -> io::Result<Option<OwnedFd>> {
    match rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => Ok(Some(opened)),
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Adds a rule for a file or folder.
fn allow(set: &File, held: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    let is_folder = FileType::from_raw_mode(rustix::fs::fstat(held)?.st_mode) == FileType::Directory;
    let rights = if is_folder { rights } else { rights & right::OF_FILES };
    if rights == 0 {
        return Ok(());
    }
    match kernel::landlock_allow(set, held, rights) {
        // A pipe or a socket, by a name such as /dev/stdin: the kernel does not limit those.
        Err(error) if error.raw_os_error() == Some(Errno::BADFD.raw_os_error()) => Ok(()),
        allowed => allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_limits_what_it_knows() {
        let of = |version| {
            let kernel::Limited { files, network, scopes } = limited(version);
            (files.count_ones(), network, scopes)
        };
        assert_eq!([of(1), of(2), of(3), of(4)], [(13, 0, 0), (14, 0, 0), (15, 0, 0), (15, 3, 0)]);
        assert_eq!([of(5), of(6), of(7), of(99)], [(16, 3, 0), (16, 3, 3), (16, 3, 3), (16, 3, 3)]);
    }
}
