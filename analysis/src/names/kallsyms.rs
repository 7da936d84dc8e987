//! Names for call-sites, from the texts of `/proc/kallsyms` and `/proc/modules` that a trace keeps.
//!
//! The texts are hostile: any order, equal addresses, names of any length, lines that are none. A symbol is
//! kept as its address and the place of its line, so millions of them cost 16 bytes each and no copies.

use serde::{Deserialize, Serialize};

use std::collections::HashMap;
use std::sync::OnceLock;

use kmemtrace_abi::kernel::kallsyms::{hex, parts};
use kmemtrace_abi::memory;
use kmemtrace_abi::text::cut::{MAX_NAME_BYTES, cut};
use kmemtrace_abi::trace::{HANDLES, MADE_UP, NO_SITE, WITHOUT_OFFSET};
use memchr::{memchr, memchr_iter};

/// Text of symbols and modules, indexed by address.
#[derive(Debug, Default)]
pub struct Symbolizer {
    kallsyms: Vec<u8>,
    /// Ascending; those of one address in the order of the file.
    entries: Vec<SymbolEntry>,
    /// Ascending by start.
    modules: Vec<(Extent, Box<[u8]>)>,
    /// Modules that were gone at the end of the recording, ascending by name and start.
    gone: Vec<(Box<[u8]>, Extent)>,
    /// Names that are cut.
    cut: u64,
    /// The reason for which the symbols are left out.
    left_out: Option<String>,
    /// Call-sites in the initialisation of modules, once they are known.
    init: OnceLock<InitSites>,
}

/// Call-sites in the initialisation of modules. That code is in no symbol and no module's range: the kernel frees it after the load.
pub(crate) type InitSites = HashMap<u64, InitSite>;

/// Call-site in the initialisation of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitSite {
    /// Module that was being loaded.
    pub(crate) module: Box<[u8]>,
    /// Distance from the start of its section `.init.text`, in bytes; `None` where the trace does not have the section.
    pub(crate) offset: Option<u64>,
}

/// Owner of the code at a call-site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteOwner<'a> {
    /// The kernel's image.
    Kernel,
    /// A module: by a symbol, or by its range where no symbol is there.
    Module(&'a [u8]),
    /// The initialisation of a module.
    Init {
        /// The module.
        module: &'a [u8],
        /// Distance from the start of its section `.init.text`, in bytes, where the trace has the section.
        offset: Option<u64>,
    },
    /// In no symbol and no module's range.
    Unknown,
}

/// Name of the kernel's image in place of a module's.
pub(crate) const KERNEL: &str = "(kernel)";
/// Name of an unknown owner in place of a module's.
pub(crate) const UNKNOWN: &str = "(unknown)";

impl<'a> SiteOwner<'a> {
    /// Module; `None` for the kernel and for an unknown owner.
    pub fn module(self) -> Option<&'a [u8]> {
        match self {
            SiteOwner::Module(module) | SiteOwner::Init { module, .. } => Some(module),
            SiteOwner::Kernel | SiteOwner::Unknown => None,
        }
    }

    /// Text of a call-site without a symbol: `[foo] init+0x19`, `0xffffffffc0401234 [foo]` or `0xffffffffc0401234 (unknown)`. Any bytes,
    /// which an output escapes.
    pub fn text(self, call_site: u64) -> Vec<u8> {
        match self {
            _ if HANDLES.contains(&call_site) => {
                format!("handle {}", call_site.saturating_sub(HANDLES.start)).into_bytes()
            }
            _ if call_site == NO_SITE => b"(no call-site)".to_vec(),
            SiteOwner::Init { module, offset } => {
                let offset = offset.map_or(String::new(), |offset| format!("+{offset:#x}"));
                [b"[", module, b"] init", offset.as_bytes()].concat()
            }
            SiteOwner::Module(module) => [format!("{call_site:#x} [").as_bytes(), module, b"]"].concat(),
            SiteOwner::Kernel => format!("{call_site:#x}").into_bytes(),
            SiteOwner::Unknown => format!("{call_site:#x} {UNKNOWN}").into_bytes(),
        }
    }

    /// Name of the module, else `(kernel)` or `(unknown)`.
    pub fn name(self) -> &'a [u8] {
        match self {
            SiteOwner::Module(module) | SiteOwner::Init { module, .. } => module,
            SiteOwner::Kernel => KERNEL.as_bytes(),
            SiteOwner::Unknown => UNKNOWN.as_bytes(),
        }
    }
}

