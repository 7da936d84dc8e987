//! Texts of a table, each once: a row has their numbers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;
use kmemtrace::Symbolizer;

use crate::export::frames::frame_of_module;

/// Number of a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextId(pub(super) u32);

/// Texts of all columns of a table.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) all: Vec<Rc<[u8]>>,
    ids: HashMap<Rc<[u8]>, TextId, RandomState>,
}

impl Texts {
    /// Number of a name; bytes that are not UTF-8 are replaced as in JSON.
    #[inline]
    pub(super) fn id(&mut self, name: &[u8]) -> TextId {
        match String::from_utf8_lossy(name) {
            Cow::Borrowed(_) => self.id_of_text(name),
            Cow::Owned(text) => self.id_of_text(text.as_bytes()),
        }
    }

    fn id_of_text(&mut self, text: &[u8]) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let (id, text) = (TextId(self.all.len() as u32), Rc::<[u8]>::from(text));
        self.all.push(Rc::clone(&text));
        self.ids.insert(text, id);
        id
    }
}

/// Texts of a call site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SiteTexts {
    pub(super) symbol: Option<TextId>,
    pub(super) module: Option<TextId>,
}

/// Texts of call sites and stacks: a symbol is looked up once.
pub(super) struct SymbolTexts<'a> {
    symbols: &'a Symbolizer,
    sites: HashMap<u64, SiteTexts, RandomState>,
    stacks: HashMap<Box<[u64]>, TextId, RandomState>,
}

impl<'a> SymbolTexts<'a> {
    pub(super) fn new(symbols: &'a Symbolizer) -> SymbolTexts<'a> {
        SymbolTexts { symbols, sites: HashMap::default(), stacks: HashMap::default() }
    }

    /// Forgets the numbers, for a table that begins again.
    pub(super) fn clear(&mut self) {
        self.sites.clear();
        self.stacks.clear();
    }

    /// Symbol and module of a call site; 0 has none.
    #[inline]
    pub(super) fn site(&mut self, call_site: u64, texts: &mut Texts) -> SiteTexts {
        *self.sites.entry(call_site).or_insert_with(|| SiteTexts {
            symbol: self.symbols.lookup(call_site).map(|symbol| texts.id(&symbol.text())),
            module: self.symbols.owner(call_site).module().map(|name| texts.id(name)),
        })
    }

    /// Functions of a stack whose frames begin with the innermost one, as in folded stacks: the outermost first, with `;` between them.
    pub(super) fn stack(&mut self, frames: &[u64], texts: &mut Texts) -> Option<TextId> {
        if frames.is_empty() || self.stacks.contains_key(frames) {
            return self.stacks.get(frames).copied();
        }
        let functions = frames.iter().rev().map(|&frame| match self.symbols.lookup(frame) {
            Some(symbol) => frame_of_module(symbol.name, symbol.module),
            None => format!("{frame:#x}"),
        });
        let id = texts.id(functions.collect::<Vec<_>>().join(";").as_bytes());
        self.stacks.insert(frames.into(), id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_utf8_are_replaced_as_in_json() {
        let mut texts = Texts::default();
        let ids = ["d\u{e9}ntry".as_bytes(), b"a\xff\x00b", b"a\xff\x00b"].map(|name| texts.id(name).0);
        assert_eq!(ids, [0, 1, 1]);
        assert_eq!(*texts.all[0], *"d\u{e9}ntry".as_bytes());
        assert_eq!(*texts.all[1], *"a\u{fffd}\0b".as_bytes());
    }
}
