//! Files of other programs, and packed ones: known by their content, opened once, and held to be read again.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::listing::{io_error, no_trace};
use super::moment::several::TextFile;
use super::options::OpenOptions;
use super::{archive, foreign, ftrace_text, moment, perf_data, regular, spool, trace_dat};
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
    /// Texts of one moment.
    Moment(Arc<Vec<TextFile>>),
    /// A `trace.dat`.
    TraceDat(PathBuf, Arc<File>),
    /// A `perf.data`, and what the first pass over it has found.
    PerfData(Arc<perf_data::Scanned>),
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

    /// A text whose begin does not tell its form, as a long log.
    fn may_have_text(&self) -> bool {
        self.sample.len() as u64 >= SAMPLE && foreign::is_text(&self.sample)
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
        if let [Input { path, file, sample, .. }] = &inputs[..] {
            if trace_dat::begins(sample) {
                return Ok(Some(Held::TraceDat(path.clone(), Arc::clone(file))));
            }
            if perf_data::begins(sample) {
                let scanned = perf_data::scan(path, Arc::clone(file))?;
                return Ok(Some(Held::PerfData(Arc::new(scanned))));
            }
        }
        let texts = || Held::Moment(Arc::new(inputs.iter().map(Input::text).collect()));
        let begins = |input: &Input| moment::begins(&input.sample);
        if inputs.iter().any(begins) && inputs.iter().all(|input| begins(input) || foreign::is_text(&input.sample))
            || !inputs.is_empty() && options.form.is_some()
        {
            return Ok(Some(texts()));
        }
        if !inputs.is_empty() && inputs.iter().all(|input| ftrace_text::may_be(&input.sample)) {
            let files = inputs.iter().map(|input| (input.path.clone(), Arc::clone(&input.file))).collect();
            if let Some(texts) = ftrace_text::read(files, options)? {
                return Ok(Some(Held::Events(Arc::new(texts))));
            }
        }
        if inputs.iter().all(Input::may_have_text) && !inputs.is_empty() {
            let files: Vec<TextFile> = inputs.iter().map(Input::text).collect();
            if moment::several::open(&files, options)?.is_some() {
                return Ok(Some(texts()));
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
            Held::Moment(files) => moment::several::open(files, options)?.ok_or_else(|| {
                no_trace(files.first().map_or(Path::new(""), |file| &file.path), "has no block that counts")
            }),
            Held::TraceDat(path, file) => trace_dat::open(path, file, options),
            Held::PerfData(scanned) => perf_data::open(scanned),
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
        _ => io_error(&path)(error),
    })?;
    let is_kept = !is_stdin && !is_live;
    let modified = file.metadata().ok().filter(|_| is_kept).and_then(|metadata| seconds(metadata.modified().ok()?));
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

/// Seconds since 1970.
fn seconds(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// The members of an archive that are read, in place of the archive; another input as it is.
fn unarchived(input: Input, options: &OpenOptions) -> Result<Vec<Input>, OpenError> {
    if !archive::begins(&input.sample) {
        return Ok(vec![input]);
    }
    let is_trace =
        |sample: &[u8]| trace_dat::begins(sample) || perf_data::begins(sample) || sample.starts_with(b"# tracer:");
    let is_read = |sample: &[u8]| moment::begins(sample) || is_trace(sample);
    let members = archive::members(&input.path, &input.file, options.member.as_deref(), &is_read)?;
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
