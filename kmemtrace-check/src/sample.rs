//! Sample traces for tests: generated, on disk.

use std::fs;
use std::path::{Path, PathBuf};

use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::target::Endian;
use kmemtrace_tests::generate::{
    Options, RelayOptions, RelayStreams, Shape, relay, relay_dir as relay_files, trace_dir, workload,
};
use tempfile::TempDir;

/// Trace in a temporary directory, removed on drop.
pub(crate) struct Sample(TempDir);

impl Sample {
    /// Recording of tracefs, as `kmemtraced` writes it.
    pub(crate) fn new(options: &Options, seed: u64) -> Sample {
        Sample::of(trace_dir(&workload(seed, options), seed))
    }

    /// Relay channel on three CPUs with holes in its numbers across their wrap-around: as recorded, and raw.
    pub(crate) fn relay(seed: u64) -> (Sample, Sample, RelayStreams) {
        let mut workload = workload(seed, &Options::plain(Shape::plain(), 3, 3000));
        let first_sequence = u32::MAX - 700;
        let options =
            RelayOptions { layout: Layout::R4, endian: Endian::Big, first_sequence, features: true, holes: true };
        let streams = relay(&mut workload, &options, seed);
        let raw = streams.cpus.iter().map(|s| (format!("cpu{}", s.cpu), s.bytes())).collect();
        (Sample::of(relay_files(&workload, &options, &streams, seed)), Sample::of(raw), streams)
    }

    fn of(files: Vec<(String, Vec<u8>)>) -> Sample {
        let sample = Sample(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            fs::write(sample.file(&name), bytes).unwrap();
        }
        sample
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Changes a file's bytes.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file(name)).unwrap();
        change(&mut bytes);
        fs::write(self.file(name), bytes).unwrap();
    }
}
