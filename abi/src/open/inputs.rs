//! Files of other programs, and packed ones: known by their content, opened once, and held to be read again.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::listing::{io_error, no_trace};
use super::moment::TextFile;
use super::options::OpenOptions;
use super::{
    archive, event_formats, foreign, ftrace_text, moment, perf_data, regular, spool, trace_dat, tracer_stream, tree,
};
use crate::disk::block::MAGIC;
use crate::trace::{OpenError, Trace};

/// Name of standard input.
const STDIN: &str = "-";
/// Begin of what the kernel's tracer prints.
const TRACER: &[u8] = b"# tracer:";
/// First bytes that a file is known by.
const SAMPLE: u64 = 64 << 10;

/// Input that is held.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// Texts of events.
    Events(Arc<ftrace_text::Texts>),
    /// Texts of one moment.
    Moment(Arc<[TextFile]>),
    /// A `trace.dat`.
    TraceDat(PathBuf, Arc<File>),
    /// A `perf.data`, and what the first pass over it has found.
    PerfData(Arc<perf_data::Scanned>, Option<Arc<perf_data::SameBoot>>),
    /// A stream of the tracer "kmemtrace", and what the first pass over it has found.
    TracerStream(Arc<tracer_stream::Scanned>),
}

/// A file, unpacked.
#[derive(Clone, Debug)]
struct Input {
    path: PathBuf,
    file: Arc<File>,
    sample: Vec<u8>,
    is_unpacked: bool,
    /// Time of its last change, in seconds since 1970; `None` where that says nothing about what is in it.
    modified: Option<i64>,
    is_live: bool,
}

impl Input {
    fn text(&self) -> TextFile {
        let Input { path, file, modified, is_live, .. } = self;
        TextFile { path: path.clone(), file: Arc::clone(file), modified: *modified, is_live: *is_live }
    }

    /// A line of a text of one moment is among the first ones.
    fn begins_as_text(&self) -> bool {
        moment::begins(&self.sample) && !self.sample.starts_with(TRACER)
    }

    /// Few of the first characters are of no text: a log may have colours, and zeros where a machine has crashed.
    fn may_be_text(&self) -> bool {
        let is_control = |byte: &&u8| byte.is_ascii_control() && !b"\n\r\t\x1b".contains(byte);
        !self.sample.is_empty() && self.sample.iter().filter(is_control).count().saturating_mul(20) < self.sample.len()
    }

    /// What a packed file or standard input is, which is not read.
    fn refusal(&self) -> OpenError {
        let described = foreign::described(&self.sample);
        // Standard input is no file that could be described by its path.
        let is_stdin = self.path == Path::new(STDIN);
        let what = if is_stdin { "standard input is" } else { "is, when unpacked," };
        no_trace(&self.path, &format!("{what} {described}"))
    }
}

