//! Trace events of the kernel: the profiles, which of them are enabled, and their formats.

use anyhow::bail;
use kmemtrace_abi::kernel::probes::{ALLOC_BULK, group_of};
use kmemtrace_abi::text::escape::escape;

use crate::fs::kernelfs::KernelFs;
use crate::source::kernel::{self, Since};
use crate::source::latency;

/// Slab events; a kernel has some of them.
const SLAB: [&str; 6] = [
    "kmem/kmalloc",
    "kmem/kmalloc_node",
    "kmem/kmem_cache_alloc",
    "kmem/kmem_cache_alloc_node",
    "kmem/kfree",
    "kmem/kmem_cache_free",
];
/// Page events; a kernel has some of them.
const PAGE: [&str; 3] = ["kmem/mm_page_alloc", "kmem/mm_page_free", "kmem/mm_page_free_direct"];
/// Events of per-CPU memory (`include/trace/events/percpu.h`).
const PERCPU: [&str; 3] = [PERCPU_ALLOC, "percpu/percpu_alloc_percpu_fail", "percpu/percpu_free_percpu"];
pub(crate) const PERCPU_ALLOC: &str = "percpu/percpu_alloc_percpu";
/// Events of areas of kernel addresses (`include/trace/events/vmalloc.h`).
const VMALLOC: [&str; 2] = [VMALLOC_ALLOC, "vmalloc/free_vmap_area_noflush"];
pub(crate) const VMALLOC_ALLOC: &str = "vmalloc/alloc_vmap_area";
/// The report needs them to assign what a module's `__init` code allocates to the module.
const MODULES: [&str; 2] = ["module/module_load", "module/module_free"];

/// The report needs them to tell the cgroup of each thread; they are rare (`include/trace/events/task.h` and `cgroup.h`).
const CGROUPS: [&str; 5] = [
    "task/task_newtask",
    "cgroup/cgroup_attach_task",
    "cgroup/cgroup_mkdir",
    "cgroup/cgroup_rename",
    "cgroup/cgroup_rmdir",
];

