//! Sizes as people type them.

use std::num::NonZero;

use super::duration::billionths;

/// Billionths of a byte in a byte.
const BILLION: u128 = 1_000_000_000;

/// Bytes of a size.
///
/// Grammar: decimal digits, a `+` may come before them, and after them may stand `K`, `M` or `G` in either case, or `KiB`, `MiB`,
/// `GiB`: powers of 1024. With a unit the number may have a point and up to nine places: `1.5M`. Parts of a byte are cut off. `None`
/// for any other text, and for 2^64 bytes and more. Zero is a size. `MB` is none: some mean 10^6 bytes by it, others 2^20.
pub fn parse(text: &str) -> Option<u64> {
    let unit = text.strip_suffix("iB").filter(|rest| rest.ends_with(|last: char| last.is_ascii_alphabetic()));
    let is_short = unit.is_none();
    let text = unit.unwrap_or(text);
    let (number, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ if is_short => return text.parse().ok(),
        _ => return None,
    };
    let parts = billionths(number.strip_prefix('+').unwrap_or(number))?;
    u64::try_from(parts.checked_mul(1 << shift)? / BILLION).ok()
}

/// Limit of a number without a unit that [`parse_large`] takes for MiB.
const LEAST_BYTES: u64 = 4096;

/// Bytes of a size that nobody means in single bytes: of a buffer, a disk, a memory limit.
///
/// Grammar as of [`parse`], but 1 to 4095 without a unit are MiB. `None` for zero, too.
pub fn parse_large(text: &str) -> Option<u64> {
    let size = parse(text).filter(|size| *size > 0)?;
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    Some(if has_unit || size >= LEAST_BYTES { size } else { size << 20 })
}

/// Words of a refusal of [`parse_large`].
pub const LARGE_SIZES: &str = "a size is 16 (MiB), 64K, 1.5M or 1GiB; 4096 and more without a unit are bytes";

/// A size as people type it: in the largest unit that divides it.
pub fn whole_units(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// Threads of a reader beyond which it is no faster, and the system may refuse them.
const MAX_THREADS: usize = 1 << 10;

/// Number of threads.
///
/// # Errors
/// A sentence about what such a number is.
pub fn number_of_threads(text: &str) -> Result<NonZero<usize>, String> {
    let number = text.parse().ok().filter(|number: &NonZero<usize>| number.get() <= MAX_THREADS);
    number.ok_or_else(|| format!("it is a number from 1 to {MAX_THREADS}"))
}

/// Bytes of a page of memory.
///
/// # Errors
/// A sentence about what a page is.
pub fn parse_page(text: &str) -> Result<u64, String> {
    let size = parse(text).filter(|size| size.is_power_of_two() && (1 << 10..=1 << 20).contains(size));
    let size = size.filter(|_| !text.starts_with('+'));
    size.ok_or_else(|| "a page has a power of two of bytes: 4096, 16K, 64K".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_of_large_sizes_are_mib() {
        for (text, bytes) in
            [("16", 16 << 20), ("4095", 4095 << 20), ("4096", 4096), ("1K", 1024), ("1.5M", 3 << 19), ("65536", 65_536)]
        {
            assert_eq!(parse_large(text), Some(bytes), "{text}");
        }
        for bad in ["0", "0M", "", "-1", "1.5", "1T"] {
            assert_eq!(parse_large(bad), None, "{bad}");
        }
    }

    #[test]
    fn whole_units_are_the_largest_that_divide() {
        let texts = [1 << 20, 3 << 29, 2048, 5 << 30, 4097, 0].map(whole_units);
        assert_eq!(texts, ["1 MiB", "1536 MiB", "2 KiB", "5 GiB", "4097 bytes", "0 bytes"]);
    }

    #[test]
    fn sizes_have_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("+1", 1),
            ("64K", 65_536),
            ("64k", 65_536),
            ("16M", 16 << 20),
            ("1g", 1 << 30),
            ("18446744073709551615", u64::MAX),
            ("17179869183G", u64::MAX << 30),
            ("1.5M", 3 << 19),
            ("+.5k", 512),
            ("16MiB", 16 << 20),
            ("64kiB", 65_536),
            ("0.25GiB", 1 << 28),
            ("1.3K", 1331),
            ("17179869183.999999999G", u64::MAX - 1),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for bad in [
            "",
            "K",
            "-1",
            "1.5",
            "1.5.5K",
            "1 K",
            " 1",
            "1KB",
            "1iB",
            "iB",
            "KiB",
            "1.K.",
            "++1K",
            "1Ki",
            "1T",
            "17179869184G",
            "18446744073709551616",
            "é",
            "1é",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
