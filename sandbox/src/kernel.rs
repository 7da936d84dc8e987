//! System calls without a safe wrapper: landlock, seccomp, fork, descriptors by their numbers, and errors of writing back.
#![expect(unsafe_code, reason = "there is no safe wrapper for these system calls")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
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

/// `CLOSE_RANGE_CLOEXEC`, since Linux 5.11.
const AT_EXEC: libc::c_uint = 1 << 2;
/// Descriptors that are looked at one by one on kernels without that, at most.
const MAX_DESCRIPTORS: libc::c_int = 1 << 16;

/// The error that the kernel has met while it wrote back pages of a file since the last such call, a sync or the opening. Nothing is
/// waited for: pages that are not written back yet may fail later.
///
/// # Errors
/// Those of the disk: EIO, ENOSPC, EDQUOT.
pub fn written_back(file: BorrowedFd<'_>) -> io::Result<()> {
    /// Start of a range without pages; 32-bit kernels take no greater one into account.
    const BEHIND: i64 = 1 << 43;
    // SAFETY: the call takes numbers, and no range of this file has a page to wait for.
    let returned =
        unsafe { libc::sync_file_range(file.as_raw_fd(), BEHIND as _, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    match result(returned.into()) {
        Err(error) if [libc::EIO, libc::ENOSPC, libc::EDQUOT].map(Some).contains(&error.raw_os_error()) => Err(error),
        // A kernel or an architecture without the call tells nothing.
        _ => Ok(()),
    }
}

/// Takes over a descriptor that the parent process has passed on.
///
/// # Errors
/// There is none of this number.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    if is_free(number) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open, and a program that was started with it calls this once for the number, so nothing else owns it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// True if no descriptor of this process has the number.
pub(crate) fn is_free(number: i32) -> bool {
    // SAFETY: the call takes numbers, and changes nothing.
    unsafe { libc::fcntl(number, libc::F_GETFD) < 0 }
}

/// Makes `number` stand for the same as `descriptor`, and stay open at an exec: for a child before its exec.
pub(crate) fn place(descriptor: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers. What `number` stood for before is closed in the child alone, where nothing uses it: the parent has
    // put a descriptor of its own there.
    result(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into()).map(drop)
}

/// Lets no descriptor from `first` on stay open at an exec.
pub(crate) fn close_at_exec_from(first: i32) {
    // SAFETY: the call takes numbers; no descriptor is closed now.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, AT_EXEC) };
    if done == 0 {
        return;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.and_then(|limit| libc::c_int::try_from(limit).ok()).unwrap_or(MAX_DESCRIPTORS);
    for number in first..limit.min(MAX_DESCRIPTORS) {
        // SAFETY: the call takes numbers; of one without a descriptor it is an error.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Lets a child do `work` before its exec. It makes system calls alone, allocates nothing and takes no lock: another thread may have
/// been inside of the allocator at the fork. `child` is the one caller.
pub(crate) fn before_exec(command: &mut Command, work: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: `work` does nothing that a child between fork and exec may not do, as said above.
    unsafe { command.pre_exec(work) };
}