/// A name that stands for several events.
struct Profile {
    name: &'static str,
    /// Release that brought the events; `None`: every kernel has some.
    since: Option<Since>,
    /// Events as `system/event`, in lists.
    events: &'static [&'static [&'static str]],
}

const PROFILES: [Profile; 6] = [
    Profile { name: "slab", since: None, events: &[&SLAB, &MODULES, &CGROUPS] },
    Profile { name: "page", since: None, events: &[&PAGE, &MODULES, &CGROUPS] },
    Profile { name: "percpu", since: Some(kernel::PERCPU_EVENTS), events: &[&PERCPU, &MODULES] },
    Profile { name: "vmalloc", since: Some(kernel::VMALLOC_EVENTS), events: &[&VMALLOC, &MODULES] },
    Profile { name: latency::PROFILE, since: None, events: &[&latency::EVENTS, &CGROUPS] },
    Profile { name: "all", since: None, events: &[&SLAB, &PAGE, &PERCPU, &VMALLOC, &MODULES, &CGROUPS] },
];

/// Allocation events, with the events of their frees; a kernel has some of them.
const FREES: [(&str, &[&str]); 8] = [
    ("kmem/kmalloc", &["kmem/kfree"]),
    ("kmem/kmalloc_node", &["kmem/kfree"]),
    ("kmem/kmem_cache_alloc", &["kmem/kmem_cache_free"]),
    ("kmem/kmem_cache_alloc_node", &["kmem/kmem_cache_free"]),
    ("kmem/mm_page_alloc", &["kmem/mm_page_free", "kmem/mm_page_free_direct"]),
    (PERCPU_ALLOC, &["percpu/percpu_free_percpu"]),
    // A failed allocation has nothing to free.
    ("percpu/percpu_alloc_percpu_fail", &[]),
    (VMALLOC_ALLOC, &["vmalloc/free_vmap_area_noflush"]),
];

/// Allocation events among `events`.
pub(crate) fn allocations(events: &[String]) -> impl Iterator<Item = &str> {
    let is_allocation = |event: &&str| FREES.iter().any(|(alloc, _)| alloc == event) || is_alloc_bulk(event);
    events.iter().map(String::as_str).filter(is_allocation)
}

/// True for a recorder's probe event of allocations in bulk.
fn is_alloc_bulk(event: &str) -> bool {
    event.split_once('/').is_some_and(|(group, name)| group.starts_with(&group_of("")) && name == ALLOC_BULK)
}

/// True if `events` has an allocation event whose name begins with `prefix`, and an event of its frees.
pub(crate) fn has_pair(events: &[String], prefix: &str) -> bool {
    let is_there = |event: &&str| events.iter().any(|other| other == event);
    FREES.iter().any(|(alloc, frees)| alloc.starts_with(prefix) && is_there(alloc) && frees.iter().any(is_there))
}

/// Warning about allocations whose frees are not recorded.
pub(crate) fn without_frees(events: &[String]) -> Option<String> {
    let is_there = |event: &&str| events.iter().any(|other| other == event);
    let lacking = FREES.iter().filter(|(alloc, frees)| is_there(alloc) && !frees.iter().any(is_there));
    let (allocs, mut frees): (Vec<&str>, Vec<&str>) =
        lacking.filter_map(|(alloc, frees)| Some((name(alloc), name(frees.first()?)))).unzip();
    frees.dedup();
    let (first, others) = allocs.split_first()?;
    let allocs = others.iter().fold((*first).to_owned(), |list, alloc| format!("{list}, {alloc}"));
    let are = if others.is_empty() { "is" } else { "are" };
    let frees = frees.join(",");
    Some(format!(
        "{allocs} {are} recorded without the events of frees, so every object will appear live: add {frees} to -e"
    ))
}

/// True for an event of no objects, which comes along so that the report can name others.
fn is_of_names(event: &str) -> bool {
    MODULES.contains(&event) || is_of_cgroups(event)
}

/// True for an event that tells of threads and cgroups.
pub(crate) fn is_of_cgroups(event: &str) -> bool {
    CGROUPS.contains(&event)
}

/// Name of an event without its system.
fn name(event: &str) -> &str {
    event.rsplit('/').next().unwrap_or(event)
}

/// Checks that the allocation events among `events` can have the filter `expression`, which the user gave with `option`; leaves
/// them without a filter. An error names the event and the kernel's reason.
pub(crate) fn check_filter(fs: &KernelFs, events: &[String], option: &str, expression: &str) -> anyhow::Result<()> {
    set_filter(fs, events, option, expression)?;
    allocations(events).try_for_each(|event| fs.set(&filter_file(event), "0"))
}

/// What the kernel's reasons do not tell of slips in a filter.
fn filter_remedy(expression: &str) -> &'static str {
    let bytes = expression.as_bytes();
    let is_single = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        bytes.get(at + 1) != Some(&b'=') && !before.is_some_and(|byte| b"=!<>".contains(byte))
    };
    let has_unit = |word: &str| {
        let digits = word.trim_end_matches(|letter: char| "kKmMgGiB".contains(letter));
        digits.len() < word.len() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if bytes.iter().enumerate().any(|(at, byte)| *byte == b'=' && is_single(at)) {
        "equal is ==; "
    } else if expression.split(|letter: char| !letter.is_ascii_alphanumeric()).any(has_unit) {
        "a number is in bytes, without a unit; "
    } else {
        ""
    }
}

/// Sets the filter `expression`, which the user gave with `option`, on the allocation events among `events`. An error names the
/// event and the kernel's reason.
pub(crate) fn set_filter(fs: &KernelFs, events: &[String], option: &str, expression: &str) -> anyhow::Result<()> {
    let shown = escape(expression.as_bytes());
    let mut is_set = false;
    for event in allocations(events) {
        if let Some(reason) = refused_filter(fs, event, expression)? {
            let remedy = filter_remedy(expression);
            bail!(
                "{option} '{shown}': {event} cannot have it: {reason}: {remedy}the fields are in events/{event}/format of tracefs"
            );
        }
        let text = fs.get(&filter_file(event))?;
        if text.trim() != expression.trim() {
            let kept = escape(text.trim().as_bytes());
            bail!(
                "{option} '{shown}': {event} has the filter '{kept}' instead: give an expression such as 'bytes_req >= 4096'"
            );
        }
        is_set = true;
    }
    if !is_set {
        bail!("{option} '{shown}': no allocation event is recorded: add one to -e, or leave out {option}");
    }
    Ok(())
}

