//! Blocks stored as one zstd frame, where that is asked for and there is time for it.

use std::fmt;
use std::str::FromStr;

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

/// The level where none is named: more than this costs twice the time for a few percent.
const LEVEL: i32 = 1;
/// That level for records, whose repetitions are long: as small as with zstd's own choice and a twentieth faster, because the
/// table of matches is a quarter as large and stays in the first cache.
const FOR_RECORDS: [CParameter; 2] = [CParameter::HashLog(12), CParameter::MinMatch(7)];

/// What to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compress {
    /// Nothing.
    None,
    /// What the writers keep up with: they store a block as it is while the next ones wait for them.
    Auto,
    /// Everything, at this level; the kernel's buffer fills while the writers work.
    Zstd(i32),
}

impl FromStr for Compress {
    type Err = String;

    fn from_str(text: &str) -> Result<Compress, String> {
        let level = text.strip_prefix("zstd:").and_then(|level| level.parse().ok());
        match text {
            "none" => Ok(Compress::None),
            "auto" => Ok(Compress::Auto),
            "zstd" => Ok(Compress::Zstd(LEVEL)),
            _ => match level.filter(|level| zstd::compression_level_range().contains(level)) {
                Some(level) => Ok(Compress::Zstd(level)),
                None => Err("compression is auto, none, zstd or zstd:LEVEL".to_owned()),
            },
        }
    }
}

/// Compresses payloads, into a buffer of its own.
pub(crate) struct Blocks {
    how: Compress,
    compressor: Compressor<'static>,
    /// Room for a block header, then the frame.
    frame: Vec<u8>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("how", &self.how).finish_non_exhaustive()
    }
}

impl Blocks {
    /// `None` where nothing is to be compressed, or zstd has no memory.
    pub(crate) fn new(how: Compress) -> Option<Blocks> {
        let level = match how {
            Compress::None => return None,
            Compress::Auto => LEVEL,
            Compress::Zstd(level) => level,
        };
        let mut compressor = Compressor::new(level).ok()?;
        if level == LEVEL {
            FOR_RECORDS.into_iter().try_for_each(|parameter| compressor.set_parameter(parameter)).ok()?;
        }
        Some(Blocks { how, compressor, frame: Vec::new() })
    }

    /// The payload behind `room` bytes as a frame behind as many; `None` where it stays as it is: it would not get smaller, or the
    /// writer is late: of its `capacity` so many messages are `waiting`.
    pub(crate) fn frame(&mut self, block: &[u8], room: usize, waiting: usize, capacity: usize) -> Option<&mut [u8]> {
        let payload = block.get(room..)?;
        if self.how == Compress::Auto && waiting * 4 > capacity {
            return None;
        }
        self.frame.resize(room + zstd::zstd_safe::compress_bound(payload.len()), 0);
        let len = self.compressor.compress_to_buffer(payload, &mut self.frame[room..]).ok()?;
        (len < payload.len()).then(|| &mut self.frame[..room + len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_gets_smaller_and_has_time_is_compressed() {
        assert_eq!("zstd:19".parse(), Ok(Compress::Zstd(19)));
        for bad in ["", "zstd:", "zstd:99", "gzip", "AUTO"] {
            assert!(bad.parse::<Compress>().is_err(), "{bad}");
        }
        assert!(Blocks::new(Compress::None).is_none());
        let mut blocks = Blocks::new(Compress::Auto).unwrap();
        let block = [7; 10_000];
        let frame = blocks.frame(&block, 96, 0, 8).unwrap();
        assert_eq!(zstd::bulk::decompress(&frame[96..], 20_000).unwrap(), &block[96..]);
        assert!(blocks.frame(&block, 96, 3, 8).is_none(), "others wait");
        assert!(blocks.frame(&block[..97], 96, 0, 8).is_none(), "one byte gets no smaller");
        assert!(Blocks::new(Compress::Zstd(1)).unwrap().frame(&block, 96, 8, 8).is_some(), "asked for, come what may");
    }
}
