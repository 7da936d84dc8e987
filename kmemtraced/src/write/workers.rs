//! Threads of a recording: a pinned reader and a writer for each CPU, with a pool of blocks that circulate between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender};
use kmemtrace_abi::disk::block::{END_ASKED, END_ERROR, Major, Watermark};
use kmemtrace_sandbox::{Mode, Role, Sandbox};
use rustix::thread::CpuSet;

use crate::choices::Priority;
use crate::control::foreign::ForeignChanges;
use crate::output::destination::Destination;
use crate::process::confine;
use crate::process::memory;
use crate::process::messages;
use crate::process::thread::{Granted, is_gone, not_started, own_tid, prioritize};
use crate::source::stop::Stop;
use crate::source::{CpuSource, Framing, TraceSource};
use crate::write::block_buffer::HEADER_ROOM;
use crate::write::block_file::BlockFile;
use crate::write::block_pool::{BlockPool, FIRST_BLOCKS};
use crate::write::compress::{BlockCompressor, Compression};
use crate::write::header::Description;
use crate::write::load::{Business, LoadWatch};
use crate::write::outcome::{Outcome, Progress};
use crate::write::own_threads::OwnThreads;
use crate::write::reader::{self, BLOCK_BYTES, Message, Reader};
use crate::write::records::RecordEncoder;
use crate::write::writer::Writer;

/// Greatest block pool of a CPU, bytes: the pool grows when the writer falls behind.
const POOL_BYTES: u64 = 32 << 20;
/// Pools of all CPUs together take at most `1 / POOL_SHARE` of memory.
const POOL_SHARE: u64 = 10;
/// Payload of a block in a small pool, bytes.
const LEAN_BLOCK_BYTES: usize = 64 << 10;
/// Stack of a thread, bytes; small, because a kernel that cannot leave out untouched pages locks all of it.
const STACK: usize = 512 << 10;
/// Poll interval for threads that have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Longest wait for threads after a second stop signal.
const PATIENCE: Duration = Duration::from_millis(200);

/// Threads of one CPU.
struct CpuThreads {
    cpu: u32,
    reader: Option<JoinHandle<()>>,
    writer: JoinHandle<Outcome>,
    progress: Arc<Progress>,
    /// Queue of the writer, until the reader has ended. A reader that the kernel kills never closes its own end.
    full: Option<Sender<Message>>,
}

impl CpuThreads {
    fn has_drained(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished) || self.is_reader_killed()
    }

    /// True if there is nothing left to wait for.
    fn are_finished(&self) -> bool {
        self.is_writer_killed() || self.writer.is_finished() && self.has_drained()
    }

    fn is_reader_killed(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| is_killed(&self.progress.reader, reader))
    }

    fn is_writer_killed(&self) -> bool {
        is_killed(&self.progress.writer, &self.writer)
    }

    /// Closes this end of the writer's queue once the reader has ended; tells the writer if the kernel has killed it.
    fn end_queue(&mut self) {
        let Some(full) = self.full.as_ref().filter(|_| self.has_drained()) else { return };
        if self.is_reader_killed() {
            let text = "the kernel killed the thread that read its buffer (see dmesg)";
            let told = full.send_timeout(Message::Cut(text.to_owned()), POLL_INTERVAL);
            // While the queue is full, the writer has something to do.
            if matches!(told, Err(SendTimeoutError::Timeout(_))) {
                return;
            }
        }
        self.full = None;
    }
}

/// True if the kernel has killed a thread, because of an error of its own (an Oops): it has ended without a result.
fn is_killed<T>(tid: &AtomicI32, thread: &JoinHandle<T>) -> bool {
    match tid.load(Ordering::Acquire) {
        0 => false,
        tid => is_gone(tid) && !thread.is_finished(),
    }
}

/// All reader and writer threads, which run until [`Workers::stop`].
pub(crate) struct Workers {
    threads: Vec<CpuThreads>,
    stop: Arc<Stop>,
    /// Set by a second stop signal: threads stop waiting.
    abandon: Arc<AtomicBool>,
    /// `END_*` for the end blocks.
    reason: Arc<AtomicU64>,
    /// Start message to the readers; `None` once it was sent.
    go: Option<Sender<()>>,
    /// Thread ids of the recorder: the first thread, the one that records, the one of the messages, all readers and writers.
    pub(crate) tids: Vec<i32>,
    /// Priority of the readers and writers: the lowest one.
    pub(crate) granted: Option<Granted>,
}

/// Size of a CPU's block pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolSize {
    /// Blocks of 256 KiB; the pool grows while the writer falls behind.
    Growing,
    /// Few small blocks; the kernel's buffer fills while the writer falls behind.
    Lean,
}

