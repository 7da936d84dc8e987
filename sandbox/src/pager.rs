//! Pager of texts that are longer than the screen.
//!
//! Its process is started before the sandbox is closed, and stays outside. It is this program again, with [`WORD`] as its command line: it
//! waits for text in its pipe, and becomes the pager when some comes. It ends if none does.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// First word of the command line of the process that becomes the pager.
pub const WORD: &str = "--become-the-pager";
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

/// Process that becomes the pager with the first byte that is written to it.
#[derive(Debug)]
pub struct Pager {
    child: Child,
    pipe: ChildStdin,
}

impl Pager {
    /// Starts the process, if standard output is a terminal and the variables do not refuse a pager. Without a second process there is
    /// none either: the text goes to the terminal as it is.
    pub fn start() -> Option<Pager> {
        if !io::stdout().is_terminal() || chosen().is_none() {
            return None;
        }
        let program = env::current_exe().ok()?;
        let mut child = Command::new(program).arg(WORD).stdin(Stdio::piped()).spawn().ok()?;
        let pipe = child.stdin.take()?;
        Some(Pager { child, pipe })
    }

    /// Ends the text, and waits until the user leaves the pager.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn end(self) -> io::Result<()> {
        let Pager { mut child, pipe } = self;
        drop(pipe);
        child.wait().map(|_| ())
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pipe.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
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
pub fn wait_for_text() -> ExitCode {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_replace_is_not_of_root() {
        assert!(is_of_root(Path::new("/")));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(LESS);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_of_root(&file), "all may write it");
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
