//! The reader thread of a CPU, pinned to it: it moves bytes from the kernel's buffer into blocks and does nothing else.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender};
use kmemtrace_abi::disk::block::Watermark;
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::relay;
use kmemtrace_abi::kernel::subbuffer::{forget_number, trimmed_len};
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::text::units::counted;
use rustix::io::Errno;

use crate::source::stop::Stop;
use crate::source::{CpuSource, Framing, RelayFraming, Sample};
use crate::write::block_buffer::BlockBuffer;
use crate::write::block_pool::BlockPool;
use crate::write::overruns::{OverrunWatch, Overruns};

/// Bytes of a block's payload; more where a sub-buffer is larger.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// Most free bytes of a full sub-buffer: the kernel still writes to one with more.
const MAX_FREE: usize = 256;
/// Bytes of a relay channel after which the reader comes back without a pause.
const BUSY_BYTES: usize = 32 << 10;
/// Pause after a partial sub-buffer. Reading without it would cause events that are read in turn.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest wait for the writer before the flag of a second stop signal is looked at again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for data. Kernels have had bugs that left a waiting reader asleep, and the buffer must not fill up meanwhile.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// Interval between two samples of the counters.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Drain attempts after the stop: at least 2, at most 40, for events that another CPU reserved and has not committed yet.
const DRAIN_ATTEMPTS: std::ops::Range<u32> = 2..40;
/// Attempts at the end of these that got no byte from a buffer with events: the kernel has stopped such a buffer, after an error of its own
/// (`RB_WARN_ON` in `kernel/trace/ring_buffer.c`, Linux 6.18), and does not tell its readers.
const STUCK_ATTEMPTS: u32 = 20;
/// Time between the reservation of an event and its commit, nanoseconds, rounded up generously. A reader on its CPU finds no event
/// between the two; one of a CPU that was offline for a while may run elsewhere.
const WATERMARK_SLACK: u64 = 10_000_000;

/// Message to the writer.
pub(crate) enum Message {
    /// Whole sub-buffers, or whole records.
    Data(BlockBuffer),
    /// Counters, or the reason why they cannot be read.
    Counters(io::Result<Sample>),
    /// Reason why the buffer cannot be read: events may stay in it.
    Unreadable(io::Error),
    /// Time before which no event is read any more.
    Watermark(Watermark),
    /// Reasons why the kernel's buffer overran, at the end.
    Overruns(Overruns),
    /// Why no more comes of the buffer, though it may have events: the last message.
    Cut(String),
}

/// End of a reader: the writer has ended, or all is abandoned.
struct Gone;

/// Connections, settings and state of a reader thread.
pub(crate) struct Reader {
    pub(crate) source: Box<dyn CpuSource>,
    pub(crate) framing: Arc<Framing>,
    /// Longest time that an event stays in the kernel's buffer.
    pub(crate) flush: Duration,
    pub(crate) full: Sender<Message>,
    pub(crate) pool: BlockPool,
    pub(crate) stop: Arc<Stop>,
    /// Set by a second stop signal: the thread ends at once and leaves unread events in the kernel.
    pub(crate) abandon: Arc<AtomicBool>,
    /// True if the writer is told how far the events are taken each flush interval; else behind events only.
    pub(crate) watermarks: bool,
    /// Bytes of the kernel's buffer of this CPU; 0 where they are not known.
    pub(crate) buffer_bytes: u64,
    pub(crate) state: State,
}

/// State of a reader thread.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// True once the writer got the error of a read.
    is_error_reported: bool,
    /// Drain time: all events up to this time on the trace's clock were taken.
    drained: Option<u64>,
    /// Time of the last watermark.
    watermark: Option<u64>,
    /// Blocks that wait for the writer, counted with it.
    pub(crate) waiting: Arc<AtomicUsize>,
    /// Most bytes that one round has taken since the last watermark.
    most_taken: u64,
    /// True if the last watermark said that the buffer was empty: another one says nothing new while the CPU is idle.
    is_empty_told: bool,
    /// Reasons why the kernel's buffer overran.
    pub(crate) overruns: OverrunWatch,
    /// True once sub-buffers had another size than the first ones.
    is_resized: bool,
}

