//! Files of a recording that grow, as a recorder writes them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use kmemtrace_abi::disk::block::Header;
use rustix::fs::{FallocateFlags, FlockOperation, flock};
use zerocopy::FromBytes;

use crate::recording::Directory;

/// Nanoseconds by which the files of two CPUs may differ: recorders hand over events within a flush interval.
const SPREAD: u64 = 500_000_000;

#[derive(Debug)]
struct Part {
    path: PathBuf,
    /// All bytes that it will have.
    bytes: Vec<u8>,
    /// Bytes that it has.
    there: usize,
}

/// Directory in which the files of a recording grow, locked as its recorder locks it.
#[derive(Debug)]
pub struct Growing {
    pub directory: Directory,
    lock: File,
    parts: Vec<Part>,
    /// Times of the first and the last event.
    pub times: (u64, u64),
    /// Time up to which blocks are there.
    now: u64,
}

impl Growing {
    /// The files with their headers, and all names.
    pub fn new(recording: &Path) -> Growing {
        let directory = Directory::new(&[]);
        let (mut parts, mut times) = (Vec::new(), (u64::MAX, 0));
        for entry in fs::read_dir(recording).unwrap().flatten() {
            let path = directory.file(&entry.file_name().to_string_lossy());
            let bytes = fs::read(entry.path()).unwrap();
            let timed = blocks(&bytes).filter(|(_, header)| header.events.get() > 0);
            timed.for_each(|(_, header)| times = (times.0.min(header.first.get()), times.1.max(header.last.get())));
            let header = blocks(&bytes).next().map_or(0, |(end, _)| end);
            let there = if entry.file_name() == "meta.out" { bytes.len() } else { header };
            fs::write(&path, &bytes[..there]).unwrap();
            parts.push(Part { path, bytes, there });
        }
        let lock = File::open(directory.path()).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        Growing { directory, lock, parts, now: times.0, times }
    }

    /// Appends the blocks up to a time, and half of the next one of each file.
    pub fn grow_to(&mut self, time: u64) {
        while self.now < time {
            self.now = time.min(self.now + SPREAD);
            let now = self.now;
            self.append(|bytes| {
                let mut until = 0;
                for (end, header) in blocks(bytes) {
                    if header.last.get() > now {
                        return until + (end - until) / 2;
                    }
                    until = end;
                }
                until
            });
        }
    }

    pub fn finish_file(&mut self, name: &str) {
        for Part { path, bytes, there } in self.parts.iter_mut().filter(|part| part.path.ends_with(name)) {
            let mut file = OpenOptions::new().append(true).open(&*path).unwrap();
            file.write_all(&bytes[*there..]).unwrap();
            *there = bytes.len();
        }
    }

    pub fn finish(&mut self) {
        self.grow_to(self.times.1.saturating_sub(1));
        self.append(<[u8]>::len);
    }

    /// Gives the blocks that are there back to the file system, but for the first one of each file, and the last `left` blocks.
    pub fn free_old(&self, left: usize) {
        for Part { path, bytes, there } in &self.parts {
            let ends: Vec<usize> = blocks(bytes).map(|(end, _)| end).take_while(|end| end <= there).collect();
            let Some((&from, &to)) = ends.first().zip(ends.iter().rev().nth(left)) else { continue };
            if path.ends_with("meta.out") || to <= from {
                continue;
            }
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let freed = rustix::fs::fallocate(&file, how, from as u64, (to - from) as u64);
            freed.unwrap();
        }
    }

    fn append(&mut self, until: impl Fn(&[u8]) -> usize) {
        for Part { path, bytes, there } in &mut self.parts {
            let until = until(bytes).max(*there);
            let mut file = OpenOptions::new().append(true).open(&*path).unwrap();
            file.write_all(&bytes[*there..until]).unwrap();
            *there = until;
        }
    }

    /// Gives the lock back, as a recorder that ends.
    pub fn unlock(self) -> Directory {
        drop(self.lock);
        self.directory
    }
}

/// Blocks of a file: where they end, and their headers.
fn blocks(bytes: &[u8]) -> impl Iterator<Item = (usize, Header)> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let (header, _) = Header::read_from_prefix(bytes.get(end..)?).ok()?;
        end += usize::from(header.header_len.get()) + header.payload_len.get() as usize;
        Some((end, header))
    })
}
