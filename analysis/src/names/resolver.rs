//! Resolver of call-sites: from an address to its place in the sources, by the best source that knows it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use crate::names::kallsyms::{Symbol, Symbolizer};
use crate::names::options::NameOptions;
use crate::names::place::{Frame, NameSource, NamesReport, Place};

/// Places of call-sites, each found once.
#[derive(Debug, Default)]
pub(crate) struct Places {
    options: NameOptions,
    known: Mutex<HashMap<u64, Arc<Place>>>,
}

impl Places {
    /// Resolver with these options.
    pub(crate) fn new(options: NameOptions) -> Places {
        Places { options, known: Mutex::default() }
    }

    /// Place of a call-site.
    pub(crate) fn place(&self, call_site: u64, symbols: &Symbolizer) -> Arc<Place> {
        if let Some(known) = self.known.lock().ok().and_then(|known| known.get(&call_site).cloned()) {
            return known;
        }
        let place = Arc::new(self.find(call_site, symbols));
        if let Ok(mut known) = self.known.lock() {
            known.insert(call_site, Arc::clone(&place));
        }
        place
    }

    /// Folders and files of the call-sites that were asked for so far, ascending.
    pub(crate) fn paths(&self) -> BTreeSet<Box<[u8]>> {
        let mut paths = BTreeSet::new();
        for place in self.known.lock().iter().flat_map(|known| known.values()) {
            paths.extend(place.folder.clone());
            paths.extend(place.path().map(Into::into));
        }
        paths
    }

    fn find(&self, call_site: u64, symbols: &Symbolizer) -> Place {
        let symbol = symbols.lookup(call_site);
        let (frames, from) = self.frames(call_site, symbol.as_ref());
        let Some((source, wrapper)) = self.options.wrappers.source(&frames) else { return Place::default() };
        let of_file = source.file.as_deref().and_then(folder_of);
        let of_module = || symbol.and_then(|symbol| self.folder_of_module(symbol.module?));
        let (folder, folder_from) = match of_file {
            Some(folder) => (Some(folder), Some(from)),
            None => {
                let folder = of_module();
                let from = folder.is_some().then_some(NameSource::Module);
                (folder, from)
            }
        };
        let area = source.file.as_deref().and_then(|file| self.options.areas.of_file(file));
        let area = area.map(|area| area.as_bytes().into());
        Place { frames, source: Some(source), folder, folder_from, wrapper, area }
    }

    fn frames(&self, _call_site: u64, symbol: Option<&Symbol<'_>>) -> (Vec<Frame>, NameSource) {
        let frame = symbol.map(|symbol| Frame { function: symbol.name.into(), file: None, line: None, inlined: false });
        (frame.into_iter().collect(), NameSource::Symbols)
    }

    /// Folder of a module's sources, by its path below the modules' folder.
    fn folder_of_module(&self, _module: &[u8]) -> Option<Box<[u8]>> {
        None
    }

    /// Origin of the names, for the head of documents.
    pub(crate) fn report(&self, symbols: Option<&Symbolizer>) -> NamesReport {
        let has_symbols = symbols.is_some_and(|symbols| !symbols.is_empty());
        NamesReport { kernel: has_symbols.then_some(NameSource::Symbols), ..NamesReport::default() }
    }
}

/// Folder of a file's path; `None` for a path outside of the kernel's sources.
fn folder_of(file: &[u8]) -> Option<Box<[u8]>> {
    if file.starts_with(b"/") || file.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return None;
    }
    let end = file.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    Some(file[..end].into())
}
