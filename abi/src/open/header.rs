//! Contents of a trace file's first block, and the names in `meta.out`.

use std::collections::HashMap;

use crate::disk::block::item;
use crate::kernel::format::{EventFormat, FormatError, PageShape};
use crate::kernel::relay::Layout;
use crate::memory::{Meter, OverLimit};
use crate::stream::report::Source;
use crate::target::{Endian, Target};
use crate::text::cut::cut;
use crate::trace::{MAX_OWN_THREADS, Metadata, Run, Scope};

/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// The payload of a file-header block.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileHeader {
    pub(crate) target: Option<Target>,
    pub(crate) page_bytes: Option<u64>,
    pub(crate) source: Option<Source>,
    pub(crate) relay_layout: Option<Layout>,
    pub(crate) cpus: Vec<u32>,
    pub(crate) clock: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) arch: Option<String>,
    pub(crate) header_page: String,
    /// (system, format text) of each event.
    pub(crate) formats: Vec<(String, String)>,
    pub(crate) since_boot: bool,
    pub(crate) started: Option<(u64, u64)>,
    pub(crate) scope: Scope,
    pub(crate) filter: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) boot: Option<String>,
    /// System of the recorder's own probe events.
    pub(crate) probe_group: Option<String>,
}

/// Characters of an event's name in an error: names of the kernel's have a third of them.
const MAX_EVENT_CHARS: usize = 200;

/// The first block's payload cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("the file header's items do not fit in it")]
    EventSink,
    #[error("the file header does not say what was traced ({0})")]
    Missing(&'static str),
    #[error("events/header_page: {0}")]
    HeaderPage(FormatError),
    #[error("format of {0}: {1}")]
    Format(String, FormatError),
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\0']).to_owned()
}

fn two_u64(bytes: &[u8]) -> Option<(u64, u64)> {
    let (a, rest) = bytes.split_first_chunk::<8>()?;
    let (b, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*a), u64::from_le_bytes(*b)))
}

impl FileHeader {
    /// Parses the items; those it does not know are skipped.
    pub(crate) fn parse(payload: &[u8]) -> Result<FileHeader, HeaderError> {
        let mut header = FileHeader::default();
        for found in item::walk(payload) {
            let (tag, _, bytes) = found.map_err(|()| HeaderError::EventSink)?;
            match tag {
                item::TARGET => {
                    let target: &[u8; 8] = bytes.first_chunk().ok_or(HeaderError::EventSink)?;
                    let endian = match target[0] {
                        1 => Endian::Little,
                        2 => Endian::Big,
                        _ => return Err(HeaderError::Missing("byte order")),
                    };
                    if !matches!(target[1], 4 | 8) {
                        return Err(HeaderError::Missing("word size"));
                    }
                    header.target = Some(Target { endian, word_bytes: target[1] });
                    let page = u32::from_le_bytes([target[4], target[5], target[6], target[7]]);
                    header.page_bytes = Some(u64::from(page)).filter(|&n| n != 0);
                }
                item::SOURCE => {
                    header.source = match bytes {
                        b"tracefs" => Some(Source::Tracefs),
                        b"relay" => Some(Source::Relay),
                        _ => return Err(HeaderError::Missing("source")),
                    }
                }
                item::RELAY_LAYOUT => header.relay_layout = Layout::from_name(&text(bytes)),
                item::CPUS => {
                    header.cpus = bytes.as_chunks().0.iter().map(|cpu| u32::from_le_bytes(*cpu)).collect();
                    header.cpus.sort_unstable();
                    header.cpus.dedup();
                }
                item::CLOCK => header.clock = Some(text(bytes)),
                item::KERNEL => header.kernel = Some(text(bytes)),
                item::ARCH => header.arch = Some(text(bytes)),
                item::HEADER_PAGE => header.header_page = text(bytes),
                item::EVENT_FORMAT => {
                    let body = String::from_utf8_lossy(bytes);
                    let (name, format) = body.split_once('\n').ok_or(HeaderError::EventSink)?;
                    let system = name.split('/').next().unwrap_or_default();
                    header.formats.push((system.to_owned(), format.to_owned()));
                }
                item::SINCE_BOOT => header.since_boot = true,
                item::STARTED => header.started = two_u64(bytes),
                // A scope of a later version leaves out some tasks, too.
                item::SCOPE => header.scope = if bytes == b"system" { Scope::System } else { Scope::Tasks },
                item::FILTER => header.filter = Some(text(bytes)),
                item::HOST => header.host = host(bytes),
                item::BOOT => header.boot = some_text(bytes),
                item::PROBE_GROUP => header.probe_group = some_text(bytes),
                _ => {}
            }
        }
        header.source.ok_or(HeaderError::Missing("source"))?;
        header.target.ok_or(HeaderError::Missing("byte order"))?;
        Ok(header)
    }

