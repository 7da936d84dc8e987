//! Events that wait for their call stack, and all that came behind them.
//!
//! The kernel writes a stack as a record of its own, right after its event; interrupts may come between the two. A stack belongs to
//! the last event of its [`Origin`], if that has none yet. An event waits until it has its stack or another event of its origin
//! comes, behind which its stack cannot be: the kernel would have written it before. Loss and the end of the stream end all waiting;
//! the end of a sub-buffer or of a block does not.

use std::collections::VecDeque;

use crate::event::{Event, EventSink, Gap, Names};
use crate::kernel::stack_record::{Origin, StackFormat};
use crate::kernel::target::TargetOrder;

/// Records that may be held back. The most that came between an event and its stack in recordings was 3.
const MAX_WAITING: usize = 64;

/// Queue of a stream's records that are not handed on yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<Entry>,
    /// Number of the queue's first record.
    first: u64,
    /// Events in the queue that may get a stack: origin, and number of the record. Each origin stands once.
    open: Vec<(Origin, u64)>,
    /// Frames of the stack that is read.
    frames: Vec<u64>,
    /// Names and stacks of events that wait between two calls of the reader: place in the queue, and bytes or frames.
    caches: Vec<(usize, Box<[u8]>)>,
    stacks: Vec<(usize, Box<[u64]>)>,
}

#[derive(Debug)]
struct Entry {
    event: Event,
    is_open: bool,
}

impl Waiting {
    /// Number of records that are not handed on yet.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Order key of the first of them.
    pub(super) fn first_key(&self) -> Option<u64> {
        self.queue.front().map(|entry| entry.event.at)
    }

    /// Ties the stack in `record` to its event; false where there is no such event, or the record makes no sense.
    pub(super) fn tie<O: TargetOrder>(
        &mut self,
        format: &StackFormat,
        record: &[u8],
        word_bytes: u8,
        names: &mut Names,
    ) -> bool {
        let origin = format.origin::<O>(record);
        let Some(index) = self.open.iter().rposition(|(open, _)| Some(*open) == origin) else { return false };
        let (_, number) = self.open.swap_remove(index);
        let place = usize::try_from(number - self.first).ok();
        let Some(entry) = place.and_then(|place| self.queue.get_mut(place)) else { return false };
        // However little sense it makes, it is this event's stack: no other one will come.
        entry.is_open = false;
        if !format.read::<O>(record, word_bytes, &mut self.frames) {
            return false;
        }
        entry.event.stack = Some(names.stacks.intern(&self.frames));
        true
    }

    /// Adds an event, which may get a stack if it has an origin.
    #[inline]
    fn push(&mut self, event: Event, origin: Option<Origin>) {
        if let Some(origin) = origin {
            let number = self.first + self.queue.len() as u64;
            match self.open.iter_mut().rfind(|(open, _)| *open == origin) {
                Some((_, last)) => {
                    let earlier = std::mem::replace(last, number) - self.first;
                    if let Some(earlier) = usize::try_from(earlier).ok().and_then(|place| self.queue.get_mut(place)) {
                        earlier.is_open = false;
                    }
                }
                None => self.open.push((origin, number)),
            }
        }
        self.queue.push_back(Entry { event, is_open: origin.is_some() });
    }

    /// Hands on the records that do not wait, up to the first one that does; all but `most`, whether they wait or not.
    #[inline]
    fn hand_on(&mut self, most: usize, names: &Names, items: &mut impl EventSink) {
        while self.queue.front().is_some_and(|entry| !entry.is_open || self.queue.len() > most) {
            let Some(entry) = self.queue.pop_front() else { return };
            if entry.is_open {
                self.open.retain(|(_, number)| *number != self.first);
            }
            self.first += 1;
            items.event(entry.event, names);
        }
    }

    /// Ends all waiting.
    pub(super) fn flush(&mut self, names: &Names, items: &mut impl EventSink) {
        self.hand_on(0, names, items);
    }

    /// Spells names and stacks out: the reader's next call may come with another table of them.
    pub(super) fn spell_out(&mut self, names: &Names) {
        for (place, Entry { event, .. }) in self.queue.iter().enumerate() {
            self.caches.extend(event.cache.map(|cache| (place, names.get(cache).into())));
            self.stacks.extend(event.stack.map(|stack| (place, names.stacks.get(stack).into())));
        }
    }

    /// Takes names and stacks up again, by this table.
    pub(super) fn take_up(&mut self, names: &mut Names) {
        for (place, cache) in self.caches.drain(..) {
            self.queue[place].event.cache = Some(names.intern(&cache));
        }
        for (place, stack) in self.stacks.drain(..) {
            self.queue[place].event.stack = Some(names.stacks.intern(&stack));
        }
    }
}

/// Takes an event into the queue, and hands on those that do not wait.
pub(super) struct WaitingSink<'a, I> {
    pub(super) waiting: &'a mut Waiting,
    pub(super) items: &'a mut I,
    /// Origin of the event, if that may get a stack.
    pub(super) origin: Option<Origin>,
}

impl<I: EventSink> EventSink for WaitingSink<'_, I> {
    const NAMES: bool = I::NAMES;
    const FLAGS: bool = I::FLAGS;

    #[inline(always)]
    fn event(&mut self, event: Event, names: &Names) {
        self.waiting.push(event, self.origin);
        self.waiting.hand_on(MAX_WAITING, names, self.items);
    }

    fn gap(&mut self, gap: Gap) {
        self.items.gap(gap);
    }
}
