//! Lines told apart.

use super::graph::{Graph, Task, graph};
use super::head::{Head, decimal, head, strip};
use super::record::{Content, content, is_of_perf_alone};

/// Meaning of a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry<'l> {
    /// An event, the head of a stack, or loss that perf reports.
    Record(Head<'l>, Content<'l>),
    /// Another task runs on a CPU.
    Switch(u32, [Task<'l>; 2]),
    /// Loss of a ring buffer, whose name is empty for the main one, on a CPU before its next event; `None`: the kernel has no number.
    Lost(&'l [u8], u32, Option<u64>),
    /// Frame of a stack, without its arrow.
    Frame(&'l [u8]),
    /// Frame of perf's call chain.
    ChainFrame(&'l [u8]),
    /// Line of the header, without its `#`.
    Header(&'l [u8]),
    /// Nothing, dashes, or a message of another part of the kernel.
    Empty,
    /// Anything else.
    Other(&'l [u8]),
}

/// Tells a line apart.
pub(super) fn entry(line: &[u8]) -> Entry<'_> {
    match line.first() {
        None => return Entry::Empty,
        Some(b'#') => return Entry::Header(line.get(1..).unwrap_or_default()),
        Some(b'\t') if line.ends_with(b")") => return Entry::ChainFrame(line),
        Some(b' ') if line.starts_with(b" => ") => return Entry::Frame(frame(line.get(4..).unwrap_or_default())),
        _ => {}
    }
    if let Some(head) = head(line) {
        return record(head, line);
    }
    let stripped = strip(line);
    match graph(stripped.unwrap_or(line)) {
        Some(Graph::Call(head, call, depth)) => return Entry::Record(head, Content::Call(call, depth)),
        Some(Graph::Event(head)) => return record(head, line),
        Some(Graph::Switch(cpu, tasks)) => return Entry::Switch(cpu, tasks),
        Some(Graph::Arrow) => return Entry::Empty,
        None => {}
    }
    let text = stripped.unwrap_or(line).trim_ascii();
    if let Some(text) = text.strip_prefix(b"=> ") {
        return Entry::Frame(frame(text));
    }
    if let Some(text) = text.strip_prefix(b"#") {
        return Entry::Header(text);
    }
    if let Some((buffer, cpu, lost)) = loss(text) {
        return Entry::Lost(buffer, cpu, lost);
    }
    match text {
        text if text.iter().all(|&byte| byte == b'-') || is_of_perf_alone(text) => Entry::Empty,
        // Lines of other parts of the kernel stand between those of a dump on a console.
        text if stripped.is_some() => Entry::Other(text),
        _ => Entry::Other(line),
    }
}

/// A line with the head of an event.
fn record<'l>(head: Head<'l>, line: &'l [u8]) -> Entry<'l> {
    match content(head.rest) {
        _ if is_of_perf_alone(head.rest) => Entry::Empty,
        Some(content) => Entry::Record(head, content),
        None => Entry::Other(line),
    }
}

/// Frame of a stack; the last one of a comment of function_graph ends it.
fn frame(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    text.strip_suffix(b" */").unwrap_or(text)
}

/// `CPU:1 [LOST 7442 EVENTS]`, `CPU:0 [1147 EVENTS DROPPED]`, perhaps behind the name of a buffer, and both without number.
fn loss(text: &[u8]) -> Option<(&[u8], u32, Option<u64>)> {
    let (buffer, text) = match text.strip_prefix(b"CPU:") {
        Some(text) => (&b""[..], text),
        None => {
            let (buffer, rest) = text.split_at_checked(text.windows(6).position(|part| part == b": CPU:")?)?;
            (buffer, rest.get(6..)?)
        }
    };
    let (cpu, rest) = decimal(text)?;
    let inner = rest.strip_prefix(b" [")?.strip_suffix(b"]")?;
    let number = match inner {
        b"LOST EVENTS" | b"EVENTS DROPPED" => None,
        _ => {
            let number = inner.strip_prefix(b"LOST ").and_then(|rest| rest.strip_suffix(b" EVENTS"));
            let number = number.or_else(|| inner.strip_suffix(b" EVENTS DROPPED"))?;
            Some(decimal(number).filter(|(_, rest)| rest.is_empty())?.0)
        }
    };
    Some((buffer, cpu.try_into().ok()?, number))
}

/// True for an event of a text of events, rather than a line that happens to look like one: it has a name.
pub(super) fn is_event(entry: &Entry<'_>) -> bool {
    match entry {
        Entry::Record(_, Content::Event { name, .. }) => *name != b"function",
        Entry::Record(_, Content::Call(..)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_told_in_six_ways() {
        for (line, want) in [
            ("CPU:1 [LOST 7442 EVENTS]", Some((1, Some(7442)))),
            ("CPU:1 [LOST EVENTS]", Some((1, None))),
            ("CPU:0 [1147 EVENTS DROPPED]", Some((0, Some(1147)))),
            ("one: CPU:12 [EVENTS DROPPED]", Some((12, None))),
            ("[    1.000001] CPU:1 [LOST 3 EVENTS]", Some((1, Some(3)))),
            ("CPU:1 [LOST x EVENTS]", None),
            ("CPU:1 ", None),
        ] {
            let found = match entry(line.as_bytes()) {
                Entry::Lost(_, cpu, lost) => Some((cpu, lost)),
                _ => None,
            };
            assert_eq!(found, want, "{line}");
        }
    }
}
