//! Counters of memory by the names of the text that has them, in bytes.
//!
//! The texts are hostile: lines that are none are skipped, and numbers that do not fit count as absent.

use std::collections::HashMap;

/// Largest number of counters that are kept. Kernels have some tens.
const MAX_COUNTERS: usize = 1 << 12;
/// Largest length of a counter's name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Name of the counter of free pages on the lists of CPUs, which `/proc/zoneinfo` has.
pub(super) const PAGESETS: &str = "pagesets";

/// Counters of memory at one moment: bytes by name.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    bytes: HashMap<Box<str>, u64>,
}

impl Counters {
    /// Counters in the text of `/proc/meminfo`: lines `NAME: N kB`. `Hugetlb`, which Linux before 4.17 lacks, is
    /// `HugePages_Total` times `Hugepagesize`. A line that comes twice counts as it comes first.
    pub fn of_meminfo(text: &[u8]) -> Counters {
        let (mut counters, mut huge_pages) = (Counters::default(), None);
        for line in text.split(|&byte| byte == b'\n') {
            let Some((name, value)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(':')) else {
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            match value.strip_suffix("kB") {
                Some(kib) => {
                    let bytes = kib.trim().parse::<u64>().ok().and_then(|kib| kib.checked_mul(1024));
                    bytes.into_iter().for_each(|bytes| counters.add(name, bytes));
                }
                None if name == "HugePages_Total" => huge_pages = value.parse::<u64>().ok(),
                None => {}
            }
        }
        let huge = huge_pages.zip(counters.get("Hugepagesize")).and_then(|(pages, size)| pages.checked_mul(size));
        huge.into_iter().for_each(|bytes| counters.add("Hugetlb", bytes));
        counters
    }

    /// Adds the free pages on the lists of CPUs in the text of `/proc/zoneinfo`: the sum of its `count:` lines, in pages of `page_bytes`.
    /// Nothing where the text has no such line.
    pub fn add_zoneinfo(&mut self, text: &[u8], page_bytes: u64) {
        let lines = text.split(|&byte| byte == b'\n').filter_map(|line| line.trim_ascii().strip_prefix(b"count:"));
        let pages = lines.filter_map(|count| std::str::from_utf8(count).ok()?.trim().parse::<u64>().ok());
        let pages = pages.fold(None, |sum: Option<u64>, pages| Some(sum.unwrap_or(0).saturating_add(pages)));
        let bytes = pages.and_then(|pages| pages.checked_mul(page_bytes));
        bytes.into_iter().for_each(|bytes| self.add(PAGESETS, bytes));
    }

    /// Adds a counter, unless one of this name is there.
    pub fn add(&mut self, name: &str, bytes: u64) {
        if self.bytes.len() < MAX_COUNTERS && name.len() <= MAX_NAME_BYTES {
            self.bytes.entry(name.into()).or_insert(bytes);
        }
    }

    /// Bytes of a counter; `None` where the text has none of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.bytes.get(name).copied()
    }

    /// True without any counter.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_meminfo_are_bytes() {
        let counters = Counters::of_meminfo(
            b"MemFree:   12 kB\nActive(anon):  3 kB\nHugePages_Total:   2\nHugepagesize:  2048 kB\nMemFree: 9 kB\n",
        );
        assert_eq!(counters.get("MemFree"), Some(12 << 10), "the first one");
        assert_eq!((counters.get("Active(anon)"), counters.get("HugePages_Total")), (Some(3 << 10), None));
        assert_eq!(counters.get("Hugetlb"), Some(4 << 20), "two pages of 2 MiB");
        let told = Counters::of_meminfo(b"Hugetlb: 7 kB\nHugePages_Total: 2\nHugepagesize: 2048 kB\n");
        assert_eq!(told.get("Hugetlb"), Some(7 << 10));
    }

    #[test]
    fn garbage_is_no_counter() {
        let text = b"MemFree: x kB\nBig: 99999999999999999999 kB\nHuge: 18014398509481984 kB\n\xff: 1 kB\nnone\n: \nA: -1 kB\n";
        assert!(Counters::of_meminfo(text).is_empty());
        let many: String = (0..MAX_COUNTERS + 9).map(|n| format!("c{n}: 1 kB\n")).collect();
        assert_eq!(Counters::of_meminfo(many.as_bytes()).bytes.len(), MAX_COUNTERS);
    }

    #[test]
    fn pages_on_the_lists_of_cpus_add_up() {
        let mut counters = Counters::default();
        let text = b"Node 0, zone   DMA\n  pages free     10\n    pagesets\n    cpu: 0\n              count: 3\n              high:  9\n              batch: 1\n    cpu: 1\n              count:    4\nNode 0, zone Normal\n    cpu: 0\n      count: 5\n";
        counters.add_zoneinfo(text, 4096);
        assert_eq!(counters.get(PAGESETS), Some(12 * 4096));
        let mut none = Counters::default();
        none.add_zoneinfo(b"Node 0, zone DMA\n pages free 10\n", 4096);
        none.add_zoneinfo(b"count: 99999999999999999999\n", 4096);
        assert_eq!(none.get(PAGESETS), None);
    }
}
