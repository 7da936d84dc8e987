//! The system calls of the recorder's threads, by what they do. Often used ones come first.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]

use std::collections::BTreeSet;

use crate::call::{ASKS_TERMINAL, Call, DESCRIPTORS, EXECUTABLE, NAMES, NAMESPACES, THREAD, When, call, call_when};

/// Calls of the threads that set up and end a recording.
pub(crate) fn recorder() -> Vec<Call> {
    joined(&[RECORDER, CLOSES, FILES, FOLDERS, READS, WRITES, WAITS, REMOVES, EACH, OF_MACHINE])
}

/// Calls of the thread that takes bytes out of the buffer of a CPU. The counter of a relay channel is opened for each reading.
pub(crate) fn drain() -> Vec<Call> {
    joined(&[READS, WAITS, EACH, FILES])
}

/// Calls of a thread that writes blocks.
pub(crate) fn writer() -> Vec<Call> {
    joined(&[WRITES, WAITS, EACH])
}

/// Calls of the thread that reads names in file systems of the kernel, and writes them into a file.
pub(crate) fn names() -> Vec<Call> {
    joined(&[READS, WRITES, FILES, FOLDERS, EACH, OF_MACHINE])
}

/// Calls of the thread that removes an earlier recording.
pub(crate) fn remover() -> Vec<Call> {
    joined(&[REMOVES, FILES, FOLDERS, READS, EACH, OF_MACHINE])
}

/// Calls of the thread that writes messages.
pub(crate) fn messages() -> Vec<Call> {
    joined(&[EACH])
}

/// Lists one after the other. Of a call that is in several of them the first one counts.
fn joined(lists: &[&[Call]]) -> Vec<Call> {
    let mut numbers = BTreeSet::new();
    lists.concat().into_iter().filter(|call| numbers.insert(call.number)).collect()
}

/// Memory, time, locks, the end of a thread, a message of a defect.
const EACH: &[Call] = &[
    call(libc::SYS_futex),
    call(libc::SYS_write),
    call(libc::SYS_writev),
    call_when(libc::SYS_mmap, &[When::Lacks(2, EXECUTABLE)]),
    call(libc::SYS_munmap),
    call(libc::SYS_madvise),
    call_when(libc::SYS_mprotect, &[When::Lacks(2, EXECUTABLE)]),
    call(libc::SYS_mremap),
    call(libc::SYS_brk),
    call(libc::SYS_clock_gettime),
    call(libc::SYS_clock_getres),
    call(libc::SYS_clock_nanosleep),
    call(libc::SYS_nanosleep),
    call(libc::SYS_gettimeofday),
    call(libc::SYS_restart_syscall),
    call(libc::SYS_sched_yield),
    call(libc::SYS_sched_getaffinity),
    call(libc::SYS_getcpu),
    call(libc::SYS_membarrier),
    call(libc::SYS_rseq),
    call(libc::SYS_set_robust_list),
    call(libc::SYS_gettid),
    call(libc::SYS_getpid),
    call(libc::SYS_getrandom),
    call_when(libc::SYS_tgkill, &[When::Own(0)]),
    call(libc::SYS_rt_sigaction),
    call(libc::SYS_rt_sigprocmask),
    call(libc::SYS_rt_sigreturn),
    call(libc::SYS_sigaltstack),
    call_when(libc::SYS_prctl, &[When::OneOf(0, NAMES)]),
    // The C library's allocator asks proc how memory is overcommitted before it gives some back; landlock refuses that.
    call(libc::SYS_openat),
    call(libc::SYS_read),
    call(libc::SYS_close),
    // A debug build asks whether what it closes is open.
    call_when(libc::SYS_fcntl, &[When::OneOf(1, DESCRIPTORS)]),
    call(libc::SYS_exit),
    call(libc::SYS_exit_group),
];

/// Reading of what is open.
const READS: &[Call] = &[call(libc::SYS_read), call(libc::SYS_pread64), call(libc::SYS_readv), call(libc::SYS_lseek)];

/// Waiting for a descriptor.
const WAITS: &[Call] = &[
    call(libc::SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_poll),
];

