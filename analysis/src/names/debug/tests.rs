//! Debug information of a small kernel and its module (`tests/data/debug-info`) held against what binutils says about it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use object::elf;
use proptest::prelude::*;

use super::check::KernelFacts;
use super::dwarf::DwarfFile;
use super::image::Image;
use super::module::{ModuleFacts, ModuleFile};
use super::search::Folders;
use super::sections::Sections;
use super::symbols::Symbols;
use super::{DebugInfo, NamesError};
use crate::names::kallsyms::Symbolizer;
use crate::names::place::{Frame, NameSource};
use kmemtrace_abi::target::Endian;

/// Distance that KASLR put between the file and the trace.
const SHIFT: u64 = 0x1260_0000;
const RELEASE: &str = "6.1-tiny";
/// Sections of the module and where they were loaded.
const LOADED: [(&str, u64); 3] = [
    (".text", 0xffff_ffff_c010_0000),
    (".text.unlikely", 0xffff_ffff_c00f_0000),
    (".init.text", 0xffff_ffff_c000_0000),
];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/debug-info").join(name)
}

/// Folder that is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kmemtrace-debug-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    /// Writes a file, and the folders that it is in.
    fn with(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Frames of `addr2line -a -i -f` by section and address: lines `section NAME`, `0xADDRESS`, then a name and a line each.
fn expected(name: &str) -> Vec<(String, u64, Vec<String>)> {
    let (mut all, mut section) = (Vec::new(), String::new());
    for line in fs::read_to_string(data(name)).unwrap().lines() {
        if let Some(name) = line.strip_prefix("section ") {
            section = name.to_owned();
        } else if let Some(address) = line.strip_prefix("0x") {
            all.push((section.clone(), u64::from_str_radix(address, 16).unwrap(), Vec::new()));
        } else {
            all.last_mut().unwrap().2.push(line.to_owned());
        }
    }
    assert!(all.len() > 40);
    all
}

/// Frames as `addr2line` writes them.
fn lines(frames: &[Frame]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let place = |frame: &Frame| format!("{}:{}", text(frame.file.as_ref().unwrap()), frame.line.unwrap());
    frames.iter().flat_map(|frame| [text(&frame.function), place(frame)]).collect()
}

/// List of the kernel's functions as the kernel would have it, `shift` bytes behind the file's.
fn kallsyms(shift: u64) -> String {
    let image = Image::open(&data("vmlinux")).unwrap();
    let symbols = Symbols::read(&image).unwrap();
    let mut text = String::new();
    for symbol in symbols.iter().filter(|symbol| symbol.kind == elf::STT_FUNC) {
        let name = String::from_utf8_lossy(symbol.name);
        writeln!(text, "{:x} T {name}", symbol.value.wrapping_add(shift)).unwrap();
    }
    text + &format!("{:x} T _etext\n", 0xffff_ffff_8110_0000 + shift)
}

/// List of the module's functions, its sections loaded at `LOADED`.
fn module_kallsyms() -> String {
    let image = Image::open(&data("toy.ko")).unwrap();
    let symbols = Symbols::read(&image).unwrap();
    let mut text = String::new();
    for symbol in symbols.iter().filter(|symbol| symbol.kind == elf::STT_FUNC) {
        let section = String::from_utf8_lossy(&image.sections[symbol.section.unwrap()].name).into_owned();
        let base = LOADED.iter().find(|loaded| loaded.0 == section).unwrap().1;
        let name = String::from_utf8_lossy(symbol.name);
        writeln!(text, "{:x} t {name}\t[toy]", base + symbol.value).unwrap();
    }
    text
}

fn facts(symbols: &Symbolizer) -> KernelFacts<'_> {
    KernelFacts {
        release: Some(RELEASE),
        notes: b"",
        module_info: b"",
        endian: Some(Endian::Little),
        kallsyms: symbols,
        call_sites: &[],
    }
}

fn symbolizer(text: &str) -> Symbolizer {
    Symbolizer::new(text.as_bytes().to_vec(), b"")
}

fn named(vmlinux: &Path, facts: &KernelFacts<'_>) -> Result<DebugInfo, NamesError> {
    DebugInfo::open_in(Folders::default(), Some(vmlinux), facts)
}

