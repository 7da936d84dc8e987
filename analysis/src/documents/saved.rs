//! Documents that were saved: `sites` as JSON, read back in place of a trace.
//!
//! A document is a stranger's file: numbers and names are taken as they are, sums are made anew, and nothing in it is believed to
//! be in any order.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{ByKind, Kind, Space};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::kernel::unknown::UnknownEvents;
use kmemtrace_abi::open::regular;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::{
    Addresses, Deferred, InputCapabilities, InputKind, PageBytesFrom, Run, Scope, SymbolSource, TraceInfo,
};
use serde::Deserialize;

use super::sums::PrintedStats;
use crate::account::completeness::Completeness;
use crate::account::completeness::MergeStats;
use crate::account::figures::{Availability, Figure, FigureUnit};
use crate::account::grouping::{Grouping, RowKey, Through};
use crate::analysis::{Analysis, CacheFacts};
use crate::error::AnalysisError;
use crate::memory::budget::Budget;
use crate::names::kallsyms::{InitSite, SiteOwner, Symbol, Symbolizer};
use crate::names::known::KnownNames;
use crate::names::place::{Frame, NameSource, NamesReport, Place, SourceLine};
use crate::names::resolver::Places;
use crate::pairing::result::PairingResult;
use crate::query::Query;
use crate::query::select::Select;

/// Name of the input in documents that are made of a document.
const INPUT: &str = "document";
/// Schema of the documents that are read.
const SCHEMA: &str = "kmemtrace.sites/1";
/// What schemas of documents begin with.
const SCHEMAS: &[u8] = b"\"kmemtrace.";
/// Limit of bytes of a document: 10,000 call-sites have about ten million.
const MAX_BYTES: u64 = 1 << 30;
/// Characters at the begin and at the end of a text that a sentence quotes.
const MAX_QUOTED: usize = 100;
/// Sources of symbols in a head.
const SYMBOLS: [SymbolSource; 3] = [SymbolSource::Trace, SymbolSource::File, SymbolSource::Absent];
/// Limit of CPUs in a head.
const MAX_CPUS: u32 = 1 << 16;

/// True for JSON that begins with a schema of ours, whatever view made it.
pub fn is_document(path: &Path) -> bool {
    let Ok(file) = regular::open(path) else { return false };
    let mut start = Vec::new();
    if file.take(4096).read_to_end(&mut start).is_err() {
        return false;
    }
    let is_json = start.trim_ascii_start().starts_with(b"{");
    is_json && start.windows(SCHEMAS.len()).any(|part| part == SCHEMAS)
}

impl Query {
    /// Answers from a saved `sites` document in place of a trace: rows are its call-sites. Filters on kinds, modules, call-sites and
    /// branches select among them.
    ///
    /// # Errors
    /// [`AnalysisError::Document`] for a file that is no such document, and for a query that it does not answer.
    pub fn of_document(&self, path: &Path) -> Result<Analysis, AnalysisError> {
        let wrong = |why: String| AnalysisError::Document { path: path.to_owned(), why };
        if let Some(what) = self.beyond_document() {
            return Err(wrong(format!("a saved document has no {what}: name the trace itself")));
        }
        let saved = Saved::read(path).map_err(&wrong)?;
        let analysis = saved.analysis(self, path).map_err(wrong)?;
        let static_sizes = if self.has_static { analysis.names.places.static_sizes()? } else { None };
        Ok(Analysis { static_sizes, ..analysis })
    }

