//! The trace directory on disk.
//!
//! `directory` makes and locks it, and gives it the name of an earlier recording once the new one has begun.
//!
//! Room for more about names and places of files. Contents of files are written by `write`.

pub(crate) mod directory;
