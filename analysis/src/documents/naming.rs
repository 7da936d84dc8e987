//! Names of call-sites, caches and commands in a view.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use kmemtrace_abi::event::Names;
use kmemtrace_abi::trace::is_made_up;

use super::row::{Address, Cell, Field, Name, TakeMember, row};
use crate::account::place_paths::PlacedSite;
use crate::analysis::Analysis;
use crate::names::caches::candidates;
use crate::names::kallsyms::{SiteOwner, Symbolizer};
use crate::names::place::{NameSource, Place};
use crate::names::resolver::Places;

row! {
    /// A call-site and its names.
    pub struct CallSite<'a> {
        /// Return address of the call.
        pub call_site: Address,
        /// `function+0x1f`.
        pub symbol: Name<'a>,
        /// Module of the function; `None` for the kernel itself.
        pub module: Name<'a>,
        /// Place in the kernel's sources.
        pub place: SitePlace,
        /// Owner of the code, which tells the kernel's from code that is not known; no member of documents.
        pub owner: SiteOwner<'a>,
    }
}

impl Field for SiteOwner<'_> {
    fn put(&self, _: &'static str, _: &mut TakeMember<'_>) {}
}

impl CallSite<'_> {
    /// Symbol and module; of a call-site without a symbol what [`SiteOwner::text`] has.
    pub fn text(&self) -> Vec<u8> {
        match (self.symbol.as_deref(), self.module.as_deref()) {
            (Some(symbol), Some(module)) => [symbol, b" [", module, b"]"].concat(),
            (Some(symbol), None) => symbol.to_vec(),
            (None, _) => self.owner.text(self.call_site.0),
        }
    }
}

/// Caches that objects may be of, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates(pub Vec<Box<[u8]>>);

impl Field for Option<Candidates> {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        take(name, self.as_ref().map_or(Cell::Null, |candidates| Cell::Names(&candidates.0)));
    }
}

/// Place of a row's call-site: members `frames`, `source`, `folder`, `folder_from` and `wrapper`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SitePlace(pub Arc<Place>);

/// Place of the allocation: the members of [`SitePlace`] with `alloc_` before their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocPlace(pub Option<Arc<Place>>);

/// Place of the free: the members of [`SitePlace`] with `free_` before their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreePlace(pub Option<Arc<Place>>);

/// Hands over the members of a place under these names.
fn put_place(place: Option<&Place>, names: [&'static str; 5], take: &mut TakeMember<'_>) {
    let [frames, source, folder, folder_from, wrapper] = names;
    let name = |name: Option<&'_ [u8]>, member, take: &mut TakeMember<'_>| {
        take(member, name.map_or(Cell::Null, Cell::Name));
    };
    let chain = place.map(|place| &place.frames[..]).filter(|frames| !frames.is_empty());
    take(frames, chain.map_or(Cell::Null, Cell::Frames));
    take(source, place.and_then(|place| place.source.as_ref()).map_or(Cell::Null, Cell::Source));
    name(place.and_then(|place| place.folder.as_deref()), folder, take);
    place.and_then(|place| place.folder_from).map(NameSource::name).put(folder_from, take);
    name(place.and_then(|place| place.wrapper.as_deref()), wrapper, take);
}

impl Field for SitePlace {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        put_place(Some(&self.0), ["frames", "source", "folder", "folder_from", "wrapper"], take);
    }
}

impl Field for AllocPlace {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        let names = ["alloc_frames", "alloc_source", "alloc_folder", "alloc_folder_from", "alloc_wrapper"];
        put_place(self.0.as_deref(), names, take);
    }
}

impl Field for FreePlace {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        let names = ["free_frames", "free_source", "free_folder", "free_folder_from", "free_wrapper"];
        put_place(self.0.as_deref(), names, take);
    }
}

/// Names and place of a return address, as rows have them.
pub fn call_site(analysis: &Analysis, address: u64) -> CallSite<'_> {
    Naming::of(analysis).call_site(address)
}

/// Place of a call site among rows of equal rank: by address, then those without one by symbol and module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SiteOrder {
    /// The address that the input gives.
    Address(u64),
    /// Symbol with offset, and module.
    Named(Option<Vec<u8>>, Option<Box<[u8]>>),
}

/// Names of an analysis.
#[derive(Clone, Copy)]
pub(super) struct Naming<'a> {
    pub(super) symbols: &'a Symbolizer,
    places: &'a Places,
    names: &'a Names,
    comms: &'a HashMap<i32, Box<[u8]>>,
}

impl<'a> Naming<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> Naming<'a> {
        let names = &analysis.names;
        Naming { symbols: names.symbolizer(), places: &names.places, names: &names.trace_names, comms: &names.comms }
    }

    /// `symbol+0xoffset` of a call-site.
    pub(super) fn symbol(&self, call_site: Option<u64>) -> Name<'a> {
        call_site.and_then(|site| self.symbols.lookup(site)).map(|symbol| symbol.text().into())
    }

    /// Place of a call site among others.
    pub(super) fn place_of(&self, call_site: u64) -> SiteOrder {
        if !is_made_up(call_site) {
            return SiteOrder::Address(call_site);
        }
        let (symbol, module) = self.symbol_and_module(call_site);
        SiteOrder::Named(symbol.map(Cow::into_owned), module.map(Into::into))
    }

    /// A call-site with symbol and module.
    pub(super) fn call_site(&self, call_site: u64) -> CallSite<'a> {
        let (symbol, module) = self.symbol_and_module(call_site);
        let (place, owner) = (SitePlace(self.place(call_site)), self.symbols.owner(call_site));
        CallSite { call_site: Address(call_site), symbol, module, place, owner }
    }

    /// `symbol+0xoffset` of a call-site, and its module.
    pub(super) fn symbol_and_module(&self, call_site: u64) -> (Name<'a>, Name<'a>) {
        let symbol = self.symbols.lookup(call_site);
        let owner = self.symbols.owner_of(call_site, symbol.as_ref());
        (symbol.map(|symbol| symbol.text().into()), owner.module().map(Into::into))
    }

    /// True where the function is of a module that was gone at the end of the recording.
    pub(super) fn is_gone(&self, call_site: u64) -> bool {
        self.symbols.lookup(call_site).is_some_and(|symbol| symbol.is_gone)
    }

    /// Place of a call-site in the sources.
    pub(super) fn place(&self, call_site: u64) -> Arc<Place> {
        self.places.place(call_site, self.symbols)
    }

    /// Call-site with all of its names.
    pub(super) fn placed(&self, call_site: u64) -> PlacedSite<'a> {
        PlacedSite::of(call_site, self.symbols, self.places)
    }

    /// Name with this number, which is one more than its index; 0 is none.
    pub(super) fn numbered(&self, number: u64) -> Option<&'a [u8]> {
        self.names.at(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Name of the cache with this number, or the candidates for it.
    pub(super) fn cache(&self, number: u64) -> (Option<&'a [u8]>, Option<Candidates>) {
        let name = self.numbered(number);
        match name.and_then(candidates) {
            Some(several) => (None, Some(Candidates(several.map(Into::into).collect()))),
            None => (name, None),
        }
    }

    /// Command name of a thread.
    pub(super) fn comm(&self, pid: i32) -> Name<'a> {
        self.comms.get(&pid).map(|comm| (&**comm).into())
    }
}
