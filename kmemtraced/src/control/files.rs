//! Control files of a recording, held open and compared with their state at set-up to find changes by other programs.
//!
//! The kernel also reports each write by inotify, which takes a mounted /proc. Without it, a change that is reverted between two
//! comparisons goes unseen.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::control::clock::TraceClock;
use crate::fs::kernelfs::KernelFs;

/// Control file with the tasks to record; all where it was never written.
const TASKS: &str = "set_event_pid";
/// Control file with the tasks whose functions are recorded.
const FUNCTION_TASKS: &str = "set_ftrace_pid";
/// Control files of a trace instance.
const FILES: [&str; 9] = [
    "tracing_on",
    TASKS,
    "set_event_notrace_pid",
    "tracing_cpumask",
    "trace_clock",
    "buffer_size_kb",
    "buffer_subbuf_size_kb",
    "trace_options",
    "current_tracer",
];
/// Control files that choose the functions to record.
const FUNCTION_FILES: [&str; 3] = ["set_ftrace_filter", "set_ftrace_notrace", FUNCTION_TASKS];
/// Files of an instance or a CPU where a write is a command: it changes events, or empties, swaps or shrinks the buffer.
const COMMANDS: [&str; 4] = ["set_event", "trace", "snapshot", "free_buffer"];
/// Control files of an event, of an event system, and of all events.
const EVENT_FILES: [&str; 3] = ["enable", "filter", "trigger"];
/// Files whose change may empty the buffer, with all unread events.
const CLEARING: [&str; 6] =
    ["trace", "snapshot", "free_buffer", "trace_clock", "buffer_size_kb", "buffer_subbuf_size_kb"];
/// Trace options that change the records; the others change only their text.
const RECORD_OPTIONS: [&str; 7] =
    ["overwrite", "stacktrace", "userstacktrace", "irq-info", "event-fork", "function-fork", "pause-on-trace"];
/// Files that exclude events of some threads, and their text while they exclude none.
const SELECTIONS: [(&str, &str); 3] = [("set_event_pid", ""), ("set_event_notrace_pid", ""), ("filter", "none")];
/// Most bytes read of a control file; only lists of threads are longer, and their beginning is enough.
const MAX_BYTES: usize = 64 << 10;
/// Most characters of a control file in a message.
const MAX_SHOWN: usize = 60;

/// An open control file, with the text that it is to have.
struct HeldFile {
    name: String,
    file: File,
    expected: String,
}

/// Inotify watches of directories with control files.
struct Watches {
    inotify: OwnedFd,
    /// Directory, relative to the instance, by watch descriptor.
    dirs: HashMap<i32, String>,
}

/// Open descriptors in an instance, which cannot be removed while one is open.
struct OpenFiles {
    fs: KernelFs,
    held: Vec<HeldFile>,
    watches: Option<Watches>,
    /// `stats` of each CPU, where the trace clock is read from them.
    stats: Vec<File>,
}

/// Descriptors of this process's recording, for [`close_all`].
static OPEN: Mutex<Option<Arc<Mutex<Option<OpenFiles>>>>> = Mutex::new(None);

/// Closes the descriptors of this process's recording while the thread that uses them hangs elsewhere.
pub(crate) fn close_all() {
    let open = OPEN.try_lock().ok().and_then(|mut slot| slot.take());
    if let Some(Ok(mut open)) = open.as_ref().map(|open| open.try_lock()) {
        *open = None;
    }
}

/// A difference between a control file and its state at set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Path of the file, relative to the instance.
    pub(crate) file: String,
    /// Text `is X instead of Y`.
    pub(crate) how: String,
}

/// Selections of events that the recorder itself sets in an instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selections {
    /// Filter files with the recorder's filter.
    pub(crate) filters: Vec<String>,
    /// True if the recorder lists the recorded tasks in `set_event_pid`. The kernel changes that list when tasks begin and end, so
    /// only writes to it are looked at.
    pub(crate) has_tasks: bool,
    /// True if functions are recorded.
    pub(crate) has_functions: bool,
}

