//! Maps of functions to source files, made from another build of the series.
//!
//! A map is a line `kmemtrace.names/1` and a zstd frame of text: `FILE` of the kernel's sources on a line that begins with a
//! slash, then the names of its functions, a line each. A line `=MODULE` says that the files after it are of that module.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use kmemtrace_abi::text::cut::MAX_NAME_BYTES;

use super::debug::unpack::Packing;
use super::error::NamesError;
use super::function_files::{FunctionFiles, plain_function};
use super::image_sizes::StaticSizes;
use super::work::{Spent, Work};

/// First line of a map.
const VERSION: &[u8] = b"kmemtrace.names/1\n";
/// Begin of the first line of a map of any version.
const FAMILY: &[u8] = b"kmemtrace.names/";
/// Largest text of a map; that of a distribution's kernel with all modules has 6 MB.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// Largest number of lines.
const MAX_LINES: usize = 4 << 20;
/// Level of zstd: maps are made once and kept.
const LEVEL: i32 = 19;

/// Map of functions to source files.
#[derive(Debug, Default)]
pub struct NameMap {
    files: FunctionFiles,
}

impl NameMap {
    /// Reads a map.
    ///
    /// # Errors
    /// [`NamesError`] if the file cannot be read, or is no map of this version.
    pub fn read(path: &Path) -> Result<NameMap, NamesError> {
        let file = kmemtrace_abi::open::regular::open(path).map_err(|error| NamesError::read(path, error))?;
        parse(file).map_err(|why| NamesError::unusable(path, why))
    }

    /// A map that takes more than it may.
    fn left_out(spent: Spent) -> NameMap {
        NameMap { files: FunctionFiles::left_out(spent) }
    }

    /// Source files of its functions.
    pub(crate) fn files(&self) -> &FunctionFiles {
        &self.files
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// True for a map of nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn parse(file: File) -> Result<NameMap, String> {
    let stored = file.metadata().map_err(|error| error.to_string())?.len();
    let mut packed = BufReader::new(file);
    let mut first = Vec::new();
    packed.by_ref().take(64).read_until(b'\n', &mut first).map_err(|error| error.to_string())?;
    if first != VERSION {
        let why = if first.starts_with(FAMILY) {
            "a map of another version: make it again with `kmemtrace-report names`"
        } else {
            "no map of names: make one with `kmemtrace-report names VMLINUX -o FILE`"
        };
        return Err(why.to_owned());
    }
    let mut work = Work::of(stored);
    let text = match Packing::Zstd.unpack(packed, stored) {
        Ok(text) => text,
        Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<Spent>()) {
            Some(spent) => return Ok(NameMap::left_out(*spent)),
            None => return Err(format!("a damaged map ({error}): make it again with `kmemtrace-report names`")),
        },
    };
    let lines = memchr::memchr_iter(b'\n', &text).count();
    if text.len() as u64 > MAX_TEXT_BYTES || lines > MAX_LINES {
        return Err(format!("a map of more than {} MiB or {MAX_LINES} functions", MAX_TEXT_BYTES >> 20));
    }
    if text.split(|&byte| byte == b'\n').any(|line| line.len() > MAX_NAME_BYTES) {
        return Err(format!("a map with a name of more than {MAX_NAME_BYTES} bytes"));
    }
    let needed = text.len().saturating_add(lines.saturating_mul(FunctionFiles::BYTES_OF_LINE));
    if let Err(spent) = work.keep(needed) {
        return Ok(NameMap::left_out(spent));
    }
    let mut files = FunctionFiles::default();
    let mut module = files.module(None);
    for line in text.split(|&byte| byte == b'\n') {
        match line {
            [] => {}
            [b'=', name @ ..] => module = files.module(Some(name)),
            [b'/', file @ ..] => files.begin_file(file),
            function => files.add(function, module),
        }
    }
    Ok(NameMap { files: files.finish(work) })
}

