//! Probe events for frees without an event of their own: objects given to `kfree_rcu`, and objects freed in bulk.
//!
//! The recorder defines them in `dynamic_events` of the top-level trace directory, in a group of its own, and enables them in the
//! trace directory that it records from. The kernel keeps a definition while an instance has it enabled, and removing one empties the
//! buffers in which it ever was. Hence the order: make and lock the instance, define, enable; at the end drain the buffers,
//! remove the instance, remove the definitions.
//!
//! A group belongs to every instance whose name gives it. Definitions of a group without such an instance are left over, and any
//! recorder removes them. The instance exists before and after the definitions, so a recorder that is killed at any point leaves a
//! state that `recover` can undo. A recorder that changes `dynamic_events` locks it, so no other one defines events between the look
//! for instances and the removal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
pub(crate) use kmemtrace_abi::kernel::probes::group_of;
use kmemtrace_abi::kernel::probes::{ALLOC_BULK, CAPTURE_GROUP, FREE_BULK, KVFREE_RCU, MAX_ADDRESSES};
use kmemtrace_abi::text::escape::escape;
use rustix::fs::{FlockOperation, OFlags};

use crate::fs::kernelfs::{KernelFs, read_again};
use crate::source::{events, kernel};

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

/// Most attempts to lock the definitions, and the pause between two of them.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// `dynamic_events`, held open where nobody can open it any more: in the sandbox.
static HELD: OnceLock<File> = OnceLock::new();

/// Holds `dynamic_events` open for the rest of the process, where the kernel has it.
pub(crate) fn hold(top: &KernelFs) -> anyhow::Result<()> {
    if HELD.get().is_none()
        && let Some(file) = top.open_if_there(FILE, OFlags::RDWR | OFlags::APPEND)?
    {
        let _ = HELD.set(file);
    }
    Ok(())
}

