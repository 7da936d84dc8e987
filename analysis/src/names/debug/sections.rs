//! Sections with DWARF: those of a kernel stay in its file but for small ones, those of a module are relocated in memory.

use std::borrow::Cow;
use std::ops::Range;

use gimli::{DebugInfoOffset, EndianSlice, RunTimeEndian, SectionId};
use object::Endianness;

use super::image::{Image, ImageError, Section};
use crate::names::work::Spent;

/// Bytes of a section, or of a part of one.
pub(crate) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
/// All sections, with one unit in place of `.debug_info`.
pub(crate) type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;

/// Sections that are held in memory. A distribution's kernel has 35 MB of them, and 165 MB of `.debug_info`.
const HELD: [SectionId; 8] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Reason for which a unit has no names: it makes no sense, or takes more work than any real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl From<gimli::Error> for Broken {
    fn from(_: gimli::Error) -> Broken {
        Broken
    }
}

impl From<Spent> for Broken {
    fn from(_: Spent) -> Broken {
        Broken
    }
}

impl From<ImageError> for Broken {
    fn from(_: ImageError) -> Broken {
        Broken
    }
}

/// DWARF sections of one file.
#[derive(Debug)]
pub(crate) struct Sections {
    held: [Vec<u8>; HELD.len()],
    info: Info,
    endian: RunTimeEndian,
}

#[derive(Debug)]
enum Info {
    Memory(Vec<u8>),
    File(Box<(Image, Section)>),
}

impl Sections {
    /// Sections of a linked image, in which every value is in place already.
    pub(crate) fn of_image(image: Image) -> Result<Sections, ImageError> {
        Sections::held_of_image(image, |_| true)
    }

    /// The same without the tables of lines, half of the memory, for who needs units alone.
    pub(crate) fn without_lines(image: Image) -> Result<Sections, ImageError> {
        Sections::held_of_image(image, |id| id != SectionId::DebugLine)
    }

    fn held_of_image(image: Image, is_held: impl Fn(SectionId) -> bool) -> Result<Sections, ImageError> {
        let endian = run_time(image.endian);
        let mut held: [Vec<u8>; HELD.len()] = Default::default();
        for (held, id) in held.iter_mut().zip(HELD).filter(|(_, id)| is_held(*id)) {
            if let Some(section) = image.section(id.name().as_bytes()) {
                *held = image.content(section)?;
            }
        }
        let info = match image.section(b".debug_info").cloned() {
            None => return Err(image.error("it has no debug information")),
            Some(section) if image.is_plain(&section) => Info::File(Box::new((image, section))),
            Some(section) => Info::Memory(image.content(&section)?),
        };
        Ok(Sections { held, info, endian })
    }

    /// Sections that `read` returns by name, all in memory.
    pub(crate) fn in_memory<E>(
        endian: Endianness,
        mut read: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Sections, E> {
        let mut held: [Vec<u8>; HELD.len()] = Default::default();
        for (held, id) in held.iter_mut().zip(HELD) {
            *held = read(id.name())?;
        }
        Ok(Sections { held, info: Info::Memory(read(SectionId::DebugInfo.name())?), endian: run_time(endian) })
    }

    /// Bytes of `.debug_info`.
    pub(crate) fn info_len(&self) -> u64 {
        match &self.info {
            Info::Memory(bytes) => bytes.len() as u64,
            Info::File(file) => file.1.size,
        }
    }

    /// A part of `.debug_info`.
    pub(crate) fn info(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>, Broken> {
        match &self.info {
            Info::Memory(bytes) => {
                let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
                Ok(Cow::Borrowed(bytes.get(range).ok_or(Broken)?))
            }
            Info::File(file) => Ok(Cow::Owned(file.0.part(&file.1, range)?)),
        }
    }

    /// Bytes of `.debug_abbrev`.
    pub(crate) fn abbrev_len(&self) -> usize {
        self.held(SectionId::DebugAbbrev).len()
    }

    /// Bytes of the header of a table of lines, where it can be read.
    pub(crate) fn line_header_len(&self, offset: u64) -> Option<usize> {
        use gimli::Reader;

        let mut lines = self.slice(self.held(SectionId::DebugLine).get(usize::try_from(offset).ok()?..)?);
        let (_, format) = lines.read_initial_length().ok()?;
        let version = lines.read_u16().ok()?;
        lines.skip(if version >= 5 { 2 } else { 0 }).ok()?;
        Some(lines.read_length(format).ok()?.min(lines.len()))
    }

    /// The sections with `unit` as the only unit. `abbrev_end` ends `.debug_abbrev`: tables that overlap would be read over and over.
    pub(crate) fn dwarf<'a>(&'a self, unit: &'a [u8], abbrev_end: usize) -> Dwarf<'a> {
        let section = |id: SectionId| -> Result<Slice<'a>, std::convert::Infallible> {
            let bytes = match id {
                SectionId::DebugInfo => unit,
                SectionId::DebugAbbrev => self.held(id).get(..abbrev_end).unwrap_or_default(),
                _ => self.held(id),
            };
            Ok(EndianSlice::new(bytes, self.endian))
        };
        let Ok(dwarf) = Dwarf::load(section);
        dwarf
    }

    /// Reader of a part of `.debug_info`.
    pub(crate) fn slice<'a>(&self, bytes: &'a [u8]) -> Slice<'a> {
        EndianSlice::new(bytes, self.endian)
    }

    fn held(&self, id: SectionId) -> &[u8] {
        HELD.iter().position(|&held| held == id).and_then(|at| self.held.get(at)).map_or(&[][..], Vec::as_slice)
    }
}

impl From<std::num::TryFromIntError> for Broken {
    fn from(_: std::num::TryFromIntError) -> Broken {
        Broken
    }
}

/// Offset of a unit that stands alone in `.debug_info`.
pub(crate) const ALONE: DebugInfoOffset = DebugInfoOffset(0);

fn run_time(endian: Endianness) -> RunTimeEndian {
    if endian == Endianness::Big { RunTimeEndian::Big } else { RunTimeEndian::Little }
}
