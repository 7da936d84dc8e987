//! The list of messages, `tests/messages.txt`: what the programs tell their users, so that it can be read in a row.
//!
//! It is made from the sources: texts that stand in a call or macro that tells something, in a function that returns text, or in a
//! constant. Help texts, which help itself shows, are left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{files, workspace};

/// Folders with the sources of the programs, and of what they are built on.
const CRATES: [&str; 7] = ["kmemtraced", "kmemtrace-check", "kmemtrace-report", "analysis", "abi", "fence", "sandbox"];
/// Files whose constants are help texts, tables of names, or the words of a page for browsers.
const OF_HELP: [&str; 9] = [
    "kmemtrace-report/src/views",
    "kmemtrace-report/src/columns",
    "kmemtrace-report/src/args",
    "kmemtrace-report/src/cli/commands.rs",
    "kmemtrace-report/src/render/html",
    "kmemtrace-check/src/options.rs",
    "kmemtraced/src/args.rs",
    "analysis/src/account",
    "abi/src/kernel",
];
/// Calls and macros whose texts users read.
const TELLING: [&str; 18] = [
    "say",
    "say_verbose",
    "warn",
    "bail",
    "anyhow",
    "context",
    "with_context",
    "Line",
    "Err",
    "ok_or",
    "ok_or_else",
    "map_err",
    "complain",
    "text",
    "empty",
    "new",
    "raw",
    "title",
];
/// Line that a text file of messages begins with.
const HEAD: &str = "# Messages, by file and function. Made from the sources: RENEW=1 cargo test -p kmemtrace-tests --test offline messages";

/// What is known where a token stands.
#[derive(Clone, Copy)]
struct At<'a> {
    /// Function or constant.
    name: &'a str,
    /// Texts are told.
    is_told: bool,
    /// Constants are help texts.
    is_of_help: bool,
}

/// Adds the messages of a stream of tokens as `FUNCTION: TEXT`.
fn walk(stream: TokenStream, at: At<'_>, found: &mut BTreeSet<String>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut index = 0;
    while index < tokens.len() {
        index += step(&tokens, index, at, found);
    }
}

/// Takes one token, or several that belong together; returns their number.
fn step(tokens: &[TokenTree], index: usize, at: At<'_>, found: &mut BTreeSet<String>) -> usize {
    let next = |ahead: usize| tokens.get(index + ahead);
    match &tokens[index] {
        TokenTree::Punct(punct) if punct.as_char() == '#' => match next(1) {
            Some(TokenTree::Group(attribute)) => {
                let text = attribute.stream().to_string();
                if text.starts_with("error") {
                    walk(attribute.stream(), At { is_told: true, ..at }, found);
                }
                if text.starts_with("cfg") && text.contains("test") { 2 + item(&tokens[index + 2..]) } else { 2 }
            }
            _ => 1,
        },
        TokenTree::Ident(word) if word == "fn" => {
            let Some(TokenTree::Ident(name)) = next(1) else { return 1 };
            let length = item(&tokens[index..]);
            let parts = &tokens[index..index + length];
            let arrow = parts.windows(2).position(|pair| pair[0].to_string() == "-" && pair[1].to_string() == ">");
            let returned: String = arrow.map_or(String::new(), |from| {
                parts[from..parts.len() - 1].iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            });
            let is_told =
                ["String", "str"].iter().any(|name| returned.split([' ', '<', '>']).any(|word| word == *name));
            let name = name.to_string();
            if let Some(TokenTree::Group(body)) = parts.last() {
                walk(body.stream(), At { name: &name, is_told, ..at }, found);
            }
            length
        }
        TokenTree::Ident(word) if word == "const" || word == "static" => {
            let Some(TokenTree::Ident(name)) = next(1).filter(|next| next.to_string() != "fn") else { return 1 };
            let end = tokens[index..].iter().position(|token| token.to_string() == ";").unwrap_or(1);
            let name = name.to_string();
            let value = tokens[index..index + end].iter().cloned().collect();
            walk_value(value, At { name: &name, is_told: !at.is_of_help, ..at }, found);
            end + 1
        }
        TokenTree::Ident(word) if TELLING.contains(&word.to_string().as_str()) => {
            let ahead = if next(1).is_some_and(|token| token.to_string() == "!") { 2 } else { 1 };
            match next(ahead) {
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                    walk(group.stream(), At { is_told: true, ..at }, found);
                    ahead + 1
                }
                _ => 1,
            }
        }
        TokenTree::Group(group) => {
            walk(group.stream(), at, found);
            1
        }
        TokenTree::Literal(literal) => {
            if let Some(text) = text(&literal.to_string()).filter(|text| at.is_told && is_of_words(text)) {
                found.insert(format!("{}: {text}", at.name));
            }
            1
        }
        _ => 1,
    }
}

