//! All CPUs' events in the one total order of the contract: (key, CPU, position in the CPU's stream).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kmemtrace_abi::event::{Event, Gap, GapCause, Item, Names};
use kmemtrace_abi::trace::{CpuStream, OrderKey};

/// Where a CPU's items come from.
pub(crate) trait Stream {
    /// Replaces `items` by the next ones; false at the end.
    fn fill(&mut self, names: &mut Names, items: &mut Vec<Item>) -> bool;
}

impl Stream for CpuStream {
    fn fill(&mut self, names: &mut Names, items: &mut Vec<Item>) -> bool {
        CpuStream::fill(self, names, items)
    }
}

/// Who takes the events.
pub(crate) trait Sink {
    /// There is a gap up to `to` (`u64::MAX`: to the end), and it starts no later than the next event's key. Told as
    /// soon as the event before it has been taken.
    fn gap_known(&mut self, to: u64);
    /// Every event and gap that starts before this moment is known: keys go up from here.
    fn advance(&mut self);
    /// The next event.
    fn event(&mut self, event: &Event, names: &Names);
    /// A gap has ended here, in the order of ends.
    fn gap(&mut self, _from: u64, _gap: &Gap) {}
}

/// What the merge itself learns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    /// Key of the first event taken.
    pub(crate) first: Option<u64>,
    /// Key of the last event taken.
    pub(crate) last: Option<u64>,
    /// Events taken.
    pub(crate) events: u64,
    /// Sequence numbers missing.
    pub(crate) missing: u64,
    /// Runs of missing sequence numbers.
    pub(crate) holes: u64,
}

struct Head<'a, S> {
    stream: &'a mut S,
    items: Vec<Item>,
    at: usize,
    /// Items before this one have been looked at for gaps.
    announced: usize,
}

impl<S: Stream> Head<'_, S> {
    /// Makes the next event, and the gaps before it, known. False at the end of the stream.
    fn look_ahead(&mut self, names: &mut Names, sink: &mut impl Sink) -> bool {
        if self.at == self.items.len() {
            self.at = 0;
            self.announced = 0;
            if !self.stream.fill(names, &mut self.items) {
                self.items.clear();
                return false;
            }
        }
        self.announced = self.announced.max(self.at);
        loop {
            while let Some(Item::Gap(gap)) = self.items.get(self.announced) {
                sink.gap_known(gap.to.unwrap_or(u64::MAX));
                self.announced += 1;
            }
            if self.announced < self.items.len() {
                return true;
            }
            let mut more = Vec::new();
            if !self.stream.fill(names, &mut more) {
                return true;
            }
            self.items.append(&mut more);
        }
    }

    fn key(&self) -> u64 {
        match self.items.get(self.at) {
            Some(Item::Event(event)) => event.at,
            Some(Item::Gap(gap)) => gap.to.unwrap_or(u64::MAX),
            None => u64::MAX,
        }
    }

    fn first_event(&self) -> Option<u64> {
        self.items.iter().find_map(|item| match item {
            Item::Event(event) => Some(event.at),
            Item::Gap(_) => None,
        })
    }
}

/// Hands all events within `window` (both ends included) to `sink`; the streams are in the order of their CPUs.
pub(crate) fn merge<S: Stream>(
    streams: &mut [S],
    names: &mut Names,
    order: OrderKey,
    window: impl FnOnce(u64) -> (u64, u64),
    sink: &mut impl Sink,
) -> Order {
    let mut heads: Vec<Head<'_, S>> =
        streams.iter_mut().map(|stream| Head { stream, items: Vec::new(), at: 0, announced: 0 }).collect();
    let mut queue = BinaryHeap::new();
    for (index, head) in heads.iter_mut().enumerate() {
        if head.look_ahead(names, sink) {
            queue.push(Reverse((head.key(), index)));
        }
    }
    let trace_first = heads.iter().filter_map(Head::first_event).min().unwrap_or(0);
    let (from, to) = window(trace_first);
    let mut merged = Order::default();
    let mut key = None;
    while let Some(Reverse((_, index))) = queue.pop() {
        let Some(head) = heads.get_mut(index) else { break };
        // This CPU goes on as long as it is the first: mostly for many events.
        let limit = queue.peek().map(|&Reverse(next)| next);
        loop {
            match head.items.get(head.at) {
                Some(Item::Event(event)) => {
                    if let Some(last) = key.filter(|&last| last < event.at) {
                        if order == OrderKey::Sequence && event.at - last > 1 {
                            merged.holes += 1;
                            merged.missing = merged.missing.saturating_add(event.at - last - 1);
                            let lost = Some(event.at - last - 1);
                            let (cpu, cause) = (event.cpu, GapCause::Sequence);
                            sink.gap_known(event.at);
                            sink.gap(last, &Gap { from: Some(last), to: Some(event.at), cpu, lost, cause });
                        }
                        sink.advance();
                    }
                    key = Some(event.at);
                    if (from..=to).contains(&event.at) {
                        merged.first.get_or_insert(event.at);
                        merged.last = Some(event.at);
                        merged.events += 1;
                        sink.event(event, names);
                    }
                }
                Some(Item::Gap(gap)) => sink.gap(gap.from.unwrap_or(trace_first.max(from)), gap),
                None => break,
            }
            head.at += 1;
            if head.at >= head.announced && !head.look_ahead(names, sink) || head.at == head.items.len() {
                break;
            }
            let next = (head.key(), index);
            if limit.is_some_and(|limit| next > limit) {
                queue.push(Reverse(next));
                break;
            }
        }
    }
    sink.advance();
    merged
}
