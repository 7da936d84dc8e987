//! Parts of a page's data: rows as arrays, without the names of their members, and no more of them than a person looks at.

use kmemtrace::documents::growth::SliceFigures;
use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::ranked::SpaceSums;
use kmemtrace::documents::row::{Cell, Row};
use kmemtrace::documents::{Body, Document};
use kmemtrace_abi::text::escape::escape;
use serde::Serialize;
use serde_json::{Value, json};

/// CPUs of the matrix at most.
const MAX_CPUS: usize = 64;
/// Members that a page does not show.
const LEFT_OUT: &[&str] = &[
    "frames",
    "alloc_frames",
    "free_frames",
    "folder",
    "alloc_folder",
    "free_folder",
    "folder_from",
    "alloc_folder_from",
    "free_folder_from",
    "failed_allocs",
    "requested",
    "inferred_frees",
    "live_requested",
    "largest",
    "deferred_frees",
    "bulk_frees",
    "slab_before",
    "slab_after",
];

/// Rows of a document.
#[derive(Serialize)]
pub(super) struct PageTable {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
    /// Sums of the rows left out: of `kmalloc` and `cache`, then of `pages`.
    others: Vec<Vec<Value>>,
    others_count: usize,
}

impl PageTable {
    /// Rows of a body; `None` for a body without rows of one form.
    pub(super) fn of(body: &Body<'_>) -> Option<PageTable> {
        Some(match body {
            Body::Sites(listing) => PageTable::new(listing),
            Body::Groups(listing) => PageTable::new(listing),
            Body::Caches(view) => PageTable::new(&view.listing),
            Body::Mismatch(listing) => PageTable::new(listing),
            _ => return None,
        })
    }

    fn new<R: Row, O: Row>(listing: &Listing<'_, R, O>) -> PageTable {
        let columns: Vec<&str> = listing.columns.iter().copied().filter(|column| !LEFT_OUT.contains(column)).collect();
        let sum = |others: &O| -> Vec<Value> {
            let members = members_of(others);
            let of = |column: &&str| members.iter().find(|(name, _)| name == column).map(|(_, value)| value.clone());
            columns.iter().map(|column| of(column).unwrap_or(Value::Null)).collect()
        };
        let others = listing.others.as_ref();
        PageTable {
            rows: listing.rows.iter().map(|row| values_of(&row)).collect(),
            others: others.map_or(Vec::new(), |all| all.sums.iter().map(|(_, others)| sum(others)).collect()),
            others_count: others.map_or(0, |all| all.others_count),
            columns,
        }
    }
}

/// Live bytes over time. Times are counted from the first event, so that a browser has them exactly.
#[derive(Serialize)]
pub(super) struct Growth {
    slices: Vec<u64>,
    #[serde(flatten)]
    totals: SpaceSums<Slices>,
    rows: Vec<Grown>,
}

/// Figures of each slice.
#[derive(Serialize)]
struct Slices {
    live_allocated: Vec<u64>,
    allocs: Vec<u64>,
}

/// Row of `growth`.
#[derive(Serialize)]
struct Grown {
    names: serde_json::Map<String, Value>,
    kind: &'static str,
    live_allocated: Vec<u64>,
}

impl Slices {
    fn of(figures: &SliceFigures) -> Slices {
        Slices { live_allocated: figures.live().to_vec(), allocs: figures.allocs.clone().unwrap_or_default() }
    }
}

impl Growth {
    /// Body of `growth`; its trace begins at `first`.
    pub(super) fn of(body: &Body<'_>, first: u64) -> Option<Growth> {
        let Body::Growth(growth) = body else { return None };
        let rows = growth.listing.rows.iter().map(|row| Grown {
            names: members_of(&row.names).into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            kind: row.kind.map_or("-", kmemtrace::Kind::name),
            live_allocated: row.slices.live().to_vec(),
        });
        Some(Growth {
            slices: growth.slices.iter().map(|end| end.saturating_sub(first)).collect(),
            totals: growth.totals.map(Slices::of),
            rows: rows.collect(),
        })
    }
}