/// The note with a build-id, as `/sys/kernel/notes` has it.
fn note(id: &[u8]) -> Vec<u8> {
    [&[4, 0, 0, 0, id.len() as u8, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0", id].concat()
}

fn assert_kernel_frames(debug: &DebugInfo, symbols: &Symbolizer, shift: u64) {
    for (_, address, frames) in expected("vmlinux.frames") {
        let site = address.wrapping_add(shift + 1);
        assert_eq!(lines(&debug.frames(site, symbols).unwrap()), frames, "{address:#x}");
    }
}

#[test]
fn frames_equal_those_of_binutils_in_every_packing() {
    let folder = Folder::new();
    let plain = fs::read(data("vmlinux")).unwrap();
    let (mut gzip, mut xz) = (flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()), Vec::new());
    std::io::Write::write_all(&mut gzip, &plain).unwrap();
    lzma_rs::xz_compress(&mut &plain[..], &mut xz).unwrap();
    let files = [
        data("vmlinux"),
        data("vmlinux-zlib"),
        data("vmlinux-zlib-gnu"),
        data("vmlinux-zstd"),
        folder.with("gzip", &gzip.finish().unwrap()),
        folder.with("xz", &xz),
        folder.with("zstd", &zstd::encode_all(&plain[..], 3).unwrap()),
    ];
    for file in files {
        let symbols = symbolizer(&kallsyms(SHIFT));
        let debug = named(&file, &facts(&symbols)).unwrap();
        assert_kernel_frames(&debug, &symbols, SHIFT);
        let report = debug.report();
        assert_eq!((report.kernel, report.checked), (Some(NameSource::Dwarf), Some("symbols")), "{}", file.display());
        assert_eq!((report.broken_units, report.file), (0, Some(file)));
    }
}

#[test]
fn the_address_before_the_return_counts_and_inlined_functions_are_told() {
    let symbols = symbolizer(&kallsyms(SHIFT));
    let debug = named(&data("vmlinux"), &facts(&symbols)).unwrap();
    let all = expected("vmlinux.frames");
    let deepest = all.iter().max_by_key(|(_, _, frames)| frames.len()).unwrap();
    assert!(deepest.2.len() >= 6, "{deepest:?}");
    let frames = debug.frames(deepest.1 + SHIFT + 1, &symbols).unwrap();
    let inlined: Vec<bool> = frames.iter().map(|frame| frame.inlined).collect();
    assert_eq!(inlined, [vec![true; frames.len() - 1], vec![false]].concat());
    // An address that the kernel's list credits to no symbol has no frames, though the file would have some.
    let first = all[0].1 + SHIFT;
    let gap = symbolizer(&kallsyms(SHIFT).replace(&format!("{first:x} "), "0 "));
    assert_eq!(gap.lookup(first + 1), None);
    let debug = named(&data("vmlinux"), &facts(&symbols)).unwrap();
    assert_eq!(debug.frames(first + 1, &gap), None);
}

#[test]
fn another_build_is_rejected() {
    let own = kallsyms(SHIFT);
    // Every 20th function elsewhere: 95% are not enough.
    let moved: String = own
        .lines()
        .enumerate()
        .map(|(at, line)| if at % 20 == 7 { line.replacen('0', "8", 1) } else { line.to_owned() } + "\n")
        .collect();
    let symbols = symbolizer(&moved);
    let error = named(&data("vmlinux"), &facts(&symbols)).unwrap_err().to_string();
    assert!(error.contains("another build"), "{error}");
    // A file that is found and not named is told, and no error.
    let folder = Folder::new();
    let path = folder.with("boot/vmlinux-6.1-tiny", &fs::read(data("vmlinux")).unwrap());
    let folders = || Folders { debug: vec![folder.0.clone()], ..Folders::default() };
    let debug = DebugInfo::open_in(folders(), None, &facts(&symbols)).unwrap();
    let report = debug.report();
    assert_eq!((report.kernel, report.file), (None, None));
    assert!(matches!(&report.rejected[..], [(file, why)] if *file == path && why.contains("another build")));
    assert_eq!(debug.frames(0xffff_ffff_8100_0012 + SHIFT, &symbols), None);
    // The build-id decides where the trace has one.
    let right = symbolizer(&own);
    for (id, is_own) in [(Image::open(&path).unwrap().build_id().unwrap(), true), (vec![7; 20], false)] {
        let notes = note(&id);
        let facts = KernelFacts { notes: &notes, ..facts(&right) };
        let debug = DebugInfo::open_in(folders(), None, &facts).unwrap();
        assert_eq!(
            (debug.report().checked, debug.report().rejected.is_empty()),
            (is_own.then_some("build-id"), is_own)
        );
    }
}

#[test]
fn a_trace_without_symbols_goes_by_its_call_sites() {
    let none = symbolizer("");
    let sites: Vec<u64> = expected("vmlinux.frames").iter().map(|(_, address, _)| address + 1).collect();
    let debug = named(&data("vmlinux"), &KernelFacts { call_sites: &sites, ..facts(&none) }).unwrap();
    assert_eq!((debug.report().kernel, debug.report().checked), (Some(NameSource::Dwarf), None));
    assert_kernel_frames(&debug, &none, 0);
    let elsewhere: Vec<u64> = sites.iter().map(|site| site + SHIFT).collect();
    for sites in [&elsewhere[..], &sites[..19]] {
        let error = named(&data("vmlinux"), &KernelFacts { call_sites: sites, ..facts(&none) }).unwrap_err();
        assert!(error.to_string().contains("call-sites"), "{error}");
    }
    // The call-sites may be known only after the trace was read.
    for (known, is_own) in [(&sites, true), (&elsewhere, false)] {
        let debug = named(&data("vmlinux"), &facts(&none)).unwrap();
        assert_eq!(debug.prepare(known, &none).is_ok(), is_own);
        assert_eq!(debug.frames(sites[0], &none).is_some(), is_own);
    }
    // Nothing but a named file is taken unchecked.
    let folder = Folder::new();
    folder.with("lib/modules/6.1-tiny/vmlinux", &fs::read(data("vmlinux")).unwrap());
    let folders = Folders { debug: vec![folder.0.clone()], ..Folders::default() };
    let debug = DebugInfo::open_in(folders, None, &KernelFacts { call_sites: &sites, ..facts(&none) }).unwrap();
    assert_eq!((debug.report().kernel, debug.report().rejected.len()), (None, 1));
}

#[test]
fn files_that_are_named_and_useless_are_errors() {
    let folder = Folder::new();
    let symbols = symbolizer(&kallsyms(0));
    let toy = data("toy.ko");
    let cut = folder.with("cut", &fs::read(data("vmlinux")).unwrap()[..9000]);
    for (path, why) in [
        (folder.0.join("none"), "No such file"),
        (folder.0.clone(), "directory"),
        (folder.with("text", b"no ELF"), "not an ELF file"),
        (folder.with("gzip", &[0x1f, 0x8b, 8, 0, 1]), "gzip"),
        (cut, "not a complete ELF file"),
        (toy, "object"),
    ] {
        let error = named(&path, &facts(&symbols)).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains('\n'), "{error}");
    }
}

