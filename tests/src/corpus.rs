//! Traces of every sort that the readers take, written into one directory: the samples of `tests/data`, and generated ones
//! from seeds.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::archive;
use crate::generate::{Load, LoadOptions, Random, relay_dir, trace_dir, tree, write_trace};

use crate::recording::{random_relay, random_tree, random_workload};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Sample,
    /// Generated from a seed.
    Generated,
    /// Generated, and large enough for several windows of events.
    Large,
    /// A sample of another program, a file.
    Foreign,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub origin: Origin,
    /// Files of its CPUs, as paths that begin with the name.
    pub files: Vec<String>,
}

/// Writes the corpus into `dir`: every sample, `seeds` generated recordings, and a part as many of each other sort of trace.
pub fn write(dir: &Path, seeds: u64) -> io::Result<Vec<Case>> {
    let mut cases = vec![large(dir, 10_000 * seeds)?];
    cases.extend(samples(dir)?);
    for seed in 0..seeds {
        // Short traces find the edges, long ones fill several blocks.
        let events = if seed % 4 == 0 { 6000 } else { 600 };
        let recording = trace_dir(&random_workload(seed, events).1, seed);
        if seed % 3 == 0 {
            let damaged = damaged(recording.clone(), seed);
            cases.push(case(dir, format!("damaged-{seed}"), &damaged)?);
        }
        cases.push(case(dir, format!("recording-{seed}"), &recording)?);
        if seed % 3 == 1 {
            cases.push(case(dir, format!("tree-{seed}"), &tree(&random_tree(seed, events).1, seed))?);
        }
        if seed % 3 == 2 {
            let (workload, options, streams) = random_relay(seed, events);
            let raw: Vec<_> =
                streams.cpus.iter().map(|stream| (format!("cpu{}", stream.cpu), stream.bytes())).collect();
            cases.push(case(dir, format!("relay-{seed}"), &raw)?);
            let recording = relay_dir(&workload, &options, &streams, seed);
            cases.push(case(dir, format!("relay-recording-{seed}"), &recording)?);
        }
    }
    Ok(cases)
}

/// Folders of `tests/data` with files of other programs, and files there.
const FOREIGN: [&str; 8] = [
    "other-programs",
    "page_owner-amd64-6.1.txt.zst",
    "page_owner_sort",
    "texts",
    "texts-amd64-6.1",
    "texts-amd64-6.12",
    "texts-small-6.1",
    "texts-small-6.12",
];

/// Copies the samples of other programs into `dir`: a case for each file.
pub fn foreign(dir: &Path) -> io::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for name in FOREIGN {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name), dir)?;
        let mut to_visit = vec![dir.join(name)];
        while let Some(visited) = to_visit.pop() {
            if visited.is_dir() {
                for entry in fs::read_dir(visited)? {
                    to_visit.push(entry?.path());
                }
            } else if let Some(name) = visited.strip_prefix(dir).ok().and_then(Path::to_str) {
                cases.push(Case { name: name.to_owned(), origin: Origin::Foreign, files: Vec::new() });
            }
        }
    }
    cases.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

fn case(dir: &Path, name: String, files: &[(String, Vec<u8>)]) -> io::Result<Case> {
    for (file, bytes) in files {
        let path = dir.join(&name).join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)?;
    }
    named(dir, name, Origin::Generated)
}

/// The trace of this name, which is in `dir`.
fn named(dir: &Path, name: String, origin: Origin) -> io::Result<Case> {
    let mut files = Vec::new();
    let mut to_visit = vec![dir.join(&name)];
    while let Some(visited) = to_visit.pop() {
        for entry in fs::read_dir(visited)? {
            let path = entry?.path();
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            if path.is_dir() {
                to_visit.push(path);
            } else if file == "trace_pipe_raw" || file.starts_with("cpu") {
                files.extend(path.strip_prefix(dir).ok().and_then(Path::to_str).map(str::to_owned));
            }
        }
    }
    files.sort_unstable();
    Ok(Case { name, origin, files })
}

/// The samples of `tests/data`, copied or unpacked.
fn samples(dir: &Path) -> io::Result<Vec<Case>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("data"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(packed) = name.strip_suffix(".tar.zst") {
            archive::unpack(packed, dir)?;
            names.push(packed.to_owned());
        } else if path.join("meta.out").exists() {
            // Other folders have outputs of other programs.
            copy(&path, dir)?;
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    names.into_iter().map(|name| named(dir, name, Origin::Sample)).collect()
}

/// Copies a file or directory into the directory `to`.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cp: {}", from.display()))) }
}

/// A recording with some bits flipped, or an end cut off, or a file missing.
fn damaged(mut files: Vec<(String, Vec<u8>)>, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(!seed);
    let index = random.below(files.len() as u64) as usize;
    let kinds = if files.len() > 2 { 5 } else { 4 };
    let bytes = &mut files[index].1;
    match random.below(kinds) {
        0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        4 => drop(files.remove(index)),
        _ if bytes.is_empty() => {}
        _ => {
            for _ in 0..1 + random.below(4) {
                let bit = random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    files
}

fn large(dir: &Path, events: u64) -> io::Result<Case> {
    let name = "large".to_owned();
    fs::create_dir_all(dir.join(&name))?;
    let (machine, load) = Load::new(1, LoadOptions { cpus: 4, events, live: 20_000, reuses: true });
    write_trace(&dir.join(&name), &machine, load, 1)?;
    named(dir, name, Origin::Large)
}
