//! Trace that the live screen is of: the files named, those of the running recorder, or the stream of the recorder that started it.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kmemtrace::Trace;
use kmemtrace::whole_file::Directory;
use kmemtrace_abi::disk::block::{END_ASKED, END_ERROR, END_LIMIT};
use kmemtrace_abi::disk::end_block;
use kmemtrace_abi::open::{OpenOptions, regular};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::trace::{InputKind, Metadata, TraceInfo};
use kmemtrace_sandbox::Sandbox;

use super::stream::Stream;
use crate::args::Args;
use crate::of_text;
use crate::render::top_screen::Subject;
use crate::report;
use crate::views::TOP;

/// Files of running recorders: the process, and the path of its trace.
const RUNNING: &str = "/run/kmemtraced";
/// Trace where none is named and no recorder runs.
const DEFAULT: &str = "kmemtrace.data";

/// Time that a recorder may take from its lock to its last file.
const STARTING: Duration = Duration::from_secs(5);
/// Pause between two looks at those files.
const PAUSE: Duration = Duration::from_millis(100);

/// Name of a recording that has none.
const UNNAMED: &str = "live";

/// Source of a trace.
pub(super) enum Source {
    Files(Box<Files>),
    Stream(Box<Stream>, String),
}

impl Source {
    /// The stream where this is a viewer; else the traces that were named, that of the running recorder, or the usual one.
    pub(super) fn open(args: &Args) -> anyhow::Result<Source> {
        if args.viewer.is_viewer {
            let title = args.viewer.title.as_deref().unwrap_or(UNNAMED);
            return Ok(Source::Stream(Box::new(Stream::open()?), escape(title.as_bytes()).into_owned()));
        }
        // A text of one moment has no past on the screen: its entries are added up.
        let options = OpenOptions { alike: true, takes: of_text::takes(&TOP), ..report::text_options(args) };
        Ok(Source::Files(Box::new(Files::open(&args.words, options)?)))
    }

    /// A recorder is writing the trace.
    pub(super) fn is_growing(&self) -> bool {
        match self {
            Source::Files(files) => files.is_growing,
            Source::Stream(..) => true,
        }
    }

    /// Opens the trace.
    pub(super) fn trace(&mut self) -> anyhow::Result<Trace> {
        match self {
            Source::Files(files) => files.trace(),
            Source::Stream(stream, _) => stream.trace(),
        }
    }

    /// Takes what has come: of files that is read where they are.
    pub(super) fn take_more(&mut self) -> anyhow::Result<bool> {
        match self {
            Source::Files(_) => Ok(false),
            Source::Stream(stream, _) => stream.take_more(),
        }
    }

    /// True while a recorder writes the trace.
    pub(super) fn has_recorder(&self) -> bool {
        match self {
            Source::Files(files) => files.has_recorder(),
            Source::Stream(stream, _) => stream.has_recorder(),
        }
    }

    /// Bytes of names: more where there are new ones.
    pub(super) fn bytes_of_names(&self) -> u64 {
        match self {
            Source::Files(files) => files.bytes_of_names(),
            Source::Stream(stream, _) => stream.bytes_of_names,
        }
    }

    /// The names of the trace as they are now; `None` where they cannot be read.
    pub(super) fn names(&self) -> Option<Metadata> {
        match self {
            Source::Files(files) => files.trace().ok().map(|trace| trace.metadata),
            Source::Stream(stream, _) => Some(stream.names()),
        }
    }

    /// Name of the trace, host and kernel.
    pub(super) fn subject(&self, trace: &Trace) -> Subject {
        let name = match self {
            Source::Files(files) => files.name(),
            Source::Stream(_, title) => title.clone(),
        };
        Subject { name, machine: machine(&trace.info), ..Subject::default() }
    }

    /// Reason for which the recording has ended.
    pub(super) fn reason(&self, trace: &Trace) -> &'static str {
        match self {
            Source::Files(files) => files.reason(trace),
            Source::Stream(stream, _) => stream.reason(),
        }
    }
}

/// Host and kernel of a trace, escaped.
fn machine(info: &TraceInfo) -> String {
    let host = info.host.as_deref().map(|host| escape(host.as_bytes()).into_owned());
    let kernel = info.kernel.as_deref().map(|kernel| {
        let arch = info.arch.as_deref().unwrap_or_default();
        escape(format!("Linux {kernel} {arch}").trim_end().as_bytes()).into_owned()
    });
    [host, kernel].into_iter().flatten().collect::<Vec<_>>().join("   ")
}

/// Path of a trace, and its directory where a recorder may be writing to it.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    options: OpenOptions,
    directory: Option<Arc<Directory>>,
    is_growing: bool,
}

