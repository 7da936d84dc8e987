//! Writes the man pages, the completions and the reference of the programs: `kmemtrace-manual DIR` makes `DIR/man`,
//! `DIR/completions` and `DIR/reference`.
//!
//! The command lines are compiled from the programs' own files. So the programs carry nothing for this, and a page says what a program
//! of the same tree does.

mod format_page;
mod page;
mod programs;
mod reference;

// Files of kmemtrace-report; they find each other by these names.
#[path = "../../kmemtrace-report/src/args/mod.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod args;
#[path = "../../kmemtrace-report/src/classes.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod classes;
#[path = "../../kmemtrace-report/src/cli/mod.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod cli;
#[path = "../../kmemtrace-report/src/columns/mod.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod columns;
#[path = "../../kmemtrace-report/src/views/mod.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod views;

// Files of the command.
#[path = "../../kmemtrace-cli/src/completions.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod completions;
#[path = "../../kmemtrace-cli/src/help.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod help;
#[path = "../../kmemtrace-cli/src/words.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod words;

// Files of the other two.
#[path = "../../kmemtrace-check/src/options.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod check_options;
#[path = "../../kmemtraced/src/choices.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod choices;
#[path = "../../kmemtraced/src/options_of_others.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod options_of_others;
#[path = "../../kmemtraced/src/args.rs"]
#[allow(dead_code, reason = "only the command line is used here")]
mod recorder_args;
#[allow(dead_code, reason = "only the command line is used here")]
mod write;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap_complete::{Generator, Shell};

use cli::scripts;

/// Shells with completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let (Some(dir), None) = (words.next(), words.next()) else {
        eprintln!("kmemtrace-manual: name the folder to write man, completions and reference into");
        return ExitCode::from(2);
    };
    match write_all(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err((path, error)) => {
            eprintln!("kmemtrace-manual: {}: {error}", path.display());
            ExitCode::from(2)
        }
    }
}

/// Writes all pages and completions; an error comes with its path.
fn write_all(dir: &Path) -> Result<(), (PathBuf, io::Error)> {
    let [pages, completions, reference] = ["man", "completions", "reference"].map(|name| dir.join(name));
    for dir in [&pages, &completions, &reference] {
        // Pages of an earlier tree may be of views that are no more.
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((dir.clone(), error)),
            _ => {}
        }
        fs::create_dir_all(dir).map_err(|error| (dir.clone(), error))?;
    }
    for page in programs::pages() {
        let path = pages.join(format!("{}.{}", page.name, page.section));
        fs::write(&path, page.text).map_err(|error| (path, error))?;
    }
    for (name, command) in programs::completed() {
        for shell in SHELLS {
            let path = completions.join(shell.file_name(name));
            fs::write(&path, scripts::script(shell, command.clone(), name)).map_err(|error| (path, error))?;
        }
    }
    for (name, text) in reference::pages(&programs::all()) {
        let path = reference.join(name);
        fs::write(&path, text).map_err(|error| (path, error))?;
    }
    for shell in SHELLS {
        let path = completions.join(shell.file_name(programs::COMMAND));
        let script = completions::script(&shell.to_string()).unwrap_or_default();
        fs::write(&path, script).map_err(|error| (path, error))?;
    }
    Ok(())
}
