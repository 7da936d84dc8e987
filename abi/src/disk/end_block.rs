//! The end block of a finished file, without reading the file.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use crate::disk::block::End;

/// The end block that the file ends with; `None` where it ends with something else.
pub fn of(file: &File) -> io::Result<Option<End>> {
    let len = file.metadata()?.len();
    let mut tail = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(End::TAIL_BYTES)];
    let from = len.saturating_sub(tail.len() as u64);
    match file.read_exact_at(&mut tail, from) {
        Ok(()) => Ok(End::at_end_of(&tail)),
        // Another program has cut the file meanwhile.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
