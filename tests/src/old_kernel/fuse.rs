//! A file system of a test's own: the kernel's FUSE protocol (`include/uapi/linux/fuse.h`, version 7.31), as far as a directory of
//! control files needs it. Requires root and `/dev/fuse`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::recording::Directory;
use crate::runner::Skip;

/// Largest request: a write of 64 KiB and its header.
const REQUEST_BYTES: usize = 128 << 10;
/// Most bytes of a write.
const WRITE_BYTES: u32 = 64 << 10;
/// Bytes of `struct fuse_in_header`.
const IN_HEADER: usize = 40;
/// Node of the root, FUSE_ROOT_ID.
const ROOT: u64 = 1;
/// Reads and writes reach the server as they are, FOPEN_DIRECT_IO.
const DIRECT_IO: u32 = 1;

/// Operations, `enum fuse_opcode`.
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// Files and directories by path below the mount point; the root is the empty path.
pub(super) trait FileSystem: Send + 'static {
    /// True for a directory, false for a file, `None` where nothing has the path.
    fn is_dir(&self, path: &str) -> Option<bool>;
    /// Names in a directory.
    fn names(&self, dir: &str) -> Vec<String>;
    /// Bytes of a file from `offset` on.
    fn read(&mut self, file: &str, offset: usize) -> Result<Vec<u8>, Errno>;
    /// Takes what a program writes to a file.
    fn write(&mut self, file: &str, bytes: &[u8]) -> Result<(), Errno>;
    /// Makes a directory.
    fn make_dir(&mut self, dir: &str) -> Result<(), Errno>;
    /// Removes a directory.
    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno>;
}

/// A mounted file system; dropping it unmounts.
#[derive(Debug)]
pub(super) struct Mount {
    directory: Directory,
    server: Option<JoinHandle<()>>,
}

impl Mount {
    /// Mounts `files`, which a thread of this process serves.
    pub(super) fn new(files: impl FileSystem) -> Result<Mount, Skip> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(|error| Skip(format!("/dev/fuse: {error}")))?;
        let directory = Directory::new(&[]);
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap_or_default();
        mount("tracefs", directory.path(), "fuse", MountFlags::empty(), options)
            .map_err(|error| Skip(format!("a FUSE file system cannot be mounted: {error}")))?;
        let server = Server { device, files, nodes: vec![String::new()], ids: HashMap::new() };
        Ok(Mount { directory, server: Some(std::thread::spawn(move || server.run())) })
    }

    /// Mount point.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = unmount(self.directory.path(), UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

struct Server<F> {
    device: File,
    files: F,
    /// Path of each node, from [`ROOT`] on.
    nodes: Vec<String>,
    /// Node of each path that is there.
    ids: HashMap<String, u64>,
}

