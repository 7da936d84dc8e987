//! Pager of texts that are longer than the screen.
//!
//! The pager's process is started before the input is opened, when the report may still start programs. It is this program again: it
//! waits for text in its pipe, and becomes the pager when some comes. It ends if none does.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::screen;

/// First word of the command line of the process that becomes the pager.
pub(crate) const WORD: &str = "--become-the-pager";
/// Pager where no variable names one.
const LESS: &str = "less";
/// Options of less where the user has none: leave a short text on the screen, pass colours on, keep the text at the end.
const LESS_OPTIONS: &str = "FRX";
/// Variables that name a pager; the first one that is set counts.
const VARIABLES: [&str; 2] = ["KMEMTRACE_PAGER", "PAGER"];
/// Variables that the programs set which run a command for another user.
const CALLERS: [&str; 2] = ["SUDO_UID", "PKEXEC_UID"];
/// Variables that a pager with another user's rights gets.
const PASSED_ON: [&str; 6] = ["TERM", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES"];
/// Mode bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bit of a directory whose files only their owners replace.
const STICKY: u32 = 0o1000;

/// Process that waits for text, until the first output to the terminal takes it.
static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);

/// Process that becomes the pager with the first byte.
struct Waiting {
    child: Child,
    pipe: ChildStdin,
    /// Lines and columns of the screen.
    size: (usize, usize),
}

/// Starts the process that becomes the pager, if standard output is a terminal and the variables do not refuse one.
pub(crate) fn start() {
    let Some(size) = screen::terminal_size().filter(|_| io::stdout().is_terminal()) else { return };
    if chosen().is_none() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let spawned = Command::new(program).arg(WORD).stdin(Stdio::piped()).spawn();
    // Without a second process the text goes to the terminal as it is.
    let Ok(mut child) = spawned else { return };
    let Some(pipe) = child.stdin.take() else { return };
    *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(Waiting { child, pipe, size });
}

/// Command of the pager: its words, and whether it runs with another user's rights. `None` for no pager.
fn chosen() -> Option<(Vec<OsString>, bool)> {
    let is_for_another = CALLERS.iter().any(|name| env::var_os(name).is_some());
    if is_for_another {
        return trusted_less().map(|less| (vec![less.into()], true));
    }
    let line = VARIABLES.iter().find_map(env::var_os).unwrap_or_else(|| LESS.into());
    let words: Vec<OsString> = match line.to_str() {
        // A line for the shell, as for other programs that read PAGER.
        Some(text) if text.contains(['\'', '"', '$', '|', ';', '&', '<', '>', '\\', '`', '*', '?', '~', '=']) => {
            ["sh", "-c", text].map(OsString::from).into()
        }
        Some(text) => text.split_whitespace().map(OsString::from).collect(),
        None => vec![line],
    };
    let is_none = words.is_empty() || words[..] == ["cat"];
    (!is_none).then_some((words, false))
}

/// `less` of root in a directory of root: anything else in the path may be the caller's own.
fn trusted_less() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).chain(["/usr/bin".into(), "/bin".into()]).map(|dir| dir.join(LESS));
    found.filter_map(|file| fs::canonicalize(file).ok()).find(|file| file.ancestors().all(is_of_root))
}

/// True for what only root can change or replace.
fn is_of_root(path: &Path) -> bool {
    let is_safe = |found: fs::Metadata| {
        let mode = found.permissions().mode();
        found.uid() == 0 && (mode & OTHERS_WRITE == 0 || found.is_dir() && mode & STICKY != 0)
    };
    fs::symlink_metadata(path).is_ok_and(is_safe)
}

/// Waits for text on standard input and becomes the pager; the status of a process that got no text.
pub(crate) fn wait_for_text() -> ExitCode {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    while let Err(error) = poll(&mut polled, None) {
        if error != Errno::INTR {
            return ExitCode::FAILURE;
        }
    }
    if !polled[0].revents().contains(PollFlags::IN) {
        return ExitCode::SUCCESS;
    }
    if let Some((words, is_for_another)) = chosen() {
        let _ = command(&words, is_for_another).exec();
    }
    // The pager is not there: the text must not be lost.
    let copied = io::copy(&mut stdin.lock(), &mut io::stdout());
    if copied.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn command(words: &[OsString], is_for_another: bool) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if is_for_another {
        command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.env("LESS", LESS_OPTIONS).env("LESSSECURE", "1");
    } else if env::var_os("LESS").is_none() {
        command.env("LESS", LESS_OPTIONS);
    }
    command
}

/// Standard output that becomes a pager's text once it is longer than the screen.
pub(crate) struct Paged {
    waiting: Option<Waiting>,
    /// Text of the first screen, until it is known to be the whole one.
    first: Vec<u8>,
    is_long: bool,
}

impl Paged {
    /// Output through the process that waits; `None` if there is none.
    pub(crate) fn take() -> Option<Paged> {
        let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Paged { waiting: Some(waiting), first: Vec::new(), is_long: false })
    }

    /// Ends the text: a short one goes to the terminal, a long one stays in the pager until the user leaves it.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(Waiting { mut child, pipe, .. }) = self.waiting.take() else { return Ok(()) };
        drop(pipe);
        let ended = child.wait();
        if self.is_long {
            return ended.map(|_| ());
        }
        let mut stdout = io::stdout();
        stdout.write_all(&std::mem::take(&mut self.first)).and_then(|()| stdout.flush())
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(waiting) = &mut self.waiting else { return Ok(bytes.len()) };
        if self.is_long {
            return waiting.pipe.write(bytes);
        }
        self.first.extend_from_slice(bytes);
        let (lines, columns) = waiting.size;
        // The shell's prompt takes the last line.
        if screen::lines_of(&self.first, columns) >= lines {
            self.is_long = true;
            // Ctrl-C is the pager's; this program ends with it.
            let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::new(AtomicBool::new(false)));
            waiting.pipe.write_all(&std::mem::take(&mut self.first))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_replace_is_not_of_root() {
        assert!(is_of_root(Path::new("/")));
        let dir = tempfile_dir();
        let file = dir.join(LESS);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_of_root(&file), "all may write it");
        fs::remove_dir_all(dir).unwrap();
    }

    fn tempfile_dir() -> PathBuf {
        let dir = env::temp_dir().join(format!("kmemtrace-pager-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_pager_with_the_rights_of_another_gets_no_variables_of_the_caller() {
        let names = |is_for_another| -> Vec<String> {
            let command = command(&["less".into()], is_for_another);
            command.get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
        };
        let secure = names(true);
        assert!(secure.contains(&"LESSSECURE".to_owned()) && secure.contains(&"LESS".to_owned()), "{secure:?}");
        assert!(secure.iter().all(|name| ["LESS", "LESSSECURE"].contains(&&**name) || PASSED_ON.contains(&&**name)));
        assert!(!names(false).contains(&"LESSSECURE".to_owned()));
    }
}