/// Files that the recorder itself wrote to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnWrites {
    /// It switched the recording on or off.
    pub(crate) to_switches: bool,
    /// It added tasks to those that are recorded.
    pub(crate) to_task_lists: bool,
}

/// Control files of a recording.
pub(crate) struct Control {
    open: Arc<Mutex<Option<OpenFiles>>>,
    clock: Option<TraceClock>,
    is_watched: bool,
    /// Files that the recorder itself writes to while they are watched.
    switches: Vec<String>,
    own: Selections,
}

impl Control {
    /// Opens the control files of a trace directory for these events and CPUs, before the events are enabled. An error names the
    /// file.
    pub(crate) fn of_tracefs(
        fs: KernelFs,
        events: &[String],
        cpus: &[u32],
        clock: TraceClock,
        own: Selections,
    ) -> anyhow::Result<Control> {
        let is_compared = |file: &&str| !(own.has_tasks && [TASKS, FUNCTION_TASKS].contains(file));
        let functions = FUNCTION_FILES.into_iter().filter(|_| own.has_functions);
        let mut names: Vec<String> =
            FILES.into_iter().chain(functions).filter(is_compared).map(str::to_owned).collect();
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
        let switches = events.iter().map(|event| format!("events/{event}/enable")).chain(["tracing_on".to_owned()]);
        let tasks = [TASKS, FUNCTION_TASKS].into_iter().filter(|_| own.has_tasks);
        let switches = switches.chain(tasks.map(str::to_owned)).collect();
        let mut control = Control::hold(fs, &names, dirs, Some(clock), stats, switches)?;
        control.own = own;
        Ok(control)
    }

    /// Opens the switch of a relay channel.
    pub(crate) fn of_channel(fs: KernelFs) -> anyhow::Result<Control> {
        let switch = ["enabled".to_owned()];
        Control::hold(fs, &switch, Vec::new(), None, Vec::new(), switch.to_vec())
    }

