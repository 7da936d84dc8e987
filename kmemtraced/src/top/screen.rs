//! The live screen: `kmemtrace-report top` as another user, without privileges.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use anyhow::Context;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::options::Options;
use crate::record::command::report_program;

/// User and group without rights where the machine names none.
const NO_RIGHTS: u32 = 65534;
/// Bytes that leave the alternate screen and show the cursor.
const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// User and group that the screen runs as: those that sudo runs this program for, else those without rights; `None` where this process has no
/// privileges to give up.
pub(super) fn reader() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let id = |name: &str| env::var(name).ok()?.parse::<u32>().ok().filter(|id| *id > 0 && *id < u32::MAX);
    id("SUDO_UID").zip(id("SUDO_GID")).or_else(without_rights).or(Some((NO_RIGHTS, NO_RIGHTS)))
}

/// User and group without rights, as the machine names them.
fn without_rights() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().find(|line| line.starts_with("nobody:"))?.split(':').skip(2);
    let mut id = || fields.next()?.parse::<u32>().ok().filter(|id| *id > 0 && *id < u32::MAX);
    Some((id()?, id()?))
}

/// Running screen, and the terminal as it was before.
pub(super) struct Screen {
    child: Child,
    terminal: Option<Termios>,
}

impl Screen {
    /// Starts the screen in the trace directory: the user that it runs as may not reach it by its path.
    pub(super) fn start(options: &Options, reader: Option<(u32, u32)>) -> anyhow::Result<Screen> {
        let program = report_program();
        let program =
            if program.components().count() > 1 { program.canonicalize().unwrap_or(program) } else { program };
        let save_in = env::current_dir().unwrap_or_else(|_| env::temp_dir());
        let terminal = tcgetattr(io::stdin()).ok();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        let here =
            rustix::fs::openat(CWD, ".", flags, Mode::empty()).context("the current directory cannot be opened")?;
        let shown = options.dir.display();
        rustix::process::chdir(&options.dir).with_context(|| format!("{shown}: cannot be entered"))?;
        let spawned = spawn(&program, options, &save_in, reader);
        rustix::process::fchdir(&here).context("the current directory cannot be entered again")?;
        let child = spawned.with_context(|| format!("{}: cannot be run as another user", program.display()))?;
        Ok(Screen { child, terminal })
    }

    /// End of the screen, if it has ended.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    pub(super) fn ask_to_end(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Gives the terminal its state back, where the screen was killed and could not.
    pub(super) fn restore(&self, status: ExitStatus) {
        let Some(signal) = status.signal() else { return };
        if let Some(terminal) = &self.terminal {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, terminal);
        }
        let _ = io::stdout().write_all(LEAVE).and_then(|()| io::stdout().flush());
        let _ = writeln!(io::stderr(), "kmemtraced: the screen was killed by signal {signal}: the recording has ended");
    }
}

/// Starts the program, by its descriptor where the other user cannot reach its path.
fn spawn(program: &Path, options: &Options, save_in: &Path, reader: Option<(u32, u32)>) -> io::Result<Child> {
    let start = |program: &Path| {
        let mut command = Command::new(program);
        command.arg("top").arg("--flush").arg(format!("{}ns", options.flush.as_nanos()));
        command.arg("--save-in").arg(save_in).arg(".");
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