/// Function that holds a call-site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Name of the function, any bytes.
    pub name: &'a [u8],
    /// Distance from the function's start to the call-site, in bytes; `None` where the input does not give it.
    pub offset: Option<u64>,
    /// Module of the function; `None` for the kernel itself.
    pub module: Option<&'a [u8]>,
    /// True where the module was gone at the end of the recording.
    pub is_gone: bool,
}

/// Symbol as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedSymbol<'a> {
    /// Name, any bytes.
    pub(crate) name: &'a [u8],
    /// Address, never 0.
    pub(crate) address: u64,
    /// Module; `None` for the kernel itself.
    pub(crate) module: Option<&'a [u8]>,
    /// True for a function.
    pub(crate) is_code: bool,
}

#[derive(Clone, Copy, Debug)]
struct SymbolEntry {
    address: u64,
    /// Offset of its line in the text.
    line: u32,
    /// True for code; any other symbol only ends the symbol before it.
    is_code: bool,
}

/// Addresses of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    start: u64,
    end: u64,
}

/// Room that is credited to the last symbol of a stretch whose end nothing tells: modules, the kernel and
/// programs made at run time lie on pages of their own.
const PAGE_BYTES: u64 = 4096;

/// Symbols around a call-site that are looked at.
#[cfg(feature = "dwarf")]
pub(crate) const MAX_NEIGHBOURS: usize = 4096;
/// Symbols at one address that are looked at one by one. Kernels have some 30.
const MAX_AT_ADDRESS: usize = 256;
/// Largest length of a line whose name is not cut: address, type, name and module.
const MAX_LINE: usize = 2 * MAX_NAME_BYTES;

impl Symbolizer {
    /// Indexes the texts of `/proc/kallsyms` and `/proc/modules`; lines that cannot be read are skipped.
    ///
    /// Later copies of the same texts (modules loaded while recording) may be appended to the first. The state `Gone` in a line of
    /// `/proc/modules` says that the module was unloaded.
    pub fn new(mut kallsyms: Vec<u8>, modules: &[u8]) -> Symbolizer {
        // Offsets of lines are kept in 32 bits: no kernel has 4 GiB of symbols.
        kallsyms.truncate(u32::MAX as usize);
        let cut = cut_lines(&mut kallsyms);
        let lines = memchr_iter(b'\n', &kallsyms).count() as u64;
        let entry_bytes = size_of::<SymbolEntry>() as u64;
        if let Err(over) = memory::check(lines.saturating_add(1).saturating_mul(entry_bytes)) {
            let left_out = Some(over.to_string());
            return Symbolizer { left_out, ..Symbolizer::default() };
        }
        // A line has about 44 bytes; a hostile text with shorter lines costs a few reallocations.
        let mut entries = Vec::with_capacity(kallsyms.len() / 40);
        let mut at = 0;
        while let Some(rest) = kallsyms.get(at..).filter(|rest| !rest.is_empty()) {
            let (line, len) = first_line(rest);
            if let Some((address, kind, name)) = parts(line) {
                // Zero is what an unprivileged reader sees in place of every address.
                // A text may name any symbol as a function of a stack.
                if address != 0 && (MADE_UP.contains(&address) || !is_mapping(name)) {
                    entries.push(SymbolEntry { address, line: at as u32, is_code: is_code(kind, name) });
                }
            }
            at = at.saturating_add(len);
        }
        // Stable, so that of several names the first in the file comes first; in one pass where they are in order.
        entries.sort_by_key(|e| e.address);
        for same in entries.chunk_by_mut(|a, b| a.address == b.address).filter(|same| same.len() > MAX_AT_ADDRESS) {
            same.sort_by_key(|e| !e.is_code);
        }
        let (modules, gone) = parse_modules(modules);
        Symbolizer { kallsyms, entries, modules, gone, cut, left_out: None, init: OnceLock::new() }
    }

