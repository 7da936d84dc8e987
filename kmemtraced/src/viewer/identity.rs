//! User and group of a viewer: a number that nobody else has, so that no process of any user may trace, signal or read it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::ops::RangeInclusive;

use kmemtrace_abi::random;
use rustix::process::{Pid, Signal, kill_process};

use crate::fs::state;

/// Numbers for users that come and go (systemd's `DynamicUser=`): no package and no administrator gives them away.
const NUMBERS: RangeInclusive<u32> = 61_184..=65_519;
/// Begin of the names of the files that hold numbers.
const PREFIX: &str = "uid-";

/// A user and group of the same number, held as long as this is.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) number: u32,
    /// Lock on the number; none where the machine has no place for it.
    held: Option<File>,
}

impl Identity {
    /// Takes a number; `None` where this process may not change its user, or all numbers are taken.
    pub(super) fn take() -> Option<Identity> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let texts = ["/etc/passwd", "/etc/group"].map(|path| fs::read_to_string(path).unwrap_or_default());
        let named: HashSet<u32> = texts.iter().flat_map(|text| ids_of(text)).collect();
        let mut bytes = [0; 4];
        // Without random bytes the first number will do: it is no secret.
        let _ = random::fill(&mut bytes);
        let count = NUMBERS.end() - NUMBERS.start() + 1;
        let first = u32::from_ne_bytes(bytes) % count;
        let numbers = (0..count).map(|step| NUMBERS.start() + (first + step) % count);
        numbers.filter(|number| !named.contains(number)).find_map(Identity::hold)
    }

    /// Holds a number that no process has.
    fn hold(number: u32) -> Option<Identity> {
        let held = match state::lock(&format!("{PREFIX}{number}")) {
            Ok(Some(file)) => Some(file),
            Ok(None) => return None,
            Err(_) => None,
        };
        let identity = Identity { number, held };
        // Looked at behind the lock: another recorder's viewer may have had it until then.
        (!is_in_use(number)).then_some(identity)
    }
}

impl Identity {
    /// Kills the processes of this user, whose number nobody else has.
    pub(super) fn kill_processes(&self) {
        let of_user = processes().filter(|(_, status)| has_id(status, self.number));
        for (pid, _) in of_user {
            // One that has ended meanwhile is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        if self.held.is_some() {
            state::remove(&format!("{PREFIX}{}", self.number));
        }
    }
}

/// Removes the files of killed recorders.
pub(crate) fn recover() {
    state::remove_unlocked(PREFIX);
}

/// Numbers that a text such as `/etc/passwd` names.
fn ids_of(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok())
}

/// True if a process has the number as one of its users or groups.
fn is_in_use(number: u32) -> bool {
    processes().any(|(_, status)| has_id(&status, number))
}

/// Processes of the machine, with the texts of their states.
fn processes() -> impl Iterator<Item = (Pid, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.map(|pid| (pid, fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()))
}

fn has_id(status: &str, number: u32) -> bool {
    let lines =
        status.lines().filter_map(|line| ["Uid:", "Gid:", "Groups:"].iter().find_map(|name| line.strip_prefix(name)));
    lines.flat_map(str::split_whitespace).any(|id| id.parse() == Ok(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_others_have_are_known() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nodd\nbuild:x:61200:100::/:/bin/false\n";
        assert_eq!(ids_of(passwd).collect::<Vec<_>>(), [0, 61_200]);
        let status = "Name:\tsh\nUid:\t1000\t1000\t61300\t1000\nGid:\t1\t1\t1\t1\nGroups:\t4 61400 \nPid:\t61500\n";
        let found = [61_300, 61_400, 61_500, 1].map(|number| has_id(status, number));
        assert_eq!(found, [true, true, false, true]);
    }

    #[test]
    fn two_viewers_have_two_users() {
        let Some((one, other)) = Identity::take().zip(Identity::take()) else { return };
        assert!(NUMBERS.contains(&one.number) && NUMBERS.contains(&other.number));
        assert!(one.number != other.number || one.held.is_none());
        assert_ne!(rustix::process::geteuid().as_raw(), one.number);
    }
}
