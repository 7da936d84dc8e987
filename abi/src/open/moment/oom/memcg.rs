//! Counters of a memory cgroup: `memory: usage 1024kB, limit 2048kB, failcnt 3`, and `Memory cgroup stats for /example:` with a line a
//! counter in bytes (Linux 5.4 and later), or one line in KB for each cgroup of the tree.

use super::super::entry::{Fact, Out};
use super::super::numbers::{Reason, around, number, product, trimmed, words};
use crate::open::symbols::{find, rfind};
use crate::text::split::split_once;

const USAGE: &[u8] = b"memory: usage ";
const STATS: &[u8] = b"Memory cgroup stats for ";
const LIMIT_OF: &[u8] = b" killed as a result of limit of ";
/// Counters that cgroups of version 1 also print as sums over the tree, which are the ones that count.
const OF_TREE: &[u8] = b"total_";
/// Limit of counters; a kernel has some 100.
const MAX_COUNTERS: usize = 1000;

/// True for the line of usage and limit.
pub(super) fn is_usage(line: &[u8]) -> bool {
    trimmed(line).starts_with(USAGE)
}

/// True for the line that names the cgroup whose limit was reached, before Linux 5.0.
pub(super) fn is_limit(line: &[u8]) -> bool {
    find(line, LIMIT_OF).is_some()
}

/// True for the line above or with the counters.
pub(super) fn is_stats(line: &[u8]) -> bool {
    trimmed(line).starts_with(STATS)
}

/// Counters by name; `None` for a number out of range.
type Counters = Vec<(Box<[u8]>, Option<u64>)>;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Memcg {
    /// The cgroup whose limit was reached, as old kernels name it.
    limit_of: Option<Vec<u8>>,
    usage: Counters,
    /// Cgroup that the counters are of, and these.
    cgroup: Option<Vec<u8>>,
    counters: Counters,
    is_in_stats: bool,
}

fn add(counters: &mut Counters, name: &[u8], bytes: Result<u64, Reason>) {
    if counters.len() < MAX_COUNTERS && !counters.iter().any(|(known, _)| **known == *name) {
        counters.push((name.into(), bytes.ok()));
    }
}

/// Bytes of `1024kB` or `12KB`.
fn kib(word: &[u8]) -> Option<Result<u64, Reason>> {
    let number = word.strip_suffix(b"kB").or_else(|| word.strip_suffix(b"KB"))?;
    Some(self::number(number).and_then(|kib| product(kib, 1024)))
}

impl Memcg {
    pub(super) fn is_empty(&self) -> bool {
        self.usage.is_empty() && self.counters.is_empty() && !self.is_in_stats
    }

    pub(super) fn has_usage(&self) -> bool {
        !self.usage.is_empty()
    }

    /// Takes a line; false for one of another form.
    pub(super) fn take(&mut self, line: &[u8]) -> bool {
        let line = trimmed(line);
        if let Some(numbers) = line.strip_prefix(USAGE) {
            self.is_in_stats = false;
            return self.take_usage(numbers);
        }
        if let Some(stats) = line.strip_prefix(STATS) {
            self.take_stats(stats);
            return true;
        }
        if let Some((_, cgroup)) = find(line, LIMIT_OF).and_then(|at| around(line, at, LIMIT_OF.len())) {
            self.limit_of = Some(trimmed(cgroup).to_vec());
            return true;
        }
        if [&b"memory+swap: usage "[..], b"swap: usage ", b"kmem: usage "].iter().any(|begin| line.starts_with(begin)) {
            return true;
        }
        self.is_in_stats && self.take_counter(line)
    }

    /// `1024kB, limit 2048kB, failcnt 3`.
    fn take_usage(&mut self, numbers: &[u8]) -> bool {
        let words: Vec<&[u8]> = words(numbers).take(3).collect();
        let [usage, b"limit", limit] = words[..] else { return false };
        let of = |word: &[u8]| kib(word.strip_suffix(b",").unwrap_or(word));
        let (Some(usage), Some(limit)) = (of(usage), of(limit)) else { return false };
        add(&mut self.usage, b"usage", usage);
        add(&mut self.usage, b"limit", limit);
        true
    }

    /// `/example:`, or `/example: cache:0KB rss:12KB …`.
    fn take_stats(&mut self, stats: &[u8]) {
        // Names of cgroups may have colons: counters in KB begin with `cache`.
        let colon = find(stats, b": cache:").or_else(|| rfind(stats, b":"));
        let (cgroup, rest) = colon.and_then(|colon| around(stats, colon, 1)).unwrap_or((stats, b""));
        let is_other = self.cgroup.is_some() && self.limit_of.as_deref() != Some(cgroup);
        self.is_in_stats = !is_other;
        if is_other {
            return;
        }
        self.cgroup = Some(cgroup.to_vec());
        self.counters.clear();
        for word in words(rest) {
            if let Some((name, value)) = split_once(word, b':')
                && let Some(bytes) = kib(value)
            {
                add(&mut self.counters, name, bytes);
            }
        }
        self.is_in_stats = self.counters.is_empty();
    }

    /// `anon 4096`.
    fn take_counter(&mut self, line: &[u8]) -> bool {
        let mut words = words(line);
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else { return false };
        let is_name = name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(byte));
        let bytes = number(value);
        if !is_name || bytes == Err(super::super::numbers::NO_NUMBER) {
            return false;
        }
        add(&mut self.counters, name, bytes);
        true
    }

    /// Hands the counters over; the number of those that are out of range.
    pub(super) fn put(&self, out: &mut dyn Out) -> usize {
        let mut skipped = 0_usize;
        for (name, bytes) in self.usage.iter().chain(&self.counters) {
            let of_tree = self.counters.iter().find(|(other, _)| other.strip_prefix(OF_TREE) == Some(name));
            match of_tree.map_or(*bytes, |(_, bytes)| *bytes) {
                Some(bytes) => out.fact(Fact::Counter(name, bytes)),
                None => skipped = skipped.saturating_add(1),
            }
        }
        skipped
    }
}
