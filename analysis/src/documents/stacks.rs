//! Call stacks of a document: numbered by their first use, and listed once after the rows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::naming::Naming;
use super::row::{Address, Cell, Field, TakeMember, text_of};
use super::stack_frame::{RowStack, StackFrame};
use crate::account::completeness::Completeness;
use crate::analysis::Analysis;

impl Serialize for StackFrame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("address", &Address(self.address))?;
        for (member, name) in [("symbol", &self.symbol), ("module", &self.module)] {
            let text = name.as_deref().map(text_of);
            map.serialize_entry(member, &text.as_ref().map(|(text, _)| text))?;
            if let Some(hex) = text.and_then(|(_, hex)| hex) {
                map.serialize_entry(&format!("{member}_hex"), &hex)?;
            }
        }
        if self.is_gone {
            map.serialize_entry("module_gone", &true)?;
        }
        map.end()
    }
}

impl Field for Option<RowStack<'_>> {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        take(name, self.as_ref().map_or(Cell::Null, Cell::Stack));
    }
}

/// Stacks that a document uses.
#[derive(Debug, Default)]
struct Used {
    /// Numbers in the document by those of the analysis.
    numbers: HashMap<u64, u64>,
    /// Numbers of the analysis, in the order of use.
    order: Vec<u64>,
}

/// Naming of stacks within one document.
#[derive(Clone)]
pub(super) struct StackNaming<'a> {
    naming: Naming<'a>,
    analysis: &'a Analysis,
    used: Rc<RefCell<Used>>,
}

impl<'a> StackNaming<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> StackNaming<'a> {
        StackNaming { naming: Naming::of(analysis), analysis, used: Rc::default() }
    }

    /// Stack of a row by its number in the analysis; `None` for no stack.
    pub(super) fn stack(&self, number: u64) -> Option<RowStack<'a>> {
        let frames = self.frames(number);
        if frames.is_empty() {
            return None;
        }
        let mut used = self.used.borrow_mut();
        let Used { numbers, order } = &mut *used;
        let number = *numbers.entry(number).or_insert_with(|| {
            order.push(number);
            order.len() as u64
        });
        Some(RowStack { number, frames })
    }

    fn frames(&self, number: u64) -> Rc<[StackFrame<'a>]> {
        let frames = self.analysis.paired.stacks.frames(number).iter();
        frames.map(|&address| self.frame(address)).collect()
    }

    /// Frame at a return address.
    pub(super) fn frame(&self, address: u64) -> StackFrame<'a> {
        let (symbol, module) = self.naming.symbol_and_module(address);
        let owner = self.naming.symbols.owner(address);
        StackFrame { address, symbol, module, owner, is_gone: self.naming.is_gone(address) }
    }

    /// Members of the document about its stacks; the table has those that were used until it is printed.
    pub(super) fn members(self) -> StackMembers<'a> {
        StackMembers { naming: self }
    }
}

/// Members of a document about its stacks, after the rows that use them.
pub struct StackMembers<'a> {
    naming: StackNaming<'a>,
}

impl StackMembers<'_> {
    /// True where no row has named a stack so far.
    pub fn is_empty(&self) -> bool {
        self.naming.used.borrow().order.is_empty()
    }
}

impl Serialize for StackMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("stacks", &StackTable(&self.naming))?;
        let counts = StackCounts::of(self.naming.analysis);
        map.serialize_entry("stacks_seen", &counts.seen)?;
        map.serialize_entry("stacks_distinct", &counts.distinct)?;
        map.serialize_entry("stacks_unmatched", &counts.unmatched)?;
        map.end()
    }
}

/// Table of the stacks of a document, by their numbers.
struct StackTable<'s, 'a>(&'s StackNaming<'a>);

impl Serialize for StackTable<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (&stack, number) in self.0.used.borrow().order.iter().zip(1u64..) {
            map.serialize_entry(&number.to_string(), &Frames(self.0, stack))?;
        }
        map.end()
    }
}

struct Frames<'s, 'a>(&'s StackNaming<'a>, u64);

impl Serialize for Frames<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frames = self.0.frames(self.1);
        let mut seq = serializer.serialize_seq(Some(frames.len()))?;
        frames.iter().try_for_each(|frame| seq.serialize_element(frame))?;
        seq.end()
    }
}

/// Numbers of stacks of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StackCounts {
    /// Stacks in the trace.
    #[serde(rename = "stacks_seen")]
    pub seen: u64,
    /// Different stacks in the trace.
    #[serde(rename = "stacks_distinct")]
    pub distinct: u64,
    /// Stacks that belong to no event.
    #[serde(rename = "stacks_unmatched")]
    pub unmatched: u64,
}

impl StackCounts {
    pub(super) fn of(analysis: &Analysis) -> StackCounts {
        let Completeness { stacks, stacks_unmatched, stacks_distinct, .. } = analysis.completeness;
        StackCounts { seen: stacks, distinct: stacks_distinct, unmatched: stacks_unmatched }
    }
}
