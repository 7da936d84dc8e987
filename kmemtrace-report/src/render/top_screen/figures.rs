//! Figures in the few columns that a screen has.

/// Bytes: `1.38 M`, `402 M`, `96 B`, rounded as everywhere.
pub(super) fn bytes(n: u64) -> String {
    long_bytes(n).replace("iB", "")
}

/// Change of bytes: `+31M`, `-96K`, `+0`.
pub(super) fn change(n: i64) -> String {
    let text = bytes(n.unsigned_abs());
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    // Three digits are more than a change needs; a zero behind the point says nothing.
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{}{number}{}", if n < 0 { '-' } else { '+' }, unit.trim_end_matches('B'))
}

/// Change a second: as [`change`], and `0` where there is none.
pub(super) fn change_now(n: i64) -> String {
    if n == 0 { "0".to_owned() } else { change(n) }
}

/// Bytes with a unit for running text: `38.2 MiB`.
pub(super) fn long_bytes(n: u64) -> String {
    kmemtrace_abi::text::units::bytes(n)
}

/// Change of bytes for running text: `+38.2 MiB`.
pub(super) fn long_change(n: i64) -> String {
    format!("{}{}", if n < 0 { '-' } else { '+' }, long_bytes(n.unsigned_abs()))
}

/// Number of things: `412k`, `1.20M`, `85`.
pub(super) fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{}k", n / 1000),
        1_000_000..1_000_000_000 => format!("{:.2}M", n as f64 / 1e6),
        _ => format!("{:.2}G", n as f64 / 1e9),
    }
}

/// Number of things in a column of 8: `102,912`, `1.20M`.
pub(super) fn number(n: u64) -> String {
    if n < 1_000_000 { kmemtrace_abi::text::units::grouped(n) } else { count(n) }
}

/// Time since a begin: `+00:03:12`.
pub(super) fn moment(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    format!("+{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Age in few columns: `0.2 s`, `12 s`, `3 m`, `5 h`.
pub(super) fn age(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..10 => format!("{:.1} s", nanoseconds as f64 / 1e9),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} m", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// Length of a window: `60 s`, `10 min`.
pub(super) fn window(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}

/// `part` of `whole` in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{}%", (u128::from(part) * 200 / u128::from(whole)).div_ceil(2)),
    }
}

/// Bars of a curve, lowest first.
const ASCII: &[u8] = b".:-=+*#%";
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A curve as bars from its least to its greatest value.
pub(super) fn curve(values: &[u64], is_unicode: bool) -> String {
    let (least, most) = (values.iter().min().copied().unwrap_or(0), values.iter().max().copied().unwrap_or(0));
    let step = |value: u64| {
        let span = u128::from(most - least).max(1);
        usize::try_from(u128::from(value - least) * 7 / span).unwrap_or(0)
    };
    values.iter().map(|&value| if is_unicode { BLOCKS[step(value)] } else { ASCII[step(value)].into() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_to_their_columns() {
        let sizes = [0, 96, 999, 1024, 1_447_034, 421_527_552, 1 << 40, u64::MAX];
        assert_eq!(sizes.map(bytes), ["0 B", "96 B", "999 B", "1.00 K", "1.38 M", "402 M", "1.00 T", "16.0 E"]);
        let changes = [0, 12_288, -98_304, 421_000, 6_400_000, 32_505_856, i64::MIN];
        assert_eq!(changes.map(change), ["+0", "+12K", "-96K", "+411K", "+6.1M", "+31M", "-8E"]);
        assert_eq!([9999, 412_118, 1_204_118].map(count), ["9999", "412k", "1.20M"]);
        assert_eq!(moment(192_900_000_000), "+00:03:12");
        assert_eq!([200_000_000, 12_000_000_000, 182_000_000_000].map(age), ["0.2 s", "12 s", "3 m"]);
        assert_eq!([percent(41, 100), percent(1, 0), percent(u64::MAX, u64::MAX)], ["41%", "-", "100%"]);
    }

    #[test]
    fn a_curve_goes_from_its_least_to_its_greatest_value() {
        assert_eq!(curve(&[5, 5, 12, 8], false), "..%=");
        assert_eq!(curve(&[0, u64::MAX], true), "▁█");
        assert_eq!(curve(&[7, 7], false), "..");
        assert_eq!(curve(&[], false), "");
    }
}
