//! Control files of a recording, compared with their state at set-up to find changes by other programs.
//!
//! Files of the trace directory itself and of the recorded events are compared each second, and so are triggers of other events. The
//! kernel also reports each write. Where it does not, a change that is reverted between two comparisons goes unseen.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::control::clock::TraceClock;
use crate::control::rules::{
    EVENT_FILES, FUNCTION_TASKS, TASKS, is_compared, is_opened_anew, name_of, what_counts, with_events,
};
use crate::control::threads::ThreadList;
use crate::control::triggers::{Found, OtherTriggers};
use crate::control::writes::{Told, Writes};
use crate::fs::kernelfs::{KernelFs, PROC, is_absent};

/// Lists of the tasks that are recorded alone.
const TASK_LISTS: [&str; 2] = [TASKS, FUNCTION_TASKS];
/// Control file with all enabled events.
const EVENTS: &str = "set_event";
/// Files that exclude events of some threads, and their text while they exclude none.
const SELECTIONS: [(&str, &str); 3] = [("set_event_pid", ""), ("set_event_notrace_pid", ""), ("filter", "none")];
/// File with the CPUs whose events are recorded, as a mask.
const CPU_MASK: &str = "tracing_cpumask";
/// Most bytes read of a control file; only lists are longer, and their beginning is enough.
const MAX_BYTES: usize = 256 << 10;
/// Most characters of a control file in a message.
const MAX_SHOWN: usize = 60;

/// Right state of a control file.
enum Expected {
    Text(String),
    /// Threads that are recorded alone: the kernel adds those that begin, and takes off those that end.
    Threads(ThreadList),
}

/// A control file that is compared each second.
struct HeldFile {
    name: String,
    /// `None` for a file that is opened for each look.
    file: Option<File>,
    expected: Expected,
}

/// Open descriptors in an instance, which cannot be removed while one is open.
struct OpenFiles {
    fs: KernelFs,
    proc: Option<KernelFs>,
    held: Vec<HeldFile>,
    /// `None` for a relay channel.
    triggers: Option<OtherTriggers>,
    writes: Option<Writes>,
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

/// What the recorder itself sets in an instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selections {
    /// Filter files with the recorder's filter.
    pub(crate) filters: Vec<String>,
    /// True if the recorder lists the recorded tasks.
    pub(crate) has_tasks: bool,
    /// True if the instance is not the recorder's own: it may have triggers of others.
    pub(crate) is_used: bool,
}

/// Files that the recorder itself wrote to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnWrites {
    /// It switched the recording on or off.
    pub(crate) to_switches: bool,
    /// It added tasks to those that are recorded.
    pub(crate) to_task_lists: bool,
}

/// How writes of other programs are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    /// The kernel reports each.
    All,
    /// The kernel reports those to the instance and its recorded events.
    Partial,
    /// The files are compared.
    None,
}

/// Control files of a recording.
pub(crate) struct Control {
    open: Arc<Mutex<Option<OpenFiles>>>,
    clock: Option<TraceClock>,
    watching: Watching,
    /// Files that the recorder itself writes to while they are watched.
    switches: Vec<String>,
    own: Selections,
    /// Number of CPUs that are recorded.
    cpus: u32,
}

