//! Running kernel: tracefs, and an instance for each test.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::runner::Skip;

/// Skips a test that needs to be root.
pub fn root() -> Result<(), Skip> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(Skip("needs to be run as root".to_owned())) }
}

/// Mount of tracefs: the machine's, or a temporary one that is removed on drop.
#[derive(Debug)]
pub struct Tracefs {
    path: PathBuf,
    own: Option<TempDir>,
}

impl Tracefs {
    pub fn find() -> Result<Tracefs, Skip> {
        root()?;
        for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if Path::new(path).join("instances").is_dir() {
                return Ok(Tracefs { path: path.into(), own: None });
            }
        }
        let dir = tempfile::tempdir().map_err(|error| Skip(format!("no temporary directory: {error}")))?;
        mount("none", dir.path(), "tracefs", MountFlags::empty(), None)
            .map_err(|error| Skip(format!("tracefs is not mounted and cannot be: {error}")))?;
        let tracefs = Tracefs { path: dir.path().to_owned(), own: Some(dir) };
        if !tracefs.path.join("instances").is_dir() {
            return Err(Skip("this kernel's tracefs has no instances".to_owned()));
        }
        Ok(tracefs)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Skips a test that needs the event `SYSTEM/EVENT`.
    pub fn need_event(&self, event: &str) -> Result<(), Skip> {
        let there = self.path.join("events").join(event).is_dir();
        if there { Ok(()) } else { Err(Skip(format!("this kernel has no event {event}"))) }
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.own.is_some() {
            // A failed unmount leaves the kernel's tracefs mounted, which does no harm.
            let _ = unmount(&self.path, UnmountFlags::DETACH);
        }
    }
}

/// Tracing instance; an instance made by a test is removed on drop.
#[derive(Debug)]
pub struct Instance<'a> {
    path: PathBuf,
    /// True if this test made the instance, and removes it.
    own: bool,
    /// Lifetime of the mount, which the instance must not outlive.
    _tracefs: &'a Tracefs,
}

impl<'a> Instance<'a> {
    /// Makes a new instance, which records nothing yet.
    pub fn new(tracefs: &'a Tracefs) -> Result<Instance<'a>, Skip> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("kmemtrace-test-{}-{number}", std::process::id());
        let path = tracefs.path.join("instances").join(name);
        fs::create_dir(&path).map_err(|error| Skip(format!("cannot make a tracefs instance: {error}")))?;
        Ok(Instance { path, own: true, _tracefs: tracefs })
    }

    /// Instance made by another program, by name.
    pub fn of(tracefs: &'a Tracefs, name: &str) -> Instance<'a> {
        Instance { path: tracefs.path.join("instances").join(name), own: false, _tracefs: tracefs }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn write(&self, file: &str, text: &str) -> io::Result<()> {
        // No truncation: to some control files it is a command of its own.
        OpenOptions::new().write(true).open(self.path.join(file))?.write_all(text.as_bytes())
    }

    /// Reads a control file with one large read. The kernel gives all of `header_page` and `header_event` to the first
    /// read and nothing to later ones, and `read_to_string` begins with a read of 32 bytes.
    pub fn read(&self, file: &str) -> io::Result<String> {
        let mut file = File::open(self.path.join(file))?;
        let mut text = Vec::new();
        let mut piece = vec![0; 1 << 16];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                n => text.extend_from_slice(&piece[..n]),
            }
        }
        String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Counter in `per_cpu/cpuN/stats`.
    pub fn stat(&self, cpu: u32, name: &str) -> io::Result<u64> {
        let text = self.read(&format!("per_cpu/cpu{cpu}/stats"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no {name} in stats: {text}")))
    }

    /// CPUs with a buffer, ascending.
    pub fn cpus(&self) -> io::Result<Vec<u32>> {
        let mut cpus = Vec::new();
        for entry in fs::read_dir(self.path.join("per_cpu"))? {
            let name = entry?.file_name();
            cpus.extend(name.to_str().and_then(|n| n.strip_prefix("cpu")?.parse::<u32>().ok()));
        }
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Drains a CPU's buffer: sub-buffers of `size` bytes, the last one partial.
    pub fn drain(&self, cpu: u32, size: usize) -> io::Result<Vec<Vec<u8>>> {
        let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let non_blocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file: File = OpenOptions::new().read(true).custom_flags(non_blocking).open(path)?;
        let mut pages = Vec::new();
        loop {
            let mut page = vec![0; size];
            match file.read(&mut page) {
                Ok(0) => return Ok(pages),
                Ok(n) => {
                    page.truncate(n);
                    pages.push(page);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(pages),
                // A CPU that was never online has no buffer.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                    return Ok(pages);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        if !self.own {
            return;
        }
        let _ = self.write("tracing_on", "0");
        // A process that another thread starts has this one's files until it runs its program.
        let until = Instant::now() + Duration::from_secs(10);
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        let mut removed = fs::remove_dir(&self.path);
        while removed.as_ref().is_err_and(is_busy) && Instant::now() < until {
            sleep(Duration::from_millis(10));
            removed = fs::remove_dir(&self.path);
        }
        if let Err(error) = removed {
            eprintln!("{} stays behind: {error}", self.path.display());
        }
    }
}
