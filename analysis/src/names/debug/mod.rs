//! Debug information: ELF files and the DWARF in them, checked against the trace's kernel.

mod check;
mod dwarf;
pub(crate) mod image;
mod lines;
mod module;
pub(crate) mod paths;
pub(crate) mod relocate;
mod search;
pub(crate) mod sections;
pub(crate) mod symbols;
pub(crate) mod units;
pub(crate) mod unpack;
mod walk;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use check::Functions;
pub(crate) use check::KernelFacts;
use dwarf::DwarfFile;
use image::{Image, ImageError};
use module::{ModuleFacts, ModuleFile, Refusal};
use search::{Folders, Listed};
pub use search::{MODULES, debug_folders};
use sections::Sections;
use symbols::Symbols;

use super::error::NamesError;
use super::kallsyms::Symbolizer;
use super::module_info::ModuleInfo;
use super::options::NameOptions;
use super::place::{Frame, NameSource, NamesReport};

/// Largest number of modules that are held open. Another call-site of a module that was closed opens it again.
const MAX_OPEN: usize = 16;

/// Debug information of a trace's kernel and of its modules. Modules are opened when a call-site of theirs is asked for.
#[derive(Debug)]
pub(crate) struct DebugInfo {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    kernel: Option<Kernel>,
    folders: Folders,
    release: Option<String>,
    infos: HashMap<Vec<u8>, Vec<ModuleInfo>>,
    modules: HashMap<Vec<u8>, Module>,
    listed: Listed,
    /// Modules that are held open, the latest last.
    open: Vec<Vec<u8>>,
    /// Frames by call-site.
    known: HashMap<u64, Option<Arc<[Frame]>>>,
    broken: u64,
    rejected: Vec<(PathBuf, String)>,
}

#[derive(Debug)]
struct Kernel {
    path: PathBuf,
    checked: Option<&'static str>,
    distance: u64,
    is_64: bool,
    dwarf: DwarfFile,
    /// Functions that call-sites have to be in before the image counts; with a file that was named, before the report is done.
    unproven: Option<Functions>,
    is_named: bool,
}

#[derive(Debug, Default)]
struct Module {
    /// The file that passed the checks; `None` without one.
    path: Option<PathBuf>,
    opened: Option<ModuleFile>,
}

impl From<ImageError> for NamesError {
    fn from(error: ImageError) -> NamesError {
        NamesError::unusable(&error.path, error.why)
    }
}

impl DebugInfo {
    /// Finds and checks the kernel's debug information. Without any the result has none: only a file that was named and cannot be
    /// used is an error.
    pub(crate) fn open(options: &NameOptions, facts: &KernelFacts<'_>) -> Result<DebugInfo, NamesError> {
        DebugInfo::open_in(Folders::of(options), options.vmlinux.as_deref(), facts)
    }

    fn open_in(folders: Folders, vmlinux: Option<&Path>, facts: &KernelFacts<'_>) -> Result<DebugInfo, NamesError> {
        let release = facts.release.and_then(search::as_folder).map(str::to_owned);
        let mut infos: HashMap<Vec<u8>, Vec<ModuleInfo>> = HashMap::new();
        for info in ModuleInfo::parse(facts.module_info) {
            infos.entry(info.name.clone()).or_default().push(info);
        }
        let mut rejected = Vec::new();
        let mut kernel = None;
        if let Some(path) = vmlinux {
            match Kernel::open(path, facts, true) {
                Ok(named) => kernel = Some(named.map_err(|why| NamesError::unusable(path, why))?),
                Err(error) if error.is_spent => rejected.push((path.to_owned(), error.why)),
                Err(error) => return Err(error.into()),
            }
        } else {
            for path in folders.kernels(release.as_deref(), facts.build_id().as_deref()) {
                match Kernel::open(&path, facts, false) {
                    Ok(Ok(found)) => {
                        kernel = Some(found);
                        break;
                    }
                    Ok(Err(why)) => rejected.push((path, why)),
                    Err(error) => rejected.push((path, error.why)),
                }
            }
        }
        if let (None, Some(tree)) = (&kernel, &folders.tree) {
            kernel = Kernel::of_tree(tree, facts, &mut rejected)?;
        }
        let state = State {
            kernel,
            folders,
            release,
            infos,
            modules: HashMap::new(),
            listed: Listed::default(),
            open: Vec::new(),
            known: HashMap::new(),
            broken: 0,
            rejected,
        };
        Ok(DebugInfo { state: Mutex::new(state) })
    }

