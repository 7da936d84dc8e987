//! Rules that a test can hold: functions of at most 80 lines, files and folders without circles, and documents whose links and file
//! names exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod circles;
mod documents;
mod lengths;
mod sources;

use sources::{Folder, Offender, folders};

/// Fails if a folder of the project has an offender.
fn hold(what: &str, offenders: impl Fn(&Folder) -> Vec<Offender>) {
    let mut found = String::new();
    for folder in folders() {
        let offenders = offenders(&folder);
        println!("{}: {} {what}", folder.name, offenders.len());
        found.extend(offenders.iter().map(|offender| format!("  {offender}\n")));
    }
    assert!(found.is_empty(), "{what}:\n{found}");
}

#[test]
fn functions_have_at_most_80_lines() {
    hold("functions of more than 80 lines", |folder| folder.offenders(lengths::long_functions));
}

#[test]
fn files_use_each_other_in_one_direction() {
    hold("files in circles", circles::files_in_circles);
}

#[test]
fn folders_use_each_other_in_one_direction() {
    hold("folders in circles", circles::folders_in_circles);
}

#[test]
fn documents_name_files_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let missing = documents::missing_paths(root);
    assert!(missing.is_empty(), "no such files: {missing:#?}");
}

#[test]
fn documents_name_tests_that_exist() {
    let missing = documents::missing_tests(&folders());
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

#[test]
fn links_of_documents_lead_somewhere() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let broken = documents::broken_links(root);
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}
