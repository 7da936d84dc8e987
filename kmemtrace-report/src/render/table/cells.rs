//! Texts of cells: counts, bytes, shares, names and times.

use kmemtrace::documents::head::TraceMembers;
use kmemtrace::documents::naming::{CallSite, Candidates, SitePlace};
use kmemtrace::documents::row::{Address, Name};
use kmemtrace::documents::text_members::TextMembers;
use kmemtrace::{Frame, Kind, SourceLine};
use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units;

use super::options::TableOptions;
use crate::render::grid::cell::{Cell, Notes};
use crate::terminal::screen::Screen;

/// Call-site of page events.
const NO_PAGE_SITE: &str = "(page events: no call-site)";
/// Call-site of other events that have none.
const NO_SITE: &str = "(no call-site)";
/// Caches that are shown of those that objects may be of.
const CANDIDATES: usize = 3;
/// Columns of a bar.
const BAR: usize = 10;

pub(crate) fn count(n: impl Into<Option<u64>>) -> String {
    n.into().map_or("-".to_owned(), units::grouped)
}

/// Number and noun: `1 gap`, `2 gaps`, and `- gaps` where the number is not known.
pub(crate) fn counted(n: impl Into<Option<u64>>, noun: &str) -> String {
    let n = n.into();
    let plural = if n == Some(1) { "" } else { "s" };
    format!("{} {noun}{plural}", count(n))
}

pub(crate) fn bytes(n: impl Into<Option<u64>>, options: &TableOptions) -> String {
    match n.into() {
        None => "-".to_owned(),
        Some(n) if options.bytes => n.to_string(),
        Some(n) => units::bytes(n),
    }
}

pub(crate) fn percent(part: impl Into<Option<u64>>, whole: u64) -> String {
    part.into().map_or("-".to_owned(), |part| units::percent(part, whole))
}

/// Figure, marked if it is an upper bound: some objects are freed on a path without events.
pub(crate) fn upper(is_upper_bound: bool, figure: String) -> Cell {
    // An unknown figure has no bound, and one of nothing is exact.
    if !is_upper_bound || ["-", "0", "0 B"].contains(&figure.as_str()) {
        return figure.into();
    }
    let notes = Notes { has_bounds: true, ..Notes::default() };
    Cell { notes, ..format!("<={figure}").into() }
}

/// Figure, marked where the kernel takes the memory back by itself.
pub(crate) fn reclaimed(is_reclaimable: Option<bool>, cell: impl Into<Cell>) -> Cell {
    let mut cell = cell.into();
    if is_reclaimable == Some(true) && !["-", "0", "0 B"].contains(&cell.text.as_str()) {
        cell.text.insert(0, '*');
        cell.notes.has_reclaimable = true;
    }
    cell
}

/// Bar for a share; empty where the screen shows none.
pub(crate) fn bar(part: u64, whole: u64, screen: &Screen) -> Cell {
    if !screen.has_bars || whole == 0 {
        return Cell::default();
    }
    let eighths = (u128::from(part.min(whole)) * 8 * BAR as u128).div_ceil(u128::from(whole)) as usize;
    if !screen.is_unicode {
        return "#".repeat(eighths.div_ceil(8)).into();
    }
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    ("█".repeat(eighths / 8) + rest).into()
}

/// Name escaped for a terminal.
pub(crate) fn shown(name: &Name<'_>) -> Option<String> {
    name.as_deref().map(|name| escape(name).into_owned())
}

pub(crate) fn text(name: &Name<'_>) -> Cell {
    shown(name).unwrap_or("-".to_owned()).into()
}

/// Symbol, else the address.
pub(crate) fn function(symbol: &Name<'_>, address: Option<Address>, kind: Kind) -> Cell {
    match (shown(symbol), address) {
        (Some(symbol), _) => symbol.into(),
        (None, None) => "-".into(),
        (None, Some(Address(0))) if kind == Kind::Pages => {
            Cell { notes: Notes { has_pages_without_site: true, ..Notes::default() }, ..NO_PAGE_SITE.into() }
        }
        (None, Some(Address(0))) => NO_SITE.into(),
        (None, Some(address)) => address.to_string().into(),
    }
}

/// Function of a call-site with its module; marked where it is a wrapper.
pub(crate) fn site(site: &CallSite<'_>, kind: Kind) -> Cell {
    if site.symbol.is_none() && site.call_site.0 != 0 {
        return escape(&site.text()).into_owned().into();
    }
    let mut cell = function(&site.symbol, Some(site.call_site), kind);
    if site.place.0.wrapper.is_some() {
        cell.text.insert(0, '~');
        cell.notes.has_wrappers = true;
    }
    if let Some(module) = shown(&site.module) {
        cell.text += &format!(" {}", in_brackets(&module, site.place.0.is_gone));
    }
    cell
}

/// Call site of a row, with the allocator that its memory came through, of a text of one moment.
pub(crate) fn site_through(site: &CallSite<'_>, kind: Kind, text: &TextMembers) -> Cell {
    let mut cell = self::site(site, kind);
    cell.text += through(text);
    cell
}

/// Words behind a call site whose memory came through another allocator.
pub(crate) fn through(text: &TextMembers) -> &'static str {
    match text.through() {
        // One caller pays for a slab that others use, too.
        Some("slab") => " (new slab)",
        Some(_) => " (vmalloc)",
        None => "",
    }
}

/// Cache of objects, or the caches that they may be of: `(filp or skb)`.
pub(crate) fn cache(cache: &Name<'_>, candidates: Option<&Candidates>) -> Cell {
    let several = candidates.map(|Candidates(names)| format!("({})", either(names)));
    shown(cache).or(several).unwrap_or("(no name)".to_owned()).into()
}

