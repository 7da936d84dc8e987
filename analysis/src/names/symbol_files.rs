//! Lists of symbols and modules from files that were named: copies of `/proc/kallsyms` and `/proc/modules`, and System.map.
//!
//! The files are strangers': any size, binary, of another kernel. Each that is no use ends in one sentence.

use std::io::{self, Read};
use std::path::Path;

use kmemtrace_abi::kernel::kallsyms::{has_addresses, parts};
use kmemtrace_abi::memory;
use kmemtrace_abi::open::regular;
use kmemtrace_abi::trace::MADE_UP;

use super::error::NamesError;
use super::kallsyms::Symbolizer;

/// Largest size of a list; that of a kernel with all modules has 20 MB.
const MAX_BYTES: u64 = 512 << 20;
/// Share of the call-sites that must lie behind functions of a System.map that cannot be moved, in percent.
const LEAST_PERCENT: u64 = 99;
/// Fewest call-sites that tell a copy of `/proc/kallsyms` of another boot.
const LEAST_SITES: usize = 20;
/// Longest function, in bytes.
const FUNCTION: u64 = 1 << 20;
/// Symbol at the begin of the kernel's image.
const TEXT: &[u8] = b"_text";

/// List of symbols from a file.
#[derive(Debug)]
pub(crate) enum SymbolFile {
    /// Addresses of the trace's boot.
    Placed(Vec<u8>),
    /// List that has no symbol in common with the trace: only the trace's call-sites can be compared.
    Unproven(Vec<u8>),
}

impl SymbolFile {
    /// Reads a list for a trace whose symbols are `of_trace`, or that tells only where the kernel's image begins: the symbol there and its
    /// address. A System.map is moved as the trace's kernel was.
    pub(crate) fn read(
        path: &Path,
        of_trace: &[u8],
        image_begin: Option<(&[u8], u64)>,
    ) -> Result<SymbolFile, NamesError> {
        let wrong = |why: &str| Err(NamesError::unusable(path, why));
        let text = read(path, "/proc/kallsyms")?;
        if !lines(&text).any(|line| parts(line).is_some()) {
            return wrong(
                "has no line ADDRESS TYPE NAME: name a copy of /proc/kallsyms, or the System.map of the kernel",
            );
        }
        if !lines(&text).filter_map(parts).any(|(_, kind, _)| kind.eq_ignore_ascii_case(&b't')) {
            return wrong(
                "lists no function: it is a placeholder, as Debian's /boot/System.map is; the real one is in the package with the \
                 kernel's debug information",
            );
        }
        if !has_addresses(&text) {
            return wrong(
                "all addresses in it are 0: copy /proc/kallsyms as root with CAP_SYSLOG, while kptr_restrict is 0 or 1",
            );
        }
        let (symbol, in_trace) = match (begin_of_image(of_trace, TEXT), image_begin) {
            (None, Some((symbol, address))) => (symbol, Some(address)),
            (address, _) => (TEXT, address),
        };
        let in_file = begin_of_image(&text, symbol);
        if let (true, Some(begin)) = (is_system_map(&text), in_file) {
            let Some(at) = in_trace else { return Ok(SymbolFile::Unproven(text)) };
            check_memory(path, text.len())?;
            // Symbols before the image do not move with it.
            let placed = moved(&text, begin_of_image(&text, TEXT).unwrap_or(begin), at.wrapping_sub(begin));
            check_functions(path, &placed, of_trace)?;
            return Ok(SymbolFile::Placed(placed));
        }
        match [in_file, in_trace] {
            [Some(file), Some(trace)] if file != trace => Err(NamesError::unusable(
                path,
                format!(
                    "is of another boot: its {symbol} is at {file:#x}, that of the trace at {trace:#x}; name a copy of the same boot, \
                     or the System.map of the kernel",
                    symbol = String::from_utf8_lossy(symbol),
                ),
            )),
            [Some(_), Some(_)] => check_functions(path, &text, of_trace).map(|_| SymbolFile::Placed(text)),
            _ if check_functions(path, &text, of_trace)? => Ok(SymbolFile::Placed(text)),
            _ => Ok(SymbolFile::Unproven(text)),
        }
    }
}

