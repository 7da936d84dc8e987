//! `trace.dat` version 7: sections, and chains of options that say where each of them is.

use std::collections::HashSet;
use std::fs::File;
use std::io::Cursor;

use super::container::{Buffer, Container, TextPart, option, parts, text};
use super::items::{Items, Stop};
use crate::disk::part::Compression;
use crate::disk::walk::read_at;
use crate::memory;
use crate::open::spool;
use crate::target::Endian;

/// Bytes of a section's header: number, flags, name, length.
const SECTION_HEADER: u64 = 16;
/// Flag of a section that is stored compressed; of a buffer, its parts are.
const COMPRESSED: u16 = 1;
/// Largest section that is read whole, stored or expanded; `/proc/kallsyms` has about 20 MB.
const MAX_SECTION: u64 = 1 << 28;

/// Reader of the sections of one file.
pub(super) struct Sections<'a> {
    pub(super) file: &'a File,
    pub(super) endian: Endian,
    /// Compression of sections that are stored compressed; the error names one that is not known.
    compression: Result<Option<Compression>, String>,
    /// Bytes that all sections may still expand to: many options may name one section.
    room: u64,
}

/// Why a file cannot be read: an item, or the compression's name.
pub(super) enum Refusal {
    Item(Stop),
    Compression(String),
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Refusal {
        Refusal::Item(stop)
    }
}

