//! Times of day that texts tell: the output of `date`, and the time before a line of a log.

use super::noise::{has_form, is_weekday, month};
use super::numbers::split_before;

/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

/// Date and time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moment {
    year: i64,
    month: u8,
    day: u8,
    /// Second of the day.
    second: i64,
    /// Seconds that local time is ahead of UTC.
    ahead: i64,
}

impl Moment {
    /// Seconds since 1970; `None` for a day that no calendar has.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the date is checked first, and a time of day and a zone have at most four digits of hours and minutes"
    )]
    fn seconds(self) -> Option<i64> {
        let is_date =
            (1970..=9999).contains(&self.year) && (1..=12).contains(&self.month) && (1..=31).contains(&self.day);
        if !is_date {
            return None;
        }
        // Days of the civil calendar (H. Hinnant, "chrono-compatible low-level date algorithms"); years begin in March.
        let year = self.year - i64::from(self.month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((i64::from(self.month) + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        Some(days * DAY + self.second - self.ahead)
    }
}

/// Seconds since 1970 of a line that is a time of day and nothing else: of `date`, `date -R`, `date -I`, `date +%s`, or RFC 3339. Zones
/// without a number count as UTC.
pub(crate) fn of_line(line: &[u8]) -> Option<i64> {
    let line = line.trim_ascii();
    if line.len() > 64 || !line.first()?.is_ascii_alphanumeric() {
        return None;
    }
    if line.len() == 10 && line.iter().all(u8::is_ascii_digit) {
        return decimal(line);
    }
    if has_form(line, b"0000-00-00") {
        return iso(line);
    }
    line.get(3..).filter(|_| is_weekday(line)).and_then(of_words)
}

/// Time before a line of a log: seconds since boot of printk, or a time of day as `dmesg -T` and journals have it.
pub(crate) fn of_stamp(line: &[u8]) -> Option<i64> {
    let Some(inside) = line.strip_prefix(b"[") else {
        let end = line.iter().position(|byte| *byte == b' ')?;
        return line.get(..end).filter(|_| has_form(line, b"0000-00-00T")).and_then(iso);
    };
    let inside = inside.split(|byte| *byte == b']').next().unwrap_or_default().trim_ascii();
    let seconds = inside.split(|byte| *byte == b'.').next().unwrap_or_default();
    decimal(seconds).filter(|_| seconds.len() < inside.len()).or_else(|| of_line(inside))
}

fn decimal(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// `2026-11-26T11:27:31,345678+00:00`, with a blank in place of the `T`, and the parts behind the minutes each optional.
fn iso(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut moment = Moment {
        year: decimal(date.get(..4)?)?,
        month: decimal(date.get(5..7)?)?.try_into().ok()?,
        day: decimal(date.get(8..)?)?.try_into().ok()?,
        ..Moment::default()
    };
    let Some(time) = rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" ")) else {
        return rest.is_empty().then(|| moment.seconds()).flatten();
    };
    let (time, name) = split_before(time, |byte| !byte.is_ascii_digit() && !b":.,".contains(&byte));
    moment.second = time_of_day(time)?;
    moment.ahead = zone(name.trim_ascii())?;
    moment.seconds()
}

/// Second of the day of `11:27:31.345`.
fn time_of_day(text: &[u8]) -> Option<i64> {
    let (time, fraction) = text.split_at_checked(8)?;
    let is_fraction = matches!(fraction, [] | [b'.' | b',', ..]) && fraction.iter().skip(1).all(u8::is_ascii_digit);
    if !has_form(time, b"00:00:00") || !is_fraction {
        return None;
    }
    let (hours, minutes, seconds) = (decimal(time.get(..2)?)?, decimal(time.get(3..5)?)?, decimal(time.get(6..)?)?);
    #[expect(clippy::arithmetic_side_effects, reason = "each number has two digits")]
    let second = (hours * 60 + minutes) * 60 + seconds;
    (hours < 24 && minutes < 60 && seconds <= 60).then_some(second)
}

/// Seconds that a zone is ahead of UTC: of `+01:00`, `-0530`, `Z`; 0 for any other name.
fn zone(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        name => return (name.len() <= 5 && name.iter().all(u8::is_ascii_alphabetic)).then_some(0),
    };
    let digits: Vec<u8> = digits.iter().copied().filter(|byte| *byte != b':').collect();
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = match minutes.len() {
        0 => 0,
        2 => decimal(minutes)?,
        _ => return None,
    };
    #[expect(clippy::arithmetic_side_effects, reason = "each number has two digits")]
    let ahead = sign * (decimal(hours)? * 60 + minutes) * 60;
    Some(ahead)
}

