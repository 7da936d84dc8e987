//! A part of a file, read by the landmarks that a reader of all of it kept.

use kmemtrace_abi::disk::block::{GAP_CLEARED, GAP_FOREIGN, GAP_NOT_WRITTEN, Interval, LOST_UNKNOWN};
use kmemtrace_abi::disk::seek_index::SeekIndex;
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::kernel::subbuffer::Missed;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::report::FileReport;

use crate::made::{Dir, Made, Told, counters, marked, page};
use Told::At;

/// Six blocks of events with marks and gap blocks between them, and loss that is told before the first event.
fn lossy(whole: u64) -> Made {
    let mut made = Made::pc();
    made.data(&[page(&[10, 11])]).data(&[marked(Missed::Counted(3), &[20]), page(&[21])]);
    made.counters(counters(3, 2, 0, 4), Interval::new(22, 25)).data(&[page(&[30, 31])]);
    made.gap(GAP_FOREIGN, LOST_UNKNOWN, Interval::new(33, 35), "filter").data(&[page(&[40, 41])]);
    made.gap(GAP_NOT_WRITTEN, 4, Interval::default(), "").data(&[page(&[50, 51])]);
    made.gap(GAP_CLEARED, LOST_UNKNOWN, Interval::new(52, 58), "")
        .data(&[page(&[60]), marked(Missed::Counted(1), &[61])]);
    made.end_with(|end, _| {
        (end.counters.dropped, end.counters.overrun) = (2.into(), (4 + whole).into());
        (end.counters.recorder_lost, end.counters.read) = (4.into(), (end.events.get() + 4).into());
    });
    made
}

fn told(stream: &mut CpuStream, names: &mut kmemtrace_abi::event::Names, batch: usize) -> Vec<Told> {
    let mut items: Vec<StreamItem> = Vec::new();
    loop {
        let before = items.len();
        let goes_on = stream.decode(names, &mut items, batch);
        assert_eq!(goes_on, items.len() > before, "a batch has items, or the stream is over");
        if !goes_on {
            return items.iter().map(Told::of).collect();
        }
    }
}

/// Items of a whole file, and its landmarks.
fn whole(dir: &Dir) -> (Vec<Told>, SeekIndex) {
    let mut trace = dir.open();
    assert!(trace.streams[0].seek_index().is_none());
    trace.streams[0].keep_seek_index();
    let told = told(&mut trace.streams[0], &mut trace.names, 100);
    (told, trace.streams[0].seek_index().unwrap().clone())
}

/// A part of a file, its facts and the bytes that it was said to have.
fn part(dir: &Dir, landmarks: &SeekIndex, window: (u64, u64), batch: usize) -> (Vec<Told>, FileReport, u64) {
    let mut trace = dir.open();
    trace.streams[0].restrict_to(landmarks, window);
    let bytes = trace.streams[0].bytes_to_read();
    let told = told(&mut trace.streams[0], &mut trace.names, batch);
    (told, trace.streams[0].report().clone(), bytes)
}

fn events(told: &[Told]) -> Vec<u64> {
    told.iter().filter_map(|told| if let At(at) = told { Some(*at) } else { None }).collect()
}

#[test]
fn a_part_has_all_events_of_its_window_and_every_gap_of_the_file() {
    let mut damaged = lossy(0);
    damaged.damage(6);
    let mut no_end = lossy(0);
    no_end.blocks.pop();
    let mut plain = Made::pc();
    (1..=6).for_each(|n| {
        plain.data(&[page(&[10 * n, 10 * n + 1])]);
    });
    plain.end();
    let edges = [0, 9, 10, 11, 12, 20, 21, 25, 30, 31, 32, 41, 45, 50, 51, 60, 61, 62, u64::MAX];
    for made in [lossy(0), lossy(9), damaged, no_end, plain] {
        let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
        let (all, landmarks) = whole(&dir);
        let windows = edges.iter().flat_map(|&from| edges.iter().map(move |&to| (from, to)));
        for (from, to) in windows.filter(|(from, to)| from <= to) {
            for batch in [1, 100] {
                let (told, ..) = part(&dir, &landmarks, (from, to), batch);
                let read = events(&told);
                let wanted = |at: &u64| (from..=to).contains(at);
                let want: Vec<u64> = events(&all).into_iter().filter(wanted).collect();
                let got: Vec<u64> = read.iter().copied().filter(wanted).collect();
                assert_eq!(got, want, "{from} to {to}");
                // In the order of the whole file, with every gap at its place among the events.
                let kept = |told: &&Told| if let At(at) = told { read.contains(at) } else { true };
                let want: Vec<Told> = all.iter().filter(kept).copied().collect();
                assert_eq!(told, want, "{from} to {to}");
            }
        }
    }
}

