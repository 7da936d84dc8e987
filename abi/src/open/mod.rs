//! Finding out what a path holds, and opening it: a `recording` of ours, raw `relay_files`, a captured `tree`, a text of `page_owner`, or
//! with the feature `inputs` a text of events (`ftrace_text`), a `trace_dat` or a `perf_data`. Packed files and standard input are unpacked into a `spool`.

mod foreign;
#[cfg(feature = "inputs")]
mod ftrace_text;
pub(crate) mod header;
#[cfg(feature = "inputs")]
mod inputs;
mod listing;
mod options;
mod page_owner;
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
mod trace_dat;
mod tree;

use std::path::{Path, PathBuf};

use self::listing::{Listing, is_dir, no_trace};
pub use self::options::OpenOptions;
use crate::trace::{MAX_STREAMS, OpenError, Trace};

/// Whatever it takes to open a trace again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
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
        #[cfg(feature = "inputs")]
        let held = inputs::Held::of(paths, &options)?;
        let origin = Origin {
            options,
            #[cfg(feature = "inputs")]
            held,
        };
        Trace::of_origin(paths, origin)
    }

    /// Opens the trace once more, with the options that it was opened with.
    ///
    /// # Errors
    /// A trace that is read once ([`Trace::is_readable_again`]), and what [`Trace::open`] fails with.
    pub fn reopen(&self) -> Result<Trace, OpenError> {
        match &self.origin {
            Some(origin) => Trace::of_origin(&self.inputs, origin.clone()),
            None => {
                let path = self.inputs.first().map_or(Path::new(""), PathBuf::as_path);
                Err(no_trace(path, "can be read once only: write it to a file, and name that file"))
            }
        }
    }

    fn of_origin(paths: &[PathBuf], origin: Origin) -> Result<Trace, OpenError> {
        #[cfg(feature = "inputs")]
        let opened = match &origin.held {
            Some(held) => held.open(&origin.options),
            None => open(paths, &origin.options),
        };
        #[cfg(not(feature = "inputs"))]
        let opened = open(paths, &origin.options);
        let mut trace = Trace { inputs: paths.to_vec(), origin: Some(origin), ..opened? };
        trace.find_symbols();
        Ok(trace)
    }
}

fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Trace, OpenError> {
    if let [path] = paths
        && let Some(trace) = page_owner::open(path, options)
    {
        return trace;
    }
    let listing = match paths {
        [path] if tree::is_tree(path) => return tree::open(path),
        [dir] if is_dir(dir)? => Listing::of_dir(dir)?,
        files => Listing::of_files(files)?,
    };
    let mut trace = if listing.is_ours() { recording::open(listing) } else { relay_files::open(listing) }?;
    let keys = trace.info.keys();
    trace.streams.iter_mut().for_each(|stream| stream.set_keys(keys));
    if trace.streams.len() > MAX_STREAMS {
        let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
        return Err(no_trace(path, &format!("has files of more than {MAX_STREAMS} CPUs: name some of them")));
    }
    match trace.streams.windows(2).find(|pair| pair[0].cpu() == pair[1].cpu()) {
        Some(pair) => {
            let [a, b] = [0, 1].map(|n| pair[n].path().to_owned());
            Err(OpenError::Twice { a, b, cpu: pair[0].cpu() })
        }
        None => Ok(trace),
    }
}
