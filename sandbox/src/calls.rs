//! The system calls that a program may make, by its role. Often used ones come first: kernels before 5.11 go through the list for each
//! call.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]

use crate::call::{
    ASKS_TERMINAL, Call, DESCRIPTORS, EXECUTABLE, NAMES, NAMESPACES, THREAD, When, call, call_when, number,
};
use crate::recorder_calls;
use crate::role::Role;

/// Calls of a role.
pub(crate) fn of(role: Role) -> Vec<Call> {
    match role {
        Role::Reader => [READER, OF_MACHINE, &[call_when(libc::SYS_ioctl, ASKS_TERMINAL)]].concat(),
        Role::Screen => [READER, OF_MACHINE, SCREEN].concat(),
        Role::Viewer => {
            let mut calls = [READER, OF_MACHINE, SCREEN].concat();
            calls.retain(|call| !NOT_OF_VIEWER.contains(&call.number));
            calls
        }
        Role::Recorder => recorder_calls::recorder(),
        Role::Drain => recorder_calls::drain(),
        Role::Writer => recorder_calls::writer(),
        Role::Names => recorder_calls::names(),
        Role::Remover => recorder_calls::remover(),
        Role::Messages => recorder_calls::messages(),
    }
}

/// What a program without files of its own has no use for.
const NOT_OF_VIEWER: &[u32] = &[
    number(libc::SYS_pwrite64),
    number(libc::SYS_pwritev),
    number(libc::SYS_sendfile),
    number(libc::SYS_splice),
    number(libc::SYS_copy_file_range),
    number(libc::SYS_ftruncate),
    number(libc::SYS_fallocate),
    number(libc::SYS_fsync),
    number(libc::SYS_fdatasync),
    number(libc::SYS_linkat),
    number(libc::SYS_renameat2),
    number(libc::SYS_unlinkat),
    number(libc::SYS_flock),
    number(libc::SYS_wait4),
    number(libc::SYS_waitid),
    #[cfg(target_arch = "x86_64")]
    number(libc::SYS_rename),
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    number(libc::SYS_renameat),
    #[cfg(target_arch = "x86_64")]
    number(libc::SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    number(libc::SYS_link),
];

/// [`ASKS_TERMINAL`], and `TCSETS`, `TCSETSW`, `TCSETSF`, and these for `struct termios2`.
const SETS_TERMINAL: &[When] = &[When::OneOf(
    1,
    &[
        0x5401,
        0x5402,
        0x5403,
        0x5404,
        0x5413,
        0x541b,
        0x5421,
        0x5451,
        0x802c_542a,
        0x402c_542b,
        0x402c_542c,
        0x402c_542d,
    ],
)];

const READER: &[Call] = &[
    call(libc::SYS_read),
    call(libc::SYS_pread64),
    call(libc::SYS_write),
    call(libc::SYS_futex),
    call(libc::SYS_lseek),
    call_when(libc::SYS_mmap, &[When::Lacks(2, EXECUTABLE)]),
    call(libc::SYS_munmap),
    call(libc::SYS_madvise),
    call_when(libc::SYS_mprotect, &[When::Lacks(2, EXECUTABLE)]),
    call(libc::SYS_mremap),
    call(libc::SYS_brk),
    call(libc::SYS_openat),
    call(libc::SYS_close),
    call(libc::SYS_fstat),
    call(libc::SYS_newfstatat),
    call(libc::SYS_statx),
    call(libc::SYS_getdents64),
    call(libc::SYS_readlinkat),
    call(libc::SYS_faccessat),
    call(libc::SYS_faccessat2),
    call(libc::SYS_statfs),
    call(libc::SYS_fstatfs),
    call(libc::SYS_getcwd),
    call_when(libc::SYS_fcntl, &[When::OneOf(1, DESCRIPTORS)]),
    call(libc::SYS_flock),
    call(libc::SYS_dup),
    call(libc::SYS_dup3),
    call(libc::SYS_readv),
    call(libc::SYS_writev),
    call(libc::SYS_preadv),
    call(libc::SYS_pwrite64),
    call(libc::SYS_pwritev),
    call(libc::SYS_fadvise64),
    call(libc::SYS_sendfile),
    call(libc::SYS_splice),
    call(libc::SYS_copy_file_range),
    // Files that get their names once they are whole.
    call(libc::SYS_ftruncate),
    call(libc::SYS_fallocate),
    call(libc::SYS_fsync),
    call(libc::SYS_fdatasync),
    call(libc::SYS_linkat),
    call(libc::SYS_renameat2),
    call(libc::SYS_unlinkat),
    // Time, waiting, threads, signals to this process.
    call(libc::SYS_clock_gettime),
    call(libc::SYS_clock_getres),
    call(libc::SYS_clock_nanosleep),
    call(libc::SYS_nanosleep),
    call(libc::SYS_gettimeofday),
    call(libc::SYS_ppoll),
    call(libc::SYS_pselect6),
    call(libc::SYS_restart_syscall),
    call_when(libc::SYS_clone, &[When::Has(0, THREAD), When::Lacks(0, NAMESPACES)]),
    call(libc::SYS_set_robust_list),
    call(libc::SYS_set_tid_address),
    call(libc::SYS_rseq),
    call(libc::SYS_membarrier),
    call(libc::SYS_sched_yield),
    call(libc::SYS_sched_getaffinity),
    call(libc::SYS_getcpu),
    call(libc::SYS_gettid),
    call(libc::SYS_getpid),
    call(libc::SYS_getppid),
    call_when(libc::SYS_tgkill, &[When::Own(0)]),
    call(libc::SYS_rt_sigaction),
    call(libc::SYS_rt_sigprocmask),
    call(libc::SYS_rt_sigreturn),
    call(libc::SYS_sigaltstack),
    // A pager that was started before.
    call(libc::SYS_wait4),
    call(libc::SYS_waitid),
    // Facts of the process and the machine.
    call(libc::SYS_getrandom),
    call(libc::SYS_getuid),
    call(libc::SYS_geteuid),
    call(libc::SYS_getgid),
    call(libc::SYS_getegid),
    call(libc::SYS_umask),
    call(libc::SYS_uname),
    call(libc::SYS_sysinfo),
    call(libc::SYS_getrusage),
    call_when(libc::SYS_prlimit64, &[When::Null(2)]),
    call(libc::SYS_getrlimit),
    call_when(libc::SYS_prctl, &[When::OneOf(0, NAMES)]),
    call(libc::SYS_exit),
    call(libc::SYS_exit_group),
];

/// Calls that only this machine has, mostly older forms.
#[cfg(target_arch = "x86_64")]
const OF_MACHINE: &[Call] = &[
    call(libc::SYS_open),
    call(libc::SYS_stat),
    call(libc::SYS_lstat),
    call(libc::SYS_access),
    call(libc::SYS_readlink),
    call(libc::SYS_poll),
    call(libc::SYS_select),
    call(libc::SYS_dup2),
    call(libc::SYS_rename),
    call(libc::SYS_renameat),
    call(libc::SYS_unlink),
    call(libc::SYS_link),
    call(libc::SYS_time),
    call(libc::SYS_arch_prctl),
];
#[cfg(target_arch = "aarch64")]
const OF_MACHINE: &[Call] = &[call(libc::SYS_renameat)];
#[cfg(target_arch = "riscv64")]
const OF_MACHINE: &[Call] = &[];

/// What a screen needs beside it: its terminal, and the pair of sockets by which a signal wakes it.
const SCREEN: &[Call] = &[
    call_when(libc::SYS_ioctl, SETS_TERMINAL),
    call(libc::SYS_epoll_create1),
    call(libc::SYS_epoll_ctl),
    call(libc::SYS_epoll_pwait),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_epoll_wait),
    call(libc::SYS_eventfd2),
    call(libc::SYS_pipe2),
    // AF_UNIX.
    call_when(libc::SYS_socketpair, &[When::OneOf(0, &[1])]),
    // To the other end, and to no address.
    call_when(libc::SYS_sendto, &[When::Null(4)]),
    call(libc::SYS_recvfrom),
];