    /// Run of the recorder, with what `meta.out` tells of it.
    pub(crate) fn run(&self, metadata: &Metadata) -> Run {
        Run {
            begun: self.started.map(|(time, _)| time / NANOS),
            ended: metadata.stopped.map(|(time, _)| time / NANOS),
            command: words_of_command(&metadata.command_line),
        }
    }

    /// The shape of the sub-buffers. The word size of the commit word is the authoritative one.
    pub(crate) fn page_shape(&self) -> Result<PageShape, HeaderError> {
        let target = self.target.ok_or(HeaderError::Missing("byte order"))?;
        PageShape::parse(&self.header_page, target.endian).map_err(HeaderError::HeaderPage)
    }

    /// The event formats, as (system, format), and what is wrong with those that cannot be read: their events are
    /// counted as unknown ones.
    pub(crate) fn event_formats(&self) -> (Vec<(String, EventFormat)>, Vec<HeaderError>) {
        let mut formats = Vec::new();
        let mut errors = Vec::new();
        for (system, text) in &self.formats {
            match EventFormat::parse(text) {
                Ok(format) => formats.push((system.clone(), format)),
                Err(error) => {
                    let name = text.lines().next().unwrap_or_default().trim_start_matches("name:").trim();
                    let event = format!("{system}/{name}").chars().take(MAX_EVENT_CHARS).collect();
                    errors.push(HeaderError::Format(event, error));
                }
            }
        }
        (formats, errors)
    }
}

/// Gathers the items of `meta.out`, whose long texts come in pieces.
#[derive(Debug, Default)]
pub(crate) struct MetadataBuilder {
    kallsyms: Vec<u8>,
    kallsyms_later: Vec<u8>,
    modules: Vec<u8>,
    modules_later: Vec<u8>,
    comms: Vec<u8>,
    nodes: Vec<u8>,
    own_threads: Option<Vec<u8>>,
    module_info: Vec<u8>,
    module_info_later: Vec<u8>,
    stacks: Option<Vec<u8>>,
    probes: Option<Vec<u8>>,
    threads_end: Option<Vec<u8>>,
    stopped: Vec<u8>,
    metadata: Metadata,
    meter: Meter,
    /// The items take too much memory.
    over: Option<OverLimit>,
}

