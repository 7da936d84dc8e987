//! The start of a viewer: a process with no rights, of a user that nobody else is, which has a few descriptors and nothing more.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, bail};
use kmemtrace_sandbox::child::{self, Bare};
use rustix::io::Errno;

use super::identity::Identity;

/// Variables that a viewer gets: its terminal, its language, and the time zone.
const VARIABLES: [&str; 9] = ["TERM", "COLORTERM", "NO_COLOR", "LINES", "COLUMNS", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];

/// Descriptors of a viewer.
pub(super) enum Descriptors {
    /// Of a screen: its terminal, the stream, and the pipe for saved screens.
    Screen { terminal: OwnedFd, stream: PipeReader, saved: OwnedFd },
    /// Of a program that prints: the stream, standard output and standard error.
    Lines { stream: PipeReader, output: OwnedFd, error: OwnedFd },
}

impl Descriptors {
    /// Gives a command its standard descriptors; returns those that are passed on beside them.
    fn give(&self, command: &mut Command) -> io::Result<Vec<OwnedFd>> {
        match self {
            Descriptors::Screen { terminal, stream, saved } => {
                let [input, output, error] = [terminal.try_clone()?, terminal.try_clone()?, terminal.try_clone()?];
                command.stdin(input).stdout(output).stderr(error);
                Ok(vec![stream.try_clone()?.into(), saved.try_clone()?])
            }
            Descriptors::Lines { stream, output, error } => {
                command.stdin(stream.try_clone()?).stdout(output.try_clone()?).stderr(error.try_clone()?);
                Ok(Vec::new())
            }
        }
    }
}

/// Started viewer.
pub(super) struct Started {
    pub(super) child: Child,
    /// Its user, held as long as it runs; `None`: it has that of this process.
    pub(super) identity: Option<Identity>,
}

/// Starts a viewer; `more` are variables beside those of this process.
pub(super) fn start(
    program: &Path,
    words: &[OsString],
    descriptors: &Descriptors,
    more: &[(&str, String)],
) -> anyhow::Result<Started> {
    let spawn = |identity: Option<&Identity>| -> io::Result<Child> {
        let spawn = |path: &Path| {
            let mut command = Command::new(path);
            command.args(words).env_clear().envs(environment()).envs(more.iter().cloned()).current_dir("/");
            let passed = descriptors.give(&mut command)?;
            let bare = Bare {
                identity: identity.map(|identity| (identity.number, identity.number)),
                has_terminal: matches!(descriptors, Descriptors::Screen { .. }),
            };
            child::strip(&mut command, bare, passed)?;
            command.spawn()
        };
        match spawn(program) {
            // The viewer's user cannot reach its path.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && identity.is_some() => {
                by_descriptor(program, spawn)
            }
            spawned => spawned,
        }
    };
    let identity = Identity::take();
    let spawned = match spawn(identity.as_ref()) {
        // In a user namespace there are no other users.
        Err(error) if is_without_users(&error) && identity.is_some() => spawn(None).map(|child| (child, None)),
        spawned => spawned.map(|child| (child, identity)),
    };
    let (child, identity) = spawned.with_context(|| format!("{}: cannot be run", program.display()))?;
    Ok(Started { child, identity })
}

/// Starts a program by an open file. The child does not keep it, so that a script cannot be started so.
fn by_descriptor(program: &Path, spawn: impl Fn(&Path) -> io::Result<Child>) -> io::Result<Child> {
    use std::os::fd::AsRawFd;
    let file = File::open(program)?;
    spawn(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
}

fn is_without_users(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::PERM))
}

/// Variables of this process that a viewer gets.
fn environment() -> impl Iterator<Item = (&'static str, OsString)> {
    VARIABLES.into_iter().filter_map(|name| Some((name, env::var_os(name)?)))
}

/// Absolute path of a program, which is searched for in `PATH` if its name has no folder.
pub(super) fn found(program: PathBuf) -> anyhow::Result<PathBuf> {
    let shown = program.display().to_string();
    if program.components().count() > 1 {
        return program.canonicalize().with_context(|| format!("{shown}: cannot be run"));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    match env::split_paths(&folders).map(|folder| folder.join(&program)).find(|path| is_program(path)) {
        Some(path) => Ok(path),
        None => bail!("{shown}: is neither beside this program nor in PATH: install it there"),
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// True where the locale's character set is UTF-8.
pub(super) fn is_unicode() -> bool {
    let set = |name: &&str| env::var_os(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
    has_utf8(&locale)
}

fn has_utf8(locale: &OsStr) -> bool {
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_program_is_found_in_a_folder_or_in_path() {
        assert!(found("sh".into()).unwrap().is_absolute());
        assert!(found("/bin/../bin/sh".into()).unwrap().is_absolute());
        assert!(found("no-such-program-here".into()).is_err() && found("/no/such/program".into()).is_err());
        assert!(has_utf8("de_DE.UTF-8".as_ref()) && has_utf8("C.utf8".as_ref()) && !has_utf8("C".as_ref()));
    }

    #[test]
    fn a_viewer_has_a_few_variables_descriptors_and_the_root_folder() {
        let (stream, _writer) = io::pipe().unwrap();
        let ((mut printed, output), (_errors, error)) = (io::pipe().unwrap(), io::pipe().unwrap());
        // No pipe beside `ls`: the shell has its ends open until it has started both programs.
        let script = "pwd; env | cut -d= -f1 | grep -vxE 'PWD|SHLVL|_' | sort; ls /proc/$$/fd; id -u";
        let words = ["-c", script].map(OsString::from);
        let descriptors = Descriptors::Lines { stream, output: output.into(), error: error.into() };
        let started = start(Path::new("/bin/sh"), &words, &descriptors, &[("COLUMNS", "99".to_owned())]).unwrap();
        drop(descriptors);
        let Started { mut child, identity } = started;
        let mut text = String::new();
        printed.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("/"));
        let (numbers, names): (Vec<_>, Vec<_>) = lines.partition(|word| word.parse::<u32>().is_ok());
        assert!(names.iter().all(|name| VARIABLES.contains(name)) && names.contains(&"COLUMNS"), "{text}");
        let user = identity.map_or(rustix::process::geteuid().as_raw(), |identity| identity.number);
        assert_eq!(numbers, ["0", "1", "2", &user.to_string()], "{text}");
    }
}