/// True if a list and the trace have functions of the kernel in common. Refuses a list that has them at other addresses than the trace.
fn check_functions(path: &Path, text: &[u8], of_trace: &[u8]) -> Result<bool, NamesError> {
    if functions(of_trace).next().is_none() {
        return Ok(false);
    }
    check_memory(path, functions(text).count().saturating_mul(size_of::<(&[u8], u64)>()))?;
    let mut listed: Vec<(&[u8], u64)> = functions(text).collect();
    listed.sort_unstable();
    let (mut all, mut equal) = (0usize, 0usize);
    for function in functions(of_trace) {
        let from = listed.partition_point(|(name, _)| *name < function.0);
        // What the list lacks may have been made since, as a program of BPF.
        if listed.get(from).is_some_and(|(name, _)| *name == function.0) {
            all = all.saturating_add(1);
            equal = equal.saturating_add(listed.binary_search(&function).is_ok().into());
        }
    }
    let Some(percent) = too_few(equal, all) else { return Ok(all != 0) };
    let why = format!(
        "is of another build: only {percent}% of the {all} functions that the trace names are where it has them; name a copy of \
         /proc/kallsyms of the same boot, or the System.map of the same build"
    );
    Err(NamesError::unusable(path, why))
}

/// Share of `all`, in percent, that a part of them is, where it is too small.
fn too_few(part: usize, all: usize) -> Option<u64> {
    let percent = (part as u64).saturating_mul(100).checked_div(all as u64)?;
    (percent < LEAST_PERCENT).then_some(percent)
}

/// Name and address of each function of the kernel itself.
fn functions(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    let of_kernel = |(address, kind, name): (u64, u8, _)| {
        let is_code = kind.eq_ignore_ascii_case(&b't') && address != 0;
        (is_code && !<[u8]>::contains(name, &b'\t')).then_some((name, address))
    };
    lines(text).filter_map(parts).filter_map(of_kernel)
}

/// Refuses a list that has no symbol in common with the trace, where too few of the call-sites lie behind its functions: `call_sites` are
/// those of the trace, each once.
pub(crate) fn check_unproven(
    path: &Path,
    text: &[u8],
    modules: &[u8],
    call_sites: impl Iterator<Item = u64>,
) -> Result<(), NamesError> {
    let symbol =
        |(address, kind, name): (u64, u8, &[u8])| (address, kind.eq_ignore_ascii_case(&b't'), name.contains(&b'\t'));
    // The stable sort takes half as much again.
    const BYTES: usize = size_of::<(u64, bool, bool)>() * 3 / 2;
    check_memory(path, lines(text).filter_map(parts).count().saturating_mul(BYTES))?;
    let mut symbols: Vec<(u64, bool, bool)> = lines(text).filter_map(parts).map(symbol).collect();
    // Stable: of several symbols at one address the last one in the file is the nearest.
    symbols.sort_by_key(|(address, ..)| *address);
    let before = |site: u64| symbols.get(symbols.partition_point(|(address, ..)| *address < site).checked_sub(1)?);
    let listed = Symbolizer::new(Vec::new(), modules);
    // Functions that the trace names itself have addresses of no kernel.
    let is_counted = |site: &u64| *site != 0 && !MADE_UP.contains(site) && listed.module_range(*site).is_none();
    let sites: Vec<u64> = call_sites.filter(is_counted).collect();
    let all = sites.len();
    // Only a copy of /proc/kallsyms has modules.
    if symbols.iter().any(|(.., is_of_module)| *is_of_module) {
        // Modules that were loaded later are not in it, so that only a list of which nothing fits is certainly of another boot.
        let fits = |site: &u64| {
            before(*site).is_some_and(|(begin, is_code, _)| *is_code && site.saturating_sub(*begin) < FUNCTION)
        };
        if all < LEAST_SITES || sites.iter().any(fits) {
            return Ok(());
        }
        let why = format!(
            "none of the trace's {all} call-sites lies in a function of it: it is of another boot; name a copy of the same boot"
        );
        return Err(NamesError::unusable(path, why));
    }
    let is_behind = |site: &&u64| before(**site).is_some_and(|(_, is_code, _)| *is_code);
    let behind = sites.iter().filter(is_behind).count();
    let Some(percent) = too_few(behind, all) else { return Ok(()) };
    let why = format!(
        "only {percent}% of the trace's {all} call-sites lie behind a function of it: it is of another kernel, or of one that was \
         elsewhere in memory (KASLR); name a copy of /proc/kallsyms of the same boot"
    );
    Err(NamesError::unusable(path, why))
}

