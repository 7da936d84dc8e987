//! Frames of stacks as page_owner's texts have them, printed by kernels, debuggers, and programs that look lines up.

use memchr::{memchr, memrchr};

use super::numbers::{around, is_digits, split_before};
use crate::open::symbols::Frame;
use crate::text::split::split_once;
use crate::trace::is_made_up;

/// A frame, whatever program has printed it:
///
/// ```text
///  example_open+0x1c/0x40 [exampledrv]                        kernel
///  [<ffffffff81234567>] example_open+0x1c/0x40 [exampledrv]   kernel, to Linux 4.8
///  0xffffffffc0a01234                                         kernel, of a module that is gone
///   example_open+0x1c [exampledrv]                            crash
///   ffffffffc0a01234                                          crash, of a module that is gone
///    0xffffffff81234567 <example_open+28>:   mov …            gdb
/// #0  example_open (drivers/x.c:12:3)                         drgn
///  example_open (drivers/x.c:12) exampledrv                   scripts/decode_stacktrace.sh
///  example_open+0x1c/0x40 drivers/x.c:12 [inline]             syzkaller
/// ```
pub(super) fn frame(line: &[u8]) -> Option<Frame<'_>> {
    let text = line.trim_ascii();
    match text {
        [] => None,
        [b'#', text @ ..] => {
            let (digits, rest) = split_before(text, |byte| !byte.is_ascii_digit());
            let frame = rest.trim_ascii_start();
            (!digits.is_empty() && frame.len() < rest.len()).then(|| of_debugger(frame)).flatten()
        }
        [b'[', ..] => behind_address(text),
        [b'0', ..] => of_address(text),
        _ => {
            let address = hexadecimal(text).filter(|&address| text.len() == 16 && !is_made_up(address));
            address.map(Frame::Address).or_else(|| place(text, false))
        }
    }
}

/// `example_open (drivers/x.c:12:3)` or `0xffffffff81234567 in …`.
fn of_debugger(text: &[u8]) -> Option<Frame<'_>> {
    match text.starts_with(b"0x") {
        true => of_address(text),
        false => place(text, true),
    }
}

/// `[<ffffffff81234567>] example_open+0x1c/0x40`. A number of 16 digits whose upper half is 0 is a hash, and no address.
fn behind_address(text: &[u8]) -> Option<Frame<'_>> {
    let inside = text.strip_prefix(b"[<")?;
    let (digits, rest) = inside.split_at_checked(memchr(b'>', inside)?)?;
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let rest = rest.strip_prefix(b">]")?.trim_ascii_start();
    let is_hash = digits.len() == 16 && digits.starts_with(b"00000000");
    let address = hexadecimal(digits).filter(|&address| !is_hash && address != 0 && !is_made_up(address));
    if rest.is_empty() {
        return address.map(Frame::Address);
    }
    if rest.starts_with(b"0x") {
        return of_address(rest);
    }
    match (place(rest, false)?, address) {
        (Frame::Function { name, offset, module, .. }, Some(address)) => {
            Some(Frame::Placed { name, offset, module, address })
        }
        (frame, _) => Some(frame),
    }
}

/// `0xffffffffc0a01234`, and what gdb prints behind it.
fn of_address(text: &[u8]) -> Option<Frame<'_>> {
    let digits = text.strip_prefix(b"0x")?;
    let (digits, rest) = split_before(digits, |byte| !byte.is_ascii_hexdigit());
    let address = hexadecimal(digits).filter(|&address| !is_made_up(address))?;
    if rest.is_empty() || rest.starts_with(b":") {
        return Some(Frame::Address(address));
    }
    if let Some(name) = rest.strip_prefix(b" in ") {
        return place(name, true);
    }
    let (inside, _) = split_once(rest.strip_prefix(b" <")?, b'>')?;
    let (name, offset) = match memrchr(b'+', inside).and_then(|plus| around(inside, plus, 1)) {
        Some((name, offset)) => (name, decimal(offset)?),
        None => (inside, 0),
    };
    is_name(name).then_some(Frame::Placed { name, offset, module: None, address })
}

/// A function with its offset, and the module, file or line behind it. `is_frame`: the line is a frame by what stands before it, so that
/// the name may stand alone.
fn place(text: &[u8], is_frame: bool) -> Option<Frame<'_>> {
    let (word, rest) = word(text);
    let behind = behind(rest)?;
    let module = behind.module;
    if let Some((name, numbers)) = split_once(word, b'+')
        && let Some(numbers) = numbers.strip_prefix(b"0x")
    {
        let (offset, size) = match split_once(numbers, b'/') {
            Some((offset, size)) => (hexadecimal(offset)?, hexadecimal(size.strip_prefix(b"0x")?)?),
            None => (hexadecimal(numbers)?, 0),
        };
        return is_name(name).then_some(Frame::Function { name, offset, size, module });
    }
    (is_name(word) && (is_frame || behind.has_line)).then_some(Frame::Name { name: word, module })
}

/// The text before the first blank, and the text from there on.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    memchr(b' ', text).and_then(|end| text.split_at_checked(end)).unwrap_or((text, b""))
}

/// What follows a function.
#[derive(Default)]
struct Behind<'l> {
    module: Option<&'l [u8]>,
    /// A file and a line in it.
    has_line: bool,
}

