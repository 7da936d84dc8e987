//! Events that wait for their call stack, and all that came behind them.
//!
//! The kernel writes a stack as a record of its own, right after its event; interrupts may come between the two. A stack belongs to
//! the last event of its [`Origin`], if that has none yet. An event waits until it has its stack or another event of its origin
//! comes, behind which its stack cannot be: the kernel would have written it before. Loss and the end of the stream end all waiting;
//! the end of a sub-buffer or of a block does not.

use crate::event::{Event, EventSink, Gap, ModuleFree, ModuleLoad, Names, TaskEvent};
use crate::kernel::stack_record::{Origin, StackFormat};
use crate::kernel::subbuffer::Record;
use crate::target::TargetOrder;

/// Records that may be held back. The most of a task that came between an event and its stack in recordings was 3.
const MAX_WAITING: usize = 64;
/// Records that may be held back in an interrupt: RCU frees hundreds of pages in one, while the task waits for the stack of its event.
const MAX_IN_INTERRUPT: usize = 4096;

/// Queue of a stream's records that are not handed on yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Records; those before `head` were handed on.
    queue: Vec<WaitingEvent>,
    head: usize,
    /// Entries from `head` on that are addresses of the record before them.
    addresses: usize,
    /// Events in the queue that may get a stack: origin, and place in the queue. Each origin stands once.
    open: Vec<(Origin, usize)>,
    /// Frames of the stack that is read.
    frames: Vec<u64>,
    /// Names and stacks of events that wait between two calls of the reader: place in the queue, and bytes or frames.
    caches: Vec<(usize, Box<[u8]>)>,
    stacks: Vec<(usize, Box<[u64]>)>,
}

#[derive(Debug)]
struct WaitingEvent {
    event: Event,
    is_open: bool,
}

