//! Input that is followed.

use std::path::Path;

use kmemtrace::Trace;
use kmemtrace::follow::Follower;

use super::directory::Growing;
use super::stop::{Next, Stop};
use super::stream::StandardInput;
use crate::cli::Request;

/// Name of a stream on standard input.
const STREAM: &str = "-";

/// Input that is followed.
pub(super) enum Input {
    Stream(Box<StandardInput>),
    Directory(Growing),
}

impl Input {
    /// Opens the input that the command line names; no trace where a signal came first.
    pub(super) fn open(request: &Request, stop: &Stop) -> anyhow::Result<(Input, Option<Trace>)> {
        let inputs = request.inputs();
        if inputs.first().is_some_and(|path| path == Path::new(STREAM)) {
            let (stream, trace) = StandardInput::open(stop)?;
            return Ok((Input::Stream(Box::new(stream)), trace));
        }
        let (growing, trace) = Growing::open(request, stop)?;
        Ok((Input::Directory(growing), trace))
    }

    /// Waits for more.
    pub(super) fn next(&mut self, trace: &mut Trace, follower: &mut Follower<'_>, stop: &Stop) -> anyhow::Result<Next> {
        match self {
            Input::Stream(stream) => stream.next(follower, stop),
            Input::Directory(growing) => growing.next(trace, stop),
        }
    }

    /// True where a CPU that tells nothing is not to be waited for any more.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Input::Stream(stream) if stream.is_full())
    }

    /// Reads what stands behind the last events.
    pub(super) fn drain(&mut self, stop: &Stop) -> anyhow::Result<()> {
        match self {
            Input::Stream(stream) => stream.drain(stop),
            Input::Directory(growing) => growing.drain(stop),
        }
    }

    /// Completes the findings about the input.
    pub(super) fn report(&mut self, request: &Request, trace: &mut Trace) {
        match self {
            Input::Stream(stream) => stream.input.report(trace),
            Input::Directory(growing) => growing.report(request, trace),
        }
    }
}
