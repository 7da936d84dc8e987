//! The trace directory: making it, and what stands in its files besides events.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use kmemtrace_abi::block::{RecordingId, item};
use kmemtrace_abi::format::without_print_fmt;
use kmemtrace_abi::target::Endian;
use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use crate::kernelfs::{KernelFs, PROC, SYSFS};
use crate::source::{Framing, SourceFacts};

/// Where a trace goes if nobody says.
const DEFAULT: &str = "kmemtrace.data";
/// No item piece is longer.
const PIECE: usize = 1 << 20;

/// The directory, locked while it is written.
pub(crate) struct Output {
    pub(crate) dir: PathBuf,
    /// The directory itself, wherever it is moved.
    lock: File,
    /// Where an earlier recording was put out of the way.
    earlier: Option<PathBuf>,
}

fn is_locked(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|d| rustix::fs::flock(&d, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Removes a trace directory that holds nothing but a trace.
fn remove_trace(dir: &Path) -> anyhow::Result<()> {
    if !fs::symlink_metadata(dir)?.is_dir() {
        bail!("is no directory: move it away first");
    }
    let names: Vec<PathBuf> = fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        // What a killed pack leaves is ours, too, and so is the index of kmemtrace-report, whole or half written.
        let name = name.strip_suffix(".packing").unwrap_or(name);
        let of_report = ["report.index", "report.index.new"].contains(&name);
        of_report || name == "meta.out" || (name.starts_with("cpu") && name.ends_with(".out"))
    };
    if let Some(other) = names.iter().find(|path| !ours(path)) {
        bail!("{}: is not ours: move it away first", other.display());
    }
    names.iter().try_for_each(fs::remove_file)?;
    Ok(fs::remove_dir(dir)?)
}

impl Output {
    /// Makes the directory. An earlier default one is renamed, another one must be overwritten with `force`.
    pub(crate) fn create(given: Option<&Path>, force: bool) -> anyhow::Result<Output> {
        let dir = given.unwrap_or(Path::new(DEFAULT)).to_owned();
        let mut earlier = None;
        if fs::symlink_metadata(&dir).is_ok() {
            if is_locked(&dir) {
                bail!("{}: another recorder writes to it", dir.display());
            }
            if given.is_none() {
                let old = PathBuf::from(format!("{DEFAULT}.old"));
                if fs::symlink_metadata(&old).is_ok() {
                    remove_trace(&old).with_context(|| format!("{}: cannot be replaced", old.display()))?;
                }
                fs::rename(&dir, &old)
                    .with_context(|| format!("{}: cannot be renamed to {}", dir.display(), old.display()))?;
                earlier = Some(old);
            } else if force {
                remove_trace(&dir).with_context(|| format!("{}: cannot be overwritten", dir.display()))?;
            } else {
                bail!("{}: exists already: use -f to overwrite it, or another name", dir.display());
            }
        }
        DirBuilder::new().mode(0o700).create(&dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
        let lock = File::open(&dir)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("{}: cannot be locked", dir.display()))?;
        Ok(Output { dir, lock, earlier })
    }

    pub(crate) fn file(&self, name: &str) -> anyhow::Result<File> {
        let path = self.dir.join(name);
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(&path)
            .with_context(|| format!("{}: cannot be made", path.display()))
    }

    /// What to say of a file that nothing can be written to; the reason follows.
    pub(crate) fn unwritable(&self, name: &str) -> String {
        format!("{}: cannot be written (free some space, raise ulimit -f, or use -o)", self.dir.join(name).display())
    }

    /// Whether somebody has removed the directory: what is written goes nowhere.
    pub(crate) fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.lock).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Whether a file of this name is in the directory.
    pub(crate) fn has(&self, name: &str) -> bool {
        !matches!(rustix::fs::statat(&self.lock, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
    }

    /// Takes the directory away again, since nothing was recorded; an earlier recording has its name back.
    pub(crate) fn discard(self) {
        if remove_trace(&self.dir).is_ok()
            && let Some(earlier) = self.earlier
        {
            let _ = fs::rename(earlier, &self.dir);
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
        SideTexts { proc: KernelFs::find(&PROC).ok(), modules: Vec::new(), kallsyms: Vec::new() }
    }

    fn proc(&self, file: &str) -> Vec<u8> {
        self.proc.as_ref().and_then(|proc| proc.read(file).ok()).unwrap_or_default()
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
        for pid in proc.numbered(".", "") {
            for thread in proc.numbered(&format!("{pid}/task"), "") {
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

/// `CPU NODE` a line, from sysfs; nothing where that does not tell.
fn cpu_nodes() -> Vec<u8> {
    let mut out = String::new();
    let Ok(nodes) = KernelFs::find(&SYSFS).and_then(|sysfs| Ok(sysfs.sub("devices/system/node")?)) else {
        return Vec::new();
    };
    for node in nodes.numbered(".", "node") {
        let list = nodes.get(&format!("node{node}/cpulist")).unwrap_or_default();
        for range in list.trim().split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
                (from..=to).for_each(|cpu| out += &format!("{cpu} {node}\n"));
            }
        }
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
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
        Output::create(Some(&dir), true).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fill(&["meta.out", "notes"]);
        assert!(Output::create(Some(&dir), true).is_err());
        assert!(dir.join("notes").exists() && dir.join("meta.out").exists());
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
