//! Destination of a recording: a trace directory, a stream, or both with the same blocks.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use kmemtrace_sandbox::{Mode, Sandbox};
use rustix::io::Errno;

use crate::output::made_file::Size;
use crate::output::stream::{NotSent, Stream};
use crate::output::trace_dir::{Place, TraceDir};

/// Destination of all files of a recording.
pub(crate) struct Destination {
    dir: Option<TraceDir>,
    stream: Option<Stream>,
}

impl Destination {
    /// Blocks go to these.
    pub(crate) fn new(dir: Option<TraceDir>, stream: Option<Stream>) -> Destination {
        Destination { dir, stream }
    }

    /// Path of the trace directory, where there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.dir.as_ref().map(|dir| dir.dir.as_path())
    }

    /// Path that the trace directory has now.
    pub(crate) fn path_now(&self) -> Option<PathBuf> {
        let dir = self.dir.as_ref()?;
        Some(if let Place::Moved(now) = dir.place() { now } else { dir.dir.clone() })
    }

    /// Name for messages.
    pub(crate) fn shown(&self) -> String {
        self.path().map_or_else(|| "the stream".to_owned(), |path| path.display().to_string())
    }

    /// Begins a file.
    pub(crate) fn file(&self, name: &str) -> anyhow::Result<TraceFile> {
        let stored = self.dir.as_ref().map(|dir| dir.file(name)).transpose()?;
        let syncs_at_close = stored.as_ref().is_some_and(|(file, _)| {
            rustix::fs::fstatfs(file).is_ok_and(|stat| SYNCING_AT_CLOSE.contains(&(stat.f_type as u32)))
        });
        Ok(TraceFile { stored, stream: self.stream.clone(), syncs_at_close })
    }

    /// Error for a file that cannot be written, with the remedy.
    pub(crate) fn unwritable(&self, name: &str, error: &io::Error) -> anyhow::Error {
        match &self.dir {
            Some(dir) => {
                anyhow!("{}: cannot be written: {error}, {}", dir.dir.join(name).display(), self.remedy(error))
            }
            None => anyhow!("{name}: cannot be written to the stream: {error}"),
        }
    }

    /// State of a file that cannot be written, and the remedy.
    pub(crate) fn remedy(&self, error: &io::Error) -> String {
        match Errno::from_io_error(error) {
            Some(Errno::FBIG) => "the limit of a file's size (ulimit -f): raise the limit".to_owned(),
            Some(Errno::ROFS) => {
                "the file system is read-only: look for the reason in the kernel's log, or use -o".to_owned()
            }
            // A write to a device that was set read-only beneath its file system.
            Some(Errno::PERM) => {
                "the device may be read-only: look for the reason in the kernel's log, or use -o".to_owned()
            }
            Some(Errno::IO) => "the disk fails: look for the reason in the kernel's log, or use -o".to_owned(),
            Some(Errno::DQUOT) => "the user's quota is used up: raise it, or use -o".to_owned(),
            _ if error.kind() == io::ErrorKind::StorageFull => {
                let room = self.room().map(|bytes| bytes >> 10).unwrap_or(0);
                format!("{room} KiB free: free some space or use -o")
            }
            _ => "look for the reason in the kernel's log, or use -o".to_owned(),
        }
    }

    /// See [`TraceDir::replaces`].
    pub(crate) fn replaces(&self) -> bool {
        self.dir.as_ref().is_some_and(TraceDir::replaces)
    }

    /// See [`TraceDir::allow`].
    pub(crate) fn allow(&self, sandbox: &mut Sandbox, replaces: bool, is_private: bool) -> anyhow::Result<()> {
        self.dir.as_ref().map_or(Ok(()), |dir| dir.allow(sandbox, replaces, is_private))
    }

    /// See [`TraceDir::is_replacing`].
    pub(crate) fn is_replacing(&self) -> bool {
        self.dir.as_ref().is_some_and(TraceDir::is_replacing)
    }

    /// See [`TraceDir::begin`].
    pub(crate) fn begin(&mut self, sandbox: Mode) -> anyhow::Result<()> {
        self.dir.as_mut().map_or(Ok(()), |dir| dir.begin(sandbox))
    }

    /// See [`TraceDir::finish_removal`].
    pub(crate) fn finish_removal(&mut self) -> anyhow::Result<()> {
        self.dir.as_mut().map_or(Ok(()), TraceDir::finish_removal)
    }

    /// See [`TraceDir::hand_over`].
    pub(crate) fn hand_over(&self, owner: (u32, u32)) -> anyhow::Result<()> {
        self.dir.as_ref().map_or(Ok(()), |dir| dir.hand_over(owner))
    }

    /// See [`TraceDir::changes`].
    pub(crate) fn changes(&self) -> Vec<String> {
        self.dir.as_ref().map_or_else(Vec::new, TraceDir::changes)
    }

    /// See [`TraceDir::place`]; a stream is where it was.
    pub(crate) fn place(&self) -> Place {
        self.dir.as_ref().map_or(Place::Here, TraceDir::place)
    }

    /// Free bytes of the file system.
    pub(crate) fn room(&self) -> io::Result<u64> {
        self.dir.as_ref().map_or(Ok(0), TraceDir::room)
    }

    /// See [`TraceDir::sync`].
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.dir.as_ref().map_or(Ok(()), TraceDir::sync)
    }

    /// True once the program that reads the stream takes no more.
    pub(crate) fn is_broken(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_broken)
    }

    /// Thread id of the thread that writes the stream.
    pub(crate) fn stream_thread(&self) -> Option<i32> {
        self.stream.as_ref().map(Stream::tid)
    }

    /// Ends the stream, see [`Stream::close`]; returns what its reader did not get.
    pub(crate) fn close_stream(&self, goes_on: impl Fn() -> bool) -> NotSent {
        let Some(stream) = &self.stream else { return NotSent::default() };
        stream.close(goes_on);
        stream.not_sent()
    }

    /// Ends the stream, and removes the directory if no recording has begun in it.
    pub(crate) fn discard(self) {
        self.close_stream(|| false);
        if let Some(dir) = self.dir {
            dir.discard();
        }
    }
}