    /// Part of the query that no document answers.
    fn beyond_document(&self) -> Option<&'static str> {
        let Select {
            pid,
            tgid,
            comm,
            module: _,
            cache,
            site: _,
            kind: _,
            size,
            context,
            branch: _,
            reclaimable,
            cgroup,
            accounted,
        } = &self.select;
        let asked = [
            (self.free_sites, "frees by their own callers"),
            (self.lists_live, "objects"),
            (self.over_time(false).is_asked(), "changes over time"),
            (self.matrix, "pairs of CPUs"),
            (self.window.is_some(), "times of events"),
            (self.grouping != Grouping::SITE, "groups but call-sites"),
            (!pid.is_empty() || !tgid.is_empty() || !comm.is_empty(), "threads"),
            (!cache.is_empty(), "caches"),
            (!size.is_empty(), "sizes of objects"),
            (!context.is_empty(), "contexts"),
            (!cgroup.is_empty(), "cgroups"),
            (accounted.is_some(), "accounts of objects"),
            (reclaimable.is_some() || self.leaks.is_some(), "which memory the kernel takes back"),
        ];
        asked.into_iter().find(|(is_asked, _)| *is_asked).map(|(_, what)| what)
    }
}

/// Members of a document that are read back.
#[derive(Deserialize)]
struct Saved {
    schema: String,
    completeness: SavedCompleteness,
    trace: SavedTrace,
    #[serde(default)]
    names: SavedNames,
    query: SavedQuery,
    rows: Vec<SavedRow>,
    #[serde(default)]
    others_count: u64,
}

/// Input of any document.
#[derive(Deserialize)]
struct SavedHead {
    trace: SavedInput,
}

#[derive(Deserialize)]
struct SavedInput {
    input: String,
    #[serde(default)]
    one_moment: bool,
}

impl SavedHead {
    fn read(path: &Path) -> Option<SavedHead> {
        serde_json::from_reader(BufReader::new(regular::open(path).ok()?.take(MAX_BYTES))).ok()
    }
}

#[derive(Deserialize)]
struct SavedCompleteness {
    verdict: String,
    lost_events: Option<u64>,
    gaps: u64,
    truncated_files: Vec<String>,
    missing_cpus: Vec<u32>,
    inferred_frees: u64,
    frees_without_alloc: u64,
}

#[derive(Deserialize)]
struct SavedTrace {
    source: Option<String>,
    kernel: Option<String>,
    arch: Option<String>,
    endian: Option<String>,
    word_bytes: Option<u8>,
    page_bytes: Option<u64>,
    clock: Option<String>,
    cpus: u32,
    order: String,
    first: u64,
    last: u64,
    own_threads: Option<Vec<i32>>,
    scope: Option<String>,
    // Documents of earlier versions do not have these.
    #[serde(default)]
    page_bytes_from: Option<String>,
    #[serde(default)]
    addresses: Option<String>,
    // Documents of earlier versions do not have it.
    #[serde(default)]
    deferred: Option<String>,
    filtered: Option<String>,
    #[serde(default)]
    begun: Option<String>,
    #[serde(default)]
    ended: Option<String>,
    #[serde(default)]
    command: Option<Vec<String>>,
    host: Option<String>,
    boot: Option<String>,
    recording: Option<String>,
    symbols: Option<String>,
    since_boot: Option<SavedSinceBoot>,
}

#[derive(Deserialize)]
struct SavedSinceBoot {
    lost_before_first: Option<u64>,
}

#[derive(Default, Deserialize)]
struct SavedNames {
    kernel: SavedKernelNames,
    modules: SavedModuleNames,
}

#[derive(Default, Deserialize)]
struct SavedKernelNames {
    from: Option<String>,
    file: Option<PathBuf>,
    checked: Option<String>,
}

#[derive(Default, Deserialize)]
struct SavedModuleNames {
    dwarf: usize,
    path: usize,
    none: usize,
}

#[derive(Deserialize)]
struct SavedQuery {
    #[serde(default)]
    filters: HashMap<String, Vec<String>>,
    time: Option<(u64, u64)>,
}

#[derive(Deserialize)]
struct SavedRow {
    call_site: Option<String>,
    symbol: Option<String>,
    symbol_hex: Option<String>,
    module: Option<String>,
    module_hex: Option<String>,
    frames: Option<Vec<SavedFrame>>,
    source: Option<SavedSource>,
    folder: Option<String>,
    folder_hex: Option<String>,
    folder_from: Option<String>,
    wrapper: Option<String>,
    wrapper_hex: Option<String>,
    kind: String,
    #[serde(flatten)]
    stats: PrintedStats,
}