impl Waiting {
    /// Number of records that are not handed on yet.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.records() as u64
    }

    #[inline]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`addresses` counts entries from `head` on, which is no more than the length"
    )]
    fn records(&self) -> usize {
        self.queue.len() - self.head - self.addresses
    }

    /// Order key of the first of them.
    pub(super) fn first_key(&self) -> Option<u64> {
        self.queue.get(self.head).map(|entry| entry.event.at)
    }

    /// Ties the stack in `record` to its event; false where there is no such event, or the record makes no sense.
    pub(super) fn tie<O: TargetOrder>(
        &mut self,
        (format, origin): (&StackFormat, Option<Origin>),
        record: &Record<'_>,
        word_bytes: u8,
        names: &mut Names,
    ) -> bool {
        let Some(index) = self.open.iter().rposition(|(open, _)| Some(*open) == origin) else { return false };
        let (_, place) = self.open.swap_remove(index);
        let Some((entry, behind)) = self.queue.get_mut(place..).and_then(<[WaitingEvent]>::split_first_mut) else {
            return false;
        };
        // However little sense it makes, it is this event's stack: no other one will come.
        entry.is_open = false;
        if !format.read::<O>(record.payload, word_bytes, &mut self.frames) {
            return false;
        }
        let stack = Some(names.stacks.intern(&self.frames));
        entry.event.stack = stack;
        let addresses = behind.iter_mut().take(entry.event.addresses().into());
        addresses.for_each(|address| address.event.stack = stack);
        true
    }

    /// Adds an event, which may get a stack if it has an origin.
    #[inline]
    #[expect(clippy::arithmetic_side_effects, reason = "`addresses` counts entries of the queue, which are in memory")]
    fn push(&mut self, event: Event, origin: Option<Origin>) {
        if let Some(origin) = origin {
            let place = self.queue.len();
            match self.open.iter_mut().rfind(|(open, _)| *open == origin) {
                Some((_, last)) => {
                    if let Some(earlier) = self.queue.get_mut(std::mem::replace(last, place)) {
                        earlier.is_open = false;
                    }
                }
                None => self.open.push((origin, place)),
            }
        }
        self.addresses += usize::from(event.is_address());
        self.queue.push(WaitingEvent { event, is_open: origin.is_some() });
    }

    /// Hands on the records that do not wait, up to the first one that does; all but `most`, whether they wait or not.
    #[inline]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`head` is at most the length, and no place in `open` is before it"
    )]
    fn hand_on(&mut self, most: usize, names: &Names, items: &mut impl EventSink) {
        while let Some(entry) = self.queue.get(self.head) {
            if entry.is_open {
                if self.records() <= most {
                    break;
                }
                self.open.retain(|(_, place)| *place != self.head);
            }
            self.head += 1;
            if self.addresses > 0 {
                self.addresses -= usize::from(entry.event.is_address());
            }
            entry.event.hand_to(items, names);
        }
        if self.head == self.queue.len() {
            self.queue.clear();
            self.head = 0;
        } else if self.head >= MAX_WAITING && self.head * 2 >= self.queue.len() {
            self.queue.drain(..self.head);
            self.open.iter_mut().for_each(|(_, place)| *place -= self.head);
            self.head = 0;
        }
    }

    /// Ends the waiting of events up to the key `until`; true where there are some.
    pub(super) fn flush_until(&mut self, until: u64, names: &Names, items: &mut impl EventSink) -> bool {
        let left = self.queue.get(self.head..).unwrap_or_default();
        // Keys of a stream do not go back.
        let behind = left.iter().rev().take_while(|entry| entry.event.at > until);
        let (entries, records) = behind.fold((0usize, 0usize), |(entries, records), entry| {
            (entries.saturating_add(1), records.saturating_add(usize::from(!entry.event.is_address())))
        });
        let is_any = entries < left.len();
        if is_any {
            self.hand_on(records, names, items);
        }
        is_any
    }

    /// Ends all waiting.
    pub(super) fn flush(&mut self, names: &Names, items: &mut impl EventSink) {
        self.hand_on(0, names, items);
    }

    /// Spells names and stacks out: the reader's next call may come with another table of them.
    pub(super) fn spell_out(&mut self, names: &Names) {
        for (place, WaitingEvent { event, .. }) in self.queue.iter().enumerate().skip(self.head) {
            self.caches.extend(event.cache.map(|cache| (place, names.get(cache).into())));
            self.stacks.extend(event.stack.map(|stack| (place, names.stacks.get(stack).into())));
        }
    }

    /// Takes names and stacks up again, by this table.
    pub(super) fn take_up(&mut self, names: &mut Names) {
        for (place, cache) in self.caches.drain(..) {
            if let Some(entry) = self.queue.get_mut(place) {
                entry.event.cache = Some(names.intern(&cache));
            }
        }
        for (place, stack) in self.stacks.drain(..) {
            if let Some(entry) = self.queue.get_mut(place) {
                entry.event.stack = Some(names.stacks.intern(&stack));
            }
        }
    }
}

/// Takes an event into the queue, and hands on those that do not wait.
pub(super) struct WaitingSink<'a, I> {
    pub(super) waiting: &'a mut Waiting,
    pub(super) items: &'a mut I,
    /// Origin of the event or of the stack; `None` for a damaged record, which gets no stack.
    pub(super) origin: Option<Origin>,
    pub(super) is_stack: bool,
}

