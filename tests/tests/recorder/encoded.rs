//! Encoded records of a live kernel, as recordings have them by default.

use std::fs;

use kmemtrace_tests::programs::program;
use kmemtrace_tests::recorder::{Recorded, can_record};
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::unused::{Sums, sums};

kmemtrace_tests::tests!(bytes_that_no_field_covers_are_zeros_in_a_used_buffer);

/// Sums over a recording of a load that fills the buffer several times.
fn recorded(options: &[&str]) -> Sums {
    let load = program("kmemload").to_string_lossy().into_owned();
    let recorded = Recorded::new(&[&["-b", "1M"], options].concat(), &[&load, "rounds", "1500"]);
    let mut all = Sums::default();
    for entry in fs::read_dir(recorded.trace()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cpu")) {
            let Sums { sub_buffers, unused, stale } = sums(&fs::read(path).unwrap());
            all.sub_buffers += sub_buffers;
            all.unused += unused;
            all.stale += stale;
        }
    }
    all
}

fn bytes_that_no_field_covers_are_zeros_in_a_used_buffer() -> Result<(), Skip> {
    can_record()?;
    let plain = recorded(&["--compress", "none"]);
    assert!(plain.stale > 100_000, "the buffer is not used: {plain:?}");
    let encoded = recorded(&[]);
    assert!(encoded.sub_buffers > 20 && encoded.unused > 100_000 && encoded.stale == 0, "{encoded:?}");
    Ok(())
}
