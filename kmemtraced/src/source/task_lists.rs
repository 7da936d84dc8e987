//! Lists of the tasks to record, as control files of a trace directory keep them.

use std::collections::BTreeSet;

use rustix::io::Errno;

use crate::fs::kernelfs::KernelFs;

/// Thread ids of one write. The kernel reads any number of words, and for each write it makes a copy of its list and waits for the
/// CPUs (`trace_pid_write` and `event_pid_write`, `kernel/trace/`, Linux 4.8 to 7.3).
const PER_WRITE: usize = 4096;

/// Adds threads to the list in `file`. A thread that has ended is left out.
pub(super) fn add(fs: &KernelFs, file: &str, threads: &[u32]) -> anyhow::Result<()> {
    for some in threads.chunks(PER_WRITE) {
        if is_refused(fs, file, some)? {
            // The kernel takes all of a write or nothing.
            for thread in some {
                is_refused(fs, file, &[*thread])?;
            }
        }
    }
    Ok(())
}

/// Writes the ids; true if the kernel does not know one of them. An error names the file.
fn is_refused(fs: &KernelFs, file: &str, threads: &[u32]) -> anyhow::Result<bool> {
    let words: Vec<String> = threads.iter().map(u32::to_string).collect();
    match fs.write(file, &words.join(" ")) {
        Ok(()) => Ok(false),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(true),
        Err(error) => {
            let shown = match &words[..] {
                [one] => one.clone(),
                _ => format!("{} thread ids", words.len()),
            };
            Err(fs.failed(file, &format!("set to {shown}"), error))
        }
    }
}

/// Threads of the list in `file`. A text without numbers stands for an empty list.
pub(super) fn threads(fs: &KernelFs, file: &str) -> Option<BTreeSet<u32>> {
    let text = fs.read(file).ok()?;
    Some(String::from_utf8_lossy(&text).lines().filter_map(|line| line.trim().parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_are_listed_in_few_writes() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let list = dir.path().join("list");
        std::fs::write(&list, "").unwrap();
        let few: Vec<u32> = (1..100).collect();
        add(&fs, "list", &few).unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        assert_eq!(text, few.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
        // A plain file has the last write only.
        let last = PER_WRITE as u32 * 2 + 7;
        let many: Vec<u32> = (1..=last).collect();
        std::fs::write(&list, "").unwrap();
        add(&fs, "list", &many).unwrap();
        assert!(std::fs::read_to_string(&list).unwrap().starts_with(&format!("{} ", last - 6)));
        std::fs::write(&list, "no pid\n").unwrap();
        assert_eq!(threads(&fs, "list"), Some(BTreeSet::new()));
        std::fs::write(&list, "12\n7\n").unwrap();
        assert_eq!(threads(&fs, "list"), Some([7, 12].into()));
        assert_eq!(threads(&fs, "none"), None);
        let error = format!("{:#}", add(&fs, "none", &[1, 2]).unwrap_err());
        assert!(
            error.ends_with("none: cannot be set to 2 thread ids: No such file or directory (os error 2)"),
            "{error}"
        );
    }
}
