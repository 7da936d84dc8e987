//! Lines of the tracer function_graph, as the kernel's `kernel/trace/trace_functions_graph.c` prints them, and calls as trace-cmd prints
//! them.
//!
//! ```text
//!   123.456789 |   0)    bash-1234    |  d..1. | + 12.345 us   |    kfree();
//!  0)               |  kmem_cache_free() {
//!  0)   1.678 us    |  } /* kmem_cache_free */
//!  0)               |  /* kfree: call_site=f+0x1/0x2 ptr=00000000a2a7b693 */
//!  0)    bash-1234    =>     ls-12
//! ```
//!
//! Time, task and flags are there with the options funcgraph-abstime, funcgraph-proc and latency-format. The third line is an event, the
//! last one a switch of tasks.

use memchr::{memchr, memmem};

use super::head::{Form, Head, Time, decimal, flags};
use super::sites;
use crate::text::split::{rsplit_once, split_once};

/// Columns of a task and its number; more where they do not fit.
const TASK_COLUMNS: usize = 14;
/// Blanks before the function of a call that no other call is around.
const MARGIN: usize = 2;
/// Blanks for each call around.
const INDENT: usize = 2;

/// A call of a function, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call<'l> {
    /// Start.
    Begin(&'l [u8]),
    /// A call that called nothing that was traced, with its duration in nanoseconds.
    Leaf(&'l [u8], Option<u64>),
    /// End of a call, with its duration. The kernel names the function only where it did not print its start.
    End(Option<&'l [u8]>, Option<u64>),
}

/// Task of a line: name, and number where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task<'l> {
    pub(super) comm: &'l [u8],
    pub(super) pid: Option<i32>,
}

/// Content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Graph<'l> {
    /// A call, and the number of calls around it; `None` where somebody has taken off the blanks that show it.
    Call(Head<'l>, Call<'l>, Option<usize>),
    /// An event: what is after its time is in [`Head::rest`].
    Event(Head<'l>),
    /// From one task to another, on a CPU.
    Switch(u32, [Task<'l>; 2]),
    /// An arrow of an interrupt.
    Arrow,
}

/// Reads a line; `None` for any other.
pub(super) fn graph(line: &[u8]) -> Option<Graph<'_>> {
    // Most lines of other texts end here.
    let text = line.trim_ascii_start();
    let (_, behind) = text.first().filter(|byte| byte.is_ascii_digit()).and_then(|_| decimal(text))?;
    let (time, text) = match behind.first()? {
        b')' => (Time::Untold, text),
        b'.' | b' ' => time(text)?,
        _ => return None,
    };
    let (cpu, rest) = decimal(text)?;
    let (cpu, rest) = (u32::try_from(cpu).ok()?, rest.strip_prefix(b")")?);
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    if let Some(switch) = switch(rest) {
        return Some(Graph::Switch(cpu, switch));
    }
    let (task, rest) = task_column(rest).map_or((None, rest), |(task, rest)| (Some(task), rest));
    let (flags, rest) = flags_column(rest).map_or((None, rest), |(flags, rest)| (flags, rest));
    let task = task.unwrap_or(Task { comm: b"", pid: None });
    let head = Head { form: Form::Trace, buffer: b"", comm: task.comm, pid: task.pid, cpu, flags, time, rest: b"" };
    if matches!(rest.trim_ascii(), [b'=', b'=', b'=', ..] | [b'<', b'=', b'=', ..]) {
        return Some(Graph::Arrow);
    }
    let is_cut = line.contains(&b'|');
    match body(rest).filter(|_| is_cut)? {
        Body::Call(call, depth) => Some(Graph::Call(head, call, depth)),
        Body::Event(rest) => Some(Graph::Event(Head { rest, ..head })),
    }
}

/// Content behind the columns of time and task.
enum Body<'l> {
    Call(Call<'l>, Option<usize>),
    Event(&'l [u8]),
}

/// Reads the column of durations, and what is behind it.
fn body(text: &[u8]) -> Option<Body<'_>> {
    // Without the option funcgraph-duration there is no such column, and a bar belongs to an event.
    let column = split_once(text, b'|').and_then(|(column, rest)| Some((duration(column)?, rest)));
    let (duration, text) = column.unwrap_or((None, text));
    let stripped = text.trim_ascii_start();
    if let Some(event) = stripped.strip_prefix(b"/* ") {
        let event = event.trim_ascii_end();
        return Some(Body::Event(event.strip_suffix(b" */").unwrap_or(event)));
    }
    let blanks = text.len().saturating_sub(stripped.len());
    let depth = blanks.checked_sub(MARGIN).map(|blanks| blanks / INDENT);
    call(stripped.trim_ascii_end(), duration).map(|call| Body::Call(call, depth))
}

/// The call in the field of trace-cmd's events `funcgraph_entry` and `funcgraph_exit`.
pub(super) fn of_trace_cmd(text: &[u8]) -> Option<(Call<'_>, Option<usize>)> {
    match body(text)? {
        Body::Call(call, depth) => Some((call, depth)),
        Body::Event(_) => None,
    }
}

/// `f() {`, `f [mod]();`, `}` or `} /* f */`; arguments, results and callers may stand there, too.
fn call(text: &[u8], duration: Option<u64>) -> Option<Call<'_>> {
    if let Some(rest) = text.strip_prefix(b"}") {
        let rest = rest.trim_ascii();
        let comment = rest.strip_prefix(b"/*").and_then(|rest| rest.strip_suffix(b"*/")).map(<[u8]>::trim_ascii);
        return match comment {
            Some(comment) => Some(Call::End(named(comment), duration)),
            None => rest.is_empty().then_some(Call::End(None, duration)),
        };
    }
    let (name, _) = split_once(text, b'(')?;
    let comment = memmem::rfind(text, b"/*").filter(|_| text.ends_with(b"*/"));
    let code = comment.and_then(|at| text.get(..at)).unwrap_or(text);
    sites::function(name)?;
    match code.trim_ascii_end().last()? {
        b'{' => Some(Call::Begin(name)),
        b';' => Some(Call::Leaf(name, duration)),
        _ => None,
    }
}

/// The function in the comment behind a brace; `None` where that has only the result or the caller.
fn named(comment: &[u8]) -> Option<&[u8]> {
    let end = comment.iter().position(|byte| b" (".contains(byte)).unwrap_or(comment.len());
    let (mut name, rest) = comment.split_at_checked(end)?;
    if rest.starts_with(b" [") {
        name = comment.get(..=end.saturating_add(memchr(b']', rest)?))?;
    }
    let is_name = !name.is_empty() && !name.contains(&b'=') && !name.starts_with(b"<");
    Some(name).filter(|name| is_name && sites::function(name).is_some())
}

/// `123.456789 |` or `26417 us |`.
fn time(text: &[u8]) -> Option<(Time, &[u8])> {
    let (whole, rest) = decimal(text)?;
    let (time, rest) = match rest.strip_prefix(b".") {
        Some(part) => {
            let (micros, rest) = decimal(part).filter(|(_, rest)| part.len().saturating_sub(rest.len()) == 6)?;
            (whole.checked_mul(1_000_000)?.checked_add(micros)?, rest)
        }
        None => (whole, rest.strip_prefix(b" us")?),
    };
    let rest = rest.trim_ascii_start().strip_prefix(b"|")?;
    Some((Time::Nanoseconds(time.checked_mul(1000)?), rest.trim_ascii_start()))
}

/// The column of the task, which is cut by position: its name may have any bytes.
fn task_column(text: &[u8]) -> Option<(Task<'_>, &[u8])> {
    let at = |end: usize| {
        let (column, rest) = text.split_at_checked(end)?;
        let rest = rest.strip_prefix(b" | ")?;
        Some((task(column)?, rest))
    };
    let anywhere = || {
        let (column, rest) = split_once(text, b'|')?;
        Some((task(column)?, rest.strip_prefix(b" ").unwrap_or(rest)))
    };
    (TASK_COLUMNS..TASK_COLUMNS + 4).find_map(at).or_else(anywhere)
}

/// `bash-1234`.
fn task(text: &[u8]) -> Option<Task<'_>> {
    let (comm, pid) = rsplit_once(text.trim_ascii(), b'-')?;
    let (pid, rest) = decimal(pid)?;
    rest.is_empty().then(|| Task { comm, pid: i32::try_from(pid).ok() })
}

