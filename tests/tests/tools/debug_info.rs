//! Frames of Debian's kernels, by the debug information of their packages, are those that binutils tells.
//!
//! Packages that the cache has are used. `KMEMTRACE_RUNS=all` fetches that of amd64 (283 MB), and `KMEMTRACE_DEBUG_INFO=all` all of
//! them (3 GB).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kmemtrace_tests::generate::{Random, Shape, tree};
use kmemtrace_tests::guest;
use kmemtrace_tests::programs::{json, run, run_to, stderr};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use kmemtrace_tests::scenario::Scenario;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionIndex};
use serde_json::Value;

kmemtrace_tests::tests![
    frames_of_amd64_are_those_of_binutils => || frames_are_those_of_binutils("amd64", 3000),
    frames_of_s390x_are_those_of_binutils => || frames_are_those_of_binutils("s390x", 1000),
    frames_of_i386_are_those_of_binutils => || frames_are_those_of_binutils("i386", 1000),
    frames_of_ppc64el_are_those_of_binutils => || frames_are_those_of_binutils("ppc64el", 1000),
    frames_of_arm64_are_those_of_binutils => || frames_are_those_of_binutils("arm64", 1000),
    another_revision_gives_no_names,
];

/// Distance that KASLR puts between file and memory.
const SHIFT: u64 = 0x120_0000;

/// Folder with debug information as `tests/vm/debug-info` gives it.
fn folder(arch: &str, revision: &[&str]) -> Result<PathBuf, Skip> {
    let fetches = (runs::is_all() && arch == "amd64" && revision.is_empty())
        || std::env::var("KMEMTRACE_DEBUG_INFO").is_ok_and(|all| all == "all");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/debug-info");
    let options: &[&str] = if fetches { &[] } else { &["-c"] };
    let output = Command::new(script).args(options).args(revision).arg(arch).output().unwrap();
    let last = |text: &[u8]| String::from_utf8_lossy(text).lines().last().unwrap_or_default().to_owned();
    match output.status.code() {
        Some(0) => Ok(last(&output.stdout).into()),
        Some(77) => Err(Skip(last(&output.stderr))),
        _ => panic!("{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Files below a folder whose names end so.
fn files(folder: &Path, is: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path, is));
        } else if is(path.file_name().unwrap().to_str().unwrap()) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Function of an ELF file.
#[derive(Clone, Debug)]
struct Function {
    name: String,
    /// Address; in a module the offset in its section.
    at: u64,
    size: u64,
    section: SectionIndex,
}

/// Functions and executable sections of a file.
struct Code {
    functions: Vec<Function>,
    sections: BTreeMap<usize, String>,
}

fn code(path: &Path) -> Code {
    let cache = object::ReadCache::new(fs::File::open(path).unwrap());
    let file = object::File::parse(&cache).unwrap();
    let is_code = |flags| matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.0 & 6 == 6);
    let sections: BTreeMap<usize, String> = file
        .sections()
        .filter(|section| is_code(section.flags()))
        .map(|section| (section.index().0, section.name().unwrap().to_owned()))
        .collect();
    let functions = file
        .symbols()
        .filter_map(|symbol| {
            let section = symbol.section_index().filter(|index| sections.contains_key(&index.0))?;
            let name = symbol.name().ok().filter(|name| !name.is_empty() && !name.starts_with(['$', '.']))?;
            let is_function = matches!(
                symbol.kind(),
                object::SymbolKind::Text | object::SymbolKind::Label | object::SymbolKind::Unknown
            );
            is_function.then(|| Function { name: name.to_owned(), at: symbol.address(), size: symbol.size(), section })
        })
        .collect();
    Code { functions, sections }
}

/// A file, one of its sections, and addresses in it: for a module offsets in that section.
struct Asked {
    file: PathBuf,
    section: Option<String>,
    /// Addresses of the file, with those of the trace.
    addresses: Vec<(u64, u64)>,
    /// Addresses of the file's functions by name.
    places: HashMap<String, u64>,
}

impl Asked {
    /// Lines without files. Code of assembler has no function but symbols: one address may have several, and any of them will do.
    fn lines(&self, frames: &[Frame]) -> Vec<(Option<u64>, String, String)> {
        let line = |(at, (function, _, line)): (usize, &Frame)| {
            let place = self.places.get(function).copied().filter(|_| at + 1 == frames.len());
            (place, if place.is_some() { String::new() } else { function.clone() }, line.clone())
        };
        frames.iter().enumerate().map(line).collect()
    }
}

