//! A new file that is whole or not there: written without a name in the directory that it belongs to, then linked.
//!
//! The kernel removes a file without a name with its program, however that ends. Where the file system has no such files (NFS, FAT)
//! the file is written under a random name, which a killed program leaves behind.
//!
//! The directory is held by its descriptor and every name is looked up beneath that, so that neither a planted link nor a directory
//! that is renamed meanwhile leads a write elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kmemtrace_abi::open::regular;
use kmemtrace_abi::random;
use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Characters of the random part of a name: 40 bits.
const RANDOM_CHARS: usize = 8;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Names tried: a second one is needed once in 10^12 times, unless the directory is at fault.
const ATTEMPTS: usize = 16;
/// An unfinished file that was not written to for this long was left by a program that was killed.
const LEFT_OVER: Duration = Duration::from_secs(600);

/// A directory held open.
#[derive(Debug)]
pub struct Directory {
    held: File,
    path: PathBuf,
}

/// The file that is in a directory under a name, as it was at one moment: a write to it, or another file of that name, differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Size of the file, in bytes.
    pub size: u64,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn new(data: &Metadata) -> FileState {
        FileState {
            size: data.size(),
            device: data.dev(),
            inode: data.ino(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }

    /// The state of an open file.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(file: &File) -> io::Result<FileState> {
        Ok(FileState::new(&file.metadata()?))
    }

    /// True for two states of one file.
    pub fn is_same_file(&self, other: &FileState) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl Directory {
    /// Opens a directory; an empty path is the working directory.
    ///
    /// # Errors
    /// The system's error, for example if `path` is not a directory; a link of somebody else on the way to it.
    pub fn open(path: &Path) -> io::Result<Arc<Directory>> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // Making a file in a directory takes no right to list it.
        Ok(Arc::new(Directory { held: regular::open_directory(path)?, path: path.to_owned() }))
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks it as its recorder does, until it is dropped; false where another program has it locked.
    pub fn lock(&self) -> bool {
        // A file system without locks has none of a recorder, either.
        rustix::fs::flock(&self.held, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
    }

    /// Names in it, in no order.
    ///
    /// # Errors
    /// The system's error, also for a directory that the user may not list.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| -> io::Result<OsString> {
            Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned())
        };
        Dir::read_from(&self.held)?.map(name).collect()
    }

    /// Opens a stored file in it for reading; not through a link.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::IsADirectory`], and [`io::ErrorKind::InvalidInput`] for anything else but a stored file.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        regular::open_beneath(&self.held, Path::new(name))
    }

    /// The state of the file or link with this name.
    ///
    /// # Errors
    /// The system's error.
    pub fn state(&self, name: &OsStr) -> io::Result<FileState> {
        Ok(FileState::new(&self.metadata(name)?))
    }

    fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        File::from(rustix::fs::openat(&self.held, name, flags, Mode::empty())?).metadata()
    }

    /// True while its path leads to it.
    pub fn is_at_its_path(&self) -> bool {
        let now = fs::metadata(&self.path).map(|data| FileState::new(&data));
        matches!((now, FileState::of(&self.held)), (Ok(now), Ok(held)) if now.is_same_file(&held))
    }

    /// Removes a file from it.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.held, name, AtFlags::empty())?)
    }

    /// Makes a file that has the name `name` once it is put there. Until then it has no name, or `name`, `suffix`, a hyphen and eight
    /// random characters. The process's umask is taken off `mode`.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::AlreadyExists`] if every name that was tried is taken.
    pub fn create(self: &Arc<Self>, name: &OsStr, suffix: &str, mode: u32) -> io::Result<NewFile> {
        let stem = [name.as_bytes(), suffix.as_bytes(), b"-"].concat();
        self.remove_left_over(&stem);
        let mode = Mode::from_raw_mode(mode);
        let (file, temporary) = match self.create_nameless(mode) {
            Some(file) => (file, None),
            None => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let make = |temporary: &OsStr| rustix::fs::openat(&self.held, temporary, flags, mode);
                let (file, temporary) = with_free_name(&stem, make)?;
                (File::from(file), Some(temporary))
            }
        };
        Ok(NewFile { file, dir: Arc::clone(self), temporary, stem, name: name.to_owned(), is_put: false })
    }

    /// Makes a file without a name; `None` where the file system has none, or where no path leads to the file, to link it by.
    fn create_nameless(&self, mode: Mode) -> Option<File> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.held, ".", flags, mode).ok()?);
        let at_path = fs::metadata(path_of(&file)).ok()?;
        FileState::new(&at_path).is_same_file(&FileState::of(&file).ok()?).then_some(file)
    }

    /// Removes unfinished files of killed programs: those whose names begin with `stem`.
    fn remove_left_over(&self, stem: &[u8]) {
        for name in self.names().unwrap_or_default() {
            let random = name.as_bytes().strip_prefix(stem);
            if random.is_some_and(|r| r.len() == RANDOM_CHARS && r.iter().all(|c| ALPHABET.contains(c)))
                && self.is_left_over(&name)
            {
                let _ = self.remove(&name);
            }
        }
    }

    fn is_left_over(&self, name: &OsStr) -> bool {
        let Ok(data) = self.metadata(name) else { return false };
        let age = data.modified().ok().and_then(|written| written.elapsed().ok()).unwrap_or_default();
        data.is_file() && data.uid() == rustix::process::geteuid().as_raw() && age > LEFT_OVER
    }

    /// Returns once the names in it survive a power cut.
    fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.held) {
            // Some file systems do not write directories, and BADF: it was opened without the right to list it.
            Err(Errno::INVAL | Errno::NOTSUP | Errno::BADF) => Ok(()),
            synced => Ok(synced?),
        }
    }
}