/// Rows of live objects that are born evenly.
#[derive(Serialize)]
pub(super) struct Leaks {
    seconds: Option<f64>,
    /// Reasons for rows without a verdict.
    unjudged: Value,
    #[serde(flatten)]
    table: PageTable,
}

impl Leaks {
    /// Body of `leaks`.
    pub(super) fn of(body: &Body<'_>) -> Option<Leaks> {
        let Body::Leaks(leaks) = body else { return None };
        let unjudged = serde_json::to_value(&leaks.unjudged).ok()?;
        Some(Leaks { seconds: leaks.seconds, unjudged, table: PageTable::new(&leaks.listing) })
    }
}

/// Time that tasks waited for memory.
#[derive(Serialize)]
pub(super) struct Waiting {
    /// Kinds of spans.
    spans: Value,
    /// Tasks that waited.
    tasks: Value,
    /// Stalls, the longest first.
    stalls: Value,
    /// Number of those left out.
    others_count: u64,
}

impl Waiting {
    /// `latency` and `stalls`.
    pub(super) fn of(spans: &Document<'_>, stalls: &Document<'_>) -> serde_json::Result<Waiting> {
        let [mut spans, mut stalls] = [serde_json::to_value(spans)?, serde_json::to_value(stalls)?];
        let member = |document: &mut Value, name: &str| {
            let mut value = document.get_mut(name).map(Value::take).unwrap_or_default();
            make_harmless(&mut value);
            value
        };
        let (kinds, tasks) = (member(&mut spans, "spans"), member(&mut spans, "tasks"));
        let others_count = stalls.get("others_count").and_then(Value::as_u64).unwrap_or(0);
        let (mut rows, stacks) = (member(&mut stalls, "rows"), member(&mut stalls, "stacks"));
        rows.as_array_mut().into_iter().flatten().for_each(|stall| name_frames(stall, &stacks));
        Ok(Waiting { spans: kinds, tasks, stalls: rows, others_count })
    }
}

/// Puts names in place of a stall's stack, and leaves out addresses where a name stands beside: they tell where the kernel was loaded.
fn name_frames(stall: &mut Value, stacks: &Value) {
    let names = |frame: &Value| {
        let text = |member: &str| frame.get(member).and_then(Value::as_str);
        let module = text("module").map_or(String::new(), |module| format!(" [{module}]"));
        text("symbol").or(text("call_site")).or(text("address")).map(|name| format!("{name}{module}"))
    };
    let Some(members) = stall.as_object_mut() else { return };
    let number = members.get("stack").and_then(|stack| stack.get("number").unwrap_or(stack).as_u64());
    let frames = number.and_then(|number| stacks.get(number.to_string())).and_then(Value::as_array);
    let frames: Option<Vec<String>> = frames.map(|frames| frames.iter().filter_map(names).collect());
    members.insert("stack".to_owned(), json!(frames));
    if members.get("symbol").is_some_and(Value::is_string) {
        members.insert("call_site".to_owned(), Value::Null);
    }
    for inside in members.get_mut("inside").and_then(Value::as_array_mut).into_iter().flatten() {
        inside.as_object_mut().into_iter().for_each(|row| row.retain(|name, _| name != "function"));
    }
}

/// Frees by CPU: the matrix of the busiest ones, and rows of call-sites.
#[derive(Serialize)]
pub(super) struct Cross {
    cpus: Vec<u32>,
    /// CPUs with pairs that are not in the matrix.
    left_out: usize,
    /// Pairs by allocating and freeing CPU; `None` if the clock orders no events.
    matrix: Option<Vec<Vec<u64>>>,
    rows: PageTable,
}