/// Sets the filter `expression` on an event; returns the kernel's reason if it refuses.
pub(crate) fn refused_filter(fs: &KernelFs, event: &str, expression: &str) -> anyhow::Result<Option<String>> {
    let file = filter_file(event);
    let Err(error) = fs.write(&file, expression) else { return Ok(None) };
    // After an error the file has the reason, until the next write.
    let text = fs.get(&file)?;
    let reason = text.lines().find_map(|line| line.strip_prefix("parse_error: ")).filter(|reason| !reason.is_empty());
    Ok(Some(reason.map_or_else(|| error.to_string(), |reason| escape(reason.as_bytes()).into_owned())))
}

/// Control file of an event's filter.
pub(crate) fn filter_file(event: &str) -> String {
    format!("events/{event}/filter")
}

/// Enabled events of a trace directory, as `system/event`.
pub(crate) fn enabled(fs: &KernelFs) -> anyhow::Result<Vec<String>> {
    Ok(fs.get("set_event")?.lines().map(|line| line.replacen(':', "/", 1)).filter(|e| e.contains('/')).collect())
}

/// The profile of this name.
fn profile(name: &str) -> Option<&'static Profile> {
    const { &PROFILES }.iter().find(|profile| profile.name == name)
}

/// True if the name stands for several events.
pub(crate) fn is_profile(name: &str) -> bool {
    profile(name).is_some()
}

/// True if the profile `latency` is among names of events and profiles.
pub(crate) fn has_latency(asked: &[String]) -> bool {
    asked.iter().any(|name| name == latency::PROFILE)
}

/// Event of a name as `system/event`; a name alone is that of a profile's event, else one of `kmem`.
fn with_system(given: &str) -> String {
    if given.contains('/') {
        return given.to_owned();
    }
    let known = PROFILES.iter().flat_map(|profile| profile.events.concat()).find(|event| name(event) == given);
    known.map_or_else(|| format!("kmem/{given}"), str::to_owned)
}

/// True for an event of slab objects or pages that the profiles record.
pub(crate) fn is_of_objects(event: &str) -> bool {
    SLAB.contains(&event) || PAGE.contains(&event)
}

/// True where all of `events` are of the profile `latency`, so that a recording has no objects.
pub(crate) fn are_of_latency(events: &[String]) -> bool {
    let of_profile = profile(latency::PROFILE).map(|profile| profile.events.concat()).unwrap_or_default();
    !events.is_empty() && events.iter().all(|event| of_profile.contains(&event.as_str()))
}

/// Names of the events of `system`. Control files of the whole system (`enable`, `filter`) are in its directory, too; before Linux
/// 5.11 even in that of `ftrace`.
pub(crate) fn of_system(fs: &KernelFs, system: &str) -> anyhow::Result<Vec<String>> {
    fs.dirs(&format!("events/{system}"))
}

/// True if this kernel has the event `system/event` and can enable it.
fn is_there(fs: &KernelFs, event: &str) -> anyhow::Result<bool> {
    let dir = format!("events/{event}");
    Ok(fs.is_dir(&dir)? && fs.has(&format!("{dir}/enable"))?)
}

/// Names for a pattern such as `kmem:*`, which perf takes: the profiles that have events of its system.
fn for_pattern(pattern: &str) -> String {
    let system = pattern.split([':', '/']).next().unwrap_or(pattern);
    let is_of_system = |event: &&str| event.split_once('/').is_some_and(|(of_event, _)| of_event == system);
    let has =
        |profile: &&Profile| profile.events.concat().iter().any(|event| is_of_system(event) && !is_of_names(event));
    let found: Vec<&str> = PROFILES.iter().filter(has).map(|profile| profile.name).collect();
    let all = || PROFILES.iter().map(|profile| profile.name).collect();
    (if found.is_empty() { all() } else { found }).join(", ")
}

