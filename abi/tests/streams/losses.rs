//! Loss: marks in sub-buffers, counters, gap blocks and what other programs did, each in its place and counted once.

use std::fs::OpenOptions;
use std::io::Write;

use kmemtrace_abi::disk::block::{
    Counters, END_ERROR, GAP_CLEARED, GAP_FOREIGN, GAP_FULL, GAP_NOT_WRITTEN, GAP_UNCOUNTED, Interval, LOST_UNKNOWN,
};
use kmemtrace_abi::event::{Gap, GapCause, StreamItem};
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::kernel::subbuffer::Missed;

use crate::made::{Dir, MACHINES, Made, PC, Seen, Told, counters, marked, page};
use Told::At;

fn gap(
    from: impl Into<Option<u64>>,
    to: impl Into<Option<u64>>,
    lost: impl Into<Option<u64>>,
    cause: GapCause,
) -> Told {
    Told::Gap(from.into(), to.into(), lost.into(), cause)
}

/// No interval is known.
fn untimed() -> Interval {
    Interval::default()
}

fn ms(n: u64) -> u64 {
    n * 1_000_000
}

#[test]
fn a_mark_is_a_gap_from_the_event_before_it_to_the_start_of_its_sub_buffer() {
    for machine in MACHINES {
        let mut made = Made::new(machine, 0, &[0]);
        let late = crate::made::Page { start: Some(19), ..marked(Missed::Counted(40), &[20]) };
        made.data(&[page(&[10]), late, page(&[21])]).data(&[marked(Missed::Counted(2), &[30])]);
        let seen = made.end_with(|end, _| end.counters.overrun = 42.into()).read();
        let overrun = |from, to, lost| gap(from, to, lost, GapCause::Overrun);
        assert_eq!(seen.told, [At(10), overrun(10, 19, 40), At(20), At(21), overrun(21, 30, 2), At(30)]);
        assert_eq!((seen.codes(), seen.facts.verdict), (vec![Code::Overrun], Verdict::Lossy), "{machine:?}");
        assert_eq!((seen.facts.lost, seen.facts.lost_before, seen.facts.gaps), (Some(42), Some(0), 2));
        let message = seen.message(Code::Overrun);
        assert_eq!(message, "42 events lost in 2 gaps, the longest 40 events, until 0.000000 s after the first event");
    }
}

#[test]
fn a_mark_before_the_first_event_is_a_gap_from_the_start_of_the_trace() {
    let mut made = Made::pc();
    made.data(&[marked(Missed::Counted(7), &[ms(5)]), marked(Missed::Counted(8), &[ms(6) + 1000])]);
    let seen = made.end_with(|end, _| end.counters.overrun = 15.into()).read();
    assert_eq!(seen.gaps()[0], gap(None, ms(5), 7, GapCause::Overrun));
    assert_eq!((seen.facts.lost_before, seen.facts.lost), (Some(7), Some(15)));
    let message = seen.message(Code::Overrun);
    assert_eq!(message, "15 events lost in 2 gaps, the longest 8 events, until 0.001001 s after the first event");
}

#[test]
fn a_mark_without_a_number_stands_for_what_the_counters_have() {
    let mut made = Made::pc();
    made.data(&[marked(Missed::Uncounted, &[5]), page(&[6])]);
    let seen = made.end_with(|end, _| end.counters.overrun = 9.into()).read();
    assert_eq!(seen.told, [gap(None, 5, None, GapCause::Overrun), At(5), At(6)]);
    // With one gap alone, the counters' number is that of the events before the first one.
    assert_eq!((seen.facts.lost, seen.facts.lost_before), (Some(9), Some(9)));
    let message = seen.message(Code::Overrun);
    assert_eq!(message, "9 events lost in 1 gap; 1 gap without a number of events");
    let mut made = Made::pc();
    made.data(&[marked(Missed::Uncounted, &[5]), marked(Missed::Counted(4), &[6])]);
    let seen = made.end_with(|end, _| end.counters.overrun = 9.into()).read();
    assert_eq!((seen.facts.lost, seen.facts.lost_before), (Some(9), None));
    assert_eq!(seen.codes(), [Code::Overrun]);
    let message = seen.message(Code::Overrun);
    assert_eq!(
        message,
        "9 events lost in 2 gaps, the longest 4 events, until 0.000000 s after the first event; 1 gap without a number of events"
    );
    // A mark that is not the first event's gap tells nothing of the time before it.
    let mut made = Made::pc();
    made.data(&[page(&[5]), marked(Missed::Uncounted, &[6])]);
    let seen = made.end_with(|end, _| end.counters.overrun = 9.into()).read();
    assert_eq!((seen.facts.lost, seen.facts.lost_before), (Some(9), Some(0)));
}

