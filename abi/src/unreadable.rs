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
    let above = path.parent().filter(|above| fs::symlink_metadata(above).is_ok_and(|found| found.uid() == owner));
    let is_file = path.is_file();
    // A file of a recording is given away with the directory.
    let given = above.filter(|above| is_file && !above.as_os_str().is_empty()).unwrap_or(path).display();
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if owner == user {
        return None;
    }
    let name = if owner == 0 { "root".to_owned() } else { format!("user {owner}") };
    let path = path.display();
    Some(format!(
        "{path}: belongs to {name}, and you may not read it; if it is still recorded, wait for the end, else type: sudo chown -R {user}:{group} {given}"
    ))
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
}
