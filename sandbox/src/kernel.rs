//! System calls without a safe wrapper: landlock, seccomp, and fork.
#![expect(unsafe_code, reason = "there is no safe wrapper for these system calls")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const VERSION: libc::c_ulong = 1;
/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: libc::c_ulong = 1;
/// `SECCOMP_SET_MODE_FILTER`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
const SET_MODE_FILTER: libc::c_ulong = 1;

/// What a set of rules limits: `struct landlock_ruleset_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limited {
    pub(crate) files: u64,
    pub(crate) network: u64,
    pub(crate) scopes: u64,
}

/// A rule: `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    rights: u64,
    parent: i32,
}

/// Instruction of a filter: `struct sock_filter`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) value: u32,
}

/// A filter: `struct sock_fprog`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
#[repr(C)]
struct Program {
    len: u16,
    instructions: *const Instruction,
}

fn result(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Version of the kernel's landlock.
pub(crate) fn landlock_version() -> io::Result<i64> {
    // SAFETY: with this flag and no attributes the call returns a number and touches no memory.
    let version =
        result(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<Limited>(), 0_usize, VERSION) })?;
    #[allow(clippy::useless_conversion, reason = "a long has 32 bits on some machines")]
    Ok(version.into())
}

/// A new set of rules.
pub(crate) fn landlock_set(limited: &Limited) -> io::Result<File> {
    // A kernel takes more bytes than it knows if they are zeros, which they are for its version.
    let bytes = size_of::<Limited>();
    // SAFETY: the kernel reads `bytes` bytes of a value that lives until the call returns.
    let set = result(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::from_ref(limited), bytes, 0 as libc::c_ulong)
    })?;
    let set = i32::try_from(set).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new, and nothing else has it.
    Ok(unsafe { File::from_raw_fd(set) })
}

/// Adds a rule to a set: these rights over a file, or beneath a folder.
pub(crate) fn landlock_allow(set: &File, path: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    let rule = PathBeneath { rights, parent: path.as_raw_fd() };
    // SAFETY: the kernel reads a value that lives until the call returns; both descriptors are open.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            set.as_raw_fd(),
            PATH_BENEATH,
            ptr::from_ref(&rule),
            0 as libc::c_ulong,
        )
    };
    result(added).map(drop)
}

/// Limits the calling thread to a set of rules.
pub(crate) fn landlock_restrict(set: &File) -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, set.as_raw_fd(), 0 as libc::c_ulong) }).map(drop)
}

/// Installs a filter of system calls for the calling thread.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) fn seccomp(filter: &[Instruction], flags: u64) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = Program { len, instructions: filter.as_ptr() };
    // SAFETY: the kernel copies `len` instructions, which live until the call returns, and checks them.
    let installed = unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, ptr::from_ref(&program)) };
    result(installed).map(drop)
}

/// Forks; returns the id of the new process, and 0 in it.
///
/// To be called while there is one thread: a lock that another one holds would be held in the new process for ever.
pub(crate) fn fork() -> io::Result<i32> {
    // SAFETY: the new process has a copy of all memory and its one thread, which goes on from here as this one does.
    let returned = unsafe { libc::fork() };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
