//! Sources of names, from the options that name them.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use kmemtrace::{Areas, FrameList, GroupKey, NameOptions, Uses, Wrappers};
use kmemtrace_abi::open::regular;

use crate::args::Args;

/// Limit of a file of wrappers or areas; the kernel's MAINTAINERS has 1 MiB.
const MAX_BYTES: u64 = 16 << 20;

/// Sources of names as the library takes them; the files of wrappers and areas are read.
///
/// # Errors
/// A file or folder that was named and is no use.
pub(crate) fn options(args: &Args) -> anyhow::Result<NameOptions> {
    let names = &args.names;
    let wrappers = match &names.wrappers {
        None => Wrappers::default(),
        Some(word) if word.as_os_str() == "none" => Wrappers::none(),
        Some(path) => Wrappers::parse(&text(path)?),
    };
    let areas = match &names.areas {
        None => Areas::default(),
        Some(path) => Areas::parse(&text(path)?),
    };
    if let Some(path) = names.areas.as_ref().filter(|_| areas.is_empty()) {
        bail!("{}: no areas; a line is AREA<TAB>GLOB, or the file is the kernel's MAINTAINERS", path.display());
    }
    if names.areas.is_none() && args.by.contains(&GroupKey::Area) {
        bail!("--by area: name the areas with --areas: the kernel's MAINTAINERS, or lines AREA<TAB>GLOB");
    }
    for dir in &names.debug_dir {
        let there = regular::refuse_strangers_links(dir).and_then(|()| fs::metadata(dir));
        let is_folder = there.with_context(|| format!("--debug-dir {}", dir.display()))?.is_dir();
        if !is_folder {
            bail!("--debug-dir {}: is not a folder; --vmlinux names a file", dir.display());
        }
    }
    let mut frames = if args.cull.contains(&GroupKey::Stack) { FrameList::none() } else { FrameList::default() };
    if let Some(path) = &names.skip_frames {
        frames.add(&text(path)?);
    }
    let uses = match &args.uses {
        None => Uses::default(),
        Some(path) => Uses::parse(&text(path)?).with_context(|| path.display().to_string())?,
    };
    Ok(NameOptions {
        vmlinux: names.vmlinux.clone(),
        debug_dirs: names.debug_dir.clone(),
        searches: true,
        kernel_tree: names.kernel.clone(),
        map: names.map.clone(),
        kallsyms: names.kallsyms.clone(),
        proc_modules: names.proc_modules.clone(),
        wrappers,
        areas,
        frames,
        uses,
    })
}

/// Text of a file: no FIFO and no device, which may have no end.
fn text(path: &Path) -> anyhow::Result<String> {
    let name = || path.display().to_string();
    let file = regular::open(path).with_context(name)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).with_context(name)?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{}: has more than {} MiB: this is not a list of names", name(), MAX_BYTES >> 20);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
