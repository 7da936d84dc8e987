//! Recordings of tracefs: what comes of their blocks, and of damage, cuts and wrong totals.

use kmemtrace_abi::disk::block::{End, FLAG_OPTIONAL, kind};
use kmemtrace_abi::event::{Action, GapCause, Kind, StreamItem};
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::kernel::subbuffer::Missed;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::trace::{InputKind, OpenError, Trace};
use zerocopy::IntoBytes;

use crate::made::{Dir, MACHINES, Made, PC, Page, RECORDING, Seen, Told, counters, marked, page};
use Told::At;

/// A file of three blocks with events and its end.
fn three() -> Made {
    let mut made = Made::pc();
    made.data(&[page(&[10, 12]), page(&[13])]).data(&[page(&[20, 21])]).data(&[page(&[30])]);
    made
}

#[test]
fn a_whole_recording_has_its_events_and_no_gap() {
    for machine in MACHINES {
        let mut made = Made::new(machine, 3, &[3]);
        made.data(&[page(&[10, 12]), page(&[]), page(&[13])]).data(&[page(&[20, 21])]).end();
        let bytes = made.bytes();
        let dir = Dir::new(&[("cpu3.out", &bytes)]);
        let mut trace = dir.open();
        assert_eq!((trace.info.input, trace.info.source), (InputKind::Kmemtrace, Some(Source::Tracefs)));
        assert_eq!((trace.info.endian, trace.info.word_bytes), (Some(machine.endian), Some(machine.word)));
        let stream = &trace.streams[0];
        assert_eq!((stream.cpu(), stream.path(), stream.recording()), (3, &*dir.path("cpu3.out"), Some(RECORDING)));
        assert_eq!(stream.bytes_to_read(), bytes.len() as u64);
        assert_eq!(stream.file_metadata().unwrap().unwrap().len(), bytes.len() as u64);
        assert_eq!(stream.bytes_read(), 0);
        let seen = Seen::of(&mut trace, 0);
        assert_eq!(seen.told, [10, 12, 13, 20, 21].map(At), "{machine:?}");
        for event in &seen.events {
            assert_eq!((event.action, event.cpu, event.pid), (Action::Free(Kind::Kmalloc), 3, Some(77)));
            assert_eq!((event.address, event.call_site), (event.at, 0xffff_8000_0000_0000 + event.at));
            assert_eq!(trace.names.get(event.name), b"kfree");
        }
        let facts = &seen.facts;
        assert_eq!((facts.first, facts.last, facts.lost, facts.lost_before), (Some(10), Some(21), Some(0), Some(0)));
        assert_eq!(
            (facts.blocks, facts.bytes, facts.version),
            (4, bytes.len() as u64, Some((1, kmemtrace_abi::disk::block::MINOR)))
        );
        assert_eq!((facts.verdict, facts.unread, facts.late_loss), (Verdict::Complete, 0, false));
        assert_eq!(facts.counters.map(|counters| counters.read.get()), Some(5));
        assert_eq!(facts.faults, []);
        let stream = &trace.streams[0];
        assert_eq!((stream.bytes_read(), stream.recording()), (bytes.len() as u64, None));
        assert!(stream.file_metadata().is_none() && stream.seek_index().is_none());
    }
}

#[test]
fn a_recording_without_events_is_complete() {
    let seen = Made::pc().end().read();
    assert_eq!((&seen.told[..], seen.facts.first, seen.facts.lost), (&[][..], None, Some(0)));
    assert_eq!((seen.facts.faults, seen.facts.verdict), (vec![], Verdict::Complete));
    // A block without events has no times.
    let mut made = Made::pc();
    made.data(&[page(&[])]).data(&[page(&[5])]).data(&[page(&[])]).end();
    let seen = made.read();
    assert_eq!((&seen.told[..], seen.codes()), (&[At(5)][..], vec![]));
}

