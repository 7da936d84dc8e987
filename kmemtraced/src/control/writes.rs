//! Writes to control files, as the kernel reports them: by fanotify, else by inotify, on each directory of the trace directory.
//!
//! fanotify names the writer, whatever path it used, so the recorder's own writes can be left out. With each report the kernel opens the
//! file for reading. Before Linux 5.8 that would stop the tracer (`trace`), so older kernels have inotify. No file of another instance is
//! ever reported: closing its `free_buffer` would free its buffer, and an open file keeps it from being removed or resized.
//!
//! Both watch directories by inode. Since Linux 6.6 the kernel may drop the inodes of `events` when memory is short, and the watches with
//! them, but for those of recorded events, whose files the recorder holds open.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use kmemtrace_abi::text::escape::escape;
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyEvent, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::control::rules::{ANY, DIRS, acts_at_close, is_change, name_of};
use crate::fs::kernelfs::{KernelFs, PROC, TRACEFS};

/// Option of instances whose kernel no longer stops the tracer when `trace` is opened.
const PAUSES_ON_TRACE: &str = "options/pause-on-trace";
/// Files that are not reported: programs write to them at any rate.
const UNREPORTED: [&str; 3] = ["trace_marker", "trace_marker_raw", "user_events_data"];

/// Reads of reports at most in one look; the kernel's queue has room for 16384 reports.
const MAX_READS: usize = 1 << 15;

/// Writes by other programs since the last look.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Files, relative to the trace directory, each with the writer where it is known.
    pub(crate) files: BTreeMap<String, Option<String>>,
    /// True if the kernel did not say which file was written to.
    pub(crate) is_vague: bool,
}

impl Told {
    /// True if nothing was written to.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.is_vague
    }
}

/// Reports of the kernel about writes to a trace directory.
pub(crate) enum Writes {
    Marked(Marked),
    Watched(Watched),
}

impl Writes {
    /// Starts the reports. `first`: directories that must be watched.
    pub(crate) fn begin(fs: &KernelFs, first: &[String]) -> io::Result<Writes> {
        match Marked::begin(fs, first) {
            Some(marked) => Ok(Writes::Marked(marked)),
            None => Watched::begin(fs, first).map(Writes::Watched),
        }
    }

    /// Writes since the last call. With inotify the recorder's own are among them.
    pub(crate) fn take(&mut self) -> Told {
        let mut told = match self {
            Writes::Marked(marked) => marked.take(),
            Writes::Watched(watched) => watched.take(),
        };
        told.files.retain(|file, _| is_change(file));
        told
    }

    /// True if the writers are known, so that the recorder's own writes are left out.
    pub(crate) fn knows_writers(&self) -> bool {
        matches!(self, Writes::Marked(_))
    }

    /// True if some directories of events that are not recorded could not be watched.
    pub(crate) fn is_partial(&self) -> bool {
        match self {
            Writes::Marked(marked) => marked.is_partial,
            Writes::Watched(watched) => watched.is_partial,
        }
    }
}

/// Directories of events that are not recorded.
fn other_events(fs: &KernelFs, first: &[String]) -> impl Iterator<Item = String> {
    let systems = fs.dirs("events").unwrap_or_default().into_iter().flat_map(|system| {
        let events = fs.dirs(&format!("events/{system}")).unwrap_or_default();
        let events: Vec<String> = events.iter().map(|event| format!("events/{system}/{event}")).collect();
        [format!("events/{system}")].into_iter().chain(events)
    });
    systems.filter(|dir| !first.contains(dir))
}

/// Fanotify marks of directories with control files.
pub(crate) struct Marked {
    group: Fanotify,
    /// Name of the instance; `None` for the top-level directory.
    instance: Option<String>,
    proc: KernelFs,
    own: i32,
    is_partial: bool,
}

