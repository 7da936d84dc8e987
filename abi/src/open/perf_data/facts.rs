//! Facts of the machine and of the recording, as the header of a `perf.data` has them
//! (`tools/perf/Documentation/perf.data-file-format.txt` of Linux 6.18).

use std::collections::HashMap;
use std::io::Read;

use crate::open::trace_dat::container::Container;
use crate::open::trace_dat::items::{Items, Stop};
use crate::target::Endian;

/// Numbers of features.
pub(super) mod feature {
    pub(crate) const TRACING_DATA: u32 = 1;
    pub(crate) const HOSTNAME: u32 = 3;
    pub(crate) const OSRELEASE: u32 = 4;
    pub(crate) const ARCH: u32 = 6;
    pub(crate) const NRCPUS: u32 = 7;
    pub(crate) const CMDLINE: u32 = 11;
    pub(crate) const NUMA_TOPOLOGY: u32 = 14;
    pub(crate) const DIR_FORMAT: u32 = 24;
}

/// Words of a command line, NUMA nodes or CPUs, at most: a file may name any number.
const MAX_LIST: u32 = 1 << 16;

/// What the header tells.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) host: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) arch: Option<String>,
    /// Number of possible CPUs.
    pub(super) cpus: Option<u32>,
    /// Words of perf's command line.
    pub(super) command: Vec<String>,
    /// NUMA node by CPU.
    pub(super) nodes: HashMap<u32, u32>,
    /// Bytes of a page.
    pub(super) page_bytes: Option<u64>,
    /// The file is one of a directory that `perf record --threads` wrote.
    pub(super) is_of_directory: bool,
    /// Layout of sub-buffers, and formats of events; `None` where the file has no tracing data.
    pub(super) described: Option<Container>,
}

impl Facts {
    /// Takes a feature's data. What makes no sense is not there.
    pub(super) fn take(&mut self, id: u32, from: impl Read, endian: Endian) {
        let mut items = Items::new(from, 0, endian);
        let items = &mut items;
        match id {
            feature::HOSTNAME => self.host = string(items).ok(),
            feature::OSRELEASE => self.kernel = string(items).ok(),
            feature::ARCH => self.arch = string(items).ok(),
            // Those that are available, then those that are online.
            feature::NRCPUS => self.cpus = items.u32("the number of CPUs").ok(),
            feature::CMDLINE => self.command = words(items).unwrap_or_default(),
            feature::DIR_FORMAT => self.is_of_directory = true,
            feature::NUMA_TOPOLOGY => self.nodes = nodes(items).unwrap_or_default(),
            _ => {}
        }
    }

    /// Takes the tracing data: the head of a `trace.dat` with a version of its own, and the descriptions of events.
    pub(super) fn take_tracing_data(&mut self, from: impl Read) -> Result<(), Stop> {
        let what = "the tracing data";
        let mut head = Items::new(from, 0, Endian::Little);
        if head.bytes(10, what)? != b"\x17\x08\x44tracing" {
            return Err(Stop::Odd(what));
        }
        head.string(what)?;
        let endian = if head.array::<1>(what)? == [0] { Endian::Little } else { Endian::Big };
        let mut items = head.in_order(endian);
        items.array::<1>(what)?;
        self.page_bytes = Some(items.u32(what)?.into()).filter(|&bytes| bytes > 0);
        let mut container = Container::default();
        container.take_descriptions(&mut items)?;
        self.described = Some(container);
        Ok(())
    }

    /// The filter on events in perf's command line.
    pub(super) fn filter(&self) -> Option<String> {
        let mut words = self.command.iter();
        let filters = std::iter::from_fn(|| {
            loop {
                let word = words.next()?;
                match word.strip_prefix("--filter") {
                    Some("") => return words.next().cloned(),
                    Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
                    _ => {}
                }
            }
        });
        let filters: Vec<String> = filters.collect();
        (!filters.is_empty()).then(|| filters.join("; "))
    }
}

/// A string with its length in front, padded with NULs.
fn string(items: &mut Items<impl Read>) -> Result<String, Stop> {
    let bytes = items.short_text("a string")?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned())
}

fn words(items: &mut Items<impl Read>) -> Result<Vec<String>, Stop> {
    let count = items.u32("the command line")?.min(MAX_LIST);
    (0..count).map(|_| string(items)).collect()
}

/// NUMA nodes: number, two sizes of memory, and a list of CPUs as `0-3,8`.
fn nodes(items: &mut Items<impl Read>) -> Result<HashMap<u32, u32>, Stop> {
    let mut nodes = HashMap::new();
    for _ in 0..items.u32("the NUMA nodes")?.min(MAX_LIST) {
        let node = items.u32("the NUMA nodes")?;
        items.array::<16>("the NUMA nodes")?;
        for range in string(items)?.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) else { continue };
            nodes.extend((first..=last.min(first.saturating_add(MAX_LIST))).map(|cpu| (cpu, node)));
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_found_on_the_command_line() {
        let of = |words: &[&str]| {
            Facts { command: words.iter().map(|&w| w.to_owned()).collect(), ..Facts::default() }.filter()
        };
        assert_eq!(of(&["perf", "record", "--filter", "bytes_req > 64", "-a"]).as_deref(), Some("bytes_req > 64"));
        assert_eq!(of(&["perf", "record", "--filter=a", "--filter", "b"]).as_deref(), Some("a; b"));
        assert_eq!(of(&["perf", "record", "-a"]), None);
    }

    #[test]
    fn nodes_are_read_by_their_lists_of_cpus() {
        let mut bytes = 2u32.to_be_bytes().to_vec();
        for (node, cpus) in [(0u32, "0-2,7\0"), (5, "3")] {
            bytes.extend(node.to_be_bytes());
            bytes.extend([0; 16]);
            bytes.extend((cpus.len() as u32).to_be_bytes());
            bytes.extend(cpus.as_bytes());
        }
        let mut facts = Facts::default();
        facts.take(feature::NUMA_TOPOLOGY, &bytes[..], Endian::Big);
        let expected = [(0, 0), (1, 0), (2, 0), (7, 0), (3, 5)];
        assert_eq!(facts.nodes, HashMap::from(expected));
        facts.take(feature::NUMA_TOPOLOGY, &bytes[..9], Endian::Big);
        assert!(facts.nodes.is_empty());
    }
}
