//! All of a `trace.dat` before its sub-buffers. `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)` describe the format.

use kmemtrace_abi::disk::block::Counters;
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel_texts::KernelTexts;
use kmemtrace_abi::open::trace_dat::{MAGIC, option};
use kmemtrace_abi::target::Endian;

use super::texts::{self, Names};
use crate::args::TraceDatVersion;

/// System whose formats stand apart from those of events.
const FTRACE: &str = "ftrace";
/// Bytes of a section's header: number, flags, name, length.
const SECTION_HEADER: u64 = 16;

/// Sub-buffers of a CPU.
pub(super) struct Cpu {
    pub(super) cpu: u32,
    pub(super) sub_buffers: u64,
    /// The kernel's counters at the end.
    pub(super) counters: Option<Counters>,
}

/// Contents of a file.
pub(super) struct Contents<'a> {
    pub(super) shape: &'a PageShape,
    pub(super) texts: &'a KernelTexts,
    pub(super) names: &'a Names,
    /// Ascending.
    pub(super) cpus: &'a [Cpu],
    /// Bytes of our own option.
    pub(super) kept: Vec<u8>,
}

/// All bytes up to the first sub-buffer. The sub-buffers of all CPUs follow, without anything between them.
pub(super) fn head(version: TraceDatVersion, contents: &Contents<'_>) -> Vec<u8> {
    match version {
        TraceDatVersion::V6 => version_6(contents),
        TraceDatVersion::V7 => version_7(contents),
    }
}

/// Bytes in the order of the traced machine.
struct Bytes {
    bytes: Vec<u8>,
    endian: Endian,
}

impl Bytes {
    fn number(&mut self, number: u64, len: usize) -> &mut Bytes {
        match self.endian {
            Endian::Little => self.bytes.extend_from_slice(&number.to_le_bytes()[..len]),
            Endian::Big => self.bytes.extend_from_slice(&number.to_be_bytes()[8 - len..]),
        }
        self
    }

    fn u16(&mut self, number: u16) -> &mut Bytes {
        self.number(number.into(), 2)
    }

    fn u32(&mut self, number: usize) -> &mut Bytes {
        self.number(number as u64, 4)
    }