/// The column of flags in latency format.
fn flags_column(text: &[u8]) -> Option<(Option<u8>, &[u8])> {
    let (column, rest) = split_once(text, b'|')?;
    let letters = column.trim_ascii();
    let is_flag = |byte: &u8| byte.is_ascii_alphanumeric() || b".#".contains(byte);
    let may_be = (4..=8).contains(&letters.len()) && letters.iter().all(is_flag);
    let may_be = may_be && !letters.first()?.is_ascii_digit();
    let (flags, _) = flags(column.trim_ascii_start()).filter(|_| may_be)?;
    Some((flags, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// The column of a duration in nanoseconds, `+ 12.345 us`; the inner one is `None` where it is empty. The kernel prints seven digits at most,
/// cut and not rounded.
#[allow(clippy::option_option, reason = "an empty column is not the same as none")]
fn duration(text: &[u8]) -> Option<Option<u64>> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Some(None);
    }
    let text = match text {
        [b'+' | b'!' | b'#' | b'*' | b'@' | b'$', rest @ ..] => rest.trim_ascii_start(),
        text => text,
    };
    let (micros, rest) = decimal(text.strip_suffix(b"us")?.trim_ascii_end())?;
    let part = rest.strip_prefix(b".").unwrap_or(rest);
    let (part, scale) = match (decimal(part), part.len()) {
        (None, 0) => (0, 1),
        (Some((part, [])), 1) => (part, 100),
        (Some((part, [])), 2) => (part, 10),
        (Some((part, [])), 3) => (part, 1),
        _ => return None,
    };
    Some(Some(micros.checked_mul(1000)?.checked_add(part.checked_mul(scale)?)?))
}

/// `bash-1234    =>     ls-12`
fn switch(text: &[u8]) -> Option<[Task<'_>; 2]> {
    let (from, to) = text.split_at_checked(memmem::find(text, b" => ")?)?;
    Some([task(from)?, task(to.strip_prefix(b" => ")?)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = (Option<u64>, u32, Option<i32>, Option<u8>, Call<'static>, Option<usize>);

    fn read(line: &'static str) -> Option<Read> {
        let Graph::Call(head, call, depth) = graph(line.as_bytes())? else { return None };
        let time = if let Time::Nanoseconds(time) = head.time { Some(time) } else { None };
        Some((time, head.cpu, head.pid, head.flags, call, depth))
    }

    #[test]
    fn calls_are_read_in_every_shape() {
        for (line, want) in [
            (" 0)               |  f() {", (None, 0, None, None, Call::Begin(b"f"), Some(0))),
            (" 12)   0.345 us    |    f();", (None, 12, None, None, Call::Leaf(b"f", Some(345)), Some(1))),
            (" 0) + 16496.98 us |  }", (None, 0, None, None, Call::End(None, Some(16_496_980)), Some(0))),
            (" 0) @ 1234567 us  |  }", (None, 0, None, None, Call::End(None, Some(1_234_567_000)), Some(0))),
            (
                " 0) ! 178.263 us  |      } /* f [mod] */",
                (None, 0, None, None, Call::End(Some(b"f [mod]"), Some(178_263)), Some(2)),
            ),
            (
                "   13.456789 |   1)    bash-1234    |   1.5 us      |  f [mod]();",
                (Some(13_456_789_000), 1, Some(1234), None, Call::Leaf(b"f [mod]", Some(1500)), Some(0)),
            ),
            (
                "   13.456789 |   1)   a | b-1234   |  d.h1. |   1.500 us    |  f();",
                (Some(13_456_789_000), 1, Some(1234), Some(9), Call::Leaf(b"f", Some(1500)), Some(0)),
            ),
            ("    5 us |   1)               |  f() {", (Some(5000), 1, None, None, Call::Begin(b"f"), Some(0))),
            (" 0) kworker-123456 |               |  f() {", (None, 0, Some(123_456), None, Call::Begin(b"f"), Some(0))),
            // Results, callers and arguments of newer kernels.
            (" 0)   1.500 us    |  f(); /* = 0x0 */", (None, 0, None, None, Call::Leaf(b"f", Some(1500)), Some(0))),
            (
                " 0)   1.500 us    |  } /* f ret=0x1 */",
                (None, 0, None, None, Call::End(Some(b"f"), Some(1500)), Some(0)),
            ),
            (" 0)   1.500 us    |  } /* = -12 */", (None, 0, None, None, Call::End(None, Some(1500)), Some(0))),
            (
                " 0)               |  f(a=0x1, b=(c)) { /* <-g+0x1/0x2 */",
                (None, 0, None, None, Call::Begin(b"f"), Some(0)),
            ),
            // Blanks were taken off.
            ("0) | f() {", (None, 0, None, None, Call::Begin(b"f"), None)),
            ("0) bash-7 | 1.5 us | f();", (None, 0, Some(7), None, Call::Leaf(b"f", Some(1500)), None)),
        ] {
            assert_eq!(read(line), Some(want), "{line}");
        }
    }

    #[test]
    fn events_switches_and_arrows_are_told_apart() {
        let event = |line: &'static str| match graph(line.as_bytes()) {
            Some(Graph::Event(head)) => (head.cpu, head.pid, head.rest),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(
            event(" 1)               |    /* kfree: call_site=f ptr=1 */"),
            (1, None, &b"kfree: call_site=f ptr=1"[..])
        );
        assert_eq!(
            event("   13.456789 |   1)  bash-1234     |               |  /* x: gfp_flags GFP_A|__GFP_B */"),
            (1, Some(1234), &b"x: gfp_flags GFP_A|__GFP_B"[..])
        );
        assert_eq!(event(" 1)               |  /* <stack trace>"), (1, None, &b"<stack trace>"[..]));
        let task = |comm, pid| Task { comm, pid: Some(pid) };
        assert_eq!(
            graph(b" 0)   bash-1234    =>   <idle>-0    "),
            Some(Graph::Switch(0, [task(b"bash", 1234), task(b"<idle>", 0)]))
        );
        assert_eq!(graph(b" 0)   ==========> |"), Some(Graph::Arrow));
        assert_eq!(graph(b" 0)   <========== |"), Some(Graph::Arrow));
    }

    #[test]
    fn other_lines_are_no_calls() {
        for line in [
            "",
            "0",
            "0)",
            "0) f();",
            "1) a line of a list (with brackets) {",
            "1) a | b",
            " 0) 1.5 us | f g();",
            " 0) 1.x us | f();",
            " 0) 99999999999999999999 us | f();",
            " 99999999999) | f();",
            "   13.4567 |   1) | f();",
            "            bash-8212    [001] ..... 13716.767264: kfree: call_site=f",
            " 0) | } x",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
