//! Cgroups of threads over time.
//!
//! A thread begins in the cgroup of the thread that made it; a move takes its whole thread group along. What `clone3` puts into a cgroup at
//! once has no event of a move: such a thread's cgroup is not known until an event, or a later look of the recorder, names it.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::TaskEvent;

/// `CLONE_THREAD` and `CLONE_INTO_CGROUP` (`include/uapi/linux/sched.h`).
const CLONE_THREAD: u64 = 0x0001_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// Limits of a hostile trace: paths, and changes of threads.
const MAX_PATHS: usize = 1 << 18;
const MAX_CHANGES: usize = 1 << 24;

/// Number of a path, from 1; 0 for a cgroup that is not known.
pub(crate) type CgroupNumber = u32;

/// Event about threads and cgroups that is kept until all before it are known.
#[derive(Clone, Debug)]
enum Change<P = CgroupNumber> {
    New { parent: i32, pid: i32, clone_flags: u64 },
    Attach { pid: i32, id: u64, path: P },
    Make { id: u64, path: P },
    Rename { id: u64, path: P },
    Remove { id: u64 },
}

impl<'n> Change<&'n [u8]> {
    /// Order key and change of an event in the hierarchy `own`.
    fn of(event: TaskEvent<'n>, own: i32) -> Option<(u64, Change<&'n [u8]>)> {
        Some(match event {
            TaskEvent::New { at, parent, pid, clone_flags } => (at, Change::New { parent, pid, clone_flags }),
            TaskEvent::Attach { at, pid, root, id, path } if root == own => (at, Change::Attach { pid, id, path }),
            TaskEvent::Make { at, root, id, path } if root == own => (at, Change::Make { id, path }),
            TaskEvent::Rename { at, root, id, path } if root == own => (at, Change::Rename { id, path }),
            TaskEvent::Remove { at, root, id } if root == own => (at, Change::Remove { id }),
            _ => return None,
        })
    }
}

impl<P> Change<P> {
    fn map<Q>(self, mut of: impl FnMut(P) -> Q) -> Change<Q> {
        match self {
            Change::New { parent, pid, clone_flags } => Change::New { parent, pid, clone_flags },
            Change::Attach { pid, id, path } => Change::Attach { pid, id, path: of(path) },
            Change::Make { id, path } => Change::Make { id, path: of(path) },
            Change::Rename { id, path } => Change::Rename { id, path: of(path) },
            Change::Remove { id } => Change::Remove { id },
        }
    }
}

/// Line of a recording's text.
#[derive(Clone, Copy, Debug)]
struct Line<'t> {
    tid: i32,
    tgid: i32,
    root: i32,
    path: &'t [u8],
}

/// Cgroups by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cgroups {
    /// Order keys of the changes of a thread, and its cgroup from then on, ascending.
    by_thread: HashMap<i32, Vec<(u64, CgroupNumber)>, RandomState>,
    paths: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, CgroupNumber, RandomState>,
}

impl Cgroups {
    /// Path of the cgroup of a thread at an order key; `None` where it is not known.
    pub(crate) fn path(&self, pid: i32, at: u64) -> Option<&[u8]> {
        self.path_of(self.at(pid, at))
    }

    /// Number of the cgroup of a thread at an order key.
    #[inline]
    pub(crate) fn at(&self, pid: i32, at: u64) -> CgroupNumber {
        let Some(changes) = self.by_thread.get(&pid) else { return 0 };
        let before = changes.partition_point(|(from, _)| *from <= at);
        before.checked_sub(1).and_then(|last| changes.get(last)).map_or(0, |(_, cgroup)| *cgroup)
    }

    /// Path of a number.
    pub(crate) fn path_of(&self, number: CgroupNumber) -> Option<&[u8]> {
        self.paths.get((number as usize).checked_sub(1)?).map(|path| &**path)
    }

    /// Change that an event tells of, with its order key; `None` for one of another hierarchy than `own`.
    fn change(&mut self, event: TaskEvent<'_>, own: i32) -> Option<(u64, Change)> {
        let (at, change) = Change::of(event, own)?;
        Some((at, change.map(|path| self.number(path))))
    }