/// Writes a map of a kernel, and of modules with their names.
///
/// # Errors
/// Errors of `out`.
pub fn write_map(kernel: &StaticSizes, modules: &[(Box<[u8]>, StaticSizes)], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(VERSION)?;
    let mut text = zstd::stream::write::Encoder::new(out, LEVEL)?;
    // Modules and kernel have many words in common, which a window over all of it sees.
    text.long_distance_matching(true)?;
    write_files(kernel, &mut text)?;
    for (module, sizes) in modules.iter().filter(|(name, _)| can_be_written(name)) {
        text.write_all(&[b"=", &**module, b"\n"].concat())?;
        write_files(sizes, &mut text)?;
    }
    text.finish()?.flush()
}

fn write_files(sizes: &StaticSizes, out: &mut dyn Write) -> io::Result<()> {
    for (file, of_file) in sizes.files().filter(|(file, _)| can_be_written(file)) {
        let mut names: Vec<&[u8]> = of_file.functions.keys().map(|name| plain_function(name)).collect();
        names.retain(|name| can_be_written(name) && !is_mark(name) && !matches!(name.first(), Some(b'=' | b'/')));
        names.sort_unstable();
        names.dedup();
        if !names.is_empty() {
            out.write_all(&[b"/", file, b"\n"].concat())?;
            names.iter().try_for_each(|name| out.write_all(&[name, &b"\n"[..]].concat()))?;
        }
    }
    Ok(())
}

/// True for a name that is a line.
fn can_be_written(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'\n')
}

