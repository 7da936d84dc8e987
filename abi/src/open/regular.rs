//! Opening input that ends: stored files only, and never a wait for a writer.
//!
//! A FIFO blocks the one that opens it, a device has no end, and files such as `/proc/kmsg` block the one that reads them although
//! they count as regular. The descriptor decides, not the path: another user may change what a path stands for at any time.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
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

/// Opens a stored file for reading. Links are followed if root, the caller, or the user who called sudo owns them: any other link may
/// have been planted to have the caller read a file out of its owner's reach.
///
/// # Errors
/// Errors of the system, and `InvalidInput` or `PermissionDenied` for anything else than a stored file: it says what the path names.
pub fn open(path: &Path) -> io::Result<File> {
    let (path, flags) = behind_links(path)?;
    // Opening may have an effect (a tape rewinds, a watchdog starts, tracing pauses), so the path is asked first.
    refuse_type(FileType::from_raw_mode(rustix::fs::stat(&path)?.st_mode))?;
    refuse_made_up(rustix::fs::statfs(&path))?;
    open_at(CWD, &path, flags)
}

/// From now on errors say where the program's sandbox refuses to open a file that its user may read.
pub fn tell_of_sandbox() {
    IS_CONFINED.store(true, Ordering::Relaxed);
}

/// The error of opening a file. The sandbox does not limit the question of whether the user may read it.
fn told(error: Errno, dir: impl AsFd, path: &Path) -> io::Error {
    let may_read = || rustix::fs::accessat(dir, path, Access::READ_OK, AtFlags::empty()).is_ok();
    if error == Errno::ACCESS && IS_CONFINED.load(Ordering::Relaxed) && may_read() {
        let what = "the sandbox refuses it: name it on the command line, or use --sandbox off";
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

/// The path that trusted links at the end of a path lead to, and how to open it.
fn behind_links(path: &Path) -> io::Result<(PathBuf, OFlags)> {
    let mut path = path.to_owned();
    for _ in 0..=MAX_LINKS {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::open(&path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&held)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Ok((path, OFlags::NOFOLLOW));
        }
        refuse_stranger(found.st_uid)?;
        if rustix::fs::fstatfs(&held).is_ok_and(|found| found.f_type as u32 == PROC) {
            return Ok((path, OFlags::empty()));
        }
        let target = rustix::fs::readlinkat(&held, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.to_bytes()));
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::from_raw_os_error(Errno::LOOP.raw_os_error()))
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
    refuse_type(FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode))?;
    let magic = rustix::fs::statfs(path)?.f_type as u32;
    if !MADE_UP.contains(&(magic, file_system)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("is not in {file_system}")));
    }
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
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
    fn files_without_an_end_are_refused_though_they_count_as_regular() {
        for name in ["/proc/self/status", "/proc/version"] {
            assert!(fs::metadata(name).unwrap().is_file());
            assert!(refused(open(Path::new(name))).contains("proc makes up"), "{name}");
        }
    }
}
