//! The only way from bytes of a trace, or from a file's name, to text for people.
//!
//! Comms, caches, symbols, modules and paths are bytes that strangers choose: any user sets a comm. What a
//! terminal would act on, or a reader would not see, is written out instead.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters that act on the text around them or cannot be seen: bidi and zero-width controls, fillers, line and
/// paragraph separators, variation selectors, tags. (C0, DEL and C1 are `char::is_control`.)
const UNSEEN: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// `bytes` as text that is safe to print: `\xNN` for C0, DEL and bytes that are no UTF-8, `\u{..}` for C1 and
/// characters that act on others or cannot be seen, `\\` for a backslash, so that different bytes never look alike.
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|&b| (b' '..=b'~').contains(&b) && b != b'\\') => Cow::Borrowed(text),
        _ => Cow::Owned(escape_slow(bytes)),
    }
}

#[cold]
fn escape_slow(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().saturating_add(16));
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Writing to a String cannot fail.
            let _ = match c {
                '\\' => out.write_str("\\\\"),
                _ if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c)),
                _ if is_harmful(c) => write!(out, "\\u{{{:x}}}", u32::from(c)),
                _ => out.write_char(c),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// JSON text with every control character, and every character that acts on others or cannot be seen, as `\uXXXX`: a parser
/// finds the same strings. Newlines stay, because JSON has them between values only.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c != '\n' && is_harmful(c);
    if json.bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)) || !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len().saturating_add(16));
    for c in json.chars() {
        if !is_escaped(c) {
            out.push(c);
            continue;
        }
        // A character beyond U+FFFF takes two escapes. Writing to a String cannot fail.
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

/// A name as a cell of a CSV file: escaped, and after an apostrophe where a spreadsheet would take it for a formula. The
/// caller adds quotes where commas or quotes need them.
pub fn escape_csv(name: &[u8]) -> Cow<'_, str> {
    let text = escape(name);
    match name.first() {
        Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r') => Cow::Owned(format!("'{text}")),
        _ => text,
    }
}

/// True for a control character, and one that acts on the text around it or cannot be seen.
pub fn is_harmful(c: char) -> bool {
    c.is_control() || UNSEEN.iter().any(|&(first, last)| (first..=last).contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_names_stay_as_they_are() {
        for name in ["", "kmalloc-2k", "kworker/u8:2-ev", "a b", "größe", "日本", "'\"<&;=+@"] {
            assert_eq!(escape(name.as_bytes()), name);
        }
        assert!(matches!(escape(b"dentry"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        for (bytes, text) in [
            (&b"\x1b]52;c;x\x07"[..], r"\x1b]52;c;x\x07"),
            (b"a\tb\nc\rd\0\x7f", r"a\x09b\x0ac\x0dd\x00\x7f"),
            ("\u{9b}2J".as_bytes(), r"\u{9b}2J"),
            (b"\x9b2J \xff\xc3", r"\x9b2J \xff\xc3"),
            ("\u{202e}cod.exe\u{2066}".as_bytes(), r"\u{202e}cod.exe\u{2066}"),
            ("a\u{200b}b\u{feff}\u{e0041}".as_bytes(), r"a\u{200b}b\u{feff}\u{e0041}"),
            (br"\x1b", r"\\x1b"),
        ] {
            assert_eq!(escape(bytes), text);
        }
    }

    #[test]
    fn json_says_the_same_with_nothing_unseen_in_it() {
        for (json, text) in [
            ("[\n  \"gr\u{f6}\u{df}e \\\\ \\u001b\"\n]", "[\n  \"gr\u{f6}\u{df}e \\\\ \\u001b\"\n]"),
            ("\"a\u{7f}\u{9b}b\"", r#""a\u007f\u009bb""#),
            ("\"\u{202e}\u{2066}\u{200b}\u{feff}\"", r#""\u202e\u2066\u200b\ufeff""#),
            ("\"\u{e0041}\"", r#""\udb40\udc41""#),
        ] {
            assert_eq!(escape_json(json), text);
        }
        assert!(matches!(escape_json("{\n  \"a\": 1\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_name_in_a_spreadsheet_is_no_formula() {
        for (name, cell) in [
            (&b"dentry"[..], "dentry"),
            (b"=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            (b"+1", "'+1"),
            (b"-1", "'-1"),
            (b"@x", "'@x"),
            (b"\t=1", r"'\x09=1"),
            (b"\r=1", r"'\x0d=1"),
            (b"a\x1b]52;c;x\x07", r"a\x1b]52;c;x\x07"),
            (b"", ""),
        ] {
            assert_eq!(escape_csv(name), cell);
        }
    }

    /// The bytes that an escaped text came from.
    fn unescape(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('\\') {
            out.extend_from_slice(before.as_bytes());
            rest = if let Some(rest) = after.strip_prefix('\\') {
                out.push(b'\\');
                rest
            } else if let Some(hex) = after.strip_prefix('x') {
                out.push(u8::from_str_radix(&hex[..2], 16).unwrap());
                &hex[2..]
            } else {
                let (hex, rest) = after.strip_prefix("u{").unwrap().split_once('}').unwrap();
                let c = char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap();
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest
            };
        }
        out.extend_from_slice(rest.as_bytes());
        out
    }

    proptest! {
        #[test]
        fn nothing_unprintable_comes_out_and_nothing_is_lost(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..64),
                any::<String>().prop_map(String::into_bytes),
                proptest::collection::vec(0x2000u32..0x2070, 0..16)
                    .prop_map(|c| c.into_iter().filter_map(char::from_u32).collect::<String>().into_bytes()),
            ]
        ) {
            let text = escape(&bytes);
            prop_assert!(!text.contains(is_harmful), "{text:?}");
            prop_assert_eq!(unescape(&text), bytes);
        }
    }
}