/// Events of this kernel that the names and profiles in `asked` stand for, as sorted `system/event`.
pub(crate) fn choose(fs: &KernelFs, asked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut events = Vec::new();
    for name in asked {
        let Some(profile) = profile(name) else {
            if name.rsplit(['/', ':']).next().is_none_or(str::is_empty) {
                bail!("-e '{}': the name of an event is missing; for example -e slab,page", asked.join(","));
            }
            if name == "kmem" || name.contains(['*', '?']) {
                bail!("-e {name}: an event is given by its whole name; for several use {}", for_pattern(name));
            }
            let event = with_system(&name.replace(':', "/"));
            if event.contains("..") || !is_there(fs, &event)? {
                let like = nearest(fs, name).map_or(String::new(), |like| format!("did you mean {like}? "));
                bail!(
                    "-e {name}: this kernel has no such event; {like}there are {}, and those in events/kmem of tracefs",
                    PROFILES.map(|profile| profile.name).join(", ")
                );
            }
            events.push(event);
            continue;
        };
        let mut found = Vec::new();
        for event in profile.events.concat() {
            if is_there(fs, event)? {
                found.push(event.to_owned());
            }
        }
        if name == latency::PROFILE {
            latency::check(&found)?;
        } else if found.iter().all(|event| is_of_names(event)) {
            if let Some(since) = profile.since {
                bail!("-e {name}: this kernel has no {name} events: Linux {since} or later");
            }
            bail!(
                "-e {name}: this kernel has none of these events: it requires CONFIG_TRACEPOINTS and the kmem events"
            );
        }
        events.extend(found);
    }
    events.sort();
    events.dedup();
    Ok(events)
}

/// Events of the profiles in `asked` that this kernel lacks. Slab and page events are left out: each release has some of them.
pub(crate) fn missing(fs: &KernelFs, asked: &[impl AsRef<str>]) -> anyhow::Result<Vec<&'static str>> {
    let profiles: Vec<&Profile> = asked.iter().filter_map(|name| profile(name.as_ref())).collect();
    let mut missing = Vec::new();
    for list in [&PERCPU[..], &VMALLOC, &latency::EVENTS] {
        for event in list.iter().filter(|_| profiles.iter().any(|profile| profile.events.contains(&list))) {
            if !is_there(fs, event)? {
                missing.push(*event);
            }
        }
    }
    Ok(missing)
}

/// What this kernel has of a profile, for `kmemtraced doctor`.
pub(crate) fn offer(fs: &KernelFs, name: &str) -> anyhow::Result<String> {
    let missing = missing(fs, &[name])?;
    let (since, events) = profile(name).map(|profile| (profile.since, profile.events.concat())).unwrap_or_default();
    let count = events.iter().filter(|event| !is_of_names(event)).count();
    Ok(match since.filter(|_| missing.len() == count) {
        Some(since) => format!("no events: Linux {since} or later is required"),
        None if missing.is_empty() => "all events".to_owned(),
        None => format!("{} of {count} events, without {}", count - missing.len(), missing.join(" ")),
    })
}

/// Allocation events among `events` whose call site only a stack gives: they have no field for it.
pub(crate) fn without_site(fs: &KernelFs, events: &[String]) -> anyhow::Result<Vec<&'static str>> {
    let mut without = Vec::new();
    for event in [PERCPU_ALLOC, VMALLOC_ALLOC] {
        if events.iter().any(|other| other == event)
            && !fs.get_if_there(&format!("events/{event}/format"))?.contains(" call_site;")
        {
            without.push(event);
        }
    }
    Ok(without)
}

/// True if none of the events comes often, so that a stack with each one costs little.
pub(crate) fn are_rare(events: &[String]) -> bool {
    events
        .iter()
        .all(|event| [&PERCPU[..], &VMALLOC, &MODULES, &CGROUPS].iter().any(|list| list.contains(&event.as_str())))
}

/// Event of an allocator, or profile, whose name is most like `name`, if one is like it.
fn nearest(fs: &KernelFs, name: &str) -> Option<String> {
    let there = ["kmem", "percpu", "vmalloc"].into_iter().flat_map(|system| of_system(fs, system).unwrap_or_default());
    let like = |known: String| (strsim::jaro_winkler(name, &known), known);
    let known = there.chain(PROFILES.map(|profile| profile.name.to_owned())).map(like);
    let best = known.filter(|(like, _)| *like >= 0.8).max_by(|(a, x), (b, y)| a.total_cmp(b).then_with(|| y.cmp(x)));
    best.map(|(_, known)| known)
}

