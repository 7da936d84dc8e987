//! Ways to call-sites in a tree of the kernel's sources: folders and file, or area and file, then function and call-site.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::grouping::GroupKey;
use super::row_paths::{NodeKind, Step};
use crate::names::kallsyms::{SiteOwner, Symbolizer};
use crate::names::known::KnownNames;
use crate::names::place::Place;
use crate::names::resolver::Places;

/// Name of the node of call-sites without a folder.
pub(crate) const NO_FOLDER: &[u8] = b"(no folder known)";
/// Name of the node of call-sites without an area.
pub(crate) const NO_AREA: &[u8] = b"(no area known)";

/// Nodes at the top of a tree of call-sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacedBy {
    /// Folders of the sources, files and functions.
    #[default]
    Folder,
    /// Areas of the kernel's MAINTAINERS, files and functions.
    Area,
    /// Modules, with call-sites right below.
    Module,
}

impl PlacedBy {
    /// Word of the contract.
    pub(crate) fn key(self) -> GroupKey {
        match self {
            PlacedBy::Folder => GroupKey::Folder,
            PlacedBy::Area => GroupKey::Area,
            PlacedBy::Module => GroupKey::Module,
        }
    }
}

/// Limit of folders within each other: paths of files are a stranger's.
const MAX_DEPTH: usize = 64;

/// Kind and name of a node below another one.
pub(crate) type PlaceStep = (NodeKind, Box<[u8]>);

/// Call-site with its names.
#[derive(Debug)]
pub(crate) struct PlacedSite<'a> {
    /// Return address.
    pub(crate) address: u64,
    /// `function+0x1f`, if it is known.
    pub(crate) symbol: Option<Vec<u8>>,
    /// Owner of the call-site.
    pub(crate) owner: SiteOwner<'a>,
    /// True where the module was gone at the end of the recording.
    pub(crate) is_gone: bool,
    /// Place in the sources.
    pub(crate) place: Arc<Place>,
}

impl<'a> PlacedSite<'a> {
    pub(crate) fn of(address: u64, symbols: &'a Symbolizer, places: &Places) -> PlacedSite<'a> {
        let symbol = symbols.lookup(address);
        PlacedSite {
            address,
            symbol: symbol.map(|symbol| symbol.text()),
            owner: symbols.owner_of(address, symbol.as_ref()),
            is_gone: symbol.is_some_and(|symbol| symbol.is_gone),
            place: places.place(address, symbols),
        }
    }

    /// Steps to the call-site.
    pub(crate) fn path(&self, by: PlacedBy) -> Vec<PlaceStep> {
        let mut path = match by {
            PlacedBy::Module => vec![(NodeKind::Module, self.owner.name().into())],
            by => self.place_path(by == PlacedBy::Area),
        };
        let site = self.symbol.clone().unwrap_or_else(|| self.owner.text(self.address));
        path.push((NodeKind::Site, site.into()));
        path
    }

    /// Steps to the function of the call-site, by area or by folder.
    fn place_path(&self, by_area: bool) -> Vec<PlaceStep> {
        let source = self.place.source.as_ref();
        let file = source.and_then(|source| source.file.as_deref());
        let mut path = match (&self.place.folder, self.owner.module(), file) {
            _ if by_area => {
                let area = self.place.area.as_deref();
                let step = area.map_or((NodeKind::Unknown, NO_AREA), |area| (NodeKind::Area, area));
                let file = file.map(|file| (NodeKind::File, file));
                [Some(step), file].into_iter().flatten().map(|(kind, name)| (kind, name.into())).collect()
            }
            (Some(_), _, Some(file)) => steps_of_file(file),
            (Some(folder), _, None) => steps_of_folder(folder),
            (None, Some(module), _) => vec![(NodeKind::Module, [b"[", module, b"]"].concat().into())],
            (None, None, _) => vec![(NodeKind::Unknown, NO_FOLDER.into())],
        };
        path.extend(source.map(|source| (NodeKind::Function, source.function.clone())));
        path
    }
}

/// Folders and name of a source file.
pub(crate) fn steps_of_file(file: &[u8]) -> Vec<PlaceStep> {
    let mut path = steps_of_folder(file);
    if let Some((kind, _)) = path.last_mut() {
        *kind = NodeKind::File;
    }
    path
}

fn steps_of_folder(folder: &[u8]) -> Vec<PlaceStep> {
    let parts = folder.splitn(MAX_DEPTH, |byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| (NodeKind::Folder, part.into())).collect()
}

/// Steps to call-sites, where the nodes of a tree are places. The value of a step is the number of its kind and name.
#[derive(Debug)]
pub(crate) struct PlaceSteps {
    names: Arc<KnownNames>,
    by_area: bool,
    numbers: HashMap<PlaceStep, u64, RandomState>,
}

impl PlaceSteps {
    /// Steps of folders, or of areas with `by_area`.
    pub(crate) fn new(names: Arc<KnownNames>, by_area: bool) -> PlaceSteps {
        PlaceSteps { names, by_area, numbers: HashMap::default() }
    }

    /// Steps to a call-site.
    pub(crate) fn to(&mut self, site: u64) -> Vec<Step> {
        let PlaceSteps { names, by_area, numbers } = self;
        let by = if *by_area { PlacedBy::Area } else { PlacedBy::Folder };
        let path = PlacedSite::of(site, names.symbolizer(), &names.places).path(by);
        let step = |of| {
            let next = numbers.len() as u64;
            Step { key: GroupKey::Folder, value: *numbers.entry(of).or_insert(next) }
        };
        path.into_iter().map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_million_folders_is_cut() {
        let deep = "a/".repeat(1_000_000) + "x.c";
        assert_eq!(steps_of_file(deep.as_bytes()).len(), MAX_DEPTH);
    }
}
