//! Growth of the live bytes of each call-site from one recording to another: `cargo run --example live_diff -- BEFORE AFTER`

use std::collections::BTreeMap;
use std::path::PathBuf;

use kmemtrace::{Query, Trace};

/// Live bytes, keyed by the call-site's symbol, else by its address.
fn live_bytes(path: PathBuf) -> Result<BTreeMap<String, i128>, Box<dyn std::error::Error>> {
    let mut trace = Trace::open(&[path])?;
    let analysis = Query::by_site().with_live_objects(true).run(&mut trace)?;
    let mut bytes = BTreeMap::new();
    for object in analysis.live_objects() {
        let Some(site) = object.call_site else { continue };
        let symbol = analysis.symbolizer().lookup(site).map(|symbol| symbol.text());
        let name = symbol.map_or(format!("{site:#x}"), |text| text.escape_ascii().to_string());
        *bytes.entry(name).or_insert(0) += i128::from(object.allocated);
    }
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(before), Some(after)) = (paths.next(), paths.next()) else { return Err("name two recordings".into()) };
    let (before, after) = (live_bytes(before)?, live_bytes(after)?);
    for name in before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>() {
        let grown = after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
        if grown != 0 {
            println!("{grown:+} {name}");
        }
    }
    Ok(())
}
