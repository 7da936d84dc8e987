//! Members of a tar archive as files of their own: those that somebody reads, and packed ones unpacked.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::listing::io_error;
use super::{spool, tar};
use crate::trace::OpenError;

/// Limit of members that are read: each is a file that is open.
const MAX_FILES: usize = 800;
/// First bytes that a member is known by.
const SAMPLE: u64 = 64 << 10;

/// True for the first bytes of an archive.
pub(super) fn begins(sample: &[u8]) -> bool {
    tar::begins(sample)
}

/// A member that is read.
pub(super) struct Unarchived {
    /// Its name with the archive's before it.
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Time of its last change, in seconds since 1970.
    pub(super) modified: Option<i64>,
}

/// The members of the archive at `path` that `is_read` is true for, by their names and first bytes. With `member` that one alone.
pub(super) fn members(
    path: &Path,
    archive: &File,
    member: Option<&str>,
    is_read: &dyn Fn(&[u8], &[u8]) -> bool,
) -> Result<Vec<Unarchived>, OpenError> {
    let mut files = Vec::new();
    // A text inside a member has the member's name and a line.
    let member_alone = member.map(|member| [Some(member), member.rsplit_once(':').map(|(member, _)| member)]);
    let is_asked = |name: &[u8]| {
        let is_its = |member: &str| name.ends_with(member.as_bytes());
        member_alone.is_none_or(|names| names.into_iter().flatten().any(is_its))
    };
    for member in tar::list(archive).map_err(io_error(path))?.members {
        let (name, modified) = (named(path, &member.name), member.modified);
        if !is_asked(name.as_os_str().as_bytes()) {
            continue;
        }
        let Some(file) = file(archive, &member, is_read).map_err(io_error(&name))? else { continue };
        if files.len() == MAX_FILES {
            let reason = format!("has more than {MAX_FILES} files that are read; name one with --member NAME");
            return Err(OpenError::Choose { path: path.to_owned(), reason });
        }
        files.push(Unarchived { path: name, file, modified });
    }
    Ok(files)
}

/// `archive.tar/dir/member`.
fn named(path: &Path, member: &[u8]) -> PathBuf {
    let member = member.strip_prefix(b"./").unwrap_or(member);
    OsString::from_vec([path.as_os_str().as_bytes(), b"/", member].concat()).into()
}

/// A member, unpacked, if it is read.
fn file(archive: &File, member: &tar::Member, is_read: &dyn Fn(&[u8], &[u8]) -> bool) -> io::Result<Option<File>> {
    let bytes = || spool::ReadAt::from(archive, member.offset).take(member.len);
    let mut sample = Vec::new();
    bytes().take(SAMPLE).read_to_end(&mut sample)?;
    if !spool::is_packed(&sample) {
        return if is_read(&member.name, &sample) { spool::copy(&mut bytes()).map(Some) } else { Ok(None) };
    }
    let unpacked = match spool::unpacked(&spool::copy(&mut bytes())?, &sample) {
        Ok(unpacked) => unpacked,
        // Damaged, or not what it begins as.
        Err(error)
            if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput) =>
        {
            None
        }
        Err(error) => return Err(error),
    };
    let Some(unpacked) = unpacked else { return Ok(None) };
    sample.clear();
    spool::ReadAt::new(&unpacked).take(SAMPLE).read_to_end(&mut sample)?;
    Ok(is_read(&member.name, &sample).then_some(unpacked))
}