#[derive(Deserialize)]
struct SavedFrame {
    function: String,
    file: Option<String>,
    line: Option<u32>,
    #[serde(default)]
    inlined: bool,
}

#[derive(Deserialize)]
struct SavedSource {
    function: String,
    file: Option<String>,
    line: Option<u32>,
}

/// Text of a file for a sentence. The middle of a long one is left out; serde names the place in the file at the end.
fn shortened(text: &str) -> Cow<'_, str> {
    let begin = text.char_indices().nth(MAX_QUOTED).and_then(|(end, _)| text.get(..end));
    let end = text.char_indices().rev().nth(MAX_QUOTED).and_then(|(start, _)| text.get(start..));
    match begin.zip(end).filter(|(begin, end)| begin.len() + end.len() < text.len()) {
        Some((begin, end)) => format!("{begin}…{end}").into(),
        None => text.into(),
    }
}

impl Saved {
    fn read(path: &Path) -> Result<Saved, String> {
        let file: File = regular::open(path).map_err(|error| error.to_string())?;
        if file.metadata().is_ok_and(|data| data.len() > MAX_BYTES) {
            return Err("is too large for a saved document: name the trace itself".to_owned());
        }
        let saved: Saved = serde_json::from_reader(BufReader::new(file.take(MAX_BYTES))).map_err(|error| {
            match SavedHead::read(path).filter(|head| head.trace.one_moment) {
                Some(head) => {
                    let input = shortened(&head.trace.input);
                    format!("was saved from a text of one moment ({input}), which has no frees: name that text")
                }
                None => format!("is not a saved document of call-sites: {}", shortened(&error.to_string())),
            }
        })?;
        if saved.schema != SCHEMA {
            let schema = shortened(&saved.schema);
            return Err(format!(
                "is a document {schema}, and only {SCHEMA} is read: save one with sites --format json"
            ));
        }
        if saved.others_count > 0 {
            return Err("has only some of the call-sites: save it without --top".to_owned());
        }
        Ok(saved)
    }

    /// Analysis with the rows that the query takes.
    fn analysis(self, query: &Query, path: &Path) -> Result<Analysis, String> {
        let Saved { completeness, mut trace, names, query: asked, rows, .. } = self;
        // Documents of earlier versions do not have these figures.
        if rows.iter().any(|row| row.stats.deferred_frees.is_none()) {
            trace.deferred.take_if(|word| word != "unseen");
        }
        let (mut paired, mut places, mut symbols) = (PairingResult::default(), HashMap::new(), Vec::new());
        let (areas, mut counted) = (&query.names.areas, 0u128);
        let (mut seen, mut unselected) = (HashSet::new(), 0u64);
        for row in rows {
            let call_site = row.address()?;
            let kind = row.kind()?;
            if !seen.insert((call_site, kind)) {
                return Err(format!("has the call-site {call_site:#x} twice"));
            }
            let (symbol, module) = (name(&row.symbol, &row.symbol_hex), name(&row.module, &row.module_hex));
            let is_lacking =
                |figure: &Figure| figure.entry().known == Availability::Always && row.stats.get(*figure).is_none();
            if let Some(figure) = Figure::ALL.into_iter().find(is_lacking) {
                return Err(format!("is not a saved document of call-sites: a row lacks {}", figure.entry().member));
            }
            let stats = row.stats.sums();
            let counts = Figure::ALL.into_iter().filter(|figure| figure.entry().unit == FigureUnit::Count);
            counted = counts.filter_map(|figure| stats.get(figure)).fold(counted, |sum, n| sum + n);
            let place = Arc::new(row.place(|file| areas.of_file(file).map(|area| area.as_bytes().into())));
            symbols.push((call_site, symbol, module));
            if symbols.last().is_some_and(|symbols| query.select.takes_row(kind, symbols, &place)) {
                paired.rows.push((RowKey { site: call_site, others: 0, kind, through: Through::Nothing }, stats));
            } else {
                unselected = unselected.saturating_add(stats.allocs);
            }
            places.insert(call_site, place);
        }
        if counted > u64::MAX.into() {
            return Err("has more objects than any recording".to_owned());
        }
        paired.counts.unselected_allocs = unselected;
        for (key, stats) in &paired.rows {
            paired.has[key.kind] = true;
            paired.kinds[key.kind].add(stats);
            if key.kind.space() == Space::Slab {
                paired.total.add(stats);
            }
        }
        let places = Places::saved(&query.names, places, names.report());
        let symbolizer = OnceLock::from(symbolizer(&symbols));
        let (order, lost_before) = (trace.order(), trace.since_boot.as_ref().and_then(|since| since.lost_before_first));
        let window = asked.time;
        let saved: Vec<_> =
            asked.given().filter(|(option, _)| query.given.iter().all(|(other, _)| other != option)).collect();
        Ok(Analysis {
            chosen: Select::default(),
            leaks: Vec::new(),
            threads_end: None,
            records_frees: ByKind::default(),
            completeness: completeness.completeness(lost_before),
            own_threads: trace.own_threads.clone(),
            info: trace.info(paired.has),
            order,
            paired,
            names: saved_names(symbolizer, places),
            first_key: 0,
            grouping: Grouping::SITE,
            budget: Budget::new(query.max_memory),
            inputs: vec![path.to_owned()],
            window,
            given: query.given.iter().cloned().chain(saved).collect(),
            gfp_names: None,
            kinds: query.select.kind.clone(),
            module_rule: query.module_rule,
            memfree_change: None,
            caches: CacheFacts::default(),
            machine: None,
            is_whole: true,
            allocinfo: None,
            static_sizes: None,
        })
    }
}