#[test]
fn a_mark_behind_its_own_time_ends_at_the_last_event() {
    let mut made = Made::pc();
    made.data(&[page(&[10, 20]), crate::made::Page { start: Some(15), ..marked(Missed::Counted(1), &[25]) }]);
    let seen = made.end_with(|end, _| end.counters.overrun = 1.into()).read();
    assert_eq!(seen.told[2], gap(20, 20, 1, GapCause::Overrun));
}

#[test]
fn overrun_beyond_the_marks_was_lost_at_any_time() {
    for machine in MACHINES {
        // An end block that does not tell of marks: they are looked for in the data.
        for (marks, missed, beyond) in [
            (1, Missed::Counted(3), 4),
            (0, Missed::Counted(3), 4),
            (2, Missed::Uncounted, 0),
            (0, Missed::Uncounted, 0),
        ] {
            let mut made = Made::new(machine, 0, &[0]);
            made.data(&[page(&[10])]).data(&[page(&[11]), marked(missed, &[20])]);
            let seen = made.end_with(|end, info| {
                (end.counters.overrun, end.marks) = (7.into(), marks.into());
                info.lost_before = if missed == Missed::Uncounted { 0 } else { 3 };
            });
            let seen = seen.read();
            let lost = if missed == Missed::Uncounted { None } else { Some(3) };
            let mut want = vec![At(10), At(11), gap(11, 20, lost, GapCause::Overrun), At(20)];
            if beyond > 0 {
                want.insert(0, gap(10, None, beyond, GapCause::Counters));
            }
            assert_eq!(seen.told, want, "{machine:?} {marks}");
            assert_eq!((seen.facts.lost, seen.facts.late_loss), (Some(7), false));
            if beyond > 0 {
                let message = seen.message(Code::Unplaced);
                assert_eq!(message, "4 more events lost that no mark tells of, at an unknown time");
                assert!(seen.message(Code::Overrun).starts_with("3 events lost in 1 gap"));
            } else {
                assert_eq!(seen.codes(), [Code::Overrun], "{:?}", seen.facts.faults);
            }
        }
    }
}

#[test]
fn marks_in_damaged_blocks_are_counted_by_the_headers_behind_them() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).data(&[marked(Missed::Counted(5), &[20])]).data(&[page(&[30])]);
    made.end_with(|end, _| end.counters.overrun = 5.into()).damage(2);
    let seen = made.read();
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::BadPayload], Some(5)));
    assert_eq!(seen.gaps(), [gap(10, 30, None, GapCause::Damage)]);
}

#[test]
fn events_that_the_kernel_refused_were_lost_between_two_samples() {
    let sample = |dropped| counters(0, dropped, 0, 2);
    let mut made = Made::pc();
    made.data(&[page(&[ms(10), ms(11)])]);
    made.counters(sample(3), Interval::new(ms(9), ms(12))).counters(sample(3), Interval::new(ms(12), ms(13)));
    made.counters(sample(5), Interval::new(ms(13), ms(14))).data(&[page(&[ms(15)])]);
    made.end_with(|end, _| {
        (end.counters.dropped, end.grew) = (6.into(), Interval::new(ms(14), u64::MAX));
    });
    let seen = made.read();
    let lost = |from, to: Option<u64>, lost| gap(from, to, lost, GapCause::Counters);
    let gaps = [lost(ms(9), Some(ms(12)), 3), lost(ms(13), Some(ms(14)), 2), lost(ms(14), None, 1)];
    // The gaps are known before the first event: the merge of all CPUs cannot go back.
    assert_eq!(seen.told, [&gaps[..], &[At(ms(10)), At(ms(11)), At(ms(15))]].concat());
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::Unplaced], Some(6)));
    let message = "6 more events lost that no mark tells of, each between two looks at the counters";
    assert_eq!((seen.message(Code::Unplaced), seen.facts.late_loss), (message, false));
    assert_eq!((seen.facts.lost_before, seen.facts.counters.map(|c| c.dropped.get())), (Some(0), Some(6)));
}

