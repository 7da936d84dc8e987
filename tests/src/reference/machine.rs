//! Texts of the machine's memory that a recording keeps, and what views tell of them: `balance`, slabs in `caches`, free blocks in
//! `failed`, `allocinfo_change` of functions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kmemtrace_abi::event::{Action, Event, Kind, StreamItem};
use serde_json::{Value, json};

use super::head::{allocations, figures, head, hex, with};
use super::leaks::{is_listed, matches};
use super::pairs::{End, Pairs};
use super::{Known, Selection};

/// Rules of uses; the library reads the same file.
const USES: &str = include_str!("../../../analysis/src/names/uses.txt");

/// Line of slabinfo by the name of its cache, as members.
fn slab(text: &str, name: &str, page_bytes: Option<u64>) -> Value {
    let line = text.lines().skip(2).find(|line| cache_of(line) == Some(name));
    let Some((own, data)) = line.and_then(|line| line.split_once(" : tunables ")) else { return Value::Null };
    let numbers = |text: &str| -> Vec<u64> { text.split_whitespace().filter_map(|word| word.parse().ok()).collect() };
    let (own, slabs) = (numbers(&own[name.len()..]), numbers(data.split_once("slabdata").map_or("", |(_, rest)| rest)));
    json!({
        "active_objs": own[0], "num_objs": own[1], "objsize": own[2], "objperslab": own[3], "pagesperslab": own[4],
        "active_slabs": slabs[0], "num_slabs": slabs[1], "bytes": page_bytes.map(|bytes| slabs[1] * own[4] * bytes),
    })
}

/// Name of the cache of a line: all before its five numbers.
fn cache_of(line: &str) -> Option<&str> {
    let figures = line.split_once(" : tunables ")?.0.trim_end();
    let name = (0..5).try_fold(figures, |rest, _| Some(rest.rsplit_once(' ')?.0.trim_end()))?;
    (!name.is_empty()).then_some(name)
}

/// Members `slab_before` and `slab_after` of a row of `caches`; none where the reference does not know the texts.
pub fn slabs(known: &Known, cache: Option<&str>) -> Value {
    let Some(texts) = &known.texts else { return json!({}) };
    let [before, after] = texts.slabinfo.each_ref().map(|text| match cache {
        Some(name) => slab(text, name, known.trace.page_bytes),
        None => Value::Null,
    });
    json!({ "slab_before": before, "slab_after": after })
}

/// Member `without_events` of `caches`, of which rows are these; none without slabinfo of both ends, in a window, and with filters
/// that may leave out the events of a cache.
pub fn without_events(known: &Known, rows: &[Value]) -> Value {
    let is_whole = known.bounds.is_none() && known.selection == Selection::default();
    let Some(texts) = known.texts.as_ref().filter(|texts| is_whole && texts.slabinfo.iter().all(|t| !t.is_empty()))
    else {
        return json!({});
    };
    let listed: BTreeSet<&str> =
        texts.slabinfo.iter().flat_map(|text| text.lines().skip(2)).filter_map(cache_of).collect();
    let mut idle: Vec<Value> = listed
        .into_iter()
        .filter(|name| !rows.iter().any(|row| row["cache"] == *name))
        .map(|name| {
            let kind = if name.starts_with("kmalloc-") { "kmalloc" } else { "cache" };
            with(json!({ "cache": name, "kind": kind }), slabs(known, Some(name)))
        })
        .collect();
    let bytes = |row: &Value, side: &str| row[side]["bytes"].as_i64().unwrap_or(0);
    idle.sort_by_key(|row| {
        let after = bytes(row, "slab_after");
        (Reverse((after - bytes(row, "slab_before")).unsigned_abs()), Reverse(after))
    });
    json!({ "without_events": idle })
}

