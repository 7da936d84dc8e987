//! The trace directory on disk.
//!
//! `trace_dir` makes and locks it, and gives it the name of an earlier recording once the new one has begun.
//! `earlier` finds and locks that recording, and keeps or removes it.
//!
//! Room for more about names and places of files. Contents of files are written by `write`.

mod earlier;
pub(crate) mod trace_dir;
