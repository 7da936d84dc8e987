//! `/proc/zoneinfo` (mm/vmstat.c): of its counters, the pages on the lists of CPUs, which are in no counter of meminfo.

use super::entry::{Fact, Out, Reader, Took, Trouble};
use super::numbers::{Reason, number, product, trimmed, words};

/// Name of the counter of the pages on the lists of CPUs.
const PAGESETS: &[u8] = b"pagesets";

/// True for the first line of a zone.
pub(super) fn begins(line: &[u8]) -> bool {
    zone(line).is_some()
}

/// Node and zone of `Node 0, zone      DMA`.
fn zone(line: &[u8]) -> Option<[&[u8]; 2]> {
    let words: Vec<&[u8]> = words(line).take(5).collect();
    match words[..] {
        [b"Node", node, b"zone", zone] if node.ends_with(b",") => Some([node, zone]),
        _ => None,
    }
}

/// True for `nr_free_pages 1234`, `high:  378`, `protection: (0, 1)` and their kin, which are indented.
fn is_counter(line: &[u8]) -> bool {
    let rest: Vec<&[u8]> = words(line).collect();
    match rest[..] {
        [b"per-node", b"stats"] | [b"pagesets"] | [b"pages", b"free", _] => true,
        [b"vm", b"stats", b"threshold:", _] | [b"node_unreclaimable:" | b"start_pfn:", _] => true,
        [b"protection:", ..] => true,
        [name, value] => number(value).is_ok() && name.iter().all(u8::is_ascii_graphic),
        _ => false,
    }
}

/// Reader of the form.
#[derive(Debug)]
pub(super) struct Zoneinfo {
    page_bytes: u64,
    /// Node and zone that the text begins with: where they come again, the next text begins.
    first: Option<[Box<[u8]>; 2]>,
    has_zone: bool,
    pages: Option<u64>,
}

impl Zoneinfo {
    pub(super) fn new(page_bytes: u64) -> Zoneinfo {
        Zoneinfo { page_bytes, first: None, has_zone: false, pages: None }
    }

    fn add(&mut self, pages: &[u8]) -> Result<(), Reason> {
        let sum = self.pages.unwrap_or(0).saturating_add(number(pages)?);
        product(sum, self.page_bytes)?;
        self.pages = Some(sum);
        Ok(())
    }
}

impl Reader for Zoneinfo {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if let Some(zone) = zone(line) {
            let is_again = self.first.as_ref().is_some_and(|first| first.each_ref().map(|name| &name[..]) == zone);
            if is_again {
                self.end(false, out);
                return Took::NextText;
            }
            self.first.get_or_insert_with(|| zone.map(Box::from));
            self.has_zone = true;
            return Took::Line;
        }
        let line = trimmed(line);
        if self.has_zone
            && let Some(pages) = line.strip_prefix(b"count:")
        {
            if let Err(reason) = self.add(trimmed(pages)) {
                out.trouble(Trouble::SkippedBlock(reason));
            }
            return Took::Line;
        }
        if line.is_empty() || self.has_zone && is_counter(line) { Took::Line } else { Took::NoLine }
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        if is_cut {
            out.trouble(Trouble::Cut("ends inside a line"));
        }
        if let Some(bytes) = self.pages.and_then(|pages| product(pages, self.page_bytes).ok()) {
            out.fact(Fact::Counter(PAGESETS, bytes));
            out.fact(Fact::CountsPages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, damage, numbers, read};
    use super::*;

    const TEXT: &str = "Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 2252
  pages free     10
        boost    0
        protection: (0, 1, 2)
  pagesets
    cpu: 0
              count:    3
              high:     9
  vm stats threshold: 8
    cpu: 1
              count:    4
  node_unreclaimable:  0
Node 0, zone   Normal
  pagesets
    cpu: 0
              count: 5
";

    #[test]
    fn pages_on_the_lists_of_cpus_add_up() {
        let told = read(|| Zoneinfo::new(4096), TEXT.as_bytes());
        assert_eq!((told.facts.join(", "), told.others), (format!("pagesets {}, CountsPages", 12 * 4096), 0));
        let told = read(|| Zoneinfo::new(4096), TEXT.repeat(2).as_bytes());
        assert_eq!((told.texts, told.facts[0].as_str()), (2, "pagesets 49152"));
    }

    #[test]
    fn this_machines_own_is_read() {
        let text = std::fs::read("/proc/zoneinfo").unwrap();
        let told = read(|| Zoneinfo::new(4096), &text);
        assert_eq!((told.facts.len(), told.troubles.len(), told.others), (2, 0, 0));
    }

    /// The most that the lines of a text may tell.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| Sums {
            counters: numbers(line).fold(0, u64::saturating_add).saturating_mul(4096),
            ..Sums::default()
        })
    }

    #[test]
    fn damage_does_no_harm() {
        damage(|| Zoneinfo::new(4096), TEXT.as_bytes(), most);
    }
}
