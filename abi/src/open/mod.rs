//! Finding out what a path holds, and opening it: a `recording` of ours, raw `relay_files`, a captured `tree`, texts of one `moment`, or
//! with the feature `inputs` a text of events (`ftrace_text`), a `trace_dat` or a `perf_data`. Packed files and standard input are unpacked into a `spool`.

#[cfg(feature = "inputs")]
mod archive;
pub mod encoder;
#[cfg(feature = "inputs")]
mod event_formats;
#[cfg(feature = "inputs")]
mod first_pass;
mod foreign;
#[cfg(feature = "inputs")]
mod ftrace_text;
pub(crate) mod header;
#[cfg(feature = "inputs")]
mod inputs;
mod kept_items;
mod lines;
mod listing;
mod moment;
mod options;
#[cfg(feature = "inputs")]
mod perf_data;
mod recording;
pub mod regular;
mod relay_files;
#[cfg(feature = "inputs")]
mod spool;
pub mod stream;
mod symbols;
#[cfg(feature = "inputs")]
mod tar;
#[cfg(feature = "inputs")]
pub mod trace_dat;
#[cfg(feature = "inputs")]
mod tracer_stream;
mod tree;
#[cfg(feature = "inputs")]
mod utf16;
#[cfg(feature = "inputs")]
mod xz;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::listing::{Listing, io_error, is_dir, no_trace};
pub use self::options::{OpenOptions, Wanted};
pub use self::recording::is_being_recorded;
use crate::trace::{MAX_STREAMS, OpenError, Origin, Trace};

/// Options and files that a trace was opened with.
#[derive(Debug)]
struct Opened {
    options: OpenOptions,
    #[cfg(feature = "inputs")]
    held: Option<inputs::Held>,
}

impl Trace {
    /// Opens a trace directory, a captured tree, a directory of raw relay files, files out of one, or texts of events.
    pub fn open(paths: &[PathBuf]) -> Result<Trace, OpenError> {
        Trace::open_with(paths, OpenOptions::default())
    }

    /// Opens as [`Trace::open`] does, with options.
    pub fn open_with(paths: &[PathBuf], options: OpenOptions) -> Result<Trace, OpenError> {
        for path in paths {
            regular::refuse_strangers_links(path).map_err(io_error(path))?;
        }
        #[cfg(feature = "inputs")]
        let held = inputs::Held::of(paths, &options)?;
        let opened = Opened {
            options,
            #[cfg(feature = "inputs")]
            held,
        };
        Arc::new(opened).open(paths)
    }
}

impl Origin for Opened {
    fn open(self: Arc<Self>, paths: &[PathBuf]) -> Result<Trace, OpenError> {
        #[cfg(feature = "inputs")]
        let held = self.held.as_ref().map(|held| held.open(&self.options));
        #[cfg(not(feature = "inputs"))]
        let held = None;
        let opened = held.unwrap_or_else(|| open(paths, &self.options))?;
        let mut trace = Trace { inputs: paths.to_vec(), origin: Some(self), ..opened };
        trace.find_symbols();
        Ok(trace)
    }
}

fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Trace, OpenError> {
    if let [path] = paths
        && let Some(trace) = moment::open_path(path, options)
    {
        return trace;
    }
    let listing = match paths {
        [path] if tree::is_tree(path) => return tree::open(path, options.texts),
        [dir] if is_dir(dir)? => Listing::of_dir(dir)?,
        files => Listing::of_files(files)?,
    };
    let is_ours = listing.is_ours();
    let mut trace = if is_ours { recording::open(listing, options.texts) } else { relay_files::open(listing) }?;
    let keys = trace.info.keys();
    trace.streams.iter_mut().for_each(|stream| stream.set_keys(keys));
    if trace.streams.len() > MAX_STREAMS {
        let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
        return Err(no_trace(path, &format!("has files of more than {MAX_STREAMS} CPUs: name some of them")));
    }
    let mut pairs = trace.streams.iter().zip(trace.streams.iter().skip(1));
    match pairs.find(|(one, next)| one.cpu() == next.cpu()) {
        Some((one, next)) => {
            Err(OpenError::Twice { a: one.path().to_owned(), b: next.path().to_owned(), cpu: one.cpu() })
        }
        None => Ok(trace),
    }
}
