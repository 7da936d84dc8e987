//! The stream: blocks of all files of a recording, through one pipe to the program that shows them.
//!
//! A thread of its own writes to the pipe, so that a slow reader holds up no other thread: blocks wait in a queue. What does not fit into
//! it is left out, and a mark stands for it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use kmemtrace_abi::disk::left_out::LeftOut;
use kmemtrace_sandbox::{Mode, Role};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::choices::Priority;
use crate::process::confine;
use crate::process::thread::{not_started, own_tid, raise};

/// Room of the pipe, bytes: as much as any user may ask for. A pipe keeps its 64 KiB where the kernel refuses.
const ROOM: usize = 1 << 20;
/// Bytes that wait for the reader at most.
const MOST: usize = 32 << 20;
/// Room beyond that for small blocks that tell of loss or of the end, bytes.
const SPARE: usize = 4 << 20;
/// Bytes that wait when blocks are taken again after some were left out: one gap is better than many.
const AGAIN: usize = MOST / 2;
/// Longest wait before flags are polled again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Stack of the thread, bytes.
const STACK: usize = 256 << 10;

/// A stream that several threads write to.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// True once the program at the other end takes no more.
    is_broken: AtomicBool,
    /// What waits is given up.
    is_given_up: AtomicBool,
    /// Set by a second stop signal: threads stop waiting.
    abandon: Arc<AtomicBool>,
    /// Thread id of the thread that writes.
    tid: i32,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Box<[u8]>>,
    /// Bytes of the blocks that wait, with that on its way.
    bytes: usize,
    /// Blocks are left out until there is room for many.
    is_full: bool,
    /// Blocks of each file that were left out since the last one that was not.
    left_out: BTreeMap<u32, LeftOut>,
    /// Events left out so far.
    events_left_out: u64,
    blocks_left_out: u64,
    /// No more blocks come.
    is_closed: bool,
    /// The thread has ended.
    is_over: bool,
}

