//! Screens that the viewer hands over, as files: it may write none itself.
//!
//! A screen is its time in milliseconds (8 bytes, little endian), the lengths of its text and of its rows (4 bytes each), the text, and the
//! rows as JSON. A viewer in a stranger's hands can send anything: files are made only where the key was pressed, under names that are made
//! here, in the directory in which the program was started.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::fs::{Gid, Uid};

use super::filter::Filter;
use crate::fs::held_dir::HeldDir;
use crate::process::report;

/// Bytes of all screens.
const MOST: usize = 64 << 20;
/// Key that saves a screen.
const KEY: u8 = b'w';
/// Files of one moment at most.
const MAX_NAMES: u32 = 100;
/// Longest wait for the last screen.
const PATIENCE: Duration = Duration::from_millis(300);

/// Thread that writes saved screens.
pub(super) struct Saved {
    /// Number of times that the key was pressed.
    pressed: Arc<AtomicU32>,
    lines: mpsc::Receiver<String>,
}

impl Saved {
    /// Starts the thread, with the current directory as the place for files.
    pub(super) fn start(from: File) -> anyhow::Result<Saved> {
        // Held now: whoever renames it leads nothing elsewhere.
        let place = HeldDir::reach(Path::new(""));
        let (out, lines) = mpsc::channel();
        let pressed = Arc::<AtomicU32>::default();
        let keys = Arc::clone(&pressed);
        let work = move || {
            if let Err(error) = take_all(from, place.as_ref(), &keys, &out) {
                let _ = out.send(format!("kmemtraced: a screen is not saved: {error:#}"));
            }
        };
        thread::Builder::new().name("saved".into()).spawn(work).context("saved screens cannot be taken")?;
        Ok(Saved { pressed, lines })
    }

    /// Notes the keys that go to the viewer.
    pub(super) fn note(&self, keys: &[u8]) {
        let pressed = keys.iter().filter(|key| **key == KEY).count();
        self.pressed.fetch_add(u32::try_from(pressed).unwrap_or(0), Ordering::AcqRel);
    }

    /// Lines about what was saved, once the viewer has ended.
    pub(super) fn finish(self) -> Vec<String> {
        let mut lines = Vec::new();
        // The thread hangs up at its end.
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            lines.push(line);
        }
        lines
    }
}

/// Takes screens until the viewer ends.
fn take_all(
    mut from: impl Read,
    place: Result<&HeldDir, &anyhow::Error>,
    pressed: &AtomicU32,
    out: &mpsc::Sender<String>,
) -> anyhow::Result<()> {
    let (mut left, mut taken) = (MOST, 0);
    while let Some(screen) = Screen::read(&mut from, &mut left)? {
        taken += 1;
        if taken > pressed.load(Ordering::Acquire) {
            bail!("nobody has pressed {}", char::from(KEY));
        }
        let line = match place {
            Ok(place) => {
                screen.write(place).unwrap_or_else(|error| format!("kmemtraced: a screen is not saved: {error:#}"))
            }
            Err(error) => {
                format!("kmemtraced: a screen is not saved: the current directory cannot be opened: {error:#}")
            }
        };
        let _ = out.send(line);
    }
    Ok(())
}

/// A screen that was handed over.
#[derive(Debug, PartialEq, Eq)]
struct Screen {
    milliseconds: u64,
    text: Vec<u8>,
    rows: Vec<u8>,
}

