//! Files of some kilobytes that ask for gigabytes or hours: what they may cost, and how it is told.
//!
//! Each test has the programs read such a file and looks at their memory and processor time.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kmemtrace_abi::disk::block::{BlockInfo, FLAG_ZSTD, HEADER_BYTES, Header, NO_CPU, block, item, kind, seal};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_tests::generate::{Options, Random, Shape, trace_dir, tree, workload};
use kmemtrace_tests::measured::{self, Ran};
use kmemtrace_tests::programs::{data, json, program, text, until};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runs;
use rustix::process::{Pid, Signal, kill_process};
use zerocopy::FromBytes;

/// Largest payload that a block expands to.
const WHOLE: usize = 16 << 20;
/// Memory beyond the limit, in KiB.
const MARGIN: u64 = 64 << 10;
/// Processor time that no test's file takes on a slow machine with programs that are not optimised.
const MOST: Duration = Duration::from_secs(60);

/// Runs a program to its end, within [`MOST`]; one that does not end is a failure.
fn run(name: &str, arguments: &[&str], paths: &[&Path]) -> Ran {
    let mut command = Command::new(program(name));
    let ran = measured::run(command.args(arguments).args(paths).stdin(Stdio::null()), 10 * MOST);
    assert!(ran.processor < MOST, "{name} {arguments:?}: {:?} of a processor", ran.processor);
    ran
}

/// Runs a program within a limit of this many MiB, and checks that it keeps to it and says at most one sentence.
fn run_within(mib: u64, name: &str, arguments: &[&str], paths: &[&Path]) -> Ran {
    let limit = format!("{mib}M");
    let arguments = &[arguments, &["--max-memory", &limit]].concat()[..];
    // One that ends at once may have ended before its memory was looked at: it does the same again.
    let mut runs = (0..100).map(|_| run(name, arguments, paths));
    let ran = runs.find(|ran| ran.peak > 0).unwrap_or_else(|| panic!("the memory of {name} was never read"));
    assert!(ran.peak <= (mib << 10) + MARGIN, "{name} {arguments:?}: {} KiB of {mib} MiB: {}", ran.peak, ran.stderr);
    assert!(ran.stderr.lines().count() <= 1, "{name} {arguments:?}: {}", ran.stderr);
    ran
}

/// A refusal for want of memory, in one sentence.
fn is_refused(ran: &Ran) {
    assert_eq!(ran.status, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("need more than the") && ran.stderr.contains("--max-memory"), "{}", ran.stderr);
}

fn trace(cpus: u32, events: usize) -> Directory {
    Directory::new(&trace_dir(&workload(1, &Options::plain(Shape::plain(), cpus, events)), 1))
}

/// A trace whose events have call sites of their own, `STEXT` + 16 for the first and 16 more for each other one.
fn trace_of_sites(sites: u64) -> Directory {
    let mut workload = workload(1, &Options::plain(Shape::plain(), 1, 4 * sites as usize));
    let events = workload.cpus.iter_mut().flat_map(|cpu| &mut cpu.items).filter_map(|item| match item {
        StreamItem::Event(event) if event.call_site != 0 => Some(event),
        _ => None,
    });
    for (event, n) in events.zip((0..sites).cycle()) {
        event.call_site = STEXT + 16 * (n + 1);
    }
    Directory::new(&trace_dir(&workload, 1))
}

/// The first block of a file, and its header.
fn first_block(file: &[u8]) -> (Header, Vec<u8>) {
    let header = Header::read_from_bytes(&file[..HEADER_BYTES]).unwrap();
    let len = HEADER_BYTES + header.payload_len.get() as usize;
    (header, file[..len].to_vec())
}

/// A block whose payload is compressed.
fn packed(info: BlockInfo, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend(zstd::bulk::compress(payload, 3).unwrap());
    seal(&mut bytes, &BlockInfo { flags: FLAG_ZSTD, ..info }, Some(payload.len()));
    bytes
}

/// Puts items behind the header of a trace's `meta.out`, each in a compressed block of its own.
fn set_meta(dir: &Directory, items: &[(u16, Vec<u8>)]) -> usize {
    let (header, mut meta) = first_block(&fs::read(dir.file("meta.out")).unwrap());
    for ((tag, bytes), sequence) in items.iter().zip(1..) {
        let mut payload = Vec::new();
        item::put(&mut payload, *tag, item::MORE, bytes);
        let info =
            BlockInfo { kind: kind::META, cpu: NO_CPU, recording: header.recording, sequence, ..BlockInfo::default() };
        meta.extend(packed(info, &payload));
    }
    dir.write("meta.out", &meta);
    meta.len()
}

#[test]
fn metadata_that_expands_to_gigabytes_is_refused_in_a_sentence() {
    let dir = trace(2, 500);
    let zeros = vec![b'0'; WHOLE - 8];
    let items: Vec<(u16, Vec<u8>)> = (0..150).map(|_| (item::KALLSYMS, zeros.clone())).collect();
    let stored = set_meta(&dir, &items);
    assert!(stored < 1 << 20, "{stored} bytes");
    for mib in [64, 256] {
        is_refused(&run_within(mib, "kmemtrace-report", &["summary"], &[dir.path()]));
        is_refused(&run_within(mib, "kmemtrace-check", &[], &[dir.path()]));
    }
}

#[test]
fn a_name_of_megabytes_is_cut_for_all_call_sites() {
    let dir = trace(2, 4000);
    let mut symbols = b"ffffffff00000000 t ".to_vec();
    symbols.resize(2 * (WHOLE - 8), b'n');
    symbols.extend_from_slice(b"\nffffffffffffff00 T end\n");
    let items: Vec<(u16, Vec<u8>)> = symbols.chunks(WHOLE - 8).map(|part| (item::KALLSYMS, part.to_vec())).collect();
    set_meta(&dir, &items);
    for view in ["sites", "caches", "live"] {
        let ran = run_within(256, "kmemtrace-report", &[view, "--format", "json"], &[dir.path()]);
        assert_eq!(ran.status, Some(0), "{view}: {}", ran.stderr);
        assert!(ran.stderr.contains("1 name of symbols cut after 4096 bytes"), "{view}: {}", ran.stderr);
        assert!(ran.stdout.windows(4097).all(|bytes| bytes.iter().any(|byte| *byte != b'n')), "{view}");
    }
}

