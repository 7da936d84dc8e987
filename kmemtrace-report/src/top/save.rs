//! Files of a screen: its text, and all of its rows as JSON.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kmemtrace::whole_file::Directory;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_sandbox::child::FIRST_PASSED;

use super::terminal;
use crate::render::top_screen::{self, Look, ScreenView, saved};

/// Folder for screens.
pub(super) fn folder(asked: Option<&Path>) -> &Path {
    asked.unwrap_or(Path::new("."))
}

/// Names of screens of one moment; the first is replaced where all are taken.
const MAX_NAMES: u32 = 100;
/// Descriptor of the pipe to kmemtraced.
const PIPE: i32 = FIRST_PASSED + 1;

/// Place of saved screens.
pub(super) enum Saved {
    /// A folder; by default the current one.
    In(Option<PathBuf>),
    /// A pipe to kmemtraced, which writes them: a viewer may write no file.
    Through(File),
}

impl Saved {
    /// The pipe to kmemtraced.
    pub(super) fn through_pipe() -> anyhow::Result<Saved> {
        Ok(Saved::Through(kmemtrace_sandbox::inherited(PIPE)?.into()))
    }

    /// Saves the screen as text and its rows as JSON; returns a line for the user.
    pub(super) fn save(&self, view: ScreenView<'_>) -> String {
        let milliseconds = view.snapshot.elapsed / 1_000_000;
        let mut buffer = ratatui::buffer::Buffer::empty(terminal::size(None));
        top_screen::draw(ScreenView { look: Look::default(), ..view }, &mut buffer);
        let (text, rows) = (top_screen::text(&buffer), format!("{:#}\n", saved::json(view)));
        match self {
            Saved::In(folder) => save_in(folder.as_deref(), milliseconds, &[("txt", text), ("json", rows)]),
            Saved::Through(pipe) => match hand_over(pipe, milliseconds, [&text, &rows]) {
                Ok(()) => "handed to kmemtraced, which names the files once the screen is gone".to_owned(),
                Err(error) => format!("cannot be saved: {error}"),
            },
        }
    }
}

/// Hands a screen over: its time and the lengths of both texts, little endian, then the texts.
fn hand_over(mut pipe: &File, milliseconds: u64, texts: [&str; 2]) -> io::Result<()> {
    let mut bytes = milliseconds.to_le_bytes().to_vec();
    for text in texts {
        bytes.extend(u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes());
    }
    texts.iter().for_each(|text| bytes.extend(text.as_bytes()));
    pipe.write_all(&bytes)
}

/// Name for a screen that no earlier one has in the directory: all screens of a trace that stands still are of one moment.
fn free_name(directory: &Path, milliseconds: u64) -> String {
    let stem = format!("kmemtrace-top{milliseconds}");
    let is_free = |name: &String| {
        ["txt", "json"].iter().all(|suffix| directory.join(format!("{name}.{suffix}")).symlink_metadata().is_err())
    };
    let numbered = (2..=MAX_NAMES).map(|number| format!("{stem}-{number}"));
    std::iter::once(stem.clone()).chain(numbered).find(is_free).unwrap_or(stem)
}

/// Writes the texts to files; returns a line for the user. A directory that the user may not write is replaced by that of temporary
/// files.
fn save_in(into: Option<&Path>, milliseconds: u64, files: &[(&str, String)]) -> String {
    let write = |directory: &Path, name: &str| {
        let held = Directory::open(directory)?;
        files.iter().try_for_each(|(suffix, text)| {
            let file = held.create(format!("{name}.{suffix}").as_ref(), "", 0o600)?;
            file.file().write_all(text.as_bytes())?;
            file.put()
        })
    };
    let asked = folder(into);
    let name = free_name(asked, milliseconds);
    let (place, name, written) = match write(asked, &name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let other = std::env::temp_dir();
            let name = free_name(&other, milliseconds);
            let written = write(&other, &name);
            (other, name, written)
        }
        written => (asked.to_owned(), name, written),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_of_the_same_moment_gets_a_number() {
        let folder = kmemtrace_tests::recording::Directory::new(&[]);
        for (number, file) in ["kmemtrace-top7.txt", "kmemtrace-top7-2.json"].into_iter().enumerate() {
            folder.write(file, b"");
            assert_eq!(free_name(folder.path(), 7), format!("kmemtrace-top7-{}", number + 2));
        }
        assert_eq!(free_name(folder.path(), 8), "kmemtrace-top8");
    }
}
