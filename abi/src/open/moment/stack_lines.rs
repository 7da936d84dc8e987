//! The stack of the block that is read: addresses that stand for its frames, and what their functions tell.

use super::entry::Out;
use super::frames::frame;
use super::line_table::LineTable;
use crate::open::symbols::{Frame, find};
use crate::owner::Allocators;
use crate::trace::{BEFORE_PAGE_OWNER, NO_STACK};

/// Functions in the stacks that the kernel makes up where there is none (mm/page_owner.c), and what stands for the stack.
const MADE_UP: [(&[u8], &[u8]); 3] = [
    (b"register_early_stack", BEFORE_PAGE_OWNER),
    (b"register_dummy_stack", NO_STACK),
    (b"register_failure_stack", NO_STACK),
];
/// Function that takes pages for `vmalloc`, if a function called it that allocates pages.
const VMALLOC: &[u8] = b"__vmalloc_node_range";

/// A frame that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    address: u64,
    /// Place in [`MADE_UP`] of what stands for the whole stack.
    made_up: Option<u8>,
    allocates: bool,
    is_vmalloc: bool,
}

/// The frames so far, and what is known of all that were seen.
#[derive(Debug, Default)]
pub(super) struct StackLines {
    frames: Vec<u64>,
    word: Option<&'static [u8]>,
    allocators: Allocators,
    /// The latest frame is of a function that allocates pages.
    allocates: bool,
    known: LineTable<Known>,
}

/// A whole stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack<'s> {
    /// Addresses that stand for the frames, innermost first.
    pub(super) frames: &'s [u64],
    /// What stands for a stack that the kernel made up.
    pub(super) word: Option<&'static [u8]>,
    pub(super) allocators: Allocators,
}

impl StackLines {
    /// Reads a frame; `None` for another line.
    #[inline]
    pub(super) fn read(&mut self, line: &[u8], out: &mut dyn Out) -> Option<Known> {
        match self.known.get(line) {
            Some(known) => Some(known),
            None => self.read_new(line, out),
        }
    }

    fn read_new(&mut self, line: &[u8], out: &mut dyn Out) -> Option<Known> {
        let frame = frame(line)?;
        let name = match frame {
            Frame::Function { name, .. } | Frame::Name { name, .. } | Frame::Placed { name, .. } => name,
            Frame::Address(_) => b"",
        };
        let plain = name.split(|byte| *byte == b'.').next().unwrap_or(name);
        let known = Known {
            address: out.address(frame),
            made_up: (0..).zip(MADE_UP).find(|(_, (function, _))| plain == *function).map(|(place, _)| place),
            allocates: find(name, b"alloc_pages").is_some(),
            is_vmalloc: find(name, VMALLOC).is_some(),
        };
        self.known.insert(line, known);
        Some(known)
    }

    /// Adds the next outer frame.
    #[inline]
    pub(super) fn push(&mut self, known: Known) {
        if self.allocates && known.is_vmalloc {
            self.allocators = self.allocators.with(Allocators::VMALLOC);
        }
        self.allocates = known.allocates;
        if let Some(place) = known.made_up {
            self.word = self.word.or(MADE_UP.get(usize::from(place)).map(|(_, word)| *word));
        }
        self.frames.push(known.address);
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn frames(&self) -> &[u64] {
        &self.frames
    }

    /// The whole stack; of one that the kernel made up, one frame stands for it.
    pub(super) fn whole(&mut self, out: &mut dyn Out) -> Stack<'_> {
        if let Some(word) = self.word {
            self.frames.clear();
            self.frames.push(out.address(Frame::Name { name: word, module: None }));
        }
        Stack { frames: &self.frames, word: self.word, allocators: self.allocators }
    }

    /// Begins the next stack.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.word = None;
        self.allocators = Allocators::default();
        self.allocates = false;
    }
}
