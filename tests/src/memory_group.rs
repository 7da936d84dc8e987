//! Memory cgroups: a limit on the memory of a command makes the kernel reclaim memory for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::live::root;
use crate::runner::Skip;

/// Memory cgroup, removed on drop.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    /// Group of version 2 of the same name, beside one of version 1: recordings have the paths of version 2.
    twin: Option<PathBuf>,
}

impl MemoryGroup {
    /// Makes a group with a limit in bytes; skips where the machine has no memory cgroups.
    pub fn new(limit: u64) -> Result<MemoryGroup, Skip> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        root()?;
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let parents = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
            match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => {
                    Some((PathBuf::from(path), "memory.limit_in_bytes"))
                }
                "cgroup2" => Some((PathBuf::from(path), "memory.max")),
                _ => None,
            }
        });
        for (parent, file) in parents {
            // In the second version the parent names the controllers of its groups.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("kmemtrace-test-{}-{number}", std::process::id());
            let mut group = MemoryGroup { path: parent.join(&name), twin: None };
            let is_made = fs::create_dir(&group.path).is_ok();
            if is_made && fs::write(group.path.join(file), limit.to_string()).is_ok() {
                let other = mounts.lines().filter_map(|line| line.split_once(" cgroup2 ")?.0.split(' ').nth(1));
                let twin = other.map(|mount| Path::new(mount).join(&name)).next();
                group.twin = twin.filter(|twin| *twin != group.path && fs::create_dir(twin).is_ok());
                return Ok(group);
            }
        }
        Err(Skip("this machine has no memory cgroups that can be made".to_owned()))
    }

    /// Directory of the group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the group in recordings; `None` on a machine without version 2.
    pub fn shown(&self) -> Option<String> {
        let is_second = self.path.join("cgroup.controllers").exists();
        let path = self.twin.as_ref().or(Some(&self.path).filter(|_| is_second))?;
        Some(format!("/{}", path.file_name()?.display()))
    }

    /// Command that runs `command` of a shell within the group.
    pub fn shell(&self, command: &str) -> Command {
        let groups = [Some(&self.path), self.twin.as_ref()].into_iter().flatten();
        let enter = groups.map(|group| format!("echo $$ >'{}' && ", group.join("cgroup.procs").display()));
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{}{command}", enter.collect::<String>())]);
        shell
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for path in [Some(&self.path), self.twin.as_ref()].into_iter().flatten() {
            // The kernel may still take leave of the group's last task.
            let is_gone = (0..50).any(|_| {
                let is_gone = fs::remove_dir(path).is_ok() || !path.exists();
                if !is_gone {
                    sleep(Duration::from_millis(20));
                }
                is_gone
            });
            if !is_gone {
                eprintln!("{} stays behind", path.display());
            }
        }
    }
}
