//! Holes in files: bytes that a writer has given back to the file system, and that read as zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Zeros on end that are taken for a hole to the end of the file, where its file system tells of no holes, in bytes.
const ZEROS: u64 = 64 << 20;
/// Bytes of a block of `st_blocks`, whatever the file system's own blocks are (stat(2)).
const STORED_BLOCK: u64 = 512;

/// Offset from `at` on that is in no hole, in bytes; `None` where a hole goes to the end of the file. So many bytes of zeros stand right
/// before `at`. The file's position stays.
pub(crate) fn behind(file: &File, at: u64, zeros: u64) -> io::Result<Option<u64>> {
    let position = rustix::fs::tell(file)?;
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(offset) => Some(offset.max(at)),
        Err(Errno::NXIO) => None,
        // File systems and kernels that do not know holes.
        Err(_) => Some(at),
    };
    let is_untold = || -> io::Result<bool> {
        let found = file.metadata()?;
        let hole = rustix::fs::seek(file, SeekFrom::Hole(0)).ok();
        Ok(tells_none(hole, found.len(), found.blocks().saturating_mul(STORED_BLOCK)))
    };
    let is_hole = data == Some(at) && zeros >= ZEROS && is_untold()?;
    rustix::fs::seek(file, SeekFrom::Start(position))?;
    Ok(if is_hole { None } else { data })
}

/// True for a file that has holes, of which its file system does not tell: less is stored than its length.
fn tells_none(first_hole: Option<u64>, len: u64, stored: u64) -> bool {
    first_hole.is_none_or(|hole| hole >= len) && stored < len.saturating_sub(ZEROS)
}

/// Run of zeros that was read so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Zeros {
    end: u64,
    len: u64,
}

impl Zeros {
    /// Adds `len` bytes of zeros that end at this offset; returns the length of the run that ends there.
    pub(crate) fn add(&mut self, end: u64, len: u64) -> u64 {
        let goes_on = end.checked_sub(len) == Some(self.end);
        *self = Zeros { end, len: if goes_on { self.len.saturating_add(len) } else { len } };
        self.len
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_systems_word_counts_and_zeros_where_it_says_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"data").unwrap();
        file.set_len(4 * ZEROS).unwrap();
        assert_eq!(behind(&file, 0, 0).unwrap(), Some(0));
        // Zeros that are stored are read, however many they are.
        assert_eq!(behind(&file, 0, ZEROS).unwrap(), Some(0));
        assert_eq!(behind(&file, ZEROS, 1).unwrap(), None);
        let (len, stored) = (4 * ZEROS, 4096);
        assert!(tells_none(None, len, stored) && tells_none(Some(len), len, stored));
        assert!(!tells_none(Some(4096), len, stored) && !tells_none(Some(len), len, len));
        let mut zeros = Zeros::default();
        assert_eq!([zeros.add(10, 10), zeros.add(15, 5), zeros.add(30, 5), zeros.add(2, 5)], [10, 15, 5, 5]);
    }
}
