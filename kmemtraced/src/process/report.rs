//! `kmemtrace-report`, which is a child process of this program, and the user for whom sudo runs it.

use std::path::{Path, PathBuf};

/// Path of `kmemtrace-report`: the one beside this program, or else the one in PATH.
pub(crate) fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|me| me.with_file_name("kmemtrace-report")).filter(|p| p.exists());
    // The first argument is all that is known of this program's path without /proc.
    let called = || std::env::args_os().next().map(|me| Path::new(&me).with_file_name("kmemtrace-report"));
    beside.or_else(|| called().filter(|p| p.exists())).unwrap_or_else(|| "kmemtrace-report".into())
}

/// User and group for whom sudo runs this program as root; `None` without sudo, and for root.
pub(crate) fn caller() -> Option<(u32, u32)> {
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok().filter(|id| *id > 0 && *id < u32::MAX);
    id("SUDO_UID").zip(id("SUDO_GID")).filter(|_| rustix::process::geteuid().is_root())
}
