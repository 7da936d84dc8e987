//! The trace directory: making it, and what stands in its files besides events.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail};
use kmemtrace_abi::block::{RecordingId, item};
use kmemtrace_abi::format::without_print_fmt;
use kmemtrace_abi::target::Endian;
use rustix::fs::FileType;
use rustix::rand::GetRandomFlags;

use crate::fs::held_dir::{HeldDir, joined, random_digits};
use crate::fs::kernelfs::{KernelFs, PROC, SYSFS};
use crate::process::messages;
use crate::source::{Framing, SourceFacts};

/// The trace directory if the command line names none.
const DEFAULT: &str = "kmemtrace.data";
/// No item piece is longer.
const PIECE: usize = 1 << 20;

/// The directory, locked while it is written. Where an earlier recording has its name it is made under another one beside that,
/// and takes the name when the recording has begun.
pub(crate) struct Output {
    /// The path that the user is told.
    pub(crate) dir: PathBuf,
    held: HeldDir,
    parent: Arc<HeldDir>,
    /// The name in `parent`.
    name: OsString,
    /// The recording that has the asked name, until the new one has begun.
    earlier: Option<Earlier>,
    has_begun: bool,
    removal: Option<JoinHandle<anyhow::Result<()>>>,
}

/// An earlier recording, locked.
struct Earlier {
    held: HeldDir,
    name: OsString,
    /// The name that it is to be kept under, and the recording that has that one.
    kept: Option<(OsString, Option<HeldDir>)>,
}

/// A recording that a new one has replaced.
struct Replaced {
    held: HeldDir,
    parent: Arc<HeldDir>,
    name: OsString,
    shown: PathBuf,
}

/// True for names of files of a trace directory, and of those that report, pack and index leave in it.
fn is_of_trace(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let name = without_mark(name, ".packing");
    let of_cpu = name.strip_prefix("cpu").and_then(|rest| rest.strip_suffix(".out"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    matches!(name, "meta.out" | "report.index")
        || without_mark(name, ".new") == "report.index"
        || of_cpu.is_some_and(is_number)
}

/// The name without the mark of a half-written file: `MARK` or `MARK-RANDOM`.
fn without_mark<'a>(name: &'a str, mark: &str) -> &'a str {
    let before_random = match name.rsplit_once('-') {
        Some((before, random)) if !random.is_empty() && random.bytes().all(|b| b.is_ascii_alphanumeric()) => before,
        _ => name,
    };
    before_random.strip_suffix(mark).or_else(|| name.strip_suffix(mark)).unwrap_or(name)
}

/// Opens and locks the directory `name`, which is to be renamed.
fn open_earlier(parent: &HeldDir, name: &OsStr, shown: &Path) -> anyhow::Result<HeldDir> {
    let shown = shown.display();
    let kind = parent.kind(name).with_context(|| format!("{shown}: cannot be looked at"))?;
    if kind != Some(FileType::Directory) {
        bail!("{shown}: is no directory: move it away, or use another name (-o)");
    }
    let held = parent.open_dir(name).with_context(|| format!("{shown}: cannot be opened"))?;
    held.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => anyhow!("{shown}: another recorder writes to it: use another name (-o)"),
        _ => anyhow!("{shown}: cannot be locked: {error}: use another file system (-o)"),
    })?;
    Ok(held)
}

/// Refuses a directory that cannot be replaced as a whole.
fn must_be_replaceable(held: &HeldDir, parent: &HeldDir, shown: &Path) -> anyhow::Result<()> {
    if held.is_mount_point(parent)? {
        let shown = shown.display();
        bail!("{shown}: is a mount point and cannot be replaced: use a name in it (-o {shown}/NAME)");
    }
    Ok(())
}

/// Refuses a directory that holds anything but a trace.
fn must_be_trace(held: &HeldDir, shown: &Path) -> anyhow::Result<()> {
    for name in held.names().with_context(|| format!("{}: cannot be read", shown.display()))? {
        if !is_of_trace(&name) || held.kind(&name)?.is_some_and(|kind| kind != FileType::RegularFile) {
            let path = shown.join(name);
            bail!("{}: is no file of a trace: move it away first, or use another name (-o)", path.display());
        }
    }
    Ok(())
}

