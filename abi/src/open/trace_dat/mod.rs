//! `trace.dat` of trace-cmd, versions 6 and 7: the kernel's own sub-buffers of each CPU in a container.
//!
//! Only the container is read here. The sub-buffers go through the same path as those of a captured tree, so stacks, latency and fields
//! are there at once. `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)` describe the format.

pub(super) mod container;
pub(super) mod items;
mod kept;
mod latency;
mod plain;
mod v6;
mod v7;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

pub use self::container::option;
use self::container::{Buffer, Container, CpuPart};
use self::items::{Items, Stop};
use self::kept::Kept;
use self::plain::{PlainFacts, page_bytes};
use self::v7::{Refusal, Sections};
use super::kept_items;
use super::listing::{io_error, no_trace};
use super::options::{OpenOptions, Wanted};
use super::spool::ReadAt;
use super::tree::release_and_machine;
use crate::disk::block::{Counters, item};
use crate::disk::part::{Compression, Part};
use crate::event::Names;
use crate::fault::{Code, Fault};
use crate::kernel::decoder::{Decoder, TraceFacts};
use crate::kernel::format::{EventFormat, PageShape};
use crate::kernel::gfp::GfpNames;
use crate::kernel::release::Release;
use crate::kernel::stats::Stats;
use crate::kernel::subbuffer::SubBuffer;
use crate::kernel_texts::KernelTexts;
use crate::open::header;
use crate::stream::CpuStream;
use crate::stream::payload::{PayloadFormat, SubBufferFormat};
use crate::stream::report::{FileReport, Source};
use crate::target::{Big, Endian, Little, TargetOrder};
use crate::trace::{Metadata, OpenError, PageBytesFrom, Trace, TraceInfo};

/// First bytes of every file.
pub const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Sub-buffer sizes that kernels have, in bytes: 4 KiB to 1 MiB.
const SUB_BUFFER_BYTES: std::ops::RangeInclusive<u32> = 1 << 10..=1 << 20;

/// True for the first bytes of a `trace.dat`.
pub(super) fn begins(sample: &[u8]) -> bool {
    sample.starts_with(MAGIC)
}

