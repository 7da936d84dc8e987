//! Opening input that ends: stored files only, and never a wait for a writer.
//!
//! A FIFO blocks the one that opens it, a device has no end, and files such as `/proc/kmsg` block the one that reads them although
//! they count as regular. The descriptor decides, not the path: another user may change what a path stands for at any time.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, StatFs};
use rustix::io::Errno;

/// File systems whose files the kernel makes up as they are read, by the `f_type` of statfs(2) (`linux/magic.h`).
const MADE_UP: [(u32, &str); 10] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x7472_6163, "tracefs"),
    (0x6462_6720, "debugfs"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x6265_6570, "configfs"),
    (0x27_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xcafe_4a11, "bpf"),
];

/// True once the program is in a sandbox that limits which files it opens.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Largest number of links from one to the next, as the kernel has it.
const MAX_LINKS: usize = 40;
/// `f_type` of proc, whose links lead to what a process holds rather than to a path.
const PROC: u32 = 0x9fa0;

/// Opens a stored file for reading. Links anywhere in its path are followed if root, the caller, or the user who called sudo owns them: any
/// other link may have been planted to have the caller read a file out of its owner's reach.
///
/// # Errors
/// Errors of the system, and `InvalidInput` or `PermissionDenied` for anything else than a stored file: it says what the path names.
pub fn open(path: &Path) -> io::Result<File> {
    let found = Found::at(path)?;
    // Opening may have an effect (a tape rewinds, a watchdog starts, tracing pauses), so the path is asked first.
    refuse_type(found.kind()?)?;
    refuse_made_up(found.file_system())?;
    let Found { dir, name, flags, .. } = found;
    open_at(dir, Path::new(&name), flags)
}

/// Opens a directory to list or to lock it, behind links as [`open`] follows them.
///
/// # Errors
/// Errors of the system, and `PermissionDenied` for a link of somebody else.
pub fn open_listed(path: &Path) -> io::Result<File> {
    Found::at(or_here(path))?.directory(OFlags::RDONLY)
}

/// As [`open_listed`]; without the right to list it, one to open files in.
///
/// # Errors
/// As for [`open_listed`].
pub fn open_directory(path: &Path) -> io::Result<File> {
    let found = Found::at(or_here(path))?;
    match found.directory(OFlags::RDONLY) {
        Err(error) if error.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => found.directory(OFlags::PATH),
        opened => opened,
    }
}

/// An empty path is the working directory.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Opens a device for writing, behind links as [`open`] follows them, without a wait for a reader.
///
/// # Errors
/// As for [`open_listed`].
pub fn open_device(path: &Path) -> io::Result<File> {
    let found = Found::at(path)?;
    let flags = found.flags | OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(&found.dir, &found.name, flags, Mode::empty())?))
}

/// The path without links that a path leads to.
///
/// # Errors
/// As for [`open_listed`].
pub fn behind_links(path: &Path) -> io::Result<PathBuf> {
    Found::at(path).map(|found| found.path)
}

/// Refuses a path that leads through a link of somebody else. What is not there, or cannot be reached, is told by whoever opens it.
///
/// # Errors
/// `PermissionDenied`, with the owner and a remedy.
pub fn refuse_strangers_links(path: &Path) -> io::Result<()> {
    match Found::at(path) {
        // Errors of the system have a number.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() => Err(error),
        _ => Ok(()),
    }
}

/// From now on errors say where the program's sandbox refuses to open a file that its user may read.
pub fn tell_of_sandbox() {
    IS_CONFINED.store(true, Ordering::Relaxed);
}

/// The error of opening a file. The sandbox does not limit the question of whether the user may read it.
fn told(error: Errno, dir: impl AsFd, path: &Path) -> io::Error {
    let may_read = || rustix::fs::accessat(dir, path, Access::READ_OK, AtFlags::empty()).is_ok();
    if error == Errno::ACCESS && IS_CONFINED.load(Ordering::Relaxed) && may_read() {
        // A file that was named is refused, too, once another one has its name.
        let what = "the sandbox refuses it: no such file was named, or another one has this name by now: name it on the command line, \
                    try again, or use --sandbox off";
        return io::Error::new(io::ErrorKind::PermissionDenied, what);
    }
    error.into()
}

