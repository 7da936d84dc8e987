//! `/proc/meminfo` (fs/proc/meminfo.c): counters of the machine's memory, in kB but for counts of huge pages.

use super::entry::{Fact, Out, Reader, Took, Trouble};
use super::numbers::{NO_NUMBER, Reason, number, product, trimmed, words};

/// Counters that a text may begin with: the first one, and those that people look for with `grep`.
const BEGINS: [&[u8]; 12] = [
    b"MemTotal",
    b"MemFree",
    b"MemAvailable",
    b"Buffers",
    b"Cached",
    b"SwapCached",
    b"AnonPages",
    b"Shmem",
    b"Slab",
    b"SReclaimable",
    b"SUnreclaim",
    b"KernelStack",
];
const FIRST: &[u8] = b"MemTotal";
const HUGE_PAGES: &[u8] = b"HugePages_Total";
const HUGE_PAGE_BYTES: &[u8] = b"Hugepagesize";
const HUGE_BYTES: &[u8] = b"Hugetlb";

/// True for a line of a counter that a text may begin with.
pub(super) fn begins(line: &[u8]) -> bool {
    matches!(parsed(line), Some((name, Ok((_, true)))) if BEGINS.contains(&name))
}

/// Value of a counter, and whether it is in bytes.
type Value = Result<(u64, bool), Reason>;

/// Name and value of a counter; `None` for a line of another form.
fn parsed(line: &[u8]) -> Option<(&[u8], Value)> {
    let line = trimmed(line);
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (line.get(..colon)?, line.get(colon..)?.get(1..)?);
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_()".contains(byte);
    if !name.first().is_some_and(u8::is_ascii_uppercase) || !name.iter().all(is_of_name) {
        return None;
    }
    let words: Vec<&[u8]> = words(value).take(3).collect();
    match words[..] {
        [kib, b"kB"] => Some((name, number(kib).and_then(|kib| product(kib, 1024)).map(|bytes| (bytes, true)))),
        [count] if name.starts_with(b"HugePages_") => Some((name, number(count).map(|count| (count, false)))),
        [b"kB"] => Some((name, Err(NO_NUMBER))),
        _ => None,
    }
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Meminfo {
    /// Counters so far; a text has each once.
    counters: Vec<(Box<[u8]>, u64)>,
    huge_pages: Option<u64>,
}

impl Meminfo {
    fn get(&self, name: &[u8]) -> Option<u64> {
        self.counters.iter().find(|(known, _)| **known == *name).map(|(_, bytes)| *bytes)
    }
}

/// Limit of counters; a kernel has some 60.
const MAX_COUNTERS: usize = 1000;

impl Reader for Meminfo {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        let Some((name, value)) = parsed(line) else {
            return if trimmed(line).is_empty() { Took::Line } else { Took::NoLine };
        };
        let is_first = self.counters.first().is_some_and(|(first, _)| **first == *name);
        if name == FIRST && !self.counters.is_empty() || is_first {
            self.end(false, out);
            return Took::NextText;
        }
        match value {
            Ok((count, false)) if name == HUGE_PAGES => self.huge_pages = Some(count),
            Ok((bytes, true)) if self.get(name).is_none() && self.counters.len() < MAX_COUNTERS => {
                self.counters.push((name.into(), bytes));
            }
            Ok(_) => {}
            Err(reason) => out.trouble(Trouble::SkippedBlock(reason)),
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        if is_cut {
            out.trouble(Trouble::Cut("ends inside a line"));
        }
        for (name, bytes) in &self.counters {
            out.fact(Fact::Counter(name, *bytes));
        }
        // Linux before 4.17 tells the number of huge pages only.
        let of_huge_pages = self.huge_pages.zip(self.get(HUGE_PAGE_BYTES)).map(|(pages, bytes)| product(pages, bytes));
        if let (None, Some(Ok(bytes))) = (self.get(HUGE_BYTES), of_huge_pages) {
            out.fact(Fact::Counter(HUGE_BYTES, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, behind, damage, largest, read};
    use super::*;

    const TEXT: &str = "MemTotal:       16316412 kB
MemFree:          211424 kB
Active(anon):     100424 kB
HugePages_Total:       3
Hugepagesize:       2048 kB
";

    #[test]
    fn counters_are_bytes() {
        let told = read(Meminfo::default, TEXT.as_bytes());
        let expected = [
            "MemTotal 16708005888",
            "MemFree 216498176",
            "Active(anon) 102834176",
            "Hugepagesize 2097152",
            "Hugetlb 6291456",
        ];
        assert_eq!(told.facts, expected);
        assert_eq!((told.others, told.troubles.len()), (0, 0));
        let told = read(Meminfo::default, [TEXT, "Hugetlb: 7 kB\n"].concat().as_bytes());
        assert_eq!(told.facts.last().unwrap(), "Hugetlb 7168");
    }

    #[test]
    fn several_follow_each_other() {
        let told = read(Meminfo::default, TEXT.repeat(3).as_bytes());
        assert_eq!((told.texts, told.facts.len()), (3, 5));
        let slabs = "Slab: 3 kB\nSUnreclaim: 1 kB\n".repeat(2);
        assert!(begins(slabs.lines().next().unwrap().as_bytes()));
        assert_eq!(read(Meminfo::default, slabs.as_bytes()).texts, 2);
    }

    #[test]
    fn this_machines_own_is_read() {
        let text = std::fs::read("/proc/meminfo").unwrap();
        let told = read(Meminfo::default, &text);
        assert!(told.facts.len() > 20 && told.troubles.is_empty() && told.others == 0, "{told:?}");
    }

    /// The most that the lines of a text may tell: each number in KiB, and the huge pages together.
    fn most(text: &[u8]) -> Sums {
        let lines =
            Sums::of_lines(text, |line| Sums { counters: largest(line).0.saturating_mul(1024), ..Sums::default() });
        let any = Sums::of_lines(text, |line| Sums { counters: largest(line).0, ..Sums::default() }).counters;
        let size = |line| behind(line, "Hugepagesize").map(|_| largest(line).0);
        let size = text.split(|byte| *byte == b'\n').filter_map(size).max().unwrap_or(0);
        let huge = any.saturating_mul(size).saturating_mul(1024);
        Sums { counters: lines.counters.saturating_add(huge), ..lines }
    }

    #[test]
    fn damage_does_no_harm() {
        damage(Meminfo::default, TEXT.as_bytes(), most);
        let told = read(
            Meminfo::default,
            b"MemTotal: 99999999999999999999 kB\nMemFree: 9007199254740992 kB\nCached: kB\nuid: 3 kB\n",
        );
        assert_eq!((told.facts.len(), told.troubles.len(), told.others), (0, 3, 1));
    }
}
