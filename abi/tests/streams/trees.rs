//! Captured trees: whole sub-buffers without blocks around them, and the kernel's stats beside them.

use kmemtrace_abi::event::{Action, GapCause};
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::kernel::subbuffer::Missed;

use crate::made::{Dir, KFREE, MACHINES, Machine, PAGE, PC, Page, Seen, Told, marked, page};
use Told::At;

/// Sub-buffers as `cat` leaves them.
fn raw(machine: Machine, pages: &[Page]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for page in pages {
        bytes.extend_from_slice(&machine.page(page));
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
    }
    bytes
}

/// Stats by overrun, dropped, read and unread events.
fn stats(overrun: u64, dropped: u64, read: u64, unread: u64) -> String {
    format!(
        "entries: {unread}\noverrun: {overrun}\ncommit overrun: 0\ndropped events: {dropped}\nread events: {read}\n"
    )
}

fn tree(machine: Machine, bytes: &[u8], stats: Option<&str>) -> Dir {
    let header_page = machine.header_page();
    let mut files = vec![
        ("per_cpu/cpu0/trace_pipe_raw", bytes),
        ("events/header_page", header_page.as_bytes()),
        ("events/kmem/kfree/format", KFREE.as_bytes()),
        ("trace_clock", b"local [mono]"),
    ];
    files.extend(stats.map(|stats| ("per_cpu/cpu0/stats", stats.as_bytes())));
    Dir::new(&files)
}

fn read(bytes: &[u8], stats: &str) -> Seen {
    tree(PC, bytes, Some(stats)).read().remove(0)
}

fn lost(from: u64, number: u64) -> Told {
    Told::Gap(Some(from), None, Some(number), GapCause::Counters)
}

#[test]
fn events_that_may_be_of_objects_are_told_by_name() {
    let bytes = raw(PC, &[page(&[10, 12]), page(&[13])]);
    let format = KFREE.replacen("name: kfree", "name: kfree_bulk", 1);
    let header_page = PC.header_page();
    let dir = Dir::new(&[
        ("per_cpu/cpu0/trace_pipe_raw", &bytes),
        ("events/header_page", header_page.as_bytes()),
        ("events/kmem/kfree_bulk/format", format.as_bytes()),
    ]);
    let mut trace = dir.open();
    let seen = Seen::of(&mut trace, 0);
    assert_eq!(seen.facts.unknown.iter().collect::<Vec<_>>(), [(&b"kfree_bulk"[..], 3)]);
    assert!(seen.events.iter().all(|event| event.action == Action::Other && trace.names.is_unknown(event.name)));
    let known = tree(PC, &bytes, None).read().remove(0);
    assert_eq!((known.facts.events, known.facts.unknown.total()), (3, 0));
}

#[test]
fn a_whole_tree_has_its_events() {
    for machine in MACHINES {
        let bytes = raw(machine, &[page(&[10, 12]), page(&[]), page(&[13]), marked(Missed::Counted(2), &[20])]);
        let dir = tree(machine, &bytes, Some(&stats(2, 0, 4, 0)));
        let mut trace = dir.open();
        assert_eq!((trace.streams[0].bytes_to_read(), trace.streams[0].recording()), (bytes.len() as u64, None));
        assert_eq!(trace.streams[0].file_metadata().unwrap().unwrap().len(), bytes.len() as u64);
        let seen = Seen::of(&mut trace, 0);
        let gap = Told::Gap(Some(13), Some(20), Some(2), GapCause::Overrun);
        assert_eq!(seen.told, [At(10), At(12), At(13), gap, At(20)], "{machine:?}");
        assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::Overrun], Some(2)));
        assert_eq!((seen.facts.bytes, seen.facts.blocks), (bytes.len() as u64, 0));
        assert_eq!((seen.facts.version, seen.facts.verdict), (None, Verdict::Lossy));
        assert_eq!(trace.streams[0].bytes_read(), bytes.len() as u64);
    }
}