/// Opens a stored file, or `own`, a list of the running kernel in proc that has an end.
///
/// # Errors
/// As for [`open`].
pub fn open_or_own(path: &Path, own: &str) -> io::Result<File> {
    if path == Path::new(own) { open_made_up(path, "proc") } else { open(path) }
}

/// What a path names, found component by component: the kernel alone would follow any link.
struct Found {
    /// Directory that it is in.
    dir: OwnedFd,
    /// Its name there.
    name: OsString,
    /// How to open it by its name.
    flags: OFlags,
    /// The thing itself, of which only its state can be asked.
    held: OwnedFd,
    /// The path that links lead to.
    path: PathBuf,
}

impl Found {
    /// Finds what a path names behind trusted links.
    fn at(path: &Path) -> io::Result<Found> {
        let mut way = Way::from(path)?;
        // Components to go, the next one last.
        let mut ahead = components(path.as_os_str());
        let mut links: usize = 0;
        loop {
            let Some(name) = ahead.pop() else { return Err(Errno::NOENT.into()) };
            let is_last = ahead.is_empty();
            if !is_last && way.enter(&name)? {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = rustix::fs::openat(&way.dir, &name, flags, Mode::empty())?;
            let found = rustix::fs::fstat(&held)?;
            if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
                if !is_last {
                    return Err(Errno::NOTDIR.into());
                }
                way.push(&name);
                return Ok(Found { dir: way.dir, name, flags: OFlags::NOFOLLOW, held, path: way.path });
            }
            refuse_stranger(found.st_uid)
                .map_err(|error| if is_last { error } else { of_folder(&name, found.st_uid) })?;
            links = links.saturating_add(1);
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = OsString::from_vec(rustix::fs::readlinkat(&held, "", Vec::new())?.into_bytes());
            if rustix::fs::fstatfs(&held).is_ok_and(|found| found.f_type as u32 == PROC) {
                let held = rustix::fs::openat(&way.dir, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
                way.path.push(target);
                if is_last {
                    return Ok(Found { dir: way.dir, name, flags: OFlags::empty(), held, path: way.path });
                }
                way.dir = held;
                continue;
            }
            if target.as_bytes().starts_with(b"/") {
                way = Way::from(Path::new(&target))?;
            }
            ahead.extend(components(&target));
        }
    }

    /// Opens it as a directory, to do this with it.
    fn directory(&self, how: OFlags) -> io::Result<File> {
        let flags = self.flags | how | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty())?))
    }

    fn kind(&self) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(rustix::fs::fstat(&self.held)?.st_mode))
    }

    fn file_system(&self) -> rustix::io::Result<StatFs> {
        // Before Linux 3.12 the descriptor of a thing that is not opened does not tell.
        rustix::fs::fstatfs(&self.held).or_else(|_| rustix::fs::statfs(&self.path))
    }
}

/// A directory on the way along a path, and the path without links that leads to it.
struct Way {
    dir: OwnedFd,
    path: PathBuf,
}

/// Flags of a directory on the way. With `O_DIRECTORY` the kernel mounts what is mounted on demand there.
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Way {
    /// Where a path begins: the root, or the working directory.
    fn from(path: &Path) -> io::Result<Way> {
        let (start, path) = if path.has_root() { ("/", "/") } else { (".", "") };
        Ok(Way { dir: rustix::fs::openat(CWD, start, ON_THE_WAY, Mode::empty())?, path: path.into() })
    }

    /// Goes on into a directory; false where the name is of something else, or of a link.
    fn enter(&mut self, name: &OsStr) -> io::Result<bool> {
        match rustix::fs::openat(&self.dir, name, ON_THE_WAY, Mode::empty()) {
            Ok(dir) => self.dir = dir,
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.push(name);
        Ok(true)
    }

    fn push(&mut self, name: &OsStr) {
        if name != "." {
            self.path.push(name);
        }
    }
}

/// Components of a path, the last one first. A slash at the end asks for a directory, as `.` does.
fn components(path: &OsStr) -> Vec<OsString> {
    let bytes = path.as_bytes();
    let end = bytes.ends_with(b"/").then_some(&b"."[..]);
    let names = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).chain(end);
    let mut names: Vec<OsString> = names.map(|name| OsStr::from_bytes(name).to_owned()).collect();
    names.reverse();
    names
}