/// File of a recording: on disk, in the stream, or both. Each write is a whole block.
#[derive(Debug)]
pub(crate) struct TraceFile {
    stored: Option<(File, Arc<Size>)>,
    stream: Option<Stream>,
    syncs_at_close: bool,
}

/// File systems that write back a file when it is closed, and tell errors then (`include/uapi/linux/magic.h`): NFS, FUSE, SMB, 9P, Ceph,
/// AFS.
const SYNCING_AT_CLOSE: [u32; 8] =
    [0x6969, 0x6573_5546, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400, 0x5346_414f];

impl TraceFile {
    /// True where closing the file would sync it, with an error that nobody is told.
    pub(crate) fn syncs_at_close(&self) -> bool {
        self.syncs_at_close
    }

    /// The file on disk, where there is one.
    pub(crate) fn file(&self) -> Option<&File> {
        self.stored.as_ref().map(|(file, _)| file)
    }

    /// Cuts the file to `len` bytes and goes on behind them.
    pub(crate) fn cut(&mut self, len: u64) -> io::Result<()> {
        let Some((file, size)) = &mut self.stored else { return Ok(()) };
        size.begin_cut(len);
        file.set_len(len)?;
        size.finish_cut(len);
        file.seek(io::SeekFrom::Start(len)).map(drop)
    }
}

impl Write for TraceFile {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        self.write_all(block).map(|()| block.len())
    }

    /// Writes a block, first to the disk: a block that the file has not is not in the stream.
    fn write_all(&mut self, block: &[u8]) -> io::Result<()> {
        if let Some((file, size)) = &mut self.stored {
            size.begin(file.metadata()?.len(), block.len());
            file.write_all(block)?;
            size.finish(block.len());
        }
        if let Some(stream) = &self.stream {
            stream.put(block);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_disk_has_too_little_space() {
        let output = Destination::new(None, None);
        let remedy = |errno: Errno| output.remedy(&errno.into());
        assert!(remedy(Errno::NOSPC).contains("free some space"));
        for (errno, word) in
            [(Errno::ROFS, "read-only"), (Errno::PERM, "read-only"), (Errno::IO, "disk"), (Errno::STALE, "log")]
        {
            let remedy = remedy(errno);
            assert!(remedy.contains(word) && !remedy.contains("free some space"), "{errno}: {remedy}");
        }
    }
}
