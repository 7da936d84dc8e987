//! Figures as people read them. Integers all the way, rounded half up, the same in every locale.

/// Bytes in binary units with three significant digits: `0 B`, `1023 B`, `1.00 KiB`, `36.5 MiB`, `1023 KiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB"), (1 << 50, "PiB")];
    if n < 1024 { format!("{n} B") } else { in_units(n, 1024, &UNITS, (1 << 60, "EiB")) }
}

/// A duration of `n` nanoseconds with three significant digits: `999 ns`, `54.0 us`, `1.27 s`, `3600 s`.
pub fn duration(n: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1_000, "us"), (1_000_000, "ms")];
    if n < 1000 { format!("{n} ns") } else { in_units(n, 1000, &UNITS, (1_000_000_000, "s")) }
}

/// `n` in the first unit that it is less than `most` of, rounded, else in the `largest` one: three significant digits.
fn in_units(n: u64, most: u128, units: &[(u64, &str)], largest: (u64, &str)) -> String {
    // Each width is rounded from `n` itself: rounding a rounded number again would be off at the borders.
    let fits = |&(unit, _): &(u64, &str)| rounded(n, 1, unit) < most;
    let (unit, name) = units.iter().copied().find(fits).unwrap_or(largest);
    let (hundredths, tenths) = (rounded(n, 100, unit), rounded(n, 10, unit));
    if hundredths < 1000 {
        format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
    } else if tenths < 1000 {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    } else {
        format!("{} {name}", rounded(n, 1, unit))
    }
}

/// `1,204,118`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len().saturating_add(digits.len() / 3));
    for (left, digit) in (0..digits.len()).rev().zip(digits.chars()) {
        out.push(digit);
        if left > 0 && left.is_multiple_of(3) {
            out.push(',');
        }
    }
    out
}

/// A number with its noun, which gets an `s` unless the number is 1: `1 gap`, `2 gaps`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `part` of `whole` with one decimal: `8.3%`; `-` where there is no whole.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let tenths = rounded(part, 1000, whole);
    format!("{}.{}%", tenths / 10, tenths % 10)
}

/// `part * times / whole`, half up.
#[expect(clippy::arithmetic_side_effects, reason = "the products are below 2^81, and no caller has a `whole` of 0")]
fn rounded(part: u64, times: u16, whole: u64) -> u128 {
    let (part, whole) = (u128::from(part) * u128::from(times), u128::from(whole));
    (2 * part + whole) / (2 * whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_significant_digits() {
        const K: u64 = 1024;
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (K, "1.00 KiB"),
            (10 * K - 6, "9.99 KiB"),
            (10 * K - 5, "10.0 KiB"), // 9.995
            (100 * K - 52, "99.9 KiB"),
            (100 * K - 51, "100 KiB"), // 99.95
            (1023 * K, "1023 KiB"),
            (K * K - 513, "1023 KiB"),
            (K * K - 512, "1.00 MiB"), // 1023.5
            (38_273_024, "36.5 MiB"),
            (1648 * K * K, "1.61 GiB"),
            (K.pow(6), "1.00 EiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text, "{n}");
        }
    }

    #[test]
    fn no_boundary_is_rounded_twice() {
        // 9.9949 KiB is 9.99, and 99.9499 is 99.9: neither goes by a rounded value in between.
        assert_eq!(bytes(10_234), "9.99 KiB");
        assert_eq!(bytes(102_348), "99.9 KiB");
        let mut last = 0.0;
        for n in (0..4_000_000u64).step_by(7) {
            let text = bytes(n);
            let (number, unit) = text.split_once(' ').unwrap();
            let factor = match unit {
                "B" => 1.0,
                "KiB" => 1024.0,
                _ => 1024.0 * 1024.0,
            };
            let value = number.parse::<f64>().unwrap() * factor;
            assert!(value >= last && (value - n as f64).abs() <= n as f64 * 0.005 + 0.5, "{n}: {text}");
            last = value;
        }
    }

    #[test]
    fn durations_have_three_significant_digits() {
        for (n, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.00 us"),
            (54_000, "54.0 us"),
            (99_950, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (271_432_111, "271 ms"),
            (1_270_000_000, "1.27 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(duration(n), text, "{n}");
        }
    }

    #[test]
    fn digits_are_grouped_by_three() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_204_118, "1,204,118")] {
            assert_eq!(grouped(n), text);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "gap")), ["0 gaps", "1 gap", "2 gaps"]);
    }

    #[test]
    fn percent_rounds_half_up_and_needs_a_whole() {
        for (part, whole, text) in [
            (0, 0, "-"),
            (5, 0, "-"),
            (0, 7, "0.0%"),
            (1, 2000, "0.1%"), // 0.05
            (1, 2001, "0.0%"),
            (83, 1000, "8.3%"),
            (1, 1, "100.0%"),
            (3, 2, "150.0%"),
            (u64::MAX, u64::MAX, "100.0%"),
        ] {
            assert_eq!(percent(part, whole), text, "{part}/{whole}");
        }
    }
}
