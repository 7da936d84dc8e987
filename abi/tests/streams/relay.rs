//! Relay channels of 2008: raw streams of every layout, and recordings of them.

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::disk::block::{GAP_FULL, Interval, item, kind};
use kmemtrace_abi::event::{Action, GapCause, Kind, StreamItem};
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::trace::{InputKind, Trace};

use crate::made::{Dir, Machine, Made, PC, Seen, Told, put_target};
use Told::At;

const BIG: Machine = Machine { endian: Endian::Big, word: 8 };

/// An R4 record of a cache's object: an allocation of 100 bytes, or a free.
fn r4(machine: Machine, is_alloc: bool, number: u32) -> Vec<u8> {
    let mut out = vec![u8::from(!is_alloc), 1];
    machine.put(&mut out, if is_alloc { 48 } else { 24 }, 2);
    machine.put(&mut out, number.into(), 4);
    machine.put(&mut out, 0xc0de, 8);
    machine.put(&mut out, 0x1000, 8);
    if is_alloc {
        machine.put(&mut out, 100, 8);
        machine.put(&mut out, 128, 8);
        machine.put(&mut out, 0xcc0, 4);
        machine.put(&mut out, 2, 4);
    }
    out
}

fn frees(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| r4(PC, false, number)).collect()
}

/// An R1 or R3 record of pages: an allocation, or a free.
fn fixed(machine: Machine, layout: Layout, is_alloc: bool, time: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let id = if is_alloc { 1 } else { 2 };
    if layout == Layout::R1 {
        machine.put(&mut out, id, 2);
        machine.put(&mut out, 2, 2);
    } else {
        out.extend_from_slice(&[id as u8, 2]);
        machine.put(&mut out, 56, 2);
    }
    machine.put(&mut out, 1, 4);
    for word in [0xc0de, 0x1000, 40, 64, 0xd0, time] {
        machine.put(&mut out, word, 8);
    }
    out
}

fn raw(bytes: &[u8]) -> Seen {
    Dir::new(&[("cpu0", bytes)]).read().remove(0)
}

fn damage(from: impl Into<Option<u64>>, to: impl Into<Option<u64>>) -> Told {
    Told::Gap(from.into(), to.into(), None, GapCause::Damage)
}

#[test]
fn raw_records_of_every_layout_are_events() {
    for machine in [PC, BIG] {
        for layout in [Layout::R1, Layout::R3] {
            let times = [5, 1 << 40, (1 << 40) + 1];
            let bytes = times.map(|time| fixed(machine, layout, time == 5, time)).concat();
            let dir = Dir::new(&[("cpu0", &bytes)]);
            let mut trace = dir.open();
            assert_eq!((trace.info.input, trace.info.source), (InputKind::Relay, Some(Source::Relay)));
            assert_eq!((trace.info.order, trace.info.endian), (OrderKey::Time, Some(machine.endian)));
            let seen = Seen::of(&mut trace, 0);
            assert_eq!((seen.told, seen.facts.verdict), (times.map(At).to_vec(), Verdict::Complete), "{layout:?}");
            let [alloc, free, _] = &seen.events[..] else { panic!("three events") };
            assert_eq!((alloc.action, free.action), (Action::Alloc(Kind::Pages), Action::Free(Kind::Pages)));
            assert_eq!((alloc.requested, alloc.allocated, alloc.gfp, alloc.node), (40, 64, Some(0xd0), Some(1)));
            assert_eq!((free.requested, free.allocated, free.gfp, free.node), (0, 0, None, None));
            assert_eq!((alloc.call_site, alloc.address, free.failed), (0xc0de, 0x1000, false));
            assert_eq!(
                (trace.names.get(alloc.name), trace.names.get(free.name)),
                (&b"mm_page_alloc"[..], &b"mm_page_free"[..])
            );
        }
        let bytes = [r4(machine, true, 7), r4(machine, false, 8), r4(machine, false, 12)].concat();
        let dir = Dir::new(&[("cpu0", &bytes)]);
        let mut trace = dir.open();
        assert_eq!((trace.info.order, trace.info.endian), (OrderKey::Sequence, Some(machine.endian)));
        let seen = Seen::of(&mut trace, 0);
        assert_eq!((seen.told, seen.facts.faults), (vec![At(7), At(8), At(12)], vec![]));
        let [alloc, free, _] = &seen.events[..] else { panic!("three events") };
        assert_eq!((alloc.action, free.action), (Action::Alloc(Kind::Cache), Action::Free(Kind::Cache)));
        assert_eq!((alloc.requested, alloc.allocated, alloc.gfp, alloc.node), (100, 128, Some(0xcc0), Some(2)));
        assert_eq!(trace.names.get(alloc.name), b"kmem_cache_alloc");
        assert_eq!(trace.names.get(free.name), b"kmem_cache_free");
    }
}