#[test]
fn a_batch_has_as_many_items_as_asked_for_and_the_rest_of_a_sub_buffer() {
    let pages: Vec<Page> = (0..500).map(|n| page(&[4 * n + 1, 4 * n + 2, 4 * n + 4])).collect();
    let mut made = Made::pc();
    made.data(&pages[..300]).data(&pages[300..]).end();
    let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
    let want: Vec<Told> = pages.iter().flat_map(|page| &page.times).map(|&at| At(at)).collect();
    let mut trace = dir.open();
    let (stream, names) = (&mut trace.streams[0], &mut trace.names);
    let (mut items, mut lengths, mut told) = (Vec::new(), Vec::new(), Vec::new());
    while stream.fill(names, &mut items) {
        lengths.push(items.len());
        told.extend(items.iter().map(Told::of));
    }
    assert_eq!((lengths, &told), (vec![513, 513, 474], &want));
    let mut trace = dir.open();
    let (stream, names) = (&mut trace.streams[0], &mut trace.names);
    let (mut items, mut batches): (Vec<StreamItem>, u32) = (Vec::new(), 0);
    while stream.decode(names, &mut items, 1) {
        batches += 1;
    }
    assert_eq!((batches, items.len()), (500, want.len()));
    assert!(!stream.decode(names, &mut items, 1));
}

#[test]
fn an_event_that_goes_back_in_time_takes_the_time_before_it() {
    let mut made = Made::pc();
    made.data(&[page(&[10, 20]), page(&[15, 17, 20, 21])]).data(&[page(&[30])]).end();
    let seen = made.read();
    assert_eq!(seen.told, [10, 20, 20, 20, 20, 21, 30].map(At));
    // Times that are wrong anyway are not compared with those of the headers.
    assert_eq!((seen.codes(), seen.facts.verdict), (vec![Code::BackInTime; 2], Verdict::Complete));
    assert_eq!(seen.facts.faults[0].message, "time stamp 15 follows 20");
    assert_eq!(seen.facts.faults[0].offset, made.offset(1));
    // The header has the stamp of the last record, and the event the time before it.
    let mut made = Made::pc();
    made.data(&[page(&[10, 20]), page(&[15])]).end();
    let seen = made.read();
    assert_eq!((&seen.told[..], seen.codes()), (&[10, 20, 20].map(At)[..], vec![Code::BackInTime]));
}

#[test]
fn a_thousand_findings_are_kept_and_the_others_counted() {
    let mut made = Made::pc();
    (1..=1100).rev().for_each(|n| {
        made.data(&[page(&[n])]);
    });
    let seen = made.end().read();
    assert_eq!((seen.facts.faults.len(), seen.facts.faults_left_out), (1000, 99));
    assert!(seen.codes().iter().all(|&code| code == Code::BackInTime));
    assert!(seen.told.iter().all(|&told| told == At(1100)) && seen.told.len() == 1100);
    // Among those that are not kept, time may have gone back: the last time is not compared then.
    let mut made = Made::pc();
    (1..=1000).for_each(|n| {
        made.data_with(&[page(&[n])], |info| info.events = 2);
    });
    made.data(&[page(&[500])]);
    let seen = made.end().read();
    assert_eq!((seen.facts.faults.len(), seen.facts.faults_left_out), (1000, 1));
}

#[test]
fn a_damaged_block_is_a_gap_between_the_events_around_it() {
    let gap = |from, to| Told::Gap(from, to, None, GapCause::Damage);
    let mut made = three();
    let seen = made.damage(2).end().read();
    assert_eq!(seen.told, [At(10), At(12), At(13), gap(Some(13), Some(30)), At(30)]);
    assert_eq!((seen.codes(), seen.facts.verdict), (vec![Code::BadPayload], Verdict::Corrupt));
    // The header behind it tells how many events are not there.
    assert_eq!((seen.facts.unread, seen.facts.blocks, seen.facts.lost), (2, 4, Some(0)));
    let seen = three().damage(1).end().read();
    assert_eq!(seen.told, [gap(None, Some(20)), At(20), At(21), At(30)]);
    assert_eq!((seen.facts.unread, seen.facts.lost_before), (3, None));
    let seen = three().damage(3).end().read();
    assert_eq!(seen.told[5..], [gap(Some(21), None)]);
    assert_eq!(seen.facts.last, Some(21));
}

#[test]
fn a_block_that_is_missing_is_a_gap() {
    let mut made = three();
    made.end();
    made.blocks.remove(2);
    let seen = made.read();
    assert_eq!(seen.told[3..], [Told::Gap(Some(13), Some(30), None, GapCause::Damage), At(30)]);
    assert_eq!((seen.codes(), seen.facts.unread), (vec![Code::OutOfSequence], 2));
}