impl MetadataBuilder {
    /// Takes a META payload's items; false where they make no sense.
    pub(crate) fn take(&mut self, payload: &[u8]) -> bool {
        for found in item::walk(payload) {
            let Ok((tag, _, bytes)) = found else { return false };
            let text = match tag {
                item::KALLSYMS => &mut self.kallsyms,
                item::KALLSYMS_LATER => &mut self.kallsyms_later,
                item::MODULES => &mut self.modules,
                item::MODULES_LATER => &mut self.modules_later,
                item::COMMS => &mut self.comms,
                item::CPU_NODES => &mut self.nodes,
                item::OWN_THREADS => self.own_threads.get_or_insert_default(),
                item::SLABINFO_START => &mut self.metadata.slabinfo_start,
                item::SLABINFO_END => &mut self.metadata.slabinfo_end,
                item::UNAME => &mut self.metadata.uname,
                item::NOTES => &mut self.metadata.notes,
                item::MODULE_INFO => &mut self.module_info,
                item::MODULE_INFO_LATER => &mut self.module_info_later,
                item::CACHE_ALIASES => &mut self.metadata.cache_aliases,
                item::RECLAIM_ACCOUNT => &mut self.metadata.reclaim_account,
                item::RED_ZONES => &mut self.metadata.red_zones,
                item::CGROUPS => &mut self.metadata.cgroups,
                item::THREADS_END => self.threads_end.get_or_insert_default(),
                item::MEMINFO_START => &mut self.metadata.meminfo_start,
                item::MEMINFO_END => &mut self.metadata.meminfo_end,
                item::VMSTAT_START => &mut self.metadata.vmstat_start,
                item::VMSTAT_END => &mut self.metadata.vmstat_end,
                item::ZONEINFO_START => &mut self.metadata.memory_start.zoneinfo,
                item::ZONEINFO_END => &mut self.metadata.memory_end.zoneinfo,
                item::BUDDYINFO_START => &mut self.metadata.memory_start.buddyinfo,
                item::BUDDYINFO_END => &mut self.metadata.memory_end.buddyinfo,
                item::VMALLOCINFO_START => &mut self.metadata.memory_start.vmallocinfo,
                item::VMALLOCINFO_END => &mut self.metadata.memory_end.vmallocinfo,
                item::ALLOCINFO_START => &mut self.metadata.memory_start.allocinfo,
                item::ALLOCINFO_END => &mut self.metadata.memory_end.allocinfo,
                item::STACKS => self.stacks.get_or_insert_default(),
                item::PROBES => self.probes.get_or_insert_default(),
                item::STOPPED => &mut self.stopped,
                item::COMMAND_LINE => &mut self.metadata.command_line,
                _ => continue,
            };
            // A vector that is full takes as much again.
            let taken =
                if text.capacity().saturating_sub(text.len()) < bytes.len() { text.len().max(bytes.len()) } else { 0 };
            if let Err(over) = self.meter.take(taken as u64) {
                self.over = Some(over);
                return false;
            }
            text.extend_from_slice(bytes);
        }
        true
    }

    /// The reason for which items were left out, where that is memory.
    pub(crate) fn over(&self) -> Option<OverLimit> {
        self.over
    }

    /// The names, all pieces put together; false where the recorder's thread ids make no sense: they are `None` then.
    pub(crate) fn finish(mut self) -> (Metadata, bool) {
        let join = |mut first: Vec<u8>, later: Vec<u8>| {
            if !later.is_empty() && first.last().is_some_and(|&b| b != b'\n') {
                first.push(b'\n');
            }
            first.extend_from_slice(&later);
            first
        };
        self.metadata.kallsyms = join(self.kallsyms, self.kallsyms_later);
        self.metadata.modules = join(self.modules, self.modules_later);
        self.metadata.module_info = join(self.module_info, self.module_info_later);
        self.metadata.stacks = self.stacks.as_deref().map(text);
        self.metadata.probes = self.probes.as_deref().map(text);
        self.metadata.stopped = two_u64(&self.stopped);
        self.metadata.comms = comms(&self.comms);
        self.metadata.nodes = String::from_utf8_lossy(&self.nodes)
            .lines()
            .filter_map(|line| {
                let (cpu, node) = line.trim().split_once(' ')?;
                Some((cpu.parse().ok()?, node.trim().parse().ok()?))
            })
            .collect();
        self.metadata.threads_end = self.threads_end.as_deref().map(thread_ids);
        self.metadata.own_threads = self.own_threads.as_deref().and_then(own_threads);
        let is_good = self.own_threads.is_none() || self.metadata.own_threads.is_some();
        (self.metadata, is_good)
    }
}