    fn u64(&mut self, number: u64) -> &mut Bytes {
        self.number(number, 8)
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A string and its NUL.
    fn string(&mut self, text: &str) -> &mut Bytes {
        self.raw(text.as_bytes()).raw(&[0])
    }

    /// A text behind its length.
    fn text(&mut self, text: &[u8]) -> &mut Bytes {
        self.u64(text.len() as u64).raw(text)
    }

    /// A text behind its length in 4 bytes.
    fn short_text(&mut self, text: &[u8]) -> &mut Bytes {
        self.u32(text.len()).raw(text)
    }

    fn option(&mut self, id: u16, data: &[u8]) -> &mut Bytes {
        self.u16(id).short_text(data)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn pad(&mut self, to: u64) {
        self.bytes.resize(usize::try_from(to).unwrap_or(usize::MAX), 0);
    }
}

impl Contents<'_> {
    fn empty(&self) -> Bytes {
        Bytes { bytes: Vec::new(), endian: self.shape.target.endian }
    }

    /// The bytes that `put` makes.
    fn made(&self, put: impl FnOnce(&mut Bytes)) -> Vec<u8> {
        let mut bytes = self.empty();
        put(&mut bytes);
        bytes.bytes
    }

    /// First bytes of both versions. trace-cmd takes the size of a sub-buffer from here.
    fn put_head(&self, bytes: &mut Bytes, version: &str) {
        let target = &self.shape.target;
        bytes.raw(MAGIC).string(version).raw(&[u8::from(target.endian == Endian::Big), target.word_bytes]);
        bytes.u32(self.shape.size);
    }

    fn put_header_info(&self, bytes: &mut Bytes) {
        let page = texts::header_page(&self.texts.header_page, self.shape, self.shape.target.endian);
        bytes.string("header_page").text(&page);
        bytes.string("header_event").text(texts::header_event(&self.texts.header_event));
    }

    fn put_ftrace_formats(&self, bytes: &mut Bytes) {
        let formats: Vec<&str> = self.formats_of(FTRACE).collect();
        bytes.u32(formats.len());
        formats.into_iter().for_each(|text| _ = bytes.text(texts::format(text).as_bytes()));
    }

    fn put_formats(&self, bytes: &mut Bytes) {
        let mut systems: Vec<&str> = Vec::new();
        for (system, _) in &self.texts.formats {
            if system != FTRACE && !systems.contains(&system.as_str()) {
                systems.push(system);
            }
        }
        bytes.u32(systems.len());
        for system in systems {
            let formats: Vec<&str> = self.formats_of(system).collect();
            bytes.string(system).u32(formats.len());
            formats.into_iter().for_each(|text| _ = bytes.text(texts::format(text).as_bytes()));
        }
    }

    fn formats_of<'f>(&'f self, system: &'f str) -> impl Iterator<Item = &'f str> {
        self.texts.formats.iter().filter(move |(of, _)| of == system).map(|(_, text)| text.as_str())
    }

    fn clock(&self) -> Option<String> {
        self.texts.clock.as_deref().map(texts::clock)
    }

    /// CPUs from 0 on, those without sub-buffers included.
    fn cpu_count(&self) -> usize {
        let last = self.cpus.last().map_or(0, |cpu| cpu.cpu as usize + 1);
        last.max(self.texts.cpus)
    }

    /// Options that both versions have.
    fn put_options(&self, bytes: &mut Bytes) {
        for cpu in self.cpus {
            let text = self.texts.stats.iter().find(|(of, _)| *of == cpu.cpu).map(|(_, text)| text.clone());
            if let Some(text) = text.or_else(|| cpu.counters.as_ref().map(texts::of_counters)) {
                bytes.option(option::CPUSTAT, &with_nul(&texts::stats(cpu.cpu, &text)));
            }
        }
        if let Some(clock) = self.clock() {
            bytes.option(option::TRACECLOCK, &with_nul(&clock));
        }
        bytes.option(option::UNAME, &[&self.names.uname[..], b"\0"].concat());
        let count = self.made(|bytes| _ = bytes.u32(self.cpu_count()));
        bytes.option(option::CPUCOUNT, &count).option(option::KEPT, &self.kept);
    }

    /// Offset and length of each CPU's sub-buffers, which begin at the byte `at`.
    fn parts(&self, mut at: u64) -> Vec<(u32, u64, u64)> {
        let part = |cpu: &Cpu| {
            let len = cpu.sub_buffers * self.shape.size as u64;
            let part = (cpu.cpu, at, len);
            at += len;
            part
        };
        self.cpus.iter().map(part).collect()
    }

    /// The next byte from `at` on where sub-buffers may begin.
    fn aligned(&self, at: u64) -> u64 {
        at.next_multiple_of(self.shape.size as u64)
    }
}

fn with_nul(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

fn version_6(contents: &Contents<'_>) -> Vec<u8> {
    let mut file = contents.empty();
    contents.put_head(&mut file, "6");
    contents.put_header_info(&mut file);
    contents.put_ftrace_formats(&mut file);
    contents.put_formats(&mut file);
    file.short_text(&contents.names.kallsyms).short_text(b"").text(&contents.names.comms);
    let count = contents.cpu_count();
    file.u32(count).raw(b"options  \0");
    contents.put_options(&mut file);
    file.u16(option::DONE).raw(b"flyrecord\0");
    let clock = contents.clock();
    let clock_len = clock.as_ref().map_or(0, |clock| 8 + clock.len() as u64);
    let data_at = contents.aligned(file.len() + 16 * count as u64 + clock_len);
    let parts = contents.parts(data_at);
    let mut at = data_at;
    for cpu in 0..count {
        // CPUs without sub-buffers have a place, too.
        let part = parts.iter().find(|(of, ..)| *of as usize == cpu);
        let (offset, len) = part.map_or((at, 0), |&(_, offset, len)| (offset, len));
        at = offset + len;
        file.u64(offset).u64(len);
    }
    if let Some(clock) = clock {
        file.text(clock.as_bytes());
    }
    file.pad(data_at);
    file.bytes
}

fn version_7(contents: &Contents<'_>) -> Vec<u8> {
    let mut file = contents.empty();
    contents.put_head(&mut file, "7");
    file.string("none").string("");
    let options_at_place = file.bytes.len();
    file.u64(0);
    let names = contents.names;
    let sections = [
        (option::HEADER_INFO, contents.made(|bytes| contents.put_header_info(bytes))),
        (option::FTRACE_FORMATS, contents.made(|bytes| contents.put_ftrace_formats(bytes))),
        (option::EVENT_FORMATS, contents.made(|bytes| contents.put_formats(bytes))),
        (option::KALLSYMS, contents.made(|bytes| _ = bytes.short_text(&names.kallsyms))),
        (option::PRINTK, contents.made(|bytes| _ = bytes.short_text(b""))),
        (option::CMDLINES, contents.made(|bytes| _ = bytes.text(&names.comms))),
    ];
    let mut places = Vec::new();
    for (id, body) in sections {
        places.push((id, file.len()));
        put_section_header(&mut file, id, body.len() as u64);
        file.raw(&body);
    }
    let options_at = file.len();
    let options = |buffer_at: u64| {
        contents.made(|bytes| {
            for &(id, at) in &places {
                bytes.option(id, &contents.made(|bytes| _ = bytes.u64(at)));
            }
            contents.put_options(bytes);
            let parts = contents.parts(contents.aligned(buffer_at + SECTION_HEADER));
            bytes.option(option::BUFFER, &buffer(contents, buffer_at, &parts));
            bytes.option(option::DONE, &[0; 8]);
        })
    };
    // The length of the options does not depend on the places in them.
    let len = options(0).len() as u64;
    let buffer_at = options_at + SECTION_HEADER + len;
    put_section_header(&mut file, option::DONE, len);
    file.raw(&options(buffer_at));
    let data_at = contents.aligned(buffer_at + SECTION_HEADER);
    let data_len: u64 = contents.cpus.iter().map(|cpu| cpu.sub_buffers * contents.shape.size as u64).sum();
    put_section_header(&mut file, option::BUFFER, data_at + data_len - (buffer_at + SECTION_HEADER));
    file.pad(data_at);
    let at = contents.made(|bytes| _ = bytes.u64(options_at));
    file.bytes[options_at_place..options_at_place + at.len()].copy_from_slice(&at);
    file.bytes
}

fn put_section_header(file: &mut Bytes, id: u16, len: u64) {
    file.u16(id).u16(0).u32(0).u64(len);
}

/// The option of the main ring buffer.
fn buffer(contents: &Contents<'_>, section_at: u64, parts: &[(u32, u64, u64)]) -> Vec<u8> {
    contents.made(|bytes| {
        bytes.u64(section_at).string("").string(&contents.clock().unwrap_or_default());
        bytes.u32(contents.shape.size).u32(parts.len());
        for &(cpu, offset, len) in parts {
            bytes.number(cpu.into(), 4).u64(offset).u64(len);
        }
    })
}
