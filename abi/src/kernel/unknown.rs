//! Counts of events that may allocate or free objects, and that this program does not know.

use std::collections::BTreeMap;

/// Numbers of such events by name, each name as the trace has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UnknownEvents {
    /// At most one entry for each event id of the trace, of which there are 65,536.
    by_name: BTreeMap<Box<[u8]>, u64>,
}

impl UnknownEvents {
    /// Counts an event of this name.
    #[cold]
    pub(crate) fn count(&mut self, name: &[u8]) {
        match self.by_name.get_mut(name) {
            Some(events) => *events = events.saturating_add(1),
            None => drop(self.by_name.insert(name.into(), 1)),
        }
    }

    /// Adds the numbers of another file.
    pub fn add(&mut self, other: &UnknownEvents) {
        other.by_name.iter().for_each(|(name, &events)| self.add_named(name, events));
    }

    /// Adds events of one name.
    pub fn add_named(&mut self, name: &[u8], events: u64) {
        let sum = self.by_name.entry(name.into()).or_default();
        *sum = sum.saturating_add(events);
    }

    /// Names and numbers, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.by_name.iter().map(|(name, &events)| (&**name, events))
    }

    /// Number of events of all names.
    pub fn total(&self) -> u64 {
        self.by_name.values().fold(0, |sum, &events| sum.saturating_add(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_two_files_add_up_by_name() {
        let of = |names: &[&str]| {
            let mut events = UnknownEvents::default();
            names.iter().for_each(|name| events.count(name.as_bytes()));
            events
        };
        let mut sum = of(&["kfree_bulk", "alloc_bulk", "kfree_bulk"]);
        sum.add(&of(&["kfree_bulk", "other"]));
        let expected: [(&[u8], u64); 3] = [(b"alloc_bulk", 1), (b"kfree_bulk", 3), (b"other", 1)];
        assert_eq!(sum.iter().collect::<Vec<_>>(), expected);
        assert_eq!((sum.total(), UnknownEvents::default().total()), (5, 0));
    }
}
