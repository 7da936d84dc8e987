//! Messages about a path that cannot be opened or read.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

/// The path and the reason; of another user's recording the owner, and what to type.
pub(crate) fn message(path: &Path, error: &io::Error) -> String {
    let refused =
        (error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_some()).then(|| of_another(path));
    refused.flatten().unwrap_or_else(|| format!("{}: {error}{}", path.display(), more_files(error)))
}

/// End of a message about an error of opening a file: the limit to raise where one was met, or nothing.
#[must_use]
pub fn more_files(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => ": allow more open files (ulimit -n)",
        Some(Errno::NFILE) => ": allow more open files (sysctl fs.file-max)",
        _ => "",
    }
}

/// Owner of the file or directory that refuses the caller, and the remedy; `None` if that is the caller's own, or cannot be seen.
fn of_another(path: &Path) -> Option<String> {
    let owner = fs::symlink_metadata(path).ok()?.uid();
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if owner == user {
        return None;
    }
    let name = if owner == 0 { "root".to_owned() } else { format!("user {owner}") };
    // A recording is given away as a whole. Nothing else is: a folder of the system would be taken from its owner.
    let recording = if path.is_dir() { Some(path) } else { path.parent().filter(|_| is_part_of_recording(path)) };
    let recording = recording.filter(|dir| !dir.as_os_str().is_empty()).map(Path::display);
    let remedy = match recording {
        Some(dir) => {
            format!("use sudo; a recording that has ended becomes yours by sudo chown -R {user}:{group} {dir}")
        }
        None => "use sudo, or have the owner give you a copy".to_owned(),
    };
    Some(format!("{}: belongs to {name}, and you may not read it: {remedy}", path.display()))
}

/// True for the name of a file of a recording: `meta.out`, `cpu0.out`, `cpu1.out`, …
fn is_part_of_recording(path: &Path) -> bool {
    let Some(stem) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".out")) else {
        return false;
    };
    let number = stem.strip_prefix("cpu").filter(|number| !number.is_empty());
    stem == "meta" || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_was_met_is_named() {
        let message = |error: Errno| message(Path::new("/tmp/cpu0.out"), &error.into());
        assert_eq!(
            message(Errno::MFILE),
            "/tmp/cpu0.out: Too many open files (os error 24): allow more open files (ulimit -n)"
        );
        assert!(message(Errno::NFILE).ends_with(": allow more open files (sysctl fs.file-max)"));
        assert_eq!(message(Errno::IO), "/tmp/cpu0.out: Input/output error (os error 5)");
    }

    #[test]
    fn only_files_of_a_recording_are_given_away_with_their_folder() {
        for name in ["meta.out", "a/cpu0.out", "/tmp/rec/cpu127.out"] {
            assert!(is_part_of_recording(Path::new(name)), "{name}");
        }
        for name in ["/etc/shadow", "cpu.out", "cpu1x.out", "perf.data", "/", "meta.out.zst"] {
            assert!(!is_part_of_recording(Path::new(name)), "{name}");
        }
    }
}
