//! Output of a view: standard output, or a file that gets its name once it is complete.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::{FileType, OFlags};

use kmemtrace::whole_file::{Directory, NewFile};

/// Writer of a view's text; [`Output::finish`] ends it.
pub(crate) struct Output {
    out: BufWriter<Box<dyn Write>>,
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
            let stdout = io::stdout().lock();
            let is_file = rustix::fs::fstat(&stdout).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
            return Ok(Output { is_file, ..Output::to(Box::new(stdout), "standard output", None) });
        };
        let name = path.display().to_string();
        if !force && fs::symlink_metadata(path).is_ok() {
            bail!("{name}: exists already: use -f to overwrite it, or another name");
        }
        let unwritable = || format!("{name}: cannot be written");
        let is_link = is_trusted_link(path).with_context(unwritable)?;
        // A device or a FIFO is written in place.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let follows = if is_link { OFlags::empty() } else { OFlags::NOFOLLOW };
            let flags = follows.bits().cast_signed();
            let file = OpenOptions::new().write(true).custom_flags(flags).open(path).with_context(unwritable)?;
            if file.metadata().with_context(unwritable)?.is_file() {
                bail!("{name}: another program has just put a file in its place: try again");
            }
            return Ok(Output::to(Box::new(file), &name, None));
        }
        // The target of a link is replaced, and the link stays.
        let target = if is_link { fs::canonicalize(path).ok() } else { None };
        let path = target.unwrap_or_else(|| path.to_owned());
        let file_name = path.file_name().filter(|_| !name.ends_with('/'));
        let Some(file_name) = file_name else { bail!("{name}: is a directory: name a file in it") };
        let dir = Directory::open(path.parent().unwrap_or(Path::new(""))).with_context(unwritable)?;
        let new = dir.create(file_name, ".writing", 0o666).with_context(unwritable)?;
        let file = new.file().try_clone().with_context(unwritable)?;
        Ok(Output::to(Box::new(file), &name, Some(new)))
    }

    fn to(out: Box<dyn Write>, name: &str, unfinished: Option<NewFile>) -> Output {
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

/// True for a link owned by root or by the user, which the output follows. Any other link is an error: its owner may
/// have planted it to overwrite a file out of the owner's reach.
fn is_trusted_link(path: &Path) -> io::Result<bool> {
    let Some(link) = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_symlink) else { return Ok(false) };
    if ![0, rustix::process::geteuid().as_raw()].contains(&link.uid()) {
        let what = format!("is a link of user {}: name the file that it stands for", link.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(true)
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
