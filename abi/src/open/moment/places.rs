//! Frames and places of code in texts that are not page_owner's.

use super::numbers::{around, hexadecimal, trimmed};
use crate::open::symbols::{self, Frame, find, rfind};

/// A frame as kernels, crash and bcc print it: `function+0x1f/0x40 [module]`, the same without the size, an address, and any of these
/// behind `[<address>] ` or `? `.
pub(super) fn frame(text: &[u8]) -> Option<Frame<'_>> {
    let text = trimmed(text);
    if let Some(placed @ Frame::Placed { .. }) = super::frames::frame(text) {
        return Some(placed);
    }
    let text = behind_address(text);
    let text = text.strip_prefix(b"? ").unwrap_or(text);
    if let Some(address) = hexadecimal(text) {
        return Some(Frame::Address(address));
    }
    if let Some(frame) = symbols::frame(text) {
        return Some(frame);
    }
    let (place, module) = place_and_module(text)?;
    let (name, offset) = around(place, rfind(place, b"+0x")?, 1)?;
    let offset = hexadecimal(offset)?;
    // Without the size the function is taken to end here.
    is_name(name).then_some(Frame::Function { name, offset, size: 0, module })
}

/// A frame, or a function without an offset.
pub(super) fn site(text: &[u8]) -> Option<Frame<'_>> {
    frame(text).or_else(|| {
        let (name, module) = place_and_module(behind_address(trimmed(text)))?;
        is_name(name).then_some(Frame::Name { name, module })
    })
}

/// What follows `[<ffffffff81000000>] `.
fn behind_address(text: &[u8]) -> &[u8] {
    let behind = text.strip_prefix(b"[<").and_then(|text| Some(trimmed(around(text, find(text, b">]")?, 2)?.1)));
    behind.filter(|behind| !behind.is_empty()).unwrap_or(text)
}

/// `function+0x1f` and `module` of `function+0x1f [module 0123456789abcdef]`; a build id behind the module's name is left out.
fn place_and_module(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let Some(at) = find(text, b" [") else { return Some((text, None)) };
    let (place, module) = around(text, at, 2)?;
    let module = module.strip_suffix(b"]")?;
    let module = module.split(|byte| *byte == b' ').next().filter(|module| is_name(module))?;
    Some((trimmed(place), Some(module)))
}

fn is_name(name: &[u8]) -> bool {
    let is_of_names = |byte: &u8| byte.is_ascii_graphic() && !b"()<>[]=\"',;".contains(byte);
    !name.is_empty() && name.iter().all(is_of_names)
}

/// True for a line that a kernel prints before a call trace. The frames that follow are not those of the block before it.
pub(super) fn begins_trace(line: &[u8]) -> bool {
    const BEGINS: [&[u8]; 5] = [b"CPU: ", b"Call Trace:", b"Call trace:", b"WARNING: ", b"Hardware name: "];
    let line = trimmed(line);
    BEGINS.iter().any(|begin| line.starts_with(begin))
}

/// True for lines that a kernel prints around a stack: of the CPU, registers, the call trace itself.
pub(super) fn is_of_trace(line: &[u8]) -> bool {
    const BEGINS: [&[u8]; 12] = [
        b"Workqueue: ",
        b"<TASK>",
        b"</TASK>",
        b"<IRQ>",
        b"</IRQ>",
        b"RIP: ",
        b"RSP: ",
        b"RAX: ",
        b"RDX: ",
        b"RBP: ",
        b"R10: ",
        b"R13: ",
    ];
    let line = trimmed(line);
    let is_known = BEGINS.iter().any(|begin| line.starts_with(begin));
    is_known
        || begins_trace(line)
        || line.starts_with(b"Code: ")
        || line.starts_with(b"Tainted: ")
        || frame(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_programs_are_read() {
        let example = |module: Option<&'static [u8]>, size| {
            Some(Frame::Function { name: b"example_open", offset: 0x1c, size, module })
        };
        let module = Some(&b"exampledrv"[..]);
        assert_eq!(frame(b"    example_open+0x1c/0x40 [exampledrv]"), example(module, 0x40));
        assert_eq!(frame(b"[<00000000abcdef01>] example_open+0x1c/0x40"), example(None, 0x40));
        assert_eq!(frame(b"[<00000000abcdef01>] example_open+0x1c"), example(None, 0));
        assert_eq!(frame(b"example_open+0x1c [exampledrv 0123456789]"), example(module, 0));
        assert_eq!(frame(b" ? example_open+0x1c/0x40"), example(None, 0x40));
        assert_eq!(frame(b" 0xffffffffc0a01234"), Some(Frame::Address(0xffff_ffff_c0a0_1234)));
        assert_eq!((frame(b"example_open"), frame(b"a b+0x1"), frame(b"")), (None, None, None));
        assert_eq!(site(b"example_open [exampledrv]"), Some(Frame::Name { name: b"example_open", module }));
        assert_eq!(site(b"two words"), None);
    }
}
