//! Sizes as people type them.

/// Bytes of a size.
///
/// Grammar: decimal digits, a `+` may stand before them, and behind them may stand `K`, `M` or `G` in either case: powers of 1024.
/// `None` for any other text, and for 2^64 bytes and more. Zero is a size.
pub fn parse(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for bad in ["", "K", "-1", "1.5K", "1 K", " 1", "1KB", "1T", "17179869184G", "18446744073709551616", "é", "1é"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