/// Number of CPUs in a mask such as `ff,ffffffff`.
fn cpus_in(mask: &str) -> u32 {
    mask.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum()
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
        let mut dirs: Vec<String> = ["", "events", "options"].map(str::to_owned).into();
        dirs.extend(events.iter().filter_map(|event| Some(format!("events/{}", event.split_once('/')?.0))));
        dirs.extend(events.iter().map(|event| format!("events/{event}")));
        dirs.extend(cpus.iter().map(|cpu| format!("per_cpu/cpu{cpu}")));
        dirs.sort();
        dirs.dedup();
        // Before the files are read: a write after this line is reported, so the state read below is right or known to be wrong.
        let writes = Writes::begin(&fs, &dirs).ok();
        let mut names = fs.names(".")?;
        names.retain(|name| {
            is_compared(name) && fs.mode_of(name).is_some_and(|mode| mode.contains(Mode::RUSR | Mode::WUSR))
        });
        names.extend(events.iter().flat_map(|event| EVENT_FILES.map(|file| format!("events/{event}/{file}"))));
        let mut stats = Vec::new();
        for cpu in cpus.iter().filter(|_| !clock.is_cheap()) {
            stats.extend(fs.open_if_there(&format!("per_cpu/cpu{cpu}/stats"), OFlags::RDONLY)?);
        }
        let switches = events.iter().map(|event| format!("events/{event}/enable"));
        let switches = switches.chain(["tracing_on".to_owned()]).collect();
        let mut held = hold(&fs, &names)?;
        for list in held.iter_mut().filter(|held| own.has_tasks && TASK_LISTS.contains(&held.name.as_str())) {
            list.expected = Expected::Threads(ThreadList::default());
        }
        let mut control = Control::new(fs, held, writes, switches);
        (control.clock, control.own) = (Some(clock), own);
        control.cpus = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        if let Some(open) = &mut *control.open() {
            open.stats = stats;
            let mut triggers = OtherTriggers::new(events);
            if control.own.is_used {
                triggers.take_for_right(&open.fs, &open.listed_events());
            }
            open.triggers = Some(triggers);
        }
        Ok(control)
    }

    /// Opens the switch of a relay channel.
    pub(crate) fn of_channel(fs: KernelFs) -> anyhow::Result<Control> {
        let switch = ["enabled".to_owned()];
        let writes = Writes::begin(&fs, &[String::new()]).ok();
        let held = hold(&fs, &switch)?;
        Ok(Control::new(fs, held, writes, switch.to_vec()))
    }

    fn new(fs: KernelFs, held: Vec<HeldFile>, writes: Option<Writes>, switches: Vec<String>) -> Control {
        let watching = match &writes {
            None => Watching::None,
            Some(writes) if writes.is_partial() => Watching::Partial,
            Some(_) => Watching::All,
        };
        let proc = KernelFs::find(&PROC).ok();
        let open = OpenFiles { fs, proc, held, triggers: None, writes, stats: Vec::new() };
        let open = Arc::new(Mutex::new(Some(open)));
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&open));
        Control { open, clock: None, watching, switches, own: Selections::default(), cpus: 0 }
    }

    fn open(&self) -> MutexGuard<'_, Option<OpenFiles>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the expected state: the recorder is about to switch the recording on or off. The switches of the events `later` stay as
    /// they are.
    pub(crate) fn switch(&self, on: bool, later: &[String]) {
        // Events are disabled by the removal of the instance, not before.
        let events =
            self.switches.iter().filter_map(|switch| event_of(switch)).filter(|event| on && !later.contains(event));
        let events: Vec<String> = events.collect();
        let Some(open) = &mut *self.open() else { return };
        for held in &mut open.held {
            let Expected::Text(expected) = &mut held.expected else { continue };
            if held.name == EVENTS {
                *expected = with_events(expected, events.iter().map(|event| event.replacen('/', ":", 1)));
            } else if event_of(&held.name).is_some_and(|event| events.contains(&event)) {
                "1".clone_into(expected);
            } else if event_of(&held.name).is_none() && self.switches.contains(&held.name) {
                if on { "1" } else { "0" }.clone_into(expected);
            }
        }
    }

    /// Adds tasks that the recorder, or the kernel for it, has put into the lists of the recorded ones.
    pub(crate) fn listed(&self, threads: &[u32]) {
        if let Some(open) = &mut *self.open() {
            for held in &mut open.held {
                if let Expected::Threads(list) = &mut held.expected
                    && held.name == TASKS
                {
                    list.add(threads.iter().copied());
                }
            }
        }
    }

    /// Filters that another program set in an instance before the recording, as `FILE is TEXT`.
    pub(crate) fn selections(&self) -> Vec<String> {
        let open = self.open();
        let held = open.iter().flat_map(|open| &open.held);
        let selects = |held: &HeldFile| {
            let Expected::Text(text) = &held.expected else { return None };
            let selections = SELECTIONS.iter().filter(|(name, _)| name_of(&held.name) == *name);
            let is_set = selections.into_iter().any(|(_, nothing)| text != nothing && text != "no pid")
                || held.name == CPU_MASK && cpus_in(text) < self.cpus;
            (is_set && !self.own.filters.contains(&held.name)).then(|| format!("{} is {}", held.name, shown(text)))
        };
        held.filter_map(selects).collect()
    }

    /// How writes of other programs are known.
    pub(crate) fn watching(&self) -> Watching {
        self.watching
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

    /// Writes of other programs since the last call. Where the kernel does not name writers, writes to files that the recorder itself
    /// wrote to meanwhile are left out.
    pub(crate) fn written(&mut self, own: OwnWrites) -> Told {
        let mut open = self.open();
        let Some(OpenFiles { writes: Some(writes), .. }) = &mut *open else { return Told::default() };
        let mut told = writes.take();
        if !writes.knows_writers() {
            told.files.retain(|file, _| !own.to_switches || !self.switches.contains(file));
            told.files.retain(|file, _| !own.to_task_lists || !TASK_LISTS.contains(&file.as_str()));
        }
        told
    }

    /// Differences from the state at set-up.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let mut open = self.open();
        let Some(open) = &mut *open else { return Vec::new() };
        let listed = open.listed_events();
        let OpenFiles { fs, proc, held, triggers, .. } = open;
        let held = held.iter_mut().filter_map(|held| held.difference(fs, proc.as_ref()));
        let others = triggers.iter().flat_map(|triggers| triggers.look(fs, &listed)).map(Difference::from);
        held.chain(others).collect()
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

impl From<Found> for Difference {
    fn from(found: Found) -> Difference {
        let how = format!("is {} instead of {}", shown(&found.text), shown(&found.expected));
        Difference { file: found.file, how }
    }
}

impl OpenFiles {
    /// Text of the list of events; empty where it cannot be read.
    fn listed_events(&self) -> String {
        let list = self.held.iter().find(|held| held.name == EVENTS);
        list.and_then(|held| text_of(&self.fs, EVENTS, held.file.as_ref()).ok()).unwrap_or_default()
    }
}

impl HeldFile {
    fn difference(&mut self, fs: &KernelFs, proc: Option<&KernelFs>) -> Option<Difference> {
        let text = text_of(fs, &self.name, self.file.as_ref());
        let how = match (&mut self.expected, text) {
            (_, Err(error)) => Some(format!("cannot be read: {error}")),
            (Expected::Threads(list), Ok(text)) => {
                // Of a longer list the end is not known.
                let lost = proc.filter(|_| text.len() < MAX_BYTES).map_or(0, |proc| list.look(&text, proc));
                (lost > 0).then(|| "lacks threads that were recorded".to_owned())
            }
            (Expected::Text(expected), Ok(text)) => {
                let now = what_counts(&self.name, &text);
                match self.name == EVENTS {
                    true => event_difference(fs, &now, expected),
                    false => (now != *expected).then(|| format!("is {} instead of {}", shown(&now), shown(expected))),
                }
            }
        };
        how.map(|how| Difference { file: self.name.clone(), how })
    }
}

/// Difference between lists of events; `None` where the kernel no longer has the events that are missing.
fn event_difference(fs: &KernelFs, now: &str, expected: &str) -> Option<String> {
    let now: BTreeSet<&str> = now.lines().collect();
    let expected: BTreeSet<&str> = expected.lines().collect();
    let is_there = |event: &&&str| fs.has(&format!("events/{}", event.replacen(':', "/", 1))).unwrap_or(true);
    let missing: Vec<&str> = expected.difference(&now).filter(is_there).copied().collect();
    let added: Vec<&str> = now.difference(&expected).copied().collect();
    let parts = [("lacks", missing), ("has also", added)].into_iter().filter(|(_, events)| !events.is_empty());
    let parts: Vec<String> = parts.map(|(word, events)| format!("{word} {}", shown(&events.join(" ")))).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// Event of which this file is the switch.
fn event_of(file: &str) -> Option<String> {
    Some(file.strip_prefix("events/")?.strip_suffix("/enable")?.to_owned())
}

/// Opens these files and reads their state. Older kernels lack some of them, and some kernels let nobody open or read one.
fn hold(fs: &KernelFs, names: &[String]) -> anyhow::Result<Vec<HeldFile>> {
    let is_refused =
        |error: &io::Error| matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP));
    let mut held = Vec::new();
    for name in names {
        let file = match fs.open(name, OFlags::RDONLY) {
            Ok(file) => Some(file).filter(|_| !is_opened_anew(name)),
            Err(error) if is_absent(&error) || is_refused(&error) => continue,
            Err(error) => return Err(fs.failed(name, "opened", error)),
        };
        match text_of(fs, name, file.as_ref()) {
            Ok(text) => {
                let expected = Expected::Text(what_counts(name, &text));
                held.push(HeldFile { name: name.clone(), file, expected });
            }
            Err(error) if is_refused(&error) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("{}: cannot be read", fs.path(name).display()));
            }
        }
    }
    Ok(held)
}

