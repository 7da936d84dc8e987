//! Older releases: clocks, system calls and addresses of pages.

/// Address of the first `struct page`, and the bytes of one.
const PAGES: (u64, u64) = (0xffff_ea00_0000_0000, 64);

/// An older release.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// First two numbers.
    pub numbers: (u32, u32),
    /// Text of a distribution's kernel of that release.
    pub release: &'static str,
    /// GFP_KERNEL, `include/linux/gfp.h`.
    pub(super) gfp_kernel: u32,
}

/// The last release without instances that people still run.
pub const WITHOUT_INSTANCES: Version = Version { numbers: (2, 6), release: "2.6.32-754.el6.x86_64", gfp_kernel: 0xd0 };

/// Releases with instances, oldest first.
pub const VERSIONS: [Version; 6] = [
    Version { numbers: (3, 10), release: "3.10.0-1160.el7.x86_64", gfp_kernel: 0xd0 },
    Version { numbers: (4, 4), release: "4.4.0-210-generic", gfp_kernel: 0x0240_00c0 },
    Version { numbers: (4, 14), release: "4.14.336", gfp_kernel: 0x0140_00c0 },
    Version { numbers: (4, 18), release: "4.18.0-553.el8_10.x86_64", gfp_kernel: 0x0060_00c0 },
    Version { numbers: (4, 19), release: "4.19.0-27-amd64", gfp_kernel: 0x0060_00c0 },
    Version { numbers: (5, 4), release: "5.4.0-216-generic", gfp_kernel: 0xcc0 },
];

/// System calls that came after Linux 3.10, with their release.
pub(super) const SYSTEM_CALLS: [(&str, (u32, u32)); 36] = [
    ("sched_setattr", (3, 14)),
    ("sched_getattr", (3, 14)),
    ("renameat2", (3, 15)),
    ("seccomp", (3, 17)),
    ("getrandom", (3, 17)),
    ("memfd_create", (3, 17)),
    ("bpf", (3, 18)),
    ("execveat", (3, 19)),
    ("userfaultfd", (4, 3)),
    ("membarrier", (4, 3)),
    ("mlock2", (4, 4)),
    ("copy_file_range", (4, 5)),
    ("preadv2", (4, 6)),
    ("pwritev2", (4, 6)),
    ("statx", (4, 11)),
    ("rseq", (4, 18)),
    ("io_uring_setup", (5, 1)),
    ("pidfd_send_signal", (5, 1)),
    ("fsopen", (5, 2)),
    ("fsconfig", (5, 2)),
    ("fsmount", (5, 2)),
    ("fspick", (5, 2)),
    ("open_tree", (5, 2)),
    ("move_mount", (5, 2)),
    ("pidfd_open", (5, 3)),
    ("clone3", (5, 3)),
    ("openat2", (5, 6)),
    ("pidfd_getfd", (5, 6)),
    ("faccessat2", (5, 8)),
    ("close_range", (5, 9)),
    ("process_madvise", (5, 10)),
    ("epoll_pwait2", (5, 11)),
    ("mount_setattr", (5, 12)),
    ("landlock_create_ruleset", (5, 13)),
    ("futex_waitv", (5, 16)),
    ("fchmodat2", (6, 6)),
];

impl Version {
    /// True if the release has what `since` brought.
    pub(super) fn has(self, since: (u32, u32)) -> bool {
        self.numbers >= since
    }

    /// Clocks in the order of `kernel/trace/trace.c`.
    pub(super) fn clocks(self) -> Vec<&'static str> {
        let since = [("mono", (3, 17)), ("mono_raw", (4, 2)), ("boot", (4, 10))];
        let later = since.into_iter().filter(|(_, since)| self.has(*since)).map(|(clock, _)| clock);
        ["local", "global", "counter", "uptime", "perf"].into_iter().chain(later).chain(["x86-tsc"]).collect()
    }

    /// Key of a frame in the events of pages, as a report has it: a frame's number, or the address of its `struct page`.
    pub fn frame_key(self, frame: u64) -> u64 {
        if self.has((4, 1)) { frame } else { PAGES.0 + frame * PAGES.1 }
    }
}
