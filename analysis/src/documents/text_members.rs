//! Members that rows of a text of one moment have besides the figures; rows of other inputs have none of them.

use kmemtrace_abi::trace::{HANDLES, TraceInfo};

use super::row::{Cell, Field, Row, TakeMember};
use super::slab_members::SlabMembers;
use crate::account::grouping::{GroupKey, Grouping, RowKey};
use crate::account::row_extras::JoinedExtras;
use crate::analysis::Analysis;
use crate::pairing::result::PairingResult;

/// Value of such a member; `None`: the text does not say it for the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextValue {
    /// A word of the contract.
    Word(Option<&'static str>),
    /// A number.
    Number(Option<u64>),
    /// True or false.
    Flag(Option<bool>),
    /// Numbers under one name.
    Numbers(Option<Vec<u64>>),
    /// Bytes of the text.
    Name(Option<Box<[u8]>>),
    /// Columns of slabinfo.
    Slab(Option<SlabMembers>),
}

/// Members of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMembers(pub Vec<(&'static str, TextValue)>);

impl TextMembers {
    /// Value of a member.
    pub fn get(&self, member: &str) -> Option<&TextValue> {
        self.0.iter().find(|(name, _)| *name == member).map(|(_, value)| value)
    }

    /// Allocator between the pages of the row and its call site: `slab` or `vmalloc`.
    pub fn through(&self) -> Option<&'static str> {
        match self.get("through") {
            Some(TextValue::Word(word)) => *word,
            _ => None,
        }
    }
}

impl Row for TextMembers {
    fn members(&self, take: &mut TakeMember<'_>) {
        for (member, value) in &self.0 {
            match value {
                TextValue::Word(word) => word.put(member, take),
                TextValue::Number(number) => number.put(member, take),
                TextValue::Flag(flag) => flag.put(member, take),
                TextValue::Numbers(numbers) => take(member, numbers.as_deref().map_or(Cell::Null, Cell::Counts)),
                TextValue::Name(name) => take(member, name.as_deref().map_or(Cell::Null, Cell::Name)),
                TextValue::Slab(slab) => take(member, slab.as_ref().map_or(Cell::Null, |slab| Cell::Figures(slab))),
            }
        }
    }
}

impl Field for TextMembers {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        self.members(take);
    }
}

/// Members that rows of a text have, by its input.
#[derive(Clone, Copy)]
pub(super) struct TextNaming<'a> {
    paired: &'a PairingResult,
    input: &'static str,
    has_handles: bool,
    by_site: bool,
}

impl<'a> TextNaming<'a> {
    /// Members of the rows of an analysis.
    pub(super) fn of(analysis: &'a Analysis) -> TextNaming<'a> {
        TextNaming::new(&analysis.info, &analysis.paired, analysis.grouping)
    }

    fn new(info: &TraceInfo, paired: &'a PairingResult, grouping: Grouping) -> TextNaming<'a> {
        let by_site = grouping.has(GroupKey::Site);
        let form = info.text.as_ref().map(|text| text.form);
        TextNaming {
            paired,
            input: form.map_or("", |_| info.input.name()),
            has_handles: by_site && form == Some("handles"),
            by_site,
        }
    }

    /// Members of a row.
    pub(super) fn members(self, key: &RowKey) -> TextMembers {
        let none = JoinedExtras::default();
        let extras = self.paired.extras.get(key).unwrap_or(&none);
        let mut members = Vec::new();
        match self.input {
            "page_owner" | "kmemleak" | "slab_report" if self.by_site => {
                members.push(("through", TextValue::Word(key.through.name())));
                if self.has_handles {
                    let handle = HANDLES.contains(&key.site).then(|| key.site - HANDLES.start);
                    members.push(("handle", TextValue::Number(handle)));
                }
            }
            "alloc_traces" => {
                let pids = extras.pids.map(|pids| pids.map(|pid| u64::try_from(pid).unwrap_or(0)).to_vec());
                members.push(("age_jiffies", TextValue::Numbers(extras.age_jiffies().map(Into::into))));
                members.push(("pids", TextValue::Numbers(pids)));
                members.push(("cpus", TextValue::Name(extras.cpus.text())));
                members.push(("nodes", TextValue::Name(extras.nodes.text())));
            }
            "slabinfo" | "meminfo" => members.push(("slab", TextValue::Slab(extras.slab.map(Into::into)))),
            "allocinfo" => {
                members.push(("accurate", TextValue::Flag(extras.is_accurate)));
                members.push(("rounded", TextValue::Flag(extras.is_rounded)));
            }
            _ => {}
        }
        TextMembers(members)
    }
}
