//! The stream: blocks of all files of a recording, through one pipe to the program that shows them.

use std::io::{self, PipeWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Room of the pipe, bytes: as much as any user may ask for. A pipe keeps its 64 KiB where the kernel refuses.
const ROOM: usize = 1 << 20;
/// Longest wait before the flag is polled again, nanoseconds.
const POLL_INTERVAL: i64 = 50_000_000;

/// A stream that several threads write to.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The pipe; `None` once it is closed. Its lock keeps blocks whole.
    pipe: Mutex<Option<PipeWriter>>,
    /// True once the program at the other end takes no more.
    is_broken: AtomicBool,
    /// Set by a second stop signal: threads stop waiting.
    abandon: Arc<AtomicBool>,
}

impl Stream {
    /// A stream through this pipe, until `abandon`.
    pub(crate) fn new(pipe: PipeWriter, abandon: &Arc<AtomicBool>) -> io::Result<Stream> {
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, ROOM);
        // A write that blocks would not see the flag.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let pipe = Mutex::new(Some(pipe));
        Ok(Stream(Arc::new(Shared { pipe, is_broken: AtomicBool::new(false), abandon: Arc::clone(abandon) })))
    }

    /// Writes a whole block; waits while the pipe is full. Blocks after the end of the other program are dropped.
    pub(crate) fn put(&self, block: &[u8]) {
        let mut pipe = self.0.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = pipe.as_mut() else { return };
        if !self.is_written(open, block) {
            self.0.is_broken.store(true, Ordering::Release);
            *pipe = None;
        }
    }

    /// True once the block is in the pipe.
    fn is_written(&self, pipe: &mut PipeWriter, mut block: &[u8]) -> bool {
        while !block.is_empty() {
            match pipe.write(block) {
                Ok(len) => block = block.get(len..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.0.abandon.load(Ordering::Acquire) || !can_wait(pipe) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// True once the program at the other end takes no more.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_broken.load(Ordering::Acquire)
    }

    /// Ends the stream: the program at the other end has all blocks.
    pub(crate) fn close(&self) {
        self.0.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Waits for room, a moment; false where that fails.
fn can_wait(pipe: &PipeWriter) -> bool {
    let moment = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL };
    matches!(poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&moment)), Ok(_) | Err(Errno::INTR))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn stream() -> (io::PipeReader, Stream, Arc<AtomicBool>) {
        let (reader, writer) = io::pipe().unwrap();
        let abandon = Arc::default();
        let stream = Stream::new(writer, &abandon).unwrap();
        (reader, stream, abandon)
    }

    #[test]
    fn blocks_of_several_threads_stay_whole_beside_a_slow_reader() {
        let (mut reader, stream, _) = stream();
        let writers = [1_u8, 2, 3].map(|byte| {
            let stream = stream.clone();
            thread::spawn(move || (0..40).for_each(|_| stream.put(&[byte; 100_000])))
        });
        let mut block = vec![0; 100_000];
        let mut blocks = [0; 4];
        for number in 0..120 {
            if number % 30 == 0 {
                thread::sleep(Duration::from_millis(100));
            }
            reader.read_exact(&mut block).unwrap();
            assert!(block.iter().all(|byte| *byte == block[0]), "block {number} is torn");
            blocks[usize::from(block[0])] += 1;
        }
        assert_eq!(blocks, [0, 40, 40, 40]);
        writers.map(|writer| writer.join().unwrap());
        stream.close();
        assert_eq!(reader.read(&mut block).unwrap(), 0);
        assert!(!stream.is_broken());
    }

    #[test]
    fn a_reader_that_is_gone_or_given_up_holds_up_no_writer() {
        let (reader, gone, _) = stream();
        drop(reader);
        gone.put(&[1; 10]);
        gone.put(&[1; 10]);
        assert!(gone.is_broken());
        let (_reader, held, abandon) = stream();
        let writer = {
            let held = held.clone();
            thread::spawn(move || held.put(&vec![1; 8 << 20]))
        };
        thread::sleep(Duration::from_millis(120));
        assert!(!writer.is_finished() && !held.is_broken());
        abandon.store(true, Ordering::Release);
        writer.join().unwrap();
        assert!(held.is_broken());
    }
}