impl Marked {
    /// Sets the marks; `None` where the kernel does not allow it.
    fn begin(fs: &KernelFs, first: &[String]) -> Option<Marked> {
        let has_names = fs.descriptor_path().exists();
        if !fs.is_of(&TRACEFS) || !has_names || !fs.has(PAUSES_ON_TRACE).unwrap_or(false) {
            return None;
        }
        let proc = KernelFs::find(&PROC).ok()?;
        let init = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let opening =
            EventFFlags::O_RDONLY | EventFFlags::O_NONBLOCK | EventFFlags::O_CLOEXEC | EventFFlags::O_LARGEFILE;
        let group = Fanotify::init(init, opening).ok()?;
        let instance = instance_of(&fs.path(""));
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut marked = Marked { group, instance, proc, own, is_partial: false };
        let ignored = MarkFlags::FAN_MARK_IGNORED_MASK | MarkFlags::FAN_MARK_IGNORED_SURV_MODIFY;
        for file in UNREPORTED {
            // A kernel may lack the file.
            marked.mark(fs, ignored, MaskFlags::empty(), file).ok();
        }
        first.iter().try_for_each(|dir| marked.add(fs, dir)).ok()?;
        marked.is_partial = other_events(fs, first).any(|dir| marked.add(fs, &dir).is_err());
        Some(marked)
    }

    fn add(&self, fs: &KernelFs, dir: &str) -> nix::Result<()> {
        let dir = if dir.is_empty() { "." } else { dir };
        match self.mark(fs, MarkFlags::FAN_MARK_ONLYDIR, MaskFlags::FAN_EVENT_ON_CHILD, dir) {
            // An older kernel lacks this directory.
            Err(nix::errno::Errno::ENOENT) => Ok(()),
            result => result,
        }
    }

    fn mark(&self, fs: &KernelFs, how: MarkFlags, more: MaskFlags, path: &str) -> nix::Result<()> {
        let mask = MaskFlags::FAN_MODIFY | MaskFlags::FAN_CLOSE_WRITE | more;
        self.group.mark(MarkFlags::FAN_MARK_ADD | how, mask, fs, Some(path))
    }

    fn take(&self) -> Told {
        use nix::errno::Errno;

        let mut told = Told::default();
        // A read fails for each report of a file that the kernel cannot open, as in an instance that was removed meanwhile, and the report
        // is gone. Those behind it are read in this look all the same: a later one would take their changes for later.
        for _ in 0..MAX_READS {
            match self.group.read_events() {
                Ok(events) => events.iter().for_each(|event| self.report(event, &mut told)),
                Err(Errno::EAGAIN) => return told,
                Err(Errno::EINTR) => {}
                // It may have been one of the recorder's.
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => drop(told.files.insert(ANY.to_owned(), None)),
                Err(_) => told.is_vague = true,
            }
        }
        told
    }

    fn report(&self, event: &FanotifyEvent, told: &mut Told) {
        if event.mask().contains(MaskFlags::FAN_Q_OVERFLOW) {
            told.files.insert(ANY.to_owned(), None);
            return;
        }
        if event.pid() == self.own {
            return;
        }
        let path = event.fd().and_then(|fd| {
            let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
            std::fs::read_link(link).ok()
        });
        let Some(path) = path else {
            told.is_vague = true;
            return;
        };
        let is_write = event.mask().contains(MaskFlags::FAN_MODIFY);
        let file = file_of(&path, self.instance.as_deref());
        if let Some(file) = file.filter(|file| is_write || acts_at_close(file)) {
            told.files.insert(file, self.writer(event.pid()));
        }
    }

    /// Text about a writer: `process 4711 (sh)`. The kernel gives no id of one in another pid namespace.
    fn writer(&self, pid: i32) -> Option<String> {
        let pid = u32::try_from(pid).ok().filter(|&pid| pid > 0)?;
        let comm = self.proc.read(&format!("{pid}/comm")).ok();
        let comm = comm.map(|comm| format!(" ({})", escape(comm.trim_ascii_end())));
        Some(format!("process {pid}{}", comm.unwrap_or_default()))
    }
}