impl PoolSize {
    /// Bytes of a block, at least.
    fn block_bytes(self) -> usize {
        match self {
            PoolSize::Growing => BLOCK_BYTES,
            PoolSize::Lean => LEAN_BLOCK_BYTES,
        }
    }

    /// Greatest size of each CPU's pool on a machine with `cpus` CPUs, bytes, about.
    pub(crate) fn max_bytes(self, cpus: usize) -> usize {
        match self {
            PoolSize::Growing => memory::share_of_memory(POOL_BYTES, POOL_SHARE, cpus) as usize,
            PoolSize::Lean => FIRST_BLOCKS * LEAN_BLOCK_BYTES,
        }
    }
}

/// Options of a recording that the threads need.
#[derive(Clone, Debug)]
pub(crate) struct RecordOptions {
    pub(crate) pool: PoolSize,
    pub(crate) flush: Duration,
    pub(crate) sync: Option<Duration>,
    pub(crate) priority: Priority,
    pub(crate) compress: Compression,
    /// Version of the files' format: records are encoded in version 2.
    pub(crate) major: Major,
    pub(crate) changes: ForeignChanges,
    /// True if a program reads the blocks meanwhile, and is told how far each CPU's events are taken while nothing happens, too.
    pub(crate) watermarks: bool,
    /// Counter of the recorder's own events, where they are to be counted.
    pub(crate) own: Option<OwnThreads>,
    pub(crate) sandbox: Mode,
}

/// What a thread tells once it has begun.
struct Ready {
    tid: i32,
    granted: Granted,
    /// An error if its sandbox could not be closed.
    closed: anyhow::Result<()>,
}

/// Blocks of a CPU's pool: all that it may have, of which the first exist from the start.
struct Blocks {
    first: Vec<Vec<u8>>,
    bytes: usize,
    max: usize,
}

impl Blocks {
    /// Allocates the first blocks of one CPU.
    fn new(cpus: usize, bytes: usize, pool: PoolSize) -> anyhow::Result<Blocks> {
        let max = (pool.max_bytes(cpus) / bytes).max(FIRST_BLOCKS);
        let first: Result<_, _> = (0..FIRST_BLOCKS).map(|_| memory::touched(bytes)).collect();
        let failed = |_| {
            let all = FIRST_BLOCKS * bytes * cpus;
            anyhow!("{} KiB of memory for blocks cannot be allocated: free some, or raise ulimit -v", all >> 10)
        };
        Ok(Blocks { first: first.map_err(failed)?, bytes, max })
    }
}

/// Spawns a thread in this sandbox, on CPU `pinned` if given; it tells that it has begun, then works.
fn start_thread<T: Send + 'static>(
    name: String,
    pinned: Option<u32>,
    sandbox: Sandbox,
    spawner: &Spawner<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    let (ready, priority, mode) = (spawner.ready.clone(), spawner.options.priority, spawner.options.sandbox);
    let begin = move || {
        if let Some(cpu) = pinned.filter(|&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
            let mut set = CpuSet::new();
            set.set(cpu as usize);
            // Fails for a CPU that is offline, whose buffer gets no events, either.
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
        // In the sandbox no priority can be raised.
        let granted = prioritize(priority);
        let closed = confine::close(&sandbox, mode).map(drop);
        drop(sandbox);
        let _ = ready.send(Ready { tid: own_tid(), granted, closed });
        drop(ready);
        work()
    };
    thread::Builder::new().name(name.clone()).stack_size(STACK).spawn(begin).map_err(|error| not_started(&name, &error))
}

/// Starts the threads of each CPU.
struct Spawner<'a> {
    source: &'a dyn TraceSource,
    output: &'a Destination,
    description: &'a Arc<Description>,
    options: &'a RecordOptions,
    ready: Sender<Ready>,
    /// Start message. A reader takes nothing from the kernel before it, and ends where it cannot come any more.
    go: Receiver<()>,
}

/// Begun file of a CPU, whose threads are not started yet.
struct Begun {
    cpu: u32,
    writer: Writer,
    full: Sender<Message>,
    pool: BlockPool,
}