impl Cross {
    /// Body of `cross`.
    pub(super) fn of(body: &Body<'_>) -> Option<Cross> {
        let Body::Cross(cross) = body else { return None };
        let (cpus, left_out) = cross.matrix.as_ref().map_or((Vec::new(), 0), |matrix| matrix.busiest(MAX_CPUS));
        let matrix = cross.matrix.as_ref().map(|matrix| cpus.iter().map(|&from| matrix.row(from, &cpus)).collect());
        Some(Cross { left_out, matrix, rows: PageTable::new(&cross.listing), cpus })
    }
}

fn values_of(row: &dyn Row) -> Vec<Value> {
    members_of(row).into_iter().map(|(_, value)| value).collect()
}

/// Members of a row. Addresses of call-sites with a symbol are left out, as in tables: they tell where the kernel was loaded.
fn members_of(row: &dyn Row) -> Vec<(&'static str, Value)> {
    const SITES: [(&str, &str); 3] =
        [("call_site", "symbol"), ("alloc_site", "alloc_symbol"), ("free_site", "free_symbol")];
    let mut members = Vec::new();
    row.members(&mut |name, cell| {
        if !LEFT_OUT.contains(&name) {
            members.push((name, value_of(&cell)));
        }
    });
    for (site, symbol) in SITES {
        if members.iter().any(|(name, value)| *name == symbol && !value.is_null())
            && let Some((_, value)) = members.iter_mut().find(|(name, _)| *name == site)
        {
            *value = Value::Null;
        }
    }
    members
}

/// Value of a cell: a name as tables show it, a source as `fs/inode.c:263`, an event without the address of its object, and 1 for
/// yes, because there are many.
fn value_of(cell: &Cell<'_>) -> Value {
    match cell {
        Cell::Bool(yes) => u8::from(*yes).into(),
        Cell::Event(place) => json!({ "at": place.at, "cpu": place.cpu }),
        Cell::Name(name) => escape(name).into_owned().into(),
        Cell::Source(source) => match (&source.file, source.line) {
            (Some(file), Some(line)) => format!("{}:{line}", escape(file)).into(),
            (Some(file), None) => escape(file).into_owned().into(),
            (None, _) => Value::Null,
        },
        cell => {
            let mut value = serde_json::to_value(cell).unwrap_or(Value::Null);
            make_harmless(&mut value);
            value
        }
    }
}

/// Replaces texts by what tables show of them: no character that acts on others, or cannot be seen.
pub(super) fn make_harmless(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(shown) = escape(text.as_bytes()) {
                *text = shown;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_harmless),
        Value::Object(members) => members.values_mut().for_each(make_harmless),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Leaves out names of the boot and of the recording, and without `with_host` those of the machine: a page is mailed.
pub(super) fn leave_out_names(trace: &mut Value, with_host: bool) {
    if let Some(trace) = trace.as_object_mut() {
        trace.retain(|member, _| !["boot", "recording"].contains(&member.as_str()));
        trace.retain(|member, _| with_host || !["host", "command"].contains(&member.as_str()));
    }
}

/// Replaces paths of files that names come from by the files' names: a page is mailed, and a path tells of the machine.
pub(super) fn shorten_files(names: &mut Value) {
    let shorten = |named: &mut Value| {
        if let Some(Value::String(file)) = named.get_mut("file")
            && let Some((_, name)) = file.rsplit_once('/')
        {
            *file = name.to_owned();
        }
    };
    names.get_mut("kernel").into_iter().for_each(shorten);
    names.get_mut("rejected").and_then(Value::as_array_mut).into_iter().flatten().for_each(shorten);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_files_without_their_folders() {
        let mut names = json!({
            "kernel": { "from": "dwarf", "file": "/home/me/vmlinux", "checked": null },
            "rejected": [{ "file": "/usr/lib/debug/vmlinux-6.1", "why": "another build" }],
        });
        shorten_files(&mut names);
        assert_eq!(names["kernel"]["file"], "vmlinux");
        assert_eq!(names["rejected"], json!([{ "file": "vmlinux-6.1", "why": "another build" }]));
        let mut none = Value::Null;
        shorten_files(&mut none);
        assert_eq!(none, Value::Null);
    }
}
