//! The live screen: `kmemtrace-report top` as another user, without privileges.

use std::env;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use anyhow::Context;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::options::Options;
use crate::process::report;

/// Bytes that leave the alternate screen and show the cursor.
const LEAVE: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// Running screen, and the terminal as it was before.
pub(super) struct Screen {
    child: Child,
    terminal: Option<Termios>,
}

impl Screen {
    /// Starts the screen in the trace directory: the user that it runs as may not reach it by its path.
    pub(super) fn start(options: &Options, reader: Option<(u32, u32)>) -> anyhow::Result<Screen> {
        let program = report::program();
        let program =
            if program.components().count() > 1 { program.canonicalize().unwrap_or(program) } else { program };
        let save_in = env::current_dir().unwrap_or_else(|_| env::temp_dir());
        let terminal = tcgetattr(io::stdin()).ok();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        let here =
            rustix::fs::openat(CWD, ".", flags, Mode::empty()).context("the current directory cannot be opened")?;
        let shown = options.dir.display();
        rustix::process::chdir(&options.dir).with_context(|| format!("{shown}: cannot be entered"))?;
        let spawned = report::spawn(&program, reader, |command| {
            command.arg("top").arg("--flush").arg(format!("{}ns", options.flush.as_nanos()));
            command.arg("--save-in").arg(&save_in).arg(".");
            Ok(())
        });
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