    fn number(&mut self, path: &[u8]) -> CgroupNumber {
        if let Some(&number) = self.numbers.get(path) {
            return number;
        }
        if self.paths.len() >= MAX_PATHS {
            return 0;
        }
        self.paths.push(path.into());
        let number = self.paths.len() as CgroupNumber;
        self.numbers.insert(path.into(), number);
        number
    }
}

/// Gathers the events of all CPUs, in any order.
#[derive(Debug)]
pub(crate) struct CgroupBuilder<'t> {
    text: &'t [u8],
    /// Hierarchy whose paths count.
    root: i32,
    found: Cgroups,
    changes: Vec<(u64, Change)>,
}

impl<'t> CgroupBuilder<'t> {
    /// A builder for the hierarchy of the text `TID TGID ROOT PATH`; without a line that of version 2.
    pub(crate) fn new(text: &'t [u8]) -> CgroupBuilder<'t> {
        let root = lines(text).next().map_or(0, |line| line.root);
        CgroupBuilder { text, root, found: Cgroups::default(), changes: Vec::new() }
    }

    pub(crate) fn add(&mut self, event: TaskEvent<'_>) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.extend(self.found.change(event, self.root));
        }
    }

    /// Cgroups of all threads over time.
    pub(crate) fn finish(mut self) -> Cgroups {
        self.changes.sort_by_key(|(at, _)| *at);
        let moved = self.moved_groups();
        let mut replay = Replay { found: self.found, ..Replay::default() };
        // A thread that an event makes is told by a later line.
        let made: HashMap<i32, (), RandomState> = self
            .changes
            .iter()
            .filter_map(|(_, change)| match change {
                Change::New { pid, .. } => Some((*pid, ())),
                _ => None,
            })
            .collect();
        let mut later = Vec::new();
        for line in lines(self.text).filter(|line| line.root == self.root) {
            let is_made = made.contains_key(&line.tid);
            if is_made {
                later.push(line);
            }
            let path = replay.found.number(line.path);
            // A recorder of some tasks looks again at threads that it adds: their events begin then. A look at the end finds threads
            // where events have moved them.
            let is_told = is_made || moved.get(&line.tgid) == Some(&path);
            if !is_told || !replay.groups.contains_key(&line.tid) {
                replay.found.by_thread.remove(&line.tid);
                replay.begin(0, line.tid, line.tgid, path);
            }
        }
        self.changes.into_iter().for_each(|(at, change)| replay.take(at, change));
        replay.name_unknown(&later);
        replay.found
    }

    /// Where events, which are in order, move thread groups last.
    fn moved_groups(&self) -> HashMap<i32, CgroupNumber, RandomState> {
        let groups: HashMap<i32, i32, RandomState> = lines(self.text).map(|line| (line.tid, line.tgid)).collect();
        let of = |(_, change): &(u64, Change)| match change {
            Change::Attach { pid, path, .. } => Some((groups.get(pid).copied().unwrap_or(*pid), *path)),
            _ => None,
        };
        self.changes.iter().filter_map(of).collect()
    }
}

/// Cgroups of threads of a trace that grows: what is asked about has happened a moment ago.
#[derive(Debug)]
pub(crate) struct LiveCgroups {
    root: i32,
    replay: Replay,
    /// Changes that are not in order yet.
    waiting: Vec<(u64, Change)>,
    /// Changes since what is old was forgotten.
    changes: usize,
    /// Key up to which all is settled.
    until: u64,
}

/// Changes between two times at which old ones are forgotten.
const MANY_CHANGES: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };
/// Changes of a thread that are kept.
const KEPT_CHANGES: usize = 4;
/// Threads that are kept: no event tells that one has ended.
const MAX_LIVE_THREADS: usize = if cfg!(test) { 1 << 10 } else { 1 << 18 };

impl LiveCgroups {
    /// The threads of the text that a recording begins with.
    pub(crate) fn new(text: &[u8]) -> LiveCgroups {
        let root = lines(text).next().map_or(0, |line| line.root);
        let mut live = LiveCgroups { root, replay: Replay::default(), waiting: Vec::new(), changes: 0, until: 0 };
        live.look(text);
        live
    }

