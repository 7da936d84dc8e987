//! Names of rows as text. Names come from the trace: bytes of strangers, escaped here.

use kmemtrace::Space;
use kmemtrace::live::{LiveKey, LiveName, LiveRow, LiveSymbol};
use kmemtrace_abi::text::escape::escape;

use crate::render::table::cells::either;

/// Call-site of objects whose events have none.
const NO_SITE: &str = "(no call-site)";

/// Name of a row.
pub(super) fn name(name: &LiveName) -> String {
    match name {
        LiveName::Site(0, _) => NO_SITE.to_owned(),
        LiveName::Site(address, None) => format!("{address:#x}"),
        LiveName::Site(_, Some(symbol)) => symbol_text(symbol),
        LiveName::Stack(frames) if frames.is_empty() => "(no stack)".to_owned(),
        LiveName::Stack(frames) => stack(frames),
        LiveName::Use(None) => "(slab objects)".to_owned(),
        LiveName::Use(Some(name)) => escape(name).into_owned(),
        LiveName::Module(None) => "(kernel)".to_owned(),
        LiveName::Module(Some(module)) => escape(module).into_owned(),
        LiveName::Task(None, _) => "(no thread)".to_owned(),
        LiveName::Task(Some(0), None) => "(idle)".to_owned(),
        LiveName::Task(Some(pid), None) => format!("({pid})"),
        LiveName::Task(Some(pid), Some(comm)) => format!("{} ({pid})", escape(comm)),
        LiveName::Cgroup(None) => "(unknown)".to_owned(),
        LiveName::Cgroup(Some(path)) => escape(path).into_owned(),
        LiveName::Cache(None) => "(cache not known)".to_owned(),
        // Several names with zeros between them: the cache may be any of these.
        LiveName::Cache(Some(cache)) if cache.contains(&0) => {
            let names: Vec<Box<[u8]>> = cache.split(|byte| *byte == 0).map(Into::into).collect();
            format!("({})", either(&names))
        }
        LiveName::Cache(Some(cache)) => escape(cache).into_owned(),
    }
}

/// Frames of a stack, the call-site first.
fn stack(frames: &[(u64, Option<LiveSymbol>)]) -> String {
    let frame = |(address, symbol): &(u64, Option<LiveSymbol>)| match symbol {
        Some(symbol) => symbol_text(symbol),
        None => format!("{address:#x}"),
    };
    frames.iter().map(frame).collect::<Vec<_>>().join(" < ")
}

/// Function, offset and module of an address.
fn symbol_text(symbol: &LiveSymbol) -> String {
    let module = symbol.module.as_deref().map_or(String::new(), |module| format!(" [{}]", escape(module)));
    format!("{}{module}", escape(&symbol.text()))
}

/// Origin of a row's objects: their cache, or the kind of memory.
pub(super) fn origin(row: &LiveRow) -> String {
    match (row.kind.space(), &row.cache) {
        (Space::Pages, _) if matches!(row.key, LiveKey::Use(_)) => String::new(),
        (Space::Slab, Some(cache)) => name(cache),
        (space, _) if space != Space::Slab => row.kind.name().to_owned(),
        _ if matches!(row.key, LiveKey::Site(_) | LiveKey::Use(_)) => String::new(),
        _ if matches!(row.key, LiveKey::Cache(_)) => row.kind.name().to_owned(),
        _ => "slab".to_owned(),
    }
}
