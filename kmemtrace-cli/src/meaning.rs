//! From a command line to the program that does its work.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::completions;
use crate::help;
use crate::kmem;
use crate::words::{EVENTS, OWN, PERF, RECORDER, REPORT, WORDS, WORDS_OF_OTHERS, Word};

/// Meaning of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A text to print.
    Text(String),
    /// A program to run with these words.
    Program { name: &'static str, words: Vec<OsString> },
    /// No meaning; the line says why, and what to type.
    Refused(String),
}

/// Meaning of the words behind the program's name.
pub(crate) fn of(words: &[OsString]) -> Meaning {
    let Some((first, rest)) = words.split_first() else { return Meaning::Text(help::wanted()) };
    match first.to_str() {
        Some("-h" | "--help") => Meaning::Text(help::all()),
        Some("-V" | "--version") => Meaning::Text(format!("kmemtrace {}\n", env!("CARGO_PKG_VERSION"))),
        Some("help") => of_help(rest),
        Some("completions") => of_completions(rest),
        Some(option) if option.starts_with('-') && option != "-" => {
            let option = option.escape_debug();
            Meaning::Refused(format!(
                "{option}: put a word before it: record, or a view such as summary; kmemtrace -h lists them"
            ))
        }
        Some(name) => match Word::named(name) {
            Some(word) => of_word(word, rest),
            None => of_view(name, words),
        },
        None => program(REPORT, words),
    }
}

/// Help of a word or of a view.
fn of_help(rest: &[OsString]) -> Meaning {
    let Some(name) = rest.first() else { return Meaning::Text(help::all()) };
    match name.to_str().and_then(Word::named) {
        Some(word) => {
            let passed = word.is_passed_on.then_some(word.name);
            let words: Vec<OsString> = passed.into_iter().chain(["--help"]).map(OsString::from).collect();
            Meaning::Program { name: word.program, words }
        }
        None if OWN.iter().any(|(own, _)| name == own) => Meaning::Text(help::all()),
        None if name == PERF => Meaning::Text(help::of_perf()),
        None => refused_as_of_others(name, rest)
            .unwrap_or_else(|| program(REPORT, &[&[OsString::from("help")], rest].concat())),
    }
}

fn of_completions(rest: &[OsString]) -> Meaning {
    let script = match rest {
        [shell] => shell.to_str().and_then(completions::script),
        _ => None,
    };
    script.map_or_else(|| Meaning::Refused("completions: name a shell: bash, zsh or fish".to_owned()), Meaning::Text)
}

fn of_word(word: &'static Word, rest: &[OsString]) -> Meaning {
    // The recorder would take the command for its own word.
    let command =
        rest.first().and_then(|first| first.to_str()).filter(|_| word.program == RECORDER && !word.is_passed_on);
    if let Some(other) = command.and_then(Word::named).filter(|other| other.program == RECORDER) {
        let name = other.name;
        return Meaning::Refused(format!(
            "record {name}: type kmemtrace {name}, or for the command of that name kmemtrace record -- {name}"
        ));
    }
    let passed = word.is_passed_on.then(|| OsString::from(word.name));
    Meaning::Program { name: word.program, words: passed.into_iter().chain(rest.iter().cloned()).collect() }
}

/// A view, a recording, or a mistyped word.
fn of_view(name: &str, words: &[OsString]) -> Meaning {
    if !Path::new(name).exists() {
        if let Some(refused) = refused_as_of_others(OsStr::new(name), words) {
            return refused;
        }
        if let Some(near) = nearest(name) {
            return Meaning::Refused(format!(
                "{}: not a word of kmemtrace; did you mean kmemtrace {near}?",
                name.escape_debug()
            ));
        }
    }
    program(REPORT, words)
}

/// Refusal of a command line of another tool, which begins with the word `name`.
fn refused_as_of_others(name: &OsStr, words: &[OsString]) -> Option<Meaning> {
    let texts: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let line = line_for(&texts.iter().map(AsRef::as_ref).collect::<Vec<&str>>())?;
    Some(Meaning::Refused(format!("{}: not a word of kmemtrace; type {line}", name.to_string_lossy())))
}

/// What to type for a command line of another tool.
fn line_for(words: &[&str]) -> Option<String> {
    let (first, rest) = words.split_first()?;
    match *first {
        PERF if rest.is_empty() => Some(format!("kmemtrace help {PERF}")),
        PERF => line_for(rest).or_else(|| Some(format!("kmemtrace {}", rest.join(" ").escape_debug()))),
        "kmem" => Some(kmem::twin(rest)),
        "stat" if kmem::is_meant(rest) => Some(kmem::twin(words)),
        name => WORDS_OF_OTHERS.iter().find(|(other, _)| *other == name).map(|(_, line)| with_files(line, rest)),
    }
}