#[test]
fn loss_since_the_start_of_the_trace_may_be_before_or_behind_the_first_event() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).counters(counters(0, 3, 0, 1), Interval::new(0, 12));
    let seen = made.end_with(|end, _| end.counters.dropped = 3.into()).read();
    assert_eq!(seen.told, [gap(None, 12, 3, GapCause::Counters), At(10)]);
    assert_eq!((seen.facts.lost_before, seen.facts.lost), (None, Some(3)));
}

#[test]
fn a_mark_without_a_number_in_a_damaged_block_is_told_by_the_end() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).data(&[marked(Missed::Uncounted, &[20])]).data(&[page(&[30])]);
    made.end_with(|end, _| end.counters.overrun = 5.into()).damage(2);
    let seen = made.read();
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::BadPayload], Some(5)));
    assert_eq!(seen.gaps(), [gap(10, 30, None, GapCause::Damage)]);
}

#[test]
fn some_loss_between_samples_and_some_at_no_time_are_told_apart() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).counters(counters(0, 3, 0, 1), Interval::new(9, 12));
    made.end_with(|end, _| {
        (end.counters.dropped, end.counters.overrun, end.grew) = (3.into(), 4.into(), Interval::new(12, 20));
    });
    let seen = made.read();
    let (timed, whole) = (gap(9, 12, 3, GapCause::Counters), gap(10, None, 4, GapCause::Counters));
    assert_eq!(seen.told, [timed, whole, At(10)]);
    assert_eq!(
        seen.message(Code::Unplaced),
        "7 more events lost that no mark tells of: 3 between two looks at the counters, 4 at an unknown time"
    );
}

#[test]
fn minor_version_0_has_no_times_of_its_counters() {
    let mut made = Made::pc().in_minor(0);
    made.data(&[page(&[10])]).counters(counters(0, 3, 0, 900), untimed()).data(&[page(&[20])]);
    made.end_with(|end, _| end.counters.dropped = 3.into());
    let seen = made.read();
    assert_eq!(seen.told, [gap(10, None, 3, GapCause::Counters), At(10), At(20)]);
    // Only the end tells there of what others read.
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::Unplaced], Some(3)));
}

#[test]
fn what_other_readers_took_is_lost() {
    let mut made = Made::pc();
    made.data(&[page(&[10, 11])]).end_with(|end, _| end.counters.read = 7.into());
    let seen = made.read();
    assert_eq!(seen.told[0], gap(10, None, 5, GapCause::Counters));
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::OtherReader], Some(5)));
    let message = seen.message(Code::OtherReader);
    assert_eq!(
        message,
        format!("block 2 at byte {}: the kernel handed out 7 events, and 2 are in the file", made.offset(2))
    );
    // A sample in a file that ends early tells of them, too.
    let mut made = Made::pc();
    made.data(&[page(&[10, 11])]).counters(counters(0, 0, 0, 6), Interval::new(9, 12)).data(&[page(&[20])]);
    let seen = made.read();
    assert_eq!(seen.told[0], gap(9, 12, 4, GapCause::Counters));
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::NoEnd, Code::Unplaced], Some(4)));
    // Events that the recorder could not write went to no other reader.
    let mut made = Made::pc();
    made.data(&[page(&[10, 11])]).gap(GAP_NOT_WRITTEN, 5, untimed(), "disk full");
    made.end_with(|end, _| (end.counters.read, end.counters.recorder_lost) = (7.into(), 5.into()));
    let seen = made.read();
    assert_eq!(seen.told, [At(10), At(11), gap(11, None, 5, GapCause::Recorder)]);
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::RecorderLoss], Some(5)));
}

