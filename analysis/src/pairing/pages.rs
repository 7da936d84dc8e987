//! Pairing of pages one by one: allocations and frees of frames, by the contract's section on pages.
//!
//! Objects are allocations. A free takes its frames off whichever allocations hold them, an allocation those that are still live
//! under older ones: their free was not seen. An object ends with its last page.

use kmemtrace_abi::clock::Agreement;
use kmemtrace_abi::event::Kind;

use crate::account::classes::{Class, is_selected, origin_of_unselected};
use crate::account::tally::Closed;
use crate::order::pair_event::PairEvent;
use crate::pairing::blocks::BlockState;
use crate::pairing::fate::{Ended, Fate};
use crate::pairing::findings::{Finding, FindingKey};
use crate::pairing::frames::{Before, FrameBefore, FrameRange, Hit, Off};
use crate::pairing::loss::Suspicion;
use crate::pairing::pairs::{Number, Pairing, PairingSink};
use crate::pairing::result::{Live, LivePages};
use crate::pairing::slot::SlotState;

/// Frames of an event, which has its order in place of its bytes.
#[inline(always)]
fn range(event: &PairEvent) -> FrameRange {
    FrameRange::new(event.address, event.allocated as u8)
}

impl Pairing<'_> {
    #[inline(always)]
    fn bytes(&self, pages: u32) -> u64 {
        self.options.page_bytes.unwrap_or(0).saturating_mul(pages.into())
    }

    /// Bytes of the frames of an event.
    pub(super) fn bytes_of(&self, event: &PairEvent) -> u64 {
        self.bytes(range(event).pages)
    }

    #[inline(always)]
    pub(super) fn alloc_frames<S: PairingSink>(&mut self, event: &PairEvent, number: Number, sink: &mut S) {
        let range = range(event);
        let class = is_selected(event.class).then(|| self.tallies.open_pages(event.class, range.pages));
        let state = SlotState::alloc(event.class, false, event.stream, self.loss.now());
        if event.allocated == 0 && !self.frames.has_blocks_alone() {
            if let FrameBefore::Live(word) = self.frames.alloc_page(range.first, state) {
                self.hits.push(Hit::of(word));
                self.take_hits(true, event, number, sink);
            }
            return self.opened(class, range, number, sink);
        }
        let alloc_info = self.alloc_info(event, number, sink);
        self.frames.alloc(range, state, alloc_info, &mut self.hits);
        if !self.hits.is_empty() {
            self.take_hits(true, event, number, sink);
        }
        self.opened(class, range, number, sink);
    }

    /// Tells of the pages of an allocation, or counts one that the filters do not take.
    #[inline]
    fn opened<S: PairingSink>(&mut self, class: Option<Class>, range: FrameRange, number: Number, sink: &mut S) {
        match class {
            Some(class) => sink.allocated(number, &class, self.bytes(range.pages)),
            None => self.counts.unselected_allocs += 1,
        }
    }

    #[inline(always)]
    pub(super) fn free_frames<S: PairingSink>(&mut self, event: &PairEvent, number: Number, sink: &mut S) {
        let range = range(event);
        if range.pages == 1 {
            return self.free_page(range.first, event, number, sink);
        }
        let before = self.frames.free(range, &mut self.hits);
        if self.hits.is_empty() {
            return self.free_dead(before, event, number, sink);
        }
        if self.take_hits(false, event, number, sink) {
            self.counts.page_pairs += 1;
            self.count_dead(before, event);
        }
    }

    /// Frees a single page.
    #[inline]
    fn free_page<S: PairingSink>(&mut self, frame: u64, event: &PairEvent, number: Number, sink: &mut S) {
        let (seen, unseen) = match self.frames.free_page(frame) {
            FrameBefore::Live(word) => {
                let is_taken = match self.frames.take_page(word) {
                    true => self.take_singles((word, 1), false, event, number, sink),
                    false => {
                        self.hits.push(Hit::of(word));
                        self.take_hits(false, event, number, sink)
                    }
                };
                if is_taken {
                    self.counts.page_pairs += 1;
                    self.count_free(event.kind, event);
                }
                return;
            }
            FrameBefore::Seen => (1, 0),
            FrameBefore::Unseen => (0, 1),
        };
        self.free_dead(Before { live: 0, seen, unseen }, event, number, sink);
    }

    /// Counts a free event, and its pages that were not live.
    #[inline(always)]
    fn count_dead(&mut self, before: Before, event: &PairEvent) {
        self.count_free(event.kind, event);
        self.counts.free_pages_without_alloc += u64::from(before.unseen);
        self.counts.free_pages_after_free += u64::from(before.seen);
    }

    /// Counts a free event none of whose pages is live.
    fn free_dead<S: PairingSink>(&mut self, before: Before, event: &PairEvent, number: Number, sink: &mut S) {
        let is_new = before.seen == 0;
        self.counts.all_without_alloc += u64::from(is_new);
        if !is_selected(event.class) {
            return;
        }
        self.count_dead(before, event);
        if is_new {
            self.counts.free_without_alloc[Kind::Pages] += 1;
            if S::FATES {
                sink.alone(Fate::FreeWithoutAlloc, event, number, None);
            }
            return;
        }
        // A frame keeps one bit: its event before may be any since the first.
        let suspicion = match self.options.agreement {
            Agreement::AllCpus => self.loss.explains_since_the_first(event.at),
            Agreement::OneCpu | Agreement::Nothing => Suspicion::Suspect,
        };
        let free_site = Some(event.requested);
        let key = FindingKey { class: Finding::FreeAfterFree, alloc: None, free_site, kind: Kind::Pages };
        self.finding(key, event, number, suspicion);
        if S::FATES {
            sink.alone(Fate::FreeAfterFree, event, number, Some(suspicion));
        }
    }

    /// Takes the frames of the event's hits off their allocations, inferred to be free or freed; true where the filters take one
    /// of these.
    fn take_hits<S: PairingSink>(&mut self, inferred: bool, event: &PairEvent, number: Number, sink: &mut S) -> bool {
        let mut hits = std::mem::take(&mut self.hits);
        let freed_in = (!inferred).then_some(event.stream);
        let mut any = false;
        for hit in &hits {
            match self.frames.take_off(*hit, freed_in) {
                Some(Off::Singles(state)) => {
                    any |= self.take_singles((state, hit.pages), inferred, event, number, sink)
                }
                Some(Off::Block(block)) => any |= self.take_part_of((block, hit.pages), inferred, event, number, sink),
                None => {}
            }
        }
        if !inferred {
            self.count_parts(&hits);
        }
        hits.clear();
        self.hits = hits;
        any
    }

    /// Counts a free event that has left parts of allocations, in each of their rows.
    #[inline(always)]
    fn count_parts(&mut self, hits: &[Hit]) {
        // Rare: mostly an event frees all that an allocation has left.
        if hits.iter().any(|hit| self.frames.is_left(*hit)) {
            self.count_left_parts(hits);
        }
    }

    #[cold]
    fn count_left_parts(&mut self, hits: &[Hit]) {
        let left = hits.iter().filter_map(|hit| self.frames.left_state(*hit));
        let classes: Vec<u32> = left.map(SlotState::class).filter(|class| is_selected(*class)).collect();
        let mut rows: Vec<u32> = classes.into_iter().map(|class| self.tallies.class(class).row).collect();
        rows.sort_unstable();
        rows.dedup();
        self.counts.partial_frees += u64::from(!rows.is_empty());
        rows.into_iter().for_each(|row| self.tallies.leave_part(row));
    }

    /// End of pages of an allocation with an event.
    #[inline(always)]
    fn how(state: SlotState, inferred: bool, event: &PairEvent) -> Closed {
        match inferred {
            true => Closed::Inferred,
            false if state.stream() != event.stream => Closed::FreedElsewhere,
            false => Closed::Freed,
        }
    }

    /// Ends single pages of like allocations.
    #[inline]
    fn take_singles<S: PairingSink>(
        &mut self,
        (state, pages): (SlotState, u32),
        inferred: bool,
        event: &PairEvent,
        number: Number,
        sink: &mut S,
    ) -> bool {
        let how = Self::how(state, inferred, event);
        let class = is_selected(state.class()).then(|| {
            let class = self.tallies.take_pages(state.class(), pages, how);
            sink.freed(number, &class, self.bytes(pages));
            self.tallies.close_blocks(state.class(), pages, how);
            class
        });
        if inferred {
            (0..pages).for_each(|_| self.infer_block(class, state, event, number));
        } else if class.is_some() {
            self.count_pairs(state, pages, event);
        }
        class.is_some()
    }

    /// Takes pages off a block, which may end with them.
    #[inline(always)]
    fn take_part_of<S: PairingSink>(
        &mut self,
        (block, pages): (BlockState, u32),
        inferred: bool,
        event: &PairEvent,
        number: Number,
        sink: &mut S,
    ) -> bool {
        let BlockState { state, left, is_inferred, .. } = block;
        let class = is_selected(state.class()).then(|| {
            let class = self.tallies.take_pages(state.class(), pages, Self::how(state, inferred, event));
            sink.freed(number, &class, self.bytes(pages));
            if S::FATES {
                sink.part_freed(&class, &block.alloc_info, self.bytes(block.pages), self.bytes(pages));
            }
            class
        });
        if left > 0 {
            return class.is_some();
        }
        if let Some(class) = class {
            self.tallies.close_blocks(state.class(), 1, Self::how(state, is_inferred, event));
            if S::FATES {
                self.end_block(&block, class, event, number, sink);
            }
        }
        if is_inferred {
            self.infer_block(class, state, event, number);
        } else if class.is_some() {
            self.count_pairs(state, 1, event);
        }
        class.is_some()
    }

    /// Counts pairs that a free has made of like allocations.
    #[inline(always)]
    fn count_pairs(&mut self, state: SlotState, pairs: u32, event: &PairEvent) {
        if state.stream() != event.stream {
            (0..pairs).for_each(|_| self.count_cpus(state.stream(), event.stream, Kind::Pages));
        } else if let Some(own_pairs) = self.own_pairs.get_mut(usize::from(event.stream)) {
            *own_pairs += u64::from(pairs);
        }
    }

    /// Counts an object that has ended with an inferred page.
    #[inline(never)]
    fn infer_block(&mut self, class: Option<Class>, state: SlotState, event: &PairEvent, number: Number) {
        self.counts.all_inferred += 1;
        let origin = class.map(|class| class.origin).or_else(|| origin_of_unselected(state.class()));
        if let Some(origin) = origin {
            self.count_inferred((origin, Kind::Pages), state, event, number);
        }
    }

    /// Hands over a block whose last page is gone.
    fn end_block<S: PairingSink>(
        &mut self,
        block: &BlockState,
        class: Class,
        event: &PairEvent,
        number: Number,
        sink: &mut S,
    ) {
        let (of, fate) = match block.is_inferred {
            true => (Finding::InferredFree, Fate::Inferred),
            false => (Finding::KindMismatch, Fate::Pair),
        };
        let suspicion = self.suspicion(of, event, block.state);
        let bytes = self.bytes(block.pages);
        let ended = Ended {
            address: block.first,
            pages: Some(pages_of(block).into()),
            info: block.alloc_info,
            stream: block.state.stream(),
            class,
            sizes: (bytes, bytes),
        };
        sink.ended(&ended, fate, event, number, suspicion);
    }

    /// Moves the allocations that have live pages, and that the filters take, to the list, in no order. One that is live in part
    /// adds a class with the sizes of that part.
    pub(super) fn list_blocks(&mut self, list: &mut Vec<Live>, classes: &mut Vec<Class>) {
        let (cpus, page_bytes) = (&self.options.cpus, self.options.page_bytes.unwrap_or(0));
        self.frames.drain_live(|block| {
            let mut class = block.state.class();
            let Some(&of) = classes.get(class as usize).filter(|_| is_selected(class)) else { return };
            let bytes = page_bytes.saturating_mul(block.left.into());
            if !of.is_sized || (of.requested, of.allocated) != (bytes, bytes) {
                // 2^32 classes do not fit in memory, so this never saturates.
                class = u32::try_from(classes.len()).unwrap_or(u32::MAX);
                classes.push(Class { is_sized: true, requested: bytes, allocated: bytes, ..of });
            }
            let cpu = cpus.get(usize::from(block.state.stream())).copied().unwrap_or(0);
            let (address, alloc_info) = (block.first, block.alloc_info);
            list.push(Live { address, alloc_info, class, cpu, pages: Some(pages_of(&block)) });
        });
    }
}

/// Pages of a block as lists have them.
fn pages_of(block: &BlockState) -> LivePages {
    LivePages { allocated: block.pages, live: block.left, inferred: block.inferred, crossed: block.crossed }
}
