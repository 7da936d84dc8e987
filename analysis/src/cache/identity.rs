//! Identity of the files that an index describes: a change of any of them makes the index stale.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kmemtrace_abi::disk::block::RecordingId;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::trace::Trace;
use serde::{Deserialize, Serialize};

/// State of a file: a write to it, or another file in its place, changes at least one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileMark {
    name: Vec<u8>,
    size: u64,
    inode: u64,
    device: u64,
    /// Modification time, in nanoseconds since 1970.
    modified: i128,
    /// Change time of the inode, in nanoseconds since 1970; no program can set it.
    changed: i128,
}

impl FileMark {
    fn of(path: &Path, data: &Metadata) -> Option<FileMark> {
        let nanos =
            |seconds: i64, nanos: i64| i128::from(seconds).saturating_mul(1_000_000_000).saturating_add(nanos.into());
        data.is_file().then(|| FileMark {
            name: path.file_name().unwrap_or_default().as_encoded_bytes().to_vec(),
            size: data.size(),
            inode: data.ino(),
            device: data.dev(),
            modified: nanos(data.mtime(), data.mtime_nsec()),
            changed: nanos(data.ctime(), data.ctime_nsec()),
        })
    }
}

/// All files of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) recording: RecordingId,
    files: Vec<FileMark>,
}

impl Identity {
    /// Identity of a trace just opened, before its events are read. `None` if its inputs are no stored files.
    pub(super) fn of(trace: &Trace) -> Option<Identity> {
        let recording = trace.streams.iter().find_map(CpuStream::recording)?;
        let mark = |stream: &CpuStream| FileMark::of(stream.path(), &stream.file_metadata()?.ok()?);
        let mut files = trace.streams.iter().map(mark).collect::<Option<Vec<_>>>()?;
        if let Some(meta) = &trace.metadata.report {
            files.push(FileMark::of(&meta.path, &fs::metadata(&meta.path).ok()?)?);
        }
        Some(Identity { recording, files })
    }

    /// True while the names stand for the same files, unchanged.
    pub(super) fn is_still_that_of(&self, trace: &Trace) -> bool {
        let paths =
            trace.streams.iter().map(CpuStream::path).chain(trace.metadata.report.as_ref().map(|f| f.path.as_path()));
        let now = paths.map(|path| FileMark::of(path, &fs::metadata(path).ok()?)).collect::<Option<Vec<_>>>();
        now.as_ref() == Some(&self.files)
    }

    /// True if a change after `now` will be seen. The clock of files ticks every 10 ms or, on some file systems, two seconds.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let times = || self.files.iter().flat_map(|file| [file.modified, file.changed]);
        let whole_seconds = times().all(|time| time % 1_000_000_000 == 0);
        let tick = if whole_seconds { Duration::from_secs(2) } else { Duration::from_millis(20) };
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos().cast_signed());
        times().all(|time| time.saturating_add(tick.as_nanos().cast_signed()) < now)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// Bytes of file number `index`.
    pub(super) fn size(&self, index: usize) -> u64 {
        self.files.get(index).map_or(0, |file| file.size)
    }
}

/// User id of all files of a trace; `None` where they have several owners, or one file is not there.
pub(super) fn owner(trace: &Trace) -> Option<u32> {
    let owner_of = |stream: &CpuStream| Some(stream.file_metadata()?.ok()?.uid());
    let mut owners = trace.streams.iter().map(owner_of).collect::<Option<Vec<u32>>>()?;
    if let Some(meta) = &trace.metadata.report {
        owners.push(fs::metadata(&meta.path).ok()?.uid());
    }
    let first = *owners.first()?;
    owners.iter().all(|&owner| owner == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, modified: i128) -> FileMark {
        FileMark { name: b"cpu0.out".to_vec(), size, inode: 1, device: 2, modified, changed: -7 }
    }

    impl Identity {
        /// Identity of a trace with one file of `size` bytes.
        pub(in crate::cache) fn of_one_file(size: u64) -> Identity {
            Identity { recording: [3; 16], files: vec![file(size, 7)] }
        }
    }

    fn at(modified: i128) -> Identity {
        Identity { recording: [3; 16], files: vec![file(5, modified), file(5, modified)] }
    }

    #[test]
    fn files_have_their_sizes() {
        let identity = at(1);
        assert_eq!((identity.bytes(), identity.size(1), identity.size(2)), (10, 5, 0));
    }

    /// A file that was written to, cut, or replaced by another is not the same.
    #[test]
    fn changed_files_are_told_from_those_that_were_read() {
        let workload = kmemtrace_tests::recording::random_workload(3, 40).1;
        let files = kmemtrace_tests::generate::trace_dir(&workload, 3);
        let dir = kmemtrace_tests::recording::Directory::new(&files);
        let open = || Trace::open(&[dir.path().to_path_buf()]).unwrap();
        let identity = Identity::of(&open()).unwrap();
        assert!(identity.is_still_that_of(&open()));
        assert_eq!(Some(&identity), Identity::of(&open()).as_ref());
        assert_eq!(owner(&open()), Some(rustix::process::geteuid().as_raw()));
        // The newest of their times tells whether a later change would be seen.
        let times = files.iter().map(|(name, _)| fs::metadata(dir.file(name)).unwrap().modified().unwrap());
        let newest = times.max().unwrap();
        assert!(!identity.is_settled(newest + Duration::from_millis(5)));
        assert!(identity.is_settled(newest + Duration::from_secs(60)));
        let name = &files[0].0;
        fs::copy(dir.file(name), dir.file("copy")).unwrap();
        fs::rename(dir.file("copy"), dir.file(name)).unwrap();
        assert!(!identity.is_still_that_of(&open()));
        assert_ne!(Some(&identity), Identity::of(&open()).as_ref());
    }

    #[test]
    fn files_written_a_moment_ago_are_not_settled() {
        let second = 1_000_000_000;
        let now = UNIX_EPOCH + Duration::from_secs(100);
        for (modified, settled) in [
            (99 * second + 1, true),
            (100 * second - 10_000_000, false),
            (100 * second - 30_000_000, true),
            (200 * second + 1, false),
        ] {
            assert_eq!(at(modified).is_settled(now), settled, "{modified}");
        }
        let mut coarse = at(99 * second);
        coarse.files.iter_mut().for_each(|file| file.changed = 0);
        assert!(!coarse.is_settled(now));
        coarse.files.iter_mut().for_each(|file| file.modified = 97 * second);
        assert!(coarse.is_settled(now));
    }
}
