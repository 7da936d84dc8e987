//! Files of a screen: its text, and all of its rows as JSON.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kmemtrace::whole_file::Directory;
use kmemtrace_abi::text::escape::escape;

use super::terminal;
use crate::render::top_screen::{self, Look, ScreenView, saved};

/// Folder for screens.
pub(super) fn folder(asked: Option<&Path>) -> &Path {
    asked.unwrap_or(Path::new("."))
}

/// Writes the screen as text and its rows as JSON; returns a line for the user. A directory that the user may not write is replaced
/// by that of temporary files.
pub(super) fn save(view: ScreenView<'_>, into: Option<&Path>) -> String {
    let name = format!("kmemtrace-top{}", view.snapshot.elapsed / 1_000_000);
    let mut buffer = ratatui::buffer::Buffer::empty(terminal::size(None));
    top_screen::draw(ScreenView { look: Look::default(), ..view }, &mut buffer);
    let files = [("txt", top_screen::text(&buffer)), ("json", format!("{:#}\n", saved::json(view)))];
    let write = |directory: &Path| {
        let held = Directory::open(directory)?;
        files.iter().try_for_each(|(suffix, text)| {
            let file = held.create(format!("{name}.{suffix}").as_ref(), "", 0o600)?;
            file.file().write_all(text.as_bytes())?;
            file.put()
        })
    };
    let asked = folder(into);
    let (place, written) = match write(asked) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let other = std::env::temp_dir();
            let written = write(&other);
            (other, written)
        }
        written => (asked.to_owned(), written),
    };
    let path = |suffix| {
        let path =
            if place == Path::new(".") { PathBuf::new() } else { place.clone() }.join(format!("{name}.{suffix}"));
        escape(path.as_os_str().as_encoded_bytes()).into_owned()
    };
    match written {
        Ok(()) => format!("saved {} and .json", path("txt")),
        Err(error) => format!("{}: cannot be saved: {error}", path("txt")),
    }
}
