//! Files that a caller named, or that a directory holds: their names, first bytes and CPUs.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use super::{foreign, regular};
use crate::disk::block::MAGIC;
use crate::disk::blocks::BlockReader;
use crate::kernel::relay;
use crate::memory::OverLimit;
use crate::stream::CpuStream;
use crate::trace::OpenError;

/// Bytes of a file's start that its kind is found from.
const SAMPLE: usize = 64 << 10;

/// Largest number of CPUs that Linux is built for, and that may be missing here: a file may name any number.
pub(super) const MAX_CPUS: u32 = 1 << 13;
/// Bytes of a file's start that hold the mark of a known format.
const MARK: u64 = 512;
/// Limit of entries of a directory without a trace that a message is made from.
const MAX_LOOKED_AT: usize = 1000;

/// A per-CPU file that was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    /// CPU in its name.
    pub(super) cpu: Option<u32>,
    /// Named `….out`, as recorders name their files.
    pub(super) out: bool,
    pub(super) file: File,
    /// First bytes, at most [`SAMPLE`].
    pub(super) sample: Vec<u8>,
}

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    |error| match error.get_ref().and_then(|inner| inner.downcast_ref::<OverLimit>()) {
        Some(&over) => OpenError::Memory { path: path.to_owned(), over },
        None => OpenError::Io { path: path.to_owned(), error },
    }
}

pub(super) fn is_dir(path: &Path) -> Result<bool, OpenError> {
    fs::metadata(path).map(|m| m.is_dir()).map_err(io_error(path))
}

/// Opens a stored file; a FIFO would block, and a device has no end.
pub(super) fn open_regular(path: &Path) -> Result<File, OpenError> {
    let of_directory = "is a directory, and a view is of one recording: name one directory, or files of one recording; compare takes two";
    let opened = regular::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::IsADirectory => io::Error::new(error.kind(), of_directory),
        _ => error,
    });
    opened.map_err(io_error(path))
}

/// The CPU in `cpu7`, `cpu7.out`; whether it ends in `.out`.
fn cpu_of_name(name: &str) -> Option<(u32, bool)> {
    let number = name.strip_prefix("cpu")?;
    let (number, out) = number.strip_suffix(".out").map_or((number, false), |n| (n, true));
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| number.parse().ok()).flatten().map(|cpu| (cpu, out))
}

/// Files to open.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) root: PathBuf,
    pub(super) files: Vec<FoundFile>,
    pub(super) meta: Option<PathBuf>,
    pub(super) total_overruns: Option<u64>,
}

impl Listing {
    pub(super) fn of_dir(dir: &Path) -> Result<Listing, OpenError> {
        let mut listing = Listing { root: dir.to_owned(), files: Vec::new(), meta: None, total_overruns: None };
        for entry in fs::read_dir(dir).map_err(io_error(dir))? {
            let path = entry.map_err(io_error(dir))?.path();
            match path.file_name().and_then(|n| n.to_str()) {
                Some("meta.out") => listing.meta = Some(path),
                Some("total_overruns") => listing.total_overruns = read_number(&path),
                Some(name) if cpu_of_name(name).is_some() => listing.add(path)?,
                _ => {}
            }
        }
        // `cpu3.out` stands for `cpu3` where both are there.
        listing.files.sort_by_key(|f| (f.cpu, !f.out));
        listing.files.dedup_by_key(|f| f.cpu);
        if listing.files.is_empty() && listing.meta.is_none() {
            return Err(no_trace(dir, &no_trace_in(dir)));
        }
        Ok(listing)
    }

    pub(super) fn of_files(paths: &[PathBuf]) -> Result<Listing, OpenError> {
        let root = paths.first().and_then(|p| p.parent()).unwrap_or(Path::new("")).to_owned();
        let mut listing = Listing { root, files: Vec::new(), meta: None, total_overruns: None };
        for path in paths {
            if path.file_name().is_some_and(|n| n == "meta.out") {
                listing.meta = Some(path.clone());
            } else {
                listing.add(path.clone())?;
            }
        }
        // A file of another program may be large, or have blocks of ours somewhere in it, as an archive of a trace has.
        let is_none_of_ours =
            |f: &&FoundFile| f.cpu.is_none() && !f.sample.starts_with(&MAGIC) && relay::detect(&f.sample).is_none();
        let known = |f: &FoundFile| foreign::known(&f.sample).map(|what| no_trace(&f.path, &what));
        if let Some(error) = listing.files.iter().filter(is_none_of_ours).find_map(known) {
            return Err(error);
        }
        listing.files.sort_by_key(|f| f.cpu);
        Ok(listing)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), OpenError> {
        let mut file = open_regular(&path)?;
        let mut sample = Vec::new();
        (&file).take(SAMPLE as u64).read_to_end(&mut sample).map_err(io_error(&path))?;
        let named = path.file_name().and_then(|n| n.to_str()).and_then(cpu_of_name);
        // Reading starts again at the first byte of the same file, whatever its name stands for by now.
        file.rewind().map_err(io_error(&path))?;
        let (cpu, out) = named.map_or((None, false), |(cpu, out)| (Some(cpu), out));
        self.files.push(FoundFile { path, cpu, out, file, sample });
        Ok(())
    }