/// Text without its newline; `None` where nothing is left.
pub(crate) fn some_text(bytes: &[u8]) -> Option<String> {
    Some(text(bytes)).filter(|text| !text.is_empty())
}

/// Name of a host: `-` stands for one that was left out, and the kernel has `(none)` before a name is set.
fn host(bytes: &[u8]) -> Option<String> {
    some_text(bytes).filter(|host| host != "-" && host != "(none)")
}

/// Name of the host in the output of `uname -a`, which recordings before minor version 3 have it in.
pub(crate) fn host_of_uname(uname: &[u8]) -> Option<String> {
    host(uname.split(u8::is_ascii_whitespace).nth(1)?)
}

/// Words of the recorder's command line up to the name of COMMAND: its arguments may be secrets, and recordings before minor version 9
/// have them. `None` where there is none.
fn words_of_command(line: &[u8]) -> Option<Vec<String>> {
    let words: Vec<String> = line.split(|&byte| byte == 0).map(text).collect();
    let end = words.iter().position(|word| word == "--").map_or(words.len(), |dashes| dashes.saturating_add(2));
    (!line.is_empty()).then(|| words.into_iter().take(end).collect())
}

/// Parses thread ids, one a line: ascending, each once. `None` where a line is no thread id or there are more than
/// [`MAX_OWN_THREADS`]: half of a list would leave out half of the recorder's objects.
fn own_threads(text: &[u8]) -> Option<Vec<i32>> {
    let lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let thread = |line: &[u8]| std::str::from_utf8(line).ok()?.parse().ok().filter(|&thread: &i32| thread > 0);
    let mut threads: Vec<i32> = lines.take(MAX_OWN_THREADS + 1).map(thread).collect::<Option<_>>()?;
    if threads.len() > MAX_OWN_THREADS {
        return None;
    }
    threads.sort_unstable();
    threads.dedup();
    Some(threads)
}

