//! Lines of `/proc/allocinfo` by function: how the bytes of each changed over a recording (`lib/alloc_tag.c`, Linux 6.10 to 7.1).
//!
//! The texts are hostile: lines that are none are skipped, and sums saturate.

use std::collections::HashMap;

use crate::names::wrappers::plain_name;

/// Largest number of functions that are kept. Kernels have some ten thousands.
const MAX_FUNCTIONS: usize = 1 << 18;

/// Function, without the suffixes of compilers and of the kernel's macros, and its module.
type Place = (Box<[u8]>, Option<Box<[u8]>>);

/// Bytes that functions hold at the end less those at the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocinfoChange {
    bytes: HashMap<Place, i64>,
}

impl AllocinfoChange {
    /// Change between the texts of start and end; `None` where one of them is empty or of another form. A function that one text alone
    /// has holds nothing in the other.
    pub(crate) fn between(start: &[u8], end: &[u8]) -> Option<AllocinfoChange> {
        let mut change = AllocinfoChange::default();
        for (text, sign) in [(start, -1), (end, 1)] {
            if !text.starts_with(b"allocinfo - version:") {
                return None;
            }
            for (place, bytes) in text.split(|&byte| byte == b'\n').filter_map(line) {
                if change.bytes.len() < MAX_FUNCTIONS || change.bytes.contains_key(&place) {
                    let sum = change.bytes.entry(place).or_default();
                    *sum = sum.saturating_add(bytes.saturating_mul(sign));
                }
            }
        }
        Some(change)
    }

    /// Change of a function, with whatever suffixes, of a module; `None` where no line is of it.
    pub(crate) fn of(&self, function: &[u8], module: Option<&[u8]>) -> Option<i64> {
        self.bytes.get(&(plain_name(function).into(), module.map(Into::into))).copied()
    }
}

/// Function and bytes of a line `SIZE CALLS FILE:LINE [MODULE] func:FUNCTION`, with words behind it in version 2. A size below 0 counts
/// as 0: counters of other CPUs were not in yet.
fn line(line: &[u8]) -> Option<(Place, i64)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<i64>().ok();
    let (bytes, _calls, _file) = (number(words.next()?)?, number(words.next()?)?, words.next()?);
    let mut module = None;
    for word in words {
        if let Some(function) = word.strip_prefix(b"func:").filter(|function| !function.is_empty()) {
            return Some(((plain_name(function).into(), module), bytes.max(0)));
        }
        module = word.strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]")).map(Into::into);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "allocinfo - version: 2.0\n#     <size>  <calls> <tag info>\n";

    #[test]
    fn lines_of_a_function_add_up() {
        let start = format!(
            "{HEAD}        4096        1 mm/slub.c:12 func:alloc_slab_page \n      100 1 fs/x.c:1 [ext4] func:open \n"
        );
        let end = format!(
            "{HEAD}        8192        2 mm/slub.c:12 func:alloc_slab_page accurate:no\n   64 1 mm/slub.c:99 func:alloc_slab_page \n\
             7 1 fs/x.c:1 func:open \n        -9        1 a.c:1 func:below \n 5 1 b.c:2 func:kvmalloc_node_noprof \n"
        );
        let change = AllocinfoChange::between(start.as_bytes(), end.as_bytes()).unwrap();
        assert_eq!(change.of(b"alloc_slab_page.isra.0", None), Some(4160));
        assert_eq!(change.of(b"open", Some(b"ext4")), Some(-100), "its line is gone");
        assert_eq!((change.of(b"open", None), change.of(b"below", None)), (Some(7), Some(0)));
        assert_eq!((change.of(b"kvmalloc_node", None), change.of(b"other", None)), (Some(5), None));
    }

    #[test]
    fn other_texts_and_garbage_are_no_lines() {
        assert!(AllocinfoChange::between(b"", HEAD.as_bytes()).is_none());
        assert!(AllocinfoChange::between(HEAD.as_bytes(), b"4096 1 a.c:1 func:f\n").is_none());
        let garbage = [
            "",
            "x 1 a:1 func:f",
            "1 x a:1 func:f",
            "1 1 a:1",
            "1 1 a:1 func:",
            "9223372036854775808 1 a:1 func:f",
            "\u{1}",
        ];
        let text = format!("{HEAD}{}\n", garbage.join("\n"));
        let change = AllocinfoChange::between(HEAD.as_bytes(), text.as_bytes()).unwrap();
        assert!(change.bytes.is_empty());
        let large = format!("{HEAD}{0}{0}", "9223372036854775807 1 a:1 func:f\n");
        let change = AllocinfoChange::between(HEAD.as_bytes(), large.as_bytes()).unwrap();
        assert_eq!(change.of(b"f", None), Some(i64::MAX));
    }
}