/// The names that a saved document has.
fn saved_names(symbolizer: OnceLock<Symbolizer>, places: Places) -> KnownNames {
    KnownNames {
        kallsyms: Mutex::default(),
        modules: Vec::new(),
        comms: HashMap::new(),
        trace_names: kmemtrace_abi::event::Names::default(),
        symbolizer,
        has_named: OnceLock::from(()),
        places,
    }
}

/// Call-site with the symbol and the module of its row.
type Symbols = (u64, Option<Vec<u8>>, Option<Vec<u8>>);

impl Select {
    /// True for a row that the filters take; those on objects were refused.
    fn takes_row(&self, kind: Kind, symbols: &Symbols, place: &Place) -> bool {
        let (symbol, module) = (function(symbols), symbols.2.as_deref());
        let symbol = symbol.map(|(name, offset)| Symbol { name, offset: Some(offset), module, is_gone: false });
        let owner = match (module, &symbol) {
            (Some(module), _) => SiteOwner::Module(module),
            (None, Some(_)) => SiteOwner::Kernel,
            (None, None) => SiteOwner::Unknown,
        };
        self.matches_kind(kind) && self.matches_site(symbols.0, symbol.as_ref(), owner) && self.matches_branch(place)
    }
}

/// Function of a row's symbol, and the offset of the call-site in it.
fn function((call_site, symbol, _): &Symbols) -> Option<(&[u8], u64)> {
    let symbol = symbol.as_deref()?;
    let plus = symbol.windows(3).rposition(|part| part == b"+0x")?;
    let offset = u64::from_str_radix(std::str::from_utf8(&symbol[plus + 3..]).ok()?, 16).ok()?;
    // A name with such bytes would be another line of symbols.
    let is_name = !symbol[..plus].is_empty() && !symbol[..plus].iter().any(|byte| matches!(byte, b'\n' | b'\t'));
    (is_name && offset > 0 && offset < *call_site).then_some((&symbol[..plus], offset))
}

