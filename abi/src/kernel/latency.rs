//! Profile of the events about waiting for memory: reclaim, compaction, their daemons, and timed functions.
//!
//! The events are found by system and name in the trace's own formats; each one's numbers are read by field name.

use std::collections::HashSet;

use crate::event::{Event, Mark, Names, Span};
use crate::kernel::format::EventFormat;
use crate::kernel::slot::Slot;
use crate::target::TargetOrder;

/// Numbers of an event about waiting.
#[derive(Clone, Debug)]
pub(super) struct LatencyPlan {
    mark: Mark,
    address: Option<Slot>,
    call_site: Option<Slot>,
    node: Option<Slot>,
    order: Option<Slot>,
    gfp: Option<Slot>,
    value: Option<Number>,
    /// Field that is subtracted from `value`.
    less: Option<Number>,
    /// A shorter record is damaged.
    pub(super) least: usize,
}

/// Number with its sign.
#[derive(Clone, Copy, Debug)]
struct Number {
    slot: Slot,
    is_signed: bool,
}

impl Number {
    fn read<O: TargetOrder>(self, record: &[u8]) -> i64 {
        let value = self.slot.read::<O>(record).cast_signed();
        // Of 64 bits for a number that is not there.
        let unused = self.slot.mask.leading_zeros() & 63;
        if self.is_signed { value << unused >> unused } else { value }
    }
}

/// Names of events, without their system, and their meaning: `Begin` and `End` by the last part of the name.
const SPANS: [(&str, &str, Span); 6] = [
    ("vmscan", "mm_vmscan_direct_reclaim", Span::Direct),
    ("vmscan", "mm_vmscan_memcg_reclaim", Span::Memcg),
    ("vmscan", "mm_vmscan_memcg_softlimit_reclaim", Span::Softlimit),
    ("vmscan", "mm_vmscan_node_reclaim", Span::Node),
    ("vmscan", "mm_shrink_slab", Span::Shrinker),
    ("compaction", "mm_compaction", Span::Compaction),
];

/// Other events with a meaning of their own.
const OTHERS: [(&str, &str, Mark); 16] = [
    ("vmscan", "mm_vmscan_throttled", Mark::Throttled),
    ("vmscan", "mm_vmscan_kswapd_wake", Mark::Begin(Span::Kswapd)),
    ("vmscan", "mm_vmscan_kswapd_sleep", Mark::End(Span::Kswapd)),
    ("vmscan", "mm_vmscan_wakeup_kswapd", Mark::Beside),
    ("vmscan", "mm_vmscan_lru_shrink_inactive", Mark::Beside),
    ("vmscan", "mm_vmscan_lru_shrink_active", Mark::Beside),
    ("compaction", "mm_compaction_kcompactd_wake", Mark::Begin(Span::Kcompactd)),
    ("compaction", "mm_compaction_kcompactd_sleep", Mark::End(Span::Kcompactd)),
    ("compaction", "mm_compaction_try_to_compact_pages", Mark::CompactionAttempt),
    ("compaction", "mm_compaction_finished", Mark::Beside),
    ("compaction", "mm_compaction_deferred", Mark::Beside),
    ("oom", "mark_victim", Mark::Beside),
    ("oom", "reclaim_retry_zone", Mark::Beside),
    ("oom", "compact_retry", Mark::Beside),
    ("ftrace", "funcgraph_exit", Mark::Function),
    ("ftrace", "funcgraph_exit_retaddr", Mark::Function),
];

/// Ends of the names of events in pairs: begin and end.
const PAIRS: [(&str, &str); 2] = [("_begin", "_end"), ("_start", "_end")];

/// System and name of each event of a trace.
pub(super) type EventNames<'a> = HashSet<(&'a str, &'a str)>;

/// Meaning of an event by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'n> {
    /// An event with a meaning of its own.
    Mark(Mark),
    /// Start or end of a pair that newer kernels may have: a span under its own name, if the trace has the counterpart.
    Pair { stem: &'n str, is_begin: bool },
}

