//! Addresses of the functions that a text names, in fields and in stacks.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::head::hexadecimal;
use crate::open::symbols::{Frame, Symbols, number, rfind};
use crate::text::split::{rsplit_once, split_once};

/// Limit of different words, so that no text decides how much memory is taken; kernels have some ten thousand call-sites.
const MAX_WORDS: usize = 1 << 18;

/// Addresses by the words that stand for them.
pub(super) type Known = HashMap<Box<[u8]>, u64, RandomState>;

/// Functions that were seen so far.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) known: Known,
    pub(super) symbols: Symbols,
}

impl Sites {
    /// Notes a word; false if it names no function.
    pub(super) fn learn(&mut self, word: &[u8], read: fn(&[u8]) -> Option<Frame<'_>>) -> bool {
        if self.known.contains_key(word) {
            return true;
        }
        let Some(frame) = read(word) else { return false };
        if self.known.len() < MAX_WORDS {
            let address = self.symbols.address(frame);
            self.known.insert(word.into(), address);
        }
        true
    }
}

/// `f+0x1/0x2 [mod]`, `f+0x1` or `f`: what `%pS`, trace-cmd and perf print.
pub(super) fn function(text: &[u8]) -> Option<Frame<'_>> {
    let (text, module) = match text.strip_suffix(b"]").and_then(|text| rsplit_once(text, b'[')) {
        // Some kernels write the module's build-id behind its name.
        Some((text, module)) => (text.trim_ascii_end(), module.split(|&byte| byte == b' ').next()),
        None => (text, None),
    };
    let is_name = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    if !module.is_none_or(is_name) {
        return None;
    }
    let placed = rfind(text, b"+0x").and_then(|plus| {
        let (name, offset) = text.split_at_checked(plus)?;
        Some((name, number(offset.strip_prefix(b"+")?)?))
    });
    match placed {
        Some((name, (offset, rest))) => {
            let (size, rest) = rest.strip_prefix(b"/").map_or(Some((0, rest)), number)?;
            (rest.is_empty() && is_name(name)).then_some(Frame::Function { name, offset, size, module })
        }
        None => is_name(text).then_some(Frame::Name { name: text, module }),
    }
}

/// Frame of the kernel's or trace-cmd's stack, behind its arrow: a function, its address, or both.
pub(super) fn frame(text: &[u8]) -> Option<Frame<'_>> {
    let (text, address) = behind(text, b'<', b'>').or_else(|| behind(text, b'(', b')')).unwrap_or((text, None));
    if text.is_empty() {
        return address.map(Frame::Address);
    }
    if let Some(address) = text.strip_prefix(b"0x").and_then(hexadecimal) {
        return Some(Frame::Address(address));
    }
    match (function(text)?, address) {
        (Frame::Function { name, offset, module, .. }, Some(address)) => {
            Some(Frame::Placed { name, offset, module, address })
        }
        (frame, _) => Some(frame),
    }
}

/// Text before an address in brackets at its end.
fn behind(text: &[u8], open: u8, close: u8) -> Option<(&[u8], Option<u64>)> {
    let (text, address) = rsplit_once(text.strip_suffix(&[close])?, open)?;
    let address = hexadecimal(address)?;
    Some((text.trim_ascii_end(), Some(address)))
}

/// Frame of perf's call chain: `ffffffff8112c3d1 f+0x1 ([kernel.kallsyms])`; `None` for one of a program.
pub(super) fn chain_frame(text: &[u8]) -> Option<Frame<'_>> {
    let (text, object) = rsplit_once(text.trim_ascii(), b'(')?;
    let object = object.strip_suffix(b")")?;
    let (address, place) = split_once(text, b' ')?;
    let address = hexadecimal(address)?;
    let module = match object.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")) {
        Some(name) if name.starts_with(b"kernel") || name.starts_with(b"guest.kernel") => None,
        Some(b"unknown" | b"vdso" | b"vsyscall" | b"stack" | b"heap") => return None,
        Some(name) => Some(name),
        // Files of programs have the lower half of the addresses.
        None if address >> 63 == 0 => return None,
        None => None,
    };
    match function(place.trim_ascii()) {
        Some(Frame::Function { name, offset, .. }) => Some(Frame::Placed { name, offset, module, address }),
        Some(Frame::Name { name, .. }) if name != b"[unknown]" => Some(Frame::Name { name, module }),
        _ => Some(Frame::Address(address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_frames_of_all_programs_are_read() {
        let function = |name: &'static [u8], offset, size, module| Frame::Function { name, offset, size, module };
        for (text, want) in [
            (&b"f+0x1/0x20 [mod]"[..], function(b"f", 1, 0x20, Some(&b"mod"[..]))),
            (b"f.part.0+0x24/0x1f0", function(b"f.part.0", 0x24, 0x1f0, None)),
            (b"f+0x2b", function(b"f", 0x2b, 0, None)),
            (b"f", Frame::Name { name: b"f", module: None }),
            (b"f [mod]", Frame::Name { name: b"f", module: Some(b"mod") }),
            (
                b"f+0x1/0x20 <ffffffff81000001>",
                Frame::Placed { name: b"f", offset: 1, module: None, address: 0xffff_ffff_8100_0001 },
            ),
            (b"f (ffffffff81000001)", Frame::Name { name: b"f", module: None }),
            (b"<ffffffff81000001>", Frame::Address(0xffff_ffff_8100_0001)),
            (b"0xffffffff81000001", Frame::Address(0xffff_ffff_8100_0001)),
        ] {
            assert_eq!(frame(text), Some(want), "{}", String::from_utf8_lossy(text));
        }
        for (text, want) in [
            (
                &b"\t    ffffffff8112c3d1 f+0x12 ([kernel.kallsyms])"[..],
                Some(Frame::Placed { name: b"f", offset: 0x12, module: None, address: 0xffff_ffff_8112_c3d1 }),
            ),
            (b"\tffffffffc012c3d1 f ([ext4])", Some(Frame::Name { name: b"f", module: Some(b"ext4") })),
            (b"\tffffffffc012c3d1 [unknown] ([kernel.kallsyms])", Some(Frame::Address(0xffff_ffff_c012_c3d1))),
            (b"\t    7f1234567890 malloc+0x1 (/usr/lib/libc.so.6)", None),
            (b"\tx f+0x1 ([kernel.kallsyms])", None),
        ] {
            assert_eq!(chain_frame(text), want, "{}", String::from_utf8_lossy(text));
        }
        for text in [&b""[..], b"+0x1/0x2", b"f g+0x1/0x2", b"f+0x1/0xg", b"f+0x1/0x2 []"] {
            assert_eq!(super::function(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