/// Removes the files of a trace, and the directory `name`. Looks again where a report leaves its index there meanwhile.
fn remove_trace(held: &HeldDir, parent: &HeldDir, name: &OsStr) -> io::Result<()> {
    let mut removed = Ok(());
    for _ in 0..3 {
        for file in held.names()?.iter().filter(|file| is_of_trace(file)) {
            match held.remove(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        removed = parent.remove_dir(name);
        if !removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty) {
            break;
        }
    }
    removed
}

impl Earlier {
    /// The recording in `dir`, where there is one. It must be overwritten with `force`; by default it is kept as `dir.old`.
    fn find(
        parent: &HeldDir,
        dir: &Path,
        name: &OsStr,
        is_default: bool,
        force: bool,
    ) -> anyhow::Result<Option<Earlier>> {
        if parent.kind(name).with_context(|| format!("{}: cannot be looked at", dir.display()))?.is_none() {
            return Ok(None);
        }
        let held = open_earlier(parent, name, dir)?;
        let mut kept = None;
        if is_default {
            let (old_name, old_dir) = (joined(name, ".old"), dir.with_extension("data.old"));
            let mut older = None;
            if parent.kind(&old_name).with_context(|| format!("{}: cannot be looked at", old_dir.display()))?.is_some()
            {
                let old = open_earlier(parent, &old_name, &old_dir)?;
                must_be_replaceable(&old, parent, &old_dir)?;
                must_be_trace(&old, &old_dir)?;
                older = Some(old);
            }
            kept = Some((old_name, older));
        } else if force {
            must_be_trace(&held, dir)?;
        } else {
            bail!("{}: exists already: use -f to overwrite it, or another name", dir.display());
        }
        must_be_replaceable(&held, parent, dir)?;
        Ok(Some(Earlier { held, name: name.to_owned(), kept }))
    }
}

impl Replaced {
    fn remove(&self) -> anyhow::Result<()> {
        let shown = self.shown.display();
        if !self.held.is_at(&self.parent, &self.name).unwrap_or(false) {
            bail!("{shown}: was put in place of the recording to overwrite, and stays");
        }
        // The new recording's name must outlast a power cut before the old files go.
        self.parent
            .sync()
            .and_then(|()| remove_trace(&self.held, &self.parent, &self.name))
            .with_context(|| format!("{shown}: the replaced recording cannot be removed"))
    }

    /// Removes it in a thread, since large files take seconds.
    fn start_removal(self) -> anyhow::Result<Option<JoinHandle<anyhow::Result<()>>>> {
        let replaced = Arc::new(self);
        let work = Arc::clone(&replaced);
        match thread::Builder::new().name("remove".to_owned()).spawn(move || work.remove()) {
            Ok(thread) => Ok(Some(thread)),
            // No thread can be had: then without.
            Err(_) => replaced.remove().map(|()| None),
        }
    }
}

impl Output {
    /// Makes the directory. An earlier recording is left as it is until [`Output::begin`]; one in a directory that is named on
    /// the command line must be overwritten with `force`.
    pub(crate) fn create(given: Option<&Path>, force: bool) -> anyhow::Result<Output> {
        let dir = given.unwrap_or(Path::new(DEFAULT)).to_owned();
        let shown = dir.display();
        let Some(asked) = dir.file_name() else {
            bail!("-o {shown}: is no name for a new directory: use one that ends with a name (-o DIR/NAME)");
        };
        let above = dir.parent().unwrap_or(Path::new(""));
        let parent = HeldDir::reach(above)
            .with_context(|| format!("{shown}: the directory above cannot be opened: make it, or use another (-o)"))?;
        let earlier = Earlier::find(&parent, &dir, asked, given.is_none(), force)?;
        let name = match &earlier {
            None => asked.to_owned(),
            Some(_) => joined(asked, &format!(".exchange-{}", random_digits()?)),
        };
        let held = parent.make_dir(&name).with_context(|| format!("{shown}: cannot be made"))?;
        held.lock().with_context(|| format!("{shown}: cannot be locked: use another file system (-o)")).inspect_err(
            |_| {
                let _ = parent.remove_dir(&name);
            },
        )?;
        Ok(Output { dir, held, parent: Arc::new(parent), name, earlier, has_begun: false, removal: None })
    }

    /// True while an earlier recording has the name that is asked for.
    pub(crate) fn replaces(&self) -> bool {
        self.earlier.is_some()
    }

    /// Takes the asked name, now that the recording has begun; an earlier recording is removed, by default the one before it.
    /// An error tells under which other name something is; the recording goes on all the same.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        self.has_begun = true;
        let Some(earlier) = self.earlier.take() else { return Ok(()) };
        let shown = self.dir.with_file_name(&self.name);
        if let Err(error) = self.parent.exchange(&self.name, &earlier.name) {
            let asked = std::mem::replace(&mut self.dir, shown);
            bail!("{}: cannot be replaced: {error}: the new recording is in {}", asked.display(), self.dir.display());
        }
        let name = std::mem::replace(&mut self.name, earlier.name);
        let held = match earlier.kept {
            None => earlier.held,
            Some((old, older)) => {
                let renamed = match older {
                    Some(_) => self.parent.exchange(&name, &old),
                    None => self.parent.rename_to_free(&name, &old),
                };
                renamed.with_context(|| format!("{}: the earlier recording stays under this name", shown.display()))?;
                let Some(older) = older else { return Ok(()) };
                older
            }
        };
        self.removal = Replaced { held, parent: Arc::clone(&self.parent), name, shown }.start_removal()?;
        Ok(())
    }

    /// Waits until the replaced recording is removed; an error tells why it is not.
    pub(crate) fn finish_removal(&mut self) -> anyhow::Result<()> {
        match self.removal.take().map(JoinHandle::join) {
            Some(Ok(removed)) => removed,
            Some(Err(_)) => bail!("{}: the replaced recording is not wholly removed", self.dir.display()),
            None => Ok(()),
        }
    }

    /// Makes a file in it.
    pub(crate) fn file(&self, name: &str) -> anyhow::Result<File> {
        let shown = || format!("{}: cannot be made", self.dir.join(name).display());
        self.held.create(name.as_ref()).with_context(shown)
    }

    /// The message for a file that cannot be written; the reason follows.
    pub(crate) fn unwritable(&self, name: &str) -> String {
        format!("{}: cannot be written (free some space, raise ulimit -f, or use -o)", self.dir.join(name).display())
    }

    /// True if the directory was removed: its files go with the last descriptor.
    pub(crate) fn is_gone(&self) -> bool {
        self.held.stat().is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// True if the directory has a file of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        !matches!(self.held.kind(name.as_ref()), Ok(None))
    }

    /// Bytes that its file system has room for.
    pub(crate) fn room(&self) -> io::Result<u64> {
        self.held.statvfs().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Returns when the directory's name and those in it survive a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.held.sync()?;
        self.parent.sync()
    }

    /// Takes the directory away again if no recording has begun in it.
    pub(crate) fn discard(self) {
        if !self.has_begun {
            let _ = remove_trace(&self.held, &self.parent, &self.name);
        }
    }
}