/// Meaning of an event; texts do not tell the system.
pub(crate) fn meaning<'n>(system: Option<&str>, name: &'n str) -> Option<Meaning<'n>> {
    let is_of = |known: &str| system.is_none_or(|system| system == known);
    if let Some((.., mark)) = OTHERS.iter().find(|(s, n, _)| *n == name && is_of(s)) {
        return Some(Meaning::Mark(*mark));
    }
    let known = |stem: &str| SPANS.iter().find(|(s, n, _)| *n == stem && is_of(s)).map(|(.., span)| *span);
    let may_be_pair = match system {
        Some(system) => ["vmscan", "compaction"].contains(&system),
        None => ["mm_vmscan_", "mm_compaction_"].iter().any(|begin| name.starts_with(begin)),
    };
    for (begin, end) in PAIRS {
        let (stem, is_begin) = match (name.strip_suffix(begin), name.strip_suffix(end)) {
            (Some(stem), _) => (stem, true),
            (None, Some(stem)) => (stem, false),
            (None, None) => continue,
        };
        match known(stem) {
            Some(span) => return Some(Meaning::Mark(if is_begin { Mark::Begin(span) } else { Mark::End(span) })),
            None if may_be_pair => return Some(Meaning::Pair { stem, is_begin }),
            None => {}
        }
    }
    None
}

impl Meaning<'_> {
    /// The mark of the event; `is_there` tells whether the trace has an event of that name.
    pub(crate) fn mark(&self, names: &mut Names, is_there: impl Fn(&str) -> bool) -> Option<Mark> {
        match self {
            Meaning::Mark(mark) => Some(*mark),
            Meaning::Pair { stem, is_begin } => {
                let mut counterparts = PAIRS.iter().map(|(begin, end)| if *is_begin { end } else { begin });
                counterparts.any(|part| is_there(&format!("{stem}{part}"))).then(|| {
                    let span = Span::Named(names.intern(stem.as_bytes()));
                    if *is_begin { Mark::Begin(span) } else { Mark::End(span) }
                })
            }
        }
    }
}

impl LatencyPlan {
    /// Plan of an event of this system; `None` for an event that is not about waiting.
    pub(super) fn new(
        system: &str,
        format: &EventFormat,
        all: &EventNames<'_>,
        names: &mut Names,
    ) -> Option<LatencyPlan> {
        let is_there = |name: &str| all.contains(&(system, name));
        let mark = meaning(Some(system), &format.name)?.mark(names, is_there)?;
        let slot = |names: &[&str]| names.iter().find_map(|name| format.field(name).and_then(Slot::of));
        let number = |name: &str| {
            let field = format.field(name)?;
            Some(Number { slot: Slot::of(field)?, is_signed: field.signed })
        };
        let value = match mark {
            Mark::End(Span::Shrinker) => number("retval"),
            Mark::End(_) => number("nr_reclaimed"),
            Mark::Throttled => number("usec_delayed"),
            Mark::Function => number("rettime"),
            _ => None,
        };
        let less = if mark == Mark::Function { number("calltime") } else { None };
        let mut plan = LatencyPlan {
            mark,
            address: slot(&["shr"]),
            call_site: slot(&["shrink", "func"]),
            node: slot(&["nid"]),
            order: slot(&["order", "alloc_order"]),
            gfp: slot(&["gfp_flags", "gfp_mask"]),
            // A function without both of its times has no length.
            value: if mark == Mark::Function && less.is_none() { None } else { value },
            less,
            least: 0,
        };
        let LatencyPlan { address, call_site, node, order, gfp, .. } = plan;
        let numbers = [plan.value, plan.less].map(|number| number.map(|number| number.slot));
        let slots = [address, call_site, node, order, gfp].into_iter().chain(numbers).flatten();
        plan.least = slots.map(Slot::end).max().unwrap_or(0);
        Some(plan)
    }

    /// True for any event but the end of a timed function.
    pub(super) fn is_of_reclaim(&self) -> bool {
        self.mark != Mark::Function
    }

    /// The event with its numbers.
    #[inline(never)]
    pub(super) fn read<O: TargetOrder>(&self, event: Event, record: &[u8]) -> Event {
        let read = |slot: Option<Slot>| slot.map(|slot| slot.read::<O>(record));
        let value = self.value.map(|number| {
            let less = self.less.map_or(0, |less| less.read::<O>(record));
            number.read::<O>(record).wrapping_sub(less)
        });
        Event {
            mark: self.mark,
            address: read(self.address).unwrap_or(0),
            call_site: read(self.call_site).unwrap_or(0),
            node: read(self.node).map(|node| node as u32 as i32),
            order: read(self.order).map(|order| u8::try_from(order).unwrap_or(u8::MAX)),
            gfp: read(self.gfp),
            value,
            ..event
        }
    }
}

