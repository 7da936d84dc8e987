//! Names while the kernel records, and the thread that adds them to `meta.out`: command names of threads, and once a second the
//! symbols of new modules. A disk that stalls holds up this thread alone.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use kmemtrace_sandbox::{Mode, Role};

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::process::confine;
use crate::process::thread::{not_started, own_tid};
use crate::write::comms::Comms;
use crate::write::host_texts::live_threads;
use crate::write::memory_texts::MemoryTexts;
use crate::write::meta::MetaFile;

/// Stack of the thread, bytes.
const STACK: usize = 256 << 10;
/// Interval between two looks for new modules, and between two blocks of command names that no viewer waits for.
const INTERVAL: Duration = Duration::from_secs(1);

/// Figures of the thread for the others.
#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicU64,
    has_failed: AtomicBool,
}

/// Text for the file.
enum Text {
    /// Command names, as `PID COMM` lines.
    Comms(Vec<u8>),
    /// The recorder's probe events.
    Probes(String),
    /// Texts of the machine's memory, by item tag.
    Memory(Vec<(u16, Vec<u8>)>),
    /// Processes whose cgroups are to be read again.
    Moved(Vec<u32>),
}

/// Names of a recording, and the thread that has `meta.out` meanwhile.
pub(crate) struct Names {
    /// Id of the thread.
    pub(crate) tid: i32,
    comms: Comms,
    memory: MemoryTexts,
    /// Processes for [`Text::Moved`].
    moved: Vec<u32>,
    /// Texts of the machine's memory at the end.
    memory_at_end: Vec<(u16, Vec<u8>)>,
    file: Sender<MetaFile>,
    texts: Sender<Text>,
    shared: Arc<Shared>,
    thread: JoinHandle<Option<(MetaFile, io::Result<()>)>>,
    /// Least time between two blocks of command names.
    interval: Duration,
    due: Instant,
}

impl Names {
    /// Starts the thread, which waits for its file. A viewer that follows the recording gets command names as they come. `is_lean`:
    /// texts of memory with a line for each caller are left out.
    pub(crate) fn start(is_followed: bool, is_lean: bool, sandbox: Mode) -> anyhow::Result<Names> {
        let name = "names";
        let (tid_out, tid) = crossbeam_channel::bounded(1);
        let (file, files) = crossbeam_channel::bounded(1);
        let (texts, texts_out) = crossbeam_channel::bounded(1);
        let shared = Arc::<Shared>::default();
        let figures = Arc::clone(&shared);
        let memory = MemoryTexts::open(!is_lean);
        let mut allowed = confine::sandbox(Role::Names);
        confine::allow_names(&mut allowed)?;
        let work = move || {
            let closed = confine::close(&allowed, sandbox);
            drop(allowed);
            let _ = tid_out.send(closed.map(|_| own_tid()));
            files.recv().ok().map(|file| write(file, &texts_out, &memory, &figures))
        };
        let started = thread::Builder::new().name(name.into()).stack_size(STACK).spawn(work);
        let thread = started.map_err(|error| not_started(name, &error))?;
        let tid = tid.recv().map_err(|error| not_started(name, &io::Error::other(error)))??;
        let interval = if is_followed { Duration::ZERO } else { INTERVAL };
        let (comms, memory) = (Comms::new(is_followed), MemoryTexts::open(!is_lean));
        let (memory_at_end, due) = (Vec::new(), Instant::now() + interval);
        let moved = Vec::new();
        Ok(Names { tid, comms, memory, moved, memory_at_end, file, texts, shared, thread, interval, due })
    }

    /// Gives the thread its file.
    pub(crate) fn begin(&self, file: MetaFile) {
        let _ = self.file.send(file);
    }

    /// Hands the recorder's probe events to the thread, which has its file.
    pub(crate) fn put_probes(&self, text: Option<String>) {
        if let Some(text) = text {
            let _ = self.texts.send(Text::Probes(text));
        }
    }

