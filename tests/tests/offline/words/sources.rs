//! The workspace's source files, by folder.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder of the workspace: a crate.
pub(crate) struct Folder {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) files: Vec<Source>,
}

/// A source file.
pub(crate) struct Source {
    /// Path below the workspace.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A place that breaks a rule.
pub(crate) struct Offender {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl Folder {
    /// Offenders of all files, by a rule that tells line and reason.
    pub(crate) fn offenders(&self, rule: impl Fn(&str) -> Vec<(usize, String)>) -> Vec<Offender> {
        let of = |source: &Source| {
            let file = source.name.clone();
            let offender = move |(line, what)| Offender { file: file.clone(), line, what };
            rule(&source.text).into_iter().map(offender).collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of).collect()
    }
}

/// Every folder of the workspace that has source files, in the order of their names.
pub(crate) fn folders() -> Vec<Folder> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = Vec::new();
    for path in entries(workspace) {
        if !path.join("Cargo.toml").is_file() {
            continue;
        }
        let mut paths = Vec::new();
        collect(&path, &mut paths);
        let source = |path: &PathBuf| Source {
            name: path.strip_prefix(workspace).unwrap().display().to_string(),
            text: fs::read_to_string(path).unwrap(),
        };
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        folders.push(Folder { name, files: paths.iter().map(source).collect(), path });
    }
    assert!(folders.len() > 3, "{}: too few folders with a Cargo.toml", workspace.display());
    folders
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn collect(dir: &Path, out: &mut Vec<PathBuf>) {
    for path in entries(dir) {
        // A link may lead anywhere; `data` holds recordings, `target` other people's code.
        let is_left_out = ["data", "target"].iter().any(|name| path.ends_with(name)) || path.is_symlink();
        if path.is_dir() && !is_left_out {
            collect(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}
