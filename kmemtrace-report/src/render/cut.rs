//! Cutting of texts, by display width and between escape sequences.

use std::ops::Range;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of a function's name that are left beside its offset and module.
pub(super) const LEAST_NAME: usize = 4;

/// Display width of a text, in columns.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Parts of a call-site: function, offset, and module in brackets.
struct SiteParts<'a> {
    function: &'a str,
    offset: &'a str,
    /// Name without brackets.
    module: Option<&'a str>,
}

impl<'a> SiteParts<'a> {
    fn of(site: &'a str) -> SiteParts<'a> {
        let with_module = site.strip_suffix(']').and_then(|site| site.split_once(" ["));
        let (rest, module) = with_module.map_or((site, None), |(rest, module)| (rest, Some(module)));
        // An address, or a note in parentheses, stays whole.
        let at = if rest.starts_with("0x") || rest.starts_with('(') { Some(0) } else { rest.rfind("+0x") };
        let (function, offset) = rest.split_at(at.unwrap_or(rest.len()));
        SiteParts { function, offset, module }
    }

    /// Width of offset and module.
    fn tail(&self) -> usize {
        width(self.offset) + self.module.map_or(0, |module| width(module) + 3)
    }
}

/// Between two frames of a stack, the innermost first.
const BETWEEN_FRAMES: &str = " < ";

/// Width that a stack keeps at most while other columns are dropped for it.
const MOST_OF_STACK: usize = 48;

/// Width that a call-site takes at least, with all of its offset and module; of a stack its first two frames, and the mark.
pub(super) fn least_of_site(site: &str) -> usize {
    if let Some((end, _)) = site.match_indices(BETWEEN_FRAMES).nth(1) {
        return (width(&site[..end]) + BETWEEN_FRAMES.len() + 1).min(MOST_OF_STACK);
    }
    let parts = SiteParts::of(site);
    parts.tail() + width(parts.function).min(LEAST_NAME)
}

/// Call-site that fits `limit` columns: its function loses its middle; the module, only where it leaves no room for that.
pub(super) fn site(text: &str, limit: usize, mark: char) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    if text.contains(BETWEEN_FRAMES) {
        return stack(text, limit, mark);
    }
    let parts = SiteParts::of(text);
    let Some(module) = parts.module else {
        return match limit.checked_sub(parts.tail()) {
            Some(room) if room > 1 => middle(parts.function, room, mark) + parts.offset,
            _ => middle(text, limit, mark),
        };
    };
    let [least_function, least_module] = [parts.function, module].map(|name| width(name).min(LEAST_NAME));
    let room = limit.checked_sub(width(parts.offset) + 3).filter(|&room| room >= least_function + least_module);
    let Some(room) = room else { return middle(text, limit, mark) };
    let of_module = width(module).min(room - least_function);
    let [function, module] =
        [(parts.function, room - of_module), (module, of_module)].map(|(text, room)| middle(text, room, mark));
    format!("{function}{} [{module}]", parts.offset)
}

/// Stack that fits `limit` columns: a long one loses frames of its middle, and of its frames two thirds are the innermost ones.
fn stack(text: &str, limit: usize, mark: char) -> String {
    let frames: Vec<&str> = text.split(BETWEEN_FRAMES).collect();
    let joined = |head: usize, tail: usize| {
        let mark = mark.to_string();
        let (first, last) = (&frames[..head], &frames[frames.len() - tail..]);
        [first, &[mark.as_str()], last].concat().join(BETWEEN_FRAMES)
    };
    let (mut head, mut tail) = (1, 0);
    if width(&joined(head, tail)) > limit {
        let room = limit.saturating_sub(BETWEEN_FRAMES.len() + 1);
        return format!("{}{BETWEEN_FRAMES}{mark}", site(frames[0], room, mark));
    }
    while head + tail + 1 < frames.len() {
        let tries =
            if tail * 2 < head { [(head, tail + 1), (head + 1, tail)] } else { [(head + 1, tail), (head, tail + 1)] };
        let Some(fitting) = tries.into_iter().find(|&(head, tail)| width(&joined(head, tail)) <= limit) else { break };
        (head, tail) = fitting;
    }
    joined(head, tail)
}

/// Text that fits `limit` columns: a long one loses its middle, a third of the rest is its end.
pub(super) fn middle(text: &str, limit: usize, mark: char) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let room = limit.saturating_sub(1);
    let tail = room / 3;
    format!("{}{mark}{}", head_of(text, room - tail), tail_of(text, tail))
}

/// Text that fits `limit` columns: a long one loses its begin. File and line stand at the end of a path.
pub(super) fn begin(text: &str, limit: usize, mark: char) -> String {
    if width(text) <= limit { text.to_owned() } else { format!("{mark}{}", tail_of(text, limit.saturating_sub(1))) }
}

/// Text that fits `limit` columns: a long one loses its end.
pub(super) fn end(text: &str, limit: usize, mark: char) -> String {
    if width(text) <= limit { text.to_owned() } else { format!("{}{mark}", head_of(text, limit.saturating_sub(1))) }
}

/// As many of the first pieces as fit `room` columns.
fn head_of(text: &str, room: usize) -> &str {
    let end = fitting(units(text).into_iter(), room).map_or(0, |last| last.end);
    &text[..end]
}

