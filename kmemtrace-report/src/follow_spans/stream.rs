//! Stream of interleaved blocks on standard input.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kmemtrace::Trace;
use kmemtrace::follow::Follower;
use kmemtrace_abi::open::stream::StreamInput;
use rustix::io::Errno;

use super::stop::{Deadline, Next, Stop, Waited};

/// Name in messages.
const NAME: &str = "standard input";
/// Bytes to read at once.
const AT_ONCE: usize = 1 << 20;
/// Bytes that may wait for a CPU that tells nothing: what others recorded is shown without it then.
const MAX_WAITING: usize = 32 << 20;
/// Time between two looks where nothing comes.
const PAUSE: Duration = Duration::from_millis(100);

/// Stream on standard input.
pub(super) struct StandardInput {
    pub(super) input: StreamInput,
    bytes: Vec<u8>,
    has_ended: bool,
    deadline: Deadline,
}

impl StandardInput {
    /// Reads the first blocks; no trace where a signal came first.
    pub(super) fn open(stop: &Stop) -> anyhow::Result<(StandardInput, Option<Trace>)> {
        if io::stdin().is_terminal() {
            anyhow::bail!("{NAME}: is a terminal: pipe the stream of kmemtraced watch into it, or name a directory");
        }
        let input = StreamInput::new(Path::new(NAME));
        let (bytes, deadline) = (vec![0; AT_ONCE], Deadline::default());
        let mut stream = StandardInput { input, bytes, has_ended: false, deadline };
        loop {
            if let Some(trace) = stream.input.trace()? {
                return Ok((stream, Some(trace)));
            }
            if stop.is_over(&mut stream.deadline) {
                return Ok((stream, None));
            }
            stream.read(stop)?;
        }
    }

    /// Waits for bytes and takes them, or the end.
    fn read(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let stdin = io::stdin();
        if stop.wait(Some(stdin.as_fd()), PAUSE)? == Waited::Time {
            return Ok(());
        }
        match rustix::io::read(stdin.as_fd(), &mut self.bytes) {
            Ok(0) => self.end(),
            Ok(len) => Ok(self.input.take(self.bytes.get(..len).unwrap_or_default())?),
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(error) => Err(io::Error::from(error)).with_context(|| format!("{NAME}: cannot be read")),
        }
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.has_ended = true;
        Ok(self.input.end()?)
    }

    /// True where more waits for a CPU that tells nothing than may wait.
    pub(super) fn is_full(&self) -> bool {
        self.input.bytes_waiting() > MAX_WAITING
    }

    /// Reads the rest, where the streams of all CPUs have ended: a recorder whose reader is gone would fail.
    pub(super) fn drain(&mut self, stop: &Stop) -> anyhow::Result<()> {
        while !self.has_ended && !self.input.has_ended() {
            if stop.is_over(&mut self.deadline) {
                return self.end();
            }
            self.read(stop)?;
        }
        Ok(())
    }

    /// Waits for more.
    pub(super) fn next(&mut self, follower: &mut Follower<'_>, stop: &Stop) -> anyhow::Result<Next> {
        if self.has_ended {
            return Ok(Next::Stopped);
        }
        if stop.is_over(&mut self.deadline) {
            self.end()?;
            return Ok(Next::More);
        }
        self.read(stop)?;
        let later = self.input.take_later();
        follower.add_comms(later.comms);
        follower.add_cgroups(&later.cgroups);
        Ok(Next::More)
    }
}
