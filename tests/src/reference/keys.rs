//! Keys that allocations are grouped by.

use kmemtrace_abi::event::{Event, Kind};
use serde_json::{Map, Value, json};

use super::Known;
use super::caches::rank;
use super::head::{allocations, hex};
use super::pairs::Pairs;
use super::selection::context;
use super::symbols::Function;

/// Key of a grouping: a word of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Call-site.
    Site,
    /// Thread id and command name.
    Task,
    /// Thread id.
    Pid,
    /// Command name.
    Comm,
    /// Cache.
    Cache,
    /// Module of the call-site.
    Module,
    /// Requested bytes of an object.
    Size,
    /// Raw gfp flags.
    Gfp,
    /// NUMA node asked for.
    Node,
    /// Context of the allocation.
    Context,
    /// Line of source; of a trace with symbols alone the function.
    Source,
    /// Function that asked for the memory, with its module.
    SourceFunction,
    /// Source file, which symbols do not tell.
    File,
    /// Folder of the source file.
    Folder,
    /// Area of the source file.
    Area,
    /// Function of the call-site, else the call-site itself. A key of `compare` alone.
    Function,
}

/// Value of a key. Null sorts first, numbers go by value, names by bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyValue {
    /// None: the event does not tell.
    Null,
    /// Number or address.
    Number(i128),
    /// Name.
    Name(String),
}

impl KeyValue {
    fn number(number: Option<impl Into<i128>>) -> KeyValue {
        number.map_or(KeyValue::Null, |number| KeyValue::Number(number.into()))
    }

    fn name(name: Option<&str>) -> KeyValue {
        name.map_or(KeyValue::Null, |name| KeyValue::Name(name.to_owned()))
    }
}

impl Key {
    /// Keys of groupings in `sites`, `live` and `growth`.
    pub const ALL: [Key; 15] = [
        Key::Site,
        Key::Source,
        Key::SourceFunction,
        Key::File,
        Key::Folder,
        Key::Area,
        Key::Task,
        Key::Pid,
        Key::Comm,
        Key::Cache,
        Key::Module,
        Key::Size,
        Key::Gfp,
        Key::Node,
        Key::Context,
    ];