impl Held {
    /// Holds what `paths` name; `None` for files that are read where they lie, and for what cannot be opened.
    pub(super) fn of(paths: &[PathBuf], options: &OpenOptions) -> Result<Option<Held>, OpenError> {
        let is_one = paths.len() == 1;
        let inputs = paths.iter().map(|path| input(path, is_one));
        let Some(inputs) = inputs.collect::<Result<Option<Vec<Input>>, OpenError>>()? else { return Ok(None) };
        let inputs = inputs.into_iter().map(|input| unarchived(input, options));
        let inputs = inputs.collect::<Result<Vec<_>, OpenError>>()?.concat();
        // The texts that a recording keeps are no input.
        if let Some(input) = inputs.iter().find(|input| input.sample.starts_with(&MAGIC)) {
            return Err(input.refusal());
        }
        if let [Input { path, file, sample, .. }] = &inputs[..] {
            if trace_dat::begins(sample) {
                return Ok(Some(Held::TraceDat(path.clone(), Arc::clone(file))));
            }
            if perf_data::begins(sample) {
                let scanned = perf_data::scan(path, Arc::clone(file))?;
                if options.event_formats.is_some() && scanned.is_described() {
                    let reason = "has the formats of its events: leave out --event-formats".to_owned();
                    return Err(OpenError::Choose { path: path.clone(), reason });
                }
                let same_boot = options.event_formats.as_deref().map(event_formats::read).transpose()?;
                return Ok(Some(Held::PerfData(Arc::new(scanned), same_boot.map(Arc::new))));
            }
            if let Some(scanned) = tracer_stream::scan(path, file, sample)? {
                return Ok(Some(Held::TracerStream(Arc::new(scanned))));
            }
        }
        let texts = || -> Arc<[TextFile]> { inputs.iter().map(Input::text).collect() };
        if !inputs.is_empty() && (options.form.is_some() || inputs.iter().all(Input::begins_as_text)) {
            return Ok(Some(Held::Moment(texts())));
        }
        let mut refusal = None;
        if !inputs.is_empty() && inputs.iter().all(|input| ftrace_text::may_be(&input.sample)) {
            let files = inputs.iter().map(|input| (input.path.clone(), Arc::clone(&input.file))).collect();
            match ftrace_text::read(files, options) {
                Ok(Some(texts)) => return Ok(Some(Held::Events(Arc::new(texts)))),
                Ok(None) => {}
                Err(error) if error.is_no_trace() => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        // Reports of memory may stand anywhere in a log.
        if !inputs.is_empty() && inputs.iter().all(Input::may_be_text) && moment::is_in(&texts(), options)? {
            return Ok(Some(Held::Moment(texts())));
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        match inputs.iter().find(|input| input.is_unpacked) {
            Some(input) => Err(input.refusal()),
            None => Ok(None),
        }
    }

    /// Opens it once more.
    pub(super) fn open(&self, options: &OpenOptions) -> Result<Trace, OpenError> {
        match self {
            Held::Events(texts) => ftrace_text::open(texts, options),
            Held::Moment(files) => moment::open(files, options),
            Held::TraceDat(path, file) => trace_dat::open(path, file, options),
            Held::PerfData(scanned, same_boot) => {
                perf_data::open(scanned, same_boot.as_deref(), options.page_bytes.filter(|_| same_boot.is_some()))
            }
            Held::TracerStream(scanned) => tracer_stream::open(scanned),
        }
    }
}

/// A file that may be held; `None` for directories, recordings and whatever cannot be opened, which others complain about. A text of the
/// kernel that runs is copied unless it is the one input, which is read where it lies.
fn input(path: &Path, is_one: bool) -> Result<Option<Input>, OpenError> {
    let mut is_live = false;
    let (file, is_stdin) = match path {
        path if path == Path::new(STDIN) => (spool::of_stdin().map_err(io_error(path))?, true),
        path => match regular::open(path) {
            Ok(file) => (file, false),
            Err(_) if is_one => return Ok(None),
            Err(_) => match moment::open_made_up(path) {
                Some(mut text) => {
                    is_live = true;
                    (spool::copy(&mut text).map_err(io_error(path))?, false)
                }
                None => return Ok(None),
            },
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
        _ => io_error(&path)(of_memory(error)),
    })?;
    let is_kept = !is_stdin && !is_live;
    let modified = moment::modified(&file).filter(|_| is_kept);
    Ok(Some(match unpacked {
        Some(file) => Input {
            sample: self::sample(&file).map_err(io_error(&path))?,
            path,
            file: Arc::new(file),
            is_unpacked: true,
            modified,
            is_live,
        },
        None => Input { path, file: Arc::new(file), sample, is_unpacked: is_stdin, modified, is_live },
    }))
}

/// The error with a remedy where zstd had no memory, which it says in its own words.
fn of_memory(error: io::Error) -> io::Error {
    if !error.to_string().starts_with("Allocation error") {
        return error;
    }
    let what = "unpacking it takes more memory than there is: raise ulimit -d and -v, or unpack it with zstd -d";
    io::Error::new(ErrorKind::OutOfMemory, what)
}

/// The members of an archive that are read, in place of the archive; another input as it is.
fn unarchived(input: Input, options: &OpenOptions) -> Result<Vec<Input>, OpenError> {
    if !archive::begins(&input.sample) {
        return Ok(vec![input]);
    }
    let is_trace = |sample: &[u8]| trace_dat::begins(sample) || perf_data::begins(sample) || sample.starts_with(TRACER);
    let has_recording = Cell::new(false);
    let is_read = |name: &[u8], sample: &[u8]| {
        let is_recording = sample.starts_with(&MAGIC) || tree::is_raw(name, sample);
        has_recording.set(has_recording.get() || is_recording);
        !is_recording && (moment::begins(sample) || is_trace(sample))
    };
    let members = archive::members(&input.path, &input.file, options.member.as_deref(), &is_read)?;
    if has_recording.get() {
        let why = "is an archive with a recording in it: unpack it, and name the recording's directory; or name one of the other files \
                   with --member";
        return Err(no_trace(&input.path, why));
    }
    if members.is_empty() {
        return Ok(vec![input]);
    }
    let held = |archive::Unarchived { path, file, modified }| {
        let sample = sample(&file).map_err(io_error(&path))?;
        Ok(Input { path, file: Arc::new(file), sample, is_unpacked: true, modified, is_live: false })
    };
    members.into_iter().map(held).collect()
}

fn sample(file: &File) -> io::Result<Vec<u8>> {
    let mut sample = Vec::new();
    spool::ReadAt::new(file).take(SAMPLE).read_to_end(&mut sample)?;
    Ok(sample)
}