#[test]
fn a_gap_block_without_times_stands_where_the_loss_was() {
    for (reason, lost, code, cause, message) in [
        (
            GAP_CLEARED,
            LOST_UNKNOWN,
            Code::Cleared,
            GapCause::Recorder,
            "another program cleared or changed the buffer here",
        ),
        (
            GAP_NOT_WRITTEN,
            5,
            Code::RecorderLoss,
            GapCause::Recorder,
            "5 events were read here and could not be written",
        ),
        (
            GAP_FULL,
            6,
            Code::Overrun,
            GapCause::Overrun,
            "6 events of all CPUs were dropped about here: the channel was full",
        ),
        (
            GAP_UNCOUNTED,
            LOST_UNKNOWN,
            Code::Uncounted,
            GapCause::Recorder,
            "the end of the kernel's buffer could not be read or counted: text; events lost from then on are not counted",
        ),
        (
            99,
            LOST_UNKNOWN,
            Code::UnknownLoss,
            GapCause::Recorder,
            "some events were lost for reason 99, which is not known here: text",
        ),
        (GAP_FOREIGN, 3, Code::ForeignHand, GapCause::Foreign, "another program changed what is recorded: text"),
    ] {
        let mut made = Made::pc();
        made.data(&[page(&[10])]).gap(reason, lost, untimed(), " text\n").data(&[page(&[20])]);
        let known = Some(lost).filter(|&n| n != LOST_UNKNOWN && reason != GAP_FOREIGN);
        made.end_with(|end, info| {
            (end.counters.recorder_lost, info.lost_before) = (known.unwrap_or(0).into(), known.unwrap_or(0));
            end.counters.read = (2 + known.unwrap_or(0)).into();
        });
        let seen = made.read();
        assert_eq!(seen.told, [At(10), gap(10, 20, known, cause), At(20)], "{reason}");
        assert_eq!((seen.codes(), seen.facts.lost), (vec![code], known));
        assert_eq!(seen.facts.faults[0].message, format!("block 2 at byte {}: {message}", made.offset(2)));
        assert_eq!((seen.facts.verdict, seen.facts.late_loss), (Verdict::Lossy, false));
    }
}

#[test]
fn a_gap_block_without_a_text_says_so() {
    for (reason, message) in [
        (GAP_UNCOUNTED, "the recorder does not say why"),
        (GAP_FOREIGN, "the recorder does not say what"),
        (99, "the recorder says no more"),
    ] {
        let mut made = Made::pc();
        made.data(&[page(&[10])]).gap(reason, 1, untimed(), " ").end();
        let seen = made.read();
        assert!(seen.facts.faults[0].message.contains(message), "{:?}", seen.facts.faults);
    }
    let mut made = Made::pc();
    made.gap(99, 1, untimed(), &"x".repeat(600)).end();
    assert!(made.read().facts.faults[0].message.ends_with(&format!(": {}", "x".repeat(500))));
}

#[test]
fn a_gap_block_with_times_is_told_before_the_first_event() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).gap(GAP_CLEARED, LOST_UNKNOWN, Interval::new(8, 12), "").data(&[page(&[20])]);
    made.gap(GAP_UNCOUNTED, LOST_UNKNOWN, Interval::new(15, u64::MAX), "gone").end();
    let seen = made.read();
    let recorder = |from, to: Option<u64>| gap(from, to, None, GapCause::Recorder);
    assert_eq!(seen.told, [recorder(8, Some(12)), recorder(15, None), At(10), At(20)]);
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::Cleared, Code::Uncounted], None));
    assert_eq!((seen.facts.late_loss, seen.facts.verdict), (false, Verdict::Lossy));
    // Events that could not be written are missing where the block stands, whatever it says of times.
    let mut made = Made::pc();
    made.data(&[page(&[10])]).gap(GAP_NOT_WRITTEN, 2, Interval::new(8, 12), "").data(&[page(&[20])]);
    let seen = made.end_with(|end, _| (end.counters.read, end.counters.recorder_lost) = (4.into(), 2.into())).read();
    assert_eq!(seen.told, [At(10), gap(10, 20, 2, GapCause::Recorder), At(20)]);
}

#[test]
fn events_that_no_gap_block_places_were_lost_at_any_time() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).gap(GAP_NOT_WRITTEN, 2, untimed(), "").data(&[page(&[20])]);
    let seen = made.end_with(|end, _| (end.counters.read, end.counters.recorder_lost) = (7.into(), 5.into())).read();
    assert_eq!(seen.told, [gap(10, None, 3, GapCause::Counters), At(10), gap(10, 20, 2, GapCause::Recorder), At(20)]);
    assert_eq!((seen.facts.lost, seen.codes()), (Some(5), vec![Code::RecorderLoss, Code::Unplaced]));
}

#[test]
fn marks_behind_a_gap_block_are_counted_where_headers_leave_gap_blocks_out() {
    for missed in [Missed::Counted(3), Missed::Uncounted] {
        let mut made = Made::pc();
        made.data(&[page(&[10])]).gap(GAP_NOT_WRITTEN, 5, untimed(), "").data(&[marked(missed, &[20])]);
        made.end_with(|end, _| {
            (end.counters.overrun, end.counters.recorder_lost, end.counters.read) = (3.into(), 5.into(), 7.into());
        });
        let seen = made.read();
        let lost = Some(3).filter(|_| missed != Missed::Uncounted);
        let mark = gap(10, 20, lost, GapCause::Overrun);
        assert_eq!(seen.told, [At(10), mark, gap(10, 20, 5, GapCause::Recorder), At(20)]);
        assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::RecorderLoss, Code::Overrun], Some(8)));
    }
}

