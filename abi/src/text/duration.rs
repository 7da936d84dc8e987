//! Spans of time as people type them.

use std::time::Duration;

/// Nanoseconds of a second.
const NANOS: u128 = 1_000_000_000;

/// Units by name, as fractions of a second.
const UNITS: [(&str, u32, u32); 10] = [
    ("", 1, 1),
    ("ns", 1, 1_000_000_000),
    ("us", 1, 1_000_000),
    // The micro sign, and the Greek letter that many keyboards have for it.
    ("\u{b5}s", 1, 1_000_000),
    ("\u{3bc}s", 1, 1_000_000),
    ("ms", 1, 1_000),
    ("s", 1, 1),
    ("m", 60, 1),
    ("min", 60, 1),
    ("h", 3_600, 1),
];

/// Nanoseconds of a span of time.
///
/// Grammar: a number, then space or none, then `ns`, `us` or `µs`, `ms`, `s`, `m` or `min`, `h`, or nothing, which is seconds. Several of
/// these with units follow one another, the largest unit first: `1h30m`. The number is one of [`parse_exact`], or another one in
/// floating point that is not negative: with a `+`, an exponent or more than nine places. Such a number is rounded to nanoseconds. `None`
/// for any other text.
pub fn parse(text: &str) -> Option<u128> {
    parse_exact(text).or_else(|| {
        let (number, times, per) = split(text)?;
        let seconds = number.parse::<f64>().ok()? * (f64::from(times) / f64::from(per));
        Duration::try_from_secs_f64(seconds).ok().map(|span| span.as_nanos())
    })
}

/// Nanoseconds of a span of time with numbers of [`billionths`]; only the last of several may have a point. Parts of a nanosecond are
/// cut off. Units as for [`parse`].
pub fn parse_exact(text: &str) -> Option<u128> {
    let mut rest = text.trim_end();
    let mut sum = 0u128;
    let mut before: Option<(u32, u32)> = None;
    loop {
        let (number, after) = split_before(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_before(after.trim_start(), |c| !c.is_alphabetic());
        let after = after.trim_start();
        let (times, per) = fraction(unit)?;
        let is_last = after.is_empty();
        let is_only = is_last && before.is_none();
        let is_less = before.is_none_or(|(more, of)| {
            u64::from(more).saturating_mul(per.into()) > u64::from(times).saturating_mul(of.into())
        });
        if !is_less || (unit.is_empty() && !is_only) || (number.contains('.') && !is_last) {
            return None;
        }
        let span = billionths(number)?.checked_mul(times.into())?.checked_div(per.into())?;
        sum = span.checked_add(sum)?;
        if is_last {
            return Some(sum);
        }
        (before, rest) = (Some((times, per)), after);
    }
}

/// Text before the first character that ends it, and the rest.
fn split_before(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// A unit as a fraction of a second.
fn fraction(unit: &str) -> Option<(u32, u32)> {
    UNITS.into_iter().find(|(name, ..)| *name == unit).map(|(_, times, per)| (times, per))
}

/// A decimal number times 10^9: `1.5`, `.5`, `5.`. At most nine places after the point, and less than 2^64 before it.
pub fn billionths(text: &str) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let fraction = format!("{fraction:0<9}").parse::<u128>().ok()?;
    u128::from(whole).checked_mul(NANOS)?.checked_add(fraction)
}

/// A number and its unit, as a fraction of a second.
fn split(text: &str) -> Option<(&str, u32, u32)> {
    let text = text.trim_end();
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_alphabetic()).len());
    let (times, per) = fraction(unit)?;
    Some((number.trim_end(), times, per))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u128 = NANOS;

    #[test]
    fn decimal_numbers_are_exact() {
        for (text, span) in [
            ("0", 0),
            ("10s", 10 * S),
            ("250ms", S / 4),
            ("5m", 300 * S),
            ("1h", 3600 * S),
            ("7ns", 7),
            ("1.5 us ", 1500),
            ("134\u{b5}s", 134_000),
            ("1ms 5 \u{3bc}s", 1_005_000),
            (".5", S / 2),
            ("5.", 5 * S),
            ("0.000000001", 1),
            ("1.5ns", 1),
            ("5min", 300 * S),
            ("1h30m", 5400 * S),
            ("1h 30 min 1.5s", 5401 * S + S / 2),
            ("2m1ms", 120 * S + S / 1000),
            ("18446744073709551615h", u128::from(u64::MAX) * 3600 * S),
        ] {
            assert_eq!((parse_exact(text), parse(text)), (Some(span), Some(span)), "{text}");
        }
        // Floating point gives the same.
        for n in 0..5_000u32 {
            for (unit, seconds) in [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)] {
                for number in [format!("{n}"), format!("{}.{:02}", n / 100, n % 100)] {
                    let span = Duration::try_from_secs_f64(number.parse::<f64>().unwrap() * seconds).unwrap();
                    assert_eq!(parse(&format!("{number}{unit}")), Some(span.as_nanos()), "{number}{unit}");
                }
            }
        }
    }

    #[test]
    fn other_numbers_are_rounded() {
        for (text, span) in
            [("1e3", 1000 * S), ("+5s", 5 * S), ("1.5e-3ms", 1500), ("0.0000000006", 1), ("1E2 m", 6000 * S)]
        {
            assert_eq!((parse_exact(text), parse(text)), (None, Some(span)), "{text}");
        }
        for bad in [
            "", "s", ".", "-1s", "1e400", "inf", "nan", "1 d", "1.2.3", "1e", " 1", "++1", "1s2", "1é", "é", "1h30",
            "30m1h", "1m1min", "1.5h30m", "1hm", "1h-5m",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
