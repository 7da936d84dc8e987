//! Checks of a whole trace, one code each.
//!
//! Checks within a file (checksums, order, totals, endings, marks against counters, missing CPUs) run in
//! `kmemtrace-abi` while a file is read, so that a report comes to the same verdict.

use kmemtrace_abi::fault::{Code, Fault};
use kmemtrace_abi::open::is_being_recorded;
use kmemtrace_abi::trace::{InputKind, NO_SYMBOLS, SymbolSource};

use crate::reading::CheckedTrace;

/// Check function with the code that it reports.
type Check = (Code, fn(&mut CheckedTrace));

/// Checks in the order in which they run: a later one relies on the loss that an earlier one has counted.
const CHECKS: &[Check] = &[
    (Code::SequenceHole, sequence_numbers_have_no_holes),
    (Code::Unplaced, dropped_records_are_accounted_for),
    (Code::NoMeta, meta_out_is_present),
    (Code::NoSymbols, symbols_were_shown),
    (Code::NoEnd, unfinished_files_are_not_being_recorded),
];

/// Runs every check over a trace.
pub(crate) fn run(trace: &mut CheckedTrace) {
    for (_, check) in CHECKS {
        check(trace);
    }
}

/// Finding about a whole file: offset 0, no block.
fn finding(code: Code, message: String) -> Fault {
    Fault { code, offset: 0, block: None, message }
}