    /// Names that are cut.
    pub(crate) fn cut_names(&self) -> u64 {
        self.cut
    }

    /// The reason for which the symbols are left out; `None` if they are used.
    pub fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// True without any symbol, also where the kernel did not show their addresses.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of symbols; 0 also where the kernel did not show their addresses.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All symbols, ascending by address; one comes twice if the trace has two copies of the list.
    #[cfg_attr(not(feature = "dwarf"), expect(dead_code, reason = "only debug information is checked against them"))]
    pub(crate) fn symbols(&self) -> impl Iterator<Item = ListedSymbol<'_>> {
        self.entries.iter().filter_map(|entry| {
            let SymbolLine { address, name, module } = self.line(entry)?;
            Some(ListedSymbol { name, address, module, is_code: entry.is_code })
        })
    }

    /// Address at which the kernel's code begins: `_text`, else `_stext`. Two boots of one kernel with equal bases have their
    /// functions at equal addresses. `None` where the trace does not have the symbol, or the kernel hid its address.
    pub fn text_base(&self) -> Option<u64> {
        self.kernel_symbol(b"_text").or_else(|| self.kernel_symbol(b"_stext"))
    }

    /// Address of a symbol of the kernel itself.
    pub fn kernel_symbol(&self, name: &[u8]) -> Option<u64> {
        let mut lines = self.entries.iter().filter_map(|entry| self.line(entry));
        lines.find(|line| line.module.is_none() && line.name == name).map(|line| line.address)
    }

    /// Addresses of the kernel itself, from `_text` or `_stext` to the page of its last symbol: the same for all boots of one kernel but for
    /// where they begin. `None` where the trace does not have the symbols.
    pub fn kernel_range(&self) -> Option<(u64, u64)> {
        let start = self.text_base()?;
        let mut lines = self.entries.iter().rev().filter_map(|entry| self.line(entry));
        let last = lines.find(|line| line.module.is_none())?.address;
        Some((start, end_of_page(last)))
    }

    /// Addresses of the loaded module that holds a call-site; `None` without a list of modules, and outside all of them.
    pub fn module_range(&self, call_site: u64) -> Option<(u64, u64)> {
        self.module_at(call_site).map(|(extent, _)| (extent.start, extent.end))
    }

    fn module_at(&self, call_site: u64) -> Option<(Extent, &[u8])> {
        let target = call_site.checked_sub(1)?;
        let after = self.modules.partition_point(|(extent, _)| extent.start <= target);
        let (extent, name) = self.modules.get(..after)?.last().filter(|(extent, _)| target < extent.end)?;
        Some((*extent, name))
    }

    /// Addresses from the first module to the end of the last; `None` without a list of modules.
    pub(crate) fn range_of_modules(&self) -> Option<(u64, u64)> {
        let first = self.modules.first()?.0.start;
        Some((first, self.modules.iter().map(|(extent, _)| extent.end).max()?))
    }

    /// Owner of the code at a call-site.
    pub fn owner(&self, call_site: u64) -> SiteOwner<'_> {
        self.owner_of(call_site, self.lookup(call_site).as_ref())
    }

    /// Owner of the code at a call-site whose symbol was looked up.
    pub(crate) fn owner_of<'a>(&'a self, call_site: u64, symbol: Option<&Symbol<'a>>) -> SiteOwner<'a> {
        if let Some(symbol) = symbol {
            return symbol.module.map_or(SiteOwner::Kernel, SiteOwner::Module);
        }
        if let Some((_, module)) = self.module_at(call_site) {
            return SiteOwner::Module(module);
        }
        match self.init.get().and_then(|sites| sites.get(&call_site)) {
            Some(InitSite { module, offset }) => SiteOwner::Init { module, offset: *offset },
            None => SiteOwner::Unknown,
        }
    }

    /// True where the call-sites in the initialisation of modules were looked for.
    pub(crate) fn knows_init_sites(&self) -> bool {
        self.init.get().is_some()
    }

    /// Keeps the call-sites in the initialisation of modules; the first call counts.
    pub(crate) fn set_init_sites(&self, sites: InitSites) {
        let _ = self.init.set(sites);
    }

    /// The function with the call instruction that returns to `call_site`.
    ///
    /// A call-site is a return address: after a call that never returns it is already the next function's. An address that stands for a
    /// function of a text ([`MADE_UP`]) is looked up as it is.
    pub fn lookup(&self, call_site: u64) -> Option<Symbol<'_>> {
        let target = if MADE_UP.contains(&call_site) { call_site } else { call_site.checked_sub(1)? };
        let after = self.entries.partition_point(|e| e.address <= target);
        let before = self.entries.get(..after)?;
        let address = before.last()?.address;
        let first = before.partition_point(|e| e.address < address);
        let entry = before.get(first..)?.iter().find(|e| e.is_code)?;
        let line = self.line(entry)?;
        let ends_with_next =
            self.entries.get(after).and_then(|e| self.line(e)).is_some_and(|next| next.module == line.module);
        if target >= self.end_of_stretch(&line, ends_with_next) {
            return None;
        }
        let is_gone = line.module.is_some_and(|module| self.is_gone(module, target));
        let offset = call_site.checked_sub(address).filter(|_| !WITHOUT_OFFSET.contains(&call_site));
        Some(Symbol { name: line.name, offset, module: line.module, is_gone })
    }

    /// True where the module at this address was gone at the end: another one of its name may be there still.
    fn is_gone(&self, module: &[u8], address: u64) -> bool {
        let after = self.gone.partition_point(|(name, extent)| (&**name, extent.start) <= (module, address));
        let last = self.gone.get(..after).and_then(<[_]>::last);
        last.is_some_and(|(name, extent)| **name == *module && address < extent.end)
    }

    /// Names of the functions around a call-site, in its module or the kernel, the nearest first; the one that holds it is not among
    /// them.
    #[cfg(feature = "dwarf")]
    pub(crate) fn neighbours(&self, call_site: u64) -> impl Iterator<Item = &[u8]> {
        let target = call_site.saturating_sub(1);
        let after = self.entries.partition_point(|e| e.address <= target);
        let (before, behind) = self.entries.split_at_checked(after).unwrap_or_default();
        let own = before.last().map(|e| e.address);
        let module = self.lookup(call_site).and_then(|symbol| symbol.module);
        let begin = before.partition_point(|e| Some(e.address) < own);
        let below = before.get(..begin).unwrap_or_default();
        let (mut below, mut above) = (below.iter().rev().peekable(), behind.iter().peekable());
        let nearest = std::iter::from_fn(move || {
            let distance =
                |entry: Option<&&SymbolEntry>| entry.map_or(u64::MAX, |entry| entry.address.abs_diff(target));
            if distance(below.peek()) <= distance(above.peek()) { below.next() } else { above.next() }
        });
        nearest
            .take(MAX_NEIGHBOURS)
            .filter(|entry| entry.is_code)
            .filter_map(|entry| self.line(entry))
            .filter(move |line| line.module == module)
            .map(|line| line.name)
    }

    /// The first address that cannot be the symbol's, whatever the next symbol is.
    fn end_of_stretch(&self, line: &SymbolLine<'_>, ends_with_next: bool) -> u64 {
        if line.module.is_some() {
            let after = self.modules.partition_point(|(extent, _)| extent.start <= line.address);
            let last = self.modules.get(..after).and_then(<[_]>::last);
            if let Some((extent, _)) = last.filter(|(extent, _)| line.address < extent.end) {
                return extent.end;
            }
        }
        if ends_with_next { u64::MAX } else { end_of_page(line.address) }
    }

    fn line(&self, entry: &SymbolEntry) -> Option<SymbolLine<'_>> {
        SymbolLine::parse(first_line(self.kallsyms.get(entry.line as usize..)?).0)
    }
}

