//! Frames of a call stack, as documents have them.

use std::borrow::Cow;
use std::rc::Rc;

/// Frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame<'a> {
    /// Return address.
    pub address: u64,
    /// `function+0x1f`, if it is known.
    pub symbol: Option<Cow<'a, [u8]>>,
    /// Module of the function; `None` for the kernel itself.
    pub module: Option<Cow<'a, [u8]>>,
    /// True where the module was gone at the end of the recording.
    pub is_gone: bool,
}

impl StackFrame<'_> {
    /// Symbol or address, and the module in brackets: `foo_open+0x1f [foo, gone]`.
    fn text_with_module(&self) -> Vec<u8> {
        let gone = if self.is_gone { &b", gone"[..] } else { b"" };
        match &self.module {
            Some(module) => [&self.text(), &b" ["[..], module, gone, b"]"].concat(),
            None => self.text(),
        }
    }

    /// Symbol, else the address in hexadecimal digits.
    pub fn text(&self) -> Vec<u8> {
        self.symbol.as_deref().map_or_else(|| format!("{:#x}", self.address).into_bytes(), <[u8]>::to_vec)
    }
}

/// Stack of a row: its number in the document, and its frames, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowStack<'a> {
    /// Number, from 1.
    pub number: u64,
    /// Frames from the call-site on, one list for all rows that have the stack.
    pub frames: Rc<[StackFrame<'a>]>,
}

impl RowStack<'_> {
    /// Frames in one line, the innermost first, those of modules with the module in brackets.
    pub fn text(&self) -> Vec<u8> {
        self.frames.iter().map(StackFrame::text_with_module).collect::<Vec<_>>().join(&b" < "[..])
    }
}