/// Member `allocinfo_change` of the row of a function; none where the reference does not know the texts.
pub fn allocinfo_change(known: &Known, row: &Value) -> Value {
    let Some(texts) = &known.texts else { return json!({}) };
    let is_whole = known.bounds.is_none() && known.selection == Selection::default();
    let bytes = |text: &str| -> Vec<i64> {
        let lines = text.lines().skip(2).filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words.last().and_then(|word| word.strip_prefix("func:")).unwrap_or_default();
            let module = words.get(3).and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
            row["function"] == name.trim_end_matches("_noprof") && row["module"].as_str() == module
        });
        let size = |line: &str| line.split_whitespace().next().and_then(|word| word.parse::<i64>().ok());
        lines.filter_map(size).map(|size| size.max(0)).collect()
    };
    let has_both = texts.allocinfo.iter().all(|text| !text.is_empty());
    let [before, after] = texts.allocinfo.each_ref().map(|text| bytes(text));
    let change = after.iter().sum::<i64>() - before.iter().sum::<i64>();
    let is_told = has_both && is_whole && !(before.is_empty() && after.is_empty());
    json!({ "allocinfo_change": is_told.then_some(change) })
}

/// Member `buddyinfo` of `failed`.
pub fn buddyinfo(known: &Known) -> Value {
    let Some(texts) = &known.texts else { return json!({}) };
    let zone = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let free: Vec<u64> = words[4..].iter().filter_map(|word| word.parse().ok()).collect();
        json!({ "node": words[1].trim_end_matches(',').parse::<u64>().ok(), "zone": words[3], "free": free })
    };
    let has_both = known.bounds.is_none() && texts.buddyinfo.iter().all(|text| !text.is_empty());
    let [before, after] = texts.buddyinfo.each_ref().map(|text| text.lines().map(zone).collect::<Vec<_>>());
    json!({ "buddyinfo": has_both.then(|| json!({ "before": before, "after": after })) })
}

/// Counters of one side, in bytes by name.
fn counters(meminfo: &str, zoneinfo: &str, page_bytes: Option<u64>) -> BTreeMap<String, i64> {
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let kib: i64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some((name.to_owned(), kib * 1024))
    };
    let mut counters: BTreeMap<String, i64> = meminfo.lines().filter_map(line).collect();
    let number = |text: &str, name: &str| -> Option<i64> {
        text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok())
    };
    let huge = number(meminfo, "HugePages_Total:").zip(counters.get("Hugepagesize").copied());
    if let (None, Some((pages, bytes))) = (counters.get("Hugetlb"), huge) {
        counters.insert("Hugetlb".to_owned(), pages * bytes);
    }
    let counts: Vec<i64> = zoneinfo.lines().filter_map(|line| number(line, "count:")).collect();
    if let Some(page_bytes) = page_bytes.filter(|_| !counts.is_empty()) {
        counters.insert("pagesets".to_owned(), counts.iter().sum::<i64>() * page_bytes as i64);
    }
    counters
}

/// Bytes of a part of one side; `None` where a counter that it needs is missing.
fn part_bytes(part: &str, of: &BTreeMap<String, i64>) -> Option<i64> {
    let get = |name: &str| of.get(name).copied();
    let all = |names: &[&str]| names.iter().map(|name| get(name)).sum::<Option<i64>>();
    let sum = match part {
        "anonymous" => get("AnonPages"),
        "tmpfs and shared" => get("Shmem"),
        "files" => Some(all(&["Cached", "Buffers", "SwapCached"])? - get("Shmem")?),
        "slab reclaimable" => get("SReclaimable"),
        "slab unreclaimable" => get("SUnreclaim"),
        "page tables" => Some(get("PageTables")? + get("SecPageTables").unwrap_or(0)),
        "kernel stacks" => get("KernelStack"),
        // Kernels up to 5.2 print 0.
        "vmalloc" => get("VmallocUsed").filter(|&bytes| bytes != 0 || get("KernelStack").is_none()),
        "per-CPU" => get("Percpu"),
        "huge pages" => get("Hugetlb"),
        "other counters" => {
            let all: Vec<i64> =
                ["GPUActive", "GPUReclaim", "Balloon", "Zswap", "Bounce"].into_iter().filter_map(get).collect();
            (!all.is_empty()).then(|| all.iter().sum())
        }
        "free on per-CPU lists" => get("pagesets"),
        _ => None,
    };
    sum.map(|bytes| bytes.max(0))
}