/// Addresses of functions whose names stand once.
fn places<'a>(functions: impl Iterator<Item = &'a Function>) -> HashMap<String, u64> {
    let mut places: HashMap<String, Option<u64>> = HashMap::new();
    for function in functions {
        places.entry(function.name.clone()).and_modify(|place| *place = None).or_insert(Some(function.at));
    }
    places.into_iter().filter_map(|(name, place)| Some((name, place?))).collect()
}

/// Addresses at random places of `count` functions. The first 8 bytes have no calls: on arm64 they belong to no function of DWARF.
/// Functions made by headers of tracepoints are left out: see `compare`.
fn addresses(functions: &[&Function], count: usize, random: &mut Random) -> Vec<u64> {
    let of_code: Vec<&&Function> =
        functions.iter().filter(|function| function.size > 8 && !function.name.starts_with("__traceiter_")).collect();
    let picked: HashSet<u64> = (0..count)
        .filter(|_| !of_code.is_empty())
        .map(|_| {
            let function = random.pick(&of_code);
            function.at + 8 + random.below(function.size - 8)
        })
        .collect();
    picked.into_iter().collect()
}

/// Recording of a machine with this kernel and these modules, and allocations at places of them.
fn recording(release: &str, kallsyms: &str, modules: &str, sites: impl Iterator<Item = u64>) -> Directory {
    let mut scenario = Scenario::new(Shape::plain(), 1);
    for (number, site) in (1u64..).zip(sites) {
        scenario = scenario.kmalloc(1000 + number, 0, site, 0xffff_8880_0000_0000 + number * 64, (64, 64));
    }
    let mut files = tree(&scenario.finish(), 1);
    files.retain(|(name, _)| name != "uname");
    files.push(("uname".to_owned(), format!("Linux box {release} #1 SMP x86_64 GNU/Linux\n").into_bytes()));
    files.push(("kallsyms".to_owned(), kallsyms.as_bytes().to_vec()));
    files.push(("modules".to_owned(), modules.as_bytes().to_vec()));
    Directory::new(&files)
}

/// Frame: function, file, line.
type Frame = (String, String, String);

/// A path relative to the sources, without `.` and `..`.
fn relative(path: &str) -> String {
    let after_build =
        path.find("debian/build/build_").and_then(|at| path[at + 13..].split_once('/')).map(|(_, rest)| rest);
    let after_root =
        || path.strip_prefix("/build/reproducible-path/").and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
    let mut parts: Vec<&str> = Vec::new();
    for part in after_build.or_else(after_root).unwrap_or(path).split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Frames by address, as a symbolizer tells them on lines `0xADDRESS`, function, place, function, place and so on.
fn frames(text: &str) -> HashMap<u64, Vec<Frame>> {
    let mut all: HashMap<u64, Vec<Frame>> = HashMap::new();
    let (mut address, mut function) = (0, None);
    for line in text.lines() {
        if let Some(digits) = line.strip_prefix("0x") {
            address = u64::from_str_radix(digits, 16).unwrap();
            all.insert(address, Vec::new());
            function = None;
        } else if let Some(function) = function.take() {
            let place = line.split(" (discriminator").next().unwrap();
            let (file, number) = place.rsplit_once(':').unwrap_or((place, "?"));
            let number = if number == "0" { "?" } else { number };
            all.get_mut(&address).unwrap().push((function, relative(file), number.to_owned()));
        } else if !line.is_empty() {
            function = Some(line.to_owned());
        }
    }
    all
}

/// Frames that a symbolizer tells of addresses.
fn ask(mut command: Command, addresses: impl Iterator<Item = u64>) -> Option<HashMap<u64, Vec<Frame>>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut input = child.stdin.take().unwrap();
    let text: String = addresses.map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    Some(frames(&String::from_utf8_lossy(&output.stdout)))
}