/// A module whose sections were loaded apart, found below the kernel's release.
fn with_module(symbols: &Symbolizer, info: &str) -> (Folder, DebugInfo) {
    let folder = Folder::new();
    folder.with("lib/modules/6.1-tiny/kernel/drivers/toy/toy.ko", &fs::read(data("toy.ko")).unwrap());
    let folders = Folders { debug: vec![folder.0.clone()], ..Folders::default() };
    let facts = KernelFacts { module_info: info.as_bytes(), ..facts(symbols) };
    let debug = DebugInfo::open_in(folders, None, &facts).unwrap();
    (folder, debug)
}

fn assert_module_frames(debug: &DebugInfo, symbols: &Symbolizer) {
    for (section, offset, frames) in expected("toy.frames") {
        let base = LOADED.iter().find(|loaded| loaded.0 == section).unwrap().1;
        let found = debug.frames(base + offset + 1, symbols);
        assert_eq!(lines(&found.unwrap_or_default()), frames, "{section} {offset:#x}");
    }
    assert_eq!(debug.report().modules_dwarf, 1);
}

#[test]
fn each_section_of_a_module_has_its_own_distance() {
    let symbols = symbolizer(&module_kallsyms());
    let (_folder, debug) = with_module(&symbols, "");
    assert_module_frames(&debug, &symbols);
    // With the sections that the recorder saw, and the path, a few symbols are enough.
    let id = super::check::hex(&Image::open(&data("toy.ko")).unwrap().build_id().unwrap());
    let sections: String = LOADED.iter().map(|(name, address)| format!(" {name}={address:#x}")).collect();
    let few: String = LOADED.iter().map(|(_, address)| format!("{address:x} t a\t[toy]\n")).collect();
    let few = symbolizer(&few);
    for info in [format!("toy {id} drivers/toy/toy{sections}"), format!("toy {id} -{sections}")] {
        let (_folder, debug) = with_module(&few, &info);
        assert_module_frames(&debug, &few);
    }
}