impl State {
    /// The state at the start, with the counter of waiting blocks.
    pub(crate) fn new(waiting: Arc<AtomicUsize>) -> State {
        State { waiting, ..State::default() }
    }
}

impl Reader {
    /// Waits for a message on `go`; false where its senders have ended.
    pub(crate) fn may_begin(&self, go: &Receiver<()>) -> bool {
        self.wait_for(go).is_ok()
    }

    /// Drains the CPU's buffer until `stop` is set and nothing is left.
    pub(crate) fn run(mut self) {
        // `Gone` is not reported: the writer knows the reason.
        let _ = self.drain();
    }

    fn drain(&mut self) -> Result<(), Gone> {
        let mut buffer = BlockBuffer::empty(self.take_memory()?);
        let (mut flushed, mut counted) = (Instant::now(), Instant::now());
        let (mut attempts, mut stuck) = (0, 0);
        // Events lost up to here are those from before the reader began.
        self.look();
        loop {
            self.state.overruns.begin_turn(Instant::now());
            if self.abandon.load(Ordering::Acquire) {
                return Err(Gone);
            }
            let stopping = self.stop.is_set();
            let left = self.flush.saturating_sub(flushed.elapsed());
            let (mut is_idle, held) = (false, buffer.payload().len());
            // Below its wake-up watermark the kernel reports no data, so the flush timer takes it.
            if stopping || left.is_zero() || self.source.wait(LONGEST_WAIT.min(left), &self.stop) {
                let begun = self.source.now().or_else(|| self.counted_now(left.is_zero()));
                let more = match &*Arc::clone(&self.framing) {
                    Framing::SubBuffers(shape) => self.sub_buffers(shape, &mut buffer)?,
                    Framing::Relay(_) => self.records(&mut buffer)?,
                };
                is_idle = !more;
                if self.state.overruns.is_behind() {
                    self.look();
                }
                if !self.state.is_error_reported {
                    self.state.drained = begun;
                }
            }
            let is_due = left.is_zero() || stopping;
            let sample = (counted.elapsed() >= SAMPLE_INTERVAL || stopping).then(|| self.sample());
            attempts += u32::from(stopping);
            let unread = sample.as_ref().and_then(|sample| Some(sample.as_ref().ok()?.stats.entries));
            let is_empty = unread == Some(0);
            let last = stopping && attempts >= DRAIN_ATTEMPTS.start && (is_empty || attempts >= DRAIN_ATTEMPTS.end);
            stuck = if stopping && !is_empty && buffer.payload().len() == held { stuck + 1 } else { 0 };
            // Blocks go to the writer before counters that were read after them.
            if (is_due || sample.is_some()) && !buffer.payload().is_empty() {
                self.hand_over(&mut buffer, last)?;
            }
            if is_due {
                flushed = Instant::now();
                self.send_watermark()?;
            }
            if let Some(sample) = sample {
                counted = Instant::now();
                self.send(Message::Counters(sample))?;
            }
            if last {
                self.send(Message::Overruns(self.state.overruns.overruns()))?;
                return match unread.filter(|_| stuck >= STUCK_ATTEMPTS && !self.state.is_error_reported) {
                    Some(events) => self.send(Message::Cut(stuck_buffer(events))),
                    None => Ok(()),
                };
            }
            // Linux before 6.1 wakes the reader for every event, with only a partial sub-buffer there.
            if is_idle {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Lower bound of the time on a clock that takes a system call, where a watermark `is_due`.
    fn counted_now(&self, is_due: bool) -> Option<u64> {
        let sample = (self.watermarks && is_due).then(|| self.source.sample().ok());
        sample.flatten()?.read.map(|(not_later, _)| not_later)
    }

    /// Sends a watermark behind the data of the drain before. None while the writer lags, which needs its queue for data, and none
    /// where the file would grow while nothing happens and no program reads along.
    fn send_watermark(&mut self) -> Result<(), Gone> {
        let is_late = self.full.capacity().is_some_and(|capacity| self.full.len() * 2 > capacity);
        let is_wanted = self.watermarks || self.state.most_taken > 0 || !self.state.is_empty_told;
        let time = self.state.drained.map(|time| time.saturating_sub(WATERMARK_SLACK));
        let Some(time) = time.filter(|time| is_wanted && !is_late && Some(*time) > self.state.watermark) else {
            return Ok(());
        };
        self.state.watermark = Some(time);
        self.state.is_empty_told = self.state.most_taken == 0;
        // A round may take more than the buffer holds: the kernel writes meanwhile.
        let most = std::mem::take(&mut self.state.most_taken).min(self.buffer_bytes);
        let filled = (most * 1000).checked_div(self.buffer_bytes).and_then(|filled| u32::try_from(filled).ok());
        self.send(Message::Watermark(Watermark::new(time, filled)))
    }

    /// Counters, with the drain time.
    fn sample(&mut self) -> io::Result<Sample> {
        let sample = self.source.sample()?;
        self.state.overruns.look(sample.stats.overrun, Instant::now());
        Ok(Sample { drained: self.state.drained, ..sample })
    }

    /// Reads the counters for the reasons of overruns alone; later counters make up for some that cannot be read.
    fn look(&mut self) {
        if let Ok(sample) = self.source.sample() {
            self.state.overruns.look(sample.stats.overrun, Instant::now());
        }
    }

    /// Takes sub-buffers until there is none, or a partial one that is not the first. True if one of them was whole.
    fn sub_buffers(&mut self, shape: &PageShape, buffer: &mut BlockBuffer) -> Result<bool, Gone> {
        let size = shape.size;
        // The first may be the rest of one that an earlier round read in part, with whole ones behind it.
        let (mut first, mut whole) = (true, false);
        let mut taken = 0;
        loop {
            if buffer.free_len() < size {
                self.hand_over(buffer, false)?;
            }
            match self.source.read(&mut buffer.free()[..size]) {
                // The kernel returns 0 for an empty buffer, too.
                Ok(0) => return Ok(whole),
                Ok(n) => {
                    let read = &mut buffer.free()[..n];
                    let trimmed = match trimmed_len(shape, read) {
                        Ok(trimmed) => trimmed,
                        Err(_) if self.is_resized(size) => trim_piece(shape, read),
                        // A sub-buffer that cannot be walked is kept whole: the tools report it.
                        Err(_) => n,
                    };
                    buffer.advance(trimmed);
                    taken += trimmed as u64;
                    self.state.most_taken = self.state.most_taken.max(taken);
                    let is_whole = trimmed + MAX_FREE >= n;
                    if !is_whole && !first {
                        return Ok(whole);
                    }
                    whole |= is_whole;
                    first = false;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return self.end_of_round(e).map(|()| whole),
            }
        }
    }

    /// True from when another program is found to have changed the size of the kernel's sub-buffers.
    fn is_resized(&mut self, size: usize) -> bool {
        self.state.is_resized |= self.source.sub_buffer_bytes().is_some_and(|now| now != size);
        self.state.is_resized
    }

    /// Takes all bytes of a relay channel. True if they were many.
    fn records(&mut self, buffer: &mut BlockBuffer) -> Result<bool, Gone> {
        let mut taken = 0;
        loop {
            if buffer.free_len() == 0 {
                self.hand_over(buffer, false)?;
            }
            match self.source.read(buffer.free()) {
                Ok(0) => return Ok(taken >= BUSY_BYTES),
                Ok(n) => {
                    buffer.advance(n);
                    taken += n;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return self.end_of_round(e).map(|()| taken >= BUSY_BYTES),
            }
        }
    }

    /// Ends a round after a read without bytes. EAGAIN: the buffer is empty. ENODEV: the CPU was never online. Any other reason is
    /// reported to the writer, once.
    fn end_of_round(&mut self, error: io::Error) -> Result<(), Gone> {
        let is_usual = error.kind() == io::ErrorKind::WouldBlock
            || Errno::from_io_error(&error).is_some_and(|errno| [Errno::NODEV, Errno::NXIO].contains(&errno));
        if is_usual || std::mem::replace(&mut self.state.is_error_reported, true) {
            return Ok(());
        }
        self.send(Message::Unreadable(error))
    }

    /// Passes the block to the writer and starts the next one with the part of a record that is not whole yet. Waits for free memory
    /// where the disk stalls; the kernel's buffer fills meanwhile.
    fn hand_over(&mut self, buffer: &mut BlockBuffer, last: bool) -> Result<(), Gone> {
        let payload = buffer.payload();
        let whole = match &*self.framing {
            Framing::SubBuffers(_) => payload.len(),
            Framing::Relay(framing) => match whole_records(framing, payload) {
                // A full block without a whole record cannot become one with more bytes.
                0 if buffer.free_len() == 0 => payload.len(),
                whole if !last => whole,
                _ => payload.len(),
            },
        };
        if whole == 0 {
            return Ok(());
        }
        let next = buffer.split(whole, self.take_memory()?);
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        self.send(Message::Data(std::mem::replace(buffer, next)))
    }

    /// Sends a message to the writer; waits while its queue is full, unless all is abandoned.
    fn send(&self, mut message: Message) -> Result<(), Gone> {
        loop {
            message = match self.full.send_timeout(message, POLL_INTERVAL) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(message)) if !self.abandon.load(Ordering::Acquire) => message,
                Err(_) => return Err(Gone),
            };
        }
    }

    /// Receives from a channel; waits, unless all is abandoned.
    fn wait_for<T>(&self, channel: &Receiver<T>) -> Result<T, Gone> {
        loop {
            match channel.recv_timeout(POLL_INTERVAL) {
                Ok(next) => return Ok(next),
                Err(RecvTimeoutError::Timeout) if !self.abandon.load(Ordering::Acquire) => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// Takes memory for a block; waits for the writer where the pool has none and cannot grow.
    fn take_memory(&mut self) -> Result<Vec<u8>, Gone> {
        if let Some(memory) = self.pool.take() {
            return Ok(memory);
        }
        if !self.state.overruns.is_behind() {
            self.look();
        }
        let begun = Instant::now();
        let memory = self.wait_for(self.pool.returned());
        self.state.overruns.add_wait(begun.elapsed());
        memory
    }
}

/// Text about a buffer that has events and hands out none.
fn stuck_buffer(events: u64) -> String {
    let events = counted(events, "event");
    format!(
        "the kernel has {events} in its buffer that it does not hand out, and may have stopped the buffer (see dmesg)"
    )
}

/// Trimmed length of what a read returned of a sub-buffer that is larger than the reads. The first piece has as many whole events as fit,
/// but the number of those that were lost before it may lie behind it; the other pieces have no event, and take no bytes.
fn trim_piece(shape: &PageShape, piece: &mut [u8]) -> usize {
    forget_number(shape, piece);
    trimmed_len(shape, piece).unwrap_or(0)
}

/// Layout of a channel's records, detected from the first ones.
fn layout(framing: &RelayFraming, bytes: &[u8]) -> Option<relay::Layout> {
    if framing.layout.get().is_none()
        && let Some((layout, _)) = relay::detect(bytes)
    {
        let _ = framing.layout.set(layout);
    }
    framing.layout.get().copied()
}

/// Length of the whole records at the start of `bytes`; all of `bytes` where they are no records, which the tools report.
fn whole_records(framing: &RelayFraming, bytes: &[u8]) -> usize {
    let Some(layout) = layout(framing, bytes) else { return 0 };
    let tally = relay::tally(layout, Endian::NATIVE, bytes);
    if tally.bad { bytes.len() } else { tally.consumed }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use crate::write::block_buffer::HEADER_ROOM;
    use kmemtrace_abi::kernel::stats::Stats;
    use kmemtrace_abi::kernel::subbuffer::tally;
    use kmemtrace_abi::target::Target;
    use kmemtrace_tests::generate::pages::Encoder;
    use kmemtrace_tests::generate::{Options, Random, RelayOptions, workload};

    use super::*;

    /// Answers of a read, one after the other; at their end it says stop, and has nothing more.
    struct Script(VecDeque<io::Result<Vec<u8>>>, Arc<Stop>, Arc<AtomicUsize>);

    impl CpuSource for Script {
        fn wait(&self, _: Duration, _: &Stop) -> bool {
            self.2.fetch_add(1, Ordering::Relaxed);
            true
        }

        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                Some(Ok(mut bytes)) => {
                    if bytes.len() > buffer.len() {
                        self.0.push_front(Ok(bytes.split_off(buffer.len())));
                    }
                    buffer[..bytes.len()].copy_from_slice(&bytes);
                    Ok(bytes.len())
                }
                Some(Err(e)) => Err(e),
                None => {
                    self.1.set();
                    Err(io::ErrorKind::WouldBlock.into())
                }
            }
        }

        fn sample(&self) -> io::Result<Sample> {
            Ok(Sample { stats: Stats { entries: self.0.len() as u64, ..Stats::default() }, ..Sample::default() })
        }

        fn now(&self) -> Option<u64> {
            Some((1 << 40) - self.0.len() as u64)
        }
    }

    /// Blocks of a reader that gets `script`, with room for `room` bytes in a block.
    fn read(script: Vec<io::Result<Vec<u8>>>, framing: Framing, room: usize) -> Vec<Vec<u8>> {
        read_in_rounds(script, framing, room).0
    }

    /// Blocks of such a reader, and the number of its waits.
    fn read_in_rounds(script: Vec<io::Result<Vec<u8>>>, framing: Framing, room: usize) -> (Vec<Vec<u8>>, usize) {
        let (full, taken) = crossbeam_channel::unbounded();
        let stop = Arc::new(Stop::new().unwrap());
        let waits = Arc::new(AtomicUsize::new(0));
        let source = Box::new(Script(script.into(), Arc::clone(&stop), Arc::clone(&waits)));
        let framing = Arc::new(framing);
        let pool = BlockPool::new(Vec::new(), crossbeam_channel::never(), HEADER_ROOM + room, 1000);
        // A flush that is never due: the script says when there is more.
        let (flush, abandon, state) = (Duration::from_secs(10), Arc::default(), State::default());
        Reader { source, framing, flush, full, pool, stop, abandon, watermarks: false, buffer_bytes: 0, state }.run();
        let blocks = taken.into_iter().filter_map(|message| match message {
            Message::Data(buffer) => Some(buffer.payload().to_vec()),
            Message::Counters(_) | Message::Unreadable(_) | Message::Watermark(_) => None,
            Message::Overruns(_) | Message::Cut(_) => None,
        });
        (blocks.collect(), waits.load(Ordering::Relaxed))
    }

    /// A buffer with events that are handed out to nobody.
    struct Stopped;

    impl CpuSource for Stopped {
        fn wait(&self, _: Duration, _: &Stop) -> bool {
            false
        }

        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn sample(&self) -> io::Result<Sample> {
            Ok(Sample { stats: Stats { entries: 7, ..Stats::default() }, ..Sample::default() })
        }

        fn now(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn a_buffer_that_hands_out_nothing_of_what_it_has_is_told_at_the_end() {
        let (full, taken) = crossbeam_channel::unbounded();
        let stop = Arc::new(Stop::new().unwrap());
        stop.set();
        let shape = PageShape {
            target: Target { endian: Endian::NATIVE, word_bytes: 8 },
            commit_offset: 8,
            commit_size: 8,
            data_offset: 16,
            size: 4096,
        };
        let framing = Arc::new(Framing::SubBuffers(shape));
        let pool = BlockPool::new(Vec::new(), crossbeam_channel::never(), HEADER_ROOM + 4096, 10);
        let (flush, abandon, state) = (Duration::from_secs(10), Arc::default(), State::default());
        let source = Box::new(Stopped);
        Reader { source, framing, flush, full, pool, stop, abandon, watermarks: false, buffer_bytes: 0, state }.run();
        let last = taken.into_iter().last();
        assert!(matches!(&last, Some(Message::Cut(why)) if why.starts_with("the kernel has 7 events in its buffer")));
    }

    /// A file does not grow while nothing happens, unless a program reads along.
    #[test]
    fn an_idle_cpu_is_told_once() {
        let nothing = || Err(io::ErrorKind::WouldBlock.into());
        let filled = |watermarks| {
            let mut script = vec![nothing(), nothing(), Ok(vec![1; 64])];
            script.extend((0..4).map(|_| nothing()));
            let (full, taken) = crossbeam_channel::unbounded();
            let stop = Arc::new(Stop::new().unwrap());
            let source = Box::new(Script(script.into(), Arc::clone(&stop), Arc::default()));
            let target = Target { endian: Endian::NATIVE, word_bytes: 8 };
            let shape = PageShape { target, commit_offset: 8, commit_size: 8, data_offset: 16, size: 64 };
            let framing = Arc::new(Framing::SubBuffers(shape));
            let pool = BlockPool::new(Vec::new(), crossbeam_channel::never(), HEADER_ROOM + 4096, 1000);
            let (flush, abandon, state) = (Duration::ZERO, Arc::default(), State::default());
            Reader { source, framing, flush, full, pool, stop, abandon, watermarks, buffer_bytes: 128, state }.run();
            let told = taken.into_iter().filter_map(|message| match message {
                Message::Watermark(watermark) => watermark.filled(),
                _ => None,
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(filled(false), [0, 500, 0]);
        assert!(filled(true).len() > 5, "{:?}", filled(true));
    }

    /// The pieces with interruptions between them that a reader must ignore.
    fn disturbed(pieces: Vec<Vec<u8>>, random: &mut Random) -> Vec<io::Result<Vec<u8>>> {
        let mut script = Vec::new();
        for piece in pieces {
            while random.chance(40) {
                script.push(match random.below(3) {
                    0 => Ok(Vec::new()),
                    1 => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Err(io::ErrorKind::Interrupted.into()),
                });
            }
            script.push(Ok(piece));
        }
        script
    }

    #[test]
    fn every_event_of_every_sub_buffer_comes_out_once_and_in_order() {
        for seed in 0..30 {
            let mut random = Random::new(seed);
            let options = Options::random(&mut random, 300);
            let workload = workload(seed, &options);
            let encoder = Encoder::new(&workload.shape, &workload.names);
            for cpu in &workload.cpus {
                let pages = encoder.pages(cpu, &mut random);
                let shape = workload.shape.page();
                // The kernel hands out sub-buffers in full, with zeros behind what counts.
                let images: Vec<Vec<u8>> = pages
                    .iter()
                    .map(|page| {
                        let mut bytes = page.bytes.clone();
                        bytes.resize(shape.size, 0);
                        bytes
                    })
                    .collect();
                let expected: u64 = images.iter().map(|image| tally(&shape, image).unwrap().0.events).sum();
                let stored: Vec<u8> =
                    images.iter().flat_map(|i| i[..trimmed_len(&shape, i).unwrap()].to_vec()).collect();
                let script = disturbed(images, &mut random);
                let blocks = read(script, Framing::SubBuffers(shape), shape.size * 3);
                assert!(blocks.concat() == stored, "seed {seed}");
                let mut events = 0;
                for block in blocks {
                    let mut rest = &block[..];
                    while !rest.is_empty() {
                        let (tally, len) = tally(&shape, rest).unwrap();
                        events += tally.events;
                        rest = &rest[len..];
                    }
                }
                assert_eq!(events, expected);
            }
        }
    }

    #[test]
    fn pieces_of_a_sub_buffer_that_is_too_large_have_their_events_and_no_others() {
        let target = Target { endian: Endian::Little, word_bytes: 8 };
        let shape = PageShape { target, commit_offset: 8, commit_size: 8, data_offset: 16, size: 64 };
        // 48 bytes of events, and the number of lost ones is in the next piece.
        let mut first = [vec![0; 8], (0xc000_0000_u64 | 48).to_le_bytes().to_vec(), vec![1; 48]].concat();
        assert!(trimmed_len(&shape, &first).is_err());
        assert_eq!(trim_piece(&shape, &mut first), 64);
        assert_eq!(first[8..16], (0x8000_0000_u64 | 48).to_le_bytes());
        assert_eq!(trim_piece(&shape, &mut [0xff; 64]), 0);
    }

    /// The kernel hands out the rest of a sub-buffer that was read in part by itself. A reader that pauses after it lets the buffer
    /// run over.
    #[test]
    fn a_round_goes_on_after_the_rest_of_a_sub_buffer() {
        let target = Target { endian: Endian::NATIVE, word_bytes: 8 };
        let shape = PageShape { target, commit_offset: 8, commit_size: 8, data_offset: 16, size: 4096 };
        let sub_buffer = |bytes: u64| {
            let padding = 29u32 | 1 << 5; // One record: as many bytes of nothing.
            let mut page = [1u64.to_ne_bytes(), bytes.to_ne_bytes()].concat();
            page.extend_from_slice(&padding.to_ne_bytes());
            page.extend_from_slice(&(bytes as u32 - 8).to_ne_bytes());
            page.resize(shape.size, 0);
            Ok(page)
        };
        let (part, rest, whole) = (680, 4080 - 680, 4080);
        let nothing = || Err(io::ErrorKind::WouldBlock.into());
        let mut script = vec![sub_buffer(whole), sub_buffer(part), nothing(), sub_buffer(rest)];
        script.extend((0..3).map(|_| sub_buffer(whole)));
        let (blocks, rounds) = read_in_rounds(script, Framing::SubBuffers(shape), shape.size * 8);
        assert_eq!(blocks.concat().len() as u64, 4 * (16 + whole) + 16 + part + 16 + rest);
        assert_eq!(rounds, 3);
    }

    #[test]
    fn relay_records_stay_whole_wherever_a_read_ends() {
        for seed in 0..30 {
            let mut random = Random::new(seed);
            let mut options = Options::random(&mut random, 300);
            (options.loss, options.unplaced) = (false, false);
            let mut workload = workload(seed, &options);
            let relay = RelayOptions {
                layout: relay::Layout::R4,
                endian: Endian::NATIVE,
                first_sequence: 1,
                features: true,
                holes: false,
            };
            let streams = kmemtrace_tests::generate::relay(&mut workload, &relay, seed);
            for stream in &streams.cpus {
                let all = stream.bytes();
                let mut pieces = Vec::new();
                let mut rest = &all[..];
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at((1 + random.below(200) as usize).min(rest.len()));
                    pieces.push(piece.to_vec());
                    rest = after;
                }
                let script = disturbed(pieces, &mut random);
                let blocks = read(script, Framing::Relay(RelayFraming::default()), 1024);
                assert!(blocks.concat() == all, "seed {seed}");
                for block in &blocks {
                    let tally = relay::tally(relay::Layout::R4, Endian::NATIVE, block);
                    assert_eq!((tally.bad, tally.consumed), (false, block.len()), "seed {seed}");
                }
            }
        }
    }

    /// The other end of a channel neither takes nor goes: a writer that hangs in the kernel.
    #[test]
    fn a_reader_whose_writer_hangs_ends_when_all_is_abandoned() {
        let blocks = |n| crossbeam_channel::bounded::<Vec<u8>>(n);
        // The reader waits for room in the one channel, or for a block of the other.
        for (given, room) in [(4, 1), (2, 9)] {
            let ((full, _taken), (free_in, free)) = (crossbeam_channel::bounded(room), blocks(9));
            (0..given).for_each(|_| free_in.send(vec![0; HEADER_ROOM + 64]).unwrap());
            let (stop, abandon) = (Arc::new(Stop::new().unwrap()), Arc::new(AtomicBool::new(false)));
            let source = Script((0..9).map(|_| Ok(vec![1; 64])).collect(), Arc::clone(&stop), Arc::default());
            let framing = Arc::new(Framing::Relay(RelayFraming::default()));
            let (source, flush, state) = (Box::new(source), Duration::from_millis(1), State::default());
            let abandoned = Arc::clone(&abandon);
            let pool = BlockPool::new(Vec::new(), free, HEADER_ROOM + 64, 0);
            let reader = Reader {
                source,
                framing,
                flush,
                full,
                pool,
                stop,
                abandon: abandoned,
                watermarks: false,
                buffer_bytes: 0,
                state,
            };
            let reader = std::thread::spawn(move || reader.run());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!reader.is_finished());
            abandon.store(true, Ordering::Release);
            reader.join().unwrap();
        }
    }

    #[test]
    fn a_channel_with_other_bytes_is_kept_as_it_is() {
        let blocks = read(vec![Ok(vec![0xee; 5000])], Framing::Relay(RelayFraming::default()), 1024);
        assert!(blocks.concat() == [0xee; 5000]);
    }
}