/// Text of `dynamic_events`; empty where the kernel has none.
fn definitions(top: &KernelFs) -> anyhow::Result<String> {
    match HELD.get() {
        Some(held) => {
            let text = read_again(held).map_err(|error| top.failed(FILE, "read", error))?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        None => top.get_if_there(FILE),
    }
}

/// Probe events of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    /// Group of the events; `None` if there are none.
    pub(crate) group: Option<String>,
    /// The events, as `system/event`.
    pub(crate) events: Vec<String>,
    /// Definitions of the events, as written to `dynamic_events`.
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

/// `Ok` if frees are seen, else the reason why not.
type Seen = Result<(), String>;

/// Request of a recording for probe events.
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
fn are_useful(events: &[String]) -> bool {
    has_caches(events) || events::has_pair(events, "kmem/kmalloc")
}

/// True if allocations and frees of objects of caches are recorded.
fn has_caches(events: &[String]) -> bool {
    events::has_pair(events, "kmem/kmem_cache_alloc")
}

/// Text for a recording of these events without probe events.
pub(crate) fn left_out(events: &[String]) -> Probes {
    let reason = || Err("--no-probes".to_owned());
    let rcu = if kernel::DEFERRED_WITHOUT_EVENT.is_after(&kernel::release()) { Ok(()) } else { reason() };
    Probes { shown: are_useful(events).then(|| shown(&rcu, &reason())), ..Probes::default() }
}

/// Defines the probe events, and enables them if that is wanted. What the kernel refuses is left out, and the text for the user has its
/// reason. An error if an instance of another name has the same group.
pub(crate) fn set_up(wanted: &Wanted<'_>) -> anyhow::Result<Probes> {
    set_up_on(&Kernel::this(wanted.top), wanted)
}

fn set_up_on(this: &Kernel, wanted: &Wanted<'_>) -> anyhow::Result<Probes> {
    if !are_useful(wanted.events) {
        return Ok(Probes::default());
    }
    let mut probes = Probes::default();
    let (mut rcu, mut bulk) = match this.form() {
        Ok(form) => define(wanted, form, &mut probes)?,
        Err(reason) => (Err(reason.clone()), Err(reason)),
    };
    if kernel::DEFERRED_WITHOUT_EVENT.is_after(&this.release) {
        rcu = Ok(());
    }
    if !has_caches(wanted.events) {
        bulk = Err("no events of caches are recorded".to_owned());
    }
    probes.shown = Some(shown(&rcu, &bulk));
    Ok(probes)
}

/// Facts about the kernel that decide about probe events.
struct Kernel {
    release: String,
    machine: String,
    /// Text of README in tracefs.
    readme: String,
    has_kprobes: bool,
}

impl Kernel {
    fn this(top: &KernelFs) -> Kernel {
        let system = rustix::system::uname();
        Kernel {
            release: kernel::release(),
            machine: system.machine().to_string_lossy().into_owned(),
            readme: top.get_if_there("README").unwrap_or_default(),
            has_kprobes: top.has("kprobe_events").unwrap_or(false),
        }
    }

    /// Form of definitions for this kernel, or the reason why there is none.
    fn form(&self) -> Result<Form, String> {
        if kernel::ARGUMENTS_AT_RETURN.is_after(&self.release) {
            return Err(format!("Linux {} or later is required", kernel::ARGUMENTS_AT_RETURN));
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
    /// Place of the return address when a function begins.
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
fn shown(rcu: &Seen, bulk: &Seen) -> String {
    let state = |seen: &Seen| match seen {
        Ok(()) => "seen".to_owned(),
        Err(reason) => format!("not seen ({reason})"),
    };
    if rcu == bulk {
        return format!("RCU and bulk frees: {}", state(rcu));
    }
    format!("RCU frees: {}; bulk frees: {}", state(rcu), state(bulk))
}

/// Lines about what this kernel offers, for `kmemtraced doctor`, as (name, text); defines nothing.
pub(crate) fn offer(top: &KernelFs) -> [(&'static str, String); 2] {
    let this = Kernel::this(top);
    let bulk = match this.form() {
        Ok(form) => format!("seen, by {} events", if form.is_fprobe { "fprobe" } else { "kprobe" }),
        Err(reason) => format!("not seen: {reason}"),
    };
    let has_event = kernel::DEFERRED_WITHOUT_EVENT.is_after(&this.release);
    [("RCU frees", if has_event { "seen, as kfree".to_owned() } else { bulk.clone() }), ("bulk frees", bulk)]
}

/// Defines the events; returns whether frees by RCU and in bulk are seen, or why not.
fn define(wanted: &Wanted<'_>, form: Form, probes: &mut Probes) -> anyhow::Result<(Seen, Seen)> {
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
    if !ours(&definitions(top)?).contains_key(group) {
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
    let text = definitions(top)?;
    let instances = top.names("instances")?;
    let mut leftovers = Vec::new();
    for group in ours(&text).into_keys().filter(|group| owners(&instances, group).next().is_none()) {
        // The top-level trace directory is always there: its recorder has it locked.
        let lock = if group == group_of(TOP_LEVEL) { Some(top.lock_if_free()?) } else { None };
        if lock.as_ref().is_none_or(Option::is_some) {
            leftovers.push(Leftover { group: group.to_owned(), lock: lock.flatten() });
        }
    }
    Ok(leftovers)
}

/// A definition in `dynamic_events`, as `f1:GROUP/EVENT FUNCTION%return ARGUMENTS`.
#[derive(Clone, Copy)]
struct Line<'a> {
    group: &'a str,
    event: &'a str,
    /// Function with its mark.
    place: &'a str,
}

impl Line<'_> {
    /// Takes a definition apart; `None` for one without a group.
    fn parse(line: &str) -> Option<Line<'_>> {
        let mut words = line.split(' ');
        let (_, name) = words.next()?.split_once(':')?;
        let (group, event) = name.split_once('/')?;
        Some(Line { group, event, place: words.next()? })
    }

    /// The function, without the mark of its return: the kernel removes a definition by that.
    fn function(&self) -> &str {
        self.place.strip_suffix("%return").unwrap_or(self.place)
    }

    /// True for a probe that a recorder or `capture.sh` defined.
    fn is_ours(&self) -> bool {
        self.group.starts_with(GROUPS) && FUNCTIONS.contains(&(self.event, self.function()))
    }
}

/// Definitions of recorders and of `capture.sh`, by group.
fn ours(text: &str) -> BTreeMap<&str, Vec<Line<'_>>> {
    let mut groups: BTreeMap<&str, Vec<Line<'_>>> = BTreeMap::new();
    for line in text.lines().filter_map(Line::parse).filter(Line::is_ours) {
        groups.entry(line.group).or_default().push(line);
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
        let opened = || top.open(FILE, OFlags::WRONLY | OFlags::APPEND);
        let file = HELD.get().map_or_else(opened, File::try_clone);
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
        for line in defined.iter().filter_map(|line| Line::parse(line)) {
            let _ = self.remove_line(line, Some(wanted.fs));
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
        definitions(self.top)
    }

    /// Removes the events of a group, which may be enabled in the trace directory `fs`. An error names one that stays.
    fn remove(&self, group: &str, fs: Option<&KernelFs>) -> anyhow::Result<()> {
        let text = self.text()?;
        let lines = ours(&text).remove(group).unwrap_or_default().into_iter();
        lines.map(|line| self.remove_line(line, fs)).fold(Ok(()), Result::and)
    }

    fn remove_line(&self, line: Line<'_>, fs: Option<&KernelFs>) -> anyhow::Result<()> {
        let Line { group, event, .. } = line;
        if let Some(fs) = fs {
            let _ = fs.write(&switch(group, event), "0");
        }
        // With the function, a probe of another program in the same event stays.
        let removed = self.write(&format!("-:{group}/{event} {}", line.function()));
        let is_gone = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound && self.text().is_ok_and(|text| !ours(&text).contains_key(group))
        };
        removed.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) }).map_err(|error| {
            let path = self.top.path(FILE);
            let remedy = "disable it in every instance, then run kmemtraced recover";
            anyhow!("{}: {group}/{event} cannot be removed: {error}: {remedy}", path.display())
        })
    }
}

