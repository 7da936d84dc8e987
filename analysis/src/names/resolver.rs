//! Resolver of call-sites: from an address to its place in the sources, by the best source that knows it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kmemtrace_abi::memory::OverLimit;
use kmemtrace_abi::trace::{Metadata, Trace};

#[cfg(feature = "dwarf")]
use crate::names::debug::{DebugInfo, KernelFacts};
use crate::names::error::NamesError;
#[cfg(feature = "dwarf")]
use crate::names::function_files::FunctionFiles;
#[cfg(feature = "dwarf")]
use crate::names::image_sizes::StaticSizes;
use crate::names::kallsyms::{Symbol, Symbolizer};
#[cfg(feature = "dwarf")]
use crate::names::map::NameMap;
use crate::names::module_info::ModuleInfo;
#[cfg(feature = "dwarf")]
use crate::names::objects;
use crate::names::options::NameOptions;
use crate::names::place::{Frame, NameSource, NamesReport, Place, StaticByFile};
use crate::names::work::{Spent, Work};

/// Places of call-sites, each found once.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Options of names.
    pub(crate) options: NameOptions,
    /// Paths of modules below the modules' folder, as `fs/ext4/ext4`, by name.
    module_paths: HashMap<Vec<u8>, Vec<u8>>,
    #[cfg(feature = "dwarf")]
    debug: Option<DebugInfo>,
    /// Functions of the built tree, where its kernel has no debug information.
    #[cfg(feature = "dwarf")]
    objects: Option<FunctionFiles>,
    #[cfg(feature = "dwarf")]
    map: Option<NameMap>,
    known: Mutex<Known>,
    /// Lists of symbols and modules that were named and take too much memory.
    pub(crate) lists_left_out: Vec<(PathBuf, OverLimit)>,
    /// File and line of call sites that the input has itself.
    told: HashMap<u64, (Box<[u8]>, u32)>,
    /// Origin of the names of a saved document, whose places are all known.
    saved: Option<NamesReport>,
}

/// Places that were found.
#[derive(Debug, Default)]
struct Known {
    places: HashMap<u64, Arc<Place>>,
    /// Best source of each module's names.
    modules: BTreeMap<Box<[u8]>, NameSource>,
    /// Memory of the places.
    work: Work,
    /// The reason for which there are no more places.
    spent: Option<Spent>,
}

impl Known {
    /// Takes the memory of a place; without memory it stays without names.
    fn keep(&mut self, place: Place) -> Place {
        if self.spent.is_none() {
            self.spent = self.work.keep(place.bytes()).err();
        }
        if self.spent.is_some() { Place { is_gone: place.is_gone, ..Place::default() } } else { place }
    }
}

impl Places {
    /// Resolver with these options, for a trace with these facts.
    pub(crate) fn new(options: &NameOptions, metadata: &Metadata) -> Places {
        let modules = ModuleInfo::parse(&metadata.module_info).into_iter();
        let module_paths = modules.filter_map(|module| Some((module.name, module.path?))).collect();
        Places { options: options.clone(), module_paths, told: metadata.sources.clone(), ..Places::default() }
    }

    /// Places of a saved document, and the origin of its names.
    pub(crate) fn saved(options: &NameOptions, places: HashMap<u64, Arc<Place>>, report: NamesReport) -> Places {
        let known = Mutex::new(Known { places, ..Known::default() });
        Places { options: options.clone(), known, saved: Some(report), ..Places::default() }
    }
    /// Finds and checks debug information and other sources of names.
    ///
    /// # Errors
    /// [`NamesError`] for a file that was named and cannot be used.
    #[cfg(feature = "dwarf")]
    pub(crate) fn find_sources(&mut self, trace: &Trace, symbols: &Symbolizer) -> Result<(), NamesError> {
        let facts = KernelFacts {
            release: trace.info.kernel.as_deref(),
            notes: &trace.metadata.notes,
            module_info: &trace.metadata.module_info,
            endian: trace.info.endian,
            kallsyms: symbols,
            call_sites: &[],
        };
        let debug = DebugInfo::open(&self.options, &facts)?;
        if let Some(tree) = self.options.kernel_tree.as_ref().filter(|_| debug.report().kernel.is_none()) {
            self.objects = Some(objects::read(tree)?);
        }
        self.map = self.options.map.as_deref().map(NameMap::read).transpose()?;
        self.debug = Some(debug);
        Ok(())
    }

    /// Refuses files of names: this build reads none.
    ///
    /// # Errors
    /// [`NamesError`] for the first file that was named.
    #[cfg(not(feature = "dwarf"))]
    pub(crate) fn find_sources(&mut self, _: &Trace, _: &Symbolizer) -> Result<(), NamesError> {
        let named = [&self.options.vmlinux, &self.options.kernel_tree, &self.options.map].into_iter().flatten().next();
        let why = "this program was built without the feature dwarf, which reads such files";
        named.map_or(Ok(()), |path| Err(NamesError::unusable(path, why)))
    }

