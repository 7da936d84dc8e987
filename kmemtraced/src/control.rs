//! The control files of a recording, held open: a look at them tells what somebody else has changed since they were set.
//!
//! The kernel tells by inotify of each write to them as it comes, where /proc is mounted; without that, what is changed and changed
//! back between two looks is not seen.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use crate::clock::TraceClock;
use crate::kernelfs::KernelFs;

/// Files of a trace instance that say what is recorded.
const FILES: [&str; 10] = [
    "tracing_on",
    "set_event",
    "set_event_pid",
    "set_event_notrace_pid",
    "tracing_cpumask",
    "trace_clock",
    "buffer_size_kb",
    "buffer_subbuf_size_kb",
    "trace_options",
    "current_tracer",
];
/// Files of an instance and of a CPU to which a write is a command: it empties, swaps or shrinks the buffer.
const COMMANDS: [&str; 3] = ["trace", "snapshot", "free_buffer"];
/// Files of an event, of a system of events and of all of them.
const EVENT_FILES: [&str; 3] = ["enable", "filter", "trigger"];
/// Options that change which records there are; the others are about text.
const RECORD_OPTIONS: [&str; 7] =
    ["overwrite", "stacktrace", "userstacktrace", "irq-info", "event-fork", "function-fork", "pause-on-trace"];
/// No control file is longer, but lists of threads; their beginning is enough.
const LONGEST: usize = 64 << 10;
/// Characters of a control file that a message shows.
const SHOWN: usize = 60;

/// A file that is held open, and what it said when all was right.
struct Held {
    name: String,
    file: File,
    right: String,
}

/// Directories that the kernel tells of writes in.
struct Watches {
    inotify: OwnedFd,
    /// Directory, relative to the instance, by watch.
    dirs: HashMap<i32, String>,
}

/// The control files of a recording.
pub(crate) struct Control {
    fs: KernelFs,
    held: Vec<Held>,
    watches: Option<Watches>,
    clock: Option<TraceClock>,
    /// `stats` of each CPU, where the clock is read from these.
    stats: Vec<File>,
}

impl Control {
    /// Those of a trace directory in which these events were enabled for these CPUs. An error names the file.
    pub(crate) fn of_tracefs(
        fs: KernelFs,
        events: &[String],
        cpus: &[u32],
        clock: TraceClock,
    ) -> anyhow::Result<Control> {
        let mut names: Vec<String> = FILES.map(str::to_owned).into();
        names.extend(events.iter().flat_map(|event| EVENT_FILES.map(|file| format!("events/{event}/{file}"))));
        let mut dirs: Vec<String> = ["events", "options"].map(str::to_owned).into();
        dirs.extend(events.iter().filter_map(|event| Some(format!("events/{}", event.split_once('/')?.0))));
        dirs.extend(events.iter().map(|event| format!("events/{event}")));
        dirs.extend(cpus.iter().map(|cpu| format!("per_cpu/cpu{cpu}")));
        dirs.sort();
        dirs.dedup();
        let mut stats = Vec::new();
        for cpu in cpus.iter().filter(|_| !clock.is_cheap()) {
            stats.extend(fs.open_if_there(&format!("per_cpu/cpu{cpu}/stats"), OFlags::RDONLY)?);
        }
        Control::hold(fs, &names, dirs, Some(clock), stats)
    }

    /// The switch of a relay channel.
    pub(crate) fn of_channel(fs: KernelFs) -> anyhow::Result<Control> {
        Control::hold(fs, &["enabled".to_owned()], Vec::new(), None, Vec::new())
    }

    fn hold(
        fs: KernelFs,
        names: &[String],
        mut dirs: Vec<String>,
        clock: Option<TraceClock>,
        stats: Vec<File>,
    ) -> anyhow::Result<Control> {
        dirs.push(String::new());
        // A write is told of from here on, so what is read below is right or told of.
        let watches = Watches::set(&fs, dirs).ok();
        let mut held = Vec::new();
        for name in names {
            // Older kernels do not have all of them.
            let Some(file) = fs.open_if_there(name, OFlags::RDONLY)? else { continue };
            let right = state(name, &file).with_context(|| format!("{}: cannot be read", fs.path(name).display()))?;
            held.push(Held { name: name.clone(), file, right });
        }
        Ok(Control { fs, held, watches, clock, stats })
    }

    /// Whether the kernel tells of each write.
    pub(crate) fn is_watched(&self) -> bool {
        self.watches.is_some()
    }

    /// Whether [`Control::now`] costs nothing worth mentioning.
    pub(crate) fn has_cheap_clock(&self) -> bool {
        self.clock.is_none_or(TraceClock::is_cheap)
    }

    /// The time on the trace's clock, as (not later than, not earlier than) on any CPU; `None` where there is no such clock.
    pub(crate) fn now(&self) -> Option<(u64, u64)> {
        let clock = self.clock?;
        if let Some(now) = clock.system_now() {
            return Some(now);
        }
        let times = self.stats.iter().filter_map(|stats| clock.now(stats).ok().flatten());
        times.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// Files that were written to since this was last asked.
    pub(crate) fn written(&mut self) -> Vec<String> {
        self.watches.as_mut().map_or_else(Vec::new, Watches::take)
    }

    /// What is not as it was set, each as `FILE is X instead of Y`.
    pub(crate) fn differences(&self) -> Vec<String> {
        let differs = |held: &Held| match state(&held.name, &held.file) {
            Ok(now) if now == held.right => None,
            Ok(now) => Some(format!("{} is {} instead of {}", held.name, shown(&now), shown(&held.right))),
            Err(error) => Some(format!("{} cannot be read: {error}", held.name)),
        };
        self.held.iter().filter_map(differs).collect()
    }

    /// Whether the directory of the control files was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.fs.is_gone()
    }
}