/// What every file of the recording says of itself.
pub(crate) struct Description {
    pub(crate) recording: RecordingId,
    pub(crate) facts: Arc<SourceFacts>,
    pub(crate) started: [u8; 16],
}

/// 16 random bytes.
pub(crate) fn new_recording() -> anyhow::Result<RecordingId> {
    let mut id = [0; 16];
    // In early boot this waits for the kernel to have some.
    rustix::rand::getrandom(&mut id, GetRandomFlags::empty()).context("the kernel gives no random bytes")?;
    Ok(id)
}

/// Time of day and CLOCK_MONOTONIC, ns, as the items have them.
pub(crate) fn now() -> [u8; 16] {
    let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let mono = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let mono = mono.tv_sec.cast_unsigned() * 1_000_000_000 + mono.tv_nsec.cast_unsigned();
    let mut both = [0; 16];
    both[..8].copy_from_slice(&day.to_le_bytes());
    both[8..].copy_from_slice(&mono.to_le_bytes());
    both
}

impl Description {
    /// Payload of a file-header block; `full` for `meta.out`, which keeps the formats with their `print fmt`.
    pub(crate) fn payload(&self, full: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |tag, bytes: &[u8]| item::put(&mut out, tag, 0, bytes);
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(0).to_le_bytes();
        let endian = if Endian::NATIVE == Endian::Little { 1 } else { 2 };
        let facts = &self.facts;
        put(item::TARGET, &[endian, facts.word_bytes, 0, 0, page[0], page[1], page[2], page[3]]);
        match &*facts.framing {
            Framing::SubBuffers(_) => {
                put(item::SOURCE, b"tracefs");
                put(item::HEADER_PAGE, facts.header_page.as_bytes());
                put(item::HEADER_EVENT, facts.header_event.as_bytes());
            }
            Framing::Relay(framing) => {
                put(item::SOURCE, b"relay");
                if let Some(layout) = framing.layout.get() {
                    put(item::RELAY_LAYOUT, layout.name().as_bytes());
                }
            }
        }
        put(item::CPUS, &facts.cpus.iter().flat_map(|cpu| cpu.to_le_bytes()).collect::<Vec<u8>>());
        if let Some(clock) = &facts.clock {
            put(item::CLOCK, clock.as_bytes());
        }
        let system = rustix::system::uname();
        put(item::KERNEL, system.release().to_bytes());
        put(item::ARCH, system.machine().to_bytes());
        for (name, format) in &facts.formats {
            let format = if full { format } else { without_print_fmt(format) };
            put(item::EVENT_FORMAT, format!("{name}\n{format}").as_bytes());
        }
        if facts.since_boot {
            put(item::SINCE_BOOT, &[]);
        }
        put(item::STARTED, &self.started);
        put(item::RECORDER, concat!("kmemtraced ", env!("CARGO_PKG_VERSION")).as_bytes());
        if let Some(bytes) = facts.buffer_bytes {
            put(item::BUFFER_BYTES, bytes.to_string().as_bytes());
        }
        out
    }
}