#[test]
fn a_part_begins_at_the_last_block_before_its_window_and_ends_behind_it() {
    let made = lossy(0);
    let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
    let (_, landmarks) = whole(&dir);
    let points: Vec<_> = landmarks.points.iter().map(|p| (p.offset, p.sequence, p.events, p.last)).collect();
    let point =
        |block: usize, events, last: u64| (made.offset(block), block as u64, events, Some(last).filter(|&n| n > 0));
    // Reading cannot begin at a block whose first event tells of loss before it.
    assert_eq!(points, [point(1, 0, 0), point(2, 2, 11), point(4, 4, 21), point(6, 6, 31), point(10, 10, 51)]);
    let file = made.bytes().len() as u64;
    for (window, read, bytes) in [
        ((0, 9), &[10, 11][..], made.offset(2) - made.offset(1)),
        ((0, 11), &[10, 11, 20], made.offset(4) - made.offset(1)),
        ((12, 20), &[20, 21], made.offset(4) - made.offset(2)),
        ((31, 31), &[30, 31, 40, 41], made.offset(10) - made.offset(4)),
        ((32, 45), &[40, 41, 50, 51], made.offset(10) - made.offset(6)),
        ((52, 99), &[60, 61], file - made.offset(10)),
        ((99, u64::MAX), &[60, 61], file - made.offset(10)),
    ] {
        let (told, facts, told_bytes) = part(&dir, &landmarks, window, 1);
        assert_eq!((events(&told), told_bytes), (read.to_vec(), bytes), "{window:?}");
        assert!(facts.bytes <= file && facts.verdict <= Verdict::Lossy, "{facts:?}");
    }
    // Bytes before the part do not count as read, but events do as there.
    let (_, facts, _) = part(&dir, &landmarks, (12, 20), 1);
    assert_eq!((facts.events, facts.bytes), (4, made.offset(3) - made.offset(2)));
    let (_, facts, _) = part(&dir, &landmarks, (0, u64::MAX), 100);
    assert_eq!((facts.events, facts.bytes, facts.blocks), (12, file - made.offset(1), 12));
}

#[test]
fn a_part_that_became_damaged_is_worse_than_lossy() {
    let made = lossy(0);
    let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
    let (all, landmarks) = whole(&dir);
    let mut bad = made.clone();
    bad.damage(4);
    let bad = Dir::new(&[("cpu0.out", &bad.bytes())]);
    let (told, facts, _) = part(&bad, &landmarks, (25, 45), 10);
    assert!(events(&told).iter().all(|at| events(&all).contains(at)));
    assert_eq!((facts.faults[0].code, facts.verdict), (Code::BadPayload, Verdict::Corrupt));
    let (_, facts, _) = part(&bad, &landmarks, (52, 61), 10);
    assert!(facts.verdict <= Verdict::Lossy, "{:?}", facts.faults);
    // A file that was cut before the part that is wanted.
    let cut = Dir::new(&[("cpu0.out", &made.bytes()[..made.offset(4) as usize])]);
    let (told, facts, _) = part(&cut, &landmarks, (52, 61), 10);
    assert_eq!((events(&told), facts.verdict >= Verdict::Truncated), (vec![], true));
}

#[test]
fn a_missing_file_is_not_narrowed() {
    let mut made = Made::new(crate::made::PC, 0, &[0, 1]);
    made.end();
    let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
    let mut trace = dir.open();
    trace.streams[1].restrict_to(&SeekIndex::default(), (1, 2));
    assert_eq!(told(&mut trace.streams[1], &mut trace.names, 1).len(), 1);
}
