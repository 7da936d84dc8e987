//! Tasks that are recorded alone: those that `--pid`, `--comm` and `--cgroup` choose among the threads of the machine.
//!
//! The kernel adds the children of a listed thread to its list. Threads that come into the cgroup in another way are looked for once a
//! second.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::glob::Glob;
use kmemtrace_abi::text::units::counted;
use kmemtrace_sandbox::{Purpose, Sandbox};

use crate::args::Args;
use crate::control::foreign::Watcher;
use crate::fs::kernelfs::{KernelFs, PROC};
use crate::fs::mounts;
use crate::process::messages;
use crate::record::notices::{report_change, say_verbose};
use crate::source::TraceSource;
use crate::write::host_texts::live_threads;
use crate::write::names::Names;
use crate::write::own_threads::has_ids_of_events;

/// Interval between two looks for threads that came into the cgroup.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most looks at the start for threads that began during the one before.
const MAX_LOOKS: usize = 8;

/// Cgroup whose threads are recorded, with those of the cgroups below it.
#[derive(Debug)]
struct Group {
    root: KernelFs,
    /// Path below the root; `.` for the root itself.
    path: String,
    /// File of a cgroup with its thread ids.
    file: &'static str,
}

/// Choice of threads. A thread must match each option that was given.
#[derive(Debug)]
pub(crate) struct Tasks {
    proc: KernelFs,
    pids: Vec<i32>,
    comms: Vec<Glob>,
    group: Option<Group>,
    /// The options as they were typed.
    shown: String,
    /// Threads that were listed up to now, without children that the kernel has added.
    listed: usize,
    due: Instant,
    has_failed: bool,
}

/// Tasks that the command line chooses; `None` where it chooses none. An error says what does not go together, or that no thread matches.
pub(crate) fn chosen(args: &Args) -> anyhow::Result<Option<Tasks>> {
    let Some(option) = args.task_option() else { return Ok(None) };
    if args.relay.is_some() {
        bail!("{option}: a relay channel has the events of all tasks: leave {option} out, and give it to the report");
    }
    if args.boot {
        bail!("{option}: the kernel has recorded all tasks since boot: leave {option} out, and give it to the report");
    }
    if args.only_command {
        bail!("{option}: --only-command records COMMAND and its children alone: leave one of the two out");
    }
    if !has_ids_of_events() {
        bail!("{option}: the kernel lists tasks by ids that are not known in a pid namespace: record outside of it");
    }
    let proc = KernelFs::find(&PROC).with_context(|| option)?;
    let group = args.cgroup.as_deref().map(Group::find).transpose()?;
    let shown = shown(args);
    let (pids, comms) = (args.pid.clone(), args.comm.clone());
    let tasks = Tasks { proc, pids, comms, group, shown, listed: 0, due: Instant::now(), has_failed: false };
    if tasks.matching().is_empty() {
        return Err(tasks.no_match());
    }
    for pid in tasks.pids.iter().filter(|pid| tasks.threads_of(**pid).is_empty()) {
        messages::say(format!("kmemtraced: --pid {pid}: there is no such process or thread: the others are recorded"));
    }
    Ok(Some(tasks))
}

/// Text for people about the tasks that are recorded: those chosen, or else COMMAND.
pub(crate) fn whom(args: &Args, tasks: Option<&Tasks>) -> String {
    match tasks {
        Some(Tasks { listed, shown, .. }) => {
            let whose = if *listed == 1 { "its" } else { "their" };
            format!("{} ({shown}) and {whose} children", counted(*listed as u64, "thread"))
        }
        None => format!("{} and its children", args.command_name()),
    }
}

