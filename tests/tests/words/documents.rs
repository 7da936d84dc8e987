//! Paths that the documents name.

use std::fs;
use std::path::Path;

/// Documents for people who change the code.
const DOCUMENTS: [&str; 4] = ["docs/architecture.md", "CONTRIBUTING.md", "README.md", "docs/reliability.md"];

/// Paths in backquotes that do not exist: a path has a slash, no space, and begins with a folder of the project.
pub(crate) fn missing_paths(root: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document)).unwrap();
        for (number, line) in text.lines().enumerate() {
            for code in line.split('`').skip(1).step_by(2) {
                let is_path = code.contains('/')
                    && !code.contains([' ', '*', '<', '$'])
                    && !code.starts_with('/')
                    && !code.contains("FILE");
                let folder = code.split('/').next().unwrap_or("");
                let is_ours = is_path && !folder.starts_with('.') && root.join(folder).is_dir() && folder != "target";
                if is_ours && !root.join(code.split(':').next().unwrap_or(code)).exists() {
                    missing.push(format!("{document}:{}: {code}", number + 1));
                }
            }
        }
    }
    missing
}