impl Spawner<'_> {
    /// Makes the file of a CPU.
    fn begin_cpu(&self, cpu: u32, blocks: Blocks, workers: &Workers) -> anyhow::Result<Begun> {
        let (full_in, full) = crossbeam_channel::bounded(blocks.max + 4);
        let (free_in, free) = crossbeam_channel::bounded(blocks.max);
        let growth = blocks.max - blocks.first.len();
        let pool = BlockPool::new(blocks.first, free, blocks.bytes, growth);
        let writer = self.begin_writer(cpu, full, free_in, workers)?;
        Ok(Begun { cpu, writer, full: full_in, pool })
    }

    /// Starts the threads of a CPU, once the files of all CPUs have begun: a stream starts with their headers.
    fn start_cpu(&self, begun: Begun, workers: &mut Workers) -> anyhow::Result<()> {
        let Begun { cpu, writer, full, pool } = begun;
        let progress = Arc::clone(&writer.progress);
        let run = move || {
            writer.progress.writer.store(own_tid(), Ordering::Release);
            writer.run()
        };
        let writer = start_thread(format!("write{cpu}"), None, confine::sandbox(Role::Writer), self, run)?;
        workers.threads.push(CpuThreads { cpu, reader: None, writer, progress, full: None });
        // A CPU that was never online has no buffer: its file is complete and empty.
        if let Some(source) = self.source.cpu(cpu)? {
            let progress = workers.threads.last().map(|threads| Arc::clone(&threads.progress)).unwrap_or_default();
            let queue = full.clone();
            let reader = self.start_reader(cpu, (source, progress), full, pool, workers)?;
            if let Some(threads) = workers.threads.last_mut() {
                (threads.reader, threads.full) = (Some(reader), Some(queue));
            }
        } else if self.options.watermarks {
            let _ = full.send(Message::Watermark(Watermark::new(u64::MAX, None)));
        }
        Ok(())
    }

    fn begin_writer(
        &self,
        cpu: u32,
        full: Receiver<Message>,
        free: Sender<Vec<u8>>,
        workers: &Workers,
    ) -> anyhow::Result<Writer> {
        let Spawner { output, description, options, .. } = *self;
        let name = format!("cpu{cpu}.out");
        let file = BlockFile::new(output.file(&name)?, cpu, description.recording);
        let file = file.in_major(options.major);
        let progress = Arc::<Progress>::default();
        let mut writer = Writer {
            file,
            description: Arc::clone(description),
            compression: options.compress,
            compressor: BlockCompressor::new(options.compress),
            records: (options.major == Major::Two)
                .then(|| RecordEncoder::new(&description.facts, options.pool == PoolSize::Lean))
                .flatten(),
            business: Business::new(progress.load.clone()),
            patience: options.flush / 2,
            sync: options.sync,
            full,
            free,
            progress,
            reason: Arc::clone(&workers.reason),
            changes: options.changes.clone(),
            own: options.own.clone(),
            abandon: Arc::clone(&workers.abandon),
        };
        writer.begin().map_err(|error| output.unwritable(&name, &error))?;
        Ok(writer)
    }

    fn start_reader(
        &self,
        cpu: u32,
        (source, progress): (Box<dyn CpuSource>, Arc<Progress>),
        full: Sender<Message>,
        pool: BlockPool,
        workers: &Workers,
    ) -> anyhow::Result<JoinHandle<()>> {
        let mut state = reader::State::new(Arc::clone(&progress.waiting));
        // Counters from before events are enabled: loss up to here is not loss of the recording.
        let before = source.sample();
        state.overruns.set_base(before.as_ref().map_or(0, |sample| sample.stats.overrun));
        let _ = full.send(Message::Counters(before));
        let reader = Reader {
            source,
            framing: Arc::clone(&self.source.facts().framing),
            flush: self.options.flush,
            full,
            pool,
            stop: Arc::clone(&workers.stop),
            abandon: Arc::clone(&workers.abandon),
            watermarks: self.options.watermarks,
            buffer_bytes: self.source.facts().buffer_bytes.unwrap_or(0),
            state,
        };
        let go = self.go.clone();
        let run = move || {
            progress.reader.store(own_tid(), Ordering::Release);
            if reader.may_begin(&go) {
                reader.run();
            }
        };
        let mut sandbox = confine::sandbox(Role::Drain);
        self.source.allow_reading(&mut sandbox)?;
        start_thread(format!("read{cpu}"), Some(cpu), sandbox, self, run)
    }
}

