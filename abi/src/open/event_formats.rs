//! Formats of events that a `perf.data` lacks, from anything of the same boot: a trace of any kind, or tracefs's directory `events`.

use std::convert::Infallible;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::listing::{io_error, no_trace};
use super::perf_data::{self, SameBoot};
use super::recording::MetaFile;
use super::trace_dat::container::Container;
use super::tree::{formats_below, release_and_machine};
use super::{regular, spool, trace_dat};
use crate::disk::block::MAGIC;
use crate::disk::blocks::BlockReader;
use crate::trace::OpenError;

/// Largest length of a text.
const MAX_TEXT_BYTES: u64 = 16 << 20;
/// Bytes of the first read of a text.
const FIRST_READ: usize = 64 << 10;
/// First bytes that a file is known by.
const HEAD: u64 = 64;
/// File of a recording that describes its events.
const META: &str = "meta.out";

/// Reads the formats that `path` has.
///
/// # Errors
/// A path that cannot be read, and one without formats.
pub(super) fn read(path: &Path) -> Result<SameBoot, OpenError> {
    regular::refuse_strangers_links(path).map_err(io_error(path))?;
    let found = if path.join(META).exists() {
        of_recording(&path.join(META))?
    } else if path.is_dir() {
        of_directory(path)
    } else {
        of_file(path)?
    };
    if found.described.formats.is_empty() {
        let reason = "has no formats of events: name a trace of the same boot, or the directory events of its tracefs";
        return Err(no_trace(path, reason));
    }
    Ok(found)
}

/// The formats in a captured tree, or in a directory `events` of tracefs.
fn of_directory(path: &Path) -> SameBoot {
    let events = path.join("events");
    let (root, events) = if events.is_dir() { (path, &*events) } else { (path.parent().unwrap_or(path), path) };
    let uname = text(&root.join("uname")).map(|text| String::from_utf8_lossy(&text).into_owned());
    let (kernel, arch) = uname.map_or((None, None), |uname| release_and_machine(&uname));
    let page_bytes = text(&root.join("page_size")).and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
    let header_page = text(&events.join("header_page")).unwrap_or_default();
    let Ok(formats) = formats_below(events, |path| Ok::<_, Infallible>(text(path)));
    let described = Container::of_formats(header_page, formats);
    SameBoot { described, page_bytes, kernel, arch }
}

/// A text of a stored tree, or of the live kernel's: the user has named it.
fn text(path: &Path) -> Option<Vec<u8>> {
    let live = || ["tracefs", "debugfs"].iter().find_map(|of| regular::open_made_up(path, of).ok());
    let mut file = regular::open(path).ok().or_else(live)?.take(MAX_TEXT_BYTES);
    // The kernel's header_page ends with its first read.
    let mut bytes = vec![0; FIRST_READ];
    let len = file.read(&mut bytes).ok()?;
    bytes.truncate(len);
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn of_recording(path: &Path) -> Result<SameBoot, OpenError> {
    let file = regular::open(path).map_err(io_error(path))?;
    let mut meta = MetaFile::new(path.to_owned(), BlockReader::new(file));
    while meta.header.is_none() && meta.next() {}
    let Some(header) = meta.header else { return Err(no_trace(path, "is damaged: it does not describe its events")) };
    let described = Container::of_formats(header.header_page.into_bytes(), header.formats);
    Ok(SameBoot { described, page_bytes: header.page_bytes, kernel: header.kernel, arch: header.arch })
}

fn of_file(path: &Path) -> Result<SameBoot, OpenError> {
    let file = Arc::new(regular::open(path).map_err(io_error(path))?);
    let mut sample = Vec::new();
    spool::ReadAt::new(&file).take(HEAD).read_to_end(&mut sample).map_err(io_error(path))?;
    if sample.starts_with(&MAGIC) {
        return of_recording(path);
    }
    if trace_dat::begins(&sample) {
        let (described, uname, page_bytes) = trace_dat::described(path, &file)?;
        let (kernel, arch) = release_and_machine(&uname);
        return Ok(SameBoot { described, page_bytes, kernel, arch });
    }
    if perf_data::begins(&sample) {
        return Ok(perf_data::scan(path, file)?.into_same_boot());
    }
    Ok(SameBoot::default())
}