/// Symbols that give each call-site the names of its row.
fn symbolizer(symbols: &[Symbols]) -> Symbolizer {
    let symbolizer = Symbolizer::new(kallsyms(symbols), b"");
    // A call-site of a module without a symbol is in its initialisation.
    let init = symbols.iter().filter(|row| function(row).is_none());
    let init =
        init.filter_map(|(site, _, module)| Some((*site, InitSite { module: module.clone()?.into(), offset: None })));
    symbolizer.set_init_sites(init.collect());
    symbolizer
}

/// Text of symbols that gives each call-site the name of its row, and no name to one without.
fn kallsyms(symbols: &[Symbols]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut ends: HashMap<u64, (u64, Vec<u8>)> = HashMap::new();
    for row in symbols {
        let (call_site, _, module) = row;
        let Some((name, offset)) = function(row) else {
            // A symbol that is no code ends the one before it.
            text.extend(format!("{:x} d -\n", call_site.saturating_sub(1)).bytes());
            continue;
        };
        let module = module.as_deref().filter(|module| !module.contains(&b'\n'));
        let module = module.map(|module| [b"\t[", module, b"]"].concat()).unwrap_or_default();
        let start = call_site - offset;
        text.extend([format!("{start:x} t ").as_bytes(), name, &module, b"\n"].concat());
        let end = ends.entry(start).or_insert((*call_site, module));
        end.0 = end.0.max(*call_site);
    }
    // A function without a symbol after it would end with its page.
    for (end, module) in ends.into_values() {
        text.extend([format!("{end:x} d -").as_bytes(), &module, b"\n"].concat());
    }
    text
}

/// Bytes of a name, by its text or by its digits, which stand beside a text that is not exact.
fn name(text: &Option<String>, hex: &Option<String>) -> Option<Vec<u8>> {
    let digits = hex.as_deref().filter(|digits| digits.len().is_multiple_of(2) && digits.is_ascii());
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = digits.and_then(|digits| digits.as_bytes().chunks(2).map(byte).collect());
    bytes.or_else(|| text.as_ref().map(|text| text.as_bytes().to_vec()))
}

fn boxed(text: String) -> Box<[u8]> {
    text.into_bytes().into()
}

impl SavedRow {
    fn address(&self) -> Result<u64, String> {
        let Some(call_site) = &self.call_site else {
            return Err("has a call-site without an address, which its input did not give: name that input".to_owned());
        };
        let digits = call_site.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.ok_or_else(|| format!("has a row whose call_site is not an address: {}", shortened(call_site)))
    }

    fn kind(&self) -> Result<Kind, String> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == self.kind);
        kind.ok_or_else(|| format!("has a row of an unknown kind: {}", shortened(&self.kind)))
    }

    /// Place in the sources; the area is that of the source file.
    fn place(self, area: impl Fn(&[u8]) -> Option<Box<[u8]>>) -> Place {
        let frame = |frame: SavedFrame| Frame {
            function: boxed(frame.function),
            file: frame.file.map(boxed),
            line: frame.line,
            inlined: frame.inlined,
        };
        let source = self.source.map(|source| SourceLine {
            function: boxed(source.function),
            file: source.file.map(boxed),
            line: source.line,
        });
        Place {
            frames: self.frames.into_iter().flatten().map(frame).collect(),
            area: source.as_ref().and_then(|source| area(source.file.as_deref()?)),
            source,
            folder: name(&self.folder, &self.folder_hex).map(Into::into),
            folder_from: self.folder_from.as_deref().and_then(name_source),
            wrapper: name(&self.wrapper, &self.wrapper_hex).map(Into::into),
            // A document does not tell it.
            is_gone: false,
        }
    }
}

fn name_source(word: &str) -> Option<NameSource> {
    let all = [NameSource::Dwarf, NameSource::Objects, NameSource::Map, NameSource::Module, NameSource::Symbols];
    all.into_iter().find(|source| source.name() == word)
}

