//! Messages to standard error, written by a thread of their own: a full pipe or a terminal held by Ctrl-S stops that thread only.
//! The order is kept. Messages that find the queue full are dropped and counted, and the count is written later. A status line
//! stands below the messages: it is cleared before the next one.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use kmemtrace_sandbox::{Mode, Role};

use crate::choices::Priority;
use crate::process::confine;
use crate::process::thread::{not_started, own_tid, raise};

/// Most messages that wait to be written.
const QUEUE: usize = 256;
/// Columns behind a status line for the terminal's echo of Ctrl-C.
pub(crate) const ECHO: usize = 2;
/// Stack of the thread, bytes.
const STACK: usize = 256 << 10;

/// The process's messages; empty until [`start`].
static MESSAGES: OnceLock<Messages> = OnceLock::new();

/// Texts of errors that the sandbox gives: EPERM for a call outside of its list, EACCES for a file.
const REFUSALS: [&str; 2] = ["(os error 1)", "(os error 13)"];
/// End of a message with one of them.
const REFUSED: &str = "; the sandbox refuses what is not on its list: --sandbox off allows all";

/// Bytes that clear the line of a terminal where the cursor is.
const CLEAR_LINE: &str = "\r\x1b[K";

/// Starts the thread; before that, the caller of [`say`] writes. `is_shared`: another program may have left a line without an end on the
/// terminal. An error is that of the thread's start, or of its sandbox.
pub(crate) fn start(priority: Priority, sandbox: Mode, is_shared: bool) -> anyhow::Result<()> {
    if MESSAGES.get().is_none() {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let clear = if is_shared && !is_dumb && io::stderr().is_terminal() { CLEAR_LINE } else { "" };
        let _ = MESSAGES.set(Messages::start(io::stderr(), clear, priority, sandbox)?);
    }
    Ok(())
}