    /// Static bytes by source file, of the built tree that was named, else of the kernel's debug information, which is left out if it
    /// takes too much.
    ///
    /// # Errors
    /// [`NamesError`] for a tree that cannot be read.
    #[cfg(feature = "dwarf")]
    pub(crate) fn static_sizes(&self) -> Result<Option<StaticByFile>, NamesError> {
        let debug = self.debug.as_ref().and_then(|debug| Some((debug, debug.report().file?)));
        let sizes = match (&self.options.kernel_tree, debug) {
            (Some(tree), _) => StaticSizes::of_tree(tree)?,
            (None, Some((debug, vmlinux))) => match StaticSizes::of_vmlinux(&vmlinux) {
                Ok(sizes) => sizes,
                Err(error) => {
                    debug.reject(vmlinux, format!("the bytes of its files: {}", error.reason()));
                    return Ok(None);
                }
            },
            (None, None) => return Ok(None),
        };
        let files = sizes.files().map(|(file, sizes)| (Some(file.into()), sizes.parts.total()));
        Ok(Some(files.chain([(None, sizes.unknown_bytes())]).collect()))
    }

    #[cfg(not(feature = "dwarf"))]
    pub(crate) fn static_sizes(&self) -> Result<Option<StaticByFile>, NamesError> {
        Ok(None)
    }

    /// Finds the places of many call-sites at once, which reads each unit of debug information once.
    ///
    /// # Errors
    /// [`NamesError`] for a file that was named and does not fit the call-sites, where these are all that it can be checked by.
    pub(crate) fn prepare(&self, call_sites: &[u64], symbols: &Symbolizer) -> Result<(), NamesError> {
        #[cfg(feature = "dwarf")]
        if let Some(debug) = &self.debug {
            debug.prepare(call_sites, symbols)?;
        }
        call_sites.iter().for_each(|site| drop(self.place(*site, symbols)));
        Ok(())
    }

    /// Place of a call-site.
    pub(crate) fn place(&self, call_site: u64, symbols: &Symbolizer) -> Arc<Place> {
        if let Some(known) = self.known.lock().ok().and_then(|known| known.places.get(&call_site).cloned()) {
            return known;
        }
        let symbol = symbols.lookup(call_site);
        let (place, from) = self.find(call_site, symbol.as_ref(), symbols);
        let mut known = self.known.lock();
        let place = Arc::new(known.as_mut().map_or(Place::default(), |known| known.keep(place)));
        if let Ok(known) = &mut known {
            known.places.insert(call_site, Arc::clone(&place));
            if let Some(module) = symbol.and_then(|symbol| symbol.module) {
                let from = if from == NameSource::Dwarf { from } else { place.folder_from.unwrap_or(from) };
                let best = known.modules.entry(module.into()).or_insert(from);
                *best = from.min(*best);
            }
        }
        place
    }

    /// True where debug information of the kernel tells places.
    pub(crate) fn has_debug_information(&self) -> bool {
        #[cfg(feature = "dwarf")]
        let has = self.debug.as_ref().is_some_and(|debug| debug.report().kernel.is_some());
        #[cfg(not(feature = "dwarf"))]
        let has = false;
        has
    }

    /// True where no call-site was asked for so far.
    pub(crate) fn is_unused(&self) -> bool {
        self.known.lock().is_ok_and(|known| known.places.is_empty())
    }

    /// Folders and files of the call-sites that were asked for so far, ascending.
    pub(crate) fn paths(&self) -> BTreeSet<Box<[u8]>> {
        let mut paths = BTreeSet::new();
        for place in self.known.lock().iter().flat_map(|known| known.places.values()) {
            paths.extend(place.folder.clone());
            paths.extend(place.path().map(Into::into));
        }
        paths
    }

    fn find(&self, call_site: u64, symbol: Option<&Symbol<'_>>, symbols: &Symbolizer) -> (Place, NameSource) {
        let (frames, from) = self.frames(call_site, symbol, symbols);
        let is_gone = symbol.is_some_and(|symbol| symbol.is_gone);
        let Some((source, wrapper)) = self.options.wrappers.source(&frames) else {
            return (Place { is_gone, ..Place::default() }, from);
        };
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
        (Place { frames, source: Some(source), folder, folder_from, wrapper, area, is_gone }, from)
    }