/// The value of a constant, whose type has no texts.
fn walk_value(stream: TokenStream, at: At<'_>, found: &mut BTreeSet<String>) {
    for token in stream {
        match token {
            TokenTree::Group(group) => walk_value(group.stream(), at, found),
            TokenTree::Literal(literal) => {
                if let Some(text) = text(&literal.to_string()).filter(|text| at.is_told && is_of_words(text)) {
                    found.insert(format!("{}: {text}", at.name));
                }
            }
            _ => {}
        }
    }
}

/// Number of tokens of an item: to its body, or its semicolon.
fn item(tokens: &[TokenTree]) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// Text of a string literal on one line; `None` for other literals.
fn text(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('r') {
        return Some(raw.trim_matches('#').trim_matches('"').replace('\n', " "));
    }
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = String::new();
    let mut rest = inner.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek().copied()) {
            ('\\', Some('\n')) => {
                while rest.peek().is_some_and(|c| c.is_whitespace()) {
                    rest.next();
                }
            }
            ('\\', Some('n')) => {
                rest.next();
                out.push(' ');
            }
            ('\\', Some(quoted)) if "\"\\'".contains(quoted) => {
                rest.next();
                out.push(quoted);
            }
            ('\n', _) => out.push(' '),
            _ => out.push(c),
        }
    }
    Some(out.trim().to_owned())
}

/// True for a text that says something, and is no name, field or format.
fn is_of_words(text: &str) -> bool {
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_alphabetic() || ",.;:'-".contains(c));
    text.split(' ').filter(is_word).count() >= 3
}

/// The list, a line a message.
fn list() -> String {
    let mut lines = vec![HEAD.to_owned()];
    for folder in CRATES {
        for path in files(&workspace().join(folder).join("src"), ".rs") {
            let place = path.strip_prefix(workspace()).unwrap().to_str().unwrap().to_owned();
            if place.ends_with("/tests.rs") || place.contains("/exact") || place.ends_with("fixture.rs") {
                continue;
            }
            let tokens: TokenStream = fs::read_to_string(&path).unwrap().parse().unwrap();
            let is_of_help = OF_HELP.iter().any(|of_help| place.starts_with(of_help));
            let mut found = BTreeSet::new();
            walk(tokens, At { name: "", is_told: false, is_of_help }, &mut found);
            if !found.is_empty() {
                lines.push(format!("\n{place}"));
                lines.extend(found.into_iter().map(|message| format!("  {message}")));
            }
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_list_of_messages_is_that_of_the_sources() {
    let path: &Path = &workspace().join("tests/messages.txt");
    let made = list();
    if std::env::var_os("RENEW").is_some() {
        fs::write(path, &made).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let (made, kept): (BTreeSet<&str>, BTreeSet<&str>) = (made.lines().collect(), kept.lines().collect());
    let differing: Vec<&&str> = made.symmetric_difference(&kept).take(10).collect();
    assert!(differing.is_empty(), "tests/messages.txt is out of date; its first line has the command: {differing:#?}");
}

#[test]
fn messages_are_found_where_they_are_told() {
    let found = |source: &str| {
        let mut found = BTreeSet::new();
        walk(source.parse().unwrap(), At { name: "", is_told: false, is_of_help: false }, &mut found);
        found.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(found("fn f() { say(\"the disk is full\"); let x = \"not told to users\"; }"), ["f: the disk is full"]);
    assert_eq!(found("fn f() { bail!(\"{x}: cannot be made: \\\n   use -o\") }"), ["f: {x}: cannot be made: use -o"]);
    assert_eq!(found("fn f() -> Option<String> { Some(\"no file is there\".to_owned()) }"), ["f: no file is there"]);
    assert_eq!(found("#[cfg(test)] mod tests { fn f() { say(\"the disk is full\"); } } fn g() {}"), [""; 0]);
    assert_eq!(found("enum E { #[error(\"the disk is full\")] A }"), [": the disk is full"]);
}
