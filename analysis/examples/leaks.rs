//! The leaks of a recording: `cargo run --example leaks -- kmemtrace.data`

use kmemtrace::documents::group::KeyValue;
use kmemtrace::documents::leaks::{LeakOptions, LeakRow};
use kmemtrace::documents::{self, Body};
use kmemtrace::{Query, Shape, Trace};

/// Function of a row's call-site, with the offset in it.
fn call_site(row: &LeakRow<'_>) -> String {
    let mut sites = row.names.0.iter().filter_map(|member| match &member.value {
        KeyValue::Site(site) => Some(site),
        _ => None,
    });
    // Names are bytes that a stranger may have chosen.
    let named = sites.next().and_then(|site| site.symbol.as_ref()).map(|symbol| symbol.escape_ascii().to_string());
    named.unwrap_or("a call-site without a name".to_owned())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).unwrap_or("kmemtrace.data".into());
    let mut trace = Trace::open(&[path.into()])?;
    let analysis = Query::leaks(&[]).run(&mut trace)?;
    let document = documents::leaks(&analysis, &Shape::default(), LeakOptions::default());
    let Body::Leaks(view) = &document.body else { return Err("no view of leaks".into()) };
    for group in view.groups.iter().filter(|group| group.verdict == Some("leak")) {
        let bytes = group.sums.live_allocated.unwrap_or_default();
        println!("{} objects, {bytes} bytes: {}", group.sums.live_objects, call_site(&group.most));
    }
    println!("{} leaks; the trace is {}", view.leaks(), analysis.completeness().verdict_name());
    Ok(())
}
