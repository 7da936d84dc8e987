//! Names from files that are named beside a trace: symbols, debug information, maps, and lists.

use std::collections::BTreeMap;
use std::path::Path;

use kmemtrace::{
    Action, Areas, Event, EventNames, EventSource, Fault, FrameList, Kind, ModuleInfo, ModuleSizes, NameMap,
    NameOptions, Query, Shape, Slabinfo, StaticSizes, StreamItem, Symbolizer, Trace, Uses, Wrappers, build_id_of_notes,
    documents,
};
use kmemtrace_abi::disk::block::item;
use kmemtrace_abi::kernel::kallsyms::parts;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::MADE_UP;

use crate::fuzz::target::{Target, choice, with_choice};
use crate::fuzz::{mutate, read};
use crate::programs::data;
use crate::recording::Directory;

/// Target of `/proc/kallsyms` and `/proc/modules`.
pub const KALLSYMS: Target =
    Target { name: "kallsyms", run: run_kallsyms, seeds: lists, mutate: mutate::text, executions: 400 };
/// Target of a kernel with debug information.
pub const VMLINUX: Target =
    Target { name: "vmlinux", run: run_vmlinux, seeds: kernels, mutate: mutate::bytes, executions: 80 };
/// Target of a module with debug information.
pub const MODULE: Target =
    Target { name: "module", run: run_module, seeds: modules, mutate: mutate::bytes, executions: 80 };
/// Target of maps of names.
pub const NAMES_MAP: Target =
    Target { name: "names-map", run: run_map, seeds: maps, mutate: mutate::chosen_text, executions: 300 };
/// Target of lists of areas, wrappers, frames and uses, and of texts that a recording keeps of modules and caches.
pub const LISTS: Target =
    Target { name: "lists", run: run_list, seeds: other_lists, mutate: mutate::chosen_text, executions: 400 };

/// Release of the sample kernel.
const RELEASE: &str = "6.1-tiny";
/// Sections of the sample module, and where they were loaded.
const LOADED: [(&str, u64); 3] = [
    (".text", 0xffff_ffff_c010_0000),
    (".text.unlikely", 0xffff_ffff_c00f_0000),
    (".init.text", 0xffff_ffff_c000_0000),
];
/// Begin of a note with a build-id of this many bytes.
const BUILD_ID_BYTES: usize = 20;
const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

fn lists() -> Vec<Vec<u8>> {
    let kernel = "ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t a.cold\nffffffff81000100 T a\n\
                  ffffffff81000180 d table\nffffffff81000200 W b\nffffffff81100000 T _etext\n";
    let module = "ffffffffc0100000 t f\t[m]\nffffffffc0100040 t $x\t[m]\nffffffffc0100080 T g\t[m]\nffffffffc0200000 t h\t[gone]\n";
    let modules = "m 16384 1 other,[permanent], Live 0xffffffffc0100000 (OE)\ngone 4096 0 - Gone 0xffffffffc0200000\n";
    let seed = |symbols: &str, modules: &str| [symbols.as_bytes(), b"\0", modules.as_bytes()].concat();
    vec![seed(&[kernel, module].concat(), modules), seed(kernel, ""), seed(module, modules), seed("", modules)]
}

/// Symbols, which stand before a NUL, and modules.
pub fn symbols_and_modules(input: &[u8]) -> (&[u8], &[u8]) {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    (&input[..end], input.get(end + 1..).unwrap_or_default())
}

fn run_kallsyms(input: &[u8]) {
    let (symbols, modules) = symbols_and_modules(input);
    let symbolizer = Symbolizer::new(symbols.to_vec(), modules);
    let _ = (symbolizer.text_base(), symbolizer.kernel_range());
    let mut known: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    for (address, _, rest) in symbols.split(|byte| *byte == b'\n').filter_map(parts) {
        let name = rest.split(|byte| *byte == b'\t').next().unwrap_or_default();
        // Marks of data in code are no symbols (Documentation of the ARM ELF ABI: $a, $d, $t, $x).
        if address != 0 && !name.starts_with(b"$") {
            known.entry(address).or_default().push(name);
        }
    }
    for (address, _) in known.iter().take(200) {
        for site in [address.wrapping_sub(1), *address, address.wrapping_add(1), address.wrapping_add(4096)] {
            let owner = symbolizer.owner(site);
            assert!(!owner.name().is_empty() || owner.module().is_some_and(<[u8]>::is_empty));
            let Some(symbol) = symbolizer.lookup(site) else { continue };
            let Some(offset) = symbol.offset.filter(|_| !symbol.name.starts_with(b"$")) else { continue };
            // The nearest symbol below, or at the call, and no other.
            let start = site - offset;
            let last = if MADE_UP.contains(&site) { site } else { site - 1 };
            let (nearest, names) = known.range(..=last).next_back().expect("a symbol that is found is listed");
            assert_eq!(*nearest, start, "{site:#x}");
            let is_listed = |name: &&[u8]| name.starts_with(symbol.name) || symbol.name.starts_with(name);
            assert!(names.iter().any(is_listed), "{site:#x}: {}", symbol.name.escape_ascii());
        }
    }
}