#[test]
fn an_object_is_named_by_its_kind_and_fails_where_it_is_null() {
    for (type_id, alloc, free) in
        [(0, "kmalloc", "kfree"), (1, "kmem_cache_alloc", "kmem_cache_free"), (2, "mm_page_alloc", "mm_page_free")]
    {
        let mut records = [r4(PC, true, 1), r4(PC, false, 2), r4(PC, true, 3), r4(PC, false, 4)];
        records.iter_mut().for_each(|record| record[1] = type_id);
        records[2..].iter_mut().for_each(|record| record[16..24].fill(0));
        let mut trace = Dir::new(&[("cpu0", &records.concat())]).open();
        let seen = Seen::of(&mut trace, 0);
        let names: Vec<&[u8]> = seen.events.iter().map(|event| trace.names.get(event.name)).collect();
        assert_eq!(names, [alloc, free, alloc, free].map(str::as_bytes));
        assert_eq!(seen.events.iter().map(|event| event.failed).collect::<Vec<_>>(), [false, false, true, false]);
    }
}

#[test]
fn numbers_go_on_beyond_their_wrap_on_all_cpus() {
    let (first, second) = (frees([u32::MAX - 1, 1, 5]), frees([u32::MAX, 0, 0x7000_0000]));
    let seen = Dir::new(&[("cpu0", &first), ("cpu1", &second)]).read();
    let wrap = 1u64 << 32;
    assert_eq!(seen[0].told, [wrap - 2, wrap + 1, wrap + 5].map(At));
    assert_eq!(seen[1].told, [wrap - 1, wrap, wrap + 0x7000_0000].map(At));
    assert_eq!((seen[0].codes(), seen[1].codes()), (vec![], vec![]));
}

#[test]
fn numbers_and_times_that_go_back_are_told_with_their_place() {
    let seen = raw(&frees([5, 9, 7, 9, 10]));
    assert_eq!(seen.told, [5, 9, 9, 9, 10].map(At));
    assert_eq!(seen.codes(), [Code::BackInTime; 2]);
    let told: Vec<_> = seen.facts.faults.iter().map(|fault| (fault.offset, fault.message.as_str())).collect();
    assert_eq!(told, [(48, "sequence number 7 follows 9"), (72, "sequence number 9 follows 9")]);
    let times = [5, 9, 7, 9, 10].map(|time| fixed(PC, Layout::R3, false, time)).concat();
    let seen = raw(&times);
    assert_eq!((&seen.told[..], seen.codes()), (&[5, 9, 9, 9, 10].map(At)[..], vec![Code::BackInTime]));
    assert_eq!(seen.facts.faults[0].message, "time stamp 7 follows 9");
    assert_eq!(seen.facts.faults[0].offset, 112);
}

#[test]
fn a_raw_stream_goes_on_behind_damage() {
    for (layout, machine) in [(Layout::R4, PC), (Layout::R4, BIG), (Layout::R3, PC), (Layout::R1, BIG)] {
        let record = |n: u64| match layout {
            Layout::R4 => r4(machine, n.is_multiple_of(2), n as u32),
            _ => fixed(machine, layout, n.is_multiple_of(2), n),
        };
        let records = |numbers: std::ops::Range<u64>| numbers.flat_map(record).collect::<Vec<u8>>();
        let before = records(1..10);
        for junk in [&[9; 1][..], &[9; 100], &[0xff; 301]] {
            let seen = raw(&[&before[..], junk, &records(20..30)].concat());
            let want: Vec<Told> = (1..10).map(At).chain([damage(9, 20)]).chain((20..30).map(At)).collect();
            assert_eq!(seen.told, want, "{layout:?}");
            assert_eq!((seen.codes(), seen.facts.verdict), (vec![Code::BadRelayRecord], Verdict::Corrupt));
            assert_eq!(seen.facts.faults[0].offset, before.len() as u64);
            assert_eq!(seen.facts.faults[0].message, format!("no record at byte {}", before.len()));
            let all = [&before[..], junk].concat();
            let seen = raw(&all);
            // A single byte may be the start of a record.
            let (end, code) = match junk.len() {
                1 => (Told::Gap(Some(9), None, None, GapCause::Cut), Code::RelayCut),
                _ => (damage(9, None), Code::BadRelayRecord),
            };
            assert_eq!((&seen.told[9..], seen.codes()), (&[end][..], vec![code]));
            assert_eq!(seen.facts.bytes, all.len() as u64);
        }
        let cut = &records(1..4)[..records(1..4).len() - 1];
        let seen = raw(cut);
        let from = records(1..3).len();
        assert_eq!(seen.told, [At(1), At(2), Told::Gap(Some(2), None, None, GapCause::Cut)]);
        assert_eq!((seen.codes(), seen.facts.verdict), (vec![Code::RelayCut], Verdict::Truncated));
        let message = format!("ends inside the record at byte {from}; every earlier record is whole");
        assert_eq!((seen.facts.faults[0].offset, &*seen.facts.faults[0].message), (from as u64, &*message));
        assert_eq!(seen.facts.bytes, cut.len() as u64);
    }
}

