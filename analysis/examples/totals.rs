//! Totals of a trace: `cargo run --example totals -- kmemtrace.data`

use kmemtrace::{Kind, Query, Trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).unwrap_or("kmemtrace.data".into());
    let mut trace = Trace::open(&[path.into()])?;
    let analysis = Query::by_kind().run(&mut trace)?;
    for kind in Kind::ALL {
        let stats = analysis.kind(kind);
        println!("{:8} {} allocations, {} bytes wasted", kind.name(), stats.allocs, stats.wasted);
    }
    println!("the trace is {}", analysis.completeness().verdict_name());
    Ok(())
}