impl Files {
    fn open(words: &[PathBuf], options: OpenOptions) -> anyhow::Result<Files> {
        let paths = match words {
            [] => vec![running()?.unwrap_or_else(|| PathBuf::from(DEFAULT))],
            words => words.to_vec(),
        };
        let directory = match &paths[..] {
            [path] if path.is_dir() => Directory::open(path).ok(),
            _ => None,
        };
        let files = Files { paths, options, directory, is_growing: false };
        let is_growing = files.has_recorder();
        Ok(Files { is_growing, ..files })
    }

    fn trace(&self) -> anyhow::Result<Trace> {
        let name = escape(self.paths[0].as_os_str().as_bytes()).into_owned();
        let begun = Instant::now();
        let trace = loop {
            // A recorder that has just started is still making its files.
            let is_early = self.is_growing && begun.elapsed() < STARTING;
            match Trace::open_with(&self.paths, self.options.clone()) {
                Ok(trace) if trace.has_all_files() || !is_early => break trace,
                Err(error) if !is_early => return Err(error.into()),
                Ok(_) | Err(_) => std::thread::sleep(PAUSE),
            }
        };
        if trace.info.input != InputKind::Kmemtrace && self.is_growing {
            bail!("{name}: is being written and is not a recording of kmemtraced: name it when it is finished");
        }
        Ok(trace)
    }

    /// True while a recorder holds the trace's directory.
    fn has_recorder(&self) -> bool {
        // Opened anew each time: a lock that this look gets is given back at once.
        let path = self.directory.as_ref().map(|directory| directory.path());
        path.and_then(|path| Directory::open(path).ok()).is_some_and(|directory| !directory.lock())
    }

    /// Bytes of the file of names.
    fn bytes_of_names(&self) -> u64 {
        fs::metadata(self.paths[0].join("meta.out")).map_or(0, |data| data.len())
    }

    /// Name of the trace, escaped.
    fn name(&self) -> String {
        let path = &self.paths[0];
        let current = std::env::current_dir().ok().filter(|_| path == Path::new("."));
        let path = current.as_deref().unwrap_or(path);
        escape(path.file_name().unwrap_or(path.as_os_str()).as_bytes()).into_owned()
    }

    fn reason(&self, trace: &Trace) -> &'static str {
        const END: &str = "end of the recording";
        if trace.info.input != InputKind::Kmemtrace {
            return END;
        }
        let end = |path: &Path| end_block::of(&regular::open(path).ok()?).ok().flatten();
        let reasons: Option<Vec<u32>> =
            trace.streams.iter().map(|stream| end(stream.path()).map(|end| end.reason.get())).collect();
        match reasons.as_deref() {
            None if self.is_growing => "the recorder was killed",
            None => "the recorder was killed, or the files were cut",
            Some(reasons) if reasons.contains(&END_ERROR) => "the recorder failed",
            Some(reasons) if reasons.contains(&END_LIMIT) => "its limit was reached",
            Some(reasons) if self.is_growing && reasons.iter().all(|reason| *reason == END_ASKED) => {
                "the recorder was stopped"
            }
            Some(_) => END,
        }
    }
}

/// Allows to read the trace of the running recorder, and the file that names it.
pub(super) fn allow_running(sandbox: &mut Sandbox) {
    sandbox.read(RUNNING);
    if let Ok(Some(path)) = running() {
        sandbox.input(&path);
    }
}

/// Trace of the running recorder; `None` where there is none.
///
/// # Errors
/// Several recorders.
fn running() -> anyhow::Result<Option<PathBuf>> {
    let Ok(entries) = fs::read_dir(RUNNING) else { return Ok(None) };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let mut lines = text.lines();
        let (Some(process), Some(path)) = (lines.next(), lines.next().filter(|path| !path.is_empty())) else {
            continue;
        };
        let runs = process.trim().parse::<u32>().is_ok_and(|process| Path::new(&format!("/proc/{process}")).exists());
        let path = PathBuf::from(path);
        if runs && path.is_dir() {
            found.push(path);
        }
    }
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|path| escape(path.as_os_str().as_bytes()).into_owned()).collect();
        bail!("{} recorders are running: name one of {}", found.len(), names.join(", "));
    }
    Ok(found.pop())
}

/// Greatest size of a script, in bytes.
const MAX_SCRIPT: u64 = 1 << 20;

/// Reads a small file that the user named.
pub(super) fn read_small(path: &Path) -> anyhow::Result<String> {
    let shown = || escape(path.as_os_str().as_bytes()).into_owned();
    let mut text = String::new();
    regular::open(path).with_context(shown)?.take(MAX_SCRIPT + 1).read_to_string(&mut text).with_context(shown)?;
    if text.len() as u64 > MAX_SCRIPT {
        bail!("{}: is larger than 1 MiB, so it is not a script", shown());
    }
    Ok(text)
}