    /// Frames of a call-site, from the best source that knows its function.
    fn frames(
        &self,
        call_site: u64,
        symbol: Option<&Symbol<'_>>,
        #[cfg_attr(not(feature = "dwarf"), expect(unused_variables))] symbols: &Symbolizer,
    ) -> (Vec<Frame>, NameSource) {
        if let Some(((file, line), symbol)) = self.told.get(&call_site).zip(symbol) {
            let (function, file, line) = (symbol.name.into(), Some(file.clone()), Some(*line));
            return (vec![Frame { function, file, line, inlined: false }], NameSource::Symbols);
        }
        #[cfg(feature = "dwarf")]
        if let Some(frames) = self.debug.as_ref().and_then(|debug| debug.frames(call_site, symbols)) {
            return (frames, NameSource::Dwarf);
        }
        #[cfg(feature = "dwarf")]
        if let Some((symbol, (file, from))) =
            symbol.and_then(|symbol| Some((symbol, self.file_of(call_site, symbol, symbols)?)))
        {
            let frame = Frame { function: symbol.name.into(), file: Some(file), line: None, inlined: false };
            return (vec![frame], from);
        }
        let frame = symbol.map(|symbol| Frame { function: symbol.name.into(), file: None, line: None, inlined: false });
        (frame.into_iter().collect(), NameSource::Symbols)
    }

    /// Source file of a function by the built tree, else by the map.
    #[cfg(feature = "dwarf")]
    fn file_of(&self, call_site: u64, symbol: &Symbol<'_>, symbols: &Symbolizer) -> Option<(Box<[u8]>, NameSource)> {
        let neighbours = || symbols.neighbours(call_site);
        let of_objects =
            self.objects.as_ref().and_then(|objects| objects.file_of(symbol.name, symbol.module, neighbours));
        let of_map = || self.map.as_ref()?.files().file_of(symbol.name, symbol.module, neighbours);
        match of_objects {
            Some(file) => Some((file.into(), NameSource::Objects)),
            None => of_map().map(|file| (file.into(), NameSource::Map)),
        }
    }

    /// Folder of a module's sources, by its path below the modules' folder.
    fn folder_of_module(&self, module: &[u8]) -> Option<Box<[u8]>> {
        folder_of(self.module_paths.get(module)?)
    }

    /// Origin of the names, for the head of documents.
    pub(crate) fn report(&self, symbols: Option<&Symbolizer>, has_named: bool) -> NamesReport {
        if let Some(saved) = &self.saved {
            return saved.clone();
        }
        let has_symbols = has_named && symbols.is_some_and(|symbols| !symbols.is_empty());
        let modules: Vec<NameSource> =
            self.known.lock().map(|known| known.modules.values().copied().collect()).unwrap_or_default();
        let of = |is: fn(&NameSource) -> bool| modules.iter().filter(|from| is(from)).count();
        let mut found = self.report_of_files();
        let left_out = symbols.and_then(Symbolizer::left_out).map(str::to_owned);
        let of_places = self.known.lock().ok().and_then(|known| known.spent).map(|spent| spent.to_string());
        let of_areas = self.options.areas.spent().map(|spent| (PathBuf::from("--areas"), spent));
        found.rejected.extend(self.lists_left_out.iter().map(|(path, over)| (path.clone(), over.to_string())));
        for why in left_out.into_iter().chain(of_places) {
            found.leave_out_symbols(self.options.kallsyms.as_deref(), &why);
        }
        found.rejected.extend(of_areas.map(|(path, spent)| (path, spent.to_string())));
        NamesReport {
            cut_names: symbols.filter(|_| has_named).map_or(0, Symbolizer::cut_names),
            kernel: found.kernel.or(has_symbols.then_some(NameSource::Symbols)),
            modules_dwarf: of(|from| *from == NameSource::Dwarf),
            modules_path: of(|from| ![NameSource::Dwarf, NameSource::Symbols].contains(from)),
            modules_none: of(|from| *from == NameSource::Symbols),
            ..found
        }
    }

    #[cfg(feature = "dwarf")]
    fn report_of_files(&self) -> NamesReport {
        let mut found = self.debug.as_ref().map(DebugInfo::report).unwrap_or_default();
        let NameOptions { kernel_tree, map, .. } = &self.options;
        let tables = [(kernel_tree, self.objects.as_ref()), (map, self.map.as_ref().map(NameMap::files))];
        for (path, spent) in tables.into_iter().filter_map(|(path, table)| Some((path.as_ref()?, table?.spent()?))) {
            found.rejected.push((path.clone(), spent.to_string()));
        }
        let map_of_names = self.map.as_ref().filter(|map| !map.is_empty());
        match (found.kernel, &self.objects, map_of_names) {
            (None, Some(_), _) => NamesReport { kernel: Some(NameSource::Objects), file: kernel_tree.clone(), ..found },
            (None, None, Some(_)) => NamesReport { kernel: Some(NameSource::Map), file: map.clone(), ..found },
            _ => found,
        }
    }

    #[cfg(not(feature = "dwarf"))]
    fn report_of_files(&self) -> NamesReport {
        NamesReport::default()
    }
}

/// Folder of a file's path; `None` for a path outside of the kernel's sources.
fn folder_of(file: &[u8]) -> Option<Box<[u8]>> {
    if file.starts_with(b"/") || file.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return None;
    }
    let end = file.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    Some(file.get(..end)?.into())
}