#[test]
fn a_module_of_another_build_is_rejected() {
    let symbols = symbolizer(&module_kallsyms());
    let site = LOADED[0].1 + 0x12;
    let (folder, debug) = with_module(&symbols, "toy 0102 drivers/toy/toy .text=0xffffffffc0100000");
    assert_eq!(debug.frames(site, &symbols), None);
    let file = folder.0.join("lib/modules/6.1-tiny/kernel/drivers/toy/toy.ko");
    assert!(matches!(&debug.report().rejected[..], [(path, why)] if *path == file && why.contains("another build")));
    // A function elsewhere, and too few functions.
    let own = module_kallsyms();
    let moved = own.replacen("c010", "c011", 1);
    let few: String = own.lines().take(19).map(|line| format!("{line}\n")).collect();
    for (text, why) in [(moved, "functions are where"), (few, "nor 20")] {
        let symbols = symbolizer(&text);
        let (_folder, debug) = with_module(&symbols, "");
        assert_eq!(debug.frames(site, &symbols), None);
        let report = debug.report();
        assert!(matches!(&report.rejected[..], [(_, told)] if told.contains(why)), "{:?}", report.rejected);
        assert_eq!(report.modules_dwarf, 0);
    }
    // Names that lead out of the folders are no paths.
    let (_folder, debug) = with_module(&symbols, "toy - ../../../toy\n.. - /etc/passwd");
    assert!(debug.frames(site, &symbols).is_some());
}

#[test]
fn debug_information_is_looked_for_in_order() {
    let symbols = symbolizer(&kallsyms(SHIFT));
    let content = fs::read(data("vmlinux")).unwrap();
    let id = super::check::hex(&Image::open(&data("vmlinux")).unwrap().build_id().unwrap());
    let (first, second) = (Folder::new(), Folder::new());
    let build_id = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
    let folders = Folders {
        debug: vec![first.0.clone(), second.0.clone()],
        modules: Some(second.0.join("modules")),
        tree: None,
        cache: Some(second.0.join("cache")),
    };
    let notes = note(&Image::open(&data("vmlinux")).unwrap().build_id().unwrap());
    let facts = KernelFacts { notes: &notes, ..facts(&symbols) };
    // The last place first; then each that comes before it wins.
    for (folder, name) in [
        (&second, format!("cache/{id}/debuginfo")),
        (&second, format!("modules/{RELEASE}/build/vmlinux")),
        (&second, format!("usr/lib/modules/{RELEASE}/vmlinux.xz")),
        (&second, format!("lib/modules/{RELEASE}/vmlinux")),
        (&second, format!("boot/vmlinux-{RELEASE}")),
        (&second, build_id.clone()),
        (&first, format!("boot/vmlinux-{RELEASE}.debug")),
        (&first, build_id),
    ] {
        let path = folder.with(&name, &content);
        let debug = DebugInfo::open_in(folders.clone(), None, &facts).unwrap();
        assert_eq!(debug.report().file, Some(path));
    }
    let elsewhere = KernelFacts { release: Some("../.."), notes: b"", ..facts };
    assert_eq!(DebugInfo::open_in(folders, None, &elsewhere).unwrap().report().file, None);
}

/// Reads everything that a file offers; only panics and hangs are failures.
fn read_all(bytes: Vec<u8>, sites: &[u64]) {
    let path = Path::new("damaged");
    let Ok(image) = Image::of_bytes(path, bytes) else { return };
    let _ = (image.build_id(), Symbols::read(&image).map(|symbols| symbols.iter().count()));
    if image.is_relocatable {
        let folder = Folder::new();
        let path = folder.with("toy.ko", &image.whole().unwrap());
        let text = module_kallsyms();
        let symbols = symbolizer(&text);
        let functions = symbols.symbols().map(|symbol| (symbol.name, symbol.address)).collect();
        let _ = ModuleFile::open(&path, &ModuleFacts { infos: &[], functions }, None)
            .map(|mut module| module.frames(sites).len());
    } else if let Ok(sections) = Sections::of_image(image) {
        let _ = DwarfFile::new(sections, crate::names::work::Work::of(1 << 20)).frames(sites);
    }
}

/// Changes of a file: bytes anywhere, bytes of its debug sections and headers, and an end.
fn damage() -> impl Strategy<Value = (Vec<(prop::sample::Index, u8)>, Option<prop::sample::Index>)> {
    let byte = prop_oneof![Just(0), Just(0xff), Just(0x80), any::<u8>()];
    (
        prop::collection::vec((any::<prop::sample::Index>(), byte), 1..12),
        prop::option::weighted(0.2, any::<prop::sample::Index>()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_do_no_harm(of_module: bool, (changes, end) in damage()) {
        let mut bytes = fs::read(data(if of_module { "toy.ko" } else { "vmlinux" })).unwrap();
        for (place, byte) in &changes {
            let at = place.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len()));
        }
        let sites: Vec<u64> = if of_module {
            LOADED.iter().flat_map(|&(_, start)| (0..0x400).step_by(7).map(move |at| start + at)).collect()
        } else {
            (0xffff_ffff_8100_0000..0xffff_ffff_8100_0900).step_by(7).chain([0, 1, u64::MAX]).collect()
        };
        read_all(bytes, &sites);
    }
}
