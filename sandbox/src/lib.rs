//! The sandbox of a program: what it may still do once it has read its command line and before it reads a byte of its input.
//!
//! There are four layers, in this order: capabilities are dropped (`capabilities`), `no_new_privs` keeps a later exec from giving
//! any back, landlock limits which files can be opened (`landlock`), and seccomp which system calls can be made (`filter`, with
//! the lists in `calls` and `recorder_calls`). A layer holds for the calling thread and the threads that it creates: readers close the
//! sandbox before there are others, each thread of the recorder closes its own.
//!
//! A pager (`pager`) is started before, and stays outside.
//!
//! What a layer cannot do is told where it is defined. All system calls without a safe wrapper are in `kernel`, the one module with
//! `unsafe`.

mod call;
mod calls;
mod capabilities;
pub mod child;
mod filter;
mod folders;
mod kernel;
mod landlock;
pub mod pager;
mod reader;
mod recorder_calls;
mod role;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

pub use capabilities::Kept;
pub use folders::Purpose;
use folders::Rules;
pub use kernel::written_back;
pub use role::Role;

thread_local! {
    /// True once the thread has closed a sandbox that refuses system calls with EPERM.
    static REFUSES_CALLS: Cell<bool> = const { Cell::new(false) };
}

/// How much of a sandbox there has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All layers that the kernel has. A system call outside of the list fails with EPERM.
    #[default]
    Auto,
    /// All layers, or none of the work is done. A system call outside of the list ends the program with SIGSYS.
    Strict,
    /// None.
    Off,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Auto, Mode::Strict, Mode::Off];

    /// Word for the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Strict => "strict",
            Mode::Off => "off",
        }
    }
}

/// Layer of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Capabilities,
    NoNewPrivileges,
    Landlock,
    Seccomp,
}

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Layer::Capabilities => "capabilities",
            Layer::NoNewPrivileges => "no_new_privs",
            Layer::Landlock => "landlock",
            Layer::Seccomp => "seccomp",
        }
    }
}

/// A layer that cannot be had, and the reason.
#[derive(Debug)]
pub struct Missing {
    layer: Layer,
    why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.layer.name(), self.why)
    }
}

/// Rules of a sandbox that is not closed yet.
#[derive(Debug)]
pub struct Sandbox {
    role: Role,
    kept: Kept,
    rules: Rules,
    /// False where landlock leaves signals to other processes alone.
    limits_signals: bool,
}

impl Sandbox {
    /// A sandbox in which no file can be opened.
    pub fn new(role: Role) -> Sandbox {
        Sandbox { role, kept: Kept::none(), rules: Rules::default(), limits_signals: true }
    }

    /// Keeps capabilities, where the process has them.
    pub fn keep(&mut self, kept: Kept) {
        self.kept = self.kept.with(kept);
    }

    /// Keeps landlock from refusing signals to other processes; the list of system calls still refuses them. The kernel sends the signal
    /// that a child gets when its parent ends (`PR_SET_PDEATHSIG`) on behalf of the thread that forked it, and landlock would refuse it.
    pub fn keep_signals(&mut self) {
        self.limits_signals = false;
    }

    /// Allows to read a file, or all that is beneath a folder.
    pub fn read(&mut self, path: impl AsRef<Path>) {
        self.rules.add(Purpose::Read, path.as_ref());
    }

    /// Allows to list a folder and those beneath it.
    pub fn list(&mut self, path: impl AsRef<Path>) {
        self.rules.add(Purpose::List, path.as_ref());
    }

    /// Allows to make, write, replace and remove files in a folder and those beneath it. An empty path is the working directory.
    pub fn write(&mut self, path: impl AsRef<Path>) {
        self.rules.add(Purpose::Write, path.as_ref());
    }

    /// Allows to write to a device.
    pub fn device(&mut self, path: impl AsRef<Path>) {
        self.rules.add(Purpose::Device, path.as_ref());
    }

