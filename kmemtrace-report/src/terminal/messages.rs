//! Messages on standard error.

use std::io::{self, Write};

/// Message of a program without the feature `full`.
#[cfg(not(feature = "full"))]
pub(crate) const SMALL: &str = "this small kmemtrace-report cannot do that; use one built with the feature full";

/// Writes a line after the program's name.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "kmemtrace-report: {text}");
}
