//! Output of a view: standard output, or a file that gets its name once it is complete.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::{FileType, OFlags};

use kmemtrace::whole_file::{Directory, NewFile};
use kmemtrace_abi::open::regular;

use super::paged::Paged;

/// Place that the text goes to.
enum Sink {
    Plain(Box<dyn Write>),
    /// The terminal, by a pager where the text is longer than the screen.
    Paged(Paged),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(out) => out.write(bytes),
            Sink::Paged(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(out) => out.flush(),
            Sink::Paged(out) => out.flush(),
        }
    }
}

/// Error of standard output.
pub(crate) const UNPRINTABLE: &str = "standard output: cannot be written";

/// Writer of a view's text; [`Output::finish`] ends it.
pub(crate) struct Output {
    out: BufWriter<Sink>,
    /// Name for messages.
    name: String,
    unfinished: Option<NewFile>,
    /// True for a file: no user reads it line by line, so a progress line may be shown.
    pub(crate) is_file: bool,
    /// True once the reader of the pipe has closed it.
    is_closed: bool,
}

impl Output {
    /// Opens standard output (no path, or `-`), or a file that must not exist yet unless `force` is given.
    pub(crate) fn open(path: Option<&Path>, force: bool) -> anyhow::Result<Output> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            kmemtrace_fence::check_stdout().context(UNPRINTABLE)?;
            if let Some(paged) = Paged::take() {
                return Ok(Output::of(Sink::Paged(paged), "standard output", None));
            }
            let stdout = io::stdout().lock();
            let is_file = rustix::fs::fstat(&stdout).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
            return Ok(Output { is_file, ..Output::to(Box::new(stdout), "standard output", None) });
        };
        let name = path.display().to_string();
        if !force && fs::symlink_metadata(path).is_ok() {
            bail!("{name}: exists already: use -f to overwrite it, or another name");
        }
        let unwritable = || format!("{name}: cannot be written");
        regular::refuse_strangers_links(path).with_context(unwritable)?;
        let there = fs::metadata(path).ok();
        // A device is written in place: it is never replaced. Another user's file may be one that others read.
        if let Some(there) = there.as_ref().filter(|there| !there.is_file()) {
            refuse_unless_device(there.file_type()).with_context(unwritable)?;
            let file = regular::open_device(path).with_context(unwritable)?;
            refuse_unless_device(file.metadata().with_context(unwritable)?.file_type()).with_context(unwritable)?;
            let blocking = rustix::fs::fcntl_getfl(&file).with_context(unwritable)? - OFlags::NONBLOCK;
            rustix::fs::fcntl_setfl(&file, blocking).with_context(unwritable)?;
            return Ok(Output::to(Box::new(file), &name, None));
        }
        if let Some(there) = there {
            refuse_others_file(there.uid()).with_context(unwritable)?;
        }
        // The target of a link is replaced, and the link stays. A link to nothing is replaced itself.
        let path = regular::behind_links(path).unwrap_or_else(|_| path.to_owned());
        let file_name = path.file_name().filter(|_| !name.ends_with('/'));
        let Some(file_name) = file_name else { bail!("{name}: is a directory: name a file in it") };
        let dir = Directory::open(path.parent().unwrap_or(Path::new(""))).with_context(unwritable)?;
        let new = dir.create(file_name, ".writing", 0o666).with_context(unwritable)?;
        let file = new.file().try_clone().with_context(unwritable)?;
        Ok(Output::to(Box::new(file), &name, Some(new)))
    }

    fn to(out: Box<dyn Write>, name: &str, unfinished: Option<NewFile>) -> Output {
        Output::of(Sink::Plain(out), name, unfinished)
    }

    fn of(out: Sink, name: &str, unfinished: Option<NewFile>) -> Output {
        let is_file = unfinished.is_some();
        Output { out: BufWriter::new(out), name: name.to_owned(), unfinished, is_file, is_closed: false }
    }

    /// True for a file that has no name yet: no other program has seen what was written.
    #[cfg(feature = "full")]
    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Ends the output with the result of writing. The error is an [`io::Error`] of kind `BrokenPipe` if the reader
    /// closed the pipe, however the writer reported it.
    pub(crate) fn finish(mut self, written: io::Result<()>) -> anyhow::Result<()> {
        let written = written.and_then(|()| self.flush());
        if let Sink::Paged(paged) = self.out.get_mut() {
            let ended = paged.end();
            // A pager that is left early has shown what was wanted.
            let written = if self.is_closed { ended } else { written.and(ended) };
            return written.with_context(|| format!("{}: cannot be written", self.name));
        }
        if self.is_closed {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        let whole = written.and_then(|()| self.unfinished.take().map_or(Ok(()), NewFile::put));
        whole.with_context(|| format!("{}: cannot be written", self.name))
    }

    fn noting<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.is_closed |= result.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

/// Refuses what is neither a stored file nor a character device, to which others may write as well.
fn refuse_unless_device(found: fs::FileType) -> io::Result<()> {
    let what = match found {
        found if found.is_char_device() => return Ok(()),
        found if found.is_dir() => "is a directory: name a file in it",
        found if found.is_fifo() => "is a FIFO, which another program may have put there: use - and a pipe",
        found if found.is_file() => "another program has just put a file in its place: try again",
        _ => "is neither a file nor a character device: name a file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Refuses to replace the file of this owner, unless it is root, the caller, or the user who called sudo.
fn refuse_others_file(owner: u32) -> io::Result<()> {
    let what = format!("is a file of user {owner}: use another name");
    regular::refuse_stranger(owner).map_err(|error| io::Error::new(error.kind(), what))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.noting(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.noting(flushed)
    }
}
