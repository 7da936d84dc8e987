//! Ratchets: the numbers of comments with words that the project's rule forbids, of functions that are too long, and of files in
//! circles. None of them may grow.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod circles;
mod comments;
mod documents;
mod lengths;
mod sources;

use std::collections::BTreeMap;

use sources::{Folder, Offender, folders};

/// Numbers of today by folder: comments that open with a forbidden word, forbidden words for persons, functions of more than
/// 80 lines, files in circles. A folder that is not listed has none. Code that moves to another folder takes its numbers along.
const ALLOWED: [(&str, [usize; 4]); 2] = [("abi", [101, 11, 2, 12]), ("analysis", [139, 21, 1, 8])];

/// Compares the offenders of each folder with column `column` of the allowed numbers.
fn hold(what: &str, column: usize, offenders: impl Fn(&Folder) -> Vec<Offender>) {
    let allowed: BTreeMap<&str, usize> = ALLOWED.iter().map(|(name, numbers)| (*name, numbers[column])).collect();
    let mut grown = String::new();
    for folder in folders() {
        let found = offenders(&folder);
        let limit = allowed.get(folder.name.as_str()).copied().unwrap_or(0);
        println!("{}: {} {what}, {limit} allowed", folder.name, found.len());
        if found.len() > limit {
            let lines: String = found.iter().map(|offender| format!("  {offender}\n")).collect();
            grown += &format!("{}: {} {what}, {limit} allowed:\n{lines}", folder.name, found.len());
        }
    }
    assert!(
        grown.is_empty(),
        "{grown}The numbers in tests/tests/words/main.rs may only fall: change the code, not the number."
    );
}

#[test]
fn comments_open_with_a_noun_a_verb_or_a_limit() {
    hold("comments open with a forbidden word", 0, |folder| folder.offenders(comments::openings));
}

#[test]
fn comments_name_the_actor() {
    hold("comments speak of persons without a name", 1, |folder| folder.offenders(comments::persons));
}

#[test]
fn functions_have_at_most_80_lines() {
    hold("functions of more than 80 lines", 2, |folder| folder.offenders(lengths::long_functions));
}

#[test]
fn files_use_each_other_in_one_direction() {
    hold("files in circles", 3, circles::files_in_circles);
}

#[test]
fn documents_name_files_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let missing = documents::missing_paths(root);
    assert!(missing.is_empty(), "no such files: {missing:#?}");
}