#[test]
fn a_tree_keeps_what_names_modules_and_machine() {
    let bytes = raw(PC, &[page(&[10, 12])]);
    let header_page = PC.header_page();
    let files = [
        ("per_cpu/cpu0/trace_pipe_raw", &bytes[..]),
        ("events/header_page", header_page.as_bytes()),
        ("events/kmem/kfree/format", KFREE.as_bytes()),
        ("uname", b"Linux box 6.1 #1 x86_64 GNU/Linux\n"),
        ("notes", b"\x04\0\xff"),
        ("module_info", b"ext4 - fs/ext4/ext4\n"),
        ("boot_id", b"3f2c\n"),
    ];
    let trace = Dir::new(&files).open();
    let older = Dir::new(&files[..4]).open();
    assert_eq!((&trace.metadata.notes[..], &trace.metadata.module_info[..]), (files[4].1, files[5].1));
    assert_eq!((trace.info.host.as_deref(), trace.info.boot.as_deref()), (Some("box"), Some("3f2c")));
    assert!(trace.info.recording.is_some() && trace.info.recording == older.info.recording);
    assert!(older.metadata.notes.is_empty() && older.info.boot.is_none());
    let findings = |trace: &kmemtrace_abi::trace::Trace| trace.metadata.report.as_ref().map(|r| r.faults.len());
    assert_eq!(findings(&trace), findings(&older), "a tree of an older script lacks nothing");
    let other = raw(PC, &[page(&[10, 13])]);
    let other = Dir::new(&[("per_cpu/cpu0/trace_pipe_raw", &other[..]), files[1], files[2]]).open();
    assert!(other.info.recording.is_some() && other.info.recording != trace.info.recording);
}

#[test]
fn a_tree_is_read_in_batches() {
    let pages: Vec<Page> = (0..1000).map(|n| page(&[2 * n + 1, 2 * n + 2])).collect();
    let dir = tree(PC, &raw(PC, &pages), Some(&stats(0, 0, 2000, 0)));
    let mut trace = dir.open();
    let (mut items, mut lengths) = (Vec::new(), Vec::new());
    while trace.streams[0].fill(&mut trace.names, &mut items) {
        lengths.push(items.len());
    }
    assert_eq!((lengths, trace.streams[0].report().verdict), (vec![512, 512, 512, 464], Verdict::Complete));
    assert_eq!(trace.streams[0].report().faults, []);
}

#[test]
fn a_tree_that_was_cut_or_damaged_says_where() {
    let bytes = raw(PC, &[page(&[10]), page(&[20]), page(&[30])]);
    let seen = read(&bytes[..2 * PAGE + 100], &stats(0, 0, 3, 0));
    assert_eq!(seen.told, [At(10), At(20), Told::Gap(Some(20), None, None, GapCause::Cut)]);
    let message = seen.message(Code::SubBufferCut);
    assert_eq!(message, "ends inside the sub-buffer at byte 1024; every earlier one is whole");
    let mut bad = bytes.clone();
    bad[PAGE + 9] = 0xff;
    let seen = read(&bad, &stats(0, 0, 3, 0));
    assert_eq!(seen.told, [At(10), Told::Gap(Some(10), Some(30), None, GapCause::Damage), At(30)]);
    let message = seen.message(Code::BadSubBuffer);
    assert!(message.starts_with("the sub-buffer at byte 512: its commit size"), "{message}");
    assert_eq!((seen.facts.faults[0].offset, seen.facts.faults[0].block), (512, None));
    // Stats of a damaged file are not compared with its events.
    assert_eq!((seen.codes(), seen.facts.verdict), (vec![Code::BadSubBuffer], Verdict::Corrupt));
    let mut bad = bytes.clone();
    bad[PAGE + 16] |= 31;
    let seen = read(&bad, &stats(0, 0, 3, 0));
    assert_eq!((seen.codes(), seen.facts.events), (vec![Code::BadSubBuffer], 2));
}