/// Queues a line; never blocks.
pub(crate) fn say(line: impl Into<String>) {
    let line = line.into();
    let may_be_refused = kmemtrace_sandbox::refuses_calls() && REFUSALS.iter().any(|error| line.contains(error));
    let line = line + if may_be_refused { REFUSED } else { "" } + "\n";
    match MESSAGES.get() {
        Some(messages) => messages.put(line),
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Queues a status line, which replaces the one before, unless earlier messages still wait: a late one is worth nothing. Without
/// text the line is only cleared.
pub(crate) fn show(text: &str) {
    if let Some(messages) = MESSAGES.get().filter(|messages| messages.queue.is_empty() || text.is_empty()) {
        messages.queue_or_count(Message::Status(text.to_owned()));
    }
}

/// Waits until all messages are written, at most for `patience`.
pub(crate) fn finish(patience: Duration) {
    if let Some(messages) = MESSAGES.get() {
        messages.finish(patience);
    }
}

/// Thread id of the thread, for the list of the recorder's own threads.
pub(crate) fn thread_id() -> Option<i32> {
    MESSAGES.get().map(|messages| messages.tid)
}

enum Message {
    Text(String),
    /// Line without an end, which the next message or status replaces.
    Status(String),
    /// Requests an answer once all earlier messages are written.
    Flush(Sender<()>),
}

struct Messages {
    queue: Sender<Message>,
    dropped: Arc<AtomicU64>,
    tid: i32,
}

impl Messages {
    /// `clear` comes before each message.
    fn start(
        out: impl Write + Send + 'static,
        clear: &'static str,
        priority: Priority,
        sandbox: Mode,
    ) -> anyhow::Result<Messages> {
        let name = "messages";
        let (queue, waiting) = crossbeam_channel::bounded(QUEUE);
        let (tid_out, tid) = crossbeam_channel::bounded(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let unreported = Arc::clone(&dropped);
        let work = move || {
            raise(priority);
            let closed = confine::close(&confine::sandbox(Role::Messages), sandbox);
            let _ = tid_out.send(closed.map(|_| own_tid()));
            write_all(out, clear, &waiting, &unreported);
        };
        let started = thread::Builder::new().name(name.into()).stack_size(STACK).spawn(work);
        started.map_err(|error| not_started(name, &error))?;
        let tid = tid.recv().map_err(|error| not_started(name, &io::Error::other(error)))?;
        Ok(Messages { queue, dropped, tid: tid? })
    }

    fn put(&self, text: String) {
        self.queue_or_count(Message::Text(text));
    }

    fn queue_or_count(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn finish(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let (done_in, done) = crossbeam_channel::bounded(1);
        if self.queue.send_deadline(Message::Flush(done_in), deadline).is_ok() {
            let _ = done.recv_deadline(deadline);
        }
    }
}

/// Writes messages as they come. An error of standard error has no place to be reported.
fn write_all(mut out: impl Write, clear: &str, waiting: &Receiver<Message>, dropped: &AtomicU64) {
    let mut shown = 0;
    for message in waiting {
        match message {
            Message::Text(text) => drop(out.write_all(&over_status(&mut shown, &format!("{clear}{text}")))),
            Message::Status(text) => {
                let bytes = over_status(&mut shown, &text);
                shown = text.chars().count();
                let _ = out.write_all(&bytes);
            }
            Message::Flush(done) => drop(done.send(())),
        }
        if waiting.is_empty()
            && let count @ 1.. = dropped.swap(0, Ordering::Relaxed)
        {
            let _ = writeln!(out, "kmemtraced: {count} messages were left out: standard error took none for a while");
        }
    }
}

/// `text` behind bytes that clear a status line of `shown` characters. Blanks do it on every terminal.
fn over_status(shown: &mut usize, text: &str) -> Vec<u8> {
    let blanks = std::mem::take(shown);
    let blanks = if blanks > 0 { blanks + ECHO } else { 0 };
    let clear = if blanks > 0 { format!("\r{:blanks$}\r", "") } else { String::new() };
    [clear.as_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A pipe that takes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Pipe {
        taken: Arc<Mutex<Taken>>,
        opened: Arc<Condvar>,
    }

    #[derive(Default)]
    struct Taken {
        is_open: bool,
        bytes: Vec<u8>,
    }

    impl Pipe {
        fn open(&self) {
            self.taken.lock().unwrap().is_open = true;
            self.opened.notify_all();
        }

        fn text(&self) -> String {
            String::from_utf8(self.taken.lock().unwrap().bytes.clone()).unwrap()
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut taken = self.opened.wait_while(self.taken.lock().unwrap(), |taken| !taken.is_open).unwrap();
            taken.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_status_line_is_cleared_before_the_next_message() {
        let pipe = Pipe::default();
        pipe.open();
        let messages = Messages::start(pipe.clone(), "", Priority::Nice, Mode::Off).unwrap();
        messages.queue_or_count(Message::Status("+1.0 s".into()));
        messages.queue_or_count(Message::Status("+2 s".into()));
        messages.put("a message\n".into());
        messages.put("another\n".into());
        messages.finish(Duration::from_secs(60));
        assert_eq!(pipe.text(), "+1.0 s\r        \r+2 s\r      \ra message\nanother\n");
    }

    #[test]
    fn a_blocked_pipe_holds_up_no_caller_and_left_out_messages_are_counted() {
        let pipe = Pipe::default();
        let messages = Messages::start(pipe.clone(), "", Priority::Nice, Mode::Off).unwrap();
        let begin = Instant::now();
        (0..QUEUE + 100).for_each(|n| messages.put(format!("{n}\n")));
        messages.finish(Duration::from_millis(50));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!(pipe.text(), "");
        pipe.open();
        messages.finish(Duration::from_secs(60));
        // The thread holds one message besides the queue, if it was quick.
        let text = pipe.text();
        let (said, count) = text.rsplit_once("kmemtraced: ").unwrap();
        let count: usize = count.split(' ').next().unwrap().parse().unwrap();
        let said: Vec<usize> = said.lines().map(|line| line.parse().unwrap()).collect();
        assert!((QUEUE..=QUEUE + 1).contains(&said.len()), "{}", said.len());
        assert!(said.is_sorted());
        assert_eq!(said.len() + count, QUEUE + 100);
        messages.put("last\n".into());
        messages.finish(Duration::from_secs(60));
        assert!(pipe.text().ends_with("last\n"));
    }
}
