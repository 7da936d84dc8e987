//! ELF files of kernels and modules: plain, gzip, xz or zstd; any byte order and word size.
//!
//! Headers are read at once, contents when they are asked for and by position: a distribution's kernel has 600 MB, and a file
//! that shrinks while it is mapped would end the process. Every number in the file is hostile.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use kmemtrace_abi::kernel::notes;
use kmemtrace_abi::memory;
use kmemtrace_abi::open::regular;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::text::cut::{MAX_NAME_BYTES, cut};
use kmemtrace_abi::text::escape::escape;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{CompressionHeader, FileHeader, SectionHeader};
use object::{Endianness, ReadCache, ReadRef};

use super::unpack::{self, Packing};
use crate::names::work::Work;

/// Largest number of sections. The largest modules have some thousands.
const MAX_SECTIONS: usize = 1 << 20;
/// Largest size of a section with notes that is read for the build-id.
const MAX_NOTES: u64 = 1 << 20;
/// Largest number of such sections.
const MAX_NOTE_SECTIONS: usize = 64;
/// Unit of what a file takes on the disk, in bytes, whatever the file system's own is.
const BLOCK_BYTES: u64 = 512;
/// Memory of a section and its header, in bytes.
const SECTION_BYTES: u64 = 256;
/// Largest size of the names of sections.
const MAX_SECTION_NAMES: u64 = 64 << 20;
/// Largest size of a module's file. The largest, of graphics, have some 100 MB.
const MAX_WHOLE: u64 = 1 << 30;
/// Bytes before the content of a section `.zdebug_…`: `ZLIB` and the size.
const ZDEBUG_HEADER: u64 = 12;

/// Reason for which an ELF file is of no use.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", escape(path.as_os_str().as_encoded_bytes()))]
pub(crate) struct ImageError {
    /// The file.
    pub(crate) path: PathBuf,
    /// Words that follow the path.
    pub(crate) why: String,
    /// The path leads to no file, in contrast to a file that is of no use.
    pub(crate) is_missing: bool,
    /// The file takes more than the process may spend on it.
    pub(crate) is_spent: bool,
}

/// ELF file: its sections, and contents on demand.
#[derive(Debug)]
pub(crate) struct Image {
    path: PathBuf,
    /// Bytes that the file takes on the disk.
    stored: u64,
    data: Data,
    /// Byte order.
    pub(crate) endian: Endianness,
    /// True for 8-byte addresses.
    pub(crate) is_64: bool,
    /// Machine, as `elf::EM_X86_64`.
    pub(crate) machine: elf::Machine,
    /// True for an object whose sections have no addresses yet: `.o`, `.ko`.
    pub(crate) is_relocatable: bool,
    /// By the index that symbols use; the first is empty.
    pub(crate) sections: Vec<Section>,
}

/// Section of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// Name, any bytes; `.debug_info` also where it is `.zdebug_info`.
    pub(crate) name: Box<[u8]>,
    /// Type, as `elf::SHT_NOTE.0`.
    pub(crate) kind: u32,
    /// Flags, as `elf::SHF_ALLOC`.
    pub(crate) flags: u64,
    /// Address; 0 in a relocatable object.
    pub(crate) address: u64,
    /// Bytes of the content once it is unpacked, and of memory where it has none.
    pub(crate) size: u64,
    /// Section that `sh_link` names: of a table of symbols the strings.
    pub(crate) link: usize,
    /// Section that `sh_info` names: of relocations the one that they change.
    pub(crate) info: usize,
    /// Alignment of its address, at least 1.
    pub(crate) align: u64,
    /// Bytes in the file; empty for a section without content.
    stored: Range<u64>,
    packing: Option<SectionPacking>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionPacking {
    Zlib,
    Zstd,
    Unknown,
}

/// Bytes of the file: on disk, or unpacked in memory.
#[derive(Debug)]
enum Data {
    File { file: File, len: u64 },
    Memory(Vec<u8>),
}

