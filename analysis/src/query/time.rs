//! `--time A,B`: a window of a trace.

use std::str::FromStr;

use kmemtrace_abi::text::duration;

const NANOS: u128 = 1_000_000_000;

/// A window of the order key, not yet put onto a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeWindow {
    from: Option<Bound>,
    to: Option<Bound>,
    /// A side names a unit of time: the trace must have a clock that counts it.
    pub(crate) has_units: bool,
}

/// One side of a window. Numbers are kept in billionths: nanoseconds if the unit is the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// `12.5`: on the trace's clock.
    At(u128),
    /// `+1.5s`: after the first event.
    AfterFirst(u128),
    /// `-2s`: before the last event.
    BeforeLast(u128),
    /// `10%`: of the way from the first event to the last.
    Percent(u128),
    /// Order key.
    Key(u64),
}

impl TimeWindow {
    /// Window from the first event to those of an order key.
    pub(crate) fn until(key: u64) -> TimeWindow {
        TimeWindow { from: None, to: Some(Bound::Key(key)), has_units: false }
    }

    /// True if only the last order key resolves the window: else one pass over the trace will do.
    pub(crate) fn needs_last(&self) -> bool {
        [self.from, self.to].iter().flatten().any(|b| matches!(b, Bound::BeforeLast(_) | Bound::Percent(_)))
    }

    /// True for a window without an end that starts at a time on the trace's clock before the `first` event, so that it has the whole
    /// trace. `units`: order keys to a second.
    pub fn starts_before(&self, first: u64, units: u64) -> bool {
        let is_time = matches!((self.from, self.to), (Some(Bound::At(1..)), None));
        is_time && self.resolve_in(first, first, units).0 < first
    }

    /// True if no trace can have an event in the window.
    fn is_backwards(&self) -> bool {
        match (self.from, self.to) {
            (Some(Bound::At(from)), Some(Bound::At(to)))
            | (Some(Bound::AfterFirst(from)), Some(Bound::AfterFirst(to)))
            | (Some(Bound::Percent(from)), Some(Bound::Percent(to))) => from > to,
            (Some(Bound::BeforeLast(from)), Some(Bound::BeforeLast(to))) => from < to,
            _ => false,
        }
    }

    /// The window on a trace that goes from `first` to `last`, in nanoseconds, both ends included.
    ///
    /// Nothing is inside where the first of the two is greater than the second.
    #[cfg(test)]
    pub(crate) fn resolve(&self, first: u64, last: u64) -> (u64, u64) {
        self.resolve_in(first, last, 1_000_000_000)
    }

    /// The same for an order key with so many units to a second; 1 for sequence numbers, which are
    /// then what the numbers of the window mean.
    pub(crate) fn resolve_in(&self, first: u64, last: u64, units: u64) -> (u64, u64) {
        let place = |bound: Bound, round_up: bool| {
            // Fractions of a unit round into the window, so that no event outside of it is taken.
            let divide = |n: u128, by: u128| if round_up { n.div_ceil(by) } else { n / by };
            let scaled = |n: u128| divide(n.saturating_mul(u128::from(units)), NANOS);
            let place = match bound {
                Bound::At(n) => scaled(n),
                Bound::Key(key) => key.into(),
                Bound::AfterFirst(n) => u128::from(first).saturating_add(scaled(n)),
                Bound::BeforeLast(n) => {
                    let back = n.saturating_mul(u128::from(units));
                    let back = if round_up { back / NANOS } else { back.div_ceil(NANOS) };
                    u128::from(last).saturating_sub(back)
                }
                Bound::Percent(n) => {
                    u128::from(first) + divide(u128::from(last.saturating_sub(first)) * n, 100 * NANOS)
                }
            };
            u64::try_from(place).unwrap_or(u64::MAX)
        };
        (self.from.map_or(0, |b| place(b, true)), self.to.map_or(u64::MAX, |b| place(b, false)))
    }
}

/// Moment of the figures: `peak`, or a time as one side of a window has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Largest number of live bytes.
    Peak,
    /// Window from the first event to that time.
    Until(TimeWindow),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        if text == "peak" {
            return Ok(Moment::Peak);
        }
        let to = Bound::parse(text.trim()).map_err(|why| format!("{why}; or peak"))?;
        let has_units = text.trim().ends_with(|last: char| last.is_ascii_alphabetic());
        Ok(Moment::Until(TimeWindow { from: None, to: Some(to), has_units }))
    }
}

impl FromStr for TimeWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeWindow, String> {
        let (from, to) =
            text.split_once(',').ok_or("a time window is A,B, as 10%,90%; one side may be empty, as +3s,")?;
        let bound = |text: &str| if text.is_empty() { Ok(None) } else { Bound::parse(text).map(Some) };
        let (from, to) = (from.trim(), to.trim());
        let has_units = [from, to].iter().any(|text| text.ends_with(|last: char| last.is_ascii_alphabetic()));
        let window = TimeWindow { from: bound(from)?, to: bound(to)?, has_units };
        if window == TimeWindow::default() {
            return Err("both sides of the time window are empty".to_owned());
        }
        if window.is_backwards() {
            return Err("the time window ends before it begins".to_owned());
        }
        Ok(window)
    }
}

