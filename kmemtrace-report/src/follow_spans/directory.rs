//! Directory that a recorder is writing, or has written.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kmemtrace::Trace;
use kmemtrace::whole_file::Directory;

use super::stop::{Next, Stop};
use crate::cli::Request;
use crate::report;

/// Time that a recorder may take from its first file of a CPU to its last one.
const STARTING: Duration = Duration::from_secs(5);
/// Time that a recorder may take from its last events to its end.
const ENDING: Duration = Duration::from_secs(5);
/// Time between two looks at the files.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between two looks at the recorder.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// Directory that may grow.
pub(super) struct Growing {
    path: PathBuf,
    looked: Instant,
    grows: bool,
}

impl Growing {
    /// Opens the trace; none where a signal came first.
    pub(super) fn open(request: &Request, stop: &Stop) -> anyhow::Result<(Growing, Option<Trace>)> {
        let inputs = request.inputs();
        let path = inputs.first().cloned().unwrap_or_default();
        let begun = Instant::now();
        let mut growing = Growing { path, looked: begun, grows: false };
        growing.grows = growing.has_recorder();
        loop {
            // A recorder that has just started is still making its files. Until it has one there is nothing to follow.
            let is_early = growing.grows && begun.elapsed() < STARTING;
            match report::open(request, &inputs) {
                Ok(trace) if growing.grows && !trace.has_any_file() => growing.grows = growing.has_recorder(),
                Ok(mut trace) if trace.has_all_files() || !is_early => {
                    trace.streams.iter_mut().for_each(|stream| stream.follow(growing.grows));
                    return Ok((growing, Some(trace)));
                }
                Err(error) if !is_early => return Err(error),
                Ok(_) | Err(_) => {}
            }
            if stop.take() {
                return Ok((growing, None));
            }
            stop.wait(None, PAUSE)?;
        }
    }

    /// True while a recorder holds the directory. It is opened anew each time: a lock that this look gets is given back at once.
    fn has_recorder(&self) -> bool {
        Directory::open(&self.path).is_ok_and(|directory| !directory.lock())
    }

    /// Waits for the recorder to write its last names, which come behind the last events.
    pub(super) fn drain(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.grows && begun.elapsed() < ENDING && !stop.take() {
            stop.wait(None, PAUSE)?;
            self.grows = self.has_recorder();
        }
        Ok(())
    }

    /// Findings about the names as they are now; none while the recorder still writes them.
    pub(super) fn report(&self, request: &Request, trace: &mut Trace) {
        let names = report::open(request, &request.inputs()).ok().map(|trace| trace.metadata.report);
        trace.metadata.report = names.flatten().filter(|_| !self.grows);
    }

    /// Waits for more.
    pub(super) fn next(&mut self, trace: &mut Trace, stop: &Stop) -> anyhow::Result<Next> {
        if stop.take() {
            return Ok(Next::Stopped);
        }
        stop.wait(None, PAUSE)?;
        if self.looked.elapsed() >= BETWEEN_LOOKS {
            self.looked = Instant::now();
            self.grows &= self.has_recorder();
            if !self.grows {
                // The rest is as much as there will be.
                trace.streams.iter_mut().for_each(|stream| stream.follow(false));
            }
        }
        Ok(Next::More)
    }
}
