//! The checks: what a file's reader found, and what only the whole recording shows.

use std::path::{Path, PathBuf};

use kmemtrace_abi::event::Item;
use kmemtrace_abi::fault::{Code, Fault, Verdict};
use kmemtrace_abi::trace::{FileFacts, InputKind, OpenError, OrderKey, Trace};

/// What was found in one input.
pub(crate) struct Checked {
    /// Facts of each file, by CPU, `meta.out` last.
    pub(crate) files: Vec<FileFacts>,
    /// Findings that belong to no file.
    pub(crate) findings: Vec<Fault>,
    /// Whether order keys are sequence numbers.
    pub(crate) sequence: bool,
}

/// Checks a trace directory, or one file out of one: that file alone, then.
pub(crate) fn check(path: &Path) -> Result<Checked, OpenError> {
    let mut trace = Trace::open(&[path.to_owned()])?;
    let whole = path.is_dir();
    let holes =
        if whole && trace.info.order == OrderKey::Sequence { read_in_order(&mut trace) } else { read(&mut trace) };
    let missing = |f: &FileFacts| f.cpu.is_some_and(|cpu| trace.info.missing.contains(&cpu));
    let mut files: Vec<FileFacts> =
        trace.streams.iter().map(|s| s.facts().clone()).filter(|f| whole || !missing(f)).collect();
    for hole in &holes {
        if let Some(file) = files.iter_mut().find(|f| f.cpu == Some(hole.cpu)) {
            let message = format!(
                "{} sequence numbers are missing in {} runs, the first after {}",
                hole.lost, hole.runs, hole.first
            );
            add_loss(file, hole.lost, Code::SequenceHole, message);
            file.gaps += hole.runs;
        }
    }
    let numbered: u64 = holes.iter().map(|h| h.lost).sum();
    let overruns = if whole { trace.total_overruns().unwrap_or(0) } else { 0 };
    if let (true, Some(file)) = (overruns > numbered, files.first_mut()) {
        let message = format!("the channel counted {overruns} overruns over all CPUs");
        add_loss(file, overruns - numbered, Code::Overrun, message);
    }
    let mut findings = Vec::new();
    if whole && trace.info.input == InputKind::Kmemtrace && trace.side.facts.is_none() {
        let message = "there is no meta.out: figures are right, and symbols, modules and command names are missing";
        findings.push(Fault { code: Code::NoMeta, offset: 0, block: None, message: message.to_owned() });
    }
    files.extend(trace.side.facts.take());
    Ok(Checked { files, findings, sequence: trace.info.order == OrderKey::Sequence })
}

fn add_loss(file: &mut FileFacts, lost: u64, code: Code, message: String) {
    file.faults.push(Fault { code, offset: 0, block: None, message });
    file.lost = file.lost.map(|n| n.saturating_add(lost));
    file.verdict = file.verdict.max(Verdict::Lossy);
}

/// Missing sequence numbers before records of one CPU.
#[derive(Debug, PartialEq, Eq)]
struct Hole {
    cpu: u32,
    lost: u64,
    runs: u64,
    /// The number before the first of them.
    first: u64,
}

fn read(trace: &mut Trace) -> Vec<Hole> {
    let mut items = Vec::new();
    for stream in &mut trace.streams {
        while stream.fill(&mut trace.names, &mut items) {}
    }
    Vec::new()
}

/// Reads all CPUs by their sequence numbers. A hole belongs to the CPU whose record follows it.
fn read_in_order(trace: &mut Trace) -> Vec<Hole> {
    let mut heads: Vec<(Vec<Item>, usize)> = trace.streams.iter().map(|_| (Vec::new(), 0)).collect();
    let mut holes: Vec<Hole> = Vec::new();
    let mut last: Option<u64> = None;
    loop {
        let mut next: Option<(u64, usize)> = None;
        for (index, (stream, (items, at))) in trace.streams.iter_mut().zip(&mut heads).enumerate() {
            let key = loop {
                if *at == items.len() {
                    *at = 0;
                    if !stream.fill(&mut trace.names, items) {
                        break None;
                    }
                }
                match items.get(*at) {
                    Some(Item::Event(event)) => break Some(event.at),
                    _ => *at += 1,
                }
            };
            if let Some(key) = key.filter(|&key| next.is_none_or(|(least, _)| key < least)) {
                next = Some((key, index));
            }
        }
        let Some((key, index)) = next else { return holes };
        if let Some(before) = last.filter(|&before| key > before + 1) {
            let cpu = trace.streams[index].cpu();
            let lost = key - before - 1;
            match holes.iter_mut().find(|h| h.cpu == cpu) {
                Some(hole) => {
                    hole.lost = hole.lost.saturating_add(lost);
                    hole.runs += 1;
                }
                None => holes.push(Hole { cpu, lost, runs: 1, first: before }),
            }
        }
        last = Some(last.map_or(key, |last| last.max(key)));
        heads[index].1 += 1;
    }
}

/// Why a file of ours has no end block: a recorder still holds its directory.
pub(crate) fn is_recording(file: &Path) -> bool {
    let dir: PathBuf = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let Ok(dir) = std::fs::File::open(dir) else { return false };
    rustix::fs::flock(&dir, rustix::fs::FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}