    /// Takes the lines of a later look of the recorder: threads whose cgroup is not known yet are in these.
    pub(crate) fn look(&mut self, text: &[u8]) {
        for line in lines(text).filter(|line| line.root == self.root) {
            if !self.replay.groups.contains_key(&line.tid) {
                let path = self.replay.found.number(line.path);
                self.replay.begin(0, line.tid, line.tgid, path);
            } else {
                self.replay.name_unknown(&[line]);
            }
        }
    }

    /// Takes an event of any CPU.
    pub(crate) fn add(&mut self, event: TaskEvent<'_>) {
        if self.waiting.len() < MAX_CHANGES {
            self.waiting.extend(self.replay.found.change(event, self.root));
        }
    }

    /// Collector for a reader of its own.
    pub(crate) fn collector(&self) -> TaskChanges {
        TaskChanges { root: self.root, changes: Vec::new() }
    }

    /// Takes the changes that a reader has come upon.
    pub(crate) fn take(&mut self, collected: &mut TaskChanges) {
        let found = &mut self.replay.found;
        let room = MAX_CHANGES.saturating_sub(self.waiting.len());
        let read = collected.changes.drain(..).take(room);
        self.waiting.extend(read.map(|(at, change)| (at, change.map(|path| found.number(&path)))));
    }

    /// Makes the changes up to the order key `until`: the readers are beyond it. A change that comes later counts from here on, because
    /// memory was counted by what was known.
    pub(crate) fn pass(&mut self, until: u64) {
        self.waiting.sort_by_key(|(at, _)| *at);
        let passed = self.waiting.partition_point(|(at, _)| *at <= until);
        let earliest = self.until.saturating_add(1);
        for (at, change) in self.waiting.drain(..passed) {
            self.replay.take(at.max(earliest), change);
        }
        self.until = self.until.max(until);
        self.changes += passed;
        if self.changes >= MANY_CHANGES {
            self.changes = 0;
            self.replay.forget_old();
        }
    }

    /// Path of the cgroup of a thread at an order key; `None` where it is not known.
    pub(crate) fn path(&self, pid: i32, at: u64) -> Option<&[u8]> {
        self.replay.found.path(pid, at)
    }

    /// Number of the cgroup of a thread at an order key that is settled.
    #[inline]
    pub(crate) fn at(&self, pid: i32, at: u64) -> CgroupNumber {
        self.replay.found.at(pid, at)
    }

    /// Path of a number.
    pub(crate) fn path_of(&self, number: CgroupNumber) -> Option<&[u8]> {
        self.replay.found.path_of(number)
    }
}

/// Events about threads and cgroups, as a reader comes upon them.
#[derive(Clone, Debug)]
pub(crate) struct TaskChanges {
    /// Hierarchy whose paths count.
    root: i32,
    changes: Vec<(u64, Change<Box<[u8]>>)>,
}

impl TaskChanges {
    pub(crate) fn add(&mut self, event: TaskEvent<'_>) {
        if let Some((at, change)) = Change::of(event, self.root) {
            self.changes.push((at, change.map(Box::from)));
        }
    }
}

/// State of all threads while the events are gone through in order.
#[derive(Debug, Default)]
struct Replay {
    found: Cgroups,
    /// Thread group of each thread.
    groups: HashMap<i32, i32, RandomState>,
    members: HashMap<i32, Vec<i32>, RandomState>,
    /// Paths by the numbers of cgroups, where an event told both.
    ids: HashMap<u64, CgroupNumber, RandomState>,
}

impl Replay {
    fn begin(&mut self, at: u64, tid: i32, tgid: i32, path: CgroupNumber) {
        if let Some(before) = self.groups.insert(tid, tgid)
            && let Some(members) = self.members.get_mut(&before)
        {
            members.retain(|member| *member != tid);
        }
        self.members.entry(tgid).or_default().push(tid);
        self.found.by_thread.entry(tid).or_default().push((at, path));
    }

    fn now(&self, tid: i32) -> CgroupNumber {
        self.found.at(tid, u64::MAX)
    }

