//! Texts of the tracer that have no fields, or no CPU: what to switch to get them.

use super::head::{decimal, hexadecimal};

/// Reason for which a text cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Option of the tracer that was on.
    On(&'static str),
    /// Option of the tracer that was off.
    Off(&'static str),
    /// Copy of events on the console.
    Console,
    /// Calls of functions without CPUs.
    Graph,
}

impl Refusal {
    /// Reason and remedy.
    pub(super) fn text(self) -> String {
        match self {
            Refusal::On(option) => format!(
                "a text of the tracer's option {option}, which leaves out fields or CPUs: \
                 write 0 to options/{option}, and read `trace` again"
            ),
            Refusal::Off(option) => {
                format!("a text without tasks, CPUs and times: write 1 to options/{option}, and read `trace` again")
            }
            Refusal::Console => {
                "events without CPU and task, as tp_printk prints them: record them with kmemtraced, or \
                                 read `trace`"
                    .to_owned()
            }
            Refusal::Graph => {
                "a text of the tracer function_graph without CPUs: write 1 to options/funcgraph-cpu, and read \
                               `trace` again"
                    .to_owned()
            }
        }
    }
}

/// The reason in a line that is no event's.
pub(super) fn of_line(text: &[u8]) -> Option<Refusal> {
    if text.contains(&b'|') && [&b"() {"[..], b"();"].iter().any(|end| text.ends_with(end)) {
        return Some(Refusal::Graph);
    }
    let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).take(8).collect();
    let is_binary = || text.iter().any(|byte| !byte.is_ascii() || byte.is_ascii_control());
    if memchr::memmem::find(text, b"type: ").is_some() && is_binary() {
        return Some(Refusal::On("bin"));
    }
    let is_number = |word: &[u8]| decimal(word).is_some_and(|(_, rest)| rest.is_empty());
    match words[..] {
        [pid, cpu, time, b"type:", ..] if [pid, cpu, time].into_iter().all(is_number) => Some(Refusal::On("raw")),
        [pid, cpu, time, ..] if [pid, cpu, time].map(<[u8]>::len) == [8, 8, 16] && hexadecimal(time).is_some() => {
            Some(Refusal::On("hex"))
        }
        [_, pid, cpu, _, preempt, _, time, ..]
            if is_number(pid) && is_number(cpu) && preempt.len() == 8 && time.starts_with(b"[") =>
        {
            Some(Refusal::On("verbose"))
        }
        [name, field, ..] if name.ends_with(b":") && is_event(name) && field.contains(&b'=') => {
            Some(Refusal::Off("context-info"))
        }
        _ => None,
    }
}

fn is_event(name: &[u8]) -> bool {
    [&b"kmalloc"[..], b"kfree", b"kmem_cache_", b"mm_page_", b"percpu_"].iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_by_a_line() {
        for (line, want) in [
            (&b"8212 1 13716767059325 type: 656"[..], Some(Refusal::On("raw"))),
            (b"00002014 00000001 00000c79af072d7d type: 656", Some(Refusal::On("hex"))),
            (b"\x14 \0\0\x01\0\0\0}-\x07\xafy\x0c\0\0type: 656", Some(Refusal::On("bin"))),
            (
                b"            bash    8212   1 0 00000000 00000000 [331954153] 26.212ms (+0.000ms): kfree: call_site=f",
                Some(Refusal::On("verbose")),
            ),
            (b"kfree: call_site=f+0x1/0x2 ptr=0000000000000000", Some(Refusal::Off("context-info"))),
            (b"  0.345 us    |    f();", Some(Refusal::Graph)),
            (b"A text: with=signs", None),
            (b"", None),
        ] {
            assert_eq!(of_line(line), want, "{}", String::from_utf8_lossy(line));
        }
    }
}
