//! Texts of proc and sysfs that name what is in a trace: symbols, modules, caches, threads, NUMA nodes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;

use anyhow::anyhow;
use kmemtrace_abi::disk::block::item;
use rustix::fs::OFlags;

use crate::fs::kernelfs::{KernelFs, PROC, SYSFS, read_again};
use crate::process::confine;
use crate::process::messages;
use crate::source::SourceFacts;
use crate::write::header::now;
use crate::write::line_hashes::LineHashes;
use crate::write::new_modules::{KnownModules, SymbolsOf};
use crate::write::own_threads::has_ids_of_events;
use crate::write::{cgroups, module_info, reclaim_account, red_zones, slab_aliases};

/// File with the symbols.
const KALLSYMS: &str = "kallsyms";
/// File with the loaded modules.
const MODULES: &str = "modules";
/// Bytes of symbols that are read at once.
const PIECE: usize = 64 << 10;
/// Most bytes of an item; a longer text is several items.
const MAX_ITEM: usize = 256 << 10;

/// Payloads of the blocks of `meta.out` for these texts, by item tag; long texts are cut into pieces. Of the empty ones only that
/// about stacks says anything.
pub(crate) fn payloads(texts: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for (tag, text) in texts.iter().filter(|(tag, text)| !text.is_empty() || *tag == item::STACKS) {
        let pieces = text.len().div_ceil(MAX_ITEM).max(1);
        for index in 0..pieces {
            let piece = &text[index * MAX_ITEM..text.len().min((index + 1) * MAX_ITEM)];
            let mut payload = Vec::new();
            item::put(&mut payload, *tag, if index + 1 < pieces { item::MORE } else { 0 }, piece);
            payloads.push(payload);
        }
    }
    payloads
}

/// The words of the command line, up to the name of COMMAND, separated by NUL: the arguments of another program may be secrets.
fn command_line(words: impl Iterator<Item = OsString>) -> Vec<u8> {
    let mut line = Vec::new();
    let mut is_last = false;
    for word in words {
        if !line.is_empty() {
            line.push(0);
        }
        line.extend_from_slice(word.as_bytes());
        if is_last {
            break;
        }
        is_last = word == "--";
    }
    line
}

/// Reader of the texts. A file that cannot be read is reported and left out.
pub(crate) struct HostTexts {
    proc: Option<KernelFs>,
    sysfs: Option<KernelFs>,
    /// [`KALLSYMS`] and [`MODULES`], open from the start: the kernel shows addresses to the one who has opened them.
    symbols: Option<File>,
    list: Option<File>,
    /// Lines of the start.
    modules: LineHashes,
    module_info: LineHashes,
    kallsyms: LineHashes,
    known_modules: KnownModules,
    /// Processes whose cgroups were looked at; `None` where no event tells of threads.
    known_processes: Option<BTreeSet<u32>>,
}

impl HostTexts {
    /// Opens proc and sysfs.
    pub(crate) fn open() -> HostTexts {
        let proc = KernelFs::find(&PROC).inspect_err(|error| unnamed("symbols, modules and processes", error)).ok();
        let sysfs = KernelFs::find(&SYSFS).inspect_err(|error| left_out("NUMA nodes and build-ids", error)).ok();
        HostTexts::of(proc, sysfs)
    }

