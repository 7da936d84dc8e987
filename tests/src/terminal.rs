//! Terminals of a test's own, by tmux.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::recording::Directory;
use crate::runner::Skip;

/// Longest wait for a screen.
const LONG: Duration = Duration::from_secs(30);

/// Terminal in which a line of the shell runs. It closes when dropped.
pub struct Terminal {
    socket: String,
    /// Directory that the shell works in.
    pub directory: Directory,
}

impl Terminal {
    /// Runs a line of the shell in a terminal of this width and height; the shell tells the exit status and goes on afterwards.
    pub fn start(line: &str, (width, height): (u16, u16)) -> Result<Terminal, Skip> {
        let version = Command::new("tmux").arg("-V").output();
        version.map_err(|error| Skip(format!("tmux cannot be run: {error}")))?;
        let directory = Directory::new(&[]);
        let socket = directory.file("tmux").display().to_string();
        let terminal = Terminal { socket, directory };
        let (width, height) = (width.to_string(), height.to_string());
        let line = format!("cd '{}'; {line}; echo left with $?; sleep 100", terminal.directory.path().display());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, "sh", "-c", &line]);
        Ok(terminal)
    }

    /// Runs a command of tmux, and returns its output.
    pub fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.args(["-S", &self.socket]).args(arguments).env("LC_ALL", "C").env_remove("TMUX");
        let output = tmux.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Presses keys, by tmux's names.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Text of the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Closes the terminal, as a window that is closed or a connection that breaks.
    pub fn close(&self) {
        self.tmux(&["kill-server"]);
    }

    /// Waits until the screen shows a text.
    pub fn wait_for(&self, text: &str) -> String {
        self.wait_until(&format!("{text:?} on the screen"), |screen| screen.contains(text))
    }

    /// Waits until the screen is so.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < LONG, "not after {LONG:?}: {what}: {screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close();
    }
}
