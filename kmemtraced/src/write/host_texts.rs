//! Texts of proc and sysfs that name what is in a trace: symbols, modules, caches, threads, NUMA nodes.

use std::collections::HashSet;

use kmemtrace_abi::block::item;

use crate::fs::kernelfs::{KernelFs, PROC, SYSFS};
use crate::process::messages;
use crate::write::header::now;

/// No item piece is longer.
const PIECE: usize = 1 << 20;

/// Payloads of the blocks of `meta.out` that hold these texts, long ones in pieces.
pub(crate) fn payloads(texts: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for (tag, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        let pieces = text.len().div_ceil(PIECE);
        for (index, piece) in text.chunks(PIECE).enumerate() {
            let mut payload = Vec::new();
            item::put(&mut payload, *tag, if index + 1 < pieces { item::MORE } else { 0 }, piece);
            payloads.push(payload);
        }
    }
    payloads
}

/// The texts of proc and sysfs that name what is in a trace; nothing of what cannot be read.
pub(crate) struct HostTexts {
    proc: Option<KernelFs>,
    modules: Vec<u8>,
    kallsyms: Vec<u8>,
}

impl HostTexts {
    pub(crate) fn open() -> HostTexts {
        let proc = KernelFs::find(&PROC).inspect_err(|error| unnamed("symbols, modules and processes", error)).ok();
        HostTexts { proc, modules: Vec::new(), kallsyms: Vec::new() }
    }

    /// The text of a file in proc; empty where the kernel has none.
    fn proc(&self, file: &str) -> Vec<u8> {
        let Some(proc) = &self.proc else { return Vec::new() };
        match proc.read_if_there(file) {
            Ok(text) => text,
            Err(error) => {
                unnamed("what it names", &error);
                Vec::new()
            }
        }
    }

    /// What is kept before the first event.
    pub(crate) fn at_start(&mut self, events: &[String]) -> Vec<(u16, Vec<u8>)> {
        let system = rustix::system::uname();
        let names = [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
        let uname = names.map(|n| n.to_string_lossy().into_owned()).join(" ");
        let command: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        (self.kallsyms, self.modules) = (self.proc("kallsyms"), self.proc("modules"));
        vec![
            (item::KALLSYMS, self.kallsyms.clone()),
            (item::MODULES, self.modules.clone()),
            (item::SLABINFO_START, self.proc("slabinfo")),
            (item::UNAME, uname.into_bytes()),
            (item::COMMAND_LINE, command.join("\0").into_bytes()),
            (item::EVENTS, events.join("\n").into_bytes()),
            (item::CPU_NODES, cpu_nodes()),
            (item::COMMS, b"0 <idle>\n".to_vec()),
        ]
    }

    /// What is kept after the last one: names that came up since, and the final counts.
    pub(crate) fn at_end(&self, saved_cmdlines: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let modules = later(&self.modules, &self.proc("modules"));
        let symbols = if modules.is_empty() { Vec::new() } else { later(&self.kallsyms, &self.proc("kallsyms")) };
        vec![
            (item::MODULES_LATER, modules),
            (item::KALLSYMS_LATER, symbols),
            (item::SLABINFO_END, self.proc("slabinfo")),
            (item::COMMS, [saved_cmdlines, &self.live_comms()].concat()),
            (item::STOPPED, now().to_vec()),
        ]
    }

    /// `PID COMM` of every thread that lives.
    fn live_comms(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(proc) = &self.proc else { return out };
        // A thread that has ended meanwhile has no name any more.
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

/// Says that names are missing from the trace; its events are not.
fn unnamed(what: &str, error: &anyhow::Error) {
    messages::say(format!("kmemtraced: {error:#}: {what} will have no names in the trace"));
}

/// `CPU NODE` a line, from sysfs; nothing where that does not tell.
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
        let payloads = payloads(&[(item::KALLSYMS, vec![b'x'; PIECE + 5]), (item::MODULES, Vec::new())]);
        let flags: Vec<_> =
            payloads.iter().map(|p| item::walk(p).next().map(|i| i.map(|(_, flags, b)| (flags, b.len())))).collect();
        assert_eq!(flags, [Some(Ok((item::MORE, PIECE))), Some(Ok((0, 5)))]);
    }
}
