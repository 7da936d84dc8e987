//! The terminal: its size, its state while the screen is shown, and its keys.

use std::io::{self, IsTerminal, Stdout, stdout};
use std::time::Duration;

use anyhow::bail;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{cursor, execute, terminal};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::render::top_screen::keys::Key;

/// Refuses what is no terminal.
pub(super) fn check() -> anyhow::Result<()> {
    let term = std::env::var("TERM").unwrap_or_default();
    if !stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("top: there is no terminal: --batch N prints N frames as text, --once one");
    }
    if term.is_empty() || term == "dumb" {
        bail!("top: TERM={term} cannot move its cursor: --batch N prints N frames as text, --once one");
    }
    Ok(())
}

/// Size of the screen: the terminal's `own`; where that has none, as on a serial line, `COLUMNS` and `LINES`, else 80 x 24.
pub(super) fn size(own: Option<(u16, u16)>) -> Rect {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u16>().ok().filter(|n| *n > 0);
    let (width, height) = own.unwrap_or((0, 0));
    let width = if width > 0 { width } else { variable("COLUMNS").unwrap_or(80) };
    let height = if height > 0 { height } else { variable("LINES").unwrap_or(24) };
    Rect::new(0, 0, width.min(1000), height.min(1000))
}

/// Terminal with the screen on it; it gets its state back when this is dropped, and at a panic.
pub(super) struct Tty {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    area: Rect,
}

impl Tty {
    /// Takes the terminal.
    pub(super) fn take() -> io::Result<Tty> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        terminal::enable_raw_mode()?;
        execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        let area = size(terminal::size().ok());
        let terminal = blank(area).inspect_err(|_| restore())?;
        Ok(Tty { terminal, area })
    }

    /// Draws a frame, at the size that the terminal has now.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::buffer::Buffer)) -> io::Result<()> {
        let area = size(terminal::size().ok());
        if area != self.area {
            self.area = area;
            self.terminal = blank(area)?;
        }
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        Ok(())
    }

    /// Draws everything anew with the next frame.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        self.terminal = blank(self.area)?;
        Ok(())
    }
}

/// Blank screen of this size. The terminal is not asked for its cursor, as ratatui does to clear a screen: some never answer.
fn blank(area: Rect) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    execute!(stdout(), terminal::Clear(terminal::ClearType::All))?;
    Terminal::with_options(CrosstermBackend::new(stdout()), TerminalOptions { viewport: Viewport::Fixed(area) })
}

impl Drop for Tty {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its state back.
fn restore() {
    let _ = execute!(stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

/// Input of the user.
pub(super) enum Input {
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// The terminal is there no more: its window was closed, or the connection was cut.
    Gone,
}

/// Waits for input as long as `time`.
pub(super) fn input(time: Duration) -> io::Result<Option<Input>> {
    // crossterm reads a terminal without its other end for ever: a hang-up is seen before it.
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Ok(Some(Input::Gone));
    }
    if !event::poll(Duration::ZERO)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
            let key = match key.code {
                KeyCode::Char('c') if is_control => Key::Interrupt,
                KeyCode::Char('l') if is_control => return Ok(Some(Input::Resized)),
                KeyCode::Char(char) if !is_control => Key::Char(char),
                KeyCode::Enter => Key::Enter,
                KeyCode::Esc => Key::Escape,
                KeyCode::Backspace => Key::Backspace,
                KeyCode::Tab => Key::Tab,
                KeyCode::Up => Key::Up,
                KeyCode::Down => Key::Down,
                KeyCode::Home => Key::Home,
                KeyCode::End => Key::End,
                KeyCode::PageUp => Key::PageUp,
                KeyCode::PageDown => Key::PageDown,
                KeyCode::Left => Key::Left,
                KeyCode::Right => Key::Right,
                _ => return Ok(None),
            };
            Some(Input::Key(key))
        }
        Event::Resize(..) => Some(Input::Resized),
        _ => None,
    })
}
