//! Guests of `tests/vm/boot`: virtual machines with other kernels or architectures, in which the project's programs
//! run.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::programs::{json, program, run, run_to};
use crate::recording::Directory;
use crate::runner::Skip;

/// Programs of the project that a guest gets: what they record is analysed here.
const PROGRAMS: [&str; 2] = ["kmemtraced", "kmemload"];

/// Prelude of every script: `recording FILE` waits until the recorder whose messages go to FILE records.
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

/// Exit status of a script that needs something unavailable here: a reason to skip.
const CANNOT_BE_HAD: i32 = 77;

/// Path of a file of the project.
pub(crate) fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Runs a script of the project; skips where a package or tool is not available.
fn run_script(script: &str, arguments: &[OsString]) -> Result<Output, Skip> {
    let output = Command::new(project(script)).args(arguments).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(output),
        Some(CANNOT_BE_HAD) => Err(Skip(errors.lines().last().unwrap_or("a package or a tool is missing").to_owned())),
        _ => panic!("{script} {arguments:?}: {errors}"),
    }
}

/// Path that a script prints as its last line; the script runs once for each `argument`.
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

/// Directory of our programs for an architecture: those that the other tests run, where it is this machine's.
pub fn programs_for(arch: &str) -> Result<PathBuf, Skip> {
    if arch == "amd64" && cfg!(target_arch = "x86_64") {
        let here = program("kmemtraced");
        return Ok(here.parent().map(Path::to_owned).unwrap_or_default());
    }
    linked_for(arch)
}

/// Directory of our programs for an architecture, linked statically.
fn linked_for(arch: &str) -> Result<PathBuf, Skip> {
    made("tests/vm/build", &["-q", arch])
}

/// Relay module for the default kernel of an architecture.
pub fn relay_module(arch: &str) -> Result<PathBuf, Skip> {
    made("tests/relay-module/build", &[arch])
}

/// Kernel module that holds pages, for the default kernel of amd64.
pub fn hold_module() -> Result<PathBuf, Skip> {
    made("tests/relay-module/build", &["amd64", &project("tests/hold-module").display().to_string()])
}

/// Console of a guest whose initramfs is dracut's, with the module of `contrib/dracut` and a kernel module.
pub fn dracut(module: PathBuf) -> Result<String, Skip> {
    let output = run_script("tests/vm/dracut", &[linked_for("amd64")?.into(), module.into()])?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Directory of an unpacked package of this machine's architecture.
pub fn package(name: &str) -> Result<PathBuf, Skip> {
    made("tests/vm/boot", &["-s", name])
}

/// Folder of a small kernel: its build and its sources. It is built only where `KMEMTRACE_BUILD_KERNEL` is set.
pub fn small_kernel() -> Result<PathBuf, Skip> {
    let builds = std::env::var_os("KMEMTRACE_BUILD_KERNEL").is_some();
    made("tests/vm/small-kernel", if builds { &[] } else { &["-c"] })
}

#[derive(Debug)]
pub struct Guest {
    arguments: Vec<OsString>,
}

impl Guest {
    /// Guest with our programs; skips if they cannot be built for its architecture.
    pub fn new(arch: &str) -> Result<Guest, Skip> {
        let mut guest = Guest { arguments: vec!["-a".into(), arch.into()] };
        let programs = programs_for(arch)?;
        for name in PROGRAMS {
            guest = guest.option("-f", programs.join(name));
        }
        Ok(guest)
    }

    /// Gives the guest the report, which is large.
    pub fn with_report(self, arch: &str) -> Result<Guest, Skip> {
        Ok(self.option("-f", programs_for(arch)?.join("kmemtrace-report")))
    }

    #[must_use]
    pub fn option(mut self, name: &str, value: impl Into<OsString>) -> Guest {
        self.arguments.extend([name.into(), value.into()]);
        self
    }

    /// Leaves all file systems of the guest unmounted.
    #[must_use]
    pub fn bare(mut self) -> Guest {
        self.arguments.push("-b".into());
        self
    }

    /// Boots the guest, runs `script`, and returns the files that the script left in `/out`.
    pub fn run(self, script: &str) -> Result<Directory, Skip> {
        let out = Directory::on_disk();
        out.write("script", format!("{PRELUDE}{script}").as_bytes());
        let guest = self.option("-r", out.file("script")).option("-o", out.path());
        run_script("tests/vm/boot", &guest.arguments)?;
        Ok(out)
    }

    /// Boots the guest, runs `script`, and cuts the power after `seconds`.
    pub fn cut_after(self, seconds: f32, script: &str) -> Result<(), Skip> {
        let out = Directory::on_disk();
        out.write("script", format!("{PRELUDE}{script}").as_bytes());
        let guest = self.option("-r", out.file("script")).option("-p", seconds.to_string());
        run_script("tests/vm/boot", &guest.arguments).map(drop)
    }
}

/// Worst verdict and number of events of a trace from a guest, by the checker of this machine.
pub fn checked(trace: &Path) -> (String, u64) {
    let document = json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout);
    let files = document["files"].as_array().cloned().unwrap_or_default();
    let events = files.iter().filter_map(|file| file["events"].as_u64()).sum();
    let verdict = ["corrupt", "truncated", "lossy"].into_iter().find(|&verdict| document[verdict] != 0);
    (verdict.unwrap_or("ok").to_owned(), events)
}

/// Rows of `sites` whose symbol is in `symbols`; suffixes that a compiler appends are ignored.
pub fn sites(trace: &Path, options: &[&str], symbols: &[&str]) -> Vec<Value> {
    let document = json(&run_to(0, "kmemtrace-report", &[&["sites", "--format", "json"], options].concat(), &[trace]));
    let is_named = |row: &Value| {
        let name = row["symbol"].as_str().unwrap_or_default();
        symbols.iter().any(|symbol| name.strip_prefix(symbol).is_some_and(|rest| rest.starts_with(['+', '.'])))
    };
    document["rows"].as_array().into_iter().flatten().filter(|row| is_named(row)).cloned().collect()
}