impl Workers {
    /// Makes the files and starts the threads. Events are not enabled yet, and the readers take nothing before [`Workers::go`]. After
    /// an error no thread is left. `abandon` ends all waiting, at any time.
    pub(crate) fn start(
        source: &dyn TraceSource,
        output: &Destination,
        description: &Arc<Description>,
        options: &RecordOptions,
        abandon: &Arc<AtomicBool>,
    ) -> anyhow::Result<Workers> {
        let facts = source.facts();
        let mut workers = Workers {
            threads: Vec::new(),
            stop: Arc::new(Stop::new().map_err(|error| {
                anyhow!("the readers cannot be told to stop: {error}{}", kmemtrace_abi::unreadable::more_files(&error))
            })?),
            abandon: Arc::clone(abandon),
            reason: Arc::new(u64::from(END_ASKED).into()),
            go: None,
            tids: [rustix::process::getpid().as_raw_nonzero().get(), own_tid()]
                .into_iter()
                .chain(messages::thread_id())
                .collect(),
            granted: None,
        };
        let block_bytes = match &*facts.framing {
            Framing::SubBuffers(shape) => options.pool.block_bytes().max(shape.size) + HEADER_ROOM,
            Framing::Relay(_) => options.pool.block_bytes() + HEADER_ROOM,
        };
        // Before the threads, whose stacks take address space that the pools need more.
        let blocks = facts
            .cpus
            .iter()
            .map(|_| Blocks::new(facts.cpus.len(), block_bytes, options.pool))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let (ready, ready_out) = crossbeam_channel::unbounded();
        let (go_in, go) = crossbeam_channel::unbounded();
        let spawner = Spawner { source, output, description, options, ready, go };
        let cpus = facts.cpus.iter().zip(blocks);
        let begun = cpus.map(|(&cpu, blocks)| spawner.begin_cpu(cpu, blocks, &workers));
        let begun = begun.collect::<anyhow::Result<Vec<Begun>>>();
        let mut begun =
            begun.and_then(|begun| begun.into_iter().try_for_each(|begun| spawner.start_cpu(begun, &mut workers)));
        drop(spawner);
        for Ready { tid, granted, closed } in ready_out {
            workers.tids.push(tid);
            begun = begun.and(closed);
            // One that was refused what others have stands for all.
            if workers.granted.as_ref().is_none_or(|before| *before == Granted::Fifo) {
                workers.granted = Some(granted);
            }
        }
        if let Err(error) = begun {
            drop(go_in);
            options.changes.close();
            // The first error is returned.
            let _ = workers.stop(END_ERROR, |_| {});
            return Err(error);
        }
        workers.go = Some(go_in);
        Ok(workers)
    }

    /// True once all readers have ended.
    pub(crate) fn are_drained(&self) -> bool {
        self.threads.iter().all(CpuThreads::has_drained)
    }

    /// A thread that the kernel has killed, for the user.
    pub(crate) fn killed(&self) -> Option<String> {
        self.threads.iter().find_map(|threads| {
            let role = match (threads.is_reader_killed(), threads.is_writer_killed()) {
                (true, _) => "reader",
                (_, true) => "writer",
                _ => return None,
            };
            Some(format!("the kernel killed the {role} of CPU {} (see dmesg)", threads.cpu))
        })
    }

    /// Lets the readers start to drain the buffers.
    pub(crate) fn go(&mut self) {
        if let Some(go) = self.go.take() {
            for _ in &self.threads {
                let _ = go.send(());
            }
        }
    }

    /// Reads the load of each CPU for its writer from now on.
    pub(crate) fn load_watch(&self) -> LoadWatch {
        LoadWatch::new(self.progress().map(|(cpu, progress)| (cpu, progress.load.clone())))
    }

    /// Figures of each CPU up to now.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (u32, &Progress)> {
        self.threads.iter().map(|threads| (threads.cpu, &*threads.progress))
    }

    /// Lets the threads drain the buffers, which get no more events, and finish the files; calls `meanwhile` every few milliseconds.
    /// After a second stop signal a thread that does not end is left behind with an unfinished file. Without an earlier
    /// [`Workers::go`] the readers take nothing.
    pub(crate) fn stop(
        mut self,
        reason: u32,
        mut meanwhile: impl FnMut(&Workers),
    ) -> anyhow::Result<Vec<(u32, Outcome)>> {
        // Ends readers that still wait for the start message.
        self.go = None;
        self.reason.store(reason.into(), Ordering::Release);
        self.stop.set();
        let mut abandoned = None;
        while !self.threads.iter().all(CpuThreads::are_finished) {
            self.threads.iter_mut().for_each(CpuThreads::end_queue);
            meanwhile(&self);
            let is_second = self.abandon.load(Ordering::Acquire);
            if is_second && abandoned.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        let mut outcomes = Vec::new();
        for threads in self.threads {
            let outcome = if threads.writer.is_finished() && threads.has_drained() {
                // One that was killed has no result to wait for.
                if let Some(reader) = threads.reader.filter(JoinHandle::is_finished) {
                    let _ = reader.join();
                }
                let failed = |_| anyhow!("the writer of CPU {} has failed", threads.cpu);
                threads.writer.join().map_err(failed)?
            } else {
                Outcome::unfinished(&threads.progress)
            };
            outcomes.push((threads.cpu, outcome));
        }
        Ok(outcomes)
    }
}
