//! Files of the recorder that its command line needs, by the names that it has for them.

#[path = "../../kmemtraced/src/write/compress.rs"]
pub(crate) mod compress;