impl Section {
    /// True for code that the kernel loads.
    pub(crate) fn is_executable(&self) -> bool {
        let wanted = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
        self.flags & wanted == wanted
    }

    /// True for a section that is in memory once the image is loaded.
    pub(crate) fn is_allocated(&self) -> bool {
        self.flags & elf::SHF_ALLOC.0 != 0
    }

    /// True for bytes that the file has none of, as `.bss`.
    pub(crate) fn is_nobits(&self) -> bool {
        self.kind == elf::SHT_NOBITS.0
    }
}

impl Image {
    /// Opens a file and reads its headers.
    pub(crate) fn open(path: &Path) -> Result<Image, ImageError> {
        let failed = |error: &io::Error| ImageError {
            path: path.to_owned(),
            why: error.to_string(),
            is_missing: matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
            is_spent: error.kind() == io::ErrorKind::OutOfMemory,
        };
        let file = regular::open(path).map_err(|e| failed(&e))?;
        let data = file.metadata().map_err(|e| failed(&e))?;
        let (len, stored) = (data.len(), data.len().min(data.blocks().saturating_mul(BLOCK_BYTES)));
        let mut head = [0; Packing::MAGIC_BYTES];
        let head_bytes = file.read_at(&mut head, 0).map_err(|e| failed(&e))?;
        let data = match Packing::of(head.get(..head_bytes).unwrap_or_default()) {
            Some(packing) => Data::Memory(packing.unpack(&file, len).map_err(|e| failed(&e))?),
            None => Data::File { file, len },
        };
        Image::of_data(path, data, stored)
    }

    /// Reads the headers of an ELF file in memory. `path` stands in errors.
    #[cfg(test)]
    pub(crate) fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Image, ImageError> {
        let stored = bytes.len() as u64;
        Image::of_data(path, Data::Memory(bytes), stored)
    }

    fn of_data(path: &Path, data: Data, stored: u64) -> Result<Image, ImageError> {
        let mut image = Image {
            path: path.to_owned(),
            stored,
            data,
            endian: Endianness::Little,
            is_64: false,
            machine: elf::Machine(0),
            is_relocatable: false,
            sections: Vec::new(),
        };
        let read = match &image.data {
            Data::File { file, .. } => Headers::read(&ReadCache::new(file)),
            Data::Memory(bytes) => Headers::read(&bytes[..]),
        };
        let headers = read.map_err(|Unread { why, is_spent }| ImageError { is_spent, ..image.error(why) })?;
        (image.endian, image.is_64, image.machine) = (headers.endian, headers.is_64, headers.machine);
        image.is_relocatable = headers.is_relocatable;
        image.sections = headers.sections;
        image.find_old_packings();
        Ok(image)
    }

    /// An error about this file.
    pub(crate) fn error(&self, why: impl Into<String>) -> ImageError {
        ImageError { path: self.path.clone(), why: why.into(), is_missing: false, is_spent: false }
    }

    /// Work that reading it may take.
    pub(crate) fn work(&self) -> Work {
        Work::of(self.stored)
    }

    /// Checks that this many bytes can be taken into memory.
    fn check_memory(&self, bytes: u64) -> Result<(), ImageError> {
        memory::check(bytes).map_err(|over| ImageError { is_spent: true, ..self.error(over.to_string()) })
    }

    /// The first section of this name.
    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section> {
        self.sections.iter().find(|section| *section.name == *name)
    }

    /// True for debug information with lines: what `addr2line` needs.
    pub(crate) fn has_dwarf(&self) -> bool {
        [&b".debug_info"[..], b".debug_line", b".debug_abbrev"]
            .iter()
            .all(|name| self.section(name).is_some_and(|section| section.size > 0 && !section.is_nobits()))
    }