/// Parses thread ids, one a line: ascending, each once. Other lines are skipped.
pub(crate) fn thread_ids(text: &[u8]) -> Vec<i32> {
    let lines = text.split(|&b| b == b'\n').filter_map(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
    let mut threads: Vec<i32> = lines.collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

/// `PID COMM` a line, as `saved_cmdlines` has it; a comm may hold blanks. A later line of a pid wins.
pub(crate) fn comms(text: &[u8]) -> HashMap<i32, Box<[u8]>> {
    text.split(|&b| b == b'\n')
        .filter_map(|line| {
            let mut parts = line.trim_ascii_start().splitn(2, |&b| b == b' ');
            let pid = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
            Some((pid, cut(parts.next()?).into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comms_may_hold_blanks() {
        let comms = comms(b"1 init\n 42 Web Content\n0 <idle>\ngarbage\nx y\n42 later\n7 \n");
        assert_eq!(&*comms[&42], b"later");
        assert_eq!(&*comms[&1], b"init");
        assert_eq!(&*comms[&7], b"");
        assert_eq!(comms.len(), 4);
    }

    #[test]
    fn an_error_has_the_start_of_a_long_name() {
        let header = FileHeader { formats: vec![("kmem".to_owned(), "日".repeat(5000))], ..FileHeader::default() };
        let (formats, errors) = header.event_formats();
        assert!(formats.is_empty());
        let said: Vec<String> = errors.iter().map(HeaderError::to_string).collect();
        assert_eq!(said, [format!("format of kmem/{}: no `name:` line", "日".repeat(195))]);
    }

    #[test]
    fn texts_in_pieces_are_put_together() {
        let mut first = Vec::new();
        item::put(&mut first, item::KALLSYMS, item::MORE, b"ffffffff81000000 T _te");
        let mut second = Vec::new();
        item::put(&mut second, item::KALLSYMS, 0, b"xt\n");
        item::put(&mut second, item::KALLSYMS_LATER, 0, b"ffffffffc0000000 t init\t[m]\n");
        item::put(&mut second, item::CPU_NODES, 0, b"0 0\n1 1\n");
        let mut items = MetadataBuilder::default();
        assert!(items.take(&first) && items.take(&second));
        let (metadata, is_good) = items.finish();
        assert!(is_good);
        assert_eq!(metadata.own_threads, None);
        assert_eq!(metadata.kallsyms, b"ffffffff81000000 T _text\nffffffffc0000000 t init\t[m]\n");
        assert_eq!(metadata.nodes.get(&1), Some(&1));
    }

    #[test]
    fn facts_of_the_machine_are_kept_byte_by_byte() {
        let mut payload = Vec::new();
        let texts: [(u16, &[u8]); 14] = [
            (item::NOTES, b"\x04\0\0\0\xff"),
            (item::MODULE_INFO, b"ext4 - fs/ext4/ext4"),
            (item::MODULE_INFO_LATER, b"\xff - - .text=0x1\n"),
            (item::CACHE_ALIASES, b"mm_slot x\n"),
            (item::MEMINFO_START, b"MemTotal: 1 kB\n"),
            (item::MEMINFO_END, b"MemTotal: 2 kB\n"),
            (item::VMSTAT_START, b"pgfree 1\n"),
            (item::VMSTAT_END, b"pgfree 2\n"),
            (item::ZONEINFO_START, b"Node 0, zone DMA\n"),
            (item::BUDDYINFO_END, b"Node 0, zone DMA 1\n"),
            (item::VMALLOCINFO_START, b"0x1-0x2 4096\n"),
            (item::ALLOCINFO_END, b"allocinfo - version: 1.0\n"),
            (item::STACKS, b"trigger order > 0"),
            (60000, b"of a later version"),
        ];
        texts.iter().for_each(|(tag, bytes)| item::put(&mut payload, *tag, 0, bytes));
        let mut items = MetadataBuilder::default();
        assert!(items.take(&payload));
        let (metadata, _) = items.finish();
        assert_eq!(metadata.notes, b"\x04\0\0\0\xff");
        assert_eq!(metadata.module_info, b"ext4 - fs/ext4/ext4\n\xff - - .text=0x1\n");
        assert_eq!(metadata.cache_aliases, b"mm_slot x\n");
        assert_eq!([metadata.meminfo_start, metadata.meminfo_end], [b"MemTotal: 1 kB\n", b"MemTotal: 2 kB\n"]);
        assert_eq!([metadata.vmstat_start, metadata.vmstat_end], [b"pgfree 1\n", b"pgfree 2\n"]);
        assert_eq!(metadata.memory_start.zoneinfo, b"Node 0, zone DMA\n");
        assert_eq!(metadata.memory_end.buddyinfo, b"Node 0, zone DMA 1\n");
        assert_eq!(metadata.memory_start.vmallocinfo, b"0x1-0x2 4096\n");
        assert_eq!(metadata.memory_end.allocinfo, b"allocinfo - version: 1.0\n");
        let (older, _) = MetadataBuilder::default().finish();
        assert_eq!((metadata.stacks.as_deref(), older.stacks), (Some("trigger order > 0"), None));
        let mut none = MetadataBuilder::default();
        payload.clear();
        item::put(&mut payload, item::STACKS, 0, b"");
        assert!(none.take(&payload));
        assert_eq!(none.finish().0.stacks.as_deref(), Some(""), "the recorder asked for none");
        assert!(older.notes.is_empty() && older.module_info.is_empty() && older.cache_aliases.is_empty());
    }

    #[test]
    fn a_host_has_a_name_or_none() {
        let of_header = |bytes: &[u8]| {
            let mut payload = Vec::new();
            item::put(&mut payload, item::TARGET, 0, &[1, 8, 0, 0, 0, 16, 0, 0]);
            item::put(&mut payload, item::SOURCE, 0, b"tracefs");
            item::put(&mut payload, item::HOST, 0, bytes);
            item::put(&mut payload, item::BOOT, 0, b"3f2c\n");
            let header = FileHeader::parse(&payload).unwrap();
            assert_eq!(header.boot.as_deref(), Some("3f2c"));
            header.host
        };
        assert_eq!(of_header(b"box 1\n").as_deref(), Some("box 1"));
        assert_eq!([of_header(b""), of_header(b"-"), of_header(b"(none)")], [None, None, None]);
        assert_eq!(host_of_uname(b"Linux box 6.1 #1 x86_64").as_deref(), Some("box"));
        for none in [&b""[..], b"Linux", b"Linux ", b"Linux - 6.1", b"Linux  6.1", b"Linux (none) 6.1"] {
            assert_eq!(host_of_uname(none), None, "{}", String::from_utf8_lossy(none));
        }
    }

    #[test]
    fn own_threads_are_a_list_or_not_known() {
        let metadata = |text: &[u8]| {
            let mut payload = Vec::new();
            item::put(&mut payload, item::OWN_THREADS, 0, text);
            let mut items = MetadataBuilder::default();
            assert!(items.take(&payload));
            let (metadata, is_good) = items.finish();
            assert_eq!(metadata.own_threads.is_some(), is_good);
            metadata.own_threads
        };
        assert_eq!(metadata(b"812\n77\n4194303\n77"), Some(vec![77, 812, 4_194_303]));
        assert_eq!(metadata(b""), Some(Vec::new()));
        for bad in [&b"0\n"[..], b"-5\n", b"12\nx\n", b"4294967296\n", b"1 2\n", b"7\n\xff\n"] {
            assert_eq!(metadata(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        let many = |n: usize| (1..=n).map(|thread| format!("{thread}\n")).collect::<String>();
        assert_eq!(metadata(many(MAX_OWN_THREADS).as_bytes()).map(|threads| threads.len()), Some(MAX_OWN_THREADS));
        assert_eq!(metadata(many(MAX_OWN_THREADS + 1).as_bytes()), None);
    }

    #[test]
    fn scope_and_filter_are_read_and_a_header_of_an_older_version_has_neither() {
        let header = |items: &[(u16, &[u8])]| {
            let mut payload = Vec::new();
            item::put(&mut payload, item::TARGET, 0, &[1, 8, 0, 0, 0, 16, 0, 0]);
            item::put(&mut payload, item::SOURCE, 0, b"tracefs");
            items.iter().for_each(|(tag, bytes)| item::put(&mut payload, *tag, 0, bytes));
            let header = FileHeader::parse(&payload).unwrap();
            (header.scope, header.filter)
        };
        assert_eq!(header(&[]), (Scope::System, None));
        assert_eq!(header(&[(item::SCOPE, b"system")]), (Scope::System, None));
        let filter = Some("bytes_req > 64".to_owned());
        assert_eq!(header(&[(item::SCOPE, b"tasks"), (item::FILTER, b"bytes_req > 64")]), (Scope::Tasks, filter));
        assert_eq!(header(&[(item::SCOPE, b"cgroup")]).0, Scope::Tasks, "a later version's part of the system");
    }

    #[test]
    fn a_header_without_its_target_is_refused() {
        let mut payload = Vec::new();
        item::put(&mut payload, item::SOURCE, 0, b"tracefs");
        assert_eq!(FileHeader::parse(&payload).err(), Some(HeaderError::Missing("byte order")));
        item::put(&mut payload, item::TARGET, 0, &[3, 8, 0, 0, 0, 16, 0, 0]);
        assert_eq!(FileHeader::parse(&payload).err(), Some(HeaderError::Missing("byte order")));
    }
}
