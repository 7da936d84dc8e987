//! Where a view goes: standard output, or a file that has its name once it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::FileType;

/// Takes what is printed; [`Output::finish`] ends it.
pub(crate) struct Output {
    out: BufWriter<Box<dyn Write>>,
    /// For people.
    name: String,
    unfinished: Option<Unfinished>,
    /// It is a file, which nobody looks at line by line.
    pub(crate) is_file: bool,
    /// Whoever was reading has gone.
    is_closed: bool,
}

/// A file beside the one that it is to become; it is removed unless it does.
struct Unfinished {
    temporary: PathBuf,
    path: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Output {
    /// Standard output, or a file that must not be there yet unless `force` is given.
    pub(crate) fn open(path: Option<&Path>, force: bool) -> anyhow::Result<Output> {
        let Some(path) = path else {
            let stdout = io::stdout().lock();
            let is_file = rustix::fs::fstat(&stdout).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
            return Ok(Output { is_file, ..Output::to(Box::new(stdout), "standard output", None) });
        };
        let name = path.display().to_string();
        if !force && fs::symlink_metadata(path).is_ok() {
            bail!("{name}: exists already: use -f to overwrite it, or another name");
        }
        let unwritable = || format!("{name}: cannot be written");
        // A device or a FIFO is written to as it is.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let file = OpenOptions::new().write(true).open(path).with_context(unwritable)?;
            return Ok(Output::to(Box::new(file), &name, None));
        }
        // What a link names is replaced, and the link stays.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut temporary = path.clone().into_os_string();
        temporary.push(".writing");
        let temporary = PathBuf::from(temporary);
        let file = File::create(&temporary).with_context(unwritable)?;
        Ok(Output::to(Box::new(file), &name, Some(Unfinished { temporary, path })))
    }

    fn to(out: Box<dyn Write>, name: &str, unfinished: Option<Unfinished>) -> Output {
        let is_file = unfinished.is_some();
        Output { out: BufWriter::new(out), name: name.to_owned(), unfinished, is_file, is_closed: false }
    }

    /// Ends it: `written` is what became of the writing. The error is an [`io::Error`] of kind `BrokenPipe` where a
    /// reader has had enough, however the writer put it.
    pub(crate) fn finish(mut self, written: io::Result<()>) -> anyhow::Result<()> {
        let written = written.and_then(|()| self.flush());
        if self.is_closed {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        let whole = written.and_then(|()| match &self.unfinished {
            Some(file) => fs::rename(&file.temporary, &file.path),
            None => Ok(()),
        });
        whole.with_context(|| format!("{}: cannot be written", self.name))
    }

    fn noting<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.is_closed |= result.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
        result
    }
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
