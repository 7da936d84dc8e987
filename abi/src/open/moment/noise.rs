//! What stands around a line of a text that people post: quotes, times, levels and hosts of logs, colours, prompts.
//!
//! [`clean`] takes off what stands before a line, or is spread over it. Whole lines that belong to no text, as the command that
//! printed it, are told by [`what_is`].

use memchr::memchr2;

use super::numbers::{around, is_digits, split_before};

/// Characters that a prompt has at most.
const MAX_PROMPT: usize = 80;

/// The line without the noise before it. `scratch` holds lines that noise is taken out of.
pub(crate) fn clean<'l>(line: &'l [u8], scratch: &'l mut Vec<u8>) -> &'l [u8] {
    let line = match memchr2(b'\x1b', b'&', line).and_then(|at| line.split_at_checked(at)) {
        Some((before, rest)) => {
            decode(before, rest, scratch);
            &scratch[..]
        }
        None => line,
    };
    without_prefixes(line)
}

/// Turns HTML entities back, and leaves sequences of a terminal out, of `rest`; what is before it has none.
fn decode(before: &[u8], mut rest: &[u8], scratch: &mut Vec<u8>) {
    const ENTITIES: [(&[u8], u8); 6] =
        [(b"&lt;", b'<'), (b"&gt;", b'>'), (b"&amp;", b'&'), (b"&quot;", b'"'), (b"&#39;", b'\''), (b"&nbsp;", b' ')];
    scratch.clear();
    scratch.extend_from_slice(before);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match byte {
            b'\x1b' => behind_sequence(behind),
            b'&' => {
                let entity = ENTITIES.iter().find_map(|(entity, byte)| Some((*byte, rest.strip_prefix(*entity)?)));
                let (byte, behind) = entity.unwrap_or((b'&', behind));
                scratch.push(byte);
                behind
            }
            byte => {
                scratch.push(byte);
                behind
            }
        };
    }
}

/// Text behind a sequence of ECMA-48, whose escape character was taken off.
fn behind_sequence(text: &[u8]) -> &[u8] {
    match text {
        [b'[', rest @ ..] => rest.splitn(2, |byte| (0x40..=0x7e).contains(byte)).nth(1).unwrap_or_default(),
        // Title of a terminal's window.
        [b']', rest @ ..] => rest.splitn(2, |&byte| byte == 0x07 || byte == b'\\').nth(1).unwrap_or_default(),
        [b'(' | b')', _, rest @ ..] | [_, rest @ ..] => rest,
        [] => text,
    }
}

/// The line without what a mail, a console or a log has put before it.
pub(crate) fn without_prefixes(line: &[u8]) -> &[u8] {
    let mut rest = line;
    while let Some(behind) = behind_prefix(rest) {
        rest = behind;
    }
    rest
}

/// Text behind one prefix; `None` without any.
#[inline]
fn behind_prefix(line: &[u8]) -> Option<&[u8]> {
    match line {
        [0 | b'\r', rest @ ..] | [0xef, 0xbb, 0xbf, rest @ ..] => Some(rest),
        [b'>' | b'|', b' ', rest @ ..] | [b'>', rest @ ..] => Some(rest),
        [b'|'] => Some(b""),
        [b'<', rest @ ..] => behind_level(rest),
        [b'[', ..] => behind_brackets(line).map(behind_host),
        [b' ', ..] => {
            let trimmed = line.trim_ascii_start();
            match trimmed.first()? {
                b'>' | b'|' => behind_prefix(trimmed),
                b'[' => behind_brackets(trimmed).map(behind_host),
                _ => None,
            }
        }
        [b'0'..=b'9', ..] => behind_digits(line),
        [b'A'..=b'Z' | b'a'..=b'z', ..] => behind_word(line),
        _ => None,
    }
}

/// Text behind `6>`: facility and level.
fn behind_level(text: &[u8]) -> Option<&[u8]> {
    let (digits, rest) = split_before(text, |byte| !byte.is_ascii_digit());
    rest.strip_prefix(b">").filter(|_| (1..=3).contains(&digits.len()))
}