/// True for a symbol that marks the begin of another function, and makes no call.
fn is_mark(name: &[u8]) -> bool {
    name.starts_with(b"__pfx_") || name.starts_with(b"__cfi_")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::names::debug::image::Image;
    use crate::names::debug::sections::Sections;
    use crate::names::debug::symbols::Symbols;
    use crate::names::image_sizes::units::Units;
    use crate::names::kallsyms::Symbolizer;

    /// Map of these files and of a module's, as it is written and read.
    fn map(kernel: &[(&str, &[&str])], module: &[(&str, &[&str])]) -> (Vec<u8>, NameMap) {
        let mut packed = Vec::new();
        let modules = [(b"ext-two"[..].into(), StaticSizes::of_functions(module))];
        write_map(&StaticSizes::of_functions(kernel), &modules, &mut packed).unwrap();
        (packed.clone(), read(&packed).unwrap())
    }

    fn read(packed: &[u8]) -> Result<NameMap, NamesError> {
        let place = tempfile();
        std::fs::write(&place, packed).unwrap();
        let map = NameMap::read(&place);
        std::fs::remove_file(&place).unwrap();
        map
    }

    /// Path of a file that no other test has.
    fn tempfile() -> PathBuf {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("kmemtrace-map-{}-{number}", std::process::id()))
    }

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let (_, map) = map(
            &[("fs/a.c", &["open", "a_close.part.0", "=x", "/y", "two\nlines", "__pfx_open"]), ("b\n.c", &["b"])],
            &[("ext/e.c", &["open", "e_open"])],
        );
        let file = |name: &str, module: Option<&[u8]>| {
            map.files.file_of(name.as_bytes(), module, || [].into_iter()).map(|file| file.escape_ascii().to_string())
        };
        assert_eq!(
            (file("open", None).as_deref(), file("a_close.cold", None).as_deref()),
            (Some("fs/a.c"), Some("fs/a.c"))
        );
        assert_eq!((file("open", Some(b"ext_two")).as_deref(), map.len()), (Some("ext/e.c"), 4));
    }

    #[test]
    fn hostile_maps_are_refused_or_read() {
        let (packed, _) = map(&[("fs/a.c", &["open", "close"])], &[]);
        for (text, words) in [
            (&b"kmemtrace.names/2\n"[..], "another version"),
            (b"", "no map of names"),
            (b"kmemtrace.names/1", "another version"),
            (b"kmemtrace.names/1\nxyz", "damaged"),
            (&packed[..packed.len() - 3], "damaged"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("kmemtrace-map-"), "{error}");
        }
        // A bomb: far more text than packed bytes.
        for line in [&b"a\n"[..], b"aaaaaaaaaaaaaaaa"] {
            let bomb = zstd::encode_all(&line.repeat((MAX_TEXT_BYTES as usize + 1) / line.len() + 1)[..], 1).unwrap();
            let map = read(&[VERSION, &bomb].concat()).unwrap();
            assert_eq!((map.len(), map.files().spent()), (0, Some(Spent::Unpacked)));
        }
        let long = zstd::encode_all(&[b'a'; MAX_NAME_BYTES + 1][..], 1).unwrap();
        assert!(read(&[VERSION, &long].concat()).unwrap_err().to_string().contains("a name of more than 4096"));
        let mut seed = 1u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut damaged = packed.clone();
            let at = (seed >> 33) as usize % damaged.len();
            damaged[at] ^= 1 << (seed >> 61);
            let _ = read(&damaged);
        }
        // Text of any bytes behind a right frame.
        let text = b"open\n=\n/\n\n//\n=m\nf\n\xff\n/\xff/..\n\xff";
        let map = read(&[VERSION, &zstd::encode_all(&text[..], 1).unwrap()].concat()).unwrap();
        assert_eq!(map.files.file_of(b"open", None, || [].into_iter()), None, "a function before any file is in none");
    }

    /// Text of `/proc/kallsyms` of a linked kernel.
    fn kallsyms(vmlinux: &Path) -> Vec<u8> {
        let table = Symbols::read(&Image::open(vmlinux).unwrap()).unwrap();
        let mut text = Vec::new();
        for symbol in table.iter().filter(|symbol| symbol.kind == object::elf::STT_FUNC && symbol.section.is_some()) {
            text.extend_from_slice(format!("{:x} t ", symbol.value).as_bytes());
            text.extend_from_slice(symbol.name);
            text.push(b'\n');
        }
        text
    }

    /// Folder of a file.
    fn folder(file: &[u8]) -> &[u8] {
        &file[..memchr::memrchr(b'/', file).unwrap_or(0)]
    }

    #[test]
    #[ignore = "needs the vmlinux of two revisions with debug information: KMEMTRACE_MAP_FROM, KMEMTRACE_MAP_TO"]
    fn a_map_of_one_revision_names_the_folders_of_another() {
        let [from, to] =
            ["KMEMTRACE_MAP_FROM", "KMEMTRACE_MAP_TO"].map(|name| PathBuf::from(std::env::var_os(name).unwrap()));
        let mut packed = Vec::new();
        write_map(&StaticSizes::of_vmlinux(&from).unwrap(), &[], &mut packed).unwrap();
        let map = read(&packed).unwrap();
        let image = Image::open(&to).unwrap();
        let units =
            Units::read(&Sections::without_lines(image).unwrap(), crate::names::work::Work::of(1 << 30)).unwrap();
        let symbols = Symbolizer::new(kallsyms(&to), b"");
        let (mut all, mut found, mut right) = (0, 0, 0);
        let text = kallsyms(&to);
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let mut words = line.splitn(3, |&byte| byte == b' ');
            let address = u64::from_str_radix(std::str::from_utf8(words.next().unwrap()).unwrap(), 16).unwrap();
            let name = words.nth(1).unwrap();
            let Some(true_file) = units.of_code(address).and_then(|unit| units.source(unit)) else { continue };
            all += 1;
            let file = map.files.file_of(name, None, || symbols.neighbours(address + 1));
            found += usize::from(file.is_some());
            right += usize::from(file.is_some_and(|file| folder(file) == folder(true_file)));
        }
        println!("{all} functions, {found} with a folder, {right} of them right; {} bytes", packed.len());
        assert!(all > 1000 && found * 100 >= all * 99 && right * 1000 >= found * 995);
        assert!(packed.len() < 1 << 20);
    }
}