    /// Allows this beneath a folder that is held, whatever path leads to it by now.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn allow(&mut self, purpose: Purpose, folder: impl AsFd, shown: &Path) -> io::Result<()> {
        self.rules.add_held(purpose, folder.as_fd().try_clone_to_owned()?, shown);
        Ok(())
    }

    /// Lines about what can be read and written, for people.
    pub fn described(&self) -> Vec<String> {
        let list =
            |paths: Vec<PathBuf>| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let lines = [
            ("reads", &[Purpose::Read][..]),
            ("writes", &[Purpose::Write, Purpose::Control, Purpose::Device]),
            ("renames and removes folders in", &[Purpose::Replace, Purpose::RemoveFolders]),
        ];
        lines
            .into_iter()
            .map(|(what, purposes)| (what, self.rules.paths(purposes)))
            .filter(|(_, paths)| !paths.is_empty())
            .map(|(what, paths)| format!("sandbox: {what} {}", list(paths)))
            .collect()
    }

    /// Closes the sandbox around the calling thread and all threads that it creates. Returns the layers that are missing, and why.
    ///
    /// # Errors
    /// In the mode strict a layer that is missing; then the layers before it are closed nevertheless. In every mode a layer that the
    /// kernel has, for which memory or descriptors are lacking.
    pub fn close(&self, mode: Mode) -> Result<Vec<Missing>, Missing> {
        let mut missing = self.narrow(mode)?;
        if mode == Mode::Off {
            return Ok(missing);
        }
        match filter::install(self.role, mode == Mode::Strict) {
            Ok(()) => REFUSES_CALLS.set(mode == Mode::Auto),
            Err(error) => missing.push(lacking(mode, Layer::Seccomp, &error)?),
        }
        Ok(missing)
    }

    /// Closes all layers but that of system calls, as [`Sandbox::close`] does. A thread gives away by this what it had in a sandbox that
    /// it has closed before.
    ///
    /// # Errors
    /// As those of [`Sandbox::close`].
    pub fn narrow(&self, mode: Mode) -> Result<Vec<Missing>, Missing> {
        if mode == Mode::Off {
            return Ok(Vec::new());
        }
        let no_new_privileges = || rustix::thread::set_no_new_privs(true).map_err(io::Error::from);
        let closings: [(Layer, &dyn Fn() -> io::Result<()>); 3] = [
            (Layer::Capabilities, &|| capabilities::drop_all_but(self.kept)),
            (Layer::NoNewPrivileges, &no_new_privileges),
            (Layer::Landlock, &|| landlock::restrict(&self.rules, self.limits_signals)),
        ];
        let mut missing = Vec::new();
        for (layer, close) in closings {
            if let Err(error) = close() {
                missing.push(lacking(mode, layer, &error)?);
            }
        }
        Ok(missing)
    }
}

/// Takes over a descriptor that the parent process has passed on ([`child::pass`]); to be called once for a number, before another file is
/// opened.
///
/// # Errors
/// There is none of this number.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    kernel::inherited(number)
}

/// The layer that is missing; an error where the mode does not let it be, or where only memory or descriptors are lacking.
fn lacking(mode: Mode, layer: Layer, error: &io::Error) -> Result<Missing, Missing> {
    let lack = Missing { layer, why: reason(layer, error) };
    if mode == Mode::Strict || is_lack_of_resources(error) { Err(lack) } else { Ok(lack) }
}

/// Forks, before the first thread is started: a process that keeps the rights that this one gives away. Returns its id; `None` in the new
/// process.
///
/// # Errors
/// The kernel's reason: no memory, or too many processes.
pub fn fork_first() -> io::Result<Option<i32>> {
    kernel::fork().map(|id| Some(id).filter(|id| *id != 0))
}

/// True where an error may come from a system call that the sandbox of this thread refused: EPERM, and system calls outside of the list
/// get that.
pub fn may_have_refused(error: &io::Error) -> bool {
    refuses_calls() && error.raw_os_error() == Some(Errno::PERM.raw_os_error())
}

/// True once system calls outside of a list fail with EPERM in this thread.
pub fn refuses_calls() -> bool {
    REFUSES_CALLS.get()
}

/// True for an error that has nothing to do with what the kernel can.
fn is_lack_of_resources(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM].iter().any(|lack| error.raw_os_error() == Some(lack.raw_os_error()))
}