#[test]
fn a_recording_that_stops_early_ends_with_a_gap() {
    let cut = Told::Gap(Some(30), None, None, GapCause::Cut);
    let made = three();
    let seen = made.read();
    assert_eq!((seen.told.last(), seen.codes()), (Some(&cut), vec![Code::NoEnd]));
    assert_eq!((seen.facts.verdict, seen.facts.last, seen.facts.counters), (Verdict::Truncated, Some(30), None));
    let bytes = made.bytes();
    let seen = Dir::new(&[("cpu0.out", &bytes[..bytes.len() - 1])]).read().remove(0);
    assert_eq!(seen.told[5..], [Told::Gap(Some(21), None, None, GapCause::Cut)]);
    assert_eq!((seen.codes(), seen.facts.bytes), (vec![Code::CutInBlock], made.offset(3)));
    let seen = Dir::new(&[("cpu0.out", &[&bytes[..], b"junk"].concat())]).read().remove(0);
    assert_eq!(seen.told[6..], [Told::Gap(Some(30), None, None, GapCause::Damage)]);
}

#[test]
fn a_sub_buffer_that_makes_no_sense_costs_its_rest() {
    let gap = |from, to| Told::Gap(Some(from), Some(to), None, GapCause::Damage);
    let payload = |pages: &[Page]| pages.iter().map(|page| PC.page(page)).collect::<Vec<_>>();
    // An entry that reaches over the end of its sub-buffer: the next sub-buffer is read.
    let mut pages = payload(&[page(&[10, 11, 12]), page(&[20])]);
    pages[0][16 + 2 * 28] |= 31;
    let mut made = Made::pc();
    made.block(kind::DATA, &pages.concat(), |info| (info.first, info.last, info.events) = (10, 20, 4)).end();
    let seen = made.read();
    assert_eq!(seen.told, [At(10), At(11), gap(11, 20), At(20)]);
    assert_eq!((seen.codes(), seen.facts.verdict), (vec![Code::BadSubBuffer], Verdict::Corrupt));
    let at = made.offset(1);
    let message = seen.message(Code::BadSubBuffer);
    assert!(message.starts_with(&format!("block 1 at byte {at}: the sub-buffer at byte 0 of it: ")), "{message}");
    // A sub-buffer that counts more than it has: nothing tells where the next one begins.
    let mut pages = payload(&[page(&[10]), page(&[11]), page(&[12])]);
    pages[1][10] = 1;
    let mut made = Made::pc();
    made.block(kind::DATA, &pages.concat(), |info| (info.first, info.last, info.events) = (10, 12, 3));
    made.count(3, (10, 12));
    made.data(&[page(&[20])]).end();
    let seen = made.read();
    assert_eq!((seen.told, seen.facts.unread), (vec![At(10), gap(10, 20), At(20)], 2));
    let message = seen.facts.faults[0].message.clone();
    assert!(message.starts_with(&format!("block 1 at byte {at}: the sub-buffer at byte 44 of it: ")), "{message}");
}

#[test]
fn a_record_that_is_too_short_is_counted_and_not_used() {
    // The third record has 20 of its 24 bytes, and the fourth one is whole.
    let mut bytes = PC.page(&page(&[10, 11, 12]));
    let whole = bytes[16..44].to_vec();
    let last = bytes.len() - 28;
    bytes[last] -= 1;
    bytes.drain(last + 24..);
    bytes.extend_from_slice(&whole);
    bytes[8] = (3 * 28 + 24) as u8;
    let mut made = Made::pc();
    made.block(kind::DATA, &bytes, |info| (info.first, info.last, info.events) = (10, 12, 4));
    made.count(4, (10, 12));
    made.end();
    let seen = made.read();
    assert_eq!(seen.told, [At(10), At(11), Told::Gap(Some(11), Some(12), None, GapCause::Damage), At(12), At(12)]);
    let what: Vec<Action> = seen.events.iter().map(|event| event.action).collect();
    let free = Action::Free(Kind::Kmalloc);
    assert_eq!(what, [free, free, Action::Other, free]);
    assert_eq!(seen.codes(), [Code::BadRecord]);
    let message = seen.message(Code::BadRecord);
    assert!(message.ends_with("the record has 20 bytes, and its event's fields need 24"), "{message}");
}