impl Symbol<'_> {
    /// `name+0x1f`: any bytes, which an output escapes.
    pub fn text(&self) -> Vec<u8> {
        with_offset(self.name, self.offset)
    }
}

/// Call-site in the function that begins at `address`: [`Symbolizer::lookup`] finds the call before a call-site.
pub(crate) fn inside_of(address: u64) -> u64 {
    if MADE_UP.contains(&address) { address } else { address.saturating_add(1) }
}

/// `name+0x1f`; the name alone where the offset is not known.
pub(crate) fn with_offset(name: &[u8], offset: Option<u64>) -> Vec<u8> {
    let offset = offset.map_or_else(String::new, |offset| format!("+{offset:#x}"));
    [name, offset.as_bytes()].concat()
}

/// `HEX TYPE NAME[\t[MODULE]]`
struct SymbolLine<'a> {
    address: u64,
    name: &'a [u8],
    module: Option<&'a [u8]>,
}

impl<'a> SymbolLine<'a> {
    fn parse(line: &'a [u8]) -> Option<SymbolLine<'a>> {
        let (address, _, rest) = parts(line)?;
        let (name, module) = match memchr(b'\t', rest) {
            Some(tab) => {
                let (name, module) = rest.split_at_checked(tab)?;
                (name, module.strip_prefix(b"\t[").and_then(|m| m.strip_suffix(b"]")))
            }
            None => (rest, None),
        };
        Some(SymbolLine { address, name, module })
    }
}

/// Cuts names of more than [`MAX_NAME_BYTES`]; returns their number. A name in thousands of places would be copied to each.
fn cut_lines(text: &mut Vec<u8>) -> u64 {
    let long = |line: &[u8]| line.len() > MAX_LINE;
    let mut rest = text.as_slice();
    loop {
        let (line, len) = first_line(rest);
        if rest.is_empty() {
            return 0;
        }
        if long(line) {
            break;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    let short = text.len().saturating_sub(rest.len());
    let (mut kept, mut cuts) = (text.get(..short).unwrap_or_default().to_vec(), 0u64);
    while !rest.is_empty() {
        let (line, len) = first_line(rest);
        rest = rest.get(len..).unwrap_or_default();
        match SymbolLine::parse(line).filter(|_| long(line)) {
            Some(parsed) => {
                let head = line.len().saturating_sub(parts(line).map_or(0, |(.., rest)| rest.len()));
                kept.extend_from_slice(line.get(..head).unwrap_or_default());
                kept.extend_from_slice(cut(parsed.name));
                if let Some(module) = parsed.module {
                    kept.extend_from_slice(&[b"\t[", cut(module), b"]"].concat());
                }
                cuts = cuts.saturating_add(1);
            }
            None => kept.extend_from_slice(cut(line)),
        }
        kept.push(b'\n');
    }
    *text = kept;
    cuts
}

/// First address behind the page of an address.
fn end_of_page(address: u64) -> u64 {
    (address | (PAGE_BYTES - 1)).saturating_add(1)
}

/// A function. The marks of the end of the kernel's code look like one and are none.
fn is_code(kind: u8, name: &[u8]) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W') && !matches!(name, b"_etext" | b"_einittext")
}

/// ARM's and RISC-V's marks of code and data within a function (`$x`, `$d.1`), which end nothing.
fn is_mapping(name: &[u8]) -> bool {
    matches!(name, [b'$', b'a' | b'd' | b't' | b'x', ..])
}

/// The first line of a text that is not empty, without its newline, and its length with it.
fn first_line(text: &[u8]) -> (&[u8], usize) {
    match memchr(b'\n', text) {
        Some(end) => (text.get(..end).unwrap_or_default(), end.saturating_add(1)),
        None => (text, text.len()),
    }
}

/// Extents of modules, and those of modules that are gone.
type Modules = (Vec<(Extent, Box<[u8]>)>, Vec<(Box<[u8]>, Extent)>);

/// `NAME SIZE REFERENCES DEPENDENTS STATE 0xADDRESS` a line.
fn parse_modules(text: &[u8]) -> Modules {
    let (mut extents, mut gone) = (Vec::new(), Vec::new());
    for line in text.split(|&b| b == b'\n') {
        let Some((name, extent, state)) = parse_module(line) else { continue };
        // An earlier line has the extent of a module that is gone.
        if state == b"Gone" {
            gone.push((name.into(), extent));
        } else {
            extents.push((extent, name.into()));
        }
    }
    extents.sort_by_key(|(extent, _)| extent.start);
    gone.sort_unstable();
    (extents, gone)
}

/// Name, extent and state of a module; `None` for a line that has no extent.
fn parse_module(line: &[u8]) -> Option<(&[u8], Extent, &[u8])> {
    let mut words = line.split(|&b| b == b' ');
    let name = words.next()?;
    let size: u64 = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let mut state = &b""[..];
    let (start, _) = words
        .find_map(|word| {
            let address = word.strip_prefix(b"0x");
            if address.is_none() {
                state = word;
            }
            address
        })
        .and_then(hex)?;
    (start != 0 && size != 0).then(|| (cut(name), Extent { start, end: start.saturating_add(size) }, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmemtrace_abi::text::escape::escape;

    const KALLSYMS: &[u8] = b"\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81000100 T kmalloc_user
ffffffff81000200 d a_table
ffffffff81000300 t later
ffffffff81000400 T _etext
ffffffff81800000 T _sinittext
ffffffff81800000 t early
ffffffff81800080 T _einittext
ffffffffc0100000 t foo_open\t[foo]
ffffffffc0100040 t foo_close\t[foo]
ffffffffc0100800 d foo_data\t[foo]
ffffffffc0000000 t bar_probe\t[bar]
ffffffffc0000010 t bar_last\t[bar]
";
    const MODULES: &[u8] = b"foo 8192 1 - Live 0xffffffffc0100000 (O)\nbar 4096 0 - Live 0xffffffffc0000000\n";

    #[test]
    fn ranges_are_those_of_the_kernel_and_of_each_module() {
        let symbols = Symbolizer::new(KALLSYMS.to_vec(), MODULES);
        assert_eq!(symbols.kernel_range(), Some((0xffff_ffff_8100_0000, 0xffff_ffff_8180_1000)));
        let (foo, bar) = (0xffff_ffff_c010_0000, 0xffff_ffff_c000_0000);
        // A return address may be the first one beyond the module.
        for (call_site, range) in [
            (foo, None),
            (foo + 1, Some((foo, foo + 8192))),
            (foo + 8192, Some((foo, foo + 8192))),
            (foo + 8193, None),
            (bar + 4096, Some((bar, bar + 4096))),
            (bar + 4097, None),
            (0xffff_ffff_8100_0110, None),
            (0, None),
        ] {
            assert_eq!(symbols.module_range(call_site), range, "{call_site:#x}");
        }
        let bare = Symbolizer::new(b"ffffffffc0100000 t foo_open\t[foo]\n".to_vec(), b"");
        assert_eq!((bare.kernel_range(), bare.module_range(foo + 1)), (None, None));
    }

    #[test]
    fn functions_of_a_module_that_is_gone_say_so() {
        // One module was loaded twice, the second time elsewhere.
        let modules =
            [MODULES, b"bar 4096 0 - Live 0xffffffffc0200000\nbar 4096 0 - Gone 0xffffffffc0000000\n"].concat();
        let kallsyms = [KALLSYMS, b"ffffffffc0200000 t bar_again\t[bar]\n"].concat();
        let symbols = Symbolizer::new(kallsyms, &modules);
        let is_gone = |address: u64| symbols.lookup(address).map(|symbol| symbol.is_gone);
        let addresses = [0xffff_ffff_c000_0005, 0xffff_ffff_c000_1000, 0xffff_ffff_c020_0001];
        assert_eq!(addresses.map(is_gone), [Some(true), Some(true), Some(false)]);
        let others = [0xffff_ffff_c010_0001, 0xffff_ffff_8100_0101, 0xffff_ffff_c000_1001];
        assert_eq!(others.map(is_gone), [Some(false), Some(false), None]);
        assert_eq!(text(&symbols, addresses[0]).as_deref(), Some("bar_probe+0x5 [bar]"));
    }

    fn text(symbols: &Symbolizer, call_site: u64) -> Option<String> {
        symbols.lookup(call_site).map(|s| match s.module {
            Some(module) => format!("{} [{}]", escape(&s.text()), escape(module)),
            None => escape(&s.text()).into_owned(),
        })
    }

    #[test]
    fn a_call_site_belongs_to_the_call_before_it() {
        let symbols = Symbolizer::new(KALLSYMS.to_vec(), MODULES);
        for (call_site, want) in [
            (0xffff_ffff_8100_0101, Some("kmalloc_user+0x1")),
            (0xffff_ffff_8100_01ff, Some("kmalloc_user+0xff")),
            // The last instruction is a call that does not return.
            (0xffff_ffff_8100_0200, Some("kmalloc_user+0x100")),
            (0xffff_ffff_8100_0100, Some("_text+0x100")), // the first of two names
            (0xffff_ffff_8100_0000, None),
            (0xffff_ffff_8100_0201, None), // data
            (0xffff_ffff_8100_0400, Some("later+0x100")),
            (0xffff_ffff_8100_0401, None), // after _etext
            (0xffff_ffff_8180_0001, Some("_sinittext+0x1")),
            (0xffff_ffff_8180_0081, None), // after _einittext
            (0xffff_ffff_c000_0010, Some("bar_probe+0x10 [bar]")),
            (0xffff_ffff_c000_1000, Some("bar_last+0xff0 [bar]")),
            (0xffff_ffff_c000_1001, None), // after the module
            (0xffff_ffff_c010_0123, Some("foo_close+0xe3 [foo]")),
            (0xffff_ffff_c010_0900, None), // a module's data
            (0, None),
            (1, None),
            (u64::MAX, None),
        ] {
            assert_eq!(text(&symbols, call_site).as_deref(), want, "{call_site:#x}");
        }
    }

    #[test]
    fn the_last_symbol_of_an_unknown_stretch_ends_with_its_page() {
        let symbols =
            Symbolizer::new(b"c0001080 T only\nc0200ff0 t prog\t[bpf]\nd0000000 t other\t[bar]\n".to_vec(), b"");
        assert_eq!(text(&symbols, 0xc000_2000).as_deref(), Some("only+0xf80"));
        assert_eq!(text(&symbols, 0xc000_2001), None);
        assert_eq!(text(&symbols, 0xc020_1000).as_deref(), Some("prog+0x10 [bpf]"));
        assert_eq!(text(&symbols, 0xc020_1001), None);
    }

    #[test]
    fn without_addresses_there_are_no_symbols() {
        let symbols = Symbolizer::new(
            b"0000000000000000 T _text\n0000000000000000 t foo\t[foo]\n".to_vec(),
            b"foo 4096 0 - Live 0x0\n",
        );
        assert_eq!((symbols.len(), symbols.lookup(0x1000)), (0, None));
        assert_eq!(Symbolizer::new(Vec::new(), b"").lookup(1), None);
    }

    #[test]
    fn garbage_is_skipped_and_order_does_not_matter() {
        let mut shuffled: Vec<&[u8]> = KALLSYMS.split_inclusive(|&b| b == b'\n').collect();
        shuffled.reverse();
        // The first of equal addresses in the file wins, and that changed.
        let expect_text = "_stext+0x100";
        let garbage = [
            &b"\n\xff\xfe\n T x\nzz T y\n12345678901234567 T long\nffffffff81000150\nffffffff81000150 T\n"[..],
            b"ffffffff81000150 T \nffffffff81000150 $x T z\n\t[m]\nffffffff81000150 t $x.7\n",
        ]
        .concat();
        let all = [&garbage[..], &shuffled.concat(), b"ffffffff81000150 "].concat();
        let symbols =
            Symbolizer::new(all.to_vec(), b"\nfoo\nfoo x 0xff\nfoo 99999999999999999999 - 0xff\n\xff \xff \xff");
        assert_eq!(text(&symbols, 0xffff_ffff_8100_01ff).as_deref(), Some("kmalloc_user+0xff"));
        assert_eq!(text(&symbols, 0xffff_ffff_8100_0100).as_deref(), Some(expect_text));
    }

    #[test]
    fn the_kernel_begins_at_its_first_symbol_of_code() {
        let base = |text: &[u8]| Symbolizer::new(text.to_vec(), b"").text_base();
        assert_eq!(base(KALLSYMS), Some(0xffff_ffff_8100_0000));
        assert_eq!(base(b"2000 T _stext\n1000 T _text\n500 t _text\t[mod]\n"), Some(0x1000));
        // The address of `_text` is 0 on some machines, as that of a symbol that is not shown.
        assert_eq!(base(b"0000 T _text\n100000 T _stext\n"), Some(0x10_0000));
        assert_eq!((base(b"1000 T text\n500 t _text\t[mod]\n"), base(b"")), (None, None));
    }

    #[test]
    fn neighbours_come_nearest_first_and_from_the_same_module() {
        let text = b"1000 t a\n1100 t b\n1100 t alias\n1180 d data\n1200 t c\n1240 t m\t[mod]\n1300 t d\n2000 t e\n";
        let symbols = Symbolizer::new(text.to_vec(), b"");
        let names =
            |call_site| symbols.neighbours(call_site).map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>();
        assert_eq!(names(0x1210), ["d", "alias", "b", "a", "e"]);
        assert_eq!(names(0x1110), ["c", "a", "d", "e"]);
        assert_eq!(names(0x1250), [""; 0], "the only function of its module");
        assert_eq!(
            (names(0), names(0x3000).len()),
            (vec!["a".into(), "b".into(), "alias".into(), "c".into(), "d".into(), "e".into()], 5)
        );
    }

    #[test]
    fn names_may_be_any_bytes() {
        let long = vec![b'n'; 65536];
        let all = [b"1000 t \x1b[2Jx\\\xff\n2000 t ", &long[..], b"\n2100 t end\t[a[b]\n3000 t open\t[ab\n"].concat();
        let symbols = Symbolizer::new(all.to_vec(), b"a[b 512 0 - Live 0x2100");
        assert_eq!(text(&symbols, 0x1001).unwrap(), r"\x1b[2Jx\\\xff+0x1");
        assert!(symbols.lookup(0x2001).unwrap().name == &long[..MAX_NAME_BYTES] && symbols.cut_names() == 1);
        assert_eq!(symbols.lookup(0x2101).unwrap().module, Some(&b"a[b"[..]));
        assert_eq!(symbols.lookup(0x3001).unwrap().module, None);
    }

    /// Held against the obvious way: walk all lines.
    #[test]
    fn every_address_has_the_nearest_symbol_before_it() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        let list: Vec<(u64, char)> =
            (0..300).map(|_| (0x1000 + random() % 2000, ['t', 'T', 'd', 'W', 'b'][random() as usize % 5])).collect();
        let file: String = list.iter().enumerate().map(|(i, (a, t))| format!("{a:x} {t} s{i}\n")).collect();
        let symbols = Symbolizer::new(file.as_bytes().to_vec(), b"");
        for call_site in 0x0ff0..0x17d0 {
            let nearest = list.iter().map(|s| s.0).filter(|&a| a < call_site).max();
            let found = nearest.and_then(|a| list.iter().position(|&(b, t)| a == b && "tTW".contains(t)));
            let want = found.zip(nearest).map(|(i, a)| format!("s{i}+{:#x}", call_site - a));
            assert_eq!(text(&symbols, call_site), want, "{call_site:#x}");
        }
    }
}