fn reason(layer: Layer, error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else { return error.to_string() };
    let since = match layer {
        Layer::Landlock => "needs Linux 5.13 with landlock in the list of its security modules",
        Layer::Seccomp => "needs Linux 3.17 with CONFIG_SECCOMP_FILTER",
        Layer::NoNewPrivileges => "needs Linux 3.5",
        Layer::Capabilities => return error.to_string(),
    };
    match Errno::from_raw_os_error(number) {
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL => format!("this kernel has none: it {since}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::ErrorKind;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Runs in a sandbox of its own: a layer holds for the thread that closes it.
    fn within(sandbox: Sandbox, work: impl FnOnce(&[Missing]) + Send + 'static) {
        let thread = thread::spawn(move || work(&sandbox.close(Mode::Auto).unwrap()));
        thread.join().unwrap();
    }

    fn has(missing: &[Missing], layer: Layer) -> bool {
        missing.iter().all(|lack| lack.layer != layer)
    }

    #[test]
    fn only_what_is_allowed_can_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        ["in", "out", "other"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        ["in/file", "out/old", "other/file"].iter().for_each(|name| fs::write(at(name), "bytes").unwrap());
        let mut sandbox = Sandbox::new(Role::Reader);
        sandbox.read(at("in"));
        sandbox.read(at("absent"));
        sandbox.write(at("out"));
        let paths = ["in/file", "in/new", "out/new", "out/old", "other/file", "other/new"].map(at);
        within(sandbox, move |missing| {
            if !has(missing, Layer::Landlock) {
                return;
            }
            let [input, made, output, old, other, elsewhere] = paths;
            let is_refused = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
            assert_eq!(fs::read(&input).unwrap(), b"bytes");
            fs::write(&output, "new").unwrap();
            fs::rename(&output, &old).unwrap();
            assert!(File::open(&other).is_err_and(is_refused));
            assert!(OpenOptions::new().append(true).open(&input).is_err_and(is_refused));
            for path in [&made, &elsewhere] {
                assert!(File::create(path).is_err_and(is_refused));
            }
            assert!(fs::remove_file(&other).is_err_and(is_refused));
            assert!(fs::rename(&old, &elsewhere).is_err());
        });
        assert_eq!(fs::read(at("out/old")).unwrap(), b"new");
    }

    #[test]
    fn a_folder_that_is_held_is_the_one_that_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        ["control", "above/below", "elsewhere"].iter().for_each(|name| fs::create_dir_all(at(name)).unwrap());
        ["control/switch", "above/below/file"].iter().for_each(|name| fs::write(at(name), "0").unwrap());
        let mut sandbox = Sandbox::new(Role::Recorder);
        for (purpose, name) in [(Purpose::Control, "control"), (Purpose::Replace, "above")] {
            sandbox.allow(purpose, File::open(at(name)).unwrap(), Path::new(name)).unwrap();
        }
        // What has the path by now is another folder.
        fs::rename(at("control"), at("moved")).unwrap();
        fs::create_dir(at("control")).unwrap();
        let names = ["moved/switch", "moved/new", "control/new", "above/below", "above/renamed", "elsewhere"].map(at);
        within(sandbox, move |missing| {
            if !has(missing, Layer::Landlock) {
                return;
            }
            let [switch, beside, other, below, renamed, elsewhere] = names;
            let is_refused = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
            OpenOptions::new().write(true).open(&switch).unwrap();
            assert!(File::create(&beside).is_err_and(is_refused) && File::create(&other).is_err_and(is_refused));
            rustix::fs::renameat(rustix::fs::CWD, &below, rustix::fs::CWD, &renamed).unwrap();
            assert!(File::create(renamed.join("new")).is_err_and(is_refused));
            fs::remove_dir_all(&renamed).unwrap();
            assert!(fs::remove_dir(&elsewhere).is_err_and(is_refused));
        });
    }

    #[test]
    fn a_call_outside_of_the_list_may_have_been_refused() {
        within(Sandbox::new(Role::Reader), |missing| {
            let refused = TcpListener::bind("127.0.0.1:0").unwrap_err();
            assert_eq!(may_have_refused(&refused), has(missing, Layer::Seccomp));
            assert!(!may_have_refused(&io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error())));
        });
    }

    #[test]
    fn no_capability_is_left_but_those_that_are_kept() {
        let mut sandbox = Sandbox::new(Role::Reader);
        sandbox.keep(Kept::files());
        let before = rustix::thread::capabilities(None).unwrap().permitted;
        let (send, receive) = std::sync::mpsc::channel();
        // The thread may not ask any more: its state tells.
        sandbox.read("/proc/self");
        within(sandbox, move |_| send.send(fs::read_to_string("/proc/thread-self/status").unwrap()).unwrap());
        let status = receive.recv().unwrap();
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
        let left = before.bits() & 0b110;
        assert_eq!([set("CapEff:"), set("CapPrm:"), set("CapInh:"), set("CapAmb:")], [left, left, 0, 0]);
        if before.contains(rustix::thread::CapabilitySet::SETPCAP) {
            assert_eq!(set("CapBnd:") & !0b110, 0);
        }
    }

    #[test]
    fn off_is_no_sandbox() {
        let closed = thread::spawn(|| {
            let missing = Sandbox::new(Role::Reader).close(Mode::Off).unwrap();
            missing.is_empty() && File::open("/proc/self/status").is_ok() && TcpListener::bind("127.0.0.1:0").is_ok()
        });
        assert!(closed.join().unwrap());
    }
}