#[test]
fn a_short_record_behind_damage_is_told_with_one_gap() {
    let mut short = PC.page(&page(&[10]));
    short[16] -= 1;
    short.drain(40..);
    short[8] = 24;
    let mut made = Made::pc();
    made.data(&[page(&[5])]).damage(1);
    made.block(kind::DATA, &short, |info| (info.first, info.last, info.events) = (10, 10, 1));
    let seen = made.end().read();
    assert_eq!(seen.told, [Told::Gap(None, Some(10), None, GapCause::Damage), At(10)]);
    assert_eq!((seen.codes(), seen.events[0].action), (vec![Code::BadPayload, Code::BadRecord], Action::Other));
}

#[test]
fn headers_and_totals_that_are_wrong_are_told_with_their_block() {
    let data = |change: fn(&mut kmemtrace_abi::disk::block::BlockInfo)| {
        let mut made = Made::pc();
        made.data(&[page(&[5])]).data_with(&[page(&[10, 12]), page(&[13])], change).end();
        (2, "its header says that", made)
    };
    let end = |change: fn(&mut End)| {
        let mut made = Made::pc();
        made.data(&[page(&[5])]).data(&[page(&[10, 12]), page(&[13])]).end_with(|end, _| change(end));
        (3, "it says that", made)
    };
    for ((block, says, made), message) in [
        (data(|info| info.events = 2), "it has 2 events, and it has 3"),
        (data(|info| info.events = 4), "it has 4 events, and it has 3"),
        (data(|info| info.events_before = 2), "2 events come before it, and 1 do"),
        (data(|info| info.events_before = 0), "0 events come before it, and 1 do"),
        (data(|info| info.lost_before = 1), "1 events were lost before it; marks before it count 0, and gap blocks 0"),
        (data(|info| info.first = 11), "its events are from 11 to 13, and they are from 10 to 13"),
        (data(|info| info.last = 12), "its events are from 10 to 12, and they are from 10 to 13"),
        (end(|end| (end.events, end.counters.read) = (3.into(), 3.into())), "the file has 3 events, and it has 4"),
        (end(|end| end.first = 6.into()), "the file's events are from 6 to 13, and they are from 5 to 13"),
        (end(|end| end.last = 12.into()), "the file's events are from 5 to 12, and they are from 5 to 13"),
        (end(|end| end.timed = 1.into()), "1 blocks of the file tell when events were lost, and 0 do"),
        (end(|end| end.marks = 2.into()), "some mark has no number, and 0 of 0 have none"),
    ] {
        let seen = made.read();
        assert_eq!(seen.told, [5, 10, 12, 13].map(At), "{message}");
        let found: Vec<_> = seen.facts.faults.iter().filter(|fault| fault.code == Code::WrongTotals).collect();
        assert_eq!(found.len(), 1, "{message}: {:?}", seen.facts.faults);
        let offset = made.offset(block);
        assert_eq!(found[0].message, format!("block {block} at byte {offset}: {says} {message}"));
        assert_eq!((found[0].offset, seen.facts.verdict), (offset, Verdict::Corrupt));
    }
    // A block without events has no times to tell.
    let mut made = Made::pc();
    made.data_with(&[page(&[])], |info| info.last = 7).end_with(|end, _| end.first = 9.into());
    let seen = made.read();
    assert_eq!(seen.codes(), [Code::WrongTotals, Code::WrongTotals]);
    assert!(seen.facts.faults[0].message.ends_with("its events are from 0 to 7, and they are from 0 to 0"));
    // Minor version 0 does not count blocks with times.
    let mut made = Made::pc().in_minor(0);
    made.data(&[page(&[5])]).end_with(|end, _| end.timed = 3.into());
    assert_eq!(made.read().codes(), []);
}

#[test]
fn totals_of_a_damaged_file_are_not_compared() {
    let mut made = Made::pc();
    made.data(&[page(&[5]), page(&[6])]).damage(1);
    made.data_with(&[page(&[10])], |info| (info.events, info.last, info.lost_before) = (9, 9, 9));
    made.end_with(|end, _| {
        (end.events, end.first, end.timed, end.marks) = (1.into(), 1.into(), 9.into(), 2.into());
        end.counters.read = 1.into();
    });
    assert_eq!(made.read().codes(), [Code::BadPayload]);
}