    fn hold(
        fs: KernelFs,
        names: &[String],
        mut dirs: Vec<String>,
        clock: Option<TraceClock>,
        stats: Vec<File>,
        switches: Vec<String>,
    ) -> anyhow::Result<Control> {
        dirs.push(String::new());
        // Watched before they are read: a write after this line is reported, so the state read below is right or known to be wrong.
        let watches = Watches::set(&fs, dirs).ok();
        let is_watched = watches.is_some();
        let mut held = Vec::new();
        for name in names {
            // Older kernels lack some of these files.
            let Some(file) = fs.open_if_there(name, OFlags::RDONLY)? else { continue };
            let expected = state(&fs, name, &file);
            let expected = expected.with_context(|| format!("{}: cannot be read", fs.path(name).display()))?;
            held.push(HeldFile { name: name.clone(), file, expected });
        }
        let open = Arc::new(Mutex::new(Some(OpenFiles { fs, held, watches, stats })));
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&open));
        Ok(Control { open, clock, is_watched, switches, own: Selections::default() })
    }

    fn open(&self) -> MutexGuard<'_, Option<OpenFiles>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the expected state: the recorder is about to switch the recording on or off. The switches of the events `later` stay as
    /// they are.
    pub(crate) fn switch(&self, on: bool, later: &[String]) {
        let expected = if on { "1" } else { "0" };
        // Events are disabled by the removal of the instance, not before.
        let is_later = |name: &str| later.iter().any(|event| name == format!("events/{event}/enable"));
        let is_switched = |name: &str| {
            self.switches.iter().any(|switch| switch == name) && (on || !name.ends_with("/enable")) && !is_later(name)
        };
        if let Some(open) = &mut *self.open() {
            open.held
                .iter_mut()
                .filter(|held| is_switched(&held.name))
                .for_each(|held| held.expected = expected.to_owned());
        }
    }

    /// Filters that another program set in an instance before the recording, as `FILE is TEXT`.
    pub(crate) fn selections(&self) -> Vec<String> {
        let open = self.open();
        let held = open.iter().flat_map(|open| &open.held);
        let selects = |held: &&HeldFile| {
            let file = held.name.rsplit('/').next().unwrap_or_default();
            SELECTIONS
                .iter()
                .any(|(name, nothing)| file == *name && held.expected != *nothing && held.expected != "no pid")
                && !self.own.filters.contains(&held.name)
        };
        held.filter(selects).map(|held| format!("{} is {}", held.name, shown(&held.expected))).collect()
    }

    /// True if the kernel reports each write.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// True if [`Control::now`] takes no system call.
    pub(crate) fn has_cheap_clock(&self) -> bool {
        self.clock.is_none_or(TraceClock::is_cheap)
    }

    /// Current time of the trace clock as (lower bound, upper bound) over all CPUs; `None` where the source has no clock.
    pub(crate) fn now(&self) -> Option<(u64, u64)> {
        let clock = self.clock?;
        if let Some(now) = clock.system_now() {
            return Some(now);
        }
        let open = self.open();
        let stats = open.iter().flat_map(|open| &open.stats);
        stats.filter_map(|stats| clock.now(stats).ok().flatten()).reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
    }

    /// Files that another program wrote to since the last call, without those that the recorder itself wrote to meanwhile.
    pub(crate) fn written(&mut self, own: OwnWrites) -> Vec<String> {
        let mut files = match &mut *self.open() {
            Some(OpenFiles { watches: Some(watches), .. }) => watches.take(),
            _ => Vec::new(),
        };
        files.retain(|file| !own.to_switches || !self.switches.contains(file));
        files.retain(|file| !own.to_task_lists || ![TASKS, FUNCTION_TASKS].contains(&file.as_str()));
        files.retain(|file| self.own.has_functions || !FUNCTION_FILES.contains(&file.as_str()));
        files
    }

    /// Differences from the state at set-up.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let open = self.open();
        let Some(open) = &*open else { return Vec::new() };
        let differs = |held: &HeldFile| {
            let how = match state(&open.fs, &held.name, &held.file) {
                Ok(now) if now == held.expected => return None,
                Ok(now) => format!("is {} instead of {}", shown(&now), shown(&held.expected)),
                Err(error) => format!("cannot be read: {error}"),
            };
            Some(Difference { file: held.name.clone(), how })
        };
        open.held.iter().filter_map(differs).collect()
    }

    /// True if the instance was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.open().as_ref().is_some_and(|open| open.fs.is_gone())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        *self.open() = None;
    }
}

