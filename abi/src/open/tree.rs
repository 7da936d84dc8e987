//! A captured tree: the files of a tracefs instance, copied with `cat`.
//!
//! `per_cpu/cpuN/trace_pipe_raw` has whole sub-buffers as the kernel hands them out; next to them are the texts that they are
//! decoded and named by, at their places in the instance or at the top. A missing text is a finding, never an assumption in
//! silence.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc::{CRC_64_NVME, Crc};

use super::kept_items;
use super::listing::{MAX_CPUS, add_missing, no_trace, open_regular};
use crate::clock::OrderKey;
use crate::disk::block::{Counters, item};
use crate::event::Names;
use crate::fault::{Code, Fault};
use crate::kernel::decoder::{Decoder, TraceFacts};
use crate::kernel::format::{EventFormat, PageShape};
use crate::kernel::gfp::GfpNames;
use crate::kernel::probes::CAPTURE_GROUP;
use crate::kernel::profile::{EventProfile, PROFILES, SYSTEMS};
use crate::kernel::release::Release;
use crate::kernel::stats::Stats;
use crate::kernel::subbuffer;
use crate::kernel_texts::KernelTexts;
use crate::memory::{self, Meter};
use crate::open::header::{MetadataBuilder, host_of_uname, some_text};
use crate::stream::CpuStream;
use crate::stream::payload::{PayloadFormat, SubBufferFormat};
use crate::stream::report::{FileReport, Source};
use crate::target::{Endian, Target};
use crate::trace::{Addresses, Deferred, InputKind, Metadata, OpenError, PageBytesFrom, Run, Scope, Trace, TraceInfo};

const RAW: &str = "trace_pipe_raw";
/// Largest length of a kernel's text: a directory may hold any file by its name.
const MAX_TEXT_BYTES: u64 = 1 << 30;
/// Largest length of an event's format; the longest have some 40 KB.
const MAX_FORMAT_BYTES: u64 = 1 << 20;
/// Bytes of each CPU's file that the tree is told from others by.
const HEAD_BYTES: u64 = 4096;
/// Sub-buffers that the byte order is found from.
const SAMPLES: usize = 64;

/// True if the path is such a tree, or one CPU's file of one.
pub(super) fn is_tree(path: &Path) -> bool {
    if path.join("meta.out").exists() {
        return false;
    }
    let one_file = path.file_name().is_some_and(|name| name == RAW) && path.is_file();
    one_file || path.join("per_cpu").is_dir() || path.join("events").is_dir() || !cpu_dirs(path).is_empty()
}

/// True for a file of an archive that is the sub-buffers of a CPU, by its name and first bytes.
#[cfg(feature = "inputs")]
pub(super) fn is_raw(name: &[u8], sample: &[u8]) -> bool {
    name.ends_with(RAW.as_bytes()) && !sample.is_empty()
}

/// Directories `cpuN` that hold a CPU's sub-buffers.
fn cpu_dirs(dir: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut cpus: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let cpu = entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?;
            entry.path().is_dir().then(|| (cpu, entry.path()))
        })
        .collect();
    cpus.sort();
    cpus
}

