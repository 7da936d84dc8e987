//! Scripts of keys: lines `wait 1.5s`, `text WORDS`, or the name of a key.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::bail;
use kmemtrace_abi::text::{duration, escape::escape};

use super::source::read_small;
use crate::render::top_screen::keys::Key;

/// Step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nanoseconds to wait.
    Wait(u64),
    /// Key to press.
    Key(Key),
}

/// Steps that are left.
#[derive(Clone, Debug, Default)]
pub(super) struct Script(VecDeque<Step>);

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is no step.
    pub(super) fn read(path: &Path) -> anyhow::Result<Script> {
        let mut steps = VecDeque::new();
        for (line, number) in read_small(path)?.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let shown = || escape(path.as_os_str().as_encoded_bytes()).into_owned();
            match line.split_once(' ') {
                Some(("wait", time)) => match duration::parse(time.trim()).and_then(|time| u64::try_from(time).ok()) {
                    Some(time) => steps.push_back(Step::Wait(time)),
                    None => bail!("{}: line {number}: a time is a number with a unit: 1.5s, 200ms", shown()),
                },
                Some(("text", text)) => steps.extend(text.chars().map(|char| Step::Key(Key::Char(char)))),
                _ => match Key::named(line) {
                    Some(key) => steps.push_back(Step::Key(key)),
                    None => bail!(
                        "{}: line {number}: is not a step: wait TIME, text WORDS, one character, or enter, esc, tab, space, backspace, \
                         up, down, left, right, home, end, pgup, pgdn",
                        shown()
                    ),
                },
            }
        }
        Ok(Script(steps))
    }

    /// True where steps have times.
    pub(super) fn waits(&self) -> bool {
        self.0.iter().any(|step| matches!(step, Step::Wait(_)))
    }

    /// Takes out the next step.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        self.0.pop_front()
    }
}

impl IntoIterator for Script {
    type Item = Step;
    type IntoIter = std::collections::vec_deque::IntoIter<Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