/// Format files of these events and of the tracer's own events, by `system/event`.
pub(crate) fn formats(fs: &KernelFs, events: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut formats = Vec::new();
    for event in events {
        formats.push((event.clone(), fs.get(&format!("events/{event}/format"))?));
    }
    // Events of the tracer itself are recorded without being enabled.
    for name in of_system(fs, "ftrace")? {
        let event = format!("ftrace/{name}");
        formats.push((event.clone(), fs.get(&format!("events/{event}/format"))?));
    }
    Ok(formats)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds an event to a made-up tracefs.
    fn add_event(tracefs: &std::path::Path, event: &str) {
        let event = tracefs.join("events").join(event);
        std::fs::create_dir_all(&event).unwrap();
        std::fs::write(event.join("enable"), "0").unwrap();
    }

    #[test]
    fn pages_and_slabs_come_with_the_events_of_modules_where_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let add = |event: &str| add_event(dir.path(), event);
        let page = || choose(&fs, &["page".to_owned()]);
        add("module/module_load");
        assert!(page().is_err(), "no event of pages");
        ["kmem/mm_page_alloc", "kmem/mm_page_free"].into_iter().for_each(add);
        assert_eq!(page().unwrap(), ["kmem/mm_page_alloc", "kmem/mm_page_free", "module/module_load"]);
        ["kmem/kmalloc", "kmem/kfree", "module/module_free"].into_iter().for_each(add);
        let slab = choose(&fs, &["slab".to_owned()]).unwrap();
        assert_eq!(slab, ["kmem/kfree", "kmem/kmalloc", "module/module_free", "module/module_load"]);
        let one = choose(&fs, &["mm_page_free".to_owned(), "module:module_load".to_owned()]);
        assert_eq!(one.unwrap(), ["kmem/mm_page_free", "module/module_load"]);
    }

    #[test]
    fn percpu_and_vmalloc_are_what_the_kernel_has_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let add = |event: &str| add_event(dir.path(), event);
        let of = |asked: &str| choose(&fs, &[asked.to_owned()]).map_err(|error| format!("{error:#}"));
        ["kmem/kmalloc", "kmem/kfree", "module/module_load"].into_iter().for_each(add);
        assert_eq!(of("vmalloc").unwrap_err(), "-e vmalloc: this kernel has no vmalloc events: Linux 6.2 or later");
        assert_eq!(of("percpu").unwrap_err(), "-e percpu: this kernel has no percpu events: Linux 4.13 or later");
        assert_eq!(offer(&fs, "vmalloc").unwrap(), "no events: Linux 6.2 or later is required");
        PERCPU.into_iter().for_each(add);
        assert_eq!(of("percpu").unwrap(), [&["module/module_load"], &PERCPU[..]].concat());
        assert_eq!(of("all").unwrap().len(), 6);
        assert_eq!(missing(&fs, &["all"]).unwrap(), VMALLOC);
        assert_eq!(missing(&fs, &["slab", "page", "percpu"]).unwrap(), [""; 0]);
        assert_eq!(offer(&fs, "percpu").unwrap(), "all events");
        // The system of an event need not be named.
        assert_eq!(of("percpu_free_percpu").unwrap(), ["percpu/percpu_free_percpu"]);
        let error = of("percpu_alloc_percpuu").unwrap_err();
        assert!(error.contains("did you mean percpu_alloc_percpu?"), "{error}");
        for nameless in ["", "kmem/", "kmem:"] {
            let error = of(nameless).unwrap_err();
            assert!(error.ends_with("the name of an event is missing; for example -e slab,page"), "{error}");
        }
    }

    #[test]
    fn call_sites_that_only_a_stack_gives_are_known_by_the_format() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let events: Vec<String> =
            [&PERCPU[..], &VMALLOC, &["kmem/mm_page_alloc"]].concat().into_iter().map(str::to_owned).collect();
        for (field, expected) in
            [("unsigned long call_site", &[VMALLOC_ALLOC][..]), ("bool reserved", &[PERCPU_ALLOC, VMALLOC_ALLOC])]
        {
            for (event, field) in [(PERCPU_ALLOC, field), (VMALLOC_ALLOC, "unsigned long addr")] {
                let event = dir.path().join("events").join(event);
                std::fs::create_dir_all(&event).unwrap();
                std::fs::write(event.join("format"), format!("\tfield:{field};\toffset:8;")).unwrap();
            }
            assert_eq!(without_site(&fs, &events).unwrap(), expected);
        }
        assert!(without_site(&fs, &events[5..]).unwrap().is_empty());
        assert!(!are_rare(&events) && are_rare(&events[..5]));
    }

    #[test]
    fn control_files_of_a_system_are_no_events() {
        let dir = tempfile::tempdir().unwrap();
        for event in ["kmem/kfree", "ftrace/print", "ftrace/kernel_stack"] {
            let event = dir.path().join("events").join(event);
            std::fs::create_dir_all(&event).unwrap();
            std::fs::write(event.join("format"), "ID: 1").unwrap();
            std::fs::write(event.join("enable"), "0").unwrap();
        }
        for file in ["kmem/enable", "kmem/filter", "ftrace/enable", "ftrace/filter"] {
            std::fs::write(dir.path().join("events").join(file), "0").unwrap();
        }
        let fs = KernelFs::at(dir.path()).unwrap();
        let formats = formats(&fs, &["kmem/kfree".to_owned()]).unwrap();
        let names: Vec<&str> = formats.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["kmem/kfree", "ftrace/kernel_stack", "ftrace/print"]);
        for file in ["enable", "kmem/filter", "ftrace:enable"] {
            let error = format!("{:#}", choose(&fs, &[file.to_owned()]).unwrap_err());
            assert!(error.starts_with(&format!("-e {file}: this kernel has no such event")), "{error}");
        }
        for (pattern, names) in [
            ("kmem", "slab, page, all"),
            ("kmem:*", "slab, page, all"),
            ("vmscan:mm_vmscan_*", "latency"),
            ("sched:*", "slab, page, percpu, vmalloc, latency, all"),
        ] {
            let error = format!("{:#}", choose(&fs, &[pattern.to_owned()]).unwrap_err());
            assert!(error.ends_with(&format!("for several use {names}")), "{error}");
        }
    }

    #[test]
    fn latency_takes_what_a_kernel_has_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let add = |event: &str| add_event(dir.path(), event);
        let choose = |asked: &[&str]| choose(&fs, &asked.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        add("vmscan/mm_vmscan_direct_reclaim_begin");
        let error = format!("{:#}", choose(&["latency"]).unwrap_err());
        assert!(error.starts_with("-e latency: this kernel has no begin and end"), "{error}");
        ["vmscan/mm_vmscan_direct_reclaim_end", "kmem/kmalloc"].into_iter().for_each(add);
        let direct = ["vmscan/mm_vmscan_direct_reclaim_begin", "vmscan/mm_vmscan_direct_reclaim_end"];
        assert_eq!(choose(&["latency"]).unwrap(), direct);
        assert!(are_of_latency(&choose(&["latency"]).unwrap()) && !are_of_latency(&[]));
        assert_eq!(choose(&["latency", "slab"]).unwrap(), [&["kmem/kmalloc"][..], &direct].concat());
        assert!(!are_of_latency(&choose(&["latency", "slab"]).unwrap()));
        assert_eq!(missing(&fs, &["latency"]).unwrap().len(), latency::EVENTS.len() - 2);
        let error = format!("{:#}", choose(&["latenzy"]).unwrap_err());
        assert!(error.contains("did you mean latency? there are slab, page, percpu, vmalloc, latency, all"), "{error}");
    }

    #[test]
    fn allocations_without_their_frees_are_told() {
        let warning = |events: &[&str]| {
            let events: Vec<String> = events.iter().map(|event| format!("kmem/{event}")).collect();
            without_frees(&events)
        };
        assert_eq!(
            warning(&["kmem_cache_alloc"]).unwrap(),
            "kmem_cache_alloc is recorded without the events of frees, so every object will appear live: add kmem_cache_free to -e"
        );
        let both = warning(&["kmalloc", "kmalloc_node", "kmem_cache_free", "mm_page_alloc"]).unwrap();
        assert!(both.starts_with("kmalloc, kmalloc_node, mm_page_alloc are recorded without"), "{both}");
        assert!(both.ends_with("add kfree,mm_page_free to -e"), "{both}");
        let percpu = without_frees(&PERCPU[..2].iter().map(|&event| event.to_owned()).collect::<Vec<_>>());
        assert!(percpu.unwrap().starts_with("percpu_alloc_percpu is recorded without"));
        for whole in [&["kmalloc", "kfree"][..], &["mm_page_alloc", "mm_page_free_direct"], &["kfree"], &["rss_stat"]] {
            assert_eq!(warning(whole), None, "{whole:?}");
        }
    }
}