/// Reads a list of modules.
pub(crate) fn read_modules(path: &Path) -> Result<Vec<u8>, NamesError> {
    let text = read(path, "/proc/modules")?;
    if Symbolizer::new(Vec::new(), &text).range_of_modules().is_none() {
        let is_hidden =
            lines(&text).any(|line| line.ends_with(b" 0x0000000000000000") || line.ends_with(b" 0x00000000"));
        let why = if is_hidden {
            "all addresses in it are 0: copy /proc/modules as root with CAP_SYSLOG, while kptr_restrict is 0 or 1"
        } else {
            "has no line of a module with its size and address: name a copy of /proc/modules"
        };
        return Err(NamesError::unusable(path, why));
    }
    Ok(text)
}

/// Puts one text behind another, each with whole lines.
pub(crate) fn joined(mut first: Vec<u8>, second: &[u8]) -> Vec<u8> {
    if !first.ends_with(b"\n") {
        first.push(b'\n');
    }
    first.extend_from_slice(second);
    first
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Checks that the memory of a named file may grow by so many bytes. Callers leave a file out that may not: [`NamesError::into_over_limit`].
pub(crate) fn check_memory(path: &Path, bytes: usize) -> Result<(), NamesError> {
    let over =
        |over| NamesError::Read { path: path.to_owned(), error: io::Error::new(io::ErrorKind::OutOfMemory, over) };
    memory::check(bytes as u64).map_err(over)
}

/// Text of a stored file, or of the kernel's own list, which is no stored file but has an end.
fn read(path: &Path, own: &str) -> Result<Vec<u8>, NamesError> {
    let mut text = Vec::new();
    let got = regular::open_or_own(path, own).and_then(|file| {
        let stored = file.metadata()?.len().min(MAX_BYTES);
        Ok((file, stored))
    });
    let read = |error| NamesError::Read { path: path.to_owned(), error };
    let (file, stored) = got.map_err(read)?;
    check_memory(path, stored as usize)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(read)?;
    if text.len() as u64 > MAX_BYTES {
        let why = format!("has more than {} MiB: this is no list of a kernel", MAX_BYTES >> 20);
        return Err(NamesError::unusable(path, why));
    }
    Ok(text)
}

/// Address of `_text`, which is not hidden.
fn begin_of_image(text: &[u8], symbol: &[u8]) -> Option<u64> {
    let mut symbols = lines(text).filter_map(parts);
    symbols.find(|(address, _, name)| *name == symbol && *address != 0).map(|(address, ..)| address)
}

/// True for lines in the order of their addresses, none of a module: `nm -n` writes a System.map so. A kallsyms without modules is taken
/// for one, too, and is moved by nothing.
fn is_system_map(text: &[u8]) -> bool {
    let mut last = 0;
    lines(text).filter_map(parts).all(|(address, _, name)| {
        let is_next = address >= last && !name.contains(&b'\t');
        last = address;
        is_next
    })
}

/// A System.map whose image, from `begin` on, is moved by `distance`. Symbols before it are offsets, as those of per-CPU variables, and
/// stay.
fn moved(text: &[u8], begin: u64, distance: u64) -> Vec<u8> {
    let mut moved = Vec::with_capacity(text.len());
    for (address, kind, name) in lines(text).filter_map(parts) {
        let address = if address < begin { address } else { address.wrapping_add(distance) };
        moved.extend_from_slice(format!("{address:x} ").as_bytes());
        moved.extend_from_slice(&[kind, b' ']);
        moved.extend_from_slice(name);
        moved.push(b'\n');
    }
    moved
}

#[cfg(test)]
mod tests {
    use kmemtrace_tests::recording::Directory;

    use super::*;

    const MAP: &str = "0000000000000000 D per_cpu_start\n0000000000001000 d per_cpu\nffffffff81000000 T _text\n\
        ffffffff81000100 T kfree\nffffffff81000200 t open\nffffffff81000300 D a_table\nffffffff81000400 B _end\n";

    /// File of this text; it goes with the folder.
    struct Stored(Directory);

    impl Stored {
        fn path(&self) -> std::path::PathBuf {
            self.0.file("list")
        }
    }

    fn file(text: &[u8]) -> Stored {
        Stored(Directory::new(&[("list".to_owned(), text.to_vec())]))
    }

    fn refused(text: &[u8], of_trace: &[u8]) -> String {
        let file = file(text);
        let why = SymbolFile::read(&file.path(), of_trace, None).unwrap_err().to_string();
        assert!(!why.contains('\n'));
        why
    }

    #[test]
    fn a_system_map_is_moved_as_the_kernel_was() {
        let file = file(MAP.as_bytes());
        let SymbolFile::Placed(text) = SymbolFile::read(&file.path(), b"ffffffff9a000000 T _text\n", None).unwrap()
        else {
            panic!("not moved")
        };
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("ffffffff9a000100 T kfree\n") && text.contains("\n1000 d per_cpu\n"), "{text}");
        // perf tells the begin of the image by either symbol.
        let with_stext = MAP.replace("81000100 T kfree", "81000100 T _stext");
        let file_of_stext = self::file(with_stext.as_bytes());
        let begin = Some((&b"_stext"[..], 0xffff_ffff_9a00_0100));
        let SymbolFile::Placed(text) = SymbolFile::read(&file_of_stext.path(), b"", begin).unwrap() else {
            panic!("not moved")
        };
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("ffffffff9a000000 T _text\n") && text.contains("\n1000 d per_cpu\n"), "{text}");
        let unplaced = SymbolFile::read(&file.path(), b"0000000000000000 T _text\n", None).unwrap();
        assert!(matches!(unplaced, SymbolFile::Unproven(_)), "a hidden _text tells nothing");
    }

    #[test]
    fn a_copy_of_kallsyms_is_of_the_same_boot() {
        let copy = format!("{MAP}ffffffffc0000010 t probe\t[foo]\n");
        let file = file(copy.as_bytes());
        assert!(matches!(
            SymbolFile::read(&file.path(), b"ffffffff81000000 T _text\n", None).unwrap(),
            SymbolFile::Placed(_)
        ));
        let unproven = SymbolFile::read(&file.path(), b"", None).unwrap();
        assert!(matches!(unproven, SymbolFile::Unproven(_)), "the trace has no symbol to compare");
        assert!(refused(copy.as_bytes(), b"ffffffff9a000000 T _text\n").contains("is of another boot"));
    }

    #[test]
    fn a_list_of_another_build_is_refused() {
        let of_trace = |kfree: u64, open: u64| {
            format!("ffffffff9a000000 T _text\n{kfree:x} T kfree\n{open:x} t open\n{open:x} t made_since\n")
        };
        let begin = 0xffff_ffff_9a00_0000;
        let file = file(MAP.as_bytes());
        let same = of_trace(begin + 0x100, begin + 0x200);
        assert!(SymbolFile::read(&file.path(), same.as_bytes(), None).is_ok());
        let other = of_trace(begin + 0x100, begin + 0x300);
        let why = refused(MAP.as_bytes(), other.as_bytes());
        assert!(why.contains("is of another build: only 66% of the 3 functions"), "{why}");
        let copy = format!("{MAP}ffffffffc0000010 t probe\t[foo]\n").replace("ffffffff810", "ffffffff9a0");
        assert!(refused(copy.as_bytes(), other.as_bytes()).contains("is of another build"));
        let placeholder = b"ffffffffffffffff B The real System.map is in the linux-image-<version>-dbg package\n";
        assert!(refused(placeholder, b"").contains("lists no function"));
    }

    #[test]
    fn files_that_are_no_use_end_in_one_sentence() {
        for text in [&b""[..], b"\x7fELF\0\0\0", &[0; 4096], b"no symbols here\n"] {
            assert!(refused(text, b"").contains("has no line ADDRESS TYPE NAME"));
        }
        assert!(
            refused(b"0000000000000000 T _text\n0000000000000000 t x\n", b"").contains("all addresses in it are 0")
        );
        assert!(SymbolFile::read(Path::new("/dev/zero"), b"", None).unwrap_err().to_string().contains("is a device"));
        let modules = |text: &[u8]| read_modules(&file(text).path()).map_err(|error| error.to_string());
        assert!(modules(b"ext4 4096 1 - Live 0xffffffffc0100000\n").is_ok());
        assert!(modules(b"ext4 4096 1 - Live 0x0000000000000000\n").unwrap_err().contains("are 0"));
        assert!(modules(b"\xff\xff").unwrap_err().contains("has no line of a module"));
        // A line without an end is a line.
        assert!(matches!(
            SymbolFile::read(&file(b"ffffffff81000000 T x").path(), b"", None).unwrap(),
            SymbolFile::Unproven(_)
        ));
    }

    #[test]
    fn a_map_that_is_not_moved_must_hold_the_call_sites() {
        let check = |sites: &[u64]| {
            let modules = b"foo 4096 1 - Live 0xffffffffc0100000\n";
            check_unproven(Path::new("System.map"), MAP.as_bytes(), modules, sites.iter().copied())
        };
        let good: Vec<u64> = (1..=99).map(|n| 0xffff_ffff_8100_0100 + n).collect();
        assert!(check(&[&good[..], &[0xffff_ffff_8100_0301]].concat()).is_ok());
        // Neither modules nor events without a call-site count.
        assert!(check(&[&good[..], &[0xffff_ffff_c010_0010, 0]].concat()).is_ok());
        let why =
            check(&[&good[..], &[0xffff_ffff_8100_0301, 0xffff_ffff_9000_0000]].concat()).unwrap_err().to_string();
        assert!(why.contains("only 98% of the trace's 101 call-sites"), "{why}");
        assert!(check(&[]).is_ok());
    }

    #[test]
    fn a_copy_of_which_no_function_has_a_call_site_is_of_another_boot() {
        let copy = format!("{MAP}ffffffffc0000010 t probe\t[foo]\n");
        let check = |sites: &[u64]| {
            let checked = check_unproven(Path::new("kallsyms"), copy.as_bytes(), b"", sites.iter().copied());
            checked.map_err(|error| error.to_string())
        };
        let moved: Vec<u64> = (1..=20).map(|n| 0xffff_ffff_9f20_0100 + n).collect();
        let why = check(&moved).unwrap_err();
        assert!(why.contains("none of the trace's 20 call-sites") && why.contains("is of another boot"), "{why}");
        assert_eq!(check(&moved[1..]), Ok(()), "too few to tell");
        // Of the kernel, and of a listed module.
        assert_eq!(check(&[&moved[..], &[0xffff_ffff_8100_0110]].concat()), Ok(()));
        assert_eq!(check(&[&moved[..], &[0xffff_ffff_c000_0020]].concat()), Ok(()));
    }
}