impl<I: EventSink> EventSink for WaitingSink<'_, I> {
    const NAMES: bool = I::NAMES;
    const FLAGS: bool = I::FLAGS;
    const MARKS: bool = I::MARKS;
    const FIELDS: bool = I::FIELDS;

    #[inline(always)]
    fn event(&mut self, event: Event, names: &Names) {
        let is_interrupt = self.origin.is_some_and(Origin::is_interrupt);
        let most = if is_interrupt { MAX_IN_INTERRUPT } else { MAX_WAITING };
        // Addresses get the stack of their record.
        let origin = self.origin.filter(|_| !self.is_stack && !event.is_address());
        if origin.is_none() {
            // A stack, mostly: the event before it has come to its end.
            self.waiting.hand_on(most, names, self.items);
            if self.waiting.queue.is_empty() {
                return event.hand_to(self.items, names);
            }
        }
        self.waiting.push(event, origin);
        self.waiting.hand_on(most, names, self.items);
    }

    fn gap(&mut self, gap: Gap) {
        self.items.gap(gap);
    }

    fn module_load(&mut self, load: ModuleLoad<'_>) {
        self.items.module_load(load);
    }

    fn module_free(&mut self, free: ModuleFree<'_>) {
        self.items.module_free(free);
    }

    fn task(&mut self, event: TaskEvent<'_>) {
        self.items.task(event);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Bulk, BulkAction, StreamItem};
    use crate::kernel::format::EventFormat;
    use crate::target::Little;

    const FORMAT: &str = "name: kernel_stack\nID: 4\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:int size;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;\n";

    /// Thing that happens on the CPU.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// An event of this thread with these flags.
        Event(u8, u8),
        /// A record of as many addresses.
        Bulk(u8, u8, u8),
        /// A stack of this thread with these flags.
        Stack(u8, u8),
        /// A stack that makes no sense.
        Nonsense(u8, u8),
        /// Loss.
        Gap,
        /// The reader is called again, with another table of names.
        Pause,
    }

    /// Records that may be held back when this one has come.
    fn most(record: &Step) -> usize {
        match *record {
            Step::Event(_, flags) | Step::Bulk(_, flags, _) | Step::Stack(_, flags) | Step::Nonsense(_, flags)
                if flags & 0x58 != 0 =>
            {
                MAX_IN_INTERRUPT
            }
            _ => MAX_WAITING,
        }
    }

    /// The stack of each event and record by its place, and the number of other stacks: each stack asks all before it.
    fn by_the_rule(steps: &[Step]) -> (Vec<Option<u64>>, u64) {
        let origin = |pid: u8, flags: u8| (pid, flags & 0x58);
        let mut records: Vec<Step> = Vec::new();
        let (mut stacks, mut taken, mut unmatched, mut gap) = (Vec::new(), Vec::new(), 0, 0);
        for &step in steps {
            match step {
                Step::Pause => continue,
                Step::Gap => gap = records.len(),
                Step::Event(..) | Step::Bulk(..) => {}
                Step::Stack(pid, flags) | Step::Nonsense(pid, flags) => {
                    let same = |other: &Step| matches!(*other, Step::Event(p, f) | Step::Bulk(p, f, _) if origin(p, f) == origin(pid, flags));
                    let last = records[gap..].iter().rposition(same).map(|place| gap + place);
                    // Each record since then has left the event waiting.
                    let is_near = |place: &usize| {
                        let since = (1..).zip(&records[*place..]).skip(1);
                        since.into_iter().all(|(held, record)| held <= most(record)) && !taken.contains(place)
                    };
                    let event = last.filter(is_near);
                    taken.extend(event);
                    match event.filter(|_| matches!(step, Step::Stack(..))) {
                        Some(place) => stacks[place] = Some(records.len() as u64),
                        None => unmatched += 1,
                    }
                }
            }
            if !matches!(step, Step::Gap) {
                records.push(step);
                stacks.push(None);
            }
        }
        (stacks, unmatched)
    }

    /// The same by the queue. A record's number is its key, and the only frame of its stack.
    fn by_the_queue(steps: &[Step]) -> (Vec<Option<u64>>, u64) {
        let format = StackFormat::new("ftrace", &EventFormat::parse(FORMAT).unwrap()).unwrap();
        let (mut waiting, mut names) = (Waiting::default(), Names::new());
        // Ids differ from table to table.
        let another = |number: u64| {
            let mut names = Names::new();
            for other in 0..number % 7 {
                names.stacks.intern(&[1 << 40, other]);
            }
            names
        };
        let (mut number, mut unmatched, mut handed) = (0, 0, Vec::new());
        for &step in steps {
            let mut items: Vec<StreamItem> = Vec::new();
            let (pid, flags) = match step {
                Step::Event(pid, flags) | Step::Bulk(pid, flags, _) | Step::Stack(pid, flags) => (pid, flags),
                Step::Nonsense(pid, flags) => (pid, flags),
                Step::Gap | Step::Pause => (0, 0),
            };
            let mut record =
                vec![4, 0, flags, 0, pid, 0, 0, 0, u8::from(matches!(step, Step::Stack(..))), 0, 0, 0, 0, 0, 0, 0];
            record.extend((number + 1u64).to_le_bytes());
            let whole = Record { time: 0, payload: &record, rest: &record };
            let origin = format.origin::<Little>(&whole);
            let is_stack = matches!(step, Step::Stack(..) | Step::Nonsense(..));
            match step {
                Step::Gap => waiting.flush(&names, &mut items),
                Step::Pause => {
                    waiting.spell_out(&names);
                    names = another(number);
                    waiting.take_up(&mut names);
                }
                Step::Event(..) | Step::Bulk(..) => {}
                Step::Stack(..) | Step::Nonsense(..) => {
                    unmatched += u64::from(!waiting.tie::<Little>((&format, origin), &whole, 8, &mut names));
                }
            }
            if !matches!(step, Step::Gap | Step::Pause) {
                let event = Event::new(number, 0, names.intern(b"any"));
                let mut sink = WaitingSink { waiting: &mut waiting, items: &mut items, origin, is_stack };
                let addresses = if let Step::Bulk(_, _, addresses) = step { addresses } else { 0 };
                let bulk = Bulk::Record { action: BulkAction::Free, addresses };
                sink.event(Event { bulk: (addresses > 0).then_some(bulk), ..event }, &names);
                let address = Event { bulk: Some(Bulk::Address), ..event };
                (0..addresses).for_each(|_| sink.event(address, &names));
                number += 1;
            }
            assert!(waiting.len() <= MAX_IN_INTERRUPT as u64 && waiting.open.len() as u64 <= waiting.len());
            keep(&items, &names, &mut handed);
        }
        let mut items = Vec::new();
        waiting.flush(&names, &mut items);
        keep(&items, &names, &mut handed);
        assert!(waiting.open.is_empty() && handed.len() as u64 == number);
        (handed, unmatched)
    }

    /// Adds the stacks of the next records, which come in their order, each with its addresses right behind it.
    fn keep(items: &[StreamItem], names: &Names, handed: &mut Vec<Option<u64>>) {
        let mut addresses = 0;
        for item in items {
            let StreamItem::Event(event) = item else { panic!("{item:?}") };
            let stack = event.stack.map(|stack| names.stacks.get(stack)[0] - 1);
            assert_eq!(event.is_address(), addresses > 0, "{event:?}");
            if event.is_address() {
                addresses -= 1;
                assert_eq!((event.at + 1, Some(stack)), (handed.len() as u64, handed.last().copied()));
                continue;
            }
            addresses = event.addresses();
            assert_eq!(event.at, handed.len() as u64);
            handed.push(stack);
        }
        assert_eq!(addresses, 0);
    }

    fn step() -> impl Strategy<Value = Step> {
        let flags = prop_oneof![4 => Just(0), 2 => Just(0x10), 1 => Just(0x19), 1 => Just(0x08), 1 => Just(0x25)];
        (0..100u8, 0..4u8, flags).prop_map(|(kind, pid, flags)| match kind {
            0..40 => Step::Event(pid, flags),
            40..45 => Step::Bulk(pid, flags, 1 + kind % 5),
            45..50 => Step::Bulk(pid, flags, 64),
            50..90 => Step::Stack(pid, flags),
            90..94 => Step::Nonsense(pid, flags),
            94..96 => Step::Gap,
            _ => Step::Pause,
        })
    }

    proptest! {
        #[test]
        fn stacks_are_tied_by_the_rule(steps in proptest::collection::vec(step(), 0..300)) {
            prop_assert_eq!(by_the_queue(&steps), by_the_rule(&steps));
        }
    }

    #[test]
    fn a_stack_is_waited_for_behind_this_many_records_and_no_more() {
        for (flags, most) in [(0, MAX_WAITING), (8, MAX_IN_INTERRUPT)] {
            for (between, is_tied) in [(most - 1, true), (most, false)] {
                let mut steps = vec![Step::Event(1, 0)];
                steps.extend((0..between).map(|_| Step::Event(2, flags)));
                steps.push(Step::Stack(1, 0));
                let (stacks, unmatched) = by_the_queue(&steps);
                assert_eq!((stacks[0].is_some(), unmatched), (is_tied, u64::from(!is_tied)), "{between}");
                assert_eq!(by_the_rule(&steps), (stacks, unmatched));
            }
        }
    }
}
