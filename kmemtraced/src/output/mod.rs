//! The trace directory on disk, and the stream.
//!
//! `trace_dir` makes and locks it, and gives it the name of an earlier recording once the new one has begun.
//! `earlier` finds and locks that recording, and keeps or removes it. `stream` writes blocks to a pipe, `destination` has one of them
//! or both.
//!
//! Room for more about names and places of files. Contents of files are written by `write`.

pub(crate) mod destination;
mod earlier;
pub(crate) mod stream;
pub(crate) mod trace_dir;