/// Path of an open file by its descriptor. Linking the descriptor itself takes a capability on kernels before 6.10.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Makes something under `stem` and random characters; returns it with its name.
fn with_free_name<T>(stem: &[u8], make: impl Fn(&OsStr) -> rustix::io::Result<T>) -> io::Result<(T, OsString)> {
    for _ in 0..ATTEMPTS {
        let name = OsStr::from_bytes(&[stem, &random_chars()?].concat()).to_owned();
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((made?, name)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "every name that was tried for the unfinished file is taken"))
}

fn random_chars() -> io::Result<[u8; RANDOM_CHARS]> {
    let mut chars = [0; RANDOM_CHARS];
    random::fill(&mut chars)?;
    Ok(chars.map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()]))
}

/// A file that is being written; it is removed unless it is put in its place.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    dir: Arc<Directory>,
    /// Name of the unfinished file, where it has one.
    temporary: Option<OsString>,
    /// Start of such a name.
    stem: Vec<u8>,
    name: OsString,
    is_put: bool,
}

impl NewFile {
    /// The file, to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path of the unfinished file, for messages; without a name, that of the finished one.
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(self.temporary.as_ref().unwrap_or(&self.name))
    }

    /// Gives the file its name, in place of an earlier file, and returns once that survives a power cut.
    ///
    /// # Errors
    /// The system's error, or another program's file under the unfinished one's name.
    pub fn put(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(temporary) = self.named()? {
            if !self.dir.state(&temporary)?.is_same_file(&FileState::of(&self.file)?) {
                return Err(io::Error::other(
                    "another program has put something else in the place of the unfinished file",
                ));
            }
            rustix::fs::renameat(&self.dir.held, &temporary, &self.dir.held, &self.name)?;
        }
        self.is_put = true;
        self.dir.sync()
    }

    /// Links a file without a name, and returns the name to rename: `None` where the file has its own name already. A link takes no
    /// other file's place.
    fn named(&mut self) -> io::Result<Option<OsString>> {
        if self.temporary.is_none() {
            let path = path_of(&self.file);
            let link = |name: &OsStr| rustix::fs::linkat(CWD, &path, &self.dir.held, name, AtFlags::SYMLINK_FOLLOW);
            match link(&self.name) {
                Err(Errno::EXIST) => self.temporary = Some(with_free_name(&self.stem, link)?.1),
                linked => linked?,
            }
        }
        Ok(self.temporary.clone())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| !self.is_put) {
            let _ = self.dir.remove(temporary);
        }
    }
}