/// The options as they were typed.
fn shown(args: &Args) -> String {
    let joined = |words: &mut dyn Iterator<Item = String>| words.collect::<Vec<_>>().join(",");
    let lists = [
        ("--pid", joined(&mut args.pid.iter().map(i32::to_string))),
        ("--comm", joined(&mut args.comm.iter().map(Glob::to_string))),
        ("--cgroup", args.cgroup.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
    ];
    let given = lists.iter().filter(|(_, list)| !list.is_empty());
    let words: Vec<String> = given.map(|(name, list)| format!("{name} {}", escape(list.as_bytes()))).collect();
    words.join(" ")
}

impl Tasks {
    fn no_match(&self) -> anyhow::Error {
        anyhow::anyhow!(
            "{}: no thread matches: start the program first, or run it as COMMAND with --only-command",
            self.shown
        )
    }

    /// Cgroup to which threads are added while the kernel records, for people.
    pub(crate) fn grows(&self) -> Option<String> {
        self.group.as_ref().map(|_| "threads that come into the cgroup are added once a second".to_owned())
    }

    /// Allows to look for more threads.
    pub(crate) fn allow(&self, sandbox: &mut Sandbox) -> anyhow::Result<()> {
        self.proc.allow(Purpose::Read, sandbox)?;
        self.group.as_ref().map_or(Ok(()), |group| group.root.allow(Purpose::Read, sandbox))
    }

    /// Lists the threads that match, before the events are enabled.
    pub(crate) fn begin(&mut self, source: &dyn TraceSource, watcher: Option<&mut Watcher>) -> anyhow::Result<()> {
        let mut listed = BTreeSet::new();
        for _ in 0..MAX_LOOKS {
            // A thread that began since the last look may be the child of one that was not listed yet.
            let new: Vec<u32> = self.matching().difference(&listed).copied().collect();
            if new.is_empty() {
                break;
            }
            source.follow(&new)?;
            listed.extend(new);
        }
        if listed.is_empty() {
            return Err(self.no_match());
        }
        if let Some(watcher) = watcher {
            watcher.listed(&listed.iter().copied().collect::<Vec<_>>());
        }
        (self.listed, self.due) = (listed.len(), Instant::now() + INTERVAL);
        Ok(())
    }

    /// Once a second, adds threads that came into the cgroup. Returns true if there is no cgroup and the last recorded task has ended.
    pub(crate) fn look(
        &mut self,
        args: &Args,
        source: &dyn TraceSource,
        watcher: Option<&mut Watcher>,
        names: &mut Names,
    ) -> bool {
        if Instant::now() < self.due {
            return false;
        }
        self.due = Instant::now() + INTERVAL;
        let Some(followed) = source.followed() else { return false };
        if self.group.is_none() {
            return followed.is_empty();
        }
        if self.has_failed {
            return false;
        }
        let new: Vec<u32> = self.matching().difference(&followed).copied().collect();
        if new.is_empty() {
            return false;
        }
        let added = match watcher {
            Some(watcher) => {
                // What others wrote until now is theirs.
                report_change(watcher.compare());
                let added = source.follow(&new);
                watcher.listed(&new);
                added
            }
            None => source.follow(&new),
        };
        match added {
            Ok(()) => {
                say_verbose(args, &format!("{} came into the cgroup", counted(new.len() as u64, "thread")));
                self.listed += new.len();
                names.look_again(new.iter().filter_map(|thread| self.process_of(*thread)));
            }
            Err(error) => {
                self.has_failed = true;
                messages::say(format!("kmemtraced: {error:#}: threads that come into the cgroup are not recorded"));
            }
        }
        false
    }

    /// Threads that match, without those of this process.
    fn matching(&self) -> BTreeSet<u32> {
        let of_pids = || self.pids.iter().flat_map(|pid| self.threads_of(*pid)).collect::<BTreeSet<u32>>();
        let mut found = match &self.group {
            Some(group) => group.threads(),
            None if !self.pids.is_empty() => of_pids(),
            None => live_threads(&self.proc).map(|(_, thread)| thread).collect(),
        };
        if self.group.is_some() && !self.pids.is_empty() {
            let of_pids = of_pids();
            found.retain(|thread| of_pids.contains(thread));
        }
        if !self.comms.is_empty() {
            found.retain(|thread| self.is_named(*thread));
        }
        for own in self.proc.numbered("self/task", "").unwrap_or_default() {
            found.remove(&own);
        }
        found
    }

    fn is_named(&self, thread: u32) -> bool {
        // A thread that ended meanwhile has no name any more.
        let Ok(mut comm) = self.proc.read(&format!("{thread}/comm")) else { return false };
        if comm.last() == Some(&b'\n') {
            comm.pop();
        }
        self.comms.iter().any(|glob| glob.matches(&comm))
    }

    /// Threads of a process; a thread that is not the first of its process stands for itself.
    fn threads_of(&self, pid: i32) -> Vec<u32> {
        let id = pid.unsigned_abs();
        match self.process_of(id) {
            Some(process) if process == id => self.proc.numbered(&format!("{id}/task"), "").unwrap_or_default(),
            Some(_) => vec![id],
            None => Vec::new(),
        }
    }

    /// Process of a thread; `None` where there is no such thread.
    fn process_of(&self, thread: u32) -> Option<u32> {
        let status = self.proc.read(&format!("{thread}/status")).ok()?;
        let mut lines = status.split(|&b| b == b'\n');
        let process = lines.find_map(|line| line.strip_prefix(b"Tgid:"))?;
        std::str::from_utf8(process).ok()?.trim().parse().ok()
    }
}

impl Group {
    /// Finds a cgroup by its path, as `/proc/PID/cgroup` has it or below a mount point: in the hierarchy of version 2, else in that of the
    /// memory controller.
    fn find(path: &Path) -> anyhow::Result<Group> {
        let shown = || escape(path.as_os_str().as_bytes()).into_owned();
        let all = mounts::all();
        let unified = all.iter().filter(|mounted| mounted.kind == "cgroup2").map(|mounted| (mounted, "cgroup.threads"));
        let memory = all.iter().filter(|mounted| mounted.kind == "cgroup" && mounted.has_option("memory"));
        let hierarchies: Vec<_> = unified.chain(memory.map(|mounted| (mounted, "tasks"))).collect();
        if hierarchies.is_empty() {
            bail!("--cgroup {}: no cgroup file system is mounted: mount -t cgroup2 none /sys/fs/cgroup", shown());
        }
        for (mounted, file) in hierarchies {
            let below = path.strip_prefix(&mounted.dir).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
            let (Some(below), Ok(root)) = (below.to_str(), KernelFs::at(&mounted.dir)) else { continue };
            let below = if below.is_empty() { "." } else { below };
            if root.has(&format!("{below}/{file}")).unwrap_or(false) {
                return Ok(Group { root, path: below.to_owned(), file });
            }
        }
        bail!(
            "--cgroup {}: there is no such cgroup of version 2 or of the memory controller: give a path as in /proc/PID/cgroup",
            shown()
        );
    }

    /// Threads in the cgroup and in those below it.
    fn threads(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut cgroups = vec![self.path.clone()];
        while let Some(cgroup) = cgroups.pop() {
            // A cgroup that is gone has no threads.
            let text = self.root.read(&format!("{cgroup}/{}", self.file)).unwrap_or_default();
            found.extend(String::from_utf8_lossy(&text).lines().filter_map(|line| line.parse::<u32>().ok()));
            let below = self.root.dirs(&cgroup).unwrap_or_default();
            cgroups.extend(below.into_iter().map(|name| format!("{cgroup}/{name}")));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory of plain files in place of proc: threads as (id, process, name).
    fn proc_of(threads: &[(u32, u32, &str)]) -> (tempfile::TempDir, KernelFs) {
        let dir = tempfile::tempdir().unwrap();
        for (thread, process, comm) in threads {
            fs::create_dir_all(dir.path().join(format!("{process}/task/{thread}"))).unwrap();
            // proc has a directory of each thread by its id, which no listing shows.
            let own = dir.path().join(thread.to_string());
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(own.join("status"), format!("Name:\t{comm}\nTgid:\t{process}\nNgid:\t0\n")).unwrap();
        }
        let proc = KernelFs::at(dir.path()).unwrap();
        (dir, proc)
    }

    fn tasks(proc: KernelFs, pids: &[i32], comms: &[&str], group: Option<Group>) -> Tasks {
        let (pids, comms) = (pids.to_vec(), comms.iter().map(|comm| Glob::new(comm)).collect());
        Tasks { proc, pids, comms, group, shown: String::new(), listed: 0, due: Instant::now(), has_failed: false }
    }

    #[test]
    fn threads_match_all_options_that_were_given() {
        let threads = [(7, 7, "nginx"), (8, 7, "nginx-aio"), (9, 9, "sh"), (12, 12, "odd\nname")];
        let matching = |pids: &[i32], comms: &[&str]| {
            let (_dir, proc) = proc_of(&threads);
            tasks(proc, pids, comms, None).matching().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(matching(&[7], &[]), [7, 8], "a process with its threads");
        assert_eq!(matching(&[8], &[]), [8], "a thread alone");
        assert_eq!(matching(&[7, 9, 4000], &["*-aio", "sh"]), [8, 9]);
        assert_eq!(matching(&[], &["nginx*"]), [7, 8]);
        assert_eq!(matching(&[], &["odd?name"]), [12]);
        assert_eq!(matching(&[9], &["nginx"]), [0; 0]);
    }

    #[test]
    fn a_cgroup_has_the_threads_of_those_below_it() {
        let (_dir, proc) = proc_of(&[(7, 7, "a"), (8, 7, "b"), (9, 9, "c"), (10, 10, "d")]);
        let top = tempfile::tempdir().unwrap();
        for (path, text) in [("job", "7\n8\n"), ("job/part", "9\n"), ("job/part/empty", ""), ("other", "10\n")] {
            fs::create_dir_all(top.path().join(path)).unwrap();
            fs::write(top.path().join(path).join("cgroup.threads"), text).unwrap();
        }
        let group = |path: &str| {
            let root = KernelFs::at(top.path()).unwrap();
            Some(Group { root, path: path.to_owned(), file: "cgroup.threads" })
        };
        let chosen = tasks(proc, &[], &[], group("job"));
        assert_eq!(chosen.matching(), [7, 8, 9].into());
        let chosen = Tasks { pids: vec![7, 10], ..chosen };
        assert_eq!(chosen.matching(), [7, 8].into());
        let chosen = Tasks { pids: Vec::new(), comms: vec![Glob::new("c")], ..chosen };
        assert_eq!(chosen.matching(), [9].into());
        assert!(Tasks { group: group("gone"), ..chosen }.matching().is_empty());
    }
}
