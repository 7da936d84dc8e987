//! Probe events for frees without an event of their own: objects given to `kfree_rcu`, and objects freed in bulk.
//!
//! The recorder defines them in `dynamic_events` of the top-level trace directory, in a group of its own, and enables them in the
//! trace directory that it records from. The kernel keeps a definition while an instance has it enabled, and removing one empties the
//! buffers in which it ever was. Hence the order: make and lock the instance, define, enable; at the end drain the buffers,
//! remove the instance, remove the definitions.
//!
//! A group belongs to every instance whose name gives it. Definitions of a group without such an instance are left over, and anybody
//! may remove them. The instance exists before and after the definitions, so a recorder that is killed at any point leaves a state
//! that `recover` can undo. Programs that change `dynamic_events` lock it: an instance that was absent when the lock was taken
//! has no definitions before the lock is released.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
pub(crate) use kmemtrace_abi::kernel::probes::group_of;
use kmemtrace_abi::kernel::probes::{ALLOC_BULK, CAPTURE_GROUP, FREE_BULK, KVFREE_RCU, MAX_ADDRESSES};
use kmemtrace_abi::text::escape::escape;
use rustix::fs::{FlockOperation, OFlags};

use crate::fs::kernelfs::KernelFs;
use crate::source::{events, stacks};

/// Control file with the definitions of all probe events. Opening it with O_TRUNC removes all of them.
const FILE: &str = "dynamic_events";
/// The probe events, and the kernel functions that they are on.
const FUNCTIONS: [(&str, &str); 3] = [
    (KVFREE_RCU, "kvfree_call_rcu"),
    (FREE_BULK, "kmem_cache_free_bulk"),
    (ALLOC_BULK, "kmem_cache_alloc_bulk_noprof"),
];
/// Begin of the name of each group.
const GROUPS: &str = "kmemtrace_";
/// Instance of `capture.sh`.
const CAPTURE_INSTANCE: &str = "kmemtrace-capture";
/// Name that gives the group of a recorder of the top-level buffer. No instance has it.
pub(crate) const TOP_LEVEL: &str = "";

/// First kernel whose return probes have the arguments of the function.
const FIRST: (u32, u32) = (6, 9);
/// First kernel in which `kfree_rcu` ends without an event. Before it, each object has an event of `kfree`.
const FIRST_WITHOUT_EVENT: (u32, u32) = (5, 7);

/// Most attempts to lock the definitions, and the pause between two of them.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Probe events of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    /// Group of the events; `None` if there are none.
    pub(crate) group: Option<String>,
    /// The events, as `system/event`.
    pub(crate) events: Vec<String>,
    /// Their definitions, as written to `dynamic_events`.
    definitions: Vec<String>,
    /// Text for the user; `None` if no slab events are recorded.
    pub(crate) shown: Option<String>,
}

impl Probes {
    /// Text of the item PROBES for events that were all enabled from the time `from` on; `None` without events.
    pub(crate) fn text(&self, from: u64) -> Option<String> {
        (!self.definitions.is_empty()).then(|| format!("{from}\n{}", self.definitions.join("\n")))
    }
}

/// What a recording wants of the probe events.
pub(crate) struct Wanted<'a> {
    /// Top-level trace directory.
    pub(crate) top: &'a KernelFs,
    /// Trace directory of the buffers, locked by this process.
    pub(crate) fs: &'a KernelFs,
    /// Name of the instance, or [`TOP_LEVEL`].
    pub(crate) name: &'a str,
    /// Other events of the recording, as `system/event`.
    pub(crate) events: &'a [String],
    /// Filters that allocation events must be able to have.
    pub(crate) filters: &'a [&'a str],
    /// True if the events are to be enabled at once.
    pub(crate) enables: bool,
}

/// True if a recording of these events needs probe events to see all frees.
pub(crate) fn are_useful(events: &[String]) -> bool {
    has_caches(events) || events::has_pair(events, "kmem/kmalloc")
}