    /// Takes the `PID COMM` lines of the kernel before it records. `knows_threads`: its ids of threads are those of proc.
    pub(crate) fn learn(&mut self, lines: &[u8], knows_threads: bool) {
        let proc = KernelFs::find(&PROC).ok().filter(|_| knows_threads);
        let live = proc.map(|proc| live_threads(&proc).map(|(_, thread)| thread).collect::<BTreeSet<_>>());
        let lives = |thread: i32| live.as_ref().is_none_or(|live| live.contains(&thread.unsigned_abs()));
        self.comms.begin(lines, lives);
    }

    /// Hands the figures of memory that hold once the kernel records to the thread, which has its file.
    pub(crate) fn begun(&self) {
        let _ = self.texts.send(Text::Memory(self.memory.begun()));
    }

    /// Keeps the figures of memory that hold before the kernel stops to record.
    pub(crate) fn stopping(&mut self) {
        self.memory_at_end = self.memory.stopping();
    }

    /// Adds the name of a thread.
    pub(crate) fn add(&mut self, thread: i32, name: &[u8]) {
        self.comms.add(thread, name);
    }

    /// Adds `PID COMM` lines of the kernel, after the last event.
    pub(crate) fn add_lines(&mut self, lines: &[u8]) {
        self.comms.add_lines(lines);
    }

    /// Has the cgroups of these processes read again: their threads were moved by tasks that are not recorded.
    pub(crate) fn look_again(&mut self, processes: impl Iterator<Item = u32>) {
        self.moved.extend(processes);
    }

    /// Adds `PID COMM` lines of the kernel from time to time, and hands the new ones to the thread, where it has written the last.
    pub(crate) fn look(&mut self, lines: impl FnOnce() -> Vec<u8>) {
        self.comms.add_if_due(lines);
        if Instant::now() < self.due || self.texts.is_full() {
            return;
        }
        if !self.moved.is_empty() {
            let _ = self.texts.send(Text::Moved(std::mem::take(&mut self.moved)));
            return;
        }
        self.due = Instant::now() + self.interval;
        let new = self.comms.take_new();
        if !new.is_empty() {
            let _ = self.texts.send(Text::Comms(new));
        }
    }

    /// True where the file could not be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Ends the thread and completes the file. Where a block of it could not be written meanwhile, its names come at the end.
    pub(crate) fn finish(self, reason: u32) -> io::Result<()> {
        let Names { mut comms, memory_at_end, file, texts, thread, .. } = self;
        drop((file, texts));
        let ended = thread.join().ok().flatten();
        let (file, written) = ended.ok_or_else(|| io::Error::other("the thread of the names has failed"))?;
        comms.stop();
        if written.is_err() {
            comms.renew();
        }
        let finished = file.finish(&comms.take_new(), memory_at_end, reason);
        written.and(finished)
    }
}

/// Adds names to the file until there will be no more, or until it cannot be written.
fn write(
    mut file: MetaFile,
    texts: &Receiver<Text>,
    memory: &MemoryTexts,
    shared: &Shared,
) -> (MetaFile, io::Result<()>) {
    let mut look = Instant::now() + INTERVAL;
    let written = loop {
        shared.bytes.store(file.bytes(), Ordering::Relaxed);
        let written = match texts.recv_deadline(look) {
            Ok(Text::Comms(lines)) => file.put_comms(lines),
            Ok(Text::Probes(text)) => file.put_probes(text),
            Ok(Text::Moved(processes)) => file.put_cgroups_again(&processes),
            Ok(Text::Memory(totals)) => file
                .put_memory(totals)
                .and_then(|()| file.put_memory(memory.callers_begun()))
                .and_then(|()| file.put_new_cgroups()),
            Err(RecvTimeoutError::Timeout) => {
                look = Instant::now() + INTERVAL;
                file.put_new_modules().and_then(|()| file.put_new_cgroups())
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        };
        if written.is_err() {
            shared.has_failed.store(true, Ordering::Release);
            break written;
        }
    };
    (file, written)
}
