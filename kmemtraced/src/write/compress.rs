//! Ways to store blocks in less room, and payloads as zstd frames.

use std::fmt;
use std::str::FromStr;

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

/// Default compression level. Level 2 takes twice the time for a few percent.
const LEVEL: i32 = 1;
/// Parameters of the default level for event records, whose repetitions are long. The match table has a quarter of its usual
/// size and stays in the L1 cache: a twentieth faster than zstd's own parameters, with the same compressed size.
const RECORD_PARAMETERS: [CParameter; 2] = [CParameter::HashLog(12), CParameter::MinMatch(7)];

/// Compression of a recording, from `--compress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Blocks are stored as the kernel wrote them.
    None,
    /// Records are encoded; blocks are compressed, too, while the machine is not busy.
    Auto,
    /// Records are encoded.
    Records,
    /// Records are encoded, and blocks are compressed at this level, but for those that have waited too long; the kernel's buffer fills
    /// while the writers work.
    Zstd(i32),
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Compression, String> {
        let level = text.strip_prefix("zstd:").and_then(|level| level.parse().ok());
        match text {
            "none" => Ok(Compression::None),
            "auto" => Ok(Compression::Auto),
            "records" => Ok(Compression::Records),
            "zstd" => Ok(Compression::Zstd(LEVEL)),
            _ => match level.filter(|level| zstd::compression_level_range().contains(level)) {
                Some(level) => Ok(Compression::Zstd(level)),
                None => Err("compression is auto, records, zstd, zstd:LEVEL or none".to_owned()),
            },
        }
    }
}

/// Compresses payloads into a buffer of its own.
pub(crate) struct BlockCompressor {
    compressor: Compressor<'static>,
    /// Header room, then the frame.
    output: Vec<u8>,
}

impl fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCompressor").finish_non_exhaustive()
    }
}

impl BlockCompressor {
    /// `None` for [`Compression::None`], or where zstd gets no memory.
    pub(crate) fn new(mode: Compression) -> Option<BlockCompressor> {
        let level = match mode {
            Compression::None => return None,
            Compression::Auto | Compression::Records => LEVEL,
            Compression::Zstd(level) => level,
        };
        let mut compressor = Compressor::new(level).ok()?;
        if level == LEVEL {
            RECORD_PARAMETERS.into_iter().try_for_each(|parameter| compressor.set_parameter(parameter)).ok()?;
        }
        Some(BlockCompressor { compressor, output: Vec::new() })
    }

    /// Compresses the payload behind `room` bytes of `block`; returns the frame behind as much room, `None` where it would not be
    /// smaller.
    pub(crate) fn compress(&mut self, block: &[u8], room: usize) -> Option<&mut [u8]> {
        let payload = block.get(room..)?;
        self.output.resize(room + zstd::zstd_safe::compress_bound(payload.len()), 0);
        let len = self.compressor.compress_to_buffer(payload, &mut self.output[room..]).ok()?;
        (len < payload.len()).then(|| &mut self.output[..room + len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_gets_smaller_is_compressed() {
        assert_eq!("zstd:19".parse(), Ok(Compression::Zstd(19)));
        assert_eq!("records".parse(), Ok(Compression::Records));
        for bad in ["", "zstd:", "zstd:99", "gzip", "AUTO"] {
            assert!(bad.parse::<Compression>().is_err(), "{bad}");
        }
        assert!(BlockCompressor::new(Compression::None).is_none());
        let mut compressor = BlockCompressor::new(Compression::Auto).unwrap();
        let block = [7; 10_000];
        let frame = compressor.compress(&block, 96).unwrap();
        assert_eq!(zstd::bulk::decompress(&frame[96..], 20_000).unwrap(), block[96..]);
        assert!(compressor.compress(&block[..97], 96).is_none(), "one byte gets no smaller");
    }
}
