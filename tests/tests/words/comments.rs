//! Words of comments.

use std::str::FromStr;

use proc_macro2::{Span, TokenStream, TokenTree};

/// Words that no comment opens with.
const OPENINGS: [&str; 27] = [
    "he", "her", "him", "his", "i", "it", "its", "my", "of", "our", "she", "that", "their", "them", "these", "they",
    "those", "us", "we", "what", "where", "whether", "which", "who", "whom", "whose", "you",
];

/// Words for persons that have no name.
const PERSONS: [&str; 5] = ["anybody", "nobody", "somebody", "someone", "whoever"];

/// Comments of `source` that open with a forbidden word.
pub(crate) fn openings(source: &str) -> Vec<(usize, String)> {
    let opening = |block: Block| {
        let first = block.lines.iter().flat_map(|line| line.split_whitespace()).next()?;
        let word = words(first).next().filter(|_| first.starts_with(|c: char| !"`[<".contains(c)))?;
        OPENINGS.contains(&word.as_str()).then(|| (block.line, format!("a comment opens with \"{first}\"")))
    };
    blocks(source).into_iter().filter_map(opening).collect()
}

/// Words of `source`'s comments that stand for persons without a name.
pub(crate) fn persons(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for block in blocks(source) {
        for (index, line) in block.lines.iter().enumerate() {
            let persons = words(line).filter(|word| PERSONS.contains(&word.as_str()));
            found.extend(persons.map(|word| (block.line + index, format!("a comment says \"{word}\""))));
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Comment lines of one sort, one below the other.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// Number of the first line.
    line: usize,
    /// Text without the slashes.
    lines: Vec<String>,
}

/// The comments of a source file. Between two tokens stands nothing but space and comments, so no string is taken for one.
fn blocks(source: &str) -> Vec<Block> {
    let mut is_code = vec![false; source.len()];
    mark(TokenStream::from_str(source).unwrap(), source, &mut is_code);
    let mut blocks: Vec<Block> = Vec::new();
    // Sort and column of the last line's comment, where it may go on.
    let mut open: Option<(&str, usize)> = None;
    let (mut at, mut is_inside) = (0, false);
    for (index, line) in source.split_inclusive('\n').enumerate() {
        let starts = at;
        at += line.len();
        if is_inside {
            blocks.last_mut().unwrap().lines.push(line.trim().to_owned());
            is_inside = !line.contains("*/");
            continue;
        }
        let comment = line.match_indices("//").chain(line.match_indices("/*")).map(|(from, _)| from);
        let Some(from) = comment.filter(|from| !is_code[starts + from]).min() else {
            open = None;
            continue;
        };
        let text = &line[from..];
        let sort = ["///", "//!", "//", "/*"].into_iter().find(|sort| text.starts_with(sort)).unwrap_or("//");
        let said = text[sort.len()..].trim().to_owned();
        let stands_alone = line[..from].trim().is_empty();
        if stands_alone && sort != "/*" && open == Some((sort, from)) {
            blocks.last_mut().unwrap().lines.push(said);
        } else {
            blocks.push(Block { line: index + 1, lines: vec![said] });
        }
        is_inside = sort == "/*" && !text.contains("*/");
        open = stands_alone.then_some((sort, from));
    }
    blocks
}

/// Marks the bytes of all tokens that are no doc comments.
fn mark(tokens: TokenStream, source: &str, is_code: &mut [bool]) {
    let mut cover = |span: Span| {
        let range = span.byte_range();
        if !["//", "/*"].iter().any(|comment| source[range.start..].starts_with(comment)) {
            is_code[range].fill(true);
        }
    };
    let mut inner = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                cover(group.span_open());
                cover(group.span_close());
                inner.push(group.stream());
            }
            token => cover(token.span()),
        }
    }
    inner.into_iter().for_each(|tokens| mark(tokens, source, is_code));
}

#[test]
fn comments_are_found_and_strings_are_none() {
    let source = r##"
//! It is about files.
//! Nobody reads it.

/// `It` is code.
fn f() { // whose
    let url = "http://nobody"; // The reader: someone's.
    let raw = r#"// that "#;
    // One comment
    // of two lines.
    /* These
       are somebody */
    x / y;
    //
    // They follow an empty line.
}
"##;
    let lines = |found: Vec<(usize, String)>| found.into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    assert_eq!(lines(openings(source)), [2, 6, 11, 14]);
    assert_eq!(lines(persons(source)), [3, 7, 12]);
}
