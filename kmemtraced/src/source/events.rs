//! Trace events of the kernel: the profiles, which of them are enabled, and their formats.

use anyhow::bail;
use kmemtrace_abi::kernel::probes::{ALLOC_BULK, group_of};
use kmemtrace_abi::text::escape::escape;

use crate::fs::kernelfs::KernelFs;
use crate::source::latency;

/// Names of profiles.
const PROFILES: [&str; 4] = ["slab", "page", latency::PROFILE, "all"];
/// Events of the profile `slab`; a kernel has some of them.
const SLAB: [&str; 6] =
    ["kmalloc", "kmalloc_node", "kmem_cache_alloc", "kmem_cache_alloc_node", "kfree", "kmem_cache_free"];
/// Events of the profile `page`.
const PAGE: [&str; 3] = ["mm_page_alloc", "mm_page_free", "mm_page_free_direct"];
/// Events of both profiles. The report needs them to assign what a module's `__init` code allocates to the module.
const MODULES: [&str; 2] = ["module/module_load", "module/module_free"];

/// Allocation events, with the events of their frees; a kernel has some of them.
const FREES: [(&str, &[&str]); 5] = [
    ("kmem/kmalloc", &["kmem/kfree"]),
    ("kmem/kmalloc_node", &["kmem/kfree"]),
    ("kmem/kmem_cache_alloc", &["kmem/kmem_cache_free"]),
    ("kmem/kmem_cache_alloc_node", &["kmem/kmem_cache_free"]),
    ("kmem/mm_page_alloc", &["kmem/mm_page_free", "kmem/mm_page_free_direct"]),
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
    let frees = frees.join(",");
    Some(format!("{allocs} without its frees: all of these objects will look live: add {frees} to -e"))
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

/// Sets the filter `expression`, which the user gave with `option`, on the allocation events among `events`. An error names the
/// event and the kernel's reason.
pub(crate) fn set_filter(fs: &KernelFs, events: &[String], option: &str, expression: &str) -> anyhow::Result<()> {
    let shown = escape(expression.as_bytes());
    let mut is_set = false;
    for event in allocations(events) {
        if let Some(reason) = refused_filter(fs, event, expression)? {
            bail!(
                "{option} '{shown}': {event} cannot have it: {reason}: use the fields in events/{event}/format of tracefs"
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

/// Events of a profile; none for another name.
fn profile(name: &str) -> Vec<&'static str> {
    match name {
        "slab" => [&SLAB[..], &MODULES].concat(),
        "page" => [&PAGE[..], &MODULES].concat(),
        "all" => [&SLAB[..], &PAGE, &MODULES].concat(),
        latency::PROFILE => latency::EVENTS.to_vec(),
        _ => Vec::new(),
    }
}

/// True if the name stands for several events.
pub(crate) fn is_profile(name: &str) -> bool {
    !profile(name).is_empty()
}

/// True if the profile `latency` is among names of events and profiles.
pub(crate) fn has_latency(asked: &[String]) -> bool {
    asked.iter().any(|name| name == latency::PROFILE)
}

/// Event of a name as `system/event`; a name alone is of `kmem`.
fn with_system(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("kmem/{name}") }
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

/// Events of this kernel that the names and profiles in `asked` stand for, as sorted `system/event`.
pub(crate) fn choose(fs: &KernelFs, asked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut events = Vec::new();
    for name in asked {
        let profile = profile(name);
        if profile.is_empty() {
            let event = with_system(&name.replace(':', "/"));
            if event.contains("..") || !is_there(fs, &event)? {
                let like = nearest(fs, name).map_or(String::new(), |like| format!("did you mean {like}? "));
                bail!(
                    "-e {name}: this kernel has no such event; {like}there are {}, and those in events/kmem of tracefs",
                    PROFILES.join(", ")
                );
            }
            events.push(event);
            continue;
        }
        let mut found = Vec::new();
        for event in profile.iter().map(|event| with_system(event)) {
            if is_there(fs, &event)? {
                found.push(event);
            }
        }
        if name == latency::PROFILE {
            latency::check(&found)?;
        } else if !found.iter().any(|event| event.starts_with("kmem/")) {
            bail!("-e {name}: this kernel has none of these events: it takes CONFIG_TRACEPOINTS and the kmem events");
        }
        events.extend(found);
    }
    events.sort();
    events.dedup();
    Ok(events)
}

/// Event of `kmem`, or profile, whose name is most like `name`, if one is like it.
fn nearest(fs: &KernelFs, name: &str) -> Option<String> {
    let there = of_system(fs, "kmem").unwrap_or_default().into_iter();
    let like = |known: String| (strsim::jaro_winkler(name, &known), known);
    let known = there.chain(PROFILES.map(str::to_owned)).map(like);
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

    #[test]
    fn pages_and_slabs_come_with_the_events_of_modules_where_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let add = |event: &str| {
            let event = dir.path().join("events").join(event);
            std::fs::create_dir_all(&event).unwrap();
            std::fs::write(event.join("enable"), "0").unwrap();
        };
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
    }

    #[test]
    fn latency_takes_what_a_kernel_has_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let add = |event: &str| {
            let event = dir.path().join("events").join(event);
            std::fs::create_dir_all(&event).unwrap();
            std::fs::write(event.join("enable"), "0").unwrap();
        };
        let choose = |asked: &[&str]| choose(&fs, &asked.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        add("vmscan/mm_vmscan_direct_reclaim_begin");
        let error = format!("{:#}", choose(&["latency"]).unwrap_err());
        assert!(error.starts_with("-e latency: this kernel has no begin and end"), "{error}");
        ["vmscan/mm_vmscan_direct_reclaim_end", "kmem/kmalloc"].into_iter().for_each(add);
        let direct = ["vmscan/mm_vmscan_direct_reclaim_begin", "vmscan/mm_vmscan_direct_reclaim_end"];
        assert_eq!(choose(&["latency"]).unwrap(), direct);
        assert_eq!(choose(&["latency", "slab"]).unwrap(), [&["kmem/kmalloc"][..], &direct].concat());
        assert_eq!(latency::missing(&fs).unwrap().len(), latency::EVENTS.len() - 2);
        let error = format!("{:#}", choose(&["latenzy"]).unwrap_err());
        assert!(error.contains("did you mean latency? there are slab, page, latency, all"), "{error}");
    }

    #[test]
    fn allocations_without_their_frees_are_told() {
        let warning = |events: &[&str]| {
            let events: Vec<String> = events.iter().map(|event| format!("kmem/{event}")).collect();
            without_frees(&events)
        };
        assert_eq!(
            warning(&["kmem_cache_alloc"]).unwrap(),
            "kmem_cache_alloc without its frees: all of these objects will look live: add kmem_cache_free to -e"
        );
        let both = warning(&["kmalloc", "kmalloc_node", "kmem_cache_free", "mm_page_alloc"]).unwrap();
        assert!(both.starts_with("kmalloc, kmalloc_node, mm_page_alloc without"), "{both}");
        assert!(both.ends_with("add kfree,mm_page_free to -e"), "{both}");
        for whole in [&["kmalloc", "kfree"][..], &["mm_page_alloc", "mm_page_free_direct"], &["kfree"], &["rss_stat"]] {
            assert_eq!(warning(whole), None, "{whole:?}");
        }
    }
}
