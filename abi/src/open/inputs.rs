//! Files of other programs, and packed ones: known by their content, opened once, and held to be read again.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::listing::{io_error, no_trace};
use super::options::OpenOptions;
use super::{foreign, ftrace_text, page_owner, perf_data, regular, spool, trace_dat, tracer_stream};
use crate::disk::block::MAGIC;
use crate::trace::{OpenError, Trace};

/// Name of standard input.
const STDIN: &str = "-";
/// First bytes that a file is known by.
const SAMPLE: u64 = 64 << 10;

/// Input that is held.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// Texts of events.
    Events(Arc<ftrace_text::Texts>),
    /// A text of page_owner that was packed.
    Owners(PathBuf, Arc<File>),
    /// A `trace.dat`.
    TraceDat(PathBuf, Arc<File>),
    /// A `perf.data`, and what the first pass over it has found.
    PerfData(Arc<perf_data::Scanned>),
    /// A stream of the tracer "kmemtrace", and what the first pass over it has found.
    TracerStream(Arc<tracer_stream::Scanned>),
}

/// A file, unpacked.
struct Input {
    path: PathBuf,
    file: Arc<File>,
    sample: Vec<u8>,
    is_unpacked: bool,
}

impl Held {
    /// Holds what `paths` name; `None` for files that are read where they lie, and for what cannot be opened.
    pub(super) fn of(paths: &[PathBuf], options: &OpenOptions) -> Result<Option<Held>, OpenError> {
        let inputs = paths.iter().map(|path| input(path));
        let Some(inputs) = inputs.collect::<Result<Option<Vec<Input>>, OpenError>>()? else { return Ok(None) };
        if let [Input { path, file, sample, is_unpacked: true }] = &inputs[..]
            && page_owner::begins(sample)
        {
            return Ok(Some(Held::Owners(path.clone(), Arc::clone(file))));
        }
        if let [Input { path, file, sample, .. }] = &inputs[..] {
            if trace_dat::begins(sample) {
                return Ok(Some(Held::TraceDat(path.clone(), Arc::clone(file))));
            }
            if perf_data::begins(sample) {
                let scanned = perf_data::scan(path, Arc::clone(file))?;
                return Ok(Some(Held::PerfData(Arc::new(scanned))));
            }
            if let Some(scanned) = tracer_stream::scan(path, file, sample)? {
                return Ok(Some(Held::TracerStream(Arc::new(scanned))));
            }
        }
        if !inputs.is_empty() && inputs.iter().all(|input| ftrace_text::may_be(&input.sample)) {
            let files = inputs.iter().map(|input| (input.path.clone(), Arc::clone(&input.file))).collect();
            if let Some(texts) = ftrace_text::read(files, options)? {
                return Ok(Some(Held::Events(Arc::new(texts))));
            }
        }
        match inputs.iter().find(|input| input.is_unpacked) {
            Some(Input { path, sample, .. }) => {
                Err(no_trace(path, &format!("is, when unpacked, {}", foreign::described(sample))))
            }
            None => Ok(None),
        }
    }

    /// Opens it once more.
    pub(super) fn open(&self, options: &OpenOptions) -> Result<Trace, OpenError> {
        match self {
            Held::Events(texts) => ftrace_text::open(texts, options),
            Held::Owners(path, file) => page_owner::open_held(path, file, options),
            Held::TraceDat(path, file) => trace_dat::open(path, file, options),
            Held::PerfData(scanned) => perf_data::open(scanned),
            Held::TracerStream(scanned) => tracer_stream::open(scanned),
        }
    }
}

/// A file that may be held; `None` for directories, recordings and whatever cannot be opened, which others complain about.
fn input(path: &Path) -> Result<Option<Input>, OpenError> {
    let (file, is_stdin) = match path {
        path if path == Path::new(STDIN) => (spool::of_stdin().map_err(io_error(path))?, true),
        path => match regular::open(path) {
            Ok(file) => (file, false),
            Err(_) => return Ok(None),
        },
    };
    let sample = sample(&file).map_err(io_error(path))?;
    if sample.starts_with(&MAGIC) && !is_stdin {
        return Ok(None);
    }
    let path = path.to_owned();
    let unpacked = spool::unpacked(&file, &sample).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            let packed = foreign::known(&sample).unwrap_or_default();
            no_trace(&path, &format!("cannot be unpacked: {error} ({packed})"))
        }
        _ => io_error(&path)(error),
    })?;
    Ok(Some(match unpacked {
        Some(file) => Input {
            sample: self::sample(&file).map_err(io_error(&path))?,
            path,
            file: Arc::new(file),
            is_unpacked: true,
        },
        None => Input { path, file: Arc::new(file), sample, is_unpacked: is_stdin },
    }))
}

fn sample(file: &File) -> io::Result<Vec<u8>> {
    let mut sample = Vec::new();
    spool::ReadAt::new(file).take(SAMPLE).read_to_end(&mut sample)?;
    Ok(sample)
}
