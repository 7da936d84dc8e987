//! Replaces this process with another program of kmemtrace.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the program beside this one, else the one in PATH. Returns only if that fails, with the line about it.
pub(crate) fn run(name: &str, words: &[OsString]) -> String {
    let beside = beside(name);
    // Messages of the program show the first word of its command line: a name, and not the path of this installation.
    let error = Command::new(beside.as_deref().unwrap_or(Path::new(name))).arg0(name).args(words).exec();
    match error.kind() {
        ErrorKind::NotFound => {
            format!("{name}: neither beside kmemtrace nor in PATH: install it: cargo install {name}")
        }
        _ => format!("{name}: cannot be run: {error}"),
    }
}

/// Path of a program in the folder of this one.
fn beside(name: &str) -> Option<PathBuf> {
    // Without /proc the first argument is all that is known of this program's path.
    let called = || std::env::args_os().next().map(PathBuf::from).filter(|me| me.components().count() > 1);
    let me = std::env::current_exe().ok().or_else(called)?;
    Some(me.with_file_name(name)).filter(|path| path.is_file())
}
