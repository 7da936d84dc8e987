//! Python with packages of the registry, in a virtual environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runner::Skip;

/// Interpreter of the virtual environment in `dir`, which is made where it is not there, with these packages.
pub fn with_packages(dir: &Path, packages: &[&str]) -> Result<PathBuf, Skip> {
    let (interpreter, done) = (dir.join("bin/python"), dir.join("installed"));
    if fs::read_to_string(&done).is_ok_and(|installed| installed == packages.join(" ")) {
        return Ok(interpreter);
    }
    let missing = |what: &str, said: &[u8]| {
        let said = String::from_utf8_lossy(said);
        Skip(format!("{what}: {}", said.lines().last().unwrap_or_default()))
    };
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir).output();
    let made = made.map_err(|_| Skip("python3 is not installed".to_owned()))?;
    if !made.status.success() {
        return Err(missing("no virtual environment: package python3-venv", &made.stdout));
    }
    let mut pip = Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1"]).args(packages);
    let installed = pip.output().map_err(|error| Skip(format!("pip: {error}")))?;
    if !installed.status.success() {
        return Err(missing(&packages.join(", "), &installed.stderr));
    }
    fs::write(done, packages.join(" ")).map_err(|error| Skip(format!("{}: {error}", dir.display())))?;
    Ok(interpreter)
}
