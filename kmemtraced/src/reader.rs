//! One thread per CPU, pinned to it, that moves bytes from the kernel's buffer into blocks and does nothing else.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use kmemtrace_abi::block::HEADER_BYTES;
use kmemtrace_abi::format::PageShape;
use kmemtrace_abi::subbuffer::trimmed_len;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::tracefs::{Stats, StatsFile};

/// Bytes of a block buffer; larger where a sub-buffer is.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// A sub-buffer with more room than this left is one that the kernel still writes to.
const PARTIAL_ROOM: usize = 256;
/// Time to leave the kernel alone after a partial sub-buffer: taking it as soon as it is there would feed itself.
const PAUSE: Duration = Duration::from_millis(5);
/// How soon a stop is noticed.
const NOTICE: Duration = Duration::from_millis(50);
/// How often the counters are looked at.
const COUNT: Duration = Duration::from_secs(1);
/// How often the end is asked for what another CPU has reserved and not yet committed.
const LAST_TRIES: u32 = 40;

/// What goes to the writer.
pub(crate) enum Message {
    /// Room for a block header, then this many bytes of sub-buffers.
    Data(Vec<u8>, usize),
    /// The counters now.
    Stats(Stats),
}

/// What a reader thread works with.
pub(crate) struct Reader {
    pub(crate) raw: File,
    pub(crate) stats: StatsFile,
    pub(crate) shape: PageShape,
    pub(crate) flush: Duration,
    pub(crate) full: Sender<Message>,
    pub(crate) free: Receiver<Vec<u8>>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Reader {
    /// Drains the CPU until it is told to stop and nothing is left.
    pub(crate) fn run(mut self) {
        let Ok(mut buffer) = self.free.recv() else { return };
        let mut used = 0;
        let (mut flushed, mut counted) = (Instant::now(), Instant::now());
        let mut tries = 0;
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            let due = flushed.elapsed() >= self.flush;
            let mut whole = 0;
            if self.readable() || due || stopping {
                match self.round(&mut buffer, &mut used) {
                    Some(taken) => whole = taken,
                    None => return,
                }
            }
            if due || stopping {
                flushed = Instant::now();
                if used > 0 && !self.hand_over(&mut buffer, &mut used) {
                    return;
                }
            }
            if counted.elapsed() >= COUNT || stopping {
                counted = Instant::now();
                let Ok(stats) = self.stats.read() else { return };
                tries += u32::from(stopping);
                let last = stopping && (stats.entries == 0 || tries >= LAST_TRIES);
                if self.full.send(Message::Stats(stats)).is_err() || last {
                    return;
                }
            }
            // Nothing whole was there: a kernel before 6.1 wakes us for every event.
            if whole == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.raw, PollFlags::IN)];
        let wait = NOTICE.min(self.flush);
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        !self.stop.load(Ordering::Acquire) && rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|n| n > 0)
    }

    /// Takes whole sub-buffers until there is none, and says how many; a partial one ends the round. `None`: nobody
    /// writes any more.
    fn round(&mut self, buffer: &mut Vec<u8>, used: &mut usize) -> Option<usize> {
        let size = self.shape.size;
        let mut whole = 0;
        loop {
            if HEADER_BYTES + *used + size > buffer.len() && !self.hand_over(buffer, used) {
                return None;
            }
            let at = HEADER_BYTES + *used;
            match self.raw.read(&mut buffer[at..at + size]) {
                // 0 is no end: the kernel says it of an empty buffer, too.
                Ok(0) => return Some(whole),
                Ok(n) => {
                    // What cannot be walked is kept whole, for the reader of the trace to name.
                    let trimmed = trimmed_len(&self.shape, &buffer[at..at + n]).unwrap_or(n);
                    *used += trimmed;
                    if trimmed + PARTIAL_ROOM < size {
                        return Some(whole);
                    }
                    whole += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Nothing there, or a CPU that was never online.
                Err(_) => return Some(whole),
            }
        }
    }

    /// Gives the buffer to the writer and takes an empty one; waits for it where the disk stalls, and the kernel's
    /// buffer fills meanwhile.
    fn hand_over(&self, buffer: &mut Vec<u8>, used: &mut usize) -> bool {
        let full = std::mem::take(buffer);
        if self.full.send(Message::Data(full, std::mem::take(used))).is_err() {
            return false;
        }
        match self.free.recv() {
            Ok(empty) => {
                *buffer = empty;
                true
            }
            Err(_) => false,
        }
    }
}
