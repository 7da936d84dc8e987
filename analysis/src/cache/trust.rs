//! Trust in an index: its figures are shown as those of the trace, so its writer must be one who could have forged the trace as
//! well, and whom the reader trusts.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

const ROOT: u32 = 0;
/// Mode bits: the group or all others may write.
const OTHERS_WRITE: u32 = 0o022;

/// True for an owner who is the user that the process acts for.
pub(super) fn is_ours(owner: Option<u32>) -> bool {
    owner == Some(rustix::process::geteuid().as_raw())
}

/// Bytes of an open index of a trace whose files belong to `owner`. The error says why it is not to be believed.
pub(super) fn check(index: &File, owner: Option<u32>) -> Result<u64, String> {
    let data = index.metadata().map_err(|error| error.to_string())?;
    match doubt(data.uid(), data.mode(), owner, rustix::process::geteuid().as_raw()) {
        Some(reason) => Err(reason),
        None => Ok(data.len()),
    }
}

/// The reason why user `reader` does not believe an index of user `uid` beside a trace of `owner`; `None`: there is none.
fn doubt(uid: u32, mode: u32, owner: Option<u32>, reader: u32) -> Option<String> {
    match owner {
        None => Some("the files of the trace belong to several users".to_owned()),
        Some(owner) if owner != uid => Some(format!("it belongs to user {uid}, and the trace to user {owner}")),
        _ if uid != reader && uid != ROOT => {
            Some(format!("it belongs to user {uid}, who is neither root nor the reader"))
        }
        _ if mode & OTHERS_WRITE != 0 => {
            Some(format!("users other than its owner may write to it (mode {:o})", mode & 0o777))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_reader_are_believed_and_only_of_their_own_traces() {
        for (uid, mode, owner, reader, says) in [
            (0, 0o600, Some(0), 0, None),
            (0, 0o644, Some(0), 7, None),
            (7, 0o600, Some(7), 7, None),
            (7, 0o600, Some(7), 0, Some("neither root nor the reader")),
            (8, 0o600, Some(8), 7, Some("neither root nor the reader")),
            (8, 0o600, Some(7), 7, Some("the trace to user 7")),
            (0, 0o600, Some(7), 7, Some("the trace to user 7")),
            (7, 0o600, Some(0), 7, Some("the trace to user 0")),
            (7, 0o620, Some(7), 7, Some("may write to it (mode 620)")),
            (0, 0o602, Some(0), 0, Some("may write to it (mode 602)")),
            (7, 0o600, None, 7, Some("several users")),
        ] {
            let doubt = doubt(uid, mode, owner, reader);
            let is_as_said = match says {
                Some(says) => doubt.as_ref().is_some_and(|doubt| doubt.contains(says)),
                None => doubt.is_none(),
            };
            assert!(is_as_said, "{uid} {mode:o} {owner:?} {reader}: {doubt:?}");
        }
    }
}
