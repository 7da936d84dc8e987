//! The kernel's tracefs: finding it, and an instance of our own in it that leaves nothing behind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, OFlags};

/// `TRACEFS_MAGIC` of `include/uapi/linux/magic.h`.
const TRACEFS_MAGIC: u32 = 0x7472_6163;
/// Where it is mounted.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Which instances are ours, with the recorder's pid: told even after a kill.
const STATE: &str = "/run/kmemtraced";

/// A mounted tracefs, unmounted at the end if it was mounted here.
pub(crate) struct Tracefs {
    pub(crate) root: PathBuf,
    mounted: bool,
}

impl Tracefs {
    pub(crate) fn find() -> anyhow::Result<Tracefs> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let others = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (_, dir, kind) = (words.next()?, words.next()?, words.next()?);
            (kind == "tracefs").then(|| PathBuf::from(dir))
        });
        let is_tracefs = |path: &PathBuf| rustix::fs::statfs(path).is_ok_and(|s| s.f_type as u32 == TRACEFS_MAGIC);
        if let Some(root) = USUAL.iter().map(PathBuf::from).chain(others).find(is_tracefs) {
            return Ok(Tracefs { root, mounted: false });
        }
        let root = PathBuf::from(USUAL[0]);
        let flags =
            rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOEXEC;
        rustix::mount::mount("tracefs", &root, "tracefs", flags, None).with_context(|| {
            format!(
                "tracefs is not mounted, and mounting it on {} fails: run as root on a kernel with CONFIG_TRACING",
                root.display()
            )
        })?;
        Ok(Tracefs { root, mounted: true })
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.mounted {
            let _ = rustix::mount::unmount(&self.root, rustix::mount::UnmountFlags::empty());
        }
    }
}

/// Reads a control file. `events/header_page` is handed out on the first read only, so the buffer must hold it all.
pub(crate) fn read_control(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
}

fn write_control(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// A tracefs instance of our own. Dropping it disables its events and removes it.
pub(crate) struct Instance {
    pub(crate) dir: PathBuf,
    name: String,
    /// Held for as long as we live; the kernel lets go of it when we are killed.
    _lock: File,
}

fn state_file(name: &str) -> PathBuf {
    Path::new(STATE).join(name)
}

/// Whether an unlocked instance of this name was left by a recorder.
fn is_ours(name: &str) -> bool {
    name.starts_with("kmemtrace") || state_file(name).exists()
}

fn lock(dir: &Path) -> io::Result<File> {
    let lock = File::open(dir)?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

fn remove(dir: &Path, name: &str) -> io::Result<()> {
    let _ = write_control(&dir.join("tracing_on"), "0");
    let _ = write_control(&dir.join("events/enable"), "0");
    fs::remove_dir(dir)?;
    let _ = fs::remove_file(state_file(name));
    Ok(())
}

impl Instance {
    /// Makes the instance, after clearing up what a killed recorder left of it.
    pub(crate) fn create(tracefs: &Tracefs, name: &str) -> anyhow::Result<Instance> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            bail!("-B {name}: not a name for an instance");
        }
        let dir = tracefs.root.join("instances").join(name);
        if dir.exists() {
            let held = lock(&dir);
            if held.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
                let pid = fs::read_to_string(state_file(name))
                    .map(|pid| format!(" (pid {})", pid.trim()))
                    .unwrap_or_default();
                bail!("instance {name} is in use by another recorder{pid}: stop it, or use another name (-B)");
            }
            if !is_ours(name) {
                bail!("instance {name} exists and is not ours: use another name (-B), or remove {}", dir.display());
            }
            remove(&dir, name)
                .with_context(|| format!("{}: left by a killed recorder, cannot be removed", dir.display()))?;
        }
        let _ = fs::create_dir_all(STATE);
        let _ = fs::write(state_file(name), format!("{}\n", std::process::id()));
        fs::create_dir(&dir).with_context(|| {
            format!("{}: cannot be made: it takes root and a kernel with trace instances", dir.display())
        })?;
        let lock = lock(&dir).with_context(|| format!("{}: cannot be locked", dir.display()))?;
        let instance = Instance { dir, name: name.to_owned(), _lock: lock };
        instance.set("tracing_on", "0")?;
        Ok(instance)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    pub(crate) fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.path(file);
        write_control(&path, value).with_context(|| format!("{}: cannot be set to {value}", path.display()))
    }

    pub(crate) fn get(&self, file: &str) -> anyhow::Result<String> {
        let path = self.path(file);
        read_control(&path).with_context(|| format!("{}: cannot be read", path.display()))
    }

    /// Leaves these threads out of the trace; false where the kernel cannot.
    pub(crate) fn leave_out(&self, threads: &[i32]) -> bool {
        let file = OpenOptions::new().append(true).open(self.path("set_event_notrace_pid"));
        file.and_then(|mut file| threads.iter().try_for_each(|tid| file.write_all(format!("{tid}\n").as_bytes())))
            .is_ok()
    }

    /// CPUs that the instance has buffers for.
    pub(crate) fn cpus(&self) -> anyhow::Result<Vec<u32>> {
        let names = fs::read_dir(self.path("per_cpu")).context("the instance has no per_cpu")?.flatten();
        let mut cpus: Vec<u32> =
            names.filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// A CPU's raw sub-buffers. Exactly one descriptor: closing a copy would change how the kernel answers.
    pub(crate) fn raw(&self, cpu: u32) -> io::Result<File> {
        let path = self.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
    }

    pub(crate) fn stats(&self, cpu: u32) -> io::Result<StatsFile> {
        File::open(self.path(&format!("per_cpu/cpu{cpu}/stats"))).map(StatsFile)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.dir, &self.name) {
            let _ = writeln!(
                io::stderr(),
                "kmemtraced: {}: cannot be removed: {error}: run kmemtraced recover",
                self.dir.display()
            );
        }
    }
}

