//! Captured trees of `tests/data`, which are packed as tar and zstd.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Unpacks `data/NAME.tar.zst` into the directory `to` and returns the tree's path in it.
pub fn unpack(name: &str, to: &Path) -> io::Result<PathBuf> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/{name}.tar.zst"));
    let mut packed = zstd::stream::read::Decoder::new(File::open(&archive)?)?;
    let mut tar = Command::new("tar").args(["-x", "-C"]).arg(to).stdin(Stdio::piped()).spawn()?;
    let copied = tar.stdin.take().map_or(Ok(0), |mut pipe| io::copy(&mut packed, &mut pipe));
    let status = tar.wait()?;
    copied?;
    if status.success() {
        Ok(to.join(name))
    } else {
        Err(io::Error::other(format!("{}: tar: {status}", archive.display())))
    }
}
