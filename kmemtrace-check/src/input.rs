//! Default input: the trace in the working directory.

use std::path::{Path, PathBuf};

/// Directory that `kmemtraced` writes by default.
const DEFAULT: &str = "kmemtrace.data";

/// Paths given, else the trace in the working directory.
pub(crate) fn or_default(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    if !paths.is_empty() {
        return Ok(paths.to_vec());
    }
    default_in(Path::new(".")).map(|path| vec![path]).ok_or_else(|| {
        format!("neither ./{DEFAULT} nor ./cpu*.out is here: name a trace directory or the files of one")
    })
}

/// Trace in a directory. Files that lie in the directory itself are checked together, because missing files and holes
/// show only over all CPUs.
fn default_in(here: &Path) -> Option<PathBuf> {
    if here.join(DEFAULT).exists() {
        return Some(PathBuf::from(DEFAULT));
    }
    let is_ours = |name: &str| name.starts_with("cpu") && name.ends_with(".out");
    let mut entries = std::fs::read_dir(here).ok()?.filter_map(Result::ok);
    entries.any(|e| e.file_name().to_str().is_some_and(is_ours)).then(|| PathBuf::from("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_s_directory_comes_before_loose_files() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(default_in(dir.path()), None);
        std::fs::write(dir.path().join("cpu"), "").unwrap();
        std::fs::write(dir.path().join("x.out"), "").unwrap();
        assert_eq!(default_in(dir.path()), None);
        std::fs::write(dir.path().join("cpu3.out"), "").unwrap();
        assert_eq!(default_in(dir.path()), Some(".".into()));
        std::fs::create_dir(dir.path().join(DEFAULT)).unwrap();
        assert_eq!(default_in(dir.path()), Some(DEFAULT.into()));
    }
}
