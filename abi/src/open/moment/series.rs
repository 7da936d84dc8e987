//! Series of texts of one input: each is a slice of time, and the last one is the trace.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::numbers::split_before;
use crate::trace::{OpenError, SlicesFrom, Trace};

/// Text of a series, before its time is known.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The text as a trace.
    pub(crate) trace: Trace,
    /// Its file.
    pub(crate) path: PathBuf,
    /// Time of the file's last change, in seconds since 1970.
    pub(crate) modified: Option<i64>,
}

/// The last of several texts by time, with those before it as its [`Trace::series`]; without times in the order that they were named.
///
/// # Errors
/// [`OpenError::Choose`] if `times`, those that the caller gives, are not one for each text.
pub(crate) fn of_slices(mut slices: Vec<Slice>, times: &[i64]) -> Result<Option<Trace>, OpenError> {
    if !times.is_empty() && times.len() != slices.len() {
        let path = slices.first().map(|slice| slice.path.clone()).unwrap_or_default();
        let reason = format!("--times has {} and there are {} texts; give one for each", count(times), slices.len());
        return Err(OpenError::Choose { path, reason });
    }
    let (from, told) = told_times(&slices, times);
    for (slice, at) in slices.iter_mut().zip(told) {
        if let Some(text) = &mut slice.trace.info.text {
            (text.taken_at, text.slices_from) = (at, Some(from));
        }
    }
    let at = |slice: &Slice| slice.trace.info.text.as_ref().and_then(|text| text.taken_at);
    slices.sort_by_key(at);
    let number = slices.len();
    let Some(Slice { mut trace, .. }) = slices.pop() else { return Ok(None) };
    if let Some(text) = &mut trace.info.text {
        text.slices = number;
    }
    trace.series = slices.into_iter().map(|slice| slice.trace).collect();
    Ok(Some(trace))
}

fn count(times: &[i64]) -> String {
    format!("{} time{}", times.len(), if times.len() == 1 { "" } else { "s" })
}

/// Times of all texts, from the first source that tells those of all; none where no source does.
fn told_times(slices: &[Slice], times: &[i64]) -> (SlicesFrom, Vec<Option<i64>>) {
    let of_text = || slices.iter().map(|slice| slice.trace.info.text.as_ref()?.taken_at).collect::<Option<Vec<i64>>>();
    // Texts of one file have one name and one time of change.
    let of_names = || slices.iter().map(|slice| of_name(&slice.path)).collect::<Option<Vec<i64>>>();
    let of_files = || slices.iter().map(|slice| slice.modified).collect::<Option<Vec<i64>>>();
    let all_differ = |times: &Vec<i64>| times.iter().collect::<HashSet<_>>().len() == times.len();
    let asked = Some(times.to_vec()).filter(|times| !times.is_empty());
    let sources = [
        (SlicesFrom::Option, asked),
        (SlicesFrom::Text, of_text()),
        (SlicesFrom::Name, of_names().filter(all_differ)),
        (SlicesFrom::Files, of_files().filter(all_differ)),
    ];
    let found = sources.into_iter().find_map(|(from, times)| Some((from, times?)));
    match found {
        Some((from, times)) => (from, times.into_iter().map(Some).collect()),
        None => (SlicesFrom::Nothing, vec![None; slices.len()]),
    }
}

/// Time in a file's name, in seconds since 1970: `20261126-1127`, `2026-11-26_11:27:31`, read as UTC, or ten digits of seconds.
fn of_name(path: &Path) -> Option<i64> {
    let name = path.file_name()?.as_encoded_bytes();
    let is_digit = |at: usize| name.get(at).is_some_and(u8::is_ascii_digit);
    let begins = (0..name.len()).filter(|at| is_digit(*at) && !at.checked_sub(1).is_some_and(is_digit));
    begins.filter_map(|at| name.get(at..)).find_map(|text| of_date(text).or_else(|| of_seconds(text)))
}

/// Ten digits, and no more.
fn of_seconds(text: &[u8]) -> Option<i64> {
    let (digits, _) = split_before(text, |byte| !byte.is_ascii_digit());
    if digits.len() != 10 { None } else { std::str::from_utf8(digits).ok()?.parse().ok() }
}

/// Date and time of day with or without marks between their parts.
fn of_date(text: &[u8]) -> Option<i64> {
    let mut rest = text;
    let mut number = |digits: usize, marks: &[u8]| -> Option<i64> {
        if let [mark, others @ ..] = rest
            && marks.contains(mark)
        {
            rest = others;
        }
        let (number, others) = rest.split_at_checked(digits)?;
        if !number.iter().all(u8::is_ascii_digit) {
            return None;
        }
        rest = others;
        std::str::from_utf8(number).ok()?.parse().ok()
    };
    let (year, month, day) = (number(4, b"")?, number(2, b"-:")?, number(2, b"-:")?);
    let (hour, minute) = (number(2, b"-_T")?, number(2, b"-:")?);
    let second = number(2, b"-:").unwrap_or(0);
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = hour < 24 && minute < 60 && second < 61;
    #[expect(clippy::arithmetic_side_effects, reason = "the year has four digits, and each other number has two")]
    let seconds = days((year, month, day)) * 86_400 + hour * 3600 + minute * 60 + second;
    (is_date && is_time).then_some(seconds)
}

/// Days since 1970 of a date of the Gregorian calendar.
#[expect(clippy::arithmetic_side_effects, reason = "the year has four digits, month and day have two")]
fn days((year, month, day): (i64, i64, i64)) -> i64 {
    // Years begin in March, so that the day that some of them have is their last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_names() {
        for (name, want) in [
            ("slabinfo.20261126-1127", Some(1_795_692_420)),
            ("2026-11-26_11:27:31.txt", Some(1_795_692_451)),
            ("owner-20261126T112731.gz", Some(1_795_692_451)),
            ("dump.1795692451", Some(1_795_692_451)),
            ("dump.17956924510", None),
            ("slabinfo.20261126", None),
            ("slabinfo.20261326-1127", None),
            ("slabinfo.1", None),
            ("19700101-0000", Some(0)),
            ("20000229-0000", Some(951_782_400)),
        ] {
            assert_eq!(of_name(Path::new(name)), want, "{name}");
        }
    }
}