/// Opens a `trace.dat`.
pub(super) fn open(path: &Path, file: &Arc<File>, options: &OpenOptions) -> Result<Trace, OpenError> {
    let (mut container, endian) = container(file).map_err(|refusal| refused(path, refusal))?;
    container.place_stats();
    container.join_formats();
    let (kept, has_bad_option) = kept::of(&mut container, options.texts);
    if let Some(part) = container.text.filter(|_| !container.buffers.iter().any(Buffer::has_data)) {
        return latency::open(path, file, (container, endian), part, options);
    }
    let mut names = Names::new();
    let mut report = FileReport::new(path.to_owned(), None);
    if has_bad_option {
        let message = "what kmemtrace has kept in it makes no sense: it is read as a file of trace-cmd".to_owned();
        report.add(Fault { code: Code::BadFileHeader, offset: 0, block: None, message });
    }
    let formats = formats(&container, &mut report);
    let head = String::from_utf8_lossy(&container.header_page).into_owned();
    let head = PageShape::parse(&head, endian)
        .map_err(|error| no_trace(path, &format!("its events/header_page cannot be read: {error}")))?;
    let buffer = choose(path, &container, file, (head, endian), &formats, options)?;
    let shape = shape_of(head, buffer);
    let plain = PlainFacts::of(&container, buffer, kept.as_ref(), options);
    let facts = TraceFacts {
        probe_group: kept.as_ref().and_then(|kept| kept.header.probe_group.as_deref()),
        page_bytes: plain.page_bytes.0.unwrap_or(0),
        cpus: kept.as_ref().and_then(Kept::cpus).unwrap_or(plain.cpus),
        release: kept.as_ref().and_then(Kept::kernel).or(plain.kernel.as_deref()).and_then(Release::parse),
    };
    let decoder = Decoder::new(&formats, &facts, &mut names);
    let is_described = decoder.describes_deferred_frees();
    let format = Arc::new(PayloadFormat::SubBuffers(SubBufferFormat { shape, decoder }));
    let len = file.metadata().map_err(io_error(path))?.len();
    let (mut streams, missing) = match &kept {
        Some(kept) => kept_streams(path, buffer, file, (endian, len), &format, kept),
        None => streams(path, buffer, file, (endian, len), &format),
    };
    let cpus = streams.iter().map(CpuStream::cpu).collect();
    let mut info = plain.info(shape.target, format.capabilities(), (cpus, missing));
    let texts = options.texts.then(|| Box::new(kernel_texts(&container, &info, &plain, kept.as_ref())));
    let mut metadata = Metadata {
        comms: header::comms(&container.cmdlines),
        gfp_names: GfpNames::of_formats(&container.formats).map(Arc::new),
        kallsyms: container.kallsyms,
        uname: container.uname.into_bytes(),
        report: Some(report),
        texts,
        ..Metadata::default()
    };
    if let Some(kept) = kept {
        kept.put_facts(&mut info, is_described);
        metadata = kept.into_metadata(metadata);
    }
    if metadata.stacks.as_deref() == Some("") {
        streams.iter_mut().for_each(CpuStream::expect_no_stacks);
    }
    streams.iter_mut().for_each(|stream| stream.set_keys(info.keys()));
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

/// Descriptions of the events, the text of `uname`, and the bytes of a page where they are no guess.
pub(super) fn described(path: &Path, file: &Arc<File>) -> Result<(Container, String, Option<u64>), OpenError> {
    let (container, _) = container(file).map_err(|refusal| refused(path, refusal))?;
    let uname = container.uname.clone();
    let machine = release_and_machine(&uname).1;
    let (bytes, from) = page_bytes(&container, machine.as_deref(), &OpenOptions::default());
    Ok((container, uname, bytes.filter(|_| from == PageBytesFrom::Trace)))
}

/// All but the sub-buffers, and the byte order of the numbers.
fn container(file: &File) -> Result<(Container, Endian), Refusal> {
    let mut head = Items::new(BufReader::new(ReadAt::new(file)), 0, Endian::Little);
    head.bytes(MAGIC.len() as u64, "the head")?;
    let version = head.string("the version")?;
    let endian = match head.array("the head")? {
        [0] => Endian::Little,
        [1] => Endian::Big,
        _ => return Err(Stop::Odd("the byte order").into()),
    };
    let mut items = head.in_order(endian);
    // The words of trace-cmd itself; those of the kernel are in events/header_page.
    items.array::<1>("the head")?;
    let mut container = Container { page_bytes: items.u32("the head")?, ..Container::default() };
    match version.as_str() {
        "6" => v6::read(&mut container, &mut items, file, endian)?,
        "7" => {
            let compression = match (items.string("the compression")?, items.string("the compression")?) {
                (name, _) if name == "none" => Ok(None),
                (name, _) if name == "zstd" => Ok(Some(Compression::Zstd)),
                (name, _) if name == "zlib" => Ok(Some(Compression::Zlib)),
                (name, _) => Err(name),
            };
            let first = items.u64("the head")?;
            if first == 0 {
                // trace-cmd writes the place of the options last.
                return Err(Stop::Cut("the options").into());
            }
            let len = file.metadata().map_err(Stop::Io)?.len();
            Sections::new(file, len, endian, compression).read(&mut container, first)?;
        }
        _ => return Err(Stop::Odd("the version (6 and 7 are known)").into()),
    }
    container.refuse_shared_parts()?;
    Ok((container, endian))
}

/// The sentence for a file that cannot be read.
fn refused(path: &Path, refusal: Refusal) -> OpenError {
    let reason = match refusal {
        Refusal::Item(Stop::Io(error)) => return OpenError::Io { path: path.to_owned(), error },
        Refusal::Item(Stop::Over(over)) => return OpenError::Memory { path: path.to_owned(), over },
        Refusal::Item(Stop::Cut(what)) => format!(
            "a trace.dat that ends before {what}: trace-cmd has not finished it, or the copy is incomplete; if the files \
             {name}.cpu0, … are there, run: trace-cmd restore -o new.dat {name}.cpu*",
            name = path.display()
        ),
        Refusal::Item(Stop::Odd(what)) => format!("a damaged trace.dat: {what} makes no sense"),
        Refusal::Compression(name) => format!(
            "a trace.dat compressed with {name:?}, which is not known here: run trace-cmd convert --compression none -i {} -o new.dat",
            path.display()
        ),
    };
    no_trace(path, &reason)
}

/// The event formats; those that cannot be read are findings.
fn formats(container: &Container, report: &mut FileReport) -> Vec<(String, EventFormat)> {
    let mut formats = Vec::new();
    for (system, text) in &container.formats {
        match EventFormat::parse(text) {
            Ok(format) => formats.push((system.clone(), format)),
            Err(error) => report.add(Fault {
                code: Code::BadFormats,
                offset: 0,
                block: None,
                message: format!("a format of {system}: {error}"),
            }),
        }
    }
    formats
}

/// The layout of a buffer's sub-buffers: version 7 has the size for each buffer.
fn shape_of(head: PageShape, buffer: &Buffer) -> PageShape {
    let size = buffer.sub_buffer_bytes.filter(|bytes| SUB_BUFFER_BYTES.contains(bytes));
    PageShape { size: size.map_or(head.size, |bytes| bytes as usize), ..head }
}

/// The buffer that is read: the one that was asked for, the only one that has data, or the only one with events of allocations.
fn choose<'a>(
    path: &Path,
    container: &'a Container,
    file: &Arc<File>,
    (head, endian): (PageShape, Endian),
    formats: &[(String, EventFormat)],
    options: &OpenOptions,
) -> Result<&'a Buffer, OpenError> {
    let choose = |reason: String| OpenError::Choose { path: path.to_owned(), reason };
    let buffers = &container.buffers;
    let list = |found: &[(&Buffer, BTreeSet<&str>)]| {
        let one = |(buffer, systems): &(&Buffer, BTreeSet<&str>)| {
            let events: Vec<&str> = systems.iter().copied().collect();
            format!(
                "'{}' ({})",
                buffer.name,
                if events.is_empty() { "no events".to_owned() } else { events.join(", ") }
            )
        };
        found.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let systems_of = |buffer: &'a Buffer| (buffer, systems(buffer, file, (shape_of(head, buffer), endian), formats));
    if let Some(name) = &options.buffer {
        return buffers.iter().find(|buffer| buffer.name == *name).ok_or_else(|| {
            let all: Vec<_> = buffers.iter().map(systems_of).collect();
            choose(format!("has no buffer '{name}'; it has {}", list(&all)))
        });
    }
    let with_data: Vec<&Buffer> = buffers.iter().filter(|buffer| buffer.has_data()).collect();
    match with_data[..] {
        [] => buffers.first().ok_or_else(|| no_trace(path, "a trace.dat without a buffer")),
        [buffer] => Ok(buffer),
        _ => {
            let all: Vec<_> = with_data.into_iter().map(systems_of).collect();
            for wanted in options.wanted.order().map(Wanted::systems) {
                let has = |(_, systems): &&(&Buffer, BTreeSet<&str>)| wanted.iter().any(|name| systems.contains(name));
                match all.iter().filter(has).collect::<Vec<_>>()[..] {
                    [] => {}
                    [(buffer, _)] => return Ok(buffer),
                    _ => break,
                }
            }
            Err(choose(format!("has events of several buffers: {}; choose one with --buffer NAME", list(&all))))
        }
    }
}