#[test]
fn symbols_at_one_address_are_looked_through_once() {
    let dir = trace_of_sites(10_000);
    let line = b"ffffffff00000000 d x\n";
    let data = line.repeat((WHOLE - 8) / line.len());
    let code = b"ffffffff00000000 t all\nffffffffffffff00 T end\n".to_vec();
    set_meta(&dir, &[(item::KALLSYMS, data.clone()), (item::KALLSYMS, data), (item::KALLSYMS, code)]);
    let ran = run_within(256, "kmemtrace-report", &["sites", "--format", "json"], &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(json(&ran.stdout).to_string().contains("\"all\""));
}

#[test]
fn symbols_beyond_the_limit_are_left_out_and_figures_stand() {
    let dir = trace(2, 500);
    // An entry of the index has as many bytes as two such lines. Below 76 MiB there is no room for the item, from 112 on there is room
    // for its index.
    let lines = b"1 t a\n".repeat((WHOLE - 8) / 6);
    set_meta(&dir, &[(item::KALLSYMS, lines)]);
    let ran = run_within(92, "kmemtrace-report", &["sites", "--format", "json"], &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("symbols of the trace: not used for names: its contents need more"), "{}", ran.stderr);
    assert!(json(&ran.stdout)["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
}

#[test]
fn file_headers_are_held_once() {
    // Twice what the programs may take, if each were kept.
    let cpus = 24;
    let dir = trace(cpus, 3000);
    for cpu in 0..cpus {
        let name = format!("cpu{cpu}.out");
        let (header, first) = first_block(&fs::read(dir.file(&name)).unwrap());
        let mut payload = first[HEADER_BYTES..].to_vec();
        item::put(&mut payload, item::EVENT_FORMAT, 0, &[&b"x/y\n"[..], &vec![b' '; 12 << 20]].concat());
        let info = BlockInfo { kind: kind::FILE_HEADER, cpu, recording: header.recording, ..BlockInfo::default() };
        dir.write(&name, &packed(info, &payload));
    }
    for (name, arguments) in [("kmemtrace-report", &["summary"][..]), ("kmemtrace-check", &[])] {
        let ran = run_within(128, name, arguments, &[dir.path()]);
        assert!(ran.status.is_some_and(|status| status != 2), "{name}: {:?} {}", ran.status, ran.stderr);
    }
}

#[test]
fn as_many_formats_as_a_header_holds_take_linear_time() {
    let dir = trace(1, 300);
    let (header, first) = first_block(&fs::read(dir.file("cpu0.out")).unwrap());
    let mut payload = first[HEADER_BYTES..].to_vec();
    for id in 0..65_000 {
        let format = format!("vmscan/x\nname: a{id}_begin\nID: {id}\n\tfield:int a;\toffset:8;\tsize:4;\n");
        item::put(&mut payload, item::EVENT_FORMAT, 0, format.as_bytes());
    }
    let info = BlockInfo { kind: kind::FILE_HEADER, recording: header.recording, ..BlockInfo::default() };
    dir.write("cpu0.out", &packed(info, &payload));
    for (name, arguments) in [("kmemtrace-report", &["summary"][..]), ("kmemtrace-check", &[])] {
        let ran = run(name, arguments, &[dir.path()]);
        assert!(ran.status.is_some_and(|status| status < 2), "{name}: {:?} {}", ran.status, ran.stderr);
    }
}

#[test]
fn sparse_formats_of_a_tree_are_read_as_far_as_a_format_goes() {
    let dir = Directory::new(&tree(&workload(1, &Options::plain(Shape::plain(), 2, 500)), 1));
    for number in 0..3 {
        dir.write(&format!("events/kmem/big{number}/format"), b"");
        File::options()
            .write(true)
            .open(dir.file(&format!("events/kmem/big{number}/format")))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
    }
    for (name, arguments) in [("kmemtrace-report", &["summary"][..]), ("kmemtrace-check", &[])] {
        let ran = run_within(64, name, arguments, &[dir.path()]);
        assert!(ran.status.is_some_and(|status| status != 2), "{name}: {:?} {}", ran.status, ran.stderr);
    }
}

/// The file with a hole of `len` bytes behind its first `at` bytes, as a cut and a later write leave it.
fn with_hole(path: &Path, at: u64, len: u64) {
    let bytes = fs::read(path).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(at).unwrap();
    file.set_len(at + len).unwrap();
    file.write_all_at(&bytes[at as usize..], at + len).unwrap();
}

#[test]
fn holes_of_terabytes_are_passed_over_and_data_behind_them_is_read() {
    let whole = trace(1, 20_000);
    let events = |dir: &Directory| {
        let ran = run_within(128, "kmemtrace-report", &["summary", "--format", "json"], &[dir.path()]);
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let events = json(&ran.stdout)["events"].clone();
        assert!(events.is_object(), "{events}");
        events
    };
    let all = events(&whole);
    let dir = trace(1, 20_000);
    let bytes = fs::read(dir.file("cpu0.out")).unwrap();
    let (_, first) = first_block(&bytes);
    // Behind the first data block.
    let (_, second) = first_block(&bytes[first.len()..]);
    with_hole(&dir.file("cpu0.out"), (first.len() + second.len()) as u64, 4 << 40);
    assert_eq!(events(&dir), all);
    let ran = run_within(64, "kmemtrace-check", &["--format", "json"], &[dir.path()]);
    assert_eq!(ran.status, Some(3), "{}", ran.stderr);
    // A file that was cut and has nothing behind the hole.
    let mut file = File::options().write(true).open(whole.file("cpu0.out")).unwrap();
    file.seek(SeekFrom::Start(first.len() as u64 + 100)).unwrap();
    file.write_all(&[0; 4096]).unwrap();
    file.set_len(first.len() as u64).unwrap();
    file.set_len(4 << 40).unwrap();
    for (name, arguments) in [("kmemtrace-report", &["summary"][..]), ("kmemtrace-check", &[])] {
        let ran = run_within(64, name, arguments, &[whole.path()]);
        assert!(ran.status.is_some_and(|status| status < 2), "{name}: {:?} {}", ran.status, ran.stderr);
    }
}

#[test]
fn holes_of_raw_files_are_gaps() {
    let workload = workload(1, &Options::plain(Shape::plain(), 1, 20_000));
    let dir = Directory::new(&tree(&workload, 1));
    let raw = dir.file("per_cpu/cpu0/trace_pipe_raw");
    with_hole(&raw, 4096, 4 << 40);
    let ran = run_within(64, "kmemtrace-check", &["--format", "json"], &[dir.path()]);
    assert_eq!(ran.status, Some(3), "{}", ran.stderr);
    assert!(text(&ran.stdout).contains("the file has a hole of 4398"), "{}", text(&ran.stdout));
    let ran = run_within(128, "kmemtrace-report", &["summary", "--format", "json"], &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
}

/// ELF file of 64 bits for x86-64: sections by name and type, with their contents.
fn elf(sections: &[(&str, u32, Vec<u8>, u32)]) -> Vec<u8> {
    let mut names = b"\0.shstrtab\0".to_vec();
    let mut bytes = vec![0; 64];
    let mut headers = vec![0; 64];
    let mut add = |name: u32, kind: u32, flags: u8, content: &[u8], link: u32, bytes: &mut Vec<u8>| {
        let mut header = [0; 64];
        header[8] = flags;
        header[0..4].copy_from_slice(&name.to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        header[48..56].copy_from_slice(&4u64.to_le_bytes());
        if kind == 2 {
            header[56..64].copy_from_slice(&24u64.to_le_bytes());
        }
        bytes.extend_from_slice(content);
        headers.extend_from_slice(&header);
    };
    for (name, kind, content, link) in sections {
        let at = names.len() as u32;
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        // Code is loaded, and can be executed.
        add(at, *kind, if *name == ".text" { 6 } else { 0 }, content, *link, &mut bytes);
    }
    add(1, 3, 0, &names, 0, &mut bytes);
    let all = sections.len() + 2;
    // More sections than the header can count are counted in the first section's.
    let (count, last) = if all < 0xff00 { (all as u16, all as u16 - 1) } else { (0, 0xffff) };
    if count == 0 {
        headers[32..40].copy_from_slice(&(all as u64).to_le_bytes());
        headers[40..44].copy_from_slice(&(all as u32 - 1).to_le_bytes());
    }
    let table = bytes.len() as u64;
    bytes.extend_from_slice(&headers);
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    bytes[16..20].copy_from_slice(&[2, 0, 62, 0]);
    bytes[20..24].copy_from_slice(&1u32.to_le_bytes());
    bytes[40..48].copy_from_slice(&table.to_le_bytes());
    for (at, value) in [(52, 64u16), (58, 64), (60, count), (62, last)] {
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Base address of the functions in these traces.
const STEXT: u64 = 0xffff_ffff_0000_0000;
const BUILD_ID: &[u8; 20] = b"a build of this test";

fn note() -> Vec<u8> {
    [&4u32.to_le_bytes()[..], &20u32.to_le_bytes(), &3u32.to_le_bytes(), b"GNU\0", BUILD_ID].concat()
}

/// Trace of a kernel with this build-id, whose functions are all in `STEXT`.
fn trace_of_build(events: usize) -> Directory {
    let dir = trace(1, events);
    let symbols = format!("{STEXT:x} T _stext\n{STEXT:x} T all\nffffffffffffff00 T end\n");
    set_meta(&dir, &[(item::KALLSYMS, symbols.into_bytes()), (item::NOTES, note())]);
    dir
}

/// Kernel of that build with this debug information.
fn kernel(debug: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let symbol = |name: u32, value: u64| {
        [&name.to_le_bytes()[..], &[0x12, 0, 1, 0], &value.to_le_bytes(), &0u64.to_le_bytes()].concat()
    };
    let symbols = [symbol(0, 0), symbol(1, STEXT)].concat();
    let mut sections = vec![
        (".note.gnu.build-id", 7, note(), 0),
        (".symtab", 2, symbols, 3),
        (".strtab", 3, b"\0_stext\0".to_vec(), 0),
    ];
    sections.extend(debug.iter().map(|(name, bytes)| (*name, 1, bytes.clone(), 0)));
    elf(&sections)
}

/// A unit of version 5 with these entries.
fn unit(entries: &[u8]) -> Vec<u8> {
    let mut unit = [&5u16.to_le_bytes()[..], &[1, 8], &0u32.to_le_bytes(), entries].concat();
    let len = (unit.len() as u32).to_le_bytes();
    unit.splice(0..0, len);
    unit
}

/// Has the report name call-sites by this kernel, which is left out with this reason, in bounded memory and time.
fn is_left_out(kernel: &[u8], why: &str) {
    let dir = trace_of_build(2000);
    dir.write("vmlinux", kernel);
    let vmlinux = dir.file("vmlinux");
    let arguments = ["sites", "--format", "json", "--vmlinux", vmlinux.to_str().unwrap()];
    let ran = run_within(128, "kmemtrace-report", &arguments, &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("vmlinux: not used for names: ") && ran.stderr.contains(why), "{}", ran.stderr);
    assert!(json(&ran.stdout)["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
}

/// Abbreviations: 1 is a unit from `STEXT` on with children, 2 has thousands of attributes without bytes, 3 is a function with a list
/// of ranges.
fn abbreviations(attributes: usize) -> Vec<u8> {
    let unit = [&[1, 0x11, 1, 0x11, 0x01, 0x12, 0x07][..], &[0, 0]].concat();
    let empty = [&[2, 0x34, 0][..], &[0x3f, 0x19].repeat(attributes), &[0, 0]].concat();
    let function = [3, 0x2e, 0, 0x55, 0x17, 0, 0];
    [&unit[..], &empty, &function, &[0]].concat()
}

/// First entry of a unit.
fn root() -> Vec<u8> {
    [&[1][..], &STEXT.to_le_bytes(), &0xffff_ff00u64.to_le_bytes()].concat()
}

#[test]
fn attributes_without_bytes_take_steps() {
    let info = unit(&[root(), vec![2; 60_000]].concat());
    let kernel =
        kernel(&[(".debug_info", info), (".debug_abbrev", abbreviations(20_000)), (".debug_line", vec![0; 16])]);
    is_left_out(&kernel, "it takes more steps to read than any real file of its size");
}

#[test]
fn ranges_that_functions_share_take_steps() {
    // Each range holds all call-sites.
    let range = [&[6][..], &(STEXT + 1).to_le_bytes(), &(STEXT + 0xffff_0000).to_le_bytes()].concat();
    let list = [range.repeat(3000), vec![0]].concat();
    let header =
        [&(list.len() as u32 + 8).to_le_bytes()[..], &5u16.to_le_bytes(), &[8, 0], &0u32.to_le_bytes()].concat();
    let function = [&[3][..], &12u32.to_le_bytes()].concat();
    let info = unit(&[root(), function.repeat(5000)].concat());
    let kernel = kernel(&[
        (".debug_info", info),
        (".debug_abbrev", abbreviations(1)),
        (".debug_line", vec![0; 16]),
        (".debug_rnglists", [header, list].concat()),
    ]);
    is_left_out(&kernel, "it takes more steps to read than any real file of its size");
}

#[test]
fn a_kernel_that_unpacks_to_gigabytes_of_zeros_is_left_out() {
    let dir = Directory::new(&[]);
    dir.write("zeros", &[]);
    let pack = |bytes: u64, program: &str, arguments: &[&str]| {
        File::options().write(true).open(dir.file("zeros")).unwrap().set_len(bytes).unwrap();
        let packed = Command::new(program).args(arguments).arg(dir.file("zeros")).output().unwrap();
        assert!(packed.status.success());
        packed.stdout
    };
    is_left_out(&pack(2 << 30, "gzip", &["-1", "-c"]), "its contents need more than the 128 MiB of --max-memory");
    // Some 5000 times the packed size.
    is_left_out(&pack(160 << 20, "xz", &["-0", "-c"]), "it is too large when unpacked");
}

#[test]
fn a_sparse_kernel_of_terabytes_is_left_out() {
    let dir = trace_of_build(500);
    // The table of sections is behind the hole, and a section is the hole.
    let bytes = kernel(&[(".debug_info", vec![1]), (".debug_abbrev", vec![0]), (".debug_line", vec![0])]);
    dir.write("vmlinux", &bytes);
    let vmlinux = dir.file("vmlinux");
    let file = File::options().write(true).open(&vmlinux).unwrap();
    file.set_len(1 << 40).unwrap();
    let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    for section in 1..=7u64 {
        file.write_all_at(&(1u64 << 39).to_le_bytes(), table + section * 64 + 32).unwrap();
    }
    let arguments = ["sites", "--vmlinux", vmlinux.to_str().unwrap()];
    let ran = run_within(64, "kmemtrace-report", &arguments, &[dir.path()]);
    assert!(matches!(ran.status, Some(0 | 2)), "{:?} {}", ran.status, ran.stderr);
}

#[test]
fn a_kernel_whose_section_names_exceed_the_limit_is_left_out() {
    let dir = trace_of_build(500);
    let bytes = kernel(&[(".debug_info", vec![1]), (".debug_abbrev", vec![0]), (".debug_line", vec![0])]);
    dir.write("vmlinux", &bytes);
    let vmlinux = dir.file("vmlinux");
    let file = File::options().write(true).open(&vmlinux).unwrap();
    file.set_len(1 << 30).unwrap();
    // The section of the names (`e_shstrndx`) is 60 MiB of the hole.
    let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let names = table + 64 * u64::from(u16::from_le_bytes(bytes[62..64].try_into().unwrap()));
    file.write_all_at(&(512u64 << 20).to_le_bytes(), names + 24).unwrap();
    file.write_all_at(&(60u64 << 20).to_le_bytes(), names + 32).unwrap();
    let arguments = ["sites", "--vmlinux", vmlinux.to_str().unwrap()];
    let ran = run_within(64, "kmemtrace-report", &arguments, &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let why = "vmlinux: not used for names: its contents need more than the 64.0 MiB of --max-memory";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
}

#[test]
fn check_has_the_limit_of_the_report() {
    let dir = trace(1, 300);
    for (limit, status) in [("512M", 0), ("4095", 0), ("1.5G", 0), ("0", 2), ("1T", 2)] {
        let ran = run("kmemtrace-check", &["--max-memory", limit], &[dir.path()]);
        assert_eq!(ran.status, Some(status), "{limit}: {}", ran.stderr);
    }
}

/// Blocks of a kind that no test above has: one for each CPU, as large as blocks are.
#[test]
fn blocks_of_many_cpus_end_in_the_sentence_of_the_limit() {
    let cpus = 16;
    let dir = trace(cpus, 3000);
    for cpu in 0..cpus {
        let name = format!("cpu{cpu}.out");
        let (header, first) = first_block(&fs::read(dir.file(&name)).unwrap());
        let info =
            BlockInfo { kind: kind::DATA, cpu, recording: header.recording, sequence: 1, ..BlockInfo::default() };
        dir.write(&name, &[first, packed(info, &vec![0; WHOLE]), block(&info, b"")].concat());
    }
    let ran = run_within(64, "kmemtrace-report", &["summary"], &[dir.path()]);
    assert!(matches!(ran.status, Some(0..=2)), "{:?} {}", ran.status, ran.stderr);
    let ran = run_within(64, "kmemtrace-check", &["-j", "16"], &[dir.path()]);
    assert!(ran.status.is_some_and(|status| status <= 3), "{:?} {}", ran.status, ran.stderr);
}

#[test]
fn texts_of_the_metadata_take_linear_time() {
    let lines = |line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        let mut number = 0;
        while text.len() < (3 << 20) {
            text += &line(number);
            number += 1;
        }
        text.into_bytes()
    };
    let slabs = lines(&|n| format!("cache{n} 1 2 64 64 1 : tunables 0 0 0 : slabdata 1 1 0\n"));
    let slabs = [b"slabinfo - version: 2.1\n".to_vec(), slabs].concat();
    let loaded = lines(&|n| format!("m{n} 4096 0 - Live {:#x}\n", 0xffff_ffff_c000_0000u64 + n as u64 * 16));
    let gone = lines(&|n| format!("m 4096 0 - Gone {:#x}\n", 0xffff_ffff_0000_0000u64 + n as u64));
    let cases = [
        (item::SLABINFO_START, slabs.clone()),
        (item::SLABINFO_END, slabs),
        (item::MODULES, loaded),
        (item::MODULES_LATER, gone),
        (item::COMMS, lines(&|n| format!("{n} a{n}\n"))),
        (item::CPU_NODES, lines(&|n| format!("{n} {n}\n"))),
        (item::OWN_THREADS, lines(&|n| format!("{}\n", n + 1))),
        (item::CACHE_ALIASES, lines(&|n| format!("alias{n} cache{n}\n"))),
        (item::MODULE_INFO, lines(&|n| format!("m{n} - kernel/a{n} .text={:#x}\n", 4096 + n))),
        (item::MEMINFO_START, lines(&|n| format!("Name{n}: {n} kB\n"))),
        (item::VMSTAT_START, lines(&|n| format!("name{n} {n}\n"))),
        (item::KALLSYMS, lines(&|n| format!("{:x} t f{n}\n", 0xffff_ffff_0000_0000u64 + n as u64))),
    ];
    let dir = trace(2, 1000);
    let views = ["summary", "sites", "caches", "modules", "tasks"];
    for (number, (tag, bytes)) in cases.into_iter().enumerate() {
        set_meta(&dir, &[(tag, bytes)]);
        for view in views.into_iter().cycle().skip(number).take(runs::number(2, views.len() as u64) as usize) {
            let ran = run_within(256, "kmemtrace-report", &[view, "--format", "json"], &[dir.path()]);
            assert_eq!(ran.status, Some(0), "{tag} {view}: {}", ran.stderr);
        }
    }
}

/// Has the report name call-sites by this option and file, within this many MiB and the time that the file explains.
fn named(mib: u64, option: &str, more: &[&str], file: &[u8]) -> Ran {
    let dir = trace(1, 4000);
    // Neighbours of the same name, which are asked about where it is in several files.
    let neighbours: String = (0..300).map(|n| format!("{:x} t all\n", STEXT + n)).collect();
    let symbols = format!("{STEXT:x} T _stext\n{neighbours}ffffffffffffff00 T end\n");
    set_meta(&dir, &[(item::KALLSYMS, symbols.into_bytes())]);
    dir.write("names", file);
    let path = dir.file("names");
    let arguments = [&["sites", "--format", "json", option, path.to_str().unwrap()], more].concat();
    let ran = run_within(mib, "kmemtrace-report", &arguments, &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(json(&ran.stdout)["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    let allowed = Duration::from_secs(2) + Duration::from_secs(10) * (file.len() as u32).div_ceil(1 << 20);
    assert!(ran.processor < 4 * allowed, "{:?} of {allowed:?}", ran.processor);
    ran
}

fn map_of(text: &[u8]) -> Vec<u8> {
    [b"kmemtrace.names/1\n", &zstd::bulk::compress(text, 3).unwrap()[..]].concat()
}

/// A function that a map has in hundreds of thousands of files, for each call-site.
#[test]
fn maps_of_names_take_steps_and_memory_by_what_is_stored() {
    let mut random = Random::new(1);
    let names: String = (0..2000).map(|_| format!("{:08x}\n", random.bits() as u32)).collect();
    let small = map_of(&[names.as_bytes(), &b"/f\nall\n".repeat(700_000)].concat());
    assert!(small.len() < 16 << 10, "{}", small.len());
    let ran = named(256, "--names", &[], &small);
    assert!(ran.stderr.contains("it takes more steps to read than any real file of its size"), "{}", ran.stderr);
    // Lines that are too many for the limit.
    let many: Vec<u8> = (0..1_200_000u32).flat_map(|n| format!("/{n}\nall\n").into_bytes()).collect();
    let ran = named(64, "--names", &[], &map_of(&many));
    assert!(ran.stderr.contains("its contents need more than the 64.0 MiB of --max-memory"), "{}", ran.stderr);
}

#[test]
fn lists_of_symbols_beyond_the_limit_are_left_out() {
    let symbols: String = (0..1_500_000u64).map(|n| format!("{:016x} t f{n:07}\n", STEXT + 16 * n)).collect();
    // The text does not fit, or what it is checked by.
    for mib in [40, 96] {
        let ran = named(mib, "--kallsyms", &[], symbols.as_bytes());
        let why = format!("not used for names: its contents need more than the {mib}.0 MiB of --max-memory");
        assert!(ran.stderr.contains(&why), "{}", ran.stderr);
    }
    // Views of single events and exports tell it as well: of the list, or of its table.
    let dir = trace(1, 100);
    dir.write("names", symbols.as_bytes());
    let names = dir.file("names");
    let events = ["events", "--format", "table"];
    let views = [
        ("40M", &events[..]),
        ("96M", &events),
        ("40M", &["stalls"]),
        ("40M", &["stalls", "--follow"]),
        ("40M", &["export", "--to", "folded"]),
    ];
    for (limit, view) in views {
        let arguments = [view, &["--max-memory", limit, "--kallsyms", names.to_str().unwrap()]].concat();
        let ran = run("kmemtrace-report", &arguments, &[dir.path()]);
        assert_eq!(ran.status, Some(0), "{view:?}: {}", ran.stderr);
        assert_eq!(
            ran.stderr.matches("names: not used for names: its contents").count(),
            1,
            "{view:?}: {}",
            ran.stderr
        );
    }
    let module = format!("m {} 0 - Live {:#x}\n", 1 << 20, STEXT + (1 << 31));
    let ran = named(64, "--proc-modules", &[], module.repeat(2_000_000).as_bytes());
    assert!(ran.stderr.contains("not used for names: its contents need more than the 64.0 MiB"), "{}", ran.stderr);
}

/// Thousands of areas, none of which takes any of thousands of files.
#[test]
fn areas_take_steps_by_what_is_stored() {
    const SITES: u64 = 3000;
    let dir = trace_of_sites(SITES);
    let symbols: String = (1..=SITES).map(|n| format!("{:x} t f{n}\n", STEXT + 16 * n - 8)).collect();
    let symbols = format!("{STEXT:x} T _stext\n{symbols}ffffffffffffff00 T end\n");
    set_meta(&dir, &[(item::KALLSYMS, symbols.into_bytes())]);
    let names: String = (1..=SITES).map(|n| format!("/{}b{n}.c\nf{n}\n", "aaaa/".repeat(20))).collect();
    dir.write("map", &map_of(names.as_bytes()));
    let areas = b"a\t*a*a*a*a*a*b\n".repeat(20_000);
    dir.write("areas", &areas);
    let [map, list] = ["map", "areas"].map(|name| dir.file(name).display().to_string());
    let arguments = ["sites", "--by", "area", "--format", "json", "--names", &map, "--areas", &list];
    let ran = run_within(256, "kmemtrace-report", &arguments, &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(json(&ran.stdout)["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
}

/// A module's debug file with hundreds of thousands of sections of one name.
#[test]
fn sections_of_a_modules_debug_file_take_linear_time() {
    let dir = trace(1, 8000);
    let release = "6.18.1";
    let some = || vec![0; 16];
    let mut sections = vec![(".note.gnu.build-id", 7, note(), 0)];
    sections.extend([".debug_info", ".debug_line", ".debug_abbrev"].map(|name| (name, 1, some(), 0)));
    sections.extend((0..200_000).map(|_| (".text", 1, Vec::new(), 0)));
    let symbols = format!("{STEXT:x} t all\t[toy]\nffffffffffffff00 t end\t[toy]\n");
    let id: String = BUILD_ID.iter().map(|byte| format!("{byte:02x}")).collect();
    let info = format!("toy {id} drivers/toy{}\n", format!(" .text={STEXT:#x}").repeat(10_000));
    set_meta(&dir, &[(item::KALLSYMS, symbols.into_bytes()), (item::MODULE_INFO, info.into_bytes())]);
    let mut module = elf(&sections);
    // A module is no program.
    module[16] = 1;
    dir.write(&format!("debug/lib/modules/{release}/kernel/drivers/toy.ko"), &module);
    let debug = dir.file("debug");
    let arguments = ["sites", "--format", "json", "--debug-dir", debug.to_str().unwrap()];
    let ran = run_within(128, "kmemtrace-report", &arguments, &[dir.path()]);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
}

/// Blocks of an xz file that begin with an empty dictionary, so that its decoder holds one of them at a time.
#[test]
fn an_xz_file_that_unpacks_to_a_thousand_times_its_size_is_refused() {
    let dir = Directory::new(&[]);
    dir.write("zeros", &[]);
    File::options().write(true).open(dir.file("zeros")).unwrap().set_len(160 << 20).unwrap();
    let packed = Command::new("xz").args(["-0", "-c", "--block-size=16MiB"]).arg(dir.file("zeros")).output().unwrap();
    assert!(packed.status.success());
    dir.write("zeros.xz", &packed.stdout);
    let most = Duration::from_secs(2) + Duration::from_secs(10) * (packed.stdout.len() as u32).div_ceil(1 << 20);
    for (name, arguments) in [("kmemtrace-report", &["summary"][..]), ("kmemtrace-check", &[])] {
        let ran = run_within(64, name, arguments, &[&dir.file("zeros.xz")]);
        assert_eq!(ran.status, Some(3), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("unpacks to far more than any trace does"), "{name}: {}", ran.stderr);
        assert!(ran.processor < 4 * most, "{name}: {:?}", ran.processor);
    }
}

/// A trace that is followed is looked through to its hole, and a signal ends the report.
#[test]
fn a_signal_ends_the_following_of_a_file_with_a_hole() {
    let dir = trace(1, 20_000);
    let bytes = fs::read(dir.file("cpu0.out")).unwrap();
    let (_, first) = first_block(&bytes);
    let file = File::options().write(true).open(dir.file("cpu0.out")).unwrap();
    file.set_len(first.len() as u64).unwrap();
    file.set_len(4 << 40).unwrap();
    // A recorder that still writes holds this lock.
    let held = File::open(dir.path()).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    let mut command = Command::new(program("kmemtrace-report"));
    command.args(["stalls", "--follow"]).arg(dir.path()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The file is open for a moment only, and then looked at now and then.
    until("the signal is taken", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
        caught.is_some_and(|caught| caught >> (Signal::INT.as_raw() - 1) & 1 == 1)
    });
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    until("the report has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Has both readers read a file within 64 MiB, and within four times the time that its size explains.
fn both_within(file: &Path, view: &str) -> [Ran; 2] {
    let stored = fs::metadata(file).map_or(0, |data| if data.is_dir() { 0 } else { data.blocks() * 512 });
    let allowed = Duration::from_secs(2) + Duration::from_secs(10) * (stored as u32).div_ceil(1 << 20);
    [("kmemtrace-report", &[view][..]), ("kmemtrace-check", &[])].map(|(name, arguments)| {
        let ran = run_within(64, name, arguments, &[file]);
        assert!(ran.status.is_some_and(|status| status <= 3), "{name}: {:?} {}", ran.status, ran.stderr);
        assert!(ran.processor < 4 * allowed, "{name} {file:?}: {:?} of {allowed:?}", ran.processor);
        ran
    })
}

/// Sub-buffers full of records that are too short for an event, in blocks of 16 MiB.
#[test]
fn records_without_a_body_cost_what_is_stored() {
    let dir = trace(1, 3000);
    let (header, first) = first_block(&fs::read(dir.file("cpu0.out")).unwrap());
    // Records of four bytes of an event that the trace does not describe.
    let entries = [1u32, 1999].map(u32::to_le_bytes).concat().repeat(510);
    let sub_buffer = [&1000u64.to_le_bytes()[..], &(entries.len() as u64).to_le_bytes(), &entries].concat();
    let payload = sub_buffer.repeat(WHOLE / sub_buffer.len());
    let mut file = first;
    for sequence in 1..=30 {
        let (recording, cpu) = (header.recording, 0);
        let info = BlockInfo { kind: kind::DATA, cpu, recording, sequence, ..BlockInfo::default() };
        file.extend(packed(info, &payload));
    }
    assert!(file.len() < 256 << 10, "{}", file.len());
    dir.write("cpu0.out", &file);
    let [_, check] = both_within(dir.path(), "summary");
    assert_eq!(check.status, Some(3), "{}", check.stderr);
    assert!(text(&check.stdout).contains("more events than its size explains"), "{}", text(&check.stdout));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// Texts whose lines are millions of short ones in some kilobytes, or have nothing that counts.
#[test]
fn packed_texts_cost_what_is_stored() {
    let text = fs::read(data("texts/page_owner_minimal.txt")).unwrap();
    let dir = Directory::new(&[]);
    let empty = [b"\n".repeat(2 << 20), text.clone()].concat();
    let short = [b"x\n".repeat(1 << 20), text.clone()].concat();
    for (bytes, status) in [(empty, 0), (short, 0), ([b"x\n".repeat(7 << 20), text].concat(), 3)] {
        dir.write("text.gz", &gzip(&bytes));
        for ran in both_within(&dir.file("text.gz"), "summary") {
            assert_eq!(ran.status, Some(status), "{}", ran.stderr);
            assert_eq!(status == 3, ran.stderr.contains("unpacks to far more than any trace does"), "{}", ran.stderr);
        }
    }
}

#[test]
fn holes_of_texts_are_passed_over() {
    let dir = Directory::new(&[]);
    let owners = fs::read(data("texts/page_owner_minimal.txt")).unwrap();
    let record = "            cat-7     [000] .....  1.000001: kmalloc: call_site=f+0x1/0x2 ptr=00000000c0ffee00 bytes_req=64 \
                  bytes_alloc=64 gfp_flags=GFP_KERNEL\n";
    let events = format!("# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/3   #P:1\n#\n{}", record.repeat(3));
    for (name, text) in [("page_owner.txt", &owners[..]), ("trace.txt", events.as_bytes())] {
        let middle = text.len() - text.len() / 3;
        let at = text[..middle].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        for end in [at, text.len()] {
            dir.write(name, &text[..end]);
            with_hole(&dir.file(name), at as u64, 4 << 40);
            for ran in both_within(&dir.file(name), "summary") {
                assert!(ran.status.is_some_and(|status| status != 2), "{name}: {}", ran.stderr);
            }
        }
    }
}

/// Texts that keep something of each line.
#[test]
fn texts_end_in_the_sentence_of_the_limit() {
    let lines = |bytes: usize, line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        let mut number = 0;
        while text.len() < bytes {
            text += &line(number);
            number += 1;
        }
        text
    };
    let task = |n| format!("[  100.0] [{n:7}]     0 {n:5}     1000      {n}    40960        0             0 task{n}\n");
    let oom = "[  100.0] stress invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0\n\
               [  100.0] Mem-Info:\n[  100.0] active_anon:1 inactive_anon:2 isolated_anon:0\n free:1 free_pcp:2 free_cma:0\n\
               [  100.0] Tasks state (memory values in pages):\n\
               [  100.0] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n";
    let reports = lines(8 << 20, &|n| format!("{oom}{}", (0..n % 90).map(task).collect::<String>()));
    let sites = lines(16 << 20, &|n| {
        format!("   1 f{n}+0x1c/0x40 waste=128/128 age=1/2/3 pid={n} cpus=0 nodes=0\n        g{n}+0x1c/0x40\n\n")
    });
    let stacks = lines(12 << 20, &|n| {
        let frames: String = (0..30).map(|frame| format!(" g{n}_{frame}+0x1c/0x40\n")).collect();
        format!(
            "Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid {n}, tgid 1 (a), ts {n} ns\n\
             PFN {n} type Unmovable Block 1 type Unmovable Flags 0x1(locked)\n{frames}\n"
        )
    });
    let events = lines(24 << 20, &|n| {
        format!(
            "            cat-{n}   [000] .....  1.{n:06}: kmalloc: call_site=f{n}+0x1/0x2 ptr=00000000{n:08x} bytes_req=64 \
             bytes_alloc=64 gfp_flags=GFP_KERNEL\n"
        )
    });
    let dir = Directory::new(&[]);
    for (name, text) in
        [("oom.gz", reports), ("alloc_traces.gz", sites), ("page_owner.gz", stacks), ("trace.gz", events)]
    {
        dir.write(name, &gzip(text.as_bytes()));
        for ran in both_within(&dir.file(name), "summary") {
            assert!(matches!(ran.status, Some(0 | 2)), "{name}: {:?} {}", ran.status, ran.stderr);
        }
    }
}

/// A `perf.data` that is complete, and others with its records in compressed ones.
#[test]
fn compressed_records_of_perf_cost_what_is_stored() {
    let sample = fs::read(data("other-programs/amd64-6.1.perf.data.zst")).unwrap();
    let whole = zstd::decode_all(&sample[..]).unwrap();
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let (at, len) = (number(40), number(48));
    let records = |data: &[u8]| {
        let packed = zstd::bulk::compress(data, 3).unwrap();
        let record =
            |piece: &[u8]| [&81u32.to_le_bytes()[..], &[0; 2], &(8 + piece.len() as u16).to_le_bytes(), piece].concat();
        packed.chunks(65_000).flat_map(record).collect::<Vec<u8>>()
    };
    let file = |data: &[u8]| {
        let mut file = [&whole[..at], data, &whole[at + len..]].concat();
        file[48..56].copy_from_slice(&(data.len() as u64).to_le_bytes());
        let features = u64::from_le_bytes(whole[72..80].try_into().unwrap()).count_ones() as usize;
        for entry in (at + data.len()..).step_by(16).take(features) {
            let place = u64::from_le_bytes(file[entry..entry + 8].try_into().unwrap());
            file[entry..entry + 8].copy_from_slice(&(place + data.len() as u64 - len as u64).to_le_bytes());
        }
        file
    };
    let record = |kind: u32, body: &[u8]| {
        [&kind.to_le_bytes()[..], &[0; 2], &(8 + body.len() as u16).to_le_bytes(), body].concat()
    };
    // Fields at the end of a record: thread, time, CPU, id.
    let end = |n: u64| [n << 32 | 1, 1000 + n, n % 4, 1].map(u64::to_le_bytes).concat();
    let lost = |n: u64| record(2, &[&[0; 8][..], &1u64.to_le_bytes(), &end(n)].concat());
    let comm =
        |n: u64| record(3, &[&(n << 32 | n).to_le_bytes()[..], format!("task{n:012}").as_bytes(), &end(n)].concat());
    let dir = Directory::new(&[]);
    let cases: [(&str, Vec<u8>, &[i32]); 6] = [
        ("same", whole[at..at + len].to_vec(), &[0]),
        ("unknown", record(250, &[]).repeat(1 << 20), &[0]),
        ("far too many", record(250, &[]).repeat(8 << 20), &[3]),
        ("lost", (0..300_000).flat_map(lost).collect(), &[1, 2]),
        ("names", (0..500_000).flat_map(comm).collect(), &[0, 2]),
        ("inside", records(&whole[at..at + len]), &[3]),
    ];
    for (what, data, statuses) in cases {
        dir.write("perf.data", &file(&records(&data)));
        let [report, check] = both_within(&dir.file("perf.data"), "summary");
        assert!(
            check.status.is_some_and(|status| statuses.contains(&status)),
            "{what}: {:?} {}",
            check.status,
            check.stderr
        );
        assert!(matches!(report.status, Some(0 | 2)), "{what}: {:?} {}", report.status, report.stderr);
    }
}

/// One section of a `trace.dat` that hundreds of options name, and one that expands to more than memory has.
#[test]
fn sections_of_a_trace_dat_cost_what_is_stored() {
    let tree = crate::other_programs::Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    let whole = tree.version_7("zstd");
    let place = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let first = whole.windows(5).position(|bytes| bytes == b"zstd\0").unwrap() + 6;
    let with_symbols = |bytes: usize, times: usize| {
        let text: String =
            (0..bytes as u64 / 24).map(|n| format!("{:x} t f{n:05}\n", 0xffff_ffff_8100_0000 + n)).collect();
        let body = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let packed = zstd::bulk::compress(&body, 3).unwrap();
        let section = |id: u16, flags: u16, body: &[u8]| {
            [&id.to_le_bytes()[..], &flags.to_le_bytes(), &[0; 4], &(body.len() as u64).to_le_bytes(), body].concat()
        };
        let option = |id: u16, data: &[u8]| [&id.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat();
        let mut file = whole.clone();
        let at = file.len() as u64;
        let lengths = [packed.len() as u32, body.len() as u32].map(u32::to_le_bytes).concat();
        file.extend(section(19, 1, &[lengths, packed].concat()));
        let options =
            [option(19, &at.to_le_bytes()).repeat(times), option(0, &(place(&whole[first..]) as u64).to_le_bytes())];
        let begin = file.len() as u64;
        file.extend(section(0, 0, &options.concat()));
        file[first..first + 8].copy_from_slice(&begin.to_le_bytes());
        file
    };
    for (bytes, times, status) in [(1 << 20, 1, 0), (1 << 20, 10_000, 3), (40 << 20, 1, 2)] {
        dir.write("trace.dat", &with_symbols(bytes, times));
        for ran in both_within(&dir.file("trace.dat"), "summary") {
            assert_eq!(ran.status, Some(status), "{bytes} bytes, {times} times: {}", ran.stderr);
        }
    }
}