    /// Content of a section, unpacked; empty where it has none.
    pub(crate) fn content(&self, section: &Section) -> Result<Vec<u8>, ImageError> {
        let stored = self.read(section.stored.clone())?;
        let unpacked = match section.packing {
            None => return Ok(stored),
            Some(SectionPacking::Zlib) => unpack::zlib(&stored, section.size),
            Some(SectionPacking::Zstd) => unpack::zstandard(&stored, section.size),
            Some(SectionPacking::Unknown) => return Err(self.error("it has sections of an unknown compression")),
        };
        unpacked.map_err(|error| {
            let is_spent = error.kind() == io::ErrorKind::OutOfMemory;
            ImageError { is_spent, ..self.error(format!("section {}: {error}", escape(&section.name))) }
        })
    }

    /// True if parts of the section can be read by themselves.
    pub(crate) fn is_plain(&self, section: &Section) -> bool {
        section.packing.is_none()
    }

    /// A part of a plain section; an error where the section ends before.
    pub(crate) fn part(&self, section: &Section, range: Range<u64>) -> Result<Vec<u8>, ImageError> {
        let start = section.stored.start.checked_add(range.start);
        let end = section.stored.start.checked_add(range.end).filter(|&end| end <= section.stored.end);
        match start.zip(end) {
            Some((start, end)) if section.packing.is_none() => self.read(start..end),
            _ => Err(self.error(format!("section {} ends too early", escape(&section.name)))),
        }
    }

    /// All bytes of the file, unpacked; for files of modest size only.
    pub(crate) fn whole(&self) -> Result<Cow<'_, [u8]>, ImageError> {
        match &self.data {
            Data::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
            Data::File { len, .. } if *len <= MAX_WHOLE => Ok(Cow::Owned(self.read(0..*len)?)),
            Data::File { .. } => Err(self.error("it is too large for a module")),
        }
    }

    /// Build-id of the file's notes.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        let endian = if self.endian == Endianness::Big { Endian::Big } else { Endian::Little };
        let notes = self.sections.iter().filter(|s| s.kind == elf::SHT_NOTE.0 && s.size <= MAX_NOTES);
        notes
            .take(MAX_NOTE_SECTIONS)
            .find_map(|section| notes::build_id(&self.content(section).ok()?, endian).map(<[u8]>::to_vec))
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>, ImageError> {
        let ends_early = || self.error("the file ends too early: it is cut, or still being written");
        self.check_memory(range.end.saturating_sub(range.start))?;
        match &self.data {
            Data::Memory(bytes) => {
                let range = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
                Ok(range.and_then(|(start, end)| bytes.get(start..end)).ok_or_else(ends_early)?.to_vec())
            }
            Data::File { file, len } => {
                // The file's size bounds what is taken.
                let size = range.end.checked_sub(range.start).filter(|_| range.end <= *len).ok_or_else(ends_early)?;
                let mut bytes = vec![0; usize::try_from(size).map_err(|_| ends_early())?];
                file.read_exact_at(&mut bytes, range.start).map_err(|error| self.error(error.to_string()))?;
                Ok(bytes)
            }
        }
    }

    /// Calls `.zdebug_…`, the compressed sections of old linkers, by their new names.
    fn find_old_packings(&mut self) {
        for at in 0..self.sections.len() {
            let Some(section) = self.sections.get(at) else { continue };
            let (Some(name), None) = (section.name.strip_prefix(b".zdebug_"), section.packing) else { continue };
            let name = [b".debug_", name].concat().into();
            let stored = section.stored.start.saturating_add(ZDEBUG_HEADER)..section.stored.end;
            let Ok(head) = self.part(section, 0..ZDEBUG_HEADER) else { continue };
            let Some((b"ZLIB", size)) = head.split_first_chunk() else { continue };
            let Some(section) = self.sections.get_mut(at) else { continue };
            section.size = size.iter().fold(0, |size, &byte| size << 8 | u64::from(byte));
            (section.name, section.stored, section.packing) = (name, stored, Some(SectionPacking::Zlib));
        }
    }
}

/// Parts of the headers that an image keeps.
struct Headers {
    endian: Endianness,
    is_64: bool,
    machine: elf::Machine,
    is_relocatable: bool,
    sections: Vec<Section>,
}

