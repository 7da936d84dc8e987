//! Frames of a call stack, as documents have them.

use std::borrow::Cow;
use std::rc::Rc;

use kmemtrace_abi::trace::is_made_up;

use crate::names::kallsyms::SiteOwner;

/// Frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame<'a> {
    /// Return address.
    pub address: u64,
    /// `function+0x1f`, if it is known.
    pub symbol: Option<Cow<'a, [u8]>>,
    /// Module of the function; `None` for the kernel itself.
    pub module: Option<Cow<'a, [u8]>>,
    /// Owner of the code.
    pub owner: SiteOwner<'a>,
    /// True where the module was gone at the end of the recording.
    pub is_gone: bool,
}

impl StackFrame<'_> {
    /// Symbol or address, and the module in brackets: `foo_open+0x1f [foo, gone]`.
    fn text_with_module(&self) -> Vec<u8> {
        let gone = if self.is_gone { &b", gone"[..] } else { b"" };
        match (&self.module, self.owner) {
            (Some(module), SiteOwner::Kernel | SiteOwner::Module(_) | SiteOwner::Unknown) => {
                [&self.text(), &b" ["[..], module, gone, b"]"].concat()
            }
            _ => self.text(),
        }
    }

    /// Symbol, `[foo] init+0x19` in the initialisation of a module, else the address in hexadecimal digits.
    pub fn text(&self) -> Vec<u8> {
        match (self.symbol.as_deref(), self.owner) {
            (Some(symbol), _) => symbol.to_vec(),
            (None, owner @ SiteOwner::Init { .. }) => owner.text(self.address),
            (None, owner) if is_made_up(self.address) => owner.text(self.address),
            (None, _) => format!("{:#x}", self.address).into_bytes(),
        }
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