#[test]
fn a_raw_stream_is_read_piece_by_piece() {
    // More than is read at once, with damage that begins and ends anywhere in a piece.
    let (before, after) = (frees(1..3000), frees(5000..12_000));
    for junk in [0, 1, 23, 60_000, 66_000, 131_000, 131_072, 196_000, 196_600, 262_144 + 7] {
        let bytes = [&before[..], &vec![9; junk], &after].concat();
        let seen = raw(&bytes);
        let gap = [damage(2999, 5000)];
        let gap = if junk > 0 { &gap[..] } else { &[] };
        let want: Vec<Told> = (1..3000).map(At).chain(gap.iter().copied()).chain((5000..12_000).map(At)).collect();
        assert!(seen.told == want, "{junk} bytes: {:?} {:?}", seen.gaps(), seen.facts.faults);
        assert_eq!((seen.codes().len(), seen.facts.bytes), (gap.len(), bytes.len() as u64));
    }
}

#[test]
fn a_record_between_two_pieces_is_whole() {
    for layout in [Layout::R1, Layout::R4] {
        let record = |n: u32| match layout {
            Layout::R4 => r4(PC, n.is_multiple_of(3), n),
            _ => fixed(PC, layout, true, n.into()),
        };
        let mut trace = Dir::new(&[("cpu0", &(1..9000).flat_map(record).collect::<Vec<u8>>())]).open();
        let mut items: Vec<StreamItem> = Vec::new();
        // One batch for the whole stream, so that records are taken to the end of each piece.
        assert!(trace.streams[0].decode(&mut trace.names, &mut items, 100_000));
        assert!(items.iter().map(Told::of).eq((1..9000).map(At)), "{layout:?}");
        assert_eq!(
            (trace.streams[0].report().verdict, &trace.streams[0].report().faults[..]),
            (Verdict::Complete, &[][..])
        );
    }
}

#[test]
fn a_channel_without_records_is_a_trace() {
    let seen = Dir::new(&[("cpu0", b""), ("cpu1", b"")]).read();
    assert_eq!((seen.len(), &seen[0].told[..], seen[1].facts.verdict), (2, &[][..], Verdict::Complete));
    let dir = Dir::new(&[("cpu0", &frees([3, 4])[..]), ("cpu2", b""), ("total_overruns", b" 17\n")]);
    let trace = dir.open();
    assert_eq!((trace.total_overruns(), trace.dropped_beyond(5), trace.dropped_beyond(20)), (Some(17), 12, 0));
    assert_eq!((trace.info.cpus, trace.info.missing), (vec![0, 1, 2], vec![1]));
    let dir = Dir::new(&[("cpu0", &frees([3, 4])[..]), ("cpu1", &fixed(BIG, Layout::R3, true, 9).repeat(3))]);
    assert!(Trace::open(&[dir.path("")]).is_err(), "files of two layouts");
}

/// A recording of a relay channel.
fn recorded(machine: Machine, layout: Layout) -> Made {
    let mut header = Vec::new();
    put_target(&mut header, machine, b"relay", &[0]);
    item::put(&mut header, item::RELAY_LAYOUT, 0, layout.name().as_bytes());
    Made::with_header(machine, 0, &header)
}

fn block(made: &mut Made, records: &[u8], events: u32, ends: (u64, u64)) {
    made.block(kind::DATA, records, |info| (info.first, info.last, info.events) = (ends.0, ends.1, events));
    made.count(events.into(), ends);
}

