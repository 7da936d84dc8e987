//! Start of a line of an event: task, thread, CPU, flags and time, as the kernel (`kernel/trace/trace_output.c`), trace-cmd and perf
//! print them.
//!
//! ```text
//!             bash-8212    [001] ..s1. 13716.767264: mm_page_free: …    trace, trace_pipe, trace-cmd report
//!     bash-8212      1..s1. 26417us : mm_page_free: …                   latency format; with trace-cmd seconds
//!             bash  8212 [001] 13716.767264:       kmem:mm_page_free: … perf script
//! ```
//!
//! A task's name has any bytes, in 16 columns (8 in latency format), so the line is cut there. Where somebody has taken blanks off,
//! or perf did not pad the name, the last place counts at which the rest fits.

use crate::open::moment::noise::without_prefixes;

/// Columns of a task's name.
const COLUMNS: usize = 16;
/// Columns of a task's name in latency format.
const LATENCY_COLUMNS: usize = 8;

/// Longest name of a task: `/proc/PID/comm` of a worker has 64 bytes, and a list of names that trace-cmd was given may be of those.
const MAX_NAME: usize = 64;

/// Program that has printed a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The kernel, or trace-cmd.
    Trace,
    /// The same in latency format.
    Latency,
    /// perf script.
    Perf,
}

/// Time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// Nanoseconds.
    Nanoseconds(u64),
    /// A number without unit.
    Whole(u64),
    /// The text has none: function_graph without the option funcgraph-abstime.
    Untold,
}

/// Begin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'l> {
    pub(super) form: Form,
    /// Name of the ring buffer that trace-cmd prints; empty for the main one.
    pub(super) buffer: &'l [u8],
    /// Name of the task, without blanks at its begin.
    pub(super) comm: &'l [u8],
    /// Thread id; `None` for a negative one.
    pub(super) pid: Option<i32>,
    pub(super) cpu: u32,
    /// Bits of `common_flags` that the letters stand for.
    pub(super) flags: Option<u8>,
    pub(super) time: Time,
    /// Text behind the time's colon.
    pub(super) rest: &'l [u8],
}

/// The begin of a line, whatever a console, syslog or mail has put before it.
pub(super) fn head(line: &[u8]) -> Option<Head<'_>> {
    if let Some(head) = at(line, COLUMNS) {
        return Some(head);
    }
    let stripped = strip(line);
    let exact = |line| at(line, COLUMNS).or_else(|| at(line, LATENCY_COLUMNS));
    let found = at(line, LATENCY_COLUMNS).or_else(|| exact(stripped?)).or_else(|| {
        let (buffer, line) = of_buffer(line)?;
        Some(Head { buffer, ..exact(line)? })
    });
    found.or_else(|| anywhere(stripped.unwrap_or(line)))
}

fn anywhere(line: &[u8]) -> Option<Head<'_>> {
    let shorter = (1..COLUMNS.min(line.len())).rev().find_map(|end| at(line, end));
    let longer = || (COLUMNS + 1..MAX_NAME.min(line.len())).find_map(|end| at(line, end));
    let found = shorter.or_else(longer)?;
    Some(Head { comm: found.comm.trim_ascii_end(), ..found })
}

/// Name of a buffer, and its line behind `NAME: `, as trace-cmd prints it.
fn of_buffer(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().take(64).position(|&byte| byte == b':').filter(|&colon| colon > 0)?;
    let (buffer, line) = line.split_at_checked(colon)?;
    Some((buffer, line.strip_prefix(b": ")?))
}

/// A line whose task's name ends before the byte `end`.
#[inline]
fn at(line: &[u8], end: usize) -> Option<Head<'_>> {
    let (comm, [mark, rest @ ..]) = line.split_at_checked(end)? else { return None };
    let comm = comm.trim_ascii_start();
    match mark {
        b'-' => {
            let (pid, rest) = decimal(rest)?;
            let pid = i32::try_from(pid).ok();
            let (pid, rest) = (Some(pid?), rest.trim_ascii_start());
            match rest.first()? {
                b'[' => of_trace(rest, comm, pid, Form::Trace),
                b'(' => {
                    let close = rest.iter().take(COLUMNS).position(|&byte| byte == b')')?;
                    of_trace(rest.get(close..)?.strip_prefix(b")")?.trim_ascii_start(), comm, pid, Form::Trace)
                }
                b'0'..=b'9' if end <= LATENCY_COLUMNS => of_latency(rest, comm, pid),
                _ => None,
            }
        }
        b' ' => {
            let rest = rest.trim_ascii_start();
            let (pid, rest) = signed(rest)?;
            let (pid, rest) = match rest.strip_prefix(b"/") {
                Some(tid) => signed(tid)?,
                None => (pid, rest),
            };
            of_trace(rest.strip_prefix(b" ")?.trim_ascii_start(), comm, pid, Form::Perf)
        }
        _ => None,
    }
}