const PARTS: [&str; 13] = [
    "anonymous",
    "tmpfs and shared",
    "files",
    "slab reclaimable",
    "slab unreclaimable",
    "page tables",
    "kernel stacks",
    "vmalloc",
    "per-CPU",
    "huge pages",
    "other counters",
    "free on per-CPU lists",
    "other pages",
];

/// True where `KernelStack` is memory beside that of vmalloc.
fn has_stacks(known: &Known, of: &BTreeMap<String, i64>) -> bool {
    let functions = known.symbols.as_ref().map_or(&[][..], |symbols| &symbols.functions);
    let maps = functions.is_empty() || functions.iter().any(|function| function.name == "free_vm_stack_cache");
    !maps || part_bytes("vmalloc", of).is_none()
}

/// Use of a block of pages by its stack. Made formats have no names of flags, so that rules of flags never hold.
fn page_use(known: &Known, alloc: &Event) -> &'static str {
    let frames = alloc.stack.map_or(&[][..], |stack| known.names.stacks.get(stack));
    let functions: Vec<&str> =
        frames.iter().filter_map(|&frame| Some(known.symbols.as_ref()?.function(frame)?.name.as_str())).collect();
    let rules = USES.lines().filter_map(|line| line.split_once(": frame "));
    let is_of = |patterns: &str| {
        patterns.split_whitespace().any(|pattern| functions.iter().any(|function| matches(pattern, function)))
    };
    rules.into_iter().find(|(_, patterns)| is_of(patterns)).map_or("other", |(name, _)| name)
}

/// Part that an allocation belongs to.
fn part_of(known: &Known, pairs: &Pairs, alloc: &Event, kind: Kind) -> Option<&'static str> {
    let of_slab = |is_reclaimable| if is_reclaimable { "slab reclaimable" } else { "slab unreclaimable" };
    let cache = || pairs.cache(known, alloc, kind);
    match kind {
        Kind::Kmalloc => Some(of_slab(cache().name.is_some_and(|name| name.starts_with("kmalloc-rcl-")))),
        Kind::Cache => {
            let flag =
                |name: &str| match known.reclaim_account.lines().find_map(|l| l.strip_prefix(&format!("{name} "))) {
                    Some(flag) => flag == "1",
                    None => is_listed("[caches]", name),
                };
            let cache = cache();
            let names: Vec<String> = cache.name.into_iter().chain(cache.candidates.into_iter().flatten()).collect();
            let flags: BTreeSet<bool> = names.iter().map(|name| flag(name)).collect();
            flags.first().copied().filter(|_| flags.len() == 1).map(of_slab)
        }
        Kind::Pages => {
            let function = known.symbols.as_ref().and_then(|symbols| symbols.function(alloc.call_site));
            match page_use(known, alloc) {
                "user" => Some("anonymous"),
                "cache" if function.is_some_and(|function| function.name.starts_with("shmem_")) => {
                    Some("tmpfs and shared")
                }
                "cache" => Some("files"),
                "page tables" => Some("page tables"),
                "kernel stacks" => Some("kernel stacks"),
                "modules" | "network" | "other" => (alloc.call_site != 0).then_some("other pages"),
                _ => None,
            }
        }
        Kind::Percpu => Some("per-CPU"),
        Kind::Vmalloc => Some("vmalloc"),
        Kind::Tag => None,
    }
}