/// binutils that read files of every architecture.
fn binutils(package: &Path, asked: &Asked) -> HashMap<u64, Vec<Frame>> {
    let usr = package.join("usr");
    let library = files(&usr.join("lib"), &|name| name.starts_with("libbfd-")).remove(0);
    let program = files(&usr.join("bin"), &|name| name.ends_with("addr2line")).remove(0);
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library.parent().unwrap()).args(["-a", "-i", "-f", "-e"]).arg(&asked.file);
    if let Some(section) = &asked.section {
        command.args(["-j", section]);
    }
    ask(command, asked.addresses.iter().map(|&(own, _)| own)).unwrap()
}

/// Frames of a row.
fn frames_of_row(row: &Value) -> Vec<Frame> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let line = |value: &Value| value.as_u64().map_or("?".to_owned(), |line| line.to_string());
    let frame = |frame: &Value| (text(&frame["function"]), text(&frame["file"]), line(&frame["line"]));
    row["frames"].as_array().into_iter().flatten().map(frame).collect()
}

fn rows(document: &Value) -> HashMap<u64, Vec<Frame>> {
    let address = |row: &Value| u64::from_str_radix(row["call_site"].as_str()?.strip_prefix("0x")?, 16).ok();
    let rows = document["rows"].as_array().unwrap();
    rows.iter().filter_map(|row| Some((address(row)?, frames_of_row(row)))).collect()
}

fn frames_are_those_of_binutils(arch: &str, count: usize) -> Result<(), Skip> {
    let folder = folder(arch, &[])?;
    let package = guest::package("binutils-multiarch")?;
    let vmlinux = files(&folder.join("boot"), &|name| name.starts_with("vmlinux-")).remove(0);
    let release = vmlinux.file_name().unwrap().to_str().unwrap().strip_prefix("vmlinux-").unwrap().to_owned();
    let mut random = Random::new(7);
    let (mut kallsyms, mut loaded) = (String::new(), String::new());
    let kernel = code(&vmlinux);
    for function in &kernel.functions {
        kallsyms += &format!("{:016x} t {}\n", function.at + SHIFT, function.name);
    }
    let picked = addresses(&kernel.functions.iter().collect::<Vec<_>>(), count, &mut random);
    let mut asked = vec![Asked {
        file: vmlinux,
        section: None,
        addresses: picked.into_iter().map(|own| (own, own + SHIFT)).collect(),
        places: places(kernel.functions.iter()),
    }];
    let modules = files(&folder.join("lib"), &|name| name.ends_with(".ko"));
    let module_count = modules.len();
    assert!(module_count >= 3, "{modules:?}");
    // Each section of each module somewhere else, and in another order than in the file.
    let highest = kernel.functions.iter().map(|function| function.at + SHIFT).max().unwrap();
    let mut free = (highest + (64 << 20)) & !0xffff;
    for file in modules {
        let name = file.file_stem().unwrap().to_str().unwrap().replace('-', "_");
        let code = code(&file);
        for (index, section) in code.sections.iter().rev() {
            free += 16 << 20;
            loaded += &format!("{name} {} 0 - Live {free:#x}\n", 8 << 20);
            let functions: Vec<&Function> =
                code.functions.iter().filter(|function| function.section.0 == *index).collect();
            for function in &functions {
                kallsyms += &format!("{:016x} t {}\t[{name}]\n", free + function.at, function.name);
            }
            let picked = addresses(&functions, count / 10, &mut random);
            let addresses = picked.into_iter().map(|own| (own, own + free)).collect();
            let places = places(functions.into_iter());
            asked.push(Asked { file: file.clone(), section: Some(section.clone()), addresses, places });
        }
    }
    let sites = asked.iter().flat_map(|asked| asked.addresses.iter().map(|&(_, address)| address + 1));
    let trace = recording(&release, &kallsyms, &loaded, sites);
    let options = ["sites", "--format", "json", "-n", "100000", "--debug-dir", folder.to_str().unwrap()];
    let document = json(&run_to(0, "kmemtrace-report", &options, &[trace.path()]));
    let names = &document["names"];
    assert_eq!(
        (&names["kernel"]["from"], &names["kernel"]["checked"]),
        (&"dwarf".into(), &"symbols".into()),
        "{names}"
    );
    assert_eq!(
        (&names["modules"]["dwarf"], &names["rejected"]),
        (&module_count.into(), &Value::Array(Vec::new())),
        "{names}"
    );
    let rows = rows(&document);
    let mut compared = 0;
    for asked in &asked {
        compared += compare(asked, &rows, &binutils(&package, asked));
    }
    assert!(compared * 10 > count * 9, "{compared} of {count} addresses have lines");
    Ok(())
}

