//! Trace events of the kernel: the profiles, which of them are enabled, and their formats.

use anyhow::bail;

use crate::fs::kernelfs::KernelFs;

/// Events of the profile `slab`; a kernel has some of them.
const SLAB: [&str; 6] =
    ["kmalloc", "kmalloc_node", "kmem_cache_alloc", "kmem_cache_alloc_node", "kfree", "kmem_cache_free"];
/// Events of the profile `page`.
const PAGE: [&str; 3] = ["mm_page_alloc", "mm_page_free", "mm_page_free_direct"];

/// Enabled events of a trace directory, as `system/event`.
pub(crate) fn enabled(fs: &KernelFs) -> anyhow::Result<Vec<String>> {
    Ok(fs.get("set_event")?.lines().map(|line| line.replacen(':', "/", 1)).filter(|e| e.contains('/')).collect())
}

/// Events of this kernel that the names and profiles in `asked` stand for, as sorted `system/event`.
pub(crate) fn choose(fs: &KernelFs, asked: &[String]) -> anyhow::Result<Vec<String>> {
    let there = |event: &str| fs.has(&format!("events/{event}/enable"));
    let mut events = Vec::new();
    for name in asked {
        let profile: Vec<&str> = match name.as_str() {
            "slab" => SLAB.to_vec(),
            "page" => PAGE.to_vec(),
            "all" => [&SLAB[..], &PAGE[..]].concat(),
            _ => Vec::new(),
        };
        if profile.is_empty() {
            let event = name.replace(':', "/");
            let event = if event.contains('/') { event } else { format!("kmem/{event}") };
            if event.contains("..") || !there(&event)? {
                let like = nearest(fs, name).map_or(String::new(), |like| format!("did you mean {like}? "));
                bail!(
                    "-e {name}: this kernel has no such event; {like}there are slab, page, all, and those in events/kmem of tracefs"
                );
            }
            events.push(event);
            continue;
        }
        let mut found = Vec::new();
        for event in profile.iter().map(|event| format!("kmem/{event}")) {
            if there(&event)? {
                found.push(event);
            }
        }
        if found.is_empty() {
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
    let there = fs.names("events/kmem").unwrap_or_default().into_iter();
    let like = |known: String| (strsim::jaro_winkler(name, &known), known);
    let known = there.chain(["slab", "page", "all"].map(str::to_owned)).map(like);
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
    for name in fs.names("events/ftrace")? {
        let file = format!("events/ftrace/{name}/format");
        if fs.has(&file)? {
            formats.push((format!("ftrace/{name}"), fs.get(&file)?));
        }
    }
    Ok(formats)
}