/// What a reader did not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotSent {
    pub(crate) blocks: u64,
    pub(crate) events: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_no_patience(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire) || self.abandon.load(Ordering::Acquire)
    }

    /// Writes what comes until the stream is closed.
    fn write(&self, mut pipe: PipeWriter) {
        while let Some(block) = self.next() {
            if !self.is_written(&mut pipe, &block) {
                self.is_broken.store(true, Ordering::Release);
                break;
            }
            self.lock().bytes -= block.len();
        }
        drop(pipe);
        let mut queue = self.lock();
        (queue.waiting, queue.bytes, queue.is_over) = (VecDeque::new(), 0, true);
        self.changed.notify_all();
    }

    /// The next block; `None` at the end.
    fn next(&self) -> Option<Box<[u8]>> {
        let mut queue = self.lock();
        loop {
            if let Some(block) = queue.waiting.pop_front() {
                return Some(block);
            }
            if queue.is_closed || self.has_no_patience() {
                return None;
            }
            queue = self.changed.wait_timeout(queue, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// True once the block is in the pipe.
    fn is_written(&self, pipe: &mut PipeWriter, mut block: &[u8]) -> bool {
        while !block.is_empty() {
            match pipe.write(block) {
                Ok(len) => block = block.get(len..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.has_no_patience() || !can_wait(pipe) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }
}

impl Queue {
    /// Takes a block on, or leaves it out.
    fn take(&mut self, block: &[u8]) {
        let Some(header) = LeftOut::header(block) else { return };
        let (cpu, may_be_left_out) = (header.cpu.get(), LeftOut::may_be(header.kind));
        self.is_full &= self.bytes > AGAIN;
        let room = if may_be_left_out { MOST } else { MOST + SPARE };
        let has_room = self.bytes + block.len() <= room && !(self.is_full && may_be_left_out);
        if !has_room || !self.push_behind_mark(cpu, block) {
            self.is_full = true;
            let left_out = LeftOut::of(&header);
            self.blocks_left_out += 1;
            self.events_left_out += u64::from(header.events.get());
            self.left_out.entry(cpu).and_modify(|before| before.add(left_out)).or_insert(left_out);
        }
    }

    /// Puts a block behind the mark of those that were left out before it; false where there is no memory for it.
    fn push_behind_mark(&mut self, cpu: u32, block: &[u8]) -> bool {
        let mut copy = Vec::new();
        if copy.try_reserve_exact(block.len()).is_err() {
            return false;
        }
        copy.extend_from_slice(block);
        if let Some(left_out) = self.left_out.remove(&cpu) {
            self.push(left_out.mark().into());
        }
        self.push(copy.into());
        true
    }

    fn push(&mut self, block: Box<[u8]>) {
        self.bytes += block.len();
        self.waiting.push_back(block);
    }
}

impl Stream {
    /// A stream through this pipe, until `abandon`; its thread is in a sandbox of its own.
    pub(crate) fn new(
        pipe: OwnedFd,
        abandon: &Arc<AtomicBool>,
        priority: Priority,
        sandbox: Mode,
    ) -> anyhow::Result<Stream> {
        let name = "stream";
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, ROOM);
        // A write that blocks would not see the flags.
        rustix::io::ioctl_fionbio(&pipe, true).context("the stream cannot be set up")?;
        let (tid_out, tid_in) = crossbeam_channel::bounded(1);
        let (shared_out, shared_in) = crossbeam_channel::bounded::<Arc<Shared>>(1);
        let work = move || {
            // A machine that keeps it waiting would have blocks left out.
            raise(priority);
            let closed = confine::close(&confine::sandbox(Role::Writer), sandbox);
            let _ = tid_out.send(closed.map(|_| own_tid()));
            if let Ok(shared) = shared_in.recv() {
                shared.write(PipeWriter::from(pipe));
            }
        };
        let started = thread::Builder::new().name(name.into()).stack_size(STACK).spawn(work);
        started.map_err(|error| not_started(name, &error))?;
        let tid = tid_in.recv().map_err(|error| not_started(name, &io::Error::other(error)))??;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            is_broken: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            abandon: Arc::clone(abandon),
            tid,
        });
        let _ = shared_out.send(Arc::clone(&shared));
        Ok(Stream(shared))
    }

    /// Thread id of the thread that writes.
    pub(crate) fn tid(&self) -> i32 {
        self.0.tid
    }

    /// Takes a whole block on; never waits for the reader. Blocks after the end of the other program are dropped.
    pub(crate) fn put(&self, block: &[u8]) {
        if self.is_broken() {
            return;
        }
        let mut queue = self.0.lock();
        if !queue.is_closed && !queue.is_over {
            queue.take(block);
            self.0.changed.notify_all();
        }
    }

    /// True once the program at the other end takes no more.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.is_broken.load(Ordering::Acquire)
    }

    /// What was left out because the reader was too slow.
    pub(crate) fn not_sent(&self) -> NotSent {
        let queue = self.0.lock();
        NotSent { blocks: queue.blocks_left_out, events: queue.events_left_out }
    }

    /// Ends the stream: waits until the reader has taken all that waits, as long as `goes_on` says so.
    pub(crate) fn close(&self, goes_on: impl Fn() -> bool) {
        let mut queue = self.0.lock();
        queue.is_closed = true;
        self.0.changed.notify_all();
        while !queue.is_over {
            if !goes_on() {
                self.0.is_given_up.store(true, Ordering::Release);
            }
            queue = self.0.changed.wait_timeout(queue, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Waits for room, a moment; false where that fails.
fn can_wait(pipe: &PipeWriter) -> bool {
    let moment = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    matches!(poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&moment)), Ok(_) | Err(Errno::INTR))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use kmemtrace_abi::disk::block::{BlockInfo, GAP_NOT_SENT, GapRecord, HEADER_BYTES, block, kind};

    use super::*;

    fn stream() -> (io::PipeReader, Stream, Arc<AtomicBool>) {
        let (reader, writer) = io::pipe().unwrap();
        let abandon = Arc::default();
        let stream = Stream::new(writer.into(), &abandon, Priority::None, Mode::Off).unwrap();
        (reader, stream, abandon)
    }

    fn of_kind(kind: u8, cpu: u32, sequence: u64) -> Vec<u8> {
        let info =
            BlockInfo { kind, cpu, sequence, events: 10, first: sequence, last: sequence, ..BlockInfo::default() };
        block(&info, &vec![cpu as u8; 256 << 10])
    }

    /// The next block.
    fn next(reader: &mut io::PipeReader) -> Option<(u8, u32, u64, Vec<u8>)> {
        let mut bytes = vec![0; HEADER_BYTES];
        reader.read_exact(&mut bytes).ok()?;
        let header = LeftOut::header(&bytes).unwrap();
        let mut payload = vec![0; header.payload_len.get() as usize];
        reader.read_exact(&mut payload).unwrap();
        Some((header.kind, header.cpu.get(), header.sequence.get(), payload))
    }

    #[test]
    fn blocks_of_several_threads_stay_whole_beside_a_slow_reader() {
        let (mut reader, stream, _) = stream();
        let writers = [1, 2, 3].map(|cpu| {
            let stream = stream.clone();
            thread::spawn(move || (0..30).for_each(|sequence| stream.put(&of_kind(kind::DATA, cpu, sequence))))
        });
        let mut blocks = [0; 4];
        for number in 0..90 {
            if number % 30 == 0 {
                thread::sleep(Duration::from_millis(100));
            }
            let (_, cpu, sequence, payload) = next(&mut reader).unwrap();
            assert!(payload.iter().all(|byte| u32::from(*byte) == cpu), "block {number} is torn");
            assert_eq!(sequence, blocks[cpu as usize]);
            blocks[cpu as usize] += 1;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stream.close(|| true);
        assert_eq!(next(&mut reader), None);
        assert!(!stream.is_broken());
        assert_eq!(stream.not_sent(), NotSent::default());
    }

    #[test]
    fn what_a_slow_reader_has_no_room_for_is_left_out_with_a_mark() {
        let (mut reader, stream, _) = stream();
        for sequence in 0..300 {
            stream.put(&of_kind(kind::DATA, 1, sequence));
        }
        stream.put(&of_kind(kind::END, 1, 300));
        let not_sent = stream.not_sent();
        assert!(not_sent.blocks > 100 && not_sent.events == not_sent.blocks * 10, "{not_sent:?}");
        let closing = {
            let stream = stream.clone();
            thread::spawn(move || stream.close(|| true))
        };
        let (mut expected, mut marked) = (0, 0);
        while let Some((kind, _, sequence, payload)) = next(&mut reader) {
            if kind == kind::GAP {
                let (gap, _) = GapRecord::parse(&payload).unwrap();
                assert_eq!(gap.reason.get(), GAP_NOT_SENT);
                assert_eq!(gap.lost.get(), (sequence + 1 - expected) * 10);
                assert_eq!(gap.interval.ends(), Some((Some(expected), Some(sequence))));
                marked += gap.lost.get();
                expected = sequence;
            }
            assert_eq!(sequence, expected);
            expected += 1;
        }
        closing.join().unwrap();
        assert_eq!((expected, marked), (301, not_sent.events), "the end is there");
    }

    #[test]
    fn a_reader_that_is_gone_or_given_up_holds_up_nobody() {
        let (reader, gone, _) = stream();
        drop(reader);
        gone.put(&of_kind(kind::DATA, 1, 0));
        gone.close(|| true);
        assert!(gone.is_broken());
        for abandons in [false, true] {
            let (_reader, held, abandon) = stream();
            (0..10).for_each(|sequence| held.put(&of_kind(kind::DATA, 1, sequence)));
            abandon.store(abandons, Ordering::Release);
            let begun = Instant::now();
            held.close(|| abandons || begun.elapsed() < Duration::from_millis(200));
            assert!(held.is_broken());
        }
    }
}
