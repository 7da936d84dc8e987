//! Lines of `/proc/kallsyms` and of System.map: `HEX TYPE NAME`, in kallsyms of a module with a tab and `[MODULE]` after it.

/// The value of each byte as a hex digit; 16 where it is none. A trace has hundreds of thousands of addresses as text.
#[expect(clippy::indexing_slicing, reason = "the compiler works it out")]
const DIGITS: [u8; 256] = {
    let mut values = [16; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// The hex number at the start, 1 to 16 digits, and what follows it.
#[expect(clippy::indexing_slicing, reason = "no byte is above 255")]
pub fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut digits = 0;
    for &byte in text.iter().take(17) {
        let digit = DIGITS[usize::from(byte)];
        if digit == 16 {
            break;
        }
        value = value << 4 | u64::from(digit);
        digits = usize::saturating_add(digits, 1);
    }
    (1..=16).contains(&digits).then_some((value, text.get(digits..)?))
}

/// Address and type of a line, and its name, with the module that it may be in.
pub fn parts(line: &[u8]) -> Option<(u64, u8, &[u8])> {
    let (address, rest) = hex(line)?;
    let [b' ', kind, b' ', name @ ..] = rest else { return None };
    (!matches!(name, [] | [b'\t', ..])).then_some((address, *kind, name))
}

/// True if a line of the text has an address. The kernel prints zeros in place of all addresses to a reader without CAP_SYSLOG, and
/// to everybody with `kptr_restrict=2`.
pub fn has_addresses(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').filter_map(parts).any(|(address, ..)| address != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_zeros_has_no_addresses() {
        let hidden = b"0000000000000000 T _text\n0000000000000000 t do_one\t[ext4]\n";
        assert!(!has_addresses(hidden) && !has_addresses(b"") && !has_addresses(b"\n\nffff\nT x\n"));
        assert!(has_addresses(&[&hidden[..], b"1 t x"].concat()));
    }
}