/// `[module]`, `[module 0123456789abcdef]` with a build id, `(file:line)`, `(file:line) module`, `file:line [inline]`; `None` for anything
/// else.
fn behind(text: &[u8]) -> Option<Behind<'_>> {
    let mut behind = Behind::default();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        let after = match rest {
            [b'[', inside @ ..] => {
                let (inside, after) = split_once(inside, b']')?;
                let word = inside.split(|byte| *byte == b' ').next().unwrap_or_default();
                if inside != b"inline" {
                    behind.module = Some(word).filter(|word| is_name(word));
                    behind.module?;
                }
                after
            }
            [b'(', ..] => {
                behind.has_line = true;
                around(rest, closing(rest)?, 1)?.1
            }
            _ => {
                let (word, after) = word(rest);
                if is_line(word) {
                    behind.has_line = true;
                } else if behind.has_line && behind.module.is_none() && is_name(word) {
                    behind.module = Some(word);
                } else {
                    return None;
                }
                after
            }
        };
        rest = after.trim_ascii_start();
    }
    Some(behind)
}

/// Place of the bracket that closes the one which the text begins with.
fn closing(text: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    text.iter().position(|byte| {
        depth = match byte {
            b'(' => depth.saturating_add(1),
            b')' => depth.saturating_sub(1),
            _ => depth,
        };
        depth == 0
    })
}

/// True for `drivers/x.c:12` and `drivers/x.c:12:3`.
fn is_line(word: &[u8]) -> bool {
    let parts = memrchr(b':', word).and_then(|colon| around(word, colon, 1));
    parts.is_some_and(|(file, line)| is_digits(line) && memchr(b'.', file).is_some())
}

pub(super) fn is_name(name: &[u8]) -> bool {
    let is_of_names = |byte: &u8| byte.is_ascii_graphic() && !b"()<>[]=\"',;+".contains(byte) || *byte >= 0x80;
    !name.is_empty() && name.iter().all(is_of_names)
}

/// The hexadecimal number that is the whole text.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digit = |value: u64, byte: &u8| Some(value << 4 | u64::from(char::from(*byte).to_digit(16)?));
    ((1..=16).contains(&text.len())).then(|| text.iter().try_fold(0, digit)).flatten()
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digit = |value: u64, byte: &u8| value.checked_mul(10)?.checked_add(u64::from(byte.wrapping_sub(b'0')));
    is_digits(text).then(|| text.iter().try_fold(0, digit)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_programs_are_read() {
        let function = |size| Some(Frame::Function { name: b"example_open", offset: 0x1c, size, module: None });
        let module = Some(&b"exampledrv"[..]);
        let of_module = |size| Some(Frame::Function { name: b"example_open", offset: 0x1c, size, module });
        let name = |module| Some(Frame::Name { name: b"example_open", module });
        let placed = |address, module| Some(Frame::Placed { name: b"example_open", offset: 0x1c, module, address });
        for (line, read) in [
            (" example_open+0x1c/0x40", function(0x40)),
            ("example_open+0x1c/0x40", function(0x40)),
            (" example_open+0x1c/0x40 [exampledrv]", of_module(0x40)),
            (" example_open+0x1c/0x40 [exampledrv 0123456789abcdef]", of_module(0x40)),
            ("  example_open+0x1c [exampledrv]", of_module(0)),
            (" example_open+0x1c", function(0)),
            (" example_open+0x1c/0x40 (drivers/x.c:12)", function(0x40)),
            (" example_open+0x1c/0x40 (drivers/x.c:12) [exampledrv]", of_module(0x40)),
            (" example_open+0x1c/0x40 drivers/x.c:12", function(0x40)),
            (" example_open+0x1c/0x40 drivers/x.c:12 [inline]", function(0x40)),
            (" example_open drivers/x.c:12 [inline]", name(None)),
            (" example_open (drivers/x.c:12 (discriminator 3)) exampledrv", name(module)),
            ("#0  example_open (drivers/x.c:12:3)", name(None)),
            ("#12 example_open", name(None)),
            ("#0  example_open+0x1c/0x40", function(0x40)),
            ("#1  0xffffffff81234567", Some(Frame::Address(0xffff_ffff_8123_4567))),
            (" 0xffffffffc0a01234", Some(Frame::Address(0xffff_ffff_c0a0_1234))),
            ("  ffffffffc0a01234", Some(Frame::Address(0xffff_ffff_c0a0_1234))),
            ("ffffffffc0a0123", None),
            ("   0xffffffff81234567 <example_open+28>:\tmov    %rax,%rbx", placed(0xffff_ffff_8123_4567, None)),
            ("   0xffffffff81234567:\tmov    %rax,%rbx", Some(Frame::Address(0xffff_ffff_8123_4567))),
            (" [<ffffffff81234567>] example_open+0x1c/0x40 [exampledrv]", placed(0xffff_ffff_8123_4567, module)),
            (" [<c0101234>] example_open+0x1c/0x40", placed(0xc010_1234, None)),
            (" [<00000000abcdef01>] example_open+0x1c/0x40", function(0x40)),
            (" [<0000000000000000>] example_open+0x1c/0x40", function(0x40)),
            (" [<ffffffffc0a01234>]", Some(Frame::Address(0xffff_ffff_c0a0_1234))),
            (" [<ffffffffc0a01234>] 0xffffffffc0a01234", Some(Frame::Address(0xffff_ffff_c0a0_1234))),
            ("rubbish", None),
            (" two words", None),
            (" +0x1/0x2", None),
            (" a b+0x1/0x2", None),
            (" example_open+0x1c/0x40 rubbish", None),
            (" example_open+0x1c/", None),
            (" example_open+0x", None),
            (" example_open+0x1234567890abcdef0/0x1", None),
            ("#", None),
            ("#1", None),
            ("", None),
        ] {
            assert_eq!(frame(line.as_bytes()), read, "{line}");
        }
    }
}
