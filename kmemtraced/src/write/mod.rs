//! Threads and blocks between a kernel buffer and a trace file.
//!
//! `workers` starts and stops a reader and a writer thread per CPU. `reader` moves bytes out of the kernel into a `block_buffer`
//! from the `block_pool`,
//! `writer` counts them (`tally`), accounts for `loss` and appends to a `block_file`, in less room by `records` and `compress` where
//! `load` leaves the time. `header` is the
//! first block of each file, `meta` the file that names things, from `host_texts` (with `line_hashes`, `module_info`, `new_modules` and
//! `slab_aliases`, `reclaim_account`, `red_zones`, `cgroups`), `memory_texts` and `comms`; `names` is the thread that adds to it meanwhile.
//! `overruns` tells why the kernel's buffer overran. `own_threads` counts the recorder's own events, `outcome` has the figures of a file.
//!
//! Room for more kinds of blocks and other ways to store them. No field of a record is changed here; bytes that no field covers
//! become zeros where records are encoded.
//!
//! Threads of the recorder:
//!
//! | thread | work |
//! |---|---|
//! | main | takes signals; ends the process if a thread hangs after a second stop signal |
//! | `record` | set-up, start, waiting, shutdown; compares the control files, reads the load of the CPUs |
//! | `read`*N* | pinned to CPU *N*: moves bytes from the kernel into blocks, samples the counters |
//! | `write`*N* | counts and encodes events, compresses, accounts for loss, writes `cpuN.out` |
//! | `names` | adds names of threads and symbols of new modules to `meta.out`, so that a slow disk holds up no other thread |
//! | `stream` | writes blocks to the pipe of the program that shows the recording, so that a slow one holds up no other thread |
//! | `messages` | writes to standard error, so that a full pipe holds up no other thread |
//! | `remove` | removes an earlier recording once the new one has begun |
//!
//! Each closes a sandbox of its own (`process/confine`). COMMAND is started by another process (`record/launcher`).
//!
//! Filled blocks go from reader to writer, empty ones come back.

mod block_buffer;
pub(crate) mod block_file;
mod block_pool;
mod cgroups;
pub(crate) mod comms;
pub(crate) mod compress;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod header;
pub(crate) mod host_texts;
mod line_hashes;
pub(crate) mod load;
mod loss;
pub(crate) mod memory_texts;
pub(crate) mod meta;
mod module_info;
pub(crate) mod names;
mod new_modules;
pub(crate) mod outcome;
pub(crate) mod overruns;
pub(crate) mod own_threads;
pub(crate) mod reader;
mod reclaim_account;
pub(crate) mod records;
mod red_zones;
mod slab_aliases;
mod tally;
pub(crate) mod workers;
pub(crate) mod writer;
