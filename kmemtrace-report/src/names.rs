//! Sources of names, from the options that name them.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use kmemtrace::{Areas, NameOptions, Wrappers};

use crate::args::NameArgs;

/// Sources of names as the library takes them; the files of wrappers and areas are read.
pub(crate) fn options(args: &NameArgs) -> anyhow::Result<NameOptions> {
    let read = |path: &PathBuf| fs::read_to_string(path).with_context(|| path.display().to_string());
    let wrappers = match &args.wrappers {
        None => Wrappers::default(),
        Some(word) if word.as_os_str() == "none" => Wrappers::none(),
        Some(path) => Wrappers::parse(&read(path)?),
    };
    let areas = match &args.areas {
        None => Areas::default(),
        Some(path) => Areas::parse(&read(path)?),
    };
    if let Some(path) = args.areas.as_ref().filter(|_| areas.is_empty()) {
        anyhow::bail!("{}: no areas; a line is AREA<TAB>GLOB, or the file is the kernel's MAINTAINERS", path.display());
    }
    Ok(NameOptions {
        vmlinux: args.vmlinux.clone(),
        debug_dirs: args.debug_dir.clone(),
        searches: true,
        kernel_tree: args.kernel.clone(),
        map: args.map.clone(),
        wrappers,
        areas,
    })
}
