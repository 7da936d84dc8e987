//! Rights that this process lacks in the kernel's file systems, with the remedy: texts for messages.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use anyhow::anyhow;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::fs::kernelfs::{KernelFs, SECURITYFS, TRACEFS};

/// A control file that each trace directory has.
const CONTROL: &str = "trace_clock";
/// File with the symbols.
const KALLSYMS: &str = "kallsyms";
/// Bytes of it that are looked at, about a thousand lines. Symbols of per-CPU memory at address 0 stand first.
const LOOKED_AT: u64 = 64 << 10;
/// Bytes that are read at once.
const LINES_READ: usize = 4096;
/// The way to name call sites without kallsyms.
const LATER: &str = "name call sites later with kmemtrace-report --kallsyms FILE";

/// Capabilities that a recording uses, and what for.
const USED: [(CapabilitySet, &str, &str); 5] = [
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN", "to mount tracefs"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "to write control files"),
    (CapabilitySet::SYSLOG, "CAP_SYSLOG", "to read kernel symbols"),
    (CapabilitySet::SYS_NICE, "CAP_SYS_NICE", "for a higher priority"),
    (CapabilitySet::IPC_LOCK, "CAP_IPC_LOCK", "to lock memory"),
];

/// Capabilities that a recording uses and this thread lacks, each with what it is for.
pub(crate) fn missing() -> impl Iterator<Item = (&'static str, &'static str)> {
    USED.into_iter().filter(|(capability, ..)| !has(*capability)).map(|(_, name, why)| (name, why))
}

/// True if this thread has the capability, in its own user namespace.
fn has(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|own| own.effective.contains(capability))
}

/// True if this process is in a user namespace of its own: the kernel then checks many capabilities outside of it.
fn is_in_user_namespace(proc: &KernelFs) -> bool {
    // The first namespace maps all ids onto themselves. A kernel without user namespaces has no such file.
    let map = proc.get_if_there("self/uid_map").unwrap_or_default();
    !map.is_empty() && !map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Message for root where tracefs is not mounted and cannot be for `error`.
pub(crate) fn no_tracefs(error: anyhow::Error) -> anyhow::Error {
    let path = TRACEFS.usual_path();
    match error.root_cause().downcast_ref::<Errno>() {
        Some(&Errno::PERM | &Errno::ACCESS) => {
            let why = if has(CapabilitySet::SYS_ADMIN) { "not allowed here" } else { "no CAP_SYS_ADMIN" };
            anyhow!(
                "tracefs is not mounted and this process may not mount it ({why}); run mount -t tracefs none {path} on the host, and add \
                 -v {path}:{path} to docker run"
            )
        }
        _ => error.context("no trace events here: a kernel with CONFIG_TRACING is required"),
    }
}

/// Checks that a trace directory has files that this process may open.
pub(crate) fn check_trace_directory(tracefs: &KernelFs) -> anyhow::Result<()> {
    let path = tracefs.path("");
    let path = path.display();
    let Err(error) = tracefs.open(CONTROL, OFlags::RDONLY) else { return Ok(()) };
    let lockdown = KernelFs::find(&SECURITYFS).and_then(|security| security.get_if_there("lockdown"));
    let is_confidential = lockdown.is_ok_and(|text| text.contains("[confidentiality]"));
    if is_confidential {
        return Err(anyhow!(
            "{path}: the kernel is locked down (lockdown=confidentiality); boot with lockdown=integrity"
        ));
    }
    Err(match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => anyhow!("{path}: has no trace events; name a directory where tracefs is mounted"),
        Some(Errno::ACCESS) => {
            anyhow!("{path}/{CONTROL}: cannot be opened: {error}; run as its owner, or with CAP_DAC_OVERRIDE")
        }
        _ => anyhow!("{path}/{CONTROL}: cannot be opened: {error}"),
    })
}

/// Remedy for an instance that cannot be made in `tracefs`.
pub(crate) fn cannot_make_instance(tracefs: &KernelFs, error: &io::Error) -> String {
    let path = tracefs.path("");
    match Errno::from_io_error(error) {
        Some(Errno::ROFS) => format!(
            "{0} is mounted read-only; run mount -o remount,rw {0}, and leave out :ro of docker run -v",
            path.display()
        ),
        Some(Errno::ACCESS | Errno::PERM) => {
            "run as root, and add --security-opt apparmor=unconfined to docker run".to_owned()
        }
        _ => "run as root, on a kernel with trace instances".to_owned(),
    }
}

/// Line for a kernel whose symbols cannot be had, with the reason and the remedy; `None` if they can. An error names the file.
pub(crate) fn no_symbols(proc: &KernelFs) -> anyhow::Result<Option<String>> {
    let lacks = |reason: &str, remedy: &str| Ok(Some(format!("no kernel symbols: {reason}; {remedy}{LATER}")));
    let Some(file) = proc.open_if_there(KALLSYMS, OFlags::RDONLY)? else {
        return lacks("CONFIG_KALLSYMS=n", "boot a kernel with it, or ");
    };
    let unreadable = |error| anyhow!("{}: cannot be read: {error}", proc.path(KALLSYMS).display());
    if has_addresses(file).map_err(unreadable)? {
        return Ok(None);
    }
    if proc.get_if_there("sys/kernel/kptr_restrict")?.trim() == "2" {
        return lacks("kptr_restrict=2", "run sysctl kernel.kptr_restrict=1, or ");
    }
    if !has(CapabilitySet::SYSLOG) {
        return lacks("no CAP_SYSLOG", "run with it (docker run --cap-add SYSLOG), or ");
    }
    if is_in_user_namespace(proc) {
        return lacks("no CAP_SYSLOG outside of this user namespace", "record outside of it, or ");
    }
    lacks("kptr_restrict=2, no CAP_SYSLOG, or CONFIG_KALLSYMS=n", "")
}

/// True if one of the first lines of kallsyms has an address other than 0.
fn has_addresses(kallsyms: File) -> io::Result<bool> {
    for line in BufReader::with_capacity(LINES_READ, kallsyms.take(LOOKED_AT)).split(b'\n') {
        let line = line?;
        let mut address = line.iter().take_while(|&&byte| byte != b' ');
        if address.any(|&digit| digit != b'0') {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line about a proc with these files.
    fn line(files: &[(&str, &str)]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        no_symbols(&KernelFs::at(dir.path()).unwrap()).unwrap()
    }

    #[test]
    fn a_kernel_without_symbols_is_reported_with_reason_and_remedy() {
        let later = "name call sites later with kmemtrace-report --kallsyms FILE";
        let absent = format!("no kernel symbols: CONFIG_KALLSYMS=n; boot a kernel with it, or {later}");
        assert_eq!(line(&[]), Some(absent));
        let restricted = ("sys/kernel/kptr_restrict", "2\n");
        let hidden = format!("no kernel symbols: kptr_restrict=2; run sysctl kernel.kptr_restrict=1, or {later}");
        for kallsyms in ["0000000000000000 A a\n0000000000000000 T _text\n", ""] {
            assert_eq!(line(&[("kallsyms", kallsyms), restricted]).as_ref(), Some(&hidden), "{kallsyms:?}");
        }
        let visible = "0000000000000000 A a\n0000000000001000 A b\n";
        assert_eq!(line(&[("kallsyms", visible), restricted]), None);
    }
}
