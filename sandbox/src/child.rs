//! A child process between fork and exec: the descriptors that it gets, and what it gives up.
//!
//! What is done here allocates nothing and takes no lock: another thread of the parent may have held it at the fork.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use rustix::fs::{Gid, Mode, Uid};
use rustix::process::{Resource, Rlimit, Signal};

use crate::capabilities::{self, Kept};
use crate::kernel;

/// Number of the first descriptor that is passed on.
pub const FIRST_PASSED: i32 = 3;

/// What a program without rights starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bare {
    /// User and group of its own; `None`: those of the parent.
    pub identity: Option<(u32, u32)>,
    /// Its standard output is its controlling terminal.
    pub has_terminal: bool,
}

/// Passes descriptors on to a child, as number 3 and the following ones.
///
/// # Errors
/// No descriptor is left.
pub fn pass(command: &mut Command, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    set_up(command, descriptors, None)
}

/// Starts the child in a session of its own, without groups, capabilities, core dumps, a terminal that it was not given, and all
/// descriptors but 0 to 2 and `descriptors`, which are 3 and the following ones. It can get no privileges by exec, and is killed once the
/// calling thread has ended.
///
/// # Errors
/// No descriptor is left. The start of the child fails with EINVAL where there is no such user.
pub fn strip(command: &mut Command, bare: Bare, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    set_up(command, descriptors, Some(bare))
}

fn set_up(command: &mut Command, descriptors: Vec<OwnedFd>, bare: Option<Bare>) -> io::Result<()> {
    let first_free = FIRST_PASSED + i32::try_from(descriptors.len()).map_err(io::Error::other)?;
    // The numbers are taken until the exec: the library would put a pipe of its own there.
    let null = std::fs::File::open("/dev/null")?;
    let mut taken = Vec::new();
    for number in FIRST_PASSED..first_free {
        if kernel::is_free(number) {
            taken.push(rustix::io::fcntl_dupfd_cloexec(&null, number)?);
        }
    }
    let moved: Result<Vec<OwnedFd>, _> =
        descriptors.iter().map(|descriptor| rustix::io::fcntl_dupfd_cloexec(descriptor, first_free)).collect();
    let setup = ChildSetup { passed: moved?, first_free, bare, _taken: taken };
    kernel::before_exec(command, move || setup.apply());
    Ok(())
}

/// What a child does before its exec.
struct ChildSetup {
    passed: Vec<OwnedFd>,
    /// Number of the first descriptor behind those that are passed on.
    first_free: i32,
    bare: Option<Bare>,
    _taken: Vec<OwnedFd>,
}

impl ChildSetup {
    /// Runs in the child.
    fn apply(&self) -> io::Result<()> {
        for (descriptor, number) in self.passed.iter().zip(FIRST_PASSED..) {
            kernel::place(descriptor.as_fd(), number)?;
        }
        self.bare.map_or(Ok(()), |bare| strip_process(bare, self.first_free))
    }
}

fn strip_process(bare: Bare, first_free: i32) -> io::Result<()> {
    rustix::process::setsid()?;
    if bare.has_terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdout())?;
    }
    kernel::close_at_exec_from(first_free);
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    capabilities::drop_bounding_set()?;
    match bare.identity {
        Some((user, group)) => {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(group, group, group)?;
            rustix::thread::set_thread_res_uid(user, user, user)?;
        }
        // Fails without the right to, and in user namespaces.
        None => drop(rustix::thread::set_thread_groups(&[])),
    }
    capabilities::drop_all_but(Kept::none())?;
    rustix::thread::set_no_new_privs(true)?;
    // A change of the user would take it back.
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::process::Stdio;

    use super::*;

    /// What a shell prints that starts so.
    fn printed(script: &str, set_up: impl Fn(&mut Command, Vec<OwnedFd>) -> io::Result<()>) -> String {
        let (reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(writer.try_clone().unwrap());
        let (input, mut other) = io::pipe().unwrap();
        io::Write::write_all(&mut other, b"passed on\n").unwrap();
        drop(other);
        set_up(&mut command, vec![input.into()]).unwrap();
        let mut child = command.spawn().unwrap();
        drop((command, writer));
        let mut text = String::new();
        io::BufReader::new(reader).read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        text
    }

    #[test]
    fn a_descriptor_is_passed_on_as_number_three() {
        assert_eq!(printed("cat <&3", pass), "passed on\n");
    }

    #[test]
    fn a_bare_child_has_nothing() {
        // One that this process would leave to a child.
        let stray = rustix::io::dup(std::fs::File::open("/dev/null").unwrap()).unwrap();
        assert!(stray.as_raw_fd() > 3);
        let bare = Bare { identity: None, has_terminal: false };
        let script = "cat <&3; ls /proc/self/fd | tr '\\n' ' '; echo; ulimit -c; grep -E 'Cap(Prm|Eff|Bnd|Inh)|NoNewPrivs' \
                      /proc/self/status; cat 2>&1 </dev/tty";
        let text = printed(script, |command, passed| strip(command, bare, passed));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("passed on"), "{text}");
        // The last one is the folder that is listed.
        assert_eq!(lines.next().map(str::trim), Some("0 1 2 3 4"), "{text}");
        assert_eq!(lines.next(), Some("0"), "no core: {text}");
        let is_root = rustix::process::geteuid().is_root();
        for line in lines.clone().filter(|line| line.starts_with("Cap") && (is_root || !line.starts_with("CapBnd"))) {
            assert!(line.ends_with("\t0000000000000000"), "{text}");
        }
        assert!(text.contains("NoNewPrivs:\t1"), "{text}");
        assert!(text.contains("/dev/tty"), "it has a terminal: {text}");
    }

    #[test]
    fn a_bare_child_is_another_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let bare = Bare { identity: Some((61_184, 61_185)), has_terminal: false };
        let text = printed("id -u; id -g; id -G", |command, passed| strip(command, bare, passed));
        assert_eq!(text, "61184\n61185\n61185\n");
    }
}
