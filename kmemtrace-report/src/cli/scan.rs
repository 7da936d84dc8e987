//! Search for the word that names the view, before the options are parsed.
//!
//! Options may stand before and after the view, and each view has its own: the view must be known before the first option is read.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// Index of the first word that is neither an option nor an option's value; `None` after `--`.
///
/// `command` knows all options of all views. An option that it does not know takes no value: the parser refuses it later.
pub(super) fn first_word(command: &Command, words: &[OsString]) -> Option<usize> {
    let mut index = 0;
    while let Some(word) = words.get(index) {
        let bytes = word.as_encoded_bytes();
        match bytes {
            b"--" => return None,
            [b'-', b'-', name @ ..] => index += usize::from(takes_next(long(command, name))),
            [b'-', letters @ ..] if !letters.is_empty() => index += usize::from(cluster_takes_next(command, letters)),
            _ => return Some(index),
        }
        index += 1;
    }
    None
}

/// Option of the long name; `None` where a value stands behind `=`.
fn long<'a>(command: &'a Command, name: &[u8]) -> Option<&'a Arg> {
    let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('='))?;
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

/// True if an option of this sort takes the next word as its value.
fn takes_next(option: Option<&Arg>) -> bool {
    option.is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
}

/// True if the last of the letters is an option that takes the next word: `-vn 5`, but not `-n5`.
fn cluster_takes_next(command: &Command, letters: &[u8]) -> bool {
    for (at, letter) in letters.iter().enumerate() {
        let option = command.get_arguments().find(|arg| arg.get_short() == Some(char::from(*letter)));
        if takes_next(option) {
            return at + 1 == letters.len();
        }
    }
    false
}

/// Word as text; empty where it is no UTF-8.
pub(super) fn text(word: &OsStr) -> &str {
    word.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn the_view_is_found_among_options_and_values() {
        for (line, found) in [
            ("live", Some("live")),
            ("--format json live dir", Some("live")),
            ("--format=json live dir", Some("live")),
            ("-n 3 live", Some("live")),
            ("-n3 live", Some("live")),
            ("-qn 3 live", Some("live")),
            ("-qf live", Some("live")),
            ("-o live sites", Some("sites")),
            ("-olive sites", Some("sites")),
            ("--time -2s, sites", Some("sites")),
            ("--no-such sites", Some("sites")),
            ("-", Some("-")),
            ("--strict", None),
            ("-q -- live", None),
            ("--top", None),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let index = first_word(&Args::command(), &words);
            assert_eq!(index.map(|index| text(&words[index])), found, "{line}");
        }
    }
}
