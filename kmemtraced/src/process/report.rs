//! `kmemtrace-report` as a child process that shows what is recorded, without the recorder's privileges.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::io::FdFlags;

/// User and group without rights where the machine names none.
const NO_RIGHTS: u32 = 65534;

/// Path of `kmemtrace-report`: the one beside this program, or else the one in PATH.
pub(crate) fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|me| me.with_file_name("kmemtrace-report")).filter(|p| p.exists());
    // The first argument is all that is known of this program's path without /proc.
    let called = || std::env::args_os().next().map(|me| Path::new(&me).with_file_name("kmemtrace-report"));
    beside.or_else(|| called().filter(|p| p.exists())).unwrap_or_else(|| "kmemtrace-report".into())
}

/// User and group that the child runs as: those that sudo runs this program for, else those without rights; `None` where this process has no
/// privileges to give up.
pub(crate) fn reader() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    caller().or_else(without_rights).or(Some((NO_RIGHTS, NO_RIGHTS)))
}

/// User and group for whom sudo runs this program as root; `None` without sudo, and for root.
pub(crate) fn caller() -> Option<(u32, u32)> {
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok().filter(|id| *id > 0 && *id < u32::MAX);
    id("SUDO_UID").zip(id("SUDO_GID")).filter(|_| rustix::process::geteuid().is_root())
}

/// User and group without rights, as the machine names them.
fn without_rights() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().find(|line| line.starts_with("nobody:"))?.split(':').skip(2);
    let mut id = || fields.next()?.parse::<u32>().ok().filter(|id| *id > 0 && *id < u32::MAX);
    Some((id()?, id()?))
}

/// Starts the program as the `reader`, by its descriptor where that user cannot reach its path; `prepare` sets its words and files.
pub(crate) fn spawn(
    program: &Path,
    reader: Option<(u32, u32)>,
    prepare: impl Fn(&mut Command) -> io::Result<()>,
) -> io::Result<Child> {
    let start = |program: &Path| {
        let mut command = Command::new(program);
        prepare(&mut command)?;
        if let Some((user, group)) = reader {
            command.uid(user).gid(group);
        }
        command.spawn()
    };
    match start(program) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && program.is_absolute() => {
            let file = File::open(program)?;
            rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
            start(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
        }
        started => started,
    }
}
