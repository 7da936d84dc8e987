//! A check for CI: exit status 1 where a module holds more bytes than a limit at the end of a recording, 2 where the recording is not
//! whole and nothing can be said. `cargo run --example ci -- kmemtrace.data ext4 1000000`

use std::process::ExitCode;

use kmemtrace::{Glob, Query, Select, Trace};

/// Bytes that a module holds, if the recording is whole.
fn held(path: &str, module: &str) -> Result<Option<u128>, Box<dyn std::error::Error>> {
    let mut trace = Trace::open(&[path.into()])?;
    let select = Select { module: vec![Glob::new(module)], ..Select::default() };
    let analysis = Query::by_kind().select(select).run(&mut trace)?;
    let is_whole = analysis.completeness().verdict_name() == "complete";
    Ok(is_whole.then(|| analysis.total().live_allocated))
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, module, limit] = &words[..] else {
        return Err("name a recording, a module and a limit in bytes".into());
    };
    let limit: u128 = limit.parse()?;
    Ok(match held(path, module)? {
        None => {
            println!("{path} is not whole: record again with a larger buffer");
            ExitCode::from(2)
        }
        Some(bytes) => {
            println!("{module} holds {bytes} bytes, of {limit} allowed");
            ExitCode::from(u8::from(bytes > limit))
        }
    })
}