    /// Word of the key.
    pub fn word(self) -> &'static str {
        match self {
            Key::Site => "site",
            Key::Task => "task",
            Key::Pid => "pid",
            Key::Comm => "comm",
            Key::Cache => "cache",
            Key::Module => "module",
            Key::Size => "size",
            Key::Gfp => "gfp",
            Key::Node => "node",
            Key::Context => "context",
            Key::Function | Key::SourceFunction => "function",
            Key::Source => "source",
            Key::File => "file",
            Key::Folder => "folder",
            Key::Area => "area",
        }
    }

    /// Value of an allocation, in parts.
    fn value(self, known: &Known, pairs: &Pairs, alloc: &Event, kind: Kind) -> Vec<KeyValue> {
        let comm = || KeyValue::name(known.comm(alloc));
        let function = known.symbols.as_ref().and_then(|symbols| symbols.function(alloc.call_site));
        let module = function.and_then(|function| function.module.as_deref());
        match self {
            Key::Site => vec![KeyValue::Number(alloc.call_site.into())],
            Key::Task => vec![KeyValue::number(alloc.pid), comm()],
            Key::Pid => vec![KeyValue::number(alloc.pid)],
            Key::Comm => vec![comm()],
            Key::Cache => {
                let cache = pairs.cache(known, alloc, kind);
                // Rows without a name differ by their candidates.
                let candidates = cache.candidates.map(|names| names.join("\0"));
                vec![KeyValue::name(cache.name.as_deref()), KeyValue::name(candidates.as_deref())]
            }
            // The kernel goes before what is not known.
            Key::Module => vec![KeyValue::name(module), KeyValue::number(Some(i32::from(function.is_none())))],
            Key::Size => vec![KeyValue::Number(alloc.requested.into())],
            Key::Gfp => vec![KeyValue::number(alloc.gfp)],
            Key::Node => vec![KeyValue::number(alloc.node)],
            Key::Context => vec![KeyValue::name(context(alloc))],
            Key::Source => {
                let name = KeyValue::name(function.map(|function| &*function.name));
                vec![KeyValue::Null, KeyValue::Null, name]
            }
            Key::SourceFunction => {
                vec![KeyValue::name(function.map(|function| &*function.name)), KeyValue::name(module)]
            }
            Key::File | Key::Folder | Key::Area => vec![KeyValue::Null],
            Key::Function => match function {
                Some(function) => vec![KeyValue::name(Some(&function.name)), KeyValue::name(module), KeyValue::Null],
                None => vec![KeyValue::Null, KeyValue::Null, KeyValue::Number(alloc.call_site.into())],
            },
        }
    }

    /// Members that name the row of an allocation. Names of functions are left out if the reference does not know them.
    fn names(self, known: &Known, pairs: &Pairs, alloc: &Event, kind: Kind) -> Vec<(&'static str, Value)> {
        let symbols = known.symbols.as_ref();
        let module = || symbols.map(|symbols| ("module", json!(symbols.module(alloc.call_site))));
        let function = symbols.and_then(|symbols| symbols.function(alloc.call_site));
        let site = ("call_site", json!(hex(alloc.call_site)));
        match self {
            Key::Site => {
                let symbol = symbols.map(|symbols| ("symbol", json!(symbols.symbol(alloc.call_site))));
                [Some(site), symbol, module()].into_iter().flatten().collect()
            }
            Key::Task => vec![("pid", json!(alloc.pid)), ("comm", json!(known.comm(alloc)))],
            Key::Pid => vec![("pid", json!(alloc.pid))],
            Key::Comm => vec![("comm", json!(known.comm(alloc)))],
            Key::Cache => {
                let cache = pairs.cache(known, alloc, kind);
                let candidates = ("cache_candidates", json!(cache.candidates));
                vec![("cache", json!(cache.name)), ("cache_from", json!(cache.from)), candidates]
            }
            Key::Module => {
                let is_known = symbols.map(|_| ("module_known", json!(function.is_some())));
                module().into_iter().chain(is_known).collect()
            }
            Key::Size => vec![("size", json!(alloc.requested))],
            Key::Gfp => vec![("gfp", json!(alloc.gfp))],
            Key::Node => vec![("node", json!(alloc.node))],
            Key::Context => vec![("context", json!(context(alloc)))],
            Key::Source => {
                let source = |function: &Function| json!({ "function": function.name, "file": null, "line": null });
                vec![("source", json!(function.map(source)))]
            }
            Key::SourceFunction => {
                let name = ("function", json!(function.map(|function| &function.name)));
                [Some(name), module()].into_iter().flatten().collect()
            }
            Key::File => vec![("file", Value::Null)],
            Key::Folder => vec![("folder", Value::Null)],
            Key::Area => vec![("area", Value::Null)],
            Key::Function => {
                let name = ("function", json!(function.map(|function| &function.name)));
                let module = ("module", json!(function.and_then(|function| function.module.as_ref())));
                if function.is_some() { vec![name, module] } else { vec![name, module, site] }
            }
        }
    }
}

/// Values of an allocation in the order of the keys: rows of one grouping differ in them.
pub fn values(keys: &[Key], known: &Known, pairs: &Pairs, alloc: &Event, kind: Kind) -> Vec<KeyValue> {
    keys.iter().flat_map(|key| key.value(known, pairs, alloc, kind)).collect()
}

/// Members that name the row of an allocation, its kind last. A name that is in two keys stands once.
pub fn names(keys: &[Key], known: &Known, pairs: &Pairs, alloc: &Event, kind: Kind) -> Value {
    let names = keys.iter().flat_map(|key| key.names(known, pairs, alloc, kind)).chain([("kind", json!(kind.name()))]);
    // A call-site has its module.
    let names = names.filter(|(name, _)| *name != "module_known" || !keys.contains(&Key::Site));
    names.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

/// Members that name a row, of which `example` is an allocation; the origin of a cache's name is the best one of all its allocations.
pub fn row_names(keys: &[Key], known: &Known, pairs: &Pairs, example: &Event, kind: Kind) -> Value {
    let mut names = names(keys, known, pairs, example, kind);
    if names.get("cache_from").is_some_and(|from| !from.is_null()) {
        let of_row = values(keys, known, pairs, example, kind);
        let is_own = |event: &Event, of: Kind| of == kind && values(keys, known, pairs, event, of) == of_row;
        let own = allocations(pairs).filter(|(event, of)| is_own(event, *of));
        let from = own.filter_map(|(event, of)| pairs.cache(known, event, of).from);
        names["cache_from"] = json!(from.min_by_key(|from| rank(from)));
    }
    names
}

/// Words of keys: the member `by` of `query`.
pub fn words(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| key.word()).collect()
}