/// Text in brackets that the line begins with, and what is behind them.
fn bracketed(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"[")?;
    let end = inside.iter().take(48).position(|&byte| byte == b']')?;
    around(inside, end, 1)
}

/// Text behind a time in brackets, and behind the caller and what a phone's maker puts there.
fn behind_brackets(line: &[u8]) -> Option<&[u8]> {
    let (inside, mut rest) = bracketed(line)?;
    if !is_stamp(inside) && !is_caller(inside) {
        return None;
    }
    while let Some((_, behind)) = bracketed(rest).filter(|(inside, _)| is_caller(inside)) {
        rest = behind;
    }
    rest = behind_task(rest).unwrap_or(rest);
    Some(rest.strip_prefix(b" ").unwrap_or(rest))
}

/// True for `   12.345678`, `   12.345678 <    0.000012>`, `  +0.000012`, `5784.9 0.01`, `Nov26 11:27`, `Thu Nov 26 11:27:31 2026`,
/// `2026-11-26 11:27:31`.
fn is_stamp(inside: &[u8]) -> bool {
    let inside = inside.trim_ascii();
    let is_of_numbers = |byte: &u8| byte.is_ascii_digit() || b" .,:<>+-TZ/".contains(byte);
    let has_part =
        |mark: u8| inside.windows(3).any(|part| matches!(part, [b'0'..=b'9', middle, b'0'..=b'9'] if *middle == mark));
    match inside.first() {
        Some(b'0'..=b'9' | b'+' | b'-') => inside.iter().all(is_of_numbers) && (has_part(b'.') || has_part(b':')),
        Some(_) => (is_month(inside) || is_weekday(inside)) && has_part(b':'),
        None => false,
    }
}

/// True for `  T123` and `    C1`: thread or CPU of CONFIG_PRINTK_CALLER.
fn is_caller(inside: &[u8]) -> bool {
    matches!(inside.trim_ascii_start(), [b'T' | b'C', number @ ..] if is_digits(number))
}

/// Text behind `I[5:  task:  812]`, ` [5:  task:  812]` or ` (5)[812:task]`.
fn behind_task(text: &[u8]) -> Option<&[u8]> {
    let trimmed = text.trim_ascii_start();
    let (begin, is_sure) = match trimmed {
        [b'A'..=b'Z', begin @ ..]
        | [b'(', b'0'..=b'9', b')', begin @ ..]
        | [b'(', b'0'..=b'9', b'0'..=b'9', b')', begin @ ..] => (begin, true),
        begin => (begin, false),
    };
    let (inside, rest) = bracketed(begin)?;
    let colons = inside.iter().filter(|&&byte| byte == b':').count();
    let is_task = inside.trim_ascii_start().first()?.is_ascii_digit() && (colons >= 2 || is_sure && colons == 1);
    is_task.then_some(rest)
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

fn is_month(text: &[u8]) -> bool {
    month(text).is_some()
}

/// The month that a text begins with, from 1.
pub(super) fn month(text: &[u8]) -> Option<u8> {
    (1..).zip(MONTHS).find(|(_, name)| text.starts_with(*name)).map(|(number, _)| number)
}

pub(super) fn is_weekday(text: &[u8]) -> bool {
    [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"].iter().any(|day| text.starts_with(*day))
}

/// Text behind `kernel: `, `host kernel: ` or `host kern.warn kernel: `, which follows a time.
fn behind_host(text: &[u8]) -> &[u8] {
    let mut rest = text;
    for _ in 0..2 {
        if let Some(behind) = behind_kernel(rest) {
            return behind;
        }
        let end = rest.iter().take(64).position(|&byte| byte == b' ').filter(|&end| end > 0);
        let Some((_, behind)) = end.and_then(|end| around(rest, end, 1)) else { return text };
        rest = behind;
    }
    behind_kernel(rest).unwrap_or(text)
}

/// Text behind `kernel: `, `kernel[12]: ` or `kernel - - - ` (RFC 5424). The last blank of an empty line may have been cut off.
fn behind_kernel(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"kernel")?;
    let rest = bracketed(rest).map_or(rest, |(_, behind)| behind);
    match rest {
        b":" => Some(b""),
        _ => rest.strip_prefix(b": ").or_else(|| rest.strip_prefix(b" - - - ")),
    }
}

/// True where the text has the form of `0000-00-00`: 0 stands for a digit.
pub(super) fn has_form(text: &[u8], form: &[u8]) -> bool {
    text.len() >= form.len()
        && text.iter().zip(form).all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form })
}