/// Allocations at these call-sites.
#[derive(Debug)]
struct Sites(Vec<u64>);

impl EventSource for Sites {
    fn cpu(&self) -> u32 {
        0
    }

    fn path(&self) -> &Path {
        Path::new("sites")
    }

    fn read(&mut self, names: &mut EventNames, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        for (number, call_site) in (1..).zip(self.0.drain(..)) {
            let event = Event::new(number, 0, names.intern(b"kmalloc"));
            let (action, address) = (Action::Alloc(Kind::Kmalloc), 0x1000 * number);
            items.push(StreamItem::Event(Event { call_site, address, requested: 40, allocated: 64, action, ..event }));
        }
        Ok(())
    }
}

/// Addresses in a list of frames as `addr2line` writes them, of the section `section`.
fn addresses(name: &str, section: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(data("debug-info").join(name)).unwrap();
    let (mut current, mut out) = ("", Vec::new());
    for line in text.lines() {
        if let Some(section) = line.strip_prefix("section ") {
            current = section;
        } else if let Some(address) = line.strip_prefix("0x").filter(|_| current == section || section.is_empty()) {
            out.push(u64::from_str_radix(address, 16).unwrap());
        }
    }
    out
}

/// Names call-sites in the way of `sites`, by these options.
fn named(sites: Vec<u64>, prepare: impl FnOnce(&mut Trace), names: NameOptions) {
    let mut trace = Trace::of_sources("sites", Some("mono"), vec![Box::new(Sites(sites))]).unwrap();
    prepare(&mut trace);
    let shape = Shape { sort: Vec::new(), top: None };
    if let Err(error) = read::answer(Query::by_site().names(names), documents::sites, &shape, trace, 1) {
        read::sentence(&error);
    }
}

fn kernels() -> Vec<Vec<u8>> {
    let names = ["vmlinux", "vmlinux-zlib", "vmlinux-zlib-gnu", "vmlinux-zstd"];
    let plain = |name| std::fs::read(data("debug-info").join(name)).unwrap();
    let mut seeds: Vec<Vec<u8>> = names.map(plain).to_vec();
    seeds.push(zstd::bulk::compress(&plain("vmlinux"), 3).unwrap());
    seeds
}

fn run_vmlinux(input: &[u8]) {
    let dir = Directory::new(&[("vmlinux".to_owned(), input.to_vec())]);
    let path = dir.file("vmlinux");
    let sites = addresses("vmlinux.frames", "").into_iter().map(|address| address + 1).collect();
    named(sites, |_| {}, NameOptions { vmlinux: Some(path.clone()), ..NameOptions::default() });
    match StaticSizes::of_vmlinux(&path) {
        Ok(sizes) => {
            let mut map = Vec::new();
            kmemtrace::write_map(&sizes, &[], &mut map).unwrap();
            dir.write("map", &map);
            let read = NameMap::read(&dir.file("map"));
            assert!(read.is_ok(), "a map that was written is read: {read:?}");
        }
        Err(error) => read::sentence(&error.to_string()),
    }
}

fn modules() -> Vec<Vec<u8>> {
    vec![std::fs::read(data("debug-info/toy.ko")).unwrap()]
}

/// Note with the build-id of a file.
fn note(file: &[u8]) -> &[u8] {
    let at = file.windows(NOTE.len()).position(|window| window == NOTE).unwrap_or(file.len());
    file.get(at..at + NOTE.len() + BUILD_ID_BYTES).unwrap_or_default()
}

/// Items of a recording's `meta.out` that make it one of the sample kernel.
pub fn items_of_sample() -> Vec<u8> {
    let mut items = Vec::new();
    let symbols = "ffffffff81000000 T _stext\nffffffff81000000 T all\nffffffffffffff00 T end\n";
    item::put(&mut items, item::KALLSYMS, 0, symbols.as_bytes());
    item::put(&mut items, item::NOTES, 0, note(&kernels()[0]));
    items
}

fn run_module(input: &[u8]) {
    let place = format!("lib/modules/{RELEASE}/kernel/drivers/toy/toy.ko");
    let dir = Directory::new(&[(place.clone(), input.to_vec())]);
    let sites = LOADED.iter().flat_map(|(section, base)| {
        addresses("toy.frames", section).into_iter().map(move |address| base + address + 1)
    });
    let sections: String = LOADED.iter().map(|(name, address)| format!(" {name}={address:#x}")).collect();
    let id: String = note(&modules()[0]).iter().skip(NOTE.len()).map(|byte| format!("{byte:02x}")).collect();
    let info = format!("toy {id} drivers/toy/toy{sections}\n");
    let symbols: String = LOADED.iter().map(|(_, address)| format!("{address:x} t a\t[toy]\n")).collect();
    let prepare = |trace: &mut Trace| {
        trace.info.kernel = Some(RELEASE.to_owned());
        trace.metadata.module_info = info.into_bytes();
        trace.metadata.kallsyms = symbols.into_bytes();
    };
    named(sites.collect(), prepare, NameOptions { debug_dirs: vec![dir.path().to_owned()], ..NameOptions::default() });
    for error in [
        StaticSizes::of_module(&dir.file(&place)).err(),
        ModuleSizes::read(&dir.file(&format!("lib/modules/{RELEASE}"))).err(),
    ]
    .into_iter()
    .flatten()
    {
        read::sentence(&error.to_string());
    }
}