impl SavedNames {
    fn report(self) -> NamesReport {
        NamesReport {
            kernel: self.kernel.from.as_deref().and_then(name_source),
            file: self.kernel.file,
            checked: ["build-id", "symbols"].into_iter().find(|word| self.kernel.checked.as_deref() == Some(word)),
            modules_dwarf: self.modules.dwarf,
            modules_path: self.modules.path,
            modules_none: self.modules.none,
            ..NamesReport::default()
        }
    }
}

impl SavedQuery {
    /// Filters that the document was saved with.
    fn given(self) -> impl Iterator<Item = (&'static str, Vec<String>)> {
        const OPTIONS: [&str; 9] = ["pid", "comm", "module", "cache", "site", "kind", "size", "context", "branch"];
        let mut filters = self.filters;
        OPTIONS.into_iter().filter_map(move |option| Some((option, filters.remove(option)?)))
    }
}

impl SavedCompleteness {
    fn completeness(self, lost_before: Option<u64>) -> Completeness {
        let verdict = match self.verdict.as_str() {
            "complete" => Verdict::Complete,
            "lossy" => Verdict::Lossy,
            "truncated" => Verdict::Truncated,
            _ => Verdict::Corrupt,
        };
        Completeness {
            verdict,
            lost_events: self.lost_events,
            gaps: self.gaps,
            lost_before,
            truncated_files: self.truncated_files,
            missing_cpus: self.missing_cpus,
            inferred_frees: Some(self.inferred_frees),
            frees_without_alloc: Some(self.frees_without_alloc),
            skipped: None,
            unknown: UnknownEvents::default(),
            stacks: 0,
            stacks_unmatched: 0,
            stacks_distinct: 0,
        }
    }
}

impl SavedTrace {
    fn order(&self) -> MergeStats {
        MergeStats { first: Some(self.first), last: Some(self.last.max(self.first)), ..MergeStats::default() }
    }

    fn info(self, kinds: ByKind<bool>) -> TraceInfo {
        TraceInfo {
            input: InputKind::Other(INPUT),
            capabilities: InputCapabilities::events(kinds),
            source: match self.source.as_deref() {
                Some("tracefs") => Some(Source::Tracefs),
                Some("relay") => Some(Source::Relay),
                _ => None,
            },
            kernel: self.kernel,
            arch: self.arch,
            endian: [Endian::Little, Endian::Big]
                .into_iter()
                .find(|endian| self.endian.as_deref() == Some(endian.name())),
            word_bytes: self.word_bytes,
            page_bytes: self.page_bytes,
            page_bytes_from: [PageBytesFrom::Option, PageBytesFrom::Guess, PageBytesFrom::Machine]
                .into_iter()
                .find(|from| self.page_bytes_from.as_deref() == Some(from.name()))
                .unwrap_or(PageBytesFrom::Trace),
            addresses: if self.addresses.as_deref() == Some("hashed") { Addresses::Hashed } else { Addresses::Raw },
            clock: self.clock,
            since_boot: self.since_boot.is_some(),
            cpus: (0..self.cpus.min(MAX_CPUS)).collect(),
            missing: Vec::new(),
            order: if self.order == "sequence" { OrderKey::Sequence } else { OrderKey::Time },
            deferred: match self.deferred.as_deref() {
                Some("seen") => Some(Deferred::From(0)),
                Some("partly") => Some(Deferred::From(u64::MAX)),
                Some("unseen") => Some(Deferred::Unseen),
                _ => None,
            },
            scope: match self.scope.as_deref() {
                Some("tasks") => Scope::Tasks,
                Some(_) => Scope::System,
                None => Scope::Unknown,
            },
            filter: self.filtered,
            host: self.host,
            boot: self.boot,
            recording: self.recording,
            run: Run { begun: seconds(self.begun), ended: seconds(self.ended), command: self.command },
            symbols: SYMBOLS.into_iter().find(|symbols| self.symbols.as_deref() == Some(symbols.name())),
            text: None,
        }
    }
}

/// Seconds since 1970 of a time as documents print it.
fn seconds(time: Option<String>) -> Option<u64> {
    u64::try_from(time?.parse::<jiff::Timestamp>().ok()?.as_second()).ok()
}
