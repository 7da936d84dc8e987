//! Streams of a trace through the public face of the crate: files of a few records made by hand, and every item, finding and total
//! that a reader gets of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod losses;
mod made;
mod parts;
mod recordings;
mod relay;
mod trees;