/// Reason for which headers cannot be read.
struct Unread {
    why: String,
    /// They take too much memory.
    is_spent: bool,
}

impl From<object::read::Error> for Unread {
    fn from(error: object::read::Error) -> Unread {
        Unread { why: format!("it is not a complete ELF file: {error}"), is_spent: false }
    }
}

impl From<memory::OverLimit> for Unread {
    fn from(over: memory::OverLimit) -> Unread {
        Unread { why: over.to_string(), is_spent: true }
    }
}

/// Name that begins at `offset`, cut to the length of names.
pub(crate) fn name_in(names: &[u8], offset: u32) -> &[u8] {
    let rest = usize::try_from(offset).ok().and_then(|offset| names.get(offset..)).unwrap_or_default();
    let name = rest.get(..=MAX_NAME_BYTES).unwrap_or(rest);
    cut(memchr::memchr(0, name).and_then(|end| name.get(..end)).unwrap_or(name))
}

impl Headers {
    fn read<'d, R: ReadRef<'d>>(data: R) -> Result<Headers, Unread> {
        let ident = data.read_bytes_at(0, 5).unwrap_or_default();
        match ident {
            [0x7f, b'E', b'L', b'F', 1] => Headers::parse::<FileHeader32<Endianness>, R>(data),
            [0x7f, b'E', b'L', b'F', 2] => Headers::parse::<FileHeader64<Endianness>, R>(data),
            _ => Err(Unread { why: "it is not an ELF file".into(), is_spent: false }),
        }
    }

    fn parse<'d, H, R>(data: R) -> Result<Headers, Unread>
    where
        H: FileHeader<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        let header = H::parse(data)?;
        let endian = header.endian()?;
        let count = header.shnum(endian, data)?;
        let names_at = header.section_strings_index(endian, data)?;
        if count as usize > MAX_SECTIONS {
            return Err(Unread { why: format!("it has {count} sections"), is_spent: false });
        }
        memory::check(u64::from(count) * SECTION_BYTES)?;
        let table = header.sections(endian, data)?;
        // All names in one piece: one by one, each would be kept, and they may overlap.
        let names = table.section(names_at).map(|section| section.file_range(endian));
        let names = names.ok().flatten().filter(|(_, len)| *len <= MAX_SECTION_NAMES);
        memory::check(names.map_or(0, |(_, len)| len))?;
        let names = names.and_then(|(start, len)| data.read_bytes_at(start, len).ok()).unwrap_or_default();
        let mut sections = Vec::new();
        for section in table.iter() {
            let (start, len) = section.file_range(endian).unwrap_or_default();
            let mut parsed = Section {
                name: name_in(names, section.sh_name(endian)).into(),
                kind: section.sh_type(endian).0,
                flags: section.sh_flags(endian).0,
                address: section.sh_addr(endian).into(),
                size: section.sh_size(endian).into(),
                link: section.link(endian).0,
                info: section.info_link(endian).0,
                align: section.sh_addralign(endian).into().max(1),
                stored: start..start.saturating_add(len),
                packing: None,
            };
            if let Ok(Some((packed, offset, len))) = section.compression(endian, data) {
                parsed.size = packed.ch_size(endian).into();
                parsed.align = packed.ch_addralign(endian).into().max(1);
                parsed.stored = offset..offset.saturating_add(len);
                parsed.packing = Some(match packed.ch_type(endian) {
                    elf::ELFCOMPRESS_ZLIB => SectionPacking::Zlib,
                    elf::ELFCOMPRESS_ZSTD => SectionPacking::Zstd,
                    _ => SectionPacking::Unknown,
                });
            }
            sections.push(parsed);
        }
        Ok(Headers {
            endian,
            is_64: header.is_type_64(),
            machine: header.e_machine(endian),
            is_relocatable: header.e_type(endian) == elf::ET_REL,
            sections,
        })
    }
}
