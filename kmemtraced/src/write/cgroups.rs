//! Cgroups of threads, from `/proc/PID/task/TID/cgroup`.

use std::collections::BTreeSet;

use crate::fs::kernelfs::KernelFs;

/// Event that tells of new threads.
pub(crate) const NEW_THREAD: &str = "task/task_newtask";
/// Most processes that are remembered. More have no cgroups once they are new.
const MAX_PROCESSES: usize = 1 << 20;

/// Lines `TID TGID ROOT PATH` of the threads of processes that are not in `known`, which has those that live afterwards.
pub(crate) fn lines(proc: &KernelFs, known: &mut BTreeSet<u32>) -> Vec<u8> {
    let processes = proc.numbered(".", "").unwrap_or_default();
    let mut out = Vec::new();
    for process in processes.iter().filter(|process| !known.contains(process)) {
        // A thread that ended meanwhile has no cgroup any more.
        for thread in proc.numbered(&format!("{process}/task"), "").unwrap_or_default() {
            let Ok(text) = proc.read(&format!("{process}/task/{thread}/cgroup")) else { continue };
            let Some((root, path)) = cgroup(&text) else { continue };
            out.extend_from_slice(format!("{thread} {process} ").as_bytes());
            out.extend_from_slice(root);
            out.push(b' ');
            out.extend_from_slice(path);
            out.push(b'\n');
        }
    }
    *known = processes.into_iter().take(MAX_PROCESSES).collect();
    out
}

/// Number of the hierarchy and path in a text of lines `ROOT:CONTROLLERS:PATH`: version 2, else that of the memory controller.
fn cgroup(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut memory = None;
    for line in text.split(|&b| b == b'\n') {
        let mut parts = line.splitn(3, |&b| b == b':');
        let (Some(root), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        if controllers.is_empty() {
            return Some((root, path));
        }
        if controllers.split(|&b| b == b',').any(|controller| controller == b"memory") {
            memory = Some((root, path));
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn threads_of_new_processes_have_lines() {
        let dir = tempfile::tempdir().unwrap();
        let add = |process: u32, thread: u32, text: &str| {
            let path = dir.path().join(format!("{process}/task/{thread}"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup"), text).unwrap();
        };
        add(7, 7, "4:memory,cpu:/old\n0::/new\n");
        add(7, 8, "0::/new\n");
        add(9, 9, "12:devices:/d\n4:cpu,memory:/m with: colon\n1:name=systemd:/s\n");
        add(10, 10, "12:devices:/d\ngarbage\n");
        let proc = KernelFs::at(dir.path()).unwrap();
        let mut known = BTreeSet::new();
        let text = lines(&proc, &mut known);
        assert_eq!(String::from_utf8(text).unwrap(), "7 7 0 /new\n8 7 0 /new\n9 9 4 /m with: colon\n");
        assert!(lines(&proc, &mut known).is_empty(), "once");
        fs::remove_dir_all(dir.path().join("9")).unwrap();
        add(11, 11, "0::/\n");
        assert_eq!(lines(&proc, &mut known), b"11 11 0 /\n");
        add(9, 9, "0::/again\n");
        assert_eq!(lines(&proc, &mut known), b"9 9 0 /again\n", "a number that is used again");
    }
}