/// True if allocations and frees of objects of caches are recorded.
fn has_caches(events: &[String]) -> bool {
    events::has_pair(events, "kmem/kmem_cache_alloc")
}

/// True for the probe event of allocations in bulk.
pub(crate) fn is_alloc_bulk(event: &str) -> bool {
    event.split_once('/').is_some_and(|(group, name)| group.starts_with(GROUPS) && name == ALLOC_BULK)
}

/// Text for a recording of these events without probe events.
pub(crate) fn left_out(events: &[String]) -> Probes {
    let reason = || Err("--no-probes".to_owned());
    Probes { shown: are_useful(events).then(|| shown(&reason(), &reason())), ..Probes::default() }
}

/// Defines the probe events, and enables them if that is wanted. What the kernel refuses is left out, and the text for the user has its
/// reason. An error if an instance of another name has the same group.
pub(crate) fn set_up(wanted: &Wanted<'_>) -> anyhow::Result<Probes> {
    if !are_useful(wanted.events) {
        return Ok(Probes::default());
    }
    let kernel = Kernel::this(wanted.top);
    let mut probes = Probes::default();
    let (mut rcu, mut bulk) = match kernel.form() {
        Ok(form) => define(wanted, form, &mut probes)?,
        Err(reason) => (Err(reason.clone()), Err(reason)),
    };
    if kernel.release < FIRST_WITHOUT_EVENT {
        rcu = Ok(());
    }
    if !has_caches(wanted.events) {
        bulk = Err("no events of caches are recorded".to_owned());
    }
    probes.shown = Some(shown(&rcu, &bulk));
    Ok(probes)
}

/// What of the kernel decides about probe events.
struct Kernel {
    release: (u32, u32),
    machine: String,
    /// Text of README in tracefs.
    readme: String,
    has_kprobes: bool,
}

impl Kernel {
    fn this(top: &KernelFs) -> Kernel {
        let system = rustix::system::uname();
        Kernel {
            release: stacks::numbers(&system.release().to_string_lossy()),
            machine: system.machine().to_string_lossy().into_owned(),
            readme: top.get_if_there("README").unwrap_or_default(),
            has_kprobes: top.has("kprobe_events").unwrap_or(false),
        }
    }

    /// Form of definitions for this kernel, or the reason why there is none.
    fn form(&self) -> Result<Form, String> {
        if self.release < FIRST {
            return Err(format!("Linux {}.{} or later is required", FIRST.0, FIRST.1));
        }
        // Names of registers: `regs_query_register_offset` of each architecture.
        let caller = match &*self.machine {
            "x86_64" => "$stack0",
            "aarch64" => "%lr",
            "riscv64" => "%ra",
            "loongarch64" => "%r1",
            "s390x" => "%r14",
            "ppc64" | "ppc64le" => "%link",
            machine => return Err(format!("not implemented for {}", escape(machine.as_bytes()))),
        };
        // An fprobe event has no registers, and so no caller where that is in one.
        let is_on_stack = caller.starts_with('$');
        let is_fprobe = is_on_stack && self.readme.contains("f[:[<group>/]");
        if !is_fprobe && !self.has_kprobes {
            let fprobes = if is_on_stack { "CONFIG_FPROBE_EVENTS or " } else { "" };
            return Err(format!("{fprobes}CONFIG_KPROBE_EVENTS is required"));
        }
        if !self.readme.contains("<argname>") {
            return Err("CONFIG_DEBUG_INFO_BTF is required".to_owned());
        }
        Ok(Form { is_fprobe, caller })
    }
}

/// Form of the definitions.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// True for fprobe events, false for kprobe events.
    is_fprobe: bool,
    /// Where a function has its return address when it begins.
    caller: &'static str,
}