/// Text behind `2026-11-26T11:27:31,345678+00:00 `, `11:27:31.345 `, or the head of a line of logcat, of RFC 5424 or of /dev/kmsg.
fn behind_digits(line: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = line.strip_prefix(b"1 ").filter(|rest| has_form(rest, b"0000-00-00T")) {
        return Some(rest);
    }
    if let Some(rest) = behind_kmsg(line) {
        return Some(rest);
    }
    let is_of_log = has_form(line, b"0000-00-00T");
    let time = if is_of_log || has_form(line, b"0000-00-00 ") {
        line.get(11..)?
    } else if has_form(line, b"00-00 00:00:00.000") {
        return behind_logcat(line.get(18..)?);
    } else {
        line
    };
    if !has_form(time, b"00:00:00") {
        return None;
    }
    let behind = time.get(8..)?;
    if is_of_log && has_form(behind, b",000000") && behind.get(7..).is_some_and(is_end) {
        // An empty line of dmesg, whose last blank was cut off: `date` has nine digits.
        return Some(b"");
    }
    let end = behind.iter().position(|byte| !byte.is_ascii_digit() && !b".,+-:Z".contains(byte))?;
    let rest = behind.get(end..)?.strip_prefix(b" ")?;
    // A line that is a time of day alone is the output of `date`, which has no blank at its end as an empty line of a log has.
    (!rest.is_empty() && !is_zone(rest) || rest.is_empty() && is_of_log).then(|| behind_host(rest))
}

/// Text behind `6,1234,12345678,-;` of /dev/kmsg: level, number, microseconds, flag, and more behind further commas
/// (Documentation/ABI/testing/dev-kmsg).
fn behind_kmsg(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().take(64).position(|&byte| byte == b';')?;
    let (head, rest) = around(line, end, 1)?;
    let mut words = head.split(|&byte| byte == b',');
    let has_numbers = (0..3).all(|_| words.next().is_some_and(is_digits));
    (has_numbers && matches!(words.next()?, b"-" | b"c" | b"+")).then_some(rest)
}

/// True for `+00:00` at the end of a line.
fn is_end(text: &[u8]) -> bool {
    text.len() == 6 && (has_form(text, b"+00:00") || has_form(text, b"-00:00"))
}

fn is_zone(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    (2..=5).contains(&text.len())
        && text.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"+-".contains(byte))
}

/// Text behind `  0     0 I kernel  : ` of logcat, whose time was taken off.
fn behind_logcat(text: &[u8]) -> Option<&[u8]> {
    let colon = text.windows(2).take(64).position(|part| part == b": ")?;
    let (head, rest) = around(text, colon, 2)?;
    let has_level = head.windows(3).any(|part| matches!(part, [b' ', level, b' '] if b"VDIWEF".contains(level)));
    has_level.then_some(rest)
}

