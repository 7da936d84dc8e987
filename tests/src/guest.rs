//! Other kernels and other machines: guests of `tests/vm/boot`, with our programs in them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::programs::{json, run, run_to};
use crate::recording::Directory;
use crate::runner::Skip;

/// The project's programs that a guest gets.
const PROGRAMS: [&str; 4] = ["kmemtraced", "kmemtrace-check", "kmemtrace-report", "kmemload"];

/// What scripts may use: `recording FILE` waits until a recorder whose messages go to FILE is at work.
const PRELUDE: &str = "
set -e
recording() {
	for i in $(seq 300); do
		if grep -q ^recording $1; then return; fi
		sleep 0.1
	done
	cat $1
	return 1
}
";

/// Status of a script that lacks something which cannot be had.
const CANNOT_BE_HAD: i32 = 77;

/// A path below the top of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Runs a script of the project; what it lacks is a reason to skip.
///
/// # Panics
/// If it fails.
fn run_script(script: &str, arguments: &[OsString]) -> Result<Output, Skip> {
    let output = Command::new(project(script)).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{script}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(output),
        Some(CANNOT_BE_HAD) => Err(Skip(errors.lines().last().unwrap_or("something cannot be had").to_owned())),
        _ => panic!("{script} {arguments:?}: {errors}"),
    }
}

/// The path that a script prints as its last line; it is run once for each `argument`.
fn made(script: &'static str, arguments: &[&str]) -> Result<PathBuf, Skip> {
    static MADE: Mutex<Option<HashMap<String, Result<PathBuf, Skip>>>> = Mutex::new(None);
    let key = format!("{script} {}", arguments.join(" "));
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default().entry(key);
    made.or_insert_with(|| {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let output = run_script(script, &arguments)?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().last().unwrap_or_default().into())
    })
    .clone()
}

/// The directory of our programs for an architecture.
pub fn programs_for(arch: &str) -> Result<PathBuf, Skip> {
    made("tests/vm/build", &[arch])
}

/// The relay module for the usual kernel of an architecture.
pub fn relay_module(arch: &str) -> Result<PathBuf, Skip> {
    made("tests/relay-module/build", &[arch])
}

/// Where a package of this machine's architecture is unpacked.
pub fn package(name: &str) -> Result<PathBuf, Skip> {
    made("tests/vm/boot", &["-s", name])
}

/// A guest that has not been started.
#[derive(Debug)]
pub struct Guest {
    arguments: Vec<OsString>,
}

impl Guest {
    /// One that has our programs, where they can be built for it.
    pub fn new(arch: &str) -> Result<Guest, Skip> {
        let mut guest = Guest { arguments: vec!["-a".into(), arch.into()] };
        let programs = programs_for(arch)?;
        for name in PROGRAMS {
            guest = guest.option("-f", programs.join(name));
        }
        Ok(guest)
    }

    /// With an option of `tests/vm/boot`.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl Into<OsString>) -> Guest {
        self.arguments.extend([name.into(), value.into()]);
        self
    }

    /// With nothing mounted.
    #[must_use]
    pub fn bare(mut self) -> Guest {
        self.arguments.push("-b".into());
        self
    }

    /// Boots it, runs `script`, and returns what that left in `/out`.
    ///
    /// # Panics
    /// If the guest does not come to an end, or the script fails.
    pub fn run(self, script: &str) -> Result<Directory, Skip> {
        let out = Directory::on_disk();
        out.write("script", format!("{PRELUDE}{script}").as_bytes());
        let guest = self.option("-r", out.file("script")).option("-o", out.path());
        run_script("tests/vm/boot", &guest.arguments)?;
        Ok(out)
    }

    /// Boots it, runs `script`, and cuts the power after so many seconds.
    ///
    /// # Panics
    /// If the guest ends before.
    pub fn cut_after(self, seconds: f32, script: &str) -> Result<(), Skip> {
        let out = Directory::on_disk();
        out.write("script", format!("{PRELUDE}{script}").as_bytes());
        let guest = self.option("-r", out.file("script")).option("-p", seconds.to_string());
        run_script("tests/vm/boot", &guest.arguments).map(drop)
    }
}

/// What the checker of this machine says of the files of a trace from elsewhere: the worst verdict, and the events in them.
pub fn checked(trace: &Path) -> (String, u64) {
    let document = json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout);
    let files = document["files"].as_array().cloned().unwrap_or_default();
    let events = files.iter().filter_map(|file| file["events"].as_u64()).sum();
    let verdict = ["corrupt", "truncated", "lossy"].into_iter().find(|&verdict| document[verdict] != 0);
    (verdict.unwrap_or("ok").to_owned(), events)
}

/// Rows of `sites` whose symbol is one of these, whatever a compiler has appended to it.
///
/// # Panics
/// If there is no report.
pub fn sites(trace: &Path, options: &[&str], symbols: &[&str]) -> Vec<Value> {
    let document = json(&run_to(0, "kmemtrace-report", &[&["sites", "--format", "json"], options].concat(), &[trace]));
    let is_named = |row: &Value| {
        let name = row["symbol"].as_str().unwrap_or_default();
        symbols.iter().any(|symbol| name.strip_prefix(symbol).is_some_and(|rest| rest.starts_with(['+', '.'])))
    };
    document["rows"].as_array().into_iter().flatten().filter(|row| is_named(row)).cloned().collect()
}