impl Form {
    fn definition(self, group: &str, event: &str) -> String {
        let Form { is_fprobe, caller } = self;
        let function = FUNCTIONS.iter().find(|(name, _)| *name == event).map_or("", |(_, function)| function);
        let (begin, end, mark) = if is_fprobe { ("f", "f", "%return") } else { ("p", "r", "") };
        let addresses = format!("p=+0(p):x64[{MAX_ADDRESSES}]");
        match event {
            KVFREE_RCU => format!("{begin}:{group}/{event} {function} ptr call_site={caller}:x64"),
            FREE_BULK => format!(
                "{begin}:{group}/{event} {function} s size name=s->name:string call_site={caller}:x64 {addresses}"
            ),
            // The field __probe_ret_ip, which each return probe has, is the caller.
            _ => format!(
                "{end}:{group}/{event} {function}{mark} name=s->name:string bytes_req=s->object_size:u32 \
                 bytes_alloc=s->size:u32 gfp_flags=flags size ret=$retval {addresses}"
            ),
        }
    }
}

/// Text for the user about frees by RCU and in bulk.
fn shown(rcu: &Result<(), String>, bulk: &Result<(), String>) -> String {
    let state = |seen: &Result<(), String>| match seen {
        Ok(()) => "seen".to_owned(),
        Err(reason) => format!("not seen ({reason})"),
    };
    if rcu == bulk {
        return format!("RCU and bulk frees: {}", state(rcu));
    }
    format!("RCU frees: {}; bulk frees: {}", state(rcu), state(bulk))
}

/// What this kernel offers, for `kmemtraced probe`, as (name, text); defines nothing.
pub(crate) fn offer(top: &KernelFs) -> [(&'static str, String); 2] {
    let kernel = Kernel::this(top);
    let bulk = match kernel.form() {
        Ok(form) => format!("seen, by {} events", if form.is_fprobe { "fprobe" } else { "kprobe" }),
        Err(reason) => format!("not seen: {reason}"),
    };
    let has_event = kernel.release < FIRST_WITHOUT_EVENT;
    [("RCU frees", if has_event { "seen, as kfree".to_owned() } else { bulk.clone() }), ("bulk frees", bulk)]
}

/// Defines the events; returns whether frees by RCU and in bulk are seen, or why not.
fn define(
    wanted: &Wanted<'_>,
    form: Form,
    probes: &mut Probes,
) -> anyhow::Result<(Result<(), String>, Result<(), String>)> {
    let group = group_of(wanted.name);
    let definitions = match Definitions::lock(wanted.top) {
        Ok(definitions) => definitions,
        Err(error) => {
            let reason = format!("{error:#}");
            return Ok((Err(reason.clone()), Err(reason)));
        }
    };
    if let Some(other) = owners(&wanted.top.names("instances")?, &group).find(|&name| name != wanted.name) {
        let path = wanted.top.path(&format!("instances/{other}"));
        bail!(
            "{}: has the same group of probe events ({group}): use another name (-B), or --no-probes",
            path.display()
        );
    }
    // A recorder of this name that has ended since the last look. What cannot be removed is refused below.
    let _ = definitions.remove(&group, Some(wanted.fs));
    let mut add = |names: &[&str]| {
        let defined = definitions.define(wanted, &group, names, form)?;
        probes.definitions.extend(defined);
        probes.events.extend(names.iter().map(|name| format!("{group}/{name}")));
        probes.group = Some(group.clone());
        Ok(())
    };
    let rcu = add(&[KVFREE_RCU]);
    // Without the allocations nothing is known of the addresses that are freed.
    let bulk = if has_caches(wanted.events) { add(&[ALLOC_BULK, FREE_BULK]) } else { Ok(()) };
    Ok((rcu, bulk))
}

/// Instances that a group belongs to.
fn owners<'a>(instances: &'a [String], group: &str) -> impl Iterator<Item = &'a str> {
    let owns = move |name: &&str| group_of(name) == group || (group == CAPTURE_GROUP && *name == CAPTURE_INSTANCE);
    instances.iter().map(String::as_str).filter(owns)
}

/// Removes the probe events of `group`, which belongs to the trace directory `fs`, locked by this process. An error names one that
/// stays.
pub(crate) fn remove(top: &KernelFs, fs: &KernelFs, group: &str) -> anyhow::Result<()> {
    if !ours(&top.get_if_there(FILE)?).contains_key(group) {
        return Ok(());
    }
    Definitions::lock(top)?.remove(group, Some(fs))
}

