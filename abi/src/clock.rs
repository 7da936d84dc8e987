//! Order keys: the kernel's clocks, their units, and how far their times agree between CPUs. The one place that
//! writes such a key, or the span between two, for people.

/// Kind of `Event::at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKey {
    /// A time stamp.
    Time,
    /// A relay sequence number: consecutive over all CPUs, so a missing one is a lost record.
    Sequence,
}

/// The unit of an order key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Ticks of an unknown length: cycles, jiffies, or a count of reads.
    Ticks,
    /// Records: the key is a sequence number.
    Records,
}

/// Events that are in the order in which they happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agreement {
    /// All of them.
    #[default]
    AllCpus,
    /// Events of one CPU: another CPU's clock may be ahead or behind.
    OneCpu,
    /// None: many events of all CPUs share a time.
    Nothing,
}

/// The order keys of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Unit of the keys.
    pub unit: Unit,
    /// Events that the keys put in order.
    pub agreement: Agreement,
}

impl Default for Clock {
    /// The clock of a recording where nothing else is asked for.
    fn default() -> Clock {
        Clock { unit: Unit::Nanoseconds, agreement: Agreement::AllCpus }
    }
}

impl Clock {
    /// Names that the kernel's `trace_clock` may have (`kernel/trace/trace.c`, Linux 6.18).
    pub const NAMES: [&str; 11] =
        ["mono", "local", "global", "boot", "tai", "mono_raw", "perf", "uptime", "counter", "x86-tsc", "ppc-tb"];

    /// Name of a clock that counts ticks and that the trace does not name; documents have null for it.
    pub const UNNAMED_TICKS: &str = "";

    /// The keys of a trace with this order and this `trace_clock`; `None`: the trace does not name its clock.
    ///
    /// An unknown name is taken for the worst: ticks that hold within one CPU only.
    pub fn of(order: OrderKey, name: Option<&str>) -> Clock {
        let (unit, agreement) = match (order, name) {
            (OrderKey::Sequence, _) => (Unit::Records, Agreement::AllCpus),
            (_, Some("mono" | "mono_raw" | "boot" | "tai" | "global")) => (Unit::Nanoseconds, Agreement::AllCpus),
            (_, Some("local" | "perf") | None) => (Unit::Nanoseconds, Agreement::OneCpu),
            (_, Some("x86-tsc" | "ppc-tb" | "counter")) => (Unit::Ticks, Agreement::AllCpus),
            (_, Some("uptime")) => (Unit::Ticks, Agreement::Nothing),
            (_, Some(_)) => (Unit::Ticks, Agreement::OneCpu),
        };
        Clock { unit, agreement }
    }

    /// Keys per second, or 1 where a key is not a time.
    pub fn per_second(self) -> u64 {
        if self.unit == Unit::Nanoseconds { 1_000_000_000 } else { 1 }
    }

    /// The key `at` of a trace that begins at `first`, with `places` places of a second, at most 9: `+1.000601 s`, `+601 ticks`; a
    /// sequence number is `#601`, wherever the trace begins. A key before `first` is shown as `first`.
    pub fn moment(self, at: u64, first: u64, places: u32) -> String {
        match self.unit {
            Unit::Records => format!("#{at}"),
            _ => format!("+{}", self.distance(at.saturating_sub(first), places)),
        }
    }

    /// A distance between two keys, with `places` places of a second, at most 9: `1.000601 s`, `601 ticks`, `601 records`.
    pub fn distance(self, keys: u64, places: u32) -> String {
        match self.unit {
            Unit::Records => format!("{keys} records"),
            Unit::Ticks => format!("{keys} ticks"),
            Unit::Nanoseconds if places == 0 => format!("{} s", keys / 1_000_000_000),
            Unit::Nanoseconds => {
                let places = places.min(9);
                #[expect(clippy::arithmetic_side_effects, reason = "`places` is at most 9, and no power of ten is 0")]
                let fraction = keys % 1_000_000_000 / 10u64.pow(9 - places);
                format!("{}.{fraction:0width$} s", keys / 1_000_000_000, width = places as usize)
            }
        }
    }

    /// A span between two keys with one place of the largest unit that fits: `2.1 ms`; `-` where a key is not a time.
    pub fn span(self, keys: u64) -> String {
        if self.unit != Unit::Nanoseconds {
            return "-".to_owned();
        }
        let (tenths, unit) = match keys {
            0..1_000 => return format!("{keys} ns"),
            1_000..1_000_000 => (keys / 100, "us"),
            1_000_000..1_000_000_000 => (keys / 100_000, "ms"),
            _ => (keys / 100_000_000, "s"),
        };
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_told_apart_by_what_they_count_and_where_they_hold() {
        use Agreement::{AllCpus, Nothing, OneCpu};
        use Unit::{Nanoseconds, Records, Ticks};
        for (name, unit, agreement) in [
            (Some("mono"), Nanoseconds, AllCpus),
            (Some("tai"), Nanoseconds, AllCpus),
            (Some("local"), Nanoseconds, OneCpu),
            (Some("perf"), Nanoseconds, OneCpu),
            (None, Nanoseconds, OneCpu),
            (Some("x86-tsc"), Ticks, AllCpus),
            (Some("counter"), Ticks, AllCpus),
            (Some("uptime"), Ticks, Nothing),
            (Some("sundial"), Ticks, OneCpu),
        ] {
            assert_eq!(Clock::of(OrderKey::Time, name), Clock { unit, agreement }, "{name:?}");
        }
        let numbers = Clock::of(OrderKey::Sequence, None);
        assert_eq!(numbers, Clock { unit: Records, agreement: AllCpus });
    }

    #[test]
    fn a_moment_has_the_unit_of_its_clock() {
        let of = |name| Clock::of(OrderKey::Time, Some(name));
        assert_eq!(of("mono").moment(7_001_999_999, 7_000_000_000, 3), "+0.001 s");
        assert_eq!(of("mono").moment(8_000_601_999, 7_000_000_000, 6), "+1.000601 s");
        assert_eq!(of("mono").moment(1, 5, 6), "+0.000000 s");
        assert_eq!(of("mono").moment(u64::MAX, 0, 0), "+18446744073 s");
        assert_eq!(of("x86-tsc").moment(1601, 1000, 6), "+601 ticks");
        assert_eq!(of("x86-tsc").distance(601, 6), "601 ticks");
        let numbers = Clock::of(OrderKey::Sequence, None);
        assert_eq!(numbers.moment(1601, 1000, 6), "#1601");
        assert_eq!(numbers.distance(601, 6), "601 records");
    }

    #[test]
    fn a_span_has_a_fitting_unit_or_none() {
        let clock = Clock::default();
        for (ns, text) in [(999, "999 ns"), (1000, "1.0 us"), (2_199_999, "2.1 ms"), (61_950_000_000, "61.9 s")] {
            assert_eq!(clock.span(ns), text);
        }
        assert_eq!(Clock::of(OrderKey::Time, Some("counter")).span(999), "-");
    }
}