/// Names with `or` between them, the first few of many.
pub(crate) fn either(names: &[Box<[u8]>]) -> String {
    let mut shown: Vec<String> = names.iter().take(CANDIDATES).map(|name| escape(name).into_owned()).collect();
    match names.len().saturating_sub(CANDIDATES) {
        0 => {}
        1 => shown.extend(names.last().map(|name| escape(name).into_owned())),
        more => shown.push(format!("{more} more")),
    }
    let last = shown.pop().unwrap_or_default();
    if shown.is_empty() { last } else { format!("{} or {last}", shown.join(", ")) }
}

/// Module of a function, which may have been gone at the end: `[foo, gone]`.
pub(crate) fn in_brackets(module: &str, is_gone: bool) -> String {
    if is_gone { format!("[{module}, gone]") } else { format!("[{module}]") }
}

/// `file:line` of a source; `None` where the file is not known.
pub(crate) fn source_line(source: Option<&SourceLine>) -> Option<String> {
    let source = source?;
    let file = escape(source.file.as_deref()?).into_owned();
    Some(source.line.map_or(file.clone(), |line| format!("{file}:{line}")))
}

/// Cell of the source line of a call-site.
pub(crate) fn source(place: &SitePlace) -> Cell {
    source_line(place.0.source.as_ref()).unwrap_or_default().into()
}

/// Frames of a call-site, innermost first, a text each.
pub(crate) fn frames(place: &SitePlace) -> Vec<String> {
    let text = |frame: &Frame| {
        let line = SourceLine { function: frame.function.clone(), file: frame.file.clone(), line: frame.line };
        let file = source_line(Some(&line)).map_or(String::new(), |file| format!("  {file}"));
        let inlined = if frame.inlined { "  inlined" } else { "" };
        format!("  {}{file}{inlined}", escape(&frame.function))
    };
    place.0.frames.iter().map(text).collect()
}

/// Time since the trace's first event; a sequence number as it is.
pub(crate) fn moment(trace: &TraceMembers<'_>, at: impl Into<Option<u64>>) -> String {
    at.into().map_or("-".to_owned(), |at| trace.keys().moment(at, trace.first, 6))
}

/// Age at the last event of an object that was allocated at `at`.
pub(crate) fn age(trace: &TraceMembers<'_>, at: u64) -> String {
    trace.keys().distance(trace.last.saturating_sub(at), 3)
}

/// Length of the window in seconds; `None` where keys are no times.
pub(crate) fn seconds(trace: &TraceMembers<'_>) -> Option<f64> {
    let span = trace.last.saturating_sub(trace.first);
    (trace.keys().unit == Unit::Nanoseconds && span > 0).then(|| span as f64 / 1e9)
}

/// Width of the slices that end at these keys.
pub(crate) fn slice_width(trace: &TraceMembers<'_>, ends: &[u64]) -> String {
    let width = match ends {
        [first, second, ..] => second - first,
        [only] => only.saturating_sub(trace.first),
        [] => 0,
    };
    trace.keys().distance(width, 6)
}

/// Number per second.
pub(crate) fn rate(n: u64, seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), |seconds| units::grouped((n as f64 / seconds).round() as u64))
}

/// Number with its sign.
pub(crate) fn signed(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "+" };
    if n == 0 { "0".to_owned() } else { format!("{sign}{}", units::grouped(n.unsigned_abs())) }
}

/// Difference of bytes with its sign.
pub(crate) fn change(n: i64, options: &TableOptions) -> String {
    let sign = match n {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", bytes(n.unsigned_abs(), options))
}

/// Duration with three digits; `-` where it is not known.
pub(crate) fn duration(duration: Option<u64>) -> String {
    duration.map_or("-".to_owned(), units::duration)
}

/// Text escaped for a terminal.
pub(crate) fn plain(text: &str) -> String {
    escape(text.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_a_call_site_says_so() {
        let cell = |address, kind| function(&None, Some(Address(address)), kind);
        assert_eq!(cell(0, Kind::Pages).text, NO_PAGE_SITE);
        assert!(cell(0, Kind::Pages).notes.has_pages_without_site);
        assert_eq!(cell(0, Kind::Kmalloc), NO_SITE.into());
        assert_eq!(cell(0xc0de, Kind::Pages), "0xc0de".into());
    }

    #[test]
    fn several_caches_are_shown_as_such() {
        let names = |n: usize| Candidates((0..n).map(|n| format!("c{n}\x1b").into_bytes().into()).collect());
        let text = |n| cache(&None, Some(&names(n))).text.replace("\\x1b", "");
        assert_eq!([text(2), text(4), text(9)], ["(c0 or c1)", "(c0, c1, c2 or c3)", "(c0, c1, c2 or 6 more)"]);
        assert_eq!(
            (cache(&None, None).text, cache(&Some(b"filp"[..].into()), None).text),
            ("(no name)".to_owned(), "filp".to_owned())
        );
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        let text = |part, whole| bar(part, whole, &Screen::coloured(80)).text;
        assert_eq!(text(0, 7), "");
        assert_eq!(text(1, 1000), "▏", "a share above zero is seen");
        assert_eq!(text(7, 7), "█".repeat(10));
        assert_eq!(text(u64::MAX, 2), "█".repeat(10));
        assert_eq!(text(11, 20), "█████▌");
        assert_eq!(text(1, 0), "");
        assert_eq!(bar(1, 2, &Screen::plain(None)).text, "", "a pipe has no bars");
    }
}
