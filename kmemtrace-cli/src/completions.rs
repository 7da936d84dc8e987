//! Completions: those of the program that does the work of the first word, so they are never out of date.

use std::fmt::Write as _;

use crate::words::{OWN, WORDS};

/// Place of the list of words in a script.
const NAMES: &str = "@WORDS@";
/// Place of the lines that choose a program by a word.
const CHOICES: &str = "@CHOICES@";

/// Script for a shell; `None` for one that has none.
pub(crate) fn script(shell: &str) -> Option<String> {
    let (script, choices) = match shell {
        "bash" => (
            include_str!("completions/kmemtrace.bash"),
            choices("\t", |name, program, skipped| format!("{name}) program={program} skipped={skipped} ;;")),
        ),
        "zsh" => (
            include_str!("completions/_kmemtrace"),
            choices("\t", |name, program, skipped| format!("{name}) program={program} skipped={skipped} ;;")),
        ),
        "fish" => (
            include_str!("completions/kmemtrace.fish"),
            choices("\t\t", |name, program, skipped| {
                format!("case {name}\n\t\t\tset program {program}\n\t\t\tset skipped {skipped}")
            }),
        ),
        _ => return None,
    };
    let names = WORDS.iter().filter(|word| !word.meaning.is_empty()).map(|word| word.name);
    let names: Vec<&str> = names.chain(OWN.map(|(name, _)| name)).collect();
    Some(script.replace(NAMES, &names.join(" ")).replace(CHOICES, choices.trim()))
}

/// A line for each word: its program, and the number of words that the program does not take.
fn choices(indent: &str, line: impl Fn(&str, &str, u8) -> String) -> String {
    let mut text = String::new();
    for word in &WORDS {
        let _ = writeln!(text, "{indent}{}", line(word.name, word.program, u8::from(!word.is_passed_on)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_all_words_and_no_places_left() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(shell).unwrap();
            assert!(![NAMES, CHOICES].iter().any(|place| script.contains(place)), "{script}");
            assert!(WORDS.iter().all(|word| script.contains(word.name) && script.contains(word.program)), "{script}");
        }
        assert_eq!(script("tcsh"), None);
    }
}