/// Text behind `Nov 26 11:27:31 host kernel: `, `Thu Nov 26 11:27:31 2026 kern.warn kernel: `, `kern  :info  : `, `kernel: ` or
/// `I/kernel  ( 12): `.
fn behind_word(line: &[u8]) -> Option<&[u8]> {
    if line.len() > 15 && is_month(line) {
        let (day, time) = (line.get(3..6)?, line.get(6..)?);
        let is_time = matches!(day, [b' ', b' ' | b'0'..=b'9', b'0'..=b'9']) && has_form(time, b" 00:00:00");
        if is_time {
            let behind = time.get(9..)?;
            let fraction = behind.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
            return behind.get(fraction..)?.strip_prefix(b" ").filter(|rest| !is_zone_and_year(rest)).map(behind_host);
        }
    }
    const FACILITIES: [&[u8]; 6] = [b"kern  :", b"user  :", b"daemon:", b"syslog:", b"local0:", b"auth  :"];
    if let Some(rest) = FACILITIES.iter().find_map(|facility| line.strip_prefix(*facility)) {
        let end = rest.iter().take(8).position(|&byte| byte == b':')?;
        return around(rest, end, 1)?.1.strip_prefix(b" ");
    }
    if let Some(rest) = behind_kernel(line) {
        return Some(rest);
    }
    if is_weekday(line) && line.get(3) == Some(&b' ') {
        return behind_logread(line.get(4..)?);
    }
    if let [b'V' | b'D' | b'I' | b'W' | b'E' | b'F', b'/', tag @ ..] = line {
        let end = tag.windows(3).take(40).position(|part| part == b"): ")?;
        let (tag, rest) = around(tag, end, 3)?;
        return tag.contains(&b'(').then_some(rest);
    }
    None
}

/// Text behind `Nov 26 11:27:31 2026 kern.warn kernel: `, which OpenWrt's logread puts behind the day of the week.
fn behind_logread(text: &[u8]) -> Option<&[u8]> {
    let rest = text.get(15..).filter(|_| is_month(text))?;
    let behind = rest.get(6..).filter(|_| has_form(rest, b" 0000 "))?;
    let rest = behind_host(behind);
    (rest.len() < behind.len()).then_some(rest)
}

/// True for what follows the time of a line of `date`: `UTC 2026`.
fn is_zone_and_year(text: &[u8]) -> bool {
    let mut words = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let year = words.next_back().unwrap_or_default();
    has_form(year, b"0000") && year.len() == 4 && words.all(is_zone)
}

/// A whole line that is no line of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside<'l> {
    /// A prompt, and the text behind it.
    Prompt(&'l [u8]),
    /// `cat` could not read on.
    ReadFailed,
    /// The log tells that lines were dropped; another line may follow on it.
    Dropped(&'l [u8]),
}

/// Meaning of a line that no reader has taken; `None` for any other.
pub(crate) fn what_is(line: &[u8]) -> Option<Aside<'_>> {
    let trimmed = line.trim_ascii();
    if trimmed.starts_with(b"cat: ") && (trimmed.ends_with(b"Cannot allocate memory") || trimmed.ends_with(b"error")) {
        return Some(Aside::ReadFailed);
    }
    if let Some(rest) = behind_dropped(trimmed) {
        return Some(Aside::Dropped(rest));
    }
    behind_prompt(line).map(Aside::Prompt)
}

/// Text behind `** 12 printk messages dropped **`; true of journald's `Missed 12 kernel messages`, too.
fn behind_dropped(line: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b" printk messages dropped **";
    let of_number = |text: &[u8], begin: &[u8]| Some(text.strip_prefix(begin)?.first()?.is_ascii_digit());
    if of_number(line, b"** ") == Some(true) {
        let at = line.windows(MARK.len()).position(|part| part == MARK)?;
        return Some(around(line, at, MARK.len())?.1.trim_ascii());
    }
    let is_missed = of_number(line, b"Missed ") == Some(true) && line.ends_with(b" kernel messages");
    is_missed.then_some(b"".as_slice())
}

