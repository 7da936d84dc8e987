//! What both versions of `trace.dat` hold, and the parts that they write alike.

use std::io::Read;

use super::items::{Items, Stop};
use crate::disk::part::Compression;
use crate::target::Endian;

/// Buffers of a file, at most: a kernel has some instances.
const MAX_BUFFERS: usize = 1 << 10;
/// Parts of one buffer, at most: those of the CPUs that a kernel can have.
const MAX_PARTS: u32 = 1 << 13;

/// System of the records that need no event to be enabled, as call stacks.
const FTRACE: &str = "ftrace";

/// Numbers of options, as trace-cmd has them (`include/private/trace-cmd-private.h`, version 3.1).
pub mod option {
    /// End of the options; the section of options in version 7.
    pub const DONE: u16 = 0;
    /// Text of a CPU's `stats`.
    pub const CPUSTAT: u16 = 2;
    /// Place of a ring buffer.
    pub const BUFFER: u16 = 3;
    /// Text of `trace_clock`.
    pub const TRACECLOCK: u16 = 4;
    /// Output of `uname`.
    pub const UNAME: u16 = 5;
    /// Number of CPUs, u32.
    pub const CPUCOUNT: u16 = 8;
    /// Section of `events/header_page` and `events/header_event`.
    pub const HEADER_INFO: u16 = 16;
    /// Section of the formats of the system `ftrace`.
    pub const FTRACE_FORMATS: u16 = 17;
    /// Section of the formats of all other systems.
    pub const EVENT_FORMATS: u16 = 18;
    /// Section of `/proc/kallsyms`.
    pub const KALLSYMS: u16 = 19;
    /// Section of `printk_formats`.
    pub const PRINTK: u16 = 20;
    /// Section of `saved_cmdlines`.
    pub const CMDLINES: u16 = 21;
    /// Text of a latency tracer.
    pub const BUFFER_TEXT: u16 = 22;
    /// What `kmemtrace-report export --to trace-dat` keeps.
    pub const KEPT: u16 = 0x4b4d;
}

/// Sub-buffers of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuPart {
    pub(super) cpu: u32,
    /// Offset in the file, in bytes.
    pub(super) offset: u64,
    /// Bytes in the file.
    pub(super) len: u64,
}

/// A ring buffer of the traced machine: the main one, whose name is empty, or an instance's.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) name: String,
    /// Text of its `trace_clock`, or the clock's name alone.
    pub(super) clock: Option<String>,
    /// Bytes of a sub-buffer; version 6 has none for each buffer.
    pub(super) sub_buffer_bytes: Option<u32>,
    /// Compression of its parts; `None`: they are stored as they are.
    pub(super) compression: Option<Compression>,
    pub(super) parts: Vec<CpuPart>,
    /// Texts of its `per_cpu/cpuN/stats`, in the order of the CPUs; empty where the file has none of this buffer.
    pub(super) stats: Vec<String>,
}

/// The text of a latency tracer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextPart {
    /// Offset in the file, in bytes.
    pub(super) offset: u64,
    /// Bytes in the file.
    pub(super) len: u64,
    /// Compression of its chunks; `None`: it is stored as it is.
    pub(super) compression: Option<Compression>,
}

impl Buffer {
    pub(super) fn has_data(&self) -> bool {
        self.parts.iter().any(|part| part.len > 0)
    }
}

/// The contents of a file, but for its sub-buffers.
#[derive(Debug, Default)]
pub(crate) struct Container {
    /// The size of pages in the head, in bytes.
    pub(super) page_bytes: u32,
    pub(crate) header_page: Vec<u8>,
    pub(super) header_event: Vec<u8>,
    /// Formats of the system `ftrace` that the file has apart from the others.
    pub(super) ftrace_formats: Vec<String>,
    /// (system, format text) of each event.
    pub(crate) formats: Vec<(String, String)>,
    pub(super) kallsyms: Vec<u8>,
    pub(super) cmdlines: Vec<u8>,
    pub(super) clock: Option<String>,
    pub(super) uname: String,
    /// Number of CPUs, where the file has it.
    pub(super) cpus: Option<u32>,
    pub(super) buffers: Vec<Buffer>,
    /// Texts of the CPUSTAT options, in their order.
    pub(super) stats: Vec<String>,
    /// Bytes of our own option.
    pub(super) kept: Option<Vec<u8>>,
    /// Text of a latency tracer, in place of sub-buffers.
    pub(super) text: Option<TextPart>,
}

impl Container {
    /// Descriptions of events alone.
    pub(crate) fn of_formats(header_page: Vec<u8>, formats: Vec<(String, String)>) -> Container {
        Container { header_page, formats, ..Container::default() }
    }

    /// Takes `events/header_page` and `events/header_event`.
    pub(super) fn take_header_info(&mut self, items: &mut Items<impl Read>) -> Result<(), Stop> {
        for name in ["header_page", "header_event"] {
            if items.string("events/header_page")? != name {
                return Err(Stop::Odd("events/header_page"));
            }
            let text = items.text("events/header_page")?;
            if name == "header_page" {
                self.header_page = text;
            } else {
                self.header_event = text;
            }
        }
        Ok(())
    }

