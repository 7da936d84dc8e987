//! Groupings: the keys that make a row, and their values as numbers.

use kmemtrace_abi::event::Kind;
use serde::{Deserialize, Serialize};

pub(crate) use super::keys::GroupKey;

/// Rule by which an allocation belongs to a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModuleRule {
    /// Module of the call-site.
    #[default]
    Site,
    /// Module of the frame nearest to the allocation that has one.
    Innermost,
    /// Module of the frame farthest from the allocation that has one.
    Outermost,
    /// Each module of the stack: rows overlap.
    Any,
}

impl ModuleRule {
    /// All rules.
    pub const ALL: [ModuleRule; 4] = [ModuleRule::Innermost, ModuleRule::Outermost, ModuleRule::Any, ModuleRule::Site];

    /// Word of the contract.
    pub fn name(self) -> &'static str {
        match self {
            ModuleRule::Site => "site",
            ModuleRule::Innermost => "innermost",
            ModuleRule::Outermost => "outermost",
            ModuleRule::Any => "any",
        }
    }
}

/// Keys that make a row, in the order asked for; without a key a row is a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grouping {
    keys: [Option<GroupKey>; GroupKey::ALL.len()],
}

impl Grouping {
    /// A row per kind.
    pub(crate) const KIND: Grouping = Grouping::one(None);
    /// A row per call-site and kind.
    pub(crate) const SITE: Grouping = Grouping::one(Some(GroupKey::Site));
    /// A row per call-site, stack and kind.
    pub(crate) const SITE_AND_STACK: Grouping = {
        let mut grouping = Grouping::SITE;
        grouping.keys[1] = Some(GroupKey::Stack);
        grouping
    };
    /// A row per call-site, thread, use of pages and kind: what leaks are found by.
    pub(crate) const LEAKS: Grouping = {
        let mut grouping = Grouping::SITE;
        grouping.keys[1] = Some(GroupKey::Task);
        grouping.keys[2] = Some(GroupKey::Use);
        grouping
    };
    /// A row per cache and kind.
    pub(crate) const CACHE: Grouping = Grouping::one(Some(GroupKey::Cache));

    const fn one(key: Option<GroupKey>) -> Grouping {
        let mut keys = [None; GroupKey::ALL.len()];
        keys[0] = key;
        Grouping { keys }
    }

    /// Grouping by these keys; a repeated key counts once.
    pub(crate) fn of(keys: &[GroupKey]) -> Grouping {
        let mut grouping = Grouping::KIND;
        for &key in keys {
            if !grouping.has(key)
                && let Some(free) = grouping.keys.iter_mut().find(|slot| slot.is_none())
            {
                *free = Some(key);
            }
        }
        grouping
    }

    /// The grouping by further keys, too.
    pub(crate) fn with(self, more: &[GroupKey]) -> Grouping {
        Grouping::of(&self.keys().chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// The keys, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = GroupKey> + '_ {
        self.keys.iter().flatten().copied()
    }

    /// True if rows are made of this key, too.
    pub(crate) fn has(&self, key: GroupKey) -> bool {
        self.keys.contains(&Some(key))
    }

    /// The keys but the call-site, which every class of objects has.
    pub(crate) fn others(&self) -> impl Iterator<Item = GroupKey> + '_ {
        self.keys().filter(|&key| key != GroupKey::Site)
    }
}

/// Value of a key as a number: an address, a size, flags, or one more than an index of a name. [`NO_VALUE`] where the event has none.
pub(crate) type GroupValue = u64;

/// Value of a key that the event does not have. No name, thread, node or context has this number.
pub(crate) const NO_VALUE: GroupValue = u64::MAX;

/// Allocator between the pages of a row and its call site, of a text of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Through {
    /// None: the caller alone uses the memory.
    #[default]
    Nothing,
    /// A slab: other callers use it, too.
    Slab,
    /// `vmalloc`.
    Vmalloc,
}

impl Through {
    /// Word of documents.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Through::Nothing => None,
            Through::Slab => Some("slab"),
            Through::Vmalloc => Some("vmalloc"),
        }
    }
}

/// Key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RowKey {
    /// Call-site, where the grouping has it, else 0.
    pub(crate) site: u64,
    /// The other keys: the value of a single one, else the number of a list of values; 0 without another key.
    pub(crate) others: u64,
    /// Kind of the objects.
    pub(crate) kind: Kind,
    /// Allocator in between, where rows are call sites of a text of one moment; no index keeps those.
    #[serde(skip)]
    pub(crate) through: Through,
}

impl RowKey {
    /// Key of a row per call-site.
    #[cfg(test)]
    pub(crate) fn of_site(site: u64, kind: Kind) -> RowKey {
        RowKey { site, others: 0, kind, through: Through::Nothing }
    }
}

/// Lists of values, each kept once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ValueLists {
    /// Values of all lists, one list after the other.
    values: Vec<GroupValue>,
    /// Number of values of a list; 0 or 1 where no lists are needed.
    len: usize,
}

impl ValueLists {
    pub(crate) fn new(values: Vec<GroupValue>, len: usize) -> ValueLists {
        ValueLists { values, len }
    }

    /// Lists whose values of the key of this place are others.
    pub(crate) fn map(self, place: usize, of: impl Fn(GroupValue) -> Option<GroupValue>) -> Option<ValueLists> {
        let mut values = self.values;
        for value in values.iter_mut().skip(place).step_by(self.len.max(1)) {
            *value = of(*value)?;
        }
        Some(ValueLists { values, ..self })
    }

    /// The values of a row's other keys, in the grouping's order.
    pub(crate) fn of(&self, others: u64) -> Vec<GroupValue> {
        if self.len < 2 {
            return vec![others];
        }
        let from = usize::try_from(others).unwrap_or(usize::MAX).saturating_mul(self.len);
        self.values.get(from..from.saturating_add(self.len)).unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grouping_keeps_the_order_and_each_key_once() {
        let keys = [GroupKey::Comm, GroupKey::Site, GroupKey::Comm, GroupKey::Size];
        let grouping = Grouping::of(&keys);
        assert_eq!(grouping.keys().collect::<Vec<_>>(), [GroupKey::Comm, GroupKey::Site, GroupKey::Size]);
        assert_eq!(grouping.others().collect::<Vec<_>>(), [GroupKey::Comm, GroupKey::Size]);
        assert_eq!(Grouping::of(&[GroupKey::Site]), Grouping::SITE);
        assert_eq!(Grouping::of(&GroupKey::ALL).keys().count(), GroupKey::ALL.len());
    }

    #[test]
    fn values_come_back_from_the_number_of_their_list() {
        let lists = ValueLists::new(vec![1, 2, 3, NO_VALUE], 2);
        assert_eq!((lists.of(0), lists.of(1), lists.of(2)), (vec![1, 2], vec![3, NO_VALUE], vec![]));
        assert_eq!(ValueLists::default().of(9), [9]);
    }
}