/// The systems of the events in a buffer, as far as the file describes them.
fn systems<'f>(
    buffer: &Buffer,
    file: &Arc<File>,
    (shape, endian): (PageShape, Endian),
    formats: &'f [(String, EventFormat)],
) -> BTreeSet<&'f str> {
    let of_id: HashMap<u16, &str> = formats.iter().map(|(system, format)| (format.id, system.as_str())).collect();
    let mut found = BTreeSet::new();
    for part in &buffer.parts {
        let mut part = bytes_of(part, buffer, file, endian);
        let mut page = vec![0; shape.size];
        while part.fill_from(&mut page).is_ok_and(|len| len == page.len()) {
            match endian {
                Endian::Little => add_systems::<Little>(&shape, &page, &of_id, &mut found),
                Endian::Big => add_systems::<Big>(&shape, &page, &of_id, &mut found),
            }
        }
    }
    found
}

fn add_systems<'f, O: TargetOrder>(
    shape: &PageShape,
    page: &[u8],
    of_id: &HashMap<u16, &'f str>,
    found: &mut BTreeSet<&'f str>,
) {
    let Ok(sub_buffer) = SubBuffer::parse::<O>(shape, page) else { return };
    for record in sub_buffer.records::<O>().map_while(Result::ok) {
        let Some(id) = record.payload.first_chunk() else { continue };
        let id = if O::ENDIAN == Endian::Little { u16::from_le_bytes(*id) } else { u16::from_be_bytes(*id) };
        found.extend(of_id.get(&id).copied());
    }
}

