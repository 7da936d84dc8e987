//! The trace directory on disk, and the stream.
//!
//! `trace_dir` makes and locks it, and gives it the name of an earlier recording once the new one has begun.
//! `earlier` finds and locks that recording, and keeps or removes it. `stream` writes blocks to a pipe, `destination` has one of them
//! or both. `made_file` tells whether a file is still the one that was made.
//!
//! Room for more about names and places of files. Contents of files are written by `write`.

pub(crate) mod destination;
mod earlier;
mod made_file;
pub(crate) mod stream;
pub(crate) mod trace_dir;