/// The line with the files that were named behind a word of another tool, where it takes files in the same way.
fn with_files(line: &str, rest: &[&str]) -> String {
    let files = match rest {
        ["-i", file] => std::slice::from_ref(file),
        files => files,
    };
    let is_file = |word: &&str| !word.starts_with('-');
    let shown = || files.iter().map(|file| file.escape_debug().to_string()).collect::<Vec<String>>().join(" ");
    match line.strip_suffix(" BEFORE AFTER") {
        Some(compare) if files.len() == 2 && files.iter().all(is_file) => format!("{compare} {}", shown()),
        None if line == EVENTS && !files.is_empty() && files.iter().all(is_file) => format!("{line} {}", shown()),
        _ => line.to_owned(),
    }
}

/// The word that differs from a mistyped one by a letter, or by two of a long one: `export` is a view, and no mistyped `report`.
fn nearest(name: &str) -> Option<&'static str> {
    let own = WORDS.iter().map(|word| word.name).chain(OWN.map(|(name, _)| name));
    let distance = |word: &&str| strsim::osa_distance(name, word);
    own.min_by_key(distance).filter(|word| distance(word) <= if word.len() < 7 { 1 } else { 2 })
}

fn program(name: &'static str, words: &[impl AsRef<OsStr>]) -> Meaning {
    Meaning::Program { name, words: words.iter().map(|word| word.as_ref().to_owned()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::CHECK;

    fn meaning(line: &str) -> Meaning {
        of(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn each_word_runs_its_program() {
        for (line, name, words) in [
            ("record -d 5 -- make", RECORDER, "-d 5 -- make"),
            ("top -e page", RECORDER, "top -e page"),
            ("watch", RECORDER, "watch"),
            ("doctor", RECORDER, "doctor"),
            ("probe", RECORDER, "probe"),
            ("recover -B x", RECORDER, "recover -B x"),
            ("check DIR", CHECK, "DIR"),
            ("report", REPORT, ""),
            ("report leaks -n 3", REPORT, "leaks -n 3"),
            ("leaks -n 3", REPORT, "leaks -n 3"),
            ("some.data", REPORT, "some.data"),
            ("help leaks", REPORT, "help leaks"),
            ("help report", REPORT, "--help"),
            ("help record", RECORDER, "--help"),
            ("help top", RECORDER, "top --help"),
            ("help check", CHECK, "--help"),
        ] {
            assert_eq!(meaning(line), program(name, &words.split_whitespace().collect::<Vec<_>>()), "{line}");
        }
    }

    #[test]
    fn other_words_get_the_line_to_type() {
        for (line, said) in [
            ("recrod -d 5", "recrod: not a word of kmemtrace; did you mean kmemtrace record?"),
            ("docter", "docter: not a word of kmemtrace; did you mean kmemtrace doctor?"),
            ("chek", "chek: not a word of kmemtrace; did you mean kmemtrace check?"),
            ("script x", "script: not a word of kmemtrace; type kmemtrace events x"),
            ("script -i x", "script: not a word of kmemtrace; type kmemtrace events x"),
            ("script -F comm", "script: not a word of kmemtrace; type kmemtrace events"),
            ("start", "start: not a word of kmemtrace; type kmemtrace record, which Ctrl-C ends"),
            ("kmem stat --caller -l 5", "kmem: not a word of kmemtrace; type kmemtrace sites -n 5"),
            ("perf kmem stat --live", "perf: not a word of kmemtrace; type kmemtrace live"),
            ("perf record -a", "perf: not a word of kmemtrace; type kmemtrace record -a"),
            ("stat --page --live", "stat: not a word of kmemtrace; type kmemtrace live --kind pages"),
            (
                "stat -e kmem:*",
                "stat: not a word of kmemtrace; type kmemtrace record -- COMMAND, then kmemtrace summary",
            ),
            ("help script", "script: not a word of kmemtrace; type kmemtrace events"),
            ("diff a b", "diff: not a word of kmemtrace; type kmemtrace compare a b"),
            ("diff", "diff: not a word of kmemtrace; type kmemtrace compare BEFORE AFTER"),
            ("completions tcsh", "completions: name a shell: bash, zsh or fish"),
            ("record top", "record top: type kmemtrace top, or for the command of that name kmemtrace record -- top"),
            ("-d 5", "-d: put a word before it: record, or a view such as summary; kmemtrace -h lists them"),
        ] {
            assert_eq!(meaning(line), Meaning::Refused(said.to_owned()), "{line}");
        }
        for view in ["waits", "chart", "tree", "tasks", "events", "export", "stalls", "leaks", "cross", "pack"] {
            assert_eq!(meaning(view), program(REPORT, &[view]), "{view} is a view");
        }
    }

    #[test]
    fn words_of_perf_are_listed() {
        let Meaning::Text(text) = meaning("help perf") else { panic!("no text") };
        assert!(text.contains("perf kmem stat --caller") && text.contains("kmemtrace sites"), "{text}");
    }

    #[test]
    fn the_command_alone_prints_what_people_want() {
        let Meaning::Text(text) = meaning("") else { panic!("no text") };
        assert_eq!(text.lines().filter(|line| line.contains("   kmemtrace ")).count(), 6, "{text}");
    }
}