/// Compares the frames of a file; returns the number of addresses that have any.
///
/// binutils 2.40 take the file of a unit for that of a function that is a header's (line 180 of `udp.h` is told as of `udplite.c`):
/// where only files differ, LLVM decides.
fn compare(asked: &Asked, rows: &HashMap<u64, Vec<Frame>>, theirs: &HashMap<u64, Vec<Frame>>) -> usize {
    let (mut compared, mut doubtful) = (0, Vec::new());
    for (own, address) in &asked.addresses {
        let (ours, theirs) = (&rows[&(address + 1)], &theirs[own]);
        // Code that no unit tells of has symbols only.
        if theirs.last().is_none_or(|(_, file, line)| file == "??" || line == "?") {
            continue;
        }
        compared += 1;
        if ours == theirs {
            continue;
        }
        assert_eq!(asked.lines(ours), asked.lines(theirs), "{} {own:#x}: {ours:?} {theirs:?}", asked.file.display());
        let files = |frames: &[Frame]| -> Vec<String> { frames.iter().map(|(_, file, _)| file.clone()).collect() };
        if files(ours) != files(theirs) {
            let differ = ours.iter().zip(theirs).find(|(ours, theirs)| ours.1 != theirs.1);
            assert!(differ.is_some_and(|(_, theirs)| theirs.1.ends_with(".c")), "{ours:?} {theirs:?}");
            doubtful.push(*own);
        }
    }
    assert!(doubtful.len() * 8 <= compared, "{}: {} of {compared}", asked.file.display(), doubtful.len());
    let mut llvm = Command::new("llvm-symbolizer");
    llvm.args(["--output-style=GNU", "-a", "-i", "-f", "-e"]).arg(&asked.file);
    if doubtful.is_empty() || asked.section.is_some() {
        return compared;
    }
    let Some(third) = ask(llvm, doubtful.iter().copied()) else { return compared };
    for (own, address) in asked.addresses.iter().filter(|(own, _)| doubtful.contains(own)) {
        let places = |frames: &[Frame]| -> Vec<(String, String)> {
            frames.iter().map(|(_, file, line)| (file.clone(), line.clone())).collect()
        };
        assert_eq!(places(&rows[&(address + 1)]), places(&third[own]), "{} {own:#x}", asked.file.display());
    }
    compared
}

fn another_revision_gives_no_names() -> Result<(), Skip> {
    let (own, other) = (folder("amd64", &[])?, folder("amd64", &["-o"])?);
    let find = |folder: &Path| files(&folder.join("boot"), &|name| name.starts_with("vmlinux-")).remove(0);
    let kernel = code(&find(&own));
    let kallsyms: String =
        kernel.functions.iter().map(|function| format!("{:016x} t {}\n", function.at, function.name)).collect();
    let vmlinux = find(&other);
    let release = vmlinux.file_name().unwrap().to_str().unwrap().strip_prefix("vmlinux-").unwrap();
    let picked = addresses(&kernel.functions.iter().collect::<Vec<_>>(), 500, &mut Random::new(3));
    let trace = recording(release, &kallsyms, "", picked.into_iter());
    let report = |options: &[&str]| {
        json(&run_to(0, "kmemtrace-report", &[&["sites", "--format", "json"], options].concat(), &[trace.path()]))
    };
    let without = report(&[]);
    let mut with = report(&["--debug-dir", other.to_str().unwrap()]);
    let rejected = with["names"]["rejected"].take();
    assert_eq!(rejected.as_array().unwrap().len(), 1, "{rejected}");
    assert!(rejected[0]["why"].as_str().unwrap().contains("another build"), "{rejected}");
    with["names"]["rejected"] = without["names"]["rejected"].clone();
    assert_eq!(with, without);
    let named = run("kmemtrace-report", &["sites", "--vmlinux", vmlinux.to_str().unwrap()], &[trace.path()]);
    stderr(2, &named);
    assert!(String::from_utf8_lossy(&named.stderr).contains("another build"));
    Ok(())
}