/// Programs that print such texts, or that people run between two of them.
const COMMANDS: [&[u8]; 30] = [
    b"cat",
    b"zcat",
    b"xzcat",
    b"zstdcat",
    b"sudo",
    b"dmesg",
    b"journalctl",
    b"head",
    b"tail",
    b"grep",
    b"echo",
    b"date",
    b"crash",
    b"sort",
    b"awk",
    b"sed",
    b"sleep",
    b"uname",
    b"mount",
    b"slabtop",
    b"free",
    b"ls",
    b"cd",
    b"cp",
    b"tee",
    b"page_owner_sort",
    b"insmod",
    b"rmmod",
    b"modprobe",
    b"numfmt",
];

/// Text behind a shell's, crash's or gdb's prompt.
fn behind_prompt(line: &[u8]) -> Option<&[u8]> {
    for prompt in [&b"crash> "[..], b"crash>", b"(gdb) ", b"(gdb)"] {
        if let Some(rest) = line.strip_prefix(prompt) {
            return Some(rest);
        }
    }
    let is_mark = |byte: &u8| matches!(byte, b'#' | b'$');
    let mark = line.iter().take(MAX_PROMPT).position(is_mark)?;
    let (place, rest) = around(line, mark, 1)?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(b" ")? };
    let is_of_place = |byte: &u8| byte.is_ascii_alphanumeric() || b"@:~/._-[]() ".contains(byte);
    let words = place.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).count();
    if place.trim_ascii().is_empty() {
        let word = rest.split(|&byte| byte == b' ').next().unwrap_or_default();
        let is_command = COMMANDS.contains(&word) || word.starts_with(b"/") || word.starts_with(b"./");
        return (rest.trim_ascii().is_empty() || is_command).then_some(rest);
    }
    let is_place = place.iter().all(is_of_place) && words <= 3 && place.iter().any(|byte| b"@~/".contains(byte));
    (is_place || place.starts_with(b"bash-") || place.starts_with(b"sh-")).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(line: &str) -> String {
        String::from_utf8_lossy(clean(line.as_bytes(), &mut Vec::new())).into_owned()
    }

    #[test]
    fn what_stands_before_a_line_is_taken_off() {
        for before in [
            "[   12.345678] ",
            "[   12.345678][  T123] ",
            "[    C1] ",
            "[  T123] ",
            "<6>[   12.345678] ",
            "<12>",
            "[Thu Nov 26 11:27:31 2026] ",
            "[   12.345678 <    0.000012>] ",
            "[Nov26 11:27] ",
            "[  +0.000012] ",
            "2026-11-26T11:27:31,345678+00:00 ",
            "kern  :info  : [   12.345678] ",
            "kern  :warn  : [Thu Nov 26 11:27:31 2026] ",
            "\x1b[32m[   12.345678] \x1b[0m\x1b[33m",
            "Nov 26 11:27:31 host kernel: ",
            "Nov  6 11:27:31 host kernel: [   12.345678] ",
            "Nov 26 11:27:31.123456 host kernel: ",
            "2026-11-26T11:27:31.345678+00:00 host kernel: [   12.345678] ",
            "2026-11-26T11:27:31+0000 host kernel: ",
            "[   12.345678] host kernel: ",
            "Nov 26 11:27:31 OpenWrt kern.warn kernel: [   12.345678] ",
            "Thu Nov 26 11:27:31 2026 kern.warn kernel: [   12.345678] ",
            "<6>1 2026-11-26T11:27:31.345678+00:00 host kernel - - - [   12.345678] ",
            "6,1234,12345678,-;",
            "4,1234,12345678,c,caller=T812;",
            "2026-11-26 11:27:31 ",
            "2026-11-26 11:27:31,345 ",
            "[5784.9 0.01] [   12.345678] ",
            "[  431.1]I[5:  task:  812] ",
            "[  431.123456]  [5:    task:  812] ",
            "<6>[  431.123456][T812] (5)[812:task]",
            "[2026-11-26 11:27:31] ",
            "11:27:31.345 [   12.345678] ",
            "11-26 11:27:31.345  root     0     0 I kernel  : ",
            "I/kernel  ( 812): ",
            "> ",
            ">",
            "> > ",
            ">> ",
            "| ",
            "  > ",
            "\0\0\0",
            "\u{feff}",
            "\r",
            "kernel: ",
        ] {
            for line in [
                " example_open+0x1c/0x40 [exampledrv]",
                "Page allocated via order 0, mask 0x0()",
                "[   77]     0    77",
            ] {
                assert_eq!(cleaned(&format!("{before}{line}")).trim_start(), line.trim_start(), "{before}");
            }
        }
    }

    #[test]
    fn empty_lines_of_a_log_are_empty() {
        assert_eq!(cleaned("2026-11-26T11:27:31,345678+00:00 "), "");
        assert_eq!(cleaned("2026-11-26T11:27:31,345678-05:30"), "");
        assert_eq!(cleaned("2026-11-26T11:27:31,345678901+00:00"), "2026-11-26T11:27:31,345678901+00:00");
        assert_eq!(cleaned("[   12.345678] "), "");
        assert_eq!(cleaned("Nov 26 11:27:31 host kernel:"), "");
        assert_eq!(cleaned("6,1234,12345678,-;"), "");
    }

    #[test]
    fn lines_of_texts_stay_as_they_are() {
        for line in [
            "",
            " [<ffffffff81234567>] example_open+0x1c/0x40",
            "[<0000000081234567>] example_open+0x1c/0x40",
            "    [<00000000abcdef01>] example_open+0x1c/0x40 [exampledrv]",
            "[alloc]",
            "[   77]     0    77     1234",
            "[ pid ]   uid  tgid total_vm",
            "<not-available> age=1/2/3",
            "# name            <active_objs>",
            "PFN 256(0x100) paddr 100000",
            "     12 example_open+0x1c/0x40 age=10/200/3000",
            "Thu Nov 26 11:27:31 UTC 2026",
            "2026-11-26T11:27:31+00:00",
            "2026-11-26 11:27:31 UTC",
            "11-26",
            "Mapped:          12 kB",
            "12KB",
            "1 times, 2 pages:",
        ] {
            assert_eq!(cleaned(line), line);
        }
    }

    #[test]
    fn entities_and_colours_are_turned_back() {
        assert_eq!(cleaned(" [&lt;ffffffff81234567&gt;] a&amp;lt;+0x1"), " [<ffffffff81234567>] a&lt;+0x1");
        assert_eq!(cleaned("&gt; Page \x1b[1;31mallocated\x1b[m"), "Page allocated");
        assert_eq!(cleaned("a & b \x1b]0;title\x07c\x1b"), "a & b c");
    }

    #[test]
    fn prompts_and_marks_of_loss_are_told() {
        for (line, rest) in [
            ("~ # cat /sys/kernel/debug/page_owner", "cat /sys/kernel/debug/page_owner"),
            ("/ # ", ""),
            ("# cat x", "cat x"),
            ("$ ", ""),
            ("root@host:~# zcat x", "zcat x"),
            ("[root@host ~]# x", "x"),
            ("crash> owner -l", "owner -l"),
            ("(gdb) lx-dump-page-owner", "lx-dump-page-owner"),
            ("bash-5.2$ x", "x"),
            ("mk8:/ $ x", "x"),
        ] {
            assert_eq!(what_is(line.as_bytes()), Some(Aside::Prompt(rest.as_bytes())), "{line}");
        }
        for line in ["# a comment", "rubbish", "rubbish # rubbish", "#", "a cat: x", "error: 50% of it", "cost: $ 5"] {
            assert!(matches!(what_is(line.as_bytes()), None | Some(Aside::Prompt(b""))), "{line}");
        }
        assert_eq!(what_is(b"cat: page_owner: Cannot allocate memory"), Some(Aside::ReadFailed));
        assert_eq!(what_is(b"** 12 printk messages dropped **"), Some(Aside::Dropped(b"")));
        assert_eq!(what_is(b"** 12 printk messages dropped ** [ 1.2] x"), Some(Aside::Dropped(b"[ 1.2] x")));
    }
}
