//! The user's settings file. It is read before the sandbox closes, and only if it is the caller's own.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kmemtrace_abi::open::regular;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::unreadable::more_files;
use rustix::process::{geteuid, getuid};
use toml::{Table, Value};

use crate::cli::settings::{Setting, Settings};
use crate::terminal::messages::say;

/// Place below the folder of settings.
const FILE: &str = "kmemtrace/report.toml";
/// Limit of the file's bytes.
const MAX_BYTES: u64 = 64 << 10;
/// Variables with the id of the user for whom sudo or pkexec runs a program.
const USERS: [&str; 2] = ["SUDO_UID", "PKEXEC_UID"];
/// Permission that lets everybody write.
const WRITABLE_BY_ALL: u32 = 0o002;

/// Settings of the user who runs this program; none where there is no file, and where the program runs for somebody else.
///
/// # Errors
/// A line about a file that cannot be read, or makes no sense.
pub(crate) fn read() -> Result<Settings, String> {
    let Some(path) = path() else { return Ok(Settings::default()) };
    let shown = escape(path.as_os_str().as_encoded_bytes()).into_owned();
    let Some(text) = own_text(&path).map_err(|why| format!("{shown}: {why} (--no-config does without the file)"))?
    else {
        return Ok(Settings::default());
    };
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        let why = error.message().lines().next().unwrap_or_default();
        format!("{shown}: line {line}: {} (--no-config does without the file)", escape(why.as_bytes()))
    })?;
    let list = settings(table).map_err(|key| format!("{shown}: {}: {VALUES}", escape(key.as_bytes())))?;
    Ok(Settings { path, list })
}

/// Values that a key may have.
const VALUES: &str = "a value is a text, a number, true, false, or a list of texts and numbers";

/// The file's path; `None` where the program runs for another user, and where no absolute path is known.
pub(crate) fn path() -> Option<PathBuf> {
    let caller = geteuid();
    let is_other =
        |name: &str| std::env::var_os(name).is_some_and(|id| id.to_str() != Some(&caller.as_raw().to_string()));
    if caller != getuid() || USERS.into_iter().any(is_other) {
        return None;
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join(FILE))
}

/// Text of a file that the caller owns; `None` if there is none, or if it is not the caller's.
fn own_text(path: &Path) -> Result<Option<String>, String> {
    let file = match regular::open(path) {
        Ok(file) => file,
        // The folder of a user whose environment was taken over cannot be entered.
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(format!("{error}{}", more_files(&error))),
    };
    let found = file.metadata().map_err(|error| error.to_string())?;
    let shown = || escape(path.as_os_str().as_encoded_bytes());
    if found.uid() != geteuid().as_raw() {
        say(&format!("{}: not read: it belongs to user {}", shown(), found.uid()));
        return Ok(None);
    }
    if found.mode() & WRITABLE_BY_ALL != 0 {
        say(&format!("{}: not read: everybody may write it: run chmod o-w on it", shown()));
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("larger than {} KiB: leave something out", MAX_BYTES >> 10));
    }
    Ok(Some(text))
}

/// Settings of a table and of the tables of views in it. An error is a key whose value is none.
fn settings(table: Table) -> Result<Vec<Setting>, String> {
    let mut list = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(of_view) => {
                for (name, value) in of_view {
                    list.extend(setting(Some(&key), name, value)?);
                }
            }
            value => list.extend(setting(None, key, value)?),
        }
    }
    Ok(list)
}

/// One setting; `None` for `false`, which is what an option without a value is anyway.
fn setting(view: Option<&String>, key: String, value: Value) -> Result<Option<Setting>, String> {
    let values = match value {
        Value::Boolean(false) => return Ok(None),
        Value::Boolean(true) => Vec::new(),
        Value::Array(values) => {
            let texts: Option<Vec<String>> = values.into_iter().map(text).collect();
            texts.filter(|texts| !texts.is_empty()).ok_or_else(|| key.clone())?
        }
        value => vec![text(value).ok_or_else(|| key.clone())?],
    };
    Ok(Some(Setting { view: view.cloned(), key, values }))
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_texts_numbers_flags_and_lists() {
        let text = "top = 20\nbytes = true\nquiet = false\nby = ['comm', 'site']\n[tree]\nthrottle = 2.5\n";
        let found = settings(text.parse().unwrap()).unwrap();
        let shown: Vec<_> = found.iter().map(|s| (s.view.as_deref(), s.key.as_str(), s.values.join("|"))).collect();
        for expected in
            [(None, "top", "20"), (None, "bytes", ""), (None, "by", "comm|site"), (Some("tree"), "throttle", "2.5")]
        {
            assert!(shown.iter().any(|(v, k, values)| (*v, *k, values.as_str()) == expected), "{shown:?}");
        }
        assert_eq!(shown.len(), 4, "{shown:?}");
        for bad in ["top = []", "top = 1979-05-27", "[live.more]\ntop = 1"] {
            assert!(settings(bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
