//! A file that the recorder has made, known by device and inode: its name may come to stand for another file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;

use crate::fs::held_dir::HeldDir;

/// Bytes that a file has while it is written: a write in progress makes it any number between.
#[derive(Debug, Default)]
pub(crate) struct Size {
    least: AtomicU64,
    most: AtomicU64,
    /// Another program has made the file longer or shorter, as was seen before a write, which hides it.
    grown: AtomicBool,
    cut: AtomicBool,
}

impl Size {
    /// Bytes are about to be written to a file of `len` bytes.
    pub(super) fn begin(&self, len: u64, bytes: usize) {
        self.note(len);
        self.most.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Notes a size that the file has while nothing is written.
    fn note(&self, len: u64) {
        self.cut.fetch_or(len < self.least.load(Ordering::Acquire), Ordering::AcqRel);
        self.grown.fetch_or(len > self.most.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// They are in the file.
    pub(super) fn finish(&self, bytes: usize) {
        self.least.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// The file is about to be cut to `len` bytes.
    pub(super) fn begin_cut(&self, len: u64) {
        self.least.store(len, Ordering::Release);
    }

    /// It was cut.
    pub(super) fn finish_cut(&self, len: u64) {
        self.most.store(len, Ordering::Release);
    }
}

/// File of a trace directory.
#[derive(Debug)]
pub(super) struct MadeFile {
    name: String,
    device: u64,
    inode: u64,
    size: Arc<Size>,
}

impl MadeFile {
    /// The file that was just made in `dir`.
    pub(super) fn new(dir: &HeldDir, name: &str, size: &Arc<Size>) -> Result<MadeFile, Errno> {
        let stat = dir.stat_of(name.as_ref())?;
        Ok(MadeFile { name: name.to_owned(), device: stat.st_dev, inode: stat.st_ino, size: Arc::clone(size) })
    }

    /// Gives the file to a user and a group, unless its name has come to stand for another one.
    pub(super) fn give_to(&self, dir: &HeldDir, user: u32, group: u32) -> io::Result<()> {
        let file = match dir.open(self.name.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let found = rustix::fs::fstat(&file)?;
        if (found.st_dev, found.st_ino) != (self.device, self.inode) {
            return Ok(());
        }
        Ok(rustix::fs::fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
    }

    /// What another program has done to it: `cpu0.out was removed`.
    pub(super) fn change(&self, dir: &HeldDir) -> Option<String> {
        let least = self.size.least.load(Ordering::Acquire);
        let stat = dir.stat_of(self.name.as_ref());
        let most = self.size.most.load(Ordering::Acquire);
        let how = match stat {
            Err(Errno::NOENT) => "removed",
            // A file system that fails for a moment has changed nothing.
            Err(_) => return None,
            Ok(stat) if (stat.st_dev, stat.st_ino) != (self.device, self.inode) => "replaced",
            Ok(stat) if stat.st_size.cast_unsigned() < least || self.size.cut.load(Ordering::Acquire) => "cut",
            Ok(stat) if stat.st_size.cast_unsigned() > most || self.size.grown.load(Ordering::Acquire) => "written to",
            Ok(_) => return None,
        };
        Some(format!("{} was {how}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_change_of_a_file_is_told_apart() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cpu0.out");
        let dir = HeldDir::reach(place.path()).unwrap();
        let size = Arc::new(Size::default());
        fs::write(&path, b"").unwrap();
        let made = MadeFile::new(&dir, "cpu0.out", &size).unwrap();
        let write = |text: &[u8]| {
            size.begin(0, text.len());
            fs::write(&path, text).unwrap();
            assert_eq!(made.change(&dir), None, "a write that has not ended");
            size.finish(text.len());
            assert_eq!(made.change(&dir), None);
        };
        write(b"four");
        fs::write(&path, b"three+").unwrap();
        assert_eq!(made.change(&dir).unwrap(), "cpu0.out was written to");
        fs::write(&path, b"two").unwrap();
        assert_eq!(made.change(&dir).unwrap(), "cpu0.out was cut");
        // Our own cut after a failed write.
        size.begin_cut(3);
        size.finish_cut(3);
        assert_eq!(made.change(&dir), None);
        // A write hides what another program did before it.
        size.begin(1, 0);
        assert_eq!(made.change(&dir).unwrap(), "cpu0.out was cut");
        fs::write(place.path().join("other"), b"two").unwrap();
        fs::rename(place.path().join("other"), &path).unwrap();
        assert_eq!(made.change(&dir).unwrap(), "cpu0.out was replaced");
        fs::remove_file(&path).unwrap();
        assert_eq!(made.change(&dir).unwrap(), "cpu0.out was removed");
    }
}
