//! The engine: runs order, pairing and accounting over a trace, on one thread or several.

pub(crate) mod config;
mod fates;
mod figures;
pub(crate) mod follow;
pub(crate) mod init_sites;
mod latency;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod observe;
pub(crate) mod pass;
pub(crate) mod peaks;
pub(crate) mod pipeline;
pub(crate) mod run;
pub(crate) mod scheduler;
pub(crate) mod sequential;