/// What follows the day of the week: month, day, time, zone and year in any order.
fn of_words(text: &[u8]) -> Option<i64> {
    let mut moment = Moment::default();
    let (mut has_time, mut is_afternoon) = (false, None);
    for word in text.split(|byte| b" ,".contains(byte)).filter(|word| !word.is_empty()) {
        if let Some(month) = month(word).filter(|_| moment.month == 0) {
            moment.month = month;
        } else if let Some(second) = time_of_day(word) {
            (moment.second, has_time) = (second, true);
        } else if matches!(word, b"AM" | b"PM") {
            is_afternoon = Some(word == b"PM");
        } else if word.len() == 4 && decimal(word).is_some() {
            moment.year = decimal(word)?;
        } else if word.len() <= 2 && decimal(word).is_some() {
            moment.day = decimal(word)?.try_into().ok()?;
        } else if matches!(word, b"day" | b"sday" | b"nesday" | b"rsday" | b"urday") {
            // The rest of a day's whole name.
        } else {
            moment.ahead = zone(word)?;
        }
    }
    if let Some(is_afternoon) = is_afternoon {
        const NOON: i64 = DAY / 2;
        moment.second = (moment.second % NOON).saturating_add(if is_afternoon { NOON } else { 0 });
    }
    has_time.then(|| moment.seconds()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_read() {
        const AT: i64 = 1_795_692_451;
        for (line, seconds) in [
            ("Thu Nov 26 11:27:31 UTC 2026", AT),
            ("Thu Nov 26 11:27:31 AM UTC 2026", AT),
            ("Thu Nov 26 11:27:31 PM GMT 2026", AT + DAY / 2),
            ("Thu 26 Nov 2026 12:27:31 PM CET", AT + 3_600),
            ("Thu, 26 Nov 2026 12:27:31 +0100", AT),
            ("Thursday Nov 26 11:27:31 UTC 2026", AT),
            ("Thu Nov 26 11:27:31 2026", AT),
            ("2026-11-26T11:27:31Z", AT),
            ("2026-11-26T12:27:31+01:00", AT),
            ("2026-11-26 11:27:31", AT),
            ("2026-11-26 11:27:31.5 UTC", AT),
            ("2026-11-26T11:27:31,345678+00:00", AT),
            ("2026-11-26", AT - 41_251),
            ("1795692451", AT),
            ("Thu Jan  1 00:00:00 UTC 1970", 0),
            ("Thu Feb 29 23:59:59 UTC 2024", 1_709_251_199),
        ] {
            assert_eq!(of_line(line.as_bytes()), Some(seconds), "{line}");
        }
        for line in [
            "",
            "Thu",
            "Thursday morning",
            "Thu Nov 26",
            "2026-13-26 11:27:31",
            "2026-11-26T25:27:31",
            "12345",
            "May 12",
        ] {
            assert_eq!(of_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn lines_of_logs_have_times() {
        for (line, time) in [
            ("[   12.345678] a invoked oom-killer: order=0", Some(12)),
            ("[Thu Nov 26 11:27:31 2026] a invoked oom-killer: order=0", Some(1_795_692_451)),
            ("2026-11-26T11:27:31,345678+00:00 a invoked oom-killer: order=0", Some(1_795_692_451)),
            ("[     77]     0    77     1234", None),
            ("a invoked oom-killer: order=0", None),
            ("[", None),
        ] {
            assert_eq!(of_stamp(line.as_bytes()), time, "{line}");
        }
    }
}
