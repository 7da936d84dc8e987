//! Paths and links of the documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::sources::{Folder, Source};

/// Documents in the project's root and in `docs`, as paths from the root.
fn documents(root: &Path) -> Vec<PathBuf> {
    let folders = [root.to_owned(), root.join("docs")];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md"));
    let mut paths: Vec<PathBuf> = paths.map(|path| path.strip_prefix(root).unwrap().to_owned()).collect();
    paths.sort();
    paths
}

/// Paths in backquotes that do not exist: a path has a slash, no space, and begins with a folder of the project.
pub(crate) fn missing_paths(root: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    for document in documents(root) {
        let text = fs::read_to_string(root.join(&document)).unwrap();
        for (number, line) in text.lines().enumerate() {
            for code in line.split('`').skip(1).step_by(2) {
                let is_path = code.contains('/')
                    && !code.contains([' ', '*', '<', '$'])
                    && !code.starts_with('/')
                    && !code.contains("FILE");
                let folder = code.split('/').next().unwrap_or("");
                let is_ours = is_path && !folder.starts_with('.') && root.join(folder).is_dir() && folder != "target";
                if is_ours && !root.join(code.split(':').next().unwrap_or(code)).exists() {
                    missing.push(format!("{}:{}: {code}", document.display(), number + 1));
                }
            }
        }
    }
    missing
}

/// Tests of docs/reliability.md that do not exist. The last cell of its rows has `FILE: NAME, …; FILE: NAME, …`; those of `unit`
/// may be in any file.
pub(crate) fn missing_tests(folders: &[Folder]) -> Vec<String> {
    let sources = || folders.iter().flat_map(|folder| &folder.files);
    let file = |source: &Source| {
        let path = Path::new(&source.name);
        let is_named_by_folder = path.ends_with("main.rs") || path.ends_with("mod.rs");
        let path = if is_named_by_folder { path.parent().unwrap() } else { path };
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let mut missing = Vec::new();
    for row in include_str!("../../../../docs/reliability.md").lines().filter(|line| line.starts_with("| ")) {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        // The tables of kernel paths name no files.
        for of_file in tests.split("; ").filter(|tests| tests.contains(": `")) {
            let (name, tests) = of_file.split_once(": ").unwrap();
            let is_asked =
                |source: &&Source| name == "unit" || source.name.starts_with("tests/tests/") && file(source) == name;
            for test in tests.split('`').skip(1).step_by(2).filter(|code| !code.contains('=')) {
                let forms = [format!("fn {test}("), format!("{test} =>")];
                if !sources().filter(is_asked).any(|source| forms.iter().any(|form| source.text.contains(form))) {
                    missing.push(format!("{name}: {test}"));
                }
            }
        }
    }
    missing
}

/// Anchors of a document's headings, as web pages of repositories make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = heading.trim().to_lowercase();
        kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    let (mut found, mut is_code) = (BTreeSet::new(), false);
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with('#') {
            found.insert(anchor(line.trim_start_matches('#')));
        }
    }
    found
}

/// Links to files and headings that do not exist.
pub(crate) fn broken_links(root: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    for document in documents(root) {
        let text = fs::read_to_string(root.join(&document)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let own = root.join(&document);
            let target = if file.is_empty() { own } else { own.parent().unwrap().join(file) };
            let is_there = match fs::read_to_string(&target) {
                Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                // A folder, or a picture.
                Err(_) => target.exists() && anchor.is_empty(),
            };
            if !is_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    broken
}