/// Removes the probe events of groups that belong to no trace directory; returns the groups. An error names one that stays.
pub(crate) fn remove_leftovers(top: &KernelFs) -> anyhow::Result<Vec<String>> {
    if leftovers(top)?.is_empty() {
        return Ok(Vec::new());
    }
    let definitions = Definitions::lock(top)?;
    let mut removed = Vec::new();
    let mut failed = None;
    for Leftover { group, lock } in leftovers(top)? {
        match definitions.remove(&group, lock.as_ref().map(|_| top)) {
            Ok(()) => removed.push(group),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// A group that belongs to no trace directory.
struct Leftover {
    group: String,
    /// Lock of the top-level trace directory, for its group.
    lock: Option<OwnedFd>,
}

fn leftovers(top: &KernelFs) -> anyhow::Result<Vec<Leftover>> {
    let text = top.get_if_there(FILE)?;
    let instances = top.names("instances")?;
    let mut leftovers = Vec::new();
    for group in ours(&text).into_keys().filter(|group| owners(&instances, group).next().is_none()) {
        // The top-level trace directory is always there: its recorder has it locked.
        let lock = if group == group_of(TOP_LEVEL) { Some(top.lock()) } else { None };
        if let Ok(lock) = lock.transpose() {
            leftovers.push(Leftover { group: group.to_owned(), lock });
        }
    }
    Ok(leftovers)
}

/// A line of `dynamic_events`.
#[derive(Clone, Copy)]
struct Line<'a> {
    group: &'a str,
    event: &'a str,
    /// Words behind the name of the event.
    rest: &'a str,
}

impl Line<'_> {
    /// Takes a definition apart; `None` for one without a group.
    fn parse(line: &str) -> Option<Line<'_>> {
        let (head, rest) = line.split_once(' ')?;
        let (_, name) = head.split_once(':')?;
        let (group, event) = name.split_once('/')?;
        Some(Line { group, event, rest })
    }

    /// True for a probe of a group of ours that is on the function that ours are on.
    fn is_ours(self) -> bool {
        let function = self.rest.split([' ', '%', '+']).next();
        self.group.starts_with(GROUPS)
            && FUNCTIONS.iter().any(|&(event, on)| event == self.event && Some(on) == function)
    }
}

/// Events that recorders or `capture.sh` defined, by group. An event that has a probe of another program, too, is none.
fn ours(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut events: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for line in text.lines().filter_map(Line::parse) {
        *events.entry((line.group, line.event)).or_insert(true) &= line.is_ours();
    }
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ((group, event), _) in events.into_iter().filter(|(_, is_ours)| *is_ours) {
        groups.entry(group).or_default().push(event);
    }
    groups
}

/// `dynamic_events`, locked against other recorders.
struct Definitions<'a> {
    top: &'a KernelFs,
    file: File,
}