/// Refusal of a link in the middle of a path.
fn of_folder(name: &OsStr, owner: u32) -> io::Error {
    let name = name.to_string_lossy();
    let what = format!("its folder {name} is a link of user {owner}: name the folder that it stands for");
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// Refuses a link of this owner, unless it is root, the caller, or the user who called sudo.
///
/// # Errors
/// `PermissionDenied`, with the owner and a remedy.
pub fn refuse_stranger(owner: u32) -> io::Result<()> {
    let caller = rustix::process::geteuid();
    let of_sudo = || std::env::var("SUDO_UID").ok()?.parse::<u32>().ok();
    if owner == 0 || owner == caller.as_raw() || caller.is_root() && of_sudo() == Some(owner) {
        return Ok(());
    }
    let what = format!("is a link of user {owner}: name the file that it stands for");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// Opens a file of the file system of this name, one of those that the kernel makes up, for reading.
///
/// # Errors
/// As for [`open`], and for a file of any other file system.
pub(crate) fn open_made_up(path: &Path, file_system: &'static str) -> io::Result<File> {
    let found = Found::at(path)?;
    refuse_type(found.kind()?)?;
    let magic = found.file_system()?.f_type as u32;
    if !MADE_UP.contains(&(magic, file_system)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("is not in {file_system}")));
    }
    let flags = found.flags | OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(&found.dir, &found.name, flags, Mode::empty())?))
}

/// Opens a stored file beneath the directory `dir` for reading. A symbolic link at the last component of `path` is refused.
///
/// # Errors
/// As for [`open`].
pub fn open_beneath(dir: impl AsFd, path: &Path) -> io::Result<File> {
    let found = rustix::fs::statat(&dir, path, AtFlags::SYMLINK_NOFOLLOW)?;
    refuse_type(FileType::from_raw_mode(found.st_mode))?;
    open_at(dir, path, OFlags::NOFOLLOW)
}

fn open_at(dir: impl AsFd, path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&dir, path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| told(error, &dir, path))?);
    refuse_type(FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode))?;
    refuse_made_up(rustix::fs::fstatfs(&file))?;
    Ok(file)
}

/// Refuses a file on one of the file systems of [`MADE_UP`]; a file system without a type is none of them.
fn refuse_made_up(of_file: rustix::io::Result<StatFs>) -> io::Result<()> {
    let Ok(found) = of_file else { return Ok(()) };
    match MADE_UP.iter().find(|(magic, _)| *magic == found.f_type as u32) {
        Some((_, name)) => {
            let what =
                format!("is a file that {name} makes up as it is read and that may have no end: name a copy of it");
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        }
        None => Ok(()),
    }
}