/// `[001] ..s1. 13716.767264: rest`
fn of_trace<'l>(text: &'l [u8], comm: &'l [u8], pid: Option<i32>, form: Form) -> Option<Head<'l>> {
    let (cpu, rest) = decimal(text.strip_prefix(b"[")?)?;
    let rest = rest.strip_prefix(b"]")?.trim_ascii_start();
    let (flags, rest) = if rest.first()?.is_ascii_digit() { (None, rest) } else { flags(rest)? };
    let (time, rest) = time(rest)?;
    Some(Head { form, buffer: b"", comm, pid, cpu: cpu.try_into().ok()?, flags, time, rest })
}

/// `1..s1. 26417us+: rest`; the CPU has no columns of its own.
fn of_latency<'l>(text: &'l [u8], comm: &'l [u8], pid: Option<i32>) -> Option<Head<'l>> {
    let (cpu, rest) = decimal(text)?;
    let (flags, rest) = flags(rest)?;
    let (time, rest) = time(rest)?;
    Some(Head { form: Form::Latency, buffer: b"", comm, pid, cpu: cpu.try_into().ok()?, flags, time, rest })
}

/// Letters of the state of interrupts and preemption, and the blanks behind them: 3 to 5, with PREEMPT_RT more.
pub(super) fn flags(text: &[u8]) -> Option<(Option<u8>, &[u8])> {
    let end = text.iter().position(|&byte| byte == b' ')?;
    let ([interrupts, _, letters @ ..], rest) = text.split_at_checked(end)? else { return None };
    if !(3..=8).contains(&end) {
        return None;
    }
    let is_off = u8::from(matches!(interrupts, b'd' | b'D'));
    // TRACE_FLAG_HARDIRQ, _SOFTIRQ and _NMI of include/linux/trace_events.h; PREEMPT_RT has one letter more before.
    let context = letters.iter().take(2).find_map(|letter| match letter {
        b'h' => Some(0x08),
        b's' => Some(0x10),
        b'H' => Some(0x18),
        b'z' => Some(0x40),
        b'Z' => Some(0x48),
        _ => None,
    });
    let context = context.unwrap_or(0);
    Some((Some(is_off | context), rest.trim_ascii_start()))
}

/// `13716.767264:`, `13716.767264123:`, `26417us+:` or `13716767264:`, and what is behind it.
fn time(text: &[u8]) -> Option<(Time, &[u8])> {
    let (whole, rest) = decimal(text)?;
    match rest {
        [b'.', rest @ ..] => {
            let (part, after) = decimal(rest)?;
            let scale = match rest.len().saturating_sub(after.len()) {
                6 => 1000,
                9 => 1,
                _ => return None,
            };
            let time = whole.checked_mul(1_000_000_000)?.checked_add(part.checked_mul(scale)?)?;
            Some((Time::Nanoseconds(time), behind_mark(after)?))
        }
        [b'u', b's', rest @ ..] => Some((Time::Nanoseconds(whole.checked_mul(1000)?), behind_mark(rest)?)),
        rest => Some((Time::Whole(whole), behind_mark(rest)?)),
    }
}

/// Text behind the colon after a time; a mark of a delay may stand between (`trace_delay_marks`).
fn behind_mark(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b':', rest @ ..] => Some(rest),
        [b' ' | b'+' | b'!' | b'#' | b'*' | b'@' | b'$', b':', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Line without what a console, syslog or mail has put before it; `None` where there is nothing of that.
pub(super) fn strip(line: &[u8]) -> Option<&[u8]> {
    const KERNEL: &[u8] = b"kernel: ";
    let at = line.windows(KERNEL.len()).take(120).position(|word| word == KERNEL);
    let behind = at.and_then(|at| line.get(at..)?.strip_prefix(KERNEL));
    let rest = without_prefixes(behind.unwrap_or(line));
    (rest.len() < line.len()).then_some(rest)
}

/// The decimal number at the start, and what follows it.
#[inline]
pub(super) fn decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut len = 0usize;
    while let Some(digit @ 0..=9) = text.get(len).map(|byte| byte.wrapping_sub(b'0')) {
        value = value.checked_mul(10)?.checked_add(digit.into())?;
        len = len.wrapping_add(1);
    }
    if len == 0 {
        return None;
    }
    Some((value, text.get(len..)?))
}

/// A hexadecimal number of at most 16 digits, perhaps behind `0x`, and nothing else.
#[inline]
pub(super) fn hexadecimal(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    if !(1..=16).contains(&digits.len()) {
        return None;
    }
    // Looked at as a whole: a branch for each digit costs more than the digit.
    let (mut value, mut seen) = (0u64, 0);
    for &byte in digits {
        let digit = *DIGITS.get(usize::from(byte)).unwrap_or(&NO_DIGIT);
        value = value << 4 | u64::from(digit & 0xf);
        seen |= digit;
    }
    (seen < NO_DIGIT).then_some(value)
}