#[test]
fn a_recorded_channel_has_its_records_and_no_finding() {
    for machine in [PC, BIG] {
        let mut made = recorded(machine, Layout::R4);
        let records = |numbers: &[u32]| numbers.iter().flat_map(|&n| r4(machine, n == 0, n)).collect::<Vec<u8>>();
        block(&mut made, &records(&[u32::MAX - 3, u32::MAX]), 2, (u64::from(u32::MAX) - 3, u32::MAX.into()));
        block(&mut made, &records(&[0, 4]), 2, (0, 4));
        // The counters of a channel are those of all CPUs, and it does not count what it hands out.
        made.end_with(|end, _| {
            (end.counters.overrun, end.counters.dropped, end.counters.read) = (6.into(), 3.into(), 0.into());
        });
        let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
        let mut trace = dir.open();
        assert_eq!((trace.info.source, trace.info.order), (Some(Source::Relay), OrderKey::Sequence));
        let seen = Seen::of(&mut trace, 0);
        let wrap = 1u64 << 32;
        assert_eq!(seen.told, [wrap - 4, wrap - 1, wrap, wrap + 4].map(At));
        assert_eq!((seen.facts.lost, trace.total_overruns()), (Some(0), Some(9)));
        assert_eq!((seen.codes(), seen.facts.verdict), (vec![], Verdict::Complete));
        for layout in [Layout::R1, Layout::R3] {
            let mut made = recorded(machine, layout);
            let times = [wrap + 5, wrap + 6];
            let records = times.map(|time| fixed(machine, layout, true, time)).concat();
            block(&mut made, &records, 2, (wrap + 5, wrap + 6));
            made.end();
            let seen = made.read();
            assert_eq!((&seen.told[..], seen.codes()), (&times.map(At)[..], vec![]), "{layout:?}");
        }
    }
    let mut made = recorded(PC, Layout::R4);
    block(&mut made, &frees([5, 7]), 2, (5, 8));
    let seen = made.end_with(|end, _| end.last = 7.into()).read();
    assert!(seen.message(Code::WrongTotals).ends_with("are from 5 to 8, and they are from 5 to 7"));
}

#[test]
fn damage_in_a_recorded_channel_costs_the_records_that_it_hit() {
    let mut made = recorded(PC, Layout::R4);
    let (before, after) = (frees([1, 2]), frees([7, 8, 9]));
    block(&mut made, &[&before[..], &[9; 5], &after].concat(), 7, (1, 9));
    block(&mut made, &frees([10]), 1, (10, 10));
    made.end();
    let seen = made.read();
    assert_eq!(seen.told, [At(1), At(2), damage(2, 7), At(7), At(8), At(9), At(10)]);
    let at = made.offset(1);
    let message = seen.message(Code::BadRelayRecord);
    assert_eq!(message, format!("block 1 at byte {at}: no record at byte 48 of it"));
    assert_eq!((seen.codes(), seen.facts.unread), (vec![Code::BadRelayRecord], 2));
    // Damage to the end of a block, and a record that it cuts.
    for (junk, said) in [(&[9; 40][..], "no record at byte 48 of it"), (&frees([3])[..10], "it ends inside a record")] {
        let mut made = recorded(PC, Layout::R4);
        block(&mut made, &[&before[..], junk].concat(), 3, (1, 3));
        block(&mut made, &frees([4]), 1, (4, 4));
        let seen = made.end().read();
        assert_eq!(seen.told, [At(1), At(2), damage(2, 4), At(4)]);
        assert_eq!(seen.codes(), [Code::BadRelayRecord]);
        assert_eq!(seen.facts.faults[0].message, format!("block 1 at byte {at}: {said}"));
    }
    // A number that goes back is told with the place of its record.
    let mut made = recorded(PC, Layout::R4);
    block(&mut made, &frees([5, 6]), 2, (5, 6));
    block(&mut made, &frees([7, 3]), 2, (7, 7));
    let seen = made.end().read();
    assert_eq!((&seen.told[..], seen.codes()), (&[5, 6, 7, 7].map(At)[..], vec![Code::BackInTime]));
    assert_eq!(seen.facts.faults[0].offset, made.offset(2) + 96 + 24);
}

#[test]
fn a_recorded_channel_is_read_in_batches() {
    let mut made = recorded(PC, Layout::R4);
    block(&mut made, &frees(1..1201), 1200, (1, 1200));
    made.end();
    let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
    let mut trace = dir.open();
    let (mut items, mut lengths) = (Vec::new(), Vec::new());
    while trace.streams[0].fill(&mut trace.names, &mut items) {
        lengths.push(items.len());
    }
    assert_eq!(lengths, [512, 512, 176]);
    // The same of raw bytes.
    let mut trace = Dir::new(&[("cpu0", &frees(1..1201))]).open();
    let mut lengths = Vec::new();
    while trace.streams[0].fill(&mut trace.names, &mut items) {
        lengths.push(items.len());
    }
    assert_eq!((lengths, trace.streams[0].report().verdict), (vec![512, 512, 176], Verdict::Complete));
}

#[test]
fn a_full_channel_is_a_gap_where_it_was_seen() {
    let mut made = recorded(PC, Layout::R4);
    block(&mut made, &frees([1]), 1, (1, 1));
    made.gap(GAP_FULL, 4, Interval::default(), "");
    block(&mut made, &frees([9]), 1, (9, 9));
    let seen = made.end_with(|end, info| (end.counters.overrun, info.lost_before) = (4.into(), 4)).read();
    assert_eq!(seen.told, [At(1), Told::Gap(Some(1), Some(9), Some(4), GapCause::Overrun), At(9)]);
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::Overrun], Some(4)));
}