impl Screen {
    /// Reads the next one; `None` at the end. `left`: bytes that may still come.
    fn read(from: &mut impl Read, left: &mut usize) -> anyhow::Result<Option<Screen>> {
        let mut head = [0; 16];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read.context("it cannot be read")?,
        }
        let [a, b, c, d, e, f, g, h, rest @ ..] = head;
        let len = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]) as usize;
        let mut piece = |len: usize| {
            *left = left.checked_sub(len).with_context(|| format!("screens take more than {} MiB", MOST >> 20))?;
            let mut bytes = Vec::new();
            from.by_ref().take(len as u64).read_to_end(&mut bytes).context("it cannot be read")?;
            anyhow::ensure!(bytes.len() == len, "it is cut short");
            let mut text = Vec::new();
            // Whoever prints the file later has a terminal, too.
            Filter::of_text().pass(&bytes, &mut text);
            Ok(text)
        };
        let (text, rows) = (piece(len(0))?, piece(len(4))?);
        Ok(Some(Screen { milliseconds: u64::from_le_bytes([a, b, c, d, e, f, g, h]), text, rows }))
    }

    /// Writes both files, under a name that is free; returns a line about them.
    fn write(&self, place: &HeldDir) -> anyhow::Result<String> {
        for number in 1..=MAX_NAMES {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let name = format!("kmemtrace-top{}{suffix}", self.milliseconds);
            let [text, rows] = ["txt", "json"].map(|end| format!("{name}.{end}"));
            let made = match place.create(text.as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.with_context(|| format!("{text}: cannot be made"))?,
            };
            let second = match place.create(rows.as_ref()) {
                Err(error) => {
                    let _ = place.remove(text.as_ref());
                    if error.kind() == io::ErrorKind::AlreadyExists {
                        continue;
                    }
                    return Err(error).with_context(|| format!("{rows}: cannot be made"));
                }
                Ok(file) => file,
            };
            for (mut file, name, bytes) in [(made, &text, &self.text), (second, &rows, &self.rows)] {
                if let Err(error) = file.write_all(bytes) {
                    [&text, &rows].iter().for_each(|name| drop(place.remove(OsStr::new(name))));
                    return Err(error).with_context(|| format!("{name}: cannot be written"));
                }
                give_to_caller(&file);
            }
            return Ok(format!("saved {text} and .json"));
        }
        bail!("there are {MAX_NAMES} files of this moment")
    }
}

/// Gives a file to the user for whom sudo runs this program; it stays root's where that fails.
fn give_to_caller(file: &File) {
    if let Some((user, group)) = report::caller() {
        let _ = rustix::fs::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn screen(text: &[u8], rows: &[u8]) -> Vec<u8> {
        let mut bytes = 1234u64.to_le_bytes().to_vec();
        [text, rows].iter().for_each(|piece| bytes.extend((piece.len() as u32).to_le_bytes()));
        [text, rows].iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// Lines, and the names of the files, after these bytes and presses of the key.
    fn saved(dir: &Path, bytes: &[u8], presses: u32) -> (Vec<String>, Vec<String>) {
        let place = HeldDir::reach(dir).unwrap();
        let (out, lines) = mpsc::channel();
        if let Err(error) = take_all(bytes, Ok(&place), &AtomicU32::new(presses), &out) {
            out.send(format!("{error:#}")).unwrap();
        }
        drop(out);
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        (lines.iter().collect(), names)
    }

    #[test]
    fn screens_are_files_without_escapes_and_replace_none() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = [screen(b"a\x1b[6nb\n", b"{}\n"), screen(b"second\n", b"{}\n")].concat();
        let (lines, names) = saved(dir.path(), &bytes, 2);
        assert_eq!(lines, ["saved kmemtrace-top1234.txt and .json", "saved kmemtrace-top1234-2.txt and .json"]);
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(fs::read(dir.path().join("kmemtrace-top1234.txt")).unwrap(), b"ab\n");
    }

    #[test]
    fn no_link_is_followed() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path().join("target"), dir.path().join("kmemtrace-top1234.txt")).unwrap();
        symlink(other.path().join("target"), dir.path().join("kmemtrace-top1234-2.json")).unwrap();
        let (lines, _) = saved(dir.path(), &screen(b"text", b"{}"), 1);
        assert_eq!(lines, ["saved kmemtrace-top1234-3.txt and .json"]);
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
        assert!(!dir.path().join("kmemtrace-top1234-2.txt").exists());
    }

    #[test]
    fn a_viewer_saves_nothing_by_itself_and_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let (lines, names) = saved(dir.path(), &screen(b"text", b"{}"), 0);
        assert_eq!((lines, names), (vec!["nobody has pressed w".to_owned()], Vec::new()));
        let mut long = 1u64.to_le_bytes().to_vec();
        long.extend(u32::MAX.to_le_bytes());
        long.extend([0; 4]);
        let (lines, names) = saved(dir.path(), &long, 1);
        assert_eq!((lines, names), (vec!["screens take more than 64 MiB".to_owned()], Vec::new()));
        let cut = screen(b"text", b"{}");
        let (lines, names) = saved(dir.path(), &cut[..cut.len() - 1], 1);
        assert_eq!((lines, names), (vec!["it is cut short".to_owned()], Vec::new()));
    }
}