/// Writing into an open file, which may be cut.
const WRITES: &[Call] = &[
    call(libc::SYS_write),
    call(libc::SYS_statx),
    // Before Linux 4.11, by the C library.
    call(libc::SYS_fstat),
    call(libc::SYS_newfstatat),
    call(libc::SYS_pwrite64),
    call(libc::SYS_lseek),
    call(libc::SYS_ftruncate),
    call(libc::SYS_fallocate),
    call(libc::SYS_fdatasync),
    call(libc::SYS_fsync),
    call(libc::SYS_sync_file_range),
    // The first block of a relay channel's file, which names the kernel, is made when its records are known.
    call(libc::SYS_uname),
];

/// Opening of files. Landlock says which.
const FILES: &[Call] =
    &[call(libc::SYS_openat), call(libc::SYS_fstat), call(libc::SYS_statx), call(libc::SYS_newfstatat)];

/// Names in folders, and file systems.
const FOLDERS: &[Call] = &[
    call(libc::SYS_getdents64),
    call(libc::SYS_readlinkat),
    call(libc::SYS_faccessat),
    call(libc::SYS_faccessat2),
    call(libc::SYS_statfs),
    call(libc::SYS_fstatfs),
    call(libc::SYS_getcwd),
];

const REMOVES: &[Call] = &[call(libc::SYS_unlinkat), call(libc::SYS_fsync)];

/// Calls that give rights away, for the sandboxes of threads that are started in one, and for a narrower one.
const CLOSES: &[Call] = &[
    call(libc::SYS_capget),
    call(libc::SYS_capset),
    call_when(libc::SYS_prctl, &[When::OneOf(0, DROPS)]),
    call(libc::SYS_seccomp),
    call(libc::SYS_landlock_create_ruleset),
    call(libc::SYS_landlock_add_rule),
    call(libc::SYS_landlock_restrict_self),
];

/// [`NAMES`], and `PR_CAPBSET_READ`, `PR_CAPBSET_DROP`, `PR_SET_NO_NEW_PRIVS`, `PR_CAP_AMBIENT`.
const DROPS: &[u32] = &[15, 16, 0x5356_4d41, 23, 24, 38, 47];

/// Control files, names of recordings, the thread of an earlier one, the launcher, the caller's recording.
const RECORDER: &[Call] = &[
    call(libc::SYS_mkdirat),
    call(libc::SYS_renameat2),
    call(libc::SYS_fchmod),
    call(libc::SYS_fchown),
    // The mark of an instance, which is held.
    call_when(libc::SYS_utimensat, &[When::Null(1)]),
    call(libc::SYS_flock),
    call_when(libc::SYS_ioctl, ASKS_TERMINAL),
    call_when(libc::SYS_clone, &[When::Has(0, THREAD), When::Lacks(0, NAMESPACES)]),
    call(libc::SYS_set_tid_address),
    call(libc::SYS_wait4),
    call(libc::SYS_waitid),
    // The process of a viewer, which may have ended.
    call(libc::SYS_getppid),
    call(libc::SYS_getuid),
    call(libc::SYS_geteuid),
    call(libc::SYS_getgid),
    call(libc::SYS_getegid),
    call(libc::SYS_sysinfo),
    call_when(libc::SYS_prlimit64, &[When::Null(2)]),
    // Before Linux 5.2 a file system that was mounted for the recording alone is at a path.
    call(libc::SYS_umount2),
];

/// Calls that only this machine has, mostly older forms.
#[cfg(target_arch = "x86_64")]
const OF_MACHINE: &[Call] = &[
    call(libc::SYS_open),
    call(libc::SYS_stat),
    call(libc::SYS_lstat),
    call(libc::SYS_access),
    call(libc::SYS_readlink),
    call(libc::SYS_renameat),
    call(libc::SYS_unlink),
    call(libc::SYS_time),
];
#[cfg(target_arch = "aarch64")]
const OF_MACHINE: &[Call] = &[call(libc::SYS_renameat)];
#[cfg(target_arch = "riscv64")]
const OF_MACHINE: &[Call] = &[];
