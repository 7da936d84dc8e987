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
            let group = MemoryGroup { path: parent.join(format!("kmemtrace-test-{}-{number}", std::process::id())) };
            let is_made = fs::create_dir(&group.path).is_ok();
            if is_made && fs::write(group.path.join(file), limit.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err(Skip("this machine has no memory cgroups that can be made".to_owned()))
    }

    /// Directory of the group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Command that runs `command` of a shell within the group.
    pub fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("echo $$ >'{}' && {command}", self.path.join("cgroup.procs").display())]);
        shell
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The kernel may still take leave of the group's last task.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        eprintln!("{} stays behind", self.path.display());
    }
}
