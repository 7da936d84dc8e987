//! File systems, reached through a directory descriptor and names below it.
//!
//! `kernelfs` holds proc, sysfs, tracefs and debugfs, mounted privately where they are not mounted. `mounts` lists what is mounted. `held_dir` holds a
//! directory in which another user may rename files, and follows no link. `rights` says what this process may not do there. `state` keeps the files in /run/kmemtraced that
//! survive a killed recorder.
//!
//! Room for more ways to reach files safely. Names and contents of particular files belong to the caller.

pub(crate) mod held_dir;
pub(crate) mod kernelfs;
pub(crate) mod mounts;
pub(crate) mod rights;
pub(crate) mod state;
