//! What shows only when all of a trace has been read: each check looks for one thing and has one code.
//!
//! The checks within a file (checksums, order, totals, endings, marks against counters, missing CPUs) are made
//! where the file is read, in `kmemtrace-abi`, so that a report comes to the same verdict.

use std::fs::File;
use std::path::Path;

use kmemtrace_abi::fault::{Code, Fault};
use kmemtrace_abi::trace::{FileFacts, InputKind};

use crate::reading::{CheckedFile, CheckedTrace};

/// A check and the code that it gives.
type Check = (Code, fn(&mut CheckedTrace));

/// All of them; a later one may rely on the loss that an earlier one has counted.
const CHECKS: &[Check] = &[
    (Code::SequenceHole, sequence_numbers_have_no_holes),
    (Code::Unplaced, dropped_records_are_accounted_for),
    (Code::NoMeta, names_are_there),
    (Code::NoEnd, nobody_is_recording),
];

/// Runs every check over a trace.
pub(crate) fn run(trace: &mut CheckedTrace) {
    for (_, check) in CHECKS {
        check(trace);
    }
}

/// A finding about a whole file rather than a place in it.
fn finding(code: Code, message: String) -> Fault {
    Fault { code, offset: 0, block: None, message }
}

/// A relay channel numbers its records over all CPUs. The file with the record after a hole has the finding.
fn sequence_numbers_have_no_holes(trace: &mut CheckedTrace) {
    for file in &mut trace.files {
        let holes = file.holes;
        if holes.count == 0 {
            continue;
        }
        // What the recorder says that it lost are numbers that are missing, not others beside them.
        file.facts.lost = file.facts.lost.map(|lost| lost.max(holes.missing));
        file.facts.gaps += holes.count;
        let message = format!(
            "{} sequence numbers are missing in {}, the longest of {} before {}",
            holes.missing,
            plural(holes.count, "hole"),
            holes.longest,
            holes.longest_before
        );
        file.add(finding(Code::SequenceHole, message));
    }
}

/// A relay channel counts what it dropped, over all CPUs. What no hole accounts for has no place and no CPU; the first
/// file has the finding.
fn dropped_records_are_accounted_for(trace: &mut CheckedTrace) {
    let Some(total) = trace.total_overruns else { return };
    let counted = trace.files.iter().filter_map(|f| f.facts.lost).fold(0, u64::saturating_add);
    let rest = total.saturating_sub(counted);
    if rest == 0 {
        return;
    }
    if let Some(file) = trace.files.iter_mut().find(|f| f.facts.cpu.is_some() && f.is_there) {
        file.facts.lost = file.facts.lost.map(|lost| lost.saturating_add(rest));
        file.facts.gaps += 1;
        let message =
            format!("the relay channel dropped {total} records on its CPUs; where {rest} of them belong is not known");
        file.add(finding(Code::Unplaced, message));
    }
}

/// A directory of ours has a `meta.out`.
fn names_are_there(trace: &mut CheckedTrace) {
    let has_meta = trace.files.iter().any(|f| f.facts.cpu.is_none());
    if trace.is_dir && trace.info.input == InputKind::Kmemtrace && !has_meta {
        let mut file = CheckedFile::new(absent(&trace.path.join("meta.out"), trace), false);
        file.add(finding(Code::NoMeta, "is not there: figures are right, names are missing".to_owned()));
        trace.files.push(file);
    }
}

fn absent(path: &Path, trace: &CheckedTrace) -> FileFacts {
    FileFacts {
        path: path.to_owned(),
        cpu: None,
        version: None,
        source: trace.info.source,
        blocks: 0,
        events: 0,
        first: None,
        last: None,
        lost: Some(0),
        gaps: 0,
        unread: 0,
        counters: None,
        bytes: 0,
        faults: Vec::new(),
        faults_left_out: 0,
        verdict: Code::NoMeta.verdict(),
    }
}

/// A file that ends early is no damage while its recorder runs: the recorder holds a lock on the directory.
fn nobody_is_recording(trace: &mut CheckedTrace) {
    let is_unfinished = |fault: &Fault| matches!(fault.code, Code::NoEnd | Code::CutInBlock | Code::Empty);
    let unfinished = trace.files.iter().flat_map(|f| &f.facts.faults).any(is_unfinished);
    let dir = if trace.is_dir { Some(trace.path.as_path()) } else { trace.path.parent() };
    if !unfinished || !dir.is_some_and(is_locked) {
        return;
    }
    for fault in trace.files.iter_mut().flat_map(|f| &mut f.facts.faults).filter(|f| is_unfinished(f)) {
        fault.message.push_str("; it is still being recorded");
    }
}

/// Whether somebody holds the lock of a directory (`flock`).
fn is_locked(dir: &Path) -> bool {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let Ok(dir) = File::open(dir) else { return false };
    // Released when the file is closed, at the end of this function.
    let shared = rustix::fs::flock(&dir, rustix::fs::FlockOperation::NonBlockingLockShared);
    shared == Err(rustix::io::Errno::WOULDBLOCK)
}

fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("{n} {what}") } else { format!("{n} {what}s") }
}