/// Number of 4 bytes at `at`, in the machine's byte order; 0 beyond the end.
fn small(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Number of 8 bytes.
fn large(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

impl<F: FileSystem> Server<F> {
    fn run(mut self) {
        let mut request = vec![0; REQUEST_BYTES];
        loop {
            let len = match self.device.read(&mut request) {
                Ok(len) => len,
                Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => return,
                // A request that was taken back.
                Err(_) => continue,
            };
            let (operation, unique) = (small(&request, 4), large(&request, 8));
            let body = request[IN_HEADER.min(len)..len].to_vec();
            if [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT].contains(&operation) {
                continue;
            }
            let answer = self.answer(operation, large(&request, 16), &body);
            let (error, bytes) = match answer {
                Ok(bytes) => (0, bytes),
                Err(error) => (-error.raw_os_error(), Vec::new()),
            };
            let mut reply = ((16 + bytes.len()) as u32).to_ne_bytes().to_vec();
            reply.extend(error.to_ne_bytes());
            reply.extend(unique.to_ne_bytes());
            reply.extend(bytes);
            let _ = self.device.write(&reply);
        }
    }

    fn answer(&mut self, operation: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let path = self.nodes.get((node.max(ROOT) - ROOT) as usize).cloned().ok_or(Errno::NOENT)?;
        let name = || String::from_utf8_lossy(body.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
        match operation {
            opcode::INIT => Ok(init()),
            opcode::LOOKUP => self.entry(&joined(&path, &name())),
            opcode::GETATTR | opcode::SETATTR => {
                let is_dir = self.files.is_dir(&path);
                let mut out = vec![0; 16];
                out.extend(attributes(node, is_dir.unwrap_or(true), is_dir.is_some()));
                Ok(out)
            }
            opcode::MKDIR => {
                // Mode and umask stand before the name.
                let name = body.get(8..).unwrap_or_default().split(|&byte| byte == 0).next().unwrap_or_default();
                let dir = joined(&path, &String::from_utf8_lossy(name));
                self.files.make_dir(&dir)?;
                self.entry(&dir)
            }
            opcode::RMDIR => {
                let dir = joined(&path, &name());
                self.files.remove_dir(&dir)?;
                let below = format!("{dir}/");
                self.ids.retain(|path, _| *path != dir && !path.starts_with(&below));
                Ok(Vec::new())
            }
            opcode::OPEN => Ok([0, 0, DIRECT_IO, 0].map(u32::to_ne_bytes).concat()),
            opcode::OPENDIR => Ok(vec![0; 16]),
            opcode::READ => {
                let mut bytes = self.files.read(&path, large(body, 8) as usize)?;
                bytes.truncate(small(body, 16) as usize);
                Ok(bytes)
            }
            opcode::WRITE => {
                let len = small(body, 16);
                self.files.write(&path, body.get(40..40 + len as usize).ok_or(Errno::INVAL)?)?;
                Ok([len, 0].map(u32::to_ne_bytes).concat())
            }
            opcode::READDIR => Ok(self.entries(&path, large(body, 8) as usize, small(body, 16) as usize)),
            opcode::STATFS => Ok(vec![0; 80]),
            opcode::RELEASE | opcode::RELEASEDIR => Ok(Vec::new()),
            _ => Err(Errno::NOSYS),
        }
    }

    /// Node of a path that is there.
    fn node(&mut self, path: &str) -> u64 {
        if let Some(&id) = self.ids.get(path) {
            return id;
        }
        self.nodes.push(path.to_owned());
        let id = self.nodes.len() as u64;
        self.ids.insert(path.to_owned(), id);
        id
    }

    /// `struct fuse_entry_out`, which the kernel keeps for no time.
    fn entry(&mut self, path: &str) -> Result<Vec<u8>, Errno> {
        let is_dir = self.files.is_dir(path).ok_or(Errno::NOENT)?;
        let node = self.node(path);
        let mut out = node.to_ne_bytes().to_vec();
        out.resize(40, 0);
        out.extend(attributes(node, is_dir, true));
        Ok(out)
    }

    /// Entries of a directory from number `from` on, `struct fuse_dirent` each, in at most `room` bytes.
    fn entries(&mut self, dir: &str, from: usize, room: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let names = [".", ".."].map(str::to_owned).into_iter().chain(self.files.names(dir));
        for (number, name) in names.enumerate().skip(from) {
            let is_dir = name.starts_with('.') || self.files.is_dir(&joined(dir, &name)) == Some(true);
            let mut entry = (number as u64 + 1).to_ne_bytes().to_vec();
            entry.extend((number as u64 + 1).to_ne_bytes());
            entry.extend((name.len() as u32).to_ne_bytes());
            // DT_DIR and DT_REG.
            entry.extend(if is_dir { 4u32 } else { 8 }.to_ne_bytes());
            entry.extend(name.as_bytes());
            entry.resize(entry.len().next_multiple_of(8), 0);
            if out.len() + entry.len() > room {
                break;
            }
            out.extend(entry);
        }
        out
    }
}

/// Path of `name` in `dir`.
fn joined(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// `struct fuse_init_out`.
fn init() -> Vec<u8> {
    let mut out = [7u32, 31, 0, 0, 0].map(u32::to_ne_bytes).concat();
    out.extend(WRITE_BYTES.to_ne_bytes());
    out.extend(1u32.to_ne_bytes());
    out.resize(64, 0);
    out
}

/// `struct fuse_attr` of a node; one that is not there any more has no links.
fn attributes(node: u64, is_dir: bool, is_there: bool) -> Vec<u8> {
    let mut out = node.to_ne_bytes().to_vec();
    out.resize(60, 0);
    let mode: u32 = if is_dir { 0o040_755 } else { 0o100_644 };
    out.extend(mode.to_ne_bytes());
    out.extend(u32::from(is_there).to_ne_bytes());
    out.resize(88, 0);
    out
}
