//! Messages on standard error.

use std::io::{self, Write};

/// Writes a line after the program's name.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "kmemtrace-report: {text}");
}
