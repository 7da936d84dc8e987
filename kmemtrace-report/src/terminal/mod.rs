//! Destinations of text: standard output or a file with its width and colours, and the progress line on a terminal.

pub(crate) mod messages;
pub(crate) mod output;
pub(crate) mod paged;
pub(crate) mod progress;
pub(crate) mod screen;
pub(crate) mod zone;