/// The first `max` bytes of a stored file, if it can be read.
fn read(path: &Path, max: u64) -> Option<Vec<u8>> {
    let file = open_regular(path).ok()?;
    memory::check(file.metadata().ok()?.len().min(max)).ok()?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The texts of a tree, and which of them are not there.
struct Texts {
    root: PathBuf,
    missing: Vec<(&'static str, &'static str)>,
}

impl Texts {
    /// A text at its place in an instance, or at the top.
    fn find(&self, name: &str) -> Option<Vec<u8>> {
        let top = Path::new(name).file_name().map(|file| self.root.join(file));
        read(&self.root.join(name), MAX_TEXT_BYTES).or_else(|| read(&top?, MAX_TEXT_BYTES))
    }

    /// A text as [`Texts::find`] has it; where it is missing, `cost` is part of the finding.
    fn want(&mut self, name: &'static str, cost: &'static str) -> Option<Vec<u8>> {
        let text = self.find(name);
        if text.is_none() {
            self.missing.push((name, cost));
        }
        text
    }

    fn want_text(&mut self, name: &'static str, cost: &'static str) -> Option<String> {
        self.want(name, cost).map(|text| String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// `system` and format of every event in `events`.
    fn formats(&self) -> Result<Vec<(String, String)>, OpenError> {
        let mut meter = Meter::default();
        let events = self.root.join("events");
        formats_below(&events, |path| {
            let Some(text) = read(path, MAX_FORMAT_BYTES) else { return Ok(None) };
            meter.take(text.len() as u64).map(|()| Some(text))
        })
        .map_err(|over| OpenError::Memory { path: events.clone(), over })
    }
}

/// `system` and format of every event in a directory `events`; an error of `read` ends it.
pub(super) fn formats_below<E>(
    events: &Path,
    mut read: impl FnMut(&Path) -> Result<Option<Vec<u8>>, E>,
) -> Result<Vec<(String, String)>, E> {
    let mut formats = Vec::new();
    for system in fs::read_dir(events).into_iter().flatten().flatten() {
        let name = system.file_name().to_string_lossy().into_owned();
        for event in fs::read_dir(system.path()).into_iter().flatten().flatten() {
            let format = read(&event.path().join("format"))?;
            formats.extend(format.map(|text| (name.clone(), String::from_utf8_lossy(&text).into_owned())));
        }
    }
    formats.sort();
    Ok(formats)
}

/// Release and machine in the output of `uname -a`.
pub(super) fn release_and_machine(uname: &str) -> (Option<String>, Option<String>) {
    let words: Vec<&str> = uname.split_whitespace().collect();
    let machine = match words[..] {
        [.., machine, "GNU/Linux"] => Some(machine),
        [_, _, _, .., machine] => Some(machine),
        _ => None,
    };
    (words.get(2).map(|&r| r.to_owned()), machine.map(str::to_owned))
}

/// Byte order of machines of this name, true for big endian; `None`: some are, or the name is not known.
fn big_endian(machine: &str) -> Option<bool> {
    match machine {
        "s390x" | "s390" | "ppc64" | "ppc" | "sparc64" | "sparc" | "m68k" | "parisc" | "parisc64" => Some(true),
        "mips" | "mips64" | "sh4" => None,
        _ => Some(false),
    }
}

fn is_32_bit(machine: &str) -> bool {
    let i86 = machine.len() == 4 && machine.starts_with('i') && machine.ends_with("86");
    i86 || machine.starts_with("armv")
        || ["arm", "mips", "ppc", "m68k", "sparc", "parisc", "riscv32"].contains(&machine)
}

/// Number of sub-buffers at the start of `bytes` that can be walked under this shape.
fn walkable(shape: &PageShape, bytes: &[u8]) -> usize {
    let pages = bytes.chunks_exact(shape.size).take(SAMPLES);
    pages.take_while(|page| subbuffer::tally(shape, page).is_ok_and(|(tally, _)| tally.events > 0)).count()
}

/// The tree that one CPU's file is of, and the directory of that CPU.
fn around(file: &Path) -> (PathBuf, Vec<(u32, PathBuf)>) {
    let dir = file.parent().unwrap_or(Path::new("."));
    let above = dir.parent().unwrap_or(Path::new("."));
    let is_per_cpu = above.file_name().is_some_and(|name| name == "per_cpu");
    let root = if is_per_cpu { above.parent().unwrap_or(Path::new(".")) } else { above };
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let cpu = name.strip_prefix("cpu").and_then(|n| n.parse().ok()).unwrap_or(0);
    (root.to_owned(), vec![(cpu, dir.to_owned())])
}

/// A whole tree, and the directories of its CPUs.
fn below(root: &Path) -> (PathBuf, Vec<(u32, PathBuf)>) {
    let per_cpu = cpu_dirs(&root.join("per_cpu"));
    (root.to_owned(), if per_cpu.is_empty() { cpu_dirs(root) } else { per_cpu })
}

/// The layout of the sub-buffers in `sample`; of the two byte orders the one in which more of them can be walked.
fn shape(
    header_page: Option<&str>,
    arch: Option<&str>,
    page_bytes: Option<u64>,
    sample: &[u8],
) -> Result<PageShape, String> {
    let in_order = |endian| match header_page {
        Some(text) => PageShape::parse(text, endian)
            .map_err(|error| format!("events/header_page: {error}: copy it again, in one read")),
        None => {
            let word_bytes = if arch.is_some_and(is_32_bit) { 4 } else { 8 };
            let size = page_bytes.and_then(|n| usize::try_from(n).ok()).filter(|n| (64..=1 << 20).contains(n));
            Ok(PageShape {
                target: Target { endian, word_bytes },
                commit_offset: 8,
                commit_size: word_bytes.into(),
                data_offset: 8 + usize::from(word_bytes),
                size: size.unwrap_or(4096),
            })
        }
    };
    let (little, big) = (in_order(Endian::Little)?, in_order(Endian::Big)?);
    let (as_little, as_big) = (walkable(&little, sample), walkable(&big, sample));
    if header_page.is_none() && !sample.is_empty() && as_little.max(as_big) == 0 {
        return Err("events/header_page is missing, and the usual layout of sub-buffers does not fit".to_owned());
    }
    let big_by_name = arch.and_then(big_endian).unwrap_or(false);
    Ok(if as_big > as_little || (as_big == as_little && big_by_name) { big } else { little })
}

/// Opens a tree; `keeps_texts`: as [`OpenOptions::texts`](super::OpenOptions::texts).
pub(super) fn open(path: &Path, keeps_texts: bool) -> Result<Trace, OpenError> {
    let alone = path.is_file();
    let (root, dirs) = if alone { around(path) } else { below(path) };
    if dirs.is_empty() {
        return Err(no_trace(path, "has no per_cpu/cpuN/trace_pipe_raw: copy those of the tracefs instance, too"));
    }
    // A file of the live kernel has no length, and reading it would take its events away.
    let live = fs::metadata(root.join("events/header_page")).is_ok_and(|m| m.len() == 0);
    let mut texts = Texts { root: root.clone(), missing: Vec::new() };
    let header_page = texts.want_text("events/header_page", "the usual layout of sub-buffers is taken");
    if live {
        let reason =
            "its events/header_page is empty, as a running kernel's is: record with kmemtraced, or copy by cat";
        return Err(no_trace(path, reason));
    }
    let uname = texts.want_text("uname", "the kernel and its architecture are not known").unwrap_or_default();
    let (kernel, arch) = release_and_machine(&uname);
    let page_bytes = texts.want_text("page_size", "the size of pages is not known").and_then(|t| t.parse::<u64>().ok());
    let raw = dirs.into_iter().map(|(cpu, dir)| (cpu, dir.join(RAW)));
    let raw: Vec<(u32, PathBuf)> = raw.filter(|(_, file)| file.is_file()).collect();
    let recording = recording(&raw);
    let mut samples = raw.iter().filter_map(|(_, file)| read(file, (SAMPLES as u64) << 16));
    let sample = samples.find(|sample| !sample.is_empty()).unwrap_or_default();
    let shape = shape(header_page.as_deref(), arch.as_deref(), page_bytes, &sample)
        .map_err(|reason| no_trace(path, &reason))?;
    let mut names = Names::new();
    let mut report = FileReport::new(root.clone(), None);
    let format_texts = texts.formats()?;
    let formats = formats(&format_texts, path, &mut report)?;
    let release = kernel.as_deref().and_then(Release::parse);
    let missing = if alone { Vec::new() } else { missing_cpus(&root, &raw) };
    let facts = TraceFacts {
        probe_group: Some(CAPTURE_GROUP),
        page_bytes: page_bytes.unwrap_or(0),
        cpus: raw.len().saturating_add(missing.len()),
        release,
    };
    let decoder = Decoder::new(&formats, &facts, &mut names);
    // The script defines its events before the recording begins.
    let probes = decoder.describes_deferred_frees().then_some(Deferred::From(0));
    let format = Arc::new(PayloadFormat::SubBuffers(SubBufferFormat { shape, decoder }));
    let mut streams = streams(raw, &format)?;
    add_missing(&mut streams, &missing, &root.join("per_cpu"), "/trace_pipe_raw");
    let clock = texts.want_text("trace_clock", "the clock is not known, so findings of two CPUs are suspect");
    let clock = clock.map(|text| text.split(['[', ']']).nth(1).unwrap_or(&text).to_owned());
    let (named, name_items) = names_beside(&mut texts, &uname, &format_texts, keeps_texts);
    for (name, cost) in &texts.missing {
        report.add(fault(Code::TreeIncomplete, format!("{name} is missing: {cost}")));
    }
    let deferred = probes.or_else(|| Deferred::without_probes(kernel.as_deref()));
    let info = TraceInfo {
        input: InputKind::Tree,
        capabilities: format.capabilities(),
        source: Some(Source::Tracefs),
        kernel,
        arch,
        endian: Some(shape.target.endian),
        word_bytes: Some(shape.target.word_bytes),
        page_bytes,
        page_bytes_from: PageBytesFrom::Trace,
        addresses: Addresses::Raw,
        clock,
        since_boot: false,
        cpus: streams.iter().map(CpuStream::cpu).collect(),
        missing,
        order: OrderKey::Time,
        scope: Scope::System,
        deferred,
        filter: None,
        host: host_of_uname(&named.uname),
        boot: texts.find("boot_id").as_deref().and_then(some_text),
        recording,
        run: Run::default(),
        symbols: None,
        text: None,
    };
    streams.iter_mut().for_each(|stream| stream.set_keys(info.keys()));
    let kept = keeps_texts.then(|| Box::new(kernel_texts(&texts, &info, name_items, format_texts)));
    let metadata = Metadata { report: (!alone).then_some(report), texts: kept, ..named };
    Ok(Trace {
        has_begun: false,
        inputs: Vec::new(),
        origin: None,
        series: Vec::new(),
        info,
        streams,
        names,
        metadata,
        total_overruns: None,
    })
}

/// The texts of the tree, for a writer of another container; `names` are its names as items.
fn kernel_texts(texts: &Texts, info: &TraceInfo, names: Vec<u8>, formats: Vec<(String, String)>) -> KernelTexts {
    let find = |name: &str| texts.find(name).unwrap_or_default();
    let mut items = kept_items::header_items(info, None);
    item::put(&mut items, item::PROBE_GROUP, 0, CAPTURE_GROUP.as_bytes());
    items.extend(names);
    let stats = |&cpu: &u32| {
        let text = texts.find(&format!("per_cpu/cpu{cpu}/stats"))?;
        Some((cpu, String::from_utf8_lossy(&text).into_owned()))
    };
    KernelTexts {
        header_page: find("events/header_page"),
        header_event: find("events/header_event"),
        formats,
        clock: texts.find("trace_clock").as_deref().and_then(some_text),
        uname: find("uname"),
        stats: info.cpus.iter().filter_map(stats).collect(),
        cpus: info.cpus.len(),
        items,
    }
}

/// Names beside the events: file, item that a recording has in its place, and what a missing one costs; `None`: trees of an older script
/// lack it, which is no finding.
const NAMES: [(&str, u16, Option<&str>); 23] = [
    ("kallsyms", item::KALLSYMS, Some("call-sites have no names")),
    ("modules", item::MODULES, Some("modules are not told apart")),
    ("saved_cmdlines", item::COMMS, Some("processes have no names")),
    ("notes", item::NOTES, None),
    ("module_info", item::MODULE_INFO, None),
    ("slabinfo_start", item::SLABINFO_START, None),
    ("slabinfo_end", item::SLABINFO_END, None),
    ("meminfo_start", item::MEMINFO_START, None),
    ("meminfo_end", item::MEMINFO_END, None),
    ("vmstat_start", item::VMSTAT_START, None),
    ("vmstat_end", item::VMSTAT_END, None),
    ("zoneinfo_start", item::ZONEINFO_START, None),
    ("zoneinfo_end", item::ZONEINFO_END, None),
    ("buddyinfo_start", item::BUDDYINFO_START, None),
    ("buddyinfo_end", item::BUDDYINFO_END, None),
    ("vmallocinfo_start", item::VMALLOCINFO_START, None),
    ("vmallocinfo_end", item::VMALLOCINFO_END, None),
    ("allocinfo_start", item::ALLOCINFO_START, None),
    ("allocinfo_end", item::ALLOCINFO_END, None),
    ("reclaim_account", item::RECLAIM_ACCOUNT, None),
    ("threads", item::THREADS_END, None),
    ("cgroups", item::CGROUPS, None),
    ("cache_aliases", item::CACHE_ALIASES, None),
];

/// Names that the tree has beside its events, and the same as items of a recording where `keeps_items`.
fn names_beside(
    texts: &mut Texts,
    uname: &str,
    formats: &[(String, String)],
    keeps_items: bool,
) -> (Metadata, Vec<u8>) {
    let (mut names, mut items) = (MetadataBuilder::default(), Vec::new());
    let mut add = |tag: u16, text: &[u8]| {
        let mut one = Vec::new();
        item::put(&mut one, tag, 0, text);
        names.take(&one);
        if keeps_items {
            items.append(&mut one);
        }
    };
    for (file, tag, cost) in NAMES {
        let text = match cost {
            Some(cost) => texts.want(file, cost),
            None => texts.find(file),
        };
        if let Some(text) = text {
            add(tag, &text);
        }
    }
    add(item::UNAME, uname.as_bytes());
    (Metadata { gfp_names: GfpNames::of_formats(formats).map(Arc::new), ..names.finish().0 }, items)
}

/// Checksum (CRC-64/NVME) of the first bytes of each CPU's file, which hold the times of its first events, in hexadecimal digits; `None`
/// without a byte.
fn recording(raw: &[(u32, PathBuf)]) -> Option<String> {
    let mut heads = Vec::new();
    for (cpu, file) in raw {
        let head = read(file, HEAD_BYTES).filter(|head| !head.is_empty());
        if let Some(head) = head {
            heads.extend_from_slice(&cpu.to_le_bytes());
            heads.extend_from_slice(&head);
        }
    }
    (!heads.is_empty()).then(|| format!("{:016x}", Crc::<u64>::new(&CRC_64_NVME).checksum(&heads)))
}

/// The event formats of a tree; findings about those that are damaged or missing go to `report`.
fn formats(
    texts: &[(String, String)],
    path: &Path,
    report: &mut FileReport,
) -> Result<Vec<(String, EventFormat)>, OpenError> {
    let mut formats = Vec::new();
    for (system, text) in texts {
        match EventFormat::parse(text) {
            Ok(format) => formats.push((system.clone(), format)),
            Err(error) => report.add(fault(Code::BadFormats, format!("a format in events/{system}: {error}"))),
        }
    }
    let has = |event: &EventProfile| {
        formats.iter().any(|(system, format)| (system.as_str(), format.name.as_str()) == (event.system, event.name))
    };
    let has_system = |name: &str| formats.iter().any(|(system, _)| system == name);
    if !has_system("kmem") {
        // Other events may be recorded without those of slabs and pages.
        if SYSTEMS.iter().chain(&["vmscan", "compaction"]).any(|system| has_system(system)) {
            return Ok(formats);
        }
        return Err(no_trace(path, "has no events/kmem/*/format, so no event can be decoded: copy them, too"));
    }
    for EventProfile { system, name, .. } in PROFILES.iter().filter(|event| event.is_in_every_kernel && !has(event)) {
        let message = format!("events/{system}/{name}/format is missing: such events are not told from others");
        report.add(fault(Code::TreeIncomplete, message));
    }
    Ok(formats)
}

/// A stream for each CPU's file, with the counters of the `stats` beside it.
fn streams(raw: Vec<(u32, PathBuf)>, format: &Arc<PayloadFormat>) -> Result<Vec<CpuStream>, OpenError> {
    let mut streams = Vec::new();
    for (cpu, file) in raw {
        let opened = open_regular(&file)?;
        let stats = read(&file.with_file_name("stats"), MAX_TEXT_BYTES).and_then(|text| String::from_utf8(text).ok());
        let mut stream = CpuStream::raw(file, cpu, opened, Arc::clone(format));
        let report = stream.report_mut();
        report.source = Some(Source::Tracefs);
        report.counters = stats.as_deref().map(|text| Stats::parse(text).after(&Counters::default()));
        if stats.is_none() {
            let message = "its stats are missing: losses that no mark tells of are not known".to_owned();
            report.add(fault(Code::TreeIncomplete, message));
        }
        streams.push(stream);
    }
    Ok(streams)
}

/// CPUs without a file, ascending: those below the last one that has a file, and those that have only a directory.
fn missing_cpus(root: &Path, raw: &[(u32, PathBuf)]) -> Vec<u32> {
    let there: Vec<u32> = raw.iter().map(|(cpu, _)| *cpu).collect();
    let last = there.iter().copied().max().unwrap_or(0);
    let dirs = cpu_dirs(&root.join("per_cpu")).into_iter().map(|(cpu, _)| cpu);
    let expected = (0..last.min(MAX_CPUS)).chain(dirs);
    let mut missing: Vec<u32> = expected.filter(|cpu| !there.contains(cpu)).collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

fn fault(code: Code, message: String) -> Fault {
    Fault { code, offset: 0, block: None, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_and_machine_are_found_in_what_uname_prints() {
        for (text, release, machine) in [
            ("Linux host 6.1.0-50-s390x #1 SMP Debian 6.1.170-1 (2026) s390x GNU/Linux", "6.1.0-50-s390x", "s390x"),
            ("Linux (none) 6.12.1 #1 SMP ppc64le GNU/Linux", "6.12.1", "ppc64le"),
            ("Linux f 6.5.6 #1 SMP x86_64 x86_64 x86_64 GNU/Linux", "6.5.6", "x86_64"),
            ("Linux box 6.1.0 #2 armv7l", "6.1.0", "armv7l"),
        ] {
            let (r, m) = release_and_machine(text);
            assert_eq!((r.as_deref(), m.as_deref()), (Some(release), Some(machine)));
        }
        assert_eq!(release_and_machine(""), (None, None));
    }

    #[test]
    fn machines_have_their_word_size_and_byte_order() {
        assert!(is_32_bit("i686") && is_32_bit("armv7l") && !is_32_bit("x86_64") && !is_32_bit("aarch64"));
        assert_eq!(big_endian("s390x"), Some(true));
        assert_eq!(big_endian("ppc64le"), Some(false));
    }
}