    /// True if these are files of ours rather than raw relay bytes.
    pub(super) fn is_ours(&self) -> bool {
        let starts = |f: &FoundFile| f.sample.starts_with(&MAGIC);
        if self.meta.is_some() || self.files.iter().any(starts) {
            return true;
        }
        if self.files.iter().any(|f| relay::detect(&f.sample).is_some()) {
            return false;
        }
        // A first block may be cut or damaged, and a file of ours may be empty or all zeros.
        self.files.iter().any(|f| {
            let nothing = f.out && f.sample.iter().all(|&b| b == 0);
            let cut = !f.sample.is_empty() && MAGIC.starts_with(&f.sample);
            nothing || cut || has_block(&f.file)
        })
    }
}

pub(super) fn no_trace(path: &Path, reason: &str) -> OpenError {
    OpenError::NoTrace { path: path.to_owned(), reason: reason.to_owned() }
}

/// Description of a directory that holds no trace itself: a trace below it, or a file of another program.
fn no_trace_in(dir: &Path) -> String {
    let reason = "has no cpuN.out, no meta.out and no cpuN: it is not a trace directory";
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.take(MAX_LOOKED_AT).collect();
    paths.sort();
    let below = paths.iter().find(|path| path.join("meta.out").is_file());
    if let Some(below) = below {
        return format!("{reason}, {} is one", below.display());
    }
    if paths.iter().any(|path| path.ends_with("data.0")) && paths.iter().any(|path| path.ends_with("data")) {
        return "is what perf record --threads wrote, whose files are not read together: record without --threads"
            .to_owned();
    }
    let foreign = paths.iter().find_map(|path| {
        let mut sample = Vec::new();
        open_regular(path).ok()?.take(MARK).read_to_end(&mut sample).ok()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        foreign::known(&sample).map(|what| format!("{reason} ({name} in it is {what})"))
    });
    foreign.unwrap_or_else(|| reason.to_owned())
}

fn read_number(path: &Path) -> Option<u64> {
    let mut text = String::new();
    open_regular(path).ok()?.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// True where a whole block of ours stands anywhere in the file, which is at its first byte before and afterwards.
fn has_block(mut file: &File) -> bool {
    let found = file.try_clone().is_ok_and(|same| BlockReader::new(same).next(&mut |_| {}).is_ok());
    file.rewind().is_ok() && found
}

pub(super) fn add_missing(streams: &mut Vec<CpuStream>, missing: &[u32], root: &Path, suffix: &str) {
    streams.extend(missing.iter().map(|&cpu| CpuStream::missing(root.join(format!("cpu{cpu}{suffix}")), cpu)));
    streams.sort_by_key(CpuStream::cpu);
}

/// First sequence number of a recording: the one of the CPUs' first numbers that all others come after, modulo 2^32.
pub(super) fn origin(firsts: impl Iterator<Item = u32>) -> u32 {
    firsts.reduce(|a, b| if b.wrapping_sub(a).cast_signed() < 0 { b } else { a }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_recording_is_found_across_the_wrap() {
        assert_eq!(origin([5, 0xffff_fff0, 0xffff_fff8].into_iter()), 0xffff_fff0);
        assert_eq!(origin([0x7fff_fff0, 0x8000_0003].into_iter()), 0x7fff_fff0);
        assert_eq!(origin([9, 7].into_iter()), 7);
    }

    #[test]
    fn cpu_files_are_known_by_their_names() {
        assert_eq!(cpu_of_name("cpu12.out"), Some((12, true)));
        assert_eq!(cpu_of_name("cpu0"), Some((0, false)));
        for name in ["cpu", "cpu.out", "cpu1.txt", "cpu-1", "cpu1x", "xcpu1", "cpu99999999999"] {
            assert_eq!(cpu_of_name(name), None, "{name}");
        }
    }
}