#[test]
fn a_mark_is_in_the_totals_of_the_blocks_behind_it() {
    let of = |missed, marks: u32| {
        let mut made = Made::pc();
        made.data(&[marked(missed, &[5])]).data(&[page(&[6])]);
        made.end_with(|end, _| (end.marks, end.counters.overrun) = (marks.into(), 3.into()));
        made.read()
    };
    assert_eq!(of(Missed::Counted(3), 1).codes(), [Code::Overrun]);
    assert_eq!(of(Missed::Uncounted, 2).codes(), [Code::Overrun]);
    assert_eq!(of(Missed::Uncounted, 0).codes(), [Code::Overrun]);
    for (missed, marks, said) in [
        (Missed::Counted(3), 2, "it says that some mark has no number, and 0 of 1 have none"),
        (Missed::Uncounted, 1, "it says that every mark has its number, and 1 of 1 have none"),
    ] {
        let seen = of(missed, marks);
        assert!(seen.message(Code::WrongTotals).ends_with(said), "{:?}", seen.facts.faults);
    }
}

#[test]
fn payloads_that_are_cut_short_are_told() {
    for (kind, what) in [
        (kind::COUNTERS, "its counters are cut short"),
        (kind::GAP, "its gap record is cut short"),
        (kind::END, "its totals are cut short"),
    ] {
        let mut made = Made::pc();
        made.data(&[page(&[5])]).block(kind, &[0; 10], |_| {});
        let seen = made.read();
        assert!(seen.message(Code::WrongTotals).ends_with(what), "{:?}", seen.facts.faults);
    }
}

#[test]
fn blocks_of_later_versions_are_passed_over() {
    let mut made = Made::pc();
    made.data(&[page(&[5])]).block(77, b"new", |info| info.flags = FLAG_OPTIONAL).data(&[page(&[6])]).end();
    let seen = made.read();
    assert_eq!((seen.told, seen.facts.verdict), (vec![At(5), At(6)], Verdict::Complete));
}

#[test]
fn one_file_header_speaks_for_all_files() {
    let mut good = Made::new(PC, 0, &[0, 1, 4]);
    good.data(&[page(&[5])]).end();
    let mut bad = Made::new(PC, 1, &[0, 1, 4]);
    bad.data(&[page(&[6])]).data(&[page(&[7])]).end().damage(0);
    let seen = Dir::new(&[("cpu0.out", &good.bytes()), ("cpu1.out", &bad.bytes())]).read();
    assert_eq!(seen[0].told, [At(5)]);
    assert_eq!(seen[1].told, [Told::Gap(None, Some(6), None, GapCause::Damage), At(6), At(7)]);
    assert_eq!(seen[1].codes(), [Code::BadPayload]);
    // CPU 4 has no file.
    assert_eq!(seen[2].told, [Told::Gap(None, None, None, GapCause::Cut)]);
    let facts = &seen[2].facts;
    assert_eq!((facts.cpu, facts.lost, facts.verdict, facts.bytes), (Some(4), None, Verdict::Truncated, 0));
    assert_eq!(seen[2].message(Code::Missing), "the file of CPU 4 is not there");
    // Without any header nothing can be decoded.
    let seen = Dir::new(&[("cpu1.out", &bad.bytes())]).read().remove(0);
    assert_eq!(seen.told, [Told::Gap(None, None, None, GapCause::Damage)]);
    assert_eq!((seen.facts.events, seen.facts.unread), (0, 2));
}

#[test]
fn files_that_do_not_belong_together_are_not_opened() {
    let mut other = Made::new(PC, 1, &[0, 1]);
    other.end();
    for block in &mut other.blocks {
        block[24] ^= 1;
        let crc = kmemtrace_abi::disk::block::crc32c(&block[12..96]).to_le_bytes();
        block[8..12].copy_from_slice(&crc);
    }
    let dir = Dir::new(&[("cpu0.out", &Made::pc().bytes()), ("cpu1.out", &other.bytes())]);
    assert!(matches!(Trace::open(&[dir.path("")]), Err(OpenError::Mixed { .. })));
    let dir = Dir::new(&[("cpu0.out", b"nothing of ours")]);
    assert!(matches!(Trace::open(&[dir.path("")]), Err(OpenError::NoTrace { .. })));
}

#[test]
fn counters_in_the_file_are_those_of_its_last_block_that_has_some() {
    let mut made = Made::pc();
    made.data(&[page(&[5])]).counters(counters(0, 0, 0, 1), Default::default());
    let seen = made.read();
    assert_eq!(
        seen.facts.counters.map(|counters| counters.as_bytes().to_vec()),
        Some(counters(0, 0, 0, 1).as_bytes().to_vec())
    );
}
