//! Ring buffers of a text: trace-cmd prints the name of one in front of its lines, but not in front of the event after a line that says
//! of dropped events.

use super::entry::Entry;
use crate::open::options::Wanted;

/// Limit of buffers: a kernel has some instances.
const MAX_BUFFERS: usize = 64;

/// Buffers of a text, by number; the main one, without a name, is the first.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    names: Vec<Box<[u8]>>,
    /// Number of the buffer whose line of loss was the last line.
    after_loss: usize,
    /// Number of the one that is read; `None`: all are.
    only: Option<usize>,
}

/// Events of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BufferFacts {
    pub(super) name: Box<[u8]>,
    pub(super) events: u64,
    /// Events by [`Wanted`].
    pub(super) wanted: [u64; 3],
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { names: vec![Box::default()], after_loss: 0, only: None }
    }
}

impl Buffers {
    /// The lines of this buffer alone.
    pub(super) fn only(name: &[u8]) -> Buffers {
        let mut buffers = Buffers::default();
        buffers.only = Some(buffers.number(name));
        buffers
    }

    fn number(&mut self, name: &[u8]) -> usize {
        match self.names.iter().position(|known| **known == *name) {
            Some(number) => number,
            None if self.names.len() < MAX_BUFFERS => {
                self.names.push(name.into());
                self.names.len().saturating_sub(1)
            }
            None => 0,
        }
    }

    /// Number of the buffer of a line; `None` for a line of no buffer.
    pub(super) fn of(&mut self, entry: &Entry<'_>) -> Option<usize> {
        let after_loss = std::mem::take(&mut self.after_loss);
        match entry {
            Entry::Record(head, _) if head.buffer.is_empty() => Some(after_loss),
            Entry::Record(head, _) => Some(self.number(head.buffer)),
            Entry::Lost(name, ..) => {
                self.after_loss = self.number(name);
                Some(self.after_loss)
            }
            _ => None,
        }
    }

    /// True for a line that is read: one of no other buffer.
    pub(super) fn takes(&mut self, entry: &Entry<'_>) -> bool {
        let number = self.of(entry);
        self.is_taken(number)
    }

    /// True for the number of a buffer that is read.
    pub(super) fn is_taken(&self, number: Option<usize>) -> bool {
        number.zip(self.only).is_none_or(|(number, only)| number == only)
    }

    pub(super) fn name(&self, number: usize) -> &[u8] {
        self.names.get(number).map_or(&[], |name| name)
    }
}

/// The buffer to read, where there is a choice: the one that was asked for, else the only one with events of objects, of waits or calls.
///
/// # Errors
/// The buffers that there are, where the caller has to name one.
pub(super) fn choose<'f>(
    found: &'f [BufferFacts],
    asked: Option<&str>,
    wanted: Wanted,
) -> Result<Option<&'f [u8]>, String> {
    let one = |facts: &BufferFacts| {
        let plural = if facts.events == 1 { "" } else { "s" };
        format!("'{}' ({} event{plural})", String::from_utf8_lossy(&facts.name), facts.events)
    };
    let list = || found.iter().map(one).collect::<Vec<_>>().join(", ");
    if let Some(asked) = asked {
        let is_it = |facts: &&BufferFacts| *facts.name == *asked.as_bytes();
        let chosen = found.iter().find(is_it).map(|facts| &*facts.name);
        return chosen.map(Some).ok_or_else(|| format!("has no buffer '{asked}'; it has {}", list()));
    }
    if found.len() < 2 {
        return Ok(None);
    }
    for wanted in wanted.order() {
        match found
            .iter()
            .filter(|facts| facts.wanted.get(wanted as usize).is_some_and(|events| *events > 0))
            .collect::<Vec<_>>()[..]
        {
            [] => {}
            [facts] => return Ok(Some(&facts.name)),
            _ => break,
        }
    }
    Err(format!("has events of several buffers: {}; choose one with --buffer NAME", list()))
}

#[cfg(test)]
mod tests {
    use super::super::entry::entry;
    use super::*;

    #[test]
    fn the_event_behind_a_line_of_loss_is_of_its_buffer() {
        let lines = [
            ("            bash-8212  [001]  5.000007: x: ", 0),
            ("one:             bash-8212  [001]  5.000007: x: ", 1),
            ("one: CPU:1 [EVENTS DROPPED]", 1),
            ("            bash-8212  [001]  5.000007: x: ", 1),
            ("            bash-8212  [001]  5.000007: x: ", 0),
            ("CPU:1 [3 EVENTS DROPPED]", 0),
            ("            bash-8212  [001]  5.000007: x: ", 0),
            ("two:             bash-8212  [001]  5.000007: x: ", 2),
        ];
        let (mut all, mut one) = (Buffers::default(), Buffers::only(b"one"));
        for (line, number) in lines {
            let entry = entry(line.as_bytes());
            assert_eq!(all.of(&entry), Some(number), "{line}");
            assert_eq!(one.takes(&entry), number == 1, "{line}");
        }
        assert!(one.takes(&entry(b" => f")));
    }

    #[test]
    fn the_only_buffer_with_events_of_memory_is_chosen() {
        let facts = |name: &str, events, wanted| BufferFacts { name: name.as_bytes().into(), events, wanted };
        let (main, one) = (facts("", 5, [0, 1, 0]), facts("one", 7, [7, 0, 0]));
        let found = [main.clone(), one.clone()];
        assert_eq!(choose(&found, None, Wanted::Objects), Ok(Some(&b"one"[..])));
        assert_eq!(choose(&found, Some(""), Wanted::Objects), Ok(Some(&b""[..])));
        assert_eq!(choose(&found[..1], None, Wanted::Objects), Ok(None));
        assert_eq!(choose(&found, None, Wanted::Waits), Ok(Some(&b""[..])));
        assert_eq!(choose(&found, None, Wanted::Calls), Ok(Some(&b"one"[..])));
        let refused = choose(&found, Some("two"), Wanted::Objects).unwrap_err();
        assert_eq!(refused, "has no buffer 'two'; it has '' (5 events), 'one' (7 events)");
        let both = [facts("", 1, [1, 0, 0]), one];
        assert!(
            choose(&both, None, Wanted::Objects)
                .unwrap_err()
                .contains("'' (1 event), 'one' (7 events); choose one with --buffer")
        );
    }
}