impl Drop for Definitions<'_> {
    fn drop(&mut self) {
        // The lock is that of all descriptors of an open file.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const README: &str = "\t   Format: p[:[<group>/][<event>]] <place> [<args>]\n\t           f[:[<group>/][<event>]] \
                          <func-name>[%return] [<args>]\n\t           <argname>[->field[->field|.field...]],\n";
    const FOREIGN: &str = "p:mine/kvfree_rcu kvfree_call_rcu ptr=ptr\ns:wakeup pid_t pid; u64 lat\n\n:\n:/ x\nf: /\n\
                           f:kmemtrace_x/kvfree_rcu kfree p=object\nf:kmemtrace_x/other kvfree_call_rcu\n\u{fffd}/ \u{1b}[0m\n";

    fn kernel(release: &str, machine: &str) -> Kernel {
        Kernel {
            release: release.to_owned(),
            machine: machine.to_owned(),
            readme: README.to_owned(),
            has_kprobes: true,
        }
    }

    fn slab() -> Vec<String> {
        ["kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free"].map(|name| format!("kmem/{name}")).to_vec()
    }

    /// Trace directory of plain files with these instances, of which the first has files for its probe events, and this text of
    /// `dynamic_events`.
    fn tracefs(instances: &[&str], text: &str) -> (tempfile::TempDir, KernelFs) {
        let dir = tempfile::tempdir().unwrap();
        for name in instances {
            fs::create_dir_all(dir.path().join("instances").join(name)).unwrap();
        }
        for (event, name) in instances.iter().take(1).flat_map(|name| FUNCTIONS.map(|(event, _)| (event, name))) {
            let event = dir.path().join(format!("instances/{name}/events/{}/{event}", group_of(name)));
            fs::create_dir_all(&event).unwrap();
            ["enable", "filter"].into_iter().for_each(|file| fs::write(event.join(file), "").unwrap());
        }
        fs::write(dir.path().join(FILE), text).unwrap();
        let top = KernelFs::at(dir.path()).unwrap();
        (dir, top)
    }

    fn on(kernel: &Kernel, top: &KernelFs, name: &str, events: &[String]) -> anyhow::Result<Probes> {
        let fs = top.open_dir(&format!("instances/{name}")).unwrap();
        set_up_on(kernel, &Wanted { top, fs: &fs, name, events, filters: &[], enables: true })
    }

    /// Text that was appended to [`FOREIGN`].
    fn appended(top: &KernelFs) -> String {
        top.get(FILE).unwrap().strip_prefix(FOREIGN).unwrap().to_owned()
    }

    #[test]
    fn definitions_are_those_of_the_architecture() {
        let definitions = |machine: &str, readme: &str| {
            let form = Kernel { readme: readme.to_owned(), ..kernel("6.9.0", machine) }.form().unwrap();
            FUNCTIONS.map(|(event, _)| form.definition("G", event))
        };
        assert_eq!(
            definitions("x86_64", README),
            [
                "f:G/kvfree_rcu kvfree_call_rcu ptr call_site=$stack0:x64",
                "f:G/free_bulk kmem_cache_free_bulk s size name=s->name:string call_site=$stack0:x64 p=+0(p):x64[64]",
                "f:G/alloc_bulk kmem_cache_alloc_bulk_noprof%return name=s->name:string bytes_req=s->object_size:u32 \
                 bytes_alloc=s->size:u32 gfp_flags=flags size ret=$retval p=+0(p):x64[64]",
            ]
        );
        assert_eq!(
            definitions("aarch64", README),
            [
                "p:G/kvfree_rcu kvfree_call_rcu ptr call_site=%lr:x64",
                "p:G/free_bulk kmem_cache_free_bulk s size name=s->name:string call_site=%lr:x64 p=+0(p):x64[64]",
                "r:G/alloc_bulk kmem_cache_alloc_bulk_noprof name=s->name:string bytes_req=s->object_size:u32 \
                 bytes_alloc=s->size:u32 gfp_flags=flags size ret=$retval p=+0(p):x64[64]",
            ]
        );
        let without_fprobes = README.replace("f[:", "x[:");
        for (machine, caller) in [
            ("x86_64", "$stack0"),
            ("riscv64", "%ra"),
            ("loongarch64", "%r1"),
            ("s390x", "%r14"),
            ("ppc64", "%link"),
            ("ppc64le", "%link"),
        ] {
            let [first, ..] = definitions(machine, &without_fprobes);
            assert_eq!(first, format!("p:G/kvfree_rcu kvfree_call_rcu ptr call_site={caller}:x64"));
        }
    }

    #[test]
    fn a_kernel_that_cannot_have_them_is_told_why() {
        let reason = |kernel: Kernel| kernel.form().unwrap_err();
        assert_eq!(reason(kernel("6.8.1-amd64", "x86_64")), "Linux 6.9 or later is required");
        assert_eq!(reason(kernel("7.3.1-amd64", "i686")), "not implemented for i686");
        let bare = |machine: &str, readme: &str| Kernel {
            readme: readme.to_owned(),
            has_kprobes: false,
            ..kernel("6.12.1-amd64", machine)
        };
        assert_eq!(reason(bare("x86_64", "")), "CONFIG_FPROBE_EVENTS or CONFIG_KPROBE_EVENTS is required");
        assert_eq!(reason(bare("aarch64", README)), "CONFIG_KPROBE_EVENTS is required", "fprobe events have no caller");
        let without_btf = README.replace("<argname>", "");
        assert_eq!(reason(bare("x86_64", &without_btf)), "CONFIG_DEBUG_INFO_BTF is required");
        assert!(bare("x86_64", README).form().is_ok(), "fprobe events alone");
    }

    #[test]
    fn definitions_are_appended_and_enabled_in_the_instance() {
        let (dir, top) = tracefs(&["a-b"], FOREIGN);
        let probes = on(&kernel("6.12.1-amd64", "x86_64"), &top, "a-b", &slab()).unwrap();
        assert_eq!(probes.shown.as_deref(), Some("RCU and bulk frees: seen"));
        assert_eq!(probes.group.as_deref(), Some("kmemtrace_a_b"));
        let names = ["kmemtrace_a_b/kvfree_rcu", "kmemtrace_a_b/alloc_bulk", "kmemtrace_a_b/free_bulk"];
        assert_eq!(probes.events, names);
        let text = probes.text(7).unwrap();
        assert_eq!(format!("{text}\n"), format!("7\n{}", appended(&top)), "meta.out has what was defined");
        assert_eq!(text.lines().count(), 4);
        for name in names {
            let enable = dir.path().join(format!("instances/a-b/events/{name}/enable"));
            assert_eq!(fs::read_to_string(enable).unwrap(), "1", "{name}");
        }
    }

    #[test]
    fn events_that_are_recorded_decide_what_is_defined() {
        let kernel = kernel("6.12.1-amd64", "x86_64");
        let shown = |names: &[&str]| {
            let (_dir, top) = tracefs(&["x"], "");
            let events: Vec<String> =
                slab().into_iter().filter(|event| names.iter().any(|n| event.ends_with(n))).collect();
            let probes = on(&kernel, &top, "x", &events).unwrap();
            (probes.shown.unwrap_or_default(), probes.events.len())
        };
        let kmalloc = "RCU frees: seen; bulk frees: not seen (no events of caches are recorded)".to_owned();
        assert_eq!(shown(&["/kmalloc", "/kfree"]), (kmalloc, 1));
        assert_eq!(shown(&["_alloc", "_free"]), ("RCU and bulk frees: seen".to_owned(), 3));
        assert_eq!(shown(&["/kmalloc", "_free"]), (String::new(), 0), "no pair of an allocation and its free");
        assert_eq!(left_out(&slab()).shown.unwrap(), "RCU and bulk frees: not seen (--no-probes)");
        assert_eq!(left_out(&["kmem/kmalloc".to_owned()]).shown, None);
    }

    #[test]
    fn old_kernels_have_an_event_for_rcu_frees() {
        let shown = |release: &str| {
            let (_dir, top) = tracefs(&["x"], "");
            on(&kernel(release, "x86_64"), &top, "x", &slab()).unwrap().shown.unwrap()
        };
        assert_eq!(shown("6.8.1-amd64"), "RCU and bulk frees: not seen (Linux 6.9 or later is required)");
        assert_eq!(shown("5.6.1-amd64"), "RCU frees: seen; bulk frees: not seen (Linux 6.9 or later is required)");
    }

    #[test]
    fn what_cannot_be_enabled_or_written_is_left_out() {
        let kernel = kernel("6.12.1-amd64", "x86_64");
        let (dir, top) = tracefs(&["x"], FOREIGN);
        let free_bulk = dir.path().join("instances/x/events/kmemtrace_x/free_bulk/enable");
        fs::remove_file(free_bulk).unwrap();
        let probes = on(&kernel, &top, "x", &slab()).unwrap();
        let shown = probes.shown.unwrap();
        // A probe event of another program has the first name.
        assert!(
            shown.starts_with(
                "RCU frees: not seen (kmemtrace_x/kvfree_rcu is defined by another program); bulk frees: not seen \
                 (the kernel refuses to enable free_bulk: No such file"
            ),
            "{shown}"
        );
        assert!(probes.events.is_empty() && probes.group.is_none());
        let appended = appended(&top);
        let lines: Vec<&str> = appended.lines().map(|line| line.split(" name").next().unwrap()).collect();
        assert_eq!(
            lines,
            [
                "f:kmemtrace_x/alloc_bulk kmem_cache_alloc_bulk_noprof%return",
                "f:kmemtrace_x/free_bulk kmem_cache_free_bulk s size",
                "-:kmemtrace_x/alloc_bulk kmem_cache_alloc_bulk_noprof",
                "-:kmemtrace_x/free_bulk kmem_cache_free_bulk",
            ],
            "allocations in bulk go with the frees"
        );

        fs::remove_file(dir.path().join(FILE)).unwrap();
        let shown = on(&kernel, &top, "x", &slab()).unwrap().shown.unwrap();
        assert!(shown.contains("dynamic_events: cannot be opened: No such file or directory"), "{shown}");
        fs::create_dir(dir.path().join(FILE)).unwrap();
        let shown = on(&kernel, &top, "x", &slab()).unwrap().shown.unwrap();
        assert!(shown.contains("dynamic_events: cannot be opened: Is a directory"), "{shown}");
    }

    #[test]
    fn another_instance_of_the_same_group_is_refused() {
        let (dir, top) = tracefs(&["a_b", "a-b"], FOREIGN);
        let error = format!("{:#}", on(&kernel("6.12.1-amd64", "x86_64"), &top, "a_b", &slab()).unwrap_err());
        let path = dir.path().join("instances/a-b");
        let expected = "has the same group of probe events (kmemtrace_a_b): use another name (-B), or --no-probes";
        assert_eq!(error, format!("{}: {expected}", path.display()));
        assert_eq!(appended(&top), "");
        let (_dir, top) = tracefs(&["capture", CAPTURE_INSTANCE], "");
        assert!(on(&kernel("6.12.1-amd64", "x86_64"), &top, "capture", &slab()).is_err(), "capture.sh has that group");
    }

    #[test]
    fn the_reason_of_the_kernel_is_that_of_the_definition() {
        let log = "[    5.51] trace_fprobe: error: Invalid $-variable specified\n  Command: f:g/a b ptr\n           ^\n\
                   [    5.52] trace_fprobe: error: No BTF entry for this probe point\n  Command: f:g/kvfree_rcu x ptr\n      ^\n";
        let reason = last_error(log, "f:g/kvfree_rcu x ptr");
        assert_eq!(reason, Some("No BTF entry for this probe point"));
        assert_eq!(last_error(log, "f:g/a b ptr"), None, "not the last one");
        for odd in ["", "Command: x", "\n  Command: x\n", "error\n  Command: x", "\u{1b} error: \n  Command: y"] {
            assert_eq!(last_error(odd, "x"), None, "{odd}");
        }
        let (dir, top) = tracefs(&["x"], "");
        fs::write(dir.path().join("error_log"), log).unwrap();
        let definitions = Definitions::lock(&top).unwrap();
        let error = io::Error::from_raw_os_error(22);
        assert_eq!(definitions.reason("f:g/kvfree_rcu x ptr", &error), "No BTF entry for this probe point");
        assert!(definitions.reason("f:g/other x", &error).starts_with("Invalid argument"));
    }

    #[test]
    fn a_group_is_left_over_once_no_instance_has_its_name() {
        let defined = |group: &str| format!("f:{group}/kvfree_rcu kvfree_call_rcu ptr=ptr\n");
        let groups = ["kmemtrace_gone", "kmemtrace_a_b", CAPTURE_GROUP, "kmemtrace_"].map(defined).concat();
        let text = format!(
            "{FOREIGN}r16:kmemtrace_gone/alloc_bulk kmem_cache_alloc_bulk_noprof name=s->name:string\n{groups}"
        );
        let (_dir, top) = tracefs(&["a-b", CAPTURE_INSTANCE], &text);
        let of_top = top.lock().unwrap();
        assert_eq!(remove_leftovers(&top).unwrap(), ["kmemtrace_gone"]);
        let removed =
            "-:kmemtrace_gone/alloc_bulk kmem_cache_alloc_bulk_noprof\n-:kmemtrace_gone/kvfree_rcu kvfree_call_rcu\n";
        assert_eq!(top.get(FILE).unwrap(), format!("{text}{removed}"), "nothing else is touched");
        drop(of_top);
        let names = |top: &KernelFs| leftovers(top).unwrap().into_iter().map(|left| left.group).collect::<Vec<_>>();
        assert_eq!(names(&top), ["kmemtrace_", "kmemtrace_gone"]);
        let (_dir, top) = tracefs(&[], &text);
        assert_eq!(names(&top), ["kmemtrace_", "kmemtrace_a_b", CAPTURE_GROUP, "kmemtrace_gone"]);
        let (_dir, top) = tracefs(&["gone"], FOREIGN);
        assert!(names(&top).is_empty(), "definitions of other programs");
        assert!(names(&KernelFs::at(Path::new("/proc/self/fd")).unwrap()).is_empty(), "no such file");
    }

    #[test]
    fn definitions_are_locked() {
        let (_dir, top) = tracefs(&[], "f:kmemtrace_gone/kvfree_rcu kvfree_call_rcu\n");
        let held = Definitions::lock(&top).unwrap();
        let error = format!("{:#}", remove_leftovers(&top).unwrap_err());
        assert!(error.ends_with("dynamic_events: is locked by another program"), "{error}");
        drop(held);
        assert_eq!(remove_leftovers(&top).unwrap(), ["kmemtrace_gone"]);
    }
}
