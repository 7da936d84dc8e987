//! Texts of proc and sysfs that name what is in a trace: symbols, modules, caches, threads, NUMA nodes.

use std::collections::HashSet;

use kmemtrace_abi::disk::block::item;

use crate::fs::kernelfs::{KernelFs, PROC, SYSFS};
use crate::process::messages;
use crate::write::header::now;

/// Most bytes of an item; a longer text is several items.
const MAX_ITEM: usize = 1 << 20;

/// Payloads of the blocks of `meta.out` for these texts, by item tag; long texts are cut into pieces.
pub(crate) fn payloads(texts: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for (tag, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        let pieces = text.len().div_ceil(MAX_ITEM);
        for (index, piece) in text.chunks(MAX_ITEM).enumerate() {
            let mut payload = Vec::new();
            item::put(&mut payload, *tag, if index + 1 < pieces { item::MORE } else { 0 }, piece);
            payloads.push(payload);
        }
    }
    payloads
}

/// Reader of the texts. A file that cannot be read is reported and left out.
pub(crate) struct HostTexts {
    proc: Option<KernelFs>,
    modules: Vec<u8>,
    kallsyms: Vec<u8>,
}

impl HostTexts {
    /// Opens proc.
    pub(crate) fn open() -> HostTexts {
        let proc = KernelFs::find(&PROC).inspect_err(|error| unnamed("symbols, modules and processes", error)).ok();
        HostTexts { proc, modules: Vec::new(), kallsyms: Vec::new() }
    }

    /// Text of a file in proc, which has the names of `named`; empty where the kernel has no such file.
    fn proc(&self, file: &str, named: &str) -> Vec<u8> {
        let Some(proc) = &self.proc else { return Vec::new() };
        match proc.read_if_there(file) {
            Ok(text) => text,
            Err(error) => {
                unnamed(named, &error);
                Vec::new()
            }
        }
    }

    /// Texts by item tag, read before the first event.
    pub(crate) fn at_start(&mut self, events: &[String]) -> Vec<(u16, Vec<u8>)> {
        let system = rustix::system::uname();
        let names = [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
        let uname = names.map(|n| n.to_string_lossy().into_owned()).join(" ");
        let command: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        (self.kallsyms, self.modules) = (self.proc("kallsyms", "symbols"), self.proc("modules", "modules"));
        vec![
            (item::KALLSYMS, self.kallsyms.clone()),
            (item::MODULES, self.modules.clone()),
            (item::SLABINFO_START, self.proc("slabinfo", "some caches")),
            (item::UNAME, uname.into_bytes()),
            (item::COMMAND_LINE, command.join("\0").into_bytes()),
            (item::EVENTS, events.join("\n").into_bytes()),
            (item::CPU_NODES, cpu_nodes()),
            (item::COMMS, b"0 <idle>\n".to_vec()),
        ]
    }

    /// Texts by item tag, read after the last event: names that are new since the start, and the final counts.
    pub(crate) fn at_end(&self, saved_cmdlines: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let modules = later(&self.modules, &self.proc("modules", "modules"));
        let symbols =
            if modules.is_empty() { Vec::new() } else { later(&self.kallsyms, &self.proc("kallsyms", "symbols")) };
        vec![
            (item::MODULES_LATER, modules),
            (item::KALLSYMS_LATER, symbols),
            (item::SLABINFO_END, self.proc("slabinfo", "some caches")),
            (item::COMMS, [saved_cmdlines, &self.live_comms()].concat()),
            (item::STOPPED, now().to_vec()),
        ]
    }

    /// Lines `PID COMM` of all threads that run.
    fn live_comms(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(proc) = &self.proc else { return out };
        // A thread that ended meanwhile has no name any more.
        for pid in proc.numbered(".", "").unwrap_or_default() {
            for thread in proc.numbered(&format!("{pid}/task"), "").unwrap_or_default() {
                if let Ok(comm) = proc.read(&format!("{pid}/task/{thread}/comm")) {
                    out.extend_from_slice(format!("{thread} ").as_bytes());
                    out.extend_from_slice(comm.trim_ascii_end());
                    out.push(b'\n');
                }
            }
        }
        out
    }
}

/// Lines of `now` that are not in `before`.
fn later(before: &[u8], now: &[u8]) -> Vec<u8> {
    let known: HashSet<&[u8]> = before.split(|&b| b == b'\n').collect();
    let new = now.split(|&b| b == b'\n').filter(|line| !known.contains(line));
    new.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
}

/// Reports that the trace has no names for some things; its events are complete.
fn unnamed(named: &str, error: &anyhow::Error) {
    messages::say(format!("kmemtraced: {error:#}: {named} will have no names in the trace"));
}

/// Lines `CPU NODE` from sysfs; empty where they cannot be read.
fn cpu_nodes() -> Vec<u8> {
    read_cpu_nodes().unwrap_or_else(|error| {
        unnamed("NUMA nodes", &error);
        Vec::new()
    })
}

fn read_cpu_nodes() -> anyhow::Result<Vec<u8>> {
    let mut out = String::new();
    let Some(nodes) = KernelFs::find(&SYSFS)?.open_dir_if_there("devices/system/node")? else {
        return Ok(Vec::new());
    };
    for node in nodes.numbered(".", "node")? {
        let list = nodes.get(&format!("node{node}/cpulist"))?;
        for range in list.trim().split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
                (from..=to).for_each(|cpu| out += &format!("{cpu} {node}\n"));
            }
        }
    }
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_lines_are_kept_at_the_end() {
        assert_eq!(later(b"a\nb\n", b"a\nc\nb\n"), b"c\n");
        assert!(later(b"a\n", b"a\n").is_empty());
    }

    #[test]
    fn a_long_text_is_cut_and_marked() {
        let payloads = payloads(&[(item::KALLSYMS, vec![b'x'; MAX_ITEM + 5]), (item::MODULES, Vec::new())]);
        let flags: Vec<_> =
            payloads.iter().map(|p| item::walk(p).next().map(|i| i.map(|(_, flags, b)| (flags, b.len())))).collect();
        assert_eq!(flags, [Some(Ok((item::MORE, MAX_ITEM))), Some(Ok((0, 5)))]);
    }
}
