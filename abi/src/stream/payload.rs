//! Formats of a recording's payloads: how bytes become records. One format holds for all files of a recording.

use crate::capabilities::InputCapabilities;
use crate::event::{ByKind, NameId, Names};
use crate::kernel::decoder::Decoder;
use crate::kernel::format::PageShape;
use crate::kernel::relay::{self, Layout};
use crate::target::Endian;

/// Format of a recording's payloads; one for all of its files.
#[derive(Debug)]
pub(crate) enum PayloadFormat {
    /// Sub-buffers of tracefs.
    SubBuffers(SubBufferFormat),
    /// Records of a relay channel.
    Relay(RelayFormat),
    /// No description is there.
    Unknown,
}

impl PayloadFormat {
    /// What events of the format can tell.
    pub(crate) fn capabilities(&self) -> InputCapabilities {
        let kinds = ByKind::from_fn(|kind| match self {
            PayloadFormat::SubBuffers(format) => format.decoder.describes_allocs(kind),
            PayloadFormat::Relay(_) => relay::TYPES.iter().any(|of| of.kind == kind),
            PayloadFormat::Unknown => false,
        });
        let frames = match self {
            PayloadFormat::SubBuffers(format) => !format.decoder.has_page_pointers(),
            PayloadFormat::Relay(_) => false,
            PayloadFormat::Unknown => true,
        };
        InputCapabilities { frames, ..InputCapabilities::events(kinds) }
    }

    /// An order key as the record has it: a relay channel's sequence number has 32 bits.
    pub(super) fn stamp_of(&self, key: u64) -> u64 {
        match self {
            PayloadFormat::Relay(format) if format.layout == Layout::R4 => key & u64::from(u32::MAX),
            _ => key,
        }
    }
}

/// Shape of sub-buffers, and the decoder of their records.
#[derive(Debug)]
pub(crate) struct SubBufferFormat {
    pub(crate) shape: PageShape,
    pub(crate) decoder: Decoder,
}

/// Layout of relay records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelayFormat {
    pub(crate) layout: Layout,
    pub(crate) endian: Endian,
    /// First sequence number of the recording, from which the others are extended to 64 bits.
    pub(crate) origin: u32,
    pub(crate) names: RelayNames,
}

/// Names of the events that relay records stand for, allocation and free, by type number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelayNames(pub(super) [[NameId; 2]; relay::TYPES.len()]);

impl RelayNames {
    pub(crate) fn new(names: &mut Names) -> RelayNames {
        RelayNames(relay::TYPES.map(|of| of.events.map(|name| names.intern(name.as_bytes()))))
    }
}