/// Name of the instance that has this path; `None` for another directory.
fn instance_of(path: &Path) -> Option<String> {
    let is_instance = path.parent().and_then(Path::file_name).is_some_and(|parent| parent == "instances");
    path.file_name().filter(|_| is_instance).map(|name| name.to_string_lossy().into_owned())
}

/// Path of a control file relative to the trace directory of the instance, or to the top-level directory; `None` for a file of another
/// one. Where tracefs is mounted is not known.
fn file_of(path: &Path, instance: Option<&str>) -> Option<String> {
    let path = path.to_str()?;
    if let Some(instance) = instance {
        return path.split_once(&format!("/instances/{instance}/")).map(|(_, file)| file.to_owned());
    }
    if path.contains("/instances/") {
        return None;
    }
    let in_dir = DIRS.iter().filter(|dir| !dir.is_empty()).find_map(|dir| path.rfind(&format!("/{dir}/")));
    Some(in_dir.map_or(name_of(path), |at| &path[at + 1..]).to_owned())
}

/// Inotify watches of directories with control files.
pub(crate) struct Watched {
    inotify: OwnedFd,
    /// Directory, relative to the trace directory, by watch descriptor.
    dirs: HashMap<i32, String>,
    is_partial: bool,
}

impl Watched {
    fn begin(fs: &KernelFs, first: &[String]) -> io::Result<Watched> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut watched = Watched { inotify, dirs: HashMap::new(), is_partial: false };
        first.iter().try_for_each(|dir| watched.add(fs, dir.clone()))?;
        watched.is_partial = other_events(fs, first).any(|dir| watched.add(fs, dir).is_err());
        Ok(watched)
    }

    fn add(&mut self, fs: &KernelFs, dir: String) -> io::Result<()> {
        let path = fs.descriptor_path().join(&dir);
        let flags = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
        match inotify::add_watch(&self.inotify, path, flags) {
            Ok(watch) => drop(self.dirs.insert(watch, dir)),
            // An older kernel lacks this directory. Without /proc the path of every directory is missing.
            Err(Errno::NOENT) if fs.descriptor_path().exists() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn take(&mut self) -> Told {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut told = Told::default();
        // The last read gives EAGAIN; other errors carry no event, either.
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told.files.insert(ANY.to_owned(), None);
                continue;
            }
            let (Some(dir), Some(name)) = (self.dirs.get(&event.wd()), event.file_name()) else { continue };
            let name = name.to_string_lossy();
            if event.events().contains(ReadFlags::MODIFY) || acts_at_close(&name) {
                told.files.insert(if dir.is_empty() { name.into_owned() } else { format!("{dir}/{name}") }, None);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_wherever_tracefs_is_mounted() {
        let file = |path: &str, instance| file_of(Path::new(path), instance);
        let own = |file: &str| Some(file.to_owned());
        assert_eq!(
            file("/sys/kernel/debug/tracing/instances/a/events/x/y/filter", Some("a")),
            own("events/x/y/filter")
        );
        assert_eq!(file("/instances/a/tracing_on", Some("a")), own("tracing_on"));
        assert_eq!(file("/sys/kernel/tracing/instances/ab/tracing_on", Some("a")), None);
        assert_eq!(file("/sys/kernel/tracing/tracing_on", Some("a")), None);
        assert_eq!(file("/sys/kernel/tracing/tracing_on", None), own("tracing_on"));
        assert_eq!(file("/mnt/events/per_cpu/cpu1/trace", None), own("per_cpu/cpu1/trace"));
        assert_eq!(file("/mnt/events/events/x/enable", None), own("events/x/enable"));
        assert_eq!(file("/sys/kernel/tracing/instances/a/tracing_on", None), None);
        assert_eq!(instance_of(Path::new("tracefs/instances/a")), own("a"));
        assert_eq!(instance_of(Path::new("/sys/kernel/tracing")), None);
    }
}