    /// Finds the frames of many call-sites at once: each unit and each module is read once. A kernel that has only call-sites to be
    /// checked by is checked by these.
    ///
    /// # Errors
    /// [`NamesError`] for a file that was named and fails this check.
    pub(crate) fn prepare(&self, call_sites: &[u64], symbols: &Symbolizer) -> Result<(), NamesError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.prove(call_sites)?;
        state.find(call_sites, symbols);
        Ok(())
    }

    /// Frames of a call-site, innermost first; `None` where debug information knows none.
    ///
    /// An address that the kernel's list credits to no symbol has none: it may be code that is gone, or was made at run time.
    pub(crate) fn frames(&self, call_site: u64, symbols: &Symbolizer) -> Option<Vec<Frame>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.known.contains_key(&call_site) {
            state.find(&[call_site], symbols);
        }
        state.known.get(&call_site)?.as_ref().map(|frames| frames.to_vec())
    }

    /// Notes a file, or a part of its use, that is left out for this reason.
    pub(crate) fn reject(&self, path: PathBuf, why: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.rejected.push((path, why));
    }

    /// Files that are used, and those that failed a check.
    pub(crate) fn report(&self) -> NamesReport {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = state.kernel.as_ref();
        let of_kernel = kernel.map(|kernel| kernel.dwarf.broken());
        let opened = state.modules.values().filter_map(|module| module.opened.as_ref()).map(ModuleFile::broken);
        NamesReport {
            kernel: kernel.map(|_| NameSource::Dwarf),
            file: kernel.map(|kernel| kernel.path.clone()),
            checked: kernel.and_then(|kernel| kernel.checked),
            modules_dwarf: state.modules.values().filter(|module| module.path.is_some()).count(),
            broken_units: opened.chain(of_kernel).fold(state.broken, u64::saturating_add),
            rejected: state.rejected.clone(),
            ..NamesReport::default()
        }
    }
}