impl<'a> Definitions<'a> {
    fn lock(top: &'a KernelFs) -> anyhow::Result<Definitions<'a>> {
        let path = || top.path(FILE).display().to_string();
        let file = top.open(FILE, OFlags::WRONLY | OFlags::APPEND);
        let file = file.map_err(|error| anyhow!("{}: cannot be opened: {error}", path()))?;
        for _ in 0..LOCK_ATTEMPTS {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Ok(()) => return Ok(Definitions { top, file }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(LOCK_PAUSE),
                Err(error) => bail!("{}: cannot be locked: {error}", path()),
            }
        }
        bail!("{}: is locked by another program", path())
    }

    fn write(&self, line: &str) -> io::Result<()> {
        (&self.file).write_all(format!("{line}\n").as_bytes())
    }

    /// Defines the events `names`, all or none; returns their definitions, or the reason why there are none.
    fn define(&self, wanted: &Wanted<'_>, group: &str, names: &[&str], form: Form) -> Result<Vec<String>, String> {
        let mut defined = Vec::new();
        let refused = names.iter().find_map(|name| {
            let line = form.definition(group, name);
            let added = self.add(group, name, &line);
            if added.is_ok() {
                defined.push(line);
            }
            added.and_then(|()| prepare(wanted, group, name)).err()
        });
        let Some(reason) = refused else { return Ok(defined) };
        for name in &names[..defined.len()] {
            let _ = self.remove_one(group, name, Some(wanted.fs));
        }
        Err(reason)
    }

    fn add(&self, group: &str, name: &str, line: &str) -> Result<(), String> {
        let text = self.text().map_err(|error| format!("{error:#}"))?;
        // The kernel may add the probe to an event that is there.
        if text.lines().filter_map(Line::parse).any(|other| (other.group, other.event) == (group, name)) {
            return Err(format!("{group}/{name} is defined by another program"));
        }
        self.write(line).map_err(|error| format!("the kernel refuses {name}: {}", self.reason(line, &error)))
    }

    /// The kernel's reason for an error of `line`: the last entry of `error_log`, unless that is about something else.
    fn reason(&self, line: &str, error: &io::Error) -> String {
        let log = self.top.get_if_there("error_log").unwrap_or_default();
        let entry = last_error(&log, line);
        entry.map_or_else(|| error.to_string(), |entry| escape(entry.as_bytes()).into_owned())
    }

    fn text(&self) -> anyhow::Result<String> {
        self.top.get(FILE)
    }

    /// Removes the events of a group, which may be enabled in the trace directory `fs`. An error names one that stays.
    fn remove(&self, group: &str, fs: Option<&KernelFs>) -> anyhow::Result<()> {
        let text = self.text()?;
        let mut removed = Ok(());
        for name in ours(&text).remove(group).unwrap_or_default() {
            removed = removed.and(self.remove_one(group, name, fs));
        }
        removed
    }

    fn remove_one(&self, group: &str, name: &str, fs: Option<&KernelFs>) -> anyhow::Result<()> {
        if let Some(fs) = fs {
            let _ = fs.write(&switch(group, name), "0");
        }
        match self.write(&format!("-:{group}/{name}")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(anyhow!(
                "{}: {group}/{name} cannot be removed: {error}: disable it in every instance, then run kmemtraced recover",
                self.top.path(FILE).display()
            )),
            _ => Ok(()),
        }
    }
}

/// Tries the filters that a new event must be able to have, and enables it if that is wanted.
fn prepare(wanted: &Wanted<'_>, group: &str, name: &str) -> Result<(), String> {
    let event = format!("{group}/{name}");
    for filter in wanted.filters.iter().filter(|_| name == ALLOC_BULK) {
        let refused = events::refused_filter(wanted.fs, &event, filter).map_err(|error| format!("{error:#}"))?;
        if let Some(reason) = refused {
            return Err(format!("{name} cannot have the filter: {reason}"));
        }
        let _ = wanted.fs.write(&events::filter_file(&event), "0");
    }
    if !wanted.enables {
        return Ok(());
    }
    wanted.fs.write(&switch(group, name), "1").map_err(|error| format!("the kernel refuses to enable {name}: {error}"))
}

/// Control file that enables an event.
fn switch(group: &str, name: &str) -> String {
    format!("events/{group}/{name}/enable")
}

/// Text of the last entry of `error_log` if that is about `line`. An entry is `[TIME] SUBSYSTEM: error: TEXT`, a line with the
/// command, and one with a caret (`kernel/trace/trace.c`, Linux 6.12).
fn last_error<'a>(log: &'a str, line: &str) -> Option<&'a str> {
    let lines: Vec<&str> = log.lines().collect();
    let at = lines.iter().rposition(|text| text.trim_start().starts_with("Command: "))?;
    let command = lines.get(at)?.trim_start().strip_prefix("Command: ")?;
    let (_, text) = lines.get(at.checked_sub(1)?)?.split_once(" error: ")?;
    (command.trim_end() == line).then_some(text)
}