/// True if a write to this file may empty the buffer.
pub(crate) fn may_clear(file: &str) -> bool {
    CLEARING.contains(&file.rsplit('/').next().unwrap_or_default())
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
                // An older kernel lacks this directory. Without /proc the path of every directory is missing.
                Err(Errno::NOENT) if fs.descriptor_path().exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Watches { inotify, dirs: by_watch })
    }

    /// Control files that were written to since the last call, sorted.
    fn take(&mut self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut files = Vec::new();
        // The last read gives EAGAIN; other errors carry no event, either.
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

/// True if a write to this file can change the recording.
fn is_control(dir: &str, name: &str) -> bool {
    match dir.split('/').next() {
        Some("events") => EVENT_FILES.contains(&name),
        Some("options") => RECORD_OPTIONS.contains(&name),
        Some("per_cpu") => COMMANDS.contains(&name) || name == "buffer_size_kb",
        _ => {
            let files = [&COMMANDS[..], &FILES, &FUNCTION_FILES].concat();
            files.contains(&name) || name == "enabled"
        }
    }
}

/// Text of a control file, without options that change only the text of records.
fn state(fs: &KernelFs, name: &str, file: &File) -> io::Result<String> {
    let text = match text_of(file) {
        // A switch of debugfs cannot seek, so it is opened anew.
        Err(error) if error.raw_os_error() == Some(Errno::SPIPE.raw_os_error()) => {
            String::from_utf8_lossy(&fs.read(name)?).into_owned()
        }
        text => text?,
    };
    if name != "trace_options" {
        let text = text.trim_end();
        // A star stands for a trigger, which has a file of its own.
        let is_switch = name.ends_with("/enable");
        return Ok(text.strip_suffix('*').filter(|_| is_switch).unwrap_or(text).to_owned());
    }
    let is_record = |option: &&str| RECORD_OPTIONS.contains(&option.strip_prefix("no").unwrap_or(option));
    Ok(text.lines().filter(is_record).collect::<Vec<_>>().join(" "))
}

fn text_of(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; 4096];
    let mut len = 0;
    while len < MAX_BYTES {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if len == bytes.len() {
            bytes.resize((len * 2).min(MAX_BYTES), 0);
        }
    }
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// Beginning of a control file's text, on one line.
fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_SHOWN) {
        _ if line.is_empty() => "empty".to_owned(),
        Some((cut, _)) => format!("{}...", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCHED: OwnWrites = OwnWrites { to_switches: true, to_task_lists: false };

    fn fake() -> (tempfile::TempDir, Control) {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["events/kmem/kfree", "options", "per_cpu/cpu0"] {
            std::fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        for (file, text) in [
            ("tracing_on", "1\n"),
            ("trace_options", "print-parent\nnostacktrace\noverwrite\n"),
            ("events/kmem/kfree/enable", "1*\n"),
            ("events/kmem/kfree/filter", "none\n"),
            ("trace_marker", ""),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        let control =
            Control::of_tracefs(fs, &["kmem/kfree".to_owned()], &[0], TraceClock::named("mono"), Selections::default())
                .unwrap();
        (dir, control)
    }

    fn differences(control: &Control) -> Vec<String> {
        control.differences().into_iter().map(|found| format!("{} {}", found.file, found.how)).collect()
    }

    #[test]
    fn the_recorders_own_switching_is_no_change_by_others() {
        let (dir, mut control) = fake();
        control.switch(false, &[]);
        std::fs::write(dir.path().join("tracing_on"), "0\n").unwrap();
        assert!(control.differences().is_empty() && control.written(SWITCHED).is_empty());
        std::fs::write(dir.path().join("tracing_on"), "1\n").unwrap();
        assert_eq!(differences(&control), ["tracing_on is 1 instead of 0"]);
        assert!(control.selections().is_empty());
    }

    #[test]
    fn a_filter_that_was_there_before_is_told() {
        let (dir, control) = fake();
        std::fs::write(dir.path().join("events/kmem/kfree/filter"), "common_pid != 1\n").unwrap();
        std::fs::write(dir.path().join("set_event_pid"), "12\n").unwrap();
        assert!(control.selections().is_empty(), "the state at set-up had no filters");
        let fs = KernelFs::at(dir.path()).unwrap();
        let control =
            Control::of_tracefs(fs, &["kmem/kfree".to_owned()], &[0], TraceClock::named("mono"), Selections::default())
                .unwrap();
        assert_eq!(control.selections(), ["set_event_pid is 12", "events/kmem/kfree/filter is common_pid != 1"]);
    }

    #[test]
    fn the_recorders_own_selections_are_no_change_by_others() {
        let (dir, _) = fake();
        let filter = "events/kmem/kfree/filter".to_owned();
        std::fs::write(dir.path().join(&filter), "bytes_req > 8\n").unwrap();
        std::fs::write(dir.path().join("set_event_pid"), "").unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let own = Selections { filters: vec![filter.clone()], has_tasks: true, ..Selections::default() };
        let events = ["kmem/kfree".to_owned()];
        let mut control = Control::of_tracefs(fs, &events, &[0], TraceClock::named("mono"), own).unwrap();
        std::fs::write(dir.path().join("set_event_pid"), "12\n").unwrap();
        control.switch(true, &[]);
        assert!(control.selections().is_empty() && control.written(SWITCHED).is_empty());
        assert!(control.differences().is_empty(), "the kernel adds tasks to the list");
        std::fs::write(dir.path().join("set_event_pid"), "12\n14\n").unwrap();
        assert!(
            control.written(OwnWrites { to_task_lists: true, ..OwnWrites::default() }).is_empty(),
            "tasks were added"
        );
        std::fs::write(dir.path().join("set_event_pid"), "12\n13\n").unwrap();
        std::fs::write(dir.path().join(&filter), "none\n").unwrap();
        assert_eq!(control.written(OwnWrites::default()), [filter.as_str(), "set_event_pid"]);
        assert_eq!(differences(&control), [format!("{filter} is none instead of bytes_req > 8")]);
    }

    #[test]
    fn descriptors_are_closed_when_they_must() {
        let (_dir, mut control) = fake();
        *OPEN.lock().unwrap() = Some(Arc::clone(&control.open));
        close_all();
        assert!(
            control.differences().is_empty() && control.written(OwnWrites::default()).is_empty() && !control.is_gone()
        );
    }

    #[test]
    fn a_change_is_seen_as_it_is_and_as_it_happens() {
        let (dir, mut control) = fake();
        assert!(control.is_watched());
        assert!(control.differences().is_empty() && control.written(OwnWrites::default()).is_empty());
        std::fs::write(dir.path().join("tracing_on"), "0\n").unwrap();
        assert_eq!(differences(&control), ["tracing_on is 0 instead of 1"]);
        std::fs::write(dir.path().join("tracing_on"), "1\n").unwrap();
        assert!(control.differences().is_empty());
        assert_eq!(control.written(OwnWrites::default()), ["tracing_on"], "it was changed and changed back");
        assert!(control.written(OwnWrites::default()).is_empty());
        std::fs::write(dir.path().join("events/kmem/kfree/filter"), "common_pid != 1\n").unwrap();
        assert_eq!(differences(&control), ["events/kmem/kfree/filter is common_pid != 1 instead of none"]);
        assert_eq!(control.written(OwnWrites::default()), ["events/kmem/kfree/filter"]);
    }

    #[test]
    fn an_event_that_is_switched_later_keeps_its_state() {
        let (dir, _) = fake();
        let switch = dir.path().join("events/kmem/kfree/enable");
        std::fs::write(&switch, "0\n").unwrap();
        let (fs, events) = (KernelFs::at(dir.path()).unwrap(), ["kmem/kfree".to_owned()]);
        let control = Control::of_tracefs(fs, &events, &[0], TraceClock::named("mono"), Selections::default()).unwrap();
        control.switch(true, &events);
        assert!(control.differences().is_empty(), "it is still off");
        control.switch(true, &[]);
        assert_eq!(differences(&control), ["events/kmem/kfree/enable is 0 instead of 1"]);
        std::fs::write(&switch, "1\n").unwrap();
        assert!(control.differences().is_empty());
    }

    #[test]
    fn a_change_of_text_or_a_marker_is_left_alone() {
        let (dir, mut control) = fake();
        std::fs::write(dir.path().join("trace_marker"), "hello").unwrap();
        assert!(control.differences().is_empty() && control.written(OwnWrites::default()).is_empty());
        std::fs::write(dir.path().join("trace_options"), "noprint-parent\nnostacktrace\noverwrite\n").unwrap();
        assert!(control.differences().is_empty(), "how text looks is not recorded");
        std::fs::write(dir.path().join("trace_options"), "noprint-parent\nnostacktrace\nnooverwrite\n").unwrap();
        assert_eq!(
            differences(&control),
            ["trace_options is nostacktrace nooverwrite instead of nostacktrace overwrite"]
        );
    }

    #[test]
    fn a_long_text_is_cut_for_people() {
        assert_eq!(shown("a\n b\n"), "a b");
        assert_eq!(shown(""), "empty");
        assert_eq!(shown(&"x".repeat(100)), format!("{}...", "x".repeat(MAX_SHOWN)));
    }
}
