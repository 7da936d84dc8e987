//! What a view reads by its command line, in one list: the sandbox lets it be opened, and no output replaces it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use kmemtrace_abi::open::regular;

use crate::args::Args;
use crate::cli::Request;
use crate::views::Run;

/// First bytes of files that are read wherever they are found in a folder: ELF, gzip, xz and zstd.
const MAGICS: [&[u8]; 4] = [b"\x7fELF", b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];
/// Bytes of the longest one.
const MAGIC_BYTES: u64 = 6;
/// Texts that are read by their names in a built tree.
const TEXTS_OF_TREES: [&str; 2] = ["modules.order", "Makefile"];
/// Texts that are read beside a directory of event formats.
const BESIDE_FORMATS: [&str; 2] = ["uname", "page_size"];

/// A file or folder that is read.
#[derive(Debug)]
pub(crate) enum Source {
    /// Trace, text or directory with a recording.
    Input(PathBuf),
    /// File that is read as it is.
    File(PathBuf),
    /// The user's settings, which are read before the sandbox closes.
    #[cfg(feature = "full")]
    Settings(PathBuf),
    /// Folder that an option names, with debug information in it.
    DebugFolder(PathBuf),
    /// Folder of the system with debug information.
    #[cfg(feature = "full")]
    SystemFolder(PathBuf),
    /// Folder of the modules of all kernels.
    #[cfg(feature = "full")]
    Modules(PathBuf),
    /// Built tree of a kernel, or folder of modules.
    Tree(PathBuf),
    /// Trace, or directory `events`, with formats of events.
    EventFormats(PathBuf),
}

/// All that a view reads.
pub(crate) fn of(request: &Request) -> Vec<Source> {
    let (args, inputs) = (&request.args, request.inputs().into_iter());
    let mut sources: Vec<Source> = match request.view.run {
        Run::Static | Run::Names => inputs.map(Source::of_kernel).collect(),
        Run::Pack => inputs.map(Source::Input).collect(),
        _ => inputs.map(Source::Input).chain(of_options(args)).collect(),
    };
    sources.extend(args.live.script.clone().map(Source::File));
    #[cfg(feature = "full")]
    sources.extend(crate::config::path().map(Source::Settings));
    sources
}

/// What options name, and the folders that are searched for names unasked.
fn of_options(args: &Args) -> Vec<Source> {
    let names = &args.names;
    // Of wrappers the word "none" is no file.
    let wrappers = names.wrappers.as_ref().filter(|word| word.as_os_str() != "none");
    let files = [&names.vmlinux, &names.map, &names.kallsyms, &names.proc_modules];
    let lists = [&names.skip_frames, &names.areas, &args.uses];
    let files = files.into_iter().chain(lists).flatten().chain(wrappers).cloned();
    let mut sources: Vec<Source> = files.map(Source::File).collect();
    sources.extend(names.debug_dir.iter().cloned().map(Source::DebugFolder));
    sources.extend(names.kernel.clone().map(Source::Tree));
    sources.extend(args.of_text.event_formats.clone().map(Source::EventFormats));
    #[cfg(feature = "full")]
    {
        sources.extend(kmemtrace::debug_folders().into_iter().map(Source::SystemFolder));
        sources.push(Source::Modules(kmemtrace::MODULES.into()));
    }
    sources
}

/// Refuses an output that would replace what the view reads.
///
/// # Errors
/// The output, with what it is.
pub(crate) fn refuse_replacing(output: &Path, sources: &[Source]) -> anyhow::Result<()> {
    if output == Path::new("-") || fs::metadata(output).is_err() {
        return Ok(());
    }
    match sources.iter().find(|source| source.has(output)) {
        None => Ok(()),
        Some(Source::Input(_)) => {
            bail!("{}: is a part of the input, which it would replace: name another file", output.display())
        }
        Some(_) => bail!("{}: is read by this view, and would be replaced: name another file", output.display()),
    }
}

impl Source {
    /// A built tree, a folder of modules, or a linked kernel.
    pub(crate) fn of_kernel(path: PathBuf) -> Source {
        if path.is_dir() { Source::Tree(path) } else { Source::File(path) }
    }

