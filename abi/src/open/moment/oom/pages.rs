//! Mem-Info: the block of counts of pages, lines of nodes and zones, free blocks, and sums behind them.

use super::super::entry::{Fact, Out};
use super::super::numbers::{MAX, first_word, is_digits, number, product, trimmed, words};
use crate::open::symbols::find;
use crate::text::split::split_once;

/// The block's first counter; kernels without lists of their own for files (before 2.6.28) have another.
const FIRST: &[u8] = b"active_anon:";
/// The block's last line has it.
const LAST: &[u8] = b"free";
/// Counters in kB on lines of nodes, which the block may lack, and their sum over nodes or zones.
const OF_NODES: [&[u8]; 4] = [b"kernel_stack", b"Balloon", b"gpu_active", b"gpu_reclaim"];
/// Limit of counters; a kernel has some 40.
const MAX_COUNTERS: usize = 1000;

/// True for the first line of the block of pages: `active_anon:10 inactive_anon:20 isolated_anon:0`.
pub(super) fn is_first(line: &[u8]) -> bool {
    trimmed(line).starts_with(FIRST) && is_of_block(line)
}

/// True for a line of counters `name:number`, without a unit.
fn is_of_block(line: &[u8]) -> bool {
    let is_name =
        |name: &[u8]| !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_counter =
        |word: &[u8]| split_once(word, b':').is_some_and(|(name, count)| is_name(name) && is_digits(count));
    words(line).count() > 0 && words(line).all(is_counter)
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Counts of pages; a number out of range is none.
    counts: Vec<(Box<[u8]>, Option<u64>)>,
    /// Bytes of lines of nodes and zones.
    bytes: Vec<(&'static [u8], Option<u64>)>,
    page_bytes: Option<u64>,
}

impl Pages {
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The block of pages is there up to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.counts.iter().any(|(name, _)| **name == *LAST)
    }

    /// Bytes of a page, as the first free block of a buddy line tells them.
    pub(super) fn page_bytes(&self) -> Option<u64> {
        self.page_bytes
    }

    /// Takes a line; false for one of another form.
    pub(super) fn take(&mut self, line: &[u8]) -> bool {
        let line = trimmed(line);
        if is_of_block(line) {
            for (name, count) in words(line).filter_map(|word| split_once(word, b':')) {
                self.add(name, number(count).ok());
            }
            return true;
        }
        self.take_sum(line) || self.take_buddies(line) || self.take_node(line)
    }

    /// A name that comes again is of another report, whose lines are between.
    fn add(&mut self, name: &[u8], count: Option<u64>) {
        if self.counts.len() < MAX_COUNTERS && !self.counts.iter().any(|(known, _)| **known == *name) {
            self.counts.push((name.into(), count));
        }
    }

    /// `524158 pages RAM`, `0 pages HighMem/MovableOnly`, `40 total pagecache pages`.
    fn take_sum(&mut self, line: &[u8]) -> bool {
        let (count, name) = first_word(line);
        let is_sum = name.starts_with(b"pages ") || name.starts_with(b"total pagecache pages");
        if !is_digits(count) || !is_sum || name.len() > 40 {
            return false;
        }
        self.add(name, number(count).ok());
        true
    }

    /// `Node 0 DMA: 3*4kB (UM) 2*8kB (U) … = 12kB`.
    fn take_buddies(&mut self, line: &[u8]) -> bool {
        let mut terms = words(line).filter_map(|word| {
            let (count, kib) = split_once(word, b'*')?;
            let kib = kib.strip_suffix(b"kB")?;
            is_digits(count).then(|| number(kib).ok())
        });
        let Some(first) = terms.next() else { return false };
        let is_page = |kib: &u64| kib.is_power_of_two() && (4..=256).contains(kib);
        if let Some(kib) = first.filter(is_page) {
            self.page_bytes.get_or_insert(kib << 10);
        }
        true
    }

    /// A line of a node or a zone: `Node 0 Normal free:12kB … kernel_stack:34kB …`.
    fn take_node(&mut self, line: &[u8]) -> bool {
        if find(line, b":").is_none()
            || find(line, b"kB").is_none()
            || find(line, b" active_anon:").is_none() && !is_zone(line)
        {
            return false;
        }
        for word in words(line) {
            let Some((name, value)) = split_once(word, b':') else { continue };
            let Some(name) = OF_NODES.into_iter().find(|known| *known == name) else { continue };
            let Some(kib) = value.strip_suffix(b"kB") else { continue };
            let bytes = number(kib).and_then(|kib| product(kib, 1024)).ok();
            match self.bytes.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.zip(bytes).and_then(|(a, b)| a.checked_add(b)).filter(|sum| *sum <= MAX),
                None => self.bytes.push((name, bytes)),
            }
        }
        true
    }

    /// Hands the counters over; the number of those that are out of range.
    pub(super) fn put(&self, page_bytes: u64, out: &mut dyn Out) -> usize {
        let of_pages = |count: &Option<u64>| count.and_then(|count| product(count, page_bytes).ok());
        let counts = self.counts.iter().map(|(name, count)| (&name[..], of_pages(count)));
        let is_in_block = |name: &[u8]| self.counts.iter().any(|(known, _)| **known == *name);
        let of_nodes = self.bytes.iter().filter(|(name, _)| !is_in_block(name)).copied();
        let mut skipped = 0_usize;
        if !self.counts.is_empty() {
            out.fact(Fact::CountsPages);
        }
        for (name, bytes) in counts.chain(of_nodes) {
            match bytes {
                Some(bytes) => out.fact(Fact::Counter(name, bytes)),
                None => skipped = skipped.saturating_add(1),
            }
        }
        skipped
    }
}

/// True for a line that begins with its zone, which kernels without NUMA print without the node.
fn is_zone(line: &[u8]) -> bool {
    let behind = if line.starts_with(b"Node ") { words(line).nth(3) } else { words(line).nth(1) };
    behind.is_some_and(|word| word.starts_with(b"free:")) || find(line, b" kernel_stack:").is_some()
}
