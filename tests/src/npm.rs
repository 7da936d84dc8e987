//! Packages of npm, in a folder of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runner::Skip;

/// Folder of a package in `dir`, into which it is fetched where it is not there. Its scripts do not run.
pub fn package(dir: &Path, name: &str, version: &str) -> Result<PathBuf, Skip> {
    let dir = dir.join(version);
    let package = dir.join("node_modules").join(name);
    if !package.join("package.json").is_file() {
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-save",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--fetch-retries=1",
            "--prefix",
        ]);
        let installed = npm.arg(&dir).arg(format!("{name}@{version}")).output();
        let installed = installed.map_err(|_| Skip("npm is not installed".to_owned()))?;
        if !installed.status.success() {
            return Err(Skip(format!("{name} cannot be had from npm")));
        }
    }
    Ok(package)
}