    /// Takes what version 6 and the tracing data of perf have in common, up to the formats of events.
    pub(crate) fn take_descriptions(&mut self, items: &mut Items<impl Read>) -> Result<(), Stop> {
        self.take_header_info(items)?;
        self.take_ftrace_formats(items)?;
        self.take_formats(items)
    }

    /// Takes the formats of the system `ftrace`.
    pub(super) fn take_ftrace_formats(&mut self, items: &mut Items<impl Read>) -> Result<(), Stop> {
        let what = "the formats of ftrace";
        for _ in 0..items.u32(what)? {
            let text = items.text(what)?;
            self.ftrace_formats.push(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(())
    }

    /// Puts the formats of `ftrace` among the others, unless they are there.
    pub(super) fn join_formats(&mut self) {
        if self.formats.iter().all(|(system, _)| system != FTRACE) {
            self.formats.extend(self.ftrace_formats.drain(..).map(|text| (FTRACE.to_owned(), text)));
        }
    }

    /// Takes the formats of events by their systems.
    pub(super) fn take_formats(&mut self, items: &mut Items<impl Read>) -> Result<(), Stop> {
        let what = "the formats of events";
        for _ in 0..items.u32(what)? {
            let system = items.string(what)?;
            for _ in 0..items.u32(what)? {
                let text = items.text(what)?;
                self.formats.push((system.clone(), String::from_utf8_lossy(&text).into_owned()));
            }
        }
        Ok(())
    }

    /// Takes an option that both versions have; a caller has looked at the others.
    pub(super) fn take_option(&mut self, id: u16, data: Vec<u8>, endian: Endian) -> Result<(), Stop> {
        match id {
            option::CPUSTAT => self.stats.push(text(&data)),
            option::TRACECLOCK => self.clock = Some(text(&data)),
            option::UNAME => self.uname = text(&data),
            option::KEPT => self.kept = Some(data),
            option::CPUCOUNT => self.cpus = Some(Items::new(&data[..], 0, endian).u32("the option CPUCOUNT")?),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn add_buffer(&mut self, buffer: Buffer) -> Result<(), Stop> {
        if self.buffers.len() == MAX_BUFFERS {
            return Err(Stop::Odd("the number of buffers"));
        }
        self.buffers.push(buffer);
        Ok(())
    }

    /// Refuses parts that share bytes of the file: their events would count twice.
    pub(super) fn refuse_shared_parts(&self) -> Result<(), Stop> {
        let parts = self.buffers.iter().flat_map(|buffer| &buffer.parts).filter(|part| part.len > 0);
        let mut places: Vec<(u64, u64)> = parts.map(|part| (part.offset, part.len)).collect();
        places.sort_unstable();
        let mut end = 0;
        for (offset, len) in places {
            if offset < end {
                return Err(Stop::Odd("the table of CPUs, two of which have the same data,"));
            }
            end = offset.saturating_add(len);
        }
        Ok(())
    }

    /// Gives each buffer its statistics: a block of one text a CPU for each, in the order of the buffers. A main buffer that was not
    /// recorded has none, so blocks match from the end.
    pub(super) fn place_stats(&mut self) {
        let mut blocks: Vec<Vec<(u32, String)>> = Vec::new();
        for text in std::mem::take(&mut self.stats) {
            let cpu = text.lines().find_map(|line| line.trim().strip_prefix("CPU:")?.trim().parse().ok());
            let Some(cpu) = cpu else {
                blocks.push(Vec::new());
                continue;
            };
            match blocks.last_mut() {
                Some(block) if block.last().is_none_or(|&(last, _)| last < cpu) => block.push((cpu, text)),
                _ => blocks.push(vec![(cpu, text)]),
            }
        }
        blocks.retain(|block| !block.is_empty());
        for (buffer, block) in self.buffers.iter_mut().rev().zip(blocks.into_iter().rev()) {
            let of = |part: &CpuPart| block.iter().find(|(cpu, _)| *cpu == part.cpu).map(|(_, text)| text.clone());
            buffer.stats = buffer.parts.iter().filter_map(of).collect();
        }
    }
}

/// The table of a buffer's parts: `with_cpu`, as version 7 writes it, each has its CPU in front, else they count from 0.
pub(super) fn parts(items: &mut Items<impl Read>, count: u32, with_cpu: bool) -> Result<Vec<CpuPart>, Stop> {
    let what = "the table of CPUs";
    if count > MAX_PARTS {
        return Err(Stop::Odd(what));
    }
    let mut parts = Vec::new();
    for n in 0..count {
        let cpu = if with_cpu { items.u32(what)? } else { n };
        parts.push(CpuPart { cpu, offset: items.u64(what)?, len: items.u64(what)? });
    }
    parts.sort_by_key(|part| part.cpu);
    if parts.iter().zip(parts.iter().skip(1)).any(|(one, next)| one.cpu == next.cpu) {
        return Err(Stop::Odd(what));
    }
    Ok(parts)
}

/// Text up to a NUL, without the newlines around it.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).trim().to_owned()
}
