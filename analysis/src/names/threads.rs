//! Names of threads of this machine.

/// Command name of a thread that lives; `None` for the idle task.
pub(crate) fn comm(pid: i32) -> Option<Box<[u8]>> {
    let comm = std::fs::read(format!("/proc/{pid}/comm")).ok().filter(|_| pid > 0)?;
    Some(comm.strip_suffix(b"\n").unwrap_or(&comm).into())
}
