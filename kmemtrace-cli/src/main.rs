//! `kmemtrace WORD …`: runs the program that does the work of the word.
//!
//! It replaces itself with that program, so options, messages and exit statuses are the program's own.

mod completions;
mod help;
mod kmem;
mod meaning;
mod run;
mod words;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use meaning::Meaning;

/// Exit status of a command line that has no meaning, and of a program that is not there: that of the other programs.
const NOT_STARTED: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let line = match meaning::of(&words) {
        Meaning::Text(text) => {
            // A descriptor for reading alone is no error to `io::stdout`.
            let stdout = || io::stdout().as_fd().try_clone_to_owned().map(File::from);
            match stdout().and_then(|mut stdout| stdout.write_all(text.as_bytes())) {
                // A reader that goes away has read enough.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    format!("standard output: cannot be written: {error}")
                }
                _ => return ExitCode::SUCCESS,
            }
        }
        Meaning::Program { name, words } => run::run(name, &words),
        Meaning::Refused(line) => line,
    };
    let _ = writeln!(io::stderr(), "kmemtrace: {line}");
    ExitCode::from(NOT_STARTED)
}