#[test]
fn a_change_by_another_program_is_told_once_with_its_last_interval() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).gap(GAP_FOREIGN, LOST_UNKNOWN, Interval::new(8, u64::MAX), "tracing_on is 0");
    made.data(&[page(&[20])]).gap(GAP_FOREIGN, LOST_UNKNOWN, Interval::new(8, 12), "tracing_on was 0");
    made.gap(GAP_FOREIGN, 5, Interval::new(0, 9), "filter").end();
    let seen = made.read();
    let foreign = |from: Option<u64>, to| gap(from, to, None, GapCause::Foreign);
    assert_eq!(seen.told, [foreign(None, 9), foreign(Some(8), 12), At(10), At(20)]);
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::ForeignHand; 2], None));
    let messages: Vec<&str> = seen.facts.faults.iter().map(|fault| fault.message.as_str()).collect();
    let told = |block: usize, text: &str| {
        format!("block {block} at byte {}: another program changed what is recorded: {text}", made.offset(block))
    };
    assert_eq!(messages, [told(5, "filter"), told(4, "tracing_on was 0")]);
    // The number of events that a change from the start of the trace cost is not known.
    assert_eq!((seen.facts.lost_before, seen.facts.verdict), (None, Verdict::Lossy));
}

#[test]
fn loss_is_told_of_a_file_that_ends_early_and_has_holes() {
    let sample = |dropped| counters(0, dropped, 0, 1);
    let mut made = Made::pc();
    made.data(&[page(&[ms(10)])]).counters(sample(2), Interval::new(ms(9), ms(12)));
    made.counters(sample(4), Interval::new(ms(12), ms(13))).counters(sample(9), Interval::new(ms(13), ms(14)));
    made.damage(3);
    let seen = made.read();
    // The growth of the damaged sample may be older than the next one says.
    let first = gap(ms(9), ms(12), 2, GapCause::Counters);
    let second = gap(ms(12) - 1000, ms(14), 7, GapCause::Counters);
    assert_eq!(seen.told[..3], [first, second, At(ms(10))]);
    assert_eq!((seen.codes(), seen.facts.lost), (vec![Code::BadPayload, Code::NoEnd, Code::Unplaced], Some(9)));
}

#[test]
fn headers_may_count_gap_blocks_and_marks_that_were_not_written() {
    // One writer counts marks alone, another adds gap blocks; anything else is wrong.
    for (says, is_right) in [(2, false), (3, true), (5, true), (8, true), (9, false)] {
        let mut made = Made::pc();
        made.data(&[marked(Missed::Counted(3), &[10])]).gap(GAP_CLEARED, 5, Interval::new(9, 11), "");
        made.data_with(&[page(&[20])], |info| info.lost_before = says);
        made.end_with(|end, _| end.counters.overrun = 3.into());
        let codes = made.read().codes();
        assert_eq!(!codes.contains(&Code::WrongTotals), is_right, "{says} {codes:?}");
    }
    // A recorder that could not write a block counts its marks.
    let mut made = Made::pc();
    made.data(&[page(&[10])]).gap(GAP_NOT_WRITTEN, 5, untimed(), "");
    made.data_with(&[page(&[20])], |info| info.lost_before = 100);
    made.end_with(|end, info| {
        (end.counters.overrun, end.counters.recorder_lost, end.counters.read) = (95.into(), 5.into(), 7.into());
        (info.lost_before, end.marks) = (100, 2.into());
    });
    assert_eq!(made.read().codes(), [Code::RecorderLoss]);
    let of = |reason: u32| {
        let mut made = Made::pc();
        made.data(&[page(&[10])]).end_with(|end, info| {
            (end.counters.overrun, end.reason) = (95.into(), reason.into());
            (info.lost_before, end.marks) = (95, 2.into());
        });
        made.read().codes()
    };
    assert!(of(0).contains(&Code::WrongTotals));
    assert!(!of(END_ERROR).contains(&Code::WrongTotals));
}

