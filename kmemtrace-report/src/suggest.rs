//! Names in the trace that are like a filter's value which no name of the trace matches.

use std::collections::BTreeSet;

use kmemtrace::documents::caches::CacheRow;
use kmemtrace::documents::naming::Candidates;
use kmemtrace::{EventNames, Glob, Query, Silent, Site, SiteOwner, Trace};
use kmemtrace_abi::text::escape::escape;

use crate::args::Filters;
use crate::cli::nearest::nearest;
use crate::render::table::cells;

/// Limit of rows of caches that are listed.
const MAX_ROWS: usize = 8;

/// A line for each value of a filter that names nothing in the trace; `trace` was read, and `names` are those of the reading: event
/// names first, then caches.
pub(crate) fn suggest(
    filters: &Filters,
    query: &Query,
    trace: &Trace,
    names: &EventNames,
    event_names: usize,
) -> Vec<String> {
    let is_asked =
        !(filters.comm.is_empty() && filters.module.is_empty() && filters.cache.is_empty() && filters.site.is_empty());
    // Names of symbols and threads went into the analysis: the trace is opened once more, for its metadata only.
    let Some(mut again) = is_asked.then(|| trace.reopen().ok()).flatten() else { return Vec::new() };
    if query.load_symbols(&mut again, &mut Silent).is_err() {
        return Vec::new();
    }
    let metadata = again.metadata;
    let (mut functions, mut modules) = (BTreeSet::new(), BTreeSet::new());
    if !(filters.site.is_empty() && filters.module.is_empty()) {
        for line in metadata.kallsyms.split(|&byte| byte == b'\n') {
            let Some((function, module)) = symbol(line) else { continue };
            functions.insert(function);
            modules.extend(module);
        }
    }
    let comms: BTreeSet<&[u8]> = metadata.comms.values().map(|comm| &**comm).collect();
    let of_events = (event_names..names.len()).filter_map(|index| names.at(index));
    let aliases = metadata.cache_aliases.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty());
    let caches: BTreeSet<&[u8]> =
        of_events.chain(metadata.slabinfo_end.split(|&b| b == b'\n').filter_map(slab)).chain(aliases).collect();
    let sites = filters.site.iter().filter_map(|site| match site {
        Site::Symbol { name, .. } => Some(name),
        Site::Address(_) => None,
    });
    let mut lines = Vec::new();
    lines.extend(filters.comm.iter().filter_map(|glob| line("--comm", glob, "command", &comms)));
    // Code of no module has one of these in place of its name.
    let is_of_none =
        |glob: &Glob| [SiteOwner::Kernel, SiteOwner::Unknown].iter().any(|owner| glob.matches(owner.name()));
    let of_modules = filters.module.iter().filter(|glob| !is_of_none(glob));
    lines.extend(of_modules.clone().filter_map(|glob| line("--module", glob, "module", &modules)));
    if modules.is_empty() {
        let patterns = of_modules.map(|glob| escape(glob.to_string().as_bytes()).into_owned());
        lines.extend(patterns.map(|pattern| format!("--module {pattern}: no modules are known for this trace")));
    }
    lines.extend(filters.cache.iter().filter_map(|glob| line("--cache", glob, "cache", &caches)));
    lines.extend(sites.filter_map(|glob| line("--site", glob, "function", &functions)));
    lines
}

/// Line for a value that matches none of the names; `None` where one does, or none is known.
fn line(option: &str, glob: &Glob, kind: &str, names: &BTreeSet<&[u8]>) -> Option<String> {
    if names.is_empty() || names.iter().any(|name| glob.matches(name)) {
        return None;
    }
    let pattern = glob.to_string();
    let shown = names.iter().map(|name| escape(name).into_owned());
    let like = nearest(pattern.trim_matches(['*', '?']), shown);
    let pattern = escape(pattern.as_bytes()).into_owned();
    let advice = if like.is_empty() {
        "a value is a whole name, or a pattern with * and ?".to_owned()
    } else {
        format!("did you mean {}?", like.join(", "))
    };
    Some(format!("{option} {pattern}: no {kind} of this trace has that name; {advice}"))
}

/// True where slabinfo has a cache that a filter names, by its name or by one with which it was merged.
pub(crate) fn has_cache(glob: &Glob, trace: &Trace) -> bool {
    let metadata = &trace.metadata;
    let texts = [&metadata.slabinfo_start, &metadata.slabinfo_end];
    let listed = texts.iter().flat_map(|text| text.split(|&byte| byte == b'\n')).filter_map(slab);
    let aliases = metadata.cache_aliases.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty());
    listed.chain(aliases).any(|name| glob.matches(name))
}

