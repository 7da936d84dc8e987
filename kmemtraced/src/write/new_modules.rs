//! Modules that are loaded while the recorder records. Symbols of a module, those of its initialisation in particular, are in the
//! kernel for a while only.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Modules that are known, by the lines of `/proc/modules`.
#[derive(Debug, Default)]
pub(crate) struct KnownModules {
    /// Text that was read last.
    text: Vec<u8>,
    /// Size of each module that was ever there: a module that comes back elsewhere is another one.
    known: BTreeMap<Module, Vec<u8>>,
}

/// Name and address of a module.
type Module = (Vec<u8>, Vec<u8>);

/// Name and address in a line of `/proc/modules`: the first word, and the sixth.
fn name_and_address(line: &[u8]) -> Option<Module> {
    let mut words = line.split(|&b| b == b' ').filter(|word| !word.is_empty());
    let name = words.next()?.to_vec();
    Some((name, words.nth(4).unwrap_or_default().to_vec()))
}

/// Size in such a line: the second word.
fn size(line: &[u8]) -> Vec<u8> {
    line.split(|&b| b == b' ').filter(|word| !word.is_empty()).nth(1).unwrap_or_default().to_vec()
}

impl KnownModules {
    /// Takes a new text of `/proc/modules`; returns the lines of modules that are new, and their names.
    pub(crate) fn take(&mut self, text: Vec<u8>) -> (Vec<u8>, BTreeSet<Vec<u8>>) {
        let (mut lines, mut names) = (Vec::new(), BTreeSet::new());
        if text == self.text {
            return (lines, names);
        }
        for line in text.split(|&b| b == b'\n') {
            let Some(module) = name_and_address(line) else { continue };
            if let Entry::Vacant(new) = self.known.entry(module) {
                lines.extend_from_slice(line);
                lines.push(b'\n');
                names.insert(new.key().0.clone());
                new.insert(size(line));
            }
        }
        self.text = text;
        (lines, names)
    }

    /// Lines of the modules that are not in the last text of `/proc/modules`: their state is `Gone`.
    pub(crate) fn gone(&self, text: &[u8]) -> Vec<u8> {
        let present: BTreeSet<_> = text.split(|&b| b == b'\n').filter_map(name_and_address).collect();
        // A text that could not be read tells nothing.
        let known = self.known.iter().filter(|(module, _)| !present.is_empty() && !present.contains(*module));
        let line = |((name, address), size): (&Module, &Vec<u8>)| {
            [name, &b" "[..], size, b" 0 - Gone ", address, b"\n"].concat()
        };
        known.flat_map(line).collect()
    }
}

/// Lines of `/proc/kallsyms` that name symbols of some modules, taken out of the text piece by piece.
#[derive(Debug)]
pub(crate) struct SymbolsOf<'a> {
    modules: &'a BTreeSet<Vec<u8>>,
    /// Beginning of a line whose end is in the next piece.
    partial: Vec<u8>,
    lines: Vec<u8>,
}

impl<'a> SymbolsOf<'a> {
    pub(crate) fn new(modules: &'a BTreeSet<Vec<u8>>) -> SymbolsOf<'a> {
        SymbolsOf { modules, partial: Vec::new(), lines: Vec::new() }
    }

    /// Adds a piece of the text, which may end within a line.
    pub(crate) fn add(&mut self, piece: &[u8]) {
        let mut lines = piece.split(|&b| b == b'\n').peekable();
        while let Some(line) = lines.next() {
            self.partial.extend_from_slice(line);
            if lines.peek().is_some() {
                self.end_line();
            }
        }
    }

    /// Ends the text; returns the lines.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_line();
        self.lines
    }

    fn end_line(&mut self) {
        let line = &self.partial;
        let module = line.strip_suffix(b"]").and_then(|line| line.rsplit(|&b| b == b'[').next());
        if module.is_some_and(|module| self.modules.contains(module)) {
            self.lines.extend_from_slice(line);
            self.lines.push(b'\n');
        }
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_new_once_at_each_address() {
        let mut known = KnownModules::default();
        let mut new = |text: &str| String::from_utf8(known.take(text.into()).0).unwrap();
        let ext4 = "ext4 16384 2 - Live 0xffffffffc0010000\n";
        assert_eq!(new(ext4), ext4);
        assert_eq!(new("ext4 16384 3 foo, Live 0xffffffffc0010000\n"), "", "another count of uses");
        let foo = "foo 4096 0 - Loading 0xffffffffc0020000 (OE+)\n";
        assert_eq!(new(&format!("{foo}{ext4}")), foo);
        assert_eq!(new(&foo.replace("Loading", "Live")), "");
        assert_eq!(new(ext4), "");
        let moved = foo.replace("2000", "3000");
        assert_eq!(new(&moved), moved);
        assert_eq!(new("\n\nx\n"), "x\n");
    }

    #[test]
    fn a_module_that_is_not_there_at_the_end_is_gone() {
        let mut known = KnownModules::default();
        known.take(b"ext4 16384 2 - Live 0x10\nfoo 4096 1 bar, Loading 0x20 (OE+)\n".to_vec());
        known.take(b"ext4 16384 2 - Live 0x10\nfoo 4096 0 - Live 0x30\n".to_vec());
        let gone = |text: &str| String::from_utf8(known.gone(text.as_bytes())).unwrap();
        assert_eq!(gone("foo 4096 9 - Live 0x30\next4 16384 2 - Live 0x10\n"), "foo 4096 0 - Gone 0x20\n");
        assert_eq!(gone("foo 4096 0 - Live 0x20\n"), "ext4 16384 0 - Gone 0x10\nfoo 4096 0 - Gone 0x30\n");
        assert_eq!(gone(""), "", "a text that was not read");
    }

    #[test]
    fn symbols_are_those_of_the_modules_however_the_text_is_cut() {
        let text = "1 T stext\n2 t foo_init\t[foo]\n3 t x\t[foo2]\n4 t [foo] y\n5 b foo_end\t[foo]";
        let modules = BTreeSet::from([b"foo".to_vec()]);
        for cut in 0..text.len() {
            let mut symbols = SymbolsOf::new(&modules);
            [&text[..cut], &text[cut..]].iter().for_each(|piece| symbols.add(piece.as_bytes()));
            assert_eq!(symbols.finish(), b"2 t foo_init\t[foo]\n5 b foo_end\t[foo]\n", "{cut}");
        }
    }
}
