//! Generated recordings on disk.

use std::fs;
use std::path::{Path, PathBuf};

use crate::generate::{Options, Random, RelayOptions, RelayStreams, Workload, workload};
use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::target::Endian;
use tempfile::TempDir;

#[derive(Debug)]
pub struct Directory {
    dir: TempDir,
}

impl Directory {
    /// Creates a directory with these files: in memory if there is a tmpfs for all users.
    pub fn new(files: &[(String, Vec<u8>)]) -> Directory {
        let shared = Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(shared).or_else(|_| tempfile::tempdir());
        let directory = Directory { dir: dir.unwrap() };
        for (name, bytes) in files {
            directory.write(name, bytes);
        }
        directory
    }

    /// Creates an empty directory among the temporary files: on a disk, mostly.
    pub fn on_disk() -> Directory {
        Directory { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        let path = self.file(name);
        std::fs::read_to_string(&path).unwrap()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.file(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap();
        }
        fs::write(&path, bytes).unwrap();
    }
}

/// Workload of `seed`, of any shape and up to `events` events.
pub fn random_workload(seed: u64, events: usize) -> (Options, Workload) {
    let options = with_probes(seed, Options::random(&mut Random::new(seed), events));
    let workload = workload(seed, &options);
    (options, workload)
}

/// Options with the recorder's probe events, of most seeds.
fn with_probes(seed: u64, options: Options) -> Options {
    Options { probes: Random::new(seed ^ 0x9b0b).chance(70), ..options }
}

/// Workload of `seed` for a captured tree, which has no gap blocks, no nodes, and always names its source.
pub fn random_tree(seed: u64, events: usize) -> (Options, Workload) {
    let mut random = Random::new(seed);
    let mut options = Options::random(&mut random, events);
    options.cpus = (0..1 + random.below(4) as u32).collect();
    // Bytes of per-CPU memory are of all CPUs of the trace.
    options.shape.possible_cpus = options.shape.possible_cpus.min(1) * options.cpus.len() as u64;
    options.missing.retain(|&cpu| cpu > 0 && options.cpus.contains(&cpu));
    (options.cut, options.recorder_loss, options.nodes, options.kernel) = (Vec::new(), false, false, true);
    // The generator puts no list of symbols into a tree.
    (options.timed, options.foreign, options.symbols) = (false, false, false);
    let options = with_probes(seed, options);
    let workload = workload(seed, &options);
    (options, workload)
}

/// Relay channel of any layout for the workload of `seed`. Raw files have no gaps of their own, so every CPU is there
/// and events are lost only by holes in the numbers.
pub fn random_relay(seed: u64, events: usize) -> (Workload, RelayOptions, RelayStreams) {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut options = Options::random(&mut random, events);
    options.cpus = (0..1 + random.below(4) as u32).collect();
    (options.loss, options.unplaced, options.foreign) = (false, false, false);
    (options.cut, options.missing) = (Vec::new(), Vec::new());
    // The reader cannot tell the layout from fewer records.
    options.events = options.events.max(40);
    let mut workload = workload(seed, &options);
    let layout = *random.pick(&[Layout::R4, Layout::R4, Layout::R4, Layout::R1, Layout::R3]);
    let relay = RelayOptions {
        layout,
        endian: if random.chance(50) { Endian::Little } else { Endian::Big },
        first_sequence: *random.pick(&[1, 1, 0x7fff_fff0, 0xffff_fff0, 0xffff_ffff, 0]),
        features: random.chance(50),
        holes: layout == Layout::R4 && random.chance(50),
    };
    let streams = crate::generate::relay(&mut workload, &relay, seed);
    (workload, relay, streams)
}