/// Lines for the rows of caches that may be of the cache that a filter names; `aliases` is the text of merged caches.
pub(crate) fn may_be_of<'a>(glob: &Glob, aliases: &[u8], rows: impl Iterator<Item = CacheRow<'a>>) -> Vec<String> {
    let merged = aliases.split(|&byte| byte == b'\n').map(|line| line.split(u8::is_ascii_whitespace));
    let merged = merged.filter_map(|mut words| Some((words.next()?, words.any(|alias| glob.matches(alias)))));
    let caches: BTreeSet<&[u8]> = merged.filter_map(|(cache, is_asked)| is_asked.then_some(cache)).collect();
    let is_asked = |name: &[u8]| glob.matches(name) || caches.contains(name);
    let pattern = escape(glob.to_string().as_bytes()).into_owned();
    let line = |row: CacheRow<'_>| {
        let Candidates(names) =
            row.cache_candidates.filter(|Candidates(names)| names.iter().any(|name| is_asked(name)))?;
        let (allocs, live) = (cells::counted(row.stats.allocs, "allocation"), cells::count(row.stats.live_objects));
        Some(format!(
            "--cache {pattern}: no object is known to be of it, but the row {} of the view caches may be: {allocs}, {live} live",
            cells::cache(&None, Some(&Candidates(names))).text
        ))
    };
    rows.filter_map(line).take(MAX_ROWS).collect()
}

/// Function and module of a line `ADDRESS TYPE NAME[\t[MODULE]]` of `/proc/kallsyms`.
fn symbol(line: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let [_, kind, rest] = [words.next()?, words.next()?, words.next()?];
    let (name, module) = match rest.iter().position(|&byte| byte == b'\t') {
        Some(tab) => (&rest[..tab], rest[tab + 1..].strip_prefix(b"[").and_then(|m| m.strip_suffix(b"]"))),
        None => (rest, None),
    };
    kind.eq_ignore_ascii_case(b"t").then_some((name, module))
}

/// Cache of a line of `/proc/slabinfo`; its first two lines have none.
fn slab(line: &[u8]) -> Option<&[u8]> {
    let name = line.split(|&byte| byte == b' ').next().filter(|name| !name.is_empty())?;
    (!line.starts_with(b"slabinfo") && !line.starts_with(b"#")).then_some(name)
}

/// Limit of folders that are listed where none is like the one that was asked for.
const MAX_FOLDERS: usize = 12;

/// Reason why a branch is refused: the names nearest to it, or that no folder is known.
pub(crate) fn no_branch(branch: &str, paths: &BTreeSet<Box<[u8]>>) -> String {
    let shown = escape(branch.as_bytes());
    if paths.is_empty() {
        return format!(
            "{shown}: no source folders are known for this trace; name them with --vmlinux, --kernel or --names, see docs/names.md"
        );
    }
    let like = like_folder(branch, paths.iter().map(|path| &**path));
    format!("{shown}: no call site of this trace is in it{like}")
}

/// Words on the folders and files of `paths` that are like a branch, or on the outermost folders.
pub(crate) fn like_folder<'p>(branch: &str, paths: impl Iterator<Item = &'p [u8]>) -> String {
    let mut folders: BTreeSet<String> = BTreeSet::new();
    for path in paths.map(escape) {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        folders.extend(ends.map(|end| path[..end].to_owned()));
    }
    let like = nearest(branch, folders.iter().map(String::as_str));
    let first = folders.iter().filter(|folder| !folder.contains('/')).take(MAX_FOLDERS).map(String::as_str);
    if like.is_empty() {
        let more = folders.iter().filter(|folder| !folder.contains('/')).count().saturating_sub(MAX_FOLDERS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("; there are {}{more}", first.collect::<Vec<_>>().join(", "))
    } else {
        format!("; did you mean {}?", like.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_match_gets_the_nearest_names() {
        let names: BTreeSet<&[u8]> = [&b"kmemstorm"[..], b"kworker/0:1", b"\x1b[31m", b"systemd"].into();
        let of = |pattern: &str| line("--comm", &Glob::new(pattern), "command", &names);
        assert!(of("kmemstrom").unwrap().ends_with("did you mean kmemstorm?"));
        assert!(of("kwroker*").unwrap().contains("kworker/0:1"));
        assert!(of("zzz").unwrap().contains("a whole name, or a pattern"));
        assert!(!of("\u{1b}[31").unwrap().contains('\u{1b}'));
        assert_eq!(of("kmem*"), None);
        assert_eq!(line("--comm", &Glob::new("x"), "command", &BTreeSet::new()), None);
    }

    #[test]
    fn texts_of_the_kernel_give_names() {
        assert_eq!(symbol(b"ffff t foo_open\t[foo]"), Some((&b"foo_open"[..], Some(&b"foo"[..]))));
        assert_eq!(symbol(b"ffff T kfree"), Some((&b"kfree"[..], None)));
        assert_eq!(symbol(b"ffff d jiffies"), None);
        assert_eq!(symbol(b""), None);
        assert_eq!(slab(b"dentry   12 24"), Some(&b"dentry"[..]));
        assert_eq!([slab(b"# name"), slab(b"slabinfo - version: 2.1"), slab(b"")], [None; 3]);
    }
}