/// A recording that grows after its first event was read, and its items.
fn grown(made: &Made, whole: &Made) -> (Vec<Told>, Seen) {
    let dir = Dir::new(&[("cpu0.out", &made.bytes())]);
    let mut trace = dir.open();
    let mut items: Vec<StreamItem> = Vec::new();
    assert!(trace.streams[0].decode(&mut trace.names, &mut items, 1));
    let mut file = OpenOptions::new().append(true).open(dir.path("cpu0.out")).unwrap();
    file.write_all(&whole.bytes()[made.bytes().len()..]).unwrap();
    while trace.streams[0].decode(&mut trace.names, &mut items, 100) {}
    let told: Vec<Told> = items.iter().map(Told::of).collect();
    let facts = trace.streams[0].report().clone();
    (told.clone(), Seen { told, events: Vec::new(), facts })
}

#[test]
fn loss_that_a_growing_file_tells_late_is_a_gap_over_everything() {
    let mut made = Made::pc();
    made.data(&[page(&[10])]).counters(counters(0, 2, 0, 1), Interval::new(9, 12));
    let first = gap(9, 12, 2, GapCause::Counters);
    let mut refused = made.clone();
    refused.data(&[page(&[20])]).counters(counters(0, 7, 0, 2), Interval::new(12, 22));
    refused.end_with(|end, _| (end.counters.dropped, end.grew) = (7.into(), Interval::new(22, u64::MAX)));
    let (told, seen) = grown(&made, &refused);
    assert_eq!(told, [first, At(10), At(20), gap(10, None, 5, GapCause::Counters)]);
    assert!(seen.facts.late_loss && seen.facts.lost == Some(7));
    // Without more loss, the gaps were told in time.
    let mut quiet = made.clone();
    quiet.data(&[page(&[20])]).end_with(|end, _| end.counters.dropped = 2.into());
    let (told, seen) = grown(&made, &quiet);
    assert_eq!((told, seen.facts.late_loss), (vec![first, At(10), At(20)], false));
    // A change by another program, of which the number of events is not known.
    let mut changed = made.clone();
    changed.data(&[page(&[20])]).gap(GAP_FOREIGN, LOST_UNKNOWN, Interval::new(15, u64::MAX), "filter");
    changed
        .gap(GAP_FOREIGN, LOST_UNKNOWN, Interval::new(15, 19), "filter")
        .end_with(|end, _| end.counters.dropped = 2.into());
    let (told, seen) = grown(&made, &changed);
    assert_eq!(told, [first, At(10), At(20), gap(10, None, None, GapCause::Counters)]);
    assert_eq!(seen.codes(), [Code::ForeignHand, Code::Unplaced]);
    assert!(seen.facts.late_loss && seen.facts.lost.is_none());
    // Overrun without marks.
    let mut overrun = made.clone();
    overrun.data(&[page(&[20])]).end_with(|end, _| (end.counters.dropped, end.counters.overrun) = (2.into(), 4.into()));
    let (told, seen) = grown(&made, &overrun);
    assert_eq!(told[3..], [gap(10, None, 4, GapCause::Counters)]);
    assert_eq!(seen.facts.lost, Some(6));
}

#[test]
fn loss_of_a_file_without_events_is_a_gap_over_the_whole_trace() {
    let seen = Made::pc().end_with(|end, _| end.counters.dropped = 4.into()).read();
    assert_eq!(seen.told, [gap(None, None, 4, GapCause::Counters)]);
    assert_eq!((seen.facts.lost, seen.codes()), (Some(4), vec![Code::Unplaced]));
}

#[test]
fn gaps_tell_their_cpu() {
    let mut made = Made::new(PC, 6, &[6]);
    made.data(&[page(&[10]), marked(Missed::Counted(1), &[20])]).counters(counters(0, 1, 0, 2), Interval::new(5, 9));
    made.gap(GAP_CLEARED, 1, untimed(), "").gap(GAP_FOREIGN, 0, Interval::new(3, 4), "");
    made.end_with(|end, _| end.counters = Counters { overrun: 4.into(), dropped: 1.into(), ..end.counters });
    let dir = Dir::new(&[("cpu6.out", &made.bytes())]);
    let mut trace = dir.open();
    let mut items: Vec<StreamItem> = Vec::new();
    while trace.streams[0].decode(&mut trace.names, &mut items, 100) {}
    let gaps: Vec<&Gap> =
        items.iter().filter_map(|item| if let StreamItem::Gap(gap) = item { Some(gap) } else { None }).collect();
    assert_eq!(gaps.len(), 5, "{gaps:?}");
    assert!(gaps.iter().all(|gap| gap.cpu == 6));
}