impl Watches {
    fn set(fs: &KernelFs, dirs: Vec<String>) -> io::Result<Watches> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut by_watch = HashMap::new();
        for dir in dirs {
            let path = fs.descriptor_path().join(&dir);
            let flags = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
            match inotify::add_watch(&inotify, path, flags) {
                Ok(watch) => {
                    by_watch.insert(watch, dir);
                }
                // Without /proc the path of every directory is missing.
                Err(rustix::io::Errno::NOENT) if fs.descriptor_path().exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Watches { inotify, dirs: by_watch })
    }

    fn take(&mut self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut files = Vec::new();
        // The end is EAGAIN; another error tells of nothing.
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                files.push("control files".to_owned());
                continue;
            }
            let (Some(dir), Some(name)) = (self.dirs.get(&event.wd()), event.file_name()) else { continue };
            let name = name.to_string_lossy();
            if is_control(dir, &name) {
                files.push(if dir.is_empty() { name.into_owned() } else { format!("{dir}/{name}") });
            }
        }
        files.sort();
        files.dedup();
        files
    }
}

/// Whether a write to a file in this directory can change what is recorded.
fn is_control(dir: &str, name: &str) -> bool {
    match dir.split('/').next() {
        Some("events") => EVENT_FILES.contains(&name),
        Some("options") => RECORD_OPTIONS.contains(&name),
        Some("per_cpu") => COMMANDS.contains(&name) || name == "buffer_size_kb",
        _ => COMMANDS.contains(&name) || FILES.contains(&name) || name == "enabled",
    }
}

/// What a control file says of what is recorded.
fn state(name: &str, file: &File) -> io::Result<String> {
    let mut bytes = vec![0; 4096];
    let mut len = 0;
    while len < LONGEST {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if len == bytes.len() {
            bytes.resize((len * 2).min(LONGEST), 0);
        }
    }
    let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
    if name != "trace_options" {
        return Ok(text.trim_end().to_owned());
    }
    let is_record = |option: &&str| RECORD_OPTIONS.contains(&option.strip_prefix("no").unwrap_or(option));
    Ok(text.lines().filter(is_record).collect::<Vec<_>>().join(" "))
}

/// The beginning of a control file's text, on one line.
fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        _ if line.is_empty() => "empty".to_owned(),
        Some((cut, _)) => format!("{}...", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake() -> (tempfile::TempDir, Control) {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["events/kmem/kfree", "options", "per_cpu/cpu0"] {
            std::fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        for (file, text) in [
            ("tracing_on", "1\n"),
            ("trace_options", "print-parent\nnostacktrace\noverwrite\n"),
            ("events/kmem/kfree/enable", "1\n"),
            ("events/kmem/kfree/filter", "none\n"),
            ("trace_marker", ""),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        let control = Control::of_tracefs(fs, &["kmem/kfree".to_owned()], &[0], TraceClock::named("mono")).unwrap();
        (dir, control)
    }

    #[test]
    fn a_change_is_seen_as_it_is_and_as_it_happens() {
        let (dir, mut control) = fake();
        assert!(control.is_watched());
        assert!(control.differences().is_empty() && control.written().is_empty());
        std::fs::write(dir.path().join("tracing_on"), "0\n").unwrap();
        assert_eq!(control.differences(), ["tracing_on is 0 instead of 1"]);
        std::fs::write(dir.path().join("tracing_on"), "1\n").unwrap();
        assert!(control.differences().is_empty());
        assert_eq!(control.written(), ["tracing_on"], "it was changed and changed back");
        assert!(control.written().is_empty());
        std::fs::write(dir.path().join("events/kmem/kfree/filter"), "common_pid != 1\n").unwrap();
        assert_eq!(control.differences(), ["events/kmem/kfree/filter is common_pid != 1 instead of none"]);
        assert_eq!(control.written(), ["events/kmem/kfree/filter"]);
    }

    #[test]
    fn a_change_of_text_or_a_marker_is_left_alone() {
        let (dir, mut control) = fake();
        std::fs::write(dir.path().join("trace_marker"), "hello").unwrap();
        assert!(control.differences().is_empty() && control.written().is_empty());
        std::fs::write(dir.path().join("trace_options"), "noprint-parent\nnostacktrace\noverwrite\n").unwrap();
        assert!(control.differences().is_empty(), "how text looks is not recorded");
        std::fs::write(dir.path().join("trace_options"), "noprint-parent\nnostacktrace\nnooverwrite\n").unwrap();
        assert_eq!(
            control.differences(),
            ["trace_options is nostacktrace nooverwrite instead of nostacktrace overwrite"]
        );
    }

    #[test]
    fn a_long_text_is_cut_for_people() {
        assert_eq!(shown("a\n b\n"), "a b");
        assert_eq!(shown(""), "empty");
        assert_eq!(shown(&"x".repeat(100)), format!("{}...", "x".repeat(SHOWN)));
    }
}
