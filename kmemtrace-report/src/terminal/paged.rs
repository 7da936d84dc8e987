//! Text for the terminal that goes through a pager where it is longer than the screen.

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use kmemtrace_sandbox::pager::Pager;

use super::screen;

/// Process that waits for text, until the first output to the terminal takes it.
static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);

/// Process that becomes the pager with the first byte.
struct Waiting {
    pager: Pager,
    /// Lines and columns of the screen.
    size: (usize, usize),
}

/// Starts the process that becomes the pager, if standard output is a terminal and the variables do not refuse one. The input is not
/// opened yet: in the sandbox no program is started.
pub(crate) fn start() {
    let waiting = screen::terminal_size().and_then(|size| Some(Waiting { pager: Pager::start()?, size }));
    *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
}

/// Standard output that becomes a pager's text once it is longer than the screen.
pub(crate) struct Paged {
    waiting: Option<Waiting>,
    /// Text of the first screen, until it is known to be the whole one.
    first: Vec<u8>,
    is_long: bool,
}

impl Paged {
    /// Output through the process that waits; `None` if there is none.
    pub(crate) fn take() -> Option<Paged> {
        let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Paged { waiting: Some(waiting), first: Vec::new(), is_long: false })
    }

    /// Ends the text: a short one goes to the terminal, a long one stays in the pager until the user leaves it.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(Waiting { pager, .. }) = self.waiting.take() else { return Ok(()) };
        let ended = pager.end();
        if self.is_long {
            return ended;
        }
        let mut stdout = io::stdout();
        stdout.write_all(&std::mem::take(&mut self.first)).and_then(|()| stdout.flush())
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(waiting) = &mut self.waiting else { return Ok(bytes.len()) };
        if self.is_long {
            return waiting.pager.write(bytes);
        }
        self.first.extend_from_slice(bytes);
        let (lines, columns) = waiting.size;
        // The shell's prompt takes the last line.
        if screen::lines_of(&self.first, columns) >= lines {
            self.is_long = true;
            // Ctrl-C is the pager's; this program ends with it.
            let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::new(AtomicBool::new(false)));
            waiting.pager.write_all(&std::mem::take(&mut self.first))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