impl<'a> Sections<'a> {
    /// Sections of a file of `len` bytes.
    pub(super) fn new(
        file: &'a File,
        len: u64,
        endian: Endian,
        compression: Result<Option<Compression>, String>,
    ) -> Sections<'a> {
        Sections { file, endian, compression, room: spool::most_unpacked(len) }
    }

    /// Reads all options from those at byte `first` on, and the sections that they name.
    pub(super) fn read(&mut self, container: &mut Container, first: u64) -> Result<(), Refusal> {
        let what = "the options";
        let (mut next, mut seen) = (first, HashSet::new());
        while next != 0 {
            if !seen.insert(next) {
                return Err(Stop::Odd(what).into());
            }
            let (id, body) = self.section(next, what)?;
            if id != option::DONE {
                return Err(Stop::Odd(what).into());
            }
            let mut items = Items::new(Cursor::new(body), 0, self.endian);
            // The last option has the place of the next section.
            next = loop {
                let (id, data) = (items.u16(what)?, items.short_text(what)?);
                if id == option::DONE {
                    break self.offset(&data)?;
                }
                self.take(container, id, data)?;
            };
        }
        Ok(())
    }

    fn take(&mut self, container: &mut Container, id: u16, data: Vec<u8>) -> Result<(), Refusal> {
        let mut body = |what| -> Result<Items<Cursor<Vec<u8>>>, Refusal> {
            let (_, body) = self.section(self.offset(&data)?, what)?;
            Ok(Items::new(Cursor::new(body), 0, self.endian))
        };
        match id {
            option::HEADER_INFO => container.take_header_info(&mut body("events/header_page")?)?,
            option::FTRACE_FORMATS => container.take_ftrace_formats(&mut body("the formats of ftrace")?)?,
            option::EVENT_FORMATS => container.take_formats(&mut body("the formats of events")?)?,
            option::KALLSYMS => container.kallsyms = body("kallsyms")?.short_text("kallsyms")?,
            option::CMDLINES => container.cmdlines = body("saved_cmdlines")?.text("saved_cmdlines")?,
            option::BUFFER => container.add_buffer(self.buffer(&data)?)?,
            option::BUFFER_TEXT => self.text(container, &data)?,
            _ => container.take_option(id, data, self.endian)?,
        }
        Ok(())
    }

    fn offset(&self, data: &[u8]) -> Result<u64, Stop> {
        Items::new(data, 0, self.endian).u64("the place of a section")
    }

    /// A buffer by its option; only its section says whether its parts are stored compressed.
    fn buffer(&self, data: &[u8]) -> Result<Buffer, Refusal> {
        let what = "the option BUFFER";
        let mut items = Items::new(data, 0, self.endian);
        let (_, flags, _) = self.header(items.u64(what)?, what)?;
        let name = items.string(what)?;
        let clock = Some(items.string(what)?).filter(|clock| !clock.is_empty());
        let sub_buffer_bytes = Some(items.u32(what)?);
        let count = items.u32(what)?;
        let parts = parts(&mut items, count, true)?;
        let compression = if flags & COMPRESSED != 0 { self.compression()? } else { None };
        Ok(Buffer { name: text(name.as_bytes()), clock, sub_buffer_bytes, compression, parts, stats: Vec::new() })
    }

    /// The text of a latency tracer: its option has the section, the name of the buffer, and the clock.
    fn text(&self, container: &mut Container, data: &[u8]) -> Result<(), Refusal> {
        let what = "the option BUFFER_TEXT";
        let mut items = Items::new(data, 0, self.endian);
        let at = items.u64(what)?;
        let (_, flags, len) = self.header(at, what)?;
        items.string(what)?;
        let clock = Some(items.string(what)?).filter(|clock| !clock.is_empty());
        container.clock = container.clock.take().or(clock);
        let compression = if flags & COMPRESSED != 0 { self.compression()? } else { None };
        container.text = Some(TextPart { offset: at.saturating_add(SECTION_HEADER), len, compression });
        Ok(())
    }

    fn compression(&self) -> Result<Option<Compression>, Refusal> {
        self.compression.clone().map_err(Refusal::Compression)
    }

    /// Number, flags and length of the section at a byte of the file.
    fn header(&self, at: u64, what: &'static str) -> Result<(u16, u16, u64), Stop> {
        let mut header = [0; SECTION_HEADER as usize];
        if read_at(self.file, &mut header, at).map_err(Stop::Io)? < header.len() {
            return Err(Stop::Cut(what));
        }
        let mut items = Items::new(&header[..], at, self.endian);
        let (id, flags) = (items.u16(what)?, items.u16(what)?);
        items.u32(what)?;
        Ok((id, flags, items.u64(what)?))
    }

    /// Number and body of the section at a byte of the file, expanded.
    fn section(&mut self, at: u64, what: &'static str) -> Result<(u16, Vec<u8>), Refusal> {
        let (id, flags, len) = self.header(at, what)?;
        let there = self.file.metadata().map_err(Stop::Io)?.len().saturating_sub(at.saturating_add(SECTION_HEADER));
        if len > there {
            return Err(Stop::Cut(what).into());
        }
        if len > MAX_SECTION {
            return Err(Stop::Odd(what).into());
        }
        self.expect(len, what)?;
        let mut body = vec![0; len as usize];
        if read_at(self.file, &mut body, at.saturating_add(SECTION_HEADER)).map_err(Stop::Io)? < body.len() {
            return Err(Stop::Cut(what).into());
        }
        if flags & COMPRESSED == 0 {
            return Ok((id, body));
        }
        let Some(compression) = self.compression()? else { return Err(Stop::Odd(what).into()) };
        let mut items = Items::new(&body[..], 0, self.endian);
        let (stored, expanded) = (items.u32(what)?, items.u32(what)?);
        if u64::from(expanded) > MAX_SECTION {
            return Err(Stop::Odd(what).into());
        }
        self.expect(expanded.into(), what)?;
        let stored = items.bytes(stored.into(), what)?;
        let expanded = compression.expand(&stored, expanded).map_err(|_| Stop::Odd(what))?;
        Ok((id, expanded))
    }

    /// Takes the memory of so many bytes of a section, which are about to be read or expanded.
    fn expect(&mut self, bytes: u64, what: &'static str) -> Result<(), Stop> {
        self.room = self.room.checked_sub(bytes).ok_or(Stop::Odd(what))?;
        memory::check(bytes).map_err(Stop::Over)
    }
}
