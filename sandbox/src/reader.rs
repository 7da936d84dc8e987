//! Paths that readers of traces open, by what the command line names.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Sandbox;
use crate::capabilities::Kept;
use crate::role::Role;

/// Files and folders that each reader opens: its own state (the budget of memory reads that), the machine's memory, its limits (the
/// number of threads), time zones, and where random numbers come from (the second, which tells when it is ready, in static programs).
const ALWAYS: [&str; 10] = [
    "/proc/self",
    "/proc/meminfo",
    "/proc/sys/kernel/random/boot_id",
    "/sys/fs/cgroup",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/usr/share/lib/zoneinfo",
    "/etc/zoneinfo",
    "/dev/urandom",
    "/dev/random",
];
/// Folder of temporary files where TMPDIR names none.
const TEMPORARY: &str = "/var/tmp";
/// Greatest number of entries of folders that are looked through for links.
const MAX_ENTRIES: usize = 1 << 20;
/// A CPU's file in a captured tree, at `per_cpu/cpuN/trace_pipe_raw`.
const OF_TREE: &str = "trace_pipe_raw";

impl Sandbox {
    /// The sandbox of a reader that was given no input yet.
    pub fn of_reader(role: Role) -> Sandbox {
        let mut sandbox = Sandbox::new(role);
        sandbox.keep(Kept::files());
        if std::env::var_os("SUDO_UID").is_some() {
            sandbox.keep(Kept::hand_over());
        }
        ALWAYS.iter().for_each(|path| sandbox.read(path));
        for name in ["TZDIR", "TZ"] {
            let value = std::env::var_os(name).map(|value| value.to_string_lossy().trim_start_matches(':').to_owned());
            value.filter(|value| value.starts_with('/')).iter().for_each(|path| sandbox.read(path));
        }
        let temporary = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
        sandbox.write(temporary.map_or(TEMPORARY.into(), PathBuf::from));
        sandbox
    }

    /// The sandbox of a program that shows a stream: it opens no input, and writes to the descriptors that it has alone. Names of threads
    /// and the memory of the machine are in /proc.
    pub fn of_viewer() -> Sandbox {
        let mut sandbox = Sandbox::new(Role::Viewer);
        ALWAYS.iter().for_each(|path| sandbox.read(path));
        sandbox.read("/proc");
        sandbox
    }

    /// Allows to read an input: a file, or a folder with the files that links in it stand for.
    pub fn input(&mut self, path: &Path) {
        if path == Path::new("-") {
            return;
        }
        self.named(path);
        if path.is_dir() {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_symlink()) && entry.path().is_file() {
                    self.read(entry.path());
                }
            }
            return;
        }
        // A recorder locks it.
        self.list(path.parent().unwrap_or(Path::new("")));
        if path.file_name().is_some_and(|name| name == OF_TREE) {
            // Of a name alone the folders above are known to the kernel.
            let cpu = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.read(cpu.join("../.."));
        }
    }

    /// Allows to read a trace, or a directory `events` with the facts of its kernel beside it, for formats of events.
    pub fn event_formats(&mut self, path: &Path) {
        self.input(path);
        ["uname", "page_size"].iter().for_each(|text| self.read(path.join("..").join(text)));
    }

    /// Allows to read a file or folder that the command line names. Addresses in texts of the running kernel need a capability.
    pub fn named(&mut self, path: &Path) {
        self.read(path);
        let is_of_kernel = |path: PathBuf| path.starts_with("/proc") || path.starts_with("/sys");
        if path.canonicalize().is_ok_and(is_of_kernel) {
            self.keep(Kept::addresses());
        }
    }

    /// Allows to read a folder, and what links in and beneath it stand for, but none of the folders that it is in itself.
    pub fn tree(&mut self, root: &Path) {
        self.named(root);
        let above = root.canonicalize().unwrap_or_default();
        let (mut folders, mut entered, mut seen) = (vec![root.to_owned()], HashSet::new(), 0);
        while let Some(folder) = folders.pop() {
            let id = fs::metadata(&folder).map(|data| (data.dev(), data.ino()));
            if !id.is_ok_and(|id| entered.insert(id)) {
                continue;
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return;
                }
                let Ok(kind) = entry.file_type() else { continue };
                let path = entry.path();
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_symlink()
                    && let Ok(target) = path.canonicalize()
                    && !above.starts_with(&target)
                {
                    if target.is_dir() {
                        folders.push(path);
                    }
                    // One rule for all that is beneath.
                    if !target.starts_with(&above) {
                        self.read(target);
                    }
                }
            }
        }
    }

    /// Allows to read a folder of debug information, and what links in it stand for where files are searched for.
    pub fn debug_folder(&mut self, folder: &Path) {
        self.named(folder);
        [".build-id", "boot", "lib/modules", "usr/lib/modules"].iter().for_each(|below| self.tree(&folder.join(below)));
    }

    /// Allows to read the modules of all kernels of this machine, and the trees that they were built in.
    pub fn modules(&mut self, folder: &Path) {
        self.read(folder);
        for kernel in fs::read_dir(folder).into_iter().flatten().flatten() {
            ["build", "source"].iter().for_each(|link| self.read(kernel.path().join(link)));
        }
    }

    /// Allows to write a file that takes its name when it is whole, in place of an earlier one, or a device.
    pub fn output(&mut self, path: &Path) {
        if path == Path::new("-") {
            return;
        }
        match fs::metadata(path) {
            Ok(there) if !there.is_file() && !there.is_dir() => self.device(path),
            _ => {
                let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                self.write(target.parent().unwrap_or(Path::new("")));
            }
        }
    }
}
