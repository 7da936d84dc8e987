//! Words, numbers and sizes of a line.

use crate::text::split::split_once;

/// Largest number, and largest sum of bytes, that a text may have.
pub(super) const MAX: u64 = i64::MAX as u64;

/// Reason why a block is left out.
pub(super) type Reason = &'static str;

pub(super) const NO_NUMBER: Reason = "lacks a number";
pub(super) const OUT_OF_RANGE: Reason = "has a number out of range";

/// Words of a line, between blanks and tabs.
pub(super) fn words(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    line.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty())
}

/// The first word, and what follows it from the next word on.
pub(super) fn first_word(line: &[u8]) -> (&[u8], &[u8]) {
    let (word, rest) = split_before(trimmed(line), is_blank);
    (word, trimmed(rest))
}

/// The text before the first of these bytes, and the text from there on; the whole text without one.
pub(super) fn split_before(text: &[u8], is_end: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| is_end(*byte));
    end.and_then(|end| text.split_at_checked(end)).unwrap_or((text, b""))
}

/// The text before the place `at`, and the text behind the `len` bytes there; `None` where the text ends before these do.
pub(super) fn around(text: &[u8], at: usize, len: usize) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.get(len..)?))
}

/// The line without the blanks around it.
pub(super) fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The decimal number that is the whole word.
pub(super) fn number(word: &[u8]) -> Result<u64, Reason> {
    if !is_digits(word) {
        return Err(NO_NUMBER);
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')));
    word.iter().try_fold(0, add).filter(|number| *number <= MAX).ok_or(OUT_OF_RANGE)
}

/// The hexadecimal number behind `0x` that is the whole word.
pub(super) fn hexadecimal(word: &[u8]) -> Option<u64> {
    let digits =
        word.strip_prefix(b"0x").filter(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit))?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// True for a line that begins with these words, and for a begin of them that is all there is of a line.
pub(super) fn is_begin_of(line: &[u8], words: &[u8]) -> bool {
    !line.is_empty() && (line.starts_with(words) || words.starts_with(line))
}

/// True for a word of decimal digits alone.
pub(super) fn is_digits(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

/// A number that may be negative.
pub(super) fn signed(word: &[u8]) -> Result<i64, Reason> {
    let (is_negative, digits) = word.strip_prefix(b"-").map_or((false, word), |digits| (true, digits));
    let magnitude = i64::try_from(number(digits)?).map_err(|_| OUT_OF_RANGE)?;
    Ok(if is_negative { magnitude.saturating_neg() } else { magnitude })
}

/// The number of a process, of which a text may claim any.
pub(super) fn pid(word: &[u8]) -> Result<i32, Reason> {
    signed(word)?.try_into().map_err(|_| OUT_OF_RANGE)
}

/// Product of two numbers of a text.
pub(super) fn product(a: u64, b: u64) -> Result<u64, Reason> {
    a.checked_mul(b).filter(|product| *product <= MAX).ok_or(OUT_OF_RANGE)
}

/// Bytes that a text tells with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: u64,
    /// Written with a unit above the byte, so that digits are missing.
    pub(super) is_rounded: bool,
}

/// Multiples of 1024: the letter of the unit, and its binary logarithm. `k`, `Ki`, `KiB` and `KB` all stand for 1024.
const UNITS: [(u8, u32); 6] = [(b'K', 10), (b'M', 20), (b'G', 30), (b'T', 40), (b'P', 50), (b'E', 60)];

/// `8192`, `64K`, `1.5M`, `1.20MiB`, `512B`; without a unit in units of `1 << plain_shift` bytes.
pub(super) fn size(word: &[u8], plain_shift: u32) -> Result<Size, Reason> {
    let end = word.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(word.len());
    let (digits, unit) = word.split_at(end);
    let (shift, is_rounded) = match unit {
        [] => (plain_shift, false),
        b"B" => (0, false),
        _ => (unit_shift(unit).ok_or(NO_NUMBER)?, true),
    };
    Ok(Size { bytes: scaled(digits, shift)?, is_rounded })
}

fn unit_shift(unit: &[u8]) -> Option<u32> {
    let (letter, rest) = unit.split_first()?;
    let is_unit = matches!(rest, b"" | b"i" | b"iB" | b"B");
    let of_letter = |(known, _): &&(u8, u32)| *known == letter.to_ascii_uppercase() && is_unit;
    UNITS.iter().find(of_letter).map(|(_, shift)| *shift)
}

/// A decimal number, perhaps with digits behind a point, times `1 << shift`; rounded down.
fn scaled(digits: &[u8], shift: u32) -> Result<u64, Reason> {
    let (whole, part) = split_once(digits, b'.').unwrap_or((digits, b""));
    let whole = product(number(whole)?, 1 << shift)?;
    if part.is_empty() {
        return Ok(whole);
    }
    // More digits than these change no byte of what anybody writes.
    let part = part.get(..9).unwrap_or(part);
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "nine digits times 2^60 are below 2^90, and no power of ten is 0"
    )]
    let rest = (u128::from(number(part)?) << shift) / 10u128.pow(part.len() as u32);
    whole.checked_add(rest as u64).filter(|bytes| *bytes <= MAX).ok_or(OUT_OF_RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_range() {
        assert_eq!(number(b"9223372036854775807"), Ok(MAX));
        assert_eq!(number(b"9223372036854775808"), Err(OUT_OF_RANGE));
        assert_eq!(number(b"99999999999999999999999"), Err(OUT_OF_RANGE));
        assert_eq!([number(b""), number(b"-1"), number(b"12a")], [Err(NO_NUMBER); 3]);
        assert_eq!((signed(b"-12"), pid(b"4294967296")), (Ok(-12), Err(OUT_OF_RANGE)));
        assert_eq!((product(1 << 62, 1), product(1 << 62, 2)), (Ok(1 << 62), Err(OUT_OF_RANGE)));
        assert_eq!((hexadecimal(b"0x1f"), hexadecimal(b"0x"), hexadecimal(b"1f")), (Some(31), None, None));
    }

    #[test]
    fn sizes_have_units() {
        let of = |word: &str| size(word.as_bytes(), 0).map(|size| (size.bytes, size.is_rounded));
        assert_eq!(of("4096"), Ok((4096, false)));
        assert_eq!(of("512B"), Ok((512, false)));
        assert_eq!(of("64K"), Ok((65_536, true)));
        assert_eq!(of("1.5Mi"), Ok((1_572_864, true)));
        assert_eq!(of("1.20MiB"), Ok((1_258_291, true)));
        assert_eq!(of("2G"), Ok((2 << 30, true)));
        assert_eq!(size(b"8216", 10).unwrap().bytes, 8216 << 10);
        assert_eq!((of("1X"), of("K"), of("9E")), (Err(NO_NUMBER), Err(NO_NUMBER), Err(OUT_OF_RANGE)));
    }

    #[test]
    fn words_stand_between_blanks() {
        assert_eq!(words(b"  a\tb  c ").collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(first_word(b"  a  b c "), (&b"a"[..], &b"b c"[..]));
    }
}
