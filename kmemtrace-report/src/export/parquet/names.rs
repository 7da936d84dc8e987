//! Texts of call-sites, threads and interned names in a table: each is looked up once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use kmemtrace::Symbolizer;

use super::table::{Table, TextId};
use crate::export::frames::frame_of_module;

/// Call-sites or threads at hand, which most rows are of.
const RECENT: usize = 1024;

/// A name as text; bytes that are no UTF-8 as JSON has them.
pub(super) fn utf8(name: &[u8]) -> Cow<'_, [u8]> {
    match String::from_utf8_lossy(name) {
        Cow::Borrowed(_) => Cow::Borrowed(name),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Slot of a number in an array of [`RECENT`].
#[inline]
fn slot(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT.ilog2())) as usize
}

/// Symbols and modules of call-sites.
pub(super) struct SiteTexts {
    symbols: Rc<Symbolizer>,
    /// Columns of symbol and module; `None`: the module is not shown.
    columns: (usize, Option<usize>),
    known: HashMap<u64, (TextId, TextId)>,
    recent: Vec<(u64, (TextId, TextId))>,
}

impl SiteTexts {
    pub(super) fn new(symbols: &Rc<Symbolizer>, columns: (usize, Option<usize>)) -> SiteTexts {
        let recent = vec![(0, (TextId::NONE, TextId::NONE)); RECENT];
        SiteTexts { symbols: Rc::clone(symbols), columns, known: HashMap::new(), recent }
    }

    /// Symbol and module of a call-site; 0 has none.
    #[inline]
    pub(super) fn ids(&mut self, call_site: u64, table: &mut Table) -> (TextId, TextId) {
        let slot = slot(call_site);
        if self.recent[slot].0 != call_site {
            self.recent[slot] = (call_site, self.find(call_site, table));
        }
        self.recent[slot].1
    }

    fn find(&mut self, call_site: u64, table: &mut Table) -> (TextId, TextId) {
        let (symbol_column, module_column) = self.columns;
        *self.known.entry(call_site).or_insert_with(|| {
            let module = module_column.zip(self.symbols.owner(call_site).module());
            let module = module.map_or(TextId::NONE, |(column, name)| table.text_id(column, &utf8(name)));
            let symbol = self.symbols.lookup(call_site);
            (symbol.map_or(TextId::NONE, |symbol| table.text_id(symbol_column, &utf8(&symbol.text()))), module)
        })
    }
}

/// Call stacks as folded stacks have them: functions, the outermost first, with `;` between them.
pub(super) struct StackTexts {
    symbols: Rc<Symbolizer>,
    column: usize,
    known: HashMap<Box<[u64]>, TextId>,
}

impl StackTexts {
    pub(super) fn new(symbols: &Rc<Symbolizer>, column: usize) -> StackTexts {
        StackTexts { symbols: Rc::clone(symbols), column, known: HashMap::new() }
    }

    /// Text of a stack, whose frames begin with the innermost one; none for no stack.
    pub(super) fn id(&mut self, frames: &[u64], table: &mut Table) -> TextId {
        if frames.is_empty() {
            return TextId::NONE;
        }
        if let Some(id) = self.known.get(frames) {
            return *id;
        }
        let functions = frames.iter().rev().map(|&frame| match self.symbols.lookup(frame) {
            Some(symbol) => frame_of_module(symbol.name, symbol.module),
            None => format!("{frame:#x}"),
        });
        let id = table.text_id(self.column, functions.collect::<Vec<_>>().join(";").as_bytes());
        self.known.insert(frames.into(), id);
        id
    }
}

/// Command names of threads.
pub(super) struct CommTexts {
    column: usize,
    recent: Vec<(i32, TextId)>,
}

impl CommTexts {
    pub(super) fn new(column: usize) -> CommTexts {
        // A thread has one name for the whole trace.
        CommTexts { column, recent: vec![(i32::MIN, TextId::NONE); RECENT] }
    }

    #[inline]
    pub(super) fn id(&mut self, pid: Option<i32>, comm: Option<&[u8]>, table: &mut Table) -> TextId {
        let (Some(pid), Some(comm)) = (pid, comm) else { return TextId::NONE };
        let slot = slot(pid.cast_unsigned().into());
        if self.recent[slot].0 != pid {
            self.recent[slot] = (pid, table.text_id(self.column, &utf8(comm)));
        }
        self.recent[slot].1
    }
}

/// Texts by the index of an interned name.
pub(super) struct NameTexts {
    column: usize,
    known: Vec<Option<TextId>>,
}

impl NameTexts {
    pub(super) fn new(column: usize) -> NameTexts {
        NameTexts { column, known: Vec::new() }
    }

    /// Text of the name with this index.
    #[inline]
    pub(super) fn id<'n>(&mut self, index: usize, name: impl FnOnce() -> &'n [u8], table: &mut Table) -> TextId {
        if let Some(Some(id)) = self.known.get(index) {
            return *id;
        }
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        let id = table.text_id(self.column, &utf8(name()));
        self.known[index] = Some(id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_utf8_are_replaced_as_in_json() {
        assert_eq!(*utf8("d\u{e9}ntry".as_bytes()), *"d\u{e9}ntry".as_bytes());
        assert_eq!(*utf8(b"a\xff\x00b"), *"a\u{fffd}\0b".as_bytes());
    }
}