/// Call-sites behind a part, those with most live bytes first.
fn rows(known: &Known, pairs: &Pairs, part: &str) -> Vec<Value> {
    let is_of = |event: &Event, kind: Kind| part_of(known, pairs, event, kind) == Some(part);
    let live = pairs.objects.iter().filter(|object| matches!(object.end, End::Live));
    let mut sites: BTreeMap<(u64, Kind), (u64, u64)> = BTreeMap::new();
    for object in live.filter(|object| is_of(&object.alloc, object.kind)) {
        let (objects, bytes) = sites.entry((object.alloc.call_site, object.kind)).or_default();
        *objects += 1;
        *bytes += object.live_bytes().1;
    }
    let mut sites: Vec<_> = sites.into_iter().filter(|(_, (_, bytes))| *bytes > 0).collect();
    sites.sort_by_key(|(key, (_, bytes))| (Reverse(*bytes), *key));
    let row = |((site, kind), (objects, bytes)): ((u64, Kind), (u64, u64))| {
        let select = |event: &Event, of: Kind| of == kind && event.call_site == site && is_of(event, of);
        json!({
            "call_site": hex(site), "kind": kind.name(), "live_objects": objects, "live_allocated": bytes,
            "live_is_upper_bound": figures(known, pairs, &select).0["live_is_upper_bound"],
        })
    };
    sites.into_iter().map(row).collect()
}

/// True where the recording has events that tell the live bytes of a part, in a window or not, left out by filters or not.
fn tells(known: &Known, pairs: &Pairs, part: &str) -> bool {
    let has_kind = |of: Kind| {
        known.cpus.iter().flat_map(|(_, items)| items).any(|item| match item {
            // A refused request that is left out tells nothing.
            StreamItem::Event(e) => e.action == Action::Alloc(of) && (!e.failed || pairs.takes(known, e)),
            StreamItem::Gap(_) => false,
        })
    };
    match part {
        "slab reclaimable" | "slab unreclaimable" => has_kind(Kind::Kmalloc) || has_kind(Kind::Cache),
        "per-CPU" => has_kind(Kind::Percpu),
        "vmalloc" => has_kind(Kind::Vmalloc),
        "anonymous" | "files" => has_kind(Kind::Pages),
        "tmpfs and shared" | "page tables" | "kernel stacks" | "other pages" => {
            allocations(pairs).any(|(event, kind)| kind == Kind::Pages && event.call_site != 0)
        }
        _ => false,
    }
}

/// Document of `balance`.
pub fn balance(known: &Known, pairs: &Pairs) -> Value {
    let texts = known.texts.clone().unwrap_or_default();
    let is_whole = known.bounds.is_none() && known.selection == Selection::default();
    let sides = [0, 1].map(|side| match known.bounds {
        None => counters(&texts.meminfo[side], &texts.zoneinfo[side], known.trace.page_bytes),
        Some(_) => BTreeMap::new(),
    });
    let shows_stacks = sides.each_ref().map(|side| has_stacks(known, side));
    let mut parts = Vec::new();
    for part in PARTS.into_iter().filter(|part| *part != "kernel stacks" || shows_stacks.contains(&true)) {
        let rows = rows(known, pairs, part);
        let bytes = |row: &Value| row["live_allocated"].as_u64().unwrap_or(0);
        let explained = tells(known, pairs, part).then(|| rows.iter().map(bytes).sum::<u64>());
        let [before, after] = [0, 1].map(|side: usize| {
            let is_part = part != "kernel stacks" || shows_stacks[side];
            part_bytes(part, &sides[side]).filter(|_| is_part)
        });
        let change = match part {
            "other pages" => explained.filter(|_| is_whole).map(|bytes| bytes as i64),
            _ => after.zip(before).map(|(after, before)| after - before),
        };
        let from = match part {
            "free on per-CPU lists" => "zoneinfo",
            "other pages" => "events",
            _ => "meminfo",
        };
        parts.push(json!({ "part": part, "change": change, "from": from, "explained": explained, "rows": rows }));
    }
    let change = |name: &str| Some(sides[1].get(name)? - sides[0].get(name)?);
    let known_changes: i64 = parts.iter().filter_map(|part| part["change"].as_i64()).sum();
    let is_told = sides.iter().all(|side| ["AnonPages", "Cached", "Slab"].iter().all(|name| side.contains_key(*name)));
    let left = change("MemTotal").zip(change("MemFree")).map(|(total, free)| total - free - known_changes);
    let members = json!({
        "memtotal_change": change("MemTotal"), "memfree_change": change("MemFree"), "parts": parts,
        "unexplained": left.filter(|_| is_told),
    });
    with(head("balance/1", &[], known, pairs), members)
}
