//! Caches in the texts of `/proc/slabinfo` that a trace keeps, and how far its events explain their change.
//!
//! The texts are hostile: lines that are none are skipped, and numbers saturate.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Largest length of a cache's name, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Word before the numbers of slabs.
const SLABDATA: &[u8] = b" slabdata ";
/// Largest number of caches that are kept. Kernels have some hundreds.
const MAX_CACHES: usize = 1 << 16;

/// Cache as a line of `/proc/slabinfo` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabCache {
    /// Name of the cache, any bytes.
    pub name: Box<[u8]>,
    /// Objects in use. SLUB counts all objects of the slabs that a CPU holds as used, so the number is too large by up to
    /// some slabs for each CPU, and differs from look to look where nothing was allocated.
    pub active_objects: u64,
    /// Objects in use and free.
    pub objects: u64,
    /// Bytes of an object, with all that the allocator adds to it.
    pub object_bytes: u64,
    /// Objects in a slab.
    pub objects_per_slab: u64,
    /// Pages of a slab.
    pub pages_per_slab: u64,
    /// Slabs; where the line does not say, as many as the objects fill.
    pub slabs: u64,
    /// Slabs with objects in use; `None` where the line does not say. SLUB counts all slabs.
    pub active_slabs: Option<u64>,
}

impl SlabCache {
    /// Bytes of the objects in use; as inexact as their number.
    pub fn active_bytes(&self) -> u64 {
        self.active_objects.saturating_mul(self.object_bytes)
    }

    /// Pages of all slabs.
    pub fn pages(&self) -> u64 {
        self.slabs.saturating_mul(self.pages_per_slab)
    }

    /// Parses `NAME ACTIVE OBJECTS SIZE PER_SLAB PAGES : tunables … : slabdata ACTIVE SLABS …`; old kernels have names with blanks.
    fn parse(line: &[u8]) -> Option<SlabCache> {
        let figures = line.windows(3).position(|three| three == b" : ").and_then(|end| line.get(..end)).unwrap_or(line);
        let mut rest = figures.trim_ascii();
        let mut numbers = [0u64; 5];
        for number in numbers.iter_mut().rev() {
            let mut words = rest.rsplitn(2, u8::is_ascii_whitespace);
            *number = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
            rest = words.next()?.trim_ascii_end();
        }
        let [active_objects, objects, object_bytes, objects_per_slab, pages_per_slab] = numbers;
        let slabdata = line.windows(SLABDATA.len()).position(|word| word == SLABDATA);
        let told = slabdata.and_then(|at| {
            let rest = line.get(at..)?.strip_prefix(SLABDATA)?;
            let words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let mut numbers = words.map(|word| std::str::from_utf8(word).ok()?.parse::<u64>().ok());
            Some((numbers.next()?, numbers.next()??))
        });
        let slabs = told.map_or_else(|| objects.div_ceil(objects_per_slab.max(1)), |(_, slabs)| slabs);
        let is_name = (1..=MAX_NAME_BYTES).contains(&rest.len()) && !rest.starts_with(b"#");
        let name = rest.into();
        is_name.then_some(SlabCache {
            name,
            active_objects,
            objects,
            object_bytes,
            objects_per_slab,
            pages_per_slab,
            slabs,
            active_slabs: told.and_then(|(active, _)| active),
        })
    }
}

/// Caches of a kernel at one moment.
#[derive(Clone, Debug, Default)]
pub struct Slabinfo {
    /// In the order of the text.
    caches: Vec<SlabCache>,
    by_name: HashMap<Box<[u8]>, usize>,
}

impl Slabinfo {
    /// Parses the text of `/proc/slabinfo`, version 2.0 or 2.1. Empty where the text is empty or of another version.
    ///
    /// Objects of several caches with one name and one size of objects are added up; of two sizes, the first one's count.
    pub fn parse(text: &[u8]) -> Slabinfo {
        let mut slabinfo = Slabinfo::default();
        let mut lines = text.split(|&byte| byte == b'\n');
        if !lines.next().is_some_and(|line| line.starts_with(b"slabinfo - version: 2.")) {
            return slabinfo;
        }
        for cache in lines.filter_map(SlabCache::parse) {
            let next = slabinfo.caches.len();
            match slabinfo.by_name.entry(cache.name.clone()) {
                Entry::Vacant(place) if next < MAX_CACHES => {
                    place.insert(next);
                    slabinfo.caches.push(cache);
                }
                Entry::Vacant(_) => break,
                Entry::Occupied(place) => {
                    let Some(first) = slabinfo.caches.get_mut(*place.get()) else { continue };
                    if first.object_bytes == cache.object_bytes {
                        first.active_objects = first.active_objects.saturating_add(cache.active_objects);
                        first.objects = first.objects.saturating_add(cache.objects);
                        first.slabs = first.slabs.saturating_add(cache.slabs);
                        let active = first.active_slabs.zip(cache.active_slabs);
                        first.active_slabs = active.map(|(first, more)| first.saturating_add(more));
                    }
                }
            }
        }
        slabinfo
    }

