//! Files of every kind that the readers take, made and changed from a seed, and the command lines that read them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fuzz::recordings::{Files, bases};
use crate::fuzz::target::choice;
use crate::fuzz::{Target, corpus, documents, files, names, pages, recordings, texts};
use crate::generate::Random;
use crate::programs::program;
use crate::recording::Directory;

/// Views that take turns.
const VIEWS: &[&[&str]] = &[
    &["summary"],
    &["sites", "--format", "json"],
    &["live", "--format", "csv"],
    &["tree"],
    &["caches", "--format", "json"],
    &["events", "-n", "50"],
    &["tasks"],
    &["stalls"],
    &["leaks"],
    &["balance"],
    &["growth"],
    &["modules", "--format", "json"],
];

/// Use of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The directory is the input, of both programs.
    Directory,
    /// The file of this name is the input, of both programs.
    File(&'static str),
    /// The file of this name is the input of the report alone.
    OfReport(&'static str),
    /// The directory is the input of the report, with these options; a word that ends with `=` is followed by a path in the directory.
    Option(&'static [&'static str]),
    /// The file of this name is standard input, with these words.
    Piped(&'static str, &'static [&'static str]),
}

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub struct FileInput {
    pub name: &'static str,
    /// Inputs to begin with, and how they are changed.
    target: Target,
    /// Files of an input.
    files: fn(&[u8]) -> Files,
    used: Use,
}

const fn input(name: &'static str, target: Target, files: fn(&[u8]) -> Files, used: Use) -> FileInput {
    FileInput { name, target, files, used }
}

fn one(name: &str, bytes: &[u8]) -> Files {
    vec![(name.to_owned(), bytes.to_vec())]
}

/// A recording and this file beside its own.
fn beside(name: &str, bytes: &[u8]) -> Files {
    [bases()[0].clone(), one(name, bytes)].concat()
}

/// A recording of the kernel of the samples with debug information, and a file beside its own.
fn beside_sample(name: &str, bytes: &[u8]) -> Files {
    let meta = bases()[0].iter().find(|(name, _)| name == "meta.out").map_or(&[][..], |(_, meta)| meta);
    let meta = recordings::with_items(meta, &names::items_of_sample());
    let others = bases()[0].iter().filter(|(name, _)| name != "meta.out").cloned();
    others.chain(one("meta.out", &meta)).chain(one(name, bytes)).collect()
}

/// All kinds of files.
pub const INPUTS: &[FileInput] = &[
    input("cpu-file", recordings::BLOCKS, recordings::with_cpu_file, Use::Directory),
    input("file-header", recordings::FILE_HEADER, recordings::with_header, Use::Directory),
    input("meta", recordings::META, recordings::with_meta, Use::Directory),
    input("stream", recordings::STREAM, |input| one("stream", choice(input).1), {
        Use::Piped("stream", &["stalls", "--follow", "-"])
    }),
    input("index", documents::INDEX, |input| beside("report.index", input), Use::Option(&["--index-from", "0"])),
    input("tree", pages::FORMAT, pages::with_format, Use::Directory),
    input("relay", pages::RELAY, |input| one("cpu0", input), Use::Directory),
    input("page-owner", texts::PAGE_OWNER, |input| one("page_owner", choice(input).1), Use::File("page_owner")),
    input("moment", texts::MOMENT, |input| one("text", choice(input).1), Use::File("text")),
    input("ftrace-text", texts::FTRACE_TEXT, |input| one("trace.txt", choice(input).1), Use::File("trace.txt")),
    input("trace-dat", files::TRACE_DAT, |input| one("trace.dat", input), Use::File("trace.dat")),
    input("perf-data", files::PERF_DATA, |input| one("perf.data", input), Use::File("perf.data")),
    input("tracer-stream", files::TRACER_STREAM, |input| one("kmem.trace", input), Use::File("kmem.trace")),
    input("packed", files::PACKED, |input| one("packed", &files::packed_file(input)), Use::File("packed")),
    input("saved", documents::SAVED, |input| one("saved.json", input), Use::OfReport("saved.json")),
    input(
        "kallsyms",
        names::KALLSYMS,
        with_symbols,
        Use::Option(&["--kallsyms=", "kallsyms", "--proc-modules=", "modules"]),
    ),
    input("vmlinux", names::VMLINUX, |input| beside_sample("vmlinux", input), Use::Option(&["--vmlinux=", "vmlinux"])),
    input("module", names::MODULE, with_module, Use::Option(&["--debug-dir=", "debug"])),
    input(
        "names-map",
        names::NAMES_MAP,
        |input| beside("map", &names::map_file(input)),
        Use::Option(&["--names=", "map"]),
    ),
    input("areas", names::LISTS, |input| beside("areas", choice(input).1), Use::Option(&["--areas=", "areas"])),
];

fn with_symbols(input: &[u8]) -> Files {
    let (symbols, modules) = names::symbols_and_modules(input);
    [beside("kallsyms", symbols), one("modules", modules)].concat()
}

fn with_module(input: &[u8]) -> Files {
    beside_sample("debug/usr/lib/modules/6.18.1/kernel/toy.ko", input)
}

/// A file of a seed, written, and the command lines that read it.
#[derive(Debug)]
pub struct Written {
    dir: Directory,
    /// Bytes that are stored.
    pub stored: u64,
    used: Use,
    view: &'static [&'static str],
}

impl FileInput {
    /// Writes the file of a seed. Most are changed; one in ten is as it was made.
    pub fn write(&self, seed: u64) -> Written {
        let mut random = Random::new(seed);
        let inputs = corpus::inputs(&self.target);
        let input = match random.chance(10) {
            true => random.pick(&inputs).clone(),
            false => corpus::changed(&self.target, &inputs, &mut random),
        };
        let files = (self.files)(&input);
        let stored = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        Written {
            dir: Directory::new(&files),
            stored,
            used: self.used,
            view: VIEWS[random.below(VIEWS.len() as u64) as usize],
        }
    }
}

impl Written {
    /// Command lines that read it, without `--max-memory`.
    pub fn commands(&self) -> Vec<Command> {
        let mut report = Command::new(program("kmemtrace-report"));
        report.stdin(Stdio::null());
        let mut commands = Vec::new();
        match self.used {
            Use::Directory => {
                report.args(self.view).arg(self.dir.path());
                commands.push(check(self.dir.path()));
            }
            Use::File(name) => {
                report.args(self.view).arg(self.dir.file(name));
                commands.push(check(&self.dir.file(name)));
            }
            Use::OfReport(name) => {
                report.args(self.view).arg(self.dir.file(name));
            }
            Use::Option(words) => {
                report.args(self.view).arg(self.dir.path()).args(self.options(words));
            }
            Use::Piped(name, words) => {
                report.args(words).stdin(File::open(self.dir.file(name)).unwrap());
            }
        }
        commands.push(report);
        commands
    }

    /// Words with paths in the directory.
    fn options(&self, words: &[&str]) -> Vec<PathBuf> {
        let mut out: Vec<PathBuf> = Vec::new();
        let mut is_path = false;
        for word in words {
            out.push(if is_path { self.dir.file(word) } else { word.trim_end_matches('=').into() });
            is_path = word.ends_with('=');
        }
        out
    }

    /// Keeps the files, to be looked at; returns where.
    pub fn keep(&self, name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        let status = Command::new("cp").arg("-r").arg(self.dir.path()).arg(&place).status();
        assert!(status.unwrap().success());
        place
    }
}

fn check(path: &Path) -> Command {
    let mut command = Command::new(program("kmemtrace-check"));
    command.stdin(Stdio::null()).arg(path);
    command
}