    fn take(&mut self, at: u64, change: Change) {
        match change {
            Change::New { parent, pid, clone_flags } => {
                let group = self.groups.get(&parent).copied().unwrap_or(parent);
                let path = if clone_flags & CLONE_INTO_CGROUP != 0 { 0 } else { self.now(parent) };
                self.begin(at, pid, if clone_flags & CLONE_THREAD != 0 { group } else { pid }, path);
            }
            Change::Attach { pid, id, path } => {
                self.ids.insert(id, path);
                let group = self.groups.get(&pid).copied().unwrap_or(pid);
                let members = self.members.get(&group).cloned().unwrap_or_default();
                let others = members.into_iter().filter(|member| *member != pid);
                let all: Vec<i32> = others.chain([pid]).collect();
                all.into_iter().for_each(|tid| self.found.by_thread.entry(tid).or_default().push((at, path)));
            }
            Change::Make { id, path } => {
                self.ids.insert(id, path);
            }
            Change::Rename { id, path } => {
                if let Some(before) = self.ids.insert(id, path) {
                    self.rename(at, before, path);
                }
            }
            Change::Remove { id } => {
                self.ids.remove(&id);
            }
        }
    }

    /// Gives the threads in a cgroup, and in those below it, their paths under its other name.
    fn rename(&mut self, at: u64, before: CgroupNumber, path: CgroupNumber) {
        let [before, path] = [before, path].map(|of| self.found.path_of(of).unwrap_or_default().to_vec());
        let threads: Vec<i32> = self.groups.keys().copied().collect();
        for tid in threads {
            let own = self.found.path_of(self.now(tid)).unwrap_or_default();
            let Some(rest) = own.strip_prefix(&before[..]).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
            else {
                continue;
            };
            let renamed = self.found.number(&[&path, rest].concat());
            self.found.by_thread.entry(tid).or_default().push((at, renamed));
        }
    }

    /// Forgets all but the last changes of each thread, and the threads that changed longest ago where there are too many.
    fn forget_old(&mut self) {
        let Replay { found, groups, members, .. } = self;
        let last = |changes: &[(u64, CgroupNumber)]| changes.last().map_or(0, |(at, _)| *at);
        for changes in found.by_thread.values_mut() {
            changes.drain(..changes.len().saturating_sub(KEPT_CHANGES));
        }
        let Some(excess) = found.by_thread.len().checked_sub(MAX_LIVE_THREADS).filter(|excess| *excess > 0) else {
            return;
        };
        // Threads that the recording began with have no events: they stay.
        let mut ends: Vec<u64> = found.by_thread.values().map(|changes| last(changes)).filter(|at| *at > 0).collect();
        ends.sort_unstable();
        let Some(&limit) = ends.get(excess.min(ends.len()).saturating_sub(1)) else { return };
        found.by_thread.retain(|_, changes| last(changes) == 0 || last(changes) > limit);
        groups.retain(|tid, _| found.by_thread.contains_key(tid));
        members.values_mut().for_each(|tids| tids.retain(|tid| found.by_thread.contains_key(tid)));
        members.retain(|_, tids| !tids.is_empty());
    }