/// Payloads of the blocks of `meta.out` that hold these texts, long ones in pieces.
pub(crate) fn meta_payloads(texts: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
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
pub(crate) struct SideTexts {
    proc: Option<KernelFs>,
    modules: Vec<u8>,
    kallsyms: Vec<u8>,
}

impl SideTexts {
    pub(crate) fn open() -> SideTexts {
        let proc = KernelFs::find(&PROC).inspect_err(|error| unnamed("symbols, modules and processes", error)).ok();
        SideTexts { proc, modules: Vec::new(), kallsyms: Vec::new() }
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
    use std::fs;

    use super::*;

    #[test]
    fn an_earlier_trace_goes_with_what_a_report_left_in_it_and_nothing_else_does() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        let fill = |names: &[&str]| {
            fs::create_dir_all(&dir).unwrap();
            names.iter().for_each(|name| fs::write(dir.join(name), b"x").unwrap());
        };
        fill(&["meta.out", "cpu0.out", "report.index", "report.index.new"]);
        let mut output = Output::create(Some(&dir), true).unwrap();
        assert!(dir.join("cpu0.out").exists(), "the recording has not begun");
        output.begin().and_then(|()| output.finish_removal()).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
        fill(&["meta.out", "notes"]);
        assert!(Output::create(Some(&dir), true).is_err());
        assert!(dir.join("notes").exists() && dir.join("meta.out").exists());
    }

    #[test]
    fn names_of_half_written_files_end_with_a_mark_and_random_digits() {
        let is_ours = |name: &&str| is_of_trace(name.as_ref());
        let ours = [
            "meta.out",
            "cpu12.out",
            "cpu0.out.packing",
            "cpu0.out.packing-a2bc3def",
            "meta.out.packing-1",
            "report.index",
            "report.index.new",
            "report.index.new-0123456789abcdef",
        ];
        assert_eq!(ours.iter().filter(|name| !is_ours(name)).count(), 0);
        let others =
            ["cpu.out", "cpux.out", "cpu0.out-1", "cpu0.out.packing-", "cpu0.out.packing-.x", "notes", "meta.out.new"];
        assert_eq!(others.iter().filter(|name| is_ours(name)).count(), 0);
    }

    #[test]
    fn a_discarded_recording_leaves_the_earlier_one() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("t");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("cpu0.out"), b"earlier").unwrap();
        let output = Output::create(Some(&dir), true).unwrap();
        output.file("cpu0.out").unwrap();
        output.discard();
        assert_eq!(fs::read(dir.join("cpu0.out")).unwrap(), b"earlier");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_in_place_of_the_earlier_one_is_not_emptied() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, moved) = (parent.path().join("t"), parent.path().join("moved"));
        for (name, file) in [(&dir, "cpu0.out"), (&moved, "meta.out")] {
            fs::create_dir(name).unwrap();
            fs::write(name.join(file), b"x").unwrap();
        }
        let mut output = Output::create(Some(&dir), true).unwrap();
        let names = [parent.path().join("other"), dir.clone(), moved.clone()];
        fs::rename(&dir, &names[0]).unwrap();
        fs::rename(&moved, &dir).unwrap();
        assert!(output.begin().and_then(|()| output.finish_removal()).is_err());
        assert!(names[0].join("cpu0.out").exists(), "moved away by its owner");
        let kept =
            fs::read_dir(parent.path()).unwrap().filter(|e| e.as_ref().unwrap().path().join("meta.out").exists());
        assert_eq!(kept.count(), 1);
    }

    #[test]
    fn only_new_lines_are_kept_at_the_end() {
        assert_eq!(later(b"a\nb\n", b"a\nc\nb\n"), b"c\n");
        assert!(later(b"a\n", b"a\n").is_empty());
    }

    #[test]
    fn a_long_text_is_cut_and_marked() {
        let payloads = meta_payloads(&[(item::KALLSYMS, vec![b'x'; PIECE + 5]), (item::MODULES, Vec::new())]);
        let flags: Vec<_> =
            payloads.iter().map(|p| item::walk(p).next().map(|i| i.map(|(_, flags, b)| (flags, b.len())))).collect();
        assert_eq!(flags, [Some(Ok((item::MORE, PIECE))), Some(Ok((0, 5)))]);
    }
}