/// Text of a map; the first byte says how it is packed.
fn maps() -> Vec<Vec<u8>> {
    let text =
        "/fs/ext4/inode.c\next4_open\next4_close.part.0\n/fs/open.c\nopen\nclose\n=m-one\n/drivers/m.c\nm_open\nopen\n";
    vec![with_choice(0, text.as_bytes()), with_choice(1, text.as_bytes()), with_choice(2, b"kmemtrace.names/1\nabc")]
}

/// The map of an input.
pub fn map_file(input: &[u8]) -> Vec<u8> {
    let (way, text) = choice(input);
    let head = b"kmemtrace.names/1\n";
    match way % 4 {
        0 | 1 => [&head[..], &zstd::bulk::compress(text, 1).unwrap()].concat(),
        2 => text.to_vec(),
        _ => [&head[..], text].concat(),
    }
}

fn run_map(input: &[u8]) {
    let dir = Directory::new(&[("map".to_owned(), map_file(input))]);
    let path = dir.file("map");
    match NameMap::read(&path) {
        Ok(map) => {
            let len = map.len();
            assert_eq!(map.is_empty(), len == 0);
        }
        Err(error) => read::sentence(&error.to_string()),
    }
    let symbols = lists().remove(0);
    let prepare = |trace: &mut Trace| {
        trace.metadata.kallsyms = symbols.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    };
    let sites = vec![0xffff_ffff_8100_0101, 0xffff_ffff_8100_0201, 0xffff_ffff_c010_0001];
    named(sites, prepare, NameOptions { map: Some(path), ..NameOptions::default() });
}

fn other_lists() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 8] = [
        b"# areas\nnet\tdrivers/net/*\nEXT4 FILE SYSTEM\nM:\tsomebody\nF:\tfs/ext4/\nX:\tfs/ext4/a?.c\nF:\tfs/*\n",
        b"# wrappers\nkstrdup\nexample_*\n",
        b"[tracing]\ntrace_*\n[allocators]\nkmalloc*\n[reclaim]\nshrink_*\n[slabs]\n[vmalloc]\nvmalloc\n",
        b"page tables: frame pte_alloc_one,__pmd_alloc\nfile pages: gfp __GFP_MOVABLE order 0\n",
        b"toy 0102030405060708090a0b0c0d0e0f1011121314 drivers/toy/toy .text=0xffffffffc0100000\nother - -\n",
        b"slabinfo - version: 2.1\n# name\nkmalloc-64 10 64 64 64 1 : tunables 0 0 0 : slabdata 1 1 0\n",
        b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0aaaaaaaaaaaaaaaaaaaa",
        b"net\tnet/?o*e/*.c\n",
    ];
    (0..).zip(texts).map(|(number, text)| with_choice(number, text)).collect()
}

fn run_list(input: &[u8]) {
    let (number, bytes) = choice(input);
    let text = String::from_utf8_lossy(bytes);
    match number % 8 {
        0 | 7 => {
            let areas = Areas::parse(&text);
            for file in ["fs/ext4/inode.c", "drivers/net/a.c", "", "/", "net/core/skbuff.c"] {
                assert!(areas.of_file(file.as_bytes()).is_none_or(|area| !area.is_empty()));
            }
        }
        1 => {
            let wrappers = Wrappers::parse(&text);
            assert!(!wrappers.has(b"") || text.contains('*'));
        }
        2 => {
            let mut frames = FrameList::none();
            frames.add(&text);
            let _ = (frames.class(b"kmalloc_trace.isra.0"), frames.class(b""));
        }
        3 => match Uses::parse(&text) {
            Ok(_) => {}
            Err(error) => read::sentence(&error.to_string()),
        },
        4 => {
            let infos = ModuleInfo::parse(bytes);
            assert!(infos.len() <= bytes.len());
        }
        5 => {
            let caches = Slabinfo::parse(bytes);
            for cache in caches.caches() {
                let _ = (cache.active_bytes(), cache.pages());
                assert!(caches.find(&cache.name).is_some());
            }
        }
        _ => {
            for endian in [Endian::Little, Endian::Big] {
                let id = build_id_of_notes(bytes, endian);
                assert!(id.is_none_or(|id| bytes.windows(id.len().max(1)).any(|window| window == id) || id.is_empty()));
            }
        }
    }
}
