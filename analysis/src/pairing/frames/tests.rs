use std::collections::{BTreeMap, BTreeSet};

use kmemtrace_tests::generate::Random;

use super::*;

/// A frame's state as counts, and its word as a hit.
fn before_of(before: FrameBefore, hits: &mut Vec<Hit>) -> Before {
    match before {
        FrameBefore::Live(word) => {
            hits.push(Hit::of(word));
            Before { live: 1, ..Before::default() }
        }
        FrameBefore::Seen => Before { seen: 1, ..Before::default() },
        FrameBefore::Unseen => Before { unseen: 1, ..Before::default() },
    }
}

impl FrameTable {
    /// An allocation, as the pairing hands it over: a single page, or a block.
    fn alloc_any(&mut self, range: FrameRange, state: SlotState, info: AllocInfo, hits: &mut Vec<Hit>) -> Before {
        if range.order == 0 && !self.has_blocks_alone() {
            return before_of(self.alloc_page(range.first, state), hits);
        }
        self.alloc(range, state, info, hits)
    }

    /// A free, as the pairing hands it over.
    fn free_any(&mut self, range: FrameRange, hits: &mut Vec<Hit>) -> Before {
        if range.pages == 1 {
            return before_of(self.free_page(range.first), hits);
        }
        self.free(range, hits)
    }
}

/// Frames one by one: the allocation that each is live under, and all that were seen.
#[derive(Default)]
struct Plain {
    live: BTreeMap<u64, u32>,
    seen: BTreeSet<u64>,
    /// Pages left of each allocation, and pages inferred to be free.
    left: BTreeMap<u32, (u32, u32)>,
}

impl Plain {
    fn record(&mut self, first: u64, pages: u64, now: Option<u32>) -> (Before, BTreeMap<u32, u32>) {
        let (mut before, mut hits) = (Before::default(), BTreeMap::new());
        for frame in first..first + pages {
            match (self.live.remove(&frame), self.seen.insert(frame)) {
                (Some(of), _) => {
                    before.live += 1;
                    *hits.entry(of).or_insert(0) += 1;
                }
                (None, true) => before.unseen += 1,
                (None, false) => before.seen += 1,
            }
            if let Some(now) = now {
                self.live.insert(frame, now);
            }
        }
        for (of, pages) in &hits {
            let (left, inferred) = self.left.get_mut(of).unwrap();
            *left -= pages;
            *inferred += if now.is_some() { *pages } else { 0 };
        }
        if let Some(now) = now {
            self.left.insert(now, (pages as u32, 0));
        }
        (before, hits)
    }
}

/// Blocks of all orders, parts of them and several at once, in few and in many frames, against a map of frames. Allocations are
/// told apart by the class of their state.
#[test]
fn frames_are_those_of_a_map() {
    for seed in 0..80u64 {
        let mut random = Random::new(seed);
        let keeps_infos = seed % 4 == 0;
        let (mut table, mut plain, mut hits) = (FrameTable::new(keeps_infos), Plain::default(), Vec::new());
        let max_order = *random.pick(&[0, 0, 1, 4, 9, 13]);
        let frames = 1u64 << *random.pick(&[6, 9, 12, 15]);
        let base = *random.pick(&[0, 0x1234_5600_0000, (1 << 50) - (1 << 24)]);
        // Single pages share so many classes, and some of them or all do.
        let (mut shared, shares) = (*random.pick(&[1, 1, 2, 3, 9, 20]), *random.pick(&[60, 100]));
        let regions = *random.pick(&[1, 3]);
        let mut kinds = 0;
        for step in 0..2400u32 {
            if step == 900 {
                shared = *random.pick(&[1, 2, 3, 9, 20]);
            }
            // In the end single pages go, so that chunks have few frames again.
            let max_order = if step < 1800 { max_order } else { 0 };
            let order = random.below(max_order + 1).min(random.below(max_order + 1)) as u8;
            // Regions far from each other that have one place among the recent ones.
            let far = random.below(regions) * (RECENT * REGION) as u64;
            let first = base + far + (random.below(frames) >> order << order);
            let range = FrameRange::new(first, order);
            // More and more frames, then fewer.
            let allocates = random.chance(if step < 1200 {
                70
            } else if step < 1800 {
                30
            } else {
                10
            });
            let is_like = allocates && order == 0 && !keeps_infos && random.chance(shares);
            kinds += u32::from(!is_like);
            let class = if is_like { (u32::MAX >> 4) - random.below(shared) as u32 } else { kinds };
            let state = SlotState::alloc(class, false, 3, LossEpoch::FIRST);
            hits.clear();
            let info = AllocInfo { at: step.into(), tie: step, pid: 7 };
            let before = if allocates {
                table.alloc_any(range, state, info, &mut hits)
            } else {
                table.free_any(range, &mut hits)
            };
            if let Some((left, _)) = plain.left.get_mut(&class).filter(|_| is_like) {
                *left += 1;
            }
            let like = plain.left.get(&class).copied().filter(|_| is_like);
            let (expected, expected_hits) = plain.record(first, 1 << order, allocates.then_some(class));
            if let Some((left, inferred)) = like {
                let hit = expected_hits.get(&class).copied().unwrap_or(0);
                plain.left.insert(class, (left - hit, inferred + hit));
            }
            assert_eq!(before, expected, "seed {seed}, step {step}");
            let mut taken = BTreeMap::new();
            for hit in hits.clone() {
                let off = table.take_off(hit, (!allocates).then_some(3)).unwrap();
                let class = match off {
                    Off::Singles(state) => state.class(),
                    Off::Block(block) => block.state.class(),
                };
                *taken.entry(class).or_insert(0) += hit.pages;
                if let Off::Block(block) = off {
                    let (left, inferred) = plain.left[&class];
                    assert!(block.left >= left, "seed {seed}, step {step}");
                    assert!(!keeps_infos || block.inferred <= inferred, "seed {seed}, step {step}");
                    assert_eq!(table.is_left(hit), block.left > 0);
                }
            }
            assert_eq!(taken, expected_hits, "seed {seed}, step {step}");
        }
        if keeps_infos {
            assert_listed(table, &plain, seed);
        }
    }
}