    /// The caches, in the order of the text.
    pub fn caches(&self) -> &[SlabCache] {
        &self.caches
    }

    /// The cache of this name.
    pub fn find(&self, name: &[u8]) -> Option<&SlabCache> {
        self.caches.get(*self.by_name.get(name)?)
    }

    /// True where the trace has no such text, or one that cannot be read.
    pub fn is_empty(&self) -> bool {
        self.caches.is_empty()
    }
}

/// Change of one cache over a recording, as slabinfo and as the events have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheChange {
    /// Objects in use at the start, as [`SlabCache::active_objects`] counts them.
    pub objects_start: u64,
    /// Objects in use at the end.
    pub objects_end: u64,
    /// Objects in use at the end less those at the start.
    pub change: i64,
    /// Bytes of the objects in use at the end less those at the start.
    pub bytes_change: i64,
    /// Objects that the events of the recording allocated less those that they freed.
    pub events_change: i64,
    /// Share of the change that slabinfo and the events have in common, in percent, rounded down: the smaller of both changes
    /// in the larger one.
    ///
    /// 100 where the changes are equal, 0 where one of them is none or where they have different signs. Less than 100 means
    /// objects that were allocated or freed on paths without events, or lost events, or slabs that CPUs hold: a change
    /// of a few objects says little. `None` where nothing changed on either side.
    pub visibility_percent: Option<u8>,
}

impl CacheChange {
    /// The change of the cache `name` between two texts. `events_change` is the number of its allocations less that of its
    /// frees, inferred ones included; frees of objects older than the recording count where the caller can tell their cache.
    ///
    /// A cache that only one of the texts has was made or removed meanwhile, and has 0 objects in the other. `None` where neither
    /// text has it, as for a cache that the kernel merged with one of another name, and where one of the texts is empty.
    pub fn of(start: &Slabinfo, end: &Slabinfo, name: &[u8], events_change: i64) -> Option<CacheChange> {
        if start.is_empty() || end.is_empty() {
            return None;
        }
        let (before, after) = (start.find(name), end.find(name));
        before.or(after)?;
        let objects = |cache: Option<&SlabCache>| cache.map_or(0, |cache| cache.active_objects);
        let bytes = |cache: Option<&SlabCache>| cache.map_or(0, SlabCache::active_bytes);
        let change = difference(objects(before), objects(after));
        Some(CacheChange {
            objects_start: objects(before),
            objects_end: objects(after),
            change,
            bytes_change: difference(bytes(before), bytes(after)),
            events_change,
            visibility_percent: visibility(change, events_change),
        })
    }
}

/// `after` less `before`, saturated.
fn difference(before: u64, after: u64) -> i64 {
    let distance = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
    if after >= before { distance } else { distance.saturating_neg() }
}