/// As many of the last pieces as fit `room` columns.
fn tail_of(text: &str, room: usize) -> &str {
    let start = fitting(units(text).into_iter().rev(), room).map_or(text.len(), |first| first.start);
    &text[start..]
}

/// Last piece that fits `room` columns together with those before it.
fn fitting(pieces: impl Iterator<Item = (Range<usize>, usize)>, room: usize) -> Option<Range<usize>> {
    let mut used = 0;
    let fits = |(_, wide): &(Range<usize>, usize)| {
        used += wide;
        used <= room
    };
    pieces.take_while(fits).last().map(|(range, _)| range)
}

/// Pieces that stay whole, with their widths: escape sequences, and characters with those that combine with them.
fn units(text: &str) -> Vec<(Range<usize>, usize)> {
    let mut units: Vec<(Range<usize>, usize)> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let len = escape_len(&text.as_bytes()[at..]).unwrap_or(first.len_utf8()).min(text.len() - at);
        let wide = if len > first.len_utf8() { len } else { first.width().unwrap_or(0) };
        match units.last_mut().filter(|_| wide == 0) {
            Some((range, _)) => range.end = at + len,
            None => units.push((at..at + len, wide)),
        }
        at += len;
    }
    units
}

/// Length of the escaped text up to `limit`, a character boundary, without the escape sequence that would be cut there.
pub(super) fn whole_escapes(text: &str, limit: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < limit {
        let taken = escape_len(&bytes[at..]).unwrap_or(1);
        if at + taken > limit {
            return at;
        }
        at += taken;
    }
    limit
}

/// Bytes of the escape sequence at the start, if one is there.
fn escape_len(text: &[u8]) -> Option<usize> {
    match text {
        [b'\\', b'x', _, _, ..] => Some(4),
        [b'\\', b'u', ..] => Some(text.iter().position(|&b| b == b'}').map_or(2, |last| last + 1)),
        [b'\\', b'\\', ..] => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmemtrace_abi::text::escape::escape;

    #[test]
    fn a_call_site_loses_its_middle_and_neither_offset_nor_module() {
        let long = "xfs_btree_insert_into_leaf_block_with_a_long_name+0x1f4 [xfs]";
        assert_eq!(site(long, 61, '…'), long);
        assert_eq!(site(long, 32, '…'), "xfs_btree_ins…g_name+0x1f4 [xfs]");
        assert_eq!(site("alloc_inode+0xa3", 14, '~'), "alloc_~de+0xa3");
    }

    #[test]
    fn every_cut_fits_and_keeps_what_it_must() {
        let symbols = ["a".repeat(60), "größe_日本_".repeat(9), "x\x1by\u{202e}z\\".repeat(9)];
        for symbol in symbols {
            let symbol = escape(symbol.as_bytes());
            for (module, least) in [("", 16), (" [xfs]", 24), (&format!(" [{}]", "m".repeat(55)), 76)] {
                let whole = format!("{symbol}+0x1f4{module}");
                for limit in least_of_site(&whole)..100 {
                    let cut = site(&whole, limit, '…');
                    assert!(width(&cut) <= limit, "{limit}: {cut}");
                    assert!(cut.ends_with(&format!("+0x1f4{module}")), "{limit}: {cut}");
                    assert!(cut == whole || cut.contains('…'), "{limit}: {cut}");
                }
                assert!(least_of_site(&whole) <= least, "{whole}");
            }
        }
    }

    #[test]
    fn no_escape_sequence_is_cut() {
        let name = escape("\x1b\u{202e}\\日a".repeat(8).as_bytes()).into_owned();
        for limit in 1..width(&name) {
            let cut = middle(&name, limit, '…');
            assert!(width(&cut) <= limit, "{limit}: {cut}");
            let (head, tail) = cut.split_once('…').unwrap();
            assert!(name.starts_with(head) && name.ends_with(tail));
            assert!(units(&name).iter().any(|(range, _)| range.start == head.len()), "{head}");
            assert!(
                tail.is_empty() || units(&name).iter().any(|(range, _)| range.start == name.len() - tail.len()),
                "{tail}"
            );
        }
    }

    #[test]
    fn a_stack_loses_whole_frames_of_its_middle() {
        let whole = "kmalloc+0x1 < open+0x2 [foo] < path_openat+0x3 < do_syscall_64+0x4 < entry+0x5";
        for (limit, shown) in [
            (78, whole),
            (70, "kmalloc+0x1 < open+0x2 [foo] < path_openat+0x3 < … < entry+0x5"),
            (45, "kmalloc+0x1 < open+0x2 [foo] < … < entry+0x5"),
            (30, "kmalloc+0x1 < … < entry+0x5"),
            (18, "kmalloc+0x1 < …"),
            (13, "kma…c+0x1 < …"),
        ] {
            assert_eq!(site(whole, limit, '…'), shown, "{limit}");
        }
    }

    #[test]
    fn addresses_and_notes_are_not_cut_before_modules() {
        assert_eq!(least_of_site("0xffffffff81000100"), 18);
        assert_eq!(least_of_site("(407 others)"), 12);
    }
}
