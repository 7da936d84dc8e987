//! Cutting of texts, by display width and between escape sequences.

use std::collections::BTreeMap;
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
        return stack(&text.split(BETWEEN_FRAMES).collect::<Vec<_>>(), &[], limit, mark);
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

/// Stack that fits `limit` columns: a long one loses frames of its middle, and of its frames two thirds are the innermost ones. The frames
/// of `wanted` are shown before all others, the last of them first.
fn stack(frames: &[&str], wanted: &[usize], limit: usize, mark: char) -> String {
    let mut kept = vec![false; frames.len()];
    for &index in wanted.iter().rev().chain([&0]) {
        keep(frames, &mut kept, index, limit, mark);
    }
    if !kept.contains(&true) {
        // One frame alone, with its middle cut, and a mark on each side where others are.
        let index = wanted.last().copied().unwrap_or(0);
        let before = if index > 0 { format!("{mark}{BETWEEN_FRAMES}") } else { String::new() };
        let after = if index + 1 < frames.len() { format!("{BETWEEN_FRAMES}{mark}") } else { String::new() };
        let room = limit.saturating_sub(width(&before) + width(&after));
        return format!("{before}{}{after}", site(frames[index], room, mark));
    }
    let ends = |kept: &[bool]| Some((kept.iter().position(|kept| !kept)?, kept.iter().rposition(|kept| !kept)?));
    while let Some((head, tail)) = ends(&kept) {
        let is_tail_short = (frames.len() - 1 - tail) * 2 < head;
        let tries = if is_tail_short { [tail, head] } else { [head, tail] };
        if !tries.into_iter().any(|index| keep(frames, &mut kept, index, limit, mark)) {
            break;
        }
    }
    joined(frames, &kept, mark)
}

/// Shows one more frame if the stack still fits; true if it does.
fn keep(frames: &[&str], kept: &mut [bool], index: usize, limit: usize, mark: char) -> bool {
    let before = std::mem::replace(&mut kept[index], true);
    kept[index] = before || width(&joined(frames, kept, mark)) <= limit;
    kept[index]
}

/// Frames that are shown; a mark stands for those between them.
fn joined(frames: &[&str], kept: &[bool], mark: char) -> String {
    let mark = mark.to_string();
    let mut parts: Vec<&str> = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        if kept[index] {
            parts.push(frame);
        } else if index == 0 || kept[index - 1] {
            parts.push(&mark);
        }
    }
    parts.join(BETWEEN_FRAMES)
}

/// Rounds in which stacks that look the same get one more frame each.
const ROUNDS: usize = 8;

/// Cuts stacks anew that look the same and are not: each then shows frames in which it differs from the others.
pub(super) fn tell_stacks_apart(whole: &[String], shown: &mut [String], limit: usize, mark: char) {
    let mut wanted: Vec<Vec<usize>> = vec![Vec::new(); whole.len()];
    for _ in 0..ROUNDS {
        let mut alike: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (row, text) in shown.iter().enumerate().filter(|(row, text)| whole[*row] != **text) {
            if whole[row].contains(BETWEEN_FRAMES) {
                alike.entry(text.clone()).or_default().push(row);
            }
        }
        let mut has_changed = false;
        for rows in alike.into_values() {
            let stacks: Vec<Vec<&str>> = rows.iter().map(|row| whole[*row].split(BETWEEN_FRAMES).collect()).collect();
            let most = stacks.iter().map(Vec::len).max().unwrap_or(0);
            let differs = |at: &usize| stacks.iter().any(|frames| frames.get(*at) != stacks[0].get(*at));
            let Some(at) = (0..most).find(differs) else { continue };
            for (frames, row) in stacks.iter().zip(rows) {
                let index = at.min(frames.len() - 1);
                if !wanted[row].contains(&index) {
                    wanted[row].push(index);
                    shown[row] = stack(frames, &wanted[row], limit, mark);
                    has_changed = true;
                }
            }
        }
        if !has_changed {
            return;
        }
    }
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
    fn stacks_that_are_cut_alike_show_where_they_differ() {
        let whole = [
            "kmalloc+0x1 < open+0x2 < path_a+0x3 < vfs_open+0x4 < do_syscall_64+0x5 < entry+0x6",
            "kmalloc+0x1 < open+0x2 < path_b+0x3 < vfs_open+0x4 < do_syscall_64+0x5 < entry+0x6",
            "kmalloc+0x1 < open+0x2 < path_b+0x3 < vfs_read+0x4 < do_syscall_64+0x5 < entry+0x6",
            "kmalloc+0x1 < open+0x2 < path_a+0x3 < vfs_read+0x4 < do_syscall_64+0x5 < entry+0x6",
            "kmalloc+0x1 < open+0x2 < path_b+0x3",
            "free+0x1 < open+0x2 < path_a+0x3 < vfs_open+0x4 < do_syscall_64+0x5 < entry+0x6",
            "other+0x1",
        ]
        .map(str::to_owned);
        let cut = |limit: usize| whole.each_ref().map(|text| site(text, limit, '…'));
        let apart = |limit: usize| {
            let mut shown = cut(limit);
            tell_stacks_apart(&whole, &mut shown, limit, '…');
            shown
        };
        let [a, b, c, d, short, free, other] = apart(51);
        assert_eq!(a, "kmalloc+0x1 < … < path_a+0x3 < vfs_open+0x4 < …");
        assert_eq!(b, "kmalloc+0x1 < … < path_b+0x3 < vfs_open+0x4 < …");
        assert_eq!(c, "kmalloc+0x1 < … < path_b+0x3 < vfs_read+0x4 < …");
        assert_eq!(d, "kmalloc+0x1 < … < path_a+0x3 < vfs_read+0x4 < …");
        assert_eq!((&short, &other), (&whole[4], &whole[6]));
        assert_eq!(free, cut(51)[5], "it looks like no other");
        // Two frames that tell four stacks apart, with marks around them.
        for limit in 33..90 {
            let shown = apart(limit);
            let distinct: std::collections::HashSet<&String> = shown.iter().collect();
            assert_eq!(distinct.len(), shown.len(), "{limit}: {shown:?}");
            assert!(shown.iter().all(|text| width(text) <= limit), "{limit}: {shown:?}");
        }
    }

    #[test]
    fn addresses_and_notes_are_not_cut_before_modules() {
        assert_eq!(least_of_site("0xffffffff81000100"), 18);
        assert_eq!(least_of_site("(407 others)"), 12);
    }
}
