//! `balance`: where free memory went, by parts that no byte is in twice.

pub mod counters;
pub mod parts;
