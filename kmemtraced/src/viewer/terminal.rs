//! The terminal of `kmemtraced top`: its state, its size, and its keys. The viewer has a terminal of its own in its place.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, OutputModes, QueueSelector, Termios, Winsize};

/// Ctrl-C and Ctrl-\, which are bytes while the terminal is in raw mode.
const INTERRUPT: u8 = 3;
const QUIT: u8 = 0x1c;
/// Longest time that the last bytes may take: a terminal may be held.
const PATIENCE: Duration = Duration::from_millis(300);

/// Both ends of a terminal for the viewer: ours, and its own.
pub(super) struct Pty {
    pub(super) ours: OwnedFd,
    pub(super) its: OwnedFd,
}

impl Pty {
    /// Makes a terminal, in raw mode: keys go through as they are.
    pub(super) fn open() -> anyhow::Result<Pty> {
        let open = || -> rustix::io::Result<Pty> {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
            let ours = rustix::pty::openpt(flags)?;
            rustix::pty::unlockpt(&ours)?;
            let its = match rustix::pty::ioctl_tiocgptpeer(&ours, flags) {
                // Before Linux 4.13.
                Err(Errno::INVAL | Errno::NOTTY) => {
                    let path = rustix::pty::ptsname(&ours, Vec::new())?;
                    rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?
                }
                opened => opened?,
            };
            let mut state = rustix::termios::tcgetattr(&its)?;
            state.make_raw();
            // Line ends of messages before and behind the screen.
            state.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
            rustix::termios::tcsetattr(&its, OptionalActions::Now, &state)?;
            // A viewer that takes no keys holds up nothing.
            rustix::io::ioctl_fionbio(&ours, true)?;
            Ok(Pty { ours, its })
        };
        open().context("top: no terminal can be made for the screen (/dev/ptmx)")
    }
}

/// What the user has typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Typed {
    /// Bytes for the viewer.
    pub(super) keys: Vec<u8>,
    /// Ctrl-C or Ctrl-\ was among them.
    pub(super) stops: bool,
    /// The terminal is gone.
    pub(super) is_gone: bool,
}

/// The terminal, in raw mode until it is given back.
pub(super) struct UsersTerminal {
    before: Option<Termios>,
    size: Option<Winsize>,
    is_gone: bool,
}

impl UsersTerminal {
    /// Notes the state that the terminal has.
    pub(super) fn new() -> UsersTerminal {
        UsersTerminal { before: None, size: None, is_gone: false }
    }

    /// Takes the terminal's keys as they are.
    pub(super) fn take(&mut self) -> anyhow::Result<()> {
        let before = rustix::termios::tcgetattr(io::stdin()).context("the terminal does not tell its state")?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw).context("the terminal cannot be set")?;
        self.before = Some(before);
        Ok(())
    }

    /// Gives the viewer's terminal the size of the user's, where that has changed. The kernel tells the viewer.
    pub(super) fn pass_size(&mut self, to: &OwnedFd) {
        let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) else { return };
        let is_same = |before: &Winsize| (before.ws_row, before.ws_col) == (size.ws_row, size.ws_col);
        if !self.size.as_ref().is_some_and(is_same) && rustix::termios::tcsetwinsize(to, size).is_ok() {
            self.size = Some(size);
        }
    }

    /// Waits for keys at most so long.
    pub(super) fn read(&mut self, time: Duration) -> Typed {
        if self.is_gone || self.before.is_none() {
            thread::sleep(time);
            return Typed { is_gone: self.is_gone, ..Typed::default() };
        }
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        if !matches!(poll(&mut fds, Some(&time)), Ok(1..)) {
            return Typed::default();
        }
        let mut bytes = [0; 256];
        match rustix::io::read(stdin.as_fd(), &mut bytes) {
            Ok(0) => self.is_gone = true,
            Ok(len) => return sorted(bytes.get(..len).unwrap_or_default()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.is_gone = true,
        }
        Typed { is_gone: self.is_gone, ..Typed::default() }
    }

    /// Writes the bytes that give the screen its usual state back. The terminal may be held: then it is left as it is.
    pub(super) fn leave(&self, closing: Vec<u8>) {
        if self.before.is_none() || closing.is_empty() {
            return;
        }
        let (written, done) = mpsc::channel();
        let write = move || {
            let _ = io::stdout().write_all(&closing).and_then(|()| io::stdout().flush());
            let _ = written.send(());
        };
        if thread::Builder::new().name("closing".into()).spawn(write).is_ok() {
            let _ = done.recv_timeout(PATIENCE);
        }
    }

    /// Gives the terminal its state back, and throws away what was typed meanwhile.
    pub(super) fn give_back(&mut self) {
        let Some(before) = self.before.take() else { return };
        let stdin = io::stdin();
        let _ = rustix::termios::tcflush(&stdin, QueueSelector::IFlush);
        let _ = rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &before);
        let _ = rustix::termios::tcflush(&stdin, QueueSelector::IFlush);
    }
}

/// Keys for the viewer, without those that end it.
fn sorted(bytes: &[u8]) -> Typed {
    let ends = |byte: &u8| [INTERRUPT, QUIT].contains(byte);
    Typed {
        keys: bytes.iter().copied().filter(|byte| !ends(byte)).collect(),
        stops: bytes.iter().any(ends),
        is_gone: false,
    }
}

/// Writes keys to the viewer's terminal; those that it has no room for are dropped.
pub(super) fn press(keys: &[u8], to: &OwnedFd) {
    if !keys.is_empty() {
        let _ = rustix::io::write(to, keys);
    }
}

/// A second descriptor of ours of the viewer's terminal, for the thread that reads from it.
pub(super) fn reader(of: &OwnedFd) -> io::Result<File> {
    Ok(File::from(of.try_clone()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_end_it_do_not_reach_the_viewer() {
        let typed = sorted(b"a\x03\x1b[A\x1c");
        assert_eq!((typed.keys.as_slice(), typed.stops), (&b"a\x1b[A"[..], true));
        assert_eq!(sorted(b"q"), Typed { keys: b"q".to_vec(), ..Typed::default() });
    }

    #[test]
    fn a_terminal_of_its_own_has_no_echo_and_passes_keys() {
        let Ok(Pty { ours, its }) = Pty::open() else { return };
        press(b"\x03k", &ours);
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&its, &mut bytes), Ok(2));
        assert_eq!(&bytes[..2], b"\x03k");
        assert_eq!(rustix::io::read(&ours, &mut bytes), Err(Errno::AGAIN), "nothing comes back");
        // More keys than it has room for.
        (0..10_000).for_each(|_| press(&[b'x'; 100], &ours));
    }
}
