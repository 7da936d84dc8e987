//! Lines of the recorder and of COMMAND, which wait until the screen is gone: it has the terminal.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that are kept, the last ones.
const MOST: usize = 64 << 10;
/// Time to wait for the end of the lines: a program that COMMAND has left behind may hold the pipe.
const PATIENCE: Duration = Duration::from_millis(300);

/// Last bytes of the lines.
type Kept = Arc<Mutex<VecDeque<u8>>>;

/// Lines on their way.
pub(super) struct Output {
    kept: Kept,
    end: Receiver<()>,
    /// The end to write to, until the recorder has it.
    writer: Option<PipeWriter>,
}

impl Output {
    /// Starts to take lines.
    pub(super) fn new() -> io::Result<Output> {
        let (reader, writer) = io::pipe()?;
        let (at_end, end) = channel();
        let kept = Kept::default();
        let into = Arc::clone(&kept);
        thread::Builder::new().name("output".into()).spawn(move || take(reader, &into, at_end))?;
        Ok(Output { kept, end, writer: Some(writer) })
    }

    /// Takes the two ends to write to off.
    pub(super) fn ends(&mut self) -> io::Result<[PipeWriter; 2]> {
        let writer = self.writer.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok([writer.try_clone()?, writer])
    }

    /// Writes the lines to standard error.
    pub(super) fn show(&self) {
        // The thread hangs up at the end.
        let _ = self.end.recv_timeout(PATIENCE);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = io::stderr().write_all(kept.make_contiguous());
    }
}

/// Takes bytes until the other end is closed.
fn take(mut reader: PipeReader, kept: &Kept, _at_end: Sender<()>) {
    let mut buffer = vec![0; 4096];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&buffer[..len]);
                let surplus = kept.len().saturating_sub(MOST);
                kept.drain(..surplus);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
