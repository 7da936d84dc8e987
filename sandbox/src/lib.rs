//! The sandbox of a program: what it may still do once it has read its command line and before it reads a byte of its input.
//!
//! There are four layers, in this order: capabilities are dropped ([`capabilities`]), `no_new_privs` keeps a later exec from giving
//! any back, landlock limits which files can be opened ([`landlock`]), and seccomp which system calls can be made ([`filter`], with
//! the list in [`calls`]). A layer holds for the calling thread and the threads that it creates, so the sandbox is closed before there
//! are others.
//!
//! What a layer cannot do is told where it is defined. All system calls without a safe wrapper are in [`kernel`], the one module with
//! `unsafe`.

mod calls;
mod capabilities;
mod filter;
mod folders;
mod kernel;
mod landlock;
mod reader;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

pub use capabilities::Kept;
use folders::Rules;

/// True once system calls outside of the list are refused with EPERM.
static REFUSES_CALLS: AtomicBool = AtomicBool::new(false);

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

/// What the program is, which decides the system calls that it may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads files and writes files and text.
    Reader,
    /// A reader that draws on a terminal and takes keys from it.
    Screen,
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
}

impl Sandbox {
    /// A sandbox in which no file can be opened.
    pub fn new(role: Role) -> Sandbox {
        Sandbox { role, kept: Kept::none(), rules: Rules::default() }
    }

    /// Keeps capabilities, where the process has them.
    pub fn keep(&mut self, kept: Kept) {
        self.kept = self.kept.with(kept);
    }

    /// Allows to read a file, or all that is beneath a folder.
    pub fn read(&mut self, path: impl AsRef<Path>) {
        self.rules.read(path.as_ref());
    }

    /// Allows to list a folder and those beneath it.
    pub fn list(&mut self, path: impl AsRef<Path>) {
        self.rules.list(path.as_ref());
    }

    /// Allows to make, write, replace and remove files in a folder and those beneath it. An empty path is the working directory.
    pub fn write(&mut self, path: impl AsRef<Path>) {
        self.rules.write(path.as_ref());
    }

    /// Allows to write to a device.
    pub fn device(&mut self, path: impl AsRef<Path>) {
        self.rules.device(path.as_ref());
    }

    /// Lines about what can be read and written, for people.
    pub fn described(&self) -> Vec<String> {
        let list =
            |paths: Vec<PathBuf>| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let lines = [("reads", self.rules.read_paths()), ("writes", self.rules.written_paths())];
        lines
            .into_iter()
            .filter(|(_, paths)| !paths.is_empty())
            .map(|(what, paths)| format!("sandbox: {what} {}", list(paths)))
            .collect()
    }

    /// Closes the sandbox around the calling thread and all threads that it creates. Returns the layers that are missing, and why.
    ///
    /// # Errors
    /// In the mode strict a layer that is missing; then the layers before it are closed nevertheless. In every mode a layer that the
    /// kernel has, for which memory or descriptors are lacking.
    pub fn close(self, mode: Mode) -> Result<Vec<Missing>, Missing> {
        if mode == Mode::Off {
            return Ok(Vec::new());
        }
        let no_new_privileges = || rustix::thread::set_no_new_privs(true).map_err(io::Error::from);
        let closings: [(Layer, &dyn Fn() -> io::Result<()>); 4] = [
            (Layer::Capabilities, &|| capabilities::drop_all_but(self.kept)),
            (Layer::NoNewPrivileges, &no_new_privileges),
            (Layer::Landlock, &|| landlock::restrict(&self.rules)),
            (Layer::Seccomp, &|| filter::install(self.role, mode == Mode::Strict)),
        ];
        let mut missing = Vec::new();
        for (layer, close) in closings {
            match close() {
                Ok(()) => {
                    let refuses = layer == Layer::Seccomp && mode == Mode::Auto;
                    REFUSES_CALLS.fetch_or(refuses, Ordering::Relaxed);
                }
                Err(error) => {
                    let lack = Missing { layer, why: reason(layer, &error) };
                    if mode == Mode::Strict || is_lack_of_resources(&error) {
                        return Err(lack);
                    }
                    missing.push(lack);
                }
            }
        }
        Ok(missing)
    }
}

/// True where an error may come from a system call that the sandbox refused: EPERM, and system calls outside of the list get that.
pub fn may_have_refused(error: &io::Error) -> bool {
    REFUSES_CALLS.load(Ordering::Relaxed) && error.raw_os_error() == Some(Errno::PERM.raw_os_error())
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