impl Bound {
    fn parse(text: &str) -> Result<Bound, String> {
        let bound = if let Some(number) = text.strip_suffix('%') {
            duration::billionths(number.trim_end()).filter(|&n| n <= 100 * NANOS).map(Bound::Percent)
        } else if let Some(span) = text.strip_prefix('+') {
            duration::parse_exact(span).map(Bound::AfterFirst)
        } else if let Some(span) = text.strip_prefix('-') {
            duration::parse_exact(span).map(Bound::BeforeLast)
        } else {
            duration::parse_exact(text).map(Bound::At)
        };
        bound.ok_or_else(|| {
            "a time is 12.5 (seconds on the trace's clock), +1.5s (after the first event), -2s (before the last) or \
             10% (of the trace); units are ns, us, ms, s, min and h"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn window(text: &str) -> TimeWindow {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn a_start_before_the_first_event_takes_all() {
        for (text, is_all) in [("20s,", true), ("20s,30s", false), ("+20s,", false), ("0,", false), ("5000s,", false)] {
            assert_eq!(window(text).starts_before(3000 * S, S), is_all, "{text}");
        }
    }

    #[test]
    fn a_moment_ends_a_window() {
        assert_eq!("peak".parse(), Ok(Moment::Peak));
        for (text, of_window) in [("12.5", ",12.5"), ("+1.5s", ",+1.5s"), ("-2s", ",-2s"), ("10%", ",10%")] {
            assert_eq!(text.parse(), Ok(Moment::Until(window(of_window))), "{text}");
        }
        assert!(["", "1,2", "peaks"].iter().all(|text| text.parse::<Moment>().is_err()));
        assert_eq!(TimeWindow::until(77).resolve_in(5, 900, 1_000), (0, 77));
    }

    #[test]
    fn every_form_finds_its_place() {
        let (first, last) = (100 * S, 300 * S + 7);
        for (text, want) in [
            ("12.5,", (12 * S + S / 2, u64::MAX)),
            (",12.000000001", (0, 12 * S + 1)),
            (" 120 , 130s ", (120 * S, 130 * S)),
            ("+250ms,+1.5s", (100 * S + S / 4, 101 * S + S / 2)),
            ("+0,+1m", (100 * S, 160 * S)),
            ("+1min,+1m30s", (160 * S, 190 * S)),
            ("+7ns,+7us", (100 * S + 7, 100 * S + 7000)),
            ("-2s,", (298 * S + 7, u64::MAX)),
            ("-1h,-.5", (0, 299 * S + S / 2 + 7)),
            ("0%,100%", (first, last)),
            // A tenth of 200.000000007 s: the start rounds up, the end rounds down.
            ("10%,10%", (120 * S + 1, 120 * S)),
            ("12.5%,", (125 * S + 1, u64::MAX)),
            ("18446744073709551615,", (u64::MAX, u64::MAX)),
        ] {
            assert_eq!(window(text).resolve(first, last), want, "{text}");
        }
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(window("+99999h,").resolve(u64::MAX - 1, u64::MAX), (u64::MAX, u64::MAX));
        assert_eq!(window("-99999h,100%").resolve(0, u64::MAX), (u64::MAX - 99_999 * 3600 * S, u64::MAX));
        assert_eq!(window("50%,").resolve(9, 3), (9, u64::MAX));
        assert_eq!(window("1000,2000").resolve_in(5, 5000, 1), (1000, 2000));
        assert_eq!(window("+10,-10").resolve_in(5, 5000, 1), (15, 4990));
        assert_eq!(window("18446744073709551615h,").resolve_in(0, 0, u64::MAX).0, u64::MAX);
    }

    #[test]
    fn only_ends_and_percents_need_the_last_event() {
        for (text, want) in [("1,2", false), ("+1,+2", false), ("-1,", true), (",5%", true)] {
            assert_eq!(window(text).needs_last(), want, "{text}");
        }
    }

    #[test]
    fn errors_name_what_would_do() {
        for text in [
            "x,",
            "1.2.3,",
            "+,",
            "-,",
            ".,",
            "101%,",
            "%,",
            "1e9,",
            "1 d,",
            "0.0000000001,",
            "99999999999999999999,",
            "++1,",
            "1,2,3",
        ] {
            let error = text.parse::<TimeWindow>().unwrap_err();
            assert!(error.contains("+1.5s (after the first event)"), "{text}: {error}");
        }
        assert!("12".parse::<TimeWindow>().unwrap_err().contains("A,B"));
        assert!(",".parse::<TimeWindow>().unwrap_err().contains("both sides"));
        for text in ["2,1", "+2,+1", "-1,-2", "2%,1%"] {
            assert!(text.parse::<TimeWindow>().unwrap_err().contains("ends before it begins"), "{text}");
        }
    }
}
