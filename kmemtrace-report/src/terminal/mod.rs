//! Destinations of text: standard output or a file, and the progress line on a terminal.

pub(crate) mod output;
pub(crate) mod progress;