    fn of(proc: Option<KernelFs>, sysfs: Option<KernelFs>) -> HostTexts {
        let opened = |file: &str, named: &str| match proc.as_ref()?.open_if_there(file, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(error) => {
                unnamed(named, &error);
                None
            }
        };
        HostTexts {
            symbols: opened(KALLSYMS, "symbols"),
            list: opened(MODULES, MODULES),
            proc,
            sysfs,
            modules: LineHashes::default(),
            module_info: LineHashes::default(),
            kallsyms: LineHashes::default(),
            known_modules: KnownModules::default(),
            known_processes: None,
        }
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

    /// Text of the list of modules; empty where the kernel has none.
    fn list_of_modules(&self) -> io::Result<Vec<u8>> {
        self.list.as_ref().map_or(Ok(Vec::new()), read_again)
    }

    /// Text of the list of modules; empty where it cannot be read, which is reported.
    fn told_modules(&self) -> Vec<u8> {
        self.list_of_modules().unwrap_or_else(|error| {
            unnamed(MODULES, &anyhow!("/proc/{MODULES}: cannot be read: {error}"));
            Vec::new()
        })
    }

    /// Hands over the symbols in payloads of a block, read piece by piece: the whole text is megabytes. Returns the first error of
    /// `put`.
    pub(crate) fn symbols(&mut self, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let Some(file) = &mut self.symbols else { return Ok(()) };
        let mut piece = vec![0; MAX_ITEM];
        loop {
            let len = match fill(file, &mut piece) {
                Ok(len) => len,
                Err(error) => {
                    unnamed("some symbols", &anyhow!("/proc/{KALLSYMS}: cannot be read: {error}"));
                    0
                }
            };
            let is_last = len < MAX_ITEM;
            self.kallsyms.add(&piece[..len]);
            let mut payload = Vec::with_capacity(len + 8);
            item::put(&mut payload, item::KALLSYMS, if is_last { 0 } else { item::MORE }, &piece[..len]);
            if len > 0 {
                put(&payload)?;
            }
            if is_last {
                self.kallsyms.finish();
                return Ok(());
            }
        }
    }

    /// Hands over the symbols that were not handed over before, in payloads of a block, after the last event. Returns the first error
    /// of `put`.
    pub(crate) fn symbols_at_end(&mut self, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let Some(file) = &mut self.symbols else { return Ok(()) };
        if let Err(error) = file.rewind() {
            unnamed("symbols", &anyhow!("/proc/{KALLSYMS}: cannot be read again: {error}"));
            return Ok(());
        }
        let (mut piece, mut kept) = (vec![0; PIECE], 0);
        loop {
            let len = kept + fill(file, &mut piece[kept..]).unwrap_or(0);
            let is_last = len < PIECE;
            // A line longer than a piece is none of the kernel's.
            let whole = piece[..len].iter().rposition(|&b| b == b'\n').filter(|_| !is_last).map_or(len, |end| end + 1);
            let lines = self.kallsyms.later(&piece[..whole]);
            if !lines.is_empty() {
                let mut payload = Vec::with_capacity(lines.len() + 8);
                item::put(&mut payload, item::KALLSYMS_LATER, 0, &lines);
                put(&payload)?;
            }
            if is_last {
                return Ok(());
            }
            piece.copy_within(whole..len, 0);
            kept = len - whole;
        }
    }

    /// Texts by item tag, read before the first event, besides the symbols. The host's name is among them if `names_host`.
    pub(crate) fn at_start(&mut self, facts: &SourceFacts, names_host: bool) -> Vec<(u16, Vec<u8>)> {
        if facts.events.iter().any(|event| event == cgroups::NEW_THREAD) && has_ids_of_events() {
            self.known_processes = Some(BTreeSet::new());
        }
        let system = rustix::system::uname();
        let host = if names_host { system.nodename() } else { c"-" };
        let names = [system.sysname(), host, system.release(), system.version(), system.machine()];
        let uname = names.map(|n| n.to_string_lossy().into_owned()).join(" ");
        let modules = self.told_modules();
        self.modules.add(&modules);
        self.modules.finish();
        let module_info = self.module_info_of(&modules);
        self.known_modules.take(modules.clone());
        self.module_info.add(&module_info);
        self.module_info.finish();
        vec![
            (item::MODULES, modules),
            (item::MODULE_INFO, module_info),
            (item::NOTES, self.sysfs("kernel/notes", "the kernel's build-id")),
            (item::SLABINFO_START, self.proc("slabinfo", "some caches")),
            (item::UNAME, uname.into_bytes()),
            (item::COMMAND_LINE, if names_host { command_line(std::env::args_os()) } else { Vec::new() }),
            (item::EVENTS, facts.events.join("\n").into_bytes()),
            (item::STACKS, facts.stacks.recorded.clone().into_bytes()),
            (item::FUNCTIONS, facts.functions.recorded.join("\n").into_bytes()),
            (item::CPU_NODES, self.of_sysfs("NUMA nodes", cpu_nodes)),
            (item::COMMS, b"0 <idle>\n".to_vec()),
        ]
    }

    /// Texts by item tag about modules that are new since the last call. A file that cannot be read is told at the end.
    pub(crate) fn new_modules(&mut self) -> Vec<(u16, Vec<u8>)> {
        let text = self.list_of_modules().unwrap_or_default();
        let (modules, names) = self.known_modules.take(text);
        if names.is_empty() {
            return Vec::new();
        }
        let symbols = self.symbols_of(&names).unwrap_or_default();
        let module_info = self.module_info_of(&modules);
        for (known, lines) in
            [(&mut self.modules, &modules), (&mut self.module_info, &module_info), (&mut self.kallsyms, &symbols)]
        {
            known.add_later(lines);
        }
        let texts = [modules, module_info, symbols];
        [item::MODULES_LATER, item::MODULE_INFO_LATER, item::KALLSYMS_LATER].into_iter().zip(texts).collect()
    }

    /// Makes the next call of [`HostTexts::new_cgroups`] take these processes for new.
    pub(crate) fn look_again(&mut self, processes: &[u32]) {
        self.known_processes.iter_mut().for_each(|known| known.retain(|process| !processes.contains(process)));
    }

    /// Cgroups of the threads of all processes that are new since the last call.
    pub(crate) fn new_cgroups(&mut self) -> Vec<(u16, Vec<u8>)> {
        let lines = match (&self.proc, &mut self.known_processes) {
            (Some(proc), Some(known)) => cgroups::lines(proc, known),
            _ => Vec::new(),
        };
        vec![(item::CGROUPS, lines)]
    }

    /// Symbols of the modules, as lines of kallsyms.
    fn symbols_of(&mut self, modules: &BTreeSet<Vec<u8>>) -> io::Result<Vec<u8>> {
        let Some(file) = &mut self.symbols else { return Ok(Vec::new()) };
        file.rewind()?;
        let (mut symbols, mut piece) = (SymbolsOf::new(modules), vec![0; PIECE]);
        loop {
            match fill(file, &mut piece)? {
                0 => return Ok(symbols.finish()),
                len => symbols.add(&piece[..len]),
            }
        }
    }

    /// Text of the symbols; empty where it cannot be read, which is reported.
    fn all_symbols(&self) -> Vec<u8> {
        self.symbols.as_ref().map_or(Ok(Vec::new()), read_again).unwrap_or_else(|error| {
            unnamed("symbols", &anyhow!("/proc/{KALLSYMS}: cannot be read: {error}"));
            Vec::new()
        })
    }

    /// Texts by item tag, read after the last event: names that are new since the start, the symbols if
    /// `with_symbols`, and the final counts.
    pub(crate) fn at_end(&mut self, saved_cmdlines: &[u8], with_symbols: bool) -> Vec<(u16, Vec<u8>)> {
        let text = self.told_modules();
        let mut modules = self.modules.later(&text);
        let module_info = self.module_info.later(&self.module_info_of(&modules));
        let has_new = with_symbols && !modules.is_empty();
        modules.extend(self.known_modules.gone(&text));
        let symbols = if has_new { self.kallsyms.later(&self.all_symbols()) } else { Vec::new() };
        let slabinfo = self.proc("slabinfo", "some caches");
        let aliases = self.of_sysfs("other names of caches", |sysfs| slab_aliases::lines(sysfs, &slabinfo));
        let flags = self.of_sysfs("flags of caches", reclaim_account::lines);
        let red_zones = self.of_sysfs("red zones of caches", red_zones::lines);
        let mut texts = vec![
            (item::MODULES_LATER, modules),
            (item::MODULE_INFO_LATER, module_info),
            (item::KALLSYMS_LATER, symbols),
            (item::SLABINFO_END, slabinfo),
            (item::CACHE_ALIASES, aliases),
            (item::RECLAIM_ACCOUNT, flags),
            (item::THREADS_END, self.threads()),
            (item::COMMS, [saved_cmdlines, &self.live_comms()].concat()),
            (item::STOPPED, now().to_vec()),
        ];
        if !red_zones.is_empty() {
            texts.push((item::RED_ZONES, red_zones));
        }
        texts
    }

    /// Lines about the modules in a text of `/proc/modules`.
    fn module_info_of(&self, modules: &[u8]) -> Vec<u8> {
        let list = confine::list_of_modules();
        let Some(sysfs) = &self.sysfs else { return Vec::new() };
        let (lines, failed) = module_info::lines(modules, sysfs, &list);
        if let Some(error) = failed {
            left_out("some build-ids, paths and sections of modules", &error);
        }
        lines
    }

    /// Bytes of a file in sysfs; empty where the kernel has no such file.
    fn sysfs(&self, file: &str, part: &str) -> Vec<u8> {
        self.of_sysfs(part, |sysfs| sysfs.read_if_there(file))
    }

    /// Text that `read` makes of sysfs; empty where that fails, which is reported.
    fn of_sysfs(&self, part: &str, read: impl FnOnce(&KernelFs) -> anyhow::Result<Vec<u8>>) -> Vec<u8> {
        let Some(sysfs) = &self.sysfs else { return Vec::new() };
        read(sysfs).unwrap_or_else(|error| {
            left_out(part, &error);
            Vec::new()
        })
    }

    /// Ids of all threads that live, a line each; empty in a pid namespace, whose ids are those of other threads in the trace.
    fn threads(&self) -> Vec<u8> {
        let proc = self.proc.as_ref().filter(|_| has_ids_of_events());
        let ids: Vec<String> = proc.into_iter().flat_map(live_threads).map(|(_, thread)| thread.to_string()).collect();
        ids.join("\n").into_bytes()
    }

    /// Lines `PID COMM` of all threads that run.
    fn live_comms(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // The ids of a pid namespace are those of other threads in the trace.
        let Some(proc) = self.proc.as_ref().filter(|_| has_ids_of_events()) else { return out };
        // A thread that ended meanwhile has no name any more.
        for (pid, thread) in live_threads(proc) {
            if let Ok(comm) = proc.read(&format!("{pid}/task/{thread}/comm")) {
                out.extend_from_slice(format!("{thread} ").as_bytes());
                out.extend_from_slice(comm.trim_ascii_end());
                out.push(b'\n');
            }
        }
        out
    }
}

/// Threads that live, each with the id of its process.
pub(crate) fn live_threads(proc: &KernelFs) -> impl Iterator<Item = (u32, u32)> {
    let threads = |pid: u32| proc.numbered(&format!("{pid}/task"), "").unwrap_or_default();
    let pids = proc.numbered(".", "").unwrap_or_default();
    pids.into_iter().flat_map(move |pid| threads(pid).into_iter().map(move |thread| (pid, thread)))
}

/// Reads until `buffer` is full or the file ends; returns the number of bytes.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Reports that the trace has no names for some things; its events are complete.
pub(crate) fn unnamed(named: &str, error: &anyhow::Error) {
    messages::say(format!("kmemtraced: {error:#}: {named} will have no names in the trace"));
}

/// Reports that a text is missing in the trace; its events are complete.
fn left_out(part: &str, error: &anyhow::Error) {
    messages::say(format!("kmemtraced: {error:#}: {part} will be missing in the trace"));
}

/// Lines `CPU NODE`.
fn cpu_nodes(sysfs: &KernelFs) -> anyhow::Result<Vec<u8>> {
    let mut out = String::new();
    let Some(nodes) = sysfs.open_dir_if_there("devices/system/node")? else {
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
    use crate::write::fixture;

    #[test]
    fn symbols_of_a_module_that_comes_and_goes_stay() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
        let fs = || KernelFs::at(dir.path()).ok();
        let (old, foo) = ("old 4096 1 - Live 0x10\n", "foo 4096 0 - Loading 0x20\n");
        let (core, init) = ("1 T stext\n2 t old_x\t[old]\n", "3 t foo_init\t[foo]\n");
        write("modules", old);
        write("kallsyms", core);
        let mut texts = HostTexts::of(fs(), None);
        texts.symbols(|_| Ok(())).unwrap();
        texts.at_start(&fixture::description(&fixture::one_cpu()).facts, false);
        assert!(texts.new_modules().is_empty());
        write("modules", &format!("{foo}{old}"));
        write("kallsyms", &format!("{core}{init}"));
        let of = |texts: &[(u16, Vec<u8>)], tag| {
            let text = texts.iter().find(|(of, _)| *of == tag).map(|(_, text)| text.clone());
            String::from_utf8(text.unwrap_or_default()).unwrap()
        };
        let new = texts.new_modules();
        assert_eq!([item::MODULES_LATER, item::KALLSYMS_LATER].map(|tag| of(&new, tag)), [foo, init]);
        assert!(texts.new_modules().is_empty(), "once");
        // Later in memory, without its part for the initialisation.
        let (live, end) = (foo.replace("Loading", "Live"), "4 t foo_y\t[foo]\n");
        write("modules", &format!("{live}{old}"));
        write("kallsyms", &format!("{core}{end}{init}"));
        let end_texts = texts.at_end(b"", true);
        assert_eq!([item::MODULES_LATER, item::KALLSYMS_LATER].map(|tag| of(&end_texts, tag)), [&live, end]);
        write("modules", old);
        let gone = texts.at_end(b"", true);
        let gone = [item::MODULES_LATER, item::KALLSYMS_LATER].map(|tag| of(&gone, tag));
        assert_eq!(gone, ["foo 4096 0 - Gone 0x20\n", ""], "no symbols are new");
    }

    #[test]
    fn symbols_that_are_read_at_the_end_are_whole_and_come_once() {
        let dir = tempfile::tempdir().unwrap();
        let line = |n: usize| format!("{n:016x} T symbol_{n}\n");
        let all: String = (1..6000).map(line).collect();
        std::fs::write(dir.path().join("kallsyms"), &all).unwrap();
        let mut texts = HostTexts::of(KernelFs::at(dir.path()).ok(), None);
        texts.kallsyms.add_later(line(17).as_bytes());
        let mut found = Vec::new();
        let put = |payload: &[u8]| {
            found.extend(item::walk(payload).flat_map(|item| item.map(|(_, _, text)| text.to_vec()).unwrap()));
            Ok(())
        };
        texts.symbols_at_end(put).unwrap();
        assert!(String::from_utf8(found).unwrap() == all.replace(&line(17), ""));
    }

    #[test]
    fn a_long_text_is_cut_and_marked() {
        let payloads = payloads(&[(item::KALLSYMS, vec![b'x'; MAX_ITEM + 5]), (item::MODULES, Vec::new())]);
        let flags: Vec<_> =
            payloads.iter().map(|p| item::walk(p).next().map(|i| i.map(|(_, flags, b)| (flags, b.len())))).collect();
        assert_eq!(flags, [Some(Ok((item::MORE, MAX_ITEM))), Some(Ok((0, 5)))]);
    }
}