#[test]
fn loss_that_only_stats_tell_of_is_known_before_the_first_event() {
    let plain = raw(PC, &[page(&[10]), page(&[20])]);
    let with_mark = raw(PC, &[page(&[10]), marked(Missed::Counted(3), &[20])]);
    let vague = raw(PC, &[page(&[10]), marked(Missed::Uncounted, &[20])]);
    let counted = |n| Told::Gap(Some(10), Some(20), n, GapCause::Overrun);
    for (bytes, stats, want, codes) in [
        (&plain, stats(0, 0, 2, 0), vec![At(10), At(20)], vec![]),
        // Stats that were copied before the sub-buffers.
        (&plain, stats(0, 0, 0, 2), vec![At(10), At(20)], vec![]),
        (&plain, stats(0, 4, 2, 0), vec![lost(10, 4), At(10), At(20)], vec![Code::Unplaced]),
        (&plain, stats(5, 0, 2, 0), vec![lost(10, 5), At(10), At(20)], vec![Code::Unplaced]),
        // Events that were handed out and are not there are told only at the end of the file.
        (&plain, stats(0, 0, 9, 0), vec![At(10), At(20), lost(10, 7)], vec![Code::UnlikeStats, Code::Unplaced]),
        (&plain, stats(0, 1, 9, 0), vec![lost(10, 8), At(10), At(20)], vec![Code::UnlikeStats, Code::Unplaced]),
        (&plain, stats(0, 0, 1, 5), vec![At(10), At(20)], vec![Code::UnlikeStats]),
        (&with_mark, stats(3, 0, 2, 0), vec![At(10), counted(Some(3)), At(20)], vec![Code::Overrun]),
        (
            &with_mark,
            stats(7, 1, 2, 0),
            vec![lost(10, 5), At(10), counted(Some(3)), At(20)],
            vec![Code::Overrun, Code::Unplaced],
        ),
        (&vague, stats(7, 0, 2, 0), vec![At(10), counted(None), At(20)], vec![Code::Overrun]),
        (
            &vague,
            stats(7, 2, 2, 0),
            vec![lost(10, 2), At(10), counted(None), At(20)],
            vec![Code::Overrun, Code::Unplaced],
        ),
    ] {
        let seen = read(bytes, &stats);
        assert_eq!(seen.told, want, "{stats}");
        assert_eq!((seen.codes(), seen.facts.late_loss), (codes, want.last() == Some(&lost(10, 7))), "{stats}");
    }
    let seen = read(&plain, &stats(0, 0, 9, 3));
    assert_eq!(seen.message(Code::UnlikeStats), "stats count 9 events read and 3 left, and 2 are here");
    assert_eq!((seen.facts.lost, seen.facts.verdict), (Some(7), Verdict::Lossy));
}

#[test]
fn all_sub_buffers_are_looked_at_before_the_first_event() {
    // More than is looked at together, with the mark in the last one.
    let mut pages: Vec<Page> = (1..700).map(|n| page(&[n])).collect();
    pages.push(marked(Missed::Counted(6), &[700]));
    let seen = read(&raw(PC, &pages), &stats(8, 1, 702, 0));
    assert_eq!((seen.told[0], seen.facts.lost), (lost(1, 2 + 1 + 2 - 2 + 2), Some(11)));
    assert!(!seen.facts.late_loss);
}

#[test]
fn without_stats_only_marks_tell_of_loss() {
    for (missed, lost) in [(None, Some(0)), (Some(Missed::Counted(3)), Some(3)), (Some(Missed::Uncounted), None)] {
        let bytes = raw(PC, &[page(&[10]), Page { missed, ..page(&[20]) }]);
        let seen = tree(PC, &bytes, None).read().remove(0);
        assert_eq!((seen.facts.lost, seen.events.len()), (lost, 2), "{missed:?}");
        assert!(seen.codes().contains(&Code::TreeIncomplete));
    }
}