/// What `DIGITS` has for bytes that are no digit: a bit that no digit has.
const NO_DIGIT: u8 = 0x10;
/// Values of the hexadecimal digits, as the kernel prints them.
#[expect(clippy::indexing_slicing, reason = "the compiler works it out, and refuses an index out of range")]
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

/// A thread id, `None` if it is negative: perf does not know it.
fn signed(text: &[u8]) -> Option<(Option<i32>, &[u8])> {
    match text.strip_prefix(b"-") {
        Some(rest) => decimal(rest).map(|(_, rest)| (None, rest)),
        None => decimal(text).and_then(|(pid, rest)| Some((Some(pid.try_into().ok()?), rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(String, i32, u32, Option<u8>, Time, String)> {
        let head = head(line.as_bytes())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((
            text(head.comm),
            head.pid.unwrap_or(-1),
            head.cpu,
            head.flags,
            head.time,
            text(head.rest.trim_ascii_start()),
        ))
    }

    #[test]
    fn heads_of_all_kernels_and_programs_are_read() {
        let ns = Time::Nanoseconds;
        for (line, comm, pid, cpu, flags, time) in [
            ("            bash-8212  [001]  5.000007: x:", "bash", 8212, 1, None, ns(5_000_007_000)),
            ("          <idle>-0     [001] ..s1. 13716.767264: x:", "<idle>", 0, 1, Some(0x10), ns(13_716_767_264_000)),
            ("           <...>-12345 [000] d.h4 5.000007: x:", "<...>", 12345, 0, Some(9), ns(5_000_007_000)),
            (
                "  z 1.5: w: [0]-7       (      7) [010] ..... 5.000007: x:",
                "z 1.5: w: [0]",
                7,
                10,
                Some(0),
                ns(5_000_007_000),
            ),
            ("  z 1.5: w: [0]-7     (-------) [010] 5.000007: x:", "z 1.5: w: [0]", 7, 10, None, ns(5_000_007_000)),
            ("            bash-8212  [001]   5.000007123: x:", "bash", 8212, 1, None, ns(5_000_007_123)),
            ("            bash-8212  [001] .... 123456789: x:", "bash", 8212, 1, Some(0), Time::Whole(123_456_789)),
            ("    bash-8212      1..s1. 26417us+: x:", "bash", 8212, 1, Some(0x10), ns(26_417_000)),
            ("kworker/-4348     12d.... 26417us : x:", "kworker/", 4348, 12, Some(1), ns(26_417_000)),
            ("    bash-8212    1d..2  5.000007: x:", "bash", 8212, 1, Some(1), ns(5_000_007_000)),
            ("            bash  8212 [001] 5.000007:   x:", "bash", 8212, 1, None, ns(5_000_007_000)),
            ("            bash    8210/8212    [001] 5.000007: x:", "bash", 8212, 1, None, ns(5_000_007_000)),
            ("a b c  8212 [001] 5.000007: x:", "a b c", 8212, 1, None, ns(5_000_007_000)),
            ("             :-1    -1 [001] 5.000007: x:", ":-1", -1, 1, None, ns(5_000_007_000)),
            ("bash-8212  [001]  5.000007: x:", "bash", 8212, 1, None, ns(5_000_007_000)),
            ("> <4>[   12.345678]     bash-8212    1d..2  5.000007: x:", "bash", 8212, 1, Some(1), ns(5_000_007_000)),
            ("[ 12.345678][  T123]     bash-8212    1d..2  5us!: x:", "bash", 8212, 1, Some(1), ns(5_000)),
            (
                "Nov 26 16:00:01 host kernel: [ 1.5]     bash-8212    1d..2  5us!: x:",
                "bash",
                8212,
                1,
                Some(1),
                ns(5_000),
            ),
            ("one:             bash-8212  [001]  5.000007: x:", "bash", 8212, 1, None, ns(5_000_007_000)),
            (
                "kworker/0:2-events_long-86    [001]  5.000007: x:",
                "kworker/0:2-events_long",
                86,
                1,
                None,
                ns(5_000_007_000),
            ),
        ] {
            let want = Some((comm.to_owned(), pid, cpu, flags, time, "x:".to_owned()));
            assert_eq!(read(line), want, "{line}");
        }
    }

    #[test]
    fn other_lines_have_no_head() {
        for line in [
            "",
            "# tracer: nop",
            "kmalloc: call_site=f+0x1/0x2 ptr=1",
            "8212 1 13716767059325 type: 656",
            " => f",
            "            bash-8212  [001]  5.0007: x:",
            "            bash-99999999999 [001]  5.000007: x:",
            "            bash-1 [99999999999]  5.000007: x:",
            "            bash-1 [001] ..... 99999999999999999999.000007: x:",
            "            bash    8212   1 0 00000000 00000000 [331954153] 26.212ms (+0.000ms): x: y",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