#[cfg(test)]
mod tests {
    use byteorder::ByteOrder;

    use super::*;
    use crate::target::{Big, Little};

    /// Format of an event: fields as (declaration, bytes, signed), one after the other.
    fn format(name: &str, fields: &[(&str, usize, bool)]) -> EventFormat {
        let mut text = format!("name: {name}\nID: 7\nformat:\n");
        let mut offset = 8;
        for (declaration, size, signed) in fields {
            let signed = u8::from(*signed);
            text += &format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
            offset += size;
        }
        EventFormat::parse(&text).unwrap()
    }

    fn plan(system: &str, formats: &[EventFormat], names: &mut Names) -> Option<LatencyPlan> {
        let all: Vec<(String, EventFormat)> =
            formats.iter().map(|format| (system.to_owned(), format.clone())).collect();
        let all = all.iter().map(|(system, format)| (&**system, &*format.name)).collect();
        LatencyPlan::new(system, &formats[0], &all, names)
    }

    #[test]
    fn fields_are_read_by_name_in_both_byte_orders() {
        let fields =
            [("void * shr", 8, false), ("int nid", 4, true), ("int retval", 4, true), ("void * shrink", 8, false)];
        let mut names = Names::new();
        let plan = plan("vmscan", &[format("mm_shrink_slab_end", &fields)], &mut names).unwrap();
        let event = Event::new(1, 0, names.intern(b"x"));
        let mut record = [0; 32];
        let check = |event: Event| {
            assert_eq!(event.mark, Mark::End(Span::Shrinker));
            assert_eq!((event.address, event.call_site), (0xdead, 0xbeef));
            assert_eq!((event.node, event.value), (Some(-1), Some(-1)), "a shrinker that stopped");
        };
        byteorder::LE::write_u64(&mut record[8..], 0xdead);
        byteorder::LE::write_u64(&mut record[24..], 0xbeef);
        record[16..24].fill(0xff);
        check(plan.read::<Little>(event, &record));
        byteorder::BE::write_u64(&mut record[8..], 0xdead);
        byteorder::BE::write_u64(&mut record[24..], 0xbeef);
        check(plan.read::<Big>(event, &record));
        assert_eq!(plan.least, 32);
    }

    #[test]
    fn unknown_pairs_are_spans_of_their_own_and_missing_fields_are_none() {
        let mut names = Names::new();
        let pair = ["mm_vmscan_balance_begin", "mm_vmscan_balance_end"].map(|name| format(name, &[]));
        let balance = Span::Named(names.intern(b"mm_vmscan_balance"));
        assert_eq!(plan("vmscan", &pair, &mut names).unwrap().mark, Mark::Begin(balance));
        assert!(plan("vmscan", &pair[..1], &mut names).is_none(), "there is no end");
        assert!(plan("kmem", &pair, &mut names).is_none());
        let end = plan("vmscan", &[format("mm_vmscan_memcg_reclaim_end", &[])], &mut names).unwrap();
        let read = end.read::<Little>(Event::new(1, 0, names.intern(b"x")), &[]);
        assert_eq!((read.mark, read.value, read.order, read.gfp), (Mark::End(Span::Memcg), None, None, None));
    }

    #[test]
    fn a_timed_function_takes_the_difference_of_its_times() {
        let fields = [
            ("unsigned long func", 8, false),
            ("unsigned long long calltime", 8, false),
            ("unsigned long long rettime", 8, false),
        ];
        let mut names = Names::new();
        let record: Vec<u8> = [0u64, 0xbeef, 40, 100].iter().flat_map(|n| n.to_le_bytes()).collect();
        for (fields, value) in [(&fields[..], Some(60)), (&[fields[0], fields[2]], None)] {
            let plan = plan("ftrace", &[format("funcgraph_exit", fields)], &mut names).unwrap();
            let event = plan.read::<Little>(Event::new(1, 0, names.intern(b"x")), &record);
            assert_eq!((event.mark, event.call_site, event.value), (Mark::Function, 0xbeef, value));
        }
    }
}
