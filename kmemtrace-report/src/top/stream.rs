//! The stream of a recorder, from which a viewer takes everything.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context;
use kmemtrace::Trace;
use kmemtrace_abi::disk::block::{END_ERROR, END_LIMIT};
use kmemtrace_abi::open::stream::{LaterNames, StreamInput};
use kmemtrace_abi::trace::Metadata;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Descriptor of the stream.
const NUMBER: i32 = kmemtrace_sandbox::child::FIRST_PASSED;
/// Name in messages.
const NAME: &str = "the stream";
/// Bytes to read at once, and in one round at most.
const AT_ONCE: usize = 1 << 20;
const IN_A_ROUND: usize = 16 << 20;
/// Bytes that may wait for the screen: the recorder leaves out what does not fit into its own queue then.
const MAX_WAITING: usize = 32 << 20;

/// Stream of a recorder.
pub(super) struct Stream {
    pipe: OwnedFd,
    input: StreamInput,
    bytes: Vec<u8>,
    has_ended: bool,
    /// All symbols, modules and command names up to now.
    names: Metadata,
    /// Bytes of names so far.
    pub(super) bytes_of_names: u64,
}

impl Stream {
    /// Takes the stream over.
    pub(super) fn open() -> anyhow::Result<Stream> {
        let pipe = kmemtrace_sandbox::inherited(NUMBER)
            .context("top: --viewer is for kmemtraced top, which passes a stream on as descriptor 3")?;
        // Reading all that is there must not wait for more.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let (input, names) = (StreamInput::new(Path::new(NAME)), Metadata::default());
        Ok(Stream { pipe, input, bytes: vec![0; AT_ONCE], has_ended: false, names, bytes_of_names: 0 })
    }

    /// Waits for the first blocks.
    pub(super) fn trace(&mut self) -> anyhow::Result<Trace> {
        loop {
            if let Some(trace) = self.input.trace()? {
                let of = &trace.metadata;
                self.names = Metadata {
                    kallsyms: of.kallsyms.clone(),
                    modules: of.modules.clone(),
                    comms: of.comms.clone(),
                    meminfo_start: of.meminfo_start.clone(),
                    ..Metadata::default()
                };
                return Ok(trace);
            }
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => self.read()?,
                Err(error) => return Err(io::Error::from(error).into()),
            };
        }
    }

    /// Takes all that is there, as far as there is room; true where that was something.
    pub(super) fn take_more(&mut self) -> anyhow::Result<bool> {
        let mut taken = 0;
        while !self.has_ended && taken < IN_A_ROUND && self.input.bytes_waiting() < MAX_WAITING {
            match self.read()? {
                0 => break,
                len => taken += len,
            }
        }
        let LaterNames { comms, kallsyms, modules, meminfo_start, .. } = self.input.take_later();
        let bytes = kallsyms.len() + modules.len() + meminfo_start.len() + comms.len();
        self.bytes_of_names += bytes as u64;
        self.names.comms.extend(comms);
        self.names.kallsyms.extend(kallsyms);
        self.names.modules.extend(modules);
        if !meminfo_start.is_empty() {
            self.names.meminfo_start = meminfo_start;
        }
        Ok(taken > 0)
    }

    /// Reads once; returns the number of bytes, 0 where there are none now or at all.
    fn read(&mut self) -> anyhow::Result<usize> {
        match rustix::io::read(&self.pipe, &mut self.bytes) {
            Ok(0) => {
                self.has_ended = true;
                self.input.end()?;
                Ok(0)
            }
            Ok(len) => {
                self.input.take(self.bytes.get(..len).unwrap_or_default())?;
                Ok(len)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(0),
            Err(error) => Err(io::Error::from(error)).with_context(|| format!("{NAME}: cannot be read")),
        }
    }

    /// True while a recorder writes.
    pub(super) fn has_recorder(&self) -> bool {
        !self.has_ended
    }

    /// All names that have come.
    pub(super) fn names(&self) -> Metadata {
        self.names.clone()
    }

    /// Reason for which the recording has ended.
    pub(super) fn reason(&self) -> &'static str {
        match self.input.end_reasons().as_deref() {
            None => "the recorder was killed",
            Some(reasons) if reasons.contains(&END_ERROR) => "the recorder failed",
            Some(reasons) if reasons.contains(&END_LIMIT) => "its limit was reached",
            Some(_) => "the recorder was stopped",
        }
    }
}