    /// Gives threads whose cgroup no event told what a later look of the recorder found.
    fn name_unknown(&mut self, lines: &[Line<'_>]) {
        for line in lines {
            let path = self.found.number(line.path);
            let changes = self.found.by_thread.get_mut(&line.tid);
            if let Some((_, unknown)) = changes.and_then(|changes| changes.iter_mut().rev().find(|(_, of)| *of == 0)) {
                *unknown = path;
            }
        }
    }
}

/// Lines `TID TGID ROOT PATH`; others are skipped.
fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.split(|&b| b == b'\n').filter_map(|line| {
        let mut words = line.splitn(4, |&b| b == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<i32>().ok();
        let (tid, tgid, root) = (number()?, number()?, number()?);
        let path = words.next().filter(|path| !path.is_empty())?;
        Some(Line { tid, tgid, root, path })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"1 1 0 /init\n10 10 0 /a\n11 10 0 /a\n20 20 0 /b\nx y\n5 5 7 /other\n";

    fn found(text: &[u8], events: &[TaskEvent<'_>]) -> Cgroups {
        let mut builder = CgroupBuilder::new(text);
        // CPUs are read one after the other.
        events.iter().rev().for_each(|event| builder.add(*event));
        builder.finish()
    }

    fn path(cgroups: &Cgroups, pid: i32, at: u64) -> Option<&str> {
        cgroups.path(pid, at).map(|path| std::str::from_utf8(path).unwrap())
    }

    #[test]
    fn a_move_takes_the_thread_group_along() {
        let attach = |at, pid, path: &'static str| TaskEvent::Attach { at, pid, root: 0, id: 3, path: path.as_bytes() };
        let other = TaskEvent::Attach { at: 70, pid: 10, root: 9, id: 3, path: b"/x" };
        let found = found(TEXT, &[attach(50, 10, "/c"), other, attach(90, 99, "/new")]);
        assert_eq!([0, 49].map(|at| path(&found, 11, at)), [Some("/a"); 2]);
        assert_eq!(
            (path(&found, 10, 50), path(&found, 11, 50), path(&found, 20, 50)),
            (Some("/c"), Some("/c"), Some("/b"))
        );
        assert_eq!(
            (path(&found, 11, 80), path(&found, 99, 89), path(&found, 99, 90)),
            (Some("/c"), None, Some("/new"))
        );
        assert_eq!(path(&found, 5, 0), None, "a line of another hierarchy");
        // Lines of a look at the end say where threads are by then.
        let text = [TEXT, b"10 10 0 /c\n11 10 0 /c\n"].concat();
        let found = self::found(&text, &[attach(50, 10, "/c")]);
        assert_eq!([49, 50].map(|at| [10, 11].map(|pid| path(&found, pid, at))), [[Some("/a"); 2], [Some("/c"); 2]]);
    }

    #[test]
    fn a_thread_begins_where_its_parent_is() {
        let new = |at, parent, pid, clone_flags| TaskEvent::New { at, parent, pid, clone_flags };
        let attach = |at, pid| TaskEvent::Attach { at, pid, root: 0, id: 3, path: b"/c" };
        let events = [
            new(10, 11, 30, CLONE_THREAD),
            new(20, 30, 31, 0),
            attach(30, 11),
            new(40, 10, 32, CLONE_INTO_CGROUP),
            new(41, 10, 33, CLONE_INTO_CGROUP),
            new(45, 32, 34, 0),
            attach(60, 32),
            // The number is used again.
            new(70, 20, 31, 0),
        ];
        let found = found(&[TEXT, b"33 33 0 /seen\n"].concat(), &events);
        assert_eq!((path(&found, 30, 9), path(&found, 30, 10), path(&found, 30, 30)), (None, Some("/a"), Some("/c")));
        assert_eq!(
            (path(&found, 31, 30), path(&found, 31, 69), path(&found, 31, 70)),
            (Some("/a"), Some("/a"), Some("/b"))
        );
        assert_eq!((path(&found, 32, 40), path(&found, 34, 45), path(&found, 32, 60)), (None, None, Some("/c")));
        assert_eq!(path(&found, 33, 41), Some("/seen"));
    }

    #[test]
    fn a_later_line_of_a_thread_that_no_event_made_holds() {
        let text = [TEXT, b"11 11 0 /moved\n20 20 0 /moved\n"].concat();
        let attach = TaskEvent::Attach { at: 50, pid: 20, root: 0, id: 3, path: b"/c" };
        let found = found(&text, &[attach]);
        let paths = [(10, 60), (11, 0), (20, 49), (20, 50)].map(|(pid, at)| path(&found, pid, at));
        assert_eq!(paths, [Some("/a"), Some("/moved"), Some("/moved"), Some("/c")]);
    }

    /// A reader comes upon the events of a CPU before those of the next one.
    #[test]
    fn a_trace_that_is_read_has_the_cgroups_of_the_whole_up_to_where_it_is_settled() {
        let attach = |at, pid, path: &'static str| TaskEvent::Attach { at, pid, root: 0, id: 3, path: path.as_bytes() };
        let events = [
            attach(50, 10, "/c"),
            TaskEvent::New { at: 60, parent: 11, pid: 30, clone_flags: 0 },
            attach(70, 20, "/d"),
            TaskEvent::New { at: 80, parent: 20, pid: 31, clone_flags: 0 },
        ];
        let mut coming = LiveCgroups::new(TEXT);
        let mut read = coming.collector();
        [3, 1, 2, 0].into_iter().for_each(|event| read.add(events[event]));
        coming.take(&mut read);
        let whole = found(TEXT, &events);
        for until in [0, 55, 60, 75, 100] {
            coming.pass(until);
            for (pid, at) in [10, 11, 20, 30, 31].into_iter().flat_map(|pid| [(pid, until / 2), (pid, until)]) {
                let path_so_far = coming.path_of(coming.at(pid, at));
                assert_eq!(path_so_far, whole.path(pid, at), "{pid} at {at}, settled up to {until}");
            }
        }
        // What was counted before stays where it was counted.
        read.add(attach(90, 10, "/late"));
        coming.take(&mut read);
        coming.pass(110);
        let paths = [100, 101].map(|at| coming.path_of(coming.at(10, at)));
        assert_eq!(paths, [Some(&b"/c"[..]), Some(b"/late")]);
    }

    #[test]
    fn threads_of_a_trace_that_grows_are_where_the_events_up_to_now_put_them() {
        let mut live = LiveCgroups::new(TEXT);
        let path =
            |live: &LiveCgroups, pid, at| live.path(pid, at).map(|path| String::from_utf8_lossy(path).into_owned());
        live.add(TaskEvent::Attach { at: 40, pid: 30, root: 0, id: 3, path: b"/small" });
        live.add(TaskEvent::New { at: 20, parent: 10, pid: 30, clone_flags: 0 });
        live.add(TaskEvent::New { at: 21, parent: 10, pid: 31, clone_flags: CLONE_INTO_CGROUP });
        live.pass(30);
        assert_eq!([30, 31].map(|pid| path(&live, pid, 50)), [Some("/a".to_owned()), None]);
        live.look(b"31 31 0 /service\n32 32 0 /later\n10 10 0 /not-new\n");
        live.pass(40);
        assert_eq!(
            [30, 31, 32, 10].map(|pid| path(&live, pid, 50).unwrap_or_default()),
            ["/small", "/service", "/later", "/a"]
        );
        for n in 0..2 * MANY_CHANGES as u64 {
            live.add(TaskEvent::Attach { at: 100 + n, pid: 30, root: 0, id: 3, path: b"/small" });
        }
        live.pass(u64::MAX);
        assert!(live.replay.found.by_thread[&30].len() <= KEPT_CHANGES);
    }

    #[test]
    fn too_many_threads_lose_those_that_changed_longest_ago() {
        let mut live = LiveCgroups::new(TEXT);
        for n in 0..(MAX_LIVE_THREADS + MANY_CHANGES) as u64 {
            live.add(TaskEvent::New { at: n + 1, parent: 10, pid: n as i32 + 1000, clone_flags: 0 });
        }
        live.pass(u64::MAX);
        let newest = (MAX_LIVE_THREADS + MANY_CHANGES - 1) as i32 + 1000;
        assert_eq!([10, 1000, newest].map(|pid| live.path(pid, u64::MAX).is_some()), [true, false, true]);
        assert!(live.replay.groups.len() <= MAX_LIVE_THREADS && live.replay.members.len() <= MAX_LIVE_THREADS);
    }

    #[test]
    fn a_cgroup_that_gets_another_name_takes_those_below_along() {
        let attach =
            |at, pid, id, path: &'static str| TaskEvent::Attach { at, pid, root: 0, id, path: path.as_bytes() };
        let events = [
            TaskEvent::Make { at: 1, root: 0, id: 7, path: b"/job" },
            attach(2, 10, 7, "/job"),
            attach(3, 20, 8, "/job/part"),
            TaskEvent::Make { at: 4, root: 0, id: 9, path: b"/jobs" },
            attach(5, 1, 9, "/jobs"),
            TaskEvent::Rename { at: 6, root: 0, id: 7, path: b"/done" },
            TaskEvent::Remove { at: 7, root: 0, id: 9 },
        ];
        let found = found(TEXT, &events);
        let paths = [10, 11, 20, 1].map(|pid| path(&found, pid, 6));
        assert_eq!(paths, [Some("/done"), Some("/done"), Some("/done/part"), Some("/jobs")]);
    }
}