/// Share of two changes that they have in common; see [`CacheChange::visibility_percent`].
fn visibility(change: i64, events_change: i64) -> Option<u8> {
    let (least, greatest) = (
        change.unsigned_abs().min(events_change.unsigned_abs()),
        change.unsigned_abs().max(events_change.unsigned_abs()),
    );
    if change.signum() != events_change.signum() {
        return Some(0);
    }
    let percent = u128::from(least).saturating_mul(100).checked_div(greatest.into())?;
    u8::try_from(percent).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>
ext4_inode_cache  184786 184790   1128   14    4 : tunables    0    0    0 : slabdata  13199  13199      0
kmalloc-1k           123    176   1024   16    4 : tunables    0    0    0 : slabdata     11     11      0
";

    fn cache(name: &str, numbers: [u64; 6]) -> SlabCache {
        let [active_objects, objects, object_bytes, objects_per_slab, pages_per_slab, slabs] = numbers;
        let name = name.as_bytes().into();
        let active_slabs = None;
        SlabCache { name, active_objects, objects, object_bytes, objects_per_slab, pages_per_slab, slabs, active_slabs }
    }

    /// The cache with so many slabs that have objects in use.
    fn with_active(slabs: u64, cache: SlabCache) -> SlabCache {
        SlabCache { active_slabs: Some(slabs), ..cache }
    }

    /// A text with these lines below the first.
    fn text(lines: &str) -> Slabinfo {
        Slabinfo::parse(format!("slabinfo - version: 2.0\n{lines}").as_bytes())
    }

    #[test]
    fn a_line_has_a_cache() {
        let slabinfo = Slabinfo::parse(TEXT);
        let expected = [
            with_active(13_199, cache("ext4_inode_cache", [184_786, 184_790, 1128, 14, 4, 13_199])),
            with_active(11, cache("kmalloc-1k", [123, 176, 1024, 16, 4, 11])),
        ];
        assert_eq!(slabinfo.caches(), expected);
        assert_eq!(slabinfo.find(b"kmalloc-1k"), Some(&expected[1]));
        assert_eq!((expected[1].active_bytes(), slabinfo.find(b"kmalloc-2k")), (125_952, None));
        // A text may end in the middle of a line, and old kernels have names with blanks.
        let old = text("fuse inode 1 2 3 4 5 : tunables 120 60 8 : slabdata 6 7 0 : globalstat 1 2\nhalf 1 2 3");
        assert_eq!(old.caches(), [with_active(6, cache("fuse inode", [1, 2, 3, 4, 5, 7]))]);
    }

    #[test]
    fn garbage_is_skipped() {
        let good = "a 1 2 3 4 5\n";
        let long = format!("{} 1 2 3 4 5\n", "n".repeat(257));
        let lines = ["", " 1 2 3 4 5", "x 1 2 3 4 -5", "x 1 2 3 4 99999999999999999999", "# 1 2 3 4 5", " : ", "\u{1}"];
        let slabinfo = text(&format!("{long}{}\n{good}", lines.join("\n")));
        assert_eq!(slabinfo.caches(), [cache("a", [1, 2, 3, 4, 5, 1])]);
        for other in [&b""[..], b"slabinfo - version: 1.1\na 1 2 3 4 5\n", b"a 1 2 3 4 5\n", b"\xff\xfe"] {
            assert!(Slabinfo::parse(other).is_empty());
        }
        let many: String = (0..MAX_CACHES + 9).map(|n| format!("c{n} 1 2 3 4 5\n")).collect();
        assert_eq!(text(&many).caches().len(), MAX_CACHES);
    }

    #[test]
    fn caches_of_one_name_add_up() {
        let twice =
            text("a 1 2 64 4 5\nb 7 7 8 1 1\na 10 20 64 4 5\na 100 200 128 4 5\na 18446744073709551615 1 64 4 5\n");
        assert_eq!(twice.find(b"a"), Some(&cache("a", [u64::MAX, 23, 64, 4, 5, 7])));
        assert_eq!(twice.find(b"a").map(SlabCache::active_bytes), Some(u64::MAX));
        assert_eq!(twice.caches().len(), 2);
    }

    #[test]
    fn changes_are_compared_with_those_of_the_events() {
        let start = text("dentry 1000 2000 192 21 1\ngone 5 5 8 1 1\nidle 3 3 8 1 1\nhuge 0 0 1 1 1\n");
        let end =
            text("dentry 1500 2000 192 21 1\nnew 7 7 16 1 1\nidle 3 3 8 1 1\nhuge 18446744073709551615 0 1 1 1\n");
        let change = |name: &str, events| CacheChange::of(&start, &end, name.as_bytes(), events);
        let dentry = CacheChange {
            objects_start: 1000,
            objects_end: 1500,
            change: 500,
            bytes_change: 500 * 192,
            events_change: 400,
            visibility_percent: Some(80),
        };
        assert_eq!(change("dentry", 400), Some(dentry));
        for (name, events, objects, visible) in [
            ("dentry", 500, 500, Some(100)),
            ("dentry", 499, 500, Some(99)),
            ("dentry", 1000, 500, Some(50)),
            ("dentry", 0, 500, Some(0)),
            ("dentry", -500, 500, Some(0)),
            ("gone", -4, -5, Some(80)),
            ("new", 7, 7, Some(100)),
            ("idle", 0, 0, None),
            ("idle", 3, 0, Some(0)),
            ("huge", i64::MAX, i64::MAX, Some(100)),
            ("huge", i64::MIN, i64::MAX, Some(0)),
        ] {
            let found = change(name, events).map(|change| (change.change, change.visibility_percent));
            assert_eq!(found, Some((objects, visible)), "{name} {events}");
        }
        assert_eq!(change("merged", 9), None);
        assert_eq!(CacheChange::of(&start, &Slabinfo::default(), b"dentry", 9), None);
        assert_eq!(CacheChange::of(&Slabinfo::default(), &end, b"dentry", 9), None);
    }
}