/// Removes the instances that killed recorders left; names those it removed.
pub(crate) fn recover(tracefs: &Tracefs, also: &str) -> anyhow::Result<Vec<String>> {
    let mut removed = Vec::new();
    let instances = fs::read_dir(tracefs.root.join("instances")).context("this kernel has no trace instances")?;
    for entry in instances.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if (name != also && !is_ours(&name)) || lock(&entry.path()).is_err() {
            continue;
        }
        remove(&entry.path(), &name).with_context(|| format!("{}: cannot be removed", entry.path().display()))?;
        removed.push(name);
    }
    Ok(removed)
}

/// `per_cpu/cpuN/stats`, read again and again.
pub(crate) struct StatsFile(File);

/// The counters in it, in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) entries: u64,
    pub(crate) overrun: u64,
    pub(crate) commit_overrun: u64,
    pub(crate) dropped: u64,
    pub(crate) read: u64,
}

impl StatsFile {
    pub(crate) fn read(&self) -> io::Result<Stats> {
        let mut buffer = [0; 1024];
        let n = self.0.read_at(&mut buffer, 0)?;
        Ok(Stats::parse(&String::from_utf8_lossy(&buffer[..n])))
    }
}

impl Stats {
    fn parse(text: &str) -> Stats {
        let mut stats = Stats::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let Ok(value) = value.trim().parse() else { continue };
            match name {
                "entries" => stats.entries = value,
                "overrun" => stats.overrun = value,
                "commit overrun" => stats.commit_overrun = value,
                "dropped events" => stats.dropped = value,
                "read events" => stats.read = value,
                _ => {}
            }
        }
        stats
    }

    /// Whether a counter went back: somebody reset the buffer.
    pub(crate) fn is_before(&self, earlier: &Stats) -> bool {
        self.overrun < earlier.overrun
            || self.commit_overrun < earlier.commit_overrun
            || self.dropped < earlier.dropped
            || self.read < earlier.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_apart() {
        let text = "entries: 7\noverrun: 12\ncommit overrun: 3\nbytes: 99\noldest event ts:  81.5\nnow ts: 90.1\n\
            dropped events: 4\nread events: 1000\n";
        let stats = Stats::parse(text);
        assert_eq!(stats, Stats { entries: 7, overrun: 12, commit_overrun: 3, dropped: 4, read: 1000 });
        assert!(Stats { read: 999, ..stats }.is_before(&stats));
        assert!(!Stats { entries: 0, read: 1007, ..stats }.is_before(&stats));
    }
}