/// Reports holes in a relay channel's sequence numbers, which run over all CPUs; the file with the record after a hole
/// has the finding.
fn sequence_numbers_have_no_holes(trace: &mut CheckedTrace) {
    for file in &mut trace.files {
        let holes = file.holes;
        if holes.count == 0 {
            continue;
        }
        // The recorder's count of lost records is part of the missing numbers, so the larger of both holds.
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

/// Compares a relay channel's count of dropped records, over all CPUs, with the holes. Records that no hole explains
/// have no CPU, so the first file has the finding.
fn dropped_records_are_accounted_for(trace: &mut CheckedTrace) {
    let Some(total) = trace.total_overruns else { return };
    let missing = trace.files.iter().map(|f| f.holes.missing).fold(0, u64::saturating_add);
    if total > missing {
        // Dropped records have no number, so their place is unknown: a gap on every CPU, from the first event to the
        // last.
        trace.files.iter_mut().filter(|f| f.facts.cpu.is_some()).for_each(|f| f.facts.gaps += 1);
    }
    let counted = trace.files.iter().filter_map(|f| f.facts.lost).fold(0, u64::saturating_add);
    let rest = total.saturating_sub(counted);
    if rest == 0 {
        return;
    }
    if let Some(file) = trace.files.iter_mut().find(|f| f.facts.cpu.is_some() && f.is_there) {
        file.facts.lost = file.facts.lost.map(|lost| lost.saturating_add(rest));
        let message =
            format!("the relay channel dropped {total} records on its CPUs; where {rest} of them belong is not known");
        file.add(finding(Code::Unplaced, message));
    }
}

/// Reports a recording of `kmemtraced` without `meta.out`: a finding about the directory, because every file may be
/// whole.
fn meta_out_is_present(trace: &mut CheckedTrace) {
    let has_meta = trace.files.iter().any(|f| f.facts.cpu.is_none());
    if trace.is_dir && trace.info.input == InputKind::Kmemtrace && !has_meta {
        let message = "has no meta.out: figures are right, names of symbols, modules and commands are missing";
        trace.findings.push(finding(Code::NoMeta, message.to_owned()));
    }
}

/// Reports a trace of a kernel that showed no symbols: a finding about the directory, because every file may be whole. A captured tree
/// without the file has a finding of its own.
fn symbols_were_shown(trace: &mut CheckedTrace) {
    let is_missing = |fault: &Fault| fault.code == Code::TreeIncomplete && fault.message.starts_with("kallsyms ");
    let is_said = trace.files.iter().flat_map(|file| &file.facts.faults).any(is_missing);
    if trace.is_dir && trace.info.symbols == Some(SymbolSource::Hidden) && !is_said {
        trace.findings.push(finding(Code::NoSymbols, NO_SYMBOLS.to_owned()));
    }
}

/// Suffix of the message about an unfinished file whose recorder still runs.
pub(crate) const STILL_RECORDED: &str = "; it is still being recorded";

/// Marks unfinished files as still being recorded while a recorder holds the lock on their directory.
fn unfinished_files_are_not_being_recorded(trace: &mut CheckedTrace) {
    let is_unfinished = |fault: &Fault| matches!(fault.code, Code::NoEnd | Code::CutInBlock | Code::Empty);
    let unfinished = trace.files.iter().flat_map(|f| &f.facts.faults).any(is_unfinished);
    if !unfinished || !is_being_recorded(&trace.path) {
        return;
    }
    for fault in trace.files.iter_mut().flat_map(|f| &mut f.facts.faults).filter(|f| is_unfinished(f)) {
        fault.message.push_str(STILL_RECORDED);
    }
}

fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("{n} {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::open::OpenOptions;

    use super::*;
    use crate::advice;
    use crate::reading;
    use crate::sample::Sample;
    use kmemtrace_abi::fault::Verdict;
    use kmemtrace_tests::generate::{Options, Shape};
    use std::fs::File;
    use std::path::PathBuf;

    fn checked(path: PathBuf) -> CheckedTrace {
        let mut trace = reading::read(path, OpenOptions::default(), 2).unwrap();
        run(&mut trace);
        trace
    }

    /// Codes found, file by file.
    fn codes(trace: &CheckedTrace) -> Vec<Vec<Code>> {
        trace.files.iter().map(|f| f.facts.faults.iter().map(|fault| fault.code).collect()).collect()
    }

    fn plain(cpus: u32) -> Options {
        Options::plain(Shape::plain(), cpus, 200)
    }

    #[test]
    fn holes_belong_to_the_file_with_the_record_after_them() {
        for seed in 1..6 {
            let (recorded, raw, streams) = Sample::relay(seed);
            assert!(streams.holes.len() > 5);
            for sample in [recorded, raw] {
                let trace = checked(sample.path().to_owned());
                for stream in &streams.cpus {
                    let file = trace.files.iter().find(|f| f.facts.cpu == Some(stream.cpu)).unwrap();
                    let is_mine = |&&(_, after): &&(u64, u64)| stream.events.iter().any(|e| e.at == after);
                    let holes: Vec<_> = streams.holes.iter().filter(is_mine).collect();
                    let missing = holes.iter().map(|(before, after)| after - before - 1).sum();
                    assert_eq!(file.facts.events, stream.events.len() as u64);
                    assert_eq!((file.facts.lost, file.facts.gaps), (Some(missing), holes.len() as u64), "seed {seed}");
                    let verdict = if missing > 0 { Verdict::Lossy } else { Verdict::Complete };
                    assert_eq!(file.facts.verdict, verdict);
                }
                // Holes need all CPUs: a missing number may be in another CPU's file.
                let alone = checked(trace.files[0].facts.path.clone());
                assert_eq!((codes(&alone), alone.files[0].facts.lost), (vec![vec![]], Some(0)));
            }
        }
    }

    #[test]
    fn records_dropped_by_the_channel_count_once() {
        let (_, raw, streams) = Sample::relay(1);
        let missing: u64 = streams.holes.iter().map(|(before, after)| after - before - 1).sum();
        for (overruns, lost) in [(missing - 1, missing), (missing, missing), (missing + 7, missing + 7)] {
            std::fs::write(raw.file("total_overruns"), format!("{overruns}\n")).unwrap();
            let trace = checked(raw.path().to_owned());
            assert_eq!(trace.files.iter().map(|f| f.facts.lost.unwrap()).sum::<u64>(), lost);
            assert_eq!(codes(&trace)[0].contains(&Code::Unplaced), overruns > missing);
        }
    }

    #[test]
    fn a_missing_cpu_is_a_matter_of_its_directory() {
        let sample = Sample::new(&plain(3), 1);
        std::fs::remove_file(sample.file("cpu1.out")).unwrap();
        let trace = checked(sample.path().to_owned());
        assert_eq!(codes(&trace), [vec![], vec![Code::Missing], vec![], vec![]]);
        assert_eq!(trace.files[1].facts.verdict, Verdict::Truncated);
        assert_eq!(codes(&checked(sample.file("cpu2.out"))), [[]; 1]);
        assert_eq!(codes(&checked(sample.file("meta.out"))), [[]; 1]);
    }

    #[test]
    fn a_missing_meta_out_costs_names_only() {
        let sample = Sample::new(&plain(2), 1);
        std::fs::remove_file(sample.file("meta.out")).unwrap();
        let trace = checked(sample.path().to_owned());
        assert_eq!(codes(&trace), [[], []]);
        assert_eq!(trace.findings.iter().map(|f| f.code).collect::<Vec<_>>(), [Code::NoMeta]);
        assert!(trace.files.iter().all(|f| f.facts.verdict == Verdict::Complete));
        assert!(checked(sample.file("cpu0.out")).findings.is_empty());
        // Raw relay files never have a `meta.out`.
        let (_, raw, _) = Sample::relay(2);
        assert!(checked(raw.path().to_owned()).findings.is_empty());
    }

    #[test]
    fn a_recorder_at_work_is_the_reason_for_an_unfinished_file() {
        let sample = Sample::new(&Options { cut: vec![0], ..plain(2) }, 1);
        std::fs::write(sample.file("cpu1.out"), "").unwrap();
        let messages = |path| {
            let trace = checked(path);
            let faults = trace.files.iter().flat_map(|f| f.facts.faults.clone());
            faults.map(|f| f.message).collect::<Vec<_>>()
        };
        let of_dead = messages(sample.path().to_owned());
        assert_eq!(of_dead.len(), 2);
        assert!(of_dead.iter().all(|m| !m.contains("still")), "{of_dead:?}");
        let dir = File::open(sample.path()).unwrap();
        rustix::fs::flock(&dir, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let of_live = [messages(sample.path().to_owned()), messages(sample.file("cpu0.out"))].concat();
        assert_eq!(of_live.len(), 3);
        assert!(of_live.iter().all(|m| m.ends_with("still being recorded")), "{of_live:?}");
        let trace = checked(sample.path().to_owned());
        let remedies: Vec<_> = trace.files.iter().flat_map(|f| &f.facts.faults).map(advice::about).collect();
        assert_eq!(remedies, [Some("check it again when its recorder has stopped"); 2]);
    }

    #[test]
    fn events_behind_damage_are_counted() {
        let sample = Sample::new(&plain(1), 1);
        let whole = checked(sample.path().to_owned()).files[0].facts.events;
        sample.change("cpu0.out", |bytes| {
            let third = bytes.len() / 3;
            bytes[third] ^= 1;
        });
        let facts = checked(sample.path().to_owned()).files[0].facts.clone();
        assert_eq!(facts.verdict, Verdict::Corrupt);
        assert!(facts.unread > 0);
        assert_eq!(facts.events + facts.unread, whole);
    }
}