impl Kernel {
    /// Opens and checks an image. The outer error is one of reading, the inner one the reason for which it was rejected.
    fn open(path: &Path, facts: &KernelFacts<'_>, is_named: bool) -> Result<Result<Kernel, String>, ImageError> {
        let image = Image::open(path)?;
        if !image.has_dwarf() {
            return Ok(Err(
                "it has no debug information: build the kernel with CONFIG_DEBUG_INFO, or give its debug package"
                    .into(),
            ));
        }
        if image.is_relocatable {
            return Ok(Err("it is an object, not a linked kernel".into()));
        }
        let found = match check::kernel(&image, &Symbols::read(&image)?, facts, is_named) {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let (is_64, path, work) = (image.is_64, path.to_owned(), image.work());
        let dwarf = DwarfFile::new(Sections::of_image(image)?, work);
        if let Some(spent) = dwarf.spent() {
            return Err(ImageError { path, why: spent.to_string(), is_missing: false, is_spent: true });
        }
        let (checked, distance, unproven) = (found.checked, found.distance, found.unproven);
        Ok(Ok(Kernel { path, checked, distance, is_64, dwarf, unproven, is_named }))
    }

    /// The image of a built tree, where it has debug information.
    fn of_tree(
        tree: &Path,
        facts: &KernelFacts<'_>,
        rejected: &mut Vec<(PathBuf, String)>,
    ) -> Result<Option<Kernel>, NamesError> {
        let path = tree.join("vmlinux");
        let opened = match Image::open(&path) {
            Ok(image) if !image.has_dwarf() => return Ok(None),
            Ok(_) => Kernel::open(&path, facts, true),
            Err(error) if error.is_missing => return Ok(None),
            Err(error) => Err(error),
        };
        match opened {
            Ok(kernel) => kernel.map(Some).map_err(|why| NamesError::unusable(&path, why)),
            Err(error) if error.is_spent => {
                rejected.push((path, error.why));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The address in the image.
    fn own_address(&self, address: u64) -> u64 {
        let own = address.wrapping_sub(self.distance);
        if self.is_64 { own } else { own & u64::from(u32::MAX) }
    }
}

impl State {
    /// Checks the kernel by call-sites, where there is nothing else.
    fn prove(&mut self, call_sites: &[u64]) -> Result<(), NamesError> {
        let unproven =
            self.kernel.as_mut().filter(|_| !call_sites.is_empty()).and_then(|kernel| kernel.unproven.take());
        let Some(Err(why)) = unproven.map(|functions| functions.check(call_sites)) else { return Ok(()) };
        self.known.clear();
        match self.kernel.take() {
            Some(kernel) if kernel.is_named => Err(NamesError::unusable(&kernel.path, why)),
            Some(kernel) => {
                self.rejected.push((kernel.path, why));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Finds the frames of those call-sites that are not known.
    fn find(&mut self, call_sites: &[u64], symbols: &Symbolizer) {
        let mut of_kernel: Vec<u64> = Vec::new();
        let mut of_modules: HashMap<&[u8], Vec<u64>> = HashMap::new();
        for &site in call_sites {
            if self.known.contains_key(&site) {
                continue;
            }
            self.known.insert(site, None);
            match symbols.lookup(site) {
                Some(symbol) => match symbol.module {
                    None => of_kernel.push(site),
                    Some(module) => of_modules.entry(module).or_default().push(site),
                },
                None if symbols.is_empty() && site > 0 => of_kernel.push(site),
                None => {}
            }
        }
        self.find_in_kernel(&of_kernel, symbols);
        let is_settled = |module: &Module| module.path.is_none() || module.opened.is_some();
        let asked = |name: &&[u8]| !self.modules.get(*name).is_some_and(is_settled);
        let mut functions = functions_of(of_modules.keys().copied().filter(asked).collect(), symbols);
        for (name, sites) in of_modules {
            let functions = functions.remove(name).unwrap_or_default();
            self.find_in_module(name, &sites, functions, symbols);
        }
    }

    fn find_in_kernel(&mut self, sites: &[u64], symbols: &Symbolizer) {
        let is_usable = |kernel: &&mut Kernel| kernel.unproven.is_none() || kernel.is_named;
        let Some(kernel) = self.kernel.as_mut().filter(is_usable) else { return };
        // The call itself is before the address that it returns to.
        let own: Vec<u64> = sites.iter().map(|site| kernel.own_address(site.wrapping_sub(1))).collect();
        let mut frames = kernel.dwarf.frames(&own);
        if let Some(spent) = kernel.dwarf.spent() {
            self.rejected.push((kernel.path.clone(), spent.to_string()));
            self.kernel = None;
            return;
        }
        for (site, own) in sites.iter().zip(own) {
            if let Some(frames) = frames.remove(&own) {
                self.known.insert(*site, Some(named(frames, *site, symbols)));
            }
        }
    }

    fn find_in_module(&mut self, name: &[u8], sites: &[u64], functions: Vec<(&[u8], u64)>, symbols: &Symbolizer) {
        self.open_module(name, functions);
        let Some(opened) = self.modules.get_mut(name).and_then(|module| module.opened.as_mut()) else { return };
        let calls: Vec<u64> = sites.iter().filter_map(|site| site.checked_sub(1)).collect();
        let found = opened.frames(&calls);
        if let Some(spent) = opened.spent() {
            // Without a path nothing is opened again.
            let file = self.modules.insert(name.to_vec(), Module::default()).and_then(|module| module.path);
            self.rejected.push((file.unwrap_or_default(), spent.to_string()));
            self.open.retain(|open| open != name);
            return;
        }
        for (call, frames) in found {
            let site = call.wrapping_add(1);
            self.known.insert(site, Some(named(frames, site, symbols)));
        }
    }

    /// Opens the debug information of a module, and closes that of the module that was opened first.
    fn open_module(&mut self, name: &[u8], functions: Vec<(&[u8], u64)>) {
        let known = self.modules.get(name);
        if known.is_some_and(|module| module.path.is_none() || module.opened.is_some()) {
            return;
        }
        let infos = self.infos.get(name).map_or(&[][..], Vec::as_slice);
        let files = match known.and_then(|module| module.path.clone()) {
            Some(path) => vec![path],
            None => self.folders.modules(name, infos.last(), self.release.as_deref(), &mut self.listed),
        };
        let facts = ModuleFacts { infos, functions };
        let roots = self.kernel.as_ref().map(|kernel| kernel.dwarf.roots());
        let mut module = Module::default();
        for path in files {
            match ModuleFile::open(&path, &facts, roots) {
                Ok(opened) => {
                    module = Module { path: Some(path), opened: Some(opened) };
                    break;
                }
                Err(Refusal::NoDwarf) => {}
                Err(Refusal::Rejected(why)) => self.rejected.push((path, why)),
            }
        }
        if module.opened.is_some() {
            self.open.push(name.to_vec());
        }
        self.modules.insert(name.to_vec(), module);
        while self.open.len() > MAX_OPEN {
            let oldest = self.open.remove(0);
            let closed = self.modules.get_mut(&oldest).and_then(|module| module.opened.take());
            self.broken = self.broken.saturating_add(closed.map_or(0, |closed| closed.broken()));
        }
    }
}

/// Functions of these modules in the kernel's list.
fn functions_of<'a>(modules: HashSet<&'a [u8]>, symbols: &'a Symbolizer) -> HashMap<&'a [u8], Vec<(&'a [u8], u64)>> {
    let mut functions: HashMap<&[u8], Vec<(&[u8], u64)>> = HashMap::new();
    if modules.is_empty() {
        return functions;
    }
    for symbol in symbols.symbols().filter(|symbol| symbol.is_code) {
        if let Some(module) = symbol.module.filter(|module| modules.contains(module)) {
            functions.entry(module).or_default().push((symbol.name, symbol.address));
        }
    }
    functions
}

/// The frames, with the symbol's name for a function that debug information has no name for: one of assembler.
fn named(mut frames: Vec<Frame>, site: u64, symbols: &Symbolizer) -> Arc<[Frame]> {
    if let Some(outermost) = frames.last_mut().filter(|frame| frame.function.is_empty()) {
        outermost.function = symbols.lookup(site).map_or(&b"??"[..], |symbol| symbol.name).into();
    }
    for frame in frames.iter_mut().filter(|frame| frame.function.is_empty()) {
        frame.function = b"??"[..].into();
    }
    frames.into()
}

#[cfg(test)]
mod tests;