/// The table lists the allocations that have live pages.
fn assert_listed(mut table: FrameTable, plain: &Plain, seed: u64) {
    let live = plain.left.values().filter(|(left, _)| *left > 0).count();
    assert_eq!(table.live_objects(), live, "seed {seed}");
    let mut listed = 0;
    table.drain_live(|block| {
        listed += 1;
        assert_eq!((block.left, block.inferred), plain.left[&block.state.class()], "seed {seed}");
        assert_eq!(block.is_inferred, block.inferred > 0);
    });
    assert_eq!(listed, live, "seed {seed}");
    assert_eq!((table.live_objects(), table.bytes()), (0, 0));
}

/// A frame of a touched region takes 8 bytes, live or not, and a region far away takes no more than one nearby.
#[test]
fn a_frame_of_a_touched_region_takes_eight_bytes() {
    for (order, blocks) in [(0, 1 << 16), (9, 1 << 7)] {
        let (mut table, mut hits) = (FrameTable::new(false), Vec::new());
        for first in (0..blocks).map(|number| number << order) {
            let state = SlotState::alloc(first as u32 & 0xff, false, 0, LossEpoch::FIRST);
            table.alloc_any(FrameRange::new(first, order), state, AllocInfo::default(), &mut hits);
        }
        let regions = (1 << 16) / REGION;
        let most = regions * (8 * REGION + KEY_BYTES) + RECENT * size_of::<Known>() + (16 << 10);
        assert!(table.bytes() <= most, "order {order}: {} bytes", table.bytes());
        table.free_any(FrameRange::new(u64::MAX >> 1, 0), &mut hits);
        table.free_any(FrameRange::new(u64::MAX, 0), &mut hits);
        assert!(table.bytes() <= most + 2 * (8 * REGION + KEY_BYTES), "order {order}: {} bytes", table.bytes());
        assert!(hits.is_empty());
    }
}

/// The table stops at its limit and says so.
#[test]
fn frames_grow_no_further_than_they_may() {
    for order in [0, 3, 16] {
        let (mut table, mut hits) = (FrameTable::new(true), Vec::new());
        table.set_max_bytes(1 << 20);
        let mut frame = 0;
        while !table.over_budget() {
            let state = SlotState::alloc(frame as u32 & 0xffff, false, 0, LossEpoch::FIRST);
            table.alloc_any(FrameRange::new(frame, order), state, AllocInfo::default(), &mut hits);
            frame += 1 << order;
            assert!(frame < 1 << 32, "no end");
        }
        assert!((900 << 10..1200 << 10).contains(&table.bytes()), "{} bytes", table.bytes());
    }
}

/// Epochs whose numbers come again are forgotten, also those of single pages that differ in nothing else.
#[test]
fn numbers_of_epochs_that_come_again_are_forgotten() {
    let (mut table, mut hits) = (FrameTable::new(false), Vec::new());
    let state = |class, epoch| SlotState::alloc(class, false, 0, epoch);
    let (first, second) = (LossEpoch::FIRST, LossEpoch::FIRST.next());
    for (frame, order, class, epoch) in [(0, 0, 0, first), (1, 0, 1, first), (2, 0, 1, second), (8, 3, 8, first)] {
        let range = FrameRange::new(frame, order);
        table.alloc_any(range, state(class, epoch), AllocInfo::default(), &mut hits);
    }
    table.begin_epoch(second);
    table.begin_epoch(first);
    // A page whose word is the one that those two have now comes, and one of the three goes.
    table.alloc_any(FrameRange::new(3, 0), state(1, LossEpoch::IN_GAP), AllocInfo::default(), &mut hits);
    assert_eq!(table.free_any(FrameRange::new(2, 0), &mut hits).live, 1);
    table.free_any(FrameRange::new(0, 4), &mut hits);
    let ends: Vec<_> = hits.into_iter().filter_map(|hit| Some((table.take_off(hit, Some(0))?, hit.pages))).collect();
    assert_eq!(ends.iter().map(|(_, pages)| pages).sum::<u32>(), 1 + 1 + 1 + 1 + 8);
    for (end, _) in ends {
        let (Off::Singles(state) | Off::Block(BlockState { state, .. })) = end;
        assert!(state.is_live() && !state.epoch().is_gapless_with(LossEpoch::FIRST));
    }
    assert_eq!(table.live_objects(), 0);
}
