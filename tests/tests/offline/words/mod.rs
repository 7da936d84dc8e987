//! Rules that a test can hold: no circles between files or folders, and documents whose links, files and tests exist. Clippy counts
//! the lines of functions.

mod circles;
mod messages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use circles::{Edges, circles};

/// Path in the workspace.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Files below a folder whose names end so, without recordings, what is built, and other people's code.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let is_ours =
        |path: &PathBuf| !path.is_symlink() && !["data", "target", ".git"].iter().any(|name| path.ends_with(name));
    let of = |path: PathBuf| if path.is_dir() { files(&path, end) } else { vec![path] };
    let named = |path: &PathBuf| path.to_string_lossy().ends_with(end);
    entries.into_iter().filter(is_ours).flat_map(of).filter(named).collect()
}

fn no_circles(edges: fn(&Path) -> Edges) {
    let roots = [files(workspace(), "src/lib.rs"), files(workspace(), "src/main.rs")].concat();
    assert!(roots.len() > 5, "{roots:?}");
    for root in roots {
        let found = circles(&edges(&root));
        assert!(found.is_empty(), "circles of {}: {found:#?}", root.display());
    }
}

#[test]
fn files_use_each_other_in_one_direction() {
    no_circles(circles::files);
}

#[test]
fn folders_use_each_other_in_one_direction() {
    no_circles(circles::folders);
}

/// Documents in the project's root and in `docs`, as paths from the root with their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let paths = [workspace().to_owned(), workspace().join("docs")].map(|folder| fs::read_dir(folder).unwrap());
    let paths = paths.into_iter().flatten().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Texts in backquotes.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn documents_name_files_that_exist() {
    for (document, text) in documents() {
        // A path has a slash, no space, and begins with a folder of the project.
        let is_path = |code: &&str| {
            let folder = code.split('/').next().unwrap();
            let is_ours = !folder.is_empty() && !folder.starts_with('.') && folder != "target";
            code.contains('/') && !code.contains([' ', '*', '<', '$']) && is_ours && workspace().join(folder).is_dir()
        };
        for path in codes(&text).filter(is_path) {
            assert!(workspace().join(path.split(':').next().unwrap()).exists(), "{}: {path}", document.display());
        }
    }
}

/// Anchors of a document's headings, as web pages of repositories make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = heading.trim_matches(['#', ' ']).to_lowercase();
        kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    let prose = text.split("\n```").step_by(2);
    prose.flat_map(str::lines).filter(|line| line.starts_with('#')).map(anchor).collect()
}

#[test]
fn links_of_documents_lead_somewhere() {
    for (document, text) in documents() {
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            let is_there = match fs::read_to_string(&target) {
                Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                // A folder, or a picture.
                Err(_) => target.exists() && anchor.is_empty(),
            };
            assert!(is_there || link.contains("://"), "{}: {link}", document.display());
        }
    }
}

/// The last cell of a row has `FILE: NAME, …; FILE: NAME, …`; the tests of `unit` may be in any file.
#[test]
fn promises_name_tests_that_exist() {
    let sources = files(workspace(), ".rs");
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let name = |path: &Path| match stem(path).as_str() {
        "main" | "mod" => stem(path.parent().unwrap()),
        name => name.to_owned(),
    };
    let tests = workspace().join("tests/tests");
    let promises = fs::read_to_string(workspace().join("docs/reliability.md")).unwrap();
    for row in promises.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")) {
        let groups = row.rsplit(" | ").next().unwrap().split("; ");
        for (file, names) in
            groups.filter_map(|group| group.split_once(": ")).filter(|(_, names)| names.starts_with('`'))
        {
            let of_file = |path: &&PathBuf| file == "unit" || path.starts_with(&tests) && name(path) == file;
            let texts: Vec<String> =
                sources.iter().filter(of_file).map(|path| fs::read_to_string(path).unwrap()).collect();
            for test in codes(names).filter(|code| !code.contains('=')) {
                let forms = [format!("fn {test}("), format!("{test} =>")];
                let is_there = texts.iter().any(|text| forms.iter().any(|form| text.contains(form)));
                assert!(is_there, "docs/reliability.md: no test {file}: {test}");
            }
        }
    }
}

/// Line of files that read what a stranger may have written.
const LINTS: &str = "#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]";

#[test]
fn files_that_read_bytes_deny_what_may_panic() {
    let text = fs::read_to_string(workspace().join("CONTRIBUTING.md")).unwrap();
    for root in ["abi/src/lib.rs", "analysis/src/names/mod.rs", "analysis/src/cache/mod.rs"] {
        assert!(fs::read_to_string(workspace().join(root)).unwrap().contains(LINTS), "{root} lacks the line of lints");
        assert!(text.contains(root), "CONTRIBUTING.md does not name {root}");
    }
}