fn refuse_type(found: FileType) -> io::Result<()> {
    let what = match found {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory: name a file in it"));
        }
        FileType::Symlink => "is a symbolic link: name the file that it stands for",
        FileType::Fifo => {
            "is a FIFO: use - and a pipe for a trace, or write to a file what comes out of it, and name that file"
        }
        FileType::CharacterDevice | FileType::BlockDevice => "is a device: name a regular file",
        _ => "is not a regular file: name one",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn refused(result: io::Result<File>) -> String {
        result.map_or_else(|error| error.to_string(), |_| "opened".to_owned())
    }

    #[test]
    fn what_the_sandbox_refuses_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "bytes").unwrap();
        tell_of_sandbox();
        let told = |error, path: &Path| told(error, CWD, path).to_string();
        assert!(told(Errno::ACCESS, &file).contains("the sandbox refuses it"));
        assert!(told(Errno::ACCESS, &dir.path().join("absent")).contains("Permission denied"));
        assert!(told(Errno::MFILE, &file).contains("Too many open files"));
    }

    #[test]
    fn only_stored_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "bytes").unwrap();
        symlink("file", at("link")).unwrap();
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("fifo", at("to-fifo")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(open(&at("file")).is_ok() && open(&at("link")).is_ok());
        for (name, says) in
            [("fifo", "is a FIFO"), ("to-fifo", "is a FIFO"), ("socket", "is not a regular"), ("", "is a directory")]
        {
            assert!(refused(open(&at(name))).contains(says), "{name}");
        }
        assert!(refused(open(Path::new("/dev/null"))).contains("is a device"));
        let held = File::open(dir.path()).unwrap();
        assert!(open_beneath(&held, Path::new("file")).is_ok());
        for (name, says) in [("link", "symbolic link"), ("fifo", "is a FIFO"), ("to-fifo", "symbolic link")] {
            assert!(refused(open_beneath(&held, Path::new(name))).contains(says), "{name}");
        }
        drop(socket);
    }

    #[test]
    fn links_lead_on_unless_a_stranger_owns_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "bytes").unwrap();
        symlink("file", at("a")).unwrap();
        symlink(at("a"), at("b")).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert!(open(&at("b")).is_ok() && refused(open(&at("loop"))).contains("symbolic links"));
        let held = File::open(at("file")).unwrap();
        assert!(open(Path::new(&format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held)))).is_ok());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(at("a"), Some(64_242), None).unwrap();
            for name in ["a", "b"] {
                assert!(refused(open(&at(name))).contains("is a link of user 64242"), "{name}");
            }
        }
        assert!(refuse_stranger(64_242).is_err() && refuse_stranger(0).is_ok());
    }

    #[test]
    fn a_link_of_a_stranger_is_refused_anywhere_in_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("real/below")).unwrap();
        fs::write(at("real/below/file"), "bytes").unwrap();
        symlink("real", at("link")).unwrap();
        symlink("link/below", at("to-link")).unwrap();
        symlink(at("link"), at("absolute")).unwrap();
        let files = ["link/below/file", "to-link/file", "absolute/below/../below//file"].map(at);
        let folders = ["link", "link/", "to-link", "link/below", "absolute"].map(at);
        for path in &files {
            assert!(open(path).is_ok(), "{}", path.display());
            assert_eq!(fs::read(behind_links(path).unwrap()).unwrap(), b"bytes");
            assert!(!behind_links(path).unwrap().to_str().unwrap().contains("link"));
        }
        for path in &folders {
            assert!(open_directory(path).is_ok() && refuse_strangers_links(path).is_ok(), "{}", path.display());
            assert!(refused(open(path)).contains("is a directory"));
        }
        for (name, says) in [("real/below/file/", "Not a directory"), ("real/absent/file", "No such file")] {
            assert!(refused(open(&at(name))).contains(says), "{name}");
        }
        assert!(refused(open(Path::new(""))).contains("No such file") && open_directory(Path::new("/")).is_ok());
        assert!(open_directory(Path::new("")).is_ok() && open(Path::new("Cargo.toml")).is_ok());
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::lchown(at("link"), Some(64_242), None).unwrap();
        for path in &files {
            assert!(refused(open(path)).contains("its folder link is a link of user 64242"), "{}", path.display());
        }
        for path in &folders {
            assert!(refused(open_directory(path)).contains("is a link of user 64242"), "{}", path.display());
            assert!(refuse_strangers_links(&path.join("absent")).is_err(), "{}", path.display());
        }
        // What is in the folder is the stranger's own affair.
        assert!(open(&at("real/below/file")).is_ok() && refuse_strangers_links(&at("real/absent")).is_ok());
    }

    #[test]
    fn files_without_an_end_are_refused_though_they_count_as_regular() {
        for name in ["/proc/self/status", "/proc/version"] {
            assert!(fs::metadata(name).unwrap().is_file());
            assert!(refused(open(Path::new(name))).contains("proc makes up"), "{name}");
        }
    }
}