fn bytes_of(part: &CpuPart, buffer: &Buffer, file: &Arc<File>, endian: Endian) -> Part {
    match buffer.compression {
        None => Part::range(Arc::clone(file), part.offset, part.len),
        Some(compression) => Part::chunks(Arc::clone(file), part.offset, part.len, compression, endian),
    }
}

/// The texts of the file, for a writer of another one.
fn kernel_texts(container: &Container, info: &TraceInfo, plain: &PlainFacts, kept: Option<&Kept>) -> KernelTexts {
    let items = kept.and_then(|kept| kept.items.clone()).unwrap_or_else(|| {
        let mut items = kept_items::header_items(info, Some(info.page_bytes_from.name()));
        item::put(&mut items, item::COMMS, 0, &container.cmdlines);
        items
    });
    KernelTexts {
        header_page: container.header_page.clone(),
        header_event: container.header_event.clone(),
        formats: container.formats.clone(),
        clock: container.clock.clone(),
        uname: container.uname.clone().into_bytes(),
        stats: plain.stats.clone(),
        cpus: plain.cpus,
        items,
    }
}

/// As [`streams`], of the CPUs that the file keeps more facts of.
fn kept_streams(
    path: &Path,
    buffer: &Buffer,
    file: &Arc<File>,
    (endian, len): (Endian, u64),
    format: &Arc<PayloadFormat>,
    kept: &Kept,
) -> (Vec<CpuStream>, Vec<u32>) {
    let (mut streams, mut missing) = (Vec::new(), Vec::new());
    for (cpu, loss) in kept.of_cpus() {
        let part = buffer.parts.iter().find(|part| part.cpu == cpu).filter(|_| !loss.is_missing);
        let Some(part) = part.filter(|part| part.len == 0 || part.offset < len) else {
            missing.push(cpu);
            streams.push(CpuStream::missing(path.to_owned(), cpu));
            continue;
        };
        let bytes = bytes_of(part, buffer, file, endian);
        let mut stream = CpuStream::part(path.to_owned(), cpu, bytes, Arc::clone(format));
        stream.report_mut().source = Some(Source::Tracefs);
        stream.tell_loss(loss.clone());
        streams.push(stream);
    }
    streams.sort_by_key(CpuStream::cpu);
    (streams, missing)
}

/// Counters of a CPU at the end: the file has what was still in the buffer by then as well as what had been handed out.
fn of_file(stats: Stats) -> Stats {
    let read = if stats.counts_reads { stats.read.saturating_add(stats.entries) } else { 0 };
    Stats { read, ..stats }
}

/// A stream for each CPU, and the CPUs whose sub-buffers the file should have and that are behind its end.
fn streams(
    path: &Path,
    buffer: &Buffer,
    file: &Arc<File>,
    (endian, len): (Endian, u64),
    format: &Arc<PayloadFormat>,
) -> (Vec<CpuStream>, Vec<u32>) {
    let (mut streams, mut missing) = (Vec::new(), Vec::new());
    for (n, part) in buffer.parts.iter().enumerate() {
        if part.len > 0 && part.offset >= len {
            missing.push(part.cpu);
            streams.push(CpuStream::missing(path.to_owned(), part.cpu));
            continue;
        }
        let bytes = bytes_of(part, buffer, file, endian);
        let mut stream = CpuStream::part(path.to_owned(), part.cpu, bytes, Arc::clone(format));
        let report = stream.report_mut();
        report.source = Some(Source::Tracefs);
        let stats = buffer.stats.get(n).filter(|_| buffer.stats.len() == buffer.parts.len());
        report.counters = stats.map(|text| of_file(Stats::parse(text)).after(&Counters::default()));
        streams.push(stream);
    }
    (streams, missing)
}