    /// True where a file that is there is read from this source.
    fn has(&self, file: &Path) -> bool {
        match self {
            Source::Input(path) => is_same(path, file) || is_part(path, file),
            Source::File(path) => is_same(path, file),
            #[cfg(feature = "full")]
            Source::Settings(path) => is_same(path, file),
            Source::EventFormats(path) => {
                let beside = BESIDE_FORMATS.iter().any(|text| is_same(&path.join("..").join(text), file));
                is_same(path, file) || is_below(path, file) || path.is_dir() && beside
            }
            Source::Tree(path) | Source::DebugFolder(path) => is_below(path, file) && may_be_read(file),
            #[cfg(feature = "full")]
            Source::SystemFolder(path) | Source::Modules(path) => is_below(path, file) && may_be_read(file),
        }
    }
}

/// True for two paths to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    id(one).is_some_and(|one| Some(one) == id(other))
}

/// True for a file beneath a folder, whatever links lead there.
fn is_below(folder: &Path, file: &Path) -> bool {
    matches!((folder.canonicalize(), file.canonicalize()), (Ok(folder), Ok(file)) if file.starts_with(&folder))
}

/// True for a file of a recording, or any file of a captured tree.
fn is_part(dir: &Path, file: &Path) -> bool {
    let is_read = |name: &str| {
        let cpu = name.strip_prefix("cpu").map(|cpu| cpu.strip_suffix(".out").unwrap_or(cpu));
        ["meta.out", "total_overruns"].contains(&name) || cpu.is_some_and(|cpu| cpu.parse::<u32>().is_ok())
    };
    let parts = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut parts = parts.filter(|part| part.file_name().to_str().is_some_and(is_read));
    parts.any(|part| is_same(&part.path(), file)) || dir.join("per_cpu").is_dir() && is_below(dir, file)
}

/// True for a file that is read where it is found in a folder of names: by its first bytes or by its name. An earlier output, which is
/// a text or a picture, is none.
fn may_be_read(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(".ko") || TEXTS_OF_TREES.contains(&&*name) {
        return true;
    }
    let mut head = Vec::new();
    let read = regular::open(file).and_then(|file| file.take(MAGIC_BYTES).read_to_end(&mut head));
    read.is_ok() && MAGICS.iter().any(|magic| head.starts_with(magic))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use kmemtrace_tests::recording::Directory;

    use super::*;

    #[test]
    fn every_source_keeps_its_files() {
        let dir = Directory::new(&[]);
        let at = |name: &str| dir.file(name);
        for (name, bytes) in [
            ("trace/meta.out", &b"meta"[..]),
            ("trace/cpu3", b""),
            ("trace/picture.svg", b"<svg>"),
            ("tree/mm/slab.o", b"\x7fELF"),
            ("tree/vmlinux.gz", b"\x1f\x8b\x08"),
            ("tree/modules.order", b"kernel/x.ko\n"),
            ("tree/page.html", b"<html>"),
            ("formats/events/kmem/format", b"name: kfree"),
            ("formats/uname", b"Linux"),
            ("formats/page.html", b"<html>"),
            ("other/list", b"f\n"),
        ] {
            dir.write(name, bytes);
        }
        symlink(at("other/list"), at("other/link")).unwrap();
        let sources = [
            Source::Input(at("trace")),
            Source::DebugFolder(at("tree")),
            Source::EventFormats(at("formats/events")),
            Source::File(at("other/link")),
        ];
        for name in ["trace/meta.out", "trace/cpu3", "tree/mm/slab.o", "tree/mm/../vmlinux.gz", "tree/modules.order"]
            .into_iter()
            .chain(["formats/events/kmem/format", "formats/uname", "other/list", "other/link"])
        {
            assert!(refuse_replacing(&at(name), &sources).is_err(), "{name}");
        }
        for name in ["trace/picture.svg", "tree/page.html", "formats/page.html", "other/new"] {
            assert!(refuse_replacing(&at(name), &sources).is_ok(), "{name}");
        }
    }
}