/// Text of a control file, which is opened anew if it is not held, or cannot seek: a switch of debugfs.
fn text_of(fs: &KernelFs, name: &str, file: Option<&File>) -> io::Result<String> {
    match file.map(text_from_start) {
        Some(Err(error)) if error.raw_os_error() == Some(Errno::SPIPE.raw_os_error()) => {}
        Some(text) => return text,
        None => {}
    }
    Ok(String::from_utf8_lossy(&fs.read(name)?).into_owned())
}

fn text_from_start(file: &File) -> io::Result<String> {
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
        let found = control.differences();
        found.into_iter().map(|found| format!("{} {}", found.file, found.how)).collect()
    }

    fn written(control: &mut Control, own: OwnWrites) -> Vec<String> {
        control.written(own).files.into_keys().collect()
    }

    #[test]
    fn the_recorders_own_switching_is_no_change_by_others() {
        let (dir, mut control) = fake();
        control.switch(false, &[]);
        std::fs::write(dir.path().join("tracing_on"), "0\n").unwrap();
        assert!(differences(&control).is_empty() && written(&mut control, SWITCHED).is_empty());
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
        let own = OwnWrites { to_task_lists: true, ..SWITCHED };
        assert!(control.selections().is_empty() && written(&mut control, own).is_empty());
        assert!(differences(&control).is_empty(), "the kernel adds tasks to the list");
        std::fs::write(dir.path().join("set_event_pid"), "12\n14\n").unwrap();
        assert!(
            written(&mut control, OwnWrites { to_task_lists: true, ..OwnWrites::default() }).is_empty(),
            "tasks were added"
        );
        std::fs::write(dir.path().join("set_event_pid"), "12\n13\n").unwrap();
        std::fs::write(dir.path().join(&filter), "none\n").unwrap();
        assert_eq!(written(&mut control, OwnWrites::default()), [filter.as_str(), "set_event_pid"]);
        assert_eq!(differences(&control), [format!("{filter} is none instead of bytes_req > 8")]);
    }

    #[test]
    fn descriptors_are_closed_when_they_must() {
        let (_dir, mut control) = fake();
        *OPEN.lock().unwrap() = Some(Arc::clone(&control.open));
        close_all();
        assert!(
            differences(&control).is_empty()
                && written(&mut control, OwnWrites::default()).is_empty()
                && !control.is_gone()
        );
    }

    #[test]
    fn a_change_is_seen_as_it_is_and_as_it_happens() {
        let (dir, mut control) = fake();
        assert!(control.watching() == Watching::All);
        assert!(differences(&control).is_empty() && written(&mut control, OwnWrites::default()).is_empty());
        std::fs::write(dir.path().join("tracing_on"), "0\n").unwrap();
        assert_eq!(differences(&control), ["tracing_on is 0 instead of 1"]);
        std::fs::write(dir.path().join("tracing_on"), "1\n").unwrap();
        assert!(differences(&control).is_empty());
        assert_eq!(written(&mut control, OwnWrites::default()), ["tracing_on"], "it was changed and changed back");
        assert!(written(&mut control, OwnWrites::default()).is_empty());
        std::fs::write(dir.path().join("events/kmem/kfree/filter"), "common_pid != 1\n").unwrap();
        assert_eq!(differences(&control), ["events/kmem/kfree/filter is common_pid != 1 instead of none"]);
        assert_eq!(written(&mut control, OwnWrites::default()), ["events/kmem/kfree/filter"]);
    }

    #[test]
    fn an_event_that_is_switched_later_keeps_its_state() {
        let (dir, _) = fake();
        let switch = dir.path().join("events/kmem/kfree/enable");
        std::fs::write(&switch, "0\n").unwrap();
        let (fs, events) = (KernelFs::at(dir.path()).unwrap(), ["kmem/kfree".to_owned()]);
        let control = Control::of_tracefs(fs, &events, &[0], TraceClock::named("mono"), Selections::default()).unwrap();
        control.switch(true, &events);
        assert!(differences(&control).is_empty(), "it is still off");
        control.switch(true, &[]);
        assert_eq!(differences(&control), ["events/kmem/kfree/enable is 0 instead of 1"]);
        std::fs::write(&switch, "1\n").unwrap();
        assert!(differences(&control).is_empty());
    }

    #[test]
    fn a_change_of_text_or_a_marker_is_left_alone() {
        let (dir, mut control) = fake();
        std::fs::write(dir.path().join("trace_marker"), "hello").unwrap();
        assert!(differences(&control).is_empty() && written(&mut control, OwnWrites::default()).is_empty());
        std::fs::write(dir.path().join("trace_options"), "noprint-parent\nnostacktrace\noverwrite\n").unwrap();
        assert!(differences(&control).is_empty(), "how text looks is not recorded");
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
